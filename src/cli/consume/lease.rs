//! The client of `/v1/consumers`: leases events and reports their results.

use std::time::Duration;

use data_encoding::BASE64;

use crate::cli::prelude::*;
use crate::cli::remote::TIMEOUT;

/// A leased event.
#[derive(Clone, Debug)]
pub(in crate::cli) struct LeasedEvent {
    /// The event as the service shows it, without the payload.
    pub(in crate::cli) shown: Value,
    /// The payload's exact bytes.
    pub(in crate::cli) payload: Vec<u8>,
}

/// The answer to a request for events.
#[derive(Debug)]
pub(in crate::cli) enum NextEvents {
    /// Leased events; may be empty.
    Events(Vec<LeasedEvent>),
    /// None: the subscription is held, for this reason.
    Held(String),
    /// The service is busy or unreachable.
    Later(Failure),
}

/// One pull subscription, as a consumer sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Consumer<'a> {
    pub(in crate::cli) remote: &'a Remote,
    pub(in crate::cli) name: &'a str,
}

impl LeasedEvent {
    /// A field of the event.
    pub(in crate::cli) fn field(&self, name: &str) -> String {
        text(&self.shown, name)
    }

    /// The headers that a request with the event would have.
    pub(in crate::cli) fn headers(&self) -> Vec<(String, String)> {
        let headers = self.shown.get("headers").and_then(Value::as_object);
        let value =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        headers.into_iter().flatten().filter_map(value).collect()
    }

    /// The event's delivery and lease, which every report names.
    pub(in crate::cli) fn reference(&self) -> Map<String, Value> {
        let field =
            |name: &str| (name.to_owned(), self.shown.get(name).cloned().unwrap_or_default());
        [field("delivery"), field("lease")].into_iter().collect()
    }
}

impl Consumer<'_> {
    fn path(&self, verb: &str) -> String {
        format!("/v1/consumers/{}/{verb}", percent_encoded(self.name))
    }

    /// Leases up to `most` events, waiting up to `wait` for the first.
    pub(in crate::cli) fn next(&self, most: usize, wait: Duration) -> Result<NextEvents, Failure> {
        let query = [
            ("max", most.to_string()),
            ("wait", wait.as_secs().to_string()),
            ("payload", "base64".to_owned()),
        ];
        let path = with_query(&self.path("next"), &query);
        let answer = match self.remote.exchange("GET", &path, Vec::new(), &[], TIMEOUT) {
            Ok(answer) => answer,
            Err(error) => return Ok(NextEvents::Later(self.remote.unreachable(&error))),
        };
        if matches!(answer.status, 408 | 429 | 500..=599) {
            return Ok(NextEvents::Later(self.remote.refusal(&answer)));
        }
        if answer.status != 200 {
            return Err(self.remote.refusal(&answer));
        }
        if let Some(held) = answer.body.get("held").and_then(Value::as_str) {
            return Ok(NextEvents::Held(held.to_owned()));
        }
        let items = answer.body.get("items").and_then(Value::as_array);
        let leased = |item: &Value| {
            let mut shown = item.clone();
            let encoded = shown.as_object_mut().and_then(|fields| fields.remove("payload_base64"));
            let encoded = encoded.as_ref().and_then(Value::as_str).unwrap_or_default();
            let payload = BASE64.decode(encoded.as_bytes()).map_err(|error| {
                Failure::failed(format!("the service sent a payload that is not base64: {error}"))
            })?;
            Ok(LeasedEvent { shown, payload })
        };
        Ok(NextEvents::Events(
            items.into_iter().flatten().map(leased).collect::<Result<_, Failure>>()?,
        ))
    }

    /// Reports results or extends leases; returns the service's answer for each item. `new_lease` is how long extended
    /// leases run from now.
    pub(in crate::cli) fn settle(
        &self,
        verb: &str,
        items: &[Value],
        new_lease: Option<&str>,
    ) -> Result<Vec<Value>, Failure> {
        let mut body = json!({ "items": items });
        if let (Some(lease), Some(fields)) = (new_lease, body.as_object_mut()) {
            fields.insert("lease".to_owned(), lease.into());
        }
        let answers = self.remote.post(&self.path(verb), Some(&body))?;
        Ok(list(&answers, "items").to_vec())
    }
}

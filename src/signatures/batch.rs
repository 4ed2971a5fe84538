//! Splits a verified request into its events: one, or the items of a batch, each with its own id.

use std::borrow::Cow;

use serde_json::Value;

use super::check::{Incoming, MAX_ITEMS};
use super::naming::{Identity, json_view};
use super::{Scheme, adyen};
use crate::base::headers::Headers;
use crate::model::json_fields::Few;
use crate::model::pointer::list_at;

/// The events of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events<'a> {
    /// In the request's order. A batch may be empty.
    pub items: Vec<Item<'a>>,
    /// Whether the request was a batch.
    pub is_batch: bool,
}

/// One event of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its id and type.
    pub identity: Identity,
    /// The exact bytes of this event: the body, or a part of it or of the JSON in it.
    pub payload: Cow<'a, [u8]>,
    /// Whether the bytes are a part of JSON that came inside a form.
    pub is_from_form: bool,
}

/// An item of a batch where it stands in the body.
struct Part<'b> {
    identity: Identity,
    payload: &'b [u8],
}

/// Why a verified request cannot be used; sending it again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The list is missing.
    #[error("The body must be JSON with a list of events at {place}.")]
    NoList {
        /// Where it should be.
        place: String,
    },
    /// The list is too long.
    #[error("The batch has {count} events; at most {MAX_ITEMS} are taken at once.")]
    Many {
        /// How long it is.
        count: usize,
    },
    /// Its events would take too much of the file.
    #[error(
        "The batch has {bytes} bytes, with the header fields that are stored with each event; at most {most} are \
         stored at once. Send fewer events at once, or raise the provider's body_bytes_max."
    )]
    Bulky {
        /// Bytes to store.
        bytes: usize,
        /// Bytes that may be.
        most: usize,
    },
    /// An item is not an event.
    #[error("Item {number} of the batch is not a JSON object; nothing of the batch was stored.")]
    Item {
        /// Which, counted from 1.
        number: usize,
    },
}

impl Scheme {
    /// The events of a verified request. One broken item refuses the whole batch.
    pub fn events<'a>(&self, incoming: &Incoming<'a>) -> Result<Events<'a>, Unusable> {
        let Some(path) = self.list(incoming) else {
            let item = Item {
                identity: self.identify(incoming),
                payload: Cow::Borrowed(incoming.body),
                is_from_form: false,
            };
            return Ok(Events { items: vec![item], is_batch: false });
        };
        let items = match json_view(incoming) {
            Cow::Borrowed(body) => {
                let parts = self.parts(incoming, body, &path)?;
                let item = |part: Part<'a>| Item {
                    identity: part.identity,
                    payload: Cow::Borrowed(part.payload),
                    is_from_form: false,
                };
                parts.into_iter().map(item).collect()
            }
            Cow::Owned(json) => {
                let parts = self.parts(incoming, &json, &path)?;
                let item = |part: Part<'_>| Item {
                    identity: part.identity,
                    payload: Cow::Owned(part.payload.to_vec()),
                    is_from_form: true,
                };
                parts.into_iter().map(item).collect()
            }
        };
        Ok(Events { items, is_batch: true })
    }

    /// The body of a request with this event alone: the event itself, or a batch of one. `event` is a JSON object.
    pub fn body_of<'e>(&self, event: &'e str) -> Cow<'e, str> {
        let alone = Incoming {
            method: "POST",
            path: "/",
            url: "",
            headers: &Headers::default(),
            body: event.as_bytes(),
        };
        let Some(path) = self.list(&alone) else { return Cow::Borrowed(event) };
        let inside = |body: String, step: &&str| format!("{{{}:{body}}}", Value::from(*step));
        Cow::Owned(path.iter().rev().fold(format!("[{event}]"), inside))
    }

    /// The items of the list at `path` of a body.
    fn parts<'b>(
        &self,
        incoming: &Incoming<'_>,
        body: &'b [u8],
        path: &[&str],
    ) -> Result<Vec<Part<'b>>, Unusable> {
        let place =
            || if path.is_empty() { "its top".to_owned() } else { format!("/{}", path.join("/")) };
        let found = list_at::<_, MAX_ITEMS>(body, path);
        let Few { kept: list, count } = found.ok_or_else(|| Unusable::NoList { place: place() })?;
        if count > MAX_ITEMS {
            return Err(Unusable::Many { count });
        }
        let no_headers = Headers::default();
        let mut parts = Vec::with_capacity(list.len());
        for (index, raw) in list.iter().enumerate() {
            let payload = raw.get().as_bytes();
            if !payload.starts_with(b"{") {
                return Err(Unusable::Item { number: index.saturating_add(1) });
            }
            // A header cannot be the id of several events. In generic settings a header may name the type of all.
            let headers =
                if matches!(self, Self::Generic(_)) { incoming.headers } else { &no_headers };
            let identity = self.identify(&Incoming { body: payload, headers, ..*incoming });
            parts.push(Part { identity, payload });
        }
        Ok(parts)
    }

    /// The path of the list of events; `None` if the request is one event.
    fn list(&self, incoming: &Incoming<'_>) -> Option<Vec<&str>> {
        match self {
            Self::Sendgrid => Some(Vec::new()),
            Self::Adyen(_) => Some(adyen::ITEMS.to_vec()),
            // Event Streams posts lists, everything else single events.
            Self::Twilio => incoming.body.trim_ascii_start().starts_with(b"[").then(Vec::new),
            Self::Generic(generic) => generic.items(),
            _ => self.facts().items.map(<[&str]>::to_vec),
        }
    }
}

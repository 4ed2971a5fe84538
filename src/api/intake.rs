//! `POST /in/{provider}`: webhooks come in. Public: the signature stands in for a token.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::api::call::{Call, answer};
use crate::api::problem::Problem;
use crate::api::{Api, DEFAULT_TENANT};
use crate::domain::provider::NewProvider;
use crate::domain::scheme::{Incoming, Refused};
use crate::domain::throttle::{Measure, Throttle, Verdict};
use crate::flow::gates::Gate;
use crate::flow::receive::{CLOCK_RETRY_AFTER, Received};
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::store::webhook_events::Inserted;

/// When a provider is asked to come again while the tenant is suspended: most go by their own schedule.
const SUSPENDED_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Refused webhooks of one provider that are logged.
const REFUSALS_LOGGED: Measure =
    Measure { most: 10, span: Duration::from_mins(1), keys_most: 1024 };

/// Tenant and provider of an intake path's variable parts.
fn address(params: &[String]) -> (&str, &str) {
    match params {
        [provider] => (DEFAULT_TENANT, provider),
        [tenant, provider] => (tenant, provider),
        _ => ("", ""),
    }
}

/// The gate of an intake path, if it is open.
///
/// # Errors
/// 404 where there is no such provider; 503 where its tenant is suspended, so that the provider sends
/// again: what it sends is wanted, only not now.
pub(super) fn gate(api: &Api, params: &[String]) -> Result<Arc<Gate>, Problem> {
    let (tenant, provider) = address(params);
    let gate = api.flow.receive.gate(tenant, provider)?;
    let gate = gate.ok_or_else(|| Problem::not_found("provider"))?;
    if gate.suspended {
        let detail = "Nothing is taken in for this tenant now; send it again later.";
        return Err(Problem::unavailable(detail, SUSPENDED_RETRY_AFTER.as_secs()));
    }
    Ok(gate)
}

/// Verifies and stores; the reply is sent after COMMIT.
pub(super) fn receive(api: &Api, call: Call, reply: Reply) {
    let gate = match gate(api, &call.params) {
        Ok(gate) => gate,
        Err(problem) => return reply.send(problem.into()),
    };
    let head = &call.request.head;
    let path = match &head.query {
        Some(query) => format!("{}?{query}", head.path),
        None => head.path.clone(),
    };
    let url = format!("http://{}{path}", head.headers.get("host").unwrap_or_default());
    let incoming = Incoming {
        method: head.method.as_str(),
        path: &path,
        url: &url,
        headers: &head.headers,
        body: &call.request.body,
    };
    let (refusals, gate_told, now) = (api.refusals.clone(), gate.clone(), api.clock.monotonic());
    api.flow.receive.receive(&gate, &incoming, move |received| {
        if let Received::Refused(why) = &received {
            refusals.log(&gate_told, why, now);
        }
        reply.send(response(received));
    });
}

/// Logs refused webhooks, some of each provider a minute: anybody can send them.
#[derive(Clone, Debug)]
pub(super) struct Refusals(Arc<Mutex<Throttle<i64>>>);

impl Refusals {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Throttle::new(REFUSALS_LOGGED))))
    }

    fn log(&self, gate: &Gate, why: &Refused, now: Duration) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = counts.count(gate.provider.seq, now);
        drop(counts);
        let NewProvider { tenant, name, .. } = &gate.provider.new;
        match verdict {
            Verdict::Within => {
                tracing::warn!(%tenant, provider = %name, %why, "a webhook was refused");
            }
            Verdict::Reached(left) => tracing::warn!(
                %tenant,
                provider = %name,
                %why,
                silent_secs = left.as_secs(),
                "a webhook was refused; further ones of this provider are not logged for now"
            ),
            Verdict::Beyond(_) => {}
        }
    }
}

fn response(received: Received) -> Response {
    match received {
        Received::Stored(Inserted { id, already_processed: false }) => {
            answer(200, &json!({ "status": "ok", "id": id }))
        }
        Received::Stored(Inserted { id, already_processed: true }) => {
            answer(200, &json!({ "status": "ok", "id": id, "already_processed": true }))
        }
        Received::Refused(_) => Problem::bad_signature().into(),
        Received::ClockSuspect => {
            let detail = "This machine's clock was just set; send it again shortly.";
            Problem::unavailable(detail, CLOCK_RETRY_AFTER.as_secs()).into()
        }
        Received::Failed(error) => Problem::from(error).into(),
    }
}

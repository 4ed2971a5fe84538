//! `POST /in/{provider}`: webhooks come in. Public: the signature stands in for a token.

use serde_json::json;

use crate::api::call::{Call, answer};
use crate::api::problem::Problem;
use crate::api::{Api, DEFAULT_TENANT};
use crate::domain::scheme::Incoming;
use crate::flow::receive::{CLOCK_RETRY_AFTER, Received};
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::store::webhook_events::Inserted;

/// Tenant and provider of an intake path's variable parts.
pub(super) fn address(params: &[String]) -> (&str, &str) {
    match params {
        [provider] => (DEFAULT_TENANT, provider),
        [tenant, provider] => (tenant, provider),
        _ => ("", ""),
    }
}

/// Verifies and stores; the reply is sent after COMMIT.
pub(super) fn receive(api: &Api, call: Call, reply: Reply) {
    let (tenant, provider) = address(&call.params);
    let gate = match api.flow.receive.gate(tenant, provider) {
        Ok(Some(gate)) => gate,
        Ok(None) => return reply.send(Problem::not_found("provider").into()),
        Err(error) => return reply.send(Problem::from(error).into()),
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
    api.flow.receive.receive(&gate, &incoming, move |received| {
        reply.send(response(received));
    });
}

fn response(received: Received) -> Response {
    match received {
        Received::Stored(Inserted { id, already_processed: false }) => {
            answer(200, &json!({ "status": "ok", "id": id }))
        }
        Received::Stored(Inserted { id, already_processed: true }) => {
            answer(200, &json!({ "status": "ok", "id": id, "already_processed": true }))
        }
        // Whoever sends a bad signature is not told what is bad about it.
        Received::Refused(why) => Problem::bad_signature().because(why.to_string()).into(),
        Received::ClockSuspect => {
            let detail = "This machine's clock was just set; send it again shortly.";
            Problem::unavailable(detail, CLOCK_RETRY_AFTER.as_secs()).into()
        }
        Received::Failed(error) => Problem::from(error).into(),
    }
}

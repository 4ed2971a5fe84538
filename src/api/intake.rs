//! `POST /in/{provider}`: receives webhooks. Public: the signature is checked instead of a token.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::api::call::{Call, ok};
use crate::api::context::Api;
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::Later;
use crate::api::route::{Param, Resource, Returns, public};
use crate::api::schema::{NameText, Uuid, values};
use crate::http::message::Method::Post;
use crate::http::message::Response;
use crate::http::service::Reply;
use crate::model::tenant::DEFAULT as DEFAULT_TENANT;
use crate::pipeline::provider_cache::VerifiedProvider;
use crate::pipeline::receive::{CLOCK_RETRY_AFTER, CROWDED_RETRY_AFTER, Received};
use crate::signatures::Incoming;
use crate::signatures::handshake::{GiveUp, Handshake};
use crate::store::webhook_events::Inserted;

/// When a provider is asked to come again while the tenant is suspended: most go by their own schedule.
const SUSPENDED_RETRY_AFTER: Duration = Duration::from_mins(10);

const PROVIDER: Param = Param::path::<NameText>("provider", "The provider's name.", "stripe");
const TENANT: Param = Param::path::<NameText>("tenant", "The tenant's name.", "default");
const STORED: &[Returns] = &[Returns::json_or_text::<Receipt>(200,
    "It is stored, and was synced to the disk before this answer; or it was there before. A hand-shake is \
     answered with what the provider waits for.")
.with_headers(&[("X-Content-Type-Options", "`nosniff`, on what a hand-shake echoes.")])];
const PROBLEMS: &[Kind] =
    &[Kind::BadSignature, Kind::UnusableWebhook, Kind::Unprocessable, Kind::NotAcceptable];

/// Webhooks come in.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Intake",
    about: "Providers post their webhooks here. The signature stands in for a token: which header fields \
            carry it, the provider's scheme says.",
    routes: &[
        public(Post, "/in/{provider}", Later(receive))
            .doc("receiveWebhook", "Take in a webhook")
            .about(
                "Verifies the signature over the body as it came, then stores it. A webhook \
                 that was stored before is answered like the first time, with \
                 `already_processed`.",
            )
            .returns(STORED)
            .params(&[PROVIDER])
            .any_query()
            .any_body()
            .problems(PROBLEMS),
        public(Post, "/in/{tenant}/{provider}", Later(receive))
            .doc("receiveWebhookOfTenant", "Take in a webhook of a tenant")
            .about("The same for the provider of a tenant that is not `default`.")
            .returns(STORED)
            .params(&[TENANT, PROVIDER])
            .any_query()
            .any_body()
            .problems(PROBLEMS),
    ],
};

/// Tenant and provider of an intake path's variable parts.
fn address(params: &[String]) -> (&str, &str) {
    match params {
        [provider] => (DEFAULT_TENANT, provider),
        [tenant, provider] => (tenant, provider),
        _ => ("", ""),
    }
}

/// The gate of an intake path, if it is open.
/// Fails with 404 where there is no such provider; 503 where its tenant is suspended, so that the provider sends
/// again: what it sends is wanted, only not now.
pub(super) fn gate(api: &Api, params: &[String]) -> Result<Arc<VerifiedProvider>, Problem> {
    let (tenant, provider) = address(params);
    let gate = api.flow.receive.provider(tenant, provider)?;
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
    // What a provider signed with the URL is the one it knows, not the one a proxy calls.
    let settings = api.settings.get();
    let url = match (&gate.provider.new.public_url, &settings.listen.public_url) {
        (Some(own), _) => own.with_query(head.query.as_deref()),
        (None, Some(public)) => format!("{}{path}", public.trim_end_matches('/')),
        (None, None) => format!("http://{}{path}", head.headers.get("host").unwrap_or_default()),
    };
    let incoming = Incoming {
        method: head.method.as_str(),
        path: &path,
        url: &url,
        headers: &head.headers,
        body: &call.request.body,
    };
    let scheme = &gate.provider.new.scheme;
    let (accepted, give_up) = (scheme.accepted(), scheme.give_up());
    let share = call.share;
    api.flow.receive.receive(&gate, &incoming, move |received| {
        let stored = matches!(received, Received::Stored(_) | Received::Batch { .. });
        reply.send(match accepted.filter(|_| stored) {
            Some(text) => Response::with_body(200, "text/plain", text.as_bytes().to_vec()),
            None => response(received, give_up),
        });
        // Until the answer: what is stored waits for the writer.
        drop(share);
    });
}

fn response(received: Received, give_up: GiveUp) -> Response {
    match received {
        Received::Stored(Inserted { id, already_processed }) => {
            ok(&Receipt { id: Some(id), already_processed, ..Receipt::OK })
        }
        Received::Batch { id, stored, repeated } => ok(&Receipt {
            batch_id: Some(id),
            stored: Some(stored),
            repeated: Some(repeated),
            ..Receipt::OK
        }),
        Received::Greeted(Handshake { content_type, body }) => {
            let greeting = Response::with_body(200, content_type, body.into_bytes());
            greeting.header("x-content-type-options", "nosniff")
        }
        Received::Unusable(why) => Problem::unusable_webhook(why.to_string(), give_up).into(),
        Received::Reused => {
            Problem::bad_signature().because("its token was used before, for another body").into()
        }
        // The sender does not learn what is wrong with a signature.
        Received::Refused(why) => Problem::bad_signature().because(why.to_string()).into(),
        Received::ClockSuspect => {
            let detail = "This machine's clock was just set; send it again shortly.";
            Problem::unavailable(detail, CLOCK_RETRY_AFTER.as_secs()).into()
        }
        Received::Unwanted(why) => {
            Problem::unprocessable(format!("This webhook is not taken: {why}.")).into()
        }
        Received::Unfetched(missing) => {
            let detail =
                "What this webhook is checked with cannot be fetched now; send it again shortly.";
            let problem = Problem::unavailable(detail, CLOCK_RETRY_AFTER.as_secs());
            problem.because(missing.to_string()).into()
        }
        Received::Crowded => {
            let detail = "Too many signatures are being checked now; send it again shortly.";
            Problem::unavailable(detail, CROWDED_RETRY_AFTER.as_secs()).into()
        }
        Received::Failed(error) => Problem::from(error).into(),
    }
}

values! {
    /// The word of what was stored.
    OkWord = { "type": "string", "enum": ["ok"] }
}

/// What a webhook that was taken in is answered with.
#[derive(Serialize, JsonSchema)]
struct Receipt {
    /// Absent where a challenge is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OkWord")]
    status: Option<&'static str>,
    /// The webhook event's id here; absent for a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Uuid")]
    id: Option<String>,
    /// It was stored before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    already_processed: bool,
    /// What its events have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Uuid")]
    batch_id: Option<String>,
    /// How many of a batch are new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    stored: Option<u64>,
    /// How many of it were there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    repeated: Option<u64>,
    /// What Slack sent to be answered. Its scheme writes that answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    challenge: Option<String>,
}

impl Receipt {
    const OK: Self = Self {
        status: Some("ok"),
        id: None,
        already_processed: false,
        batch_id: None,
        stored: None,
        repeated: None,
        challenge: None,
    };
}

//! `POST /in/{provider}`: receives webhooks. Public: the signature is checked instead of a token.

use std::sync::Arc;
use std::time::Duration;

use crate::api::prelude::*;
use crate::api::route::{Route, public};
use crate::base::headers::{Headers, RECEIPT};
use crate::http::content_coding::{self, CodingError};
use crate::http::message::Method::{Get, Post};
use crate::pipeline::provider_cache::VerifiedProvider;
use crate::pipeline::receive::{CLOCK_RETRY_AFTER, CROWDED_RETRY_AFTER, Received};
use crate::signatures::Incoming;
use crate::signatures::acknowledgement::Acknowledgement;
use crate::signatures::conduct::GiveUp;
use crate::signatures::handshake::Handshake;
use crate::store::webhook_events::Inserted;

/// `Retry-After` while the tenant is suspended. Most providers follow their own schedule instead.
const SUSPENDED_RETRY_AFTER: Duration = Duration::from_mins(10);

const PROVIDER: Param = Param::path::<NameText>("provider", "The provider's name.", "stripe");
const TENANT: Param = Param::path::<NameText>("tenant", "The tenant's name.", "default");
const STORED: &[Returns] = &[Returns::json_or_text::<Receipt>(200,
    "It is stored and synced to the disk, now or by an earlier request. A handshake gets the answer that the \
     provider expects. So does a webhook of a provider that reads the answer: status (200 to 299), media type and \
     body are then the provider's.")
.with_headers(&[
    ("X-Content-Type-Options", "`nosniff`, if a handshake echoes what was sent."),
    ("Oncebox-Receipt", "The JSON of this answer, if the provider reads another one."),
])];
const PROBLEMS: &[Kind] = &[
    Kind::BadSignature,
    Kind::UnusableWebhook,
    Kind::Unprocessable,
    Kind::NotAcceptable,
    Kind::UnsupportedCoding,
];
const GET_PROBLEMS: &[Kind] =
    &[Kind::BadSignature, Kind::MethodNotAllowed, Kind::UnusableWebhook, Kind::Unprocessable];

/// The intake of webhooks.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Intake",
    about: "Providers post their webhooks here. The signature is checked instead of a token; the provider's \
            scheme says which header fields carry it.",
    routes: &[
        public(Post, "/in/{provider}", Later(receive))
            .doc("receiveWebhook", "Receive a webhook", &[PROVIDER])
            .about(
                "Verifies the signature over the exact body, then stores it. A webhook that was \
                 stored before gets the same answer, with `already_processed`.",
            )
            .returns(STORED)
            .any_query()
            .any_body()
            .problems(PROBLEMS),
        public(Get, "/in/{provider}", Later(receive))
            .doc("testAddress", "Answer a provider that tests the address", &[PROVIDER])
            .about(
                "Answers the handshake of a provider that makes it with `GET`, or receives a webhook whose \
                 fields are in the query. Others are answered 405.",
            )
            .returns(STORED)
            .any_query()
            .problems(GET_PROBLEMS),
        public(Get, "/in/{tenant}/{provider}", Later(receive))
            .doc("testAddressOfTenant", "Answer a tenant's provider that tests the address", &[TENANT, PROVIDER])
            .about("Like `GET /in/{provider}`, for providers of tenants other than `default`.")
            .returns(STORED)
            .any_query()
            .problems(GET_PROBLEMS),
        public(Post, "/in/{tenant}/{provider}", Later(receive))
            .doc("receiveWebhookOfTenant", "Receive a webhook of a tenant", &[TENANT, PROVIDER])
            .about("Like `POST /in/{provider}`, for providers of tenants other than `default`.")
            .returns(STORED)
            .any_query()
            .any_body()
            .problems(PROBLEMS),
    ],
};

/// The tenant and provider that an intake path names.
fn address(params: &[String]) -> (&str, &str) {
    match params {
        [provider] => (DEFAULT_TENANT, provider),
        [tenant, provider] => (tenant, provider),
        _ => ("", ""),
    }
}

/// The tenant whose webhooks come to this route.
pub(super) fn tenant(route: &Route, params: &[String]) -> Option<String> {
    let is_intake = RESOURCE.routes.iter().any(|own| own.path == route.path);
    is_intake.then(|| address(params).0.to_owned())
}

/// The provider that an intake path names.
/// Fails with 404 if there is none; 503 if its tenant is suspended, so that the provider sends its webhooks later.
pub(super) fn find(api: &Api, params: &[String]) -> Result<Arc<VerifiedProvider>, Problem> {
    let (tenant, provider) = address(params);
    let found = api.flow.receive.provider(tenant, provider)?.or_not_found("provider")?;
    if found.suspended {
        let detail = "The tenant accepts no webhooks now; send it again later.";
        return Err(Problem::unavailable(detail, SUSPENDED_RETRY_AFTER.as_secs()));
    }
    Ok(found)
}

/// The answer to a sender that asks whether it may send webhooks here (`CloudEvents`, HTTP 1.1 Web Hooks).
pub(super) fn permission(origin: &str) -> Response {
    let response = Response::new(200).header("allow", "POST, OPTIONS");
    response.header("webhook-allowed-origin", origin).header("webhook-allowed-rate", "*")
}

/// Verifies and stores; the reply is sent after COMMIT.
pub(super) fn receive(api: &Api, call: Call, reply: Reply) {
    let found = match find(api, &call.params) {
        Ok(found) => found,
        Err(problem) => return reply.send(problem.into()),
    };
    let scheme = &found.provider.new.scheme;
    let head = &call.request.head;
    let is_get = head.method != Post;
    let is_event = !is_get || (head.method == Get && scheme.takes_get());
    if !is_event && !scheme.greets_by_get() {
        return reply.send(Problem::method_not_allowed("POST, OPTIONS").into());
    }
    let path = match &head.query {
        Some(query) => format!("{}?{query}", head.path),
        None => head.path.clone(),
    };
    // A provider that signs its URL signs the public one, not the one that a proxy calls.
    let settings = api.env.settings.get();
    let url = match (&found.provider.new.public_url, &settings.listen.public_url) {
        (Some(own), _) => own.with_query(head.query.as_deref()),
        (None, Some(public)) => format!("{}{path}", public.trim_end_matches('/')),
        (None, None) => format!("http://{}{path}", head.headers.get("host").unwrap_or_default()),
    };
    // The fields of an event that comes with `GET` are in the query.
    let query = head.query.as_deref().unwrap_or_default().as_bytes();
    let as_form = form_fields(&head.headers);
    let incoming = Incoming {
        method: if is_get { "GET" } else { head.method.as_str() },
        path: &path,
        url: &url,
        headers: if is_get { &as_form } else { &head.headers },
        body: if is_get { query } else { &call.request.body },
    };
    if !is_event {
        let greeting = scheme.greeting(&incoming).map(Received::Greeted);
        let none =
            || Problem::bad_request("The query is not the handshake of this provider.").into();
        return reply.send(greeting.map_or_else(none, |found| response(found, scheme.give_up())));
    }
    let give_up = scheme.give_up();
    let share = call.share;
    api.flow.receive.receive(&found, &incoming, move |received, answer| {
        let stored = matches!(received, Received::Stored(_) | Received::Batch { .. });
        reply.send(match answer.filter(|_| stored) {
            Some(answer) => acknowledged(answer, response(received, give_up)),
            None => response(received, give_up),
        });
        // The memory is reserved until the answer, because the body waits for the writer.
        drop(share);
    });
}

/// The header fields of a request whose query is a form.
fn form_fields(headers: &Headers) -> Headers {
    let mut fields = Headers::default();
    fields.push("content-type", b"application/x-www-form-urlencoded");
    let replaced = ["content-type", "content-encoding"];
    for (name, value) in headers.iter().filter(|(name, _)| !replaced.contains(name)) {
        fields.push(name, value);
    }
    fields
}

/// The answer that the provider reads; Oncebox's own is in a header field.
fn acknowledged(answer: Acknowledgement, own: Response) -> Response {
    let Acknowledgement { status, content_type, body } = answer;
    let response = match content_type {
        Some(content_type) => Response::with_body(status, &content_type, body.into_bytes()),
        None => Response::new(status),
    };
    response.header(RECEIPT, String::from_utf8_lossy(&own.body))
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
        Received::Packed(why) => match why {
            CodingError::Unknown(_) | CodingError::Many(_) => {
                Problem::unsupported_coding(why.to_string(), content_coding::ACCEPTED).into()
            }
            CodingError::Large(_) => Problem::of_listener(413, &why.to_string()).into(),
            CodingError::Saturated => {
                Problem::unavailable(why.to_string(), CROWDED_RETRY_AFTER.as_secs()).into()
            }
            CodingError::Corrupt(_) => Problem::unusable_webhook(why.to_string(), give_up).into(),
        },
        Received::Unordered(why) => {
            let detail = format!("The provider's ordering key cannot be read: {why}.");
            Problem::unusable_webhook(detail, give_up).into()
        }
        Received::Reused => {
            Problem::bad_signature().because("its token was used before, for another body").into()
        }
        // The sender does not learn what is wrong with a signature.
        Received::Refused(why) => Problem::bad_signature().because(why.to_string()).into(),
        Received::ClockSuspect => {
            let detail = "This machine's clock may be wrong; send it again shortly.";
            Problem::unavailable(detail, CLOCK_RETRY_AFTER.as_secs()).into()
        }
        Received::Unwanted(why) => {
            Problem::unprocessable(format!("This webhook is not accepted: {why}.")).into()
        }
        Received::Unfetched(missing) => {
            let detail = "What is needed to verify this webhook cannot be fetched now; send it again shortly.";
            let problem = Problem::unavailable(detail, CLOCK_RETRY_AFTER.as_secs());
            problem.because(missing.to_string()).into()
        }
        Received::Saturated => {
            let detail =
                "Too many signatures are being checked, or batches stored; send it again shortly.";
            Problem::unavailable(detail, CROWDED_RETRY_AFTER.as_secs()).into()
        }
        Received::Failed(error) => Problem::from(error).into(),
    }
}

values! {
    /// The only value of `status`.
    OkWord = { "type": "string", "enum": ["ok"] }
}

/// The answer to an accepted webhook.
#[derive(Serialize, JsonSchema)]
struct Receipt {
    /// Absent in the answer to a challenge.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OkWord")]
    status: Option<&'static str>,
    /// The webhook event's id in Oncebox; absent for a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Uuid")]
    id: Option<String>,
    /// It was stored before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    already_processed: bool,
    /// The id of the batch, which all its events have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Uuid")]
    batch_id: Option<String>,
    /// How many events of a batch are new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    stored: Option<u64>,
    /// How many events of a batch were stored before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    repeated: Option<u64>,
    /// The challenge of a handshake with Slack.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    // The scheme writes that answer; the field only describes it.
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

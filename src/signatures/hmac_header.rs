//! Providers that send an HMAC in one header. They differ in facts only, so each is a constant.
//!
//! Some list the time and signatures in that header, under names: Stripe's `t=…,v1=…`, Paddle's `ts=…;h1=…`. Entries
//! under other names are ignored, such as Stripe's `v0`, which it sends for test events and which proves nothing.
//!
//! Not here: secrets that are sent themselves ([`super::shared`]).

use super::check::{
    Incoming, Refused, Verified, any_match, long_enough, malformed, needed, needed_seconds,
    time_digits,
};
use super::conduct::{AnswerFacts, Condition, GiveUp, HandshakeName, Place};
use super::naming::Locator::{Body, Header, Headers};
use super::naming::{Facts, Locator};
use super::signing::{Encoding, Hash, SecretError, mac};
use crate::base::clock::Timestamp;
use crate::model::pointer::text_at;

/// How a provider signs, and the facts of its scheme.
#[derive(Debug)]
pub struct HmacHeader {
    pub(super) facts: Facts,
    /// The header with the signature.
    pub(super) header: &'static str,
    /// The text before each signature.
    pub(super) prefix: &'static str,
    /// The character between several signatures; `None` if there is only one.
    pub(super) separator: Option<char>,
    hash: Hash,
    pub(super) encoding: Encoding,
    /// What is signed, one after the other.
    signed: &'static [Part],
    pub(super) time: Time,
    /// The prefix of secrets. Unlike in Standard Webhooks it is part of the key, and nothing is decoded.
    secret_prefix: &'static str,
}

/// A part of what is signed.
#[derive(Debug)]
enum Part {
    Text(&'static str),
    /// The URL that the provider posts to.
    Url,
    /// The time, as it is sent.
    Time,
    Body,
}

/// Where the time of a request is.
#[derive(Debug)]
pub(super) enum Time {
    /// Nowhere.
    Unsigned,
    /// In this header, in seconds.
    Header(&'static str),
    /// In the header of the signature, in seconds after this text.
    Entry(&'static str),
    /// In this member of the body, in milliseconds.
    Body(&'static str),
}

impl PartialEq for HmacHeader {
    fn eq(&self, other: &Self) -> bool {
        self.facts.kind == other.facts.kind
    }
}

/// Makes the schemes: kind, type of a sample, header of the signature, then what differs from SHA-256 over the body in hex.
///
/// Such a signature does not cover an id or type in a header. A recorded request that is sent again under another
/// id is recognised by [`super::Scheme::fingerprint`].
macro_rules! schemes {
    ($($(#[$doc:meta])* $NAME:ident = $kind:literal $sample:literal $header:literal
        { $($field:ident: $value:expr),* } facts { $($fact:ident: $found:expr),* };)*) => {$(
        $(#[$doc])*
        pub(super) static $NAME: HmacHeader = HmacHeader {
            header: $header,
            facts: Facts { $($fact: $found,)* ..Facts::new($kind, $sample) },
            $($field: $value,)*
            ..BASE
        };
    )*};
}

const BASE: HmacHeader = HmacHeader {
    facts: Facts::new("", ""),
    header: "",
    prefix: "",
    separator: None,
    hash: Hash::Sha256,
    encoding: Encoding::Hex,
    signed: &[Part::Body],
    time: Time::Unsigned,
    secret_prefix: "",
};
/// Slack shows JSON of ours to the user of a command, and keeps a view open that gets no answer to its submission.
const SLACK_ANSWERS: &[AnswerFacts] = &[
    AnswerFacts::json_with(
        Condition { place: Place::Body(&["type"]), text: "view_submission" },
        r#"{"response_action":"clear"}"#,
    ),
    AnswerFacts::EMPTY_FOR_FORMS,
];
/// The type ends with the body's action: `pull_request.opened`.
const ACTION: Option<Locator> = Some(Body(&["action"]));

schemes! {
    /// The older SHA-1 header is ignored.
    GITHUB = "github" "push" "x-hub-signature-256" { prefix: "sha256=" } facts {
        ids: &[Header("x-github-delivery")], types: &[Header("x-github-event")], detail: ACTION,
        kept: &["x-github-event", "x-github-delivery", "x-github-hook-id"]
    };
    /// Shopify sends one event id for all subscriptions of a shop and for all topics of one action: an order that is paid
    /// at once is `orders/create` and `orders/paid`. So the topic is part of our id. The webhook's id names one copy.
    /// `X-Shopify-Triggered-At` is not checked: it is not signed, and retries come up to four hours after it.
    SHOPIFY = "shopify" "orders/paid" "x-shopify-hmac-sha256" { encoding: Encoding::Base64 } facts {
        ids: &[Headers("x-shopify-event-id", "x-shopify-topic"), Header("x-shopify-webhook-id")],
        types: &[Header("x-shopify-topic")],
        kept: &["x-shopify-topic", "x-shopify-shop-domain", "x-shopify-event-id", "x-shopify-webhook-id",
            "x-shopify-triggered-at"]
    };
    SLACK = "slack" "app_mention" "x-slack-signature" {
        prefix: "v0=", signed: &[Part::Text("v0:"), Part::Time, Part::Text(":"), Part::Body],
        time: Time::Header("x-slack-request-timestamp")
    } facts {
        ids: &[Body(&["event_id"])], types: &[Body(&["event", "type"]), Body(&["type"]), Body(&["command"])],
        kept: &["x-slack-request-timestamp", "x-slack-retry-num", "x-slack-retry-reason"],
        handshakes: &[HandshakeName::UrlVerification], answers: SLACK_ANSWERS, give_up: GiveUp::SlackNoRetry
    };
    SQUARE = "square" "payment.updated" "x-square-hmacsha256-signature" {
        encoding: Encoding::Base64, signed: &[Part::Url, Part::Body]
    } facts {
        ids: &[Body(&["event_id"])], types: &[Body(&["type"])],
        kept: &["square-environment", "square-initial-delivery-timestamp", "square-retry-number", "square-retry-reason"]
    };
    WOOCOMMERCE = "woocommerce" "order.updated" "x-wc-webhook-signature" { encoding: Encoding::Base64 } facts {
        ids: &[Header("x-wc-webhook-delivery-id")], types: &[Header("x-wc-webhook-topic")],
        kept: &["x-wc-webhook-source", "x-wc-webhook-topic", "x-wc-webhook-id", "x-wc-webhook-delivery-id"],
        handshakes: &[HandshakeName::WebhookNumber]
    };
    STRIPE = "stripe" "invoice.paid" "stripe-signature" {
        prefix: "v1=", separator: Some(','), signed: &[Part::Time, Part::Text("."), Part::Body],
        time: Time::Entry("t="), secret_prefix: "whsec_"
    } facts { ids: &[Body(&["id"])], types: &[Body(&["type"])] };
    PADDLE = "paddle" "transaction.completed" "paddle-signature" {
        prefix: "h1=", separator: Some(';'), signed: &[Part::Time, Part::Text(":"), Part::Body],
        time: Time::Entry("ts=")
    } facts { ids: &[Body(&["event_id"])], types: &[Body(&["event_type"])] };
    GITEA = "gitea" "push" "x-gitea-signature" {} facts {
        ids: &[Header("x-gitea-delivery")], types: &[Header("x-gitea-event")], detail: ACTION,
        kept: &["x-gitea-event", "x-gitea-delivery"]
    };
    FORGEJO = "forgejo" "push" "x-forgejo-signature" {} facts {
        ids: &[Header("x-forgejo-delivery")], types: &[Header("x-forgejo-event")], detail: ACTION,
        kept: &["x-forgejo-event", "x-forgejo-delivery"]
    };
    PAGERDUTY = "pagerduty" "incident.triggered" "x-pagerduty-signature" { prefix: "v1=", separator: Some(',') } facts {
        ids: &[Body(&["event", "id"])], types: &[Body(&["event", "event_type"])],
        kept: &["x-webhook-id", "x-webhook-subscription"]
    };
    LINEAR = "linear" "Issue" "linear-signature" { time: Time::Body("webhookTimestamp") } facts {
        ids: &[Header("linear-delivery")], types: &[Body(&["type"]), Header("linear-event")], detail: ACTION,
        kept: &["linear-delivery", "linear-event"]
    };
    /// Notifications have no id: the run's id names several of them.
    TERRAFORM = "terraform" "run:completed" "x-tfe-notification-signature" { hash: Hash::Sha512 } facts {
        types: &[Body(&["notifications", "0", "trigger"])]
    };
    GRAFANA = "grafana" "firing" "x-grafana-alerting-signature" {} facts { types: &[Body(&["status"])] };
    /// ERPNext and every other Frappe application. Requests contain no event id.
    FRAPPE = "frappe" "Sales_Invoice" "x-frappe-webhook-signature" { encoding: Encoding::Base64 } facts {
        types: &[Body(&["doctype"])]
    };
    /// `WhatsApp`, Facebook, Instagram. Requests contain no event id.
    META = "meta" "whatsapp_business_account" "x-hub-signature-256" { prefix: "sha256=" } facts {
        types: &[Body(&["object"])], handshakes: &[HandshakeName::HubChallenge]
    };
    /// Events have no id. Xero accepts an address only if it answers with an empty body.
    XERO = "xero" "INVOICE.CREATE" "x-xero-signature" { encoding: Encoding::Base64 } facts {
        types: &[Body(&["eventCategory"])], detail: Some(Body(&["eventType"])), items: Some(&["events"]),
        answers: &[AnswerFacts::EMPTY]
    };
    ZOOM = "zoom" "meeting.started" "x-zm-signature" {
        prefix: "v0=", signed: &[Part::Text("v0:"), Part::Time, Part::Text(":"), Part::Body],
        time: Time::Header("x-zm-request-timestamp")
    } facts {
        types: &[Body(&["event"])], kept: &["x-zm-request-timestamp"], handshakes: &[HandshakeName::UrlValidation]
    };
}

impl HmacHeader {
    /// Whether the id may be in a header; headers are not signed.
    pub(super) fn has_unsigned_id(&self) -> bool {
        self.facts.ids.iter().any(|place| !matches!(place, Body(_)))
    }

    /// Whether its header lists the time and the signatures under names.
    pub(crate) fn lists_values(&self) -> bool {
        matches!(self.time, Time::Entry(_))
    }

    pub(super) fn check_secret(&self, text: &str) -> Result<(), SecretError> {
        let prefix = self.secret_prefix;
        let key = text.strip_prefix(prefix).ok_or(SecretError::NoPrefix { prefix })?;
        long_enough(key.len())
    }

    pub(super) fn verify(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
    ) -> Result<Verified, Refused> {
        let text = needed(incoming.headers, self.header)?;
        let entries = || text.split(|letter| Some(letter) == self.separator).map(str::trim);
        let (time, signed_at) = match self.time {
            Time::Header(header) => {
                let (time, at) = needed_seconds(incoming.headers, header)?;
                (time, Some(at))
            }
            Time::Entry(name) => {
                let wrong = |why| malformed(self.header, why);
                let mut times = entries().filter_map(|entry| entry.strip_prefix(name));
                let time = times.next().ok_or_else(|| wrong("it has no time"))?;
                if times.next().is_some() {
                    return Err(wrong("it has two times"));
                }
                let at = time_digits(time)
                    .ok_or_else(|| wrong("its time is not a whole number of seconds"))?;
                (time, Some(Timestamp::from_secs(at)))
            }
            Time::Body(_) | Time::Unsigned => ("", None),
        };
        let offered: Vec<Vec<u8>> = entries()
            .filter_map(|entry| self.encoding.decode(entry.strip_prefix(self.prefix)?))
            .collect();
        if offered.is_empty() {
            let why = match self.encoding {
                Encoding::Hex if self.lists_values() => "it has no signature in hex",
                Encoding::Hex => "it is not hex with the scheme's prefix",
                Encoding::Base64 | Encoding::Base64url => "it is not base64",
            };
            return Err(malformed(self.header, why));
        }
        let secret =
            any_match(secrets, &offered, |secret| Some(self.sign(secret, time, incoming)))?;
        let in_body = || {
            let Time::Body(field) = self.time else { return None };
            time_digits(&text_at(incoming.body, &[field])?).map(Timestamp::from_ms)
        };
        Ok(Verified { secret, signed_at: signed_at.or_else(in_body) })
    }

    /// The signature of a request.
    pub(super) fn sign(&self, secret: &[u8], time: &str, incoming: &Incoming<'_>) -> Vec<u8> {
        let part = |part: &Part| match part {
            Part::Text(text) => text.as_bytes(),
            Part::Url => incoming.url.as_bytes(),
            Part::Time => time.as_bytes(),
            Part::Body => incoming.body,
        };
        mac(self.hash, secret, &self.signed.iter().map(part).collect::<Vec<_>>())
    }
}

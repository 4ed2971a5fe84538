//! Providers that send an HMAC in one header. They differ in facts only, so each is a constant.
//!
//! Not here: headers that list named values ([`super::header_list`]), and secrets that are sent themselves
//! ([`super::shared`]).

use super::check::{
    Incoming, Refused, Verified, any_match, malformed, needed, needed_seconds, time_digits,
};
use super::encoding::Encoding;
use super::naming::Facts;
use super::naming::Locator::{Body, Header, Headers};
use super::signing::{Hash, mac};
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
    separator: Option<char>,
    hash: Hash,
    pub(super) encoding: Encoding,
    signed: Signed,
    /// The member of the body that contains the time in milliseconds.
    pub(super) time: Option<&'static str>,
}

/// What is signed.
#[derive(Debug)]
enum Signed {
    /// The body.
    Body,
    /// The URL that the provider posts to, directly followed by the body.
    UrlBody,
    /// `v0:`, the seconds in this header, `:` and the body.
    Slack(&'static str),
}

impl PartialEq for HmacHeader {
    fn eq(&self, other: &Self) -> bool {
        self.facts.kind == other.facts.kind
    }
}

/// The common case: SHA-256 over the body, in hex.
///
/// Such a signature does not cover an id or type in a header. A recorded request that is sent again under another
/// id is recognised by [`super::Scheme::fingerprint`].
const BASE: HmacHeader = HmacHeader {
    facts: Facts::new("", ""),
    header: "",
    prefix: "",
    separator: None,
    hash: Hash::Sha256,
    encoding: Encoding::Hex,
    signed: Signed::Body,
    time: None,
};

/// The older SHA-1 header is ignored. The type ends with the body's action: `pull_request.opened`.
pub(super) static GITHUB: HmacHeader = HmacHeader {
    header: "x-hub-signature-256",
    prefix: "sha256=",
    facts: Facts {
        ids: &[Header("x-github-delivery")],
        types: &[Header("x-github-event")],
        detail: Some(Body(&["action"])),
        kept: &["x-github-event", "x-github-delivery", "x-github-hook-id"],
        ..Facts::new("github", "push")
    },
    ..BASE
};

/// Shopify sends one event id for all subscriptions of a shop and for all topics of one action: an order that is paid
/// at once is `orders/create` and `orders/paid`. So the topic is part of our id. The webhook's id names one copy.
/// `X-Shopify-Triggered-At` is not checked: it is not signed, and retries come up to four hours after it.
pub(super) static SHOPIFY: HmacHeader = HmacHeader {
    header: "x-shopify-hmac-sha256",
    encoding: Encoding::Base64,
    facts: Facts {
        ids: &[Headers("x-shopify-event-id", "x-shopify-topic"), Header("x-shopify-webhook-id")],
        types: &[Header("x-shopify-topic")],
        kept: &[
            "x-shopify-topic",
            "x-shopify-shop-domain",
            "x-shopify-event-id",
            "x-shopify-webhook-id",
            "x-shopify-triggered-at",
        ],
        ..Facts::new("shopify", "orders/paid")
    },
    ..BASE
};

pub(super) static SLACK: HmacHeader = HmacHeader {
    header: "x-slack-signature",
    prefix: "v0=",
    signed: Signed::Slack("x-slack-request-timestamp"),
    facts: Facts {
        ids: &[Body(&["event_id"])],
        types: &[Body(&["event", "type"]), Body(&["type"])],
        kept: &["x-slack-request-timestamp", "x-slack-retry-num", "x-slack-retry-reason"],
        ..Facts::new("slack", "app_mention")
    },
    ..BASE
};

pub(super) static SQUARE: HmacHeader = HmacHeader {
    header: "x-square-hmacsha256-signature",
    encoding: Encoding::Base64,
    signed: Signed::UrlBody,
    facts: Facts {
        ids: &[Body(&["event_id"])],
        types: &[Body(&["type"])],
        kept: &[
            "square-environment",
            "square-initial-delivery-timestamp",
            "square-retry-number",
            "square-retry-reason",
        ],
        ..Facts::new("square", "payment.updated")
    },
    ..BASE
};

pub(super) static WOOCOMMERCE: HmacHeader = HmacHeader {
    header: "x-wc-webhook-signature",
    encoding: Encoding::Base64,
    facts: Facts {
        ids: &[Header("x-wc-webhook-delivery-id")],
        types: &[Header("x-wc-webhook-topic")],
        kept: &[
            "x-wc-webhook-source",
            "x-wc-webhook-topic",
            "x-wc-webhook-id",
            "x-wc-webhook-delivery-id",
        ],
        ..Facts::new("woocommerce", "order.updated")
    },
    ..BASE
};

pub(super) static GITEA: HmacHeader = HmacHeader {
    header: "x-gitea-signature",
    facts: Facts {
        ids: &[Header("x-gitea-delivery")],
        types: &[Header("x-gitea-event")],
        detail: Some(Body(&["action"])),
        kept: &["x-gitea-event", "x-gitea-delivery"],
        ..Facts::new("gitea", "push")
    },
    ..BASE
};

pub(super) static FORGEJO: HmacHeader = HmacHeader {
    header: "x-forgejo-signature",
    facts: Facts {
        ids: &[Header("x-forgejo-delivery")],
        types: &[Header("x-forgejo-event")],
        detail: Some(Body(&["action"])),
        kept: &["x-forgejo-event", "x-forgejo-delivery"],
        ..Facts::new("forgejo", "push")
    },
    ..BASE
};

pub(super) static PAGERDUTY: HmacHeader = HmacHeader {
    header: "x-pagerduty-signature",
    prefix: "v1=",
    separator: Some(','),
    facts: Facts {
        ids: &[Body(&["event", "id"])],
        types: &[Body(&["event", "event_type"])],
        kept: &["x-webhook-id", "x-webhook-subscription"],
        ..Facts::new("pagerduty", "incident.triggered")
    },
    ..BASE
};

pub(super) static LINEAR: HmacHeader = HmacHeader {
    header: "linear-signature",
    time: Some("webhookTimestamp"),
    facts: Facts {
        ids: &[Header("linear-delivery")],
        types: &[Body(&["type"]), Header("linear-event")],
        detail: Some(Body(&["action"])),
        kept: &["linear-delivery", "linear-event"],
        ..Facts::new("linear", "Issue")
    },
    ..BASE
};

/// Notifications have no id: the run's id names several of them.
pub(super) static TERRAFORM: HmacHeader = HmacHeader {
    header: "x-tfe-notification-signature",
    hash: Hash::Sha512,
    facts: Facts {
        types: &[Body(&["notifications", "0", "trigger"])],
        ..Facts::new("terraform", "run:completed")
    },
    ..BASE
};

pub(super) static GRAFANA: HmacHeader = HmacHeader {
    header: "x-grafana-alerting-signature",
    facts: Facts { types: &[Body(&["status"])], ..Facts::new("grafana", "firing") },
    ..BASE
};

/// ERPNext and every other Frappe application. Requests contain no event id.
pub(super) static FRAPPE: HmacHeader = HmacHeader {
    header: "x-frappe-webhook-signature",
    encoding: Encoding::Base64,
    facts: Facts { types: &[Body(&["doctype"])], ..Facts::new("frappe", "Sales_Invoice") },
    ..BASE
};

impl HmacHeader {
    /// Whether the id may be in a header; headers are not signed.
    pub(super) fn has_unsigned_id(&self) -> bool {
        self.facts.ids.iter().any(|place| !matches!(place, Body(_)))
    }

    /// The header with the signed time, if there is one.
    pub(super) fn timestamp_header(&self) -> Option<&'static str> {
        match self.signed {
            Signed::Slack(header) => Some(header),
            Signed::Body | Signed::UrlBody => None,
        }
    }

    pub(super) fn verify(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
    ) -> Result<Verified, Refused> {
        let text = needed(incoming.headers, self.header)?;
        let time = self.timestamp_header().map(|header| needed_seconds(incoming.headers, header));
        let (time, signed_at) = time.transpose()?.unzip();
        let entries = text.split(|letter| Some(letter) == self.separator);
        let offered: Vec<Vec<u8>> = entries
            .filter_map(|entry| self.encoding.decode(entry.trim().strip_prefix(self.prefix)?))
            .collect();
        if offered.is_empty() {
            let why = match self.encoding {
                Encoding::Hex => "it is not hex with the scheme's prefix",
                Encoding::Base64 | Encoding::Base64url => "it is not base64",
            };
            return Err(malformed(self.header, why));
        }
        let time = time.unwrap_or_default();
        let secret =
            any_match(secrets, &offered, |secret| Some(self.sign(secret, time, incoming)))?;
        let in_body = || {
            let time = text_at(incoming.body, &[self.time?])?;
            time_digits(&time).map(Timestamp::from_ms)
        };
        Ok(Verified { secret, signed_at: signed_at.or_else(in_body) })
    }

    /// The signature's bytes.
    pub(super) fn sign(&self, secret: &[u8], time: &str, incoming: &Incoming<'_>) -> Vec<u8> {
        let (url, time, body) = (incoming.url.as_bytes(), time.as_bytes(), incoming.body);
        match self.signed {
            Signed::Body => mac(self.hash, secret, &[body]),
            Signed::UrlBody => mac(self.hash, secret, &[url, body]),
            Signed::Slack(_) => mac(self.hash, secret, &[b"v0:", time, b":", body]),
        }
    }
}

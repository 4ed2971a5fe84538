//! Providers whose signature is one HMAC under one header: a table, because they differ in facts only.
//!
//! Not here: several values in one header with names of their own ([`super::header_list`]), secrets that
//! travel themselves ([`super::shared`]), and what stands in the body to be signed.

use data_encoding::HEXLOWER_PERMISSIVE;

use super::check::{Verified, any_match, time_digits};
use super::incoming::Incoming;
use super::naming::{Naming, Place};
use super::refused::{Refused, malformed, needed};
use crate::base::clock::Timestamp;
use crate::model::pointer::text_at;
use crate::model::signature::{Hash, mac};

/// A provider's signature, and where its id and type stand.
#[derive(Debug)]
pub struct Plain {
    /// The scheme's word.
    pub(super) kind: &'static str,
    /// The header with the signature.
    pub(super) header: &'static str,
    /// What stands before each signature.
    pub(super) prefix: &'static str,
    /// What stands between several; there is only one where this is `None`.
    separator: Option<char>,
    pub(super) hash: Hash,
    pub(super) writing: Writing,
    signed: Signed,
    /// Where a time in milliseconds stands in the body, which is signed with it.
    pub(super) time: Option<&'static str>,
    pub(super) naming: Naming,
    /// What a sample is called unless told.
    pub(super) sample_type: &'static str,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    Hex,
    Base64,
}

/// What is signed.
#[derive(Debug)]
enum Signed {
    /// The body.
    Body,
    /// The URL at which the provider knows us, and the body right after it.
    UrlBody,
    /// `v0:`, the seconds in that header, `:` and the body.
    Slack(&'static str),
}

impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

const NAMELESS: Naming = Naming { ids: &[], types: &[], detail: None, kept: &[] };

/// Most of them sign the body alone with SHA-256 and write it in hex.
const BASE: Plain = Plain {
    kind: "",
    header: "",
    prefix: "",
    separator: None,
    hash: Hash::Sha256,
    writing: Writing::Hex,
    signed: Signed::Body,
    time: None,
    naming: NAMELESS,
    sample_type: "invoice.paid",
};

/// All of them.
///
/// The signatures of those that sign the body alone cover neither id nor type in a header: a request that was recorded
/// can be sent again under another id, which [`super::Scheme::fingerprint`] tells.
pub(super) static ALL: [Plain; 12] = [
    // The older SHA-1 header is not looked at. The type ends with the body's action: `pull_request.opened`.
    Plain {
        kind: "github",
        header: "x-hub-signature-256",
        prefix: "sha256=",
        naming: Naming {
            ids: &[Place::Header("x-github-delivery")],
            types: &[Place::Header("x-github-event")],
            detail: Some(Place::Body(&["action"])),
            kept: &["x-github-event", "x-github-delivery", "x-github-hook-id"],
        },
        sample_type: "push",
        ..BASE
    },
    // The event's id is the same for all subscriptions of a shop, and for all topics of what a merchant did once:
    // an order that is paid at once is `orders/create` and `orders/paid`. The webhook's is that of one copy.
    // `X-Shopify-Triggered-At` is not signed, and retries come up to four hours after it.
    Plain {
        kind: "shopify",
        header: "x-shopify-hmac-sha256",
        writing: Writing::Base64,
        naming: Naming {
            ids: &[
                Place::Headers("x-shopify-event-id", "x-shopify-topic"),
                Place::Header("x-shopify-webhook-id"),
            ],
            types: &[Place::Header("x-shopify-topic")],
            detail: None,
            kept: &[
                "x-shopify-topic",
                "x-shopify-shop-domain",
                "x-shopify-event-id",
                "x-shopify-webhook-id",
                "x-shopify-triggered-at",
            ],
        },
        sample_type: "orders/paid",
        ..BASE
    },
    Plain {
        kind: "slack",
        header: "x-slack-signature",
        prefix: "v0=",
        signed: Signed::Slack("x-slack-request-timestamp"),
        naming: Naming {
            ids: &[Place::Body(&["event_id"])],
            types: &[Place::Body(&["event", "type"]), Place::Body(&["type"])],
            detail: None,
            kept: &["x-slack-request-timestamp", "x-slack-retry-num", "x-slack-retry-reason"],
        },
        sample_type: "app_mention",
        ..BASE
    },
    Plain {
        kind: "square",
        header: "x-square-hmacsha256-signature",
        writing: Writing::Base64,
        signed: Signed::UrlBody,
        naming: Naming {
            ids: &[Place::Body(&["event_id"])],
            types: &[Place::Body(&["type"])],
            detail: None,
            kept: &[
                "square-environment",
                "square-initial-delivery-timestamp",
                "square-retry-number",
                "square-retry-reason",
            ],
        },
        sample_type: "payment.updated",
        ..BASE
    },
    Plain {
        kind: "woocommerce",
        header: "x-wc-webhook-signature",
        writing: Writing::Base64,
        naming: Naming {
            ids: &[Place::Header("x-wc-webhook-delivery-id")],
            types: &[Place::Header("x-wc-webhook-topic")],
            detail: None,
            kept: &[
                "x-wc-webhook-source",
                "x-wc-webhook-topic",
                "x-wc-webhook-id",
                "x-wc-webhook-delivery-id",
            ],
        },
        sample_type: "order.updated",
        ..BASE
    },
    Plain {
        kind: "gitea",
        header: "x-gitea-signature",
        naming: Naming {
            ids: &[Place::Header("x-gitea-delivery")],
            types: &[Place::Header("x-gitea-event")],
            detail: Some(Place::Body(&["action"])),
            kept: &["x-gitea-event", "x-gitea-delivery"],
        },
        sample_type: "push",
        ..BASE
    },
    Plain {
        kind: "forgejo",
        header: "x-forgejo-signature",
        naming: Naming {
            ids: &[Place::Header("x-forgejo-delivery")],
            types: &[Place::Header("x-forgejo-event")],
            detail: Some(Place::Body(&["action"])),
            kept: &["x-forgejo-event", "x-forgejo-delivery"],
        },
        sample_type: "push",
        ..BASE
    },
    Plain {
        kind: "pagerduty",
        header: "x-pagerduty-signature",
        prefix: "v1=",
        separator: Some(','),
        naming: Naming {
            ids: &[Place::Body(&["event", "id"])],
            types: &[Place::Body(&["event", "event_type"])],
            detail: None,
            kept: &["x-webhook-id", "x-webhook-subscription"],
        },
        sample_type: "incident.triggered",
        ..BASE
    },
    Plain {
        kind: "linear",
        header: "linear-signature",
        time: Some("webhookTimestamp"),
        naming: Naming {
            ids: &[Place::Header("linear-delivery")],
            types: &[Place::Body(&["type"]), Place::Header("linear-event")],
            detail: Some(Place::Body(&["action"])),
            kept: &["linear-delivery", "linear-event"],
        },
        sample_type: "Issue",
        ..BASE
    },
    // Its notifications have no id of their own: a run has several.
    Plain {
        kind: "terraform",
        header: "x-tfe-notification-signature",
        hash: Hash::Sha512,
        naming: Naming { types: &[Place::Body(&["notifications", "0", "trigger"])], ..NAMELESS },
        sample_type: "run:completed",
        ..BASE
    },
    Plain {
        kind: "grafana",
        header: "x-grafana-alerting-signature",
        naming: Naming { types: &[Place::Body(&["status"])], ..NAMELESS },
        sample_type: "firing",
        ..BASE
    },
    // ERPNext and every other Frappe application. Nothing in a request names the event itself.
    Plain {
        kind: "frappe",
        header: "x-frappe-webhook-signature",
        writing: Writing::Base64,
        naming: Naming { types: &[Place::Body(&["doctype"])], ..NAMELESS },
        sample_type: "Sales_Invoice",
        ..BASE
    },
];

/// The one of that word.
pub(super) fn of(kind: &str) -> Option<&'static Plain> {
    ALL.iter().find(|plain| plain.kind == kind)
}

impl Plain {
    /// Whether the id may stand in a header, of which none is signed.
    pub(super) fn has_unsigned_id(&self) -> bool {
        self.naming.ids.iter().any(|place| !matches!(place, Place::Body(_)))
    }

    /// The header with the signed time, where there is one.
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
        let (time, signed_at) = match self.timestamp_header() {
            Some(header) => {
                let time = needed(incoming.headers, header)?;
                let count = time_digits(time)
                    .ok_or_else(|| malformed(header, "it is not a whole number of seconds"))?;
                (time, Some(Timestamp::from_secs(count)))
            }
            None => ("", None),
        };
        let entries = text.split(|letter| Some(letter) == self.separator);
        let offered: Vec<Vec<u8>> = entries
            .filter_map(|entry| entry.trim().strip_prefix(self.prefix))
            .filter_map(|encoded| self.writing.decode(encoded))
            .collect();
        if offered.is_empty() {
            return Err(malformed(self.header, self.writing.complaint()));
        }
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

impl Writing {
    fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok(),
            Self::Base64 => data_encoding::BASE64.decode(text.as_bytes()).ok(),
        }
    }

    pub(super) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => data_encoding::HEXLOWER.encode(bytes),
            Self::Base64 => data_encoding::BASE64.encode(bytes),
        }
    }

    const fn complaint(self) -> &'static str {
        match self {
            Self::Hex => "it is not the scheme's prefix and hex",
            Self::Base64 => "it is not base64",
        }
    }
}

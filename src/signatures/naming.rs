//! The id and the type of a webhook: where a provider writes them, and how they are shortened to fit a column.
//!
//! Not here: where the settings of a generic scheme say they are ([`super::generic`]).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::check::Incoming;
use super::conduct::{AnswerFacts, GiveUp, HandshakeName};
use crate::base::id;
use crate::model::form_body::Body;
use crate::model::pointer::text_at;

/// The longest id, in characters; a longer one is stored as its SHA-256.
const MAX_EVENT_ID_CHARS: usize = 500;
/// The longest event type, in bytes. Source: the `event_type` column.
const MAX_EVENT_TYPE_BYTES: usize = 128;
/// The type of an event whose provider gives none.
const TYPE_UNKNOWN: &str = "unknown";
/// Header fields that are kept with every webhook event.
pub(super) const KEPT_ALWAYS: [&str; 2] = ["content-type", "user-agent"];

/// Where to find a text in a request.
#[derive(Debug)]
pub(super) enum Locator {
    /// A header field.
    Header(&'static str),
    /// A header field whose value is percent-encoded.
    Encoded(&'static str),
    /// The first of two header fields, followed by a colon and the second if that is present.
    Headers(&'static str, &'static str),
    /// A path in the JSON view of the body.
    Body(&'static [&'static str]),
}

/// The JSON view of a request's body: see [`Body::json_view`].
pub(super) fn json_view<'a>(incoming: &Incoming<'a>) -> Cow<'a, [u8]> {
    let content_type = incoming.headers.get("content-type").unwrap_or_default();
    Body { content_type, bytes: incoming.body }.json_view()
}

impl Locator {
    /// The text, if it is not blank. Of equal names in a body the last one counts. The body is its JSON view.
    fn text(&self, incoming: &Incoming<'_>) -> Option<String> {
        let header = |name: &str| {
            let text = incoming.headers.get(name).map(|text| text.trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        match self {
            Self::Header(name) => header(name),
            Self::Encoded(name) => {
                let text = header(name)?;
                Some(percent_decode_str(&text).decode_utf8().ok()?.into_owned())
            }
            Self::Headers(first, second) => header(first).map(|first| match header(second) {
                Some(second) => format!("{first}:{second}"),
                None => first,
            }),
            Self::Body(path) => text_at(incoming.body, path).filter(|text| !text.trim().is_empty()),
        }
    }
}

/// The facts of a scheme besides its check.
#[derive(Debug)]
pub(super) struct Facts {
    /// The scheme's name in settings and rows.
    pub(super) kind: &'static str,
    /// Where the event's id is; the first one present counts.
    pub(super) ids: &'static [Locator],
    /// Where the event's type is; the first one present counts.
    pub(super) types: &'static [Locator],
    /// A text that is appended to the type after a dot, if present.
    pub(super) detail: Option<Locator>,
    /// Header fields that are kept besides [`KEPT_ALWAYS`]; never a signature.
    pub(super) kept: &'static [&'static str],
    /// The path of the list of events in a body, if a request is a batch.
    pub(super) items: Option<&'static [&'static str]>,
    /// The handshakes that its provider makes.
    pub(super) handshakes: &'static [HandshakeName],
    /// The answers that its provider reads; the first one that fits counts, otherwise Oncebox's own JSON.
    pub(super) answers: &'static [AnswerFacts],
    /// How to tell its provider to give up a request.
    pub(super) give_up: GiveUp,
    /// Whether its provider may send an event with `GET`: then the query is the form.
    pub(super) takes_get: bool,
    /// The default type of a sample.
    pub(super) sample_type: &'static str,
}

impl Facts {
    pub(super) const fn new(kind: &'static str, sample_type: &'static str) -> Self {
        Self {
            kind,
            ids: &[],
            types: &[],
            detail: None,
            kept: &[],
            items: None,
            handshakes: &[],
            answers: &[],
            give_up: GiveUp::Unprocessable,
            takes_get: false,
            sample_type,
        }
    }

    /// The id and the type, if present.
    pub(super) fn identify(&self, incoming: &Incoming<'_>) -> StatedIdentity {
        let first = |all: &[Locator]| all.iter().find_map(|locator| locator.text(incoming));
        let detail = || self.detail.as_ref()?.text(incoming);
        let event_type = first(self.types).map(|name| match detail() {
            Some(detail) => format!("{name}.{detail}"),
            None => name,
        });
        StatedIdentity { event_id: first(self.ids), event_type }
    }

    /// The name of the kept header field in which the provider names the type of a request, also where the body has it too.
    pub(super) fn type_field(&self, incoming: &Incoming<'_>) -> Option<&'static str> {
        self.types.iter().find_map(|locator| match locator {
            Locator::Header(name) => incoming.headers.get(name).is_some().then_some(*name),
            Locator::Encoded(_) | Locator::Headers(..) | Locator::Body(_) => None,
        })
    }
}

/// The id and the type of a webhook event as its request states them; `None`: it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StatedIdentity {
    pub(super) event_id: Option<String>,
    pub(super) event_type: Option<String>,
}

/// The id and the type of a webhook event as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The provider's id for the event: 1 to 500 characters, no control characters. If the provider gives none, the
    /// SHA-256 of the body in hex; if the id does not fit, the SHA-256 of the id.
    pub event_id: String,
    /// 1 to 128 bytes without control characters and white space; `unknown` if the provider gives none.
    pub event_type: String,
}

impl Identity {
    /// The identity that a request with that body states.
    pub(super) fn of(stated: StatedIdentity, body: &[u8]) -> Self {
        let StatedIdentity { event_id, event_type } = stated;
        Self {
            event_id: event_id
                .and_then(|id| bounded_id(&id))
                .unwrap_or_else(|| id::sha256_hex(body)),
            event_type: event_type
                .and_then(|name| bounded_type(&name))
                .unwrap_or_else(|| TYPE_UNKNOWN.to_owned()),
        }
    }
}

fn bounded_id(id: &str) -> Option<String> {
    let id = id.trim();
    if id.is_empty() {
        return None;
    }
    if id.chars().any(char::is_control) || id.chars().count() > MAX_EVENT_ID_CHARS {
        return Some(id::sha256_hex(id.as_bytes()));
    }
    Some(id.to_owned())
}

/// An event type as it is stored; `None` if nothing is left of it.
pub(super) fn bounded_type(name: &str) -> Option<String> {
    let mut bounded = String::new();
    for letter in name.trim().chars() {
        // Patterns of subscriptions contain neither, and a line break could forge a line in a log.
        let letter = if letter.is_control() || letter.is_whitespace() { '_' } else { letter };
        if bounded.len() + letter.len_utf8() > MAX_EVENT_TYPE_BYTES {
            break;
        }
        bounded.push(letter);
    }
    (!bounded.is_empty()).then_some(bounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_do_not_fit_are_stored_as_their_digest() {
        assert_eq!(bounded_id(" evt_1 ").as_deref(), Some("evt_1"));
        assert_eq!(bounded_id("  "), None);
        assert_eq!(bounded_id(&"x".repeat(500)).map(|id| id.len()), Some(500));
        assert_eq!(bounded_id(&"x".repeat(501)), Some(id::sha256_hex("x".repeat(501).as_bytes())));
        assert_eq!(bounded_id("a\nb"), Some(id::sha256_hex(b"a\nb")));
    }

    #[test]
    fn types_are_cut_and_cleaned() {
        assert_eq!(bounded_type("Push Hook").as_deref(), Some("Push_Hook"));
        assert_eq!(bounded_type("a\u{1b}[31m\u{85}b").as_deref(), Some("a_[31m_b"));
        assert_eq!(bounded_type(&"ä".repeat(100)), Some("ä".repeat(64)));
        assert_eq!(bounded_type("\t"), None);
    }
}

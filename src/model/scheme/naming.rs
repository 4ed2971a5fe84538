//! Where a webhook's id and type stand, and which header fields are kept with it.
//!
//! Not here: what is done where they stand nowhere (`super::Identity`), and places that people set
//! ([`super::generic`]).

use super::incoming::Incoming;
use crate::model::pointer::text_at;

/// A place in a request.
#[derive(Debug)]
pub(super) enum Place {
    /// A header field.
    Header(&'static str),
    /// The first of two header fields, and after a colon the second, where that is there.
    Headers(&'static str, &'static str),
    /// In the JSON body, step by step.
    Body(&'static [&'static str]),
}

impl Place {
    /// The text there, if it is more than white space. Of equal names in a body the last one counts.
    pub(super) fn text(&self, incoming: &Incoming<'_>) -> Option<String> {
        let header = |name: &str| {
            let text = incoming.headers.get(name).map(|text| text.trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        let text = match self {
            Self::Header(name) => header(name),
            Self::Headers(first, second) => header(first).map(|first| match header(second) {
                Some(second) => format!("{first}:{second}"),
                None => first,
            }),
            Self::Body(path) => text_at(incoming.body, path),
        };
        text.filter(|text| !text.trim().is_empty())
    }
}

/// What a provider's webhooks are called by.
#[derive(Debug)]
pub(super) struct Naming {
    /// Where the id stands: the first place that has one.
    pub(super) ids: &'static [Place],
    /// Where the type stands: the first place that has one.
    pub(super) types: &'static [Place],
    /// What is appended to the type after a dot, where it is there.
    pub(super) detail: Option<Place>,
    /// Header fields that are kept besides [`KEPT_ALWAYS`]; never a signature.
    pub(super) kept: &'static [&'static str],
}

/// Header fields that are kept with every webhook event.
pub(super) const KEPT_ALWAYS: [&str; 2] = ["content-type", "user-agent"];

impl Naming {
    /// The id and the type, where they are there.
    pub(super) fn identify(&self, incoming: &Incoming<'_>) -> (Option<String>, Option<String>) {
        let first = |places: &[Place]| places.iter().find_map(|place| place.text(incoming));
        let name = first(self.types).map(|name| {
            match self.detail.as_ref().and_then(|place| place.text(incoming)) {
                Some(detail) => format!("{name}.{detail}"),
                None => name,
            }
        });
        (first(self.ids), name)
    }
}

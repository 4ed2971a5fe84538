//! What a subscription says of the content of its requests: their format, the event's header fields that go with them, a
//! template, and conditions that a payload must meet.
//!
//! Not here: how requests are written and conditions are tested, which the room `formats` does.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::json_path::Path;

/// How an event's payload stands in a request. Stored in `subscriptions.format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The payload is the body, to the byte.
    #[default]
    Raw,
    /// The payload is `data` in the envelope of Standard Webhooks: `{"type":…,"timestamp":…,"data":…}`.
    StandardWebhooks,
    /// `CloudEvents` 1.0: the payload is the body, the attributes are header fields.
    CloudeventsBinary,
    /// `CloudEvents` 1.0: the body is JSON that has the attributes and the payload.
    CloudeventsStructured,
}

impl Format {
    /// All.
    pub const ALL: [Self; 4] =
        [Self::Raw, Self::StandardWebhooks, Self::CloudeventsBinary, Self::CloudeventsStructured];

    /// The word in SQL and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::StandardWebhooks => "standard_webhooks",
            Self::CloudeventsBinary => "cloudevents_binary",
            Self::CloudeventsStructured => "cloudevents_structured",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text)
    }
}

/// How a condition compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A place has this value.
    Equals,
    /// No place has this value.
    NotEquals,
    /// A place has one of these values.
    In,
    /// There is such a place, or none with `false`.
    Exists,
    /// A place is greater: a number, or a text by its characters.
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
    /// A text begins with this one.
    StartsWith,
    /// A text has this one in it, or an array this value.
    Contains,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One condition of a filter. Stored in `subscriptions.filter`, an array of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which places of the payload.
    pub path: Path,
    /// How they are compared.
    pub op: Op,
    /// With what.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// The templates of a subscription, as they were given. Stored in `subscriptions.template`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateText {
    /// Of the body; without one the payload is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body's media type; the event's, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Of header fields, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

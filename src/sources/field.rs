//! The fields of an event that a source can fill, and the value of one before it is checked.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// What is wrong with the settings of a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

/// A field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// What happened. The only one that has to be there, besides the payload.
    EventType,
    /// The body that is sent.
    Payload,
    /// The fact's own name.
    IdempotencyKey,
    /// The kind of thing it happened to.
    AggregateType,
    /// Which one.
    AggregateId,
    /// When.
    OccurredAt,
    /// The one subscription it is for.
    Target,
    /// What it is ordered by.
    OrderingKey,
    /// The payload's media type.
    ContentType,
    /// A JSON object; of it `traceparent` is carried on.
    Headers,
    /// The system it comes from; the source's name, where there is none.
    SourceSystem,
    /// Not to be sent before.
    NotBefore,
    /// The process it belongs to.
    ProcessId,
    /// Counted attempts until it is given up.
    MaxAttempts,
    /// Free for the source's own use.
    CustomData,
}

impl Field {
    const NAMED: [(Self, &'static str); 15] = [
        (Self::EventType, "event_type"),
        (Self::Payload, "payload"),
        (Self::IdempotencyKey, "idempotency_key"),
        (Self::AggregateType, "aggregate_type"),
        (Self::AggregateId, "aggregate_id"),
        (Self::OccurredAt, "occurred_at"),
        (Self::Target, "target"),
        (Self::OrderingKey, "ordering_key"),
        (Self::ContentType, "content_type"),
        (Self::Headers, "headers"),
        (Self::SourceSystem, "source_system"),
        (Self::NotBefore, "not_before"),
        (Self::ProcessId, "process_id"),
        (Self::MaxAttempts, "max_attempts"),
        (Self::CustomData, "custom_data"),
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::NAMED.iter().map(|(field, _)| *field)
    }

    /// The fields that distinguish a row from another one with the same id.
    pub const OF_FINGERPRINT: [Self; 2] = [Self::EventType, Self::Payload];

    /// Whether it names something, so that two values that are read as one would make one of two things.
    pub const fn tells_apart(self) -> bool {
        matches!(
            self,
            Self::IdempotencyKey | Self::AggregateId | Self::OrderingKey | Self::ProcessId
        )
    }

    /// The word in settings, and the name of its column or member unless another is given.
    pub fn as_str(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(field, _)| *field == self);
        named.map_or("", |(_, name)| name)
    }
}

/// The value of a field at its source.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes, or text that is not UTF-8.
    Bytes(Vec<u8>),
    /// More bytes than may be, which were not read.
    TooLarge(u64),
}

impl Cell {
    /// The bytes that are sent of it.
    pub(crate) fn raw(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Integer(n) => n.to_string().into_bytes().into(),
            Self::Real(n) => n.to_string().into_bytes().into(),
            Self::Text(text) => text.as_bytes().into(),
            Self::Bytes(bytes) => bytes.into(),
            Self::TooLarge(_) => Cow::default(),
        }
    }

    /// The text that a field other than the payload takes from it; empty counts as nothing.
    pub(crate) fn text(&self) -> Result<Option<String>, String> {
        Ok(match self {
            Self::Integer(n) => Some(n.to_string()),
            Self::Real(n) => Some(n.to_string()),
            Self::Text(text) if text.is_empty() => None,
            Self::Text(text) => Some(text.clone()),
            Self::Bytes(_) => return Err("is not text in UTF-8".to_owned()),
            Self::TooLarge(bytes) => return Err(format!("has {bytes} bytes, which is too much")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_the_word_that_serde_reads() {
        for field in Field::all() {
            assert_eq!(serde_json::to_value(field).unwrap(), field.as_str());
        }
    }
}

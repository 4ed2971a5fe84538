//! The fields of an event that a source can fill, and the value of a field before it is checked.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Why the settings of a source are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

/// A field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// What happened. Required, like the payload; all other fields are optional.
    EventType,
    /// The body that is sent.
    Payload,
    /// The key that identifies the event.
    IdempotencyKey,
    /// The kind of object that the event is about.
    AggregateType,
    /// The object's id.
    AggregateId,
    /// When it happened.
    OccurredAt,
    /// The only subscription that gets it.
    Target,
    /// Events with one ordering key are delivered in order.
    OrderingKey,
    /// Whether it goes into its lane even where the subscription keeps no order.
    GuaranteedOrder,
    /// Whether dead letters ahead of it in its lane are left out.
    ExcludeFailed,
    /// The funnel point at which its funnel value counts.
    FunnelPoint,
    /// Of events with the same value, one at a time is in flight.
    FunnelValue,
    /// What the aggregate's id is an id of.
    EntityType,
    /// The key of its parent in the same source system.
    ParentKey,
    /// Whether its parent waits for it: `hard` or `soft`.
    ParentBinding,
    /// The payload's media type.
    ContentType,
    /// A JSON object; only `traceparent` is used.
    Headers,
    /// The system that the event comes from; default: the source's name.
    SourceSystem,
    /// The earliest time to send it.
    NotBefore,
    /// The process it belongs to.
    ProcessId,
    /// Counted attempts until it is given up.
    MaxAttempts,
    /// Free for the source's own use.
    CustomData,
}

impl Field {
    const NAMED: [(Self, &'static str); 22] = [
        (Self::EventType, "event_type"),
        (Self::Payload, "payload"),
        (Self::IdempotencyKey, "idempotency_key"),
        (Self::AggregateType, "aggregate_type"),
        (Self::AggregateId, "aggregate_id"),
        (Self::OccurredAt, "occurred_at"),
        (Self::Target, "target"),
        (Self::OrderingKey, "ordering_key"),
        (Self::GuaranteedOrder, "guaranteed_order"),
        (Self::ExcludeFailed, "exclude_failed"),
        (Self::FunnelPoint, "funnel_point"),
        (Self::FunnelValue, "funnel_value"),
        (Self::EntityType, "entity_type"),
        (Self::ParentKey, "parent_key"),
        (Self::ParentBinding, "parent_binding"),
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

    /// The fields that a row's fingerprint covers.
    pub const OF_FINGERPRINT: [Self; 2] = [Self::EventType, Self::Payload];

    /// Whether it identifies something, so that two values must never be read as one.
    pub const fn is_identifier(self) -> bool {
        matches!(
            self,
            Self::IdempotencyKey
                | Self::AggregateId
                | Self::OrderingKey
                | Self::FunnelValue
                | Self::ProcessId
                | Self::ParentKey
        )
    }

    /// Its name in settings, and the default name of its column or member.
    pub fn as_str(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(field, _)| *field == self);
        named.map_or("", |(_, name)| name)
    }
}

/// The value of a field in its source.
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
    /// A value of so many bytes, too large to be read.
    TooLarge(u64),
}

impl Cell {
    /// Its bytes as a payload.
    pub(crate) fn raw(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Integer(n) => n.to_string().into_bytes().into(),
            Self::Real(n) => n.to_string().into_bytes().into(),
            Self::Text(text) => text.as_bytes().into(),
            Self::Bytes(bytes) => bytes.into(),
            Self::TooLarge(_) => Cow::default(),
        }
    }

    /// Its text for a field other than the payload; `None` if it is empty.
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
    fn every_field_has_the_name_that_serde_reads() {
        for field in Field::all() {
            assert_eq!(serde_json::to_value(field).unwrap(), field.as_str());
        }
    }
}

//! The values of an event that a URL can name.

/// Their names.
pub(super) const PLACEHOLDERS: [&str; 5] =
    ["aggregate_id", "aggregate_type", "event_type", "id", "idempotency_key"];

/// The same, as they are told to people.
pub(super) const NAMES: &str =
    "{aggregate_id}, {aggregate_type}, {event_type}, {id}, {idempotency_key}";

//! The values of an event that a URL can name.

/// Their names.
pub(super) const PLACEHOLDERS: [&str; 5] =
    ["aggregate_id", "aggregate_type", "event_type", "id", "idempotency_key"];

/// Their names for messages.
pub(super) const NAMES: &str =
    "{aggregate_id}, {aggregate_type}, {event_type}, {id}, {idempotency_key}";

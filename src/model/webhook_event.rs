//! A webhook event: one event received from a provider.

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::model::event::{self, DeliveryCounts};
use crate::model::sealed::Sealed;

words! {
    /// The status of a webhook event, derived from its deliveries. Stored in `webhook_events.status`.
    pub enum Status as "WebhookEventStatus" {
        /// Stored; no attempt has been settled.
        Received = "received",
        /// Attempts have been made, and a delivery is still open.
        Processing = "processing",
        /// Final: all its deliveries are done.
        Completed = "completed",
        /// Final: at least one of its deliveries is dead.
        Failed = "failed",
        /// Final: no subscription wanted it, or a person cancelled all its deliveries.
        Skipped = "skipped",
    }
}

/// The status of a webhook event, from its deliveries. The rule is that of [`event::derive`], with other words.
pub fn derive(counts: DeliveryCounts) -> Status {
    match event::derive(counts) {
        event::Status::Pending | event::Status::Quarantined => Status::Received,
        event::Status::Processing | event::Status::Failed => Status::Processing,
        event::Status::Completed => Status::Completed,
        event::Status::DeadLetter => Status::Failed,
        event::Status::Cancelled | event::Status::Skipped => Status::Skipped,
    }
}

/// A verified webhook event to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWebhookEvent {
    /// A fresh UUIDv7.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// The provider's name.
    pub provider: String,
    /// The provider's id for it; 1–500 characters.
    pub provider_event_id: String,
    /// The provider's type for it; 1–128 characters.
    pub event_type: String,
    /// When it was received (wall time).
    pub received_at: Timestamp,
    /// The body as received, except for what the privacy policy changed.
    pub payload: Vec<u8>,
    /// The body's media type.
    pub content_type: String,
    /// The header fields that are stored: name and value.
    pub headers: Vec<(String, String)>,
    /// The credential that verified it.
    pub key_id: Option<String>,
    /// The W3C trace id with which it was received.
    pub trace_id: Option<String>,
    /// The batch in which it was received, and its position there, counted from 1.
    pub batch: Option<(String, u32)>,
    /// Which part of the payload is sealed.
    pub sealed: Sealed,
    /// The key of its lane; 1–255 characters.
    pub ordering_key: Option<String>,
}

/// A webhook event as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookEvent {
    /// Its row number; also the cursor of lists.
    pub seq: i64,
    /// What it was stored with. `payload` is empty in lists.
    pub new: NewWebhookEvent,
    /// Its status.
    pub status: Status,
    /// Deliveries that are not final.
    pub open_deliveries: u32,
    /// How often it was received again.
    pub duplicate_count: u32,
    /// Failed attempts so far, of all its deliveries.
    pub retry_count: u32,
    /// When its first attempt was settled.
    pub processing_started_at: Option<Timestamp>,
    /// When it became final.
    pub completed_at: Option<Timestamp>,
    /// Why its latest attempt failed.
    pub error_message: Option<String>,
}

impl WebhookEvent {
    /// The `webhook-id` its deliveries carry.
    pub fn webhook_id(&self) -> String {
        webhook_id(&self.new.tenant, &self.new.provider, &self.new.provider_event_id)
    }
}

/// The `webhook-id` of a webhook event. `in:` keeps it apart from an outbox source of the same name.
pub fn webhook_id(tenant: &str, provider: &str, provider_event_id: &str) -> String {
    crate::base::id::webhook_id(tenant, &format!("in:{provider}"), provider_event_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_event_with_a_dead_delivery_has_failed() {
        assert_eq!(derive(DeliveryCounts { dead: 1, ..DeliveryCounts::default() }), Status::Failed);
        assert_eq!(
            derive(DeliveryCounts { open: 1, open_failed: 1, ..DeliveryCounts::default() }),
            Status::Processing
        );
        assert_eq!(derive(DeliveryCounts::default()), Status::Skipped);
    }
}

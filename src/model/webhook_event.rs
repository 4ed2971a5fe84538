//! A webhook event: one event received from a provider. And those that were refused.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::base::clock::Timestamp;
use crate::base::schema::{NameText, Uuid, Whole};
use crate::base::words::words;
use crate::model::event::{self, DeliveryCounts};
use crate::model::form_body::Body;
use crate::model::sealed::Sealed;

/// Refusals that are alike are one row for so long.
const GROUPED_WITHIN: Duration = Duration::from_hours(1);

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

words! {
    /// How a webhook event came first. Stored in `webhook_events.origin`.
    #[derive(Default)]
    pub enum WebhookOrigin as "WebhookOrigin" {
        /// Its provider sent it.
        #[default]
        Webhook = "webhook",
        /// A source read it in its provider's list.
        Listed = "listed",
        /// A comparison with its provider's list found it missing.
        Reconciled = "reconciled",
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NewWebhookEvent {
    #[schemars(with = "Uuid")]
    pub id: String,
    #[schemars(with = "NameText")]
    pub tenant: String,
    #[schemars(with = "NameText")]
    pub provider: String,
    // 1–500 characters.
    pub provider_event_id: String,
    // 1–128 characters.
    pub event_type: String,
    pub received_at: Timestamp,
    /// The body as received, except for what the privacy policy changed.
    #[serde(skip)]
    pub payload: Vec<u8>,
    pub content_type: String,
    /// The header fields that are kept.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: Vec<(String, String)>,
    /// The id of the secret that verified it.
    pub key_id: Option<String>,
    pub trace_id: Option<String>,
    #[serde(flatten)]
    pub batch: Batch,
    /// How many fields of the body are sealed; they are shown as `[sealed]`.
    #[serde(rename = "sealed_fields")]
    #[schemars(with = "u32")]
    pub sealed: Sealed,
    /// The key of its lane, where its provider says where to find one.
    pub ordering_key: Option<String>,
    /// The name of the header field in which its provider names its type; it is sent on.
    #[serde(skip)]
    pub type_field: Option<String>,
    /// How it came first: `webhook` (sent by its provider), `listed` (read in the provider's list by a source), `reconciled`
    /// (found missing by a comparison with that list).
    pub origin: WebhookOrigin,
}

impl NewWebhookEvent {
    /// The payload with its media type.
    pub fn body(&self) -> Body<'_> {
        Body { content_type: &self.content_type, bytes: &self.payload }
    }
}

/// The batch in which a webhook event was received, if it was in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Batch {
    /// The batch it came in.
    #[schemars(with = "Option<Uuid>")]
    pub batch_id: Option<String>,
    /// Its position in the batch, counted from 1.
    pub item_no: Option<u32>,
}

/// A webhook event, without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WebhookEvent {
    /// Its row number; also the cursor of lists.
    #[serde(skip)]
    pub seq: i64,
    /// What it was stored with. `payload` is empty in lists.
    #[serde(flatten)]
    pub new: NewWebhookEvent,
    pub webhook_id: String,
    pub status: Status,
    pub open_deliveries: u32,
    /// How often it was received again.
    pub duplicate_count: u32,
    /// How many attempts there were.
    pub retry_count: u32,
    /// When the first attempt began.
    pub processing_started_at: Option<Timestamp>,
    /// When it was completed.
    pub completed_at: Option<Timestamp>,
    /// When it was completed, failed or skipped.
    pub finished_at: Option<Timestamp>,
    /// The latest error, unless it was completed.
    pub error_message: Option<String>,
    /// When its payload, what was sent of it and the answers were removed; null: they are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expunged_at: Option<Timestamp>,
    /// The month in whose archive it is, like `2026-11`; null while it is in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_in: Option<String>,
}

/// The number of a webhook event that is being attempted, and the start of the attempt.
pub type Began = (i64, Timestamp);

impl WebhookEvent {
    /// Shows the webhook as `processing` since its attempt began, if an attempt is under way. The file does not store that
    /// before the first attempt has ended.
    pub fn see_in_flight(&mut self, began: &[Began]) {
        let began = began.iter().filter(|(seq, _)| *seq == self.seq).map(|(_, at)| *at).min();
        if self.status == Status::Received && began.is_some() {
            self.status = Status::Processing;
            self.processing_started_at = self.processing_started_at.or(began);
        }
    }
}

/// Refusals that were alike, as one row. Nothing of a body is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefusedWebhook {
    /// Its place in time: the one with the latest refusal has the highest.
    #[serde(skip)]
    pub seq: i64,
    /// The provider's name, as the path has it.
    pub provider: String,
    /// Whether there is such a provider.
    pub is_known: bool,
    /// The status that was answered.
    #[schemars(with = "Whole<400, 599>")]
    pub status: u16,
    /// Why it was refused, of the latest one. The sender is not told what is wrong with a signature.
    pub reason: String,
    /// The client's address, as trusted proxies report it.
    pub address: String,
    /// When the first one came.
    pub first_at: Timestamp,
    /// When the latest one came.
    pub last_at: Timestamp,
    /// How many there were.
    pub count: u64,
}

impl RefusedWebhook {
    /// Whether another refusal belongs to this row. Numbers in a reason, such as of seconds, may differ.
    pub fn has(&self, other: &Self) -> bool {
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        (&self.address, self.status, self.is_known)
            == (&other.address, other.status, other.is_known)
            // One address can invent any number of names.
            && (self.provider == other.provider || !self.is_known)
            && other.last_at.since(self.first_at) <= GROUPED_WITHIN
            && words(&self.reason) == words(&other.reason)
    }
}

fn as_object<S: Serializer>(pairs: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
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

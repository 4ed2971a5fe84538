//! An attempt of a delivery: as it is stored, and as it is reported when it has ended.
//!
//! Not here: the class of its outcome (`model::outcome`), and what follows from it (`model::failure`).

use std::time::Duration;

use data_encoding::HEXLOWER;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::base::schema::{Sha256, Whole};
use crate::model::delivery::Jitter;
use crate::model::event::Tried;
use crate::model::outcome::AttemptClass;
use crate::model::retry_rules::RetryRules;

/// An attempt as stored. Never changed after it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Attempt {
    // Its number within the delivery.
    #[schemars(with = "Whole<1, { 1 << 31 }>")]
    pub n: u32,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    /// The URL that was called; empty if nothing was sent.
    pub url: String,
    pub class: AttemptClass,
    /// Whether it counts towards `max_attempts`.
    pub counted: bool,
    #[schemars(with = "Option<Whole<100, 999>>")]
    pub http_status: Option<u16>,
    pub latency_ms: u32,
    /// The first 2,048 characters of the answer.
    pub excerpt: Option<String>,
    pub failed_reason: Option<String>,
    /// The id of the credential it was signed with.
    pub key_id: Option<String>,
    /// The id of its span in the trace.
    pub span: Option<String>,
    /// The method of the request; `null` if nothing was sent.
    pub method: Option<String>,
    /// The SHA-256 of the body that was sent; `null` if sealed fields were opened in it.
    #[serde(serialize_with = "hex")]
    #[schemars(with = "Option<Sha256>")]
    pub body_sha256: Option<[u8; 32]>,
    /// The header fields that the request had besides those of every request, as a JSON array of pairs. What is secret in
    /// them is `***`.
    #[serde(skip)]
    pub fields: Option<String>,
    /// Whether the request also had the header fields that name the event.
    #[serde(skip)]
    pub named: bool,
}

/// An attempt that has ended, without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecentAttempt {
    pub delivery: DeliverySeq,
    /// When it ended.
    pub at: Timestamp,
    pub class: AttemptClass,
    #[schemars(with = "Option<Whole<100, 999>>")]
    pub http_status: Option<u16>,
    pub latency_ms: u32,
}

impl Attempt {
    /// What it tells the event of its delivery.
    pub fn tried(&self) -> Tried<'_> {
        Tried { started_at: Some(self.started_at), error: self.failed_reason.as_deref() }
    }
}

#[expect(clippy::ref_option, reason = "serde passes a field by reference")]
fn hex<S: Serializer>(hash: &Option<[u8; 32]>, to: S) -> Result<S::Ok, S::Error> {
    hash.as_ref().map(|hash| HEXLOWER.encode(hash)).serialize(to)
}

/// A report of an attempt that has ended: what happened, and the rules by which it is judged. A deliverer makes it, or a
/// consumer's lease, or a confirmation.
#[derive(Clone, Debug)]
pub struct AttemptReport {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The run the attempt belongs to. If the delivery was reopened meanwhile, its state does not change.
    pub run_no: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// The attempt. `n` is the number expected when it was sent. `class` follows from the answer alone, and nothing is counted:
    /// a [`Settlement`](crate::model::settlement::Settlement) has both as they were judged.
    pub attempt: Attempt,
    /// What failed, in one word: the status, or the cause.
    pub code: String,
    /// The wait the target asked for: `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The rules that apply.
    pub rules: RetryRules,
    /// How much waits are lengthened.
    pub jitter: Jitter,
    /// Whether it is a probe: sent despite a hold, to test whether the target works again.
    pub is_probe: bool,
    /// Whether it says nothing about the target: the site was offline, or a new target's first try was cut short.
    pub is_inconclusive: bool,
    /// Whether the whole target was away, so that no other delivery could pass.
    pub is_away: bool,
    /// Its part in an order.
    pub order: AttemptOrder,
    /// Schedule time of the report, from which waits are counted.
    pub now: Timestamp,
}

impl AttemptReport {
    /// The report of an attempt of which nothing more is known, by the default rules. Its event arrived when it began.
    pub fn new(
        delivery: DeliverySeq,
        subscription: SubscriptionSeq,
        run_no: u32,
        attempt: Attempt,
        now: Timestamp,
    ) -> Self {
        Self {
            delivery,
            subscription,
            run_no,
            accepted_at: attempt.started_at,
            attempt,
            code: String::new(),
            retry_after: None,
            rules: RetryRules::default(),
            jitter: Jitter::default(),
            is_probe: false,
            is_inconclusive: false,
            is_away: false,
            order: AttemptOrder::default(),
            now,
        }
    }

    /// Why the attempt failed; empty if it did not.
    pub fn reason(&self) -> &str {
        self.attempt.failed_reason.as_deref().unwrap_or_default()
    }

    /// A step of the schedule with jitter, but at least `Retry-After`, which is honored in any answer.
    pub fn wait(&self, step: Duration) -> Duration {
        self.jitter.lengthen(step).max(self.retry_after.unwrap_or_default())
    }
}

/// What an attempt means for the order of its delivery.
#[derive(Clone, Debug, Default)]
pub struct AttemptOrder {
    /// Whether older deliveries about its entity are superfluous once it is completed.
    pub is_latest_only: bool,
    /// Whether it is noted as an external call.
    pub is_call: bool,
    /// What the target wants to get back with the next attempt.
    pub custom_data: Option<String>,
    /// Whether nothing waits for its outcome, such as the next one in its lane.
    pub can_wait: bool,
}

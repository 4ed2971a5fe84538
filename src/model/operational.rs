//! Operational events: what Oncebox itself tells the subscriptions that name it. Here are their names and bodies;
//! `store::operational` stores them.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::model::escalation::Class;
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;

words! {
    /// What is told. The name is the event's type.
    pub enum OperationalKind {
        /// `delivery.completed`
        DeliveryCompleted = "delivery.completed",
        /// `delivery.dead_lettered`
        DeliveryDeadLettered = "delivery.dead_lettered",
        /// `integration.run_completed`
        RunCompleted = "integration.run_completed",
        /// `integration.failed`
        IntegrationFailed = "integration.failed",
        /// `integration.resolved`
        IntegrationResolved = "integration.resolved",
        /// `subscription.held`
        SubscriptionHeld = "subscription.held",
        /// `subscription.resumed`
        SubscriptionResumed = "subscription.resumed",
        /// `subscription.disabled`
        SubscriptionDisabled = "subscription.disabled",
        /// `credential.rotated`
        CredentialRotated = "credential.rotated",
        /// `credential.rotation_failed`
        CredentialRotationFailed = "credential.rotation_failed",
        /// `source.failing`
        SourceFailing = "source.failing",
        /// `source.replaced`
        SourceReplaced = "source.replaced",
        /// `source.silent`
        SourceSilent = "source.silent",
        /// `source.recovered`
        SourceRecovered = "source.recovered",
        /// `site.offline`
        SiteOffline = "site.offline",
        /// `site.online`
        SiteOnline = "site.online",
        /// `disk.low`
        DiskLow = "disk.low",
        /// `clock.wrong`
        ClockWrong = "clock.wrong",
    }
}

impl OperationalKind {
    /// What it means.
    pub const fn about(self) -> &'static str {
        match self {
            Self::DeliveryCompleted => "A receiver or a consumer has accepted a delivery.",
            Self::DeliveryDeadLettered => "A delivery was given up; a person has to act.",
            Self::RunCompleted => "The same as delivery.completed, under another name.",
            Self::IntegrationFailed => "A delivery failed for the first time since it last worked.",
            Self::IntegrationResolved => "A delivery that had failed has succeeded.",
            Self::SubscriptionHeld => {
                "A subscription is not called for now: paused, auth, breaker or rejecting."
            }
            Self::SubscriptionResumed => "A hold of a subscription has ended.",
            Self::SubscriptionDisabled => {
                "A subscription is no longer called: its target is gone, or has failed for five days."
            }
            Self::CredentialRotated => "A new version of a credential is in force.",
            Self::CredentialRotationFailed => {
                "A new version of a credential was not accepted; the old one stays in force."
            }
            Self::SourceFailing => "A source cannot be read.",
            Self::SourceReplaced => "A source reads another file or table than before.",
            Self::SourceSilent => "A source has had no event for too long.",
            Self::SourceRecovered => {
                "A source that failed, was replaced or was silent works again."
            }
            Self::SiteOffline => "The site has no line to the outside; nothing is sent.",
            Self::SiteOnline => "The site has a line to the outside again.",
            Self::DiskLow => "The disk is nearly full; new work is refused soon, or is already.",
            Self::ClockWrong => "The wall clock was set, or shows a time that cannot be.",
        }
    }

    /// The one that tells of a new escalation.
    pub const fn of_escalation(class: Class) -> Option<Self> {
        match class {
            Class::SourceFailing => Some(Self::SourceFailing),
            Class::SourceReplaced => Some(Self::SourceReplaced),
            Class::SourceSilent => Some(Self::SourceSilent),
            Class::SiteOffline => Some(Self::SiteOffline),
            Class::DiskLow => Some(Self::DiskLow),
            Class::ClockWrong => Some(Self::ClockWrong),
            _ => None,
        }
    }

    /// The kind for the end of such an escalation.
    pub const fn of_end(class: Class) -> Option<Self> {
        match class {
            Class::SourceFailing | Class::SourceReplaced | Class::SourceSilent => {
                Some(Self::SourceRecovered)
            }
            Class::SiteOffline => Some(Self::SiteOnline),
            _ => None,
        }
    }

    /// The one that tells of a new hold. What a target asks for itself passes soon and is not told; of the site and of
    /// a tenant others tell.
    pub const fn of_hold(reason: HoldReason) -> Option<Self> {
        match reason {
            HoldReason::Paused | HoldReason::Auth | HoldReason::Breaker | HoldReason::Rejecting => {
                Some(Self::SubscriptionHeld)
            }
            HoldReason::Disabled => Some(Self::SubscriptionDisabled),
            HoldReason::Suspended | HoldReason::RateLimit | HoldReason::Offline => None,
        }
    }

    /// A body of it.
    pub fn example(self) -> Value {
        let at = "2026-01-31T12:00:00.000Z";
        let id = "019c142a-1f00-7000-8000-0123456789ab";
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let delivery = |more: Value| {
            let mut body = json!({
                "trace_id": trace, "delivery_id": "dlv_17", "event_id": id, "webhook_id": "evt_AEBAGBAFAYDQQCIKBMGA2DQPCA",
                "event_type": "invoice.created", "aggregate_type": "invoice", "aggregate_id": "4711",
                "idempotency_key": "invoice-4711", "subscription": "erp", "attempts": 1,
            });
            if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
                body.extend(more);
            }
            body
        };
        let condition = |condition: &str| {
            let subject = if condition.starts_with("source") { "source:shop" } else { "site" };
            json!({ "subject": subject, "condition": condition, "escalation_id": id,
                "detail": "what was found, and what to do", "at": at })
        };
        match self {
            Self::DeliveryCompleted | Self::RunCompleted => {
                delivery(json!({ "http_status": 200, "completed_at": at }))
            }
            Self::DeliveryDeadLettered => delivery(json!({
                "http_status": 422, "class": "validation", "reason": "the target answered 422", "dead_lettered_at": at,
            })),
            Self::IntegrationFailed | Self::IntegrationResolved => json!({
                "failure_id": "flr_3", "trace_id": trace, "delivery_id": "dlv_17", "subscription": "erp", "event_id": id,
                "event_type": "invoice.created", "class": "transient", "code": "503",
                "reason": "the target answered 503", "is_dead_letter": false, "at": at,
            }),
            Self::SubscriptionHeld | Self::SubscriptionResumed => json!({
                "subscription_id": id, "subscription": "erp", "reason": "auth",
                "detail": "the target answered 401", "at": at,
            }),
            Self::SubscriptionDisabled => json!({
                "subscription_id": id, "subscription": "erp", "reason": "disabled",
                "detail": "the target answered 410", "at": at,
            }),
            Self::CredentialRotated | Self::CredentialRotationFailed => json!({
                "credential_id": id, "owner": "subscription:erp", "kind": "bearer", "version": 2,
                "reason": (self == Self::CredentialRotationFailed).then_some("the target answered 401"),
                "at": at,
            }),
            Self::SourceRecovered => condition("source.failing"),
            Self::SiteOnline => condition("site.offline"),
            Self::SourceFailing
            | Self::SourceReplaced
            | Self::SourceSilent
            | Self::SiteOffline
            | Self::DiskLow
            | Self::ClockWrong => condition(self.as_str()),
        }
    }

    /// The schema of its body.
    pub fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        match self {
            Self::DeliveryCompleted | Self::RunCompleted => generator.subschema_for::<Completed>(),
            Self::DeliveryDeadLettered => generator.subschema_for::<DeadLettered>(),
            Self::IntegrationFailed | Self::IntegrationResolved => {
                generator.subschema_for::<Integration>()
            }
            Self::SubscriptionHeld | Self::SubscriptionResumed | Self::SubscriptionDisabled => {
                generator.subschema_for::<OfSubscription>()
            }
            Self::CredentialRotated | Self::CredentialRotationFailed => {
                generator.subschema_for::<OfCredential>()
            }
            Self::SourceFailing
            | Self::SourceReplaced
            | Self::SourceSilent
            | Self::SourceRecovered
            | Self::SiteOffline
            | Self::SiteOnline
            | Self::DiskLow
            | Self::ClockWrong => generator.subschema_for::<OfEscalation>(),
        }
    }
}

/// A delivery whose end is told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OfDelivery {
    /// The trace of the run, as in `traceparent`.
    pub trace_id: String,
    /// Which delivery, such as `dlv_17`.
    pub delivery_id: String,
    /// The event or webhook event that was delivered.
    pub event_id: String,
    /// The `webhook-id` it was delivered under.
    pub webhook_id: String,
    /// Its type.
    pub event_type: String,
    /// The kind of thing it happened to.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// Its key at its source.
    pub idempotency_key: String,
    /// The subscription's name.
    pub subscription: String,
    /// Attempts, the last one included.
    pub attempts: u32,
    /// The status of the last answer; null where there was none.
    pub http_status: Option<u16>,
}

/// Body of `delivery.completed` and `integration.run_completed`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeliveryCompletedEvent")]
pub struct Completed {
    /// What was delivered.
    #[serde(flatten)]
    pub delivery: OfDelivery,
    /// When it was accepted.
    pub completed_at: Timestamp,
}

/// Body of `delivery.dead_lettered`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeliveryDeadLetteredEvent")]
pub struct DeadLettered {
    /// What was given up.
    #[serde(flatten)]
    pub delivery: OfDelivery,
    /// What the last attempt came to.
    pub class: AttemptClass,
    /// Why it was given up.
    pub reason: String,
    /// When.
    pub dead_lettered_at: Timestamp,
}

/// Body of `integration.failed` and `integration.resolved`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationEvent")]
pub struct Integration {
    /// Both events of one failure have the same.
    pub failure_id: String,
    /// The trace of the run, as in `traceparent`.
    pub trace_id: String,
    /// Which delivery, such as `dlv_17`.
    pub delivery_id: String,
    /// The subscription's name.
    pub subscription: String,
    /// The event or webhook event.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// What the attempt came to.
    pub class: AttemptClass,
    /// The status of the answer, or the cause of the failure.
    pub code: String,
    /// Why the attempt failed.
    pub reason: Option<String>,
    /// Whether the delivery is given up.
    pub is_dead_letter: bool,
    /// When the attempt ended.
    pub at: Timestamp,
}

/// Body of `subscription.held`, `subscription.resumed` and `subscription.disabled`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SubscriptionEvent")]
pub struct OfSubscription {
    /// The subscription.
    pub subscription_id: String,
    /// Its name.
    pub subscription: String,
    /// The hold's reason.
    #[schemars(with = "HoldReason")]
    pub reason: &'static str,
    /// Who or what put the hold.
    pub detail: String,
    /// When.
    pub at: Timestamp,
}

/// Body of `credential.rotated` and `credential.rotation_failed`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "CredentialEvent")]
pub struct OfCredential {
    /// The new version.
    pub credential_id: String,
    /// Whose it is: `subscription:` or `provider:` and a name.
    pub owner: String,
    /// The credential's kind.
    pub kind: String,
    /// The number of the new version.
    pub version: u32,
    /// Why it was not accepted; null when it was.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// Body of `source.*`, `site.*`, `disk.low` and `clock.wrong`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConditionEvent")]
pub struct OfEscalation {
    /// `source:` and the source's name, or `site`.
    pub subject: String,
    /// What is or was wrong, such as `source.silent`.
    #[schemars(with = "Class")]
    pub condition: &'static str,
    /// The escalation; both events of one have the same.
    pub escalation_id: String,
    /// What was seen, and what to do.
    pub detail: String,
    /// When.
    pub at: Timestamp,
}

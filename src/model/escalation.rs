//! An escalation: a failure that a person must see.
//!
//! A failure that occurs again increases the count of its open escalation. Not here: who is told of it (`alerts`).

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::schema::{NameText, Uuid};
use crate::base::words::words;

words! {
    /// What happened. Stored in `escalations.class`.
    pub enum Class as "EscalationClass" {
        /// A source cannot be read.
        SourceFailing = "source.failing",
        /// The file or table that a source reads was replaced.
        SourceReplaced = "source.replaced",
        /// A source has had no event for too long.
        SourceSilent = "source.silent",
        /// A file of a drop folder was refused.
        DropRejected = "drop.rejected",
        /// A delivery has failed eight times or more.
        DeliveryFailing = "delivery.failing",
        /// Deliveries were given up.
        DeliveryDead = "delivery.dead_lettered",
        /// A target does not accept our credential.
        SubscriptionAuth = "subscription.auth",
        /// A target refuses what it is sent.
        SubscriptionRejecting = "subscription.rejecting",
        /// A target has failed several times in a row and is only probed.
        SubscriptionBreaker = "subscription.breaker",
        /// A target asks to wait for more than an hour.
        SubscriptionRateLimit = "subscription.rate_limit",
        /// A subscription was disabled: its target is gone, or has failed for five days.
        SubscriptionDisabled = "subscription.disabled",
        /// The site has no network connection to the outside.
        SiteOffline = "site.offline",
        /// The disk is nearly full.
        DiskLow = "disk.low",
        /// The clock was set, or shows a time that cannot be.
        ClockWrong = "clock.wrong",
        /// The newest backup is too old, or one could not be made.
        BackupOld = "backup.old",
        /// Events cannot be used and wait for a person.
        EventQuarantined = "event.quarantined",
        /// The database was restored: new events are held for review.
        SiteRestored = "site.restored",
        /// A credential could not be rotated; the old one stays in force.
        CredentialRotation = "credential.rotation_failed",
        /// A tenant has more subscriptions than it may; those beyond were paused.
        TenantOverLimit = "tenant.over_limit",
    }
}

words! {
    /// How bad an escalation is.
    pub enum Severity as "Severity" {
        /// It may pass by itself.
        Info = "info",
        /// A person should look within the day.
        Warning = "warning",
        /// Nothing goes through there until a person acts.
        Critical = "critical",
    }
}

impl Class {
    /// How bad it is. Critical: nothing goes through there until a person acts.
    pub const fn severity(self) -> Severity {
        match self {
            Self::DeliveryFailing => Severity::Info,
            Self::SourceSilent
            | Self::DropRejected
            | Self::DeliveryDead
            | Self::SubscriptionBreaker
            | Self::SubscriptionRateLimit
            | Self::ClockWrong
            | Self::BackupOld
            | Self::SiteRestored
            | Self::EventQuarantined
            | Self::CredentialRotation => Severity::Warning,
            Self::SourceFailing
            | Self::SourceReplaced
            | Self::SubscriptionAuth
            | Self::SubscriptionRejecting
            | Self::SubscriptionDisabled
            | Self::SiteOffline
            | Self::DiskLow
            | Self::TenantOverLimit => Severity::Critical,
        }
    }

    /// Whether acknowledging resolves it. Escalations of the other classes are resolved when their cause is gone.
    pub const fn ends_when_seen(self) -> bool {
        matches!(
            self,
            Self::DropRejected
                | Self::DeliveryDead
                | Self::CredentialRotation
                | Self::TenantOverLimit
        )
    }
}

/// An escalation to be raised.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NewEscalation {
    // It is used if none is open.
    #[schemars(with = "Uuid")]
    pub id: String,
    #[schemars(with = "NameText")]
    pub tenant: String,
    /// What happened.
    pub class: Class,
    /// To what, such as `source:erp`.
    pub subject: String,
    /// What was seen last, and what to do.
    pub detail: String,
}

/// An escalation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Escalation {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    /// What it was raised with; `detail` is the latest.
    #[serde(flatten)]
    pub new: NewEscalation,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub count: u64,
    pub acknowledged_at: Option<Timestamp>,
    pub acknowledged_by: Option<String>,
    /// When it was over; null while it is open.
    pub resolved_at: Option<Timestamp>,
}

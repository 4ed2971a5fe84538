//! An escalation: a failure that a person must see.
//!
//! A failure that occurs again increases the count of its open escalation, or reopens the one that ended within the last
//! hour: a target that fails and works in turns is one escalation. Not here: who is told of it (`alerts`).

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::schema::{NameText, Uuid};
use crate::base::words::words;

/// After this time without its failure an escalation is over for good. Until then the failure reopens it, if it is about a
/// state that comes and goes.
pub const CALM_AFTER: Duration = Duration::from_hours(1);

words! {
    /// What happened. Stored in `escalations.class`.
    pub enum Class as "EscalationClass" {
        /// A source cannot be read.
        SourceFailing = "source.failing",
        /// The file or table that a source reads was replaced.
        SourceReplaced = "source.replaced",
        /// A source has had no event for too long.
        SourceSilent = "source.silent",
        /// Webhooks of a provider are missing, as its list shows.
        ProviderMissing = "provider.missing",
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
        /// A target to which nothing is sent for now does not answer probes as it should.
        SubscriptionUnhealthy = "subscription.unhealthy",
        /// A target asks to wait for more than an hour.
        SubscriptionRateLimit = "subscription.rate_limit",
        /// A subscription was disabled: its target is gone, or has failed for five days.
        SubscriptionDisabled = "subscription.disabled",
        /// The site has no network connection to the outside.
        SiteOffline = "site.offline",
        /// The disk is nearly full.
        DiskLow = "disk.low",
        /// A month of the archive is deleted next, since the disk is nearly full.
        ArchiveDeletes = "archive.deletes",
        /// A month of the archive was deleted, since the disk was nearly full.
        ArchiveDeleted = "archive.deleted",
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
        /// A signing secret was made by the clock, and its receiver has to learn it.
        CredentialNew = "credential.new_secret",
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
    /// The severity, the cause and the remedy.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub const fn facts(self) -> (Severity, &'static str, &'static str) {
        use Severity::{Critical, Warning};
        match self {
            Self::SourceFailing => {
                (Critical, "cannot be read", "Look at its error: oncebox source show NAME.")
            }
            Self::SourceReplaced => (
                Critical,
                "reads another file or table than before",
                "Decide where to go on: oncebox source reset NAME.",
            ),
            Self::SourceSilent => (
                Warning,
                "has had no event for too long",
                "Check whether the program that writes its events still runs.",
            ),
            Self::ProviderMissing => (
                Warning,
                "does not send all of its webhooks",
                "They were taken in from its list. Look why: oncebox webhook refused, and the provider's own log.",
            ),
            Self::DropRejected => (
                Warning,
                "has a file that was refused",
                "Correct the file and drop it again under a new name, then acknowledge this.",
            ),
            Self::DeliveryFailing => (
                Warning,
                "has a delivery that fails again and again",
                "It is still tried. See what the target answers: oncebox delivery list.",
            ),
            Self::DeliveryDead => (
                Warning,
                "has deliveries that were given up",
                "Mend the cause, then send them again: oncebox dead-letter replay. This ends when none is left, or when somebody acknowledges it.",
            ),
            Self::SubscriptionAuth => (
                Critical,
                "is not let in by its target",
                "Set a new credential: oncebox credential set. Its deliveries wait and are not lost.",
            ),
            Self::SubscriptionRejecting => (
                Critical,
                "has its requests refused by its target",
                "See what the target answers, and correct the subscription or the target. Its deliveries wait.",
            ),
            Self::SubscriptionBreaker => (
                Warning,
                "has a target that fails again and again",
                "See what it answers: oncebox delivery list. It is probed; its deliveries wait and go on by themselves.",
            ),
            Self::SubscriptionUnhealthy => (
                Warning,
                "has a target that does not work, as probes show",
                "Find out before the next event: oncebox subscription test NAME. It is probed; this ends when one works.",
            ),
            Self::SubscriptionRateLimit => (
                Warning,
                "has a target that asks to wait for more than an hour",
                "Ask its operator for a higher limit, or set policy.rate. Its deliveries wait and go on by themselves.",
            ),
            Self::SubscriptionDisabled => (
                Critical,
                "was disabled",
                "Its target is gone, or has failed for five days. Correct it: oncebox subscription resume NAME.",
            ),
            Self::SiteOffline => (
                Critical,
                "has no connection to the outside",
                "Check the network. Deliveries wait and go on by themselves.",
            ),
            Self::DiskLow => (
                Critical,
                "has a disk that is nearly full",
                "Free space. New events are refused until then.",
            ),
            Self::ArchiveDeletes => (
                Critical,
                "is deleted in ten minutes, since the disk is nearly full",
                "Free space, or turn archive.delete_when_full off. Events that are not delivered stay.",
            ),
            Self::ArchiveDeleted => (
                Warning,
                "was deleted, since the disk was nearly full",
                "Give the disk more space, or keep fewer months (archive.keep). Then acknowledge this.",
            ),
            Self::ClockWrong => {
                (Warning, "has a clock that is wrong", "Check the time service (NTP).")
            }
            Self::BackupOld => {
                (Warning, "has no recent backup", "Look why: oncebox doctor; oncebox backup list.")
            }
            Self::EventQuarantined => (
                Warning,
                "has events that cannot be used",
                "Correct or discard them: oncebox event list --status quarantined.",
            ),
            Self::SiteRestored => (
                Warning,
                "was restored from a backup",
                "Decide about what may have been sent: oncebox in-doubt list. To hold no more: oncebox in-doubt end.",
            ),
            Self::CredentialRotation => (
                Warning,
                "could not be rotated",
                "The old one stays in force. Look why: oncebox credential list.",
            ),
            Self::CredentialNew => (
                Warning,
                "has a new signing secret that its receiver does not accept yet",
                "Give the receiver what its detail names. Until it accepts it, requests carry both signatures.",
            ),
            Self::TenantOverLimit => (
                Critical,
                "has more subscriptions than it may have",
                "Those beyond are paused. Delete some or raise the setting, then: oncebox subscription resume NAME.",
            ),
        }
    }

    /// What happened, in two or three words: a heading for what it happened to.
    ///
    /// ```
    /// use oncebox::model::escalation::Class;
    /// assert_eq!(Class::SubscriptionAuth.title(), "Credential refused");
    /// ```
    pub const fn title(self) -> &'static str {
        match self {
            Self::SourceFailing => "Source cannot be read",
            Self::SourceReplaced => "Source was replaced",
            Self::SourceSilent => "Source is silent",
            Self::ProviderMissing => "Webhooks missing",
            Self::DropRejected => "File refused",
            Self::DeliveryFailing => "Delivery fails again and again",
            Self::DeliveryDead => "Deliveries given up",
            Self::SubscriptionAuth => "Credential refused",
            Self::SubscriptionRejecting => "Requests refused",
            Self::SubscriptionBreaker => "Target fails",
            Self::SubscriptionUnhealthy => "Target does not work",
            Self::SubscriptionRateLimit => "Target asks to wait",
            Self::SubscriptionDisabled => "Disabled",
            Self::SiteOffline => "No connection to the outside",
            Self::DiskLow => "Disk nearly full",
            Self::ArchiveDeletes => "Month about to be deleted",
            Self::ArchiveDeleted => "Month deleted",
            Self::ClockWrong => "Clock is wrong",
            Self::BackupOld => "No recent backup",
            Self::EventQuarantined => "Events cannot be used",
            Self::SiteRestored => "Restored from a backup",
            Self::CredentialRotation => "Rotation failed",
            Self::CredentialNew => "New secret to hand over",
            Self::TenantOverLimit => "Too many subscriptions",
        }
    }

    /// How bad it is. Critical: nothing goes through there until a person acts.
    pub const fn severity(self) -> Severity {
        self.facts().0
    }

    /// Whether it is about a state that may come back by itself. The others are about single things, each of which is new.
    pub const fn comes_and_goes(self) -> bool {
        !self.ends_when_seen()
    }

    /// Whether acknowledging resolves it. Escalations of the other classes are resolved when their cause is gone.
    pub const fn ends_when_seen(self) -> bool {
        matches!(
            self,
            Self::DropRejected
                | Self::DeliveryDead
                | Self::ArchiveDeleted
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
    /// When it was last reopened; null if its failure has not come back within an hour.
    pub reopened_at: Option<Timestamp>,
}

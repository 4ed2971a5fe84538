//! An escalation: a failure that a person must see.
//!
//! A failure that occurs again increases the count of its open escalation. Not here: who is told of it (`alerts`).

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::clock::Timestamp;

/// What happened. Stored in `escalations.class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A source cannot be read.
    SourceFailing,
    /// The file or table that a source reads was replaced.
    SourceReplaced,
    /// A source has had no event for too long.
    SourceSilent,
    /// A file of a drop folder was refused.
    DropRejected,
    /// A delivery has failed eight times or more.
    DeliveryFailing,
    /// Deliveries were given up.
    DeliveryDead,
    /// A target does not accept our credential.
    SubscriptionAuth,
    /// A target refuses what it is sent.
    SubscriptionRejecting,
    /// A target has failed several times in a row and is only probed.
    SubscriptionBreaker,
    /// A target asks to wait for more than an hour.
    SubscriptionRateLimit,
    /// A subscription was disabled: its target is gone, or has failed for five days.
    SubscriptionDisabled,
    /// The site has no network connection to the outside.
    SiteOffline,
    /// The disk is nearly full.
    DiskLow,
    /// The clock was set, or shows a time that cannot be.
    ClockWrong,
    /// The newest backup is too old, or one could not be made.
    BackupOld,
    /// Events cannot be used and wait for a person.
    EventQuarantined,
    /// The database was restored: new events are held for review.
    SiteRestored,
    /// A credential could not be rotated; the old one stays in force.
    CredentialRotation,
    /// A tenant has more subscriptions than it may; those beyond were paused.
    TenantOverLimit,
}

/// How bad an escalation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It may pass by itself.
    Info,
    /// A person should look within the day.
    Warning,
    /// Nothing goes through there until a person acts.
    Critical,
}

impl Severity {
    /// All, the mildest first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The word in SQL and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::SourceFailing,
        Self::SourceReplaced,
        Self::SourceSilent,
        Self::DropRejected,
        Self::DeliveryFailing,
        Self::DeliveryDead,
        Self::SubscriptionAuth,
        Self::SubscriptionRejecting,
        Self::SubscriptionBreaker,
        Self::SubscriptionRateLimit,
        Self::SubscriptionDisabled,
        Self::SiteOffline,
        Self::DiskLow,
        Self::ClockWrong,
        Self::BackupOld,
        Self::EventQuarantined,
        Self::SiteRestored,
        Self::CredentialRotation,
        Self::TenantOverLimit,
    ];

    /// The word in SQL and API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SourceFailing => "source.failing",
            Self::SourceReplaced => "source.replaced",
            Self::SourceSilent => "source.silent",
            Self::DropRejected => "drop.rejected",
            Self::DeliveryFailing => "delivery.failing",
            Self::DeliveryDead => "delivery.dead_lettered",
            Self::SubscriptionAuth => "subscription.auth",
            Self::SubscriptionRejecting => "subscription.rejecting",
            Self::SubscriptionBreaker => "subscription.breaker",
            Self::SubscriptionRateLimit => "subscription.rate_limit",
            Self::SubscriptionDisabled => "subscription.disabled",
            Self::SiteOffline => "site.offline",
            Self::DiskLow => "disk.low",
            Self::ClockWrong => "clock.wrong",
            Self::BackupOld => "backup.old",
            Self::EventQuarantined => "event.quarantined",
            Self::SiteRestored => "site.restored",
            Self::CredentialRotation => "credential.rotation_failed",
            Self::TenantOverLimit => "tenant.over_limit",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }

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

/// Writes and reads these types as their words.
macro_rules! as_words {
    ($($type:ty = $what:literal)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Self::parse(&text).ok_or_else(|| {
                    let known = Self::ALL.map(Self::as_str).join(", ");
                    D::Error::custom(format!("there is no {} {text:?}; it is one of {known}", $what))
                })
            }
        }
    )*};
}
as_words! {
    Class = "class"
    Severity = "severity"
}

/// An escalation to be raised.
#[derive(Clone, Debug)]
pub struct NewEscalation {
    /// A new UUIDv7, which is used if none is open.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// What happened.
    pub class: Class,
    /// What it is about, such as `source:erp`.
    pub subject: String,
    /// What was found, and what to do.
    pub detail: String,
}

/// An escalation as stored.
#[derive(Clone, Debug)]
pub struct Escalation {
    /// Its number in the file.
    pub seq: i64,
    /// What it was raised with; `detail` is the latest.
    pub new: NewEscalation,
    /// When it was raised.
    pub first_at: Timestamp,
    /// When it was raised last.
    pub last_at: Timestamp,
    /// How often it was raised.
    pub count: u64,
    /// When it was acknowledged.
    pub acknowledged_at: Option<Timestamp>,
    /// Who acknowledged it.
    pub acknowledged_by: Option<String>,
    /// When it was resolved.
    pub resolved_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_read_back_from_its_word() {
        for class in Class::ALL {
            assert_eq!(Class::parse(class.as_str()), Some(class));
        }
    }
}

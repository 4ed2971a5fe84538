//! Periodic duties: what is done how often, and when it is late.
//!
//! Not here: their due times in the file (`store::chores`), and what they do.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::words::words;

words! {
    /// A periodic duty that deletes or moves what is old.
    pub enum Duty as "Duty" {
        /// Finished events move from the database into the files of their months.
        ArchiveEvents = "archive-events",
        /// Audit events of earlier months move into files.
        ArchiveAudit = "archive-audit",
        /// The oldest month of events is deleted after `archive.keep`, and keys are forgotten after a year.
        DeleteMonths = "delete-months",
        /// The oldest file of audit events is deleted after seven years.
        DeleteAudit = "delete-audit",
        /// Guards of consumers are deleted after 90 days.
        DeleteGuards = "delete-guards",
        /// Records of files that folders had are deleted.
        DeleteFileRecords = "delete-file-records",
    }
}

impl Duty {
    /// How often it is done.
    pub const fn every(self) -> Duration {
        match self {
            Self::ArchiveEvents | Self::ArchiveAudit => Duration::from_hours(1),
            Self::DeleteMonths
            | Self::DeleteAudit
            | Self::DeleteGuards
            | Self::DeleteFileRecords => Duration::from_hours(24),
        }
    }

    /// How late it may be until people are told. A duty that takes long, or a service that was off, is no fault.
    pub fn patience(self) -> Duration {
        self.every().max(Duration::from_hours(24))
    }
}

/// A duty and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chore {
    /// The duty.
    pub duty: Duty,
    /// When it is due next; `None`: it was never done in this file.
    pub due_at: Option<Timestamp>,
    /// When it was last done.
    pub done_at: Option<Timestamp>,
}

impl Chore {
    /// How long it is due; zero if it is not. A due time further ahead than the duty's interval was set by a clock that
    /// was wrong, and counts as due now.
    pub fn overdue(&self, now: Timestamp) -> Option<Duration> {
        let Some(due_at) = self.due_at else { return Some(Duration::ZERO) };
        let is_too_far = due_at > now.plus(self.duty.every());
        if is_too_far {
            return Some(Duration::ZERO);
        }
        (due_at <= now).then(|| now.since(due_at))
    }

    /// Whether it is so late that people should know.
    pub fn is_late(&self, now: Timestamp) -> bool {
        self.overdue(now).is_some_and(|late| late > self.duty.patience())
    }
}

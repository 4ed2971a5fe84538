//! The chain of audit events: each row holds the hash of the row before it. A row that was changed, removed, inserted
//! or moved breaks the chain. The head is stored apart, so a removed tail shows too.
//!
//! Pure: rows in, faults out. `docs/data.md` lists the exact bytes that are hashed, so that an export can be checked
//! without this program. The chain has no key: a program that may write the whole file can make a new one. A head that
//! was noted elsewhere reveals that ([`Verifier::expect`]).

use crate::model::audit::row::{AuditEvent, hash_as};

pub use crate::model::audit::head::{Hash, Head};
pub use crate::model::audit::row::hash_of;

/// How far a row that stands in the wrong place is looked for.
const MAX_MOVED: i64 = 1_000;
/// Breaks that are reported at most; one that is found is enough to act upon.
const MAX_BREAKS: usize = 100;

/// Where the chain breaks, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// Its columns do not give its hash.
    #[error("row {0} was changed: what stands in it does not give its hash")]
    Changed(i64),
    /// Numbers are left out.
    #[error("rows {from} to {to} are missing: they were taken out")]
    Missing {
        /// The first.
        from: i64,
        /// The last.
        to: i64,
    },
    /// Its hash is that of another number.
    #[error(
        "row {at} was written as row {was}: rows before it were taken out, put in, or change places"
    )]
    Moved {
        /// Where it stands.
        at: i64,
        /// Where it was written.
        was: i64,
    },
    /// It does not name the hash of the row before it.
    #[error(
        "row {at} does not follow row {after}: one of the two was put in later, or written anew with a \
         new hash"
    )]
    Unlinked {
        /// The row.
        at: i64,
        /// The row before it.
        after: i64,
    },
    /// It stands behind a row with a higher number, or with the same.
    #[error("row {at} stands behind row {after}: rows change places, or one is there twice")]
    OutOfOrder {
        /// The row.
        at: i64,
        /// The row before it.
        after: i64,
    },
    /// The head names a row behind the last.
    #[error("rows {from} to {to} are missing at the end: the head that was remembered is row {to}")]
    TailCut {
        /// The first that is missing.
        from: i64,
        /// The last.
        to: i64,
    },
    /// There are rows behind the one the head names.
    #[error(
        "rows {from} to {to} were put in at the end: the head that was remembered is row {head}"
    )]
    TailAdded {
        /// The first that is too many.
        from: i64,
        /// The last.
        to: i64,
        /// The head.
        head: i64,
    },
    /// The head names the last row with another hash.
    #[error("row {0} is not the row that was remembered as the head: it was written anew")]
    HeadDiffers(i64),
    /// There are rows and no head.
    #[error("there are rows, but no head is remembered beside them: it was taken out")]
    HeadMissing,
    /// A place that somebody noted is not in the chain.
    #[error("row {0} is not the one that was noted: the chain was made anew since then")]
    NotAsNoted(i64),
    /// A place that somebody noted is behind the end.
    #[error("row {0} was noted, and is not there")]
    NotedMissing(i64),
}

/// What a chain came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Rows that were looked at.
    pub rows: u64,
    /// The place before the first of them.
    pub start: Head,
    /// The last of them.
    pub end: Head,
    /// What is wrong, in the order it was met; empty when the chain holds.
    pub breaks: Vec<Break>,
}

/// Looks at rows one after another.
#[derive(Debug)]
pub struct Verifier {
    report: Report,
    /// Whether the row before was not as it was written, so that its neighbour cannot be held to it.
    doubtful: bool,
    shift: i64,
    expected: Vec<Head>,
}

impl Verifier {
    /// Begins behind `start`.
    pub fn new(start: Head) -> Self {
        let report = Report { rows: 0, start, end: start, breaks: Vec::new() };
        Self { report, doubtful: false, shift: 0, expected: Vec::new() }
    }

    /// Wants a place, which somebody has noted, to be in the chain.
    pub fn expect(&mut self, noted: Head) {
        self.expected.push(noted);
    }

    /// The next row.
    pub fn push(&mut self, row: &AuditEvent) {
        let before = self.report.end;
        let next = before.seq.saturating_add(1);
        let own = hash_of(row) == row.hash;
        let moved = if own { None } else { was(row) };
        if row.seq < next {
            self.found(Break::OutOfOrder { at: row.seq, after: before.seq });
        } else if row.seq > next {
            self.found(Break::Missing { from: next, to: row.seq.saturating_sub(1) });
        } else if own && row.previous_hash != before.hash && !self.doubtful {
            self.found(Break::Unlinked { at: row.seq, after: before.seq });
        }
        match moved {
            Some(was) => {
                let shift = was.saturating_sub(row.seq);
                if shift != self.shift {
                    self.found(Break::Moved { at: row.seq, was });
                }
                self.shift = shift;
            }
            None if !own => self.found(Break::Changed(row.seq)),
            None => self.shift = 0,
        }
        self.doubtful = !own;
        let noted = self.expected.iter().filter(|noted| noted.seq == row.seq);
        if noted.into_iter().any(|noted| noted.hash != row.hash) {
            self.found(Break::NotAsNoted(row.seq));
        }
        self.expected.retain(|noted| noted.seq != row.seq);
        self.report.rows = self.report.rows.saturating_add(1);
        if row.seq > before.seq {
            self.report.end = Head { seq: row.seq, hash: row.hash };
        }
    }

    /// After the last row: compares with the head that was remembered.
    pub fn finish(mut self, remembered: Option<Head>) -> Report {
        let (end, next) = (self.report.end, self.report.end.seq.saturating_add(1));
        match remembered {
            None if self.report.rows > 0 => self.found(Break::HeadMissing),
            Some(head) if head.seq > end.seq => {
                self.found(Break::TailCut { from: next, to: head.seq });
            }
            Some(head) if head.seq < end.seq => {
                let from = head.seq.saturating_add(1);
                self.found(Break::TailAdded { from, to: end.seq, head: head.seq });
            }
            Some(head) if head.hash != end.hash => self.found(Break::HeadDiffers(end.seq)),
            _ => {}
        }
        let start = self.report.start.seq;
        for noted in std::mem::take(&mut self.expected) {
            // What was noted before the first row here has gone to an archive, which is looked at itself.
            if noted.seq > start {
                self.found(Break::NotedMissing(noted.seq));
            }
        }
        self.report
    }

    fn found(&mut self, what: Break) {
        if self.report.breaks.len() < MAX_BREAKS {
            self.report.breaks.push(what);
        }
    }
}

/// The number under which a row was written, if it is not far from where it stands.
fn was(row: &AuditEvent) -> Option<i64> {
    let near = row.seq.saturating_sub(MAX_MOVED)..=row.seq.saturating_add(MAX_MOVED);
    near.into_iter().find(|seq| hash_as(row, *seq) == row.hash)
}

//! The chain of audit events: each row holds the hash of the row before it. A row that was changed, removed, inserted
//! or moved breaks the chain. The head is stored separately, so rows removed at the end are detected too.
//!
//! Pure: rows in, faults out. `docs/data.md` lists the exact bytes that are hashed, so that an export can be checked
//! without this program. The chain has no key, so a program that may write the whole file can replace the chain. A
//! head that was noted elsewhere reveals that ([`Verifier::expect`]).

use std::path::{Path, PathBuf};

use crate::model::audit::row::{AuditEvent, hash_as};

pub use crate::model::audit::row::hash_of;
pub use crate::model::audit::row::{Hash, Head};

/// How far from its place a moved row is searched for, in rows.
const MAX_MOVED: i64 = 1_000;
/// Most breaks that are reported. One is enough to act on.
const MAX_BREAKS: usize = 100;

/// Where the chain breaks, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// The row's columns do not match its hash.
    #[error("row {0} was changed: its columns do not match its hash")]
    Changed(i64),
    /// Row numbers are missing.
    #[error("rows {from} to {to} are missing: they were removed")]
    Missing {
        /// The first.
        from: i64,
        /// The last.
        to: i64,
    },
    /// The row's hash belongs to another row number.
    #[error("row {at} was written as row {was}: rows before it were removed, inserted or swapped")]
    Moved {
        /// Its place now.
        at: i64,
        /// The place where it was written.
        was: i64,
    },
    /// The row does not contain the hash of the row before it.
    #[error(
        "row {at} does not follow row {after}: one of the two was inserted later, or rewritten with a \
         new hash"
    )]
    Unlinked {
        /// The row.
        at: i64,
        /// The row before it.
        after: i64,
    },
    /// The row comes after a row with a higher or equal number.
    #[error("row {at} comes after row {after}: rows were swapped or duplicated")]
    OutOfOrder {
        /// The row.
        at: i64,
        /// The row before it.
        after: i64,
    },
    /// The stored head is a row after the last one.
    #[error("rows {from} to {to} are missing at the end: the stored head is row {to}")]
    TailCut {
        /// The first that is missing.
        from: i64,
        /// The last.
        to: i64,
    },
    /// There are rows after the stored head.
    #[error("rows {from} to {to} were added at the end: the stored head is row {head}")]
    TailAdded {
        /// The first that is too many.
        from: i64,
        /// The last.
        to: i64,
        /// The head.
        head: i64,
    },
    /// The stored head has another hash than the last row.
    #[error("row {0} is not the row that was stored as the head: it was rewritten")]
    HeadDiffers(i64),
    /// There are rows, but no stored head.
    #[error("there are rows, but no head is stored: it was removed")]
    HeadMissing,
    /// A noted head is not in the chain.
    #[error("row {0} is not the one that was noted: the chain was rebuilt since then")]
    NotAsNoted(i64),
    /// A noted head is after the end of the chain.
    #[error("row {0} was noted, but is missing")]
    NotedMissing(i64),
    /// A break in one of several files.
    #[error("{}: {}", .0.display(), .1)]
    In(PathBuf, Box<Self>),
}

/// The result of checking a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Rows that were checked.
    pub rows: u64,
    /// The head before the first row.
    pub start: Head,
    /// The last row.
    pub end: Head,
    /// The breaks, in the order of the rows; empty if the chain is intact.
    pub breaks: Vec<Break>,
}

/// Checks rows one after another.
#[derive(Debug)]
pub struct Verifier {
    report: Report,
    /// Whether the previous row does not match its hash. Then the next row's link to it is not checked.
    previous_is_damaged: bool,
    /// How far the previous row was moved. Rows that were moved together are reported once.
    shift: i64,
    expected: Vec<Head>,
    file: Option<PathBuf>,
}

impl Verifier {
    /// Starts after `start`.
    pub fn new(start: Head) -> Self {
        let report = Report { rows: 0, start, end: start, breaks: Vec::new() };
        Self { report, previous_is_damaged: false, shift: 0, expected: Vec::new(), file: None }
    }

    /// Names the file of the rows that follow.
    pub fn set_file(&mut self, path: &Path) {
        self.file = Some(path.to_owned());
    }

    /// Reports the rows before the start, which should be there.
    pub fn miss_before_start(&mut self) {
        let missing = Break::Missing { from: 1, to: self.report.start.seq };
        self.report.breaks.insert(0, missing);
    }

    /// Requires that the chain contains a head that was noted earlier.
    pub fn expect(&mut self, noted: Head) {
        self.expected.push(noted);
    }

    /// Checks the next row.
    pub fn push(&mut self, row: &AuditEvent) {
        let before = self.report.end;
        let next = before.seq.saturating_add(1);
        let matches = hash_of(row) == row.hash;
        let moved = if matches { None } else { original_seq(row) };
        if row.seq < next {
            self.found(Break::OutOfOrder { at: row.seq, after: before.seq });
        } else if row.seq > next {
            self.found(Break::Missing { from: next, to: row.seq.saturating_sub(1) });
        } else if matches && row.previous_hash != before.hash && !self.previous_is_damaged {
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
            None if !matches => self.found(Break::Changed(row.seq)),
            None => self.shift = 0,
        }
        self.previous_is_damaged = !matches;
        let noted = self.expected.iter().filter(|noted| noted.seq == row.seq);
        if noted.into_iter().any(|noted| noted.hash != row.hash) {
            self.found(Break::NotAsNoted(row.seq));
        }
        self.expected.retain(|noted| noted.seq != row.seq);
        self.report.rows = self.report.rows.saturating_add(1);
        if row.seq > before.seq {
            self.report.end = row.head();
        }
    }

    /// Compares the last row with the stored head, and ends the check.
    pub fn finish(mut self, stored_head: Option<Head>) -> Report {
        let end = self.report.end;
        let next = self.report.end.seq.saturating_add(1);
        match stored_head {
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
            // Older rows are in an archive, which is checked separately.
            if noted.seq > start {
                self.found(Break::NotedMissing(noted.seq));
            }
        }
        self.report
    }

    fn found(&mut self, what: Break) {
        let what = match &self.file {
            Some(file) => Break::In(file.clone(), Box::new(what)),
            None => what,
        };
        if self.report.breaks.len() < MAX_BREAKS {
            self.report.breaks.push(what);
        }
    }
}

/// The number with which a row was written, if it was not moved further than [`MAX_MOVED`].
fn original_seq(row: &AuditEvent) -> Option<i64> {
    let near = row.seq.saturating_sub(MAX_MOVED)..=row.seq.saturating_add(MAX_MOVED);
    near.into_iter().find(|seq| hash_as(row, *seq) == row.hash)
}

//! When copying the write-ahead log is tried. A reader that began before the newest commit keeps a try from ending, and its
//! log from being begun anew. Such a try is repeated soon, since most readers are over within milliseconds.
//!
//! Pure: `log` asks the file.

/// The part of the checkpoint size by which the log grows before the first repetition.
const FIRST_WAIT_PART: u64 = 64;
/// The part before each later one at most: the wait doubles with each try, so that a long reader costs a busy writer little.
const LAST_WAIT_PART: u64 = 4;

/// The tries to copy the log since it was begun anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CopyTries {
    /// Bytes of the log at the latest try; `None`: there was none.
    at: Option<u64>,
    /// Bytes by which the log grows before the next try.
    wait: u64,
    /// Whether somebody asked for the log to be emptied, whatever its length, and no try has done it yet.
    must_empty: bool,
}

/// What is known of the log when a try is considered.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogState {
    /// Bytes of the log.
    pub(super) bytes: u64,
    /// Bytes that are not in the file yet.
    pub(super) uncopied: u64,
    /// Whether there was no job for a heartbeat interval.
    pub(super) is_idle: bool,
}

impl CopyTries {
    /// Whether copying is to be tried now. `checkpoint_at`: the bytes from which a log is long.
    pub(super) fn is_due(&mut self, log: LogState, checkpoint_at: u64) -> bool {
        if self.at.is_some_and(|at| log.bytes < at) {
            // The log was begun anew: every reader of the old one has ended.
            *self = Self { must_empty: self.must_empty, ..Self::default() };
        }
        match self.at {
            None => self.must_empty || log.uncopied >= checkpoint_at,
            Some(at) => {
                let has_work = self.must_empty || log.uncopied > 0;
                let grown = log.bytes.saturating_sub(at);
                has_work && (log.is_idle || grown >= self.wait)
            }
        }
    }

    /// Whether a try was made in this log: the next look tells whether the log was begun anew or grows on.
    pub(super) const fn is_waiting(&self) -> bool {
        self.at.is_some()
    }

    /// The next try is due at once, and empties the log.
    pub(super) fn ask_to_empty(&mut self) {
        *self = Self { must_empty: true, ..Self::default() };
    }

    /// The log is empty.
    pub(super) const fn emptied(&mut self) {
        self.must_empty = false;
    }

    /// Whether the next try empties the log.
    pub(super) const fn must_empty(&self) -> bool {
        self.must_empty
    }

    /// Notes a try at this length of the log.
    pub(super) fn tried(&mut self, bytes: u64, checkpoint_at: u64) {
        let doubled = self.wait.saturating_mul(2).min(checkpoint_at / LAST_WAIT_PART);
        self.wait = doubled.max(checkpoint_at / FIRST_WAIT_PART);
        self.at = Some(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const CHECKPOINT_AT: u64 = 16 * MIB;

    fn log(bytes: u64, uncopied: u64) -> LogState {
        LogState { bytes, uncopied, is_idle: false }
    }

    /// The lengths of the log, in KiB, at which copying is tried while a reader lets none end.
    fn tries(until: u64) -> Vec<u64> {
        let mut tries = CopyTries::default();
        let mut found = Vec::new();
        for kib in 0..until / 1024 {
            let state = log(kib * 1024, kib * 1024);
            if tries.is_due(state, CHECKPOINT_AT) {
                tries.tried(state.bytes, CHECKPOINT_AT);
                found.push(kib / 128);
            }
        }
        found
    }

    #[test]
    fn what_a_reader_kept_from_ending_is_tried_soon_and_then_ever_more_seldom() {
        // In eighths of a MiB: after 256 KiB, 512 KiB, 1, 2 and then every 4 MiB.
        let wanted = [128, 130, 134, 142, 158, 190, 222, 254];
        assert_eq!(tries(34 * MIB), wanted);
    }

    #[test]
    fn a_log_that_was_begun_anew_is_copied_when_it_is_long_again() {
        let mut tries = CopyTries::default();
        let long = log(CHECKPOINT_AT + MIB, CHECKPOINT_AT + MIB);
        assert!(tries.is_due(long, CHECKPOINT_AT));
        tries.tried(long.bytes, CHECKPOINT_AT);
        assert!(!tries.is_due(log(MIB, MIB), CHECKPOINT_AT));
        assert!(!tries.is_due(log(15 * MIB, 15 * MIB), CHECKPOINT_AT));
        assert_eq!(tries, CopyTries::default());
    }

    #[test]
    fn nothing_is_tried_without_a_need() {
        let mut tries = CopyTries::default();
        assert!(!tries.is_due(LogState { is_idle: true, ..log(MIB, MIB) }, CHECKPOINT_AT));
        tries.ask_to_empty();
        assert!(tries.is_due(log(MIB, MIB), CHECKPOINT_AT));
        tries.emptied();
        tries.tried(MIB, CHECKPOINT_AT);
        // All of it is in the file: the next commit begins it anew.
        assert!(!tries.is_due(LogState { is_idle: true, ..log(MIB, 0) }, CHECKPOINT_AT));
        assert!(tries.is_due(LogState { is_idle: true, ..log(MIB, 4096) }, CHECKPOINT_AT));
    }
}

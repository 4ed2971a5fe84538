//! Sends a batch, with retries until it is answered or `--retry-for` has passed.
//!
//! Retries are safe: the service recognizes the batch by its key, repeats its answer and stores nothing twice.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::batches::Batch;
use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::cli::prelude::*;
use crate::cli::remote::{Answer, TIMEOUT, detail};
use crate::http::client::CallError;

/// The first wait. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The longest wait, even if the service asks for a longer one.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Sends batches, with retries.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    remote: &'a Remote,
    retry_for: Duration,
    clock: Clock,
}

/// Counts of the events sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendCounts {
    pub(super) events: usize,
    known: usize,
    differing: usize,
    quarantined: usize,
    skipped: usize,
    in_doubt: usize,
    /// Lines that were put into the file of rejected ones.
    pub(super) rejected: usize,
}

impl SendCounts {
    /// Adds a batch's answer.
    pub(super) fn add(&mut self, answer: &Answer) {
        let events = answer.body.get("events").and_then(Value::as_array);
        for event in events.into_iter().flatten() {
            let flag = |name: &str| event.get(name).and_then(Value::as_bool) == Some(true);
            self.events += 1;
            // A repeated answer still says "new" for events that were new the first time.
            let known = answer.replayed || flag("already_processed");
            self.known += usize::from(known);
            self.differing += usize::from(flag("differs"));
            let status = event.get("status").and_then(Value::as_str);
            self.quarantined += usize::from(status == Some("quarantined"));
            self.skipped += usize::from(!known && status == Some("skipped"));
            self.in_doubt += usize::from(!known && flag("in_doubt"));
        }
    }
}

impl fmt::Display for SendCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, known, differing, quarantined, skipped, in_doubt, rejected } = self;
        write!(f, "{events} events: {} stored, {known} known before", events - known)?;
        if *differing > 0 {
            write!(f, " ({differing} with other content; the first content stays)")?;
        }
        if *quarantined > 0 {
            write!(f, "; {quarantined} quarantined: oncebox event list --status quarantined")?;
        }
        if *skipped > 0 {
            write!(
                f,
                "; {skipped} wanted by no subscription: oncebox event list --status skipped"
            )?;
        }
        if *in_doubt > 0 {
            write!(f, "; {in_doubt} held since the restore: oncebox in-doubt list")?;
        }
        if *rejected > 0 {
            write!(f, "; {rejected} lines rejected")?;
        }
        Ok(())
    }
}

impl<'a> Sender<'a> {
    pub(super) fn new(remote: &'a Remote, retry_for: Duration) -> Self {
        Self { remote, retry_for, clock: Clock::machine() }
    }

    /// Sends a batch until it is stored, and returns the answer.
    pub(super) fn send(&mut self, batch: &Batch) -> Result<Answer, NotStored> {
        let started = self.clock.monotonic();
        let mut wait = FIRST_WAIT;
        loop {
            let (failure, asked) = match self.exchange(batch) {
                Ok(answer) if (200..=299).contains(&answer.status) && is_answer(&answer) => {
                    return Ok(answer);
                }
                Ok(answer) if is_temporary(answer.status) => {
                    (self.remote.refusal(&answer), answer.retry_after)
                }
                Ok(answer) => return Err(self.refused(batch, &answer)),
                Err(error @ CallError::Failed(..)) => (self.remote.unreachable(&error), None),
                Err(error) => return Err(NotStored::Failed(self.remote.unreachable(&error))),
            };
            let next = asked.unwrap_or(wait).clamp(FIRST_WAIT, MAX_WAIT);
            let passed = self.clock.monotonic().saturating_sub(started);
            if passed + next > self.retry_for {
                // In tenths of a second, so that a short --retry-for is not shown as 0s.
                let tenths = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX) / 100;
                let tried = humantime::format_duration(Duration::from_millis(tenths * 100));
                let lines = batch.line_range();
                let failure =
                    failure.and(format_args!("Tried for {tried}; {lines} may be sent again."));
                return Err(NotStored::Failed(failure));
            }
            Stop::new().wait(next);
            wait = wait.saturating_mul(2).min(MAX_WAIT);
        }
    }

    fn exchange(&self, batch: &Batch) -> Result<Answer, CallError> {
        let headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("idempotency-key".to_owned(), batch.key.clone()),
        ];
        self.remote.exchange("POST", "/v1/events", headers, batch.body.as_bytes(), TIMEOUT)
    }

    /// What a refusal that a retry would not change is about: one line, any of the lines, or all that is sent.
    fn refused(&self, batch: &Batch, answer: &Answer) -> NotStored {
        let detail = detail(answer);
        if is_about_content(answer.status, &detail) && !batch.lines.is_empty() {
            if let Some(Culprit { index, why }) = culprit(batch, &detail) {
                return NotStored::Line { index, why: why.into_owned() };
            }
            return match batch.lines.as_slice() {
                [_only] => NotStored::Line { index: 0, why: detail },
                _ => NotStored::SomeLine,
            };
        }
        let failure = self.remote.refusal(answer);
        NotStored::Failed(if batch.lines.is_empty() {
            failure
        } else {
            failure.and(format!("Nothing of its batch was stored ({}).", batch.line_range()))
        })
    }
}

/// Why a batch was not stored.
#[derive(Debug)]
pub(super) enum NotStored {
    /// One of its lines cannot be used.
    Line {
        /// Its index in the batch.
        index: usize,
        /// The service's reason.
        why: String,
    },
    /// A line cannot be used, and the answer does not tell which, or all of them are too much together.
    SomeLine,
    /// Nothing can be sent now.
    Failed(Failure),
}

/// Whether a refusal is about the events that were sent, so that others may be accepted. A token that may not publish
/// for one source system may for others.
fn is_about_content(status: u16, detail: &str) -> bool {
    matches!(status, 400 | 413 | 422) || (status == 403 && detail.starts_with(OF_SOURCE_SYSTEM))
}

/// How the service begins the refusal of an event because of its source system.
const OF_SOURCE_SYSTEM: &str = "Not allowed: ";

/// Whether the answer to a publish is complete. After an incomplete one the batch is sent again.
fn is_answer(answer: &Answer) -> bool {
    answer.body.get("events").is_some_and(Value::is_array)
}

/// Whether a retry may succeed: the disk is full, the service is busy or restarting, or the same batch is being stored.
fn is_temporary(status: u16) -> bool {
    matches!(status, 200..=299 | 408 | 409 | 429 | 502..=504 | 507)
}

/// The line that a refusal is about.
#[derive(Debug, PartialEq, Eq)]
struct Culprit<'d> {
    /// Its index in the batch.
    index: usize,
    why: Cow<'d, str>,
}

/// The line that a problem's detail is about. For a wrong value, the service names the event, counted from 0; for wrong
/// JSON, it names the line of the body.
fn culprit<'d>(batch: &Batch, detail: &'d str) -> Option<Culprit<'d>> {
    let named = detail.strip_prefix(OF_SOURCE_SYSTEM).unwrap_or(detail).strip_prefix("Event ");
    let found = if let Some(rest) = named {
        let (number, why) = rest.split_once(" (counted from 0)")?;
        let why = why.trim_start_matches([':', ' ']).into();
        Culprit { index: number.parse().ok()?, why }
    } else {
        let (why, position) = detail.rsplit_once(" at line ")?;
        let (number, column) = position.split_once(' ')?;
        // The line of the body would mislead beside the line of the input.
        let why = format!("{why} at {column}").into();
        Culprit { index: number.parse::<usize>().ok()?.checked_sub(1)?, why }
    };
    (found.index < batch.lines.len()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::emit::batches::InputLine;

    #[test]
    fn a_refusal_leads_to_the_line_of_the_input() {
        let line = |number| InputLine { number, text: "{}".to_owned() };
        let batch = Batch::of(vec![line(4), line(7), line(9)]).unwrap();
        let found = |detail| -> Option<(usize, String)> {
            let found = culprit(&batch, detail)?;
            Some((found.index, found.why.into_owned()))
        };
        let is = |index: usize, why: &str| Some((index, why.to_owned()));
        let value = "Event 1 (counted from 0): event_type has 0 characters.";
        assert_eq!(found(value), is(1, "event_type has 0 characters."));
        let parent = "Event 2 (counted from 0) cannot be stored: it has no parent.";
        assert_eq!(found(parent), is(2, "cannot be stored: it has no parent."));
        let source = "Not allowed: Event 0 (counted from 0): the source erp.";
        assert_eq!(found(source), is(0, "the source erp."));
        let json =
            "The body is not an event or an array of events: unknown field `x` at line 3 column 9.";
        assert_eq!(found(json), is(2, &json.replace("at line 3 column", "at column")));
        assert_eq!(found("The disk is full."), None);
        assert_eq!(found("Event 3 (counted from 0): no such line."), None);
    }

    #[test]
    fn a_token_that_may_not_publish_is_no_fault_of_a_line() {
        assert!(is_about_content(422, "") && is_about_content(413, ""));
        assert!(is_about_content(403, "Not allowed: the source erp."));
        assert!(!is_about_content(403, "The token reads only.") && !is_about_content(401, ""));
    }
}

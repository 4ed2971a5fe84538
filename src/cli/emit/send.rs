//! Sends a batch, with retries until it is answered or `--retry-for` has passed.
//!
//! Retries are safe: the service recognizes the batch by its key, repeats its answer and stores nothing twice.

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
        let Self { events, known, differing, quarantined, skipped, in_doubt } = self;
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
        Ok(())
    }
}

impl<'a> Sender<'a> {
    pub(super) fn new(remote: &'a Remote, retry_for: Duration) -> Self {
        Self { remote, retry_for, clock: Clock::machine() }
    }

    /// Sends a batch until it is stored, and returns the answer.
    pub(super) fn send(&mut self, batch: &Batch) -> Result<Answer, Failure> {
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
                Err(error) => return Err(self.remote.unreachable(&error)),
            };
            let next = asked.unwrap_or(wait).clamp(FIRST_WAIT, MAX_WAIT);
            let passed = self.clock.monotonic().saturating_sub(started);
            if passed + next > self.retry_for {
                // In tenths of a second, so that a short --retry-for is not shown as 0s.
                let tenths = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX) / 100;
                let tried = humantime::format_duration(Duration::from_millis(tenths * 100));
                let lines = batch.line_range();
                return Err(
                    failure.and(format_args!("Tried for {tried}; {lines} may be sent again."))
                );
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
        self.remote.exchange("POST", "/v1/events", headers, (batch.body.as_bytes(), TIMEOUT))
    }

    /// The failure for a refusal that a retry would not change. Names the input line if the answer allows it.
    fn refused(&self, batch: &Batch, answer: &Answer) -> Failure {
        let failure = self.remote.refusal(answer);
        if batch.lines.is_empty() {
            return failure;
        }
        let stored = format!("Nothing of its batch was stored ({}).", batch.line_range());
        match culprit(batch, &detail(answer)) {
            Some((line, why)) => Failure::new(failure.code, format!("line {line}: {why} {stored}")),
            None => failure.and(stored),
        }
    }
}

/// Whether the answer to a publish is complete. After an incomplete one the batch is sent again.
fn is_answer(answer: &Answer) -> bool {
    answer.body.get("events").is_some_and(Value::is_array)
}

/// Whether a retry may succeed: the disk is full, the service is busy or restarting, or the same batch is being stored.
fn is_temporary(status: u16) -> bool {
    matches!(status, 200..=299 | 408 | 409 | 429 | 502..=504 | 507)
}

/// The input line that a problem's detail is about. For a wrong value, the service names the event, counted from 0;
/// for wrong JSON, it names the line of the body.
fn culprit<'d>(batch: &Batch, detail: &'d str) -> Option<(u64, &'d str)> {
    if let Some(rest) = detail.strip_prefix("Event ") {
        let (number, why) = rest.split_once(" (counted from 0): ")?;
        return Some((*batch.lines.get(number.parse::<usize>().ok()?)?, why));
    }
    if let [line] = batch.lines.as_slice() {
        return Some((*line, detail));
    }
    let (_, position) = detail.rsplit_once(" at line ")?;
    let (number, _) = position.split_once(' ')?;
    Some((*batch.lines.get(number.parse::<usize>().ok()?.checked_sub(1)?)?, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_leads_to_the_line_of_the_input() {
        let batch = Batch { body: String::new(), key: String::new(), lines: vec![4, 7, 9] };
        let value = "Event 1 (counted from 0): event_type has 0 characters.";
        assert_eq!(culprit(&batch, value), Some((7, "event_type has 0 characters.")));
        let json =
            "The body is not an event or an array of events: unknown field `x` at line 3 column 9.";
        assert_eq!(culprit(&batch, json).map(|(line, _)| line), Some(9));
        assert_eq!(culprit(&batch, "The disk is full."), None);
        let single = Batch { lines: vec![5], ..batch };
        assert_eq!(culprit(&single, "a b"), Some((5, "a b")));
    }
}

//! Sends a batch until it is answered, or until it has been tried long enough.
//!
//! Sending again is safe: the key of a batch makes the service answer what it has stored and store
//! nothing twice. Not here: what the batches are.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::batches::Batch;
use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::cli::exit::Failure;
use crate::cli::remote::{Answer, Remote, detail};
use crate::http::client::CallError;

/// The first wait; each further one is twice as long.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// The longest wait, also where the service asks for a longer one.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Sends batches.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    remote: &'a Remote,
    retry_for: Duration,
    clock: Clock,
}

/// What has been sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) events: usize,
    known: usize,
    differing: usize,
    quarantined: usize,
    skipped: usize,
    in_doubt: usize,
}

impl Sent {
    /// Adds a batch's answer.
    pub(super) fn count(&mut self, answer: &Answer) {
        let events = answer.body.get("events").and_then(Value::as_array);
        for event in events.into_iter().flatten() {
            let flag = |name: &str| event.get(name).and_then(Value::as_bool) == Some(true);
            self.events += 1;
            // A kept answer tells what was new when it was first given.
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

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, known, differing, quarantined, skipped, in_doubt } = self;
        write!(f, "{events} events: {} stored, {known} known before", events - known)?;
        if *differing > 0 {
            write!(f, " ({differing} with other content; what was stored first stays)")?;
        }
        if *quarantined > 0 {
            write!(f, "; {quarantined} quarantined: oncebox event list --status quarantined")?;
        }
        if *skipped > 0 {
            write!(
                f,
                "; {skipped} that no subscription wants: oncebox event list --status skipped"
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

    /// The answer to a batch that is stored, now or before.
    pub(super) fn send(&mut self, batch: &Batch) -> Result<Answer, Failure> {
        let started = self.clock.monotonic();
        let mut wait = WAIT_FIRST;
        loop {
            let (failure, asked) = match self.exchange(batch) {
                Ok(answer) if (200..=299).contains(&answer.status) && is_answer(&answer) => {
                    return Ok(answer);
                }
                Ok(answer) if passes(answer.status) => {
                    (self.remote.refusal(&answer), answer.retry_after)
                }
                Ok(answer) => return Err(self.refused(batch, &answer)),
                Err(error @ CallError::Failed(..)) => (self.remote.unreachable(&error), None),
                Err(error) => return Err(self.remote.unreachable(&error)),
            };
            let next = asked.unwrap_or(wait).clamp(WAIT_FIRST, MAX_WAIT);
            let passed = self.clock.monotonic().saturating_sub(started);
            if passed + next > self.retry_for {
                // To the tenth of a second: a short --retry-for must not read as 0s.
                let tenths = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX) / 100;
                let tried = humantime::format_duration(Duration::from_millis(tenths * 100));
                let place = batch.place();
                return Err(
                    failure.and(format_args!("Tried for {tried}; {place} may be sent again."))
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
        self.remote.exchange("POST", "/v1/events", headers, batch.body.as_bytes())
    }

    /// A refusal that sending again would not change; names the line where it can be told.
    fn refused(&self, batch: &Batch, answer: &Answer) -> Failure {
        let failure = self.remote.refusal(answer);
        if batch.lines.is_empty() {
            return failure;
        }
        let place = batch.place();
        let stored = format!("Nothing of its batch was stored ({place}).");
        match culprit(batch, &detail(answer)) {
            Some((line, why)) => Failure::new(failure.code, format!("line {line}: {why} {stored}")),
            None => failure.and(stored),
        }
    }
}

/// Whether it is the answer of a publish. One that was cut off is not, and is asked for again.
fn is_answer(answer: &Answer) -> bool {
    answer.body.get("events").is_some_and(Value::is_array)
}

/// Whether a refusal may pass: no room, too busy, restarting, or the same batch is still under way.
fn passes(status: u16) -> bool {
    matches!(status, 200..=299 | 408 | 409 | 429 | 502..=504 | 507)
}

/// The line that the service's words are about. It counts events from 0 where a value is wrong, and
/// names a line of the body where the JSON is.
fn culprit<'d>(batch: &Batch, detail: &'d str) -> Option<(u64, &'d str)> {
    if let Some(rest) = detail.strip_prefix("Event ") {
        let (number, why) = rest.split_once(" (counted from 0): ")?;
        return Some((*batch.lines.get(number.parse::<usize>().ok()?)?, why));
    }
    if let [line] = batch.lines.as_slice() {
        return Some((*line, detail));
    }
    let (_, place) = detail.rsplit_once(" at line ")?;
    let (number, _) = place.split_once(' ')?;
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

//! A delivery: one event for one subscription, its states, the class of an attempt's outcome, what follows it and when.
//!
//! A failed attempt is data, not an error: `Err` elsewhere means that Oncebox itself is broken. Pure: how a delivery is
//! kept is in `store::deliveries`, who sends it is in `pipeline::deliver`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::{Date, Month, PrimitiveDateTime, Time};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, Draw, SubscriptionSeq};

/// Jitter adds at most a tenth: enough to spread a thousand deliveries that failed together, too little
/// to surprise who reads the schedule.
const JITTER_DIVISOR: u64 = 10;
/// The longest wait that an answer can ask of us. Source: the product page, section 7.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);
/// The time limits an attempt may be given: shorter ones fail on any real line, longer ones hold a thread.
pub const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(10);
const MAX_STEPS: usize = 50;
const STEP_MIN: Duration = Duration::from_millis(100);
const MAX_STEP: Duration = Duration::from_hours(7 * 24);
const MAX_ATTEMPTS: u32 = 1000;

/// Where a delivery stands. Stored in `deliveries.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits for its due time. Left by the dispatcher's attempt, or by a person's cancel.
    Pending,
    /// A pull consumer has it. Left by ack, nack, the end of the lease, or a person's retry or cancel.
    Leased,
    /// Accepted by the target, not yet confirmed. Left by the confirmation or its time limit.
    Waiting,
    /// Put aside so that its lane goes on. Left by a person's release.
    Parked,
    /// May have been sent before a restore. Left by a person's release, skip or cancel.
    InDoubt,
    /// Final: the target took it.
    Completed,
    /// Given up, kept whole. Left by a person's retry or cancel.
    DeadLetter,
    /// Final: made superfluous by a rule, or made before a restore as a person says. Left by a person's
    /// retry.
    Skipped,
    /// Final: a person stopped it. Left by a person's retry.
    Cancelled,
}

impl State {
    /// All states, in the order of the table in `docs/states.md`.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Leased,
        Self::Waiting,
        Self::Parked,
        Self::InDoubt,
        Self::Completed,
        Self::DeadLetter,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// The word in SQL, API and console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::InDoubt => "in_doubt",
            Self::Completed => "completed",
            Self::DeadLetter => "dead_letter",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether nothing but a person moves it on.
    #[cfg(test)]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::DeadLetter | Self::Skipped | Self::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A delivery as kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its number; outside `dlv_17`.
    pub seq: DeliverySeq,
    /// Whose it is.
    pub tenant: String,
    /// The UUID of the event or webhook event it carries.
    pub event_id: String,
    /// Whether that is a webhook event.
    pub of_webhook_event: bool,
    /// The event's type.
    pub event_type: String,
    /// The kind of thing it happened to; absent for a webhook event.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// The event's own key, or the provider's id of the webhook event.
    pub key: String,
    /// The subscription's name.
    pub subscription: String,
    /// Where it stands.
    pub state: State,
    /// When it is tried next; set while pending.
    pub due_at: Option<Timestamp>,
    /// When its lease ends; set while a consumer has it.
    pub lease_until: Option<Timestamp>,
    /// Whether it waits behind another one of its lane.
    pub is_behind: bool,
    /// Tries so far, over all runs.
    pub attempt_count: u32,
    /// Failed tries of this run that count towards giving up.
    pub counted_failures: u32,
    /// The class of the latest try.
    pub last_class: Option<AttemptClass>,
    /// How often it was opened: 1, and one more for each replay.
    pub run_no: u32,
    /// When it reached its final state.
    pub finished_at: Option<Timestamp>,
    /// Why it is dead, skipped or cancelled.
    pub reason: Option<String>,
}

/// One try, as kept. Never changed once written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The delivery's n-th try, from 1.
    pub n: u32,
    /// When the request was begun (wall time).
    pub started_at: Timestamp,
    /// When its outcome was known (wall time).
    pub finished_at: Timestamp,
    /// The URL as called.
    pub url: String,
    /// What it came to.
    pub class: AttemptClass,
    /// Whether it counts towards giving up.
    pub counted: bool,
    /// The status code, if there was an answer.
    pub http_status: Option<u16>,
    /// How long it took.
    pub latency_ms: u32,
    /// The first 2,048 characters of the answer.
    pub excerpt: Option<String>,
    /// Why it failed; `None` for a success.
    pub failed_reason: Option<String>,
    /// The credential that signed it.
    pub key_id: Option<String>,
    /// The span id of its `traceparent`.
    pub span: Option<String>,
}

/// Everything of a delivery that an attempt needs: the event's words and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// Which opening of the delivery this is.
    pub run_no: u32,
    /// Counted failures of this run so far.
    pub counted_failures: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// Whose event it is.
    pub tenant: String,
    /// The system it comes from; `in:` and the provider's name for a webhook event.
    pub source: String,
    /// The UUID of the event or webhook event.
    pub event_id: String,
    /// The `webhook-id` that goes out.
    pub webhook_id: String,
    /// The event's own key, which goes out as `X-Idempotency-Key`.
    pub idempotency_key: String,
    /// The event's type.
    pub event_type: String,
    /// The kind of thing it happened to.
    pub aggregate_type: Option<String>,
    /// Which one.
    pub aggregate_id: Option<String>,
    /// The body, to the byte.
    pub payload: Vec<u8>,
    /// How many places of the body are sealed.
    pub sealed_fields: u32,
    /// Its media type.
    pub content_type: String,
    /// The W3C trace id it came with.
    pub trace_id: Option<String>,
    /// The event's own number of counted attempts.
    pub max_attempts: Option<u32>,
}

/// What follows an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Done.
    Complete,
    /// Tried again after this wait.
    Retry(Duration),
    /// Given up, with the reason.
    GiveUp(String),
    /// Given up, and the subscription is disabled: the target said 410.
    GiveUpAndDisable(String),
}

/// How far a delivery has come before the attempt that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Counted failures of this run so far.
    pub counted_failures: u32,
    /// The schedule in force: the subscription's, with the event's own `max_attempts` where it has one.
    pub schedule: &'a Schedule,
}

/// An outcome, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its class.
    pub class: AttemptClass,
    /// Whether it counts towards giving up.
    pub counted: bool,
    /// What follows.
    pub next: Next,
}

/// Judges an attempt. Same input, same answer: randomness for the jitter is passed in.
///
/// Success completes; validation, gone and poison are given up at once; everything else is tried again
/// by the schedule until its number of counted attempts is used up. `Retry-After` is a floor.
pub fn judge(outcome: &Outcome, progress: Progress<'_>, draw: &dyn Draw) -> Verdict {
    let class = classify(outcome);
    let reason = || outcome.failed_reason().unwrap_or_default();
    let next = match class {
        AttemptClass::Success => Next::Complete,
        AttemptClass::Validation | AttemptClass::Poison => Next::GiveUp(reason()),
        AttemptClass::Gone => Next::GiveUpAndDisable(reason()),
        AttemptClass::Transient | AttemptClass::RateLimited | AttemptClass::Auth => {
            let failures = progress.counted_failures.saturating_add(1);
            if progress.schedule.gives_up(failures) {
                Next::GiveUp(format!("given up after {failures} attempts; the last: {}", reason()))
            } else {
                Next::Retry(next_wait(progress.schedule, failures, outcome.retry_after(), draw))
            }
        }
    };
    Verdict { class, counted: class != AttemptClass::Success, next }
}

/// What the settle transaction stores: the attempt and what follows it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The run the attempt belongs to; another run's delivery is not touched.
    pub run_no: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// The attempt; its `n` is given by the store.
    pub attempt: Attempt,
    /// What follows.
    pub next: Next,
    /// Schedule time of the settlement, from which a retry's wait is counted.
    pub now: Timestamp,
}

/// What came of one attempt, before anybody judged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target answered.
    Answered {
        /// The status code.
        status: u16,
        /// `Retry-After`, read and capped.
        retry_after: Option<Duration>,
        /// The first 2,048 characters of the answer.
        excerpt: String,
    },
    /// No answer, and none will come: connect, TLS, timeout, cut connection.
    Unreachable {
        /// What happened, for a person.
        reason: String,
    },
    /// We did not send: the target's address or URL is not allowed.
    Blocked {
        /// The refusal, with the line that would allow it.
        reason: String,
    },
    /// We could not build the request (unreadable secret, URL that cannot be filled).
    Unbuildable {
        /// What is missing.
        reason: String,
    },
}

/// The class of an attempt. Stored in `attempts.class`; decides the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptClass {
    /// 2xx.
    Success,
    /// May work later: no connection, timeout, 404, 405, 408, 425, 5xx, an address we do not allow yet.
    Transient,
    /// 429, or 503 with `Retry-After`.
    RateLimited,
    /// 401, 403, 407: our credential is not accepted.
    Auth,
    /// Any other 4xx, and 3xx: the same request will be refused again.
    Validation,
    /// 410: the target wants no more.
    Gone,
    /// Cannot be sent at all.
    Poison,
}

impl AttemptClass {
    /// All, in the order of the table in `docs/states.md`.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Transient,
        Self::RateLimited,
        Self::Auth,
        Self::Validation,
        Self::Gone,
        Self::Poison,
    ];

    /// The word in SQL, API and console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Transient => "transient",
            Self::RateLimited => "rate_limited",
            Self::Auth => "auth",
            Self::Validation => "validation",
            Self::Gone => "gone",
            Self::Poison => "poison",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }

    /// Whether the target was reached and took it.
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

impl fmt::Display for AttemptClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Sorts an outcome into its class (the table is in `docs/states.md`).
///
/// ```
/// use oncebox::model::delivery::{AttemptClass, Outcome, classify};
/// let gone = Outcome::Answered { status: 410, retry_after: None, excerpt: String::new() };
/// assert_eq!(classify(&gone), AttemptClass::Gone);
/// ```
pub fn classify(outcome: &Outcome) -> AttemptClass {
    match outcome {
        Outcome::Answered { status, retry_after, .. } => match (*status, retry_after) {
            (200..=299, _) => AttemptClass::Success,
            (429, _) | (503, Some(_)) => AttemptClass::RateLimited,
            (401 | 403 | 407, _) => AttemptClass::Auth,
            (410, _) => AttemptClass::Gone,
            (404 | 405 | 408 | 425, _) => AttemptClass::Transient,
            (300..=499, _) => AttemptClass::Validation,
            _ => AttemptClass::Transient,
        },
        Outcome::Unreachable { .. } | Outcome::Blocked { .. } => AttemptClass::Transient,
        Outcome::Unbuildable { .. } => AttemptClass::Poison,
    }
}

impl Outcome {
    /// The status code, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Blocked { .. } | Self::Unbuildable { .. } => None,
        }
    }

    /// The wait the target asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered { retry_after, .. } => *retry_after,
            Self::Unreachable { .. } | Self::Blocked { .. } | Self::Unbuildable { .. } => None,
        }
    }

    /// The outcome with its reason rewritten.
    #[must_use]
    pub fn map_reason(self, with: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Unreachable { reason } => Self::Unreachable { reason: with(reason) },
            Self::Blocked { reason } => Self::Blocked { reason: with(reason) },
            Self::Unbuildable { reason } => Self::Unbuildable { reason: with(reason) },
            answered @ Self::Answered { .. } => answered,
        }
    }

    /// Why it failed, in words a person can use; `None` for 2xx.
    pub fn failed_reason(&self) -> Option<String> {
        match self {
            Self::Answered { status: 200..=299, .. } => None,
            Self::Answered { status, .. } => Some(format!("the target answered {status}")),
            Self::Unreachable { reason }
            | Self::Blocked { reason }
            | Self::Unbuildable { reason } => Some(reason.clone()),
        }
    }
}

/// Why a schedule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No step, or too many.
    #[error(
        "a schedule has 1 to {MAX_STEPS} steps, this one has {count}; the last one is repeated"
    )]
    Steps {
        /// How many there are.
        count: usize,
    },
    /// A step that is too short or too long.
    #[error("a step of {} is outside 100ms to 7days", humantime::format_duration(*.step))]
    Step {
        /// The step.
        step: Duration,
    },
    /// A text that is not a span of time.
    #[error("`{text}` is not a span of time; write it like `5s`, `30min` or `4h`")]
    Text {
        /// The text.
        text: String,
    },
    /// No attempt, or too many.
    #[error("max_attempts is {max_attempts}; it can be 1 to {MAX_ATTEMPTS}")]
    Attempts {
        /// The number given.
        max_attempts: u32,
    },
}

/// The waits between attempts, and after how many counted failures to give up.
///
/// *Shape*: `{"steps":["5s","30s"],"max_attempts":22}`; what is left out is as in the default.
///
/// ```
/// use oncebox::model::delivery::Schedule;
/// use std::time::Duration;
/// let schedule = Schedule::default();
/// assert_eq!(schedule.wait_after(1), Duration::from_secs(5));
/// assert_eq!(schedule.wait_after(21), Duration::from_hours(4));
/// assert!(!schedule.gives_up(21) && schedule.gives_up(22));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Schedule {
    steps: Vec<Duration>,
    max_attempts: u32,
}

impl Default for Schedule {
    /// 5 s, 30 s, 5 min, 30 min, then every 4 h, 22 attempts: 68 h 35 min of waits, which with a mean of
    /// 5 % jitter makes the promised 72 h.
    fn default() -> Self {
        let secs = [5, 30, 5 * 60, 30 * 60, 4 * 3600];
        Self { steps: secs.map(Duration::from_secs).to_vec(), max_attempts: 22 }
    }
}

impl Schedule {
    /// A schedule of its own: the last step is repeated until `max_attempts` attempts have failed.
    ///
    /// *Range*: 1 to 50 steps of 100 ms to 7 days, 1 to 1,000 attempts.
    ///
    /// # Errors
    /// [`ScheduleError`] naming the number that is out of range.
    pub fn new(steps: Vec<Duration>, max_attempts: u32) -> Result<Self, ScheduleError> {
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Err(ScheduleError::Steps { count: steps.len() });
        }
        if let Some(step) = steps.iter().find(|step| !(STEP_MIN..=MAX_STEP).contains(*step)) {
            return Err(ScheduleError::Step { step: *step });
        }
        if !(1..=MAX_ATTEMPTS).contains(&max_attempts) {
            return Err(ScheduleError::Attempts { max_attempts });
        }
        Ok(Self { steps, max_attempts })
    }

    /// This schedule with another number of attempts, such as the event's own.
    ///
    /// # Errors
    /// [`ScheduleError::Attempts`] outside 1 to 1,000.
    pub fn with_max_attempts(self, max_attempts: u32) -> Result<Self, ScheduleError> {
        Self::new(self.steps, max_attempts)
    }

    /// The waits, in order.
    pub fn steps(&self) -> &[Duration] {
        &self.steps
    }

    /// After how many counted failures a delivery is given up.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The step after so many counted failures, without jitter. Before the first one it is the first step.
    pub fn wait_after(&self, counted_failures: u32) -> Duration {
        let index = usize::try_from(counted_failures.saturating_sub(1)).unwrap_or(usize::MAX);
        let step = self.steps.get(index).or_else(|| self.steps.last());
        // There is always a last one; the longest wait would be the safe side.
        step.copied().unwrap_or(MAX_STEP)
    }

    /// Whether so many counted failures are the end.
    pub fn gives_up(&self, counted_failures: u32) -> bool {
        counted_failures >= self.max_attempts
    }
}

/// The form in settings and rows.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    steps: Option<Vec<String>>,
    max_attempts: Option<u32>,
}

impl TryFrom<Wire> for Schedule {
    type Error = ScheduleError;

    fn try_from(wire: Wire) -> Result<Self, ScheduleError> {
        let default = Self::default();
        let steps = wire.steps.map_or(Ok(default.steps), |texts| {
            texts.into_iter().map(span).collect::<Result<Vec<_>, _>>()
        })?;
        Self::new(steps, wire.max_attempts.unwrap_or(default.max_attempts))
    }
}

fn span(text: String) -> Result<Duration, ScheduleError> {
    humantime::parse_duration(&text).map_err(|_why| ScheduleError::Text { text })
}

impl From<Schedule> for Wire {
    fn from(schedule: Schedule) -> Self {
        // humantime separates units by spaces; one word is easier to read in a list, and read back.
        let text = |step: &Duration| humantime::format_duration(*step).to_string().replace(' ', "");
        Self {
            steps: Some(schedule.steps.iter().map(text).collect()),
            max_attempts: Some(schedule.max_attempts),
        }
    }
}

/// The wait with 0 to 10 % added, in whole milliseconds; never shorter.
pub fn with_jitter(base: Duration, draw: &dyn Draw) -> Duration {
    let base_ms = u64::try_from(base.as_millis()).unwrap_or(u64::MAX);
    let extra_ms = draw.below((base_ms / JITTER_DIVISOR).saturating_add(1));
    base.saturating_add(Duration::from_millis(extra_ms))
}

/// How long to wait before the next attempt: the schedule's step with jitter, or longer if the answer's
/// `Retry-After` (see [`retry_after`]) asked for more. Jitter takes nothing off either.
///
/// ```
/// use oncebox::model::delivery::{Schedule, next_wait};
/// use oncebox::base::id::SystemDraw;
/// use std::time::Duration;
/// let (schedule, draw) = (Schedule::default(), SystemDraw::new());
/// let asked = Some(Duration::from_mins(1));
/// assert_eq!(next_wait(&schedule, 1, asked, &draw), Duration::from_mins(1));
/// assert!(next_wait(&schedule, 3, asked, &draw) >= Duration::from_mins(5));
/// ```
pub fn next_wait(
    schedule: &Schedule,
    counted_failures: u32,
    retry_after: Option<Duration>,
    draw: &dyn Draw,
) -> Duration {
    let step = with_jitter(schedule.wait_after(counted_failures), draw);
    step.max(retry_after.unwrap_or(Duration::ZERO))
}

/// What a `Retry-After` header asks for: seconds, or a date in any of the three forms of HTTP.
///
/// A date in the past is no wait, more than 24 h is 24 h, and what cannot be read is `None`.
/// Source: RFC 9110, sections 10.2.3 and 5.6.7.
///
/// ```
/// use oncebox::base::clock::Timestamp;
/// use oncebox::model::delivery::retry_after;
/// use std::time::Duration;
/// let now = Timestamp::parse("1994-11-06T08:49:00Z").unwrap();
/// assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
/// let date = "Sun, 06 Nov 1994 08:49:37 GMT";
/// assert_eq!(retry_after(date, now), Some(Duration::from_secs(37)));
/// assert_eq!(retry_after("soon", now), None);
/// ```
pub fn retry_after(value: &str, wall_now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if value.is_empty() {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits beyond what a number holds ask for more than the cap as well.
        let asked = value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs);
        return Some(asked.min(MAX_RETRY_AFTER));
    }
    let at = http_date(value, wall_now)?;
    Some(at.since(wall_now).min(MAX_RETRY_AFTER))
}

/// Reads the three date forms; the weekday is not compared with the date.
fn http_date(value: &str, wall_now: Timestamp) -> Option<Timestamp> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    let at = match *words.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [weekday, day, month, year, time, "GMT"] => {
            weekday.strip_suffix(',')?;
            moment(four_digits(year)?, month, day, time)?
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [weekday, date, time, "GMT"] => {
            weekday.strip_suffix(',')?;
            let mut parts = date.splitn(3, '-');
            let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
            moment(full_year(digits(year, 2)?, wall_now)?, month, day, time)?
        }
        // Sun Nov  6 08:49:37 1994
        [_weekday, month, day, time, year] => moment(four_digits(year)?, month, day, time)?,
        _ => return None,
    };
    Some(Timestamp::from_secs(at.assume_utc().unix_timestamp()))
}

fn moment(year: i32, month: &str, day: &str, time: &str) -> Option<PrimitiveDateTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let number = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let month = Month::try_from(u8::try_from(number + 1).ok()?).ok()?;
    let day = digits(day, 1).or_else(|| digits(day, 2))?;
    let date = Date::from_calendar_date(year, month, u8::try_from(day).ok()?).ok()?;
    let mut parts = time.splitn(3, ':').map(|part| digits(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    // A leap second has no number of its own in POSIX time.
    let second = if second == 60 { 59 } else { second };
    let byte = |number: i32| u8::try_from(number).ok();
    let time = Time::from_hms(byte(hour)?, byte(minute)?, byte(second)?).ok()?;
    Some(PrimitiveDateTime::new(date, time))
}

fn digits(text: &str, count: usize) -> Option<i32> {
    let right = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    right.then(|| text.parse().ok()).flatten()
}

fn four_digits(text: &str) -> Option<i32> {
    digits(text, 4)
}

/// A year of two digits that seems more than 50 years ahead is the past one with the same digits.
fn full_year(two_digits: i32, wall_now: Timestamp) -> Option<i32> {
    let this_year = time::OffsetDateTime::from_unix_timestamp(wall_now.secs()).ok()?.year();
    let year = this_year - this_year.rem_euclid(100) + two_digits;
    Some(if year > this_year + 50 { year - 100 } else { year })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    fn verdict(status: u16, failures: u32) -> Verdict {
        let outcome = Outcome::Answered { status, retry_after: None, excerpt: String::new() };
        let schedule = Schedule::default();
        let progress = Progress { counted_failures: failures, schedule: &schedule };
        judge(&outcome, progress, &SystemDraw::new())
    }

    #[test]
    fn a_refused_body_is_given_up_at_once() {
        assert_eq!(verdict(422, 0).next, Next::GiveUp("the target answered 422".into()));
    }

    #[test]
    fn a_failing_target_is_tried_22_times() {
        assert!(matches!(verdict(500, 20).next, Next::Retry(_)));
        assert!(matches!(verdict(500, 21).next, Next::GiveUp(_)));
    }

    #[test]
    fn a_target_that_is_gone_disables_its_subscription() {
        assert!(matches!(verdict(410, 0).next, Next::GiveUpAndDisable(_)));
    }

    #[test]
    fn every_state_is_read_back_from_its_word() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
    }

    fn answered(status: u16, retry_after: Option<u64>) -> AttemptClass {
        let retry_after = retry_after.map(Duration::from_secs);
        classify(&Outcome::Answered { status, retry_after, excerpt: String::new() })
    }

    #[test]
    fn every_status_has_the_class_of_the_table() {
        for (status, class) in [
            (200, AttemptClass::Success),
            (204, AttemptClass::Success),
            (301, AttemptClass::Validation),
            (400, AttemptClass::Validation),
            (401, AttemptClass::Auth),
            (403, AttemptClass::Auth),
            (404, AttemptClass::Transient),
            (405, AttemptClass::Transient),
            (407, AttemptClass::Auth),
            (408, AttemptClass::Transient),
            (410, AttemptClass::Gone),
            (422, AttemptClass::Validation),
            (425, AttemptClass::Transient),
            (429, AttemptClass::RateLimited),
            (500, AttemptClass::Transient),
            (503, AttemptClass::Transient),
            (599, AttemptClass::Transient),
            (100, AttemptClass::Transient),
        ] {
            assert_eq!(answered(status, None), class, "{status}");
        }
        assert_eq!(answered(503, Some(1)), AttemptClass::RateLimited);
    }

    #[test]
    fn every_class_is_read_back_from_its_word() {
        for class in
            ["success", "transient", "rate_limited", "auth", "validation", "gone", "poison"]
        {
            assert_eq!(AttemptClass::parse(class).unwrap().as_str(), class);
        }
        assert_eq!(AttemptClass::parse("other"), None);
    }

    #[test]
    fn the_default_gives_up_after_the_promised_time() {
        let schedule = Schedule::default();
        let waits: Duration = (1..schedule.max_attempts()).map(|n| schedule.wait_after(n)).sum();
        assert_eq!(waits, Duration::from_secs(68 * 3600 + 35 * 60 + 35));
        assert_eq!((waits + waits / 20).as_secs() / 3600, 72);
    }

    #[test]
    fn before_the_first_failure_the_first_step_counts() {
        assert_eq!(Schedule::default().wait_after(0), Duration::from_secs(5));
        assert_eq!(Schedule::default().wait_after(u32::MAX), Duration::from_hours(4));
    }

    #[test]
    fn a_schedule_survives_its_settings_form() {
        let text = r#"{"steps":["5s","1m30s","4h"],"max_attempts":8}"#;
        let schedule: Schedule = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&schedule).unwrap(), text);
        assert_eq!(serde_json::from_str::<Schedule>("{}").unwrap(), Schedule::default());
    }

    #[test]
    fn a_wrong_schedule_is_refused_with_the_reason() {
        let refuse = |text: &str| serde_json::from_str::<Schedule>(text).unwrap_err().to_string();
        assert!(refuse(r#"{"steps":["soon"]}"#).contains("`soon` is not a span of time"));
        assert!(refuse(r#"{"steps":["0s"]}"#).contains("a step of 0s is outside"));
        assert!(refuse(r#"{"steps":["1y"]}"#).contains("outside 100ms to 7days"));
        assert!(refuse(r#"{"steps":[]}"#).contains("1 to 50 steps"));
        assert!(refuse(r#"{"max_attempts":0}"#).contains("it can be 1 to 1000"));
        assert!(refuse(r#"{"attempts":3}"#).contains("unknown field"));
        assert!(Schedule::default().with_max_attempts(1001).is_err());
        assert_eq!(Schedule::default().with_max_attempts(3).map(|s| s.max_attempts()), Ok(3));
    }

    #[test]
    fn every_form_of_date_means_the_same() {
        let now = Timestamp::parse("1994-11-06T08:49:00Z").unwrap();
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(retry_after(date, now), Some(Duration::from_secs(37)), "{date}");
            let later = now.plus(Duration::from_secs(100));
            assert_eq!(retry_after(date, later), Some(Duration::ZERO), "{date}");
            let earlier = now.minus(Duration::from_hours(100));
            assert_eq!(retry_after(date, earlier), Some(MAX_RETRY_AFTER), "{date}");
        }
    }

    #[test]
    fn a_year_of_two_digits_is_at_most_fifty_years_ahead() {
        let now = Timestamp::parse("2026-11-21T00:00:00Z").unwrap();
        assert_eq!(full_year(76, now), Some(2076));
        assert_eq!(full_year(77, now), Some(1977));
        let soon = "Saturday, 21-Nov-26 00:01:00 GMT";
        assert_eq!(retry_after(soon, now), Some(Duration::from_mins(1)));
    }

    #[test]
    fn what_cannot_be_read_asks_for_nothing() {
        let now = Timestamp::from_secs(0);
        for text in [
            "",
            " ",
            "-1",
            "1.5",
            "+5",
            "5 s",
            "0x10",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49 GMT",
            "1994-11-06T08:49:37Z",
            "٣",
        ] {
            assert_eq!(retry_after(text, now), None, "{text:?}");
        }
        let endless = "9".repeat(60);
        assert_eq!(retry_after(&endless, now), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after("86401", now), Some(MAX_RETRY_AFTER));
    }
}

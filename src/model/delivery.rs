//! A delivery: one event for one subscription, its states, its attempts, and the schedule of its retries.
//!
//! Not here: the class of an attempt (`model::outcome`), what follows it (`model::failure`), storing a delivery
//! (`store::deliveries`), and sending it (`pipeline::deliver`).

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use time::{Date, Month, PrimitiveDateTime, Time};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, Draw, SubscriptionSeq};
use crate::base::schema::{LaneId, NameText, values};
use crate::base::words::words;
use crate::model::event;
use crate::model::form_body::Body;
use crate::model::format::Rendering;
use crate::model::lane;
use crate::model::outcome::AttemptClass;

/// Jitter adds at most a tenth: enough to spread a thousand deliveries that failed together, and little enough to keep
/// the schedule predictable.
const JITTER_DIVISOR: u64 = 10;
/// The largest jitter value that is drawn; it adds the whole tenth.
const MAX_JITTER: u64 = 1_000_000;
/// The longest `Retry-After` that is honored. Source: the product page, section 7.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);
/// Allowed time limits of an attempt. A shorter one fails on any real network, a longer one occupies a thread.
pub const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(10);
/// Bytes of it that are kept and sent.
const MAX_CUSTOM_DATA: usize = 1024;
/// The number of header fields that every request has.
pub const STANDARD_FIELDS: usize = 6;
const MAX_STEPS: usize = 50;
const MIN_STEP: Duration = Duration::from_millis(100);
const MAX_STEP: Duration = Duration::from_hours(7 * 24);
const MAX_ATTEMPTS: u32 = 1000;

words! {
    /// The state of a delivery. Stored in `deliveries.state`.
    pub enum DeliveryState as "DeliveryState" {
        /// Waits for its due time. Left by the dispatcher's attempt, or by a person's cancel.
        Pending = "pending",
        /// A pull consumer has it. Left by ack, nack, the end of the lease, or a person's retry or cancel.
        Leased = "leased",
        /// Accepted by the target, not yet confirmed. Left by the confirmation or its time limit.
        Waiting = "waiting",
        /// Set aside so that its lane continues. Left by a person's release.
        Parked = "parked",
        /// May have been sent before a restore. Left by a person's release, skip or cancel.
        InDoubt = "in_doubt",
        /// Final: the target accepted it.
        Completed = "completed",
        /// Given up; event and payload are kept. Left by a person's retry or cancel.
        DeadLetter = "dead_letter",
        /// Final: a rule made it superfluous, or a person says that it was sent before a restore. Left by a person's
        /// retry.
        Skipped = "skipped",
        /// Final: a person stopped it. Left by a person's retry.
        Cancelled = "cancelled",
    }
}

impl DeliveryState {
    /// Whether only a person can change it.
    #[cfg(test)]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::DeadLetter | Self::Skipped | Self::Cancelled)
    }
}

words! {
    /// Where a pending delivery is that was never attempted: a filter of lists.
    pub enum QueuePlace as "QueuePlace" {
        /// Anywhere, also behind others of its lane.
        New = "new",
        /// Nothing goes before it: it is sent when it is due and its subscription may be called.
        InQueue = "in_queue",
    }
}

/// A delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Delivery {
    #[serde(rename = "id")]
    pub seq: DeliverySeq,
    #[schemars(with = "NameText")]
    pub tenant: String,
    #[serde(rename = "of", serialize_with = "carried")]
    #[schemars(with = "CarriedKind")]
    pub of_webhook_event: bool,
    pub event_id: String,
    pub event_type: String,
    /// The type of the thing that the event is about; null for a webhook event.
    pub aggregate_type: Option<String>,
    /// The id of that thing.
    pub aggregate_id: Option<String>,
    /// The event's own key, or the provider's id of the webhook event.
    pub key: String,
    /// The subscription's name.
    #[schemars(with = "NameText")]
    pub subscription: String,
    pub state: DeliveryState,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it is tried next; null if it is not tried again.
    pub due_at: Option<Timestamp>,
    /// When the consumer's lease ends; null if it is not leased.
    pub lease_until: Option<Timestamp>,
    /// When the target's time to confirm it ends; null if it does not wait for that.
    pub confirm_until: Option<Timestamp>,
    /// Its lane; null if it has none.
    #[serde(serialize_with = "lane::write_id")]
    #[schemars(with = "Option<LaneId>")]
    pub lane: Option<i64>,
    /// The time by which its lane is ordered.
    pub order_at: Timestamp,
    /// Whether the delivery arrived later than deliveries behind it in its lane.
    pub late: bool,
    /// Whether it waits for an earlier delivery of its lane.
    pub is_behind: bool,
    /// Attempts in all runs.
    pub attempt_count: u32,
    /// Failed attempts of this run that count towards `max_attempts`.
    pub counted_failures: u32,
    pub last_class: Option<AttemptClass>,
    /// The HTTP status of the last attempt; null if there was no answer.
    pub http_status: Option<u16>,
    /// How long the last attempt took; null if there was none.
    pub latency_ms: Option<u32>,
    /// The number of the run. Reopening a dead letter adds 1.
    pub run_no: u32,
    pub finished_at: Option<Timestamp>,
    /// Why it ended, or why it waits.
    pub reason: Option<String>,
    /// The event's `ordering_key`.
    #[serde(skip)]
    pub ordering_key: Option<String>,
    /// The month in whose archive it is, like `2026-11`; null while it is in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_in: Option<String>,
}

values! {
    /// What a delivery carries.
    CarriedKind = { "type": "string", "enum": ["event", "webhook_event"] }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field by reference")]
fn carried<S: Serializer>(of_webhook_event: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *of_webhook_event { "webhook_event" } else { "event" })
}

impl Delivery {
    /// What its event is about: the aggregate, else the event's key.
    pub fn about(&self) -> String {
        match (&self.aggregate_type, &self.aggregate_id) {
            (Some(kind), Some(id)) => format!("{kind}/{id}"),
            (None, Some(id)) => id.clone(),
            (_, None) => self.key.clone(),
        }
    }
}

/// The data of a delivery that an attempt needs: the event's fields and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its subscription.
    pub subscription: SubscriptionSeq,
    /// The delivery's run.
    pub run_no: u32,
    /// Attempts so far, in all runs.
    pub attempt_count: u32,
    /// When its event arrived.
    pub accepted_at: Timestamp,
    /// The event's tenant.
    pub tenant: String,
    /// The event's source system; for a webhook event, `in:` and the provider's name.
    pub source: String,
    /// The UUID of the event or webhook event.
    pub event_id: String,
    /// The `webhook-id` that is sent.
    pub webhook_id: String,
    /// The event's idempotency key, which is sent as `X-Idempotency-Key`.
    pub idempotency_key: String,
    /// The event's type.
    pub event_type: String,
    /// The aggregate's type.
    pub aggregate_type: Option<String>,
    /// The aggregate's id.
    pub aggregate_id: Option<String>,
    /// The body, byte for byte.
    pub payload: Vec<u8>,
    /// How many values in the body are sealed.
    pub sealed_fields: u32,
    /// Its media type.
    pub content_type: String,
    /// The event's header fields: a JSON object, or an array of pairs.
    pub headers: String,
    /// When it happened, by the source's clock.
    pub occurred_at: Option<Timestamp>,
    /// The W3C trace id it came with.
    pub trace_id: Option<String>,
    /// The event's own `max_attempts`.
    pub max_attempts: Option<u32>,
    /// Its part in an order.
    pub order: OutgoingOrder,
    /// What an earlier attempt has fixed.
    pub rendering: Option<Rendering>,
    /// The name of the header field in which the provider of a webhook event names its type.
    pub type_field: Option<String>,
}

/// What an attempt needs to know about the order of its delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingOrder {
    /// The event's `ordering_key`.
    pub ordering_key: Option<String>,
    /// The number of what it is about, if its subscription asks.
    pub entity: Option<i64>,
    /// What the event's `aggregate_id` is an id of.
    pub entity_type: Option<String>,
    /// What the latest answer of the target said to send back; without one, the event's own.
    pub custom_data: Option<String>,
}

/// Whether `custom_data` can be sent as a header field.
pub fn is_custom_data(text: &str) -> bool {
    text.len() <= MAX_CUSTOM_DATA && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

impl OutgoingRequest {
    /// The payload with its media type.
    pub fn body(&self) -> Body<'_> {
        Body { content_type: &self.content_type, bytes: &self.payload }
    }

    /// When its event happened; when it arrived, if its source did not say.
    pub fn happened_at(&self) -> Timestamp {
        self.occurred_at.unwrap_or(self.accepted_at)
    }

    /// The header fields that every request has, in this order and before all others.
    pub fn standard_fields(
        &self,
        at: Timestamp,
        span: &str,
        signature: String,
    ) -> Vec<(String, String)> {
        let fields: [(&str, String); STANDARD_FIELDS] = [
            ("content-type", self.content_type.clone()),
            ("webhook-id", self.webhook_id.clone()),
            ("webhook-timestamp", at.secs().to_string()),
            ("webhook-signature", signature),
            ("x-idempotency-key", self.idempotency_key.clone()),
            ("traceparent", format!("00-{}-{span}-{}", self.trace(), self.trace_flags())),
        ];
        fields.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// The trace it belongs to: the one it came with, or its own.
    pub fn trace(&self) -> String {
        self.trace_id.clone().unwrap_or_else(|| self.event_id.replace('-', ""))
    }

    /// The flags of its trace: those it came with.
    pub fn trace_flags(&self) -> String {
        let parent = self.trace_field("traceparent").unwrap_or_default();
        event::trace_flags(&parent).unwrap_or(event::SAMPLED).to_owned()
    }

    /// The span with which its event came, if it is kept.
    pub fn parent_span(&self) -> Option<String> {
        let parent = self.trace_field("traceparent")?;
        event::span_id(&parent).map(str::to_owned)
    }

    /// The `tracestate` with which its event came.
    pub fn trace_state(&self) -> Option<String> {
        let state = self.trace_field("tracestate").filter(|text| event::is_trace_state(text))?;
        self.trace_id.is_some().then_some(state)
    }

    /// A field of the trace, of the header fields that are kept with the event.
    fn trace_field(&self, name: &str) -> Option<String> {
        // Nearly no event has one.
        if !self.headers.to_ascii_lowercase().contains(name) {
            return None;
        }
        let is_named = |own: &str| own.eq_ignore_ascii_case(name);
        match serde_json::from_str(&self.headers).ok()? {
            Value::Object(fields) => {
                let found = fields.iter().find(|(own, _)| is_named(own));
                found.and_then(|(_, value)| value.as_str()).map(str::to_owned)
            }
            Value::Array(pairs) => pairs.iter().find_map(|pair| {
                is_named(pair.get(0)?.as_str()?)
                    .then(|| pair.get(1)?.as_str().map(str::to_owned))?
            }),
            _ => None,
        }
    }
}

/// Why a schedule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No step, or too many.
    #[error("a schedule has 1 to {MAX_STEPS} steps, this one has {0}; the last one is repeated")]
    Steps(usize),
    /// A step that is too short or too long.
    #[error("a step of {} is outside 100ms to 7days", humantime::format_duration(*.0))]
    Step(Duration),
    /// A text that is not a span of time.
    #[error("`{0}` is not a span of time; write it like `5s`, `30min` or `4h`")]
    Text(String),
    /// No attempt, or too many.
    #[error("max_attempts is {0}; it can be 1 to {MAX_ATTEMPTS}")]
    Attempts(u32),
}

/// The waits between attempts, and after how many counted failures to give up.
///
/// *Shape*: `{"steps":["5s","30s"],"max_attempts":22}`; omitted fields have their default.
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
    /// Makes a schedule. The last step is repeated until `max_attempts` attempts have failed.
    ///
    /// *Range*: 1 to 50 steps of 100 ms to 7 days, 1 to 1,000 attempts.
    /// Fails with [`ScheduleError`] naming the number that is out of range.
    pub fn new(steps: Vec<Duration>, max_attempts: u32) -> Result<Self, ScheduleError> {
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Err(ScheduleError::Steps(steps.len()));
        }
        if let Some(step) = steps.iter().find(|step| !(MIN_STEP..=MAX_STEP).contains(*step)) {
            return Err(ScheduleError::Step(*step));
        }
        if !(1..=MAX_ATTEMPTS).contains(&max_attempts) {
            return Err(ScheduleError::Attempts(max_attempts));
        }
        Ok(Self { steps, max_attempts })
    }

    /// This schedule with another number of attempts, such as the event's own.
    /// Fails with [`ScheduleError::Attempts`] outside 1 to 1,000.
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

    /// The wait after this many counted failures, without jitter; after none, the first step.
    pub fn wait_after(&self, counted_failures: u32) -> Duration {
        let index = usize::try_from(counted_failures.saturating_sub(1)).unwrap_or(usize::MAX);
        let step = self.steps.get(index).or_else(|| self.steps.last());
        // A schedule is never empty; if it were, the longest wait would be safe.
        step.copied().unwrap_or(MAX_STEP)
    }

    /// Whether a delivery is given up after this many counted failures.
    pub fn gives_up(&self, counted_failures: u32) -> bool {
        counted_failures >= self.max_attempts
    }
}

/// The serialized form in settings and rows.
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
    humantime::parse_duration(&text).map_err(|_why| ScheduleError::Text(text))
}

impl From<Schedule> for Wire {
    fn from(schedule: Schedule) -> Self {
        // humantime separates units by spaces. Without them a list is easier to read and can still be parsed.
        let text = |step: &Duration| humantime::format_duration(*step).to_string().replace(' ', "");
        Self {
            steps: Some(schedule.steps.iter().map(text).collect()),
            max_attempts: Some(schedule.max_attempts),
        }
    }
}

/// How much a wait is lengthened, so that deliveries that failed together are not retried together. Drawn before the
/// transaction that uses it: a transaction may run twice and must give the same result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter(u64);

impl Jitter {
    /// Draws a random jitter.
    pub fn new(draw: &dyn Draw) -> Self {
        Self(draw.below(MAX_JITTER + 1))
    }

    /// The wait with 0 to 10 % added, in whole milliseconds; never shorter.
    ///
    /// ```
    /// use oncebox::base::id::SystemDraw;
    /// use oncebox::model::delivery::Jitter;
    /// use std::time::Duration;
    /// let wait = Jitter::new(&SystemDraw::new()).lengthen(Duration::from_secs(10));
    /// assert!((10..=11).contains(&wait.as_secs()));
    /// ```
    #[must_use]
    pub fn lengthen(self, wait: Duration) -> Duration {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let extra_ms =
            u128::from(wait_ms / JITTER_DIVISOR) * u128::from(self.0) / u128::from(MAX_JITTER);
        wait.saturating_add(Duration::from_millis(u64::try_from(extra_ms).unwrap_or(u64::MAX)))
    }
}

/// Parses `Retry-After`: seconds, or a date in any of HTTP's three formats. Also what is met outside the standard: a
/// decimal, which is rounded up, and a date whose zone is not `GMT` but `UTC`, `Z` or an offset such as `+0000`.
///
/// A date in the past is no wait, a wait of more than 24 h is 24 h, and an invalid value is `None`.
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
        // A number that does not fit into 64 bits is above the limit, too.
        let asked = value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs);
        return Some(asked.min(MAX_RETRY_AFTER));
    }
    if let Some(asked) = decimal(value) {
        return Some(asked.min(MAX_RETRY_AFTER));
    }
    let at = http_date(value, wall_now)?;
    Some(at.since(wall_now).min(MAX_RETRY_AFTER))
}

/// Seconds with a fraction, rounded up: some programs write `2.0`.
fn decimal(value: &str) -> Option<Duration> {
    let (whole, fraction) = value.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let seconds = whole.parse::<u64>().unwrap_or(u64::MAX);
    let is_more = fraction.bytes().any(|digit| digit != b'0');
    Some(Duration::from_secs(seconds.saturating_add(u64::from(is_more))))
}

/// The offset of a zone in seconds: none of `GMT`, or `+0100` and the like.
fn zone(text: &str) -> Option<i64> {
    if ["GMT", "UTC", "UT", "Z"].contains(&text) {
        return Some(0);
    }
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let hours = i64::from(digits(text.get(1..3)?, 2)?);
    let minutes = i64::from(digits(text.get(3..)?, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Reads the three date formats; the weekday is not compared with the date.
fn http_date(value: &str, wall_now: Timestamp) -> Option<Timestamp> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    let mut offset = 0;
    let at = match *words.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [weekday, day, month, year, time, zoned] => {
            weekday.strip_suffix(',')?;
            offset = zone(zoned)?;
            date_time(four_digits(year)?, month, day, time)?
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [weekday, date, time, zoned] => {
            weekday.strip_suffix(',')?;
            offset = zone(zoned)?;
            let mut parts = date.splitn(3, '-');
            let day = parts.next()?;
            let month = parts.next()?;
            let year = parts.next()?;
            date_time(full_year(digits(year, 2)?, wall_now)?, month, day, time)?
        }
        // Sun Nov  6 08:49:37 1994
        [_weekday, month, day, time, year] => date_time(four_digits(year)?, month, day, time)?,
        _ => return None,
    };
    Some(Timestamp::from_secs(at.assume_utc().unix_timestamp().saturating_sub(offset)))
}

fn date_time(year: i32, month: &str, day: &str, time: &str) -> Option<PrimitiveDateTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let number = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let month = Month::try_from(u8::try_from(number + 1).ok()?).ok()?;
    let day = digits(day, 1).or_else(|| digits(day, 2))?;
    let date = Date::from_calendar_date(year, month, u8::try_from(day).ok()?).ok()?;
    let mut parts = time.splitn(3, ':').map(|part| digits(part, 2));
    let hour = parts.next()??;
    let minute = parts.next()??;
    let second = parts.next()??;
    // A leap second has no number of its own in POSIX time.
    let second = if second == 60 { 59 } else { second };
    let byte = |number: i32| u8::try_from(number).ok();
    let time = Time::from_hms(byte(hour)?, byte(minute)?, byte(second)?).ok()?;
    Some(PrimitiveDateTime::new(date, time))
}

fn digits(text: &str, count: usize) -> Option<i32> {
    let is_valid = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    is_valid.then(|| text.parse().ok()).flatten()
}

fn four_digits(text: &str) -> Option<i32> {
    digits(text, 4)
}

/// Expands a year of two digits. A year more than 50 years ahead is taken as one in the past century.
fn full_year(two_digits: i32, wall_now: Timestamp) -> Option<i32> {
    let this_year = time::OffsetDateTime::from_unix_timestamp(wall_now.secs()).ok()?.year();
    let year = this_year - this_year.rem_euclid(100) + two_digits;
    Some(if year > this_year + 50 { year - 100 } else { year })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_gives_up_after_the_promised_time() {
        let schedule = Schedule::default();
        let waits: Duration = (1..schedule.max_attempts()).map(|n| schedule.wait_after(n)).sum();
        assert_eq!(waits, Duration::from_secs(68 * 3600 + 35 * 60 + 35));
        assert_eq!((waits + waits / 20).as_secs() / 3600, 72);
    }

    #[test]
    fn without_a_failure_the_wait_is_the_first_step() {
        assert_eq!(Schedule::default().wait_after(0), Duration::from_secs(5));
        assert_eq!(Schedule::default().wait_after(u32::MAX), Duration::from_hours(4));
    }

    #[test]
    fn a_schedule_is_read_back_from_its_settings() {
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
    fn every_date_format_gives_the_same_wait() {
        let now = Timestamp::parse("1994-11-06T08:49:00Z").unwrap();
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 10:19:37 +0130",
            "Sun, 06 Nov 1994 07:49:37 -0100",
            "Sunday, 06-Nov-94 08:49:37 UTC",
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
    fn an_invalid_retry_after_is_ignored() {
        let now = Timestamp::from_secs(0);
        for text in [
            "",
            " ",
            "-1",
            "1.",
            ".5",
            "1.5.2",
            "1,5",
            "Sun, 06 Nov 1994 08:49:37 +01",
            "Sun, 06 Nov 1994 08:49:37 +2500",
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
        for (text, seconds) in [("600.0", 600), ("1.5", 2), ("0.001", 1), ("0.0", 0)] {
            assert_eq!(retry_after(text, now), Some(Duration::from_secs(seconds)), "{text}");
        }
        let endless = "9".repeat(60);
        assert_eq!(retry_after(&format!("{endless}.5"), now), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after(&endless, now), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after("86401", now), Some(MAX_RETRY_AFTER));
    }
}

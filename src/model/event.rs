//! An event: one business fact to deliver, as published and as stored.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::base::words::words;
use crate::model::event_field::EventField;
#[cfg(feature = "service")]
use crate::model::form_body::Body;
use crate::model::sealed::Sealed;

/// A larger payload is stored in a row of its own. Measured: if a row contains a payload of 1 MB, each change of its
/// status writes that megabyte to the write-ahead log again.
pub const MAX_INLINE_BYTES: usize = 16 * 1024;

/// Bytes of an event's header fields as JSON.
const MAX_HEADERS_BYTES: usize = 16 * 1024;

words! {
    /// The status of an event, derived from its deliveries. Stored in `outbox.status`.
    pub enum Status as "EventStatus" {
        /// No attempt has been settled.
        Pending = "pending",
        /// Some of its deliveries are done, or a consumer or target is working on one, or a hard child is not done.
        Processing = "processing",
        /// Final: at least one delivery is completed and none is dead.
        Completed = "completed",
        /// A delivery failed and waits for its next attempt.
        Failed = "failed",
        /// Every delivery is final and at least one is dead, or a hard child is.
        DeadLetter = "dead_letter",
        /// Final: a person stopped it.
        Cancelled = "cancelled",
        /// Final: no subscription wanted it, or a rule made it superfluous.
        Skipped = "skipped",
        /// It cannot be used; a person must repair or discard it.
        Quarantined = "quarantined",
    }
}

impl Status {
    /// Whether only a person can change it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::DeadLetter | Self::Cancelled | Self::Skipped)
    }
}

/// How many deliveries of one event are in which state. Its status is derived from these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Not final.
    pub open: u32,
    /// Open, and failed at least once in this run.
    pub open_failed: u32,
    /// Leased or waiting for a confirmation.
    pub with_worker: u32,
    /// Completed.
    pub completed: u32,
    /// Dead.
    pub dead: u32,
    /// Cancelled.
    pub cancelled: u32,
    /// Skipped.
    pub skipped: u32,
}

/// The status of an event, from its deliveries alone.
///
/// ```
/// use oncebox::model::event::{derive, Status, DeliveryCounts};
/// assert_eq!(derive(DeliveryCounts { completed: 2, dead: 1, ..DeliveryCounts::default() }), Status::DeadLetter);
/// assert_eq!(derive(DeliveryCounts { completed: 1, cancelled: 1, ..DeliveryCounts::default() }), Status::Completed);
/// assert_eq!(derive(DeliveryCounts::default()), Status::Skipped);
/// ```
pub fn derive(counts: DeliveryCounts) -> Status {
    let done = counts.completed + counts.dead + counts.cancelled + counts.skipped;
    if counts.open > 0 {
        return if counts.open_failed > 0 {
            Status::Failed
        } else if counts.with_worker > 0 || done > 0 {
            Status::Processing
        } else {
            Status::Pending
        };
    }
    if counts.dead > 0 {
        Status::DeadLetter
    } else if counts.completed > 0 {
        Status::Completed
    } else if counts.cancelled > 0 && counts.skipped == 0 {
        Status::Cancelled
    } else {
        Status::Skipped
    }
}

/// What a change of a delivery tells its event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried<'a> {
    /// When its attempt began, if it is the end of one.
    pub started_at: Option<Timestamp>,
    /// What went wrong.
    pub error: Option<&'a str>,
}

words! {
    /// How far a child decides about its parent. Stored in `outbox.parent_binding`.
    #[derive(Default)]
    pub enum Binding as "ParentBinding" {
        /// Not at all.
        #[default]
        Soft = "soft",
        /// The parent completes after this child, and is a dead letter if the child is.
        Hard = "hard",
    }
}

/// What an event asks about its order, and its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "service", derive(schemars::JsonSchema))]
pub struct EventOrder {
    /// It goes into its lane even where the subscription keeps no order.
    #[serde(rename = "guaranteed_order")]
    pub guaranteed: bool,
    /// Dead letters ahead of it in its lane do not block it.
    pub exclude_failed: bool,
    // The funnel point at which its `funnel_value` counts; every point if absent.
    pub funnel_point: Option<String>,
    // Of events with the same value, one is in flight at a time.
    pub funnel_value: Option<String>,
    // What its `aggregate_id` is an id of; its event type if absent.
    pub entity_type: Option<String>,
    #[cfg_attr(feature = "service", schemars(with = "Option<crate::base::schema::Uuid>"))]
    pub parent_id: Option<String>,
    /// The parent's idempotency key in the same source system, instead of its UUID.
    #[serde(skip)]
    pub parent_key: Option<String>,
    // How far it decides about its parent; soft if absent.
    pub parent_binding: Option<Binding>,
}

/// What is known of an event's hard children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardChildren {
    /// One of them is not final.
    pub any_open: bool,
    /// One of them is a dead letter.
    pub any_dead: bool,
    /// One of them is completed.
    pub any_completed: bool,
}

/// The status of an event with hard children. `alone` is its status by its own deliveries: as long as they are open, it
/// counts; so it does when they are dead or a person cancelled them all.
///
/// ```
/// use oncebox::model::event::{with_children, HardChildren, Status};
/// let open = HardChildren { any_open: true, ..HardChildren::default() };
/// assert_eq!(with_children(Status::Completed, open), Status::Processing);
/// assert_eq!(with_children(Status::Completed, HardChildren { any_dead: true, ..open }), Status::DeadLetter);
/// ```
pub fn with_children(alone: Status, children: HardChildren) -> Status {
    match alone {
        Status::Completed | Status::Skipped if children.any_dead => Status::DeadLetter,
        Status::Completed | Status::Skipped if children.any_open => Status::Processing,
        Status::Skipped if children.any_completed => Status::Completed,
        _ => alone,
    }
}

/// An event to be stored. Every field has been checked against its limit (see [`NewEvent::check`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "service", derive(schemars::JsonSchema))]
pub struct NewEvent {
    pub id: String,
    pub tenant: String,
    // The system that published it; 1–64 characters.
    pub source_system: String,
    // Its unique key in that system: 1–255 printable ASCII characters.
    pub idempotency_key: String,
    pub event_type: String,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    // The only subscription it is for, by name.
    pub target: Option<String>,
    /// The body, which is sent byte for byte.
    #[serde(skip)]
    pub payload: Vec<u8>,
    pub content_type: String,
    /// Header fields for those subscriptions that name them; a text, if they cannot be used.
    #[serde(serialize_with = "as_headers")]
    #[cfg_attr(feature = "service", schemars(with = "Value"))]
    pub headers: Option<String>,
    pub occurred_at: Option<Timestamp>,
    pub received_at: Timestamp,
    pub not_before: Option<Timestamp>,
    pub ordering_key: Option<String>,
    #[serde(flatten)]
    pub order: EventOrder,
    pub process_id: Option<String>,
    pub trace_id: Option<String>,
    // Counted attempts until it is given up; overrides the subscription's number.
    pub max_attempts: Option<u32>,
    pub custom_data: Option<String>,
    /// How many fields of the payload are sealed; they are shown as `[sealed]`.
    #[serde(rename = "sealed_fields")]
    #[cfg_attr(feature = "service", schemars(with = "u32"))]
    pub sealed: Sealed,
}

#[expect(clippy::ref_option, reason = "serde gives the field as it is")]
fn as_headers<S: Serializer>(headers: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    let text = headers.as_deref().unwrap_or("{}");
    serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into()).serialize(to)
}

/// A field of an event that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct FieldError {
    /// The field's name.
    pub field: &'static str,
    /// The mistake, and the remedy.
    pub problem: String,
}

impl FieldError {
    /// The error as a result.
    pub fn of<T>(field: &'static str, problem: impl Into<String>) -> Result<T, Self> {
        Err(Self { field, problem: problem.into() })
    }
}

impl NewEvent {
    /// The payload with its media type.
    #[cfg(feature = "service")]
    pub fn body(&self) -> Body<'_> {
        Body { content_type: &self.content_type, bytes: &self.payload }
    }

    /// The text of a field; `None` if it has none, or is no text.
    pub fn text(&self, field: EventField) -> Option<&str> {
        match field {
            EventField::EventType => Some(&self.event_type),
            EventField::IdempotencyKey => Some(&self.idempotency_key),
            EventField::AggregateType => self.aggregate_type.as_deref(),
            EventField::AggregateId => self.aggregate_id.as_deref(),
            EventField::Target => self.target.as_deref(),
            EventField::OrderingKey => self.ordering_key.as_deref(),
            EventField::FunnelPoint => self.order.funnel_point.as_deref(),
            EventField::FunnelValue => self.order.funnel_value.as_deref(),
            EventField::EntityType => self.order.entity_type.as_deref(),
            EventField::ParentKey => self.order.parent_key.as_deref(),
            EventField::ParentBinding => self.order.parent_binding.map(Binding::as_str),
            EventField::ContentType => Some(&self.content_type),
            EventField::Headers => self.headers.as_deref(),
            EventField::SourceSystem => Some(&self.source_system),
            EventField::ProcessId => self.process_id.as_deref(),
            EventField::CustomData => self.custom_data.as_deref(),
            EventField::Payload
            | EventField::OccurredAt
            | EventField::NotBefore
            | EventField::GuaranteedOrder
            | EventField::ExcludeFailed
            | EventField::MaxAttempts => None,
        }
    }

    /// The texts that are stored as they were received. The parent's key was stored with the parent.
    pub fn stored_texts(&self) -> Vec<(&'static str, &str)> {
        let is_free = |field: &EventField| {
            !matches!(field, EventField::ParentKey | EventField::ParentBinding)
        };
        let fields = EventField::ALL.into_iter().filter(is_free);
        fields.filter_map(|field| Some((field.as_str(), self.text(field)?))).collect()
    }

    /// Whether another event has the same content, even if its key is different.
    pub fn has_same_content(&self, other: &Self) -> bool {
        self.payload == other.payload
            && self.event_type == other.event_type
            && self.aggregate_id == other.aggregate_id
            && self.target == other.target
    }

    /// Checks every field against its limit.
    /// Fails with the first field that is out of bounds.
    pub fn check(&self) -> Result<(), FieldError> {
        for field in EventField::ALL {
            // A header's JSON has a limit in bytes.
            let is_short = field != EventField::Headers;
            if let Some(text) = self.text(field).filter(|_| is_short) {
                let least = usize::from(field != EventField::ContentType);
                check_length(field.as_str(), text, least, field.most_chars())?;
            }
        }
        check_source_system(&self.source_system)?;
        check_printable_ascii("idempotency_key", &self.idempotency_key)?;
        check_printable_ascii("event_type", &self.event_type)?;
        if self.event_type.contains(' ') {
            return FieldError::of("event_type", "contains ' '; write it like invoice.paid");
        }
        check_printable_ascii("content_type", &self.content_type)?;
        if self.source_system == OWN_SOURCE {
            let problem = "is \"oncebox\", which is reserved for the events of Oncebox itself";
            return FieldError::of("source_system", problem);
        }
        if self.source_system.starts_with("in:") {
            let problem = "begins with \"in:\", which is reserved for providers";
            return FieldError::of("source_system", problem);
        }
        if let Some(parent) = &self.order.parent_id {
            check_length("parent_id", parent, 1, 36)?;
        }
        if self.order.parent_id.is_some() && self.order.parent_key.is_some() {
            let problem = "is given together with parent_id: give one of them";
            return FieldError::of("parent_key", problem);
        }
        if let Some(most) = self.max_attempts
            && !(1..=1000).contains(&most)
        {
            return FieldError::of("max_attempts", format!("is {most}; it must be 1 to 1000"));
        }
        self.headers.as_deref().map_or(Ok(()), check_headers)?;
        check_time("occurred_at", self.occurred_at)?;
        check_time("not_before", self.not_before)
    }
}

/// Checks an event's header fields.
pub fn check_headers(text: &str) -> Result<(), FieldError> {
    let wrong = |problem: String| FieldError::of("headers", problem);
    let bytes = text.len();
    if bytes > MAX_HEADERS_BYTES {
        return wrong(format!("has {bytes} bytes of JSON; it may have {MAX_HEADERS_BYTES}"));
    }
    let fields: BTreeMap<String, String> = match serde_json::from_str(text) {
        Ok(fields) => fields,
        Err(error) => return wrong(format!("is no JSON object of names to texts: {error}")),
    };
    for (name, value) in fields {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let fits = !name.is_empty() && name.bytes().all(is_name);
        if !fits || !value.chars().all(|c| matches!(c, ' '..='~')) {
            return wrong(format!(
                "has a field {name:?} that cannot be sent: its value is printable ASCII, its name has no blanks"
            ));
        }
    }
    Ok(())
}

/// Checks the form of a source system's name.
pub fn check_source_system(name: &str) -> Result<(), FieldError> {
    check_length("source_system", name, 1, EventField::SourceSystem.most_chars())?;
    check_printable_ascii("source_system", name)
}

/// The default source system of rows that plain SQL inserts.
pub const SQL_SOURCE: &str = "sql";

/// The source system of Oncebox's own events, such as `integration.failed`.
pub const OWN_SOURCE: &str = "oncebox";

/// The type of the request that tests a subscription.
pub const PING: &str = "oncebox.ping";

/// The type of an event that tells an alert channel of escalations.
pub const ALERT_TYPE: &str = "oncebox.alert";

/// Refuses a source system that HTTP callers may not use.
/// Fails with the reason, as a sentence without its full stop.
pub fn check_http_source(name: &str) -> Result<(), &'static str> {
    if name == SQL_SOURCE {
        return Err("source_system \"sql\" is reserved for rows that plain SQL inserts");
    }
    if name == OWN_SOURCE {
        return Err("source_system \"oncebox\" is reserved for the events of Oncebox itself");
    }
    if name.starts_with("in:") {
        return Err("a source_system that begins with \"in:\" is reserved for providers");
    }
    Ok(())
}

/// Refuses times with a wrong unit, and an ERP's placeholder for "never". Such an event would stay first or last in its
/// lane, or wait for years.
fn check_time(field: &'static str, at: Option<Timestamp>) -> Result<(), FieldError> {
    match at {
        Some(at) if !at.is_likely() => {
            FieldError::of(field, format!("is {at}; it must lie in the years 1973 to 2199"))
        }
        _ => Ok(()),
    }
}

fn check_length(
    field: &'static str,
    value: &str,
    least: usize,
    most: usize,
) -> Result<(), FieldError> {
    let have = value.chars().count();
    if (least..=most).contains(&have) {
        return Ok(());
    }
    FieldError::of(field, format!("has {have} characters; it must have {least} to {most}"))
}

fn check_printable_ascii(field: &'static str, value: &str) -> Result<(), FieldError> {
    match value.chars().find(|c| !matches!(c, ' '..='~')) {
        None => Ok(()),
        Some(bad) => {
            let problem = format!("contains {bad:?}; only printable ASCII characters are allowed");
            FieldError::of(field, problem)
        }
    }
}

/// An event, without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "service", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its row number; also the cursor of lists.
    #[serde(skip)]
    pub seq: i64,
    /// What it was stored with. `payload` is empty in lists.
    #[serde(flatten)]
    pub new: NewEvent,
    pub webhook_id: String,
    pub status: Status,
    pub open_deliveries: u32,
    /// How often it was published again.
    pub duplicate_count: u32,
    /// How often it was published again with other content.
    pub differing_count: u32,
    /// The latest error, unless it was completed.
    pub last_error: Option<String>,
    /// Why it is quarantined, or was before it was discarded, such as `bad_payload`.
    pub error_code: Option<String>,
    /// When it was completed.
    pub completed_at: Option<Timestamp>,
    /// When it was completed, skipped, cancelled or given up.
    pub finished_at: Option<Timestamp>,
    /// How many events name it as their parent with the binding `hard`.
    pub hard_children: u32,
    /// Its own deliveries are done, and a hard child is not: `GET /v1/events?parent_id=` lists them.
    pub waits_for_children: bool,
    /// The event that a person sent again as this new one.
    #[cfg_attr(feature = "service", schemars(with = "Option<crate::base::schema::Uuid>"))]
    pub replay_of: Option<String>,
    /// When its payload, what was sent of it and the answers were removed; null: they are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expunged_at: Option<Timestamp>,
    /// The month in whose archive it is, like `2026-11`; null while it is in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_in: Option<String>,
}

impl Event {
    /// Shows the event as `processing` if an attempt is under way. The file does not store that.
    pub fn see_in_flight(&mut self, seqs: &[i64]) {
        let may_be = matches!(self.status, Status::Pending | Status::Failed);
        if may_be && seqs.contains(&self.seq) {
            self.status = Status::Processing;
        }
    }
}

/// The trace id of a `traceparent` field (W3C Trace Context, section 3.2), which is passed on to the receiver; `None` if it
/// is not valid.
///
/// ```
/// use oncebox::model::event::trace_id;
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// assert_eq!(trace_id(header).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
/// assert_eq!(trace_id("00-00000000000000000000000000000000-00f067aa0ba902b7-01"), None);
/// ```
pub fn trace_id(traceparent: &str) -> Option<String> {
    parent(traceparent).map(|parent| parent.trace.to_owned())
}

/// The trace flags of a `traceparent` field, two hexadecimal digits; `None` if the field is not valid.
pub fn trace_flags(traceparent: &str) -> Option<&str> {
    parent(traceparent).map(|parent| parent.flags)
}

/// The span of a `traceparent` field, 16 hexadecimal digits; `None` if the field is not valid.
pub fn span_id(traceparent: &str) -> Option<&str> {
    parent(traceparent).map(|parent| parent.span)
}

/// Whether the flags of a trace say that its spans are recorded: the lowest bit (W3C Trace Context, section 3.2.2.5.1).
pub fn is_sampled(flags: &str) -> bool {
    u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1)
}

struct TraceParent<'t> {
    trace: &'t str,
    span: &'t str,
    flags: &'t str,
}

fn parent(text: &str) -> Option<TraceParent<'_>> {
    let mut parts = text.split('-');
    let version = parts.next()?;
    let trace = parts.next()?;
    let span = parts.next()?;
    let flags = parts.next()?;
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |text: &str, length| is_hex(text, length) && text.bytes().any(|b| b != b'0');
    // Only a later version may have more parts.
    let ends = version != "00" || parts.next().is_none();
    let is_valid = is_hex(version, 2)
        && version != "ff"
        && is_id(trace, 32)
        && is_id(span, 16)
        && is_hex(flags, 2);
    (is_valid && ends).then_some(TraceParent { trace, span, flags })
}

/// The fields of a trace that are kept with an event: `tracestate`, and `traceparent` if its flags are not those that
/// deliveries have anyway. None if the `traceparent` is not valid: a new trace begins.
pub fn trace_fields<'h>(
    field: impl Fn(&str) -> Option<&'h str>,
) -> impl Iterator<Item = (&'static str, &'h str)> {
    let own = field("traceparent");
    let flags = own.and_then(trace_flags);
    let parent = own.filter(|_| flags.is_some_and(|flags| flags != SAMPLED));
    let state = field("tracestate").filter(|text| flags.is_some() && is_trace_state(text));
    let kept = [parent.map(|text| ("traceparent", text)), state.map(|text| ("tracestate", text))];
    kept.into_iter().flatten()
}

/// The trace flags of a delivery whose event came without any: it is recorded.
pub const SAMPLED: &str = "01";

/// Whether a text can be sent on as `tracestate` (W3C Trace Context, section 3.3): 1 to 512 printable ASCII characters.
pub fn is_trace_state(text: &str) -> bool {
    (1..=512).contains(&text.len())
        && text.contains('=')
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_delivery_counts_more_than_a_done_one() {
        let counts =
            DeliveryCounts { open: 1, open_failed: 1, completed: 1, ..DeliveryCounts::default() };
        assert_eq!(derive(counts), Status::Failed);
    }

    #[test]
    fn an_event_with_some_deliveries_done_is_processing() {
        assert_eq!(
            derive(DeliveryCounts { open: 1, completed: 1, ..DeliveryCounts::default() }),
            Status::Processing
        );
        assert_eq!(
            derive(DeliveryCounts { open: 2, ..DeliveryCounts::default() }),
            Status::Pending
        );
    }

    #[test]
    fn a_trace_is_continued_only_where_its_parent_is_valid() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        for (text, flags) in [
            (format!("00-{trace}-{span}-01"), Some("01")),
            (format!("00-{trace}-{span}-00"), Some("00")),
            (format!("cc-{trace}-{span}-03-later"), Some("03")),
            (format!("00-{trace}-{span}-01-more"), None),
            (format!("00-{trace}-{span}"), None),
            (format!("00-{trace}-{span}-1"), None),
            (format!("00-{trace}-{span}-0G"), None),
            (format!("ff-{trace}-{span}-01"), None),
            (format!("0A-{trace}-{span}-01"), None),
            (format!("00-{}-{span}-01", trace.to_uppercase()), None),
            (format!("00-{trace}-0000000000000000-01"), None),
        ] {
            assert_eq!(trace_flags(&text), flags, "{text}");
            assert_eq!(trace_id(&text).is_some(), flags.is_some(), "{text}");
            let field = |name: &str| if name == "traceparent" { Some(&*text) } else { Some("a=1") };
            let kept: Vec<&str> = trace_fields(field).map(|(name, _)| name).collect();
            let all: &[&str] = match flags {
                None => &[],
                Some("01") => &["tracestate"],
                Some(_) => &["traceparent", "tracestate"],
            };
            assert_eq!(kept, all, "{text}");
        }
    }

    #[test]
    fn cancelled_needs_all_to_be_cancelled() {
        assert_eq!(
            derive(DeliveryCounts { cancelled: 2, ..DeliveryCounts::default() }),
            Status::Cancelled
        );
        assert_eq!(
            derive(DeliveryCounts { cancelled: 1, skipped: 1, ..DeliveryCounts::default() }),
            Status::Skipped
        );
    }

    #[test]
    fn a_parent_follows_its_hard_children_once_its_own_deliveries_are_done() {
        use Status::{Cancelled, Completed, DeadLetter, Failed, Pending, Processing, Skipped};
        let children = |letters: &str| HardChildren {
            any_open: letters.contains('o'),
            any_dead: letters.contains('d'),
            any_completed: letters.contains('c'),
        };
        for (alone, letters, status) in [
            // Children that are all cancelled or skipped count as done.
            (Completed, "", Completed),
            (Completed, "c", Completed),
            (Completed, "o", Processing),
            (Completed, "oc", Processing),
            (Completed, "d", DeadLetter),
            (Completed, "ocd", DeadLetter),
            // Nobody wanted the parent itself.
            (Skipped, "", Skipped),
            (Skipped, "c", Completed),
            (Skipped, "o", Processing),
            (Skipped, "cd", DeadLetter),
            // Its own deliveries decide.
            (Pending, "cd", Pending),
            (Failed, "d", Failed),
            (Processing, "d", Processing),
            (DeadLetter, "oc", DeadLetter),
            (Cancelled, "ocd", Cancelled),
        ] {
            assert_eq!(with_children(alone, children(letters)), status, "{alone} with {letters:?}");
        }
    }
}

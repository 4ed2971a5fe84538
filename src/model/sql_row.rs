//! A row that plain SQL inserted into the outbox, and whether it is a valid event.
//!
//! The schema's CHECKs refuse a wrong structure during the insert. Everything else is checked here, after the commit: a
//! valid row becomes a [`NewEvent`], any other is quarantined with its first [`Defect`]. No column is trusted: a text
//! may not be UTF-8, and a time may be out of range.
//!
//! Not here: checks that read other rows, such as whether tenant and parent exist (`store::sql_rows`).

use crate::base::clock::Timestamp;
use crate::base::text::without_mark;
use crate::base::words::words;
use crate::model::event::{self, EventOrder, NewEvent, check_headers};
use crate::model::event_field::EventField;
use crate::model::json;
use crate::model::sealed::Sealed;

/// Most bytes of a value that a reason shows.
const MAX_SHOWN_BYTES: usize = 64;

words! {
    /// The columns that hold text, in the order in which they are read and written.
    pub enum Column {
        /// `id`
        Id = "id",
        /// `tenant`
        Tenant = "tenant",
        /// `source_system`
        SourceSystem = "source_system",
        /// `idempotency_key`
        IdempotencyKey = "idempotency_key",
        /// `event_type`
        EventType = "event_type",
        /// `aggregate_type`
        AggregateType = "aggregate_type",
        /// `aggregate_id`
        AggregateId = "aggregate_id",
        /// `target`
        Target = "target",
        /// `content_type`
        ContentType = "content_type",
        /// `headers`
        Headers = "headers",
        /// `ordering_key`
        OrderingKey = "ordering_key",
        /// `funnel_point`
        FunnelPoint = "funnel_point",
        /// `funnel_value`
        FunnelValue = "funnel_value",
        /// `process_id`
        ProcessId = "process_id",
        /// `trace_id`
        TraceId = "trace_id",
        /// `custom_data`
        CustomData = "custom_data",
        /// `entity_type`
        EntityType = "entity_type",
    }
}

impl Column {
    /// The largest number of its characters.
    fn most_chars(self) -> usize {
        match self {
            Self::Id => 36,
            Self::Tenant => 63,
            // A whole `traceparent` is read as well.
            Self::TraceId => 55,
            _ => EventField::parse(self.as_str()).map_or(255, EventField::most_chars),
        }
    }

    /// Whether it is part of the event's unique key.
    const fn is_identity(self) -> bool {
        matches!(self, Self::Tenant | Self::SourceSystem | Self::IdempotencyKey)
    }
}

/// The payload, unless it is too large to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The whole payload; a number as its digits.
    Bytes(Vec<u8>),
    /// Its size in bytes, which is too large.
    TooLarge(u64),
}

/// A row as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlRow {
    /// Its number.
    pub seq: i64,
    /// Its text columns as raw bytes, in the order of [`Column::ALL`].
    pub texts: [Option<Vec<u8>>; 17],
    /// Its payload.
    pub payload: Payload,
    /// The payload's own row, if it has one.
    pub payload_seq: Option<i64>,
    /// When it happened, by the source.
    pub occurred_at: Option<i64>,
    /// When it was inserted.
    pub received_at: i64,
    /// It is not sent before this time.
    pub not_before: Option<i64>,
    /// The parent event.
    pub parent_seq: Option<i64>,
    /// Whether events name it as their parent with the binding `hard`.
    pub has_children: bool,
    /// Whether it asks for its lane, and whether dead letters ahead of it are left out.
    pub is_ordered: (bool, bool),
    /// Counted attempts until it is given up.
    pub max_attempts: Option<i64>,
    /// Whether Oncebox stored it itself, after it had applied the privacy policies.
    pub own: bool,
    /// How many values in its payload are sealed.
    pub sealed_fields: u32,
}

/// Why a row cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// One word for programs; kept in `error_code`.
    pub code: &'static str,
    /// What is wrong and what would be right; kept in `last_error`.
    pub reason: String,
}

impl Defect {
    /// Makes a defect.
    pub fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

impl SqlRow {
    /// The bytes of a text column.
    pub fn bytes(&self, column: Column) -> Option<&[u8]> {
        let mut both = Column::ALL.iter().zip(&self.texts);
        both.find(|(each, _)| **each == column).and_then(|(_, bytes)| bytes.as_deref())
    }

    /// Replaces the text of a column.
    pub fn set(&mut self, column: Column, text: Option<String>) {
        let mut both = Column::ALL.iter().zip(&mut self.texts);
        if let Some((_, bytes)) = both.find(|(each, _)| **each == column) {
            *bytes = text.map(String::into_bytes);
        }
    }

    /// The text of a column; invalid UTF-8 is replaced.
    pub fn text(&self, column: Column) -> Option<String> {
        self.bytes(column).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn required(&self, column: Column) -> String {
        self.text(column).unwrap_or_default()
    }

    /// The event, if every column is valid.
    pub fn check(&self, max_payload_bytes: u64) -> Result<NewEvent, Defect> {
        self.check_texts()?;
        let event = NewEvent {
            id: self.required(Column::Id),
            tenant: self.required(Column::Tenant),
            source_system: self.required(Column::SourceSystem),
            idempotency_key: self.required(Column::IdempotencyKey),
            event_type: self.required(Column::EventType),
            aggregate_type: self.text(Column::AggregateType),
            aggregate_id: self.text(Column::AggregateId),
            target: self.text(Column::Target),
            payload: Vec::new(),
            content_type: self.required(Column::ContentType),
            headers: self.text(Column::Headers),
            occurred_at: time("occurred_at", self.occurred_at)?,
            received_at: time("received_at", Some(self.received_at))?.unwrap_or_default(),
            not_before: time("not_before", self.not_before)?,
            ordering_key: self.text(Column::OrderingKey),
            order: EventOrder {
                guaranteed: self.is_ordered.0,
                exclude_failed: self.is_ordered.1,
                funnel_point: self.text(Column::FunnelPoint),
                funnel_value: self.text(Column::FunnelValue),
                entity_type: self.text(Column::EntityType),
                // It is in `parent_seq` already.
                ..EventOrder::default()
            },
            process_id: self.text(Column::ProcessId),
            trace_id: self.text(Column::TraceId).map(|text| trace_id(&text)).transpose()?,
            max_attempts: self.max_attempts.and_then(|most| u32::try_from(most).ok()),
            custom_data: self.text(Column::CustomData),
            sealed: Sealed { fields: self.sealed_fields, key: None },
        };
        event.check().map_err(|error| Defect::new("bad_field", error.to_string()))?;
        let payload = self.usable_payload(&event.content_type, max_payload_bytes)?;
        Ok(NewEvent { payload, ..event })
    }

    /// Checks the text columns.
    fn check_texts(&self) -> Result<(), Defect> {
        for (column, bytes) in Column::ALL.iter().zip(&self.texts) {
            let Some(bytes) = bytes else { continue };
            let json = without_mark(bytes);
            let text = std::str::from_utf8(json).map_err(|error| {
                let reason = format!(
                    "{column} is not UTF-8 from byte {} on (hex {:?})",
                    error.valid_up_to(),
                    hex(bytes)
                );
                Defect::new("invalid_utf8", reason)
            })?;
            let have = text.chars().count();
            let most = column.most_chars();
            if have > most {
                let reason = format!("{column} has {have} characters; it may have {most}");
                return Err(Defect::new("bad_field", reason));
            }
        }
        let id = self.required(Column::Id);
        if !is_uuid(&id) {
            let reason = format!(
                "id was {id:?}; leave it out, or give a UUID in lower case such as \
                 01916f3a-5c1e-7000-8000-000000000001"
            );
            return Err(Defect::new("bad_id", reason));
        }
        let headers = check_headers(&self.required(Column::Headers));
        headers.map_err(|error| Defect::new("bad_headers", error.to_string()))
    }

    fn usable_payload(&self, content_type: &str, most: u64) -> Result<Vec<u8>, Defect> {
        let too_large = |have: u64| {
            let reason = format!("payload has {have} bytes; it may have {most}");
            Defect::new("payload_too_large", reason)
        };
        let bytes = match &self.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::TooLarge(have) => return Err(too_large(*have)),
        };
        let have = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if have > most {
            return Err(too_large(have));
        }
        if content_type.contains("json") {
            if !json::is_shallow(bytes) {
                let reason = format!("payload is nested deeper than {}", json::MAX_DEPTH);
                return Err(Defect::new("payload_too_deep", reason));
            }
            let not_json = |why: String| {
                let reason = format!(
                    "payload is not JSON, although content_type is {content_type:?}: {why}"
                );
                Defect::new("bad_payload", reason)
            };
            let text = std::str::from_utf8(bytes).map_err(|error| not_json(error.to_string()))?;
            let read = serde_json::from_str::<serde::de::IgnoredAny>(text);
            read.map_err(|error| not_json(error.to_string()))?;
        }
        Ok(bytes.clone())
    }

    /// The row of a quarantined event, changed so that it can be read and shown. Text becomes UTF-8 and is cut, invalid
    /// times are removed, and a key that was not UTF-8 becomes unique with `fresh`, a new UUIDv7. The defect's reason
    /// has the original value.
    #[must_use]
    pub fn presentable(&self, fresh: &str, now: Timestamp) -> Self {
        let mut row = self.clone();
        let mut is_identity_lost = false;
        for (column, bytes) in Column::ALL.iter().zip(&mut row.texts) {
            let Some(raw) = bytes else { continue };
            if std::str::from_utf8(raw).is_ok() {
                continue;
            }
            is_identity_lost |= column.is_identity();
            *raw = String::from_utf8_lossy(raw)
                .chars()
                .take(column.most_chars())
                .collect::<String>()
                .into_bytes();
        }
        if is_identity_lost {
            row.set(Column::IdempotencyKey, Some(format!("unusable-{fresh}")));
        }
        if !is_uuid(&row.required(Column::Id)) {
            row.set(Column::Id, Some(fresh.to_owned()));
        }
        row.occurred_at = row.occurred_at.filter(|ms| is_time(*ms));
        row.not_before = row.not_before.filter(|ms| is_time(*ms));
        if !is_time(row.received_at) {
            row.received_at = now.ms();
        }
        row
    }
}

fn is_time(ms: i64) -> bool {
    Timestamp::from_ms(ms).is_likely()
}

fn time(column: &str, ms: Option<i64>) -> Result<Option<Timestamp>, Defect> {
    match ms {
        Some(ms) if !is_time(ms) => {
            let reason = format!(
                "{column} was {ms}; it is the number of milliseconds since 1970 in UTC, from 1973 to 2199"
            );
            Err(Defect::new("bad_time", reason))
        }
        ms => Ok(ms.map(Timestamp::from_ms)),
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(n, byte)| match n {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// Reads a trace id or a whole `traceparent`.
fn trace_id(text: &str) -> Result<String, Defect> {
    let whole = if text.len() == 32 {
        format!("00-{text}-{}1-01", "0".repeat(15))
    } else {
        text.to_owned()
    };
    event::trace_id(&whole).ok_or_else(|| {
        let reason = format!(
            "trace_id is {text:?}; it is 32 digits of 0-9 and a-f, or a whole W3C traceparent"
        );
        Defect::new("bad_field", reason)
    })
}

fn hex(bytes: &[u8]) -> String {
    let shown = data_encoding::HEXLOWER.encode(bytes.get(..MAX_SHOWN_BYTES).unwrap_or(bytes));
    if bytes.len() > MAX_SHOWN_BYTES { format!("{shown}…") } else { shown }
}

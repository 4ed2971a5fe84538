//! A row of a source as cells by field, and its conversion to a [`NewEvent`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256, digest};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::databases::frame::MOST_VALUE_LETTERS;
use crate::model::event::{self, Binding, EventOrder, FieldError, NewEvent};
use crate::model::event_field::EventField;
use crate::model::json;
use crate::model::sealed::Sealed;
use crate::sources::cell::Cell;

/// The largest number read as seconds (up to the year 5138); a larger one counts milliseconds.
const MAX_SECONDS: u64 = 100_000_000_000;
/// The type of a quarantined event without a usable type.
const TYPE_UNUSABLE: &str = "unusable";
/// From 2 to the power of 53 on, several whole numbers share one floating-point number.
const REAL_EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
/// The longest key that is stored unchanged.
const MAX_KEY_BYTES: usize = 255;

/// A row as read from its source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    cells: Vec<(EventField, Cell)>,
}

/// The parts of an event that are not in its row.
#[derive(Clone, Debug)]
pub struct RowContext<'a> {
    /// A fresh UUIDv7.
    pub id: String,
    /// The source's tenant.
    pub tenant: &'a str,
    /// The source's name.
    pub source: &'a str,
    /// The key to use if the row has none.
    pub key: String,
    /// When it was read.
    pub received_at: Timestamp,
    /// Values for fields that the row does not have.
    pub defaults: &'a BTreeMap<EventField, String>,
    /// The largest payload that is accepted.
    pub payload_bytes_max: usize,
}

impl Draft {
    /// Adds the value of a field.
    pub fn put(&mut self, field: EventField, cell: Cell) {
        self.cells.push((field, cell));
    }

    /// The value of a field.
    pub fn get(&self, field: EventField) -> Option<&Cell> {
        self.cells.iter().find(|(have, _)| *have == field).map(|(_, cell)| cell)
    }

    /// Its approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let size = |cell: &Cell| match cell {
            Cell::Text(text) => text.len(),
            Cell::Bytes(bytes) => bytes.len(),
            Cell::Integer(_) | Cell::Real(_) | Cell::TooLarge(_) => 8,
        };
        self.cells.iter().map(|(_, cell)| size(cell)).sum()
    }

    /// The size of its payload, if the payload was too large to be read.
    pub fn unread_payload(&self) -> Option<u64> {
        match self.get(EventField::Payload) {
            Some(Cell::TooLarge(bytes)) => Some(*bytes),
            _ => None,
        }
    }

    /// Distinguishes it from another event's row with the same id: SHA-256 over its type and its payload as stored
    /// there, in hex. Other fields are not included, because which of them are read depends on columns and settings.
    /// A missing value and an empty one give the same fingerprint.
    pub fn fingerprint(&self) -> String {
        let mut hash = Context::new(&SHA256);
        for field in EventField::OF_FINGERPRINT {
            let (kind, bytes) = match self.get(field) {
                Some(Cell::TooLarge(bytes)) => (b'l', bytes.to_le_bytes().to_vec().into()),
                cell => (b'b', cell.map(Cell::raw).unwrap_or_default()),
            };
            hash.update(&[kind]);
            hash.update(&bytes.len().to_le_bytes());
            hash.update(&bytes);
        }
        HEXLOWER.encode(hash.finish().as_ref())
    }

    /// Converts the row to an event; fails on the first field that cannot be used.
    pub fn event(&self, facts: &RowContext<'_>) -> Result<NewEvent, FieldError> {
        let text = |field: EventField| self.text(field, facts);
        let content_type =
            text(EventField::ContentType)?.unwrap_or_else(|| "application/json".to_owned());
        let event = NewEvent {
            sealed: Sealed::default(),
            id: facts.id.clone(),
            tenant: facts.tenant.to_owned(),
            source_system: text(EventField::SourceSystem)?
                .unwrap_or_else(|| facts.source.to_owned()),
            idempotency_key: text(EventField::IdempotencyKey)?
                .map_or_else(|| facts.key.clone(), short_key),
            event_type: text(EventField::EventType)?.ok_or_else(|| {
                wrong(EventField::EventType, "is missing: give it a column, or a default")
            })?,
            aggregate_type: text(EventField::AggregateType)?,
            aggregate_id: text(EventField::AggregateId)?,
            target: text(EventField::Target)?,
            payload: self.payload(facts, &content_type)?,
            content_type,
            headers: text(EventField::Headers)?,
            occurred_at: self.time(EventField::OccurredAt)?,
            received_at: facts.received_at,
            not_before: self.time(EventField::NotBefore)?,
            ordering_key: text(EventField::OrderingKey)?,
            order: EventOrder {
                guaranteed: self.flag(EventField::GuaranteedOrder, facts)?,
                exclude_failed: self.flag(EventField::ExcludeFailed, facts)?,
                funnel_point: text(EventField::FunnelPoint)?,
                funnel_value: text(EventField::FunnelValue)?,
                entity_type: text(EventField::EntityType)?,
                parent_id: None,
                parent_key: text(EventField::ParentKey)?.map(short_key),
                parent_binding: text(EventField::ParentBinding)?
                    .map(|text| binding(&text))
                    .transpose()?,
            },
            process_id: text(EventField::ProcessId)?,
            trace_id: text(EventField::Headers)?.map(|text| trace_id(&text)).transpose()?.flatten(),
            max_attempts: text(EventField::MaxAttempts)?.map(|text| attempts(&text)).transpose()?,
            custom_data: text(EventField::CustomData)?,
        };
        event.check()?;
        Ok(event)
    }

    fn flag(&self, field: EventField, facts: &RowContext<'_>) -> Result<bool, FieldError> {
        match self.text(field, facts)?.as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(other) => Err(wrong(field, format!("is {other:?}; it is true or false, 1 or 0"))),
        }
    }

    /// The quarantined event for a row that cannot be used: the usable fields, under the row's own key.
    pub fn unusable(&self, facts: &RowContext<'_>) -> NewEvent {
        let text = |field: EventField| self.text(field, facts).ok().flatten();
        let payload = self.raw_payload().filter(|raw| raw.len() <= facts.payload_bytes_max);
        let mut event = NewEvent {
            id: facts.id.clone(),
            tenant: facts.tenant.to_owned(),
            source_system: facts.source.to_owned(),
            idempotency_key: text(EventField::IdempotencyKey)
                .map_or_else(|| facts.key.clone(), short_key),
            event_type: text(EventField::EventType).unwrap_or_else(|| TYPE_UNUSABLE.to_owned()),
            aggregate_type: text(EventField::AggregateType),
            aggregate_id: text(EventField::AggregateId),
            payload: payload.unwrap_or_default().into_owned(),
            content_type: "application/octet-stream".to_owned(),
            occurred_at: self.time(EventField::OccurredAt).ok().flatten(),
            received_at: facts.received_at,
            ..NewEvent::default()
        };
        if event.check().is_err() {
            TYPE_UNUSABLE.clone_into(&mut event.event_type);
            (event.aggregate_type, event.aggregate_id) = (None, None);
        }
        event
    }

    fn text(
        &self,
        field: EventField,
        facts: &RowContext<'_>,
    ) -> Result<Option<String>, FieldError> {
        let own = self.get(field).map(|cell| match cell {
            Cell::Real(n) if field.is_identifier() => exact(*n).map(Some),
            cell => cell.text(),
        });
        let own = own.transpose().map_err(|why| wrong(field, why))?;
        Ok(own.flatten().or_else(|| facts.defaults.get(&field).cloned()))
    }

    fn raw_payload(&self) -> Option<Cow<'_, [u8]>> {
        self.get(EventField::Payload).map(Cell::raw)
    }

    fn payload(&self, facts: &RowContext<'_>, content_type: &str) -> Result<Vec<u8>, FieldError> {
        let too_large = |bytes: u64, most: usize| {
            wrong(EventField::Payload, format!("has {bytes} bytes; at most {most} are accepted"))
        };
        if let Some(Cell::TooLarge(bytes)) = self.get(EventField::Payload) {
            // What is within the settings was too large for a connection to a database.
            let is_accepted = usize::try_from(*bytes).is_ok_and(|n| n <= facts.payload_bytes_max);
            let most = if is_accepted { MOST_VALUE_LETTERS } else { facts.payload_bytes_max };
            return Err(too_large(*bytes, most));
        }
        let payload = self.raw_payload().ok_or_else(|| wrong(EventField::Payload, "is missing"))?;
        if payload.len() > facts.payload_bytes_max {
            let bytes = u64::try_from(payload.len()).unwrap_or(u64::MAX);
            return Err(too_large(bytes, facts.payload_bytes_max));
        }
        if content_type.contains("json") {
            if !json::is_shallow(&payload) {
                let problem = format!("is nested deeper than {}", json::MAX_DEPTH);
                return Err(wrong(EventField::Payload, problem));
            }
            let read = serde_json::from_slice::<IgnoredAny>(&payload);
            read.map_err(|error| wrong(EventField::Payload, format!("is not JSON: {error}")))?;
        }
        Ok(payload.into_owned())
    }

    fn time(&self, field: EventField) -> Result<Option<Timestamp>, FieldError> {
        let text = self.get(field).map(Cell::text).transpose().map_err(|why| wrong(field, why))?;
        let Some(text) = text.flatten() else { return Ok(None) };
        let at = read_time(&text).filter(|at| at.is_likely());
        at.map(Some).ok_or_else(|| no_time(field, &text))
    }
}

fn wrong(field: EventField, problem: impl Into<String>) -> FieldError {
    FieldError { field: field.as_str(), problem: problem.into() }
}

/// The error of a field as text, with the field's name in the source if that differs.
pub fn describe(error: &FieldError, names: &BTreeMap<EventField, String>) -> String {
    let FieldError { field, problem } = error;
    match names.iter().find(|(named, _)| named.as_str() == *field) {
        Some((_, name)) if name != field => format!("{field} (here {name:?}) {problem}"),
        _ => error.to_string(),
    }
}

fn no_time(field: EventField, text: &str) -> FieldError {
    let text: String = text.chars().take(40).collect();
    wrong(
        field,
        format!(
            "is {text:?}, which is not a time from 1973 to 2199: give 2026-01-31T12:00:00Z, \
             2026-01-31 12:00:00 (UTC), or whole seconds or milliseconds since 1970"
        ),
    )
}

/// A floating-point number as an identifier; refused unless it is a whole number that no other one is rounded to.
fn exact(n: f64) -> Result<String, String> {
    if n.fract() == 0.0 && n.abs() < REAL_EXACT_BELOW {
        // Without the sign of a negative zero.
        return Ok((n + 0.0).to_string());
    }
    Err(format!(
        "is {n:?}, a floating-point number (REAL), and other numbers may have been rounded to it. \
         Use text or whole numbers in this column"
    ))
}

/// Reads a time in the usual forms of databases and files.
pub(super) fn read_time(text: &str) -> Option<Timestamp> {
    if let Ok(n) = text.parse::<i64>() {
        let of =
            if n.unsigned_abs() <= MAX_SECONDS { Timestamp::from_secs } else { Timestamp::from_ms };
        return Some(of(n));
    }
    if let Some(ms) = json_date(text) {
        return Some(ms);
    }
    let spaced = |text: &str| Timestamp::parse(&format!("{}Z", text.replacen(' ', "T", 1)));
    Timestamp::parse(text).or_else(|| spaced(text))
}

/// The time of `/Date(1518685950940+0000)/`, as ASP.NET writes it: milliseconds since 1970 in UTC, whatever its offset is.
fn json_date(text: &str) -> Option<Timestamp> {
    let inside = text.strip_prefix("/Date(")?.strip_suffix(")/")?;
    let end = inside.get(1..)?.find(['+', '-']).map_or(inside.len(), |at| at.saturating_add(1));
    inside.get(..end)?.parse().ok().map(Timestamp::from_ms)
}

/// A key as stored: a key that is too long, or not printable ASCII, is replaced by its SHA-256.
fn short_key(key: String) -> String {
    if key.len() <= MAX_KEY_BYTES && key.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return key;
    }
    format!("sha256:{}", HEXLOWER.encode(digest(&SHA256, key.as_bytes()).as_ref()))
}

fn binding(text: &str) -> Result<Binding, FieldError> {
    let found = Binding::parse(&text.to_ascii_lowercase());
    found
        .ok_or_else(|| wrong(EventField::ParentBinding, format!("is {text:?}; it is hard or soft")))
}

fn attempts(text: &str) -> Result<u32, FieldError> {
    text.parse().map_err(|_no| wrong(EventField::MaxAttempts, format!("is {text:?}, not a number")))
}

fn trace_id(text: &str) -> Result<Option<String>, FieldError> {
    let Ok(Value::Object(headers)) = serde_json::from_str(text) else {
        return Err(wrong(EventField::Headers, "is not a JSON object"));
    };
    let parent = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
    Ok(parent.and_then(|(_, value)| value.as_str()).and_then(event::trace_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(cells: &[(EventField, Cell)]) -> Draft {
        Draft { cells: cells.to_vec() }
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    fn with<T>(run: impl FnOnce(&RowContext<'_>) -> T) -> T {
        let facts = RowContext {
            id: "id".to_owned(),
            tenant: "default",
            source: "erp",
            key: "7-abc".to_owned(),
            received_at: Timestamp::from_secs(1),
            defaults: &BTreeMap::new(),
            payload_bytes_max: 1000,
        };
        run(&facts)
    }

    #[test]
    fn a_row_becomes_an_event() {
        let row = draft(&[
            (EventField::EventType, text("invoice.created")),
            (EventField::Payload, text(r#"{"total":"99.00"}"#)),
            (EventField::AggregateId, Cell::Integer(4711)),
            (EventField::OccurredAt, text("2026-01-31 12:00:00")),
            (EventField::OrderingKey, text("")),
        ]);
        let event = with(|facts| row.event(facts)).unwrap();
        assert_eq!(
            (event.source_system.as_str(), event.idempotency_key.as_str()),
            ("erp", "7-abc")
        );
        assert_eq!(event.aggregate_id.as_deref(), Some("4711"));
        assert_eq!(event.occurred_at, Timestamp::parse("2026-01-31T12:00:00Z"));
        assert_eq!(event.ordering_key, None);
        assert_eq!(event.payload, br#"{"total":"99.00"}"#);
    }

    #[test]
    fn an_unusable_row_is_refused_with_the_reason_and_can_be_quarantined() {
        let payload = (EventField::Payload, text("{}"));
        let kind = (EventField::EventType, text("a"));
        let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
        for (cells, why) in [
            (vec![payload.clone()], "event_type is missing"),
            (vec![kind.clone()], "payload is missing"),
            (vec![kind.clone(), (EventField::Payload, text("{"))], "payload is not JSON"),
            (
                vec![kind.clone(), (EventField::Payload, Cell::Bytes(vec![0xff]))],
                "payload is not JSON",
            ),
            (vec![kind.clone(), (EventField::Payload, Cell::TooLarge(1001))], "has 1001 bytes"),
            (vec![kind.clone(), (EventField::Payload, text(&deep))], "nested deeper than 128"),
            (
                vec![(EventField::EventType, Cell::Bytes(vec![0xff])), payload.clone()],
                "not text in UTF-8",
            ),
            (
                vec![kind.clone(), payload.clone(), (EventField::OccurredAt, text("soon"))],
                "not a time",
            ),
            (
                vec![kind.clone(), payload.clone(), (EventField::Headers, text("[]"))],
                "not a JSON object",
            ),
            (
                vec![kind.clone(), payload.clone(), (EventField::MaxAttempts, text("x"))],
                "not a number",
            ),
            (vec![kind, payload, (EventField::Target, text(&"x".repeat(64)))], "has 64 characters"),
        ] {
            let row = draft(&cells);
            let error = with(|facts| row.event(facts)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            with(|facts| row.unusable(facts)).check().unwrap();
        }
    }

    #[test]
    fn a_floating_point_number_is_an_identifier_only_if_it_is_whole_and_exact() {
        let row = |field, n| {
            let cells = [(EventField::EventType, text("a")), (EventField::Payload, text("{}"))];
            let mut row = draft(&cells);
            row.put(field, Cell::Real(n));
            with(|facts| row.event(facts))
        };
        for (n, key) in [(1e3, "1000"), (-0.0, "0"), (0.0, "0"), (-7.0, "-7")] {
            assert_eq!(row(EventField::IdempotencyKey, n).unwrap().idempotency_key, key);
        }
        for n in [2.026_112_112_345_6e19, 9_007_199_254_740_992.0, 1.5, f64::INFINITY] {
            for field in
                [EventField::IdempotencyKey, EventField::AggregateId, EventField::OrderingKey]
            {
                let why = row(field, n).unwrap_err().to_string();
                assert!(why.contains("(REAL)") && why.starts_with(field.as_str()), "{why}");
            }
        }
        assert_eq!(row(EventField::CustomData, 1.5).unwrap().custom_data.as_deref(), Some("1.5"));
    }

    #[test]
    fn times_are_read_as_databases_write_them() {
        let at = Timestamp::parse("2026-01-31T12:00:00Z").unwrap();
        for given in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T13:00:00+01:00",
            "2026-01-31 12:00:00",
            "1769860800",
            "1769860800000",
        ] {
            assert_eq!(read_time(given), Some(at), "{given}");
        }
        assert_eq!(read_time("31.01.2026"), None);
        for given in
            ["/Date(1769860800000+0000)/", "/Date(1769860800000)/", "/Date(1769860800000+1300)/"]
        {
            assert_eq!(read_time(given), Some(at), "{given}");
        }
        assert_eq!(read_time("/Date(-1000+0000)/"), Some(Timestamp::from_ms(-1000)));
        for odd in ["/Date()/", "/Date(x)/", "/Date(+)/", "/Date(1"] {
            assert_eq!(read_time(odd), None, "{odd}");
        }
    }

    #[test]
    fn an_invalid_time_is_reported_with_its_column_its_value_and_the_units() {
        let row = |cell: &Cell| {
            draft(&[
                (EventField::EventType, text("a")),
                (EventField::Payload, text("{}")),
                (EventField::NotBefore, cell.clone()),
            ])
        };
        let odd = [
            // Microseconds, nanoseconds, days, a date as a number, and the limits of integers.
            Cell::Integer(1_763_728_496_000_000),
            Cell::Integer(1_763_728_496_000_000_000),
            Cell::Integer(20_000),
            Cell::Integer(20_260_131),
            Cell::Integer(0),
            Cell::Integer(i64::MIN),
            Cell::Integer(i64::MAX),
            Cell::Integer(100_000_000_000),
            Cell::Real(1_769_860_800.5),
            text("1763728496000000"),
            text("9999-12-31 00:00:00"),
            text("1900-01-01T00:00:00Z"),
        ];
        for cell in &odd {
            let error = with(|facts| row(cell).event(facts)).unwrap_err();
            let names = BTreeMap::from([(EventField::NotBefore, "start".to_owned())]);
            let why = describe(&error, &names);
            let value = cell.text().unwrap().unwrap();
            let expected = format!("not_before (here \"start\") is {value:?}, which is not a time");
            assert!(why.starts_with(&expected), "{why}");
            assert!(why.contains("whole seconds or milliseconds since 1970"), "{why}");
            with(|facts| row(cell).unusable(facts)).check().unwrap();
        }
        for good in [Cell::Integer(1_769_860_800), Cell::Real(1_769_860_800_000.0)] {
            let event = with(|facts| row(&good).event(facts)).unwrap();
            assert_eq!(event.not_before, Timestamp::parse("2026-01-31T12:00:00Z"));
        }
    }

    #[test]
    fn a_key_that_does_not_fit_is_stored_as_its_hash() {
        assert_eq!(short_key("RE-4711".to_owned()), "RE-4711");
        for odd in ["Größe".to_owned(), "x".repeat(256)] {
            assert_eq!(short_key(odd).len(), 71);
        }
    }

    #[test]
    fn another_type_or_payload_has_another_fingerprint() {
        let rows = [
            draft(&[]),
            draft(&[(EventField::Payload, text("1"))]),
            draft(&[(EventField::Payload, text("2"))]),
            draft(&[(EventField::EventType, text("1"))]),
            draft(&[(EventField::EventType, text("1")), (EventField::Payload, text("1"))]),
            draft(&[(EventField::EventType, text("11"))]),
            draft(&[(EventField::Payload, Cell::TooLarge(1))]),
        ];
        let all: std::collections::BTreeSet<_> = rows.iter().map(Draft::fingerprint).collect();
        assert_eq!(all.len(), rows.len());
    }

    #[test]
    fn a_fingerprint_does_not_depend_on_other_fields() {
        let row = [(EventField::EventType, text("a")), (EventField::Payload, text("1"))];
        let same = draft(&row).fingerprint();
        for more in EventField::ALL.into_iter().filter(|f| !EventField::OF_FINGERPRINT.contains(f))
        {
            let mut row = row.to_vec();
            row.insert(0, (more, text("x")));
            assert_eq!(draft(&row).fingerprint(), same, "{more:?}");
        }
        // A table that was created anew may store the same bytes with another type.
        for payload in [Cell::Integer(1), Cell::Bytes(b"1".to_vec())] {
            let row = [row[0].clone(), (EventField::Payload, payload)];
            assert_eq!(draft(&row).fingerprint(), same);
        }
        let empty = draft(&[(EventField::EventType, text("")), (EventField::Payload, text("1"))]);
        assert_eq!(empty.fingerprint(), draft(&[(EventField::Payload, text("1"))]).fingerprint());
    }
}

//! Conversions between columns and values: times, numbers, words, JSON.

use std::time::Duration;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql};

use crate::base::clock::{SureNow, Timestamp, millis};
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::model::name::Name;
use crate::model::provider::PublicUrl;
use crate::model::subscription::Source;
use crate::model::{
    credential, delivery, escalation, event, external_call, format, health_probe, hold, lane,
    outcome, subscription, token, webhook_event,
};
use crate::privacy::policy::Pii;
use crate::store::error::{Error, Result, Unknown};

/// Columns of numbers: how one is made of a value, and a value of one.
macro_rules! numbers {
    ($($type:ty: $read:expr, $write:expr;)+) => {$(
        impl ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::from($write(self)))
            }
        }

        impl FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map($read)
            }
        }
    )+};
}

numbers! {
    Timestamp: Self::from_ms, |time: &Self| time.ms();
    DeliverySeq: Self, |seq: &Self| seq.0;
    SubscriptionSeq: Self, |seq: &Self| seq.0;
    Millis: |ms: i64| Self(Duration::from_millis(ms.unsigned_abs())), |span: &Self| millis(span.0);
}

// A time that is known for sure is written, never read: what the file has may be wrong.
impl ToSql for SureNow {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.at().ms()))
    }
}

/// Columns of text: how a value is parsed, and written. Without these, `parse` and `as_str` are called.
macro_rules! words {
    ($($type:ty $(: $parse:expr, $write:expr)?;)+) => {$(
        impl rusqlite::ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                let write = $crate::store::column::words!(@write $type $(, $write)?);
                Ok(rusqlite::types::ToSqlOutput::from(write(self)))
            }
        }

        impl rusqlite::types::FromSql for $type {
            fn column_result(
                value: rusqlite::types::ValueRef<'_>,
            ) -> rusqlite::types::FromSqlResult<Self> {
                $crate::store::column::parsed(
                    value,
                    $crate::store::column::words!(@parse $type $(, $parse)?),
                )
            }
        }
    )+};
    (@write $type:ty) => { |word: &Self| word.as_str() };
    (@write $type:ty, $write:expr) => { $write };
    (@parse $type:ty) => { <$type>::parse };
    (@parse $type:ty, $parse:expr) => { $parse };
}
pub(crate) use words;

words! {
    credential::CredentialKind;
    credential::CredentialState;
    delivery::DeliveryState;
    escalation::Class;
    event::Binding;
    event::Status;
    external_call::CallState;
    format::Format;
    health_probe::HealthState;
    hold::HoldReason;
    lane::Ordering;
    outcome::AttemptClass;
    subscription::CallMethod;
    subscription::SubscriptionState;
    token::Role;
    webhook_event::Status;
    webhook_event::WebhookOrigin;
    Name: |text| Self::parse(text).ok(), name_text;
    PublicUrl: |text| Self::parse(text).ok(), url_text;
    Source: |text| Self::parse(text).ok(), ToString::to_string;
    Pii: Self::parse, ToString::to_string;
}

fn name_text(name: &Name) -> &str {
    name.as_str()
}

fn url_text(url: &PublicUrl) -> &str {
    url.as_str()
}

/// A span of time in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Millis(pub(crate) Duration);

impl Millis {
    /// The span of a column that may be NULL.
    pub(crate) fn optional(span: Option<Self>) -> Option<Duration> {
        span.map(|Self(span)| span)
    }
}

/// JSON in a column of text.
pub(crate) struct Json<T>(pub(crate) T);

impl<T> Json<T> {
    /// The value of a column that may be NULL.
    pub(crate) fn optional(json: Option<Self>) -> Option<T> {
        json.map(|Self(value)| value)
    }
}

impl<T: serde::Serialize> ToSql for Json<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text = serde_json::to_string(&self.0);
        text.map(ToSqlOutput::from).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
    }
}

impl<T: serde::de::DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        parsed(value, |text| serde_json::from_str(text).ok().map(Self))
    }
}

impl FromSql for format::PayloadFilter {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        parsed(value, |text| Self::read(text).ok())
    }
}

/// A count, which is never negative.
pub(crate) struct Count(pub(crate) u64);

impl FromSql for Count {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(|count| Self(count.unsigned_abs()))
    }
}

/// A count of a table that other programs may write. A number out of range is clamped, so that the row can be read.
pub(crate) struct Clamped(pub(crate) u32);

impl FromSql for Clamped {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(|n| Self(u32::try_from(n.max(0)).unwrap_or(u32::MAX)))
    }
}

/// Parses the text of a column.
pub(crate) fn parsed<T>(
    value: ValueRef<'_>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> FromSqlResult<T> {
    let text = value.as_str()?;
    let unknown = || FromSqlError::Other(Unknown(text.chars().take(200).collect()).into());
    parse(text).ok_or_else(unknown)
}

/// Reads a column. `name` is table and column, for the error if its text cannot be parsed.
pub(crate) fn cell<T: FromSql>(row: &Row<'_>, n: usize, name: &'static str) -> Result<T> {
    row.get(n).map_err(|error| match error.into() {
        Error::Unreadable { value, .. } => Error::Unreadable { column: name, value },
        other => other,
    })
}

/// Parses a stored word with the `parse` function of its type.
pub(crate) fn word<T>(
    column: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T> {
    parse(text).ok_or_else(|| Error::Unreadable { column, value: text.chars().take(200).collect() })
}

/// Writes JSON for a column.
pub(crate) fn to_json<T: serde::Serialize>(column: &'static str, value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Unreadable { column, value: error.to_string() })
}

//! Conversions between columns and the types of `base`, and parsing of stored words and JSON.

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};

use crate::base::clock::Timestamp;
use crate::base::id::{DeliverySeq, SubscriptionSeq};
use crate::store::error::{Error, Result};

impl ToSql for Timestamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.ms()))
    }
}

impl FromSql for Timestamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self::from_ms)
    }
}

impl ToSql for DeliverySeq {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0))
    }
}

impl FromSql for DeliverySeq {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

impl ToSql for SubscriptionSeq {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0))
    }
}

impl FromSql for SubscriptionSeq {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

/// Parses a stored word with the `parse` function of its type.
pub(crate) fn word<T>(
    column: &'static str,
    text: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T> {
    parse(text).ok_or_else(|| Error::Unreadable { column, value: text.chars().take(200).collect() })
}

/// Parses stored JSON.
pub(crate) fn json<T: serde::de::DeserializeOwned>(column: &'static str, text: &str) -> Result<T> {
    word(column, text, |text| serde_json::from_str(text).ok())
}

/// Writes JSON for a column.
pub(crate) fn to_json<T: serde::Serialize>(column: &'static str, value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Unreadable { column, value: error.to_string() })
}

/// Reads a count, which is never negative.
pub(crate) fn count(row: &rusqlite::Row<'_>, n: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(n)?.unsigned_abs())
}

/// Reads a count of a table that other programs may write. A number out of range is clamped, so that the row can be
/// read.
pub(crate) fn clamped_count(row: &rusqlite::Row<'_>, n: usize) -> rusqlite::Result<u32> {
    let found: i64 = row.get(n)?;
    Ok(u32::try_from(found.max(0)).unwrap_or(u32::MAX))
}

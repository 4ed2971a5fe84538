//! Table `payloads`: bodies that are too large for the row of their event.

use rusqlite::types::ValueRef;

use crate::model::event::MAX_INLINE_BYTES;
use crate::store::prelude::*;

const INSERT: &str = "INSERT INTO payloads (body) VALUES (?1)";

pub(super) const READ: &str = "SELECT body FROM payloads WHERE seq = ?1";

/// Where a body is stored: in the event's row, or in `payloads`.
pub(crate) enum Placed<'a> {
    Inline(&'a [u8]),
    Separate(i64),
}

impl<'a> Placed<'a> {
    pub(crate) fn inline(&self) -> Option<&'a [u8]> {
        match self {
            Placed::Inline(body) => Some(body),
            Placed::Separate(_) => None,
        }
    }

    pub(crate) fn payload_seq(&self) -> Option<i64> {
        match self {
            Placed::Inline(_) => None,
            Placed::Separate(seq) => Some(*seq),
        }
    }
}

changes! {
    /// Deletes a body that no row refers to any more.
    pub(crate) fn remove(seq: i64) of "the payload" = "DELETE FROM payloads WHERE seq = ?1";
}

/// Stores a large body in `payloads`; a small one is left for the event's row.
pub(crate) fn place<'a>(tx: &WriteTx<'_>, body: &'a [u8]) -> Result<Placed<'a>> {
    if body.len() <= MAX_INLINE_BYTES {
        return Ok(Placed::Inline(body));
    }
    tx.execute(INSERT, [body])?;
    Ok(Placed::Separate(tx.conn().last_insert_rowid()))
}

/// The size of a body in `payloads`, without reading it.
pub(super) fn bytes(tx: &ReadTx<'_>, seq: i64) -> Result<usize> {
    let bytes: i64 = tx.value("SELECT octet_length(body) FROM payloads WHERE seq = ?1", [seq])?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A body, from the columns `payload` and `payload_seq` of its event.
pub(crate) fn fetch(
    tx: &ReadTx<'_>,
    inline: ValueRef<'_>,
    payload_seq: Option<i64>,
) -> Result<Vec<u8>> {
    if let Some(seq) = payload_seq {
        return tx.value(READ, [seq]);
    }
    // A row written by plain SQL may hold text, a number or a blob.
    match inline {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(bytes.to_vec()),
        ValueRef::Integer(number) => Ok(number.to_string().into_bytes()),
        ValueRef::Real(number) => Ok(number.to_string().into_bytes()),
        ValueRef::Null => Err(Error::Unreadable { column: "payload", value: "NULL".to_owned() }),
    }
}

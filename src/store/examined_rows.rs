//! Rows that plain SQL inserted, examined before the transaction that routes them.
//!
//! Texts, JSON, personal data, the schema of the event's type and filters take as long as another program's payload is
//! large, so the writer does not wait for them. In its transaction each row is read again: one that is not as it was
//! examined is left for the next look. Not here: what becomes of a row ([`crate::store::outbox_relay`]).

use std::collections::BTreeMap;

use crate::model::event::NewEvent;
use crate::model::sql_row::{Defect, Payload, SqlRow};
use crate::store::prelude::*;
use crate::store::sql_rows::{self, PolicyApplied};

/// Bytes of payloads that are examined at once, approximately: they are in memory, and other writes wait for their batch.
const MAX_BYTES: u64 = 4 << 20;

/// The most rows that are routed before a published event: more would delay it too long.
pub const MAX_BEFORE: u32 = 1000;

/// A row and what examining found.
#[derive(Debug)]
pub struct ExaminedRow {
    /// As it was read.
    pub row: SqlRow,
    /// What was found.
    pub finding: Finding,
}

/// What examining a row found.
#[derive(Debug)]
pub enum Finding {
    /// It is an event.
    Usable(NewEvent),
    /// It is an event that does not fit its type.
    Misfit {
        /// The event.
        event: NewEvent,
        /// Why not, without the payload's values.
        why: String,
    },
    /// It is none.
    Unusable(Defect),
}

impl Finding {
    /// The event, if subscriptions may want it.
    const fn usable(&self) -> Option<&NewEvent> {
        match self {
            Self::Usable(event) => Some(event),
            Self::Misfit { .. } | Self::Unusable(_) => None,
        }
    }
}

/// Rows that were examined, by number.
#[derive(Debug, Default)]
pub struct ExaminedRows(BTreeMap<i64, ExaminedRow>);

impl ExaminedRows {
    /// Examines unrouted rows after `after`, as many as one batch of the relay has.
    /// Fails if the file cannot be read.
    pub fn batch(tx: &ReadTx<'_>, after: i64, limit: u32, payload_bytes_most: u64) -> Result<Self> {
        let mut rows = BTreeMap::new();
        let mut bytes = 0_u64;
        for seq in sql_rows::unrouted(tx, after, limit)? {
            if bytes > MAX_BYTES {
                break;
            }
            // A row that was routed meanwhile is no longer asked for.
            let Some(row) = sql_rows::read(tx, seq, payload_bytes_most)? else { continue };
            if let Payload::Bytes(payload) = &row.payload {
                bytes = bytes.saturating_add(u64::try_from(payload.len()).unwrap_or(u64::MAX));
            }
            let checked = sql_rows::check_alone(tx, &row, payload_bytes_most, PolicyApplied::No)?;
            let finding = match checked {
                Ok(event) => Finding::Usable(event),
                Err(defect) => Finding::Unusable(defect),
            };
            rows.insert(seq, ExaminedRow { row, finding });
        }
        Ok(Self(rows))
    }

    /// Examines the rows that [`crate::store::outbox_relay::relay_before`] is to route.
    /// Fails if the file cannot be read.
    pub fn before(tx: &ReadTx<'_>, payload_bytes_most: u64) -> Result<Self> {
        Self::batch(tx, 0, MAX_BEFORE, payload_bytes_most)
    }

    /// Checks the events against their types: `misfit` says why one does not fit. Outside a transaction, because types
    /// are read in one of their own.
    /// Fails if `misfit` does.
    pub fn check_types(
        &mut self,
        misfit: impl Fn(&NewEvent) -> Result<Option<String>>,
    ) -> Result<()> {
        for ExaminedRow { finding, .. } in self.0.values_mut() {
            let Finding::Usable(event) = finding else { continue };
            if let Some(why) = misfit(event)? {
                let event = std::mem::take(event);
                *finding = Finding::Misfit { event, why };
            }
        }
        Ok(())
    }

    /// A row.
    pub(super) fn get(&self, seq: i64) -> Option<&ExaminedRow> {
        self.0.get(&seq)
    }

    /// Its events that subscriptions may want.
    pub fn usable(&self) -> impl Iterator<Item = &NewEvent> + Clone {
        self.0.values().filter_map(|examined| examined.finding.usable())
    }
}

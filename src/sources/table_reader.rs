//! Reads the table of an ERP's own file and stores the rows and the cursor in one transaction.

use crate::base::budget::Share;
use crate::config::settings::MAX_PAYLOAD_BYTES;
use crate::sources::Source;
use crate::sources::rows::{ReadRow, ready};
use crate::sources::shared::{Obstacle, RelayServices, SourceError, Turn};
use crate::sources::table_settings::{Identity, TableSettings, TableState, check_identity};
use crate::sources::tables::Progress;
use crate::sources::tables::foreign::{self, Batch, Foreign};
use crate::store::error::{Error, Result};

/// Why a table is not read that was being read at two unclean ends.
const DIED: &str = "the service ended unexpectedly twice in a row while it read this source (perhaps for lack of \
                    memory; its log says more), so it is not read: check the row after the cursor, then move the \
                    cursor past it, or restart the service";

/// State of a table's relay between two turns. All of it can be rebuilt from the file.
#[derive(Debug, Default)]
pub(super) struct TableReader {
    foreign: Option<Foreign>,
    settings: Option<TableSettings>,
    /// The file's data version and the cursor at which everything was read.
    read: Option<(i64, i64)>,
    /// Whether rows are stored singly, because a row among them cannot be stored.
    one_by_one: bool,
}

impl TableReader {
    /// Reads and stores the next batch of rows.
    pub(super) fn turn(
        &mut self,
        shared: &RelayServices,
        source: &Source,
        settings: &TableSettings,
    ) -> std::result::Result<Turn, SourceError> {
        let file = foreign::file_of(&settings.path)?;
        let is_open = self.foreign.as_ref().is_some_and(|open| open.file() == file);
        if !is_open || self.settings.as_ref() != Some(settings) {
            *self = Self { one_by_one: self.one_by_one, ..Self::default() };
            self.foreign = Some(Foreign::open(settings)?);
            self.settings = Some(settings.clone());
        }
        let Some(foreign) = &mut self.foreign else { return Ok(Turn::Done) };
        let version = foreign.data_version()?;
        let cursor = source.new.cursor;
        let behind = |rows: u64| shared.statuses.set(source.seq, |status| status.lag = Some(rows));
        if self.read == Some((version, cursor)) {
            behind(0);
            return Ok(Turn::Done);
        }
        let limit = if self.one_by_one { 1 } else { foreign::MAX_ROWS };
        let item = format!("source/{}/{cursor}", source.seq);
        if shared.suspects.is_convicted(&item) {
            return Err(SourceError::lasting(DIED));
        }
        // Only the first read of a file is marked: a row that crashes the process does so in the next start's first
        // read as well.
        let marked = self.read.is_none().then(|| shared.suspects.mark(&item, usize::MAX)).flatten();
        let (mut batch, _share) = read(shared, foreign, cursor, limit)?;
        drop(marked);
        let known: Option<Identity> =
            source.identity.as_deref().and_then(|text| serde_json::from_str(text).ok());
        if let Some(fingerprint) = &mut batch.table.at_cursor {
            // Compare in the form in which the last row's fingerprint is stored, plain or keyed.
            let forms = shared.env.privacy.hashed(&source.new.tenant, fingerprint)?;
            let before = known.as_ref().and_then(|known| known.last_row.clone());
            if let Some(same) = before.filter(|before| forms.contains(before)) {
                *fingerprint = same;
            }
        }
        let name = source.new.name.as_str();
        check_identity(known.as_ref(), cursor, &batch.table, name)
            .map_err(|why| SourceError { why, kind: Obstacle::Replaced })?;
        let highest = batch.table.highest;
        let more = batch.more;
        let last = batch.rows.last().map_or(cursor, |(id, _)| *id);
        let left = if more { highest.saturating_sub(last).unsigned_abs() } else { 0 };
        let found = u64::try_from(batch.rows.len()).unwrap_or(u64::MAX);
        // Counted as waiting until they are stored, which may fail.
        behind(left.saturating_add(found));
        let stored = self.store(shared, source, known, batch)?;
        if stored {
            behind(left);
        }
        if more || !stored {
            return Ok(Turn::Again);
        }
        self.one_by_one = false;
        self.read = Some((version, last));
        Ok(Turn::Done)
    }

    /// Stores a batch; returns whether all of it was stored.
    fn store(
        &mut self,
        shared: &RelayServices,
        source: &Source,
        known: Option<Identity>,
        batch: Batch,
    ) -> std::result::Result<bool, SourceError> {
        let cursor = source.new.cursor;
        let identity = identity(shared, source, known.as_ref(), &batch)?;
        // Nothing new: nothing is written.
        if batch.rows.is_empty() && (known.as_ref() == Some(&identity) || cursor == 0) {
            return Ok(true);
        }
        let progress = Progress {
            from: cursor,
            to: identity.last_id,
            known: source.identity.clone(),
            identity: serde_json::to_string(&identity).ok(),
            events: u64::try_from(batch.rows.len()).unwrap_or(u64::MAX),
        };
        let rows = batch.rows.iter().map(|(id, row)| ReadRow { id: *id, row, unreadable: None });
        let ready = ready(shared, source, &rows.collect::<Vec<_>>())?;
        match shared.store_rows(source, progress.clone(), None, ready.clone()) {
            Err(Error::Constraint(_)) if ready.len() > 1 => {
                // The cursor has not moved: the next turn stores the first row alone.
                self.one_by_one = true;
                Ok(false)
            }
            Err(Error::Constraint(why)) => {
                let rows = ready.into_iter().map(|row| row.refused(&why)).collect();
                shared.store_rows(source, progress, None, rows)?;
                Ok(true)
            }
            // A person has moved the cursor, or paused or deleted the source meanwhile: the next turn sees it.
            Err(Error::Changed(_)) => Ok(false),
            other => {
                other?;
                Ok(true)
            }
        }
    }
}

/// Reads a batch with a small memory share; only if a row has a large payload, again with a share for the largest.
fn read(
    shared: &RelayServices,
    foreign: &mut Foreign,
    cursor: i64,
    limit: u32,
) -> std::result::Result<(Batch, Share), SourceError> {
    // Independent of the configured limit: a row's fingerprint must not change with a setting.
    let small = foreign::PAYLOAD_BYTES_SMALL;
    let large = MAX_PAYLOAD_BYTES;
    for most in [small, large] {
        let bytes = usize::try_from(most).unwrap_or(usize::MAX);
        let share =
            shared.env.budget.take_own(bytes.saturating_add(foreign::MAX_BYTES).saturating_mul(2));
        let batch = foreign.read(cursor, limit, most)?;
        if !batch.unread || most == large {
            return Ok((batch, share));
        }
    }
    Err(SourceError::lasting("its rows cannot be read"))
}

/// The identity of the table after these rows are copied.
fn identity(
    shared: &RelayServices,
    source: &Source,
    known: Option<&Identity>,
    batch: &Batch,
) -> Result<Identity> {
    let TableState { file, columns, at_cursor, .. } = batch.table.clone();
    let cursor = source.new.cursor;
    let known = known.filter(|known| known.last_id == cursor);
    let (last_id, columns, last_row) = match (batch.rows.last(), at_cursor, known) {
        (Some((id, row)), _, _) => (*id, columns, Some(row.fingerprint())),
        // The row was deleted; its fingerprint may have been stored before the tenant had a policy.
        (None, None, Some(known)) => (cursor, known.columns.clone(), known.last_row.clone()),
        (None, now, _) => (cursor, columns, now),
    };
    let last_row = match last_row {
        Some(plain) if !plain.starts_with("hmac:") => {
            let [to_store, _] = shared.env.privacy.hashed(&source.new.tenant, &plain)?;
            Some(to_store)
        }
        last_row => last_row,
    };
    Ok(Identity { file, last_id, columns, last_row })
}

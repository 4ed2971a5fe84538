//! Reads the table of an ERP's own file and stores what it finds, with the cursor in the same transaction.

use crate::base::budget::Share;
use crate::base::clock::Timestamp;
use crate::base::id;
use crate::config::settings::MAX_PAYLOAD_BYTES;
use crate::model::escalation::Class;
use crate::model::event::NewEvent;
use crate::pipeline::publish::admit;
use crate::privacy::NotAdmitted;
use crate::sources::Source;
use crate::sources::draft::{Draft, RowContext, said};
use crate::sources::shared::Shared;
use crate::sources::shared::{Keys, recognise};
use crate::sources::shared::{Obstacle, SourceError, Turn, subject};
use crate::sources::table_settings::{Found, Identity, TableSettings, judge};
use crate::sources::tables;
use crate::sources::tables::Progress;
use crate::sources::tables::foreign::{self, Foreign, ForeignError, Look};
use crate::store::error::{Error, Result};
use crate::store::escalations;
use crate::store::outbox::{self, Inserted};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// Why a table is not read that was in hand at two unclean ends.
const DIED: &str = "the service ended twice in a row while it read this source, without being asked to (for want of \
                    memory, perhaps; its log says more), so it is not read: look at the row behind the cursor, then \
                    let the cursor pass it, or restart the service";

/// A row, ready to be stored.
#[derive(Clone, Debug)]
enum Ready {
    /// As an event.
    Event(NewEvent),
    /// As one that cannot be used, and why.
    Unusable(NewEvent, String),
}

/// What a table's relay keeps between two turns. Nothing of it matters: it is all made anew from the file.
#[derive(Debug, Default)]
pub(super) struct TableReader {
    foreign: Option<Foreign>,
    settings: Option<TableSettings>,
    /// Up to which state of the file everything was read, and to which row.
    read: Option<(i64, i64)>,
    /// Whether rows are taken one by one, because one of them cannot be stored.
    one_by_one: bool,
}

impl From<ForeignError> for SourceError {
    fn from(error: ForeignError) -> Self {
        let kind = if error.passes { Obstacle::Passing } else { Obstacle::Lasting };
        Self { why: error.to_string(), kind }
    }
}

impl TableReader {
    /// Reads and stores what there is, up to a read's bounds.
    pub(super) fn turn(
        &mut self,
        shared: &Shared,
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
        let (version, cursor) = (foreign.data_version()?, source.new.cursor);
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
        // Only the first read of a file: a row that ends the process does so then.
        let marked = self.read.is_none().then(|| shared.suspects.mark(&item, usize::MAX)).flatten();
        let (mut look, _share) = look(shared, foreign, cursor, limit)?;
        drop(marked);
        let kept: Option<Identity> =
            source.identity.as_deref().and_then(|text| serde_json::from_str(text).ok());
        if let Some(is) = &mut look.found.at_cursor {
            // In the form in which it was kept, where that is one of its own.
            let forms = shared.privacy.hashed(&source.new.tenant, is)?;
            let before = kept.as_ref().and_then(|kept| kept.last_row.clone());
            if let Some(same) = before.filter(|before| forms.contains(before)) {
                *is = same;
            }
        }
        judge(kept.as_ref(), cursor, &look.found).map_err(|replaced| SourceError {
            why: replaced.to_string().replace("NAME", source.new.name.as_str()),
            kind: Obstacle::Replaced,
        })?;
        let (highest, more) = (look.found.highest, look.more);
        let last = look.rows.last().map_or(cursor, |(id, _)| *id);
        let left = if more { highest.saturating_sub(last).unsigned_abs() } else { 0 };
        let found = u64::try_from(look.rows.len()).unwrap_or(u64::MAX);
        // Before they are stored they wait: that may fail.
        behind(left.saturating_add(found));
        let stored = self.store(shared, source, kept, look)?;
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

    /// Tells whether all of it was stored.
    fn store(
        &mut self,
        shared: &Shared,
        source: &Source,
        kept: Option<Identity>,
        look: Look,
    ) -> std::result::Result<bool, SourceError> {
        let cursor = source.new.cursor;
        let identity = identity(shared, source, kept.as_ref(), &look)?;
        // Where nothing is new, nothing is written.
        if look.rows.is_empty() && (kept.as_ref() == Some(&identity) || cursor == 0) {
            return Ok(true);
        }
        let progress = Progress {
            from: cursor,
            to: identity.last_id,
            identity: serde_json::to_string(&identity).ok(),
            events: u64::try_from(look.rows.len()).unwrap_or(u64::MAX),
        };
        let ready = ready(shared, source, &look.rows)?;
        match copy(shared, source, progress.clone(), ready.clone()) {
            Err(Error::Constraint(_)) if ready.len() > 1 => {
                // The cursor has not moved: the next turn takes the first of them alone.
                self.one_by_one = true;
                Ok(false)
            }
            Err(Error::Constraint(why)) => {
                let unusable = |row| match row {
                    Ready::Event(event) | Ready::Unusable(event, _) => {
                        Ready::Unusable(event, format!("the database refuses it: {why}"))
                    }
                };
                copy(shared, source, progress, ready.into_iter().map(unusable).collect())?;
                Ok(true)
            }
            // A person has moved the cursor, paused or deleted it meanwhile: what holds is read again.
            Err(Error::Changed(_)) => Ok(false),
            other => {
                other?;
                Ok(true)
            }
        }
    }
}

/// Looks with as little memory as will do: only where a row has a large payload there has to be room for the largest.
fn look(
    shared: &Shared,
    foreign: &mut Foreign,
    cursor: i64,
    limit: u32,
) -> std::result::Result<(Look, Share), SourceError> {
    // Not what is set: what is known of a row must not change when that is.
    let (small, large) = (foreign::PAYLOAD_BYTES_SMALL, MAX_PAYLOAD_BYTES);
    for most in [small, large] {
        let bytes = usize::try_from(most).unwrap_or(usize::MAX);
        let share =
            shared.budget.take_own(bytes.saturating_add(foreign::MAX_BYTES).saturating_mul(2));
        let look = foreign.look(cursor, limit, most)?;
        if !look.unread || most == large {
            return Ok((look, share));
        }
    }
    Err(SourceError::lasting("its rows cannot be read"))
}

/// What the table is once these rows are copied.
fn identity(
    shared: &Shared,
    source: &Source,
    kept: Option<&Identity>,
    look: &Look,
) -> Result<Identity> {
    let Found { file, columns, at_cursor, .. } = look.found.clone();
    let cursor = source.new.cursor;
    let kept = kept.filter(|kept| kept.last_id == cursor);
    let (last_id, columns, last_row) = match (look.rows.last(), at_cursor, kept) {
        (Some((id, row)), _, _) => (*id, columns, Some(row.fingerprint())),
        // The row is gone; what is kept of it may be of before a policy was stated.
        (None, None, Some(kept)) => (cursor, kept.columns.clone(), kept.last_row.clone()),
        (None, now, _) => (cursor, columns, now),
    };
    let last_row = match last_row {
        Some(plain) if !plain.starts_with("hmac:") => {
            let [due, _] = shared.privacy.hashed(&source.new.tenant, &plain)?;
            Some(due)
        }
        last_row => last_row,
    };
    Ok(Identity { file, last_id, columns, last_row })
}

fn ready(shared: &Shared, source: &Source, rows: &[(i64, Draft)]) -> Result<Vec<Ready>> {
    let received_at = shared.clock.wall();
    let most = shared.settings.get().limits.payload_bytes;
    let one = |(id, row): &(i64, Draft)| {
        let keys = keys(shared, source, *id, &row.fingerprint())?;
        let [key, _] = &keys;
        let facts = RowContext {
            id: id::uuid7(received_at, &*shared.draw),
            tenant: &source.new.tenant,
            source: source.new.name.as_str(),
            key: key.clone(),
            received_at,
            defaults: source.new.settings.defaults(),
            payload_bytes_max: usize::try_from(most).unwrap_or(usize::MAX),
        };
        match row.event(&facts) {
            Ok(mut event) => {
                recognise(shared, &mut event, &keys)?;
                admitted(shared, event)
            }
            Err(error) => {
                let why = format!("row {id}: {}", said(&error, source.new.settings.names()));
                let (event, why) = shared.privacy.withhold(row.unusable(&facts), why)?;
                Ok(Ready::Unusable(event, why))
            }
        }
    };
    rows.iter().map(one).collect()
}

/// As the tenant states of personal data. What its policy refuses is kept without its content.
fn admitted(shared: &Shared, mut event: NewEvent) -> Result<Ready> {
    match shared.privacy.admit(std::slice::from_mut(&mut event)) {
        Ok(()) => Ok(Ready::Event(event)),
        Err(NotAdmitted::Failed(error)) => Err(error),
        Err(NotAdmitted::Refused { why, .. }) => {
            let (event, why) = shared.privacy.withhold(event, format!("it is not taken: {why}"))?;
            Ok(Ready::Unusable(event, why))
        }
    }
}

/// The key of a row that names none. Its type and payload are part of it: after a restore of the ERP's file the
/// same id may be given to another fact. Nothing is that depends on how the source is set up, or a row that is
/// read again would be another one.
fn keys(shared: &Shared, source: &Source, id: i64, fingerprint: &str) -> Result<Keys> {
    let short = format!("0x{}", fingerprint.get(..32).unwrap_or(fingerprint));
    let hashed = shared.privacy.hashed(&source.new.tenant, &short)?;
    Ok(hashed.map(|hash| format!("{id}-{hash}")))
}

/// Stores rows and moves the cursor: all of it or nothing.
fn copy(shared: &Shared, source: &Source, progress: Progress, ready: Vec<Ready>) -> Result<()> {
    let (seq, tenant, subject) = (source.seq, source.new.tenant.clone(), subject(source));
    let (clock, arrived) = (shared.clock.clone(), !ready.is_empty());
    let stored = shared.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        tables::advance(tx, seq, &progress, clock.wall())?;
        if arrived {
            escalations::resolve(tx, &tenant, Class::SourceSilent, &subject, clock.wall())?;
        }
        let now = clock.now();
        ready.iter().map(|row| take(tx, row, now)).collect::<Result<Vec<_>>>()
    })?;
    shared.admitted(source.new.name.as_str(), stored.iter().map(|(inserted, _)| inserted));
    for _quarantined in stored.iter().filter(|(_, is_quarantined)| *is_quarantined) {
        shared.counts.events_quarantined.add();
    }
    Ok(())
}

fn take(tx: &WriteTx<'_>, row: &Ready, now: Timestamp) -> Result<(Inserted, bool)> {
    match row {
        Ready::Event(event) => Ok((admit(tx, event, now)?, false)),
        Ready::Unusable(event, why) => Ok((outbox::insert_quarantined(tx, event, why, now)?, true)),
    }
}

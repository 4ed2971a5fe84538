//! Table `outbox`: the events.

use rusqlite::Row;

use crate::clock::Timestamp;
use crate::domain::event::{Event, NewEvent, Status, Tally, derive};
use crate::domain::lane::Key;
use crate::domain::pii::Sealed;
use crate::domain::pii::sealed::same_but_for_keys;
use crate::domain::subscription::Routed;
use crate::keyring::subject::SubjectKey;
use crate::store::column::word;
use crate::store::deliveries::{self, Origin, Route, Wanting};
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};
use crate::store::{payloads, quarantine, subjects, tenants};

const INSERT: &str = "
    INSERT INTO outbox
           (id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id, target,
            payload, payload_seq, content_type, occurred_at, received_at, not_before, ordering_key,
            process_id, trace_id, max_attempts, custom_data, routed_at, open_deliveries, epoch,
            sealed_fields, own)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
            ?21, ?22, ?23, 1)
        ON CONFLICT (tenant, source_system, idempotency_key) DO NOTHING";

pub(super) const EXISTS: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM outbox
            WHERE tenant = ?1
              AND source_system = ?2
              AND idempotency_key = ?3)";

// Only for what nobody wants: every event begins as pending.
pub(super) const UNWANTED: &str = "
    UPDATE outbox
       SET status = ?2, completed_at = ?3, error_code = ?4, last_error = ?5
     WHERE seq = ?1
       AND status = 'pending'
       AND open_deliveries = 0";

pub(super) const REPEATED: &str = "
    UPDATE outbox
       SET duplicate_count = duplicate_count + 1, differing_count = differing_count + ?2
     WHERE seq = ?1";

pub(super) const SETTLED: &str = "
    UPDATE outbox
       SET status = ?2, open_deliveries = ?3, completed_at = ?4, last_error = coalesce(?5, last_error)
     WHERE seq = ?1
       AND routed_at IS NOT NULL";

pub(super) const BY_IDENTITY: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields, payload, payload_seq
      FROM outbox
     WHERE tenant = ?1
       AND source_system = ?2
       AND idempotency_key = ?3";

const BY_ID: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields, payload, payload_seq
      FROM outbox
     WHERE id = ?2
       AND tenant = ?1";

pub(super) const BY_SEQ: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields
      FROM outbox
     WHERE seq = ?1";

const PAGE: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields
      FROM outbox
     WHERE tenant = ?1
       AND seq < ?2
       AND (?4 IS NULL OR status = ?4)
       AND (?5 IS NULL OR event_type = ?5)
       AND (?6 IS NULL OR idempotency_key = ?6)
       AND (?7 IS NULL OR received_at >= ?7)
       AND (?8 IS NULL OR received_at < ?8)
     ORDER BY seq DESC
     LIMIT ?3";

// The partial index on aggregate_id serves it only when the column is compared outright.
pub(super) const PAGE_OF_AGGREGATE: &str = "
    SELECT seq, id, tenant, source_system, idempotency_key, event_type, aggregate_type, aggregate_id,
           target, content_type, occurred_at, received_at, not_before, ordering_key, process_id, trace_id,
           max_attempts, custom_data, status, open_deliveries, duplicate_count, differing_count,
           last_error, error_code, completed_at, sealed_fields
      FROM outbox
     WHERE aggregate_id = ?9
       AND tenant = ?1
       AND seq < ?2
       AND (?4 IS NULL OR status = ?4)
       AND (?5 IS NULL OR event_type = ?5)
       AND (?6 IS NULL OR idempotency_key = ?6)
       AND (?7 IS NULL OR received_at >= ?7)
       AND (?8 IS NULL OR received_at < ?8)
     ORDER BY seq DESC
     LIMIT ?3";

// Computed for every row of the identity index: about a microsecond each.
const BY_WEBHOOK_ID: &str = "
    SELECT tenant, source_system, idempotency_key
      FROM outbox
     WHERE tenant = ?1
       AND webhook_id(tenant, source_system, idempotency_key) = ?2
     LIMIT 1";

/// Whether an event was stored now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// Now, and routed in the same transaction.
    First {
        /// What its status is, from its deliveries.
        status: Status,
    },
    /// Before; the first content stays. Where that is quarantined, this one is no better.
    Again {
        /// The UUID it has.
        id: String,
        /// Where it stands.
        status: Status,
        /// Whether what was sent now is not what was stored then.
        differs: bool,
    },
}

/// Stores an event once and makes its deliveries, all in this transaction.
///
/// # Errors
/// When the file cannot be written.
pub fn insert(tx: &WriteTx<'_>, new: &NewEvent, now: Timestamp) -> Result<Inserted> {
    let plan = plan(tx, new, now)?;
    let standing = (plan.open(), plan.epoch());
    // A large payload is only stored apart once it is known to be the first.
    let is_there = new.payload.len() > payloads::INLINE_BYTES_MOST && is_stored(tx, identity(new))?;
    if is_there || write(tx, new, now, standing)? == 0 {
        let is_usable = plan.open() > 0 || new.target.is_none();
        if let Some(again) = repeated(tx, new, is_usable, now)? {
            return Ok(again);
        }
        one_row(write(tx, new, now, standing)?, "the event")?;
    }
    let seq = tx.conn().last_insert_rowid();
    if let Some(key) = &new.sealed.key {
        subjects::keep(tx, key, new.received_at)?;
    }
    Ok(Inserted::First { status: carry_out(tx, seq, new, &plan, now)? })
}

/// Writes a row, unless there is one; tells how many it wrote.
fn write(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    now: Timestamp,
    (open, epoch): (u32, u32),
) -> Result<usize> {
    let placed = payloads::place(tx, &new.payload)?;
    Ok(tx.prepare(INSERT)?.execute(rusqlite::params![
        new.id,
        new.tenant,
        new.source_system,
        new.idempotency_key,
        new.event_type,
        new.aggregate_type,
        new.aggregate_id,
        new.target,
        placed.inline(),
        placed.apart(),
        new.content_type,
        new.occurred_at,
        new.received_at,
        new.not_before,
        new.ordering_key,
        new.process_id,
        new.trace_id,
        new.max_attempts,
        new.custom_data,
        now,
        open,
        epoch,
        new.sealed.fields,
    ])?)
}

/// Where an event goes, before its row is written.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    wanting: Vec<Wanting>,
    route: Route,
}

impl Plan {
    /// How many deliveries it will have.
    pub(super) fn open(&self) -> u32 {
        u32::try_from(self.wanting.len()).unwrap_or(u32::MAX)
    }

    /// The same for an event that came some time ago: it goes to the place that it would have had.
    pub(super) fn of_old(mut self) -> Self {
        self.route.by_arrival = false;
        self
    }

    /// How often the file was restored.
    pub(super) fn epoch(&self) -> u32 {
        self.route.epoch
    }
}

/// Finds out who wants an event, and when its deliveries are due.
pub(super) fn plan(tx: &WriteTx<'_>, new: &NewEvent, now: Timestamp) -> Result<Plan> {
    let routed = Routed {
        tenant: &new.tenant,
        provider: None,
        event_type: &new.event_type,
        target: new.target.as_deref(),
        key: Key {
            ordering_key: new.ordering_key.as_deref(),
            aggregate: (new.aggregate_type.as_deref(), new.aggregate_id.as_deref()),
        },
    };
    let wanting = deliveries::wanting(tx, routed)?;
    let fence = tx.fence()?;
    let route = Route {
        due_at: new.not_before.map_or(now, |not_before| not_before.max(now)),
        order_at: new.occurred_at.unwrap_or(new.received_at),
        by_arrival: new.occurred_at.is_none(),
        doubted: fence.doubts(new.occurred_at, new.received_at),
        epoch: fence.epoch,
    };
    Ok(Plan { wanting, route })
}

/// Makes the deliveries of an event whose row is written, or ends it where nobody wants it.
pub(super) fn carry_out(
    tx: &WriteTx<'_>,
    seq: i64,
    new: &NewEvent,
    plan: &Plan,
    now: Timestamp,
) -> Result<Status> {
    if plan.wanting.is_empty() {
        return unwanted(tx, seq, new, now);
    }
    deliveries::route(tx, Origin::Outbox(seq), &new.tenant, &plan.wanting, plan.route)?;
    Ok(Status::Pending)
}

/// Stores an event that cannot be used, with the reason, so that a person sees it. No delivery is made of it.
///
/// # Errors
/// When the file cannot be written.
pub fn insert_quarantined(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    why: &str,
    now: Timestamp,
) -> Result<Inserted> {
    if is_stored(tx, identity(new))?
        && let Some(again) = repeated(tx, new, false, now)?
    {
        return Ok(again);
    }
    let inserted = write(tx, new, now, (0, tx.fence()?.epoch))?;
    one_row(inserted, "the event")?;
    let (seq, status) = (tx.conn().last_insert_rowid(), Status::Quarantined);
    // A person may mend it: what is sealed in it has to be opened then.
    if let Some(key) = &new.sealed.key {
        subjects::keep(tx, key, new.received_at)?;
    }
    let stored = tx.prepare(UNWANTED)?.execute((
        seq,
        status.as_str(),
        None::<Timestamp>,
        "unusable",
        why,
    ))?;
    one_row(stored, "the event")?;
    Ok(Inserted::First { status })
}

/// Whether there is an event of that tenant, source system and key.
///
/// # Errors
/// When the file cannot be read.
pub fn is_stored(tx: &ReadTx<'_>, identity: (&str, &str, &str)) -> Result<bool> {
    Ok(tx.prepare(EXISTS)?.query_row(identity, |row| row.get(0))?)
}

fn identity(new: &NewEvent) -> (&str, &str, &str) {
    (&new.tenant, &new.source_system, &new.idempotency_key)
}

/// Counts an event that was there before. One that is quarantined is not done, and gives way to what can be used
/// or says something else: `None`, the key is free.
fn repeated(
    tx: &WriteTx<'_>,
    new: &NewEvent,
    is_usable: bool,
    now: Timestamp,
) -> Result<Option<Inserted>> {
    let kept = first(&mut *tx.prepare(BY_IDENTITY)?, identity(new), |row| with_payload(tx, row))?;
    let kept = kept.ok_or(crate::store::error::Error::Changed("the event"))?;
    let differs = differs(&kept.new, new)
        || kept.new.event_type != new.event_type
        || kept.new.aggregate_id != new.aggregate_id
        || kept.new.target != new.target;
    if kept.status == Status::Quarantined && (is_usable || differs) {
        return quarantine::make_way(tx, &kept, new, now).map(|()| None);
    }
    tx.prepare(REPEATED)?.execute((kept.seq, differs))?;
    Ok(Some(Inserted::Again { id: kept.new.id, status: kept.status, differs }))
}

/// Whether the bodies differ. The same text under the same key is sealed to the same bytes; where the key was
/// destroyed or made twice meanwhile, only what is not sealed can be compared.
fn differs(kept: &NewEvent, new: &NewEvent) -> bool {
    let sealed = kept.sealed.fields > 0 && new.sealed.fields > 0;
    kept.payload != new.payload
        && !(sealed && same_but_for_keys(&kept.payload, &new.payload, SubjectKey::id_in))
}

/// Ends a stored event that no subscription wants.
fn unwanted(tx: &WriteTx<'_>, seq: i64, new: &NewEvent, now: Timestamp) -> Result<Status> {
    let (status, error) = match &new.target {
        Some(target) => {
            let reason = format!("there is no subscription named {target:?} for it");
            let told = tenants::pii(tx, &new.tenant)?.rules().map(|policy| policy.told(&reason));
            (Status::Quarantined, Some(told.unwrap_or(reason)))
        }
        None => (Status::Skipped, None),
    };
    let completed_at = status.is_final().then_some(now);
    let code = error.as_ref().map(|_| "unknown_target");
    let stored =
        tx.prepare(UNWANTED)?.execute((seq, status.as_str(), completed_at, code, error))?;
    one_row(stored, "the event")?;
    Ok(status)
}

/// Derives an event's status again after one of its deliveries moved.
pub(crate) fn refresh(
    tx: &WriteTx<'_>,
    seq: i64,
    tally: Tally,
    error: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    let status = derive(tally);
    let completed_at = status.is_final().then_some(now);
    let stored =
        tx.prepare(SETTLED)?.execute((seq, status.as_str(), tally.open, completed_at, error))?;
    one_row(stored, "the event")
}

/// An event with its payload.
///
/// # Errors
/// When the file cannot be read.
pub fn by_id(tx: &ReadTx<'_>, tenant: &str, id: &str) -> Result<Option<Event>> {
    first(&mut *tx.prepare(BY_ID)?, (tenant, id), |row| with_payload(tx, row))
}

/// An event without its payload, by its number.
///
/// # Errors
/// When the file cannot be read.
pub fn by_seq(tx: &ReadTx<'_>, seq: i64) -> Result<Option<Event>> {
    first(&mut *tx.prepare(BY_SEQ)?, [seq], event)
}

/// An event with its payload, by the `webhook-id` its deliveries carry. Looks at every event there is.
///
/// # Errors
/// When the file cannot be read.
pub fn by_webhook_id(tx: &ReadTx<'_>, tenant: &str, webhook_id: &str) -> Result<Option<Event>> {
    let identity = first(&mut *tx.prepare(BY_WEBHOOK_ID)?, (tenant, webhook_id), |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    match identity {
        Some(identity) => {
            first(&mut *tx.prepare(BY_IDENTITY)?, identity, |row| with_payload(tx, row))
        }
        None => Ok(None),
    }
}

/// Which events a list shows. Absent means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Where they stand.
    pub status: Option<Status>,
    /// Their exact type.
    pub event_type: Option<String>,
    /// Their own key.
    pub idempotency_key: Option<String>,
    /// What they happened to.
    pub aggregate_id: Option<String>,
    /// Received at or after.
    pub since: Option<Timestamp>,
    /// Received before.
    pub until: Option<Timestamp>,
}

/// Events without their payloads, newest first, below `before`.
///
/// # Errors
/// When the file cannot be read.
pub fn page(
    tx: &ReadTx<'_>,
    tenant: &str,
    filter: &Filter,
    before: i64,
    limit: u32,
) -> Result<Vec<Event>> {
    let Filter { status, event_type, idempotency_key, aggregate_id, since, until } = filter;
    let status = status.map(Status::as_str);
    match aggregate_id {
        None => rows(
            &mut *tx.prepare(PAGE)?,
            (tenant, before, limit, status, event_type, idempotency_key, since, until),
            event,
        ),
        Some(aggregate_id) => rows(
            &mut *tx.prepare(PAGE_OF_AGGREGATE)?,
            (
                tenant,
                before,
                limit,
                status,
                event_type,
                idempotency_key,
                since,
                until,
                aggregate_id,
            ),
            event,
        ),
    }
}

fn with_payload(tx: &ReadTx<'_>, row: &Row<'_>) -> Result<Event> {
    let mut event = event(row)?;
    event.new.payload = payloads::fetch(tx, row.get_ref(26)?, row.get(27)?)?;
    Ok(event)
}

fn event(row: &Row<'_>) -> Result<Event> {
    let status: String = row.get(18)?;
    Ok(Event {
        seq: row.get(0)?,
        new: NewEvent {
            id: row.get(1)?,
            tenant: row.get(2)?,
            source_system: row.get(3)?,
            idempotency_key: row.get(4)?,
            event_type: row.get(5)?,
            aggregate_type: row.get(6)?,
            aggregate_id: row.get(7)?,
            target: row.get(8)?,
            payload: Vec::new(),
            content_type: row.get(9)?,
            occurred_at: row.get(10)?,
            received_at: row.get(11)?,
            not_before: row.get(12)?,
            ordering_key: row.get(13)?,
            process_id: row.get(14)?,
            trace_id: row.get(15)?,
            max_attempts: row.get(16)?,
            custom_data: row.get(17)?,
            sealed: Sealed { fields: row.get(25)?, key: None },
        },
        status: word("outbox.status", &status, Status::parse)?,
        open_deliveries: row.get(19)?,
        duplicate_count: row.get(20)?,
        differing_count: row.get(21)?,
        last_error: row.get(22)?,
        error_code: row.get(23)?,
        completed_at: row.get(24)?,
    })
}

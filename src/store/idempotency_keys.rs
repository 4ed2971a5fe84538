//! Table `idempotency_keys`: answers to requests that carried an `Idempotency-Key`.

use std::time::Duration;

use crate::base::clock::trust::TimeStep;
use crate::store::column::Count;
use crate::store::prelude::*;

/// How long an answer is kept.
pub const KEPT: Duration = Duration::from_hours(24);
/// What an answer takes at least.
const LEAST_BYTES: usize = 1024;

const BEGIN: &str = "
    INSERT INTO idempotency_keys (tenant, key, request_hash, created_at, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (tenant, key) DO UPDATE
       SET request_hash = excluded.request_hash, status = NULL, body = NULL, change_bytes = NULL,
           created_at = excluded.created_at, expires_at = excluded.expires_at
     WHERE idempotency_keys.expires_at <= excluded.created_at
       AND excluded.created_at >= coalesce((SELECT value FROM meta WHERE key = 'idempotency_keys_kept_until'), 0)";

pub(super) const FIND: &str = "
    SELECT request_hash, status, body FROM idempotency_keys
     WHERE tenant = ?1 AND key = ?2
       AND (expires_at > ?3
            OR ?3 < (SELECT value FROM meta WHERE key = 'idempotency_keys_kept_until'))";

pub(super) const KEPT_BYTES: &str = "
    SELECT tenant, sum(change_bytes)
      FROM idempotency_keys INDEXED BY idempotency_keys_of_changes WHERE change_bytes IS NOT NULL
     GROUP BY tenant";

pub(super) const FINISH: &str = "
    UPDATE idempotency_keys SET status = ?3, body = ?4, change_bytes = ?5
     WHERE tenant = ?1 AND key = ?2 AND status IS NULL";

pub(super) const ANY_EXPIRED: &str = "
    SELECT EXISTS (SELECT 1 FROM idempotency_keys WHERE expires_at <= ?1)
       AND ?1 >= coalesce((SELECT value FROM meta WHERE key = 'idempotency_keys_kept_until'), 0)";

pub(super) const EXPIRE: &str = "
    DELETE FROM idempotency_keys
     WHERE (tenant, key) IN (SELECT tenant, key FROM idempotency_keys
                              WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";

// One that was stored by a clock that was ahead lives its own length from now on.
pub(super) const CLAMP: &str = "
    UPDATE idempotency_keys SET created_at = ?1, expires_at = ?1 + (expires_at - created_at)
     WHERE (tenant, key) IN (SELECT tenant, key FROM idempotency_keys
                              WHERE expires_at > ?2 AND created_at > ?1 LIMIT ?3)";

const LAST_END: &str = "SELECT max(expires_at) FROM idempotency_keys";

const KEPT_UNTIL: &str = "SELECT value FROM meta WHERE key = 'idempotency_keys_kept_until'";

const KEEP_UNTIL: &str = "
    INSERT INTO meta (key, value) VALUES ('idempotency_keys_kept_until', ?1)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// A request's `Idempotency-Key` and what it was used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The key.
    pub key: String,
    /// SHA-256 over method, path and body.
    pub request_hash: Vec<u8>,
}

/// The answer to a request with a key, sealed.
#[derive(Clone, Copy, Debug)]
pub struct SealedAnswer<'a> {
    /// The status.
    pub status: u16,
    /// The body, sealed under [`context`].
    pub body: &'a [u8],
}

/// Whether a key was used before, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The first request with this key: carry it out, then [`finish`] in the same transaction.
    First,
    /// The same request was answered before.
    Answered {
        /// The stored status.
        status: u16,
        /// The stored body.
        body: Vec<u8>,
    },
    /// Another request used this key.
    OtherRequest,
    /// The same request is still being carried out.
    Running,
}

queries! {
    /// Whether any key has expired.
    pub fn any_expired(now: SureNow) -> bool = value ANY_EXPIRED;
}

/// Whether one more answer to a change of this tenant may be kept.
pub fn has_room(tx: &WriteTx<'_>, tenant: &str) -> Result<bool> {
    tx.kept_answers().has_room(tenant, || {
        let found = tx.rows(KEPT_BYTES, [], |row| {
            let Count(bytes) = row.get(1)?;
            Ok((row.get(0)?, bytes))
        })?;
        Ok(found.into_iter().collect())
    })
}

changes! {
    fn store_answer(
        tenant: &str, key: &str, status: u16, body: &[u8], change_bytes: Option<i64>
    ) of "the idempotency key" = FINISH;

    fn delete_claimed(tenant: &str, key: &str) =
        "DELETE FROM idempotency_keys WHERE tenant = ?1 AND key = ?2 AND status IS NULL";

    /// Replaces the stored answer to a change, because a later step of the same request has completed it.
    pub fn complete(tenant: &str, key: &str, body: &[u8]) = "
    UPDATE idempotency_keys SET body = ?3 WHERE tenant = ?1 AND key = ?2 AND status IS NOT NULL";

    fn reserve(tenant: &str, key: &str, change_bytes: i64) = "
    UPDATE idempotency_keys SET change_bytes = ?3 WHERE tenant = ?1 AND key = ?2 AND status IS NULL";

    fn delete_expired(now: SureNow, limit: u32) -> usize = EXPIRE;
}

/// Stores the answer of the request that was first.
/// Fails with `Changed` when the key was not claimed.
pub fn finish(tx: &WriteTx<'_>, tenant: &str, key: &str, status: u16, body: &[u8]) -> Result<()> {
    store_answer(tx, tenant, key, status, body, None)
}

/// As [`finish`], for a change: what the answer takes is counted.
fn finish_change(
    tx: &WriteTx<'_>,
    tenant: &str,
    key: &str,
    status: u16,
    body: &[u8],
) -> Result<()> {
    let bytes = body.len().max(LEAST_BYTES);
    tx.kept_answers().add(tenant, u64::try_from(bytes).unwrap_or(u64::MAX));
    let change_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    store_answer(tx, tenant, key, status, body, Some(change_bytes))
}

/// Frees the key of a request that was not carried out, so that a repetition is.
pub fn release(tx: &WriteTx<'_>, tenant: &str, key: &str) -> Result<()> {
    tx.kept_answers().deleted();
    delete_claimed(tx, tenant, key)
}

/// Deletes at most `limit` expired keys; returns how many.
pub fn expire(tx: &WriteTx<'_>, now: SureNow, limit: u32) -> Result<usize> {
    let deleted = delete_expired(tx, now, limit)?;
    if deleted > 0 {
        tx.kept_answers().deleted();
    }
    Ok(deleted)
}

/// Lets no key expire early after believed time has moved. After a step forward all live as long as the last one had to
/// go: they are many, so they are not changed one by one.
pub fn follow(tx: &WriteTx<'_>, step: TimeStep) -> Result<()> {
    let kept_until: Option<Timestamp> = tx.find(KEPT_UNTIL, [])?;
    let last_end: Option<Timestamp> = tx.find::<Option<Timestamp>>(LAST_END, [])?.flatten();
    let end = if step.ms() > 0 { kept_until.max(last_end) } else { kept_until };
    let Some(end) = end.filter(|end| *end > step.from) else { return Ok(()) };
    tx.mark_unseen();
    tx.execute(KEEP_UNTIL, [TimeStep::of(end, step.ms()).to]).map(drop)
}

/// Limits at most `limit` ends that a clock has set which was ahead; returns how many.
pub fn clamp(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<usize> {
    tx.execute(CLAMP, (now, now.plus(KEPT), limit))
}

/// Claims a key, or returns what it was used for. The insert comes first, so that of two simultaneous requests only
/// one can be first.
pub fn begin(
    tx: &WriteTx<'_>,
    tenant: &str,
    key: &str,
    request_hash: &[u8],
    now: Timestamp,
) -> Result<Seen> {
    let claimed = tx.execute(BEGIN, (tenant, key, request_hash, now, now.plus(KEPT)))?;
    if claimed == 1 {
        return Ok(Seen::First);
    }
    Ok(seen(tx, tenant, key, request_hash, now)?.unwrap_or(Seen::Running))
}

/// Claims the key of a change whose answer is stored by a later transaction. The caller has seen that it is free.
/// Fails with `Changed` if it is not.
pub fn begin_change(
    tx: &WriteTx<'_>,
    tenant: &str,
    request: &Idempotency,
    now: Timestamp,
) -> Result<()> {
    match begin(tx, tenant, &request.key, &request.request_hash, now)? {
        Seen::First => {
            // The answer that it will have, at its least. It is counted again when it is stored.
            let least = i64::try_from(LEAST_BYTES).unwrap_or(i64::MAX);
            tx.kept_answers().add(tenant, u64::try_from(LEAST_BYTES).unwrap_or(u64::MAX));
            tx.kept_answers().deleted();
            reserve(tx, tenant, &request.key, least)
        }
        _ => Err(Error::Changed("the idempotency key")),
    }
}

/// The context under which the answer to a change is sealed.
pub fn context(tenant: &str, key: &str) -> String {
    format!("idempotency_keys|{tenant}|{key}|body")
}

/// What a key was used for, if it was used and has not expired.
pub fn seen(
    tx: &ReadTx<'_>,
    tenant: &str,
    key: &str,
    request_hash: &[u8],
    now: Timestamp,
) -> Result<Option<Seen>> {
    tx.first(FIND, (tenant, key, now), |row| {
        let (hash, status, body): (Vec<u8>, Option<u16>, Option<Vec<u8>>) = tuple(row)?;
        Ok(match (status, body) {
            _ if hash != request_hash => Seen::OtherRequest,
            (Some(status), Some(body)) => Seen::Answered { status, body },
            _ => Seen::Running,
        })
    })
}

/// Keeps the sealed answer to a change, in the transaction of the change.
/// Fails with `Changed` when the key is in use.
pub fn keep(
    tx: &WriteTx<'_>,
    tenant: &str,
    request: &Idempotency,
    answer: SealedAnswer<'_>,
    now: Timestamp,
) -> Result<()> {
    let Idempotency { key, request_hash } = request;
    begin(tx, tenant, key, request_hash, now)?;
    finish_change(tx, tenant, key, answer.status, answer.body)
}

/// Stores `hash` under a key for the time `kept`, unless the key exists; returns whether the stored hash is `hash`.
/// Callers use keys with a comma, which the API refuses, so these never collide with clients' keys.
pub fn remember(
    tx: &WriteTx<'_>,
    tenant: &str,
    key: &str,
    hash: &[u8],
    now: Timestamp,
    kept: Duration,
) -> Result<bool> {
    let claimed = tx.execute(BEGIN, (tenant, key, hash, now, now.plus(kept)))?;
    if claimed == 1 {
        // The answer stays empty: a repeated request is recognised by the event it stored.
        return finish(tx, tenant, key, 200, b"").map(|()| true);
    }
    let before = tx.find::<Vec<u8>>(FIND, (tenant, key, now))?;
    Ok(before.is_some_and(|before| before == hash))
}

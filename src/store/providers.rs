//! Table `providers`: who posts webhooks to us.

use crate::privacy::policy::Pii;
use crate::signatures::provider::{NewProvider, Provider, SchemeSettings};
use crate::store::column::{Json, Millis};
use crate::store::credentials::{self, Owner};
use crate::store::prelude::*;

columns! {
    fn provider() -> Provider = "providers" [
        seq, id, tenant, name, scheme as Json(SchemeSettings { scheme, repeats }), body_bytes_max, tolerance_ms as Millis(tolerance), created_at,
        updated_at, public_url, pii, replay_window_ms as Millis(replay_window), ordering_key, reconcile as Json(reconcile)
    ] {
        seq,
        new: NewProvider {
            id, tenant, name, scheme, repeats, public_url, pii, body_bytes_max, tolerance, replay_window,
            ordering_key: Json::optional(ordering_key), reconcile,
        },
        created_at, updated_at
    }
    /// A provider by its name.
    pub fn by_name(tenant: &str, name: &str) -> Option =
        "WHERE tenant = ?1 AND deleted_at IS NULL AND name = ?2";
    /// Providers by number, after `after`.
    pub fn page(tenant: &str, after: i64, limit: u32) -> Vec =
        "WHERE tenant = ?1 AND deleted_at IS NULL AND seq > ?2 ORDER BY seq LIMIT ?3";
}

// Includes deleted providers, because their events may still be delivered. For one name, the last row applies.
const POLICIES: &str =
    "SELECT name, pii FROM providers WHERE tenant = ?1 AND pii <> 'allow' ORDER BY seq LIMIT 10000";

const DELETE: &str =
    "UPDATE providers SET deleted_at = ?2, updated_at = ?2 WHERE seq = ?1 AND deleted_at IS NULL";

/// Stores a provider; `None` when its name is taken.
pub fn insert(tx: &WriteTx<'_>, new: &NewProvider, now: Timestamp) -> Result<Option<i64>> {
    let inserted = insert!(tx, "providers" of new {
        id, tenant, name, scheme: Json(new.scheme_settings()), public_url, pii, body_bytes_max, tolerance_ms: Millis(new.tolerance),
        replay_window_ms: Millis(new.replay_window), ordering_key: new.ordering_key.as_ref().map(Json), reconcile: Json(&new.reconcile), created_at: now,
        updated_at: now
    } "ON CONFLICT DO NOTHING")?;
    tx.providers_changed(&new.tenant);
    Ok((inserted == 1).then(|| tx.conn().last_insert_rowid()))
}

/// A tenant's providers that have a privacy policy, by name. If a name occurs twice, the later entry applies.
pub fn policies(tx: &ReadTx<'_>, tenant: &str) -> Result<Vec<(String, Pii)>> {
    tx.rows(POLICIES, [tenant], |row| Ok((row.get(0)?, cell(row, 1, "providers.pii")?)))
}

/// Changes how a provider signs and what it may send.
/// Fails with `Changed` when it was deleted meanwhile.
pub fn update(tx: &WriteTx<'_>, changed: &Provider, now: Timestamp) -> Result<()> {
    let new = &changed.new;
    let updated = update!(tx, "providers" of new {
        scheme: Json(new.scheme_settings()), public_url, pii, body_bytes_max, tolerance_ms: Millis(new.tolerance),
        replay_window_ms: Millis(new.replay_window), ordering_key: new.ordering_key.as_ref().map(Json), reconcile: Json(&new.reconcile), updated_at: now
    } "WHERE seq = ? AND deleted_at IS NULL", [changed.seq])?;
    tx.providers_changed(&new.tenant);
    one_row(updated, "the provider")
}

/// Deletes a provider and revokes its secrets; its events stay. Returns the ids of the revoked secrets.
/// Fails with `Changed` when it was deleted already.
pub fn delete(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<Vec<String>> {
    tx.change_one(DELETE, (seq, now), "the provider")?;
    credentials::owner_changed(tx, Owner::Provider(seq))?;
    credentials::revoke_all(tx, Owner::Provider(seq))
}

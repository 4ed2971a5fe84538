//! Table `providers`: who posts webhooks to us.

use std::time::Duration;

use rusqlite::Row;

use crate::base::clock::{Timestamp, millis};
use crate::model::name::Name;
use crate::model::public_url::PublicUrl;
use crate::privacy::policy::Pii;
use crate::signatures::provider::{NewProvider, Provider};
use crate::store::column::{json, to_json, word};
use crate::store::credentials::{self, Owner};
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};

const INSERT: &str = "
    INSERT INTO providers
           (id, tenant, name, scheme, pii, public_url, body_bytes_max, tolerance_ms, created_at, updated_at,
            replay_window_ms, ordering_key)
    VALUES (?1, ?2, ?3, ?4, ?9, ?5, ?6, ?7, ?8, ?8, ?10, ?11)
        ON CONFLICT DO NOTHING";

/// Selects the columns that [`provider`] reads, in its order, from a tenant's providers that are not deleted.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT seq, id, tenant, name, scheme, body_bytes_max, tolerance_ms, created_at, updated_at,
                public_url, pii, replay_window_ms, ordering_key
               FROM providers
              WHERE tenant = ?1 AND deleted_at IS NULL ",
            $rest
        )
    };
}

const BY_NAME: &str = select!("AND name = ?2");

const PAGE: &str = select!("AND seq > ?2 ORDER BY seq LIMIT ?3");

const UPDATE: &str = "
    UPDATE providers
       SET scheme = ?2, body_bytes_max = ?3, tolerance_ms = ?4, updated_at = ?5, public_url = ?6,
           pii = ?7, replay_window_ms = ?8, ordering_key = ?9
     WHERE seq = ?1
       AND deleted_at IS NULL";

// Includes deleted providers, because their events may still be delivered. For one name, the last row applies.
const POLICIES: &str = "
    SELECT name, pii
      FROM providers
     WHERE tenant = ?1
       AND pii <> 'allow'
     ORDER BY seq
     LIMIT 10000";

const DELETE: &str = "
    UPDATE providers
       SET deleted_at = ?2, updated_at = ?2
     WHERE seq = ?1
       AND deleted_at IS NULL";

/// Stores a provider; `None` when its name is taken.
pub fn insert(tx: &WriteTx<'_>, new: &NewProvider, now: Timestamp) -> Result<Option<i64>> {
    let inserted = tx.prepare(INSERT)?.execute((
        &new.id,
        &new.tenant,
        new.name.as_str(),
        to_json("providers.scheme", &new.scheme)?,
        new.public_url.as_ref().map(PublicUrl::as_str),
        new.body_bytes_max,
        millis(new.tolerance),
        now,
        new.pii.to_string(),
        millis(new.replay_window),
        ordering_key(new)?,
    ))?;
    tx.providers_changed();
    Ok((inserted == 1).then(|| tx.conn().last_insert_rowid()))
}

/// A provider by its name.
pub fn by_name(tx: &ReadTx<'_>, tenant: &str, name: &str) -> Result<Option<Provider>> {
    first(&mut *tx.prepare(BY_NAME)?, (tenant, name), provider)
}

/// Providers by number, after `after`.
pub fn page(tx: &ReadTx<'_>, tenant: &str, after: i64, limit: u32) -> Result<Vec<Provider>> {
    rows(&mut *tx.prepare(PAGE)?, (tenant, after, limit), provider)
}

/// A tenant's providers that have a privacy policy, by name. If a name occurs twice, the later entry applies.
pub fn policies(tx: &ReadTx<'_>, tenant: &str) -> Result<Vec<(String, Pii)>> {
    rows(&mut *tx.prepare(POLICIES)?, [tenant], |row| {
        let pii: String = row.get(1)?;
        Ok((row.get(0)?, word("providers.pii", &pii, Pii::parse)?))
    })
}

/// Changes how a provider signs and what it may send.
/// Fails with `Changed` when it was deleted meanwhile.
pub fn update(tx: &WriteTx<'_>, changed: &Provider, now: Timestamp) -> Result<()> {
    let new = &changed.new;
    let updated = tx.prepare(UPDATE)?.execute((
        changed.seq,
        to_json("providers.scheme", &new.scheme)?,
        new.body_bytes_max,
        millis(new.tolerance),
        now,
        new.public_url.as_ref().map(PublicUrl::as_str),
        new.pii.to_string(),
        millis(new.replay_window),
        ordering_key(new)?,
    ))?;
    tx.providers_changed();
    one_row(updated, "the provider")
}

/// Deletes a provider and revokes its secrets; its events stay. Returns the ids of the revoked secrets.
/// Fails with `Changed` when it was deleted already.
pub fn delete(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<Vec<String>> {
    let deleted = tx.prepare(DELETE)?.execute((seq, now))?;
    tx.providers_changed();
    one_row(deleted, "the provider")?;
    credentials::revoke_all(tx, Owner::Provider(seq))
}

fn ordering_key(new: &NewProvider) -> Result<Option<String>> {
    new.ordering_key.as_ref().map(|place| to_json("providers.ordering_key", place)).transpose()
}

fn provider(row: &Row<'_>) -> Result<Provider> {
    let name: String = row.get(3)?;
    let scheme: String = row.get(4)?;
    let span = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let public_url: Option<String> = row.get(9)?;
    let read_url = |text: &str| PublicUrl::parse(text).ok();
    let pii: String = row.get(10)?;
    let ordering_key: Option<String> = row.get(12)?;
    Ok(Provider {
        seq: row.get(0)?,
        new: NewProvider {
            id: row.get(1)?,
            tenant: row.get(2)?,
            name: word("providers.name", &name, |text| Name::parse(text).ok())?,
            scheme: json("providers.scheme", &scheme)?,
            public_url: public_url
                .map(|text| word("providers.public_url", &text, read_url))
                .transpose()?,
            pii: word("providers.pii", &pii, Pii::parse)?,
            body_bytes_max: row.get(5)?,
            tolerance: span(row.get(6)?),
            replay_window: span(row.get(11)?),
            ordering_key: ordering_key
                .map(|text| json("providers.ordering_key", &text))
                .transpose()?,
        },
        created_at: row.get(7)?,
        updated_at: row.get(8)?,
    })
}

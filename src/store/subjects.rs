//! Table `subjects`: the sealed keys of data subjects. They are never opened here.

use std::path::Path;

use data_encoding::HEXLOWER;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::base::schema::{Sha256, values};
use crate::keys::subject::ID_BYTES;
use crate::model::sealed::NewSubjectKey;
use crate::store::prelude::*;
use crate::store::{read_only, schema};

/// The id of a key.
pub type KeyId = [u8; ID_BYTES];

/// A key of a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SubjectKey {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    #[serde(skip)]
    pub tenant: String,
    /// The subject's name, hashed under a key of this box.
    #[serde(serialize_with = "as_hex")]
    #[schemars(with = "Sha256")]
    pub subject: [u8; 32],
    /// The key's name, a random number.
    #[serde(rename = "key", serialize_with = "as_hex")]
    #[schemars(with = "KeyText")]
    pub key_id: KeyId,
    /// The sealed key; `None` if it was destroyed.
    #[serde(skip)]
    pub sealed: Option<Vec<u8>>,
    pub created_at: Timestamp,
    /// When it was destroyed; null if it was not.
    pub erased_at: Option<Timestamp>,
}

values! {
    /// A key's name.
    KeyText = { "type": "string", "pattern": "^[0-9a-f]{32}$" }
}

fn as_hex<S: Serializer>(bytes: &[u8], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&HEXLOWER.encode_display(bytes))
}

queries! {
    /// Destroyed keys with the time of destruction, by number after `after`.
    pub fn erased(after: i64, limit: u32) -> Vec<(i64, KeyId, Timestamp)> = rows as tuple "
    SELECT seq, key_id, erased_at FROM subjects
     WHERE seq > ?1 AND erased_at IS NOT NULL
     ORDER BY seq LIMIT ?2";

    /// How many keys each master key seals.
    pub fn count_by_key() -> Vec<(String, i64)> = rows as tuple "
    SELECT master_key_id, count(*) FROM subjects
     WHERE master_key_id IS NOT NULL
     GROUP BY master_key_id
     ORDER BY master_key_id LIMIT 1000";
}

changes! {
    /// Stores a key again, sealed under another master key.
    /// Fails with `Changed` if it is already sealed under that master key, or was destroyed.
    pub fn reseal(key_id: &KeyId, sealed: &[u8], master_key_id: &str) of "the subject's key" =
        "UPDATE subjects SET sealed = ?2, master_key_id = ?3 WHERE key_id = ?1 AND master_key_id <> ?3";
}

/// The context to which a sealed key is bound: table, row and column.
pub fn context(key_id: &KeyId) -> String {
    format!("subjects|{}|sealed", HEXLOWER.encode(key_id))
}

columns! {
    fn key() -> SubjectKey = "subjects" [seq, tenant, subject, key_id, sealed, created_at, erased_at] {
        seq, tenant, subject, key_id, sealed, created_at, erased_at
    }
    pub(super) const OF = "
     WHERE tenant = ?1
       AND subject = ?2
       AND seq < ?3
       AND (?5 = 0 OR sealed IS NOT NULL)
     ORDER BY seq DESC
     LIMIT ?4";
    /// A key by its id, even if it was destroyed.
    pub fn by_key_id(key_id: &KeyId) -> Option = "WHERE key_id = ?1";
    pub(super) const PAGE = "WHERE tenant = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    pub(super) const PAGE_OF_ERASED =
        "WHERE tenant = ?1 AND seq > ?2 AND erased_at IS NOT NULL ORDER BY seq LIMIT ?3";
    /// At most `most` keys that are sealed under another master key.
    pub fn sealed_otherwise(master_key_id: &str, most: u32) -> Vec =
        "WHERE master_key_id < ?1 OR master_key_id > ?1 LIMIT ?2";
}

const ERASE: &str = "
    UPDATE subjects SET sealed = NULL, master_key_id = NULL, erased_at = ?2
     WHERE key_id = ?1 AND sealed IS NOT NULL";

/// Stores a key of a subject; does nothing if it is already stored.
pub(crate) fn keep(tx: &WriteTx<'_>, new: &NewSubjectKey, now: Timestamp) -> Result<()> {
    let NewSubjectKey { tenant, subject, key_id, sealed, master_key_id } = new;
    insert!(tx, "subjects" {
        tenant, subject, key_id, sealed, master_key_id, created_at: now
    } "ON CONFLICT (key_id) DO NOTHING")
    .map(drop)
}

/// Keys of a subject with a number below `before`, the newest first. `live_only`: without destroyed keys.
pub fn of(
    tx: &ReadTx<'_>,
    tenant: &str,
    subject: &[u8; 32],
    live_only: bool,
    before: i64,
    most: u32,
) -> Result<Vec<SubjectKey>> {
    tx.rows(OF, (tenant, subject, before, most, live_only), key)
}

/// Keys by number, after `after`. `erased_only`: only destroyed keys.
pub fn page(
    tx: &ReadTx<'_>,
    tenant: &str,
    erased_only: bool,
    after: i64,
    limit: u32,
) -> Result<Vec<SubjectKey>> {
    let sql = if erased_only { PAGE_OF_ERASED } else { PAGE };
    tx.rows(sql, (tenant, after, limit), key)
}

/// Destroys a key; returns whether it existed. Values sealed with it cannot be read after the commit.
pub fn erase(tx: &WriteTx<'_>, key_id: &KeyId, at: Timestamp) -> Result<bool> {
    let erased = tx.execute(ERASE, (key_id, at))? == 1;
    if erased {
        tx.subjects_erased();
    }
    Ok(erased)
}

/// All destroyed keys of a file that no service is using.
pub fn erased_in(path: &Path) -> Result<Vec<(KeyId, Timestamp)>> {
    let mut all = Vec::new();
    let mut after = 0;
    if schema::schema_version(path)?.is_none() {
        return Ok(all);
    }
    let reader = read_only(path)?;
    loop {
        let found = erased(&reader.tx(), after, 1000)?;
        let Some((last, ..)) = found.last() else { return Ok(all) };
        after = *last;
        all.extend(found.into_iter().map(|(_, id, at)| (id, at)));
    }
}

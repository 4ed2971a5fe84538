//! Table `tokens`: who may use the API. Only hashes of tokens are stored.

use rusqlite::Row;

use crate::base::clock::Timestamp;
use crate::model::token::{Role, Scope, Token};
use crate::store::column::{json, to_json, word};
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};

const INSERT: &str = "
    INSERT INTO tokens (id, tenant, name, role, hash, created_at, expires_at, source_systems, consumer_groups)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// Selects the columns that [`token`] reads, in its order, and whether the tenant is suspended.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT t.seq, t.id, t.tenant, t.name, t.role, t.created_at, t.expires_at, t.last_used_at,
                t.revoked_at, t.source_systems, t.consumer_groups, n.suspended_at IS NOT NULL
               FROM tokens AS t
               LEFT JOIN tenants AS n ON n.name = t.tenant ",
            $rest
        )
    };
}

pub(super) const BY_HASH: &str = select!("WHERE t.hash = ?1");

const BY_ID: &str = select!("WHERE t.tenant = ?1 AND t.id = ?2");

const PAGE: &str = select!("WHERE t.tenant = ?1 AND t.seq > ?2 ORDER BY t.seq LIMIT ?3");

const ANY: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM tokens)";

const ANY_ADMIN: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM tokens
            WHERE role = 'admin'
              AND revoked_at IS NULL
              AND (expires_at IS NULL OR expires_at > ?1))";

const REVOKE: &str = "
    UPDATE tokens
       SET revoked_at = ?2
     WHERE seq = ?1
       AND revoked_at IS NULL";

const REVOKE_ALL: &str = "
    UPDATE tokens
       SET revoked_at = ?1
     WHERE revoked_at IS NULL";

const ANOTHER_ADMIN: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM tokens
            WHERE tenant = ?1
              AND role = 'admin'
              AND seq <> ?2
              AND revoked_at IS NULL
              AND (expires_at IS NULL OR expires_at > ?3))";

const USED: &str = "
    UPDATE tokens
       SET last_used_at = ?2
     WHERE seq = ?1";

/// A token to be stored.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// A fresh UUIDv7.
    pub id: String,
    /// The tenant whose data it gives access to.
    pub tenant: String,
    /// Its name for people.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The source systems and consumer groups it may use, if its role is `publish`.
    pub scope: Scope,
    /// HMAC of the token under the key that is sealed in `meta`.
    pub hash: Vec<u8>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// Stores a token.
pub fn insert(tx: &WriteTx<'_>, new: &NewToken, now: Timestamp) -> Result<()> {
    tx.prepare(INSERT)?.execute((
        &new.id,
        &new.tenant,
        &new.name,
        new.role.as_str(),
        &new.hash,
        now,
        new.expires_at,
        to_json("tokens.source_systems", &new.scope.source_systems)?,
        to_json("tokens.consumer_groups", &new.scope.consumer_groups)?,
    ))?;
    tx.tokens_changed();
    Ok(())
}

/// A token that a caller presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    /// Its row.
    pub token: Token,
    /// Whether its tenant is suspended.
    pub suspended: bool,
}

/// The token with this hash.
pub fn by_hash(tx: &ReadTx<'_>, hash: &[u8]) -> Result<Option<Presented>> {
    first(&mut *tx.prepare(BY_HASH)?, [hash], |row| {
        Ok(Presented { token: token(row)?, suspended: row.get(11)? })
    })
}

/// A token of a tenant, by its UUID.
pub fn by_id(tx: &ReadTx<'_>, tenant: &str, id: &str) -> Result<Option<Token>> {
    first(&mut *tx.prepare(BY_ID)?, (tenant, id), token)
}

/// Tokens by number, after `after`.
pub fn page(tx: &ReadTx<'_>, tenant: &str, after: i64, limit: u32) -> Result<Vec<Token>> {
    rows(&mut *tx.prepare(PAGE)?, (tenant, after, limit), token)
}

/// Whether any token exists.
pub fn any(tx: &ReadTx<'_>) -> Result<bool> {
    Ok(tx.prepare(ANY)?.query_row([], |row| row.get(0))?)
}

/// Whether the tenant has a valid admin token other than this one.
pub fn another_admin(tx: &ReadTx<'_>, than: &Token, now: Timestamp) -> Result<bool> {
    let params = (&than.tenant, than.seq, now);
    Ok(tx.prepare(ANOTHER_ADMIN)?.query_row(params, |row| row.get(0))?)
}

/// Whether any tenant has a valid admin token.
pub fn any_admin(tx: &ReadTx<'_>, now: Timestamp) -> Result<bool> {
    Ok(tx.prepare(ANY_ADMIN)?.query_row([now], |row| row.get(0))?)
}

/// Revokes a token.
/// Fails with `Changed` when it was revoked already.
pub fn revoke(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<()> {
    let revoked = tx.prepare(REVOKE)?.execute((seq, now))?;
    tx.tokens_changed();
    one_row(revoked, "the token")
}

/// Revokes every token; returns how many.
pub fn revoke_all(tx: &WriteTx<'_>, now: Timestamp) -> Result<usize> {
    let revoked = tx.prepare(REVOKE_ALL)?.execute([now])?;
    tx.tokens_changed();
    Ok(revoked)
}

/// Stores the time of a token's last use.
pub fn used(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<()> {
    tx.is_unseen();
    tx.prepare(USED)?.execute((seq, now))?;
    Ok(())
}

fn token(row: &Row<'_>) -> Result<Token> {
    let role: String = row.get(4)?;
    let (sources, groups): (String, String) = (row.get(9)?, row.get(10)?);
    Ok(Token {
        seq: row.get(0)?,
        id: row.get(1)?,
        tenant: row.get(2)?,
        name: row.get(3)?,
        role: word("tokens.role", &role, Role::parse)?,
        scope: Scope {
            source_systems: json("tokens.source_systems", &sources)?,
            consumer_groups: json("tokens.consumer_groups", &groups)?,
        },
        created_at: row.get(5)?,
        expires_at: row.get(6)?,
        last_used_at: row.get(7)?,
        revoked_at: row.get(8)?,
    })
}

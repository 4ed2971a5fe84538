//! Table `tokens`: who may use the API. Only hashes of tokens are stored.

use crate::model::token::{Role, Scope, Token};
use crate::store::column::Json;
use crate::store::prelude::*;

columns! {
    fn token() -> Token = "tokens" [
        seq, id, tenant, name, role, created_at, expires_at, last_used_at, revoked_at,
        source_systems as Json(source_systems), consumer_groups as Json(consumer_groups)
    ] {
        seq, id, tenant, name, role, scope: Scope { source_systems, consumer_groups }, created_at, expires_at,
        last_used_at, revoked_at
    }
    pub(super) const BY_HASH with ",
        EXISTS (SELECT 1 FROM tenants AS n WHERE n.name = tenant AND n.suspended_at IS NOT NULL) AS suspended" =
        "WHERE hash = ?1";
    /// A token of a tenant, by its UUID.
    pub fn by_id(tenant: &str, id: &str) -> Option = "WHERE tenant = ?1 AND id = ?2";
    /// Tokens by number, after `after`.
    pub fn page(tenant: &str, after: i64, limit: u32) -> Vec =
        "WHERE tenant = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
}

const ANOTHER_ADMIN: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM tokens
            WHERE tenant = ?1
              AND role = 'admin'
              AND seq <> ?2
              AND revoked_at IS NULL
              AND (expires_at IS NULL OR expires_at > ?3))";

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

queries! {
    /// Whether any token exists.
    pub fn any() -> bool = value "SELECT EXISTS (SELECT 1 FROM tokens)";

    /// Whether any tenant has a valid admin token.
    pub fn any_admin(now: Timestamp) -> bool = value "
    SELECT EXISTS (
           SELECT 1
             FROM tokens
            WHERE role = 'admin'
              AND revoked_at IS NULL
              AND (expires_at IS NULL OR expires_at > ?1))";
}

changes! {
    /// Revokes a token.
    /// Fails with `Changed` when it was revoked already.
    pub fn revoke(seq: i64, now: Timestamp) of "the token" then tokens_changed =
        "UPDATE tokens SET revoked_at = ?2 WHERE seq = ?1 AND revoked_at IS NULL";

    /// Revokes every token; returns how many.
    pub fn revoke_all(now: Timestamp) -> usize then tokens_changed =
        "UPDATE tokens SET revoked_at = ?1 WHERE revoked_at IS NULL";

    /// Stores the time of a token's last use.
    pub fn used(seq: i64, now: Timestamp) then mark_unseen = "UPDATE tokens SET last_used_at = ?2 WHERE seq = ?1";
}

/// Stores a token.
pub fn insert(tx: &WriteTx<'_>, new: &NewToken, now: Timestamp) -> Result<()> {
    insert!(tx, "tokens" of new {
        id, tenant, name, role, hash, created_at: now, expires_at, source_systems: Json(&new.scope.source_systems),
        consumer_groups: Json(&new.scope.consumer_groups)
    })?;
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
    tx.first(BY_HASH, [hash], |row| {
        Ok(Presented { token: token(row)?, suspended: row.get("suspended")? })
    })
}

/// Whether the tenant has a valid admin token other than this one.
pub fn another_admin(tx: &ReadTx<'_>, than: &Token, now: Timestamp) -> Result<bool> {
    let params = (&than.tenant, than.seq, now);
    tx.value(ANOTHER_ADMIN, params)
}

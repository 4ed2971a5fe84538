//! Tables `users` and `login_links`: the people who use the console. Only hashes of passwords and links are stored.

use crate::model::token::Role;
use crate::model::user::User;
use crate::store::prelude::*;

columns! {
    fn found() -> UserWithPassword = ("users" from "users AS u") [
        u.seq, u.id, u.tenant, u.name, u.role, u.created_at, u.last_login_at, u.disabled_at, u.password_hash
    ] {
        user: User {
            seq, id, tenant, name, role, created_at, last_login_at, disabled_at,
            has_password: Option::is_some(&password_hash),
        },
        password_hash
    }
    pub(super) const BY_NAME = "WHERE u.tenant = ?1 AND u.name = ?2 AND u.deleted_at IS NULL";
    const PAGE = "WHERE u.tenant = ?1 AND u.seq > ?2 AND u.deleted_at IS NULL ORDER BY u.seq LIMIT ?3";
    pub(super) const OF_LINK = "JOIN login_links AS l ON l.user_seq = u.seq
     WHERE l.hash = ?1 AND l.expires_at > ?2 AND u.disabled_at IS NULL AND u.deleted_at IS NULL";
}

/// A user to be stored.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// A fresh UUIDv7.
    pub id: String,
    /// The tenant whose data it may use.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The hash of its password.
    pub password_hash: Option<String>,
}

/// A user, and the hash of its password.
#[derive(Clone, Debug)]
pub struct UserWithPassword {
    /// Its row.
    pub user: User,
    /// argon2id in PHC form.
    pub password_hash: Option<String>,
}

queries! {
    /// A user of a tenant by its name.
    pub fn by_name(tenant: &str, name: &str) -> Option<UserWithPassword> = first as found BY_NAME;

    /// Whether there is any user.
    pub fn any() -> bool = value "SELECT EXISTS (SELECT 1 FROM users WHERE deleted_at IS NULL)";
}

changes! {
    /// Marks a user as deleted.
    /// Fails with `Changed` when it was deleted already.
    pub fn delete(seq: i64, now: Timestamp) of "the user" =
        "UPDATE users SET deleted_at = ?2, password_hash = NULL WHERE seq = ?1 AND deleted_at IS NULL";

    /// Stores the time of a log-in.
    /// Fails with `Changed` when the user was deleted.
    pub fn logged_in(seq: i64, now: Timestamp) of "the user" =
        "UPDATE users SET last_login_at = ?2 WHERE seq = ?1 AND deleted_at IS NULL";

    /// Stores a one-time link of a user, in place of an earlier one.
    pub fn set_link(seq: i64, hash: &[u8], expires_at: Timestamp) = "
    INSERT INTO login_links (user_seq, hash, expires_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (user_seq) DO UPDATE SET hash = excluded.hash, expires_at = excluded.expires_at";

    /// Removes the one-time link of a user.
    pub fn drop_link(seq: i64) = "DELETE FROM login_links WHERE user_seq = ?1";
}

/// Stores a user; returns whether the name was free in its tenant.
pub fn insert(tx: &WriteTx<'_>, new: &NewUser, now: Timestamp) -> Result<bool> {
    let NewUser { id, tenant, name, role, password_hash } = new;
    let stored = insert!(tx, "users" {
        id, tenant, name, role, password_hash, created_at: now
    } "ON CONFLICT DO NOTHING")?;
    Ok(stored == 1)
}

/// Users of a tenant by number, after `after`.
pub fn page(tx: &ReadTx<'_>, tenant: &str, after: i64, limit: u32) -> Result<Vec<User>> {
    tx.rows(PAGE, (tenant, after, limit), |row| Ok(found(row)?.user))
}

/// Stores role, password and whether a user is disabled.
/// Fails with `Changed` when the user was deleted.
pub fn set(tx: &WriteTx<'_>, to: &UserWithPassword) -> Result<()> {
    let UserWithPassword { user, password_hash } = to;
    let set = update!(tx, "users" {
        role: user.role, disabled_at: user.disabled_at, password_hash
    } "WHERE seq = ? AND deleted_at IS NULL", [user.seq])?;
    one_row(set, "the user")
}

/// The user whose one-time link has this hash, if it may log in.
pub fn of_link(tx: &ReadTx<'_>, hash: &[u8], now: Timestamp) -> Result<Option<User>> {
    tx.first(OF_LINK, (hash, now), |row| Ok(found(row)?.user))
}

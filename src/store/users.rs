//! Tables `users` and `login_links`: the people who use the console. Only hashes of passwords and links are stored.

use rusqlite::Row;

use crate::base::clock::Timestamp;
use crate::model::token::Role;
use crate::model::user::User;
use crate::store::column::word;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};

const INSERT: &str = "
    INSERT INTO users (id, tenant, name, role, password_hash, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT DO NOTHING";

/// Selects the columns that [`user`] reads, in its order, and the password's hash.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT u.seq, u.id, u.tenant, u.name, u.role, u.created_at, u.last_login_at, u.disabled_at,
                u.password_hash
               FROM users AS u ",
            $rest
        )
    };
}

pub(super) const BY_NAME: &str =
    select!("WHERE u.tenant = ?1 AND u.name = ?2 AND u.deleted_at IS NULL");

const PAGE: &str =
    select!("WHERE u.tenant = ?1 AND u.seq > ?2 AND u.deleted_at IS NULL ORDER BY u.seq LIMIT ?3");

pub(super) const OF_LINK: &str = select!(
    "JOIN login_links AS l ON l.user_seq = u.seq
     WHERE l.hash = ?1 AND l.expires_at > ?2 AND u.disabled_at IS NULL AND u.deleted_at IS NULL"
);

const ANY: &str = "
    SELECT EXISTS (
           SELECT 1
             FROM users
            WHERE deleted_at IS NULL)";

const SET: &str = "
    UPDATE users
       SET role = ?2, disabled_at = ?3, password_hash = ?4
     WHERE seq = ?1
       AND deleted_at IS NULL";

const DELETE: &str = "
    UPDATE users
       SET deleted_at = ?2, password_hash = NULL
     WHERE seq = ?1
       AND deleted_at IS NULL";

const LOGGED_IN: &str = "
    UPDATE users
       SET last_login_at = ?2
     WHERE seq = ?1
       AND deleted_at IS NULL";

const SET_LINK: &str = "
    INSERT INTO login_links (user_seq, hash, expires_at)
    VALUES (?1, ?2, ?3)
        ON CONFLICT (user_seq) DO UPDATE SET hash = excluded.hash, expires_at = excluded.expires_at";

const DROP_LINK: &str = "
    DELETE FROM login_links
     WHERE user_seq = ?1";

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
pub struct Found {
    /// Its row.
    pub user: User,
    /// argon2id in PHC form.
    pub password_hash: Option<String>,
}

/// Stores a user; returns whether the name was free in its tenant.
pub fn insert(tx: &WriteTx<'_>, new: &NewUser, now: Timestamp) -> Result<bool> {
    let NewUser { id, tenant, name, role, password_hash } = new;
    let stored =
        tx.prepare(INSERT)?.execute((id, tenant, name, role.as_str(), password_hash, now))?;
    Ok(stored == 1)
}

/// A user of a tenant by its name.
pub fn by_name(tx: &ReadTx<'_>, tenant: &str, name: &str) -> Result<Option<Found>> {
    first(&mut *tx.prepare(BY_NAME)?, (tenant, name), found)
}

/// Users of a tenant by number, after `after`.
pub fn page(tx: &ReadTx<'_>, tenant: &str, after: i64, limit: u32) -> Result<Vec<User>> {
    rows(&mut *tx.prepare(PAGE)?, (tenant, after, limit), |row| user(row, 0))
}

/// Whether there is any user.
pub fn any(tx: &ReadTx<'_>) -> Result<bool> {
    Ok(tx.prepare(ANY)?.query_row([], |row| row.get(0))?)
}

/// Stores role, password and whether a user is disabled.
/// Fails with `Changed` when the user was deleted.
pub fn set(tx: &WriteTx<'_>, to: &Found) -> Result<()> {
    let Found { user, password_hash } = to;
    let params = (user.seq, user.role.as_str(), user.disabled_at, password_hash);
    one_row(tx.prepare(SET)?.execute(params)?, "the user")
}

/// Marks a user as deleted.
/// Fails with `Changed` when it was deleted already.
pub fn delete(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<()> {
    one_row(tx.prepare(DELETE)?.execute((seq, now))?, "the user")
}

/// Stores the time of a log-in.
/// Fails with `Changed` when the user was deleted.
pub fn logged_in(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> Result<()> {
    one_row(tx.prepare(LOGGED_IN)?.execute((seq, now))?, "the user")
}

/// Stores a one-time link of a user, in place of an earlier one.
pub fn set_link(tx: &WriteTx<'_>, seq: i64, hash: &[u8], expires_at: Timestamp) -> Result<()> {
    tx.prepare(SET_LINK)?.execute((seq, hash, expires_at))?;
    Ok(())
}

/// The user whose one-time link has this hash, if it may log in.
pub fn of_link(tx: &ReadTx<'_>, hash: &[u8], now: Timestamp) -> Result<Option<User>> {
    first(&mut *tx.prepare(OF_LINK)?, (hash, now), |row| user(row, 0))
}

/// Removes the one-time link of a user.
pub fn drop_link(tx: &WriteTx<'_>, seq: i64) -> Result<()> {
    tx.prepare(DROP_LINK)?.execute([seq])?;
    Ok(())
}

fn found(row: &Row<'_>) -> Result<Found> {
    Ok(Found { user: user(row, 0)?, password_hash: row.get(8)? })
}

/// Reads the nine columns of a user, the first of them at `at`.
pub(super) fn user(row: &Row<'_>, at: usize) -> Result<User> {
    let role: String = row.get(at + 4)?;
    Ok(User {
        seq: row.get(at)?,
        id: row.get(at + 1)?,
        tenant: row.get(at + 2)?,
        name: row.get(at + 3)?,
        role: word("users.role", &role, Role::parse)?,
        created_at: row.get(at + 5)?,
        last_login_at: row.get(at + 6)?,
        disabled_at: row.get(at + 7)?,
        has_password: row.get::<_, Option<String>>(at + 8)?.is_some(),
    })
}

//! Table `sessions`: who is logged in. Only hashes of the cookies' values are stored.

use crate::model::user::{StoredSession, User};
use crate::store::prelude::*;

/// Sessions that are not ended, of users that may log in.
macro_rules! live {
    ($rest:literal) => {
        concat!(
            "WHERE s.ended_at IS NULL AND u.disabled_at IS NULL AND u.deleted_at IS NULL ",
            $rest
        )
    };
}

columns! {
    fn session() -> StoredSession = ("sessions" from
        "sessions AS s JOIN users AS u ON u.seq = s.user_seq") [
        s.seq as session_seq, s.id as session_id, s.created_at as began_at, s.last_used_at, s.ends_at, s.address,
        s.user_agent, u.seq, u.id, u.tenant, u.name, u.role, u.created_at, u.last_login_at, u.disabled_at,
        "u.password_hash IS NOT NULL" as has_password
    ] {
        seq: session_seq, id: session_id, created_at: began_at, last_used_at, ends_at, address, user_agent,
        user: User { seq, id, tenant, name, role, has_password, created_at, last_login_at, disabled_at }
    }
    pub(super) const BY_HASH = live!("AND s.hash = ?1");
    /// A session of a tenant's user, by its UUID.
    pub fn by_id(tenant: &str, id: &str) -> Option = live!("AND u.tenant = ?1 AND s.id = ?2");
    const PAGE = live!("AND u.tenant = ?1 AND s.seq > ?2 AND s.ends_at > ?3 AND s.last_used_at > ?4
     ORDER BY s.seq LIMIT ?5");
    pub(super) const OF_USER = live!("AND u.id = ?1 AND s.seq > ?2 AND s.ends_at > ?3 AND s.last_used_at > ?4
     ORDER BY s.seq LIMIT ?5");
}

pub(super) const END_OF_USER: &str = "
    UPDATE sessions SET ended_at = ?2
     WHERE seq IN (SELECT seq FROM sessions WHERE user_seq = ?1 AND ended_at IS NULL LIMIT 1000)";

pub(super) const PRUNE: &str = "
    DELETE FROM sessions
     WHERE seq IN (SELECT seq FROM sessions
                    WHERE user_seq = ?1 AND (ended_at < ?2 OR ends_at < ?2) LIMIT 100)";

/// A session to be stored.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// A fresh UUIDv7.
    pub id: String,
    /// HMAC of the cookie's value.
    pub hash: Vec<u8>,
    /// When it ends at the latest.
    pub ends_at: Timestamp,
    /// The client's address.
    pub address: String,
    /// The browser, as it names itself.
    pub user_agent: Option<String>,
}

/// Which sessions a list shows: those that have not ended.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Now.
    pub now: Timestamp,
    /// Sessions that were not used since then have ended.
    pub used_since: Timestamp,
}

/// Whose sessions a list shows.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// Those of a tenant's users.
    Tenant(&'a str),
    /// Those of the user with this UUID.
    User(&'a str),
}

queries! {
    /// The session with this hash, if it was not ended and its user may log in. It may have expired.
    pub fn by_hash(hash: &[u8]) -> Option<StoredSession> = first as session BY_HASH;
}

changes! {
    /// Ends a session.
    /// Fails with `Changed` when it was ended already.
    pub fn end(seq: i64, now: Timestamp) of "the session" then tokens_changed =
        "UPDATE sessions SET ended_at = ?2 WHERE seq = ?1 AND ended_at IS NULL";

    /// Stores the time of a session's last use.
    pub fn used(seq: i64, now: Timestamp) then mark_unseen =
        "UPDATE sessions SET last_used_at = ?2 WHERE seq = ?1 AND ended_at IS NULL";
}

/// Stores a session of a user, and removes those of the same user that ended before `prune_before`.
pub fn insert(
    tx: &WriteTx<'_>,
    user_seq: i64,
    new: &NewSession,
    now: Timestamp,
    prune_before: Timestamp,
) -> Result<()> {
    let NewSession { id, hash, ends_at, address, user_agent } = new;
    tx.execute(PRUNE, (user_seq, prune_before))?;
    insert!(tx, "sessions" {
        id, user_seq, hash, created_at: now, last_used_at: now, ends_at, address, user_agent
    })
    .map(drop)
}

/// Sessions by number, after `after`.
pub fn page(
    tx: &ReadTx<'_>,
    whose: Whose<'_>,
    live: Live,
    after: i64,
    limit: u32,
) -> Result<Vec<StoredSession>> {
    let (sql, id) = match whose {
        Whose::Tenant(name) => (PAGE, name),
        Whose::User(id) => (OF_USER, id),
    };
    let params = (id, after, live.now, live.used_since, limit);
    tx.rows(sql, params, session)
}

/// Ends the sessions of a user; returns how many were ended.
pub fn end_all(tx: &WriteTx<'_>, user_seq: i64, now: Timestamp) -> Result<usize> {
    let mut ended = 0;
    loop {
        let some = tx.execute(END_OF_USER, (user_seq, now))?;
        if some == 0 {
            tx.tokens_changed();
            return Ok(ended);
        }
        ended += some;
    }
}

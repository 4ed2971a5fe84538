//! Table `credentials`: sealed secrets and their versions. What is sealed is never opened here.

use rusqlite::Row;

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::store::error::Result;
use crate::store::tx::{ReadTx, WriteTx, first, one_row, rows};

/// Whose secret it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A provider's, to verify what it sends.
    Provider(i64),
    /// A subscription's, to sign what we send.
    Subscription(SubscriptionSeq),
}

/// A secret to be stored.
#[derive(Clone, Debug)]
pub struct NewCredential {
    /// A fresh UUIDv7; also the context it was sealed under (see [`context`]).
    pub id: String,
    /// Whose data it belongs to.
    pub tenant: String,
    /// Whose secret it is.
    pub owner: Owner,
    /// The sealed secret.
    pub sealed: Vec<u8>,
    /// The key that sealed it.
    pub master_key_id: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A secret in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its name outside, and in `attempts.key_id`.
    pub id: String,
    /// The sealed secret.
    pub sealed: Vec<u8>,
    /// Its number among its owner's, from 1.
    pub version: i64,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// What a secret is bound to when it is sealed: table, row and column. A sealed value that is moved to
/// another row does not open.
pub fn context(credential_id: &str) -> String {
    format!("credentials|{credential_id}|sealed")
}

const INSERT: &str = "
    INSERT INTO credentials
           (id, tenant, provider_seq, subscription_seq, kind, version, state, sealed, master_key_id,
            created_at)
    SELECT ?1, ?2, ?3, ?4, 'signing', 1 + coalesce(max(version), 0), 'active', ?5, ?6, ?7
      FROM credentials
     WHERE provider_seq IS ?3
       AND subscription_seq IS ?4";

/// What [`credential`] reads, in its order.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, sealed, version, created_at FROM credentials ", $rest)
    };
}

const OF_PROVIDER: &str = select!(
    "WHERE provider_seq = ?1 AND state IN ('next', 'active', 'retiring') ORDER BY version DESC LIMIT 32"
);

const OF_SUBSCRIPTION: &str =
    select!("WHERE subscription_seq = ?1 AND state = 'active' ORDER BY version DESC LIMIT 1");

const SEALED_OTHERWISE: &str = select!("WHERE master_key_id <> ?1 ORDER BY seq LIMIT ?2");

const RESEAL: &str = "
    UPDATE credentials
       SET sealed = ?2, master_key_id = ?3
     WHERE id = ?1
       AND master_key_id <> ?3";

const COUNT_BY_KEY: &str = "
    SELECT master_key_id, count(*)
      FROM credentials
     GROUP BY master_key_id
     ORDER BY master_key_id
     LIMIT 1000";

const REVOKE: &str = "
    UPDATE credentials
       SET state = 'revoked'
     WHERE id = ?1
       AND state IN ('next', 'active', 'retiring')";

/// Stores a secret as the newest version of its owner's.
pub fn insert(tx: &WriteTx<'_>, new: &NewCredential) -> Result<()> {
    let (provider, subscription) = match new.owner {
        Owner::Provider(seq) => (Some(seq), None),
        Owner::Subscription(seq) => (None, Some(seq)),
    };
    tx.prepare(INSERT)?.execute((
        &new.id,
        &new.tenant,
        provider,
        subscription,
        &new.sealed,
        &new.master_key_id,
        new.created_at,
    ))?;
    owner_changed(tx, new.owner);
    Ok(())
}

/// Ends a secret: nothing is verified or signed with it from the commit on. The row stays, for what it has
/// signed.
/// Fails with `Changed` when it is not in force any more.
pub fn revoke(tx: &WriteTx<'_>, owner: Owner, id: &str) -> Result<()> {
    let revoked = tx.prepare(REVOKE)?.execute([id])?;
    owner_changed(tx, owner);
    one_row(revoked, "the secret")
}

fn owner_changed(tx: &WriteTx<'_>, owner: Owner) {
    match owner {
        Owner::Provider(_) => tx.providers_changed(),
        Owner::Subscription(_) => tx.subscriptions_changed(),
    }
}

/// Every secret of a provider that is in force, newest first.
pub fn of_provider(tx: &ReadTx<'_>, provider: i64) -> Result<Vec<Credential>> {
    rows(&mut *tx.prepare(OF_PROVIDER)?, [provider], credential)
}

/// The secret a subscription's requests are signed with.
pub fn of_subscription(
    tx: &ReadTx<'_>,
    subscription: SubscriptionSeq,
) -> Result<Option<Credential>> {
    first(&mut *tx.prepare(OF_SUBSCRIPTION)?, [subscription], credential)
}

/// Secrets that are not sealed under this key, a few.
pub fn sealed_otherwise(tx: &ReadTx<'_>, key_id: &str, most: u32) -> Result<Vec<Credential>> {
    rows(&mut *tx.prepare(SEALED_OTHERWISE)?, (key_id, most), credential)
}

/// Puts the same secret, sealed under another key, into the place of what was there.
/// Fails with `Changed` when it is sealed under that key already.
pub fn reseal(tx: &WriteTx<'_>, id: &str, sealed: &[u8], key_id: &str) -> Result<()> {
    one_row(tx.prepare(RESEAL)?.execute((id, sealed, key_id))?, "the credential")
}

/// The master keys that seal secrets, and how many each.
pub fn count_by_key(tx: &ReadTx<'_>) -> Result<Vec<(String, i64)>> {
    rows(&mut *tx.prepare(COUNT_BY_KEY)?, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn credential(row: &Row<'_>) -> Result<Credential> {
    Ok(Credential {
        id: row.get(0)?,
        sealed: row.get(1)?,
        version: row.get(2)?,
        created_at: row.get(3)?,
    })
}

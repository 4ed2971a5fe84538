//! Table `credentials`: sealed secrets and their versions. What is sealed is never opened here.

use crate::base::clock::millis;
use crate::model::credential::{CredentialKind, CredentialState, Purpose, RotationPlan, Settings};
use crate::store::column::{Millis, word};
use crate::store::prelude::*;

const TENANT_OF_PROVIDER: &str = "SELECT tenant FROM providers WHERE seq = ?1";

/// Whose secret it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A provider's, to verify what it sends.
    Provider(i64),
    /// A subscription's, to sign what we send and to log on.
    Subscription(SubscriptionSeq),
    /// A source's, to log on where its list is read.
    Source(i64),
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
    /// Its kind, and what of it is no secret.
    pub settings: Settings,
    /// `next` or `active`.
    pub state: CredentialState,
    /// The sealed secret.
    pub sealed: Vec<u8>,
    /// The key that sealed it.
    pub master_key_id: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself, as a certificate does.
    pub valid_until: Option<Timestamp>,
    /// In the state `next`: when it is verified first, and until when.
    pub verify: Option<(Timestamp, Timestamp)>,
    /// How it is rotated by itself.
    pub rotation: RotationPlan,
    /// Whether it was made by the clock, and shown to nobody yet.
    pub unseen: bool,
}

/// A stored secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its number in the file.
    pub seq: i64,
    /// Its name outside, and in `attempts.key_id`.
    pub id: String,
    /// Whose data it belongs to.
    pub tenant: String,
    /// Whose secret it is.
    pub owner: Owner,
    /// The name of the provider, the subscription or the source.
    pub owner_name: String,
    /// Its kind, and what of it is no secret.
    pub settings: Settings,
    /// Its number among its owner's, from 1.
    pub version: i64,
    /// Where it stands.
    pub state: CredentialState,
    /// The sealed secret.
    pub sealed: Vec<u8>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// Retiring: when it ends. A client certificate: when the certificate does.
    pub valid_until: Option<Timestamp>,
    /// Its last use, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// In the state `next`: when it is verified next.
    pub verify_at: Option<Timestamp>,
    /// In the state `next`: until when it is verified.
    pub verify_until: Option<Timestamp>,
    /// What the last verification came to.
    pub verify_error: Option<String>,
    /// How it is rotated by itself.
    pub rotation: RotationPlan,
    /// Whether it was made by the clock, and shown to nobody yet.
    pub unseen: bool,
}

impl Credential {
    /// Its kind.
    pub const fn kind(&self) -> CredentialKind {
        self.settings.kind()
    }

    /// What it is for.
    pub const fn purpose(&self) -> Purpose {
        self.kind().purpose()
    }
}

queries! {
    /// Every secret of a provider that is in force, newest first.
    pub fn of_provider(provider: i64) -> Vec<Credential> = rows as credential OF_PROVIDER;

    /// Every credential of a subscription that is in force (`next`, `active` or `retiring`), newest first.
    pub fn in_force_of_subscription(subscription: SubscriptionSeq) -> Vec<Credential> = rows as credential
        OF_SUBSCRIPTION;

    /// Every credential of a source that is in force, newest first.
    pub fn in_force_of_source(source: i64) -> Vec<Credential> = rows as credential OF_SOURCE;

    /// Ids and sealed secrets that are not sealed under this key, a few.
    pub fn sealed_otherwise(key_id: &str, most: u32) -> Vec<(String, Vec<u8>)> = rows as tuple
        "SELECT id, sealed FROM credentials WHERE master_key_id <> ?1 ORDER BY seq LIMIT ?2";

    /// The master keys that seal secrets, and how many each.
    pub fn count_by_key() -> Vec<(String, i64)> = rows as tuple "
    SELECT master_key_id, count(*) FROM credentials
     GROUP BY master_key_id
     ORDER BY master_key_id LIMIT 1000";
}

changes! {
    /// Puts the same secret, sealed under another key, into the place of what was there.
    /// Fails with `Changed` when it is sealed under that key already.
    pub fn reseal(id: &str, sealed: &[u8], key_id: &str) of "the credential" =
        "UPDATE credentials SET sealed = ?2, master_key_id = ?3 WHERE id = ?1 AND master_key_id <> ?3";

    /// The target refuses the credential that is sent: the one that is `next` is verified now.
    pub fn make_due_now(seq: SubscriptionSeq, now: Timestamp) = "
    UPDATE credentials SET verify_at = min(verify_at, ?2)
     WHERE subscription_seq = ?1 AND state = 'next'";

    /// Notes when a secret was last used. Wakes nobody.
    pub fn used(id: &str, at: Timestamp) = "
    UPDATE credentials SET last_used_at = ?2
     WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)";
}

/// What a secret is bound to when it is sealed: table, row and column. A sealed value that is moved to
/// another row does not open.
pub fn context(credential_id: &str) -> String {
    format!("credentials|{credential_id}|sealed")
}

const NEXT_VERSION: &str = "
    SELECT 1 + coalesce(max(version), 0) FROM credentials
     WHERE provider_seq IS ?1 AND subscription_seq IS ?2 AND source_seq IS ?3";

columns! {
    fn credential() -> Credential = ("credentials" from "credentials AS c
               LEFT JOIN providers AS p ON p.seq = c.provider_seq
               LEFT JOIN subscriptions AS s ON s.seq = c.subscription_seq
               LEFT JOIN sources AS o ON o.seq = c.source_seq") [
        c.seq, c.id, c.tenant, c.provider_seq, c.subscription_seq, c.source_seq,
        "coalesce(p.name, s.name, o.name)" as owner_name, c.kind, c.settings, c.version, c.state, c.sealed, c.created_at, c.valid_until, c.last_used_at, c.verify_at,
        c.verify_until, c.verify_error, c.rotate_every_ms, c.rotate_command, c.unseen
    ] {
        seq, id, tenant, owner: owner(provider_seq, subscription_seq, source_seq), owner_name,
        settings: read_settings(kind, settings)?, version, state, sealed, created_at, valid_until, last_used_at,
        verify_at, verify_until, verify_error, unseen,
        rotation: RotationPlan { every: Millis::optional(rotate_every_ms), command: rotate_command },
    }
    pub(super) const OF_PROVIDER = "
     WHERE c.provider_seq = ?1 AND c.state IN ('next', 'active', 'retiring')
     ORDER BY c.version DESC LIMIT 32";
    pub(super) const OF_SUBSCRIPTION = "
     WHERE c.subscription_seq = ?1 AND c.state IN ('next', 'active', 'retiring')
     ORDER BY c.version DESC LIMIT 32";
    const OF_SOURCE = "
     WHERE c.source_seq = ?1 AND c.state IN ('next', 'active', 'retiring')
     ORDER BY c.version DESC LIMIT 32";
    /// A credential by its name outside, whatever its state.
    pub fn by_id(tenant: &str, id: &str) -> Option =
        "WHERE c.tenant = ?1 AND c.id = ?2 AND p.deleted_at IS NULL AND s.deleted_at IS NULL AND o.deleted_at IS NULL";
    const LIVE_BY_ID =
        "WHERE c.id = ?1 AND p.deleted_at IS NULL AND s.deleted_at IS NULL AND o.deleted_at IS NULL";
    const PAGE = "
     WHERE c.tenant = ?1 AND c.seq > ?2
       AND p.deleted_at IS NULL AND s.deleted_at IS NULL AND o.deleted_at IS NULL
       AND (?3 IS NULL OR p.name = ?3) AND (?4 IS NULL OR ?4 IN (s.name, s.id)) AND (?7 IS NULL OR o.name = ?7)
       AND CASE WHEN ?5 IS NULL THEN c.state <> 'revoked' ELSE c.state = ?5 END
     ORDER BY c.seq LIMIT ?6";
}

const PROMOTE: &str = "
    UPDATE credentials
       SET state = 'active', verify_at = NULL, verify_until = NULL, verify_error = NULL
     WHERE id = ?1 AND state = 'next'";

const RETIRE: &str = "
    UPDATE credentials
       SET state = 'retiring', valid_until = ?2, rotate_every_ms = NULL, rotate_command = NULL
     WHERE id = ?1 AND state = 'active'";

const REVOKE: &str = "
    UPDATE credentials
       SET state = 'revoked', verify_at = NULL, rotate_every_ms = NULL, rotate_command = NULL
     WHERE id = ?1 AND state IN ('next', 'active', 'retiring')";

const PLAN: &str = "
    UPDATE credentials SET rotate_every_ms = ?2, rotate_command = ?3
     WHERE id = ?1 AND state = 'active'";

/// Stores a secret as the newest version of its owner's.
/// Fails when a subscription's new active credential has the purpose of another that is active: revoke or retire that
/// one first.
pub fn insert(tx: &WriteTx<'_>, new: &NewCredential) -> Result<()> {
    let OwnerNumbers { provider, subscription, source } = numbers(new.owner);
    let (verify_at, verify_until) = new.verify.unzip();
    let version: i64 = tx.value(NEXT_VERSION, (provider, subscription, source))?;
    insert!(tx, "credentials" of new {
        id, tenant, provider_seq: provider, subscription_seq: subscription, source_seq: source,
        kind: new.settings.kind(), version: version, state, settings: new.settings.to_json().to_string(), sealed, master_key_id, created_at, valid_until,
        verify_at: verify_at, verify_until: verify_until, rotate_every_ms: new.rotation.every.map(Millis),
        rotate_command: new.rotation.command, unseen
    })?;
    owner_changed(tx, new.owner)
}

/// Makes a verified secret the active one.
/// Fails with `Changed` when it is not `next` any more; fails when another of its purpose is still active.
pub fn promote(tx: &WriteTx<'_>, owner: Owner, id: &str) -> Result<()> {
    owner_changed(tx, owner)?;
    tx.change_one(PROMOTE, [id], "the next credential")
}

/// Lets the active secret be valid until then, beside the one that takes its place.
/// Fails with `Changed` when it is not active any more.
pub fn retire(tx: &WriteTx<'_>, owner: Owner, id: &str, until: Timestamp) -> Result<()> {
    owner_changed(tx, owner)?;
    tx.change_one(RETIRE, (id, until), "the active credential")
}

/// Ends a secret: nothing is verified, signed or sent with it from the commit on. The row stays, for what it has
/// signed.
/// Fails with `Changed` when it is not in force any more.
pub fn revoke(tx: &WriteTx<'_>, owner: Owner, id: &str) -> Result<()> {
    owner_changed(tx, owner)?;
    tx.change_one(REVOKE, [id], "the secret")
}

/// Ends every secret in force of an owner that is being deleted; returns their ids.
pub(crate) fn revoke_all(tx: &WriteTx<'_>, owner: Owner) -> Result<Vec<String>> {
    let ids: Vec<String> = in_force(tx, owner)?.into_iter().map(|one| one.id).collect();
    ids.iter().try_for_each(|id| revoke(tx, owner, id))?;
    Ok(ids)
}

/// Sets how the active secret is rotated by itself.
/// Fails with `Changed` when it is not active any more.
pub fn plan(tx: &WriteTx<'_>, id: &str, plan: &RotationPlan) -> Result<()> {
    let params = (id, plan.every.map(millis), &plan.command);
    tx.change_one(PLAN, params, "the active credential")
}

/// Notes that the secrets of an owner have changed, or the owner itself.
pub(super) fn owner_changed(tx: &WriteTx<'_>, owner: Owner) -> Result<()> {
    match owner {
        Owner::Provider(seq) => {
            let tenant: Option<String> = tx.find(TENANT_OF_PROVIDER, [seq])?;
            if let Some(tenant) = tenant {
                tx.providers_changed(&tenant);
            }
        }
        Owner::Subscription(seq) => tx.subscription_changed(seq),
        Owner::Source(_) => tx.sources_changed(),
    }
    Ok(())
}

/// The owner's number; one of them is present.
#[derive(Default)]
struct OwnerNumbers {
    provider: Option<i64>,
    subscription: Option<i64>,
    source: Option<i64>,
}

fn numbers(owner: Owner) -> OwnerNumbers {
    let none = OwnerNumbers::default();
    match owner {
        Owner::Provider(seq) => OwnerNumbers { provider: Some(seq), ..none },
        Owner::Subscription(seq) => OwnerNumbers { subscription: Some(seq.0), ..none },
        Owner::Source(seq) => OwnerNumbers { source: Some(seq), ..none },
    }
}

/// Every secret in force of an owner, newest first.
pub fn in_force(tx: &ReadTx<'_>, owner: Owner) -> Result<Vec<Credential>> {
    match owner {
        Owner::Provider(seq) => of_provider(tx, seq),
        Owner::Subscription(seq) => in_force_of_subscription(tx, seq),
        Owner::Source(seq) => in_force_of_source(tx, seq),
    }
}

/// Which credentials a list has.
#[derive(Clone, Copy, Debug, Default)]
pub struct CredentialFilter<'a> {
    /// Of the provider of that name.
    pub provider: Option<&'a str>,
    /// Of the subscription of that name or id.
    pub subscription: Option<&'a str>,
    /// Of the source of that name.
    pub source: Option<&'a str>,
    /// In that state; absent: in force.
    pub state: Option<CredentialState>,
}

/// A tenant's credentials by number, after `after`.
pub fn page(
    tx: &ReadTx<'_>,
    tenant: &str,
    CredentialFilter { provider, subscription, source, state }: CredentialFilter<'_>,
    after: i64,
    limit: u32,
) -> Result<Vec<Credential>> {
    let state = state.map(CredentialState::as_str);
    let params = (tenant, after, provider, subscription, state, limit, source);
    tx.rows(PAGE, params, credential)
}

/// Ends a secret that no key opens, and puts `sealed` into its place. Returns it if it was in force.
pub fn give_up(
    tx: &WriteTx<'_>,
    id: &str,
    sealed: &[u8],
    key_id: &str,
) -> Result<Option<Credential>> {
    let found = tx.first(LIVE_BY_ID, [id], credential)?;
    reseal(tx, id, sealed, key_id)?;
    let Some(found) = found.filter(|found| found.state != CredentialState::Revoked) else {
        return Ok(None);
    };
    revoke(tx, found.owner, id)?;
    Ok(Some(found))
}

// The schema has one of the three.
fn owner(
    provider: Option<i64>,
    subscription: Option<SubscriptionSeq>,
    source: Option<i64>,
) -> Owner {
    let none = SubscriptionSeq(0);
    let other = || Owner::Subscription(subscription.unwrap_or(none));
    provider.map(Owner::Provider).or_else(|| source.map(Owner::Source)).unwrap_or_else(other)
}

fn read_settings(kind: CredentialKind, settings: String) -> Result<Settings> {
    word("credentials.settings", &settings, |text| Settings::read(kind, text))
}

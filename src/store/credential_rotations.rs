//! Table `credentials`, what a rotation does to it: a `next` one is verified, then takes the place of the active one or
//! is revoked. The rows say where a rotation stands, so that it goes on after any end of the process.

use crate::base::id;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::credential::{CredentialState, Purpose};
use crate::model::escalation::{Class, NewEscalation};
use crate::model::operational::{OfCredential, OperationalKind};
use crate::store::credentials::{self, Credential, Owner};
use crate::store::prelude::*;
use crate::store::{audit_events, escalations, operational, settlement};

/// The tenant and the id of a credential.
pub type Named = (String, String);

queries! {
    /// Those whose overlap is over.
    // A deleted owner's are left alone: nothing is signed or checked with them.
    pub fn over(now: Timestamp, limit: u32) -> Vec<Named> = rows as tuple "
    SELECT tenant, id FROM credentials
     WHERE state = 'retiring' AND valid_until <= ?1
       AND NOT EXISTS (SELECT 1 FROM subscriptions AS s
                        WHERE s.seq = subscription_seq AND s.deleted_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM providers AS p
                        WHERE p.seq = provider_seq AND p.deleted_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM sources AS o
                        WHERE o.seq = source_seq AND o.deleted_at IS NOT NULL)
     LIMIT ?2";

    /// Credentials that are `next` and due to be verified, one of each tenant.
    // The one of each tenant that is due the longest: they are verified one at a time.
    pub fn to_verify(now: Timestamp, limit: u32) -> Vec<Named> = rows as tuple "
    SELECT tenant, id, min(verify_at) FROM credentials
     WHERE state = 'next' AND verify_at <= ?1 AND (unseen = 0 OR verify_until <= ?1)
       AND NOT EXISTS (SELECT 1 FROM subscriptions AS s
                        WHERE s.seq = subscription_seq AND s.deleted_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM providers AS p
                        WHERE p.seq = provider_seq AND p.deleted_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM sources AS o
                        WHERE o.seq = source_seq AND o.deleted_at IS NOT NULL)
     GROUP BY tenant
     ORDER BY 3 LIMIT ?2";

    /// Credentials due for rotation, one of each tenant.
    // One of each tenant. By the clock, or because the target refuses the credential. A rotation that failed is tried again after a day by the
    // clock, and with the next hold. What a hold asks for, such as of a target that accepts pings and refuses events, is
    // done ?4 times on a day ?3 at most.
    pub fn to_rotate(now: Timestamp, limit: u32, day: i64, most: u32) -> Vec<Named> = rows as tuple "
    WITH wanted (seq, since) AS (
        SELECT c.seq, ?1 - min(c.rotate_every_ms, 86400000)
          FROM credentials AS c
         WHERE c.rotate_every_ms IS NOT NULL
           AND c.state = 'active'
           AND c.created_at + c.rotate_every_ms <= ?1
         UNION ALL
        SELECT c.seq, h.since
          FROM holds AS h
         CROSS JOIN credentials AS c ON c.subscription_seq = h.subscription_seq
         WHERE h.reason = 'auth'
           AND c.state = 'active'
           AND c.rotate_command IS NOT NULL
           AND (SELECT iif(s.auth_try_day = ?3, s.auth_try_count, 0)
                  FROM subscriptions AS s WHERE s.seq = h.subscription_seq) < ?4)
    SELECT c.tenant, c.id, min(c.seq)
      FROM wanted AS w
      JOIN credentials AS c ON c.seq = w.seq
     WHERE NOT EXISTS (
           SELECT 1
             FROM credentials AS n
            WHERE n.subscription_seq = c.subscription_seq
              AND n.kind = c.kind
              AND (n.state = 'next' OR n.created_at >= w.since))
       AND NOT EXISTS (
           SELECT 1
             FROM credentials AS n
            WHERE n.provider_seq = c.provider_seq
              AND n.kind = c.kind
              AND (n.state = 'next' OR n.created_at >= w.since))
       AND NOT EXISTS (
           SELECT 1
             FROM credentials AS n
            WHERE n.source_seq = c.source_seq
              AND n.kind = c.kind
              AND (n.state = 'next' OR n.created_at >= w.since))
       AND NOT EXISTS (
           SELECT 1
             FROM escalations AS e
            WHERE e.tenant = c.tenant
              AND e.class = 'credential.rotation_failed'
              AND e.subject = 'credential:' || c.id
              AND e.last_at >= w.since)
       AND NOT EXISTS (SELECT 1 FROM subscriptions AS s
                        WHERE s.seq = c.subscription_seq AND s.deleted_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM providers AS p
                        WHERE p.seq = c.provider_seq AND p.deleted_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM sources AS o
                        WHERE o.seq = c.source_seq AND o.deleted_at IS NOT NULL)
     GROUP BY c.tenant
     LIMIT ?2";

    /// Tenant and subject of escalations about new secrets that are verified or revoked.
    pub fn told_and_over(limit: u32) -> Vec<Named> = rows as tuple "
    SELECT e.tenant, e.subject FROM escalations AS e
     WHERE e.resolved_at IS NULL AND e.class = 'credential.new_secret'
       AND NOT EXISTS (SELECT 1 FROM credentials WHERE id = substr(e.subject, 12) AND state = 'next')
     LIMIT ?1";
}

changes! {
    /// Counts that a command is run for a subscription while its target refuses its credential.
    pub fn count_command(of: SubscriptionSeq, day: i64, most: u32) = "
    UPDATE subscriptions
       SET auth_try_count = iif(auth_try_day = ?2, auth_try_count, 0) + 1, auth_try_day = ?2, auth_try_max = ?3
     WHERE seq = ?1
       AND EXISTS (SELECT 1 FROM holds WHERE subscription_seq = ?1 AND reason = 'auth')";

    /// Notes that a person has seen a secret that was made by the clock; it is verified now.
    pub fn seen(id: &str, now: Timestamp) = "
    UPDATE credentials SET unseen = 0, verify_at = ?2 WHERE id = ?1 AND state = 'next' AND unseen = 1";

    /// Notes a verification that failed, and when the next one is due.
    pub fn tried(id: &str, again_at: Timestamp, error: &str) of "the next credential" =
        "UPDATE credentials SET verify_at = ?2, verify_error = ?3 WHERE id = ?1 AND state = 'next'";
}

/// Ends those whose overlap is over, at most `limit`; returns how many.
pub fn end_over(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<usize> {
    let over = over(tx, now, limit)?;
    for (tenant, id) in &over {
        if let Some(found) = credentials::by_id(tx, tenant, id)? {
            credentials::revoke(tx, found.owner, id)?;
            audit(
                tx,
                &found,
                "credential.revoke",
                Changes::none().and("reason", "its overlap is over"),
                now,
            )?;
        }
    }
    Ok(over.len())
}

/// Ends at most `limit` escalations about new secrets that are verified or revoked.
pub fn end_told(tx: &WriteTx<'_>, limit: u32, now: Timestamp) -> Result<()> {
    for (tenant, subject) in told_and_over(tx, limit)? {
        escalations::resolve(tx, &tenant, Class::CredentialNew, &subject, now)?;
    }
    Ok(())
}

/// Tells a person that a receiver has to learn a secret that was made by the clock.
pub fn tell(tx: &WriteTx<'_>, next: &Credential, now: Timestamp) -> Result<()> {
    let until = next.verify_until.unwrap_or(now);
    let owner = owner(next);
    let id = &next.id;
    let detail = match next.settings.public_key() {
        Some(key) => format!(
            "{owner} has a new key pair; its receiver needs the public key until {until}: {key}"
        ),
        None => format!(
            "{owner} has a new signing secret; its receiver needs it until {until}: oncebox credential reveal {id}"
        ),
    };
    raise(tx, Class::CredentialNew, next, next, detail, now)
}

/// Puts a verified credential into the place of the active one of its purpose. A signing credential stays valid beside
/// it until its own overlap is over; anything else is never sent again.
pub fn promote(tx: &WriteTx<'_>, next: &Credential, now: Timestamp) -> Result<()> {
    let overlap = next.verify_until.filter(|until| next.purpose() == Purpose::Sign && *until > now);
    let is_active =
        |one: &&Credential| one.state == CredentialState::Active && one.purpose() == next.purpose();
    // The plan may have been changed since the rotation began.
    let plan = credentials::in_force(tx, next.owner)?
        .iter()
        .find(is_active)
        .map(|old| old.rotation.clone());
    take_over(tx, next, overlap, now)?;
    credentials::promote(tx, next.owner, &next.id)?;
    if let Some(plan) = plan {
        credentials::plan(tx, &next.id, &plan)?;
    }
    if let Owner::Subscription(seq) = next.owner {
        settlement::end_auth_hold(tx, seq, now)?;
    }
    rotated(tx, next, now)
}

/// Ends the active credentials of the same purpose, at once or at the end of the overlap.
pub fn take_over(
    tx: &WriteTx<'_>,
    next: &Credential,
    overlap: Option<Timestamp>,
    now: Timestamp,
) -> Result<()> {
    for old in credentials::in_force(tx, next.owner)? {
        if old.state != CredentialState::Active
            || old.purpose() != next.purpose()
            || old.id == next.id
        {
            continue;
        }
        match overlap {
            Some(until) => credentials::retire(tx, old.owner, &old.id, until)?,
            None => credentials::revoke(tx, old.owner, &old.id)?,
        }
        // What was raised about a version ends with it.
        escalations::resolve(tx, &old.tenant, Class::CredentialRotation, &subject(&old), now)?;
    }
    Ok(())
}

/// Tells that a credential has taken the place of another.
pub fn rotated(tx: &WriteTx<'_>, next: &Credential, now: Timestamp) -> Result<()> {
    let changes = Changes::none().and("version", next.version);
    audit(tx, next, "credential.promote", changes, now)?;
    operational::credential(
        tx,
        (OperationalKind::CredentialRotated, &next.tenant),
        &event(next, None, now),
    )
}

/// A rotation has failed: what was to come is revoked, what is active stays, and a person is told.
pub fn fail(tx: &WriteTx<'_>, failed: &Credential, why: &str, now: Timestamp) -> Result<()> {
    let mut about = failed.clone();
    if failed.state == CredentialState::Next {
        tried(tx, &failed.id, now, why)?;
        credentials::revoke(tx, failed.owner, &failed.id)?;
        let active = |one: &Credential| {
            one.state == CredentialState::Active && one.purpose() == failed.purpose()
        };
        about = credentials::in_force(tx, failed.owner)?.into_iter().find(active).unwrap_or(about);
    }
    let changes = Changes::none().and("reason", why);
    audit(tx, failed, "credential.rotation_failed", changes, now)?;
    let detail = format!(
        "the {} credential of {} was not rotated, the old one stays in force: {why}",
        failed.kind().as_str(),
        owner(failed)
    );
    raise(tx, Class::CredentialRotation, failed, &about, detail, now)?;
    let kind = OperationalKind::CredentialRotationFailed;
    operational::credential(tx, (kind, &failed.tenant), &event(failed, Some(why), now))
}

/// Raises the escalation of a class that `cause` has, about the credential `about`.
fn raise(
    tx: &WriteTx<'_>,
    class: Class,
    cause: &Credential,
    about: &Credential,
    detail: String,
    now: Timestamp,
) -> Result<()> {
    let id = id::uuid7_of(now, &[class.as_str(), &cause.id]);
    let tenant = cause.tenant.clone();
    let new = NewEscalation { id, tenant, class, subject: subject(about), detail };
    escalations::raise(tx, &new, now).map(drop)
}

fn event(of: &Credential, why: Option<&str>, at: Timestamp) -> OfCredential {
    OfCredential {
        credential_id: of.id.clone(),
        owner: owner(of),
        kind: of.kind().as_str().to_owned(),
        version: u32::try_from(of.version).unwrap_or(u32::MAX),
        reason: why.map(str::to_owned),
        at,
    }
}

/// Whose it is, like `subscription:erp`.
fn owner(of: &Credential) -> String {
    let kind = match of.owner {
        Owner::Provider(_) => "provider",
        Owner::Subscription(_) => "subscription",
        Owner::Source(_) => "source",
    };
    format!("{kind}:{}", of.owner_name)
}

/// What an escalation about a rotation names: the credential that stays active.
fn subject(of: &Credential) -> String {
    format!("credential:{}", of.id)
}

fn audit(
    tx: &WriteTx<'_>,
    of: &Credential,
    action: &'static str,
    changes: Changes,
    at: Timestamp,
) -> Result<()> {
    let event = NewAuditEvent::local(at, &of.tenant, Actor::system(), action);
    audit_events::append(tx, &event.of("credential", &of.id, changes)).map(drop)
}

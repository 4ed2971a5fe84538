//! Rotating credentials: new material comes in as `next`, is verified by a request that carries it alone, and takes the
//! place of the active one, or is revoked.
//!
//! Where a rotation stands is in the rows of `credentials`. A command of the settings runs only after its rotation was
//! claimed (`pipeline::claims`): it may end the secret before, so that a rotation that is refused runs none. Not here:
//! the routes, and the statements (`store::credential_rotations`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use zeroize::Zeroizing;

use crate::base::id;
use crate::config::{Settings, own_variables};
use crate::http::identity::Identity;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::credential::{self, CredentialState, MAX_SECRET_BYTES, Purpose, RotationPlan};
use crate::model::effect::{AskedBy, EffectKind};
use crate::model::name::DEFAULT_TENANT;
use crate::model::outcome::AttemptClass;
use crate::pipeline::claims::{self, At, Claim, Claims};
use crate::pipeline::prelude::*;
use crate::pipeline::probe::{SubscriptionTests, Turn};
use crate::signatures::signing_key::SigningKey;
use crate::store::claimed_effects::{self, NewEffect};
use crate::store::credential_rotations::{self as rotations, Named};
use crate::store::credentials::{self, Credential, NewCredential, Owner, context};
use crate::store::tx::ReadTx;
use crate::sys::command::{How, Program};

/// How long old and new are valid side by side, unless the request says otherwise.
pub const OVERLAP: Duration = Duration::from_hours(24);
/// How long at most old and new are valid side by side, where the new one was made by the clock: people need the time.
const OVERLAP_BY_CLOCK: Duration = Duration::from_hours(24 * 7);
/// Why a credential that was replaced meanwhile is not rotated.
const NOT_ACTIVE: &str = "It is not active any more.";
/// Why a secret that was made by the clock is revoked without a request.
const NOBODY_SAW_IT: &str =
    "nobody asked for it, so its receiver cannot know it (oncebox credential reveal)";
/// How long a rotation command may run.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The shortest and the longest wait between two verifications. A wait is as long as all before it together.
const WAITS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(15));
/// Whether an escalation is over is looked at once in so many looks, which are seconds.
const RARELY: u32 = 5;
/// Rotations to begin and credentials to end, found by one look.
const MAX_ROWS: u32 = 20;
/// Versions of all credentials of one owner that are in force at most.
const MAX_IN_FORCE: usize = 32;
/// Characters that are kept of why a verification failed.
const MAX_ERROR_CHARS: usize = 500;

/// Rotates credentials. Cheap to clone.
#[derive(Clone)]
pub struct CredentialRotation {
    env: Env,
    tests: SubscriptionTests,
    /// Those by the clock have threads of their own, so that they delay no person.
    by_clock: SubscriptionTests,
    looks: Arc<AtomicU32>,
    claims: Claims,
    /// Credentials that are being rotated or verified at this moment.
    busy: Arc<Mutex<BTreeSet<String>>>,
}

/// A credential that nobody else rotates or verifies until this is dropped.
#[derive(Debug)]
pub struct Busy {
    busy: Arc<Mutex<BTreeSet<String>>>,
    id: String,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.id);
    }
}

/// New version of a credential, checked. It is sealed when it is stored.
pub struct ReplacementCredential {
    settings: credential::Settings,
    secret: Zeroizing<String>,
    valid_until: Option<Timestamp>,
    /// Whether it was made by the clock, and its receiver needs it.
    is_unseen: bool,
}

impl CredentialRotation {
    /// Nothing is rotated yet. `tests` verify what people rotate, `by_clock` what is rotated by the clock.
    pub fn new(
        env: Env,
        tests: SubscriptionTests,
        by_clock: SubscriptionTests,
        claims: Claims,
    ) -> Self {
        Self { env, tests, by_clock, looks: Arc::default(), claims, busy: Arc::default() }
    }

    /// Does what is due by the clock: ends old credentials, verifies next ones, runs commands.
    /// While the clock may be wrong, none of it happens.
    pub fn look(&self) -> Result<()> {
        let Some(sure_now) = self.env.clock.sure_now() else { return Ok(()) };
        let now = sure_now.at();
        let due = |find: fn(&ReadTx<'_>, Timestamp, u32) -> Result<Vec<Named>>| {
            self.env.store.read(|tx| find(tx, now, MAX_ROWS))
        };
        if !due(rotations::over)?.is_empty() {
            let end = move |tx: &WriteTx<'_>| rotations::end_over(tx, now, MAX_ROWS);
            self.env.store.writer().write(Queue::Upkeep, end)?;
        }
        for (tenant, id) in due(rotations::to_verify)? {
            self.submit((tenant, id), Self::verify);
        }
        let (day, most) = self.commands_of_day(now);
        let to_rotate = |tx: &ReadTx<'_>| rotations::to_rotate(tx, now, MAX_ROWS, day, most);
        for (tenant, id) in self.env.store.read(to_rotate)? {
            self.submit((tenant, id), Self::rotate_by_plan);
        }
        let is_rare = self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(RARELY);
        if is_rare && !self.env.store.read(|tx| rotations::told_and_over(tx, 1))?.is_empty() {
            let end = move |tx: &WriteTx<'_>| rotations::end_told(tx, MAX_ROWS, now);
            self.env.store.writer().write(Queue::Upkeep, end)?;
        }
        Ok(())
    }

    /// Effects outside the file, claimed before they are done.
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }

    /// What sends the verifying requests.
    pub fn tests(&self) -> &SubscriptionTests {
        &self.tests
    }

    /// Keeps others from rotating or verifying a credential; `None` while somebody else does.
    pub fn occupy(&self, id: &str) -> Option<Busy> {
        let is_free = self.busy.lock().insert(id.to_owned());
        is_free.then(|| Busy { busy: Arc::clone(&self.busy), id: id.to_owned() })
    }

    fn submit(&self, (tenant, id): Named, run: fn(&Self, &str, &str) -> Result<()>) {
        let Some(busy) = self.occupy(&id) else { return };
        let own = self.clone();
        let whose = tenant.clone();
        let job = move |turn| {
            let _busy = busy;
            if turn == Turn::Now
                && let Err(error) = run(&own, &whose, &id)
            {
                tracing::error!(%error, credential = id, "a rotation could not go on; it is tried again");
            }
        };
        self.by_clock.submit(&tenant, Box::new(job));
    }

    /// The day (UTC), and how many commands a subscription gets on it because its target refuses its credential.
    fn commands_of_day(&self, now: Timestamp) -> (i64, u32) {
        (
            now.secs().div_euclid(86_400),
            self.env.settings.get().credentials.auth_commands_per_day_max,
        )
    }

    fn rotate_by_plan(&self, tenant: &str, id: &str) -> Result<()> {
        let found = self.env.store.read(|tx| credentials::by_id(tx, tenant, id))?;
        let Some(old) = found.filter(|found| found.state == CredentialState::Active) else {
            return Ok(());
        };
        let next = match old.rotation.command.clone() {
            Some(name) => self.rotate_by_command(old, &name)?,
            None => self.rotate_here(old)?,
        };
        match next {
            Some(next) if !next.unseen => self.verify(tenant, &next.id),
            _ => Ok(()),
        }
    }

    /// Rotates a credential to a secret that is made here.
    fn rotate_here(&self, old: Credential) -> Result<Option<Credential>> {
        let made = self.generate(&old).ok_or_else(|| "no command gives the new one".to_owned());
        let made =
            made.and_then(|secret| material(&old, &secret)).map(|made| ReplacementCredential {
                // Of a key pair the receiver needs what everybody may see.
                is_unseen: made.settings.public_key().is_none(),
                ..made
            });
        let half = old.rotation.every.map(|every| every / 2);
        let overlap = half.map_or(OVERLAP_BY_CLOCK, |half| OVERLAP_BY_CLOCK.min(half));
        let own = self.clone();
        let now = self.env.clock.wall();
        self.env.store.writer().write(Queue::Upkeep, move |tx| match &made {
            Ok(material) => match own.begin(tx, &old, material, now, overlap)? {
                Ok(row) => rotations::tell(tx, &row, now).map(|()| Some(row)),
                Err(why) => rotations::fail(tx, &old, &why, now).map(|()| None),
            },
            Err(why) => rotations::fail(tx, &old, why, now).map(|()| None),
        })
    }

    /// Rotates a credential to a secret that a command of the settings makes: claims the rotation, runs the command, and
    /// stores what came of it.
    fn rotate_by_command(&self, old: Credential, name: &str) -> Result<Option<Credential>> {
        let Some(claim) = self.claim_command(&old, name)? else { return Ok(None) };
        let made = self.command(&old.tenant, name).and_then(|command| command.run(&self.env.clock));
        let made = made.and_then(|secret| material(&old, &secret));
        let own = self.clone();
        // The rest of the claim keeps others away until its row is gone.
        let effect = claim.effect;
        let now = self.env.clock.wall();
        let finished_at = self.env.clock.now();
        self.env.store.writer().write(Queue::Upkeep, move |tx| {
            claimed_effects::finish(tx, &effect, None, finished_at)?;
            match &made {
                Ok(material) => match own.begin_claimed(tx, &old, material, now, OVERLAP)? {
                    Ok(row) => Ok(Some(row)),
                    Err(why) => rotations::fail(tx, &old, &why, now).map(|()| None),
                },
                Err(why) => rotations::fail(tx, &old, why, now).map(|()| None),
            }
        })
    }

    /// Claims a rotation by the clock, and counts its command. One that is refused has failed.
    fn claim_command(&self, old: &Credential, name: &str) -> Result<Option<Claim>> {
        let now = self.env.clock.wall();
        let (day, most) = self.commands_of_day(now);
        let by = NewAuditEvent::local(now, &old.tenant, Actor::system(), "credential.rotate");
        let new = NewEffect {
            kind: EffectKind::CredentialRotate,
            subject: old.id.clone(),
            tenant: old.tenant.clone(),
            terms: json!({ "command": name }),
            asked_by: AskedBy::of(&by),
            key: None,
            claimed_at: self.env.clock.now(),
        };
        let of = old.clone();
        let claimed = self.claims.claim(new, move |tx| {
            if let Owner::Subscription(seq) = of.owner {
                rotations::count_command(tx, seq, day, most)?;
            }
            let refused = refused(tx, &of)?;
            if let Some(why) = &refused {
                rotations::fail(tx, &of, why, now)?;
            }
            Ok(refused.map_or(Ok(()), Err))
        })?;
        Ok(claimed.and_then(std::result::Result::ok))
    }

    /// Ends a rotation whose command an earlier process ran: what the command made is not known here. The old credential
    /// stays, and a person is told.
    pub fn end_cut_short(&self, claim: Claim) -> Result<()> {
        let effect = claim.effect;
        let at = At::of(&self.env.clock);
        self.env.store.writer().write(Queue::Upkeep, move |tx| {
            let NewEffect { tenant, subject, .. } = &effect.new;
            claims::end_cut_short(tx, &effect, at)?;
            let Some(old) = credentials::by_id(tx, tenant, subject)? else { return Ok(()) };
            let name = effect.term("command");
            let why = format!(
                "the service ended while the command {name} ran, so that what it made is not stored: rotate it again"
            );
            rotations::fail(tx, &old, &why, at.wall)
        })
    }

    /// A rotation command of the settings, ready to run. It runs on the machine, so that only the first tenant may use
    /// one. The error says what is wrong.
    pub fn command(&self, tenant: &str, name: &str) -> std::result::Result<SecretCommand, String> {
        if tenant != DEFAULT_TENANT {
            return Err(
                "a command runs on the machine: only the tenant default may name one".to_owned()
            );
        }
        let settings = self.env.settings.get();
        let argv = settings.credentials.commands.get(name);
        let argv = argv.ok_or_else(|| {
            format!("the settings have no command {name:?} in [credentials.commands]")
        })?;
        let program = Program {
            argv: argv.iter().map(OsString::from).collect(),
            without: own_variables(),
            environment: Vec::new(),
            input: Vec::new(),
            timeout: COMMAND_TIMEOUT,
            // One byte more shows that it wrote too much: a secret that is cut would be a wrong one.
            output_most: MAX_SECRET_BYTES + 1,
        };
        Ok(SecretCommand { name: name.to_owned(), program })
    }

    /// Stores new material beside the active credential. A provider's is in force at once.
    /// Fails with what stands in the way: see [`refused`].
    pub fn begin(
        &self,
        tx: &WriteTx<'_>,
        old: &Credential,
        material: &ReplacementCredential,
        now: Timestamp,
        overlap: Duration,
    ) -> Result<std::result::Result<Credential, String>> {
        match refused(tx, old)? {
            Some(why) => Ok(Err(why)),
            None => self.store(tx, old, material, now, overlap).map(Ok),
        }
    }

    /// As [`CredentialRotation::begin`], for a rotation that was claimed. The claim has kept everything else away but the
    /// end of the subscription or provider.
    pub fn begin_claimed(
        &self,
        tx: &WriteTx<'_>,
        old: &Credential,
        material: &ReplacementCredential,
        now: Timestamp,
        overlap: Duration,
    ) -> Result<std::result::Result<Credential, String>> {
        let in_force = credentials::in_force(tx, old.owner)?;
        if !is_active(&in_force, old) {
            return Ok(Err(NOT_ACTIVE.to_owned()));
        }
        self.store(tx, old, material, now, overlap).map(Ok)
    }

    fn store(
        &self,
        tx: &WriteTx<'_>,
        old: &Credential,
        material: &ReplacementCredential,
        now: Timestamp,
        overlap: Duration,
    ) -> Result<Credential> {
        let id = id::uuid7(now, &*self.env.draw);
        let key = self.env.keyring.current();
        // A source shows by its next read whether its list accepts the new one.
        let is_used_at_once = matches!(old.owner, Owner::Provider(_) | Owner::Source(_));
        let until = now.plus(overlap);
        // What logs on is verified by whoever brings it; upkeep goes on where that one ends.
        let first = if old.purpose() == Purpose::Sign { now } else { now.plus(WAITS.0) };
        let new = NewCredential {
            sealed: key.seal(&context(&id), material.secret.as_bytes(), &*self.env.draw),
            master_key_id: key.key_id(),
            id,
            tenant: old.tenant.clone(),
            owner: old.owner,
            settings: material.settings.clone(),
            state: if is_used_at_once { CredentialState::Active } else { CredentialState::Next },
            created_at: now,
            valid_until: material.valid_until,
            verify: (!is_used_at_once).then_some((first.min(until), until)),
            rotation: old.rotation.clone(),
            unseen: material.is_unseen,
        };
        credentials::insert(tx, &new)?;
        let stored = credentials::by_id(tx, &new.tenant, &new.id)?;
        let stored = stored.ok_or(Error::Changed("the credential"))?;
        if is_used_at_once {
            rotations::take_over(tx, &stored, Some(until), now)?;
            rotations::rotated(tx, &stored, now)?;
        }
        Ok(stored)
    }

    /// Sends a ping with a `next` credential alone, and stores what follows.
    pub fn verify(&self, tenant: &str, id: &str) -> Result<()> {
        let found = self.env.store.read(|tx| credentials::by_id(tx, tenant, id))?;
        let Some(next) = found.filter(|found| found.state == CredentialState::Next) else {
            return Ok(());
        };
        let Owner::Subscription(seq) = next.owner else { return Ok(()) };
        let (class, why) = if next.unseen {
            (AttemptClass::Auth, NOBODY_SAW_IT.to_owned())
        } else {
            self.tests.ping_with(seq, id)?
        };
        let now = self.env.clock.wall();
        let until = next.verify_until.unwrap_or(now);
        // A receiver may learn a new signing secret later; a login that is refused stays refused.
        let is_refused = matches!(
            class,
            AttemptClass::Auth
                | AttemptClass::Validation
                | AttemptClass::Gone
                | AttemptClass::Poison
        );
        let is_over = until <= now || (is_refused && next.purpose() != Purpose::Sign);
        let wait = now.since(next.created_at).clamp(WAITS.0, WAITS.1);
        let again_at = now.plus(wait).min(until);
        let why: String = why.chars().take(MAX_ERROR_CHARS).collect();
        self.env.store.writer().write(Queue::Upkeep, move |tx| {
            // It may have been revoked meanwhile.
            let found = credentials::by_id(tx, &next.tenant, &next.id)?;
            let Some(next) = found.filter(|found| found.state == CredentialState::Next) else {
                return Ok(());
            };
            match (class.is_success(), is_over) {
                (true, _) => rotations::promote(tx, &next, now),
                (false, true) => rotations::fail(tx, &next, &why, now),
                (false, false) => rotations::tried(tx, &next.id, again_at, &why),
            }
        })
    }

    /// Makes a new key for a credential that signs.
    pub fn generate(&self, old: &Credential) -> Option<Zeroizing<String>> {
        SigningKey::generate(old.kind(), &*self.env.draw).map(|key| key.to_text())
    }
}

/// A command of the settings that makes a new secret.
#[derive(Debug)]
pub struct SecretCommand {
    name: String,
    program: Program,
}

impl SecretCommand {
    /// Runs it; returns its output. The error says what went wrong, without output. The caller has claimed the rotation.
    pub fn run(self, clock: &Clock) -> std::result::Result<Zeroizing<String>, String> {
        let Self { name, program } = self;
        let ended = program
            .run(clock)
            .map_err(|error| format!("the command {name} does not start: {error}"))?;
        let stdout = Zeroizing::new(ended.stdout);
        if ended.how != How::Exited(0) {
            return Err(format!("the command {name} failed: {}", ended.how));
        }
        if stdout.len() > MAX_SECRET_BYTES {
            return Err(format!(
                "the command {name} wrote more than {MAX_SECRET_BYTES} bytes; it must write the secret alone"
            ));
        }
        let text = std::str::from_utf8(&stdout)
            .map_err(|_why| format!("the command {name} wrote something that is no text"))?;
        Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// Why a credential cannot be rotated now: a rotation of it is not over, it is not active, or too many versions are in
/// force. `None`: it can.
pub fn refused(tx: &ReadTx<'_>, old: &Credential) -> Result<Option<String>> {
    let in_force = credentials::in_force(tx, old.owner)?;
    let is_next =
        |one: &&Credential| one.state == CredentialState::Next && one.purpose() == old.purpose();
    if let Some(next) = in_force.iter().find(is_next) {
        let id = &next.id;
        return Ok(Some(format!("The rotation to {id} is not over: revoke that one to stop it.")));
    }
    if !is_active(&in_force, old) {
        return Ok(Some(NOT_ACTIVE.to_owned()));
    }
    if in_force.len() >= MAX_IN_FORCE {
        return Ok(Some("Too many versions are in force: revoke one first.".to_owned()));
    }
    let claimed = claimed_effects::find(tx, EffectKind::CredentialRotate, &old.id)?;
    Ok(claimed.map(|_| "It is being rotated at this moment.".to_owned()))
}

fn is_active(in_force: &[Credential], old: &Credential) -> bool {
    in_force.iter().any(|one| one.id == old.id && one.state == CredentialState::Active)
}

/// Checks new material for a credential. The error says what is wrong and what to do.
pub fn material(
    old: &Credential,
    secret: &str,
) -> std::result::Result<ReplacementCredential, String> {
    let mut valid_until = None;
    let settings = match (&old.settings, old.owner) {
        (_, Owner::Provider(_)) => old.settings.clone(),
        (credential::Settings::Signing {} | credential::Settings::SigningEd25519 { .. }, _) => {
            let key = SigningKey::parse(secret).map_err(|error| error.to_string())?;
            key.settings()
        }
        (credential::Settings::ClientCertificate { .. }, _) => {
            let identity = Identity::read(secret)?;
            valid_until = Some(identity.valid_until);
            credential::Settings::ClientCertificate { fingerprint: identity.fingerprint }
        }
        (other, _) => {
            other.check(secret)?;
            other.clone()
        }
    };
    if settings.kind() != old.kind() {
        let new = settings.kind().as_str();
        let old = old.kind().as_str();
        return Err(format!("it is of the kind {new}, and the credential of the kind {old}"));
    }
    let secret = Zeroizing::new(secret.to_owned());
    Ok(ReplacementCredential { settings, secret, valid_until, is_unseen: false })
}

/// Whether a plan for a credential can be carried out by itself; the error says what to do.
pub fn check_plan(
    plan: &RotationPlan,
    of: &Credential,
    settings: &Settings,
) -> std::result::Result<(), String> {
    let known = &settings.credentials.commands;
    if let Some(name) = plan.command.as_ref().filter(|name| !known.contains_key(*name)) {
        return Err(format!("the settings have no command {name:?} in [credentials.commands]"));
    }
    let is_made_here = of.purpose() == Purpose::Sign && matches!(of.owner, Owner::Subscription(_));
    if plan.every.is_some() && plan.command.is_none() && !is_made_here {
        return Err(
            "a rotation by the clock needs a command that gives the new secret; only what signs a subscription's \
             requests is made by Oncebox"
                .to_owned(),
        );
    }
    Ok(())
}

//! A lost master key: gives up what it has sealed, and goes on under a new key. Events, deliveries and their order stay.
//!
//! All of it is one transaction, so that an end of the process in between gives up nothing or everything. The same
//! transaction claims that a person is told what was lost: until then, the command repeats it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::alerts::channel::Channel;
use crate::api::auth::TokenHasher;
use crate::app::data_directory::{DataDirectory, DirectoryError};
use crate::app::error::Error;
use crate::app::master_key::{self, LocatedKey};
use crate::app::opened_database::upgrade;
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::base::secret::MasterKey;
use crate::config::Settings;
use crate::keys::{Keyring, file};
use crate::model::audit::NewAuditEvent;
use crate::model::audit::changes::Changes;
use crate::model::effect::{AskedBy, EffectKind};
use crate::model::hold::HoldReason;
use crate::model::name::DEFAULT_TENANT;
use crate::model::token::{self, Role, Scope};
use crate::pipeline::upkeep::master_key_rotation::{GivenUp, reseal_some};
use crate::store::claimed_effects::{self, NewEffect};
use crate::store::credentials::{Credential, Owner};
use crate::store::error::Result as StoreResult;
use crate::store::tokens::NewToken;
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::{Store, audit_events, holds, meta, tokens};

/// The name of the token that is made if all tokens were revoked.
const TOKEN_NAME: &str = "first admin token under the new key";
/// The subject of the claim.
const SUBJECT: &str = "master_key";

/// Gives up what no key opens, while no service runs. Subscriptions that lost a secret or a URL are paused, so that nothing
/// is sent without it. If all tokens were revoked, the file `admin.token` has a new one. Returns what was lost, for
/// programs, until [`told`] is called.
/// Fails with `NothingLost`, and changes nothing, if every secret can be opened.
pub fn abandon(settings: &Settings, clock: &Clock, draw: &Arc<dyn Draw>) -> Result<Value, Error> {
    let data = DataDirectory::lock(settings.directory())?;
    let database = upgrade(&data, clock, &Faults::none())?;
    let (_store, mut writer) = Store::open(&database, Faults::none())?;
    if master_key::find(settings)?.is_none() {
        let path = settings.master_key_file();
        file::write(&path, &MasterKey::generate(&**draw)).map_err(DirectoryError::from)?;
    }
    let LocatedKey { key, .. } = master_key::find_or_create(settings, &**draw)?;
    let id = key.key_id();
    let ring = Keyring::new(key);
    let missing = master_key::add_older(&mut writer, settings, &ring)?;
    if missing.is_empty() {
        let untold = writer.read(|tx| claimed_effects::of_kind(tx, KIND))?;
        return untold
            .into_iter()
            .next()
            .map(|untold| untold.new.terms)
            .ok_or(Error::NothingLost(id));
    }
    // The file is written first: once the database has the token, it must be readable.
    let secret = token::generate(&**draw);
    if writer.read(|tx| is_pepper_lost(tx, &ring))? {
        data.write_token(&secret)?;
    }
    let by =
        NewAuditEvent::local(clock.wall(), DEFAULT_TENANT, master_key::local_user(), KIND.as_str());
    let abandoning =
        Abandoning { ring: &ring, draw: &**draw, secret: &secret, missing: &missing, by, clock };
    Ok(writer.direct(|tx| abandoning.give_up(tx))?)
}

const KIND: EffectKind = EffectKind::MasterKeyAbandon;

/// Notes that a person was told what was lost.
pub fn told(settings: &Settings, clock: &Clock) -> Result<(), Error> {
    let data = DataDirectory::lock(settings.directory())?;
    let (_store, mut writer) = Store::open(&data.database(), Faults::none())?;
    let now = clock.now();
    writer.direct(|tx| {
        let untold = claimed_effects::of_kind(tx, KIND)?;
        untold.iter().try_for_each(|effect| claimed_effects::finish(tx, effect, None, now))
    })?;
    Ok(())
}

/// Whether no key opens the secret under which tokens are hashed.
fn is_pepper_lost(tx: &ReadTx<'_>, ring: &Keyring) -> StoreResult<bool> {
    is_lost(tx, ring, meta::TOKEN_PEPPER)
}

fn is_lost(tx: &ReadTx<'_>, ring: &Keyring, name: &str) -> StoreResult<bool> {
    let key = meta::sealed(tx, name)?.as_deref().and_then(MasterKey::id_in);
    Ok(key.is_none_or(|id| ring.of(&id).is_none()))
}

/// What the transaction needs.
struct Abandoning<'a> {
    ring: &'a Keyring,
    draw: &'a dyn Draw,
    /// The new admin token, if one is made.
    secret: &'a str,
    /// The ids of the lost keys.
    missing: &'a [String],
    by: NewAuditEvent,
    clock: &'a Clock,
}

impl Abandoning<'_> {
    /// Gives up everything, holds what lost something, and claims that a person is told.
    fn give_up(&self, tx: &WriteTx<'_>) -> StoreResult<Value> {
        let now = self.by.at;
        let id = self.ring.current().key_id();
        let mut lost = GivenUp { at: now, ..GivenUp::default() };
        while reseal_some(tx, self.ring, self.draw, Some(&mut lost))? > 0 {}
        self.hold(tx, &lost)?;
        let revoked = self.forget_sealed(tx)?;
        meta::set_master_key_id(tx, &id)?;
        meta::set_master_key_since(tx, now)?;
        let before = json!({ "id": self.missing });
        let changes = Changes::between(&before, &json!({ "id": id }))
            .and("secrets", lost.secrets.len())
            .and("alert_channels", lost.channels.len())
            .and("subjects", lost.subjects)
            .and("tokens", revoked.unwrap_or(0));
        audit_events::append(tx, &self.by.clone().of(SUBJECT, &id, changes))?;
        let untold = self.take_untold(tx)?;
        let terms = shown(&id, untold, &lost, revoked);
        let told = NewEffect {
            kind: KIND,
            subject: SUBJECT.to_owned(),
            tenant: DEFAULT_TENANT.to_owned(),
            terms: terms.clone(),
            asked_by: AskedBy::of(&self.by),
            key: None,
            claimed_at: self.clock.now(),
        };
        claimed_effects::claim(tx, &told)?;
        Ok(terms)
    }

    /// What was lost earlier and nobody was told of.
    fn take_untold(&self, tx: &WriteTx<'_>) -> StoreResult<Vec<Value>> {
        let mut untold = Vec::new();
        for earlier in claimed_effects::of_kind(tx, KIND)? {
            claimed_effects::finish(tx, &earlier, None, self.clock.now())?;
            let lost = earlier.new.terms.get("set_anew").and_then(Value::as_array);
            untold.extend(lost.into_iter().flatten().cloned());
        }
        Ok(untold)
    }

    fn hold(&self, tx: &WriteTx<'_>, lost: &GivenUp) -> StoreResult<()> {
        let held = lost.secrets.iter().filter_map(|secret| match secret.owner {
            Owner::Subscription(seq) => Some(seq),
            Owner::Provider(_) | Owner::Source(_) => None,
        });
        for seq in held.chain(lost.channels.iter().map(|channel| channel.subscription)) {
            let why = "what it needs was sealed under a master key that is lost";
            holds::put_lasting(tx, seq, HoldReason::Paused, why, self.clock.now())?;
        }
        Ok(())
    }

    /// Forgets the lost keys in `meta`. Returns how many tokens were revoked because their hashes cannot be checked any
    /// more; then there is a new secret for hashes, and a new admin token.
    fn forget_sealed(&self, tx: &WriteTx<'_>) -> StoreResult<Option<usize>> {
        let mut revoked = None;
        for name in meta::SEALED {
            if !is_lost(tx, self.ring, name)? {
                continue;
            }
            meta::forget_sealed(tx, name)?;
            if name == meta::TOKEN_PEPPER {
                revoked = Some(tokens::revoke_all(tx, self.by.at)?);
                self.make_token(tx)?;
            }
        }
        Ok(revoked)
    }

    fn make_token(&self, tx: &WriteTx<'_>) -> StoreResult<()> {
        let now = self.by.at;
        let pepper = master_key::seal_fresh(tx, self.ring, meta::TOKEN_PEPPER, None, self.draw)?;
        let new = NewToken {
            id: id::uuid7(now, self.draw),
            tenant: DEFAULT_TENANT.to_owned(),
            name: TOKEN_NAME.to_owned(),
            role: Role::Admin,
            scope: Scope::default(),
            hash: TokenHasher::new(&pepper).hash(self.secret),
            expires_at: None,
        };
        let after = json!({ "name": new.name, "role": new.role.as_str() });
        let changes = Changes::between(&Value::Null, &after);
        let who = self.by.actor.clone();
        let event = NewAuditEvent::local(now, DEFAULT_TENANT, who, "token.create");
        audit_events::append(tx, &event.of("token", &new.id, changes))?;
        tokens::insert(tx, &new, now)
    }
}

/// What has to be set anew, for programs; `untold` was lost earlier.
fn shown(key: &str, untold: Vec<Value>, lost: &GivenUp, revoked: Option<usize>) -> Value {
    let secret = |secret: &Credential| {
        let of = match secret.owner {
            Owner::Provider(_) => "provider",
            Owner::Subscription(_) => "subscription",
            Owner::Source(_) => "source",
        };
        json!({ "of": of, "name": secret.owner_name, "tenant": secret.tenant, "kind": secret.kind().as_str() })
    };
    let channel = |channel: &Channel| json!({ "of": "alert", "name": channel.name.as_str(), "tenant": channel.tenant, "kind": "url" });
    let secrets = lost.secrets.iter().map(secret);
    let now = secrets.chain(lost.channels.iter().map(channel));
    let all: Vec<Value> = untold.into_iter().chain(now).collect();
    json!({ "key": key, "set_anew": all, "subjects": lost.subjects, "tokens_revoked": revoked })
}

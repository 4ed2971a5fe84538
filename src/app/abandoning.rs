//! A lost master key: gives up what it has sealed, and goes on under a new key. Events, deliveries and their order stay.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::alerts::channel::Channel;
use crate::app::data_directory::{DataDirectory, DirectoryError};
use crate::app::error::Error;
use crate::app::master_key::{self, LocatedKey};
use crate::app::starting::upgrade;
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::Draw;
use crate::base::secret::MasterKey;
use crate::config::Settings;
use crate::keys::{Keyring, file};
use crate::model::audit::NewAuditEvent;
use crate::model::audit::changes::Changes;
use crate::model::hold::HoldReason;
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::upkeep::master_key_rotation::{GivenUp, reseal_some};
use crate::store::credentials::{Credential, Owner};
use crate::store::{Store, audit_events, holds, meta, tokens};

/// What `oncebox keys abandon` did.
#[derive(Debug)]
pub struct Abandoned {
    /// The id of the key in force now.
    pub key: String,
    /// What was given up.
    pub lost: GivenUp,
    /// Tokens that were revoked; `None` if they stay valid.
    pub tokens: Option<usize>,
}

/// Gives up what no key opens, while no service runs. Subscriptions that lost a secret or a URL are paused, so that nothing
/// is sent without it. Fails with `NothingLost`, and changes nothing, if every secret can be opened.
pub fn abandon(
    settings: &Settings,
    clock: &Clock,
    draw: &Arc<dyn Draw>,
) -> Result<Abandoned, Error> {
    let data = DataDirectory::lock(settings.directory())?;
    let database = upgrade(&data, clock, &Faults::none())?;
    let (_store, mut writer) = Store::open(&database, Faults::none())?;
    if master_key::find(settings)?.is_none() {
        let path = settings.master_key_file();
        file::write(&path, &MasterKey::generate(&**draw)).map_err(DirectoryError::from)?;
    }
    let LocatedKey { key, .. } = master_key::find_or_create(settings, &**draw)?;
    let (id, now) = (key.key_id(), clock.wall());
    let ring = Keyring::new(key);
    let missing = master_key::add_older(&mut writer, settings, &ring)?;
    if missing.is_empty() {
        return Err(Error::NothingLost(id));
    }
    let mut lost = GivenUp { at: now, ..GivenUp::default() };
    while writer.direct(|tx| reseal_some(tx, &ring, &**draw, Some(&mut lost)))? > 0 {}
    let tokens = writer.direct(|tx| {
        let held = lost.secrets.iter().filter_map(|secret| match secret.owner {
            Owner::Subscription(seq) => Some(seq),
            Owner::Provider(_) => None,
        });
        for seq in held.chain(lost.channels.iter().map(|channel| channel.subscription)) {
            let why = "what it needs was sealed under a master key that is lost";
            holds::put_lasting(tx, seq, HoldReason::Paused, why, clock.now())?;
        }
        let mut revoked = None;
        for name in meta::SEALED {
            let key = meta::sealed(tx, name)?.as_deref().and_then(MasterKey::id_in);
            if key.is_none_or(|id| ring.of(&id).is_none()) {
                meta::forget_sealed(tx, name)?;
                if name == meta::TOKEN_PEPPER {
                    revoked = Some(tokens::revoke_all(tx, now)?);
                }
            }
        }
        meta::set_master_key_id(tx, &id)?;
        meta::set_master_key_since(tx, now)?;
        let changes = Changes::between(&json!({ "id": missing }), &json!({ "id": id }))
            .and("secrets", lost.secrets.len())
            .and("alert_channels", lost.channels.len())
            .and("subjects", lost.subjects)
            .and("tokens", revoked.unwrap_or(0));
        let who = master_key::local_user();
        let event = NewAuditEvent::local(now, DEFAULT_TENANT, who, "master_key.abandon");
        audit_events::append(tx, &event.of("master_key", &id, changes))?;
        Ok(revoked)
    })?;
    Ok(Abandoned { key: id, lost, tokens })
}

impl Abandoned {
    /// What has to be set anew, for programs.
    pub fn shown(&self) -> Value {
        let secret = |secret: &Credential| {
            let of = match secret.owner {
                Owner::Provider(_) => "provider",
                Owner::Subscription(_) => "subscription",
            };
            json!({ "of": of, "name": secret.owner_name, "tenant": secret.tenant, "kind": secret.kind().as_str() })
        };
        let channel = |channel: &Channel| json!({ "of": "alert", "name": channel.name.as_str(), "tenant": channel.tenant, "kind": "url" });
        let secrets = self.lost.secrets.iter().map(secret);
        let all: Vec<Value> = secrets.chain(self.lost.channels.iter().map(channel)).collect();
        json!({
            "key": self.key, "set_anew": all, "subjects": self.lost.subjects, "tokens_revoked": self.tokens,
        })
    }
}

//! Changes to a data directory that no service uses, under the lock that a service takes.
//!
//! A user who may read the master key and write the file is trusted: no token is needed here.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::app::data_directory::{DATABASE, DataDirectory};
use crate::app::error::Error;
use crate::app::master_key::{self, Keys};
use crate::app::starting::up_to_date;
use crate::base::clock::{Clock, Timestamp};
use crate::base::faults::Faults;
use crate::base::id::{self, Draw};
use crate::config::Settings;
use crate::model::audit::NewAuditEvent;
use crate::model::audit::changes::Changes;
use crate::model::token::{self, Role, Scope, Token};
use crate::store::tokens::NewToken;
use crate::store::{Store, audit_events, tenants, tokens};
use crate::sys::files::is_missing;

/// A token to be made.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whose data it opens.
    pub tenant: String,
    /// What a person calls it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// What it may speak for, where its role is `publish`.
    pub scope: Scope,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
}

/// Makes a token; returns it as kept, and the token itself, this once.
///
/// # Errors
/// When the directory has no database, is being served, or the file cannot be written.
pub fn create_token(
    settings: &Settings,
    wanted: Wanted,
    clock: &Clock,
    draw: &Arc<dyn Draw>,
) -> Result<(Token, String), Error> {
    let directory = settings.directory();
    let path = directory.join(DATABASE);
    if is_missing(&path) {
        return Err(Error::NoDatabase { path });
    }
    let data = DataDirectory::lock(directory)?;
    let found = master_key::find(settings, &**draw)?;
    let database = up_to_date(&data, clock, &Faults::none())?;
    let (_store, mut writer) = Store::open(&database, Faults::none())?;
    let now = clock.wall();
    let told = (now, &Faults::none());
    let Keys { hasher, .. } = master_key::unlock(&mut writer, settings, found, draw, told)?;
    let secret = token::generate(&**draw);
    let Wanted { tenant, name, role, scope, expires_at } = wanted;
    let hash = hasher.hash(&secret);
    let new = NewToken { id: id::uuid7(now, &**draw), tenant, name, role, scope, hash, expires_at };
    let changes = Changes::between(
        &Value::Null,
        &json!({
            "name": new.name, "role": new.role.as_str(), "tenant": new.tenant,
            "source_systems": new.scope.source_systems, "consumer_groups": new.scope.consumer_groups,
            "expires_at": new.expires_at,
        }),
    );
    let event = NewAuditEvent::local(now, &new.tenant, master_key::person(), "token.create");
    let event = event.of("token", &new.id, changes);
    let made = writer.direct(|tx| {
        if tenants::by_name(tx, &new.tenant)?.is_none() {
            return Ok(None);
        }
        tokens::insert(tx, &new, now)?;
        audit_events::append(tx, &event)?;
        tokens::by_id(tx, &new.tenant, &new.id)
    })?;
    let made = made.ok_or(Error::NoTenant(new.tenant))?;
    Ok((made, secret))
}

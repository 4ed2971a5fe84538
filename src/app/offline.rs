//! Changes to the database while no service runs, under the data directory's lock.
//!
//! No token is needed: a user who can read the master key and write the database is trusted.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::app::data_directory::{DATABASE, DataDirectory};
use crate::app::error::Error;
use crate::app::master_key;
use crate::app::opened_database::upgrade;
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

/// The terms of a token to create.
#[derive(Clone, Debug)]
pub struct TokenTerms {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its source systems and consumer groups, for the role `publish`.
    pub scope: Scope,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// Creates a token. Returns its row and the token itself, which is not stored.
pub fn create_token(
    settings: &Settings,
    terms: TokenTerms,
    clock: &Clock,
    draw: &Arc<dyn Draw>,
) -> Result<(Token, String), Error> {
    let directory = settings.directory();
    let path = directory.join(DATABASE);
    if is_missing(&path) {
        return Err(Error::NoDatabase { path });
    }
    let data = DataDirectory::lock(directory)?;
    let found = master_key::find_or_create(settings, &**draw)?;
    let database = upgrade(&data, clock, &Faults::none())?;
    let (_store, mut writer) = Store::open(&database, Faults::none())?;
    let now = clock.wall();
    let keys = master_key::unlock(&mut writer, settings, found, draw, now, &Faults::none())?;
    let secret = token::generate(&**draw);
    let TokenTerms { tenant, name, role, scope, expires_at } = terms;
    let hash = keys.hasher.hash(&secret);
    let new = NewToken { id: id::uuid7(now, &**draw), tenant, name, role, scope, hash, expires_at };
    let changes = Changes::between(
        &Value::Null,
        &json!({
            "name": new.name, "role": new.role.as_str(), "tenant": new.tenant,
            "source_systems": new.scope.source_systems, "consumer_groups": new.scope.consumer_groups,
            "expires_at": new.expires_at,
        }),
    );
    let event = NewAuditEvent::local(now, &new.tenant, master_key::local_user(), "token.create");
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

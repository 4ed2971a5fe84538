//! What can be done to a data directory while nobody serves it, under the same lock as the service.
//!
//! Whoever may read the master key and write the file is trusted: nobody is asked for a token here.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::api::auth::TokenHasher;
use crate::appliance::data_directory::{DATABASE, DataDirectory};
use crate::appliance::{Error, bring_up_to_date, check_key};
use crate::clock::{Clock, Timestamp};
use crate::domain::audit::changes::Changes;
use crate::domain::audit::{Actor, ActorType, NewAuditEvent};
use crate::domain::token::{self, Role, Token};
use crate::faults::Faults;
use crate::id::{self, Draw};
use crate::store::tokens::NewToken;
use crate::store::{Store, audit_events, tenants, tokens};

/// A token to be made.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whose data it opens.
    pub tenant: String,
    /// What a person calls it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
}

/// Makes a token; returns it as kept, and the token itself, this once.
///
/// # Errors
/// When the directory has no database, is being served, or the file cannot be written.
pub fn create_token(
    directory: &Path,
    wanted: Wanted,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<(Token, String), Error> {
    let path = directory.join(DATABASE);
    if !path.exists() {
        return Err(Error::NoDatabase { path });
    }
    let data = DataDirectory::lock(directory)?;
    let key = data.master_key(draw)?;
    let database = data.private_database()?;
    bring_up_to_date(&database, clock, &Faults::none())?;
    let (store, mut writer) = Store::open(&database, Faults::none())?;
    check_key(&mut writer, &store, &key)?;
    let secret = token::generate(draw);
    let now = clock.wall();
    let Wanted { tenant, name, role, expires_at } = wanted;
    let hash = TokenHasher::new(&key).hash(&secret);
    let new = NewToken { id: id::uuid7(now, draw), tenant, name, role, hash, expires_at };
    let changes = Changes::between(
        &Value::Null,
        &json!({
            "name": new.name, "role": new.role.as_str(), "tenant": new.tenant,
            "expires_at": new.expires_at,
        }),
    );
    let event = NewAuditEvent::local(now, &new.tenant, whoever(), "token.create");
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

/// Whose process this is, as the system tells; the number, since names can be set by anybody.
fn whoever() -> Actor {
    let number = std::fs::metadata("/proc/self").map(|own| own.uid().to_string());
    let id = number.unwrap_or_default();
    Actor { kind: ActorType::Cli, display: format!("user {id}"), id }
}

//! The first admin token: made by the first start, and needed before other machines may call.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::api::auth::TokenHasher;
use crate::api::listeners::EndpointRole;
use crate::app::data_directory::DataDirectory;
use crate::app::error::Error;
use crate::app::sockets::Sockets;
use crate::base::clock::Clock;
use crate::base::id::{self, Draw};
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::name::DEFAULT_TENANT;
use crate::model::token::{self, Role, Scope};
use crate::store::audit_events;
use crate::store::tokens::{self, NewToken};
use crate::store::writer::WriterLoop;

/// Creates the first admin token if there is no token at all; returns whether it did.
pub(super) fn create(
    writer: &mut WriterLoop,
    data: &DataDirectory,
    hasher: &TokenHasher,
    clock: &Clock,
    draw: &dyn Draw,
) -> Result<bool, Error> {
    if writer.read(tokens::any)? {
        return Ok(false);
    }
    let secret = token::generate(draw);
    let now = clock.wall();
    // The file is written first: once the database has a token, no other first token is created, so it must be readable.
    data.write_token(&secret)?;
    let new = NewToken {
        id: id::uuid7(now, draw),
        tenant: DEFAULT_TENANT.to_owned(),
        name: "first admin token".to_owned(),
        role: Role::Admin,
        scope: Scope::default(),
        hash: hasher.hash(&secret),
        expires_at: None,
    };
    let after = json!({ "name": new.name, "role": new.role.as_str() });
    let changes = Changes::between(&Value::Null, &after);
    let event = NewAuditEvent::local(now, DEFAULT_TENANT, Actor::system(), "token.create");
    let event = event.of("token", &new.id, changes);
    writer.direct(|tx| {
        tokens::insert(tx, &new, now)?;
        audit_events::append(tx, &event)
    })?;
    Ok(true)
}

/// Refuses to listen for other machines without an admin token.
pub(super) fn check_guarded(
    writer: &mut WriterLoop,
    sockets: &Sockets,
    clock: &Clock,
) -> Result<(), Error> {
    let public = |(serves, address): &(EndpointRole, SocketAddr)| {
        serves.api && !address.ip().to_canonical().is_loopback()
    };
    let Some((_, address)) = sockets.addresses().find(public) else { return Ok(()) };
    if writer.read(|tx| tokens::any_admin(tx, clock.wall()))? {
        return Ok(());
    }
    Err(Error::Unguarded { address })
}

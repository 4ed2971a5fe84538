//! What can be done to a data directory while nobody serves it, under the same lock as the service.
//!
//! Whoever may read the master key and write the file is trusted: nobody is asked for a token here.

use std::path::Path;

use crate::api::auth::TokenHasher;
use crate::appliance::data_directory::{DATABASE, DataDirectory};
use crate::appliance::{Error, check_key};
use crate::clock::{Clock, Timestamp};
use crate::domain::token::{self, Role, Token};
use crate::faults::Faults;
use crate::id::{self, Draw};
use crate::store::tokens::NewToken;
use crate::store::{Store, tenants, tokens};

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
    let (store, mut writer) = Store::open(&data.private_database()?, Faults::none())?;
    check_key(&mut writer, &store, &key)?;
    let secret = token::generate(draw);
    let now = clock.wall();
    let Wanted { tenant, name, role, expires_at } = wanted;
    let hash = TokenHasher::new(&key).hash(&secret);
    let new = NewToken { id: id::uuid7(now, draw), tenant, name, role, hash, expires_at };
    let made = writer.direct(|tx| {
        if tenants::by_name(tx, &new.tenant)?.is_none() {
            return Ok(None);
        }
        tokens::insert(tx, &new, now)?;
        tokens::by_id(tx, &new.tenant, &new.id)
    })?;
    let made = made.ok_or(Error::NoTenant(new.tenant))?;
    Ok((made, secret))
}

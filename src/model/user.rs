//! People who use the console: their passwords, sessions and one-time links.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::base::clock::Timestamp;
use crate::base::schema::{NameText, Uuid, values};
use crate::model::name::DEFAULT_TENANT;
use crate::model::token::Role;

/// The prefix of a session's secret, which the cookie holds.
pub const SESSION_PREFIX: &str = "obs_";
/// The prefix of a one-time link's secret.
pub const LINK_PREFIX: &str = "obl_";
/// The fewest characters of a password.
pub const MIN_PASSWORD_CHARS: usize = 12;
/// The most characters of a password.
pub const MAX_PASSWORD_CHARS: usize = 128;

/// A user, without its password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct User {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    #[schemars(with = "Uuid")]
    pub id: String,
    #[schemars(with = "NameText")]
    pub tenant: String,
    // Unique in the tenant.
    #[schemars(with = "NameText")]
    pub name: String,
    #[schemars(with = "UserRole")]
    pub role: Role,
    /// Whether it has a password. Without one it logs in with one-time links.
    pub has_password: bool,
    pub created_at: Timestamp,
    pub last_login_at: Option<Timestamp>,
    /// When it was disabled; null if it is not.
    pub disabled_at: Option<Timestamp>,
}

values! {
    /// The role of a user.
    UserRole = { "type": "string", "enum": ROLES }
}

/// A session as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Session", description = "A session.")]
pub struct StoredSession {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    #[schemars(with = "Uuid")]
    pub id: String,
    /// The name of its user.
    #[serde(serialize_with = "name_of")]
    #[schemars(with = "NameText")]
    pub user: User,
    pub created_at: Timestamp,
    /// Its last use, to the minute.
    pub last_used_at: Timestamp,
    /// When it ends at the latest.
    pub ends_at: Timestamp,
    /// The address from which it was begun.
    pub address: String,
    /// The browser, as it names itself.
    pub user_agent: Option<String>,
}

fn name_of<S: Serializer>(user: &User, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&user.name)
}

/// The roles of users. Publishing is for programs.
pub const ROLES: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

/// What a person enters to log in, as tenant and name: `tenant/name`, or the name alone for the tenant `default`.
pub fn parse_login(login: &str) -> (&str, &str) {
    login.split_once('/').unwrap_or((DEFAULT_TENANT, login))
}

/// Checks a role of a user.
pub fn check_role(role: Role) -> Result<(), &'static str> {
    if ROLES.contains(&role) {
        return Ok(());
    }
    Err("A user's role is read, operate or admin. Programs that publish use a token.")
}

/// Checks a new password.
pub fn check_password(password: &str) -> Result<(), String> {
    if (MIN_PASSWORD_CHARS..=MAX_PASSWORD_CHARS).contains(&password.chars().count()) {
        return Ok(());
    }
    Err(format!("A password has {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters."))
}

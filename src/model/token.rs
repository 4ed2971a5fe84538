//! API tokens: their form, and what they may do.

use data_encoding::BASE64URL_NOPAD;
use schemars::JsonSchema;
use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::id::Draw;
use crate::base::schema::{NameText, Text, Uuid};
use crate::base::words::words;
use crate::model::event;
use crate::model::name::DEFAULT_TENANT;

words! {
    /// What a token may do. Stored in `tokens.role`.
    pub enum Role as "Role" {
        /// Publish events and claim them, under the names in its [`Scope`]; read nothing.
        Publish = "publish",
        /// Read everything; change nothing.
        Read = "read",
        /// Read, publish, retry, pause and resume.
        Operate = "operate",
        /// Do everything: also manage providers, subscriptions and tokens.
        Admin = "admin",
    }
}

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To publish events.
    Publish,
    /// To read.
    Read,
    /// To retry, pause and resume.
    Operate,
    /// To change providers, subscriptions and tokens.
    Admin,
    /// To manage tenants and the whole installation: only for an admin of the tenant `default`.
    Box,
}

impl Role {
    /// Whether the role has the right in a tenant. Only an admin of the tenant `default` manages tenants.
    pub fn may_in(self, of: &str, right: Right) -> bool {
        self.may(right) && (right != Right::Box || of == DEFAULT_TENANT)
    }

    /// Whether the role has the right. [`Right::Box`] also depends on the tenant: see [`Token::may`].
    ///
    /// ```
    /// use oncebox::model::token::{Right, Role};
    /// assert!(Role::Operate.may(Right::Publish));
    /// assert!(!Role::Publish.may(Right::Read));
    /// ```
    pub const fn may(self, right: Right) -> bool {
        match (self, right) {
            (Self::Admin, _)
            | (Self::Operate, Right::Publish | Right::Read | Right::Operate)
            | (Self::Publish, Right::Publish)
            | (Self::Read, Right::Read) => true,
            (Self::Operate, Right::Admin | Right::Box)
            | (Self::Publish, Right::Read | Right::Operate | Right::Admin | Right::Box)
            | (Self::Read, Right::Publish | Right::Operate | Right::Admin | Right::Box) => false,
        }
    }
}

/// The prefix of every token.
const PREFIX: &str = "obx_";
/// Random bytes of a token.
const BYTES: usize = 32;
/// These bytes in characters of base64url.
const CHARS: usize = 43;

/// A new token: `obx_` and 32 random bytes. Shown once; only its hash is kept.
pub fn generate(draw: &dyn Draw) -> String {
    secret(PREFIX, draw)
}

/// A new secret: a prefix and 32 random bytes.
pub fn secret(prefix: &str, draw: &dyn Draw) -> String {
    let mut bytes = [0_u8; BYTES];
    draw.fill(&mut bytes);
    format!("{prefix}{}", BASE64URL_NOPAD.encode(&bytes))
}

/// Whether a text has the form of a token. Other texts are refused without a look into the database.
///
/// ```
/// use oncebox::model::token::{generate, has_form};
/// use oncebox::base::id::SystemDraw;
/// assert!(has_form(&generate(&SystemDraw::new())));
/// assert!(!has_form("obx_guess"));
/// ```
pub fn has_form(text: &str) -> bool {
    is_secret(PREFIX, text)
}

/// Whether a text has the form of a [`secret`] with this prefix.
pub fn is_secret(prefix: &str, text: &str) -> bool {
    let rest = text.strip_prefix(prefix);
    rest.is_some_and(|rest| {
        rest.len() == CHARS
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

/// Checks the name of a token.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if (1..=100).contains(&name.chars().count()) {
        return Ok(());
    }
    Err("A token's name has 1 to 100 characters.")
}

/// In a [`Scope`]: any name.
pub const ANY: &str = "*";
/// Most names of one kind in a scope.
const MAX_NAMES: usize = 100;
/// The longest name of a consumer group, in characters.
pub const MAX_GROUP_CHARS: usize = 64;

/// The names that a token with the role `publish` may use. Tokens with other roles are not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Scope {
    /// The source systems it may publish as; `*` is any.
    pub source_systems: Vec<String>,
    /// The groups it may claim events for; `*` is any.
    pub consumer_groups: Vec<String>,
}

impl Scope {
    /// Checks the names of a new token with that role.
    pub fn check(&self, role: Role) -> Result<(), String> {
        let Self { source_systems, consumer_groups } = self;
        let is_empty = source_systems.is_empty() && consumer_groups.is_empty();
        if role != Role::Publish {
            let why =
                "Only a token with the role publish names source systems and consumer groups.";
            return if is_empty { Ok(()) } else { Err(why.to_owned()) };
        }
        if is_empty {
            return Err("A publish token names the source systems it publishes as (source_systems, \
                        --source-system shop), the consumer groups it claims events for (consumer_groups, \
                        --group billing), or both; \"*\" stands for any."
                .to_owned());
        }
        if source_systems.len().max(consumer_groups.len()) > MAX_NAMES {
            return Err(format!("A token lists at most {MAX_NAMES} names of each kind."));
        }
        for name in source_systems {
            event::check_source_system(name).map_err(|why| format!("{why}."))?;
            event::check_http_source(name).map_err(|why| format!("{why}."))?;
        }
        for name in consumer_groups {
            check_text("consumer_group", name, MAX_GROUP_CHARS)?;
        }
        Ok(())
    }

    /// The source system of an event that names none, if the token may use only one.
    pub fn only_source(&self) -> Option<&str> {
        match self.source_systems.as_slice() {
            [only] if only != ANY => Some(only),
            _ => None,
        }
    }

    /// Whether it may publish as this source system.
    pub fn check_publish(&self, source_system: &str) -> Result<(), String> {
        allowed(&self.source_systems, source_system).map_err(|names| {
            format!(
                "this token publishes as {names}; the event's source_system is {source_system:?}"
            )
        })
    }

    /// Whether it may claim events for this consumer group.
    pub fn check_claim(&self, group: &str) -> Result<(), String> {
        allowed(&self.consumer_groups, group).map_err(|names| {
            format!("this token claims events for {names}; the claim's consumer_group is {group:?}")
        })
    }
}

/// Checks that a name is listed. The error is the list, for a message.
fn allowed(names: &[String], asked: &str) -> Result<(), String> {
    if names.iter().any(|name| name == ANY || name == asked) {
        return Ok(());
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    Err(if quoted.is_empty() { "nobody".to_owned() } else { quoted.join(", ") })
}

/// Checks a text of 1 to `most` characters.
/// Fails with what is wrong with it, as a sentence that names the field.
pub fn check_text(field: &str, text: &str, most: usize) -> Result<(), String> {
    if !(1..=most).contains(&text.chars().count()) {
        return Err(format!("{field} must have 1 to {most} characters."));
    }
    if let Some(bad) = text.chars().find(|c| c.is_control()) {
        return Err(format!("{field} contains the control character {bad:?}; leave it out."));
    }
    Ok(())
}

/// A token, without the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Token {
    /// Its number in the file.
    #[serde(skip)]
    pub seq: i64,
    #[schemars(with = "Uuid")]
    pub id: String,
    #[schemars(with = "NameText")]
    pub tenant: String,
    #[schemars(with = "Text<1, 100>")]
    pub name: String,
    pub role: Role,
    #[serde(flatten)]
    pub scope: Scope,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Its last use, to the minute.
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    /// Whether it has the right. Only an admin of the tenant `default` manages tenants.
    pub fn may(&self, right: Right) -> bool {
        self.role.may_in(&self.tenant, right)
    }

    /// Whether it can administer the whole installation at this time.
    pub fn administers_the_box(&self, now: Timestamp) -> bool {
        self.may(Right::Box) && self.is_valid(now)
    }

    /// Whether it is neither revoked nor expired at this time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

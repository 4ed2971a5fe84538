//! API tokens: what they look like, what they may do.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::domain::tenant;
use crate::id::Draw;

/// What a token may do. Stored in `tokens.role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Publish events; see nothing.
    Publish,
    /// See everything; change nothing.
    Read,
    /// See, publish, retry, pause and resume.
    Operate,
    /// All of it: providers, subscriptions, tokens.
    Admin,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To publish events.
    Publish,
    /// To look.
    Read,
    /// To retry, pause and resume.
    Operate,
    /// To change providers, subscriptions and tokens.
    Admin,
    /// To manage tenants: the box's administrator, an admin of the tenant `default`.
    Box,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Publish, Self::Read, Self::Operate, Self::Admin];

    /// The word in SQL, API and console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Whether the role has the right, in the tenant that administers the box; elsewhere nobody has
    /// [`Right::Box`]: see [`Token::may`].
    ///
    /// ```
    /// use oncebox::domain::token::{Right, Role};
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

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What every token begins with.
const PREFIX: &str = "obx_";
/// Random bytes of a token.
const BYTES: usize = 32;
/// Characters they are written in.
const CHARS: usize = 43;

/// A new token: `obx_` and 32 random bytes. Shown once; only its hash is kept.
pub fn generate(draw: &dyn Draw) -> String {
    let mut bytes = [0_u8; BYTES];
    draw.fill(&mut bytes);
    format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
}

/// Whether a text looks like a token. What does not need not be looked for.
///
/// ```
/// use oncebox::domain::token::{generate, has_form};
/// use oncebox::id::SystemDraw;
/// assert!(has_form(&generate(&SystemDraw::new())));
/// assert!(!has_form("obx_guess"));
/// ```
pub fn has_form(text: &str) -> bool {
    let rest = text.strip_prefix(PREFIX);
    rest.is_some_and(|rest| {
        rest.len() == CHARS
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

/// Checks what a person calls a token.
///
/// # Errors
/// What a name has to be.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if (1..=100).contains(&name.chars().count()) {
        return Ok(());
    }
    Err("A token's name has 1 to 100 characters.")
}

/// A token as kept; the secret itself is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its number in the file.
    pub seq: i64,
    /// Its name outside.
    pub id: String,
    /// Whose data it opens.
    pub tenant: String,
    /// What a person calls it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    /// Whether it has the right. Nobody manages tenants but an admin of the tenant `default`.
    pub fn may(&self, right: Right) -> bool {
        self.role.may(right) && (right != Right::Box || self.tenant == tenant::DEFAULT)
    }

    /// Whether it can administer the box at this time.
    pub fn administers_the_box(&self, now: Timestamp) -> bool {
        self.may(Right::Box) && self.is_valid(now)
    }

    /// Whether it opens anything at this time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

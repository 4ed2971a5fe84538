//! The names people give to tenants, providers and subscriptions.

use crate::base::words::as_text;

/// The tenant that is used if no other is named. It always exists and cannot be suspended. Its admin tokens administer
/// the whole installation.
pub const DEFAULT_TENANT: &str = "default";

/// 1 to 63 characters of `a-z`, `0-9` and `-`: safe in a path, a file and a shell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A text that is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name: use 1 to 63 characters of a-z, 0-9 and -, and no UUID")]
pub struct NameError(String);

impl Name {
    /// Reads a name.
    /// Fails when it is empty, too long or has another character.
    ///
    /// ```
    /// use oncebox::model::name::Name;
    /// assert!(Name::parse("logistics-2").is_ok());
    /// assert!(Name::parse("../etc").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        // A subscription is found by name or by UUID, so a name must not look like a UUID.
        let is_uuid = uuid::Uuid::try_parse(text).is_ok();
        if (1..=63).contains(&text.len()) && text.bytes().all(allowed) && !is_uuid {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError(text.chars().take(80).collect()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(feature = "service")]
crate::base::schema::described!(
    Name,
    schemars::json_schema!({
        "type": "string", "pattern": "^[a-z0-9-]{1,63}$"
    })
);

as_text!(Name, 0);

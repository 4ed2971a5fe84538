//! The names of the header fields that may carry a signature: one, several, or a numbered row of them.
//!
//! Not here: what is in the fields ([`super::generic`]).

use std::fmt;

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::check::is_header_name;
use crate::base::headers::Headers;
use crate::base::schema::{HEADER_NAME, described};

/// Names in one setting at most.
const MAX_NAMES: usize = 8;
/// Digits of the number of a numbered name at most.
const MAX_DIGITS: usize = 2;

/// Why header names are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderNamesError {
    /// No header can have that name.
    #[error("`{0}` is not a header name")]
    Name(String),
    /// None, or too many.
    #[error("`header` is one name or a list of 1 to {MAX_NAMES} names, not of {0}")]
    Count(usize),
}

/// Names of header fields, each compared without case.
///
/// A name that ends with `-` and a number stands for all numbers: while keys are rolled, a provider signs with each of
/// them, and the order of its fields may change.
///
/// *Shape*: `"X-Signature"`, or `["X-Signature", "X-Signature-Next"]`.
///
/// ```
/// use oncebox::signatures::header_names::HeaderNames;
/// let names: HeaderNames = serde_json::from_str(r#""X-DocuSign-Signature-1""#)?;
/// assert!(names.has("x-docusign-signature-2") && !names.has("x-docusign-signature"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames(Vec<String>);

/// The name of a header field, or a list of names; one that ends with `-` and a number stands for all numbers.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    One(#[schemars(regex(pattern = HEADER_NAME))] String),
    Several(#[schemars(inner(regex(pattern = HEADER_NAME)))] Vec<String>),
}

described!(HeaderNames, Written::json_schema(&mut SchemaGenerator::default()));

impl HeaderNames {
    fn of(names: Vec<String>) -> Result<Self, HeaderNamesError> {
        if !(1..=MAX_NAMES).contains(&names.len()) {
            return Err(HeaderNamesError::Count(names.len()));
        }
        match names.iter().find(|name| !is_header_name(name)) {
            Some(wrong) => Err(HeaderNamesError::Name(wrong.clone())),
            None => Ok(Self(names)),
        }
    }

    /// Whether a header field of this name is meant.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|own| {
            own.eq_ignore_ascii_case(name)
                || match (numbered(own), numbered(name)) {
                    (Some(own), Some(other)) => own.eq_ignore_ascii_case(other),
                    _ => false,
                }
        })
    }

    /// The values of all header fields that are meant, in the order of the request.
    pub(super) fn values<'h>(&'h self, headers: &'h Headers) -> impl Iterator<Item = &'h str> {
        let meant = headers.iter().filter(|(name, _)| self.has(name));
        meant.filter_map(|(_, value)| std::str::from_utf8(value).ok())
    }
}

/// The part of a numbered name before its number.
fn numbered(name: &str) -> Option<&str> {
    let (before, number) = name.rsplit_once('-')?;
    let is_number = (1..=MAX_DIGITS).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(before)
}

impl fmt::Display for HeaderNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" or "))
    }
}

impl Serialize for HeaderNames {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(to),
            several => several.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for HeaderNames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names = match Written::deserialize(from)? {
            Written::One(name) => vec![name],
            Written::Several(names) => names,
        };
        Self::of(names).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_without_their_number() {
        for (names, name, is_meant) in [
            (r#""X-Sig""#, "x-sig", true),
            (r#""X-Sig""#, "x-sig-1", false),
            (r#""X-Sig-1""#, "x-sig-1", true),
            (r#""X-Sig-1""#, "X-SIG-12", true),
            (r#""X-Sig-1""#, "x-sig-123", false),
            (r#""X-Sig-1""#, "x-sig-", false),
            (r#""X-Sig-1""#, "x-other-1", false),
            (r#""X-Hub-Signature-256""#, "x-hub-signature-1", false),
            (r#"["A","B"]"#, "b", true),
            (r#"["A","B"]"#, "c", false),
        ] {
            let read: HeaderNames = serde_json::from_str(names).unwrap();
            assert_eq!(read.has(name), is_meant, "{names} {name}");
            assert_eq!(serde_json::to_string(&read).unwrap(), names);
        }
    }

    #[test]
    fn names_that_no_header_can_have_are_refused() {
        for (names, why) in [
            (r#""a b""#, "`a b` is not a header name"),
            ("[]", "1 to 8 names"),
            (r#"["a","b","c","d","e","f","g","h","i"]"#, "not of 9"),
        ] {
            let refused = serde_json::from_str::<HeaderNames>(names).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}

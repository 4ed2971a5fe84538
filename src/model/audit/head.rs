//! A place in the chain of audit events: a row's number and its hash.

use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::base::words::as_text;

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The `previous_hash` of the first row.
    pub const ZERO: Self = Self([0; 32]);

    /// Reads 64 hex digits.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("not 64 hex digits")
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

as_text!(Hash);

/// A place in the chain: a row's number and its hash. Written as `17:9f86…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The row's number.
    pub seq: i64,
    /// Its hash.
    pub hash: Hash,
}

impl Head {
    /// The head of an empty chain.
    pub const START: Self = Self { seq: 0, hash: Hash::ZERO };

    /// Reads `17:9f86…`.
    ///
    /// ```
    /// use oncebox::model::audit::chain::Head;
    /// assert_eq!(Head::parse(&Head::START.to_string()), Some(Head::START));
    /// assert_eq!(Head::parse("17"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (seq, hash) = text.split_once(':')?;
        Some(Self { seq: seq.parse().ok()?, hash: Hash::parse(hash).ok()? })
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

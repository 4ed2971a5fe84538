//! A row of `audit_events`, its hash, and a place in their chain: a row's number and its hash.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::base::words::as_text;

/// The first bytes of every hashed text. A new byte format gets a new number.
const LABEL: &[u8] = b"oncebox audit 1\0";

/// A row of `audit_events` with its columns as stored. They are not parsed, so that any stored value can be verified.
/// Exported as one line of JSON with the hashes in hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEvent {
    pub seq: i64,
    pub at: i64,
    pub tenant: String,
    pub actor_type: String,
    pub actor_id: String,
    pub actor_display: String,
    pub address: Option<String>,
    pub user_agent: Option<String>,
    pub action: String,
    pub resource_type: String,
    pub resource_id: Option<String>,
    pub result: String,
    pub request_id: Option<String>,
    pub correlation_id: Option<String>,
    pub method: Option<String>,
    pub path: Option<String>,
    pub status: Option<i64>,
    pub changes: String,
    pub previous_hash: Hash,
    pub hash: Hash,
}

impl AuditEvent {
    /// Its place in the chain.
    pub const fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash }
    }
}

/// The hash of a row: SHA-256 over the label, `previous_hash`, and all other columns except `hash`, in the order of the
/// table. An integer is encoded as `01` and 8 bytes; a text as `02`, its length in 8 bytes, and its UTF-8; NULL as
/// `00`. Numbers are big-endian.
pub fn hash_of(row: &AuditEvent) -> Hash {
    hash_as(row, row.seq)
}

/// The hash that the row would have with another number.
pub(super) fn hash_as(row: &AuditEvent, seq: i64) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(LABEL);
    context.update(&row.previous_hash.0);
    integer(&mut context, Some(seq));
    integer(&mut context, Some(row.at));
    for column in [
        Some(&row.tenant),
        Some(&row.actor_type),
        Some(&row.actor_id),
        Some(&row.actor_display),
        row.address.as_ref(),
        row.user_agent.as_ref(),
        Some(&row.action),
        Some(&row.resource_type),
        row.resource_id.as_ref(),
        Some(&row.result),
        row.request_id.as_ref(),
        row.correlation_id.as_ref(),
        row.method.as_ref(),
        row.path.as_ref(),
    ] {
        text(&mut context, column);
    }
    integer(&mut context, row.status);
    text(&mut context, Some(&row.changes));
    let mut hash = Hash::ZERO;
    hash.0.copy_from_slice(context.finish().as_ref());
    hash
}

fn integer(to: &mut Context, value: Option<i64>) {
    match value {
        None => to.update(&[0]),
        Some(number) => {
            to.update(&[1]);
            to.update(&number.to_be_bytes());
        }
    }
}

fn text(to: &mut Context, value: Option<&String>) {
    match value {
        None => to.update(&[0]),
        Some(text) => {
            to.update(&[2]);
            to.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            to.update(text.as_bytes());
        }
    }
}

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

//! Path and query of a URL: placeholders, and encoding values so that they cannot change the path.

use std::fmt::{self, Write as _};

use crate::model::target_url::error::UrlError;
use crate::model::target_url::placeholders::PLACEHOLDERS;

/// A piece of path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(String),
    Value(&'static str),
}

/// Splits path and query at their placeholders.
pub(super) fn read_template(rest: &str) -> Result<Vec<Piece>, UrlError> {
    let mut pieces = Vec::new();
    let mut left = rest;
    while let Some((before, after)) = left.split_once('{') {
        let (name, after) = after.split_once('}').ok_or(UrlError::Brace)?;
        let known = PLACEHOLDERS.iter().find(|known| **known == name);
        let Some(known) = known else {
            return Err(UrlError::Unknown(name.to_owned()));
        };
        pieces.push(Piece::Literal(before.to_owned()));
        pieces.push(Piece::Value(known));
        left = after;
    }
    pieces.push(Piece::Literal(left.to_owned()));
    let stray = |piece: &Piece| matches!(piece, Piece::Literal(text) if text.contains('}'));
    if pieces.iter().any(stray) { Err(UrlError::Brace) } else { Ok(pieces) }
}

/// The first segment of the path that is `.` or `..`, also where a dot is written `%2e`.
pub(super) fn dot_segment(path_and_query: &str) -> Option<String> {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let leads_elsewhere = |segment: &&str| {
        matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
    };
    path.split('/').find(leads_elsewhere).map(str::to_owned)
}

/// Appends a value. It is percent-encoded, except for unreserved characters.
pub(super) fn encode(value: &str, into: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _written: fmt::Result = write!(into, "%{byte:02X}");
        }
    }
}

//! Sealed values, and the tokens that replace them in a body.
//!
//! A whole JSON value is replaced by the string `"obx-sealed.v.…."`, a part of a text by `obx-sealed.p.….`. The last
//! part is base64url, which needs no escaping in any format.
//!
//! Anybody can send a text that looks like a token. Only decryption shows whether it is ours.

use std::ops::Range;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use serde::{Serialize, Serializer};

use crate::base::words::words;

const PREFIX_TEXT: &str = "obx-sealed.";
const PREFIX: &[u8] = PREFIX_TEXT.as_bytes();
/// Shown instead of a sealed value.
pub const SHOWN: &str = "[sealed]";
/// Sent instead of a sealed part of a text whose key is destroyed.
pub const ERASED: &str = "[erased]";

/// A new key of a data subject, sealed and not stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSubjectKey {
    /// The subject's tenant.
    pub tenant: String,
    /// The subject's name as it is stored: an HMAC.
    pub subject: [u8; 32],
    /// The key's id.
    pub key_id: [u8; 16],
    /// The key, sealed under the master key.
    pub sealed: Vec<u8>,
    /// The id of that master key.
    pub master_key_id: String,
}

/// Which part of an event is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// How many values in the body are sealed.
    pub fields: u32,
    /// Their key, if it has to be stored together with the event.
    pub key: Option<Arc<NewSubjectKey>>,
}

impl Serialize for Sealed {
    /// Writes only how many values are sealed.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(to)
    }
}

words! {
    /// What was sealed.
    pub enum Form {
        /// A whole JSON value.
        Value = "v",
        /// A part of a text.
        Part = "p",
    }
}

/// The token that replaces a sealed value.
pub fn token(form: Form, blob: &[u8]) -> String {
    let encoded = BASE64URL_NOPAD.encode(blob);
    match form {
        Form::Value => format!("\"obx-sealed.v.{encoded}.\""),
        Form::Part => format!("obx-sealed.p.{encoded}."),
    }
}

/// Whether a text has what looks like a token.
pub fn is_in(text: &str) -> bool {
    text.contains(PREFIX_TEXT)
}

/// A token that was found in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its position, including the quotes of a whole value.
    pub span: Range<usize>,
    /// What was sealed.
    pub form: Form,
    /// The ciphertext.
    pub blob: Vec<u8>,
}

/// Whether a text is what replaces a whole sealed value, as far as its beginning shows.
pub fn is_token(text: &str) -> bool {
    text.starts_with("obx-sealed.v.")
}

/// All tokens in a body, in order.
pub fn tokens(body: &[u8]) -> Vec<Token> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = body.get(at..).and_then(find) {
        let start = at + next;
        at = start + PREFIX.len();
        if let Some(token) = token_at(body, start) {
            at = token.span.end;
            found.push(token);
        }
    }
    found
}

fn find(body: &[u8]) -> Option<usize> {
    body.windows(PREFIX.len()).position(|window| window == PREFIX)
}

fn token_at(body: &[u8], start: usize) -> Option<Token> {
    let rest = body.get(start + PREFIX.len()..)?;
    let (form, rest) = match rest {
        [b'v', b'.', rest @ ..] => (Form::Value, rest),
        [b'p', b'.', rest @ ..] => (Form::Part, rest),
        _ => return None,
    };
    let length = rest.iter().position(|byte| *byte == b'.')?;
    let blob = BASE64URL_NOPAD.decode(rest.get(..length)?).ok()?;
    let end = start + PREFIX.len() + 2 + length + 1;
    let span = match form {
        Form::Part => start..end,
        Form::Value => {
            let quoted = start.checked_sub(1)?..end + 1;
            let both = body.get(quoted.start) == Some(&b'"') && body.get(end) == Some(&b'"');
            both.then_some(quoted)?
        }
    };
    Some(Token { span, form, blob })
}

/// Replaces spans of a body. They must be in order and must not overlap.
pub fn splice<'b>(
    body: &'b [u8],
    parts: impl IntoIterator<Item = (Range<usize>, Vec<u8>)>,
) -> Vec<u8> {
    let mut whole: Vec<u8> = Vec::with_capacity(body.len());
    let mut past = 0;
    let between = |from: usize, to: usize| -> &'b [u8] { body.get(from..to).unwrap_or_default() };
    for (span, with) in parts {
        whole.extend_from_slice(between(past, span.start));
        whole.extend_from_slice(&with);
        past = span.end;
    }
    whole.extend_from_slice(between(past, body.len()));
    whole
}

/// A body with [`SHOWN`] instead of each token.
pub fn redact(body: &[u8]) -> Vec<u8> {
    let shown = |form| match form {
        Form::Value => format!("\"{SHOWN}\"").into_bytes(),
        Form::Part => SHOWN.as_bytes().to_vec(),
    };
    splice(body, tokens(body).into_iter().map(|token| (token.span, shown(token.form))))
}

/// Whether two bodies are equal, apart from values that are sealed under different keys and so cannot be compared.
pub fn equal_except_keys(a: &[u8], b: &[u8], key_of: impl Fn(&[u8]) -> Option<[u8; 16]>) -> bool {
    let left = tokens(a);
    let right = tokens(b);
    let alike = |(left, right): (&Token, &Token)| {
        left.blob == right.blob || key_of(&left.blob) != key_of(&right.blob)
    };
    left.len() == right.len() && left.iter().zip(&right).all(alike) && redact(a) == redact(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_and_hidden() {
        let body = format!(
            "{{\"a\": {}, \"b\":\"x {} y\"}}",
            token(Form::Value, &[1, 2]),
            token(Form::Part, &[3; 40])
        );
        let found = tokens(body.as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].form, found[0].blob.as_slice()), (Form::Value, &[1, 2][..]));
        assert_eq!(body.get(found[0].span.clone()), Some(token(Form::Value, &[1, 2]).as_str()));
        let shown = redact(body.as_bytes());
        assert_eq!(std::str::from_utf8(&shown), Ok(r#"{"a": "[sealed]", "b":"x [sealed] y"}"#));
    }

    #[test]
    fn an_incomplete_token_is_not_found() {
        for body in [
            "obx-sealed.",
            "obx-sealed.v.AQI.",
            "\"obx-sealed.v.AQI.x",
            "obx-sealed.p.A!.",
            "obx-sealed.q.AQI.",
        ] {
            assert_eq!(tokens(body.as_bytes()), [], "{body}");
            assert_eq!(redact(body.as_bytes()), body.as_bytes());
        }
    }
}

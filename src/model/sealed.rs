//! What of an event is sealed, and how something sealed stands in a body: `obx-sealed.v.….` for a whole JSON value (within quotes, in its place)
//! and `obx-sealed.p.….` for a part of a text. Between the points stands base64url, so that no form of body
//! needs an escape for it.
//!
//! What looks like it may come from anybody; whether it is ours, only the cipher knows.

use std::ops::Range;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;

const PREFIX: &[u8] = b"obx-sealed.";
/// What is shown in the place of something sealed.
pub const SHOWN: &str = "[sealed]";
/// What is sent in the place of a part of a text whose key is destroyed.
pub const ERASED: &str = "[erased]";

/// The key of a subject that is not in the file yet, sealed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSubjectKey {
    /// Whose subject it is.
    pub tenant: String,
    /// The subject's name, as the file keeps it: an HMAC.
    pub subject: [u8; 32],
    /// The key's name.
    pub key_id: [u8; 16],
    /// The key, sealed under the master key.
    pub sealed: Vec<u8>,
    /// Which.
    pub master_key_id: String,
}

/// What of an event is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// How many places of the body.
    pub fields: u32,
    /// The key they are sealed under, where it has to be stored with the event.
    pub key: Option<Arc<NewSubjectKey>>,
}

/// What was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A JSON value as it is written.
    Value,
    /// A part of a text.
    Part,
}

impl Form {
    /// The letter in the token, and in what the cipher covers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "v",
            Self::Part => "p",
        }
    }
}

/// The text that stands in the place of something sealed.
pub fn token(form: Form, blob: &[u8]) -> String {
    let encoded = BASE64URL_NOPAD.encode(blob);
    match form {
        Form::Value => format!("\"obx-sealed.v.{encoded}.\""),
        Form::Part => format!("obx-sealed.p.{encoded}."),
    }
}

/// Something that looks sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Where it stands; the quotes of a whole value are within.
    pub span: Range<usize>,
    /// What was sealed.
    pub form: Form,
    /// What the cipher made.
    pub blob: Vec<u8>,
}

/// All that looks sealed in a body, in order.
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

/// A body with other bytes in the place of some of its spans, which are in order and apart.
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

/// A body as it may be shown: nothing sealed in it, and the same form.
pub fn hidden(body: &[u8]) -> Vec<u8> {
    let shown = |form| match form {
        Form::Value => format!("\"{SHOWN}\"").into_bytes(),
        Form::Part => SHOWN.as_bytes().to_vec(),
    };
    splice(body, tokens(body).into_iter().map(|token| (token.span, shown(token.form))))
}

/// Whether two bodies differ in nothing but the keys under which the same places are sealed: what stands there
/// cannot be compared then.
pub fn same_but_for_keys(a: &[u8], b: &[u8], key_of: impl Fn(&[u8]) -> Option<[u8; 16]>) -> bool {
    let (left, right) = (tokens(a), tokens(b));
    let alike = |(left, right): (&Token, &Token)| {
        left.blob == right.blob || key_of(&left.blob) != key_of(&right.blob)
    };
    left.len() == right.len() && left.iter().zip(&right).all(alike) && hidden(a) == hidden(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_where_it_was_put_and_hidden_there() {
        let body = format!(
            "{{\"a\": {}, \"b\":\"x {} y\"}}",
            token(Form::Value, &[1, 2]),
            token(Form::Part, &[3; 40])
        );
        let found = tokens(body.as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].form, found[0].blob.as_slice()), (Form::Value, &[1, 2][..]));
        assert_eq!(body.get(found[0].span.clone()), Some(token(Form::Value, &[1, 2]).as_str()));
        let shown = hidden(body.as_bytes());
        assert_eq!(std::str::from_utf8(&shown), Ok(r#"{"a": "[sealed]", "b":"x [sealed] y"}"#));
    }

    #[test]
    fn what_only_begins_like_one_is_none() {
        for body in [
            "obx-sealed.",
            "obx-sealed.v.AQI.",
            "\"obx-sealed.v.AQI.x",
            "obx-sealed.p.A!.",
            "obx-sealed.q.AQI.",
        ] {
            assert_eq!(tokens(body.as_bytes()), [], "{body}");
            assert_eq!(hidden(body.as_bytes()), body.as_bytes());
        }
    }
}

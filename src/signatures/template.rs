//! The template of the text that a generic scheme signs: placeholders and literal text.
//!
//! Not here: where id and time come from ([`super::generic`]).

use std::fmt;

use schemars::json_schema;

use super::check::is_header_name;
use crate::base::schema::described;
use crate::base::words::as_text;

/// The longest template. The longest known one has 40 bytes.
const MAX_TEXT_BYTES: usize = 1024;
const NAMES: &str = "{id}, {ts}, {method}, {path}, {url}, {body}, {header:Name}";

/// Why a template is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder that does not exist.
    #[error("`{{{name}}}` is not a placeholder of `signed`; there are {NAMES}")]
    Unknown {
        /// The text between the braces.
        name: String,
    },
    /// An opening brace is never closed.
    #[error("a `{{` is not closed in `signed`; write `{{{{` for a literal brace")]
    Unclosed,
    /// A closing brace without an opening one.
    #[error("a `}}` has no opening brace in `signed`; write `}}}}` for a literal brace")]
    Unopened,
    /// A header name with invalid characters.
    #[error("`{name}` in `signed` is not a header name")]
    Header {
        /// The name.
        name: String,
    },
    /// The signature would not cover the body.
    #[error(
        "`signed` must contain {{body}}: without it, a recorded signature would be valid for any body; use the \
         check `token` if the provider signs nothing"
    )]
    NoBody,
    /// The template is too long.
    #[error("`signed` has {bytes} bytes, at most {MAX_TEXT_BYTES} are accepted")]
    Long {
        /// Its length.
        bytes: usize,
    },
}

/// One part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(String),
    Id,
    Time,
    Method,
    Path,
    Url,
    Body,
    Header(String),
}

/// A template such as `{ts}.{body}`; parsed once, when a provider is created.
///
/// ```
/// use oncebox::signatures::template::Template;
/// assert_eq!(Template::parse("v0:{ts}:{body}").unwrap().to_string(), "v0:{ts}:{body}");
/// let refused = Template::parse("{time}.{body}").unwrap_err().to_string();
/// assert!(refused.starts_with("`{time}` is not a placeholder of `signed`; there are {id}, {ts}"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Reads a template. `{{` and `}}` are literal braces.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TemplateError::Long { bytes: text.len() });
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, brace, after)) = split_at_brace(rest) {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push(brace);
                rest = after;
                continue;
            }
            if brace == '}' {
                return Err(TemplateError::Unopened);
            }
            let (name, after) = after.split_once('}').ok_or(TemplateError::Unclosed)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(placeholder(name)?);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        if !pieces.contains(&Piece::Body) {
            return Err(TemplateError::NoBody);
        }
        Ok(Self(pieces))
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.0
    }
}

fn split_at_brace(text: &str) -> Option<(&str, char, &str)> {
    let (at, brace) = text.char_indices().find(|(_, letter)| matches!(letter, '{' | '}'))?;
    let (before, from_brace) = text.split_at_checked(at)?;
    Some((before, brace, from_brace.strip_prefix(brace)?))
}

fn placeholder(name: &str) -> Result<Piece, TemplateError> {
    Ok(match name {
        "id" => Piece::Id,
        "ts" => Piece::Time,
        "method" => Piece::Method,
        "path" => Piece::Path,
        "url" => Piece::Url,
        "body" => Piece::Body,
        _ => match name.strip_prefix("header:") {
            Some(header) if is_header_name(header) => Piece::Header(header.to_owned()),
            Some(header) => return Err(TemplateError::Header { name: header.to_owned() }),
            None => return Err(TemplateError::Unknown { name: name.to_owned() }),
        },
    })
}

as_text!(Template);
described!(Template, json_schema!({ "type": "string" }));

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Literal(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            Piece::Id => f.write_str("{id}"),
            Piece::Time => f.write_str("{ts}"),
            Piece::Method => f.write_str("{method}"),
            Piece::Path => f.write_str("{path}"),
            Piece::Url => f.write_str("{url}"),
            Piece::Body => f.write_str("{body}"),
            Piece::Header(name) => write!(f, "{{header:{name}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_survives_its_text_form() {
        for text in
            ["{body}", "v0:{ts}:{body}", "{{{method}\n{path}}}{header:X-Nonce}{url}{id}{body}"]
        {
            assert_eq!(Template::parse(text).unwrap().to_string(), text);
        }
        let braces = Template::parse("{{}}{body}").unwrap();
        assert_eq!(braces.pieces(), [Piece::Literal("{}".to_owned()), Piece::Body]);
    }

    #[test]
    fn a_wrong_template_is_refused_with_the_reason() {
        let refuse = |text: &str| Template::parse(text).unwrap_err();
        assert_eq!(refuse("{ts}"), TemplateError::NoBody);
        assert_eq!(refuse(""), TemplateError::NoBody);
        assert_eq!(refuse("{body"), TemplateError::Unclosed);
        assert_eq!(refuse("{body}}"), TemplateError::Unopened);
        assert_eq!(refuse("{Body}"), TemplateError::Unknown { name: "Body".to_owned() });
        assert_eq!(refuse("{header:a b}{body}"), TemplateError::Header { name: "a b".to_owned() });
        assert!(matches!(refuse(&"x".repeat(2000)), TemplateError::Long { bytes: 2000 }));
    }
}

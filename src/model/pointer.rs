//! Finds one value in a JSON body by JSON Pointer, without building a tree in memory.
//!
//! Not here: `JSONPath` conditions of payload filters, and changing a body.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use schemars::json_schema;
use serde_json::value::RawValue;

use crate::base::schema::described;
use crate::base::words::as_text;
use crate::model::json::{Cursor, JsonKind, unescaped};
use crate::model::json_fields::Few;

/// The longest text of a pointer, in bytes. A longer one is a mistake.
const MAX_TEXT_BYTES: usize = 512;

/// Why a text is not a JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// The text does not begin with a slash. RFC 6901 allows this only for the empty pointer, which is not useful here.
    #[error("`{0}` is not a JSON Pointer: write it like `/data/id`, beginning with a slash")]
    NoSlash(String),
    /// A `~` without `0` (for `~`) or `1` (for `/`) after it.
    #[error("`{0}` is not a JSON Pointer: after `~` must come 0 (for a tilde) or 1 (for a slash)")]
    Tilde(String),
    /// The text is too long.
    #[error("a JSON Pointer has at most {MAX_TEXT_BYTES} bytes, this one has {0}")]
    Long(usize),
}

/// A JSON Pointer. Source: RFC 6901.
///
/// ```
/// use oncebox::model::pointer::Pointer;
/// let place = Pointer::parse("/data/items/1/id")?;
/// let body = br#"{"data":{"items":[{"id":1},{"id":"in_2"}]}}"#;
/// assert_eq!(place.text_in(body).as_deref(), Some("in_2"));
/// # Ok::<(), oncebox::model::pointer::PointerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// Reads `/a/b`.
    /// Fails with [`PointerError`]: no slash at the start, a tilde that escapes nothing, or too long.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(PointerError::Long(text.len()));
        }
        let Some(steps) = text.strip_prefix('/') else {
            return Err(PointerError::NoSlash(text.to_owned()));
        };
        let escapes = |step: &str| step.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        if !escapes(steps) {
            return Err(PointerError::Tilde(text.to_owned()));
        }
        Ok(Self(steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect()))
    }

    /// The string or number that the pointer leads to.
    ///
    /// A number is returned as it is written, because a float would round long ids; half a character is U+FFFD. `None` if the body is not JSON, or
    /// has no string or number there. Of duplicate names the last one counts.
    pub fn text_in(&self, body: &[u8]) -> Option<String> {
        text_at(body, &self.0)
    }

    /// Its steps.
    pub(crate) fn steps(&self) -> &[String] {
        &self.0
    }
}

as_text!(Pointer);
described!(Pointer, json_schema!({ "type": "string" }));

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

/// The string or number at `path`, as in [`Pointer::text_in`].
pub(crate) fn text_at<P: AsRef<str>>(body: &[u8], path: &[P]) -> Option<String> {
    text_of(raw_at(body, path)?)
}

fn text_of(raw: &str) -> Option<String> {
    if raw.starts_with('"') {
        return unescaped(raw).map(Cow::into_owned);
    }
    raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()).then(|| raw.to_owned())
}

/// The value at `path`, if it is unambiguous. Other JSON parsers may take the first of duplicate names, or ignore case.
/// Fails when a name of the path is there twice, or in another case. A body that is not JSON has no value.
pub(crate) fn unambiguous_at<'b, P: AsRef<str>>(
    body: &'b [u8],
    path: &[P],
) -> Result<Option<&'b str>, &'static str> {
    match find(body, path, true) {
        Ok(found) => Ok(found),
        Err(NotFound::Ambiguous) => Err("a signed name is in it twice"),
        Err(NotFound::Invalid) => Ok(None),
    }
}

/// The string or number at `path`, if it is unambiguous; `None` for `null`.
/// Fails like [`unambiguous_at`], and for a value of another type.
pub(crate) fn unambiguous_text_at<P: AsRef<str>>(
    body: &[u8],
    path: &[P],
) -> Result<Option<String>, &'static str> {
    match unambiguous_at(body, path)? {
        // Half a character is none that somebody could sign.
        Some(raw) if raw.starts_with('"') => {
            serde_json::from_str(raw).map(Some).map_err(|_half| "a signed field is not a text")
        }
        Some(raw) if raw != "null" => text_of(raw).map(Some).ok_or("a signed field is not a text"),
        _ => Ok(None),
    }
}

/// The first `MAX` elements of the array at `path`, as they are written.
pub(crate) fn list_at<'b, P: AsRef<str>, const MAX: usize>(
    body: &'b [u8],
    path: &[P],
) -> Option<Few<&'b RawValue, MAX>> {
    serde_json::from_str(raw_at(body, path)?).ok()
}

/// The value at `path`, as it is written. Of duplicate names the last one counts.
pub(crate) fn raw_at<'b, P: AsRef<str>>(body: &'b [u8], path: &[P]) -> Option<&'b str> {
    find(body, path, false).ok()?
}

/// Why no value can be found.
enum NotFound {
    /// The body is not JSON, or a name in it is not UTF-8.
    Invalid,
    /// A name of the path is there twice, or in another case.
    Ambiguous,
}

fn find<'b, P: AsRef<str>>(
    body: &'b [u8],
    path: &[P],
    once: bool,
) -> Result<Option<&'b str>, NotFound> {
    let mut cursor = Cursor::of_bytes(body).ok_or(NotFound::Invalid)?;
    Ok(step(&mut cursor, path, once)?.map(|span| cursor.text(&span)))
}

/// Skips one value, and returns the span to which `path` leads in it. With `once`, names of the path must not be
/// duplicated.
fn step<P: AsRef<str>>(
    cursor: &mut Cursor<'_>,
    path: &[P],
    once: bool,
) -> Result<Option<Range<usize>>, NotFound> {
    let kind = cursor.kind();
    let Some((wanted, rest)) = path.split_first() else { return Ok(Some(cursor.value())) };
    let close = match kind {
        JsonKind::Object => b'}',
        JsonKind::Array => b']',
        JsonKind::Text | JsonKind::Plain => {
            cursor.value();
            return Ok(None);
        }
    };
    let wanted = wanted.as_ref();
    let mut seen = false;
    let mut found = None;
    let index = wanted.parse::<usize>().ok().filter(|index| index.to_string() == wanted);
    cursor.enter();
    for place in 0_usize.. {
        if cursor.eats(close) {
            break;
        }
        cursor.eats(b',');
        let is_meant = if kind == JsonKind::Object {
            let name = cursor.value();
            let name = unescaped(cursor.text(&name)).ok_or(NotFound::Invalid)?;
            cursor.eats(b':');
            if once
                && (seen && name == wanted || name != wanted && name.eq_ignore_ascii_case(wanted))
            {
                return Err(NotFound::Ambiguous);
            }
            name == wanted
        } else {
            index == Some(place)
        };
        if is_meant {
            seen = true;
            found = step(cursor, rest, once)?;
        } else {
            cursor.value();
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pointer: &str, body: &str) -> Option<String> {
        Pointer::parse(pointer).unwrap().text_in(body.as_bytes())
    }

    #[test]
    fn slashes_and_tildes_in_names_are_escaped() {
        let body = r#"{"a/b":{"~":"x"},"~1":"y","":"z"}"#;
        assert_eq!(at("/a~1b/~0", body).as_deref(), Some("x"));
        assert_eq!(at("/~01", body).as_deref(), Some("y"));
        assert_eq!(at("/", body).as_deref(), Some("z"));
        assert_eq!(Pointer::parse("/a~1b/~0").unwrap().to_string(), "/a~1b/~0");
    }

    #[test]
    fn long_numbers_keep_every_digit() {
        let body = r#"{"id":123456789012345678901234567890}"#;
        assert_eq!(at("/id", body).as_deref(), Some("123456789012345678901234567890"));
    }

    #[test]
    fn other_values_than_strings_and_numbers_are_none() {
        for body in [r#"{"id":null}"#, r#"{"id":{}}"#, r#"{"id":true}"#, "{}", "[1]", "3", "\"id\""]
        {
            assert_eq!(at("/id", body), None, "{body}");
        }
    }

    #[test]
    fn a_body_that_is_not_json_has_no_values() {
        for body in [r#"{"id":"a"}x"#, r#"{"id":"a""#, "", "\u{feff}", "{\u{feff}\"id\":1}"] {
            assert_eq!(at("/id", body), None, "{body}");
        }
        assert_eq!(at("/id", "\u{feff}{\"id\":\"a\\ud83d\"}").as_deref(), Some("a\u{fffd}"));
        assert_eq!(at("/a/id", r#"{"\ud83d":1,"a":{"id":1e400}}"#).as_deref(), Some("1e400"));
        assert_eq!(Pointer::parse("/id").unwrap().text_in(b"{\"id\":\"\xff\"}"), None);
    }

    #[test]
    fn what_parsers_read_differently_is_refused() {
        let clear = |body: &str| unambiguous_text_at(body.as_bytes(), &["a", "b"]);
        assert_eq!(
            clear(r#"{"b":1,"x":{"b":2,"b":3},"a":{"b":"x","c":0,"c":1}}"#),
            Ok(Some("x".into()))
        );
        for nothing in ["{}", r#"{"a":{}}"#, r#"{"a":{"b":null}}"#, "[", "1", r#"{"a":7}"#] {
            assert_eq!(clear(nothing), Ok(None), "{nothing}");
        }
        for twice in [
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"a":{"b":1},"a":{"c":1}}"#,
            r#"{"a":{"b":1,"\u0062":2}}"#,
            r#"{"a":{"b":1,"B":2}}"#,
            r#"{"A":{},"a":{"b":1}}"#,
            r#"{"a":{"B":1}}"#,
        ] {
            assert!(clear(twice).is_err_and(|why| why.contains("twice")), "{twice}");
        }
        for other in [r#"{"a":{"b":true}}"#, r#"{"a":{"b":{}}}"#, r#"{"a":{"b":"\ud800"}}"#] {
            assert!(clear(other).is_err_and(|why| why.contains("not a text")), "{other}");
        }
    }

    #[test]
    fn array_indexes_are_plain_numbers() {
        assert_eq!(at("/1", r#"["a","b"]"#).as_deref(), Some("b"));
        assert_eq!(at("/01", r#"["a","b"]"#), None);
        assert_eq!(at("/2", r#"["a","b"]"#), None);
    }

    #[test]
    fn deep_nesting_elsewhere_is_skipped() {
        let deep = format!(r#"{{"a":{}{},"id":"x"}}"#, "[".repeat(9000), "]".repeat(9000));
        assert_eq!(at("/id", &deep).as_deref(), Some("x"));
        assert_eq!(at("/a/0/0", &deep), None);
    }

    #[test]
    fn a_wrong_pointer_is_refused_with_the_reason() {
        assert!(matches!(Pointer::parse("id"), Err(PointerError::NoSlash(..))));
        assert!(matches!(Pointer::parse("/a~2"), Err(PointerError::Tilde(..))));
        assert!(matches!(Pointer::parse("/a~"), Err(PointerError::Tilde(..))));
        assert!(matches!(Pointer::parse(&"/a".repeat(300)), Err(PointerError::Long(..))));
    }
}

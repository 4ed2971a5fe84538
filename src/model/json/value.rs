//! A JSON value in memory, as it was written: numbers keep their digits, objects the order of their members.

use std::collections::BTreeSet;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::model::json::cursor::{Cursor, JsonKind, MAX_DEPTH, quoted, unescaped};
use crate::model::json::number::Decimal;

/// Members of an object that are compared with each other; more are sorted to find a name that is there twice.
const FEW_MEMBERS: usize = 8;

/// Why bytes cannot be read as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The bytes are not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The text does not follow the grammar of JSON; says what is wrong at which line and column.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// Objects and arrays are nested too deep.
    #[error("it is nested deeper than {MAX_DEPTH}")]
    Deep,
}

/// A JSON value. Takes at most 32 bytes for each byte of its text, also while it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Json {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number that is written in the usual way.
    Whole(i64),
    /// Any other number, as it is written.
    Number(Box<str>),
    /// A text.
    Text(Box<str>),
    /// An array.
    List(Box<[Self]>),
    /// An object.
    Object(Members),
}

/// The members of an object, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    members: Box<[(Box<str>, Json)]>,
    is_ambiguous: bool,
}

impl Members {
    fn of(members: Vec<(Box<str>, Json)>) -> Self {
        let is_ambiguous = has_name_twice(&members);
        Self { members: members.into_boxed_slice(), is_ambiguous }
    }

    /// Names and values, in the order in which they are written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json)> {
        self.members.iter().map(|(name, value)| (&**name, value))
    }

    /// Names and values, owned.
    pub fn into_vec(self) -> Vec<(Box<str>, Json)> {
        self.members.into_vec()
    }

    /// The value of a name; the last one if the name is there twice.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.members.iter().rev().find(|(own, _)| **own == *name).map(|(_, value)| value)
    }

    /// Whether a name is there twice. Programs differ in which of the two they read.
    pub fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// The first name that is there twice.
    pub fn name_twice(&self) -> Option<&str> {
        if !self.is_ambiguous {
            return None;
        }
        let mut seen = BTreeSet::new();
        self.iter().map(|(name, _)| name).find(|name| !seen.insert(*name))
    }
}

fn has_name_twice(members: &[(Box<str>, Json)]) -> bool {
    if members.len() <= FEW_MEMBERS {
        let mut rest = members;
        while let Some(((name, _), others)) = rest.split_first() {
            if others.iter().any(|(other, _)| other == name) {
                return true;
            }
            rest = others;
        }
        return false;
    }
    let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| matches!(pair, [one, other] if one == other))
}

impl Json {
    /// Reads a body. A byte order mark at its start is skipped.
    /// Fails if the body is not UTF-8, not JSON, or nested deeper than 128.
    ///
    /// ```
    /// use oncebox::model::json::Json;
    /// let read = Json::read(br#"{"total":99.90}"#)?;
    /// assert_eq!(read.to_string(), r#"{"total":99.90}"#);
    /// # Ok::<(), oncebox::model::json::Unreadable>(())
    /// ```
    pub fn read(body: &[u8]) -> Result<Self, Unreadable> {
        std::str::from_utf8(body).map_err(|_not_text| Unreadable::NotUtf8)?;
        let checked = Cursor::checked(body);
        let mut cursor = checked.map_err(|error| Unreadable::NotJson(error.to_string()))?;
        value(&mut cursor, 0)
    }

    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// An object of these members.
    pub fn object(members: Vec<(Box<str>, Self)>) -> Self {
        Self::Object(Members::of(members))
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items, if it is an array.
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The members, if it is an object.
    pub fn as_object(&self) -> Option<&Members> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The value of the member with this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Number(_))
    }

    /// How many values are in it, itself included.
    pub fn size(&self) -> usize {
        let inner: usize = match self {
            Self::Object(members) => members.iter().map(|(_, value)| value.size()).sum(),
            Self::List(items) => items.iter().map(Self::size).sum(),
            _ => 0,
        };
        inner.saturating_add(1)
    }

    /// Calls `with` with the number, if it is one.
    pub fn with_number<T>(&self, with: impl FnOnce(Decimal<'_>) -> T) -> Option<T> {
        match self {
            Self::Whole(number) => Decimal::read(&number.to_string()).map(with),
            Self::Number(text) => Decimal::read(text).map(with),
            _ => None,
        }
    }

    fn write(&self, into: &mut String) {
        match self {
            Self::Null => into.push_str("null"),
            Self::Bool(value) => into.push_str(if *value { "true" } else { "false" }),
            Self::Whole(number) => into.push_str(&number.to_string()),
            Self::Number(text) => into.push_str(text),
            Self::Text(text) => into.push_str(&quoted(text)),
            Self::List(items) => {
                into.push('[');
                for (n, item) in items.iter().enumerate() {
                    into.push_str(if n == 0 { "" } else { "," });
                    item.write(into);
                }
                into.push(']');
            }
            Self::Object(members) => {
                into.push('{');
                for (n, (name, value)) in members.iter().enumerate() {
                    into.push_str(if n == 0 { "" } else { "," });
                    into.push_str(&quoted(name));
                    into.push(':');
                    value.write(into);
                }
                into.push('}');
            }
        }
    }
}

/// Writes it without white space.
impl std::fmt::Display for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

/// Reads the value at the cursor. The body was checked, so only its depth can be wrong.
fn value(cursor: &mut Cursor<'_>, depth: usize) -> Result<Json, Unreadable> {
    let kind = cursor.kind();
    if matches!(kind, JsonKind::Object | JsonKind::Array) && depth >= MAX_DEPTH {
        return Err(Unreadable::Deep);
    }
    let inner = depth.saturating_add(1);
    match kind {
        JsonKind::Text => Ok(Json::Text(text(cursor))),
        JsonKind::Plain => {
            let span = cursor.value();
            Ok(keyword_or_number(cursor.text(&span)))
        }
        JsonKind::Array => {
            cursor.enter();
            let mut items = Vec::new();
            while !cursor.eats(b']') {
                cursor.eats(b',');
                grow(&mut items);
                items.push(value(cursor, inner)?);
            }
            Ok(Json::List(items.into_boxed_slice()))
        }
        JsonKind::Object => {
            cursor.enter();
            let mut members = Vec::new();
            while !cursor.eats(b'}') {
                cursor.eats(b',');
                let _first = cursor.peek();
                let name = text(cursor);
                cursor.eats(b':');
                grow(&mut members);
                members.push((name, value(cursor, inner)?));
            }
            Ok(Json::object(members))
        }
    }
}

/// Makes room for one more by a quarter: doubling would take more memory than a reader of a payload reserves.
fn grow<T>(items: &mut Vec<T>) {
    if items.len() == items.capacity() {
        items.reserve_exact(items.len() / 4 + 4);
    }
}

fn text(cursor: &mut Cursor<'_>) -> Box<str> {
    let span = cursor.value();
    unescaped(cursor.text(&span)).unwrap_or_default().into()
}

fn keyword_or_number(raw: &str) -> Json {
    match raw {
        "null" => Json::Null,
        "true" => Json::Bool(true),
        "false" => Json::Bool(false),
        "-0" => Json::Number(raw.into()),
        _ => raw.parse().map_or_else(|_not_whole| Json::Number(raw.into()), Json::Whole),
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text = RawValue::from_string(self.to_string());
        text.map_err(serde::ser::Error::custom)?.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        Self::read(raw.get().as_bytes()).map_err(D::Error::custom)
    }
}

/// Numbers that were read elsewhere have their digits no longer; for values that a program makes.
impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self::read(value.to_string().as_bytes()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    fn read(text: &str) -> Json {
        Json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_written_is_what_is_kept() {
        for text in [
            r#"{"total":99.90,"id":18446744073709551617,"huge":1e400,"zero":-0,"list":[1,-5,1.0,[]],"none":null,"is":true}"#,
            r#"{"b":1,"a":{"x":"y"}}"#,
            r#""text""#,
            "1e5",
            "[]",
            "{}",
        ] {
            let value = read(text);
            assert_eq!(value.to_string(), text);
            let through_serde: Json = serde_json::from_str(text).unwrap();
            assert_eq!(through_serde, value);
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
        }
        assert_eq!(read(" [ 7 , \"a\\ud83d\" ] ").to_string(), "[7,\"a\u{fffd}\"]");
        assert_eq!(read("\u{feff}[-5]"), Json::List(Box::new([Json::Whole(-5)])));
    }

    #[test]
    fn a_name_that_is_there_twice_is_noted() {
        let many = |more: &str| {
            let members: Vec<String> = (0..20).map(|n| format!("\"n{n}\":0")).collect();
            format!("{{{}{more}}}", members.join(","))
        };
        for (text, name) in [
            (r#"{"a":1,"b":2}"#.to_owned(), None),
            (r#"{"a":1,"b":2,"a":3}"#.to_owned(), Some("a")),
            (r#"{"a":1,"\u0061":3}"#.to_owned(), Some("a")),
            (many(""), None),
            (many(r#","n7":1"#), Some("n7")),
        ] {
            let value = read(&text);
            let members = value.as_object().unwrap();
            assert_eq!((members.is_ambiguous(), members.name_twice()), (name.is_some(), name));
        }
        assert_eq!(read(r#"{"a":1,"a":3}"#).get("a"), Some(&Json::Whole(3)));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let nested = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        assert!(Json::read(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(Json::read(nested(MAX_DEPTH + 1).as_bytes()), Err(Unreadable::Deep));
        assert_eq!(Json::read(b"\"\xff\""), Err(Unreadable::NotUtf8));
        let why = Json::read(b"{\"a\":1,}").unwrap_err().to_string();
        assert!(why.contains("line 1 column 8"), "{why}");
        // It is refused however deep it is.
        assert_eq!(Json::read(nested(100_000).as_bytes()), Err(Unreadable::Deep));
    }

    /// Bytes that a value takes at the worst moment while it is read: its parts with 32 bytes for each small piece of memory,
    /// and once more the list that grows.
    fn bytes(value: &Json) -> usize {
        let block = |bytes: usize| if bytes == 0 { 0 } else { bytes.next_multiple_of(16).max(32) };
        let grown = |bytes: usize| block(bytes) + bytes + bytes / 4;
        match value {
            Json::Number(text) | Json::Text(text) => block(text.len()),
            Json::List(items) => {
                grown(items.len() * size_of::<Json>()) + items.iter().map(bytes).sum::<usize>()
            }
            Json::Object(members) => {
                let each = members.iter().map(|(name, value)| block(name.len()) + bytes(value));
                // Names are sorted to find one that is there twice.
                let sorted = members.iter().len() * size_of::<&str>();
                grown(members.iter().len() * size_of::<(Box<str>, Json)>())
                    + sorted
                    + each.sum::<usize>()
            }
            _ => 0,
        }
    }

    #[test]
    fn a_value_takes_at_most_32_times_its_text() {
        let list = |item: &str| format!("[{}]", vec![item; 20_000].join(","));
        let object = |value: &str| {
            let members: Vec<String> = (0..20_000).map(|_| format!("\"\":{value}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let named: Vec<String> = (0..20_000).map(|n| format!("\"{n:x}\":0")).collect();
        for text in [
            list("0"),
            list("[]"),
            list("{}"),
            list("\"\""),
            list("\"a\""),
            list("1.5"),
            list("1e9"),
            list("[0]"),
            list("[[0]]"),
            list("{\"\":0}"),
            list("{\"a\":\"b\"}"),
            list("[[],[]]"),
            object("0"),
            object("\"\""),
            object("[]"),
            object("{}"),
            format!("{{{}}}", named.join(",")),
        ] {
            let taken = bytes(&read(&text)) + size_of::<Json>();
            let start: String = text.chars().take(20).collect();
            assert!(taken <= 32 * text.len(), "{start}: {} times", taken / text.len());
        }
    }
}

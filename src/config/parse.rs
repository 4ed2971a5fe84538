//! Forms of values: how a value is read from what somebody gave, how it is shown, and what may be given.
//!
//! A form is the one place that knows the bounds of a value: reading, the schema and the words of the
//! default file all come from it.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::{Value, json};
use toml::de::DeValue;

/// A value as somebody gave it: from a file, or as the text of a variable or flag.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// From a file.
    Toml(&'a DeValue<'a>),
    /// From a variable of the environment or a flag.
    Text(&'a str),
}

impl<'a> Given<'a> {
    pub(super) fn text(self) -> Result<&'a str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Toml(value) => value
                .as_str()
                .ok_or_else(|| format!("is {}; it must be a text in quotes", kind(value))),
        }
    }

    pub(super) fn number(self) -> Result<u64, String> {
        let wrong = |what: &dyn Display| format!("is {what}; it must be a whole number");
        match self {
            Self::Text(text) => text.trim().parse().map_err(|_why| wrong(&format!("{text:?}"))),
            Self::Toml(value) => {
                let number = value.as_integer().ok_or_else(|| wrong(&kind(value)))?;
                u64::from_str_radix(number.as_str(), number.radix()).map_err(|_why| wrong(number))
            }
        }
    }

    fn flag(self) -> Result<bool, String> {
        let wrong = |what: &dyn Display| format!("is {what}; it must be true or false");
        match self {
            Self::Text("true") => Ok(true),
            Self::Text("false") => Ok(false),
            Self::Text(text) => Err(wrong(&format!("{text:?}"))),
            Self::Toml(value) => value.as_bool().ok_or_else(|| wrong(&kind(value))),
        }
    }

    /// The words of a list; in a variable they stand between commas.
    pub(super) fn list(self) -> Result<Vec<String>, String> {
        match self {
            Self::Text(text) => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                Ok(words.map(str::to_owned).collect())
            }
            Self::Toml(value) => {
                let wrong = || format!("is {}; it must be a list like [\"…\"]", kind(value));
                let list = value.as_array().ok_or_else(wrong)?;
                list.iter()
                    .map(|item| Given::Toml(item.as_ref()).text().map(str::to_owned))
                    .collect()
            }
        }
    }
}

/// What a value of a file is, for the person who gave another kind.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// How a value is read and shown.
pub(super) trait Form {
    /// What it becomes.
    type Held;

    /// Reads it, within its bounds.
    fn read(&self, given: Given<'_>) -> Result<Self::Held, String>;

    /// As it stands in a file: JSON and TOML write what is in here alike.
    fn shown(&self, held: &Self::Held) -> Value;

    /// What may be given, as JSON Schema.
    fn schema(&self) -> Value;

    /// What may be given, for people.
    fn says(&self) -> String;
}

/// `127.0.0.1:8710`
pub(super) struct Address;
/// A file or directory.
pub(super) struct Path;
/// Any text that is not empty.
pub(super) struct Text;
/// `http://…` or `https://…`, without a path that ends in `/`.
pub(super) struct Url;
/// `true` or `false`
pub(super) struct Flag;
/// `["10.0.0.0/8", "192.0.2.7"]`
pub(super) struct Networks;
/// A whole number within bounds.
pub(super) struct Number(pub(super) u32, pub(super) u32);
/// One word of several.
pub(super) struct Word<T: 'static>(pub(super) &'static [(&'static str, T)]);
/// What may be absent.
pub(super) struct Maybe<F>(pub(super) F);

impl Form for Address {
    type Held = SocketAddr;

    fn read(&self, given: Given<'_>) -> Result<SocketAddr, String> {
        let text = given.text()?;
        text.parse().map_err(|_why| {
            format!("is {text:?}; it must be an address and a port, like 127.0.0.1:8710")
        })
    }

    fn shown(&self, held: &SocketAddr) -> Value {
        held.to_string().into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "examples": ["127.0.0.1:8710", "[::1]:8710"] })
    }

    fn says(&self) -> String {
        "an address and a port".to_owned()
    }
}

impl Form for Path {
    type Held = PathBuf;

    fn read(&self, given: Given<'_>) -> Result<PathBuf, String> {
        Text.read(given).map(PathBuf::from)
    }

    fn shown(&self, held: &PathBuf) -> Value {
        held.display().to_string().into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1 })
    }

    fn says(&self) -> String {
        "a path".to_owned()
    }
}

impl Form for Text {
    type Held = String;

    fn read(&self, given: Given<'_>) -> Result<String, String> {
        match given.text()? {
            "" => Err("is empty; leave it out instead".to_owned()),
            text => Ok(text.to_owned()),
        }
    }

    fn shown(&self, held: &String) -> Value {
        held.as_str().into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "minLength": 1 })
    }

    fn says(&self) -> String {
        "a text".to_owned()
    }
}

impl Form for Url {
    type Held = String;

    fn read(&self, given: Given<'_>) -> Result<String, String> {
        let text = given.text()?;
        let url: Option<http::Uri> = text.parse().ok();
        let good = |url: &http::Uri| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
                && url.query().is_none()
        };
        if url.as_ref().is_some_and(good) {
            return Ok(text.trim_end_matches('/').to_owned());
        }
        Err(format!("is {text:?}; it must be a URL like https://hooks.example.com"))
    }

    fn shown(&self, held: &String) -> Value {
        held.as_str().into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^https?://" })
    }

    fn says(&self) -> String {
        "a URL".to_owned()
    }
}

impl Form for Flag {
    type Held = bool;

    fn read(&self, given: Given<'_>) -> Result<bool, String> {
        given.flag()
    }

    fn shown(&self, held: &bool) -> Value {
        (*held).into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }

    fn says(&self) -> String {
        "true or false".to_owned()
    }
}

impl Form for Networks {
    type Held = Vec<IpNet>;

    fn read(&self, given: Given<'_>) -> Result<Vec<IpNet>, String> {
        given.list()?.iter().map(|word| network(word)).collect()
    }

    fn shown(&self, held: &Vec<IpNet>) -> Value {
        held.iter().map(ToString::to_string).collect()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": { "type": "string", "examples": ["10.0.0.0/8"] } })
    }

    fn says(&self) -> String {
        "a list of address ranges".to_owned()
    }
}

/// A range, or one address.
fn network(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let range = text.parse::<IpNet>().ok().or_else(one);
    range.ok_or_else(|| format!("{text:?} is no address range like 10.0.0.0/8 or 192.0.2.7"))
}

impl Form for Number {
    type Held = u32;

    fn read(&self, given: Given<'_>) -> Result<u32, String> {
        let Self(least, most) = *self;
        let number = given.number()?;
        let held = u32::try_from(number).ok().filter(|held| (least..=most).contains(held));
        held.ok_or_else(|| format!("is {number}; it must be {least} to {most}"))
    }

    fn shown(&self, held: &u32) -> Value {
        (*held).into()
    }

    fn schema(&self) -> Value {
        json!({ "type": "integer", "minimum": self.0, "maximum": self.1 })
    }

    fn says(&self) -> String {
        format!("{} to {}", self.0, self.1)
    }
}

impl<T: Copy + PartialEq> Form for Word<T> {
    type Held = T;

    fn read(&self, given: Given<'_>) -> Result<T, String> {
        let text = given.text()?;
        let found = self.0.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, held)| *held)
            .ok_or_else(|| format!("is {text:?}; it must be {}", self.says()))
    }

    fn shown(&self, held: &T) -> Value {
        self.0
            .iter()
            .find(|(_, known)| known == held)
            .map_or(Value::Null, |(word, _)| (*word).into())
    }

    fn schema(&self) -> Value {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        json!({ "enum": words })
    }

    fn says(&self) -> String {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.join(""),
        }
    }
}

impl<F: Form> Form for Maybe<F> {
    type Held = Option<F::Held>;

    fn read(&self, given: Given<'_>) -> Result<Self::Held, String> {
        self.0.read(given).map(Some)
    }

    fn shown(&self, held: &Self::Held) -> Value {
        held.as_ref().map_or(Value::Null, |held| self.0.shown(held))
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }

    fn says(&self) -> String {
        self.0.says()
    }
}

//! Limits of bodies and queries: what the document says of lengths, numbers and patterns holds for every route, because it
//! is checked where they are read. Not here: limits that depend on more than the value
//! ([`crate::api::subscription_terms`] and others).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use regex_lite::Regex;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::api::described_value::SentType;
use crate::api::description::{Body, Doc, Place};
use crate::api::pattern_words;
use crate::api::problem::Problem;
use crate::api::schema::Describe;

/// A longer text is not compared with a pattern, which takes up to 0.1 µs for each byte: what uses it has a limit of its
/// own.
const MAX_MATCHED_BYTES: usize = 64 << 10;
/// The words of a schema by which a value is checked. Without them any value fits, and its text is not read.
const CHECKED: [&str; 6] = ["$ref", "anyOf", "oneOf", "type", "const", "enum"];

/// A schema.
#[derive(Debug)]
struct Described {
    sent: SentType,
    /// Its patterns. One that cannot be compiled is left to the handler.
    patterns: BTreeMap<String, Regex>,
}

/// The schemas that were needed so far, by the name of their operation and parameter; that of a body has no parameter.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<BTreeMap<(&'static str, &'static str), Arc<Described>>>);

/// Why a value is not what a schema describes.
enum Misfit {
    /// It has another form: says which is wanted.
    Form(String),
    /// It is out of a limit.
    Limit(String),
}

/// A value of which only the outermost level is read.
enum Part<'v> {
    Members(BTreeMap<String, &'v RawValue>),
    Items(Vec<&'v RawValue>),
    One(Value),
}

impl Limits {
    /// Fails with 422 that names the member that is out of a limit.
    pub(super) fn check(&self, doc: &Doc, body: &[u8]) -> Result<(), Problem> {
        let Some(Body::Json { describe, .. }) = doc.body else { return Ok(()) };
        let Ok(body) = serde_json::from_slice(body) else { return Ok(()) };
        let checked = self.described((doc.id, ""), describe).check(body, "the body");
        checked.map_err(|why| Problem::unprocessable(format!("{why}.")))
    }

    /// The first member of an unreadable body that does not fit its schema, with the wanted form. `None` if all fit, or the
    /// body has no schema.
    pub(super) fn misfit(&self, doc: &Doc, body: &[u8]) -> Option<String> {
        let Some(Body::Json { describe, .. }) = doc.body else { return None };
        let body = serde_json::from_slice(body).ok()?;
        let described = self.described((doc.id, ""), describe);
        match described.fits(&described.sent.schema, body, "the body") {
            Err(Misfit::Form(why) | Misfit::Limit(why)) => Some(why),
            Ok(()) => None,
        }
    }

    /// Fails with 400 that names the parameter that is out of a limit.
    pub(super) fn check_query<'a>(
        &self,
        doc: &Doc,
        query: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), Problem> {
        for (name, text) in query {
            let param = doc.params.iter().find(|one| one.place == Place::Query && one.name == name);
            let Some(param) = param.filter(|param| !(param.bare && text.is_empty())) else {
                continue;
            };
            let described = self.described((doc.id, param.name), param.describe);
            let is_number = described.sent.schema.get("type").is_some_and(|word| word == "integer");
            let value =
                if is_number { RawValue::from_string(text.to_owned()) } else { to_raw_value(text) };
            let checked = value.map_or(Ok(()), |value| described.check(&value, name));
            checked.map_err(|why| Problem::bad_request(format!("{why}.")))?;
        }
        Ok(())
    }

    fn described(&self, key: (&'static str, &'static str), describe: Describe) -> Arc<Described> {
        let described = || {
            let sent = SentType::of(describe);
            let mut patterns = BTreeMap::new();
            let schemas = sent.named.values().chain([&sent.schema]);
            schemas.for_each(|schema| compile(schema, &mut patterns));
            Arc::new(Described { sent, patterns })
        };
        Arc::clone(self.0.lock().entry(key).or_insert_with(described))
    }
}

fn compile(schema: &Value, into: &mut BTreeMap<String, Regex>) {
    if let Some(Value::String(pattern)) = schema.get("pattern")
        && let Ok(compiled) = Regex::new(pattern)
    {
        into.insert(pattern.clone(), compiled);
    }
    match schema {
        Value::Object(members) => members.values().for_each(|one| compile(one, into)),
        Value::Array(items) => items.iter().for_each(|one| compile(one, into)),
        _ => {}
    }
}

impl<'v> Part<'v> {
    fn of(value: &'v RawValue) -> Option<Self> {
        let text = value.get();
        match text.as_bytes().first()? {
            b'{' => serde_json::from_str(text).ok().map(Self::Members),
            b'[' => serde_json::from_str(text).ok().map(Self::Items),
            _ => serde_json::from_str(text).ok().map(Self::One),
        }
    }
}

impl Described {
    fn check(&self, value: &RawValue, name: &str) -> Result<(), String> {
        match self.fits(&self.sent.schema, value, name) {
            Err(Misfit::Limit(why)) => Err(why),
            Ok(()) | Err(Misfit::Form(_)) => Ok(()),
        }
    }

    fn fits(&self, schema: &Value, value: &RawValue, name: &str) -> Result<(), Misfit> {
        if CHECKED.iter().all(|word| schema.get(word).is_none()) {
            return Ok(());
        }
        if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
            let referred = path.rsplit('/').next().and_then(|last| self.sent.named.get(last));
            referred.map_or(Ok(()), |schema| self.fits(schema, value, name))?;
        }
        let Some(part) = Part::of(value) else {
            return Err(Misfit::Form(format!("{name} cannot be read")));
        };
        of_form(schema, &part, name).map_err(Misfit::Form)?;
        for parts in ["anyOf", "oneOf"].iter().filter_map(|word| schema.get(*word)?.as_array()) {
            self.fits_any(parts, value, name)?;
        }
        within(schema, &part, name)?;
        match &part {
            Part::Members(members) => all(members.iter().map(|(name, value)| {
                if let Some(names) = schema.get("propertyNames") {
                    self.matches(names, name, name)?;
                }
                let own = schema.get("properties").and_then(|own| own.get(name));
                let schema = own.or_else(|| schema.get("additionalProperties"));
                schema.map_or(Ok(()), |schema| self.fits(schema, value, name))
            })),
            Part::Items(items) => all(items.iter().map(|item| {
                schema.get("items").map_or(Ok(()), |schema| self.fits(schema, item, name))
            })),
            Part::One(Value::String(text)) => self.matches(schema, text, name),
            Part::One(_) => Ok(()),
        }
    }

    /// Fails with the limit of the last part whose form it has, else with the form of the first.
    fn fits_any(&self, parts: &[Value], value: &RawValue, name: &str) -> Result<(), Misfit> {
        let mut why = None;
        for part in parts {
            match (self.fits(part, value, name), &why) {
                (Ok(()), _) => return Ok(()),
                (Err(limit @ Misfit::Limit(_)), _) => why = Some(limit),
                (Err(form), None) => why = Some(form),
                (Err(Misfit::Form(_)), Some(_)) => {}
            }
        }
        why.map_or(Ok(()), Err)
    }

    /// Compares a text with a pattern. Base64 is decoded by what uses it.
    fn matches(&self, schema: &Value, text: &str, name: &str) -> Result<(), Misfit> {
        let is_compared =
            text.len() <= MAX_MATCHED_BYTES && schema.get("contentEncoding").is_none();
        let pattern = schema.get("pattern").and_then(Value::as_str).filter(|_| is_compared);
        match pattern.and_then(|pattern| self.patterns.get(pattern)) {
            Some(pattern) if !pattern.is_match(text) => {
                Err(Misfit::Limit(format!("{name} must {}", pattern_words::of(pattern.as_str()))))
            }
            _ => Ok(()),
        }
    }
}

/// The first limit that is not kept counts more than another form.
fn all(parts: impl Iterator<Item = Result<(), Misfit>>) -> Result<(), Misfit> {
    let mut fits = Ok(());
    for part in parts {
        match part {
            Ok(()) => {}
            Err(Misfit::Form(_)) => fits = part,
            Err(Misfit::Limit(_)) => return part,
        }
    }
    fits
}

/// Compares a value with the type, the constant and the members of a schema. Fails with words for the wanted form.
fn of_form(schema: &Value, part: &Part<'_>, name: &str) -> Result<(), String> {
    let is_type = |word: &Value| match part {
        Part::Members(_) => word == "object",
        Part::Items(_) => word == "array",
        Part::One(Value::Null) => word == "null",
        Part::One(Value::Bool(_)) => word == "boolean",
        Part::One(Value::Number(_)) => word == "number" || word == "integer",
        Part::One(_) => word == "string",
    };
    let list = |word| schema.get(word).and_then(Value::as_array);
    let is = |only: &Value| matches!(part, Part::One(value) if value == only);
    let lacks = |name: &&Value| {
        let Part::Members(members) = part else { return true };
        name.as_str().is_none_or(|name| !members.contains_key(name))
    };
    let types = match schema.get("type") {
        Some(Value::Array(types)) => types.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    if !types.is_empty() && !types.iter().any(is_type) {
        let wanted = types.iter().find(|word| *word != "null").and_then(Value::as_str);
        return Err(format!("{name} must be {}", type_in_words(wanted.unwrap_or_default())));
    }
    if let Some(only) = schema.get("const").filter(|only| !is(only)) {
        return Err(format!("{name} must be {only}"));
    }
    if let Some(words) = list("enum").filter(|words| !words.iter().any(is)) {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        let words = words.join(", ");
        return Err(match part {
            Part::One(value) => format!("{name} is {value}; it must be one of: {words}"),
            _ => format!("{name} must be one of: {words}"),
        });
    }
    match list("required").and_then(|names| names.iter().find(lacks)) {
        Some(missing) => Err(format!("{} is missing", missing.as_str().unwrap_or_default())),
        None => Ok(()),
    }
}

/// A type of JSON Schema as people call it.
fn type_in_words(word: &str) -> &'static str {
    match word {
        "object" => "an object",
        "array" => "a list",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "null" => "null",
        _ => "a text",
    }
}

fn within(schema: &Value, part: &Part<'_>, name: &str) -> Result<(), Misfit> {
    let (least, most, have, of) = match part {
        Part::Members(all) => ("minProperties", "maxProperties", count(all.len()), " members"),
        Part::Items(items) => ("minItems", "maxItems", count(items.len()), " entries"),
        Part::One(Value::String(text)) => {
            ("minLength", "maxLength", count(text.chars().count()), " characters")
        }
        Part::One(Value::Number(number)) => ("minimum", "maximum", number.as_f64(), ""),
        Part::One(_) => return Ok(()),
    };
    let bound = |word| schema.get(word).and_then(Value::as_f64);
    let least = bound(least);
    let most = bound(most);
    let fits = have.is_none_or(|have| {
        least.is_none_or(|least| have >= least) && most.is_none_or(|most| have <= most)
    });
    if fits {
        return Ok(());
    }
    let range = match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or_default()),
    };
    let verb = if of.is_empty() { "be" } else { "have" };
    Err(Misfit::Limit(format!("{name} must {verb} {range}{of}")))
}

fn count(of: usize) -> Option<f64> {
    u32::try_from(of).ok().map(f64::from)
}

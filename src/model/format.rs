//! What a subscription says of the content of its requests: their format, the event's header fields that go with them, a
//! template, and conditions that a payload must meet.
//!
//! Not here: how requests are written and conditions are tested, which the room `formats` does.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::base::schema::{AnyValue, Ascii, Text, described, values};
use crate::base::words::{self, words};
use crate::model::json::Json;
use crate::model::json_fields::Object;
use crate::model::json_path::Path;

words! {
    /// How an event's payload stands in a request. Stored in `subscriptions.format`.
    #[derive(Default)]
    pub enum Format as "Format" {
        /// The payload is the body, to the byte.
        #[default]
        Raw = "raw",
        /// The payload is `data` in the envelope of Standard Webhooks: `{"type":…,"timestamp":…,"data":…}`.
        StandardWebhooks = "standard_webhooks",
        /// `CloudEvents` 1.0: the payload is the body, the attributes are header fields.
        CloudeventsBinary = "cloudevents_binary",
        /// `CloudEvents` 1.0: the body is JSON that has the attributes and the payload.
        CloudeventsStructured = "cloudevents_structured",
    }
}

/// What a subscription's format, template and `event_headers` made of an event. The first attempt of a delivery fixes it,
/// so that all attempts send the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendering {
    /// The format it was made by.
    pub format: Format,
    /// The media type of its body.
    pub content_type: String,
    /// Its header fields, as a JSON array of pairs.
    pub fields: String,
    /// The body that a template or a format made; `None`: the event's payload in the format.
    pub body: Option<Vec<u8>>,
    /// Whether header fields and body are sealed, because the event has sealed values.
    pub is_sealed: bool,
}

impl Rendering {
    /// The payload as it is.
    pub fn raw(content_type: &str) -> Self {
        Self {
            format: Format::Raw,
            content_type: content_type.to_owned(),
            fields: "[]".to_owned(),
            body: None,
            is_sealed: false,
        }
    }
}

words! {
    /// How a condition compares.
    pub enum Op {
        /// A place has this value.
        Equals = "equals",
        /// No place has this value.
        NotEquals = "not_equals",
        /// A place has one of these values.
        In = "in",
        /// There is such a place, or none with `false`.
        Exists = "exists",
        /// A place is greater: a number, or a text by its characters.
        Gt = "gt",
        /// Greater or equal.
        Gte = "gte",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Lte = "lte",
        /// A text begins with this one.
        StartsWith = "starts_with",
        /// A text has this one in it, or an array this value.
        Contains = "contains",
    }
}

/// A condition on the payload.
// An array of them is stored in `subscriptions.filter`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which places: `$`, then `.name`, `['name']`, `[n]`, `[*]`, `.*` or `..name`. One of them is enough.
    #[serde(deserialize_with = "usable")]
    pub path: Path,
    pub op: Op,
    /// With what. `in` takes an array, `exists` true (the default) or false. Numbers are compared by their digits, with
    /// texts that are numbers as well.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    #[schemars(with = "AnyValue")]
    pub value: Json,
}

fn usable<'de, D: Deserializer<'de>>(from: D) -> Result<Path, D::Error> {
    let path = Path::parse(&String::deserialize(from)?);
    path.map_err(|why| D::Error::custom(format!("filter cannot be used: {why}")))
}

/// The most conditions of a filter.
pub const MAX_CONDITIONS: usize = 16;
/// Bytes that conditions may take ready to use; a filter that takes more is kept as its text.
const MAX_READY_BYTES: usize = 32 * 1024;

/// Whether conditions of this JSON take too much memory when they are ready to use.
fn is_dense(text: &str) -> bool {
    let held = |byte| match byte {
        b'{' => 300,
        b'[' => 128,
        b',' => 32,
        b'"' => 16,
        _ => 1_usize,
    };
    text.bytes().map(held).sum::<usize>() > MAX_READY_BYTES
}

/// The conditions of a filter as they are kept in memory. A value takes up to 32 times its text, so those with many values
/// are read each time they are tested.
#[derive(Clone, Debug)]
pub enum PayloadFilter {
    /// Ready to use.
    Ready(Vec<Condition>),
    /// As JSON.
    Text(Box<RawValue>),
}

impl PartialEq for PayloadFilter {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(own), Self::Ready(other)) => own == other,
            (Self::Text(own), Self::Text(other)) => own.get() == other.get(),
            _ => false,
        }
    }
}

impl PayloadFilter {
    /// Reads a filter's JSON.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        let conditions = serde_json::from_str(text)?;
        if is_dense(text) {
            return RawValue::from_string(text.to_owned()).map(Self::Text);
        }
        Ok(Self::Ready(conditions))
    }

    /// A filter of these conditions.
    pub fn of(conditions: Vec<Condition>) -> Self {
        let text = serde_json::to_string(&conditions).ok().filter(|text| is_dense(text));
        let text = text.and_then(|text| RawValue::from_string(text).ok());
        text.map_or(Self::Ready(conditions), Self::Text)
    }

    /// Whether it has no conditions.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Ready(conditions) if conditions.is_empty())
    }

    /// Its conditions.
    pub fn conditions(&self) -> Cow<'_, [Condition]> {
        match self {
            Self::Ready(conditions) => Cow::Borrowed(conditions),
            // It was read before.
            Self::Text(text) => Cow::Owned(serde_json::from_str(text.get()).unwrap_or_default()),
        }
    }
}

impl Default for PayloadFilter {
    fn default() -> Self {
        Self::Ready(Vec::new())
    }
}

impl Serialize for PayloadFilter {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Ready(conditions) => conditions.serialize(to),
            Self::Text(text) => text.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for PayloadFilter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let conditions = Option::<Vec<Object<Condition>>>::deserialize(from)?.unwrap_or_default();
        Ok(Self::of(conditions.into_iter().map(|Object(condition)| condition).collect()))
    }
}

/// Header fields that a subscription may add.
pub const MAX_HEADERS: usize = 32;

words! {
    /// For which kind of text a template escapes the values that it writes.
    pub enum Escape as "Escape" {
        /// Each value is written as JSON, texts in quotes.
        Json = "json",
        /// A text that a reader of CSV would misread is put in quotes; null is empty.
        Csv = "csv",
        /// `&`, `<`, `>` and quotes are written as entities; null is empty.
        Xml = "xml",
    }
}

values! {
    /// A template, in the language of Jinja.
    TemplateSource = { "type": "string", "maxLength": 32768 }
    /// A statement of SQL.
    EffectSource = { "type": "string", "minLength": 1, "maxLength": 16384 }
    /// Templates of header fields by their names.
    TemplateHeaders = {
        "type": "object", "maxProperties": MAX_HEADERS,
        "additionalProperties": { "type": "string", "maxLength": 32768 },
        "propertyNames": { "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,255}$" },
    }
}

/// A template of one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LineTemplate(String);

impl LineTemplate {
    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

described!(LineTemplate, json_schema!({ "type": "string", "maxLength": 32768 }));

/// What a request is written with (docs/formats.md).
// Stored in `subscriptions.template`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Template")]
pub struct TemplateText {
    /// Of the body; without one the payload is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TemplateSource")]
    pub body: Option<String>,
    /// The body's media type; the event's, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Ascii<1, 255>")]
    pub content_type: Option<String>,
    /// Of header fields, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "TemplateHeaders")]
    pub headers: BTreeMap<String, String>,
    /// For which kind of text the values in the body are escaped; nothing is, if absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "words::optional"
    )]
    pub escape: Option<Escape>,
    /// Of a `folder`: the name of an event's file, which must have `id` or `webhook_id`. Of `email`: that of the
    /// attachment. If absent, the `webhook_id` with an ending by media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<LineTemplate>,
    /// Of `email`: the subject; the event's type and aggregate, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<LineTemplate>,
    /// Of `email`: whether the event's payload is attached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
    /// Of `database`: the statement that each event runs there, with values like `:payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<EffectSource>")]
    pub effect: Option<String>,
    /// Of `database`, instead of `effect`: the table into which each event is written as a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Text<1, 128>>")]
    pub inbox: Option<String>,
}

impl TemplateText {
    /// All texts in the language of Jinja.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let lines = self.name.iter().chain(&self.subject).map(LineTemplate::text);
        self.body.iter().chain(self.headers.values()).map(String::as_str).chain(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_many_values_is_kept_as_text_and_means_the_same() {
        let few = r#"[{"path":"$.a","op":"in","value":[1,2,3]}]"#;
        assert!(
            matches!(PayloadFilter::read(few).unwrap(), PayloadFilter::Ready(all) if all.len() == 1)
        );
        let many =
            format!(r#"[{{"path":"$.a","op":"equals","value":[[0]{}]}}]"#, ",[0]".repeat(3_000));
        let kept = PayloadFilter::read(&many).unwrap();
        assert!(matches!(kept, PayloadFilter::Text(_)) && !kept.is_empty());
        assert_eq!(serde_json::to_string(&kept).unwrap(), many);
        assert!(
            PayloadFilter::read("[{}]").is_err() && PayloadFilter::read("[]").unwrap().is_empty()
        );
    }
}

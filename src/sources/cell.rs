//! Values of an event's fields as a source has them, before they are checked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;

use schemars::json_schema;
use serde::{Deserialize, Serialize};

use crate::base::schema::described;
use crate::model::event_field::EventField;

/// Texts by the fields that they fill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TextsByField(pub BTreeMap<EventField, String>);

described!(
    TextsByField,
    json_schema!({
        "type": "object", "propertyNames": { "enum": EventField::ALL },
        "additionalProperties": { "type": "string" },
    })
);

impl Deref for TextsByField {
    type Target = BTreeMap<EventField, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The value of a field in its source.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes, or text that is not UTF-8.
    Bytes(Vec<u8>),
    /// A value of so many bytes, too large to be read.
    TooLarge(u64),
}

impl Cell {
    /// Its bytes as a payload.
    pub(crate) fn raw(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Integer(n) => n.to_string().into_bytes().into(),
            Self::Real(n) => n.to_string().into_bytes().into(),
            Self::Text(text) => text.as_bytes().into(),
            Self::Bytes(bytes) => bytes.into(),
            Self::TooLarge(_) => Cow::default(),
        }
    }

    /// Its text for a field other than the payload; `None` if it is empty.
    pub(crate) fn text(&self) -> Result<Option<String>, String> {
        Ok(match self {
            Self::Integer(n) => Some(n.to_string()),
            Self::Real(n) => Some(n.to_string()),
            Self::Text(text) if text.is_empty() => None,
            Self::Text(text) => Some(text.clone()),
            Self::Bytes(_) => return Err("is not text in UTF-8".to_owned()),
            Self::TooLarge(bytes) => return Err(format!("has {bytes} bytes, which is too much")),
        })
    }
}

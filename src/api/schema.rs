//! JSON Schemas that requests and answers share: kinds of text, enums of the model, pages.
//!
//! Types of requests and answers derive their schemas; types of the model get theirs here.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::json::carried;

/// Returns the schema of a type, or a reference to it if the type is named in the document.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// How schemas are written for the document.
pub(super) fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings
}

/// The [`Describe`] of a type.
pub(super) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A reference to the schema of a request's type, for answers that show the sent value.
pub(super) fn as_sent<T: JsonSchema>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "$ref": format!("#/components/schemas/{}", T::schema_name()) })
}

pub(super) use crate::base::schema::{
    AnyDeliveryId, AnyLaneId, AnyObject, AnyValue, Ascii, Base64, Cursor, DayText, LaneCursor,
    LaneId, Limit, NameText, Sha256, SomeText, StrictBase64, Text, TrueOrFalse, TypeName, Uuid,
    Whole, values,
};

/// A value of the type `T` whose schema is that of `S`. It is written and read as the value alone.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Is<S, T = String>(pub(super) T, PhantomData<S>);

impl<S: JsonSchema, T> JsonSchema for Is<S, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        S::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<S>()
    }
}

impl<S, T> From<T> for Is<S, T> {
    fn from(value: T) -> Self {
        Self(value, PhantomData)
    }
}

impl<S, T: Deref> Deref for Is<S, T> {
    type Target = T::Target;

    fn deref(&self) -> &T::Target {
        &self.0
    }
}

/// The value alone, if there is one.
pub(super) fn bare<S, T>(value: Option<Is<S, T>>) -> Option<T> {
    value.map(|Is(value, _)| value)
}

/// Serializes an answer. Serializing into memory cannot fail.
pub(super) fn value(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}

/// Serializes an answer with numbers that somebody has written, such as those of a filter: an answer to a change has them
/// with all digits. Takes longer than [`value`].
pub(super) fn exact(answer: impl Serialize) -> Value {
    let json = serde_json::to_vec(&answer).unwrap_or_default();
    carried::read(&json).unwrap_or_default()
}

/// A page of a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub(super) struct ListPage<T> {
    pub(super) items: Vec<T>,
    /// The `after` of the next page; null on the last page. A page that is not the last may also have fewer items than
    /// `limit`, or none.
    #[schemars(regex(pattern = "^[0-9]+$"))]
    pub(super) next: Option<String>,
}

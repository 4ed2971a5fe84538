//! JSON Schemas that requests and answers share: kinds of text, enums of the model, pages.
//!
//! Types of requests and answers derive their schemas; types of the model get theirs here.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::clock::Timestamp;
use crate::model::name::Name;
use crate::model::subscription;

/// Returns the schema of a type, or a reference to it if the type is named in the document.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// How schemas are written for the document.
pub(super) fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    settings
}

/// The schema of a request's body, and the schemas that it refers to by name.
pub(super) fn body_schema(describe: Describe) -> (Value, Map<String, Value>) {
    let mut sent = settings().for_deserialize().into_generator();
    (describe(&mut sent).to_value(), sent.take_definitions(true))
}

/// The [`Describe`] of a type.
pub(super) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A reference to the schema of a request's type, for answers that show the sent value.
pub(super) fn as_sent<T: JsonSchema>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "$ref": format!("#/components/schemas/{}", T::schema_name()) })
}

/// Implements `JsonSchema` for a type: under a name, or in place.
macro_rules! described {
    ($type:ty, in place, $schema:expr) => {
        $crate::api::schema::described!($type, stringify!($type), true, $schema);
    };
    ($type:ty, $name:literal, $schema:expr) => {
        $crate::api::schema::described!($type, $name, false, $schema);
    };
    ($type:ty, $name:expr, $in_place:literal, $schema:expr) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                $in_place
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}
pub(super) use described;

/// Makes types that are only schemas. Fields refer to them with `#[schemars(with = "…")]`.
macro_rules! values {
    ($($(#[$about:meta])* $name:ident = $schema:tt)*) => {$(
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(in crate::api) struct $name;
        $crate::api::schema::described!($name, in place, schemars::json_schema!($schema));
    )*};
}
pub(super) use values;

values! {
    /// A text that is not empty.
    SomeText = { "type": "string", "minLength": 1 }
    /// A UUID.
    Uuid = { "type": "string", "format": "uuid" }
    /// The name that people give to a thing.
    NameText = { "type": "string", "pattern": "^[a-z0-9-]{1,63}$" }
    /// An id of a delivery.
    DeliveryId = { "type": "string", "pattern": "^dlv_[0-9]+$" }
    /// An id of a delivery, with its prefix or without.
    AnyDeliveryId = { "type": "string", "pattern": "^(dlv_)?[0-9]{1,18}$" }
    /// An id of a lane.
    LaneId = { "type": "string", "pattern": "^lane_[0-9]+$" }
    /// An id of a lane, with its prefix or without.
    AnyLaneId = { "type": "string", "pattern": "^(lane_)?[0-9]{1,19}$" }
    /// Where a page of lanes starts.
    LaneCursor = { "type": "string", "pattern": "^[0-9]{1,20}$" }
    /// A SHA-256, in hex.
    Sha256 = { "type": "string", "pattern": "^[0-9a-f]{64}$" }
    /// Bytes.
    Base64 = { "type": "string", "contentEncoding": "base64" }
    /// Bytes of a request.
    StrictBase64 = { "type": "string", "contentEncoding": "base64",
        "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$" }
    /// A name of a header field.
    HeaderName = { "type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" }
    /// One character.
    Character = { "type": "string", "minLength": 1, "maxLength": 1 }
    /// An object with any members.
    AnyObject = { "type": "object" }
    /// Rows of a page.
    Limit = { "type": "integer", "minimum": 1, "maximum": 500, "default": 50 }
    /// Where a page starts.
    Cursor = { "type": "string", "pattern": "^[0-9]{1,18}$" }
    /// Yes or no, in a query.
    TrueOrFalse = { "type": "string", "enum": ["true", "false"] }
    /// The kinds of a subscription's target.
    TargetKind = { "type": "string", "enum": subscription::Target::KINDS }
    /// Those of them that a person may choose.
    ChosenTargetKind = { "type": "string", "enum": subscription::Target::CHOSEN_KINDS }
}

described!(Timestamp, in place, json_schema!({ "type": "string", "format": "date-time" }));
described!(Name, in place, NameText::json_schema(&mut SchemaGenerator::default()));

/// Makes schemas of texts and numbers within bounds.
macro_rules! bounded {
    ($($(#[$about:meta])* $name:ident, $number:ty = $schema:tt)*) => {$(
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(super) struct $name<const MIN: $number, const MAX: $number>;

        impl<const MIN: $number, const MAX: $number> JsonSchema for $name<MIN, MAX> {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

bounded! {
    /// A text of `MIN` to `MAX` characters.
    Text, usize = { "type": "string", "minLength": MIN, "maxLength": MAX }
    /// Printable ASCII of `MIN` to `MAX` characters.
    Ascii, usize = { "type": "string", "minLength": MIN, "maxLength": MAX, "pattern": "^[ -~]*$" }
    /// A whole number from `MIN` to `MAX`.
    Whole, u64 = { "type": "integer", "minimum": MIN, "maximum": MAX }
}

/// Makes `Answer::of`, which serializes a value of the model with the fields of `Answer`.
macro_rules! answers {
    ($answer:ident, $model:ty) => {
        impl $answer {
            pub(super) fn of(model: &$model) -> serde_json::Value {
                $crate::api::schema::written(Self::serialize(model, serde_json::value::Serializer))
            }
        }
    };
}
pub(super) use answers;

/// The result of serializing into memory, which cannot fail.
pub(super) fn written(value: serde_json::Result<Value>) -> Value {
    value.unwrap_or_default()
}

/// Serializes an answer.
pub(super) fn value(answer: impl Serialize) -> Value {
    written(serde_json::to_value(answer))
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

//! JSON Schemas that requests, answers and the model share: kinds of text and numbers.
//!
//! Not here: how the API's description is put together, which `api::openapi` does.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;

/// Implements `JsonSchema` for a type. The schema stands where the type is used.
macro_rules! described {
    ($type:ty, $schema:expr) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use described;

/// Makes types that are only schemas. Fields refer to them with `#[schemars(with = "…")]`.
macro_rules! values {
    ($($(#[$about:meta])* $name:ident = $schema:tt)*) => {$(
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $name;
        $crate::base::schema::described!($name, schemars::json_schema!($schema));
    )*};
}
pub(crate) use values;

/// The pattern of a name of a header field.
pub(crate) const HEADER_NAME: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";

values! {
    /// A text that is not empty.
    SomeText = { "type": "string", "minLength": 1 }
    /// The type of an event.
    TypeName = { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]*$" }
    /// A day.
    DayText = { "type": "string", "format": "date" }
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
    HeaderName = { "type": "string", "pattern": HEADER_NAME }
    /// One character.
    Character = { "type": "string", "minLength": 1, "maxLength": 1 }
    /// Any value.
    AnyValue = {}
    /// An object with any members.
    AnyObject = { "type": "object" }
    /// Rows of a page.
    Limit = { "type": "integer", "minimum": 1, "maximum": 500, "default": 50 }
    /// Where a page starts.
    Cursor = { "type": "string", "pattern": "^[0-9]{1,18}$" }
    /// Yes or no, in a query.
    TrueOrFalse = { "type": "string", "enum": ["true", "false"] }
}

described!(Timestamp, json_schema!({ "type": "string", "format": "date-time" }));
described!(DeliverySeq, DeliveryId::json_schema(&mut SchemaGenerator::default()));

/// The schema of a field that has a default: a request may also say null, an answer never does.
#[derive(Debug, Default)]
pub(crate) struct OrNull<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for OrNull<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        // Another name than that of `T`, which would pass for a reference to itself.
        format!("OrNull_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        if generator.contract().is_deserialize() {
            generator.subschema_for::<Option<T>>()
        } else {
            generator.subschema_for::<T>()
        }
    }
}

/// Makes schemas of texts and numbers within bounds.
macro_rules! bounded {
    ($($(#[$about:meta])* $name:ident, $number:ty = $schema:tt)*) => {$(
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $name<const MIN: $number, const MAX: $number>;

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

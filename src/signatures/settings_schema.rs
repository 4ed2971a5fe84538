//! JSON Schema of a scheme with its settings: a shape for each kind that has settings of its own, and one for all others.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::adyen::Adyen;
use super::paypal::Paypal;
use super::provider::{Repeats, SchemeSettings};
use super::sns::Sns;
use super::{Basic, Scheme, generic, kinds};

/// What every scheme may say of repetitions.
const ABOUT_REPEATS: &str = "Which requests are repetitions of an earlier one; default: those with a known id or, without an \
                             id, with equal bytes.";

/// The settings of schemes that have none of their own.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

impl JsonSchema for SchemeSettings {
    fn schema_name() -> Cow<'static, str> {
        "Scheme".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let has_none = |kind: &&str| *kind != "adyen" && Scheme::of(kind).is_some();
        let plain: Vec<&str> = kinds().filter(has_none).collect();
        json_schema!({
            "description": "How the provider signs. docs/providers.md says what each scheme needs.",
            "anyOf": [
                shape::<NoSettings>(generator, "PlainScheme", &plain),
                shape::<Adyen>(generator, "AdyenScheme", &["adyen"]),
                shape::<Paypal>(generator, "PaypalScheme", &["paypal"]),
                shape::<Sns>(generator, "SnsScheme", &["sns"]),
                shape::<Basic>(generator, "ChargebeeScheme", &["chargebee"]),
                shape::<generic::Settings>(generator, "GenericScheme", &["generic"]),
            ],
        })
    }
}

/// Describes the settings of some kinds under a name, with what every scheme has: its kind, and which requests are
/// repetitions. Returns a reference to that.
fn shape<S: JsonSchema>(generator: &mut SchemaGenerator, name: &str, kinds: &[&str]) -> Schema {
    let mut schema = S::json_schema(generator);
    let mut repeats = generator.subschema_for::<Option<Repeats>>();
    repeats.insert("description".to_owned(), ABOUT_REPEATS.into());
    let mut members = Map::new();
    let kind = json_schema!({ "type": "string", "enum": kinds });
    members.insert("kind".to_owned(), kind.into());
    if let Some(Value::Object(own)) = schema.remove("properties") {
        members.extend(own);
    }
    members.insert("repeats".to_owned(), repeats.into());
    let mut required = vec![Value::from("kind")];
    if let Some(Value::Array(own)) = schema.remove("required") {
        required.extend(own);
    }
    schema.insert("properties".to_owned(), members.into());
    schema.insert("required".to_owned(), required.into());
    generator.definitions_mut().insert(name.to_owned(), schema.into());
    let place = &generator.settings().definitions_path;
    json_schema!({ "$ref": format!("#{place}/{name}") })
}

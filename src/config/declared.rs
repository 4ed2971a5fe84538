//! What the file declares for `oncebox apply`, in the API's fields: `[[tenant]]`, `[[provider]]`, `[[subscription]]`,
//! `[[token]]` and `[[source]]`.
//!
//! The file never holds a secret, only its location: a file, a variable, or a systemd credential. Not here: the
//! validation of values, which the API does.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::base::words::words;
use crate::config::problem::{Problem, SourceText, did_you_mean};

/// The objects that a file declares, in its order.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// All objects.
    pub objects: Vec<Object>,
}

words! {
    /// The kind of a declared object, in the order in which they are applied: policies and subscriptions exist before
    /// sources are read.
    pub enum ObjectKind {
        /// `[[tenant]]`
        Tenant = "tenant",
        /// `[[provider]]`
        Provider = "provider",
        /// `[[subscription]]`
        Subscription = "subscription",
        /// `[[token]]`
        Token = "token",
        /// `[[source]]`
        Source = "source",
    }
}

/// A declared object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Its other fields, as in the API.
    pub fields: Map<String, Value>,
    /// Where its secrets are, the newest first.
    pub secrets: Vec<SecretAt>,
    /// The file for a new token.
    pub token_file: Option<PathBuf>,
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretAt {
    /// In a file.
    File(PathBuf),
    /// In a variable of the environment.
    Environment(String),
    /// In a systemd credential.
    Credential(String),
}

/// A field of a kind.
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Whether it is required.
    pub required: bool,
    /// Its description and allowed values.
    pub about: &'static str,
    form: Form,
}

/// The JSON types of a value, the type of the items of a list, and both in words.
#[derive(Clone, Copy)]
struct Form(&'static [&'static str], &'static str, &'static str);

impl Form {
    const TEXT: Self = Self(&["string"], "", "a string in quotes");
    const NUMBER: Self = Self(&["integer"], "", "a whole number");
    const WORDS: Self = Self(&["array"], "string", "a list of strings");
    const TABLE: Self = Self(&["object"], "", "a table");
    const TABLES: Self = Self(&["array"], "object", "a list of tables");
    const TEXT_OR_TABLE: Self = Self(&["string", "object"], "", "a string or a table");
    const TEXT_OR_WORDS: Self =
        Self(&["string", "array"], "string", "a string or a list of strings");

    fn schema(self, about: &str) -> Value {
        let Self(types, ..) = self;
        let types = if let [one] = types { json!(one) } else { json!(types) };
        json!({ "type": types, "description": about })
    }

    fn takes(self, value: &DeValue<'_>) -> Result<(), &'static str> {
        let Self(types, items, wanted) = self;
        let of_type = |value: &DeValue<'_>| match value {
            DeValue::String(_) => "string",
            DeValue::Integer(_) => "integer",
            DeValue::Array(_) => "array",
            DeValue::Table(_) => "object",
            _ => "another",
        };
        let mut list = value.as_array().into_iter().flatten();
        let fits = types.contains(&of_type(value)) && list.all(|v| of_type(v.get_ref()) == items);
        fits.then_some(()).ok_or(wanted)
    }
}

const fn required(name: &'static str, form: Form, about: &'static str) -> Field {
    Field { name, required: true, about, form }
}

const fn optional(name: &'static str, form: Form, about: &'static str) -> Field {
    Field { name, required: false, about, form }
}

const NAME: Field = required("name", Form::TEXT, "Its name: a-z, 0-9 and -, up to 63");
#[rustfmt::skip]
const SECRET_FILE: Field = optional("secret_file", Form::TEXT_OR_WORDS, "File of the secret, or several, the newest first");
#[rustfmt::skip]
const SECRET_ENV: Field = optional("secret_env", Form::TEXT_OR_WORDS, "Variable that holds the secret, or several");
#[rustfmt::skip]
const SECRET_CREDENTIAL: Field = optional("secret_credential", Form::TEXT_OR_WORDS, "systemd credential of the secret, or several");

#[rustfmt::skip]
const TENANT: [Field; 3] = [
    NAME,
    optional("title", Form::TEXT, "Display name"),
    optional("pii", Form::TEXT_OR_TABLE,
        "Handling of personal data in published events and events from sources: \"allow\", or a policy"),
];

#[rustfmt::skip]
const PROVIDER: [Field; 11] = [
    NAME,
    required("scheme", Form::TEXT_OR_TABLE, "Signature scheme: \"stripe\", or a table as in the API"),
    optional("public_url", Form::TEXT, "The URL that it posts to, if not its path below listen.public_url"),
    required("pii", Form::TEXT_OR_TABLE, "Handling of personal data: \"allow\", or a policy"),
    optional("body_bytes_max", Form::NUMBER, "The largest body it may send"),
    optional("tolerance_secs", Form::NUMBER, "Largest difference between its signed time and ours"),
    optional("replay_window_secs", Form::NUMBER,
        "How long identical signed bytes count as one event, if the id is not signed; 0: each id is an event"),
    optional("ordering_key", Form::TABLE,
        "Where its webhooks have their ordering key: { path = \"$.data.object.id\" } or { header = \"X-Order-Id\" }"),
    SECRET_FILE,
    SECRET_ENV,
    SECRET_CREDENTIAL,
];

#[rustfmt::skip]
const SUBSCRIPTION: [Field; 18] = [
    NAME,
    optional("target", Form::TEXT, "http, or pull: consumers fetch its events"),
    optional("url", Form::TEXT, "URL for its events; {id}, {event_type}, {aggregate_id} … are replaced; not with pull"),
    optional("event_types", Form::WORDS, "Patterns like \"invoice.*\""),
    optional("source", Form::TEXT, "outbox, all, or provider:<name>"),
    optional("owner_id", Form::TEXT, "Owner, as free text"),
    optional("method", Form::TEXT, "POST, PUT or PATCH"),
    optional("headers", Form::TABLE, "Further header fields"),
    optional("policy", Form::TABLE, "steps, max_attempts, timeout, in_flight_max, lease, rate, breaker_after, classes, confirm_within, event_fields"),
    optional("ordering", Form::TEXT, "none, key or strict"),
    optional("order", Form::TABLE, "group, head_of_line, park_after, funnel_point, latest_only, external_calls, call_path, postpone_limit"),
    optional("format", Form::TEXT, "raw, standard_webhooks, cloudevents_binary or cloudevents_structured"),
    optional("event_headers", Form::WORDS, "Names of the events' header fields that are sent with them"),
    optional("filter", Form::TABLES, "Conditions that a payload must meet: [{ path = \"$.total\", op = \"gt\", value = 100 }]"),
    optional("template", Form::TABLE, "body, content_type, headers, escape; name, subject and attach of files and mails"),
    SECRET_FILE,
    SECRET_ENV,
    SECRET_CREDENTIAL,
];

#[rustfmt::skip]
const TOKEN: [Field; 6] = [
    required("name", Form::TEXT, "Its name, such as the program that uses it"),
    required("role", Form::TEXT, "publish, read, operate or admin"),
    optional("source_systems", Form::WORDS, "Source systems of a publish token, like [\"shop\"]; [\"*\"]: any"),
    optional("consumer_groups", Form::WORDS, "Consumer groups of a publish token; [\"*\"]: any"),
    optional("expires_at", Form::TEXT, "When it expires, like \"2027-12-31T00:00:00Z\""),
    optional("token_file", Form::TEXT, "File for the new token, mode 0600"),
];

#[rustfmt::skip]
const SOURCE: [Field; 5] = [
    NAME,
    required("kind", Form::TEXT, "sqlite or drop"),
    required("settings", Form::TABLE, "Its path and format, as in the API"),
    optional("silent_after_ms", Form::NUMBER, "Escalate when no event came for this long; 0: never"),
    optional("from", Form::TEXT, "For sqlite, when it is created: start, or now, which skips the existing rows"),
];

impl ObjectKind {
    /// Its fields.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Tenant => &TENANT,
            Self::Provider => &PROVIDER,
            Self::Subscription => &SUBSCRIPTION,
            Self::Token => &TOKEN,
            Self::Source => &SOURCE,
        }
    }

    /// Its section as JSON Schema.
    pub fn schema(self) -> Value {
        let fields = self.fields().iter();
        let properties: Map<String, Value> = fields
            .clone()
            .map(|field| (field.name.to_owned(), field.form.schema(field.about)))
            .collect();
        let required: Vec<&str> = fields.filter(|f| f.required).map(|f| f.name).collect();
        json!({ "type": "array", "items": {
            "type": "object", "additionalProperties": false, "properties": properties,
            "required": required,
        } })
    }
}

/// Reads the objects of one section.
pub(super) fn section(
    text: SourceText<'_>,
    kind: ObjectKind,
    value: &Spanned<DeValue<'_>>,
    into: &mut Declared,
    problems: &mut Vec<Problem>,
) {
    let word = kind.as_str();
    let Some(list) = value.get_ref().as_array() else {
        problems.push(text.problem(value.span().start, format!("write [[{word}]], once for each")));
        return;
    };
    for item in list {
        let at = item.span().start;
        let Some(table) = item.get_ref().as_table() else {
            problems.push(text.problem(at, format!("write [[{word}]], once for each")));
            continue;
        };
        let before = problems.len();
        let found = object(text, kind, at, table, problems);
        let known = |other: &Object| other.kind == kind && other.name == found.name;
        if into.objects.iter().any(known) {
            problems.push(text.problem(at, format!("{word} {} is declared twice", found.name)));
        }
        if problems.len() == before {
            into.objects.push(found);
        }
    }
}

fn object(
    text: SourceText<'_>,
    kind: ObjectKind,
    at: usize,
    table: &DeTable<'_>,
    problems: &mut Vec<Problem>,
) -> Object {
    let mut found = Object {
        kind,
        name: String::new(),
        fields: Map::new(),
        secrets: Vec::new(),
        token_file: None,
    };
    let base = text.path.parent().unwrap_or_else(|| Path::new("."));
    for (name, value) in table {
        let key = name.get_ref().as_ref();
        let Some(field) = kind.fields().iter().find(|field| field.name == key) else {
            problems.push(text.problem(name.span().start, unknown(kind, key)));
            continue;
        };
        if let Err(wanted) = field.form.takes(value.get_ref()) {
            let what = format!("{}.{key} must be {wanted}", kind.as_str());
            problems.push(text.problem(value.span().start, what));
            continue;
        }
        found.put(key, value.get_ref(), base);
    }
    let has = |name: &str| table.iter().any(|(key, _)| key.get_ref() == name);
    for missing in kind.fields().iter().filter(|field| field.required && !has(field.name)) {
        problems.push(text.problem(at, format!("{} has no {}", kind.as_str(), missing.name)));
    }
    found
}

impl Object {
    fn put(&mut self, key: &str, value: &DeValue<'_>, base: &Path) {
        let texts = || -> Vec<String> {
            let of = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
            let one = of(value).into_iter();
            let list = value.as_array().into_iter().flatten();
            one.chain(list.filter_map(|item| of(item.get_ref()))).collect()
        };
        match key {
            "name" => self.name = texts().concat(),
            "token_file" => self.token_file = Some(base.join(texts().concat())),
            "secret_file" => {
                self.secrets.extend(texts().iter().map(|path| SecretAt::File(base.join(path))));
            }
            "secret_env" => self.secrets.extend(texts().into_iter().map(SecretAt::Environment)),
            "secret_credential" => {
                self.secrets.extend(texts().into_iter().map(SecretAt::Credential));
            }
            _ => {
                self.fields.insert(key.to_owned(), json(value));
            }
        }
    }
}

fn unknown(kind: ObjectKind, key: &str) -> String {
    let word = kind.as_str();
    if matches!(key, "secret" | "secrets" | "token") {
        return format!(
            "{word}.{key}: secrets do not belong in this file; put it into a file of mode 0600 and write \
             secret_file = \"…\", or name a variable (secret_env) or a systemd credential \
             (secret_credential)"
        );
    }
    let near = did_you_mean(key, kind.fields().iter().map(|field| field.name));
    format!("unknown key {word}.{key}{near}")
}

fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => {
            let read = i64::from_str_radix(number.as_str(), number.radix());
            read.map_or_else(|_why| number.as_str().into(), Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().ok().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(list) => list.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let fields =
                table.iter().map(|(key, v)| (key.get_ref().to_string(), json(v.get_ref())));
            Value::Object(fields.collect())
        }
    }
}

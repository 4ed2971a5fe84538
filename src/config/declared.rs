//! What the file declares for `oncebox apply`, in the API's fields: `[[tenant]]`, `[[provider]]`, `[[subscription]]`,
//! `[[token]]` and `[[source]]`.
//!
//! The file never holds a secret, only its location: a file, a variable, or a systemd credential. Not here: the
//! validation of values, which the API does.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::base::words::words;
use crate::config::declared_terms;
use crate::config::field_form::Form;
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
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Whether it is required.
    pub required: bool,
    /// Its description and allowed values.
    pub about: Cow<'static, str>,
    form: Form,
}

const fn required(name: &'static str, form: Form, about: &'static str) -> Field {
    Field { name: Cow::Borrowed(name), required: true, about: Cow::Borrowed(about), form }
}

const fn optional(name: &'static str, form: Form, about: &'static str) -> Field {
    Field { name: Cow::Borrowed(name), required: false, about: Cow::Borrowed(about), form }
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
const PROVIDER: [Field; 12] = [
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
    optional("reconcile", Form::TABLE,
        "When its list is compared with what came: { every_secs = 21600, since_secs = 259200, alert_percent = 1 }"),
    SECRET_FILE,
    SECRET_ENV,
    SECRET_CREDENTIAL,
];

#[rustfmt::skip]
const TARGET: Field = optional("target", Form::TEXT, "http, or pull: consumers fetch its events");
#[rustfmt::skip]
const URL: Field = optional("url", Form::TEXT, "URL for its events; {id}, {event_type}, {aggregate_id} … are replaced; not with pull");

/// The fields of a subscription, which has the terms of the API.
fn of_subscription() -> Vec<Field> {
    let terms = declared_terms::all().into_iter().map(|term| Field {
        name: term.name.into(),
        required: false,
        about: term.about.into(),
        form: term.form,
    });
    let secrets = [SECRET_FILE, SECRET_ENV, SECRET_CREDENTIAL];
    [NAME, TARGET, URL].into_iter().chain(terms).chain(secrets).collect()
}

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
    pub fn fields(self) -> Vec<Field> {
        match self {
            Self::Tenant => TENANT.to_vec(),
            Self::Provider => PROVIDER.to_vec(),
            Self::Subscription => of_subscription(),
            Self::Token => TOKEN.to_vec(),
            Self::Source => SOURCE.to_vec(),
        }
    }

    /// Its section as JSON Schema.
    pub fn schema(self) -> Value {
        let fields = self.fields();
        let properties: Map<String, Value> = fields
            .iter()
            .map(|field| (field.name.to_string(), field.form.schema(&field.about)))
            .collect();
        let required: Vec<&str> = fields.iter().filter(|f| f.required).map(|f| &*f.name).collect();
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
    let fields = kind.fields();
    for item in list {
        let at = item.span().start;
        let Some(table) = item.get_ref().as_table() else {
            problems.push(text.problem(at, format!("write [[{word}]], once for each")));
            continue;
        };
        let before = problems.len();
        let found = object(text, kind, &fields, at, table, problems);
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
    fields: &[Field],
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
        let Some(field) = fields.iter().find(|field| field.name == key) else {
            problems.push(text.problem(name.span().start, unknown(kind, fields, key)));
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
    for missing in fields.iter().filter(|field| field.required && !has(&field.name)) {
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

fn unknown(kind: ObjectKind, fields: &[Field], key: &str) -> String {
    let word = kind.as_str();
    if matches!(key, "secret" | "secrets" | "token") {
        return format!(
            "{word}.{key}: secrets do not belong in this file; put it into a file of mode 0600 and write \
             secret_file = \"…\", or name a variable (secret_env) or a systemd credential \
             (secret_credential)"
        );
    }
    let near = did_you_mean(key, fields.iter().map(|field| &*field.name));
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

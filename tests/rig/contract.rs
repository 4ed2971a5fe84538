//! `/openapi.json` as a judge: whatever a test sends and gets back must be in it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::{Draft, Validator};
use oncebox::api::openapi;
use oncebox::model::json::carried;
use serde_json::{Map, Value, json};

use super::http::Answer;

/// Header fields that belong to HTTP and not to an operation.
const FIELDS_OF_HTTP: [&str; 6] =
    ["cache-control", "connection", "content-length", "content-type", "date", "transfer-encoding"];

/// A request: method, path with query, body.
pub(crate) type Sent<'a> = (&'a str, &'a str, &'a [u8]);

/// The document, and the validators that were needed so far.
struct Contract {
    document: Value,
    /// The same, with objects of answers closed: what is not described must not be there.
    closed: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| {
    let document = openapi::document();
    let mut closed = document.clone();
    close(&mut closed["components"]);
    close(&mut closed["paths"]);
    Contract { document, closed, validators: Mutex::default() }
});

/// Asserts that a request and its answer are described.
#[track_caller]
pub(crate) fn check(sent: Sent<'_>, answer: &Answer) {
    let (method, path, _) = sent;
    if let Err(fault) = judge(sent, answer) {
        panic!("{method} {path} is not as /openapi.json says: {fault}\n{}", answer.text());
    }
}

/// What is not as the document says.
pub(crate) fn judge((method, path, body): Sent<'_>, answer: &Answer) -> Result<(), String> {
    let contract = &*CONTRACT;
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let Some(template) = contract.template(path) else {
        return problem(contract, (answer, method == "HEAD"), 404, "not-found");
    };
    let operations = &contract.document["paths"][&template];
    // The answers that a provider reads are its own: to a handshake, or with ours in a header field.
    let is_of_provider = ["oncebox-receipt", "x-content-type-options", "webhook-allowed-origin"]
        .iter()
        .any(|name| answer.field(name).is_some());
    if path.starts_with("/in/") && answer.status < 300 && is_of_provider {
        return Ok(());
    }
    if method == "OPTIONS" {
        if answer.status == 404 {
            return problem(contract, (answer, false), 404, "not-found");
        }
        return if answer.status == 204 { Ok(()) } else { Err("OPTIONS is answered 204".into()) };
    }
    let asked = if method == "HEAD" { "get".into() } else { method.to_ascii_lowercase() };
    let operation = &operations[&asked];
    if operation.is_null() {
        answer.field("allow").ok_or("there is no Allow")?;
        return problem(contract, (answer, method == "HEAD"), 405, "method-not-allowed");
    }
    let place = format!("/paths/{}/{asked}", template.replace('/', "~1"));
    contract.answer(&place, operation, answer, method == "HEAD")?;
    if answer.status < 300 {
        contract.request(&place, operation, body)?;
    }
    Ok(())
}

/// A body, also with half a character or a number that no float can hold.
fn read(body: &[u8]) -> Result<Value, String> {
    let plain = serde_json::from_slice(body);
    plain.or_else(|_error| carried::read(body)).map_err(|error| error.to_string())
}

/// Any problem of that kind; the answer to `HEAD` comes without its body.
fn problem(
    contract: &Contract,
    (answer, head): (&Answer, bool),
    status: u16,
    word: &str,
) -> Result<(), String> {
    if answer.status != status {
        return Err(format!("it must be answered {status}, not {}", answer.status));
    }
    contract.described(&format!("/components/responses/{word}"), answer, head)
}

impl Contract {
    /// The path of the document that a path is an instance of; a literal part goes before a variable one.
    fn template(&self, path: &str) -> Option<String> {
        let parts: Vec<&str> = path.split('/').collect();
        let fits = |template: &&String| {
            let of_template: Vec<&str> = template.split('/').collect();
            of_template.len() == parts.len()
                && of_template
                    .iter()
                    .zip(&parts)
                    .all(|(have, part)| have == part || (have.starts_with('{') && !part.is_empty()))
        };
        let paths = self.document["paths"].as_object().unwrap();
        paths.keys().filter(fits).min_by_key(|template| template.matches('{').count()).cloned()
    }

    fn answer(
        &self,
        place: &str,
        operation: &Value,
        answer: &Answer,
        head: bool,
    ) -> Result<(), String> {
        let status = answer.status.to_string();
        let response = &operation["responses"][&status];
        match response["$ref"].as_str() {
            _ if response.is_null() => Err(format!("{status} is not described")),
            Some(reference) => self.described(reference.trim_start_matches('#'), answer, head),
            None => self.described(&format!("{place}/responses/{status}"), answer, head),
        }
    }

    /// Compares an answer with the response at a place of the document.
    fn described(&self, place: &str, answer: &Answer, head: bool) -> Result<(), String> {
        let response =
            self.document.pointer(place).ok_or_else(|| format!("nothing is at {place}"))?;
        for (name, _) in &answer.message.fields {
            let listed = response["headers"].as_object();
            let known = listed.is_some_and(|all| all.keys().any(|n| n.eq_ignore_ascii_case(name)));
            if !known && !FIELDS_OF_HTTP.contains(&name.as_str()) {
                return Err(format!("the header field {name} is not described"));
            }
        }
        let listed = response["headers"].as_object().into_iter().flatten();
        for (name, header) in listed {
            let place = header["$ref"].as_str().map(|reference| reference.trim_start_matches('#'));
            let header = place.map_or(Some(header), |place| self.document.pointer(place));
            let required = header.is_some_and(|header| header["required"] == true);
            if required && answer.field(&name.to_ascii_lowercase()).is_none() {
                return Err(format!("the header field {name} is missing"));
            }
        }
        let Some(content) = response["content"].as_object() else {
            let empty = answer.body().is_empty();
            return if empty { Ok(()) } else { Err("no body is described".into()) };
        };
        let media_type = answer.field("content-type").unwrap_or_default();
        if !content.contains_key(media_type) {
            return Err(format!("the media type {media_type:?} is not described"));
        }
        if head || !media_type.ends_with("json") {
            return Ok(());
        }
        let body = read(answer.body())?;
        let media_type = media_type.replace('/', "~1");
        self.valid(&self.closed, &format!("{place}/content/{media_type}/schema"), &body)
    }

    /// A body that was accepted must be one that the document allows.
    fn request(&self, place: &str, operation: &Value, body: &[u8]) -> Result<(), String> {
        let schema = &operation["requestBody"]["content"]["application/json"];
        if schema.is_null() {
            return Ok(());
        }
        if body.is_empty() && operation["requestBody"]["required"] == false {
            return Ok(());
        }
        let body = read(body).map_err(|error| format!("what is no JSON was accepted: {error}"))?;
        let place = format!("{place}/requestBody/content/application~1json/schema");
        self.valid(&self.document, &place, &body)
            .map_err(|error| format!("the accepted request is against its schema: {error}"))
    }

    fn valid(&self, document: &Value, place: &str, body: &Value) -> Result<(), String> {
        let mut validators = self.validators.lock().unwrap();
        let validator = validators.entry(place.to_owned()).or_insert_with(|| {
            let schema = document.pointer(place).unwrap().clone();
            Arc::new(validator(document, schema))
        });
        let validator = Arc::clone(validator);
        drop(validators);
        let faults: Vec<String> = validator
            .iter_errors(body)
            .map(|error| format!("{error} (at {:?})", error.instance_path().as_str()))
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

/// A schema of the document, with the components it may refer to.
pub(crate) fn validator(document: &Value, schema: Value) -> Validator {
    let mut schema = schema;
    schema["components"] = json!({ "schemas": document["components"]["schemas"] });
    let options = jsonschema::options().with_draft(Draft::Draft202012);
    options.should_validate_formats(true).build(&schema).unwrap()
}

/// Closes every object: fields that are not named are a fault.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let open = fields.get("properties").is_some_and(Value::is_object)
                && !fields.contains_key("additionalProperties");
            for (name, inner) in fields.iter_mut() {
                if name != "example" && name != "examples" {
                    close(inner);
                }
            }
            if open {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Every `$ref` of the document.
pub(crate) fn references(value: &Value) -> Vec<String> {
    let of_fields = |fields: &Map<String, Value>| {
        let own = fields.get("$ref").and_then(Value::as_str).map(str::to_owned);
        own.into_iter().chain(fields.values().flat_map(references)).collect()
    };
    match value {
        Value::Object(fields) => of_fields(fields),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

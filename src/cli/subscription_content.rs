//! The flags of `oncebox subscription create` and `change` that say what is sent of an event, and of which events; and
//! what `--try` prints.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::exit::Failure;
use crate::cli::remote::Remote;
use crate::cli::show::{clean, text};
use crate::cli::{input, out};

/// The signs for the comparisons of a condition.
const OPS: [(&str, &str); 10] = [
    ("=", "equals"),
    ("!=", "not_equals"),
    (">", "gt"),
    (">=", "gte"),
    ("<", "lt"),
    ("<=", "lte"),
    ("in", "in"),
    ("exists", "exists"),
    ("starts_with", "starts_with"),
    ("contains", "contains"),
];

#[derive(Debug, Args)]
#[command(next_help_heading = "Content")]
pub(super) struct Content {
    /// How a payload stands in a request [default when created: raw]
    #[arg(long, value_parser = ["raw", "standard_webhooks", "cloudevents_binary", "cloudevents_structured"])]
    format: Option<String>,
    /// A header field of events that is sent with them; may be repeated
    #[arg(long = "event-header", value_name = "NAME")]
    event_headers: Vec<String>,
    #[arg(
        long,
        value_name = "CONDITION",
        value_parser = condition,
        help = "A condition that a payload must meet, 'PATH OP VALUE': '$.total > 100', '$.status = paid', '$.lines[*].sku \
                starts_with A'; may be repeated, and all must hold [OP: = != > >= < <= in exists starts_with contains]"
    )]
    filter: Vec<Value>,
    /// File with the template of the body
    #[arg(long, value_name = "FILE")]
    template_file: Option<PathBuf>,
    /// The media type of the template's body [default: the event's]
    #[arg(long, value_name = "TYPE")]
    template_type: Option<String>,
    /// The template of a header field, 'Name: text'; may be repeated
    #[arg(long = "template-header", value_name = "FIELD", value_parser = header)]
    template_headers: Vec<(String, String)>,
    /// Save nothing: show what would be sent of this event or webhook event
    #[arg(long = "try", value_name = "EVENT")]
    tried: Option<String>,
}

impl Content {
    /// Whether nothing is to be saved.
    pub(super) fn is_trial(&self) -> bool {
        self.tried.is_some()
    }

    /// Adds what was given to a body; of a template what is not given stays.
    pub(super) fn put(&self, body: &mut Map<String, Value>, before: &Value) -> Result<(), Failure> {
        let list = |items: &[Value]| (!items.is_empty()).then(|| Value::from(items));
        let names: Vec<Value> =
            self.event_headers.iter().map(|name| name.as_str().into()).collect();
        let given = [
            ("format", self.format.as_deref().map(Value::from)),
            ("event_headers", list(&names)),
            ("filter", list(&self.filter)),
            ("template", self.template(before)?),
            ("try", self.tried.as_deref().map(Value::from)),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        body.extend(given);
        Ok(())
    }

    fn template(&self, before: &Value) -> Result<Option<Value>, Failure> {
        let mut template = before.get("template").and_then(Value::as_object).cloned();
        if let Some(path) = &self.template_file {
            let source = String::from_utf8(input::file(path)?).map_err(|error| {
                Failure::input(format!("{}: the template is not UTF-8: {error}", path.display()))
            })?;
            template.get_or_insert_default().insert("body".to_owned(), source.into());
        }
        if let Some(kind) = &self.template_type {
            template
                .get_or_insert_default()
                .insert("content_type".to_owned(), kind.as_str().into());
        }
        for (name, text) in &self.template_headers {
            let fields =
                template.get_or_insert_default().entry("headers").or_insert_with(|| json!({}));
            if let Value::Object(fields) = fields {
                fields.retain(|have, _| !have.eq_ignore_ascii_case(name));
                fields.insert(name.clone(), text.as_str().into());
            }
        }
        let is_given = self.template_file.is_some()
            || self.template_type.is_some()
            || !self.template_headers.is_empty();
        Ok(template.filter(|_| is_given).map(Value::Object))
    }
}

/// A header field, `Name: value`.
pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("give a header field as 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// A condition, `PATH OP VALUE`. A value that is no JSON is a text.
fn condition(given: &str) -> Result<Value, String> {
    let mut quote = None;
    let is_end = |c: char| {
        quote = match (quote, c) {
            (None, '\'' | '"') => Some(c),
            (Some(open), c) if open == c => None,
            (quote, _) => quote,
        };
        quote.is_none() && c.is_whitespace()
    };
    let wrong = "give a condition as 'PATH OP VALUE', such as '$.total > 100'";
    let (path, rest) = given.trim().split_once(is_end).ok_or(wrong)?;
    let rest = rest.trim();
    let (sign, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (_, op) = OPS.iter().find(|(have, _)| *have == sign).ok_or(wrong)?;
    let value = value.trim();
    match (*op, value) {
        ("exists", "") => Ok(json!({ "path": path, "op": op })),
        (_, "") => Err(wrong.to_owned()),
        _ => {
            let value: Value = serde_json::from_str(value).unwrap_or_else(|_text| value.into());
            Ok(json!({ "path": path, "op": op, "value": value }))
        }
    }
}

/// Prints what would be sent.
pub(super) fn print_trial(remote: &Remote, trial: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(trial);
    }
    let event = text(trial, "event");
    match text(trial, "why_not").as_str() {
        "" => out::line(format_args!("The event {event} matches. This would be sent:"))?,
        why => out::line(format_args!(
            "The event {event} does not match: {why}. Otherwise this would be sent:"
        ))?,
    }
    let headers = trial.get("headers").and_then(Value::as_object).into_iter().flatten();
    out::line("")?;
    for (name, value) in headers {
        out::line(format_args!("{name}: {}", value.as_str().unwrap_or_default()))?;
    }
    out::line("")?;
    match trial.get("body").and_then(Value::as_str) {
        Some(body) => body.lines().try_for_each(|line| out::line(clean(line)))?,
        None => out::line(format_args!("(base64) {}", text(trial, "body_base64")))?,
    }
    out::note("Nothing was saved, and nothing was sent.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_a_path_a_sign_and_a_value() {
        for (given, read) in [
            ("$.total > 100", json!({ "path": "$.total", "op": "gt", "value": 100 })),
            ("$.status = paid", json!({ "path": "$.status", "op": "equals", "value": "paid" })),
            ("$.id = \"100\"", json!({ "path": "$.id", "op": "equals", "value": "100" })),
            (
                "$['a > b'] != x y",
                json!({ "path": "$['a > b']", "op": "not_equals", "value": "x y" }),
            ),
            ("$.s in [\"a\", 2]", json!({ "path": "$.s", "op": "in", "value": ["a", 2] })),
            ("$.note exists", json!({ "path": "$.note", "op": "exists" })),
            ("$.note exists false", json!({ "path": "$.note", "op": "exists", "value": false })),
        ] {
            assert_eq!(condition(given), Ok(read), "{given}");
        }
        for wrong in ["", "$.total", "$.total >", "$.total is 1", "$['a b > 1"] {
            assert!(condition(wrong).is_err(), "{wrong}");
        }
    }
}

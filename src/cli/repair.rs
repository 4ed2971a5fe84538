//! `oncebox event fix` and `oncebox event discard`: what a person makes of a quarantined event.

use clap::Args;
use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use crate::cli::remote::{Remote, plain};
use crate::cli::show::text;
use crate::cli::{Failure, input, out, timeline};

/// Which event, and what is changed about it.
#[derive(Debug, Args)]
pub(super) struct Fix {
    /// The event's id
    id: String,
    /// Another body: JSON, @file, or - for stdin
    #[arg(long)]
    payload: Option<String>,
    /// Another type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Another subscription it is for, by name
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// For whichever subscriptions match
    #[arg(long, conflicts_with = "target")]
    no_target: bool,
    /// Another key
    #[arg(long)]
    key: Option<String>,
    /// Another content type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    #[arg(
        long,
        value_name = "FIELD=JSON",
        help = "Another field, its value as JSON: --set custom_data=null"
    )]
    set: Vec<String>,
}

/// Which event, and why it is given up.
#[derive(Debug, Args)]
pub(super) struct Discard {
    /// The event's id
    id: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Fix {
    pub(super) fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let event = remote
            .post(&path(&self.id, "fix"), Some(&self.body()?))
            .map_err(|failure| timeline::not_an_id(failure, &self.id))?;
        shown(remote, &event)
    }

    fn body(&self) -> Result<Value, Failure> {
        let mut body = Map::new();
        for field in &self.set {
            let pair = field.split_once('=');
            let value: Option<Value> = pair.and_then(|(_, value)| serde_json::from_str(value).ok());
            let (Some((name, _)), Some(value)) = (pair, value) else {
                let why = format!(
                    "--set {field}: give a field and its value as JSON, such as \
                                   aggregate_id='\"4711\"' or custom_data=null"
                );
                return Err(Failure::input(why));
            };
            if matches!(name, "occurred_at" | "not_before") && value.is_number() {
                let why = format!(
                    "--set {field}: here a time is a text, such as {name}='\"2026-01-31T12:00:00Z\"'"
                );
                return Err(Failure::input(why));
            }
            body.insert(name.to_owned(), value);
        }
        for (field, value) in [
            ("event_type", &self.event_type),
            ("target", &self.target),
            ("idempotency_key", &self.key),
            ("content_type", &self.content_type),
        ] {
            if let Some(value) = value {
                body.insert(field.to_owned(), value.as_str().into());
            }
        }
        if self.no_target {
            body.insert("target".to_owned(), Value::Null);
        }
        if let Some(payload) = &self.payload {
            // As bytes, so that it is kept as it was given. The service says whether it is JSON.
            let bytes = input::bytes(payload)?;
            body.insert("payload_base64".to_owned(), BASE64.encode(&bytes).into());
        }
        Ok(Value::Object(body))
    }
}

impl Discard {
    pub(super) fn run(&self, remote: &Remote) -> Result<(), Failure> {
        let body = json!({ "reason": self.reason });
        let event = remote
            .post(&path(&self.id, "discard"), Some(&body))
            .map_err(|failure| timeline::not_an_id(failure, &self.id))?;
        shown(remote, &event)
    }
}

fn path(id: &str, action: &str) -> String {
    format!("/v1/events/{}/{action}", plain(id))
}

fn shown(remote: &Remote, event: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(event);
    }
    out::line(format_args!("{} is {}", text(event, "id"), text(event, "status")))
}

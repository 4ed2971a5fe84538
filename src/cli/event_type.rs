//! `oncebox event-type`: what events look like, and what becomes of those that do not.

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use crate::cli::exit::Failure;
use crate::cli::noun::{DeleteArgs, Listing, NameArg, Noun, Verbs};
use crate::cli::remote::ConnectArgs;
use crate::cli::shared::Shared;
use crate::cli::show::Cell::{Instant, Minute, Text};
use crate::cli::{input, out};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Event types, oldest first
    List(Listing),
    /// One event type with its schema
    Show(NameArg),
    /// Register an event type, or replace it: its events are checked from then on
    #[command(after_help = "  oncebox event-type infer invoice.created > invoice.json\n  \
        oncebox event-type set invoice.created --schema @invoice.json --on-invalid quarantine")]
    Set {
        /// The event type, such as invoice.created
        name: String,
        /// JSON Schema 2020-12
        #[arg(long, value_name = "JSON|@FILE|-")]
        schema: String,
        /// What it means
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        description: String,
        /// A payload that fits the schema
        #[arg(long, value_name = "JSON|@FILE")]
        example: Option<String>,
        /// What becomes of an event that does not fit [default: reject]
        #[arg(long, value_name = "WHAT", value_parser = PossibleValuesParser::new(["reject", "quarantine"]))]
        on_invalid: Option<String>,
    },
    /// Delete an event type: its events are no longer checked
    Delete(DeleteArgs),
    /// Propose a schema from stored events, without those that have sealed fields
    Infer {
        /// The event type, such as invoice.created
        name: String,
        /// Register it
        #[arg(long)]
        save: bool,
    },
}

const EVENT_TYPES: Noun = Noun {
    path: "/v1/event-types",
    one: "Event type",
    many: "event types",
    time: Some("created_at"),
    columns: &[
        ("NAME", 0, Text("name")),
        ("DESCRIPTION", 1, Text("description")),
        ("ON INVALID", 1, Text("on_invalid")),
        ("CHANGED (UTC)", 2, Minute("updated_at")),
    ],
    fields: &[
        ("description", Text("description")),
        ("on invalid", Text("on_invalid")),
        ("schema", Text("schema")),
        ("example", Text("example")),
        ("registered", Instant("created_at")),
        ("changed", Instant("updated_at")),
    ],
};

fn json_of(flag: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_slice(&input::bytes(text)?)
        .map_err(|error| Failure::input(format!("{flag} is not JSON: {error}")))
}

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        let remote = connect.open(shared)?;
        let put = |name: &str, body: &Value| remote.put(&EVENT_TYPES.at(name), body);
        match self {
            Self::List(listing) => EVENT_TYPES.list(&remote, listing, &()),
            Self::Show(NameArg { name }) => EVENT_TYPES.show(&remote, name),
            Self::Set { name, schema, description, example, on_invalid } => {
                let example =
                    example.as_deref().map(|text| json_of("--example", text)).transpose()?;
                let body = json!({ "schema": json_of("--schema", schema)?, "description": description,
                    "example": example, "on_invalid": on_invalid });
                EVENT_TYPES.print(&remote, &put(name, &body)?)
            }
            Self::Delete(args) => EVENT_TYPES.delete(&remote, args, ""),
            Self::Infer { name, save } => {
                let path = format!("{}/proposal", EVENT_TYPES.at(name));
                let proposal = remote.get(&path)?;
                let (events, schema) = (proposal.get("events"), proposal.get("schema"));
                if events == Some(&json!(0)) {
                    return Err(Failure::input(format!(
                        "no stored event of the type {name} can be used"
                    )));
                }
                let events = events.cloned().unwrap_or_default();
                let noun = if events == json!(1) { "event" } else { "events" };
                out::note(format_args!("made from {events} {noun}"));
                if *save {
                    return EVENT_TYPES.print(&remote, &put(name, &json!({ "schema": schema }))?);
                }
                let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
                out::line(&text)
            }
        }
    }
}

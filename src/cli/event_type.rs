//! `oncebox event-type`: what events look like, and what becomes of those that do not.

use crate::cli::prelude::*;

const TABLE: &str = "
event-type  Event types: what events look like, and schemas to check them with
  columns: NAME 0 name; DESCRIPTION 1 description; ON INVALID 1 on_invalid; CHANGED (UTC) 2 updated_at
  fields: description; on invalid; schema; example; registered = @created_at; changed = @updated_at
  list = listEventTypes  Event types, oldest first
  show = getEventType  One event type with its schema
  set = setEventType  Register an event type, or replace it: its events are checked from then on
    schema <JSON|@FILE|->
    description <TEXT>
    example <JSON|@FILE>
    on_invalid <WHAT>
    |   oncebox event-type infer invoice.created > invoice.json
    |   oncebox event-type set invoice.created --schema @invoice.json --on-invalid quarantine
  delete = deleteEventType  Delete an event type: its events are no longer checked
    ? Delete the event type {name}
    > deleted: {name}
  infer = proposeEventType  Propose a schema from stored events, without those that have sealed fields
    --save  Register it
";

pub(super) const COMMANDS: Commands = Commands::new(&EVENT_TYPES, TABLE, &[own("infer", infer)]);

const EVENT_TYPES: Noun =
    Noun::new("/v1/event-types", "Event type", "event types", TABLE).time("created_at");

fn infer(call: &Call<'_>, remote: &Remote) -> Done {
    let proposal = call.send(remote, Map::new())?;
    let (events, schema) = (proposal.get("events"), proposal.get("schema"));
    let name = call.text("name");
    if events == Some(&json!(0)) {
        return Err(Failure::input(format!("no stored event of the type {name} can be used")));
    }
    let events = events.cloned().unwrap_or_default();
    let noun = if events == json!(1) { "event" } else { "events" };
    out::note(format_args!("made from {events} {noun}"));
    if call.is("save") {
        let set = remote.send("PUT", &EVENT_TYPES.at(&name), Some(&json!({ "schema": schema })))?;
        return EVENT_TYPES.print(remote, &set);
    }
    out::line(serde_json::to_string_pretty(&schema).unwrap_or_default())
}

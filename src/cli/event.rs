//! `oncebox event`: what was published, where it went, what was answered; and repairing a quarantined event.
//! `oncebox webhook`: what providers posted to us. `oncebox event-type`: what events look like, and what becomes of those
//! that do not.
//!
//! Not here: publishing ([`super::emit`]), the providers themselves ([`super::provider`]), and posting a sample
//! ([`super::trigger`]).

use crate::cli::job::{self, Pace};
use crate::cli::prelude::*;
use crate::cli::process;
use crate::cli::timeline::{self, EVENTS, WEBHOOKS};

const EVENT_TABLE: &str = "
event  Published events: their deliveries and the answers
  | Did invoice 4711 go out, when, and what did they answer?
  |   oncebox event list --aggregate-id 4711
  |   oncebox event show ID
  list = listEvents  Events, newest first
    status --status --state
    idempotency_key --idempotency-key --key
    parent_id <ID>
    process_id <ID>
    trace_id --trace
    operational  Also list operational events, those of Oncebox itself
  show = getEvent  One event with its deliveries, their attempts, and how to send it again
    --payload  Print the payload alone
  process  The events of a process and their descendants, as a tree
    <id>  The process of its events
  fix = fixEvent  Repair a quarantined event: it is checked again, and sent when it has no error any more
    payload_base64 --payload <PAYLOAD>  Another body: JSON, @file, or - for stdin
    event_type <TYPE>  Another type
    target <NAME>  Another subscription it is for, by name
    --no-target not:target  For every subscription that matches
    idempotency_key --key  Another idempotency key
    content_type <TYPE>  Another content type
    parent_key <KEY>
    --set <FIELD=JSON...>  Another field, its value as JSON: --set custom_data=null
    !*
    | Without a change it is only checked again, for example once its subscription exists.
    |
    |   oncebox event list --status quarantined
    |   oncebox event fix ID --payload @invoice.json
    |   oncebox event fix ID --no-target
  replay = replayEvents  Send events again: one, or all that fit
    [id] not:all  The event's id
    --all  All that fit the other flags
    --as-new needs:id  As a new event, with a webhook-id of its own
    --payload <PAYLOAD> needs:id  With another body, as a new event: JSON, @file, or - for stdin
    --content-type <TYPE> needs:payload  The content type of that body
    filter.code <STATUS>
    filter.event_type <TYPE>  Only those of this event type
    filter.aggregate_type <TYPE>
    filter.aggregate_id <ID>
    !filter.ids
    !filter.provider
    filter.*
    | Deliveries keep their webhook-id, so a consumer with a guard takes each once.
    |
    |   oncebox event replay ID
    |   oncebox event replay ID --subscription warehouse
    |   oncebox event replay ID --payload @invoice.json   (corrected, as a new event)
    |   oncebox event replay --subscription warehouse --since 2h --rate 50
  expunge = expungeEvents  Remove for good what finished events have: payload, what was sent, answers
    --all  All that are finished
    reason <TEXT>  Why; it is kept with the job and in the audit
    filter.event_type <TYPE>  Only those of this event type
    filter.aggregate_type <TYPE>
    filter.aggregate_id <ID>
    !filter.provider
    !filter.ids
    !filter.subscription
    !filter.class
    !filter.code
    filter.*
    | Ids, keys, states, times and SHA-256 stay. The archive is meant as well; backups that were made before are not.
    |
    |   oncebox event expunge --event-type customer.changed --until 2026-01-31T00:00:00Z --reason 'Not needed' --dry-run
  cancel = cancelEvent  Stop an event: its open deliveries are not tried again
    ? Cancel the event {id}
  discard = discardEvent  Give up a quarantined event: it ends as cancelled, and its row stays
    reason <TEXT>
    ? Discard the event {id}
";

pub(super) const EVENT: Commands = Commands::new(
    &EVENTS,
    EVENT_TABLE,
    &[
        online("show", timeline::show),
        online("process", |call, remote| process::show(remote, &call.text("id"))),
        online("fix", fix),
        online("replay", replay).more(Pace::augment_args),
        online("expunge", |call, remote| job::start(call, remote, job::expunged("events")))
            .more(Pace::augment_args),
        online("cancel|discard", change),
    ],
);

const WEBHOOK_TABLE: &str = "
webhook  Webhooks that providers posted
  list = listWebhookEvents  Webhook events, newest first
    status --status --state
    trace_id --trace
  show = getWebhookEvent  One webhook event with its deliveries and their attempts
    --payload  Print the payload alone
  replay = replayWebhookEvents  Send webhook events again: one, or all that fit
    [id] not:all  The webhook event's id
    --all  All that fit the other flags
    filter.provider
    filter.code <STATUS>
    filter.event_type <TYPE>  Only those of this event type
    !filter.ids
    !filter.aggregate_type
    !filter.aggregate_id
    filter.*
    | One that was skipped goes to the subscriptions that match it now.
    |
    |   oncebox webhook replay ID
    |   oncebox webhook replay --provider stripe --since 2h --rate 50
  expunge = expungeWebhookEvents  Remove for good what finished webhook events have: payload, what was sent, answers
    --all  All that are finished
    reason <TEXT>  Why; it is kept with the job and in the audit
    filter.event_type <TYPE>  Only those of this event type
    filter.provider
    !filter.aggregate_type
    !filter.aggregate_id
    !filter.ids
    !filter.subscription
    !filter.class
    !filter.code
    filter.*
    | Ids, keys, states, times and SHA-256 stay. The archive is meant as well; backups that were made before are not.
    |
    |   oncebox webhook expunge --provider stripe --until 2026-01-31T00:00:00Z --reason 'Not needed' --dry-run
";

pub(super) const WEBHOOK: Commands = Commands::new(
    &WEBHOOKS,
    WEBHOOK_TABLE,
    &[
        online("show", timeline::show),
        online("replay", replay_webhooks).more(Pace::augment_args),
        online("expunge", |call, remote| job::start(call, remote, job::expunged("webhook events")))
            .more(Pace::augment_args),
    ],
)
.inner(&[&REFUSED]);

const REFUSED_TABLE: &str = "
refused = listRefusedWebhooks  Webhooks that were refused, and why; the latest first
  columns: LATEST (UTC) 0 last_at; PROVIDER 0 provider; ANSWER 1 status; COUNT 1 count; ADDRESS 1 address; WHY 0 reason
  |
  |   oncebox webhook refused --since 1d
";

const REFUSED: Commands = Commands::new(
    &Noun::new("/v1/refused-webhooks", "Refused webhook", "refused webhooks", REFUSED_TABLE),
    REFUSED_TABLE,
    &[],
);

const TYPE_TABLE: &str = "
event-type  Event types: what events look like, and schemas to check them with
  columns: NAME 0 name; DESCRIPTION 1 description; ON INVALID 1 on_invalid; CHANGED (UTC) 2 updated_at
  fields: description; on invalid; search paths; schema; example; registered = @created_at; changed = @updated_at
  list = listEventTypes  Event types, oldest first
  show = getEventType  One event type with its schema
  set = setEventType  Register an event type, or replace it: its events are checked from then on
    schema <JSON|@FILE|->
    description <TEXT>
    example <JSON|@FILE>
    on_invalid <WHAT>
    search_paths --search-path <PATH>
    |   oncebox event-type infer invoice.created > invoice.json
    |   oncebox event-type set invoice.created --schema @invoice.json --on-invalid quarantine
  delete = deleteEventType  Delete an event type: its events are no longer checked
    ? Delete the event type {name}
    > deleted: {name}
  infer = proposeEventType  Propose a schema from stored events, without those that have sealed fields
    --save  Register it
";

pub(super) const EVENT_TYPE: Commands =
    Commands::new(&EVENT_TYPES, TYPE_TABLE, &[online("infer", infer)]);

const EVENT_TYPES: Noun =
    Noun::new("/v1/event-types", "Event type", "event types", TYPE_TABLE).time("created_at");

fn change(call: &Call<'_>, remote: &Remote) -> Done {
    call.confirm()?;
    print(call, remote, call.send(remote, call.body()?))
}

fn replay(call: &Call<'_>, remote: &Remote) -> Done {
    if !call.has("id") {
        return job::start(call, remote, job::again("events"));
    }
    print(call, remote, job::replay_one(call, remote, &EVENTS))
}

fn fix(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body =
        call.texts("set").iter().map(|field| set(field)).collect::<Result<Map<_, _>, _>>()?;
    body.extend(call.body()?);
    if call.is("no-target") {
        body.insert("target".to_owned(), Value::Null);
    }
    print(call, remote, call.send(remote, body))
}

fn print(call: &Call<'_>, remote: &Remote, event: Result<Value, Failure>) -> Done {
    let event = event.map_err(|failure| timeline::not_an_id(failure, &call.text("id")))?;
    remote.answer(&event, format_args!("{} is {}", text(&event, "id"), text(&event, "status")))
}

fn set(field: &str) -> Result<(String, Value), Failure> {
    let malformed = || {
        Failure::input(format!(
            "--set {field}: give a field and its value as JSON, such as aggregate_id='\"4711\"' or custom_data=null"
        ))
    };
    let (name, value) = field.split_once('=').ok_or_else(malformed)?;
    let value: Value = serde_json::from_str(value).map_err(|_why| malformed())?;
    if matches!(name, "occurred_at" | "not_before") && value.is_number() {
        return Err(Failure::input(format!(
            "--set {field}: here a time is a text, such as {name}='\"2026-01-31T12:00:00Z\"'"
        )));
    }
    Ok((name.to_owned(), value))
}

fn replay_webhooks(call: &Call<'_>, remote: &Remote) -> Done {
    if !call.has("id") {
        return job::start(call, remote, job::again("webhook events"));
    }
    let event = job::replay_one(call, remote, &WEBHOOKS)?;
    remote.answer(&event, format_args!("{} is {}", text(&event, "id"), text(&event, "status")))
}

fn infer(call: &Call<'_>, remote: &Remote) -> Done {
    let proposal = call.send(remote, Map::new())?;
    let events = proposal.get("events");
    let schema = proposal.get("schema");
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

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
use crate::cli::what_if;

const EVENT_VERBS: &[CommandRow] = &[
    command("list", "Events, newest first")
        .calls("listEvents")
        .flags(&[&[
            field("status").long("status").also(&["state"]),
            field("idempotency_key").long("idempotency-key").also(&["key"]),
            field("parent_id").value("ID"),
            field("process_id").value("ID"),
            field("trace_id").long("trace"),
            field("operational").help("Also list operational events, those of Oncebox itself"),
        ]]),
    command("show", "One event with its deliveries, their attempts, and how to send it again")
        .calls("getEvent")
        .flags(&[&[
            own("payload").help("Print the payload alone"),
        ]])
        .online(timeline::show),
    command("process", "The events of a process and their descendants, as a tree")
        .flags(&[&[
            argument("id").help("The process of its events"),
        ]])
        .online(|call, remote| process::show(remote, &call.text("id"))),
    command("fix", "Repair a quarantined event: it is checked again, and sent when it has no error any more")
        .calls("fixEvent")
        .flags(&[&[
            field("payload_base64")
                .long("payload")
                .value("PAYLOAD")
                .help("Another body: JSON, @file, or - for stdin"),
            field("event_type").value("TYPE").help("Another type"),
            field("target").value("NAME").help("Another subscription it is for, by name"),
            own("no-target").not(&["target"]).help("For every subscription that matches"),
            field("idempotency_key").long("key").help("Another idempotency key"),
            field("content_type").value("TYPE").help("Another content type"),
            field("parent_key").value("KEY"),
            own("set")
                .value("FIELD=JSON...")
                .help("Another field, its value as JSON: --set custom_data=null"),
            ONLY_THESE,
        ]])
        .online(fix)
        .ends(&[
            "Without a change it is only checked again, for example once its subscription exists.",
            "",
            "  oncebox event list --status quarantined",
            "  oncebox event fix ID --payload @invoice.json",
            "  oncebox event fix ID --no-target",
        ]),
    command("replay", "Send events again: one, or all that fit")
        .calls("replayEvents")
        .flags(&[&[
            optional("id").not(&["all"]).help("The event's id"),
            own("all").help("All that fit the other flags"),
            own("as-new").needs(&["id"]).help("As a new event, with a webhook-id of its own"),
            own("payload")
                .value("PAYLOAD")
                .needs(&["id"])
                .help("With another body, as a new event: JSON, @file, or - for stdin"),
            own("content-type")
                .value("TYPE")
                .needs(&["payload"])
                .help("The content type of that body"),
            field("filter.code").value("STATUS"),
            field("filter.event_type").value("TYPE").help("Only those of this event type"),
            field("filter.aggregate_type").value("TYPE"),
            field("filter.aggregate_id").value("ID"),
            without("filter.ids"),
            without("filter.answer"),
            without("filter.provider"),
            members("filter"),
        ]])
        .online(replay)
        .more(Pace::augment_args)
        .ends(&[
            "Deliveries keep their webhook-id, so a consumer with a guard takes each once.",
            "",
            "  oncebox event replay ID",
            "  oncebox event replay ID --subscription warehouse",
            "  oncebox event replay ID --payload @invoice.json   (corrected, as a new event)",
            "  oncebox event replay --subscription warehouse --since 2h --rate 50",
        ]),
    command("expunge", "Remove for good what finished events have: payload, what was sent, answers")
        .calls("expungeEvents")
        .flags(&[&[
            own("all").help("All that are finished"),
            field("reason").value("TEXT").help("Why; it is kept with the job and in the audit"),
            field("filter.event_type").value("TYPE").help("Only those of this event type"),
            field("filter.aggregate_type").value("TYPE"),
            field("filter.aggregate_id").value("ID"),
            without("filter.provider"),
            without("filter.ids"),
            without("filter.answer"),
            without("filter.subscription"),
            without("filter.class"),
            without("filter.code"),
            members("filter"),
        ]])
        .online(|call, remote| job::start(call, remote, job::expunged("events")))
        .more(Pace::augment_args)
        .ends(&[
            "Ids, keys, states, times and SHA-256 stay. The archive is meant as well; backups that were made before are not.",
            "",
            "  oncebox event expunge --event-type customer.changed --until 2026-01-31T00:00:00Z --reason 'Not needed' --dry-run",
        ]),
    command("cancel", "Stop an event: its open deliveries are not tried again")
        .calls("cancelEvent")
        .asks("Cancel the event {id}")
        .online(change),
    command("discard", "Give up a quarantined event: it ends as cancelled, and its row stays")
        .calls("discardEvent")
        .flags(&[&[
            field("reason").value("TEXT"),
        ]])
        .asks("Discard the event {id}")
        .online(change),
];

pub(super) const EVENT: Commands = Commands::new(
    &EVENTS,
    command("event", "Published events: their deliveries and the answers").ends(&[
        "Did invoice 4711 go out, when, and what did they answer?",
        "  oncebox event list --aggregate-id 4711",
        "  oncebox event show ID",
    ]),
    EVENT_VERBS,
);

const WEBHOOK_VERBS: &[CommandRow] = &[
    command("list", "Webhook events, newest first")
        .calls("listWebhookEvents")
        .flags(&[&[
            field("status").long("status").also(&["state"]),
            field("trace_id").long("trace"),
        ]]),
    command("show", "One webhook event with its deliveries and their attempts")
        .calls("getWebhookEvent")
        .flags(&[&[
            own("payload").help("Print the payload alone"),
        ]])
        .online(timeline::show),
    command("replay", "Send webhook events again: one, or all that fit")
        .calls("replayWebhookEvents")
        .flags(&[&[
            optional("id").not(&["all"]).help("The webhook event's id"),
            own("all").help("All that fit the other flags"),
            field("filter.provider"),
            field("filter.code").value("STATUS"),
            field("filter.event_type").value("TYPE").help("Only those of this event type"),
            without("filter.ids"),
            without("filter.answer"),
            without("filter.aggregate_type"),
            without("filter.aggregate_id"),
            members("filter"),
        ]])
        .online(replay_webhooks)
        .more(Pace::augment_args)
        .ends(&[
            "One that was skipped goes to the subscriptions that match it now.",
            "",
            "  oncebox webhook replay ID",
            "  oncebox webhook replay --provider stripe --since 2h --rate 50",
        ]),
    command("expunge", "Remove for good what finished webhook events have: payload, what was sent, answers")
        .calls("expungeWebhookEvents")
        .flags(&[&[
            own("all").help("All that are finished"),
            field("reason").value("TEXT").help("Why; it is kept with the job and in the audit"),
            field("filter.event_type").value("TYPE").help("Only those of this event type"),
            field("filter.provider"),
            without("filter.aggregate_type"),
            without("filter.aggregate_id"),
            without("filter.ids"),
            without("filter.answer"),
            without("filter.subscription"),
            without("filter.class"),
            without("filter.code"),
            members("filter"),
        ]])
        .online(|call, remote| job::start(call, remote, job::expunged("webhook events")))
        .more(Pace::augment_args)
        .ends(&[
            "Ids, keys, states, times and SHA-256 stay. The archive is meant as well; backups that were made before are not.",
            "",
            "  oncebox webhook expunge --provider stripe --until 2026-01-31T00:00:00Z --reason 'Not needed' --dry-run",
        ]),
];

pub(super) const WEBHOOK: Commands =
    Commands::new(&WEBHOOKS, command("webhook", "Webhooks that providers posted"), WEBHOOK_VERBS)
        .inner(&[&REFUSED]);

const REFUSED: Commands = Commands::new(
    &Noun::new("/v1/refused-webhooks", "Refused webhook", "refused webhooks").columns(&[
        column("LATEST (UTC)", 0, "last_at"),
        column("PROVIDER", 0, "provider"),
        column("ANSWER", 1, "status"),
        column("COUNT", 1, "count"),
        column("ADDRESS", 1, "address"),
        column("WHY", 0, "reason"),
    ]),
    command("refused", "Webhooks that were refused, and why; the latest first")
        .calls("listRefusedWebhooks")
        .ends(&["", "  oncebox webhook refused --since 1d"]),
    &[],
);

const TYPE_VERBS: &[CommandRow] = &[
    command("list", "Event types, oldest first").calls("listEventTypes"),
    command("show", "One event type with its schema").calls("getEventType"),
    command("set", "Register an event type, or replace it: its events are checked from then on")
        .calls("setEventType")
        .flags(&[&[
            field("schema").value("JSON|@FILE|-"),
            field("description").value("TEXT"),
            field("example").value("JSON|@FILE"),
            field("on_invalid").value("WHAT"),
            field("search_paths").long("search-path").value("PATH"),
            field("what_if")
                .long("what-if")
                .value("SPAN")
                .help("Save nothing: show how many events of the last SPAN, such as 7d, the schema would refuse"),
        ]])
        .online(set_type)
        .ends(&[
            "  oncebox event-type infer invoice.created > invoice.json",
            "  oncebox event-type set invoice.created --schema @invoice.json --on-invalid quarantine",
        ]),
    command("delete", "Delete an event type: its events are no longer checked")
        .calls("deleteEventType")
        .asks("Delete the event type {name}")
        .says("deleted: {name}"),
    command("infer", "Propose a schema from stored events, without those that have sealed fields")
        .calls("proposeEventType")
        .flags(&[&[
            own("save").help("Register it"),
        ]])
        .online(infer),
];

pub(super) const EVENT_TYPE: Commands = Commands::new(
    &EVENT_TYPES,
    command("event-type", "Event types: what events look like, and schemas to check them with"),
    TYPE_VERBS,
);

const EVENT_TYPES: Noun = Noun::new("/v1/event-types", "Event type", "event types")
    .columns(&[
        column("NAME", 0, "name"),
        column("DESCRIPTION", 1, "description"),
        column("ON INVALID", 1, "on_invalid"),
        column("CHANGED (UTC)", 2, "updated_at"),
    ])
    .fields(&[
        cell("description", "description"),
        cell("on invalid", "on_invalid"),
        cell("search paths", "search_paths"),
        cell("schema", "schema"),
        cell("example", "example"),
        time("registered", "created_at"),
        time("changed", "updated_at"),
    ])
    .time("created_at");

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

fn set_type(call: &Call<'_>, remote: &Remote) -> Done {
    if call.has("what_if") {
        return what_if::print_of_schema(remote, &what_if::ask(call, remote, call.body()?)?);
    }
    let answer = call.send(remote, call.body()?)?;
    EVENT_TYPES.print(remote, &answer)
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

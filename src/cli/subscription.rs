//! `oncebox subscription`: which events go where, and how.
//!
//! Not here: what was sent to them ([`super::delivery`]).

use crate::cli::compare;
use crate::cli::job::{self, Pace, Words};
use crate::cli::prelude::*;
use crate::cli::probe::{self, print_trial};
use crate::cli::remote::once;
use crate::cli::show::instant;
use crate::cli::verb::one_of;
use crate::cli::what_if;
use crate::model::hold::HoldReason;

const TERMS: &[Flag] = &[
    argument("name").help("What you call it: a-z, 0-9 and -"),
    field("id").value("NAME"),
    without("target"),
    field("url"),
    own("folder")
        .value("DIR")
        .not(&["url"])
        .help("Write each event into a file of its own in this directory of the service's machine"),
    own("database")
        .value("NAME")
        .not(&["url", "folder"])
        .help("Do something in a database of the settings with each event: --effect-file or --inbox says what"),
    own("mail-to")
        .value("ADDRESSES")
        .not(&["url", "folder", "database"])
        .help("Send each event as a mail to these addresses, with commas between them"),
    field("event_types").long("event-type").value("PATTERN"),
    field("source"),
    field("headers")
        .long("header")
        .value("FIELD")
        .help("A further header field, 'Name: value'; may be repeated"),
    field("ordering")
        .help("Which events go one after another: those of one key or aggregate, or all [default when created: none]"),
    field("method").help("The method of its requests [default when created: POST]"),
    field("owner_id").long("owner"),
    heading("Order"),
    field("order.group").value("NAME"),
    field("order.funnel_point").value("NAME"),
    field("order.latest_only").value("BOOL"),
    field("order.call_path").value("PATH"),
    field("order.postpone_limit").value("SPAN"),
    members("order"),
    heading("Attempts"),
    field("policy.steps")
        .value("SPANS")
        .help("Waits between attempts, like 5s,30s,5min; the last is repeated"),
    field("policy.max_attempts").help("Counted attempts until a delivery is given up"),
    field("policy.timeout").value("SPAN"),
    field("policy.lease").value("SPAN"),
    field("policy.confirm_within").value("SPAN"),
    field("policy.in_flight_max").help("Requests in flight at once"),
    field("policy.rate").value("RATE"),
    field("policy.breaker_after"),
    field("policy.event_fields")
        .value("BOOL")
        .help("Whether requests name the event in header fields like oncebox-event-type [default when created: true]"),
    field("policy.probe")
        .value("PROBE")
        .help("Probe the target when nothing was sent to it for so long: '5min GET /health' (or HEAD, OPTIONS), '5min' for a signed ping, or off"),
    field("policy.classes")
        .long("class")
        .value("STATUS=CLASS")
        .help("What an answer means where that differs, like 409=success or 5xx=validation; may be repeated"),
    heading("Content"),
    field("format").help("How a payload stands in a request [default when created: raw]"),
    field("event_headers").long("event-header").value("NAME"),
    field("filter")
        .value("CONDITION")
        .help("A condition that a payload must meet, 'PATH OP VALUE': '$.total > 100', '$.status = paid', '$.lines[*].sku starts_with A'; may be repeated, and all must hold [OP: = != > >= < <= in exists starts_with contains]"),
    field("template.body")
        .long("template-file")
        .value("FILE")
        .help("File with the template of the body"),
    field("template.content_type")
        .long("template-type")
        .value("TYPE")
        .help("The media type of the template's body [default: the event's]"),
    field("template.escape").long("escape"),
    field("template.name")
        .long("name-template")
        .value("TEMPLATE")
        .help("Template of a file's or an attachment's name, like '{{ type }}-{{ id }}.json' [default: the webhook_id, with an ending by media type]"),
    field("template.subject")
        .long("subject")
        .value("TEMPLATE")
        .help("Template of a mail's subject [default: the event's type and aggregate]"),
    field("template.attach")
        .long("attach")
        .value("BOOL")
        .help("Attach the event's payload to its mail"),
    field("template.effect")
        .long("effect-file")
        .value("FILE")
        .help("File with the one statement that each event runs in the database, with values like :payload and :aggregate_id"),
    field("template.inbox")
        .long("inbox")
        .value("TABLE")
        .help("Table of the database into which each event is written as a row (oncebox database ddl)"),
    field("template.headers")
        .long("template-header")
        .value("FIELD")
        .help("The template of a header field, 'Name: text'; may be repeated"),
    field("try")
        .long("try")
        .value("EVENT")
        .help("Save nothing: show what would be sent of this event or webhook event"),
    field("what_if")
        .long("what-if")
        .value("SPAN")
        .help("Save nothing: show what these terms would have done with the events stored in the last SPAN, such as 7d, beside what the subscription does now"),
    heading("Secret"),
    field("secret")
        .long("secret-file")
        .value("FILE")
        .help("File with the secret that the receiver has already (whsec_…) [default: a new one is made]"),
];

const VERBS: &[CommandRow] = &[
    command("list", "Subscriptions, oldest first")
        .calls("listSubscriptions")
        .flags(&[&[
            field("owner_id").long("owner"),
            field("event_type").value("TYPE"),
            field("state").long("state").also(&["status"]),
        ]]),
    command("create", "Add a subscription; prints the secret its requests are signed with, this once")
        .calls("createSubscription")
        .flags(&[
            &[
                own("pull")
                    .not(&["url", "folder", "database", "mail-to"])
                    .help("Consumers ask for its events, with oncebox consume or over the API; nothing is sent"),
            ],
            TERMS,
        ])
        .online(create)
        .more(|command| one_of(command, &["url", "pull", "folder", "database", "mail-to"])),
    command("show", "One subscription")
        .calls("getSubscription")
        .flags(&[&[
            field("id").value("NAME"),
        ]])
        .online(act),
    command("change", "Change a subscription; what is not given stays")
        .calls("changeSubscription")
        .flags(&[
            &[
                own("remove-header")
                    .value("NAME...")
                    .help("Remove a header field; may be repeated"),
            ],
            TERMS,
            &[
                heading("Content"),
                own("remove")
                    .value("REMOVE...")
                    .words(&["filter", "template", "event-headers", "order"])
                    .help("Remove the filter, the template, the event headers or what the flags of the order say; may be repeated"),
            ],
        ])
        .online(change),
    command("test", "Send one request as a delivery would, and show each step; a test that works ends the hold auth")
        .calls("testSubscription")
        .flags(&[&[
            field("id").value("NAME"),
            field("event_id")
                .long("event")
                .value("ID")
                .help("Send this past event or webhook event instead of a ping; the receiver may carry it out"),
            without("background"),
        ]])
        .online(test),
    command("compare", "Compare what was delivered with what the target says that it has")
        .calls("compareSubscription")
        .flags(&[&[
            field("id").value("NAME"),
            field("since").value("TIME").required().help("Deliveries from this time on: 7d, or 2026-01-24T12:00:00Z"),
            field("until").value("TIME").help("Up to this time [default: five minutes ago]"),
            own("ids")
                .value("@FILE")
                .help("What the target has, one webhook-id or key a line: @file, or - for stdin"),
            field("list.url")
                .long("list")
                .value("URL")
                .help("The target's own list, on the server of the target; it is read with the credentials of the subscription"),
            field("list.items")
                .value("PATH")
                .needs(&["list.url"])
                .help("The path of the list in an answer, like /data [default: the answer itself]"),
            field("list.item_id")
                .value("PATH")
                .needs(&["list.url"])
                .help("The path in an item of the webhook-id or key, like /webhook_id [default: the item itself]"),
            field("list.next")
                .value("JSON")
                .needs(&["list.url"])
                .help("How the next page is found: `{\"by\":\"link\"}`, or links, url, page, offset, cursor, last_item with their terms"),
            field("list.newer_than")
                .value("JSON")
                .needs(&["list.url"])
                .help("How items since a time are asked for: `{\"parameter\":\"since\",\"form\":\"rfc3339\"}`"),
            own("send-again").help("Send what is missing again, with the same webhook-id"),
            without("ids"),
            without("next"),
        ]])
        .online(compare::run)
        .more(|command| one_of(command, &["ids", "list.url"]))
        .ends(&[
            "Deliveries of the last five minutes are left out, unless --until is given. Exit code 6: something is missing.",
            "",
            "  oncebox subscription compare erp --since 7d --ids @received.txt",
            "  oncebox subscription compare erp --since 7d --list https://erp.example/api/received --item-id /webhook_id --send-again",
        ]),
    command("pause", "Send it nothing for now; its deliveries wait")
        .calls("pauseSubscription")
        .flags(&[&[
            field("id").value("NAME"),
        ]])
        .online(act),
    command("resume", "End a pause, or enable a subscription again that was disabled because its target answered 410")
        .calls("resumeSubscription")
        .flags(&[&[
            field("id").value("NAME"),
        ]])
        .online(act),
    command("recover", "Resume a subscription and send it everything since a time: its dead letters, and events it has no delivery of")
        .calls("recoverSubscription")
        .flags(&[&[
            field("id").value("NAME"),
        ]])
        .online(recover)
        .more(Pace::augment_args),
    command("delete", "Delete a subscription; refused while it has open or dead deliveries")
        .calls("deleteSubscription")
        .flags(&[&[
            field("id").value("NAME"),
        ]])
        .asks("Delete the subscription {id}")
        .says("deleted: {id}"),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &SUBSCRIPTIONS,
    command("subscription", "Subscriptions: which events go where"),
    VERBS,
);

pub(super) const SUBSCRIPTIONS: Noun =
    Noun::new("/v1/subscriptions", "Subscription", "subscriptions")
        .columns(&[
            column("NAME", 0, "name"),
            column("STATE", 1, "state"),
            column("TYPES", 2, "event_types"),
            column("SOURCE", 3, "source"),
            column("TARGET", 1, "target"),
            column("FAILURES", 3, "failure_count"),
            column("HEALTH", 9, "health_state"),
            column("LAST SUCCESS (UTC)", 4, "last_success_at"),
        ])
        .fields(&[
            cell("id", "id"),
            cell("target", "target"),
            cell("ordering", "ordering"),
            cell("order", "order"),
            cell("source", "source"),
            cell("types", "event_types"),
            cell("owner", "owner_id"),
            cell("headers", "headers"),
            cell("format", "format"),
            cell("event headers", "event_headers"),
            cell("filter", "filter"),
            cell("template", "template"),
            cell("policy", "policy"),
            cell("health", "health"),
            time("last success", "last_success_at"),
            time("last failure", "last_failure_at"),
            cell("failures since success", "failure_count"),
        ])
        .time("created_at")
        .by(&[
            ("state", |s| text(s, "state").to_ascii_lowercase()),
            ("target", target),
            ("health", health),
            ("health_state", |s| s.get("health").map(|it| text(it, "state")).unwrap_or_default()),
        ]);

/// What probes say of its target: `unhealthy since 2026-01-31 12:00:00.000, probed at …: why`.
fn health(subscription: &Value) -> String {
    let Some(health) = subscription.get("health") else { return String::new() };
    let since = instant(health, "unhealthy_since");
    let at = instant(health, "probed_at");
    let parts = [(" since ", since), (", probed at ", at), (": ", text(health, "detail"))];
    let said = parts.iter().filter(|(_, value)| !value.is_empty());
    said.fold(text(health, "state"), |said, (before, value)| said + before + value)
}

/// Where its events go, or that consumers ask for them.
fn target(subscription: &Value) -> String {
    if text(subscription, "target") == "pull" {
        return "pull".to_owned();
    }
    match text(subscription, "method").as_str() {
        "POST" => text(subscription, "url"),
        method => format!("{method} {}", text(subscription, "url")),
    }
}

/// The body of a creation or a change, with the URL that `--folder` or `--mail-to` stands for.
fn body_of(call: &Call<'_>) -> Result<Map<String, Value>, Failure> {
    let mut body = call.body()?;
    for (flag, scheme) in [("folder", "folder:"), ("database", "database:"), ("mail-to", "mailto:")]
    {
        if call.has(flag) {
            body.insert("url".to_owned(), format!("{scheme}{}", call.text(flag)).into());
        }
    }
    Ok(body)
}

fn create(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = body_of(call)?;
    let name = call.text("name");
    let is_pull = call.is("pull");
    let is_known = call.has("secret");
    if is_pull {
        body.insert("target".to_owned(), "pull".into());
    }
    if call.has("what_if") {
        return what_if::print(remote, &what_if::ask(call, remote, body)?);
    }
    let mut made = call.send(remote, body)?;
    if call.has("try") {
        return print_trial(remote, &made);
    }
    // A secret that was brought is known; it is not repeated into a terminal or a log.
    if let (true, Value::Object(fields)) = (is_known, &mut made) {
        fields.remove("secret");
    }
    if remote.json() {
        return out::json(&made);
    }
    out::line(format_args!("created: {name} {}", target(&made)))?;
    warn_of_missing_provider(remote, &made);
    let is_signed = !matches!(text(&made, "target").as_str(), "folder" | "database" | "email");
    if !is_known && is_signed {
        let secret = once(&made, "secret")?;
        out::line(format_args!("secret: {secret}   (this is the only time it is shown)"))?;
        out::line("The receiver checks webhook-signature with it (Standard Webhooks v1).")?;
    }
    if is_pull {
        return out::line(format_args!("Ask for its events: oncebox consume {name} -- COMMAND"));
    }
    out::line(format_args!("Its deliveries: oncebox delivery list --subscription {name}"))?;
    probe::offer(remote, &name, &SUBSCRIPTIONS.at(&name))
}

fn change(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = body_of(call)?;
    let mut kept = Map::new();
    // What is removed is not merged with what there is.
    for name in call.texts("remove") {
        let field = name.replace('-', "_");
        let given = body.remove(&field);
        let nothing = match name.as_str() {
            "event-headers" => json!([]),
            "order" => given.unwrap_or_else(|| json!({})),
            _ => Value::Null,
        };
        kept.insert(field, nothing);
    }
    let removed = call.texts("remove-header");
    if !removed.is_empty() {
        body.entry("headers").or_insert_with(|| json!({}));
    }
    if !body.is_empty() || kept.is_empty() {
        kept.extend(call.changed(remote, body)?);
    }
    if let Some(Value::Object(fields)) = kept.get_mut("headers") {
        fields.retain(|name, _| !removed.iter().any(|gone| gone.eq_ignore_ascii_case(name)));
    }
    if call.has("what_if") {
        return what_if::print(remote, &what_if::ask(call, remote, kept)?);
    }
    let changed = call.send(remote, kept)?;
    if call.has("try") {
        return print_trial(remote, &changed);
    }
    warn_of_missing_provider(remote, &changed);
    print(remote, &changed)
}

fn test(call: &Call<'_>, remote: &Remote) -> Done {
    let body = call.body()?;
    let body = (!body.is_empty()).then(|| Value::Object(body));
    probe::run(remote, &call.path(), body.as_ref())
}

fn recover(call: &Call<'_>, remote: &Remote) -> Done {
    let question = ["This resumes the subscription and sends it", "again"];
    job::start(call, remote, Words { many: "events", question, done: "sent", is_more: true })
}

fn act(call: &Call<'_>, remote: &Remote) -> Done {
    print(remote, &call.send(remote, call.body()?)?)
}

/// A source may name a provider that is made later, or is misspelt.
fn warn_of_missing_provider(remote: &Remote, subscription: &Value) {
    let source = text(subscription, "source");
    let Some(provider) = source.strip_prefix("provider:") else { return };
    let found = remote.get(&format!("/v1/providers/{}", percent_encoded(provider)));
    if found.is_err_and(|failure| failure.code == exit::NOT_FOUND) {
        out::note(format_args!(
            "There is no provider {provider}: until there is one, no events come from it (oncebox provider list)."
        ));
    }
}

/// Whether a person can end what holds it back.
pub(super) fn is_ended_by_resume(subscription: &Value) -> bool {
    let holds = list(subscription, "holds").iter();
    let reasons = holds.filter_map(|hold| HoldReason::parse(&text(hold, "reason")));
    reasons.into_iter().any(HoldReason::ends_by_resume)
}

/// What holds a subscription back: `paused since 2026-01-31 12:00:00.000 (by a person)`.
pub(super) fn holds(subscription: &Value) -> Vec<String> {
    let holds = list(subscription, "holds").iter();
    let said = |hold: &Value| {
        let reason = text(hold, "reason");
        let since = instant(hold, "since");
        let mut said = format!("{reason} since {since} ({})", text(hold, "detail"));
        for (field, what) in [("until", "until"), ("probe_at", "next probe at")] {
            let at = instant(hold, field);
            if !at.is_empty() {
                said.extend([", ", what, " ", &at]);
            }
        }
        said
    };
    holds.map(said).collect()
}

fn print(remote: &Remote, subscription: &Value) -> Result<(), Failure> {
    SUBSCRIPTIONS.print(remote, subscription)?;
    if remote.json() {
        return Ok(());
    }
    for hold in holds(subscription) {
        out::line(format_args!("  held: {hold}"))?;
    }
    if is_ended_by_resume(subscription) {
        let name = text(subscription, "name");
        out::line(format_args!("To send again: oncebox subscription resume {name}"))?;
    }
    Ok(())
}

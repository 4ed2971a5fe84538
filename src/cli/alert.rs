//! `oncebox escalation`: failures that a person must see. `oncebox alert`: channels that tell people of them.

use std::time::Duration;

use crate::base::stop::Stop;
use crate::cli::exit::FAILED;
use crate::cli::prelude::*;
use crate::cli::remote::once;
use crate::cli::show::{clean, cut};

/// A test is looked at so often, which is 15 seconds in all …
const LOOKS: u32 = 75;
/// … at this interval.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Characters of the answer that are shown.
const EXCERPT_CHARS: usize = 200;

const ALERT_VERBS: &[CommandRow] = &[command(
    "test",
    "Send a message to a channel that says it is a test, and tell whether it arrived",
)
.calls("testAlertChannel")
.flags(&[&[own("no-wait").help("Do not wait for what becomes of it")]])
.online(test)];

pub(super) const ALERT: Commands = Commands::new(
    &CHANNELS,
    command("alert", "Channels that tell people of escalations: Slack, webhook, e-mail, command"),
    ALERT_VERBS,
)
.inner(&[&CHANNEL]);

const CHANNEL_TERMS: &[Flag] = &[
    argument("name").help("Its name: a-z, 0-9 and -, up to 57"),
    field("kind")
        .help("slack: a URL that takes Slack's format; webhook: a URL that gets JSON, signed; command: one of the settings"),
    field("url")
        .long("url-file")
        .value("FILE")
        .help("slack, webhook: file with the URL, which is a secret"),
    field("to").value("ADDRESS"),
    field("command").value("NAME"),
    field("classes").long("class").value("CLASS"),
    field("all_tenants").value("BOOL"),
    field("quiet_hours").value("HOURS"),
    field("digest").value("SPAN"),
    field("repeat_after").value("SPAN"),
];

const CHANNEL_VERBS: &[CommandRow] = &[
    command("list", "Channels, oldest first").calls("listAlertChannels"),
    command("show", "One channel, and how its deliveries go").calls("getAlertChannel"),
    command("create", "Add a channel; it is told of open escalations at once")
        .calls("createAlertChannel")
        .flags(&[CHANNEL_TERMS])
        .answered(create),
    command("change", "Change a channel; what is not given stays")
        .calls("changeAlertChannel")
        .flags(&[CHANNEL_TERMS]),
    command("delete", "Delete a channel; what is not delivered is cancelled")
        .calls("deleteAlertChannel")
        .asks("Delete the alert channel {name}")
        .says("deleted: {name}"),
];

const CHANNEL: Commands =
    Commands::new(&CHANNELS, command("channel", "Where alerts go, and which"), CHANNEL_VERBS);

const CHANNELS: Noun = Noun::new("/v1/alert-channels", "Alert channel", "alert channels")
    .columns(&[
        column("NAME", 0, "name"),
        column("KIND", 1, "kind"),
        column("TARGET", 1, "target"),
        column("SEVERITY", 2, "severity"),
        column("CLASSES", 3, "classes"),
        column("LAST SUCCESS (UTC)", 3, "last_success_at"),
        column("FAILING SINCE (UTC)", 2, "failing_since"),
    ])
    .fields(&[
        cell("kind", "kind"),
        cell("target", "target"),
        cell("subscription", "subscription"),
        cell("severity", "severity"),
        cell("classes", "classes"),
        cell("all tenants", "all_tenants"),
        cell("quiet hours", "quiet_hours"),
        cell("messages per hour", "rate_per_hour"),
        cell("digest", "digest"),
        cell("told again after", "repeat_after"),
        time("last success", "last_success_at"),
        time("failing since", "failing_since"),
    ])
    .time("created_at");

const ESCALATION_VERBS: &[CommandRow] = &[
    command("list", "Open escalations, newest first")
        .calls("listEscalations")
        .flags(&[&[
            field("all").long("resolved").help("Also list resolved ones"),
        ]]),
    command("show", "One escalation: what happened, since when, how often").calls("getEscalation"),
    command("acknowledge", "Mark an escalation as seen: one about dead letters, dropped files, a rotation or a limit ends, others when their cause is gone")
        .calls("acknowledgeEscalation"),
];

pub(super) const ESCALATION: Commands = Commands::new(
    &ESCALATIONS,
    command("escalation", "Failures that a person must see"),
    ESCALATION_VERBS,
);

const ESCALATIONS: Noun = Noun::new("/v1/escalations", "Escalation", "open escalations")
    .columns(&[
        column("ID", 0, "id"),
        column("CLASS", 1, "class"),
        column("SUBJECT", 1, "subject"),
        column("LAST (UTC)", 1, "last_at"),
        column("COUNT", 2, "count"),
        column("ACKNOWLEDGED BY", 3, "acknowledged_by"),
        column("DETAIL", 2, "detail"),
    ])
    .fields(&[
        cell("class", "class"),
        cell("subject", "subject"),
        cell("detail", "detail"),
        time("first", "first_at"),
        time("last", "last_at"),
        cell("count", "count"),
        time("acknowledged", "acknowledged_at"),
        cell("by", "acknowledged_by"),
        time("resolved", "resolved_at"),
        time("reopened", "reopened_at"),
    ])
    .time("last_at")
    .by(&[("detail", |e| cut(&text(e, "detail"), 100))]);

fn create(call: &Call<'_>, _remote: &Remote, made: &Value) -> Done {
    let name = call.text("name");
    out::line(format_args!("created: {name} {}", text(made, "target")))?;
    if call.text("kind") == "webhook" {
        let secret = once(made, "secret")?;
        out::line(format_args!("secret: {secret}   (this is the only time it is shown)"))?;
    }
    out::line(format_args!("Try it: oncebox alert test {name}"))
}

fn test(call: &Call<'_>, remote: &Remote) -> Done {
    let name = call.text("name");
    let mut sent = call.send(remote, Map::new())?;
    if call.is("no-wait") {
        let subscription = text(&sent, "subscription");
        let look = format_args!(
            "queued for {name}\nWhether it arrived: oncebox delivery list --subscription {subscription}"
        );
        return remote.answer(&sent, look);
    }
    let delivery = tried(remote, &text(&sent, "event_id"))?;
    let id = text(&delivery, "id");
    let attempts = remote.get(&format!("/v1/deliveries/{}/attempts", percent_encoded(&id)))?;
    let attempt = list(&attempts, "items").last().cloned().unwrap_or_default();
    let excerpt: String = clean(&text(&attempt, "excerpt")).chars().take(EXCERPT_CHARS).collect();
    let said = if excerpt.is_empty() { excerpt } else { format!("\nit said: {excerpt}") };
    let is_delivered = text(&delivery, "state") == "completed";
    if let (true, Value::Object(told)) = (remote.json(), &mut sent) {
        told.insert("delivery".to_owned(), delivery);
        told.insert("attempt".to_owned(), attempt);
        out::json(&sent)?;
        return if is_delivered { Ok(()) } else { Err(Failure::new(FAILED, "")) };
    }
    if is_delivered {
        let status = text(&attempt, "http_status");
        let answer = if status.is_empty() { status } else { format!(", the answer was {status}") };
        return out::line(format_args!("delivered to {name}{answer}{said}"));
    }
    let waits = delivery.pointer("/waiting/detail").and_then(Value::as_str);
    let why = match (text(&attempt, "failed_reason").as_str(), waits) {
        ("", None) => "there was no answer yet".to_owned(),
        ("", Some(waits)) => clean(waits),
        (failed, _) => clean(failed),
    };
    let next = match (text(&delivery, "state").as_str(), attempt.is_null()) {
        ("pending", true) => "It waits",
        ("pending", false) => "It is tried again",
        _ => "It was given up",
    };
    Err(Failure::failed(format_args!(
        "not delivered to {name}: {why}{said}\n{next}: oncebox delivery show {id}"
    )))
}

/// The delivery of an event once it was tried, is held, or has been waited for long enough.
fn tried(remote: &Remote, event: &str) -> Result<Value, Failure> {
    let found = remote.get(&format!("/v1/deliveries?event_id={}", percent_encoded(event)))?;
    let id = found.pointer("/items/0/id").and_then(Value::as_str).unwrap_or_default();
    let path = format!("/v1/deliveries/{}", percent_encoded(id));
    let mut delivery = remote.get(&path)?;
    for _look in 0..LOOKS {
        let is_untried =
            text(&delivery, "state") == "pending" && text(&delivery, "attempt_count") == "0";
        let hold = delivery.pointer("/waiting/hold").filter(|hold| hold.is_string());
        if !is_untried || hold.is_some() {
            break;
        }
        Stop::new().wait(LOOK_EVERY);
        delivery = remote.get(&path)?;
    }
    Ok(delivery)
}

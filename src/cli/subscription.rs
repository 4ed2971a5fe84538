//! `oncebox subscription`: which events go where, and how.
//!
//! Not here: what was sent to them ([`super::delivery`]).

use crate::cli::job::{self, Pace, Words};
use crate::cli::prelude::*;
use crate::cli::probe::{self, print_trial};
use crate::cli::remote::once;
use crate::cli::show::instant;
use crate::cli::verb::one_of;
use crate::model::hold::HoldReason;

const TABLE: &str = "
subscription  Subscriptions: which events go where
  columns: NAME 0 name; STATE 1 state; TYPES 2 event_types; SOURCE 3 source; TARGET 1 target; FAILURES 3 failure_count; HEALTH 9 health_state; LAST SUCCESS (UTC) 4 last_success_at
  fields: id; target; ordering; order; source; types = event_types; owner = owner_id; headers; format; event headers; filter; template; policy; health; last success = @last_success_at; last failure = @last_failure_at; failures since success = failure_count
  @terms
    <name>  What you call it: a-z, 0-9 and -
    id <NAME>
    !target
    url
    --folder <DIR> not:url  Write each event into a file of its own in this directory of the service's machine
    --database <NAME> not:url,folder  Do something in a database of the settings with each event: --effect-file or --inbox says what
    --mail-to <ADDRESSES> not:url,folder,database  Send each event as a mail to these addresses, with commas between them
    event_types --event-type <PATTERN>
    source
    headers --header <FIELD>  A further header field, 'Name: value'; may be repeated
    ordering  Which events go one after another: those of one key or aggregate, or all [default when created: none]
    method  The method of its requests [default when created: POST]
    owner_id --owner
    Order:
    order.group <NAME>
    order.funnel_point <NAME>
    order.latest_only <BOOL>
    order.call_path <PATH>
    order.postpone_limit <SPAN>
    order.*
    Attempts:
    policy.steps <SPANS>  Waits between attempts, like 5s,30s,5min; the last is repeated
    policy.max_attempts  Counted attempts until a delivery is given up
    policy.timeout <SPAN>
    policy.lease <SPAN>
    policy.confirm_within <SPAN>
    policy.in_flight_max  Requests in flight at once
    policy.rate <RATE>
    policy.breaker_after
    policy.event_fields <BOOL>  Whether requests name the event in header fields like oncebox-event-type [default when created: true]
    policy.probe <PROBE>  Probe the target when nothing was sent to it for so long: '5min GET /health' (or HEAD, OPTIONS), '5min' for a signed ping, or off
    policy.classes --class <STATUS=CLASS>  What an answer means where that differs, like 409=success or 5xx=validation; may be repeated
    Content:
    format  How a payload stands in a request [default when created: raw]
    event_headers --event-header <NAME>
    filter <CONDITION>  A condition that a payload must meet, 'PATH OP VALUE': '$.total > 100', '$.status = paid', '$.lines[*].sku starts_with A'; may be repeated, and all must hold [OP: = != > >= < <= in exists starts_with contains]
    template.body --template-file <FILE>  File with the template of the body
    template.content_type --template-type <TYPE>  The media type of the template's body [default: the event's]
    template.escape --escape
    template.name --name-template <TEMPLATE>  Template of a file's or an attachment's name, like '{{ type }}-{{ id }}.json' [default: the webhook_id, with an ending by media type]
    template.subject --subject <TEMPLATE>  Template of a mail's subject [default: the event's type and aggregate]
    template.attach --attach <BOOL>  Attach the event's payload to its mail
    template.effect --effect-file <FILE>  File with the one statement that each event runs in the database, with values like :payload and :aggregate_id
    template.inbox --inbox <TABLE>  Table of the database into which each event is written as a row (oncebox database ddl)
    template.headers --template-header <FIELD>  The template of a header field, 'Name: text'; may be repeated
    try --try <EVENT>  Save nothing: show what would be sent of this event or webhook event
    Secret:
    secret --secret-file <FILE>  File with the secret that the receiver has already (whsec_…) [default: a new one is made]
  list = listSubscriptions  Subscriptions, oldest first
    owner_id --owner
    event_type <TYPE>
    state --state --status
  create = createSubscription  Add a subscription; prints the secret its requests are signed with, this once
    --pull not:url,folder,database,mail-to  Consumers ask for its events, with oncebox consume or over the API; nothing is sent
    @terms
  show = getSubscription  One subscription
    id <NAME>
  change = changeSubscription  Change a subscription; what is not given stays
    --remove-header <NAME...>  Remove a header field; may be repeated
    @terms
    Content:
    --remove <REMOVE...> of:filter,template,event-headers,order  Remove the filter, the template, the event headers or what the flags of the order say; may be repeated
  test = testSubscription  Send one request as a delivery would, and show each step; a test that works ends the hold auth
    id <NAME>
    event_id --event <ID>  Send this past event or webhook event instead of a ping; the receiver may carry it out
    !background
  pause = pauseSubscription  Send it nothing for now; its deliveries wait
    id <NAME>
  resume = resumeSubscription  End a pause, or enable a subscription again that was disabled because its target answered 410
    id <NAME>
  recover = recoverSubscription  Resume a subscription and send it everything since a time: its dead letters, and events it has no delivery of
    id <NAME>
  delete = deleteSubscription  Delete a subscription; refused while it has open or dead deliveries
    id <NAME>
    ? Delete the subscription {id}
    > deleted: {id}
";

pub(super) const COMMANDS: Commands = Commands::new(
    &SUBSCRIPTIONS,
    TABLE,
    &[
        online("create", create)
            .more(|command| one_of(command, &["url", "pull", "folder", "database", "mail-to"])),
        online("show|pause|resume", act),
        online("change", change),
        online("test", test),
        online("recover", recover).more(Pace::augment_args),
    ],
);

pub(super) const SUBSCRIPTIONS: Noun =
    Noun::new("/v1/subscriptions", "Subscription", "subscriptions", TABLE).time("created_at").by(
        &[
            ("state", |s| text(s, "state").to_ascii_lowercase()),
            ("target", target),
            ("health", health),
            ("health_state", |s| s.get("health").map(|it| text(it, "state")).unwrap_or_default()),
        ],
    );

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

//! One event, webhook event or delivery: did it go out, when, what did they answer, why does it wait?

use crate::console::charts::{Wait, timeline};
use crate::console::elements::link_to_event;
use crate::console::json::{readable, shown};
use crate::console::prelude::*;
use crate::http::message::Response;

/// Deliveries whose attempts are shown; the others are linked.
const MAX_DELIVERIES: usize = 3;
/// How much is shown of a payload: bytes of the page, as in all of these.
const MAX_PAYLOAD_BYTES: usize = 20_000;
/// How much is shown of a request, and of a payload that is edited in the page.
const MAX_BODY_BYTES: usize = 12_000;
/// Attempts that are shown at once of one delivery, and of each delivery of an event: the newest, and a link to the others.
const MAX_ATTEMPTS: i64 = 30;
const MAX_ATTEMPTS_OF_EACH: i64 = 10;
/// How much is shown of an answer in the table of attempts.
const MAX_ANSWER_BYTES: usize = 400;

pub(super) fn event(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let id = view.param(0);
    let path = format!("/v1/events/{}", segment(id));
    let (event, payload) = view.read_payload(&path, MAX_PAYLOAD_BYTES)?;
    let is_open = event.int("open_deliveries") > 0;
    let children =
        view.read_or_null("/v1/events", &[("parent_id", event.text("id")), ("limit", "20")]);
    let known = Cells(
        &[
            cell("event_type"),
            cell("at").time("received_at"),
            cell("occurred").time("occurred_at"),
            cell("completed").time("completed_at"),
            cell("source").of("source_system"),
            cell("key").code("idempotency_key"),
            cell("webhook_id").id("webhook_id"),
            cell("id").id("id"),
            cell("repeated"),
            cell("process").filled("process_id"),
            cell("parent"),
            cell("archived").filled("archived_in"),
            cell("expunged").filled("expunged_at"),
        ],
        &[
            ("repeated", &repeated),
            ("parent", &|event| {
                event.maybe("parent_id").map_or_else(nothing, |id| link("events", id))
            }),
        ],
    );
    let child = Cells(
        &[cell("name"), cell("event_type"), cell("state").state("status")],
        &[("name", &link_to_event)],
    );
    let sent = deliveries_of(view, event.text("id"));
    let body = html! {
        div.actions {
            @if event.text("status") != "quarantined" && event.maybe("expunged_at").is_none() {
                (button(view, &actions::REPLAY_EVENT, &[("id", id)]))
            }
            @if event.text("status") == "quarantined" {
                (button(view, &actions::FIX_EVENT, &[("id", id)])) (button(view, &actions::DISCARD_EVENT, &[("id", id)]))
            }
            @if is_open { (button(view, &actions::CANCEL_EVENT, &[("id", id)])) }
            a.button href={ "/console/events/" (segment(id)) "/support" } { (t.support_text) }
        }
        @if let Some(error) = event.maybe("last_error") { p.error { strong { (t.last_error) } " " (error) } }
        (known.facts(view, &event))
        (deliveries(view, &sent))
        @if !children.items("items").is_empty() {
            h2 { (t.children) }
            (child.table(view, t.children, children.items("items"), EmptyNote::default()))
        }
        (content(view, &event, payload))
        (proof(view))
    };
    let title = format!("{}: {}", t.event, name_of(&event));
    Ok(Content::new(title, body).badge(html! { (Standing::of_event(&event, &sent)) }))
}

/// The payload as a file.
pub(super) fn payload(view: &View<'_>) -> Result<Content, PageError> {
    let id = view.param(0);
    let found = view.payload(&format!("/v1/events/{}", segment(id)))?;
    let body = found.ok_or_else(|| PageError::not_found(view.t))?;
    Ok(Content::file(&format!("{id}.txt"), Response { body, ..Response::new(200) }))
}

/// What a person may send to who helps: no content, and nothing that names a person or a record.
pub(super) fn support(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let id = view.param(0);
    let event = view.read(&format!("/v1/events/{}", segment(id)), &[])?;
    let stats = view.read("/v1/stats", &[])?;
    let now = view.inner().api.env.clock.wall();
    let mut lines = vec![format!("oncebox {} at {now}", stats.text("version"))];
    let line = |what: &str, of: &Value, fields: &str| {
        let each = fields.split(' ').filter_map(|path| {
            let value = path.split('.').fold(of, |of, name| of.field(name));
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (!value.is_null()).then(|| format!(" {path}={text}"))
        });
        format!("{what}{}", each.collect::<String>())
    };
    lines.push(line(
        "event",
        &event,
        "id event_type status received_at not_before completed_at duplicate_count open_deliveries error_code \
         content_type payload_sha256 archived_in expunged_at",
    ));
    let found = view.read_or_null("/v1/deliveries", &[("event_id", id), ("limit", "20")]);
    for row in found.items("items") {
        let path = format!("/v1/deliveries/{}", segment(row.text("id")));
        let of = view.read_or_null(&path, &[]);
        lines.push(line(
            "delivery",
            &of,
            "id state run_no attempt_count counted_failures created_at due_at finished_at waiting.reason waiting.hold \
             waiting.until",
        ));
        for hold in of.items("past_holds") {
            lines.push(line("  hold", hold, "reason since ended_at"));
        }
        let after = (of.int("attempt_count") - 100).max(0).to_string();
        let query = [("after", after.as_str()), ("limit", "100")];
        let attempts = view.read_or_null(&format!("{path}/attempts"), &query);
        for attempt in attempts.items("items") {
            let fields =
                "n started_at finished_at class counted http_status latency_ms body_sha256";
            lines.push(line("  attempt", attempt, fields));
        }
    }
    let body = html! { p { (t.support_about) } (code(view, &lines.join("\n"))) p { (link("events", id)) } };
    Ok(Content::new(t.support_text, body))
}

pub(super) fn webhook(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let id = view.param(0);
    let path = format!("/v1/webhook-events/{}", segment(id));
    let (event, payload) = view.read_payload(&path, MAX_PAYLOAD_BYTES)?;
    let known = Cells(
        &[
            cell("provider"),
            cell("event_type"),
            cell("at").time("received_at"),
            cell("completed").time("completed_at"),
            cell("signature"),
            cell("provider_id").code("provider_event_id"),
            cell("webhook_id").id("webhook_id"),
            cell("id").id("id"),
            cell("repeated"),
            cell("archived").filled("archived_in"),
            cell("expunged").filled("expunged_at"),
        ],
        &[
            ("repeated", &repeated),
            ("signature", &|event| {
                let checked = |key| html! { (t.signature_checked) " " code { (key) } };
                event.maybe("key_id").map_or_else(nothing, checked)
            }),
        ],
    );
    let sent = deliveries_of(view, event.text("id"));
    let body = html! {
        div.actions {
            @if event.maybe("expunged_at").is_none() {
                (button(view, &actions::REPLAY_WEBHOOK, &[("id", id)]))
            }
        }
        @if let Some(error) = event.maybe("error_message") { p.error { (error) } }
        (known.facts(view, &event))
        (deliveries(view, &sent))
        (content(view, &event, payload))
    };
    let title = format!("{}: {}", t.webhook, event.text("provider_event_id"));
    Ok(Content::new(title, body).badge(html! { (Standing::of_event(&event, &sent)) }))
}

pub(super) fn delivery(view: &View<'_>) -> Result<Content, PageError> {
    let t = view.t;
    let found = view.one("/v1/deliveries")?;
    let known = Cells(
        &[
            cell("event"),
            cell("event_type"),
            cell("lane"),
            cell("runs").of("run_no"),
            cell("attempts"),
        ],
        &[
            ("event", &link_of),
            ("lane", &|of| of.maybe("lane").map_or_else(nothing, |lane| link("lanes", lane))),
            (
                "attempts",
                &|of| html! { (of.int("attempt_count")) " (" (of.int("counted_failures")) " " (t.counted) ")" },
            ),
        ],
    );
    let title = format!("{} {}: {}", t.delivery, found.text("id"), name_of(&found));
    let body = html! {
        (one(view, &found, 2))
        (known.facts(view, &found))
        (request(view, &found))
        (edit(view, &found))
    };
    Ok(Content::new(title, body))
}

/// The request as an attempt sends it, and as a curl command.
fn request(view: &View<'_>, of: &Value) -> Markup {
    let t = view.t;
    let path = format!("/v1/deliveries/{}/request", segment(of.text("id")));
    let found = match view.read(&path, &[]) {
        Ok(found) => found,
        Err(error) => return html! { h2 { (t.request_as_sent) } p.small { (error.detail) } },
    };
    let method = found.text("method");
    let url = found.text("url");
    let mut raw = format!("{method} {url}\n");
    for field in found.items("headers") {
        for part in [field.text("name"), ": ", field.text("value"), "\n"] {
            raw.push_str(part);
        }
    }
    let text = found.maybe("body").or_else(|| found.maybe("body_base64")).unwrap_or_default();
    let (shown, is_all) = beginning(text, MAX_BODY_BYTES);
    raw.push('\n');
    raw.push_str(shown);
    let about = match (found.get("attempt").is_none_or(Value::is_null), found.is("erased")) {
        (true, _) => t.request_about,
        (false, false) => t.request_sent_about,
        (false, true) => t.request_erased_about,
    };
    html! {
        h2 { (t.request_as_sent) }
        p.small { (about) }
        (code(view, &raw))
        @if !is_all { p.small { (t.payload_cut) } }
        @if !found.text("curl").is_empty() {
            details { summary { (t.as_curl) } (code(view, found.text("curl"))) }
        }
    }
}

/// The button to send another payload.
fn edit(view: &View<'_>, of: &Value) -> Markup {
    let is_open = matches!(of.text("state"), "pending" | "parked" | "dead_letter");
    let is_idle = of.maybe("in_flight_since").is_none();
    if !is_open || !is_idle || of.text("of") != "event" {
        return html! {};
    }
    html! { div.actions { (button(view, &actions::EDIT_AND_RESEND, &[("id", of.text("id"))])) } }
}

/// A payload as people read it.
fn payload_text(event: &Value, payload: Option<String>) -> String {
    let text = event.maybe("payload_text").or_else(|| event.maybe("payload_base64"));
    payload.unwrap_or_else(|| text.unwrap_or_default().to_owned())
}

/// The deliveries of an event: the first ones as their own pages read them, the others as a list has them.
fn deliveries_of(view: &View<'_>, event: &str) -> Vec<Value> {
    let found = view.read_or_null("/v1/deliveries", &[("event_id", event), ("limit", "50")]);
    let mut all = found.items("items").to_vec();
    for row in all.iter_mut().take(MAX_DELIVERIES) {
        let path = format!("/v1/deliveries/{}", segment(row.text("id")));
        let detail = view.read_or_null(&path, &[]);
        if !detail.is_null() {
            *row = detail;
        }
    }
    all
}

/// The deliveries of an event, each with its attempts.
fn deliveries(view: &View<'_>, all: &[Value]) -> Markup {
    let t = view.t;
    html! {
        h2 { (t.deliveries) }
        @if all.is_empty() { (EmptyNote { text: t.nobody_wants_it, hint: t.nobody_wants_it_help }) }
        @for row in all.iter().take(MAX_DELIVERIES) { (one(view, row, 3)) }
        @if all.len() > MAX_DELIVERIES {
            ul { @for row in all.iter().skip(MAX_DELIVERIES) {
                li { (link("deliveries", row.text("id"))) " " (row.text("subscription")) " " (state(row.text("state"))) }
            } }
        }
    }
}

/// A delivery: its state, why it waits, and its attempts. `level` is that of its heading.
fn one(view: &View<'_>, delivery: &Value, level: u8) -> Markup {
    let t = view.t;
    let id = delivery.text("id");
    let given = [("id", id)];
    let state_of = delivery.text("state");
    // What the API would not refuse in this state.
    let is = |states: &[&str]| states.contains(&state_of);
    let waiting = delivery.field("waiting");
    let heading = html! {
        (link("subscriptions", delivery.text("subscription"))) " " (Standing::of_delivery(delivery))
    };
    html! {
        section.card {
            @if level == 2 { h2 { (heading) } } @else { h3 { (heading) } }
            @if let Some(why) = waiting.maybe("detail") {
                p { strong { (t.waits_because) } " " (told(why)) }
            }
            @if let Some(reason) = delivery.maybe("reason") { p { (told(reason)) } }
            @for hold in delivery.items("past_holds") {
                p { (t.held_from) " " (time(hold.text("since"))) " " (t.held_to) " " (time(hold.text("ended_at"))) ": "
                    (word(hold.text("reason"))) ". " (told(hold.text("detail"))) }
            }
            (attempts(view, delivery, if level == 2 { MAX_ATTEMPTS } else { MAX_ATTEMPTS_OF_EACH }))
            div.actions {
                @if is(&["pending", "leased", "dead_letter", "skipped", "cancelled"]) { (button(view, &actions::RETRY_DELIVERY, &given)) }
                @if is(&["pending"]) && delivery.maybe("lane").is_some() { (button(view, &actions::PARK, &given)) }
                @if is(&["parked", "in_doubt"]) { (button(view, &actions::RELEASE, &given)) }
                @if is(&["pending", "dead_letter", "parked", "in_doubt"]) { (button(view, &actions::SKIP, &given)) }
                @if is(&["pending", "leased", "waiting", "dead_letter", "parked", "in_doubt"]) { (button(view, &actions::CANCEL_DELIVERY, &given)) }
            }
        }
    }
}

/// At most so many attempts of a delivery: those that the URL of its page asks for, or the newest.
fn attempts(view: &View<'_>, delivery: &Value, most: i64) -> Markup {
    let t = view.t;
    let id = segment(delivery.text("id"));
    let count = delivery.int("attempt_count");
    let newest = (count - most).max(0);
    let asked = view.query.get("after").and_then(|after| after.parse().ok());
    let after: i64 = asked.unwrap_or(newest).clamp(0, newest);
    // The attempt before the first that is shown tells why that one waited.
    let hidden = after.min(1);
    let found = view.read_or_null(
        &format!("/v1/deliveries/{id}/attempts"),
        &[("after", &(after - hidden).to_string()), ("limit", &(most + hidden).to_string())],
    );
    let waiting = if after < newest { &Value::Null } else { delivery.field("waiting") };
    let waits = waits(view, delivery, found.items("items"), waiting);
    let hidden = usize::from(hidden > 0);
    let shown = found.items("items").get(hidden..).unwrap_or_default();
    let waits = waits.get(hidden..).unwrap_or_default();
    html! {
        (timeline(view, shown, waits))
        (attempt_table(view, shown, waits, waiting))
        @if newest > 0 {
            nav.pager aria-label=(t.attempts) {
                span { (after + 1) "–" (count.min(after + most)) " / " (count) }
                @if after > 0 { a href={ "/console/deliveries/" (id) "?after=" ((after - most).max(0)) } { (t.earlier) } }
                @if after < newest { a href=(view.head.path) { (t.newest_one) } }
            }
        }
    }
}

/// The wait before each attempt, and the one that is not over. What ended a wait is not stored, so the attempt before it
/// tells why it began.
fn waits(view: &View<'_>, delivery: &Value, attempts: &[Value], waiting: &Value) -> Vec<Wait> {
    let t = view.t;
    let in_lane = delivery.maybe("lane").is_some();
    let mut since = millis(delivery.text("created_at"));
    let mut before: Option<&Value> = None;
    let mut all = Vec::new();
    for attempt in attempts {
        let counted = before.is_some_and(|before| before.is("counted"));
        let (why, is_held) = match before.map(|before| before.text("class")) {
            None if in_lane => (t.wait_lane, true),
            None => (t.wait_first, false),
            Some("transient") if counted => (t.wait_retry, false),
            Some("rate_limited") => (t.wait_asked, true),
            Some("auth") => (t.wait_auth, true),
            Some("transient") => (t.wait_away, true),
            Some(_) => (t.wait_person, true),
        };
        let ms = millis(attempt.text("started_at")).saturating_sub(since).max(0);
        all.push(Wait { ms, why: why.to_owned(), is_held });
        since = millis(attempt.text("finished_at"));
        before = Some(attempt);
    }
    let why = match waiting.first_of(&["hold", "reason"]) {
        "" => return all,
        "auth" => t.wait_auth.to_owned(),
        "rate_limit" => t.wait_asked.to_owned(),
        "breaker" | "offline" => t.wait_away.to_owned(),
        "earlier" => t.wait_lane.to_owned(),
        "time" if before.is_some() => t.wait_retry.to_owned(),
        "time" => t.wait_not_before.to_owned(),
        "person" => word(delivery.text("state")),
        other => word(other),
    };
    let ms = view.inner().api.env.clock.wall().ms().saturating_sub(since);
    let is_held = !matches!(waiting.text("reason"), "time" | "turn" | "attempt");
    all.push(Wait { ms, why, is_held });
    all
}

fn attempt_table(view: &View<'_>, attempts: &[Value], waits: &[Wait], waiting: &Value) -> Markup {
    let t = view.t;
    if waits.is_empty() {
        return html! { p.small { (t.no_attempts) } };
    }
    // Why it waits now stands above already.
    let waited = |n: usize| {
        let wait = waits.get(n).filter(|wait| wait.ms >= 1000);
        html! { @match wait { Some(wait) => { (span(wait.ms)) @if n < attempts.len() { " · " (wait.why) } }, None => (nothing()) } }
    };
    let last_url = attempts.last().and_then(|last| last.maybe("url"));
    let mut rows: Vec<_> = attempts
        .iter()
        .enumerate()
        .map(|(n, row)| {
            let status = row.field("http_status");
            vec![
                html! { (row.int("n")) },
                waited(n),
                time(row.text("started_at")),
                html! { (state(row.text("class"))) @if !row.is("counted") && row.text("class") != "success" { " " small { (t.not_counted) } } },
                html! { @if status.is_null() { (nothing()) } @else { (status) } },
                html! { (number(row.int("latency_ms"))) " ms" },
                html! {
                    (beginning(row.first_of(&["excerpt", "failed_reason"]), MAX_ANSWER_BYTES).0)
                    // The address below the table is that of the last attempt.
                    @if Some(row.text("url")) != last_url { p.small { (t.sent_to) " " code { (row.text("url")) } } }
                },
            ]
        })
        .collect();
    if waits.len() > attempts.len() {
        let mut now =
            vec![html! { (t.next_one) }, waited(attempts.len()), time_or(waiting.maybe("until"))];
        now.extend([state("waiting"), nothing(), nothing(), nothing()]);
        rows.push(now);
    }
    html! {
        (table(t.attempts, &["#", t.waited_before, t.at, t.result, t.answer, t.took, t.they_said], &rows))
        @if let Some(url) = last_url {
            p.small { (t.sent_to) " " code { (url) }
                @if let Some(hash) = attempts.last().and_then(|last| last.maybe("body_sha256")) { " · SHA-256 " code { (hash) } } }
        }
    }
}

/// How often it was sent to us again, if it was.
fn repeated(event: &Value) -> Markup {
    let count = event.int("duplicate_count");
    if count > 0 {
        html! { (count) }
    } else {
        nothing()
    }
}

/// Where the chain of audit entries is now, for a page that is printed; for who may see the audit.
fn proof(view: &View<'_>) -> Markup {
    let t = view.t;
    if !view.may(Admin) {
        return html! {};
    }
    let found = view.read_or_null("/v1/audit-events", &[("limit", "1")]);
    let now = view.inner().api.env.clock.wall().to_string();
    html! {
        @for newest in found.items("items") {
            p.small { (t.audit_position) " " (newest.int("seq")) ", " (time(&now)) " · SHA-256 " code { (newest.text("hash")) } }
        }
    }
}

/// Headers and payload. Sealed fields stay closed: the API answers them so.
fn content(view: &View<'_>, event: &Value, payload: Option<String>) -> Markup {
    let t = view.t;
    let text = shown(&payload_text(event, payload));
    let (shown, is_all) = beginning(&text, MAX_PAYLOAD_BYTES);
    html! {
        h2 { (t.payload) }
        @if event.int("sealed_fields") > 0 { p.small { (t.sealed_fields) } }
        @match readable(shown) {
            Some(text) => { (code(view, &text)) details { summary { (t.as_written) } (code(view, shown)) } }
            None => (code(view, shown)),
        }
        @if !is_all { p.small { (t.payload_cut) } }
        @if event.maybe("idempotency_key").is_some() && event.maybe("expunged_at").is_none() {
            p { a href={ "/console/events/" (segment(event.text("id"))) "/payload" } download { (t.download) } }
        }
        p.small { (event.text("content_type")) " · SHA-256 " code { (event.text("payload_sha256")) } }
        @if !matches!(event.field("headers").to_string().as_str(), "null" | "{}" | "[]") {
            h2 { (t.headers) }
            (json(view, event.field("headers")))
        }
    }
}

//! One event or webhook event: did it go out, when, what did they answer, why does it wait?

use std::cmp::Reverse;

use crate::console::elements::link_to_event;
use crate::console::json::{readable, shown};
use crate::console::pages::delivery;
use crate::console::pages::events::badge_of_event;
use crate::console::prelude::*;
use crate::console::story;
use crate::console::timeline::Timeline;
use crate::http::message::Response;

/// Deliveries whose attempts are shown; the others are linked.
const MAX_DELIVERIES: usize = 3;
/// How much is shown of a payload: bytes of the page.
const MAX_PAYLOAD_BYTES: usize = 16_000;
/// Attempts that are shown at once of each delivery: the newest, and a link to the others.
const MAX_ATTEMPTS_OF_EACH: i64 = 10;

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
        &[cell("name"), cell("event_type"), cell("state")],
        &[("name", &link_to_event), ("state", &badge_of_event)],
    );
    let sent = DeliveriesOfEvent::read(view, event.text("id"));
    let body = html! {
        (story::of_event(t, &event, &sent.told, &sent.further))
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
        (known.facts(view, &event))
        (sent.show(view))
        @if !children.items("items").is_empty() {
            h2 { (t.children) }
            (child.table(view, t.children, children.items("items"), EmptyNote::default()))
        }
        (exchange(view, &event, payload, &sent))
        (proof(view))
    };
    let title = format!("{}: {}", t.event, name_of(&event));
    Ok(Content::new(title, body).badge(html! { (Standing::of_event(&event, &sent.standing())) }))
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
            cell("origin"),
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
            ("origin", &|event| {
                let came = match event.text("origin") {
                    "listed" => t.origin_listed,
                    "reconciled" => t.origin_reconciled,
                    _ => t.origin_webhook,
                };
                html! { (came) }
            }),
            ("signature", &|event| {
                let checked = |key| html! { (t.signature_checked) " " code { (key) } };
                event.maybe("key_id").map_or_else(nothing, checked)
            }),
        ],
    );
    let sent = DeliveriesOfEvent::read(view, event.text("id"));
    let body = html! {
        (story::of_event(t, &event, &sent.told, &sent.further))
        div.actions {
            @if event.maybe("expunged_at").is_none() {
                (button(view, &actions::REPLAY_WEBHOOK, &[("id", id)]))
            }
        }
        (known.facts(view, &event))
        (sent.show(view))
        (exchange(view, &event, payload, &sent))
    };
    let title = format!("{}: {}", t.webhook, event.text("provider_event_id"));
    Ok(Content::new(title, body).badge(html! { (Standing::of_event(&event, &sent.standing())) }))
}

/// A payload as people read it.
fn payload_text(event: &Value, payload: Option<String>) -> String {
    let text = event.maybe("payload_text").or_else(|| event.maybe("payload_base64"));
    payload.unwrap_or_else(|| text.unwrap_or_default().to_owned())
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
            p.small { (t.audit_position) " " (newest.int("seq")) ", " (t.looked_up) " " (time(&now)) " · SHA-256 " code { (newest.text("hash")) } }
        }
    }
}

/// The deliveries of an event, what needs a person first.
struct DeliveriesOfEvent {
    /// Those that are told with their attempts.
    told: Vec<Timeline>,
    /// The others, as a list has them.
    further: Vec<Value>,
}

impl DeliveriesOfEvent {
    fn read(view: &View<'_>, event: &str) -> Self {
        let found = view.read_or_null("/v1/deliveries", &[("event_id", event), ("limit", "50")]);
        let mut all = found.items("items").to_vec();
        all.sort_by_key(|delivery| Reverse(Standing::of_delivery(delivery).urgency()));
        let further = all.split_off(all.len().min(MAX_DELIVERIES));
        let told = all
            .iter()
            .filter_map(|row| Timeline::read(view, row.text("id"), MAX_ATTEMPTS_OF_EACH, None));
        Self { told: told.collect(), further }
    }

    /// All deliveries, for the badge of their event.
    fn standing(&self) -> Vec<Value> {
        let told = self.told.iter().map(|timeline| timeline.delivery.clone());
        told.chain(self.further.iter().cloned()).collect()
    }

    fn show(&self, view: &View<'_>) -> Markup {
        let t = view.t;
        html! {
            h2 { (t.what_happened) }
            @if self.told.is_empty() { (EmptyNote { text: t.nobody_wants_it, hint: t.nobody_wants_it_help }) }
            @for timeline in &self.told { (delivery::card(view, timeline, MAX_ATTEMPTS_OF_EACH)) }
            @if !self.further.is_empty() {
                ul { @for row in &self.further {
                    li { (link("deliveries", row.text("id"))) " " (row.text("subscription")) " " (state(row.text("state"))) }
                } }
            }
        }
    }
}

/// Payload, request and answer, side by side: those of the delivery that needs a person most.
fn exchange(
    view: &View<'_>,
    event: &Value,
    payload: Option<String>,
    sent: &DeliveriesOfEvent,
) -> Markup {
    let t = view.t;
    let first = sent.told.first();
    html! {
        h2 { (t.exchange) @if let Some(first) = first { ": " (first.delivery.text("subscription")) } }
        div.sides {
            (delivery::panel(t.payload, content(view, event, payload)))
            @if let Some(first) = first {
                (delivery::request(view, first, event.maybe("payload_sha256")))
                (delivery::answer(view, first))
            }
        }
    }
}

/// Payload and header fields. Sealed fields stay closed: the API answers them so.
fn content(view: &View<'_>, event: &Value, payload: Option<String>) -> Markup {
    let t = view.t;
    let text = shown(&payload_text(event, payload));
    let (shown, is_all) = beginning(&text, MAX_PAYLOAD_BYTES);
    html! {
        @if event.int("sealed_fields") > 0 { p.small { (t.sealed_fields) } }
        @match readable(shown) {
            Some(text) => { (code(view, &text)) details #as-written { summary { (t.as_written) } (code(view, shown)) } }
            None => (code(view, shown)),
        }
        @if !is_all { p.small { (t.payload_cut) } }
        p.small { (event.text("content_type")) " · SHA-256 " code { (event.text("payload_sha256")) } }
        @if event.maybe("idempotency_key").is_some() && event.maybe("expunged_at").is_none() {
            p { a href={ "/console/events/" (segment(event.text("id"))) "/payload" } download { (t.download) } }
        }
        @if !matches!(event.field("headers").to_string().as_str(), "null" | "{}" | "[]") {
            details #headers open { summary { (t.headers) } (json(view, event.field("headers"))) }
        }
    }
}

//! The life of a delivery from top to bottom: when it came, its attempts with what was answered, and where it stands now.

use crate::console::elements::Mood;
use crate::console::prelude::*;
use crate::console::texts::Texts;
use crate::console::words::explained;

/// Most bytes of the page for an answer.
const MAX_ANSWER_BYTES: usize = 400;

/// A delivery with the attempts that are shown of it.
pub(super) struct Timeline {
    /// As its own page reads it.
    pub(super) delivery: Value,
    /// The attempts, the oldest first.
    pub(super) attempts: Vec<Value>,
    /// The attempt before them, which tells why the first of them waited.
    earlier: Option<Value>,
    /// The number of attempts before them.
    before: i64,
}

/// A line of it.
struct Entry {
    /// RFC 3339; empty: now.
    at: String,
    mood: Mood,
    text: Markup,
}

impl Timeline {
    /// The delivery of this id with at most so many attempts: those after a number, or the newest.
    /// `None` if there is no such delivery.
    pub(super) fn read(view: &View<'_>, id: &str, most: i64, after: Option<i64>) -> Option<Self> {
        let path = format!("/v1/deliveries/{}", segment(id));
        let delivery = view.read_or_null(&path, &[]);
        if delivery.is_null() {
            return None;
        }
        let newest = (delivery.int("attempt_count") - most).max(0);
        let before = after.unwrap_or(newest).clamp(0, newest);
        let hidden = before.min(1);
        let from = (before - hidden).to_string();
        let limit = (most + hidden).to_string();
        let query = [("after", from.as_str()), ("limit", limit.as_str())];
        let found = view.read_or_null(&format!("{path}/attempts"), &query);
        let mut attempts = found.items("items").to_vec();
        let earlier = (hidden > 0 && !attempts.is_empty()).then(|| attempts.remove(0));
        Some(Self { delivery, attempts, earlier, before })
    }

    /// The newest attempt that is shown.
    pub(super) fn last(&self) -> Option<&Value> {
        self.attempts.last()
    }

    /// Whether the newest attempt of all is shown.
    fn is_to_now(&self) -> bool {
        self.before + self.shown() >= self.delivery.int("attempt_count")
    }

    fn shown(&self) -> i64 {
        i64::try_from(self.attempts.len()).unwrap_or(i64::MAX)
    }

    /// The list of what happened.
    pub(super) fn show(&self, view: &View<'_>) -> Markup {
        html! {
            ol.timeline { @for entry in self.entries(view) {
                li class=(entry.mood.class) {
                    span.when { @if entry.at.is_empty() { (view.t.now) } @else { (time(&entry.at)) } }
                    span.mark aria-hidden="true" { (entry.mood.shape) }
                    div { (entry.text) }
                }
            } }
        }
    }

    fn entries(&self, view: &View<'_>) -> Vec<Entry> {
        let t = view.t;
        let delivery = &self.delivery;
        let mut entries = Vec::new();
        if self.before == 0 {
            let at = delivery.text("created_at").to_owned();
            entries.push(Entry { at, mood: Mood::OFF, text: html! { (t.it_came) } });
        }
        for (n, attempt) in self.attempts.iter().enumerate() {
            let earlier = n.checked_sub(1).and_then(|n| self.attempts.get(n));
            entries.push(self.attempted(view, attempt, earlier.or(self.earlier.as_ref())));
        }
        let from = entries.first().map_or(i64::MIN, |entry| millis(&entry.at));
        let to = if self.is_to_now() {
            i64::MAX
        } else {
            self.last().map_or(from, |last| millis(last.text("finished_at")))
        };
        let was_then = |hold: &&Value| {
            millis(hold.text("ended_at")) >= from && millis(hold.text("since")) <= to
        };
        let holds = delivery.items("past_holds").iter().filter(was_then);
        entries.extend(holds.map(|hold| held(view, hold, delivery.text("created_at"))));
        entries.sort_by_key(|entry| millis(&entry.at));
        if self.is_to_now() {
            entries.extend(self.end(view));
        }
        entries
    }

    fn attempted(&self, view: &View<'_>, attempt: &Value, earlier: Option<&Value>) -> Entry {
        let t = view.t;
        let class = attempt.text("class");
        let since = earlier.map_or_else(
            || self.delivery.text("created_at"),
            |earlier| earlier.text("finished_at"),
        );
        let waited = millis(attempt.text("started_at")).saturating_sub(millis(since));
        let is_elsewhere = self.last().is_some_and(|last| last.text("url") != attempt.text("url"));
        let said = attempt.first_of(&["excerpt", "failed_reason"]);
        let text = html! {
            (t.attempt) " " (attempt.int("n")) ": " (state(class))
            @if let Some(status) = attempt.field("http_status").as_i64() { " " (t.answer_small) " " strong { (status) } }
            " " small {
                (t.took_small) " " (took(attempt.int("latency_ms")))
                @if waited >= 1000 { " · " (t.waited_small) " " (span(waited)) ": " (self.why(t, earlier)) }
                @if !attempt.is("counted") && class != "success" { " · " (t.not_counted) }
                @if is_elsewhere { " · " (t.sent_to) " " code { (attempt.text("url")) } }
            }
            @if !said.is_empty() { div.said { (folded(beginning(said, MAX_ANSWER_BYTES).0)) } }
        };
        Entry { at: attempt.text("started_at").to_owned(), mood: Mood::of(class), text }
    }

    /// Why an attempt waited. What ended a wait is not stored, so the attempt before it tells.
    fn why(&self, t: &Texts, earlier: Option<&Value>) -> &'static str {
        let is_counted = earlier.is_some_and(|earlier| earlier.is("counted"));
        match earlier.map(|earlier| earlier.text("class")) {
            None if self.delivery.maybe("lane").is_some() => t.wait_lane,
            None => t.wait_first,
            Some("transient") if is_counted => t.wait_retry,
            Some("rate_limited") => t.wait_asked,
            Some("auth") => t.wait_auth,
            Some("transient") => t.wait_away,
            Some(_) => t.wait_person,
        }
    }

    /// Where it stands after its attempts; nothing if the last of them says it.
    fn end(&self, view: &View<'_>) -> Option<Entry> {
        let t = view.t;
        let delivery = &self.delivery;
        let standing = Standing::of_delivery(delivery);
        let mood = standing.mood();
        if let Some(detail) = delivery.field("waiting").maybe("detail") {
            let since = self
                .last()
                .map_or_else(|| delivery.text("created_at"), |last| last.text("finished_at"));
            let now = view.inner().api.env.clock.wall().ms();
            let waited = now.saturating_sub(millis(since));
            let text = html! { (t.it_waits) @if waited >= 1000 { " " (span(waited)) } ": " (told(detail)) };
            return Some(Entry { at: String::new(), mood, text });
        }
        let at = delivery.maybe("finished_at")?.to_owned();
        let is_told = delivery.text("state") == "completed" && !self.attempts.is_empty();
        let text = html! { (standing.badge()) @if let Some(reason) = delivery.maybe("reason") { " " (told(reason)) } };
        (!is_told).then_some(Entry { at, mood, text })
    }

    /// Links to the attempts that are not shown.
    pub(super) fn pager(&self, view: &View<'_>, most: i64) -> Markup {
        let t = view.t;
        let count = self.delivery.int("attempt_count");
        let page = format!("/console/deliveries/{}", segment(self.delivery.text("id")));
        html! {
            @if count > most {
                nav.pager aria-label=(t.attempts) {
                    span { (self.before + 1) "–" (self.before + self.shown()) " / " (count) }
                    @if self.before > 0 { a href={ (page) "?after=" ((self.before - most).max(0)) } { (t.earlier) } }
                    @if !self.is_to_now() { a href=(page) { (t.newest_one) } }
                }
            }
        }
    }
}

/// A hold that is over. It began when the delivery came, if not later.
fn held(view: &View<'_>, hold: &Value, came_at: &str) -> Entry {
    let t = view.t;
    let text = html! {
        (t.held_until) " " (time(hold.text("ended_at"))) ": " span data-word=[explained(hold.text("reason"))] { (word(hold.text("reason"))) } ". " (told(hold.text("detail")))
    };
    let since = hold.text("since");
    let at = if millis(since) < millis(came_at) { came_at } else { since };
    Entry { at: at.to_owned(), mood: Mood::WARN, text }
}

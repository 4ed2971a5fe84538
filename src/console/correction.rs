//! A corrected payload: whether it is JSON where it has to be, and how it differs from the stored one.

use std::time::Duration;

use data_encoding::BASE64;
use similar::{ChangeTag, TextDiff};

use crate::console::json::{indented, shown};
use crate::console::prelude::*;

/// Longer payloads are not compared.
const MAX_COMPARED_BYTES: usize = 64 << 10;
/// Lines of a difference at most.
const MAX_LINES: usize = 400;
/// For how long two payloads are compared; after that the difference is coarser.
const MAX_TIME: Duration = Duration::from_millis(200);
/// Unchanged lines beside a changed one.
const CONTEXT: usize = 3;

/// An event, and the payload that is to take the place of its own.
pub(super) struct Correction {
    event: Value,
    before: String,
    after: Vec<u8>,
}

impl Correction {
    /// `given`: the fields that are sent, with the payload in base64. `None`: no other payload is given.
    pub(super) fn new(event: Value, payload: Option<String>, given: &Value) -> Option<Self> {
        let after = BASE64.decode(given.maybe("payload_base64")?.as_bytes()).ok()?;
        let before = payload.or_else(|| event.maybe("payload_text").map(str::to_owned));
        let event = match given.maybe("content_type") {
            Some(_) => given.clone(),
            None => event,
        };
        Some(Self { event, before: before.unwrap_or_default(), after })
    }

    /// Fails with the place at which a payload that has to be JSON is none.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_json = self.event.text("content_type").contains("json");
        let found = serde_json::from_slice::<serde::de::IgnoredAny>(&self.after);
        found.map(drop).or_else(|error| if is_json { Err(error.to_string()) } else { Ok(()) })
    }

    /// Its difference, line by line.
    pub(super) fn difference(&self, view: &View<'_>) -> Markup {
        let t = view.t;
        let after = String::from_utf8_lossy(&self.after);
        if self.before.len().max(after.len()) > MAX_COMPARED_BYTES || self.before.is_empty() {
            return html! { p { (t.not_compared) " " (self.after.len()) } };
        }
        // Both as the page shows JSON: layout is no difference.
        let lines = |text: &str| match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => indented(&shown(text), usize::MAX),
            Err(_) => shown(text),
        };
        let before = lines(&self.before);
        let after = lines(&after);
        let found = TextDiff::configure().timeout(MAX_TIME).diff_lines(&before, &after);
        let groups = found.grouped_ops(CONTEXT);
        let changes: Vec<_> =
            groups.iter().flatten().flat_map(|op| found.iter_changes(op)).collect();
        html! {
            @if changes.is_empty() { p.error { (t.no_difference) } }
            @else {
                pre.difference tabindex="0" {
                    @for change in changes.iter().take(MAX_LINES) {
                        @let line = change.value().trim_end_matches('\n');
                        @match change.tag() {
                            ChangeTag::Delete => del { "- " (line) "\n" },
                            ChangeTag::Insert => ins { "+ " (line) "\n" },
                            ChangeTag::Equal => { "  " (line) "\n" },
                        }
                    }
                }
                @if changes.len() > MAX_LINES { p.small { (t.payload_cut) } }
            }
        }
    }
}

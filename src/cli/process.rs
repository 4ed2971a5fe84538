//! `oncebox event process`: the events of one process and their descendants, as a tree.

use std::collections::BTreeSet;

use crate::cli::noun::items;
use crate::cli::prelude::*;
use crate::cli::show::{self, clean};
use crate::cli::timeline::EVENTS;

/// The most events of a tree, because the children of each are asked for.
const MAX_EVENTS: usize = 500;

/// Prints each event of a process below its parent.
pub(super) fn show(remote: &Remote, process: &str) -> Result<(), Failure> {
    let (mut found, mut is_cut) = page(remote, "process_id", process)?;
    if found.is_empty() {
        let why = format!("there is no event of the process {process:?}");
        return Err(Failure::new(exit::NOT_FOUND, why));
    }
    let mut known: BTreeSet<String> = found.iter().map(|event| text(event, "id")).collect();
    let mut next = 0;
    while let Some(event) = found.get(next) {
        let (children, is_more) = page(remote, "parent_id", &text(event, "id"))?;
        is_cut |= is_more;
        found.extend(children.into_iter().filter(|child| known.insert(text(child, "id"))));
        if found.len() > MAX_EVENTS {
            is_cut = true;
            break;
        }
        next += 1;
    }
    found.truncate(MAX_EVENTS);
    if is_cut {
        out::note(format_args!("There are more events; {MAX_EVENTS} at most are shown."));
    }
    if remote.json() {
        return out::json(&json!({ "items": found }));
    }
    found.sort_by_key(|event| text(event, "received_at"));
    let mut lines: Vec<(usize, &Value)> = Vec::new();
    let is_root = |event: &&Value| !known.contains(&text(event, "parent_id"));
    let mut open: Vec<_> = found.iter().filter(is_root).rev().map(|event| (0, event)).collect();
    while let Some((level, event)) = open.pop() {
        lines.push((level, event));
        let id = text(event, "id");
        let is_child = |child: &&Value| text(child, "parent_id") == id;
        open.extend(found.iter().filter(is_child).rev().map(|child| (level + 1, child)));
    }
    lines.iter().try_for_each(|(level, event)| line(*level, event))
}

fn line(level: usize, event: &Value) -> Result<(), Failure> {
    let indent = "  ".repeat(level);
    let what = clean(&format!("{} {}", text(event, "event_type"), show::about(event)));
    let binding = match text(event, "parent_binding") {
        binding if binding.is_empty() => String::new(),
        binding => format!("  {binding}"),
    };
    let status = text(event, "status");
    let id = text(event, "id");
    out::line(format_args!("{:<44} {status:<12} {id}{binding}", format!("{indent}{what}")))
}

/// The newest events with a field, and whether there are more.
fn page(remote: &Remote, field: &str, value: &str) -> Result<(Vec<Value>, bool), Failure> {
    let query = [(field, value.to_owned()), ("limit", MAX_EVENTS.to_string())];
    let page = remote.get(&with_query(EVENTS.path, &query))?;
    Ok((items(&page), page.get("next").is_some_and(|next| !next.is_null())))
}

//! What is wrong with the rows of a file, as its reason tells it.

use std::collections::BTreeMap;

use crate::model::event::NewEvent;

/// Mistakes of one file that its reason lists.
const MAX_MISTAKES: usize = 20;

/// What is wrong with the rows of a file: the first ones, and how many there are.
#[derive(Default)]
pub(super) struct Mistakes {
    first: Vec<String>,
    count: usize,
}

impl Mistakes {
    /// Notes one; nothing is written of those that are only counted.
    pub(super) fn add(&mut self, why: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < MAX_MISTAKES {
            self.first.push(why());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of it as one reason; `None` where nothing is wrong.
    pub(super) fn told(mut self) -> Option<String> {
        let more = self.count.saturating_sub(self.first.len());
        if more > 0 {
            self.first.push(format!("and {more} more"));
        }
        (self.count > 0).then(|| self.first.join("\n"))
    }
}

/// Those that are known by the key of one before, which they contradict.
pub(super) fn contradictions(events: &[NewEvent]) -> Vec<(usize, usize)> {
    let mut known: BTreeMap<(&str, &str), (usize, &NewEvent)> = BTreeMap::new();
    let mut found = Vec::new();
    for (n, event) in events.iter().enumerate() {
        let key = (event.source_system.as_str(), event.idempotency_key.as_str());
        let (first, before) = *known.entry(key).or_insert((n, event));
        if !before.says_the_same(event) {
            found.push((first, n));
        }
    }
    found
}

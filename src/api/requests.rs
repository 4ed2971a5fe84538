//! Counts answers by route and by class of status. All unknown paths share one counter, so that clients cannot make
//! labels.

use std::time::Duration;

use crate::telemetry::tally::{self, Counter, Histogram};

/// The classes of status codes.
pub(super) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Answers so far.
#[derive(Debug)]
pub(super) struct Requests {
    /// For each route its method and path, and its answers.
    by_route: Vec<(&'static str, &'static str, [Counter; 5])>,
    /// Answers to unknown paths and invalid requests.
    no_route: [Counter; 5],
    /// From the head to the answer.
    pub(super) span: Histogram,
}

impl Requests {
    /// Starts to count, for routes of these methods and paths.
    pub(super) fn new(routes: impl Iterator<Item = (&'static str, &'static str)>) -> Self {
        Self {
            by_route: routes.map(|(method, path)| (method, path, Default::default())).collect(),
            no_route: Default::default(),
            span: Histogram::new(tally::SPANS),
        }
    }

    /// Counts an answer; `index` is the route's among those of [`Self::new`].
    pub(super) fn count(&self, index: Option<usize>, status: u16, took: Duration) {
        let known = index.and_then(|index| self.by_route.get(index));
        let counters = known.map_or(&self.no_route, |(.., counters)| counters);
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = counters.get(class) {
            counter.add();
        }
        self.span.note_span(took);
    }

    /// Method, path, class and count of answers; counts of 0 are left out.
    pub(super) fn read(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let known = self.by_route.iter().map(|(method, path, each)| (*method, *path, each));
        let all = known.chain([("", "none", &self.no_route)]);
        all.flat_map(|(method, path, counters)| {
            let each = CLASSES.into_iter().zip(counters);
            each.map(move |(class, counter)| (method, path, class, counter.get()))
        })
        .filter(|(.., count)| *count > 0)
        .collect()
    }
}

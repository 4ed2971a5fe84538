//! Counts answers by route and by class of status. A path that is no route counts as one, so that nobody
//! outside can make labels.

use std::time::Duration;

use crate::api::route::Route;
use crate::api::routes;
use crate::telemetry::tally::{self, Counter, Histogram};

/// The classes of status codes.
pub(super) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Answers so far.
#[derive(Debug)]
pub(super) struct Requests {
    /// For each route of [`routes`], in its order.
    by_route: Vec<[Counter; 5]>,
    /// What was no route, or no request.
    elsewhere: [Counter; 5],
    /// From the head to the answer.
    pub(super) span: Histogram,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            by_route: routes().map(|_| Default::default()).collect(),
            elsewhere: Default::default(),
            span: Histogram::new(tally::SPANS),
        }
    }
}

impl Requests {
    /// Counts an answer.
    pub(super) fn note(&self, route: Option<&'static Route>, status: u16, took: Duration) {
        let place = route.and_then(|route| routes().position(|one| std::ptr::eq(one, route)));
        let counters = place.and_then(|place| self.by_route.get(place)).unwrap_or(&self.elsewhere);
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = counters.get(class) {
            counter.add();
        }
        self.span.note_span(took);
    }

    /// Method, path, class and number of answers, where there were any.
    pub(super) fn read(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let known = routes().map(|route| (route.method.as_str(), route.path)).zip(&self.by_route);
        let all = known.chain([(("", "none"), &self.elsewhere)]);
        all.flat_map(|((method, path), counters)| {
            let each = CLASSES.into_iter().zip(counters);
            each.map(move |(class, counter)| (method, path, class, counter.get()))
        })
        .filter(|(.., count)| *count > 0)
        .collect()
    }
}

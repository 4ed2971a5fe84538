//! Traces for a collector of OpenTelemetry: each attempt is a span of its event's trace. There are none unless the settings
//! name a collector (`traces.endpoint`).
//!
//! Nobody waits for a trace. Spans go through a bounded queue to a thread of their own ([`exporter`]); those that the
//! collector does not take in time are dropped and counted. A span has no content of its event ([`span`]).

pub mod exporter;
pub mod span;

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::telemetry::tally::Counter;
use crate::traces::span::AttemptSpan;

/// Spans that wait at most: a few seconds of a busy box, and less than 4 MB.
const MAX_WAITING: usize = 4_096;

/// Spans since the start.
#[derive(Debug, Default)]
pub struct SpanCounts {
    /// The collector took them.
    pub exported: Counter,
    /// There was no room for them, or the collector did not take them.
    pub dropped: Counter,
}

/// The queue of spans. Clones share it; without a collector there is none, and spans are not made.
#[derive(Clone, Debug, Default)]
pub struct SpanQueue {
    waiting: Option<Sender<AttemptSpan>>,
    counts: Arc<SpanCounts>,
}

impl SpanQueue {
    /// A queue for a collector, and its end.
    fn with_collector() -> (Self, Receiver<AttemptSpan>) {
        let (waiting, spans) = bounded(MAX_WAITING);
        (Self { waiting: Some(waiting), counts: Arc::default() }, spans)
    }

    /// Leaves a span, if there is a collector. Never waits: with a full queue the span is dropped.
    pub fn leave(&self, span: impl FnOnce() -> Option<AttemptSpan>) {
        let Some(waiting) = &self.waiting else { return };
        let Some(span) = span() else { return };
        if waiting.try_send(span).is_err() {
            self.counts.dropped.add();
        }
    }

    /// What became of the spans.
    pub fn counts(&self) -> &SpanCounts {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_spans_and_nobody_waits() {
        let (queue, spans) = SpanQueue::with_collector();
        for _ in 0..MAX_WAITING + 3 {
            queue.leave(|| Some(AttemptSpan::default()));
        }
        assert_eq!((spans.len(), queue.counts().dropped.get()), (MAX_WAITING, 3));
    }

    #[test]
    fn without_a_collector_no_span_is_made() {
        SpanQueue::default().leave(|| panic!("a span is made"));
    }
}

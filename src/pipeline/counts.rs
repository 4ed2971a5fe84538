//! Counters and histograms of the stages, since the start.
//!
//! Not here: names and labels of metrics; they are in `api::metrics`.

use std::time::Duration;

use crate::model::attempt::AttemptReport;
use crate::model::failure::Next;
use crate::model::history::Subject;
use crate::model::outcome::AttemptClass;
use crate::model::settlement::Settlement;
use crate::pipeline::history::History;
use crate::pipeline::recent::Recent;
use crate::store::outbox_relay::Relayed;
use crate::telemetry::tally::{self, Counter, Histogram};

/// Counters and histograms of the stages.
#[derive(Debug)]
pub struct Counts {
    /// Webhooks stored for the first time.
    pub webhooks_stored: Counter,
    /// Webhooks that were stored before.
    pub webhooks_repeated: Counter,
    /// Webhooks whose signature was not accepted.
    pub webhooks_refused: Counter,
    /// Webhooks that providers must send again later, such as while our clock is suspect.
    pub webhooks_deferred: Counter,
    /// Webhooks that a policy on personal data refused.
    pub webhooks_unwanted: Counter,
    /// Webhooks that could not be stored.
    pub webhooks_failed: Counter,
    /// Events stored for the first time.
    pub events_stored: Counter,
    /// Events that were stored before, with the same content.
    pub events_repeated: Counter,
    /// Events that were stored before, with other content.
    pub events_differing: Counter,
    /// Publish requests that a policy on personal data refused.
    pub publishes_unwanted: Counter,
    /// Publish requests of which nothing could be stored.
    pub publishes_failed: Counter,
    /// Events inserted by plain SQL that were routed.
    pub sql_routed: Counter,
    /// Events inserted by plain SQL that cannot be used.
    pub sql_quarantined: Counter,
    /// Rows of sources that could not be used and were quarantined.
    pub events_quarantined: Counter,
    /// Files of drop folders that were read.
    pub files_taken: Counter,
    /// Files of drop folders that were refused.
    pub files_rejected: Counter,
    /// Settled attempts by class.
    attempts: [(AttemptClass, Counter); 7],
    /// Deliveries completed.
    pub completed: Counter,
    /// Deliveries given up.
    pub dead_lettered: Counter,
    /// Health probes that worked.
    pub probes_worked: Counter,
    /// Health probes that failed.
    pub probes_failed: Counter,
    /// How long attempts took.
    pub attempt_span: Histogram,
    /// From an event's arrival to its completed delivery, all waits included.
    pub delivered_span: Histogram,
    /// What happened in the last hour.
    pub recent: Recent,
    /// What happened to each subscription and provider since it was stored last.
    pub history: History,
}

impl Counts {
    /// Nothing is counted yet but what happened in the last hour.
    pub fn new(recent: Recent) -> Self {
        Self {
            webhooks_stored: Counter::default(),
            webhooks_repeated: Counter::default(),
            webhooks_refused: Counter::default(),
            webhooks_deferred: Counter::default(),
            webhooks_unwanted: Counter::default(),
            webhooks_failed: Counter::default(),
            events_stored: Counter::default(),
            events_repeated: Counter::default(),
            events_differing: Counter::default(),
            publishes_unwanted: Counter::default(),
            publishes_failed: Counter::default(),
            sql_routed: Counter::default(),
            sql_quarantined: Counter::default(),
            events_quarantined: Counter::default(),
            files_taken: Counter::default(),
            files_rejected: Counter::default(),
            attempts: AttemptClass::ALL.map(|class| (class, Counter::default())),
            completed: Counter::default(),
            dead_lettered: Counter::default(),
            probes_worked: Counter::default(),
            probes_failed: Counter::default(),
            attempt_span: Histogram::new(tally::SPANS),
            delivered_span: Histogram::new(tally::LONG_SPANS),
            recent,
            history: History::default(),
        }
    }

    /// Counts rows that plain SQL inserted.
    pub fn relayed(&self, relayed: &Relayed) {
        self.sql_routed.add_many(relayed.routed);
        self.sql_quarantined.add_many(relayed.quarantined);
        for (tenant, rows) in &relayed.tenants {
            self.recent.accepted(tenant, *rows, 0);
        }
    }

    /// Counts the events of one request or batch: new, stored before, and different from the stored event.
    pub fn admitted(&self, tenant: &str, events: impl Iterator<Item = (bool, bool)>) {
        let mut new = 0_u32;
        for (repeated, differs) in events {
            self.admitted_one(repeated, differs);
            new = new.saturating_add(u32::from(!repeated));
        }
        self.recent.accepted(tenant, new, 0);
    }

    fn admitted_one(&self, repeated: bool, differs: bool) {
        let counter = match (repeated, differs) {
            (false, _) => &self.events_stored,
            (true, false) => &self.events_repeated,
            (true, true) => &self.events_differing,
        };
        counter.add();
    }

    /// Counts a settled attempt.
    pub fn settled(&self, settlement: &Settlement) {
        let latency = Duration::from_millis(settlement.report.attempt.latency_ms.into());
        self.attempt_span.note_span(latency);
        self.count(settlement, true);
    }

    fn count(&self, settlement: &Settlement, is_ours: bool) {
        let AttemptReport { delivery, subscription, attempt, .. } = &*settlement.report;
        self.recent.attempted(*subscription, *delivery, attempt, is_ours);
        let took_ms = is_ours.then_some(attempt.latency_ms);
        let subject = Subject::Subscription(*subscription);
        self.history.note(subject, attempt.finished_at, !attempt.class.is_success(), took_ms);
        if let Some((_, counter)) = self.attempts.iter().find(|(of, _)| *of == attempt.class) {
            counter.add();
        }
        self.count_end(settlement);
    }

    fn count_end(&self, settlement: &Settlement) {
        let AttemptReport { subscription, accepted_at, attempt, .. } = &*settlement.report;
        match settlement.verdict.next {
            Next::Complete => {
                self.completed.add();
                self.recent.completed(*subscription);
                let taken = attempt.finished_at.since(*accepted_at);
                self.delivered_span.note_span(taken);
            }
            Next::GiveUp(_) => self.dead_lettered.add(),
            Next::Confirm(_) | Next::Retry(_) | Next::Park(_) => (),
        }
    }

    /// Counts a settled lease. Its time is not noted: the latency histogram is of our own attempts only.
    pub fn consumed(&self, settlement: &Settlement) {
        self.count(settlement, false);
    }

    /// Counts a confirmation. The attempt of one that says `ok` was counted when it was accepted.
    pub fn confirmed(&self, settlement: &Settlement) {
        if settlement.report.attempt.class.is_success() {
            self.count_end(settlement);
        } else {
            self.count(settlement, false);
        }
    }

    /// Settled attempts by class.
    pub fn attempts(&self) -> impl Iterator<Item = (AttemptClass, u64)> {
        self.attempts.iter().map(|(class, counter)| (*class, counter.get()))
    }
}

//! The last step of an attempt: its report is made and handed in.

use crate::base::headers::CUSTOM_DATA;
use crate::model::attempt::{Attempt, AttemptOrder, AttemptReport};
use crate::model::delivery::{Jitter, is_custom_data};
use crate::model::event::is_sampled;
use crate::model::outcome::{AttemptClass, Outcome};
use crate::model::subscription::Target;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::exchange::Exchange;
use crate::pipeline::deliver::inconclusive::{cut_short, is_cut};
use crate::pipeline::deliver::opened::OpenedDelivery;
use crate::pipeline::prelude::*;
use crate::privacy::policy::ResponseScrub;
use crate::store::settlement;
use crate::traces::span::AttemptSpan;

/// An attempt that has ended, as the dispatcher is told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedAttempt {
    /// The subscription's time limit.
    pub(super) limit: Duration,
    pub(super) class: AttemptClass,
    /// Whether it was a first try that was cut short.
    pub(super) is_cut: bool,
}

impl Deliverer {
    /// Reports an exchange: hands in what happened, once it is known whether it says something about the target.
    pub(super) fn report(&self, opened: &OpenedDelivery<'_>, exchange: Exchange) -> EndedAttempt {
        let OpenedDelivery { assignment, outgoing, destination, seals, .. } = opened;
        let Exchange { request, outcome } = exchange;
        let latency = self.env.clock.monotonic().saturating_sub(opened.started);
        let class = destination.classes.classify(&outcome);
        let is_cut = opened.is_short() && is_cut(latency, &outcome);
        let is_one_by_one = destination.subscription.new.sends_one_by_one();
        let order = AttemptOrder {
            is_latest_only: opened.is_latest_only(),
            is_call: opened.call.is_some() && request.is_some(),
            custom_data: custom_data(&outcome, outgoing.delivery, &seals.echo),
            can_wait: class.is_success() && !is_one_by_one && !assignment.is_probe,
        };
        // Before it is judged: what is given up tells the reason as well.
        let outcome = outcome.map_reason(|reason| {
            let reason = cleaned(&seals.echo, reason);
            if is_cut { cut_short(reason) } else { reason }
        });
        let is_inconclusive = self.is_inconclusive(opened, is_cut, &outcome);
        let report = AttemptReport {
            delivery: outgoing.delivery,
            subscription: outgoing.subscription,
            run_no: outgoing.run_no,
            accepted_at: outgoing.accepted_at,
            code: if class.is_success() { String::new() } else { outcome.code() },
            retry_after: outcome.retry_after(),
            is_away: outcome.is_away(),
            attempt: self.attempt(opened, Exchange { request, outcome }, class, latency),
            rules: destination.rules.of_event(outgoing.max_attempts),
            jitter: Jitter::new(&*self.env.draw),
            is_probe: assignment.is_probe,
            is_inconclusive: is_inconclusive.unwrap_or(false),
            order,
            now: self.env.clock.now(),
        };
        self.traces.leave(|| span_of(opened, &report.attempt));
        match is_inconclusive {
            Some(_) => self.settle(Arc::new(report)),
            None => self.settle_in_doubt(report, opened.started),
        }
        EndedAttempt { limit: destination.timeout, class, is_cut }
    }

    /// Whether an attempt says nothing about its target: it was cut short, nothing was tried, or the site is offline;
    /// `None`: the line has to be asked.
    fn is_inconclusive(
        &self,
        opened: &OpenedDelivery<'_>,
        is_cut: bool,
        outcome: &Outcome,
    ) -> Option<bool> {
        if is_cut || outcome.is_postponed() {
            return Some(true);
        }
        self.is_offline(&opened.destination.subscription, opened.started, outcome)
    }

    /// The attempt, as it is stored unless it is judged otherwise.
    fn attempt(
        &self,
        opened: &OpenedDelivery<'_>,
        exchange: Exchange,
        class: AttemptClass,
        latency: Duration,
    ) -> Attempt {
        let OpenedDelivery { outgoing, destination, seals, started_at, .. } = opened;
        let Exchange { request, outcome } = exchange;
        let is_sealed = seals.stored.is_some();
        let mut attempt = request
            .map(|request| request.into_attempt(&outcome, destination, is_sealed))
            .unwrap_or_default();
        if attempt.url.is_empty() {
            attempt.url = destination.subscription.new.target.unfilled_url();
        }
        Attempt {
            n: outgoing.attempt_count.saturating_add(1),
            started_at: *started_at,
            finished_at: self.env.clock.wall(),
            class,
            counted: false,
            http_status: outcome.status(),
            latency_ms: u32::try_from(latency.as_millis()).unwrap_or(u32::MAX),
            failed_reason: outcome.failed_reason(class),
            excerpt: excerpt_of(outcome),
            ..attempt
        }
    }

    /// Hands in a report once the line to the outside has been asked.
    fn settle_in_doubt(&self, report: AttemptReport, started: Duration) {
        let deliverer = self.clone();
        let settle = move |is_inconclusive| {
            deliverer.settle(Arc::new(AttemptReport { is_inconclusive, ..report }));
        };
        self.line.doubt(started, Box::new(settle));
    }

    /// Hands in a report. What the disk refuses for now is handed in again by upkeep; until then the delivery stays in
    /// hand and is not sent again.
    pub fn settle(&self, report: Arc<AttemptReport>) {
        let again = Arc::clone(&report);
        let unsettled = self.unsettled.clone();
        let counts = Arc::clone(&self.counts);
        let queue = if report.order.can_wait { Queue::Later } else { Queue::Settle };
        self.env.store.writer().submit(
            queue,
            move |tx| settlement::settle(tx, &report),
            move |outcome| {
                let error = match outcome {
                    Ok(settled) => return settled.iter().for_each(|settled| counts.settled(settled)),
                    Err(error) => error,
                };
                let delivery = again.delivery;
                if error.is_lasting() {
                    // Handing it in again would fail again. It stays in hand: the next start sends it.
                    tracing::error!(%error, %delivery, "an outcome cannot be stored");
                    return;
                }
                tracing::error!(%error, %delivery, "an outcome could not be stored; it is kept and tried again");
                drop(unsettled.send(again));
            },
        );
    }
}

/// An attempt as a span of its event's trace; `None` if nothing was sent, or the trace is not recorded.
fn span_of(opened: &OpenedDelivery<'_>, attempt: &Attempt) -> Option<AttemptSpan> {
    let OpenedDelivery { outgoing, destination, .. } = opened;
    let new = &destination.subscription.new;
    let host = match &new.target {
        Target::Http(url) => Some(url.authority().to_owned()),
        _ => None,
    };
    let span = attempt.span.clone().filter(|_| is_sampled(&outgoing.trace_flags()))?;
    Some(AttemptSpan {
        trace: outgoing.trace(),
        span,
        parent: outgoing.parent_span(),
        started_at: attempt.started_at,
        finished_at: attempt.finished_at,
        tenant: outgoing.tenant.clone(),
        subscription: new.name.to_string(),
        event: outgoing.event_id.clone(),
        event_type: outgoing.event_type.clone(),
        delivery: outgoing.delivery.to_string(),
        n: attempt.n,
        class: attempt.class,
        method: attempt.method.clone(),
        host,
        http_status: attempt.http_status,
    })
}

/// The text that an answer says to send back, if it can be stored and sent.
fn custom_data(outcome: &Outcome, delivery: DeliverySeq, echo: &ResponseScrub) -> Option<String> {
    let Outcome::Answered { custom_data: Some(data), .. } = outcome else { return None };
    let is_clean = echo.is_idle() || echo.clean(data.clone()) == *data;
    if is_clean && is_custom_data(data) {
        return Some(data.clone());
    }
    tracing::warn!(
        %delivery,
        "the answer's {CUSTOM_DATA} is ignored: it may have 1,024 printable ASCII characters, and no personal data"
    );
    None
}

/// A reason without the data that was sealed. It is always told, however much of it that is.
pub(super) fn cleaned(echo: &ResponseScrub, reason: String) -> String {
    if echo.is_idle() { reason } else { echo.clean_reason(reason) }
}

fn excerpt_of(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Answered { excerpt, .. } | Outcome::Accepted { excerpt }
            if !excerpt.is_empty() =>
        {
            Some(excerpt)
        }
        _ => None,
    }
}

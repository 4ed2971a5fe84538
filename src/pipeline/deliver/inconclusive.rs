//! Attempts that say nothing about their target: a first try that was cut short, and those of a site that is offline.

use crate::model::outcome::{Cause, Outcome};
use crate::model::subscription::{Subscription, Target};
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::decisions::FIRST_TRY;
use crate::store::subscriptions;

/// Why an attempt of a new target ended early.
const CUT_SHORT: &str = "a first try of one second, because many new targets are called; it is not counted, and the next \
                         attempt has all of its time";

/// Whether a short attempt ended because of its time limit.
pub fn is_cut(latency: Duration, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Unreachable { cause: Cause::Timeout, .. } => true,
        Outcome::Unreachable { .. } | Outcome::NoToken { .. } => latency >= FIRST_TRY,
        _ => false,
    }
}

/// Why an attempt failed that was cut short.
pub(super) fn cut_short(reason: String) -> String {
    format!("{reason} ({CUT_SHORT})")
}

impl Deliverer {
    /// Whether a request that began at a time (monotonic) failed because the site is offline; `None`: the line has to be
    /// asked.
    pub fn is_offline(
        &self,
        called: &Subscription,
        started: Duration,
        outcome: &Outcome,
    ) -> Option<bool> {
        if self.needs_line(called) { self.line.note(started, outcome) } else { Some(false) }
    }

    /// Whether a subscription that was just called needs the line to the outside. Where its host is, is stored when it has
    /// changed: a site that is offline goes on calling hosts on its own network.
    fn needs_line(&self, called: &Subscription) -> bool {
        let Target::Http(url) = &called.new.target else { return false };
        if !called.new.target.needs_network() {
            return false;
        }
        let known = called.site_host.as_deref() == Some(url.host());
        let is_on_site = self.sender.is_on_site(url.host()).unwrap_or(known);
        if is_on_site != known && url.literal_ip().is_none() {
            self.note_site_host(called.seq, is_on_site.then(|| url.host().to_owned()));
        }
        !is_on_site
    }

    fn note_site_host(&self, subscription: SubscriptionSeq, host: Option<String>) {
        let note =
            move |tx: &WriteTx<'_>| subscriptions::set_site_host(tx, subscription, host.as_deref());
        self.env.store.writer().submit(Queue::Upkeep, note, |stored| {
            if let Err(error) = stored {
                tracing::warn!(%error, "where a host is could not be stored; it is tried again");
            }
        });
    }
}

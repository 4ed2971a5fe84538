//! What is known of one subscription: what may be sent, what is under way, and how fast its target is.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;

/// Rows fetched beyond what may be in flight: enough that a fetch is rare, few enough to be cheap.
const WINDOW_ROWS: u32 = 64;
/// A window is filled again when it holds this many or fewer.
const WINDOW_LOW: usize = 16;
/// Deliveries of one subscription that may wait for their settlement before no more are fetched.
const MAX_UNSETTLED: usize = 2048;
/// An endpoint hangs that took so long, or half of its time limit where that is shorter.
const HANGS_FROM: Duration = Duration::from_secs(5);
/// A subscription may exceed its cap only while it answers faster than this.
const FAST_ENOUGH: Duration = Duration::from_secs(1);
/// Latencies remembered per subscription.
const LATENCIES_KEPT: usize = 20;

/// How long an endpoint kept its last deliverer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Not long, whatever it answered.
    Prompt,
    /// It has had no attempt yet.
    #[default]
    Unknown,
    /// To the end of its time limit, or nearly.
    Hangs,
}

/// Requests in flight: of one subscription, of one tenant, of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) busy: usize,
    /// Of those, to endpoints that are not known to be prompt.
    unproven: usize,
    /// Of those, to endpoints that hang.
    hanging: usize,
}

impl Load {
    /// Whether one more request may start when `most` deliverers may be busy. Endpoints that hang get half of them,
    /// and no more than three quarters wait for endpoints that may hang.
    pub(super) fn has_room(self, pace: Pace, most: usize) -> bool {
        let is_spared = self.unproven < most - most / 4;
        self.busy < most
            && match pace {
                Pace::Prompt => true,
                Pace::Unknown => is_spared,
                Pace::Hangs => is_spared && self.hanging < most.div_ceil(2),
            }
    }

    /// Whether more than half of the deliverers are idle, for one more request to an endpoint that has one. To a
    /// prompt one those that may hang do not count: it would wait for their time limits.
    pub(super) fn is_plenty(self, pace: Pace, most: usize) -> bool {
        let lost = if pace == Pace::Prompt { self.unproven } else { 0 };
        (most - self.busy) * 2 > most - lost
    }

    /// Replaces one part of it by another.
    pub(super) fn replace(&mut self, old: Self, new: Self) {
        self.busy = self.busy.saturating_add(new.busy).saturating_sub(old.busy);
        self.unproven = self.unproven.saturating_add(new.unproven).saturating_sub(old.unproven);
        self.hanging = self.hanging.saturating_add(new.hanging).saturating_sub(old.hanging);
    }
}

/// The due deliveries of one subscription, and what it may do with them.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each true or not")]
pub(super) struct Window {
    pub(super) tenant: String,
    pub(super) pace: Pace,
    pub(super) cap: usize,
    /// Whether the cap holds however fast the target answers.
    pub(super) hard: bool,
    pub(super) callable: bool,
    /// Fetched, not started.
    pub(super) ready: VecDeque<DeliverySeq>,
    /// Started, not finished.
    pub(super) in_flight: usize,
    /// Fetched, not settled.
    pub(super) in_hand: usize,
    /// Whether there may be due rows that were not fetched.
    pub(super) look: bool,
    /// Whether a fetch was asked for and not answered.
    pub(super) fetching: bool,
    /// Whether nothing is fetched because it was put off.
    pub(super) rests: bool,
    /// Whether it stands in the rotation.
    pub(super) queued: bool,
    pub(super) next_due: Option<Timestamp>,
    latencies: VecDeque<Duration>,
}

impl Window {
    pub(super) fn new(tenant: String, pace: Pace) -> Self {
        Self { tenant, pace, ..Self::default() }
    }

    /// Whether it may start one more: its first always, others once it has had an attempt, while `plenty` of
    /// deliverers are idle and its cap allows it or its target is fast.
    pub(super) fn has_room(&self, plenty: bool) -> bool {
        let is_known = self.pace != Pace::Unknown;
        let has_more = self.in_flight < self.cap || (!self.hard && self.is_fast());
        self.in_flight == 0 || (is_known && plenty && has_more)
    }

    /// What it adds to the load.
    pub(super) fn load(&self) -> Load {
        let busy = self.in_flight;
        let unproven = if self.pace == Pace::Prompt { 0 } else { busy };
        let hanging = if self.pace == Pace::Hangs { busy } else { 0 };
        Load { busy, unproven, hanging }
    }

    /// Whether it has something due, or may have.
    pub(super) fn has_due(&self) -> bool {
        self.callable && (self.fetching || !self.ready.is_empty())
    }

    /// Whether it is to get a turn.
    pub(super) fn wants_turn(&self) -> bool {
        self.has_due() || (self.callable && self.look)
    }

    /// Whether it holds little enough to be filled again, and may be.
    pub(super) fn wants_rows(&self) -> bool {
        self.callable
            && self.look
            && !self.fetching
            && !self.rests
            && self.ready.len() <= WINDOW_LOW
            && self.in_hand <= MAX_UNSETTLED
    }

    /// How many rows to ask for.
    pub(super) fn rows_wanted(&self) -> u32 {
        let beside = u32::try_from(self.in_hand.saturating_add(self.cap)).unwrap_or(u32::MAX);
        WINDOW_ROWS.saturating_add(beside.min(4096))
    }

    fn is_fast(&self) -> bool {
        let slow = self.latencies.iter().filter(|latency| **latency >= FAST_ENOUGH).count();
        !self.latencies.is_empty() && slow.saturating_mul(20) <= self.latencies.len()
    }

    /// Remembers how long a request took, and what that says if its time limit is known.
    pub(super) fn note(&mut self, latency: Duration, limit: Option<Duration>) {
        if let Some(limit) = limit {
            let hangs = latency >= HANGS_FROM.min(limit / 2);
            self.pace = if hangs { Pace::Hangs } else { Pace::Prompt };
        }
        if self.latencies.len() == LATENCIES_KEPT {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
    }
}

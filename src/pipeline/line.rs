//! Whether the site has a line to the outside.
//!
//! Being offline is not an endpoint's failure: while the line is down nothing is called and nothing is counted. The line
//! is down when an attempt had no answer, no other one has had one just now, and the probe fails too. The probe connects
//! to the configured addresses; where there are none, it looks for a default route.
//!
//! An attempt that began while the line was down may fail after it works again: a connection is waited for. Where the
//! probe costs nothing it is made once a second, so that such an attempt is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock::Clock;
use crate::base::id;
use crate::config::Live;
use crate::http::client::Sender;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::hold::{Hold, HoldReason};
use crate::model::outcome::{Cause, Outcome};
use crate::model::tenant;
use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, escalations, holds, meta, subscriptions};

/// How long the answer of a probe, or of a host, holds. Many attempts fail at once when a line goes down.
const PROBE_HOLDS: Duration = Duration::from_secs(1);
/// How long a line that is back may fail without that being a host's failure, until a host has answered: a switch takes
/// up to 50 s to let packets through a port that has a link.
const UNPROVEN: Duration = Duration::from_mins(1);
const SUBJECT: &str = "site";

/// The line.
pub struct Line {
    store: Store,
    clock: Clock,
    settings: Live,
    sender: Arc<dyn Sender>,
    is_down: Arc<AtomicBool>,
    /// Whether the probe has ever passed here. A site without a default route that reaches its own network alone is not
    /// offline.
    was_seen: AtomicBool,
    /// Whether the file says so.
    is_stored: AtomicBool,
    /// When a host last answered, in milliseconds of the monotonic clock.
    answered_ms: AtomicI64,
    /// When the line was last seen down, by the same clock.
    down_ms: AtomicI64,
    /// Held while the state here and that of the file are changed, so that both end the same.
    in_order: Mutex<()>,
    /// Until when the line is back and not proven, by the same clock.
    unproven_until_ms: AtomicI64,
    /// When the line was last probed, and what came of it.
    probed: Mutex<Option<(Duration, bool)>>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("is_down", &self.is_down).finish_non_exhaustive()
    }
}

impl Line {
    /// The line as the file has it.
    pub fn new(
        (store, clock): (Store, Clock),
        settings: Live,
        sender: Arc<dyn Sender>,
    ) -> Result<Self> {
        let is_down = store.read(holds::of_site)?.is_some();
        let was_seen = is_down || store.read(meta::has_had_line)?;
        Ok(Self {
            store,
            clock,
            settings,
            sender,
            is_down: Arc::new(AtomicBool::new(is_down)),
            was_seen: AtomicBool::new(was_seen),
            is_stored: AtomicBool::new(was_seen),
            answered_ms: AtomicI64::new(i64::MIN),
            down_ms: AtomicI64::new(i64::MIN),
            in_order: Mutex::default(),
            unproven_until_ms: AtomicI64::new(i64::MIN),
            probed: Mutex::default(),
        })
    }

    /// Notes how an attempt over the network ended that began at `started` (monotonic); tells whether it failed because
    /// the line is down.
    pub fn note(&self, started: Duration, outcome: &Outcome) -> bool {
        let (now, is_down) = (self.clock.monotonic(), self.is_down.load(Ordering::Relaxed));
        match outcome {
            // Nothing was sent.
            Outcome::Blocked { .. } | Outcome::Unbuildable { .. } => return false,
            Outcome::Answered { .. }
            | Outcome::Unreachable { cause: Cause::Refused | Cause::Tls, .. } => {
                self.answered_ms.store(ms(now), Ordering::Relaxed);
                self.remember();
                self.unproven_until_ms.store(i64::MIN, Ordering::Relaxed);
                return is_down && outcome.status().is_none();
            }
            Outcome::Unreachable {
                cause: Cause::NoConnection | Cause::Timeout | Cause::Broken,
                ..
            } => {}
        }
        if is_down {
            return true;
        }
        let was_down = self.down_ms.load(Ordering::Relaxed) >= ms(started)
            || self.unproven_until_ms.load(Ordering::Relaxed) > ms(started);
        let answered = self.answered_ms.load(Ordering::Relaxed);
        let is_fresh = ms(now).saturating_sub(answered) < ms(PROBE_HOLDS);
        if (answered > ms(started) && is_fresh) || self.probe(started) {
            return was_down;
        }
        let is_asked_for = !self.settings.get().delivery.line_probe.is_empty();
        if !is_asked_for && !self.was_seen.load(Ordering::Relaxed) {
            return false;
        }
        let _in_order = self.in_order.lock();
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the site is offline: nothing is sent or counted until the line is back"
            );
            let is_down = Arc::clone(&self.is_down);
            self.store.writer().submit(Queue::Settle, self.job(go_offline), move |stored| {
                let Err(error) = stored else { return };
                tracing::error!(%error, "that the site is offline could not be stored; it is tried again");
                // No hold stands, so attempts go on: the next one that fails tries to store it.
                is_down.store(false, Ordering::Relaxed);
            });
        }
        true
    }

    /// Stores once, when a host has answered, that there is a line here.
    fn remember(&self) {
        if self.was_seen.load(Ordering::Relaxed) && !self.is_stored.swap(true, Ordering::Relaxed) {
            let stored = |stored: Result<()>| {
                if let Err(error) = stored {
                    tracing::warn!(%error, "that this site has a line could not be stored");
                }
            };
            self.store.writer().submit(Queue::Upkeep, meta::set_has_had_line, stored);
        }
    }

    /// Looks whether a line that is down works again, and, where that costs nothing, whether it works.
    pub fn look(&self) -> Result<()> {
        let is_down = self.is_down.load(Ordering::Relaxed);
        let is_free = self.settings.get().delivery.line_probe.is_empty();
        if !is_down && !is_free {
            return Ok(());
        }
        let works = self.probe(self.clock.monotonic());
        self.was_seen.fetch_or(works, Ordering::Relaxed);
        if !works || !is_down {
            return Ok(());
        }
        let _in_order = self.in_order.lock();
        // Before anything is sent.
        let until = self.clock.monotonic().saturating_add(UNPROVEN);
        self.unproven_until_ms.store(ms(until), Ordering::Relaxed);
        self.store.writer().write(Queue::Upkeep, self.job(go_online))?;
        self.is_down.store(false, Ordering::Relaxed);
        tracing::info!("the site is online again");
        Ok(())
    }

    /// Whether the line works. That it did is known from a probe since `since` only; that it did not, for a moment.
    fn probe(&self, since: Duration) -> bool {
        let mut probed = self.probed.lock();
        let now = self.clock.monotonic();
        if let Some((at, works)) = *probed
            && now.saturating_sub(at) < PROBE_HOLDS
            && now > at
            && (at >= since || !works)
        {
            return works;
        }
        let works = self.sender.has_line(&self.settings.get().delivery.line_probe);
        *probed = Some((now, works));
        if !works {
            self.down_ms.store(ms(self.clock.monotonic()), Ordering::Relaxed);
        }
        works
    }

    fn job(
        &self,
        run: fn(&WriteTx<'_>, &Clock) -> Result<()>,
    ) -> impl FnMut(&WriteTx<'_>) -> Result<()> + Send + 'static {
        let clock = self.clock.clone();
        move |tx| run(tx, &clock)
    }
}

fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn go_offline(tx: &WriteTx<'_>, clock: &Clock) -> Result<()> {
    let (since, at) = (clock.now(), clock.wall());
    let detail = "no host could be reached, and the probe of the line failed";
    let hold = Hold {
        reason: HoldReason::Offline,
        since,
        until: None,
        probe_at: None,
        probe_no: 0,
        detail: detail.to_owned(),
    };
    holds::put(tx, holds::SITE, &hold)?;
    let new = NewEscalation {
        id: id::uuid7_of(at, &[SUBJECT]),
        tenant: tenant::DEFAULT.to_owned(),
        class: Class::SiteOffline,
        subject: SUBJECT.to_owned(),
        detail: detail.to_owned(),
    };
    escalations::raise(tx, &new, at).map(drop)
}

fn go_online(tx: &WriteTx<'_>, clock: &Clock) -> Result<()> {
    let at = clock.wall();
    holds::release(tx, holds::SITE, HoldReason::Offline)?;
    subscriptions::restart_failing(tx, holds::SITE, at)?;
    escalations::resolve(tx, tenant::DEFAULT, Class::SiteOffline, SUBJECT, at)
}

//! Whether the site has a line to the outside.
//!
//! Being offline is not an endpoint's failure: while the line is down nothing is called and nothing is counted. The line
//! is down when an attempt could not connect, no other one has connected since it began, and the probe fails too. The
//! probe connects to the configured addresses; where there are none, it looks for a default route.

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
use crate::model::outcome::Cause;
use crate::model::tenant;
use crate::store::error::Result;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{Store, escalations, holds, subscriptions};

/// How long the answer of a probe holds. Many attempts fail at once when a line goes down.
const PROBE_HOLDS: Duration = Duration::from_secs(1);
const SUBJECT: &str = "site";

/// The line.
pub struct Line {
    store: Store,
    clock: Clock,
    settings: Live,
    sender: Arc<dyn Sender>,
    is_down: Arc<AtomicBool>,
    /// When an attempt last reached a host, in milliseconds of the monotonic clock.
    reached_ms: AtomicI64,
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
        Ok(Self {
            store,
            clock,
            settings,
            sender,
            is_down: Arc::new(AtomicBool::new(is_down)),
            reached_ms: AtomicI64::new(i64::MIN),
            probed: Mutex::default(),
        })
    }

    /// Notes how an attempt over the network ended that began at `started` (monotonic); tells whether it failed because
    /// the line is down.
    pub fn note(&self, started: Duration, cause: Option<Cause>) -> bool {
        let is_down = self.is_down.load(Ordering::Relaxed);
        match cause {
            Some(Cause::NoConnection) => {}
            // It had a connection, perhaps before the line went down. A connection that breaks when the line goes down is
            // the line's failure too.
            Some(Cause::Timeout | Cause::Broken) => return is_down,
            Some(Cause::Refused | Cause::Tls) | None => {
                self.reached_ms.store(ms(self.clock.monotonic()), Ordering::Relaxed);
                return is_down && cause.is_some();
            }
        }
        if is_down {
            return true;
        }
        if self.reached_ms.load(Ordering::Relaxed) >= ms(started) || self.probe() {
            return false;
        }
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

    /// Looks whether a line that is down works again.
    pub fn look(&self) -> Result<()> {
        if !self.is_down.load(Ordering::Relaxed) || !self.probe() {
            return Ok(());
        }
        self.store.writer().write(Queue::Upkeep, self.job(go_online))?;
        self.is_down.store(false, Ordering::Relaxed);
        tracing::info!("the site is online again");
        Ok(())
    }

    fn probe(&self) -> bool {
        let mut probed = self.probed.lock();
        let now = self.clock.monotonic();
        if let Some((at, works)) = *probed
            && now.saturating_sub(at) < PROBE_HOLDS
            && now > at
        {
            return works;
        }
        let works = self.sender.has_line(&self.settings.get().delivery.line_probe);
        *probed = Some((now, works));
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

//! The site's line to the outside: whether the site is online.
//!
//! Being offline is not an endpoint's failure: while the line is down nothing is called and nothing is counted. The
//! line is down when an attempt had no answer and the probe fails too. The probe connects to the configured addresses; if
//! there are none, it looks for a default route, and a host's answer within the last second counts as a probe.
//!
//! An attempt that began while the line was down may time out after the line is back, and must not count. To recognize
//! such attempts, the probe runs once a second if it costs nothing, that is without configured addresses.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crossbeam_channel::{Receiver, Sender as ChannelSender, bounded};

use crate::base::id;
use crate::base::stop::Stop;
use crate::http::client::Sender;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::hold::{Hold, HoldReason};
use crate::model::name::DEFAULT_TENANT;
use crate::model::outcome::{Cause, Outcome};
use crate::pipeline::prelude::*;
use crate::store::{escalations, holds, meta, subscriptions};

/// How long a probe's result, or a host's answer, stays valid. Many attempts fail at once when a line goes down.
const PROBE_HOLDS: Duration = Duration::from_secs(1);
/// How long failures are not counted after the line is back, unless a host answers before: a switch may take 50 s until
/// it forwards packets of a port that has a link.
const UNPROVEN: Duration = Duration::from_mins(1);
/// How often the line is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How many attempts wait for the probe, in sum. Beyond that the deliverers wait themselves.
const MAX_DOUBTS: usize = 256;
const SUBJECT: &str = "site";

/// The line. Its own thread probes; nobody else waits for a probe.
pub struct Line {
    env: Env,
    sender: Arc<dyn Sender>,
    is_down: AtomicBool,
    /// Whether the probe has ever passed at this site. If not, and no addresses are configured, the site is never
    /// offline: it may use nothing but its own network.
    was_seen: AtomicBool,
    /// Whether that is stored in the file.
    is_stored: AtomicBool,
    /// When a host last answered, in milliseconds of the monotonic clock.
    answered_ms: AtomicI64,
    /// When the line was last seen down, by the same clock.
    down_ms: AtomicI64,
    /// Until when failures of a line that is back are not counted, by the same clock.
    unproven_until_ms: AtomicI64,
    doubts: ChannelSender<Option<Doubt>>,
}

/// What is in doubt, for the line's thread; `None` only wakes it.
pub type Doubts = Receiver<Option<Doubt>>;

/// An attempt that had no answer. The probe decides whether the line was down.
pub struct Doubt {
    started: Duration,
    settle: Settle,
}

/// What is done once it is known whether an attempt failed because the line was down.
pub type Settle = Box<dyn FnOnce(bool) + Send>;

/// When the last probe began and ended, and whether the line worked.
type Probed = Option<(Duration, Duration, bool)>;

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("is_down", &self.is_down).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doubt").field("started", &self.started).finish_non_exhaustive()
    }
}

impl Line {
    /// The line in the state that the file has stored, and what its thread takes.
    pub fn new(env: Env, sender: Arc<dyn Sender>) -> Result<(Self, Doubts)> {
        let is_down = env.store.read(holds::of_site)?.is_some();
        let was_seen = is_down || env.store.read(meta::has_had_line)?;
        let (doubts, taken) = bounded(MAX_DOUBTS);
        let line = Self {
            env,
            sender,
            is_down: AtomicBool::new(is_down),
            was_seen: AtomicBool::new(was_seen),
            is_stored: AtomicBool::new(was_seen),
            answered_ms: AtomicI64::new(i64::MIN),
            down_ms: AtomicI64::new(i64::MIN),
            unproven_until_ms: AtomicI64::new(i64::MIN),
            doubts,
        };
        Ok((line, taken))
    }

    /// Notes the outcome of a network attempt that began at `started` (monotonic). Returns whether it failed because
    /// the line was down; `None` if only the probe can tell: see [`Line::doubt`].
    pub fn note(&self, started: Duration, outcome: &Outcome) -> Option<bool> {
        let now = self.env.clock.monotonic();
        let is_down = self.is_down.load(Ordering::Relaxed);
        match outcome {
            // Nothing was sent, or not by HTTP.
            Outcome::Blocked { .. }
            | Outcome::Postponed { .. }
            | Outcome::Unbuildable { .. }
            | Outcome::NoToken { .. }
            | Outcome::Unacknowledged { .. }
            | Outcome::Accepted { .. }
            | Outcome::Refused { .. } => return Some(false),
            Outcome::Answered { .. }
            | Outcome::Unreachable { cause: Cause::Refused | Cause::Tls, .. } => {
                self.remember();
                // Where addresses are configured, they alone decide: the host may be on the site.
                if !self.has_addresses() {
                    self.answered_ms.store(ms(now), Ordering::Relaxed);
                    self.unproven_until_ms.store(i64::MIN, Ordering::Relaxed);
                }
                return Some(is_down && outcome.status().is_none());
            }
            Outcome::Unreachable {
                cause: Cause::NoConnection | Cause::Timeout | Cause::Broken,
                ..
            } => {}
        }
        if is_down {
            return Some(true);
        }
        let answered = self.answered_ms.load(Ordering::Relaxed);
        let is_fresh = ms(now).saturating_sub(answered) < ms(PROBE_HOLDS);
        (answered > ms(started) && is_fresh).then(|| self.was_down(started))
    }

    /// Has the probe judge an attempt that began at `started`: the line's thread calls `settle`. Waits only while 256
    /// others wait. At a stop nothing is settled, and the attempt is made again after the next start.
    pub fn doubt(&self, started: Duration, settle: Settle) {
        let _is_stopping = self.doubts.send(Some(Doubt { started, settle })).is_err();
    }

    /// Whether the line was seen down since then, or was back but unproven.
    fn was_down(&self, since: Duration) -> bool {
        self.down_ms.load(Ordering::Relaxed) >= ms(since)
            || self.unproven_until_ms.load(Ordering::Relaxed) > ms(since)
    }

    fn has_addresses(&self) -> bool {
        !self.env.settings.get().delivery.line_probe.is_empty()
    }

    /// Judges what is in doubt, and looks at the line once a second, until a stop is asked for.
    pub fn run(&self, taken: &Doubts, stop: &Stop) {
        let mut probed = None;
        let mut doubts = Vec::<Doubt>::new();
        while !stop.asked() {
            let done = match doubts.iter().map(|doubt| doubt.started).max() {
                Some(newest) => self.judge(doubts, newest, &mut probed),
                None => self.look(&mut probed),
            };
            if let Err(error) = done {
                tracing::error!(%error, "whether the site is online could not be stored; it is tried again");
            }
            let next = taken.recv_timeout(EVERY).ok();
            doubts = next.into_iter().chain(taken.try_iter()).flatten().take(MAX_DOUBTS).collect();
        }
    }

    /// Wakes the line's thread, so that it sees a stop.
    pub fn wake(&self) {
        let _is_awake = self.doubts.try_send(None).is_err();
    }

    fn judge(&self, doubts: Vec<Doubt>, newest: Duration, probed: &mut Probed) -> Result<()> {
        let was_down = self.is_down.load(Ordering::Relaxed);
        let works = !was_down && self.probe(newest, probed);
        let is_offline = !works && (self.has_addresses() || self.was_seen.load(Ordering::Relaxed));
        let stored = if is_offline && !was_down {
            tracing::warn!(
                "the site is offline: nothing is sent or counted until the line is back"
            );
            // Without the hold, attempts go on; the next one that fails tries to store it.
            let stored = self.env.store.writer().write(Queue::Settle, self.job(go_offline));
            self.is_down.store(stored.is_ok(), Ordering::Relaxed);
            stored
        } else {
            Ok(())
        };
        for Doubt { started, settle } in doubts {
            settle(is_offline || (works && self.was_down(started)));
        }
        stored
    }

    /// Stores once that this site has a line, after a host has answered.
    fn remember(&self) {
        if self.was_seen.load(Ordering::Relaxed) && !self.is_stored.swap(true, Ordering::Relaxed) {
            let stored = |stored: Result<()>| {
                if let Err(error) = stored {
                    tracing::warn!(%error, "could not store that this site has a line");
                }
            };
            self.env.store.writer().submit(Queue::Upkeep, meta::set_has_had_line, stored);
        }
    }

    /// Probes a line that is down, and a working one if the probe costs nothing.
    fn look(&self, probed: &mut Probed) -> Result<()> {
        let is_down = self.is_down.load(Ordering::Relaxed);
        if !is_down && self.has_addresses() {
            return Ok(());
        }
        let works = self.probe(self.env.clock.monotonic(), probed);
        self.was_seen.fetch_or(works, Ordering::Relaxed);
        if !works || !is_down {
            return Ok(());
        }
        // Before the hold ends, because deliveries start at once then.
        let until = self.env.clock.monotonic().saturating_add(UNPROVEN);
        self.unproven_until_ms.store(ms(until), Ordering::Relaxed);
        self.env.store.writer().write(Queue::Upkeep, self.job(go_online))?;
        self.is_down.store(false, Ordering::Relaxed);
        tracing::info!("the site is online again");
        Ok(())
    }

    /// Whether the line works. A recent result is used again; a recent success only if it is not older than `since`.
    fn probe(&self, since: Duration, probed: &mut Probed) -> bool {
        let now = self.env.clock.monotonic();
        if let Some((began, ended, works)) = *probed
            && now.saturating_sub(ended) < PROBE_HOLDS
            && now > began
            && (began >= since || !works)
        {
            return works;
        }
        let works = self.sender.has_line(&self.env.settings.get().delivery.line_probe);
        let ended = self.env.clock.monotonic();
        *probed = Some((now, ended, works));
        if !works {
            self.down_ms.store(ms(ended), Ordering::Relaxed);
        }
        works
    }

    fn job(
        &self,
        run: fn(&WriteTx<'_>, &Clock) -> Result<()>,
    ) -> impl FnMut(&WriteTx<'_>) -> Result<()> + Send + 'static {
        let clock = self.env.clock.clone();
        move |tx| run(tx, &clock)
    }
}

fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn go_offline(tx: &WriteTx<'_>, clock: &Clock) -> Result<()> {
    let since = clock.now();
    let at = clock.wall();
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
        tenant: DEFAULT_TENANT.to_owned(),
        class: Class::SiteOffline,
        subject: SUBJECT.to_owned(),
        detail: detail.to_owned(),
    };
    escalations::raise(tx, &new, at).map(drop)
}

fn go_online(tx: &WriteTx<'_>, clock: &Clock) -> Result<()> {
    let at = clock.wall();
    holds::release(tx, holds::SITE, HoldReason::Offline, at)?;
    subscriptions::restart_failing(tx, holds::SITE, at)?;
    escalations::resolve(tx, DEFAULT_TENANT, Class::SiteOffline, SUBJECT, at)
}

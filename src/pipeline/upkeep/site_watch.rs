//! Escalations about the site: the disk, the clock, the backups, the quarantine.
//!
//! The checks of `/readyz` say what is wrong. A check that is not well raises an escalation; once it is well, that is
//! resolved. The transaction is only taken when a check has changed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::backup::manifest;
use crate::base::id;
use crate::model::escalation::{Class, NewEscalation};
use crate::model::health::{self, Check, Level};
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::prelude::*;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::store::{escalations, meta, quarantine};
use crate::sys::files;

/// What the escalations are about.
const SUBJECT: &str = "site";
/// Quarantine and backups are looked at once in so many runs of upkeep, which are seconds.
const RARELY: u32 = 10;

/// A jump of this much is a step, not drift: NTP corrects smaller offsets gradually.
const STEP: Duration = Duration::from_secs(2);
/// How long after a step the clock is suspect: long enough for NTP to set it right.
const SUSPECT_FOR: Duration = Duration::from_mins(10);

/// Looks at the site and keeps what it saw last.
pub struct SiteWatch {
    store: Store,
    clock: Clock,
    settings: Live,
    clock_watch: Arc<ClockWatch>,
    disk: Arc<DiskWatch>,
    /// The extent of each class at the last look; 0: all was well. One that is missing has not been looked at yet.
    told: BTreeMap<&'static str, u64>,
    run_no: u32,
}

impl SiteWatch {
    /// Nothing looked at yet.
    pub fn new(
        (store, clock, settings): (Store, Clock, Live),
        clock_watch: Arc<ClockWatch>,
        disk: Arc<DiskWatch>,
    ) -> Self {
        Self { store, clock, settings, clock_watch, disk, told: BTreeMap::new(), run_no: 0 }
    }

    /// Raises and resolves what has changed since the last look.
    pub fn look(&mut self) -> Result<()> {
        let state = self.disk.state();
        let stepped_lately = self.clock_watch.is_suspect(self.clock.now());
        self.tell(Class::DiskLow, &health::disk(state.room, state.space, state.reserve), 1)?;
        self.tell(Class::ClockWrong, &health::clock(self.clock.wall(), stepped_lately), 1)?;
        if self.run_no.is_multiple_of(RARELY) {
            let quarantined = self.store.read(quarantine::count)?;
            self.tell(Class::EventQuarantined, &health::quarantined(quarantined), quarantined)?;
            let window = self.store.read(meta::fence)?.window;
            self.tell(Class::SiteRestored, &health::in_doubt(window, 0, self.clock.wall()), 1)?;
            let backup = self.backup()?;
            self.tell(Class::BackupOld, &backup, 1)?;
        }
        self.run_no = self.run_no.wrapping_add(1);
        Ok(())
    }

    /// The newest backup. Before the first there is nothing to complain about, unless making it failed.
    fn backup(&self) -> Result<Check> {
        let settings = self.settings.get();
        let every = settings.backup.every;
        let newest = files::newest(&settings.backup_directory(), manifest::ENDING);
        let mut check = health::backup(every, newest.map(|at| self.clock.wall().since(at)));
        match self.store.read(meta::backup_failure)?.filter(|_| every.is_some()) {
            Some((_, why)) => {
                check.level = Level::Warn;
                check.detail = format!("a backup could not be made: {why}");
            }
            None if newest.is_none() => check.level = Level::Ok,
            None => {}
        }
        Ok(check)
    }

    /// Raises where a check is not well and `extent`, how bad it is, has changed since the last time. Its text may change
    /// at every look, as the free space does.
    fn tell(&mut self, class: Class, check: &Check, extent: u64) -> Result<()> {
        let extent = if check.level == Level::Ok { 0 } else { extent };
        let told = match self.told.get(class.as_str()) {
            Some(told) => *told,
            // After a start: an escalation may be open that is to be resolved.
            None => self.store.read(|tx| {
                escalations::open_count(tx, DEFAULT_TENANT, class, SUBJECT).map(|open| open.min(1))
            })?,
        };
        if told == extent {
            self.told.insert(class.as_str(), extent);
            return Ok(());
        }
        let (at, detail) = (self.clock.wall(), check.detail.clone());
        self.store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
            if extent == 0 {
                return escalations::resolve(tx, DEFAULT_TENANT, class, SUBJECT, at);
            }
            let new = NewEscalation {
                id: id::uuid7_of(at, &[class.as_str()]),
                tenant: DEFAULT_TENANT.to_owned(),
                class,
                subject: SUBJECT.to_owned(),
                detail: detail.clone(),
            };
            escalations::raise(tx, &new, at).map(drop)
        })?;
        self.told.insert(class.as_str(), extent);
        Ok(())
    }
}

/// Notices when the wall clock is set. For a while after that, our time is suspect.
#[derive(Debug)]
pub struct ClockWatch {
    suspect_until_ms: AtomicI64,
}

impl Default for ClockWatch {
    fn default() -> Self {
        Self { suspect_until_ms: AtomicI64::new(i64::MIN) }
    }
}

impl ClockWatch {
    /// Whether the clock was stepped lately.
    pub fn is_suspect(&self, now: Timestamp) -> bool {
        now.ms() < self.suspect_until_ms.load(Ordering::Acquire)
    }

    /// Checks the clock. After a step it adopts the new wall time and returns the step in ms. A negative step means
    /// that the clock was set back, and due times must be moved earlier.
    pub fn look(&self, clock: &Clock) -> Option<i64> {
        let step = clock.step_ms();
        if Duration::from_millis(step.unsigned_abs()) < STEP {
            return None;
        }
        clock.re_anchor();
        self.suspect_until_ms.store(clock.now().plus(SUSPECT_FOR).ms(), Ordering::Release);
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualTime;

    #[test]
    fn a_step_makes_the_clock_suspect_for_ten_minutes() {
        let time = ManualTime::at(Timestamp::from_secs(1_000_000));
        let clock = Clock::from_source(time.clone());
        let watch = ClockWatch::default();
        time.advance(Duration::from_hours(1));
        assert_eq!(watch.look(&clock), None);
        time.set_wall(Timestamp::from_secs(900_000));
        assert_eq!(watch.look(&clock), Some(-103_600_000));
        assert!(watch.is_suspect(clock.now()));
        time.advance(SUSPECT_FOR);
        assert!(!watch.is_suspect(clock.now()));
    }

    #[test]
    fn time_that_passes_while_it_looks_is_no_step() {
        let time = ManualTime::at(Timestamp::from_secs(1_000_000));
        let clock = Clock::from_source(time.clone());
        let watch = ClockWatch::default();
        std::thread::scope(|scope| {
            let passing = scope.spawn(|| {
                (0..100_000).for_each(|_| time.advance(Duration::from_mins(1)));
            });
            while !passing.is_finished() {
                assert_eq!(watch.look(&clock), None);
            }
        });
        assert_eq!(clock.now(), clock.wall());
    }
}

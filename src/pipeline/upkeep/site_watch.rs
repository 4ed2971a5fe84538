//! Escalations about the site: the disk, the clock, the backups, the quarantine.
//!
//! The checks of `/readyz` say what is wrong. A check that is not well raises an escalation; once it is well, that is
//! resolved. The transaction is only taken when a check has changed.

use std::collections::BTreeMap;

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

/// Looks at the site and keeps what it saw last.
pub struct SiteWatch {
    env: Env,
    disk: Arc<DiskWatch>,
    /// The extent of each class at the last look; 0: all was well. One that is missing has not been looked at yet.
    told: BTreeMap<&'static str, u64>,
    run_no: u32,
}

impl SiteWatch {
    /// Nothing looked at yet.
    pub fn new(env: Env, disk: Arc<DiskWatch>) -> Self {
        Self { env, disk, told: BTreeMap::new(), run_no: 0 }
    }

    /// Raises and resolves what has changed since the last look.
    pub fn look(&mut self) -> Result<()> {
        let state = self.disk.state();
        self.tell(Class::DiskLow, &health::disk(state.room, state.space, state.reserve), 1)?;
        self.tell(
            Class::ClockWrong,
            &health::clock(self.env.clock.shown(), self.env.clock.suspicion()),
            1,
        )?;
        if self.run_no.is_multiple_of(RARELY) {
            let quarantined = self.env.store.read(quarantine::count)?;
            self.tell(Class::EventQuarantined, &health::quarantined(quarantined), quarantined)?;
            let window = self.env.store.read(meta::fence)?.window;
            self.tell(Class::SiteRestored, &health::in_doubt(window, 0, self.env.clock.wall()), 1)?;
            let backup = self.backup()?;
            self.tell(Class::BackupOld, &backup, 1)?;
        }
        self.run_no = self.run_no.wrapping_add(1);
        Ok(())
    }

    /// The newest backup. Before the first there is nothing to complain about, unless making it failed.
    fn backup(&self) -> Result<Check> {
        let settings = self.env.settings.get();
        let every = settings.backup.every;
        let now = self.env.clock.wall();
        let newest = files::newest_until(&settings.backup_directory(), manifest::ENDING, now);
        let mut check = health::backup(every, newest.map(|at| now.since(at)));
        match self.env.store.read(meta::backup_failure)?.filter(|_| every.is_some()) {
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
            None => self.env.store.read(|tx| {
                escalations::open_count(tx, DEFAULT_TENANT, class, SUBJECT).map(|open| open.min(1))
            })?,
        };
        if told == extent {
            self.told.insert(class.as_str(), extent);
            return Ok(());
        }
        let at = self.env.clock.wall();
        let detail = check.detail.clone();
        self.env.store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
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

//! The machine: clock, limits of the process.

use crate::cli::doctor::{Finding, Patient, ok, warn};
use crate::model::health;
use crate::sys::{files, host};

/// A file from the future by more than this was written under another clock.
const FUTURE_MS: i64 = 60_000;

pub(super) fn look(patient: &Patient) -> Vec<Finding> {
    vec![clock(patient), kept(), descriptors(patient)]
}

fn clock(patient: &Patient) -> Finding {
    let wall = patient.clock.wall();
    let newest = files::newest(patient.settings.directory(), "");
    let ahead = newest.map_or(0, |at| at.ms().saturating_sub(wall.ms()));
    if ahead > FUTURE_MS {
        let detail = format!(
            "shows {wall}, but a file in the data directory was written {} s later: set the clock",
            ahead / 1000
        );
        return warn("clock", detail);
    }
    health::clock(wall, false).into()
}

fn kept() -> Finding {
    match host::time_is_kept() {
        Some(true) => ok("time_sync", "something keeps the clock right"),
        Some(false) => warn("time_sync", "the clock is not synchronised yet: timedatectl"),
        None => warn("time_sync", "nothing seems to keep the clock right: run NTP (timedatectl)"),
    }
}

fn descriptors(patient: &Patient) -> Finding {
    let settings = &patient.settings;
    let need = u64::from(settings.limits.connections)
        .saturating_add(u64::from(settings.delivery.deliverers).saturating_mul(2))
        .saturating_add(64);
    match host::descriptors_most() {
        Some(most) if most < need => {
            let detail = format!("{most} for this shell; {need} may be needed: raise LimitNOFILE");
            warn("descriptors", detail)
        }
        _ => ok("descriptors", format!("enough for {need}")),
    }
}

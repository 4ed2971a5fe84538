//! Table `chores`: when each periodic duty is due next. A service that is restarted each day does them, too.

use crate::model::duty::{Chore, Duty};
use crate::store::prelude::*;

const DUE: &str = "SELECT due_at FROM chores WHERE name = ?1";

const DONE: &str = "
    INSERT INTO chores (name, due_at, done_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at, done_at = excluded.done_at";

const DONE_AT: &str = "SELECT done_at FROM chores WHERE name = ?1";

// A duty that was never done is due from then on.
const EXPECT: &str = "
    INSERT INTO chores (name, due_at, done_at) VALUES (?1, ?2, 0) ON CONFLICT (name) DO NOTHING";

changes! {
    /// Makes duties due now that a clock which was ahead has made due later than their interval.
    fn limit_one(name: &str, latest: Timestamp, now: Timestamp) =
        "UPDATE chores SET due_at = ?3 WHERE name = ?1 AND due_at > ?2";
}

/// Limits due times after believed time went back, so that it is known how late a duty is.
pub fn limit(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    Duty::ALL.iter().try_for_each(|duty| limit_one(tx, duty.as_str(), now.plus(duty.every()), now))
}

/// Makes duties due that are new to this file, so that a duty never done is late some day.
pub fn expect(tx: &WriteTx<'_>, now: Timestamp) -> Result<()> {
    tx.mark_unseen();
    Duty::ALL.iter().try_for_each(|duty| tx.execute(EXPECT, (duty.as_str(), now)).map(drop))
}

/// A duty with its times.
pub fn get(tx: &ReadTx<'_>, duty: Duty) -> Result<Chore> {
    let due_at = tx.find(DUE, [duty.as_str()])?;
    let done_at: Option<Timestamp> = tx.find(DONE_AT, [duty.as_str()])?;
    let done_at = done_at.filter(|at| at.ms() > 0);
    Ok(Chore { duty, due_at, done_at })
}

/// All duties.
pub fn all(tx: &ReadTx<'_>) -> Result<Vec<Chore>> {
    Duty::ALL.iter().map(|duty| get(tx, *duty)).collect()
}

/// Whether a duty is due.
pub fn is_due(tx: &ReadTx<'_>, duty: Duty, now: SureNow) -> Result<bool> {
    Ok(get(tx, duty)?.overdue(now.at()).is_some())
}

/// Records that a duty was done, which makes it due again after its interval.
pub fn done(tx: &WriteTx<'_>, duty: Duty, now: SureNow) -> Result<()> {
    tx.mark_unseen();
    let due_at = now.at().plus(duty.every());
    tx.execute(DONE, (duty.as_str(), due_at, now.at())).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::clock::trust::KnownTime;
    use crate::base::clock::{Clock, ManualTime, millis};
    use crate::store::known_time;
    use crate::store::schema::open_writer;
    use crate::store::tx::WriterCache;

    /// One start of a box that runs for eight hours of each day: what its duties do.
    fn day(tx: &WriteTx<'_>, time: &Arc<ManualTime>, done: &mut [u32]) {
        let clock = Clock::from_source(time.clone());
        clock.begin(known_time::known(tx).unwrap());
        for _ in 0..8 {
            time.advance(Duration::from_hours(1));
            let Some(now) = clock.sure_now() else { continue };
            for (count, duty) in done.iter_mut().zip(Duty::ALL) {
                if is_due(tx, duty, now).unwrap() {
                    super::done(tx, duty, now).unwrap();
                    *count += 1;
                }
            }
        }
        let known = KnownTime { believed: clock.now(), doubted: None };
        known_time::store(tx, known).unwrap();
        time.advance(Duration::from_hours(16));
    }

    #[test]
    fn a_box_that_is_off_each_night_does_every_duty_for_nine_years() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("oncebox.db")).unwrap();
        let cache = WriterCache::default();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let tx = WriteTx::new(&conn, &cache);
        let time = ManualTime::at(Timestamp::from_secs(1_780_000_000));
        time.set_synchronised(false);
        let mut done = [0; Duty::ALL.len()];
        let days = 9 * 365;
        for _ in 0..days {
            day(&tx, &time, &mut done);
        }
        for (count, duty) in done.into_iter().zip(Duty::ALL) {
            // Once a day, or each hour that it runs.
            let expected = if millis(duty.every()) > 3_600_000 { days } else { days * 8 };
            assert!(count >= expected - days / 24 - 1, "{duty}: {count} of {expected}");
        }
    }
}

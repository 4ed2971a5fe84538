//! Notices that rows wait for a long transaction of the ERP's database, and says so with its age.

use std::time::Duration;

use crate::sources::shared::{RelayServices, SourceError, Turn};

/// After this time a transaction is called long.
const LONG: Duration = Duration::from_secs(30);

/// Since when rows wait.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// By the monotonic clock; `None`: none waits.
    since: Option<Duration>,
}

impl Stall {
    /// Looks whether rows are committed that cannot be read yet. `oldest` asks for the age in seconds of the oldest
    /// transaction that can be seen.
    pub(super) fn look(
        &mut self,
        shared: &RelayServices,
        waiting: u64,
        oldest: impl FnOnce() -> Result<Option<u64>, SourceError>,
    ) -> Result<Turn, SourceError> {
        if waiting == 0 {
            self.since = None;
            return Ok(Turn::Done);
        }
        let now = shared.env.clock.monotonic();
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        if waited < LONG {
            return Ok(Turn::Done);
        }
        Err(SourceError::passing(stalled(waiting, oldest()?, waited)))
    }
}

/// The sentence for people. The age is that of a transaction that we may see; one that we may not see is at least as old
/// as the wait.
fn stalled(rows: u64, oldest: Option<u64>, waited: Duration) -> String {
    let seconds = oldest.unwrap_or(0).max(waited.as_secs());
    let age = humantime::format_duration(Duration::from_secs(seconds));
    format!(
        "{rows} rows wait for a transaction of the database that has been open for {age}: end it, or a forgotten \
         PREPARE TRANSACTION (pg_stat_activity, pg_prepared_xacts). Nothing is lost"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_the_oldest_that_is_known() {
        let waited = Duration::from_secs(40);
        assert!(stalled(3, None, waited).contains("open for 40s"));
        assert!(stalled(3, Some(10), waited).contains("open for 40s"));
        assert!(stalled(3, Some(90), waited).contains("open for 1m 30s"));
    }
}

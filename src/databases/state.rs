//! How a database is: whether it answers, since when not and why, and what was started for it.

use serde::Serialize;

use crate::base::clock::Timestamp;
use crate::base::words::words;

words! {
    /// Whether a database answers.
    pub enum Standing {
        /// It was not asked yet.
        Unknown = "unknown",
        /// It answered last time.
        Up = "up",
        /// It does not answer, or cannot work.
        Away = "away",
    }
}

/// How a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHealth {
    /// Whether it answers.
    pub standing: Standing,
    /// Since when it stands so.
    pub since: Timestamp,
    /// The last error that was one of the database, in words without data.
    pub last_error: Option<LastError>,
    /// How many processes were started because another one ended, hung or lost its connection.
    pub restarts: u64,
    /// How many connections are in use.
    pub in_use: usize,
}

/// An error and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// When.
    pub at: Timestamp,
    /// The words.
    pub words: String,
}

impl DatabaseHealth {
    /// The state of a database that was not asked yet.
    pub fn new(now: Timestamp) -> Self {
        Self { standing: Standing::Unknown, since: now, last_error: None, restarts: 0, in_use: 0 }
    }

    /// It answered.
    pub fn answered(&mut self, now: Timestamp) {
        self.stand(Standing::Up, now);
    }

    /// It is away.
    pub fn went(&mut self, now: Timestamp, words: &str) {
        self.stand(Standing::Away, now);
        self.last_error = Some(LastError { at: now, words: words.to_owned() });
    }

    /// The database answered with an error about more than a row.
    pub fn complained(&mut self, now: Timestamp, words: &str) {
        self.last_error = Some(LastError { at: now, words: words.to_owned() });
    }

    fn stand(&mut self, standing: Standing, now: Timestamp) {
        if self.standing != standing {
            self.standing = standing;
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_so_since_it_changed() {
        let at = Timestamp::from_secs;
        let mut state = DatabaseHealth::new(at(1));
        state.answered(at(2));
        state.answered(at(3));
        assert_eq!(state.since, at(2));
        state.went(at(4), "no route");
        state.went(at(5), "refused");
        assert_eq!(state.since, at(4));
        assert_eq!(state.last_error, Some(LastError { at: at(5), words: "refused".to_owned() }));
        state.answered(at(6));
        assert_eq!(state.standing, Standing::Up);
        assert!(state.last_error.is_some(), "what it was is still of interest");
    }
}

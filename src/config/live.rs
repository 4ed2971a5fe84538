//! The settings that hold right now, for those who look each time; and what a second reading changes.
//!
//! Not here: who asks for it (SIGHUP, in `serve`).

use std::sync::Arc;

use parking_lot::RwLock;

use crate::config::keys::{KEYS, Key, Takes};
use crate::config::settings::Settings;

/// The settings that hold right now. Clones share them.
#[derive(Clone, Debug)]
pub struct Live(Arc<RwLock<Arc<Settings>>>);

/// What a second reading changes.
#[derive(Debug)]
pub struct Change {
    /// What would hold.
    pub settings: Settings,
    /// Keys that have another value, and take it without a restart.
    pub taken: Vec<&'static Key>,
    /// Keys that have another value, and take it with the next start.
    pub waiting: Vec<&'static Key>,
}

impl Live {
    /// These, until others are set.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// What holds.
    pub fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read())
    }

    /// Lets others hold from now on.
    pub fn set(&self, settings: Settings) {
        *self.0.write() = Arc::new(settings);
    }

    /// What would change if `fresh` were to hold.
    pub fn change_to(&self, fresh: &Settings) -> Change {
        let mut settings = Settings::clone(&self.get());
        let (mut taken, mut waiting) = (Vec::new(), Vec::new());
        let differs = |key: &&Key| key.get(&settings) != key.get(fresh);
        let changed: Vec<&'static Key> = KEYS.iter().filter(differs).collect();
        for key in changed {
            match key.takes {
                Takes::Restart => waiting.push(key),
                Takes::Reload => {
                    key.copy(&mut settings, fresh);
                    taken.push(key);
                }
            }
        }
        Change { settings, taken, waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_takes_what_can_be_taken_and_leaves_the_rest_as_it_was() {
        let live = Live::new(Settings::default());
        let mut fresh = Settings::default();
        fresh.delivery.cap = 3;
        fresh.delivery.deliverers = 2;
        fresh.delivery.schedule = fresh.delivery.schedule.with_max_attempts(5).unwrap();
        let change = live.change_to(&fresh);
        let paths = |keys: &[&Key]| keys.iter().map(|key| key.path()).collect::<Vec<_>>();
        assert_eq!(paths(&change.taken), ["delivery.max_attempts", "delivery.cap"]);
        assert_eq!(paths(&change.waiting), ["delivery.deliverers"]);
        live.set(change.settings);
        assert_eq!(live.get().delivery.schedule.max_attempts(), 5);
        assert_eq!(live.get().delivery.deliverers, 64);
        assert!(live.change_to(&live.get()).taken.is_empty());
    }
}

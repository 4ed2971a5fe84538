//! The environment: the services that the parts of a running Oncebox work with.
//!
//! A struct or function that needs three or more of them takes an [`Env`]; if it needs one or two, it takes those. Pure
//! decisions take none: they get values.

use std::sync::Arc;

use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::Draw;
use crate::config::Live;
use crate::keys::Keyring;
use crate::privacy::Privacy;
use crate::store::Store;

/// The environment of a running Oncebox. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Env {
    /// The database file.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// The settings in force.
    pub settings: Live,
    /// The memory budget of requests, deliveries and sources.
    pub budget: Budget,
    /// The master keys that seal secrets.
    pub keyring: Arc<Keyring>,
    /// The privacy policies, and the keys of subjects.
    pub privacy: Arc<Privacy>,
    /// Planned failures.
    pub faults: Faults,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}

//! How a server works, but for what it answers.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::faults::Faults;
use crate::base::id::{Draw, SystemDraw};
use crate::http::limits::Limits;
use crate::http::proxies::Proxies;

/// How a server works, but for what it answers.
#[derive(Clone)]
pub struct Setup {
    /// How much it takes on.
    pub limits: Limits,
    /// Whom it believes where a request comes from.
    pub proxies: Proxies,
    /// Asked for the `date` field and for request ids; deadlines are counted in real time.
    pub clock: Clock,
    /// Randomness for request ids.
    pub draw: Arc<dyn Draw>,
    /// Planned failures.
    pub faults: Faults,
}

impl Setup {
    /// No proxies, the system's randomness, and no planned failures.
    pub fn new(limits: Limits, clock: Clock) -> Self {
        let (proxies, draw) = (Proxies::default(), Arc::new(SystemDraw::new()));
        Self { limits, proxies, clock, draw, faults: Faults::none() }
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("limits", &self.limits).finish_non_exhaustive()
    }
}

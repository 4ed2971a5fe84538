//! What every handler is given: the store, the stages, and what the API counts and remembers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::answered;
use crate::api::auth::{Auth, TokenHasher};
use crate::api::call::Call;
use crate::api::last_write::LastWrite;
use crate::api::list_queue::Lists;
use crate::api::problem::Problem;
use crate::api::requests::Requests;
use crate::base::budget::Budget;
use crate::base::clock::{Clock, Timestamp};
use crate::base::id::Draw;
use crate::config::Live;
use crate::http::message::Response;
use crate::http::server::StatsHandle;
use crate::jobs::runner::Bell;
use crate::keys::Keyring;
use crate::pipeline::consume::Consume;
use crate::pipeline::disk_watch::DiskWatch;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::publish::Publish;
use crate::pipeline::receive::Receive;
use crate::pipeline::refusals::Refusals;
use crate::pipeline::rotation::Rotation;
use crate::pipeline::suspects::Suspects;
use crate::sources::SourceStatuses;
use crate::store::Store;

/// The stages the API hands work to.
#[derive(Clone)]
pub struct Stages {
    /// The intake.
    pub receive: Receive,
    /// The publisher.
    pub publish: Publish,
    /// The consumers' way in.
    pub consume: Consume,
    /// Where refused calls are noted.
    pub refusals: Refusals,
    /// Rotation of the master key.
    pub rotation: Rotation,
    /// The room on the disk.
    pub disk: Arc<DiskWatch>,
    /// What the process may have died on.
    pub suspects: Arc<Suspects>,
    /// How the sources stand.
    pub sources: SourceStatuses,
    /// What is under way.
    pub in_flight: Arc<InFlight>,
    /// Wakes the thread that runs jobs.
    pub jobs: Bell,
}

/// The API and what it is built from.
#[derive(Clone)]
pub struct Api {
    /// The file.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// What secrets are sealed with.
    pub key: Arc<Keyring>,
    /// How tokens are hashed.
    pub hasher: Arc<TokenHasher>,
    /// Who is asking.
    pub auth: Auth,
    /// The stages.
    pub flow: Stages,
    /// What requests take their memory from.
    pub budget: Budget,
    /// What holds.
    pub settings: Live,
    /// Whether the database could be written.
    pub(super) last_write: Arc<LastWrite>,
    /// What was answered.
    pub(super) requests: Arc<Requests>,
    /// The lists that run.
    pub(super) lists: Arc<Lists<Looked>>,
    /// The listener's counters.
    pub server_stats: StatsHandle,
    /// When this was made, by the wall.
    pub(super) started_at: Timestamp,
    /// Which refusals are logged.
    pub(super) refusals: Arc<answered::Refusals>,
    /// For each path the places of its routes in the route table.
    pub(super) router: Arc<matchit::Router<Vec<usize>>>,
    /// `/openapi.json`.
    pub(super) document: Arc<Mutex<Option<Vec<u8>>>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// A handler that changes nothing.
pub(super) type Looked = fn(&Api, &Call) -> Result<Response, Problem>;

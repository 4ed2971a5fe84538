//! What every handler gets: the store, the stages, and the API's counters and caches.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Span;

use crate::api::answered::{self, Requests};
use crate::api::auth::{Auth, TokenHasher};
use crate::api::background_probes::BackgroundTests;
use crate::api::call::Call;
use crate::api::kept_counts::KeptCounts;
use crate::api::last_write::LastWrite;
use crate::api::limits::Limits;
use crate::api::problem::Problem;
use crate::archive::mover::Archiving;
use crate::backup::schedule::Backups;
use crate::base::clock::Timestamp;
use crate::base::fair::FairQueue;
use crate::databases::database::Databases;
use crate::env::Env;
use crate::http::message::Response;
use crate::http::server::StatsHandle;
use crate::http::service::Reply;
use crate::pipeline::claims::Claims;
use crate::pipeline::confirmations::Confirmations;
use crate::pipeline::consume::Consume;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::probe::SubscriptionTests;
use crate::pipeline::publish::Publish;
use crate::pipeline::receive::Receive;
use crate::pipeline::refusals::Refusals;
use crate::pipeline::suspects::Suspects;
use crate::pipeline::threads::{Bell, Spawner};
use crate::pipeline::upkeep::credential_rotation::CredentialRotation;
use crate::pipeline::upkeep::disk_watch::DiskWatch;
use crate::pipeline::upkeep::master_key_rotation::Rotation;
use crate::sources::SourceStatuses;
use crate::sources::http_client::ListClient;
use crate::traces::SpanQueue;

/// The stages the API hands work to.
#[derive(Clone)]
pub struct Stages {
    /// Receives webhooks.
    pub receive: Receive,
    /// Publishes events.
    pub publish: Publish,
    /// Serves pull consumers.
    pub consume: Consume,
    /// Takes confirmations.
    pub confirmations: Confirmations,
    /// Audits refused calls.
    pub refusals: Refusals,
    /// Tests of subscriptions.
    pub tests: SubscriptionTests,
    /// Effects outside the file, claimed before they are done.
    pub claims: Claims,
    /// Rotation of credentials.
    pub credential_rotation: CredentialRotation,
    /// Rotation of the master key.
    pub rotation: Rotation,
    /// Free space on the disk.
    pub disk: Arc<DiskWatch>,
    /// Work that may have crashed an earlier run.
    pub suspects: Arc<Suspects>,
    /// The status of each source.
    pub sources: SourceStatuses,
    /// Databases of others.
    pub databases: Databases,
    /// What reads lists of providers.
    pub lists: ListClient,
    /// Deliveries that are being attempted.
    pub in_flight: Arc<InFlight>,
    /// Makes backups.
    pub backups: Backups,
    /// Starts threads.
    pub spawner: Spawner,
    /// Wakes the thread that runs jobs.
    pub jobs: Bell,
    /// Moves finished events into the archive.
    pub archiving: Archiving,
    /// Spans of attempts, of which the metrics tell.
    pub traces: SpanQueue,
}

/// The API and what it is built from.
#[derive(Clone)]
pub struct Api {
    /// The environment.
    pub env: Env,
    /// Hashes tokens.
    pub hasher: Arc<TokenHasher>,
    /// Checks tokens.
    pub auth: Auth,
    /// The stages.
    pub flow: Stages,
    /// Whether the latest test write succeeded.
    pub(super) last_write: Arc<LastWrite>,
    /// Counts of many rows, kept for a while.
    pub(super) kept_counts: Arc<KeptCounts>,
    /// Tests of subscriptions that run in the background.
    pub(super) tests: Arc<BackgroundTests>,
    /// Counts answers.
    pub(super) requests: Arc<Requests>,
    /// Lists that run or wait.
    pub(super) lists: Arc<Lists>,
    /// Trials of subscriptions that run or wait.
    pub(super) trials: Arc<Lists>,
    /// The listener's counters.
    pub server_stats: StatsHandle,
    /// When the process started, in wall time.
    pub(super) started_at: Timestamp,
    /// Limits how many refusals are logged.
    pub(super) refusals: Arc<answered::Refusals>,
    /// Maps each path to the indexes of its routes in the route table.
    pub(super) router: Arc<matchit::Router<Vec<usize>>>,
    /// `/openapi.json`, once it was asked for.
    pub(super) document: Arc<Mutex<Option<Vec<u8>>>>,
    /// The limits of bodies.
    pub(super) limits: Arc<Limits>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// A handler that changes nothing.
pub(super) type ReadHandler = fn(&Api, &Call) -> Result<Response, Problem>;

/// Running lists, and waiting lists.
pub(super) type Lists = Mutex<FairQueue<List>>;

/// What answers a request that reads many rows.
type Work = Box<dyn FnOnce(&Api, Reply) + Send>;

/// A request for a list, and the work that answers it.
pub(super) struct List {
    pub(super) work: Work,
    pub(super) reply: Reply,
    /// The request's span, for the log.
    pub(super) span: Span,
}

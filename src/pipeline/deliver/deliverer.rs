//! What the deliverers share.

use crossbeam_channel::Sender as ChannelSender;

use crate::http::client::Sender;
use crate::keys::ConfirmTokens;
use crate::model::attempt::AttemptReport;
use crate::pipeline::connectivity::Line;
use crate::pipeline::counts::Counts;
use crate::pipeline::destinations::Destinations;
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::Mailbox;
use crate::pipeline::suspects::Suspects;
use crate::targets::Targets;
use crate::traces::SpanQueue;

/// A deliverer. Its clones share everything; each runs on a thread of its own.
#[derive(Clone)]
pub struct Deliverer {
    /// The environment.
    pub env: Env,
    /// The line to the outside.
    pub sender: Arc<dyn Sender>,
    /// How each subscription is called.
    pub destinations: Arc<Destinations>,
    /// Where the dispatcher is told.
    pub mailbox: Mailbox,
    /// Reports that could not be stored and are handed in again. Holds at most what is in hand.
    pub unsettled: ChannelSender<Arc<AttemptReport>>,
    /// Whether the site has a line to the outside.
    pub line: Arc<Line>,
    /// What is under way.
    pub in_flight: Arc<InFlight>,
    /// What was counted.
    pub counts: Arc<Counts>,
    /// Where spans of attempts are left.
    pub traces: SpanQueue,
    /// What sends, by kind of target.
    pub targets: Targets,
    /// What the process may have died on.
    pub suspects: Arc<Suspects>,
    /// Makes the tokens of confirm URLs.
    pub confirm_tokens: ConfirmTokens,
}

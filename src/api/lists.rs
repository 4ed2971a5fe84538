//! Answers lists in turn, and limits how long each may read.

use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Span;

use crate::api::audited::ActHandler;
use crate::api::call::Call;
use crate::api::context::{Api, List, Lists, ReadHandler};
use crate::api::problem::Problem;
use crate::base::fair::{Fair, FairQueue, Payer};
use crate::http::service::Reply;
use crate::model::audit::ActorType;
use crate::store::LIST_READERS;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::tx::ReadTx;

/// The most lists that wait. One alone may have three quarters of them, which take twelve seconds at most.
const MAX_WAITING: usize = 32;
/// How long a list may read.
const MAX_SPAN: Duration = Duration::from_secs(1);

/// Answers a list, or queues it.
pub(super) fn answer(api: &Api, answer: ReadHandler, call: Call, reply: Reply) {
    let payer = match call.who.kind {
        ActorType::Anonymous => Payer::Anonymous,
        _ => Payer::tenant(&call.tenant),
    };
    let work = move |api: &Api, reply: Reply| {
        reply.send(answer(api, &call).unwrap_or_else(Into::into));
    };
    api.in_turn(&payer, work, reply);
}

/// Answers a trial of a subscription, or queues it: a template may take long.
pub(super) fn answer_trial(api: &Api, answer: ActHandler, call: Call, reply: Reply) {
    let payer = Payer::tenant(&call.tenant);
    let work = move |api: &Api, reply: Reply| reply.send(api.acted(&call, answer(api, &call)));
    api.in_turn_of(&api.trials, &payer, work, reply);
}

impl Api {
    /// Runs work that reads many rows when its turn comes: few run at a time, each for a second at most, on
    /// connections of their own, so that the other handlers stay free. The thread that runs it continues with the queue.
    pub(crate) fn in_turn(
        &self,
        payer: &Payer,
        work: impl FnOnce(&Self, Reply) + Send + 'static,
        reply: Reply,
    ) {
        self.in_turn_of(&self.lists, payer, work, reply);
    }

    fn in_turn_of(
        &self,
        queue: &Lists,
        payer: &Payer,
        work: impl FnOnce(&Self, Reply) + Send + 'static,
        reply: Reply,
    ) {
        let list = List { work: Box::new(work), reply, span: Span::current() };
        if let Err(list) = queue.lock().push(payer, list) {
            let detail = "Too many lists or trials are asked for at once.";
            return list.reply.send(Problem::unavailable(detail, 1).into());
        }
        while let Some((turn, List { work, reply, span })) = Turn::begin(queue) {
            span.in_scope(|| work(self, reply));
            drop(turn);
        }
    }
}

/// No list runs or waits.
pub(super) fn none_yet() -> Lists {
    let readers = usize::try_from(LIST_READERS).unwrap_or(1);
    Mutex::new(FairQueue::new(Fair::new(readers, readers.saturating_add(1)), MAX_WAITING))
}

/// A place among the lists that run.
struct Turn<'a>(&'a Lists, Payer);

impl<'a> Turn<'a> {
    fn begin(lists: &'a Lists) -> Option<(Self, List)> {
        let (payer, list) = lists.lock().begin()?;
        Some((Self(lists, payer), list))
    }
}

impl Drop for Turn<'_> {
    /// After a panic there may be no other thread to answer the waiting lists. Dropping them answers 500.
    fn drop(&mut self) {
        let mut lists = self.0.lock();
        lists.end(&self.1);
        let left = if thread::panicking() { lists.drain() } else { Vec::new() };
        drop(lists);
        drop(left);
    }
}

/// Reads a list for [`MAX_SPAN`] at most.
/// Fails with 503 when the time is over, or with the error of `read`.
pub(super) fn read<T>(
    api: &Api,
    call: &Call,
    read: impl FnOnce(&ReadTx<'_>) -> StoreResult<T>,
) -> Result<T, Problem> {
    read_until(api, call, end(api), read)
}

/// When a list that begins now must be read.
pub(super) fn end(api: &Api) -> Duration {
    api.env.clock.monotonic().saturating_add(MAX_SPAN)
}

/// As [`read`], for a list that is read in several files.
pub(super) fn read_until<T>(
    api: &Api,
    call: &Call,
    end: Duration,
    read: impl FnOnce(&ReadTx<'_>) -> StoreResult<T>,
) -> Result<T, Problem> {
    let clock = api.env.clock.clone();
    api.env.store.list(move || clock.monotonic() >= end, read).map_err(|error| match error {
        Error::TooLong => Problem::list_too_long(MAX_SPAN, call.doc),
        error => error.into(),
    })
}

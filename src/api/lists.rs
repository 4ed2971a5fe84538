//! A semaphore for lists: two handlers read lists at a time, each for a second at most, on connections of their own.
//! Further lists wait in a queue, so that the other handlers stay free for webhooks and events.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tracing::Span;

use crate::api::Api;
use crate::api::call::Call;
use crate::api::problem::Problem;
use crate::api::route::Looked;
use crate::http::service::Reply;
use crate::store::LISTERS;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::tx::ReadTx;

/// How long a list may read.
const MAX_SPAN: Duration = Duration::from_secs(1);
/// Lists that wait at most: the last of them begins after four seconds. One more is answered 503.
const MAX_WAITING: usize = 8;

/// The lists that run, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    count: u32,
    waiting: VecDeque<List>,
}

/// A request for a list.
#[derive(Debug)]
struct List {
    answer: Looked,
    call: Call,
    reply: Reply,
    /// The request's span, for the log.
    span: Span,
}

/// Answers a list, now or later. A handler that answers one goes on with those that wait.
pub(super) fn answer(api: &Api, answer: Looked, call: Call, reply: Reply) {
    let list = List { answer, call, reply, span: Span::current() };
    let Some(mut permit) = api.lists.admit(list) else { return };
    while let Some(List { answer, call, reply, span }) = permit.next.take() {
        span.in_scope(|| reply.send(answer(api, &call).unwrap_or_else(Into::into)));
        permit.take_next();
    }
}

/// Reads a list within its time.
///
/// # Errors
/// 503 that names the filters which are quick, or what `read` returns.
pub(super) fn read<T>(
    api: &Api,
    call: &Call,
    read: impl FnOnce(&ReadTx<'_>) -> StoreResult<T>,
) -> Result<T, Problem> {
    let clock = api.clock.clone();
    let end = clock.monotonic().saturating_add(MAX_SPAN);
    api.store.list(move || clock.monotonic() >= end, read).map_err(|error| match error {
        Error::TooLong => Problem::list_too_long(MAX_SPAN, call.doc),
        error => error.into(),
    })
}

impl Lists {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock()
    }

    /// Lets a list begin, or lets it wait, or refuses it where too many wait.
    fn admit(&self, list: List) -> Option<Permit<'_>> {
        let mut running = self.lock();
        if running.count < LISTERS {
            running.count = running.count.saturating_add(1);
            return Some(Permit { lists: self, next: Some(list), is_released: false });
        }
        if running.waiting.len() < MAX_WAITING {
            running.waiting.push_back(list);
            return None;
        }
        drop(running);
        list.reply.send(Problem::unavailable("Too many lists are asked for at once.", 1).into());
        None
    }
}

/// The permission to read lists.
struct Permit<'a> {
    lists: &'a Lists,
    next: Option<List>,
    is_released: bool,
}

impl Permit<'_> {
    /// Takes the next list that waits; where there is none, the permit is released.
    fn take_next(&mut self) {
        let mut running = self.lists.lock();
        self.next = running.waiting.pop_front();
        if self.next.is_none() {
            running.count = running.count.saturating_sub(1);
            self.is_released = true;
        }
    }
}

impl Drop for Permit<'_> {
    /// After a panic there may be no other permit to answer the lists that wait; dropped, they are answered 500.
    fn drop(&mut self) {
        if !self.is_released {
            let mut running = self.lists.lock();
            running.count = running.count.saturating_sub(1);
            let left = std::mem::take(&mut running.waiting);
            drop(running);
            drop(left);
        }
    }
}

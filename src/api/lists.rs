//! Lists stall nobody: two handlers look through rows at a time, each for a second at most, on connections of the
//! lists' own. What comes meanwhile is put aside, so that the other handlers stay free for what is sent to us.

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

/// How long a list may look.
const MAX_SPAN: Duration = Duration::from_secs(1);
/// Lists that are put aside at most: the last of them is begun after four seconds. One more is answered 503.
const MAX_ASIDE: usize = 8;

/// Who looks through rows, and who waits for that.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<Desk>);

#[derive(Debug, Default)]
struct Desk {
    running: u32,
    aside: VecDeque<List>,
}

/// A list that was asked for.
#[derive(Debug)]
struct List {
    answer: Looked,
    call: Call,
    reply: Reply,
    /// Its request, for the log.
    span: Span,
}

/// Answers a list, now or when it is its turn. Who answers one goes on with those that were put aside.
pub(super) fn answer(api: &Api, answer: Looked, call: Call, reply: Reply) {
    let list = List { answer, call, reply, span: Span::current() };
    let Some(mut turn) = api.lists.admit(list) else { return };
    while let Some(List { answer, call, reply, span }) = turn.next.take() {
        span.in_scope(|| reply.send(answer(api, &call).unwrap_or_else(Into::into)));
        turn.go_on();
    }
}

/// Reads a list until its time is over.
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
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.0.lock()
    }

    /// Lets a list begin; else puts it aside, or refuses it where too many are.
    fn admit(&self, list: List) -> Option<Turn<'_>> {
        let mut desk = self.lock();
        if desk.running < LISTERS {
            desk.running = desk.running.saturating_add(1);
            return Some(Turn { desk: self, next: Some(list), is_over: false });
        }
        if desk.aside.len() < MAX_ASIDE {
            desk.aside.push_back(list);
            return None;
        }
        drop(desk);
        list.reply.send(Problem::unavailable("Too many lists are asked for at once.", 1).into());
        None
    }
}

/// The right to look through rows.
struct Turn<'a> {
    desk: &'a Lists,
    next: Option<List>,
    is_over: bool,
}

impl Turn<'_> {
    /// Takes what was put aside; where there is nothing, the turn is over.
    fn go_on(&mut self) {
        let mut desk = self.desk.lock();
        self.next = desk.aside.pop_front();
        if self.next.is_none() {
            desk.running = desk.running.saturating_sub(1);
            self.is_over = true;
        }
    }
}

impl Drop for Turn<'_> {
    /// After a panic nobody may be left to take what was put aside; dropped, it is answered 500.
    fn drop(&mut self) {
        if !self.is_over {
            let mut desk = self.desk.lock();
            desk.running = desk.running.saturating_sub(1);
            let left = std::mem::take(&mut desk.aside);
            drop(desk);
            drop(left);
        }
    }
}

//! Answers lists, and limits how long each may read.

use std::time::Duration;

use tracing::Span;

use crate::api::call::Call;
use crate::api::context::{Api, ListWork, ReadHandler};
use crate::api::list_queue::List;
use crate::api::problem::Problem;
use crate::http::service::Reply;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::tx::ReadTx;

/// How long a list may read.
const MAX_SPAN: Duration = Duration::from_secs(1);

/// Answers a list, or queues it.
pub(super) fn answer(api: &Api, answer: ReadHandler, call: Call, reply: Reply) {
    api.in_turn(move |api, reply| reply.send(answer(api, &call).unwrap_or_else(Into::into)), reply);
}

impl Api {
    /// Runs work that reads many rows when its turn comes: few run at a time. The thread that runs it continues with
    /// the queue.
    pub(crate) fn in_turn(&self, work: impl FnOnce(&Self, Reply) + Send + 'static, reply: Reply) {
        let work: ListWork = Box::new(work);
        let list = List { work, reply, span: Span::current() };
        let Some(mut permit) = self.lists.admit(list) else { return };
        while let Some(List { work, reply, span }) = permit.next.take() {
            span.in_scope(|| work(self, reply));
            permit.take_next();
        }
    }
}

/// Reads a list for [`MAX_SPAN`] at most.
/// Fails with 503 when the time is over, or with the error of `read`.
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

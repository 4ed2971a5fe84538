//! Lists: how they are answered, and the time that each may read.

use std::time::Duration;

use tracing::Span;

use crate::api::call::Call;
use crate::api::context::{Api, Looked};
use crate::api::list_queue::List;
use crate::api::problem::Problem;
use crate::http::service::Reply;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::tx::ReadTx;

/// How long a list may read.
const MAX_SPAN: Duration = Duration::from_secs(1);

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
/// Fails with 503 that names the filters which are quick, or what `read` returns.
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

//! `POST /v1/processed-events`: the guard of a consumer that has no database of its own.

use serde::Deserialize;
use serde_json::json;

use crate::api::Api;
use crate::api::call::{Call, answer};
use crate::api::problem::Problem;
use crate::http::message::Response;
use crate::store::processed_events;
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// The claim of one event for one consumer group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    consumer_group: String,
    event_id: String,
}

/// 201 the first time, 200 when the group has done the event before.
pub(super) fn claim(api: &Api, call: &Call) -> Result<Response, Problem> {
    let Claim { consumer_group, event_id } = call.json()?;
    let (tenant, now) = (call.tenant.clone(), api.clock.wall());
    let run = move |tx: &WriteTx<'_>| {
        processed_events::claim(tx, &tenant, &consumer_group, &event_id, now)
    };
    let first = api.store.writer().write(Queue::Accept, run)?;
    let status = if first { 201 } else { 200 };
    Ok(answer(status, &json!({ "already_processed": !first })))
}

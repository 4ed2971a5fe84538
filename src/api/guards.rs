//! `POST /v1/processed-events`: the guard of a consumer that has no database of its own.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::call::{Call, answer};
use crate::api::problem::Problem;
use crate::api::route::Answer::Later;
use crate::api::route::{Resource, Returns, doc, route, shape};
use crate::api::schema;
use crate::http::message::Method::Post;
use crate::http::service::Reply;
use crate::model::token::{self, MAX_GROUP_CHARS, Right};
use crate::store::processed_events::{self, Claimed};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

/// The guard.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Guards",
    about: "For consumers without a database of their own: which events they have done.",
    routes: &[route(
        Post,
        "/v1/processed-events",
        Some(Right::Publish),
        Later(claim),
        doc(
            "claimProcessedEvent",
            "Claim an event for a consumer group",
            "The first claim of an event by a group is answered 201, every later one 200. Answered after \
             COMMIT. A `publish` token claims for the groups that it lists, and is answered 403 for others. The claim is no part of the consumer's own transaction: `docs/guards.md` says what that means.",
            &[
                Returns::json(201, "The group has not done it: do it now.", "Claimed"),
                Returns::json(200, "The group has done it: leave it.", "Claimed"),
            ],
        )
        .body("Claim", claim_example),
    )],
    shapes: &[shape("Claim", claim_schema), shape("Claimed", claimed_schema)],
};

/// The claim of one event for one consumer group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    consumer_group: String,
    event_id: String,
}

/// 201 the first time, 200 when the group has done the event before; sent after COMMIT.
pub(super) fn claim(api: &Api, call: Call, reply: Reply) {
    let Claim { consumer_group, event_id } = match read(&call) {
        Ok(claim) => claim,
        Err(problem) => return reply.send(problem.into()),
    };
    let (tenant, now) = (call.tenant, api.clock.wall());
    api.store.writer().submit(
        Queue::Accept,
        move |tx: &WriteTx<'_>| {
            processed_events::claim(tx, &tenant, &consumer_group, &event_id, now)
        },
        move |claimed| {
            reply.send(claimed.map_or_else(
                |error| Problem::from(error).into(),
                |Claimed { is_first, at }| {
                    let status = if is_first { 201 } else { 200 };
                    answer(status, &json!({ "already_processed": !is_first, "processed_at": at }))
                },
            ));
        },
    );
}

/// Checked before the queue: what the schema refuses there would cost its whole batch.
fn read(call: &Call) -> Result<Claim, Problem> {
    let claim: Claim = call.json()?;
    let Claim { consumer_group, event_id } = &claim;
    for (field, value, most) in
        [("consumer_group", consumer_group, MAX_GROUP_CHARS), ("event_id", event_id, 255)]
    {
        token::check_text(field, value, most).map_err(Problem::unprocessable)?;
    }
    if let Some(scope) = &call.scope {
        scope
            .check_claim(consumer_group)
            .map_err(|why| Problem::forbidden(format!("Not allowed: {why}.")))?;
    }
    Ok(claim)
}

fn claim_schema() -> Value {
    schema::request(
        &["consumer_group", "event_id"],
        json!({
            "consumer_group": name(64),
            "event_id": schema::about(name(255), "The `webhook-id` it came with."),
        }),
    )
}

/// A text without control characters.
fn name(most: u32) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": most, "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$" })
}

fn claim_example() -> Value {
    json!({ "consumer_group": "logistics", "event_id": "evt_AEBAGBAFAYDQQCIKBMGA2DQPCA" })
}

fn claimed_schema() -> Value {
    let at = schema::about(schema::time(), "When the group has claimed it, now or before.");
    schema::object(json!({ "already_processed": schema::yes_or_no(), "processed_at": at }))
}

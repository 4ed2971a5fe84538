//! `POST /v1/processed-events`: the guard of a consumer that has no database of its own.

use crate::api::call::answer;
use crate::api::prelude::*;
use crate::model::token::Right::Publish;
use crate::model::token::{self, MAX_GROUP_CHARS};
use crate::store::processed_events::{self, Claimed};
use crate::store::writer::Queue;

/// Characters of an event's id at most.
const MAX_EVENT_ID_CHARS: usize = 255;
/// A text without control characters.
const NO_CONTROLS: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// The guard.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Guards",
    about: "For consumers without a database of their own: which events they have processed.",
    routes: &[post("/v1/processed-events", Publish, Later(claim))
        .doc("claimProcessedEvent", "Claim an event for a consumer group", &[])
        .about(
            "The first claim of an event by a group is answered 201, every later one \
                 200. Answered after COMMIT. A `publish` token may claim for the groups \
                 that it lists; others are answered 403. The claim is not part of the consumer's \
                 own transaction: `docs/guards.md` says what that means.",
        )
        .returns(&[
            Returns::json::<ClaimAnswer>(201, "The first claim: process the event now."),
            Returns::json::<ClaimAnswer>(200, "The group has claimed it before: skip the event."),
        ])
        .body::<Claim>(
            r#"{"consumer_group":"logistics",
                "event_id":"evt_AEBAGBAFAYDQQCIKBMGA2DQPCA"}"#,
        )],
};

/// The claim of one event for one consumer group.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Claim {
    #[schemars(length(min = 1, max = MAX_GROUP_CHARS), regex(pattern = NO_CONTROLS))]
    consumer_group: String,
    /// The event's `webhook-id`.
    #[schemars(length(min = 1, max = MAX_EVENT_ID_CHARS), regex(pattern = NO_CONTROLS))]
    event_id: String,
}

/// Whether a claim is the first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Claimed")]
struct ClaimAnswer {
    already_processed: bool,
    /// When the group first claimed it.
    processed_at: Timestamp,
}

/// Answers 201 to a group's first claim of an event and 200 to later ones, after COMMIT.
pub(super) fn claim(api: &Api, call: Call, reply: Reply) {
    let Claim { consumer_group, event_id } = match read(&call) {
        Ok(claim) => claim,
        Err(problem) => return reply.send(problem.into()),
    };
    let tenant = call.tenant;
    let now = api.env.clock.wall();
    api.env.store.writer().submit(
        Queue::Accept,
        move |tx: &WriteTx<'_>| {
            processed_events::claim(tx, &tenant, &consumer_group, &event_id, now)
        },
        move |claimed| {
            reply.send(claimed.map_or_else(
                |error| Problem::from(error).into(),
                |Claimed { is_first, at }| {
                    let status = if is_first { 201 } else { 200 };
                    answer(status, &ClaimAnswer { already_processed: !is_first, processed_at: at })
                },
            ));
        },
    );
}

/// Reads and checks a claim. One that only the database refuses would roll back its whole batch.
fn read(call: &Call) -> Result<Claim, Problem> {
    let claim: Claim = call.json()?;
    let Claim { consumer_group, event_id } = &claim;
    for (field, value, most) in [
        ("consumer_group", consumer_group, MAX_GROUP_CHARS),
        ("event_id", event_id, MAX_EVENT_ID_CHARS),
    ] {
        token::check_text(field, value, most).map_err(Problem::unprocessable)?;
    }
    if let Some(scope) = &call.scope {
        scope
            .check_claim(consumer_group)
            .map_err(|why| Problem::forbidden(format!("Not allowed: {why}.")))?;
    }
    Ok(claim)
}

//! `/v1/dead-letters/…`: counts dead letters by error and answer; sends again or discards those that match a filter.
//!
//! Not here: the list of them ([`super::deliveries`]).

use crate::api::call::{MAX_REASON_CHARS, check_reason};
use crate::api::jobs::{self, JobRequest, MADE, Request};
use crate::api::prelude::*;
use crate::jobs::tables::dead_letters::{self, Group};
use crate::jobs::{JobFilter, JobKind, MAX_RATE};
use crate::model::json_fields;

const SUBSCRIPTION: Param =
    Param::query::<SomeText>("subscription", "Only those to the subscription of this name.", "erp");

/// Bulk operations on dead letters.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Dead letters",
    about: "Deliveries that were given up: counts by error, and bulk operations.",
    routes: &[
        get("/v1/dead-letters/summary", Read, Listed(summary))
            .doc(
                "summarizeDeadLetters",
                "Count dead letters by subscription, error and answer",
                &[SUBSCRIPTION, SINCE, UNTIL],
            )
            .about(
                "Counts the newest 1,000, in at most 100 groups, the largest first. `answer` is what the target said, in \
                 one sentence; it is a filter of the list, of replay and of discard.",
            )
            .returns(&[Returns::json::<Summary>(200, "The groups.")]),
        post("/v1/dead-letters/replay", Operate, Act("job.replay_dead_letters", replay))
            .doc("replayDeadLetters", "Send dead letters again", &[])
            .about(
                "The oldest first, lane by lane, in the order of each lane. They keep their `webhook-id`. \
                 Later dead letters are not included.",
            )
            .returns(MADE)
            .body::<Request>(
                r#"{"filter":{"subscription":"erp","code":422,"answer":"unknown article A-99"},"rate":50}"#,
            ),
        post("/v1/dead-letters/discard", Operate, Act("job.discard_dead_letters", discard))
            .doc("discardDeadLetters", "Discard dead letters", &[])
            .about("They are cancelled, with the reason; their rows stay.")
            .returns(MADE)
            .body::<Discard>(
                r#"{"filter":{"subscription":"erp"},"reason":"sent by hand","dry_run":true}"#,
            ),
    ],
};

/// The body of a discard.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DeadLetterDiscard")]
struct Discard {
    /// Which ones; an empty object means all.
    #[serde(deserialize_with = "json_fields::object")]
    filter: JobFilter,
    /// Why; kept with each delivery.
    reason: Is<Text<1, MAX_REASON_CHARS>>,
    /// Only count them, and show the first ten.
    #[serde(default)]
    dry_run: bool,
    /// The most deliveries per second; no limit if absent.
    #[serde(default, deserialize_with = "json_fields::whole")]
    #[schemars(with = "Option<Whole<1, MAX_RATE>>")]
    rate: Option<u32>,
}

/// `POST /v1/dead-letters/replay`
fn replay(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Request { filter, dry_run, rate } = call.json()?;
    jobs::check_of_dead_letters(&filter)?;
    let request = JobRequest { kind: JobKind::ReplayDeadLetters, filter, rate, reason: None };
    jobs::start(api, call, request, dry_run)
}

/// `POST /v1/dead-letters/discard`
fn discard(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Discard { filter, reason, dry_run, rate } = call.json()?;
    jobs::check_of_dead_letters(&filter)?;
    check_reason(&reason)?;
    let request =
        JobRequest { kind: JobKind::DiscardDeadLetters, filter, rate, reason: Some(reason.0) };
    jobs::start(api, call, request, dry_run)
}

/// Dead letters by subscription, error and answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterSummary")]
struct Summary {
    groups: Vec<Group>,
}

/// `GET /v1/dead-letters/summary`
fn summary(api: &Api, call: &Call) -> Result<Response, Problem> {
    let subscription = call.query.text("subscription");
    let made = call.query.span()?;
    let groups = lists::read(api, call, |tx| {
        dead_letters::summary(tx, &call.tenant, subscription.as_deref(), made)
    })?;
    Ok(ok(&Summary { groups }))
}

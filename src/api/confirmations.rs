//! Confirmations of deliveries that their target has accepted: `POST /v1/deliveries/{id}/confirm`, and `POST
//! /confirm/{token}`, whose URL the target gets with each attempt.

use std::sync::Arc;

use crate::api::audited::change_and;
use crate::api::deliveries::{ID, find};
use crate::api::prelude::*;
use crate::api::route::public;
use crate::http::message::Method::Post;
use crate::keys::PresentedToken;
use crate::model::delivery::Delivery;
use crate::model::lease::LeaseOutcome;
use crate::pipeline::confirmations::{Confirmed, Presented};
use crate::store::delivery_lists;
use crate::store::leases::{self, Held};
use crate::store::writer::Queue;

/// The largest body of a confirmation.
pub(super) const BODY_BYTES: usize = 16 * 1024;
/// Characters of a reason that are kept.
const MAX_REASON_CHARS: usize = 2048;
/// `Retry-After` while the attempt is not settled.
const EARLY_RETRY_AFTER_SECS: u64 = 1;

const TOKEN: Param =
    Param::path::<SomeText>("token", "The token of the confirm URL.", "17-1-1-xxxx");

/// Confirmations.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Confirmations",
    about: "Where a subscription has `confirm_within`, a 2xx only means that a delivery is accepted, and it waits for its \
            confirmation. If `listen.public_url` is set, each request has the header `oncebox-confirm-url`.",
    routes: &[
        post(
            "/v1/deliveries/{id}/confirm",
            Operate,
            Act("delivery.confirm", confirm),
        )
        .doc("confirmDelivery", "Confirm a delivery that its target has accepted", &[ID])
        .about(
            "`ok` completes it. `failed` counts as a failed attempt: it is retried by the schedule, or given up. A \
             repeated confirmation gets the same answer; a late one gets 409, and one before the attempt is settled 503: send it again.",
        )
        .body::<Confirmation>(EXAMPLE)
        .returns(&[Returns::json::<Delivery>(200, "The delivery as it is now.")]),
        public(Post, "/confirm/{token}", Later(confirm_by_url))
        .doc("confirmByUrl", "Confirm an attempt by its confirm URL", &[TOKEN])
        .about(
            "Works once, and only while this attempt waits for its confirmation; otherwise it is answered 404. 503: \
             the attempt is not settled yet; send it again.",
        )
        .body::<Confirmation>(EXAMPLE)
        .returns(&[Returns::nothing("It is stored and synced to the disk.")])
        .problems(&[Kind::Unprocessable]),
    ],
};

const EXAMPLE: &str = r#"{"result":"failed","reason":"the article is unknown"}"#;

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ConfirmationResult")]
enum ConfirmedAs {
    Ok,
    Failed,
}

/// What became of a delivery, and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Confirmation {
    /// `ok`: it is done. `failed`: it counts as a failed attempt.
    result: ConfirmedAs,
    /// Why it failed; the first 2048 characters are kept.
    reason: Option<String>,
    /// It can never succeed: it becomes a dead letter at once.
    #[serde(default, rename = "final")]
    is_final: bool,
}

impl Confirmation {
    /// Fails with 422 when its fields do not go together.
    fn outcome(self) -> Result<LeaseOutcome, Problem> {
        let reason = self.reason.filter(|reason| !reason.trim().is_empty());
        let reason = reason.map(|reason| reason.chars().take(MAX_REASON_CHARS).collect());
        match (self.result, reason, self.is_final) {
            (ConfirmedAs::Ok, None, false) => Ok(LeaseOutcome::Done),
            (ConfirmedAs::Failed, Some(reason), true) => Ok(LeaseOutcome::Refused { reason }),
            (ConfirmedAs::Failed, Some(reason), false) => {
                Ok(LeaseOutcome::Failed { reason, wait: None, counted: true })
            }
            (ConfirmedAs::Ok, ..) => {
                Err(Problem::unprocessable("reason and final go with failed, not with ok."))
            }
            (ConfirmedAs::Failed, None, _) => Err(Problem::unprocessable("failed needs a reason.")),
        }
    }
}

/// `POST /v1/deliveries/{id}/confirm`
fn confirm(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let outcome = call.json::<Confirmation>()?.outcome()?;
    let tenant = call.tenant.clone();
    let seq = find(api, call)?.seq;
    let confirm = api.flow.confirmations.clone();
    // Asked first: the attempt's outcome goes to the writer before it is no longer in flight.
    let is_early = api.flow.in_flight.since(seq).is_some();
    let held = api.env.store.read(|tx| leases::any(tx, seq))?.or_not_found("delivery")?;
    let outcome = confirm.cleaned(&held, outcome)?;
    let done = change_and(api, call, move |tx| {
        let before = delivery_lists::by_seq(tx, &tenant, seq)?;
        let settlement = match confirm.settle(tx, seq, Presented::ByName { is_early }, &outcome)? {
            Confirmed::Stored(settlement) => Some(settlement),
            Confirmed::Again => None,
            Confirmed::Refused(why) => return Err(Problem::conflict(why).into()),
            Confirmed::TooEarly => return Err(too_early().into()),
            Confirmed::Missing => return Err(Problem::not_found("delivery").into()),
        };
        let after = delivery_lists::by_seq(tx, &tenant, seq)?;
        let (before, after) = before.zip(after).or_not_found("delivery")?;
        Ok((Change::changed("delivery", &seq.to_string(), &before, &after), settlement))
    })?;
    Ok(done.map(|(delivery, settlement)| {
        if let Some(settlement) = settlement {
            api.flow.confirmations.counts.confirmed(&settlement);
        }
        delivery
    }))
}

/// The delivery that a confirm URL names.
/// Fails with the same 404 for whatever does not wait for this token.
pub(super) fn named(api: &Api, params: &[String]) -> Result<(PresentedToken, Held), Problem> {
    let token = params.first().map_or("", String::as_str);
    api.flow.confirmations.of_token(token)?.ok_or_else(unknown)
}

fn too_early() -> Problem {
    let detail = "Our record of this attempt is not stored yet; confirm it again shortly.";
    Problem::unavailable(detail, EARLY_RETRY_AFTER_SECS)
}

fn unknown() -> Problem {
    Problem::not_found("confirmation")
}

/// `POST /confirm/{token}`; the reply is sent after COMMIT.
fn confirm_by_url(api: &Api, call: Call, reply: Reply) {
    let confirm = api.flow.confirmations.clone();
    let read = || -> Result<_, Problem> {
        let (presented, held) = named(api, &call.params)?;
        let outcome = call.json::<Confirmation>()?.outcome()?;
        Ok((presented, confirm.cleaned(&held, outcome)?))
    };
    let (presented, outcome) = match read() {
        Ok(read) => read,
        Err(problem) => return reply.send(problem.into()),
    };
    let delivery = presented.attempt.delivery;
    let counts = Arc::clone(&confirm.counts);
    let share = call.share;
    api.env.store.writer().submit(
        Queue::Accept,
        move |tx| confirm.settle(tx, delivery, Presented::Token(&presented), &outcome),
        move |done| {
            reply.send(match done {
                Ok(Confirmed::Stored(settlement)) => {
                    counts.confirmed(&settlement);
                    Response::new(204)
                }
                Ok(Confirmed::TooEarly) => too_early().into(),
                Ok(_) => unknown().into(),
                Err(error) => Problem::from(error).into(),
            });
            // The memory is reserved until the answer, because the report waits for the writer.
            drop(share);
        },
    );
}

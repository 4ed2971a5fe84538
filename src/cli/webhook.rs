//! `oncebox webhook`: what providers posted to us.
//!
//! Not here: the providers themselves ([`super::provider`]), and posting a sample ([`super::trigger`]).

use crate::cli::job::{self, Pace};
use crate::cli::prelude::*;
use crate::cli::timeline::{self, WEBHOOKS};

const TABLE: &str = "
webhook  Webhooks that providers posted
  list = listWebhookEvents  Webhook events, newest first
    status --status --state
  show = getWebhookEvent  One webhook event with its deliveries and their attempts
    --payload  Print the payload alone
  replay = replayWebhookEvents  Send webhook events again: one, or all that fit
    [id] not:all  The webhook event's id
    --all  All that fit the other flags
    filter.provider
    filter.code <STATUS>
    filter.event_type <TYPE>  Only those of this event type
    !filter.ids
    !filter.aggregate_type
    !filter.aggregate_id
    filter.*
    | One that was skipped goes to the subscriptions that match it now.
    |
    |   oncebox webhook replay ID
    |   oncebox webhook replay --provider stripe --since 2h --rate 50
";

pub(super) const COMMANDS: Commands = Commands::new(
    &WEBHOOKS,
    TABLE,
    &[own("show", timeline::show), own("replay", replay).more(Pace::augment_args)],
);

fn replay(call: &Call<'_>, remote: &Remote) -> Done {
    if !call.has("id") {
        return job::start(call, remote, job::again("webhook events"));
    }
    let event = job::replay_one(call, remote, &WEBHOOKS)?;
    remote.answer(&event, format_args!("{} is {}", text(&event, "id"), text(&event, "status")))
}

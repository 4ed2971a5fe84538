//! `/v1/events/{id}/replay` and similar routes: sending one event again, as it was or as a new one; cancelling it; and
//! sending another payload in place of a delivery.
//!
//! Not here: many events at once ([`super::jobs`]), and a single delivery ([`super::deliveries`]).

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde_json::json;
use serde_json::value::RawValue;

use crate::api::archived::{self, By};
use crate::api::audited::ChangeResult;
use crate::api::events::{self, EventHeaders};
use crate::api::prelude::*;
use crate::api::schema::{Ascii, StrictBase64};
use crate::api::{deliveries, webhook_events as webhooks};
use crate::archive;
use crate::base::id;
use crate::jobs::{Batch, Cursor, JobFilter, JobKind, NewJob, tables};
use crate::model::delivery::Delivery;
use crate::model::event::{Event, NewEvent, Status};
use crate::model::sealed::Sealed;
use crate::model::webhook_event::WebhookEvent;
use crate::pipeline::publish;
use crate::privacy::NotAdmitted;
use crate::store::deliveries::Origin;
use crate::store::error::Error;
use crate::store::outbox::Inserted;
use crate::store::{delivery_lists, outbox_lists, settlement, subscriptions, webhook_events};

/// Most subscriptions that a request sends an event to again.
const MAX_RECEIVERS: usize = 100;

/// Sending one event again, or cancelling it.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Send again",
    about: "Send one event or webhook event again, or cancel it.",
    routes: &[
        post("/v1/events/{id}/replay", Operate, Act("event.replay", replay))
            .doc("replayEvent", "Send an event again", &[events::ID])
            .about(
                "Sends its final deliveries again, also the completed ones, under the same `webhook-id`: a \
                 consumer with a guard processes the event once. With `subscription` or `subscriptions`, only the \
                 deliveries to those are sent; one that matches the event and has no delivery of it gets one. With \
                 `as_new`, or with another payload, a new event is stored. It has its own key and \
                 `webhook-id`, and names this event in `replay_of`.",
            )
            .returns(&[
                Returns::json::<Event>(200, "The event as it is now."),
                Returns::json::<Event>(201, "The new event."),
            ])
            .optional_body::<Replay>(r#"{"as_new":true,"payload":{"total":"99.00"}}"#),
        post("/v1/events/{id}/cancel", Operate, Act("event.cancel", cancel))
            .doc("cancelEvent", "Cancel an event", &[events::ID])
            .about(
                "Its open deliveries are not tried again. An attempt that is in flight or leased at this \
                 moment may still succeed.",
            )
            .returns(&[Returns::json::<Event>(200, "The event as it is now.")]),
        post("/v1/webhook-events/{id}/replay", Operate, Act("webhook_event.replay", replay_webhook))
            .doc("replayWebhookEvent", "Send a webhook event again", &[webhooks::ID])
            .about(
                "Like `POST /v1/events/{id}/replay`, but never as a new event: what a provider sent does not \
                 change. A `skipped` one goes to the subscriptions that match it now.",
            )
            .returns(&[Returns::json::<WebhookEvent>(200, "The webhook event as it is now.")])
            .optional_body::<Replay>(r#"{"subscription":"erp"}"#),
        post(
            "/v1/deliveries/{id}/edit-and-resend",
            Operate,
            Act("delivery.edit_and_resend", edit_and_resend),
        )
            .doc(
                "editAndResendDelivery",
                "Send another payload in place of a delivery",
                &[deliveries::ID],
            )
            .about(
                "For a delivery that is pending, parked or a dead letter. It is skipped. A new event with the \
                 payload takes its place in the lane, so it goes next; it names the old event in `replay_of`. \
                 While an attempt is in flight it is refused: park the delivery first.",
            )
            .returns(&[
                Returns::json::<Delivery>(200, "With `dry_run`: the delivery as it is."),
                Returns::json::<Delivery>(201, "The delivery of the new event."),
            ])
            .body::<Edited>(r#"{"payload":{"total":"99.00"}}"#),
    ],
};

/// How an event is sent again.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "ReplayOfOne")]
struct Replay {
    /// Only to this subscription, by name or id.
    subscription: Option<Is<SomeText>>,
    /// Only to these subscriptions, each by name or id. If one of them cannot get the event, none does. Not with
    /// `subscription`, and not for a new event.
    #[schemars(length(min = 1, max = MAX_RECEIVERS))]
    subscriptions: Option<Vec<Is<SomeText>>>,
    /// As a new event, with its own `webhook-id`. Not for webhook events.
    as_new: bool,
    /// Another payload, any JSON; this makes a new event. Not for webhook events.
    payload: Option<Is<Value, Box<RawValue>>>,
    /// Any bytes, instead of `payload`.
    payload_base64: Option<Is<StrictBase64>>,
    /// The content type of the new payload; that of the event if absent.
    content_type: Option<Is<Ascii<0, 255>>>,
}

impl Replay {
    fn is_new(&self) -> bool {
        let Self { as_new, payload, payload_base64, content_type, .. } = self;
        *as_new || payload.is_some() || payload_base64.is_some() || content_type.is_some()
    }

    /// The subscriptions that it names, each once.
    fn receivers(&self) -> Result<Vec<String>, Problem> {
        let Self { subscription, subscriptions, .. } = self;
        if subscription.is_some() && subscriptions.is_some() {
            return Err(Problem::unprocessable("Give either subscription or subscriptions."));
        }
        let one = subscription.as_deref().map(str::to_owned);
        let several = subscriptions.iter().flatten().map(|name| (**name).to_owned());
        let mut names = Vec::new();
        for name in one.into_iter().chain(several) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// The other payload, if there is one.
    fn payload(&self) -> Result<Option<Vec<u8>>, Problem> {
        let wrong = |detail: String| Problem::unprocessable(detail);
        match (&self.payload, &self.payload_base64) {
            (None, None) => Ok(None),
            (Some(json), None) => Ok(Some(json.get().as_bytes().to_vec())),
            (None, Some(text)) => BASE64
                .decode(text.as_bytes())
                .map(Some)
                .map_err(|error| wrong(format!("payload_base64 is not base64: {error}."))),
            _ => Err(wrong("Give either payload or payload_base64.".to_owned())),
        }
    }
}

/// `POST /v1/events/{id}/replay`
fn replay(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let replay: Replay = call.optional_json()?;
    if replay.is_new() {
        return replay_as_new(api, call, &replay);
    }
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    let again = SentAgain { job: job_of_one(api, call), receivers: replay.receivers()? };
    let now = api.env.clock.now();
    archived::change_event(api, call, archive::ArchivedKind::Event, move |tx| {
        let before = outbox_lists::by_id(tx, &tenant, &id)?.or_not_found("event")?;
        if before.status == Status::Quarantined {
            let detail = "The event is quarantined: repair it with POST …/fix to send it.";
            return Err(Problem::conflict(detail).into());
        }
        not_expunged(before.expunged_at)?;
        again.carry_out(tx, Origin::Outbox(before.seq), now)?;
        event_changed(tx, &before)
    })
}

/// `POST /v1/webhook-events/{id}/replay`
fn replay_webhook(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let replay: Replay = call.optional_json()?;
    if replay.is_new() {
        let detail = "A webhook event cannot be sent as a new one or with another payload: publish an event \
                      instead (POST /v1/events).";
        return Err(Problem::unprocessable(detail));
    }
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    let again = SentAgain { job: job_of_one(api, call), receivers: replay.receivers()? };
    let now = api.env.clock.now();
    archived::change_event(api, call, archive::ArchivedKind::WebhookEvent, move |tx| {
        let before = webhook_events::by_id(tx, &tenant, &id)?.or_not_found("webhook event")?;
        not_expunged(before.expunged_at)?;
        again.carry_out(tx, Origin::WebhookEvent(before.seq), now)?;
        let after = webhook_events::by_seq(tx, before.seq)?.or_not_found("webhook event")?;
        Ok(Change::changed("webhook_event", &id, &before, &after))
    })
}

/// Refuses what has no payload any more.
fn not_expunged(at: Option<Timestamp>) -> Result<(), Problem> {
    at.map_or(Ok(()), |at| {
        Err(Problem::conflict(format!(
            "Its payload was removed on {at}: nothing can be sent again."
        )))
    })
}

/// A job that replays a single event; it is not stored.
fn job_of_one(api: &Api, call: &Call) -> NewJob {
    NewJob {
        id: String::new(),
        tenant: call.tenant.clone(),
        kind: JobKind::ReplayEvents,
        filter: JobFilter::default(),
        rate: None,
        reason: None,
        requested_by: call.who.display.clone(),
        created_at: api.env.clock.now(),
        cursor: Cursor::default(),
    }
}

/// One event that is sent again.
struct SentAgain {
    job: NewJob,
    /// The named subscriptions. Empty: every subscription with a delivery of the event.
    receivers: Vec<String>,
}

impl SentAgain {
    /// Sends the event to each named subscription.
    /// Fails if one of them cannot get the event, or nobody can.
    fn carry_out(&self, tx: &WriteTx<'_>, origin: Origin, now: Timestamp) -> ChangeResult<()> {
        if self.receivers.is_empty() {
            return self.send(tx, None, origin, now);
        }
        for name in &self.receivers {
            if subscriptions::find(tx, &self.job.tenant, name)?.is_none() {
                return Err(no_subscription(name).into());
            }
            self.send(tx, Some(name), origin, now)?;
        }
        Ok(())
    }

    fn send(
        &self,
        tx: &WriteTx<'_>,
        to: Option<&String>,
        origin: Origin,
        now: Timestamp,
    ) -> ChangeResult<()> {
        let filter = JobFilter { subscription: to.cloned(), ..JobFilter::default() };
        let job = NewJob { filter, ..self.job.clone() };
        let item = tables::events::one(tx, &job, origin)?;
        let batch = Batch { items: item.into_iter().collect(), ..Batch::default() };
        if tables::carry_out(tx, &job, &batch, now)?.0.deliveries > 0 {
            return Ok(());
        }
        let detail = match to {
            Some(name) => format!(
                "Nothing can be sent again to {name:?}: its delivery is still open, or it does not match this event."
            ),
            None => {
                "Nothing can be sent again: its deliveries are still open, or no subscription matches it."
                    .to_owned()
            }
        };
        Err(Problem::conflict(detail).into())
    }
}

fn no_subscription(name: &str) -> Problem {
    Problem::unprocessable(format!("There is no subscription {name:?}."))
}

/// Stores a copy of an event as a new one, with the old payload or another.
fn replay_as_new(api: &Api, call: &Call, replay: &Replay) -> Result<Audited<Value>, Problem> {
    if api.flow.disk.is_low() {
        return Err(Problem::no_room());
    }
    let found = archived::find(api, By::Id(call.param(0)), |tx| {
        outbox_lists::by_id(tx, &call.tenant, call.param(0))
    })?;
    let found = found.or_not_found("event")?;
    if replay.payload()?.is_none() {
        not_expunged(found.expunged_at)?;
    }
    if replay.subscriptions.is_some() {
        let detail = "A new event goes to one subscription or to all that match it: give subscription, or neither.";
        return Err(Problem::unprocessable(detail));
    }
    let new = new_event(api, replay, found)?;
    let name = replay.subscription.as_deref().map(str::to_owned);
    let of = call.param(0).to_owned();
    let now = api.env.clock.now();
    let sha256 = id::sha256_hex(&new.payload);
    change(api, call, move |tx| {
        let mut new = new.clone();
        if let Some(name) = &name {
            let found =
                subscriptions::find(tx, &new.tenant, name)?.ok_or_else(|| no_subscription(name))?;
            new.target = Some(found.new.name.as_str().to_owned());
        }
        if let Inserted::NoParent(defect) = publish::admit(tx, &new, now)? {
            return Err(Problem::unprocessable(format!("{}.", defect.reason)).into());
        }
        tables::events::set_replay_of(tx, &new.id, &of)?;
        let made = outbox_lists::by_id(tx, &new.tenant, &new.id)?;
        let made = made.ok_or(Error::Changed("the event"))?;
        Ok(Change::made("event", &new.id, &made).and("payload_sha256", sha256.as_str()))
    })
}

/// What is sent in place of a delivery.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edited {
    /// Any JSON.
    payload: Option<Is<Value, Box<RawValue>>>,
    /// Any bytes, instead of `payload`.
    payload_base64: Option<Is<StrictBase64>>,
    /// The content type of the payload; that of the event if absent.
    content_type: Option<Is<Ascii<0, 255>>>,
    /// Header fields of the event, instead of those it has.
    headers: Option<Is<EventHeaders, BTreeMap<String, String>>>,
    /// Only check it; the answer is the delivery as it is.
    #[serde(default)]
    dry_run: bool,
}

/// `POST /v1/deliveries/{id}/edit-and-resend`
fn edit_and_resend(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    const RULE: &str = "only one that is pending, parked or dead can be replaced, and only while its subscription takes the event";
    let Edited { payload, payload_base64, content_type, headers, dry_run } = call.json()?;
    if payload.is_none() && payload_base64.is_none() {
        let detail = "Give the new payload, as payload or payload_base64.";
        return Err(Problem::unprocessable(detail));
    }
    if api.flow.disk.is_low() {
        return Err(Problem::no_room());
    }
    let of = deliveries::find(api, call)?;
    if of.of_webhook_event {
        let detail = "What a provider sent does not change: skip the delivery, and publish an event instead \
                      (POST /v1/events).";
        return Err(Problem::unprocessable(detail));
    }
    // Held until the change is stored: what begins after it reads the new state.
    let _claim = api.flow.in_flight.claim(of.seq).ok_or_else(|| {
        deliveries::refused(&of, "an attempt is in flight: park it, or wait for the end")
    })?;
    let found = api.env.store.read(|tx| outbox_lists::by_id(tx, &of.tenant, &of.event_id))?;
    let mut found = found.or_not_found("event")?;
    found.new.target = Some(of.subscription.clone());
    if let Some(headers) = bare(headers) {
        found.new.headers = (!headers.is_empty()).then(|| json!(headers).to_string());
    }
    let replay = Replay { payload, payload_base64, content_type, ..Replay::default() };
    let new = new_event(api, &replay, found)?;
    if dry_run {
        return Ok(Audited::dry_run(value(of)));
    }
    let tenant = call.tenant.clone();
    let seq = of.seq;
    let now = api.env.clock.now();
    let sha256 = id::sha256_hex(&new.payload);
    change(api, call, move |tx| {
        let shown = |seq| delivery_lists::by_seq(tx, &tenant, seq);
        let before = shown(seq)?.or_not_found("delivery")?;
        let made = match tx.in_savepoint(|| settlement::replace(tx, seq, &new, now))? {
            Err(Error::Changed(_)) => return Err(deliveries::refused(&before, RULE).into()),
            made => made?,
        };
        tables::events::set_replay_of(tx, &new.id, &before.event_id)?;
        let (after, made) = shown(seq)?.zip(shown(made)?).or_not_found("delivery")?;
        let change = Change::made_within("delivery", &seq.to_string(), &before, &after);
        let change = change.and("replaced_by", made.seq.to_string());
        Ok(change.and("payload_sha256", sha256.as_str()).answer(made))
    })
}

/// The new event, checked like a published one.
fn new_event(api: &Api, replay: &Replay, found: Event) -> Result<NewEvent, Problem> {
    let unusable = |why: String| Problem::unprocessable(format!("{why}."));
    let received_at = api.env.clock.wall();
    let id = id::uuid7(received_at, &*api.env.draw);
    let payload = replay.payload()?;
    let Event { new: old, .. } = found;
    if payload.is_none() && old.sealed.fields > 0 {
        return Err(unusable(
            "The event has fields that are sealed only for this event: give a payload for the new one"
                .to_owned(),
        ));
    }
    let is_other = payload.is_some();
    let mut new = NewEvent {
        idempotency_key: format!("replay-{id}"),
        id,
        payload: payload.unwrap_or(old.payload),
        content_type: replay.content_type.as_deref().map_or(old.content_type, str::to_owned),
        received_at,
        // A replay is sent now.
        not_before: None,
        sealed: Sealed::default(),
        ..old
    };
    let most = usize::try_from(api.env.settings.get().limits.payload_bytes).unwrap_or(usize::MAX);
    if is_other && new.payload.len() > most {
        let have = new.payload.len();
        return Err(unusable(format!("The payload has {have} bytes; at most {most} are accepted")));
    }
    new.check().map_err(|error| unusable(error.to_string()))?;
    // The stored payload has passed its type's schema and the privacy policy already.
    if is_other {
        if let Some(misfit) = api.flow.publish.event_types.misfit(&new)? {
            return Err(unusable(format!("It does not fit its event type: {}", misfit.why)));
        }
        let admitted = api.env.privacy.admit(std::slice::from_mut(&mut new));
        admitted.map_err(|not| match not {
            NotAdmitted::Refused { why, .. } => unusable(why.to_string()),
            NotAdmitted::Failed(error) => error.into(),
        })?;
    }
    Ok(new)
}

/// `POST /v1/events/{id}/cancel`
fn cancel(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    let now = api.env.clock.now();
    let reason = format!("cancelled by {}", call.who.display);
    change(api, call, move |tx| {
        let before = outbox_lists::by_id(tx, &tenant, &id)?.or_not_found("event")?;
        let open = tables::events::open_deliveries(tx, before.seq)?;
        for delivery in &open {
            settlement::cancel(tx, *delivery, &reason, now)?;
        }
        if open.is_empty() {
            let detail = format!("The event is {}; it has no open deliveries.", before.status);
            return Err(Problem::conflict(detail).into());
        }
        event_changed(tx, &before)
    })
}

fn event_changed(tx: &ReadTx<'_>, before: &Event) -> ChangeResult {
    let after = outbox_lists::by_seq(tx, before.seq)?.or_not_found("event")?;
    Ok(Change::changed("event", &before.new.id, &before, &after))
}

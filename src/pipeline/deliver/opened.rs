//! The second step of an attempt: the delivery is still wanted, its subscription can be called, its seals are opened.

use ring::digest::{SHA256, digest};

use crate::base::faults::Stall;
use crate::model::delivery::OutgoingRequest;
use crate::model::external_call::NewCall;
use crate::model::format::Format;
use crate::pipeline::deliver::admission::{Admission, WorkPermit};
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::external_call::external_call;
use crate::pipeline::deliver::unsent::{UNREADABLE_AGAIN, Unsent};
use crate::pipeline::destinations::Destination;
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::decisions::{Assignment, FIRST_TRY};
use crate::privacy::{NOT_OPENED, Opened};
use crate::store::superseded::{self, Recency};

/// When a delivery whose subscription cannot be called for a reason of ours is looked at again.
const UNCALLABLE_AGAIN: Duration = Duration::from_secs(30);
/// Why a delivery is given up that was in hand at two unclean ends.
const DIED: &str = "the service ended twice in a row while this was being sent, without being asked to (for want \
                    of memory, perhaps; its log says more), so it is not sent again by itself";

/// A delivery that is about to be sent.
pub(super) struct OpenedDelivery<'d> {
    pub(super) assignment: Assignment,
    /// The event. Its payload is the one that is stored with its seals opened; once the request is built, it is the body
    /// that is sent.
    pub(super) outgoing: OutgoingRequest,
    pub(super) destination: Arc<Destination>,
    /// What was sealed in the payload.
    pub(super) seals: Opened,
    /// The external call that sending it is.
    pub(super) call: Option<NewCall>,
    /// Why it is given up in place of being sent.
    pub(super) refusal: Option<&'static str>,
    /// When the attempt began, by the wall clock.
    pub(super) started_at: Timestamp,
    /// When the attempt began, by the monotonic clock.
    pub(super) started: Duration,
    _permit: WorkPermit<'d>,
}

impl OpenedDelivery<'_> {
    /// Whether the attempt has less time than its subscription gives it.
    pub(super) fn is_short(&self) -> bool {
        self.assignment.is_short && self.destination.timeout > FIRST_TRY
    }

    /// Whether older deliveries about the same entity are superfluous once it is completed.
    pub(super) fn is_latest_only(&self) -> bool {
        is_latest_only(&self.outgoing, &self.destination)
    }
}

impl Deliverer {
    /// Looks whether a delivery may be sent now, and opens its sealed fields.
    pub(super) fn open<'d>(
        &'d self,
        assignment: Assignment,
        admission: Admission<'d>,
    ) -> Result<OpenedDelivery<'d>, Unsent> {
        let Admission { mut outgoing, is_convicted, permit } = admission;
        let destination = self.destination(&outgoing)?;
        self.env.faults.stand(Stall::Admitted);
        self.skip_if_superseded(&outgoing, &destination)?;
        let mut call = external_call(&outgoing, &destination.subscription);
        let seals = self.open_seals(&mut outgoing)?;
        // An envelope names the event and its time, so two with the same state differ: the payload is compared.
        if let Some(call) = &mut call
            && destination.subscription.new.format != Format::Raw
        {
            call.body_hash = digest(&SHA256, &outgoing.payload).as_ref().to_vec();
        }
        let unreadable = (!seals.is_whole).then_some(NOT_OPENED);
        Ok(OpenedDelivery {
            assignment,
            outgoing,
            destination,
            seals,
            call,
            refusal: if is_convicted { Some(DIED) } else { unreadable },
            started_at: self.env.clock.wall(),
            started: self.env.clock.monotonic(),
            _permit: permit,
        })
    }

    /// How the subscription of a delivery is called. If a person has held it since the delivery was handed out, that person
    /// relies on no further attempt.
    fn destination(&self, outgoing: &OutgoingRequest) -> Result<Arc<Destination>, Unsent> {
        match self.destinations.of(outgoing.subscription) {
            Ok(destination) if destination.subscription.is_held_by_a_person() => {
                Err(Unsent::Changed)
            }
            Ok(destination) => Ok(destination),
            // The reason is on our side (settings, key, file): the target has refused nothing, so nothing counts.
            Err(reason) => {
                let delivery = outgoing.delivery;
                tracing::error!(%delivery, %reason, "the subscription cannot be called; it is tried again");
                Err(Unsent::AllLater(UNCALLABLE_AGAIN))
            }
        }
    }

    /// Skips a delivery if a newer one about the same entity waits, where only the latest state is wanted.
    fn skip_if_superseded(
        &self,
        outgoing: &OutgoingRequest,
        destination: &Destination,
    ) -> Result<(), Unsent> {
        if !is_latest_only(outgoing, destination) {
            return Ok(());
        }
        let delivery = outgoing.delivery;
        match self.recency(delivery) {
            Ok(Recency::Latest) => Ok(()),
            Ok(Recency::Superseded) => Err(Unsent::Settled),
            // A newer one was accepted since this one was handed out, or a person has ended it.
            Ok(Recency::Ended) => Err(Unsent::Changed),
            Err(error) => {
                tracing::error!(%error, %delivery, "whether a newer delivery waits could not be read");
                Err(Unsent::Later(UNREADABLE_AGAIN))
            }
        }
    }

    /// The recency of a delivery; a superseded one is skipped. Mostly a cheap read finds the latest.
    fn recency(&self, delivery: DeliverySeq) -> Result<Recency> {
        let now = self.env.clock.now();
        let recency = self.env.store.read(|tx| superseded::recency(tx, delivery, now))?;
        if recency != Recency::Superseded {
            return Ok(recency);
        }
        let skip = move |tx: &WriteTx<'_>| superseded::skip_unless_latest(tx, delivery, now);
        self.env.store.writer().write(Queue::Settle, skip)
    }

    fn open_seals(&self, outgoing: &mut OutgoingRequest) -> Result<Opened, Unsent> {
        self.env.privacy.open_sealed(outgoing).map_err(|error| {
            let delivery = outgoing.delivery;
            tracing::error!(%error, %delivery, "a sealed field cannot be opened");
            Unsent::Later(UNCALLABLE_AGAIN)
        })
    }
}

fn is_latest_only(outgoing: &OutgoingRequest, destination: &Destination) -> bool {
    destination.subscription.new.order.latest_only && outgoing.order.entity.is_some()
}

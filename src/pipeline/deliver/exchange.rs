//! The sixth step of an attempt: the request is sent, and the answer comes or does not.

use crate::base::faults::Step;
use crate::http::client::Call;
use crate::http::trace::Trace;
use crate::model::delivery::OutgoingRequest;
use crate::model::outcome::{Cause, Outcome};
use crate::pipeline::deliver::begun::BegunRequest;
use crate::pipeline::deliver::built::{BuiltRequest, PULLED};
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::opened::OpenedDelivery;
use crate::pipeline::destinations::Destination;
use crate::privacy::policy::ResponseScrub;
use crate::targets::parcel::Parcel;

/// A request and its outcome.
pub(super) struct Exchange {
    /// The request; `None` if there was none to send.
    pub(super) request: Option<BuiltRequest>,
    pub(super) outcome: Outcome,
}

impl Exchange {
    /// The exchange of a request that cannot be made.
    pub(super) fn unbuildable(reason: String) -> Self {
        Self { request: None, outcome: Outcome::Unbuildable { reason } }
    }

    /// The exchange in which this program has panicked.
    pub(super) fn panicked() -> Self {
        let reason = "oncebox failed while sending; see its log".to_owned();
        Self { request: None, outcome: Outcome::Unreachable { cause: Cause::Broken, reason } }
    }
}

impl Deliverer {
    /// Sends the request of a delivery.
    pub(super) fn send(&self, opened: &OpenedDelivery<'_>, begun: BegunRequest) -> Exchange {
        let OpenedDelivery { outgoing, destination, seals, .. } = opened;
        let BegunRequest(request) = begun;
        let outcome = self.transmit(&request, outgoing, destination, &seals.echo, None);
        Exchange { request: Some(request), outcome }
    }

    /// Sends a request with the way out of its target. `echo` is what may not be kept of the answer.
    pub(super) fn transmit(
        &self,
        request: &BuiltRequest,
        outgoing: &OutgoingRequest,
        destination: &Destination,
        echo: &ResponseScrub,
        trace: Option<&Trace>,
    ) -> Outcome {
        let subscription = &destination.subscription;
        let Some(target) = self.targets.of(&subscription.new.target) else {
            return Outcome::Unbuildable { reason: PULLED.to_owned() };
        };
        let call = Call {
            method: request.method,
            url: &request.url,
            headers: &request.headers,
            body: &outgoing.payload,
            timeout: request.timeout,
            identity: None,
            tenant: Some(&outgoing.tenant),
            is_once: subscription.new.order.external_calls.is_some(),
            max_body_bytes: None,
        };
        if self.env.faults.hit(Step::BeforeSend) {
            let reason = "planned: the line is down".to_owned();
            return Outcome::Unreachable { cause: Cause::NoConnection, reason };
        }
        let parcel = Parcel {
            subscription,
            outgoing,
            rendered: &request.rendered,
            attachment: request.attachment.as_ref(),
            call,
            access: &destination.access,
            echo,
            at: request.signed_at,
            trace,
        };
        let outcome = match trace {
            Some(trace) if !trace.sends() => target.look(&parcel),
            _ => target.send(&parcel),
        };
        if self.env.faults.hit(Step::AfterSend) {
            let reason = "planned: the answer is lost".to_owned();
            return Outcome::Unreachable { cause: Cause::Broken, reason };
        }
        assert!(!self.env.faults.hit(Step::Panic), "planned");
        outcome
    }
}

//! The fifth step of an attempt: its external call is noted before it is made.

use crate::model::external_call::{NewCall, SentTo};
use crate::pipeline::deliver::built::BuiltRequest;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::fixed::FixedRequest;
use crate::pipeline::deliver::opened::OpenedDelivery;
use crate::pipeline::deliver::unsent::{UNREADABLE_AGAIN, Unsent};
use crate::pipeline::prelude::*;
use crate::store::superseded;

/// A request that may be sent: its external call is noted, if it is one.
pub(super) struct BegunRequest(pub(super) BuiltRequest);

impl Deliverer {
    /// Notes that an external call is about to be made, if the delivery makes one.
    pub(super) fn begin(
        &self,
        opened: &OpenedDelivery<'_>,
        fixed: FixedRequest,
    ) -> Result<BegunRequest, Unsent> {
        let FixedRequest(request) = fixed;
        let Some(call) = &opened.call else { return Ok(BegunRequest(request)) };
        let call = with_request(call, &request);
        let delivery = call.delivery;
        let now = self.env.clock.now();
        let at = self.env.clock.wall();
        let begin = move |tx: &WriteTx<'_>| superseded::begin_call(tx, &call, now, at);
        match self.env.store.writer().write(Queue::Settle, begin) {
            Ok(true) => Ok(BegunRequest(request)),
            Ok(false) => Err(Unsent::Settled),
            Err(error) => {
                tracing::error!(%error, %delivery, "an external call could not be noted; it is not made yet");
                Err(Unsent::Later(UNREADABLE_AGAIN))
            }
        }
    }
}

/// A call with its request. What is compared is its body, unless the payload was hashed before it got an envelope.
fn with_request(call: &NewCall, request: &BuiltRequest) -> NewCall {
    let mut call = call.clone();
    if call.body_hash.is_empty() {
        call.body_hash = request.body_sha256.to_vec();
    }
    call.sent = SentTo { method: request.method.to_owned(), url: request.url.clone() };
    call
}

//! The fourth step of an attempt: what was rendered is stored, so that each attempt sends the same.

use crate::pipeline::deliver::built::BuiltRequest;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::opened::OpenedDelivery;
use crate::pipeline::deliver::unsent::{UNREADABLE_AGAIN, Unsent};
use crate::pipeline::prelude::*;
use crate::pipeline::rendering::rendering_to_store;
use crate::store::renderings;

/// A request whose rendering is stored, if it has one.
pub(super) struct FixedRequest(pub(super) BuiltRequest);

impl Deliverer {
    /// Stores the rendered body, unless an earlier attempt has, or the payload itself is sent.
    pub(super) fn fix(
        &self,
        opened: &OpenedDelivery<'_>,
        request: BuiltRequest,
    ) -> Result<FixedRequest, Unsent> {
        let OpenedDelivery { outgoing, destination, seals, .. } = opened;
        if !request.is_new_rendering || destination.formats.is_plain() {
            return Ok(FixedRequest(request));
        }
        let delivery = outgoing.delivery;
        let run_no = outgoing.run_no;
        let stored = seals.stored.as_deref();
        let rendering =
            rendering_to_store(&self.env.privacy, outgoing, destination, &request.rendered, stored);
        let fixed = rendering.and_then(|rendering| {
            let fix = move |tx: &WriteTx<'_>| renderings::fix(tx, delivery, run_no, &rendering);
            self.env.store.writer().write(Queue::Settle, fix)
        });
        match fixed {
            Ok(true) => Ok(FixedRequest(request)),
            Ok(false) => Err(Unsent::Changed),
            Err(error) => {
                tracing::error!(%error, %delivery, "what is sent could not be stored; it is not sent yet");
                Err(Unsent::Later(UNREADABLE_AGAIN))
            }
        }
    }
}

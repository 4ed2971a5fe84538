//! Deliveries that are not sent now, and what the dispatcher is told of them.

use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::decisions::{Assignment, Input};
use crate::store::tx::Settled;

/// When a delivery whose row could not be read or written is looked at again.
pub(super) const UNREADABLE_AGAIN: Duration = Duration::from_secs(5);

/// The reason for which a delivery is not sent now. Its row stays as it is: no attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The row or its subscription was changed since the delivery was handed out. The dispatcher looks again.
    Changed,
    /// A transaction of the deliverer has settled the delivery. The dispatcher learns that from its commit.
    Settled,
    /// The delivery can be attempted after this time.
    Later(Duration),
    /// No delivery of the subscription can be attempted before this time is over.
    AllLater(Duration),
}

impl Deliverer {
    /// Tells the dispatcher that a delivery was not sent. A wait is known to the dispatcher alone: the row stays due.
    pub(super) fn tell_unsent(&self, assignment: Assignment, unsent: Unsent) {
        let Assignment { delivery, subscription, .. } = assignment;
        let now = self.env.clock.now();
        let input = match unsent {
            Unsent::Settled => return,
            Unsent::Changed => {
                Input::Settled(Settled { delivery, subscription, next_due: Some(now) })
            }
            Unsent::Later(span) => {
                Input::Reschedule { delivery, subscription, until: now.plus(span), all: false }
            }
            Unsent::AllLater(span) => {
                Input::Reschedule { delivery, subscription, until: now.plus(span), all: true }
            }
        };
        self.mailbox.leave(|messages| messages.inputs.push(input));
    }
}

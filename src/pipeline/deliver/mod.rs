//! The deliverers: each takes one assignment, sends one request, hands in its report.
//!
//! An attempt is a row of steps. Each has a file, and each makes of one state of the delivery the next one; a step that
//! cannot makes an [`Unsent`], which the dispatcher is told.
//!
//! | step | makes | when it is done |
//! |---|---|---|
//! | `admit` | [`Admission`] | its row is read, there is memory for it, and it runs alone if the process may have died on it |
//! | `open` | [`OpenedDelivery`] | it is wanted, its subscription can be called, its sealed fields are opened |
//! | `build` | [`BuiltRequest`] | its request is made and signed |
//! | `fix` | [`FixedRequest`] | what was rendered is stored, so that each attempt sends the same |
//! | `begin` | [`BegunRequest`] | its external call is noted |
//! | `send` | [`Exchange`] | the target has answered, or there is no answer |
//! | `report` | [`EndedAttempt`] | the report is handed in |
//!
//! No transaction is open while a request is under way, and nobody waits for the settlement's COMMIT: the dispatcher
//! learns of it from the writer. A rendering and an external call are stored before the request is sent, and that is
//! waited for.

pub mod admission;
pub mod begun;
pub mod built;
pub mod deliverer;
pub mod exchange;
pub mod external_call;
pub mod fixed;
pub mod inconclusive;
pub mod opened;
pub mod report;
pub mod trial;
pub mod unsent;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::pipeline::deliver::admission::Admission;
use crate::pipeline::deliver::begun::BegunRequest;
use crate::pipeline::deliver::built::BuiltRequest;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::exchange::Exchange;
use crate::pipeline::deliver::fixed::FixedRequest;
use crate::pipeline::deliver::opened::OpenedDelivery;
use crate::pipeline::deliver::report::EndedAttempt;
use crate::pipeline::deliver::unsent::Unsent;
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::Assignments;
use crate::pipeline::scheduler::decisions::{Assignment, FIRST_TRY, Input};

/// When a delivery is looked at again that a person replaces at this moment.
const CLAIMED_AGAIN: Duration = Duration::from_millis(20);

impl Deliverer {
    /// Works off assignments until there are no more.
    pub fn run(&self, assignments: &Assignments) {
        while let Some(assignment) = assignments.take() {
            self.work_off(assignment);
        }
    }

    /// Attempts a delivery, and tells the dispatcher that this thread is idle again.
    fn work_off(&self, assignment: Assignment) {
        let Assignment { delivery, subscription, .. } = assignment;
        let started = self.env.clock.monotonic();
        let attempted = if self.in_flight.begin(delivery, self.env.clock.wall()) {
            let attempted = self.attempt_once(assignment);
            self.in_flight.end(delivery);
            attempted
        } else {
            Err(Unsent::Later(CLAIMED_AGAIN))
        };
        let took = self.env.clock.monotonic().saturating_sub(started);
        let finished = match attempted {
            Ok(ended) => Input::Finished {
                subscription,
                latency: if ended.is_cut { took.max(FIRST_TRY) } else { took },
                limit: Some(ended.limit),
                class: Some(ended.class),
            },
            Err(unsent) => {
                self.tell_unsent(assignment, unsent);
                Input::Finished { subscription, latency: took, limit: None, class: None }
            }
        };
        self.mailbox.leave_quietly(|messages| messages.inputs.push(finished));
    }

    /// One attempt, from the row to the report.
    fn attempt_once(&self, assignment: Assignment) -> Result<EndedAttempt, Unsent> {
        let admission: Admission<'_> = self.admit(assignment)?;
        let mut opened: OpenedDelivery<'_> = self.open(assignment, admission)?;
        let exchange: Exchange = self.exchange_guarded(&mut opened)?;
        Ok(self.report(&opened, exchange))
    }

    /// The exchange. A panic on the way is an outcome, not the end of the thread.
    fn exchange_guarded(&self, opened: &mut OpenedDelivery<'_>) -> Result<Exchange, Unsent> {
        let delivery = opened.outgoing.delivery;
        catch_unwind(AssertUnwindSafe(|| self.exchange(opened))).unwrap_or_else(|_panic| {
            tracing::error!(%delivery, "sending panicked; it counts as a failed attempt");
            Ok(Exchange::panicked())
        })
    }

    /// The request and the answer.
    fn exchange(&self, opened: &mut OpenedDelivery<'_>) -> Result<Exchange, Unsent> {
        let built: BuiltRequest = match self.build_opened(opened) {
            Ok(built) => built,
            Err(reason) => return Ok(Exchange::unbuildable(reason)),
        };
        let fixed: FixedRequest = self.fix(opened, built)?;
        let begun: BegunRequest = self.begin(opened, fixed)?;
        Ok(self.send(opened, begun))
    }
}

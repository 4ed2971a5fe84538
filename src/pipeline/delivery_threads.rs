//! The threads that deliver: the dispatcher and the deliverers. They end before the other stages do.

use std::thread::JoinHandle;

use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::{Dispatcher, Ended, Mailbox, assignments};
use crate::pipeline::threads::{Spawner, join};
use crate::telemetry::tally::Heartbeat;

/// The running threads.
pub(super) struct DeliveryThreads {
    mailbox: Mailbox,
    pulse: Heartbeat,
    /// [`DeliveryThreads::end`] takes and joins it, and then the deliverers.
    dispatcher: Option<JoinHandle<()>>,
    deliverers: Vec<JoinHandle<()>>,
    /// How the dispatcher ended.
    ended: Arc<Mutex<Ended>>,
}

impl DeliveryThreads {
    /// Starts as many deliverers as the settings say, and the dispatcher.
    pub(super) fn start(env: &Env, deliver: &Deliverer, spawner: &Spawner) -> Result<Self> {
        let count = env.settings.get().delivery.deliverers;
        let (hand_out, assignments) = assignments(usize::try_from(count).unwrap_or(1));
        let mut deliverers = Vec::new();
        for n in 0..count {
            let deliver = deliver.clone();
            let assignments = assignments.clone();
            let run = move || deliver.run(&assignments);
            deliverers.push(spawner.spawn(&format!("deliver-{n}"), run)?);
        }
        let mailbox = deliver.mailbox.clone();
        let pulse = Heartbeat::default();
        let reader = env.store.own_reader()?;
        let dispatcher =
            Dispatcher::new(env.clone(), mailbox.clone(), pulse.clone(), reader, hand_out);
        let ended = Arc::new(Mutex::new(Ended::default()));
        let set_ended = Arc::clone(&ended);
        let run = move || {
            let how = dispatcher.run();
            *set_ended.lock() = how;
        };
        let dispatcher = Some(spawner.spawn("dispatch", run)?);
        Ok(Self { mailbox, pulse, dispatcher, deliverers, ended })
    }

    /// The dispatcher's inbox.
    pub(super) const fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// The dispatcher's heartbeat.
    pub(super) const fn pulse(&self) -> &Heartbeat {
        &self.pulse
    }

    /// Starts no more deliveries, and waits up to [`super::scheduler::STOP_GRACE`] until those under way are settled.
    /// After a fatal error it waits for nothing.
    pub(super) fn end(&mut self, is_healthy: impl Fn() -> bool) {
        self.mailbox.leave(|messages| messages.stop = true);
        if is_healthy() {
            self.dispatcher.take().into_iter().for_each(join);
        }
        // A request that outlasts the grace may run for minutes more. Its thread is not joined, and its outcome is not
        // stored: the writer has ended by then.
        let is_busy = self.ended.lock().busy;
        if is_healthy() && !is_busy {
            self.deliverers.drain(..).for_each(join);
        }
    }

    /// Whether every delivery in hand was settled.
    pub(super) fn is_drained(&self) -> bool {
        self.ended.lock().drained
    }
}

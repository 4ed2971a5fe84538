//! A job: a closure that may be run more than once, and what is done with its result after COMMIT.

use std::time::Duration;

use crate::store::error::{Error, Result};
use crate::store::tx::WriteTx;

/// Which queue a job waits in; they are drained in this order. Whoever hands one in says by it whether it can
/// be refused while another program keeps the database locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Outcomes of our own attempts, which nobody would bring again: they wait however long it takes.
    Settle,
    /// New events, what people change, and what consumers say: whoever asks is told to come again.
    Accept,
    /// Chores that can wait.
    Upkeep,
}

/// A job, whatever it returns.
pub(super) trait Job: Send {
    /// Which queue it came from, and when.
    fn handed_in(&self) -> (Queue, Duration);
    /// Runs it, perhaps not for the first time.
    fn run(&mut self, tx: &WriteTx<'_>) -> Result<()>;
    /// Hands its result on, once it is known what became of the transaction.
    fn done(self: Box<Self>, outcome: Result<()>);
}

/// A job as it waits.
pub(super) type BoxedJob = Box<dyn Job>;

/// A job put together from closures.
pub(super) struct Closure<T, R, D> {
    pub(super) handed_in: (Queue, Duration),
    pub(super) run: R,
    pub(super) done: D,
    pub(super) value: Option<T>,
}

impl<T, R, D> Job for Closure<T, R, D>
where
    T: Send,
    R: FnMut(&WriteTx<'_>) -> Result<T> + Send,
    D: FnOnce(Result<T>) + Send,
{
    fn handed_in(&self) -> (Queue, Duration) {
        self.handed_in
    }

    fn run(&mut self, tx: &WriteTx<'_>) -> Result<()> {
        self.value = None;
        self.value = Some((self.run)(tx)?);
        Ok(())
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        let Self { done, value, .. } = *self;
        done(outcome.and_then(|()| value.ok_or(Error::Stopped)));
    }
}

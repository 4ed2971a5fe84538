//! The queues of jobs, and the writer's wait for them.
//!
//! Not crossbeam channels: a thread that waits for several channels spins and yields before sleeping. At 50 events a second
//! the yields were a seventh of an event's system calls. Here the writer sleeps at once, and only an urgent job wakes it.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::store::writer::{BoxedJob, MAX_BATCH_JOBS, MAX_BATCH_UPKEEP, Queue};

/// Jobs that may wait in the accept queue. If it is full, handlers answer 503.
const MAX_ACCEPT_JOBS: usize = 8192;
/// So many jobs of [`Queue::Later`] are company enough for each other.
const ENOUGH_LATER: usize = 32;

/// Why a job was not taken.
pub(super) enum Refusal {
    /// The accept queue is full.
    Crowded(BoxedJob),
    /// The writer has ended.
    Closed(BoxedJob),
}

/// The queues of all jobs. Shared by those who submit and the writer.
#[derive(Default)]
pub(super) struct JobQueues {
    jobs: Mutex<WaitingJobs>,
    bell: Condvar,
}

#[derive(Default)]
struct WaitingJobs {
    settle: VecDeque<BoxedJob>,
    later: VecDeque<BoxedJob>,
    accept: VecDeque<BoxedJob>,
    upkeep: VecDeque<BoxedJob>,
    /// Whether the writer sleeps until a job comes that cannot wait.
    is_asleep: bool,
    /// How many new events the writer waits for; 0: it does not.
    awaited: usize,
    is_stopping: bool,
    is_closed: bool,
}

impl WaitingJobs {
    fn queue(&mut self, queue: Queue) -> &mut VecDeque<BoxedJob> {
        match queue {
            Queue::Settle => &mut self.settle,
            Queue::Later => &mut self.later,
            Queue::Accept => &mut self.accept,
            Queue::Upkeep => &mut self.upkeep,
        }
    }

    /// Whether a job waits that cannot wait for company.
    fn has_urgent(&self) -> bool {
        !(self.settle.is_empty() && self.accept.is_empty() && self.upkeep.is_empty())
    }

    /// Whether the writer has something to do now.
    fn is_due(&self) -> bool {
        self.is_stopping || self.has_urgent() || self.later.len() >= ENOUGH_LATER
    }

    /// Whether the new events that the writer waits for have come, or a job that others wait for.
    fn is_gathered(&self) -> bool {
        self.accept.len() >= self.awaited
            || self.is_stopping
            || !(self.settle.is_empty() && self.upkeep.is_empty())
    }
}

impl JobQueues {
    /// Takes a job in, and wakes the writer if it sleeps and the job cannot wait.
    pub(super) fn push(&self, queue: Queue, job: BoxedJob) -> Result<(), Refusal> {
        let mut jobs = self.jobs.lock();
        if jobs.is_closed {
            return Err(Refusal::Closed(job));
        }
        if queue == Queue::Accept && jobs.accept.len() >= MAX_ACCEPT_JOBS {
            return Err(Refusal::Crowded(job));
        }
        jobs.queue(queue).push_back(job);
        let wakes = (jobs.is_asleep && jobs.is_due()) || (jobs.awaited > 0 && jobs.is_gathered());
        if wakes {
            jobs.is_asleep = false;
            jobs.awaited = 0;
        }
        drop(jobs);
        if wakes {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Lets the writer end once the queues are empty.
    pub(super) fn ask_to_stop(&self) {
        self.jobs.lock().is_stopping = true;
        self.bell.notify_one();
    }

    /// Refuses all further jobs. Those that wait are dropped with the answers that their callers wait for.
    pub(super) fn close(&self) {
        let mut jobs = self.jobs.lock();
        let left = std::mem::take(&mut *jobs);
        jobs.is_closed = true;
        drop(jobs);
        drop(left);
    }

    /// How many jobs wait in a queue.
    pub(super) fn len(&self, queue: Queue) -> usize {
        self.jobs.lock().queue(queue).len()
    }

    /// Whether jobs wait for company while the writer sleeps.
    pub(super) fn has_sleeping_company(&self) -> bool {
        let jobs = self.jobs.lock();
        jobs.is_asleep && !jobs.later.is_empty()
    }

    /// Sleeps until a job comes that cannot wait, many wait for company, or a stop is asked for; at most `span`.
    pub(super) fn wait(&self, span: Duration) {
        let mut jobs = self.jobs.lock();
        jobs.is_asleep = true;
        self.bell.wait_while_for(&mut jobs, |jobs| !jobs.is_due(), span);
        jobs.is_asleep = false;
    }

    /// Whether a stop was asked for.
    pub(super) fn is_stopping(&self) -> bool {
        self.jobs.lock().is_stopping
    }

    /// Waits until so many new events wait, or a job comes that is no new event; at most `span`.
    pub(super) fn gather(&self, count: usize, span: Duration) {
        let mut jobs = self.jobs.lock();
        jobs.awaited = count;
        self.bell.wait_while_for(&mut jobs, |jobs| jobs.awaited > 0 && !jobs.is_gathered(), span);
        jobs.awaited = 0;
    }

    /// Fills a batch up, with the outcomes of attempts first.
    pub(super) fn drain(&self, batch: &mut Vec<BoxedJob>) {
        let is_upkeep = |job: &&BoxedJob| job.handed_in().0 == Queue::Upkeep;
        let upkeep_room = MAX_BATCH_UPKEEP.saturating_sub(batch.iter().filter(is_upkeep).count());
        let mut jobs = self.jobs.lock();
        for queue in [Queue::Settle, Queue::Later, Queue::Accept, Queue::Upkeep] {
            let most = if queue == Queue::Upkeep { upkeep_room } else { MAX_BATCH_JOBS };
            let room = MAX_BATCH_JOBS.saturating_sub(batch.len()).min(most);
            let waiting = jobs.queue(queue);
            let taken = room.min(waiting.len());
            batch.extend(waiting.drain(..taken));
        }
    }

    /// Moves all new events and upkeep into a batch, which may become larger than usual.
    pub(super) fn drain_refusable(&self, batch: &mut Vec<BoxedJob>) {
        let mut jobs = self.jobs.lock();
        for queue in [Queue::Accept, Queue::Upkeep] {
            batch.extend(jobs.queue(queue).drain(..));
        }
    }
}

impl std::fmt::Debug for JobQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobQueues").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::error::Result as StoreResult;
    use crate::store::tx::WriteTx;
    use crate::store::writer::Job;

    /// A job that only has a queue.
    struct Nothing(Queue);

    impl Job for Nothing {
        fn handed_in(&self) -> (Queue, Duration) {
            (self.0, Duration::ZERO)
        }

        fn run(&mut self, _tx: &WriteTx<'_>) -> StoreResult<()> {
            Ok(())
        }

        fn done(self: Box<Self>, _outcome: StoreResult<()>) {}
    }

    fn pushed(queues: &JobQueues, queue: Queue, count: usize) {
        for _ in 0..count {
            assert!(queues.push(queue, Box::new(Nothing(queue))).is_ok());
        }
    }

    fn is_due(queues: &JobQueues) -> bool {
        queues.jobs.lock().is_due()
    }

    #[test]
    fn outcomes_wait_until_another_job_comes_or_they_are_many() {
        let queues = JobQueues::default();
        pushed(&queues, Queue::Later, ENOUGH_LATER - 1);
        assert!(!is_due(&queues));
        pushed(&queues, Queue::Later, 1);
        assert!(is_due(&queues));
        for queue in [Queue::Settle, Queue::Accept, Queue::Upkeep] {
            let queues = JobQueues::default();
            pushed(&queues, Queue::Later, 1);
            pushed(&queues, queue, 1);
            assert!(is_due(&queues), "{queue:?}");
        }
    }

    #[test]
    fn the_writer_waits_for_as_many_events_as_came_before_and_not_beside_other_jobs() {
        let is_gathered = |queues: &JobQueues| queues.jobs.lock().is_gathered();
        let queues = JobQueues::default();
        queues.jobs.lock().awaited = 3;
        pushed(&queues, Queue::Accept, 2);
        pushed(&queues, Queue::Later, 5);
        assert!(!is_gathered(&queues));
        pushed(&queues, Queue::Accept, 1);
        assert!(is_gathered(&queues));
        for queue in [Queue::Settle, Queue::Upkeep] {
            let queues = JobQueues::default();
            queues.jobs.lock().awaited = 3;
            pushed(&queues, queue, 1);
            assert!(is_gathered(&queues), "{queue:?}");
        }
    }

    #[test]
    fn a_batch_has_all_outcomes_and_a_few_jobs_of_upkeep() {
        let queues = JobQueues::default();
        for queue in [Queue::Upkeep, Queue::Accept, Queue::Later, Queue::Settle] {
            pushed(&queues, queue, MAX_BATCH_UPKEEP + 1);
        }
        let mut batch = Vec::new();
        queues.drain(&mut batch);
        let taken = batch.iter().map(|job| job.handed_in().0).collect::<Vec<_>>();
        let whole = [Queue::Settle, Queue::Later, Queue::Accept];
        let wanted = whole.into_iter().flat_map(|queue| [queue; MAX_BATCH_UPKEEP + 1]);
        let wanted = wanted.chain([Queue::Upkeep; MAX_BATCH_UPKEEP]).collect::<Vec<_>>();
        assert_eq!(taken, wanted);
        assert_eq!(queues.len(Queue::Upkeep), 1);
        queues.drain(&mut batch);
        assert_eq!(batch.len(), taken.len(), "the batch has its upkeep already");
    }

    #[test]
    fn a_full_and_a_closed_queue_give_the_job_back() {
        let queues = JobQueues::default();
        pushed(&queues, Queue::Accept, MAX_ACCEPT_JOBS);
        let one_more = queues.push(Queue::Accept, Box::new(Nothing(Queue::Accept)));
        assert!(matches!(one_more, Err(Refusal::Crowded(_))));
        pushed(&queues, Queue::Settle, 1);
        queues.close();
        assert_eq!((queues.len(Queue::Accept), queues.len(Queue::Settle)), (0, 0));
        let after = queues.push(Queue::Settle, Box::new(Nothing(Queue::Settle)));
        assert!(matches!(after, Err(Refusal::Closed(_))));
    }
}

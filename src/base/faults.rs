//! Planned failures: named places where a test makes the product fail. In production there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex};

/// A place where something outside can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Before a write transaction runs its jobs: the disk refuses.
    Write,
    /// Before COMMIT: the disk is full.
    Commit,
    /// Before COMMIT: the disk is broken, which ends the process.
    BreakDisk,
    /// When the dispatcher reads what is due.
    ReadDue,
    /// When a deliverer reads what it is to send.
    ReadOutgoing,
    /// Before a request is sent: the line is down.
    BeforeSend,
    /// After the target has answered: the answer is lost.
    AfterSend,
    /// When a deliverer panics with the answer in hand.
    Panic,
    /// When a handler reads a provider or a token.
    ReadIntake,
    /// Between the steps of a backup.
    Backup,
    /// Between the steps of a restore.
    Restore,
    /// Between the steps of an upgrade.
    Migrate,
    /// Before a key file is written.
    KeyFile,
}

impl Step {
    /// Every step of a running service after which the process goes on, so that a test can fail each in turn.
    /// Those of keeping and of key files are passed in order and tried one by one beside their code.
    #[cfg(any(test, feature = "internals"))]
    pub const ALL: [Self; 8] = [
        Self::Write,
        Self::Commit,
        Self::ReadDue,
        Self::ReadOutgoing,
        Self::BeforeSend,
        Self::AfterSend,
        Self::Panic,
        Self::ReadIntake,
    ];
}

/// A thread that a test can make stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stall {
    /// The writer, between two transactions.
    Writer,
    /// The dispatcher, between two turns.
    Dispatcher,
    /// The listener thread, between two looks at its sockets.
    Listener,
    /// A drop folder's thread, when a file is stored and before it is moved.
    Stored,
    /// The same thread, when the file has been found unchanged and before it is moved.
    Unchanged,
}

/// The plan, if there is one. Clones share its count.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Option<Arc<Plan>>,
    stalls: Option<Arc<Stalls>>,
}

/// Which thread is stopped.
#[derive(Debug, Default)]
struct Stalls {
    now: Mutex<Standstill>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Standstill {
    /// Who is to stand still.
    wanted: Option<Stall>,
    /// Who does.
    standing: Option<Stall>,
}

#[derive(Debug)]
struct Plan {
    step: Step,
    /// The pass that fails, from 1.
    nth: u32,
    passes: AtomicU32,
}

impl Faults {
    /// Nothing fails.
    pub fn none() -> Self {
        Self::default()
    }

    /// The `nth` pass of `step` fails, once.
    ///
    /// ```
    /// use oncebox::base::faults::{Faults, Step};
    /// let faults = Faults::at(Step::Commit, 2);
    /// assert!(!faults.hit(Step::Commit));
    /// assert!(faults.hit(Step::Commit));
    /// assert!(!faults.hit(Step::Commit));
    /// assert!(faults.happened());
    /// ```
    #[cfg(any(test, feature = "internals"))]
    pub fn at(step: Step, nth: u32) -> Self {
        let plan = Plan { step, nth, passes: AtomicU32::new(0) };
        Self { plan: Some(Arc::new(plan)), stalls: None }
    }

    /// Passes a step; tells whether it fails.
    pub fn hit(&self, step: Step) -> bool {
        match &self.plan {
            Some(plan) if plan.step == step => {
                plan.passes.fetch_add(1, Ordering::SeqCst) + 1 == plan.nth
            }
            _ => false,
        }
    }

    /// Whether the planned failure has come.
    #[cfg(any(test, feature = "internals"))]
    pub fn happened(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.passes.load(Ordering::SeqCst) >= plan.nth)
    }

    /// Threads can be made to stand still with [`Faults::stall`].
    #[cfg(any(test, feature = "internals"))]
    pub fn stalling() -> Self {
        Self { plan: None, stalls: Some(Arc::default()) }
    }

    /// From now on this thread stands still; with `None`, every thread goes on.
    #[cfg(any(test, feature = "internals"))]
    pub fn stall(&self, who: Option<Stall>) {
        if let Some(stalls) = &self.stalls {
            stalls.now.lock().wanted = who;
            stalls.changed.notify_all();
        }
    }

    /// Whether this thread has come to its place and stands there.
    #[cfg(any(test, feature = "internals"))]
    pub fn is_standing(&self, who: Stall) -> bool {
        self.stalls.as_ref().is_some_and(|stalls| stalls.now.lock().standing == Some(who))
    }

    /// Passes the place where this thread may be made to stand still.
    pub fn stand(&self, who: Stall) {
        let Some(stalls) = &self.stalls else { return };
        let mut now = stalls.now.lock();
        while now.wanted == Some(who) {
            now.standing = Some(who);
            stalls.changed.wait(&mut now);
            now.standing = None;
        }
    }
}

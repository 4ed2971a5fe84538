//! Planned failures: named places where a test makes the product fail. In production there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A place where something outside can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Before a write transaction runs its jobs: the disk refuses.
    Write,
    /// Before COMMIT: the disk is full.
    Commit,
    /// When the dispatcher reads what is due.
    ReadDue,
    /// When a deliverer reads what it is to send.
    ReadParcel,
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
}

impl Step {
    /// Every step of a running service, so that a test can fail each in turn. Those of keeping are passed in
    /// order and tried one by one beside their code.
    pub const ALL: [Self; 8] = [
        Self::Write,
        Self::Commit,
        Self::ReadDue,
        Self::ReadParcel,
        Self::BeforeSend,
        Self::AfterSend,
        Self::Panic,
        Self::ReadIntake,
    ];
}

/// The plan, if there is one. Clones share its count.
#[derive(Clone, Debug, Default)]
pub struct Faults(Option<Arc<Plan>>);

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
        Self(None)
    }

    /// The `nth` pass of `step` fails, once.
    ///
    /// ```
    /// use oncebox::faults::{Faults, Step};
    /// let faults = Faults::at(Step::Commit, 2);
    /// assert!(!faults.hit(Step::Commit));
    /// assert!(faults.hit(Step::Commit));
    /// assert!(!faults.hit(Step::Commit));
    /// assert!(faults.happened());
    /// ```
    pub fn at(step: Step, nth: u32) -> Self {
        Self(Some(Arc::new(Plan { step, nth, passes: AtomicU32::new(0) })))
    }

    /// Passes a step; tells whether it fails.
    pub fn hit(&self, step: Step) -> bool {
        match &self.0 {
            Some(plan) if plan.step == step => {
                plan.passes.fetch_add(1, Ordering::SeqCst) + 1 == plan.nth
            }
            _ => false,
        }
    }

    /// Whether the planned failure has come.
    pub fn happened(&self) -> bool {
        self.0.as_ref().is_some_and(|plan| plan.passes.load(Ordering::SeqCst) >= plan.nth)
    }
}

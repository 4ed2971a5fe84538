//! Planned failures: named steps at which a test makes the product fail, and pseudo-random numbers from a seed, so that
//! failures can be repeated. In production no failure is planned.
//!
//! Not here: randomness that must not be guessed, which is [`crate::base::id::Draw`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A step at which the disk, the network or the process can fail.
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
    /// Before a request is sent: the network is down.
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
    /// Between the steps of moving events into the archive.
    Archive,
}

impl Step {
    /// Every step of a running service after which the process continues, so that a test can fail each in turn.
    /// The steps of backups, upgrades and key files are tested beside their code.
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

/// A point at which a test can stall a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stall {
    /// The writer, between two transactions.
    Writer,
    /// The dispatcher, between two turns.
    Dispatcher,
    /// The listener thread, between two looks at its sockets.
    Listener,
    /// A deliverer, between reading the row of a delivery and looking for newer ones.
    Admitted,
    /// The archive's thread, before a step of a move or of a deletion.
    Archive,
    /// The target folder, after a file has its content under its temporary name.
    FileWritten,
    /// The target folder, after a file has its name and before its outcome is handed in.
    FileRenamed,
    /// A drop folder's thread, after a file is stored and before it is moved.
    Stored,
    /// A drop folder's thread, after the stored file was found unchanged and before it is moved.
    Unchanged,
}

/// The plan, if there is one. Clones share its count.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Option<Arc<Plan>>,
    stalls: Option<Arc<Stalls>>,
}

#[derive(Debug, Default)]
struct Stalls {
    state: Mutex<StallState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StallState {
    requested: Option<Stall>,
    /// The point at which a thread is stalled now.
    stalled: Option<Stall>,
    /// The step of which every pass fails now.
    failing: Option<Step>,
    /// How many passes have failed.
    failed: u32,
}

impl StallState {
    fn fails(&mut self, step: Step) -> bool {
        let fails = self.failing == Some(step);
        self.failed = self.failed.saturating_add(u32::from(fails));
        fails
    }
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

    /// Whether this pass of a step fails.
    pub fn hit(&self, step: Step) -> bool {
        if self.stalls.as_ref().is_some_and(|stalls| stalls.state.lock().fails(step)) {
            return true;
        }
        match &self.plan {
            Some(plan) if plan.step == step => {
                plan.passes.fetch_add(1, Ordering::SeqCst) + 1 == plan.nth
            }
            _ => false,
        }
    }

    /// Makes every pass of this step fail from now on; with `None`, none does.
    #[cfg(any(test, feature = "internals"))]
    pub fn fail(&self, step: Option<Step>) {
        if let Some(stalls) = &self.stalls {
            stalls.state.lock().failing = step;
        }
    }

    /// How many passes have failed because of [`Faults::fail`].
    #[cfg(any(test, feature = "internals"))]
    pub fn failed(&self) -> u32 {
        self.stalls.as_ref().map_or(0, |stalls| stalls.state.lock().failed)
    }

    /// Whether the planned failure has happened.
    #[cfg(any(test, feature = "internals"))]
    pub fn happened(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.passes.load(Ordering::SeqCst) >= plan.nth)
    }

    /// No failures yet: threads can be stalled with [`Faults::stall`], steps made to fail with [`Faults::fail`].
    #[cfg(any(test, feature = "internals"))]
    pub fn stalling() -> Self {
        Self { plan: None, stalls: Some(Arc::default()) }
    }

    /// Stalls the thread that reaches this point next; with `None`, every thread continues.
    #[cfg(any(test, feature = "internals"))]
    pub fn stall(&self, at: Option<Stall>) {
        if let Some(stalls) = &self.stalls {
            stalls.state.lock().requested = at;
            stalls.changed.notify_all();
        }
    }

    /// Whether a thread is stalled at this point now.
    #[cfg(any(test, feature = "internals"))]
    pub fn is_standing(&self, at: Stall) -> bool {
        self.stalls.as_ref().is_some_and(|stalls| stalls.state.lock().stalled == Some(at))
    }

    /// Waits here for as long as a test stalls this point. Where one thread stands, others pass.
    pub fn stand(&self, at: Stall) {
        let Some(stalls) = &self.stalls else { return };
        let mut state = stalls.state.lock();
        if state.stalled == Some(at) {
            return;
        }
        while state.requested == Some(at) {
            state.stalled = Some(at);
            stalls.changed.wait(&mut state);
            state.stalled = None;
        }
    }
}

/// A deterministic stream of numbers (`SplitMix64`): short, and even enough for planned failures. Never used
/// for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A stream of its own for each name and number.
    pub fn of(seed: u32, name: &str, number: u64) -> Self {
        // FNV-1a, because the names differ in their last digits only, and each has to change all bits.
        let start = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(seed);
        let hash = name
            .bytes()
            .chain(number.to_le_bytes())
            .fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut mixed = Self(hash);
        Self(mixed.draw())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw().checked_rem(end).unwrap_or(0)
    }

    /// A span from `from` to `to`, in whole milliseconds.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let room = u64::try_from(to.saturating_sub(from).as_millis()).unwrap_or(0);
        from.saturating_add(Duration::from_millis(self.below(room.saturating_add(1))))
    }
}

//! The first step of an attempt: the delivery's row is read, within the memory that there is.
//!
//! After unclean ends of the process, the delivery is marked before it is read: it may be what the process died on
//! (`pipeline::suspects`).

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use crate::base::budget::Share;
use crate::base::faults::Step;
use crate::model::delivery::OutgoingRequest;
use crate::model::subscription::Target;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::unsent::{UNREADABLE_AGAIN, Unsent};
use crate::pipeline::prelude::*;
use crate::pipeline::scheduler::decisions::Assignment;
use crate::pipeline::suspects::Marked;
use crate::store::deliveries::{self, Sized};

/// When a large delivery is looked at again while others have the memory.
const CROWDED_AGAIN: Duration = Duration::from_millis(100);
/// When a delivery is looked at again while one is attempted that the process may have died on.
const SUSPECT_AGAIN: Duration = Duration::from_millis(20);
/// Bodies up to this many bytes take nothing of the budget: all deliverers together have a few MiB of them.
const SMALL_REQUEST_BYTES: usize = 64 * 1024;
/// How much memory an outgoing request takes for each byte of its body: as it is stored, and with its seals opened.
const PARCEL_FACTOR: usize = 2;

/// A delivery that was read and may be worked on.
pub(super) struct Admission<'d> {
    /// What an attempt needs of it.
    pub(super) outgoing: OutgoingRequest,
    /// Whether two unclean ends met the delivery in hand, so that nothing is sent.
    pub(super) is_convicted: bool,
    /// What is held until the attempt is over.
    pub(super) permit: WorkPermit<'d>,
}

/// The mark, the lock and the memory that a deliverer holds while it works on a delivery.
pub(super) struct WorkPermit<'d> {
    _mark: Option<Marked<'d>>,
    _lock: SuspectLock<'d>,
    _share: Option<Share>,
}

/// The lock for an attempt that the process may have died on: no other runs beside.
enum SuspectLock<'d> {
    /// The process is not suspected to die on deliveries.
    NotNeeded,
    /// The delivery is a suspect.
    Alone { _guard: RwLockWriteGuard<'d, ()> },
    /// The delivery is none, but others may be.
    BesideOthers { _guard: RwLockReadGuard<'d, ()> },
}

/// The memory that requests of a subscription take.
struct MemoryNeed {
    /// The largest body that takes nothing of the budget.
    free_bytes: usize,
    /// How much a larger one takes for each byte.
    factor: usize,
}

impl Deliverer {
    /// Reads a delivery, if there is memory for it.
    pub(super) fn admit(&self, assignment: Assignment) -> Result<Admission<'_>, Unsent> {
        let delivery = assignment.delivery;
        let item = self.suspects.is_on().then(|| format!("delivery/{delivery}"));
        let item = item.as_deref();
        let is_convicted = item.is_some_and(|item| self.suspects.is_convicted(item));
        let lock = self.lock_suspects(item)?;
        let mut mark = item.and_then(|item| self.suspects.mark(item, 0));
        let need = self.memory_need(assignment.subscription);
        let mut share = None;
        let mut read = self.read(delivery, need.free_bytes)?;
        if let Sized::Larger(bytes) = read {
            // Others have the memory: this thread goes on with another delivery.
            let taken = self.env.budget.try_take_own(bytes.saturating_mul(need.factor));
            share = Some(taken.ok_or(Unsent::Later(CROWDED_AGAIN))?);
            mark = mark.or_else(|| item.and_then(|item| self.suspects.mark(item, bytes)));
            read = self.read(delivery, usize::MAX)?;
        }
        let Sized::OutgoingRequest(outgoing) = read else { return Err(Unsent::Changed) };
        let permit = WorkPermit { _mark: mark, _lock: lock, _share: share };
        Ok(Admission { outgoing: *outgoing, is_convicted, permit })
    }

    /// Waits until a suspect is alone. Others do not wait for it: they are attempted later.
    fn lock_suspects(&self, item: Option<&str>) -> Result<SuspectLock<'_>, Unsent> {
        if item.is_some_and(|item| self.suspects.is_suspect(item)) {
            return Ok(SuspectLock::Alone { _guard: self.suspects.alone() });
        }
        if !self.suspects.is_careful() {
            return Ok(SuspectLock::NotNeeded);
        }
        let guard = self.suspects.beside_others().ok_or(Unsent::Later(SUSPECT_AGAIN))?;
        Ok(SuspectLock::BesideOthers { _guard: guard })
    }

    fn memory_need(&self, subscription: SubscriptionSeq) -> MemoryNeed {
        let free_bytes = SMALL_REQUEST_BYTES;
        let Ok(destination) = self.destinations.of(subscription) else {
            return MemoryNeed { free_bytes, factor: PARCEL_FACTOR };
        };
        if let Some(factor) = destination.formats.memory_factor() {
            return MemoryNeed { free_bytes: 0, factor };
        }
        // The thread that writes a file has its own copy.
        let is_copied = matches!(destination.subscription.new.target, Target::Folder(_));
        MemoryNeed { free_bytes, factor: PARCEL_FACTOR + usize::from(is_copied) }
    }

    /// What an attempt needs, unless its body has more than `max_bytes`: from memory if nothing has touched it, else from
    /// its row. [`Unsent::Changed`] if it was cancelled or put behind others of its lane since it was handed out.
    fn read(&self, delivery: DeliverySeq, max_bytes: usize) -> Result<Sized, Unsent> {
        let fresh = || {
            let fresh = self.env.store.writer().fresh().take(delivery);
            fresh.filter(|outgoing| outgoing.payload.len() <= max_bytes)
        };
        let read = if self.env.faults.hit(Step::ReadOutgoing) {
            Err(Error::Busy)
        } else if let Some(outgoing) = fresh() {
            Ok(Some(Sized::OutgoingRequest(Box::new(outgoing))))
        } else {
            self.env.store.read(|tx| deliveries::outgoing_within(tx, delivery, max_bytes))
        };
        match read {
            Ok(read) => read.ok_or(Unsent::Changed),
            Err(error) => {
                tracing::error!(%error, %delivery, "a delivery could not be read");
                Err(Unsent::Later(UNREADABLE_AGAIN))
            }
        }
    }
}

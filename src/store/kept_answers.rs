//! Bytes of the kept answers to changes, of each tenant: whether one more may be kept.
//!
//! The writer counts them once and adds what it keeps, so that a request with an `Idempotency-Key` costs no look at all the
//! others. What was deleted or rolled back stays in the sums until there seems to be no room: then they are counted again.
//! Not here: the table (`store::idempotency_keys`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::store::error::Result;

/// Bytes of all kept answers at most: 131,072 of the smallest.
const MAX_BYTES: u64 = 128 << 20;
/// A tenant may have this part of what is free: alone it gets 16 MiB.
const SHARE: u64 = 7;

/// The bytes of the answers of each tenant.
pub(super) type ByTenant = HashMap<String, u64>;

/// The sums, which are never too small.
#[derive(Debug, Default)]
pub(crate) struct KeptAnswers {
    sums: RefCell<Option<Sums>>,
    /// Answers added since the start.
    added: Cell<u64>,
    /// Whether something was deleted or rolled back since the sums were counted.
    may_be_less: Cell<bool>,
}

#[derive(Debug)]
struct Sums {
    by_tenant: ByTenant,
    all: u64,
}

impl Sums {
    fn has_room(&self, tenant: &str) -> bool {
        let own = self.by_tenant.get(tenant).copied().unwrap_or(0);
        own.saturating_mul(SHARE) < MAX_BYTES.saturating_sub(self.all)
    }
}

impl KeptAnswers {
    /// Whether a tenant may keep one more answer. `count` sums up what is stored.
    pub(super) fn has_room(
        &self,
        tenant: &str,
        count: impl Fn() -> Result<ByTenant>,
    ) -> Result<bool> {
        let known = self.sums.borrow().as_ref().map(|sums| sums.has_room(tenant));
        match known {
            Some(true) => return Ok(true),
            Some(false) if !self.may_be_less.get() => return Ok(false),
            Some(false) | None => {}
        }
        let by_tenant = count()?;
        let all = by_tenant.values().fold(0, |all, own| own.saturating_add(all));
        let sums = Sums { by_tenant, all };
        let has_room = sums.has_room(tenant);
        self.sums.replace(Some(sums));
        self.may_be_less.set(false);
        Ok(has_room)
    }

    /// One more answer is kept.
    pub(super) fn add(&self, tenant: &str, bytes: u64) {
        self.added.set(self.added.get().wrapping_add(1));
        if let Some(sums) = self.sums.borrow_mut().as_mut() {
            let own = sums.by_tenant.entry(tenant.to_owned()).or_default();
            *own = own.saturating_add(bytes);
            sums.all = sums.all.saturating_add(bytes);
        }
    }

    /// Answers were deleted.
    pub(crate) fn deleted(&self) {
        self.may_be_less.set(true);
    }

    /// How many answers were added so far.
    pub(crate) fn mark(&self) -> u64 {
        self.added.get()
    }

    /// What was added after the mark was rolled back.
    pub(crate) fn roll_back(&self, mark: u64) {
        if self.added.get() != mark {
            self.may_be_less.set(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Sums over what a table has, with the number of times it was counted.
    #[derive(Default)]
    struct Table {
        stored: RefCell<ByTenant>,
        counts: Cell<u32>,
        sums: KeptAnswers,
    }

    impl Table {
        fn has_room(&self, tenant: &str) -> bool {
            let count = || {
                self.counts.set(self.counts.get() + 1);
                Ok(self.stored.borrow().clone())
            };
            self.sums.has_room(tenant, count).unwrap()
        }

        fn keep(&self, tenant: &str, bytes: u64) {
            *self.stored.borrow_mut().entry(tenant.to_owned()).or_default() += bytes;
            self.sums.add(tenant, bytes);
        }

        fn delete_all(&self, tenant: &str) {
            self.stored.borrow_mut().remove(tenant);
            self.sums.deleted();
        }
    }

    #[test]
    fn a_tenant_alone_keeps_16_mib_and_the_stored_answers_are_counted_once() {
        let table = Table::default();
        while table.has_room("a") {
            table.keep("a", MIB);
        }
        assert_eq!(table.stored.borrow()["a"], 16 * MIB);
        for _ in 0..100 {
            assert!(!table.has_room("a"));
            assert!(table.has_room("b"));
        }
        assert_eq!(table.counts.get(), 1);
    }

    #[test]
    fn what_expired_is_found_once_there_seems_to_be_no_room() {
        let table = Table::default();
        assert!(table.has_room("a"));
        table.keep("a", 20 * MIB);
        assert!(!table.has_room("a"));
        table.delete_all("a");
        assert!(table.has_room("a") && table.has_room("a"));
        assert_eq!(table.counts.get(), 2);
    }

    #[test]
    fn what_was_rolled_back_takes_no_room() {
        let table = Table::default();
        assert!(table.has_room("a"));
        let mark = table.sums.mark();
        table.keep("a", 20 * MIB);
        table.stored.borrow_mut().remove("a");
        table.sums.roll_back(mark);
        assert!(table.has_room("a"));
        table.sums.roll_back(table.sums.mark());
        table.keep("a", 20 * MIB);
        for _ in 0..10 {
            assert!(!table.has_room("a"));
        }
        assert_eq!(table.counts.get(), 2);
    }
}

//! The refused webhooks: in memory, and once a second what is new of them in the file.
//!
//! Anybody can cause refusals. So their number is bounded, for a tenant and in sum, equal ones are one row, and unknown
//! providers, whose names anybody can invent, have few rows of their own. A flood only changes rows in memory: the
//! writer gets few of them, and only from upkeep.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::model::webhook_event::RefusedWebhook;
use crate::pipeline::prelude::*;
use crate::store::page::Newest;
use crate::store::runs::{self, MAX_REFUSED, Refused};

/// The most rows of a tenant.
const MAX_ROWS: usize = 1_000;
/// The most rows of unknown providers.
const MAX_UNKNOWN: usize = 50;
/// The most rows that are stored at once.
const MAX_STORED: usize = 100;

/// The refused webhooks of all tenants.
#[derive(Debug)]
pub struct RefusedWebhooks(Mutex<RefusedByTenant>);

#[derive(Debug)]
struct RefusedByTenant {
    /// The rows by tenant, the latest last.
    tenants: BTreeMap<String, VecDeque<Row>>,
    /// The slots of the table that no row has.
    free: Vec<u32>,
    /// The number of the next refusal.
    next: i64,
}

#[derive(Debug)]
struct Row {
    refused: RefusedWebhook,
    slot: u32,
    /// The number under which it was stored last; 0: never.
    stored_seq: i64,
}

impl RefusedWebhooks {
    /// What was stored before.
    pub fn after(stored: Vec<Refused>) -> Self {
        let taken: BTreeSet<u32> = stored.iter().map(|row| row.slot).collect();
        let free = (1..=MAX_REFUSED).rev().filter(|slot| !taken.contains(slot)).collect();
        let next = stored.last().map_or(1, |last| last.row.seq.saturating_add(1));
        let mut tenants = BTreeMap::<String, VecDeque<Row>>::new();
        for Refused { slot, tenant, row } in stored {
            let stored_seq = row.seq;
            tenants.entry(tenant).or_default().push_back(Row { refused: row, slot, stored_seq });
        }
        Self(Mutex::new(RefusedByTenant { tenants, free, next }))
    }

    /// Rows of a tenant that are wanted, the latest first.
    pub fn page(
        &self,
        Newest { tenant, before, limit }: Newest<'_>,
        is_wanted: impl Fn(&RefusedWebhook) -> bool,
    ) -> Vec<RefusedWebhook> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let kept = self.0.lock();
        let rows = kept.tenants.get(tenant).into_iter().flatten().rev();
        let rows = rows.map(|row| &row.refused).filter(|row| row.seq < before && is_wanted(row));
        rows.take(limit).cloned().collect()
    }

    /// Adds a refusal to its row, or makes one.
    pub fn note(&self, tenant: &str, new: RefusedWebhook) {
        let mut kept = self.0.lock();
        let seq = kept.next;
        kept.next = seq.saturating_add(1);
        let mut same = None;
        if let Some(rows) = kept.tenants.get_mut(tenant) {
            let place = rows.iter().rposition(|row| row.refused.has(&new));
            same = place.and_then(|place| rows.remove(place));
        }
        let row = if let Some(Row { refused: had, slot, stored_seq }) = same {
            let first_at = had.first_at;
            let count = had.count.saturating_add(1);
            Row { refused: RefusedWebhook { seq, first_at, count, ..new }, slot, stored_seq }
        } else {
            let Some(slot) = kept.slot(tenant, new.is_known) else { return };
            Row { refused: RefusedWebhook { seq, ..new }, slot, stored_seq: 0 }
        };
        kept.tenants.entry(tenant.to_owned()).or_default().push_back(row);
    }

    /// Stores the new refusals, a part in each transaction; returns whether there may be more. What cannot be stored is
    /// tried again.
    pub fn store(&self, store: &Store) -> Result<bool> {
        let new = self.unstored();
        if new.is_empty() {
            return Ok(false);
        }
        let seqs: BTreeMap<u32, i64> = new.iter().map(|one| (one.slot, one.row.seq)).collect();
        store.writer().write(Queue::Upkeep, move |tx| runs::keep_refused(tx, &new))?;
        let mut kept = self.0.lock();
        for row in kept.tenants.values_mut().flatten() {
            // A row that has changed meanwhile, or that has the slot of another one now, is stored again.
            row.stored_seq = seqs.get(&row.slot).copied().unwrap_or(row.stored_seq);
        }
        Ok(seqs.len() >= MAX_STORED)
    }

    /// Rows that are not stored as they are. The oldest first, so that no flood keeps others out of the file.
    fn unstored(&self) -> Vec<Refused> {
        let kept = self.0.lock();
        let mut new: Vec<(&String, &Row)> = kept
            .tenants
            .iter()
            .flat_map(|(tenant, rows)| rows.iter().map(move |row| (tenant, row)))
            .filter(|(_, row)| row.stored_seq != row.refused.seq)
            .collect();
        new.sort_unstable_by_key(|(_, row)| row.refused.seq);
        new.truncate(MAX_STORED);
        let owned = |(tenant, row): (&String, &Row)| Refused {
            slot: row.slot,
            tenant: tenant.clone(),
            row: row.refused.clone(),
        };
        new.into_iter().map(owned).collect()
    }
}

impl RefusedByTenant {
    /// A slot for a new row: a free one, or that of a row that ends. In sum, the tenant with the most rows makes room.
    fn slot(&mut self, tenant: &str, is_known: bool) -> Option<u32> {
        let rows = self.tenants.get(tenant);
        let unknown = rows.into_iter().flatten().filter(|row| !row.refused.is_known).count();
        let is_crowded = !is_known && unknown >= MAX_UNKNOWN;
        if is_crowded || rows.is_some_and(|rows| rows.len() >= MAX_ROWS) {
            let rows = self.tenants.get_mut(tenant)?;
            let oldest = rows.iter().position(|row| !(is_crowded && row.refused.is_known))?;
            return rows.remove(oldest).map(|row| row.slot);
        }
        self.free.pop().or_else(|| {
            let largest = self.tenants.values_mut().max_by_key(|rows| rows.len())?;
            largest.pop_front().map(|row| row.slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn refused(provider: &str, is_known: bool, address: u32, at: i64) -> RefusedWebhook {
        let at = Timestamp::from_secs(at);
        RefusedWebhook {
            seq: 0,
            provider: provider.to_owned(),
            is_known,
            status: if is_known { 401 } else { 404 },
            reason: format!("it differs by {at} s"),
            address: Ipv4Addr::from_bits(address).to_string(),
            first_at: at,
            last_at: at,
            count: 1,
        }
    }

    fn none_yet() -> RefusedWebhooks {
        RefusedWebhooks::after(Vec::new())
    }

    fn rows(of: &RefusedWebhooks, tenant: &str) -> Vec<RefusedWebhook> {
        of.page(Newest { tenant, before: i64::MAX, limit: u32::MAX }, |_| true)
    }

    #[test]
    fn a_flood_of_invented_names_and_addresses_leaves_the_rows_of_known_providers() {
        let all = none_yet();
        all.note("default", refused("stripe", true, 1, 0));
        for n in 0..1_000_u32 {
            all.note("default", refused(&format!("x{n}"), false, n, 0));
            all.note("default", refused(&format!("y{n}"), false, 7, 0));
        }
        let kept = rows(&all, "default");
        assert_eq!(kept.len(), MAX_UNKNOWN + 1);
        assert_eq!(kept.last().unwrap().provider, "stripe");
    }

    #[test]
    fn a_tenant_has_a_thousand_rows_and_all_have_ten_thousand() {
        let all = none_yet();
        all.note("small", refused("stripe", true, 1, 0));
        for tenant in 0..12 {
            for n in 0..1_100 {
                all.note(&tenant.to_string(), refused("stripe", true, n, 0));
            }
        }
        let count = |tenant: u32| rows(&all, &tenant.to_string()).len();
        assert_eq!((0..12).map(count).sum::<usize>() + 1, 10_000, "the largest make room");
        assert_eq!(rows(&all, "small").len(), 1);
        assert!((0..12).map(count).all(|rows| rows > 800));
        let mut slots: Vec<u32> = all.0.lock().tenants.values().flatten().map(|r| r.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, (1..=MAX_REFUSED).collect::<Vec<_>>(), "each row has its own slot");
    }

    #[test]
    fn a_flood_stores_a_hundred_rows_at_a_time_and_the_oldest_first() {
        let all = none_yet();
        all.note("small", refused("stripe", true, 1, 0));
        for n in 0..500 {
            all.note("default", refused("stripe", true, n, 0));
        }
        let new = all.unstored();
        assert_eq!((new.len(), new[0].tenant.as_str()), (MAX_STORED, "small"));
    }

    #[test]
    fn after_an_hour_a_row_of_its_own_begins() {
        let all = none_yet();
        for at in [0, 1_800, 3_600, 3_601] {
            all.note("default", refused("stripe", true, 1, at));
        }
        let counts: Vec<_> =
            rows(&all, "default").iter().map(|row| (row.count, row.first_at.secs())).collect();
        assert_eq!(counts, [(1, 3_601), (3, 0)]);
    }
}

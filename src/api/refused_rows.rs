//! The refused webhooks in memory, as rows of equal ones.
//!
//! Anybody can cause refusals. So their number is bounded, equal ones are one row, and unknown providers, whose names
//! anybody can invent, have few rows of their own.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::schema::Whole;
use crate::base::clock::Timestamp;

/// The most rows of a tenant.
const MAX_ROWS: usize = 200;
/// The most rows of unknown providers.
const MAX_UNKNOWN: usize = 50;
/// The most tenants that have rows. Those of further tenants are not kept.
const MAX_TENANTS: usize = 100;
/// Equal refusals within this time are one row.
const GROUPED_WITHIN: Duration = Duration::from_hours(1);
/// The rows by tenant, the latest last.
#[derive(Debug, Default)]
pub(super) struct RefusedWebhooks(Mutex<HashMap<String, VecDeque<Refused>>>);

/// Equal refusals.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RefusedWebhook")]
pub(super) struct Refused {
    /// The provider's name, as the path has it.
    pub(super) provider: String,
    /// Whether there is such a provider.
    pub(super) is_known: bool,
    /// The status that was answered.
    #[schemars(with = "Whole<400, 599>")]
    pub(super) status: u16,
    /// Why it was refused, of the latest one. The sender is not told what is wrong with a signature.
    pub(super) reason: String,
    /// The client's address, as trusted proxies report it.
    #[schemars(with = "String")]
    pub(super) address: IpAddr,
    /// When the first one came.
    pub(super) first_at: Timestamp,
    /// When the latest one came.
    pub(super) last_at: Timestamp,
    /// How many there were.
    pub(super) count: u64,
}

impl Refused {
    /// Whether another refusal belongs to this row. Numbers in a reason, such as of seconds, may differ.
    fn has(&self, other: &Self) -> bool {
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        (self.address, self.status, self.is_known) == (other.address, other.status, other.is_known)
            // One address can invent any number of names.
            && (self.provider == other.provider || !self.is_known)
            && other.last_at.since(self.first_at) <= GROUPED_WITHIN
            && words(&self.reason) == words(&other.reason)
    }
}

impl RefusedWebhooks {
    /// The rows of a tenant, the latest first.
    pub(super) fn of(&self, tenant: &str) -> Vec<Refused> {
        let all = self.0.lock();
        all.get(tenant).map(|rows| rows.iter().rev().cloned().collect()).unwrap_or_default()
    }

    /// Adds a refusal to its row, or makes one.
    pub(super) fn note(&self, tenant: &str, new: Refused) {
        let mut all = self.0.lock();
        if !all.contains_key(tenant) {
            if all.len() >= MAX_TENANTS {
                return;
            }
            all.insert(tenant.to_owned(), VecDeque::new());
        }
        let Some(rows) = all.get_mut(tenant) else { return };
        let same = rows.iter().rposition(|row| row.has(&new));
        let row = if let Some(row) = same.and_then(|place| rows.remove(place)) {
            let (first_at, count) = (row.first_at, row.count.saturating_add(1));
            Refused { first_at, count, ..new }
        } else {
            let unknown = rows.iter().filter(|row| !row.is_known).count();
            let oldest = if !new.is_known && unknown >= MAX_UNKNOWN {
                rows.iter().position(|row| !row.is_known)
            } else {
                (rows.len() >= MAX_ROWS).then_some(0)
            };
            oldest.and_then(|place| rows.remove(place));
            new
        };
        rows.push_back(row);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn refused(provider: &str, is_known: bool, address: u32, at: i64) -> Refused {
        let at = Timestamp::from_secs(at);
        Refused {
            provider: provider.to_owned(),
            is_known,
            status: if is_known { 401 } else { 404 },
            reason: format!("it differs by {at} s"),
            address: Ipv4Addr::from_bits(address).into(),
            first_at: at,
            last_at: at,
            count: 1,
        }
    }

    #[test]
    fn a_flood_of_invented_names_and_addresses_leaves_the_rows_of_known_providers() {
        let all = RefusedWebhooks::default();
        all.note("default", refused("stripe", true, 1, 0));
        for n in 0..1_000_u32 {
            all.note("default", refused(&format!("x{n}"), false, n, 0));
            all.note("default", refused(&format!("y{n}"), false, 7, 0));
        }
        let rows = all.0.lock()["default"].clone();
        assert_eq!(rows.len(), MAX_UNKNOWN + 1);
        assert_eq!(rows[0].provider, "stripe");
        for n in 0..1_000 {
            all.note("default", refused("stripe", true, n, 0));
            all.note(&n.to_string(), refused("stripe", true, n, 0));
        }
        let kept = all.0.lock();
        assert_eq!((kept["default"].len(), kept.len()), (MAX_ROWS, MAX_TENANTS));
    }

    #[test]
    fn after_an_hour_a_row_of_its_own_begins() {
        let all = RefusedWebhooks::default();
        for at in [0, 1_800, 3_600, 3_601] {
            all.note("default", refused("stripe", true, 1, at));
        }
        let rows = all.0.lock()["default"].clone();
        let counts: Vec<_> = rows.iter().map(|row| (row.count, row.first_at.secs())).collect();
        assert_eq!(counts, [(3, 0), (1, 3_601)]);
    }
}

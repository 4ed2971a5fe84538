//! The rows of `/v1/refused-webhooks`, in memory: bounded, and equal refusals are one row.

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
        self.0.lock().get(tenant).map_or_else(Vec::new, |rows| rows.iter().rev().cloned().collect())
    }

    /// Counts a refusal.
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

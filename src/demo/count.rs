//! Compares the invoices that Finance paid with the shipments of Logistics.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::demo::progress::shown;
use crate::demo::site::{Error, Role, Site, Topology};
use crate::demo::store::{self, Ledger};

/// Most invoices that a problem names; of the others it gives only the number.
const MAX_NAMED: usize = 10;

/// What the parent process saw of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Observations {
    /// When Finance was started.
    pub(super) started_at: Timestamp,
    /// How long it took until everything was shipped or time was up.
    pub(super) lasted: Duration,
    /// The killed processes, and when each was killed.
    pub(super) kills: Vec<(Duration, Role)>,
    /// How long Oncebox took after each kill from its start until it was ready.
    pub(super) recoveries: Vec<Duration>,
    /// Deliveries that were pending when time was up; `None`: the run ended in time.
    pub(super) out_of_time: Option<u32>,
}

/// The counts in the tables of Finance, Logistics and Oncebox.
#[derive(Clone, Debug, Default)]
pub(super) struct LedgerCounts {
    /// Planned invoices.
    pub(super) invoices: u32,
    /// Paid invoices.
    pub(super) paid: u32,
    /// All shipments.
    pub(super) shipments: u32,
    /// Paid invoices without a shipment.
    pub(super) lost: Vec<u32>,
    /// Invoices with more than one shipment, and how many.
    pub(super) doubled: Vec<(u32, u32)>,
    /// Shipped invoices that were not paid.
    pub(super) invented: Vec<u32>,
    /// Invoices that Oncebox has not acknowledged.
    pub(super) unacknowledged: Vec<u32>,
    /// Events that Logistics' guard knows.
    pub(super) guarded: u32,
    /// Repeated deliveries that Logistics' guard absorbed.
    pub(super) absorbed: u32,
    /// Repeated publications and webhooks that an Oncebox absorbed.
    pub(super) repeated: u32,
    /// Deliveries that are not completed.
    pub(super) not_completed: u32,
    /// Number of deliveries by their number of attempts.
    pub(super) attempts: BTreeMap<u32, u32>,
    /// Time from Oncebox's acceptance to the shipment, in ms, shortest first.
    pub(super) latencies_ms: Vec<u64>,
    /// Times of the shipments, in ms after the start.
    pub(super) shipped_ms: Vec<u64>,
    /// Damaged files, with SQLite's message.
    pub(super) damaged: Vec<String>,
}

impl LedgerCounts {
    /// Counts in the files of a finished run.
    pub(super) fn count(site: &Site, observed: &Observations) -> Result<Self, Error> {
        let finance = Ledger::finance(&site.finance_db())?;
        let logistics = Ledger::logistics(&site.logistics_db())?;
        let (shipments, absorbed) = logistics.shipped()?;
        let mut counts = Self {
            invoices: site.run.invoices,
            paid: finance.paid()?.paid,
            shipments,
            absorbed,
            guarded: logistics.guarded()?,
            ..Self::default()
        };
        counts.check_integrity(&site.finance_db(), &finance.integrity()?);
        counts.check_integrity(&site.logistics_db(), &logistics.integrity()?);
        let received = counts.add_oncebox_counts(site)?;
        let mut paid = finance.invoices()?;
        let shipped = logistics.shipments()?;
        // In a chain Finance gets no acknowledgements.
        if site.run.topology == Topology::Chain {
            for acknowledged in paid.values_mut() {
                *acknowledged = true;
            }
        }
        counts.compare(&paid, &shipped.iter().map(|(n, (count, _))| (*n, *count)).collect());
        for (number, (_, at)) in &shipped {
            let after_start = at.since(observed.started_at).as_millis();
            counts.shipped_ms.push(u64::try_from(after_start).unwrap_or(u64::MAX));
            if let Some(received) = received.get(number) {
                let latency = at.since(*received).as_millis();
                counts.latencies_ms.push(u64::try_from(latency).unwrap_or(u64::MAX));
            }
        }
        counts.latencies_ms.sort_unstable();
        Ok(counts)
    }

    /// Adds the counts of each Oncebox's database. Returns when the first Oncebox accepted each invoice.
    fn add_oncebox_counts(&mut self, site: &Site) -> Result<BTreeMap<u32, Timestamp>, Error> {
        let mut received = BTreeMap::new();
        for role in site.run.topology.boxes() {
            let path = site.database(role);
            let counts = store::oncebox_counts(&path)?;
            self.repeated = self.repeated.saturating_add(counts.repeated);
            self.not_completed = self.not_completed.saturating_add(counts.not_completed);
            for (attempts, deliveries) in counts.attempts {
                let count = self.attempts.entry(attempts).or_default();
                *count = count.saturating_add(deliveries);
            }
            self.check_integrity(&path, &counts.integrity);
            if role == Role::Oncebox {
                received = counts.received;
            }
        }
        Ok(received)
    }

    /// Records a damaged file.
    fn check_integrity(&mut self, path: &Path, result: &str) {
        if result != "ok" {
            self.damaged.push(format!("{} is damaged: {result}", path.display()));
        }
    }

    /// Compares paid invoices (and whether they are acknowledged) with shipments per invoice.
    fn compare(&mut self, paid: &BTreeMap<u32, bool>, shipped: &BTreeMap<u32, u32>) {
        self.lost = paid.keys().filter(|n| !shipped.contains_key(n)).copied().collect();
        self.unacknowledged = paid.iter().filter(|(_, ack)| !**ack).map(|(n, _)| *n).collect();
        self.invented = shipped.keys().filter(|n| !paid.contains_key(n)).copied().collect();
        self.doubled = shipped
            .iter()
            .filter(|(_, count)| **count > 1)
            .map(|(n, count)| (*n, *count))
            .collect();
    }

    /// The result in one line.
    pub(super) fn verdict(&self, kills: usize) -> String {
        format!(
            "{} invoices → {} shipments, {} lost, {} duplicated ({} redeliveries absorbed, {kills} kills)",
            self.paid,
            self.shipments,
            self.lost.len(),
            self.doubled.len(),
            self.absorbed,
        )
    }

    /// Everything that is wrong, most important first; empty after a success.
    pub(super) fn problems(&self, observed: &Observations) -> Vec<String> {
        let mut problems = Vec::new();
        let mut tell = |found: &[String], what: &str| {
            if !found.is_empty() {
                problems.push(format!("{} {what}: {}", found.len(), named(found)));
            }
        };
        let texts = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>();
        tell(&texts(&self.lost), "lost: paid and never shipped");
        let doubled: Vec<_> =
            self.doubled.iter().map(|(n, count)| format!("{n} ({count} times)")).collect();
        tell(&doubled, "duplicated: shipped more than once");
        tell(&texts(&self.invented), "invented: shipped and not paid");
        tell(&texts(&self.unacknowledged), "not acknowledged by Oncebox");
        problems.extend(self.damaged.iter().cloned());
        if self.paid != self.invoices {
            problems.push(format!("only {} of {} invoices were paid", self.paid, self.invoices));
        }
        if self.guarded != self.paid {
            let guarded = self.guarded;
            let paid = self.paid;
            problems.push(format!("Logistics' guard knows {guarded} events, not {paid}"));
        }
        if self.not_completed > 0 {
            problems.push(format!("{} deliveries are not completed", self.not_completed));
        }
        if let Some(pending) = observed.out_of_time {
            let lasted = shown(observed.lasted);
            problems.push(format!("time was up after {lasted}, with {pending} deliveries pending"));
        }
        problems
    }

    /// The latency that `permille` of 1,000 invoices do not exceed.
    pub(super) fn latency(&self, permille: usize) -> Duration {
        let rank = self.latencies_ms.len().saturating_mul(permille).div_ceil(1000);
        let ms = self.latencies_ms.get(rank.saturating_sub(1)).copied().unwrap_or(0);
        Duration::from_millis(ms)
    }

    /// Shipments a second, from the start to the last of them.
    pub(super) fn rate(&self) -> u64 {
        let count = u64::try_from(self.shipped_ms.len()).unwrap_or(0);
        let last = self.shipped_ms.iter().max().copied().unwrap_or(0);
        count.saturating_mul(1000).checked_div(last).unwrap_or(0)
    }
}

fn named(found: &[String]) -> String {
    let first: Vec<&str> = found.iter().take(MAX_NAMED).map(String::as_str).collect();
    let more = found.len().saturating_sub(first.len());
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("invoice {}{tail}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Timestamp;

    fn observed() -> Observations {
        Observations {
            started_at: Timestamp::from_ms(0),
            lasted: Duration::from_secs(1),
            kills: Vec::new(),
            recoveries: Vec::new(),
            out_of_time: None,
        }
    }

    fn counts(paid: &[u32], shipped: &[(u32, u32)]) -> LedgerCounts {
        let count = u32::try_from(paid.len()).unwrap();
        let mut counts = LedgerCounts {
            invoices: count,
            paid: count,
            guarded: count,
            ..LedgerCounts::default()
        };
        counts.compare(
            &paid.iter().map(|n| (*n, true)).collect(),
            &shipped.iter().copied().collect(),
        );
        counts
    }

    #[test]
    fn a_good_end_has_no_problems() {
        assert!(counts(&[1, 2], &[(1, 1), (2, 1)]).problems(&observed()).is_empty());
    }

    #[test]
    fn lost_doubled_and_invented_are_told_apart_and_named() {
        let problems = counts(&[1, 2, 3], &[(2, 2), (3, 1), (9, 1)]).problems(&observed());
        assert_eq!(
            problems,
            [
                "1 lost: paid and never shipped: invoice 1",
                "1 duplicated: shipped more than once: invoice 2 (2 times)",
                "1 invented: shipped and not paid: invoice 9",
            ]
        );
    }

    #[test]
    fn many_of_a_kind_are_counted_and_only_the_first_named() {
        let paid: Vec<u32> = (1..=30).collect();
        let problems = counts(&paid, &[]).problems(&observed());
        assert_eq!(
            problems,
            ["30 lost: paid and never shipped: invoice 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more"]
        );
    }

    #[test]
    fn a_percentile_is_a_latency_that_occurred() {
        let counts = LedgerCounts { latencies_ms: (1..=200).collect(), ..LedgerCounts::default() };
        assert_eq!(counts.latency(500), Duration::from_millis(100));
        assert_eq!(counts.latency(990), Duration::from_millis(198));
        assert_eq!(LedgerCounts::default().latency(500), Duration::ZERO);
    }
}

//! The count: what Finance says was paid against what Logistics says was shipped.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::demo::error::Error;
use crate::demo::progress::shown;
use crate::demo::site::{Role, Site, Story};
use crate::demo::store::{self, Finance, Logistics};

/// Numbers of invoices that are named in a problem; of more it is only said how many they are.
const MAX_NAMED: usize = 10;

/// What happened in a run, as the parent saw it.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// When Finance was started.
    pub(super) started_at: Timestamp,
    /// From then until everything was shipped, or given up.
    pub(super) lasted: Duration,
    /// Who was killed when.
    pub(super) kills: Vec<(Duration, Role)>,
    /// How long Oncebox took from each start after a kill until it answered.
    pub(super) recoveries: Vec<Duration>,
    /// Deliveries Oncebox still had when time was up; `None`: it ended in time.
    pub(super) out_of_time: Option<u32>,
}

/// What the ledgers say.
#[derive(Clone, Debug, Default)]
pub(super) struct LedgerCounts {
    /// Invoices that were to be paid.
    pub(super) invoices: u32,
    /// Invoices that are paid.
    pub(super) paid: u32,
    /// Shipments, however many to an invoice.
    pub(super) shipments: u32,
    /// Paid invoices without a shipment.
    pub(super) lost: Vec<u32>,
    /// Invoices with more than one.
    pub(super) doubled: Vec<(u32, u32)>,
    /// Shipments of invoices that are not paid.
    pub(super) invented: Vec<u32>,
    /// Invoices Oncebox has not acknowledged.
    pub(super) unacknowledged: Vec<u32>,
    /// Events Logistics' guard knows.
    pub(super) guarded: u32,
    /// Deliveries of events that Logistics had done already.
    pub(super) absorbed: u32,
    /// Publications and webhooks of events that an Oncebox had already.
    pub(super) repeated: u32,
    /// Deliveries that Oncebox does not call completed.
    pub(super) not_completed: u32,
    /// How many deliveries took how many settled attempts.
    pub(super) attempts: BTreeMap<u32, u32>,
    /// From Oncebox's receipt to the shipment, in ms, shortest first.
    pub(super) latencies_ms: Vec<u64>,
    /// When shipments were made, in ms after the start.
    pub(super) shipped_ms: Vec<u64>,
    /// Files that SQLite finds fault with, and what it says.
    pub(super) damaged: Vec<String>,
}

impl LedgerCounts {
    /// Counts in the files of a run that is over.
    pub(super) fn count(site: &Site, course: &Course) -> Result<Self, Error> {
        let finance = Finance::open(&site.finance_db())?;
        let logistics = Logistics::open(&site.logistics_db())?;
        let (shipments, absorbed) = logistics.counts()?;
        let mut tally = Self {
            invoices: site.lap.invoices,
            paid: finance.counts()?.paid,
            shipments,
            absorbed,
            guarded: logistics.guarded()?,
            ..Self::default()
        };
        tally.look_at(&site.finance_db(), &finance.integrity()?);
        tally.look_at(&site.logistics_db(), &logistics.integrity()?);
        let received = tally.carry(site)?;
        let mut paid = finance.invoices()?;
        let shipped = logistics.shipments()?;
        // In a chain Finance gets no acknowledgements.
        if site.lap.story == Story::Chain {
            for acknowledged in paid.values_mut() {
                *acknowledged = true;
            }
        }
        tally.compare(&paid, &shipped.iter().map(|(n, (count, _))| (*n, *count)).collect());
        for (number, (_, at)) in &shipped {
            let after_start = at.since(course.started_at).as_millis();
            tally.shipped_ms.push(u64::try_from(after_start).unwrap_or(u64::MAX));
            if let Some(received) = received.get(number) {
                let latency = at.since(*received).as_millis();
                tally.latencies_ms.push(u64::try_from(latency).unwrap_or(u64::MAX));
            }
        }
        tally.latencies_ms.sort_unstable();
        Ok(tally)
    }

    /// Adds what each Oncebox has in its file; returns when the first of them received each invoice.
    fn carry(&mut self, site: &Site) -> Result<BTreeMap<u32, Timestamp>, Error> {
        let mut received = BTreeMap::new();
        for role in site.lap.story.boxes() {
            let path = site.database(role);
            let carried = store::carried(&path)?;
            self.repeated = self.repeated.saturating_add(carried.repeated);
            self.not_completed = self.not_completed.saturating_add(carried.not_completed);
            for (attempts, deliveries) in carried.attempts {
                let count = self.attempts.entry(attempts).or_default();
                *count = count.saturating_add(deliveries);
            }
            self.look_at(&path, &carried.integrity);
            if role == Role::Oncebox {
                received = carried.received;
            }
        }
        Ok(received)
    }

    /// Notes a file that SQLite finds fault with.
    fn look_at(&mut self, path: &Path, said: &str) {
        if said != "ok" {
            self.damaged.push(format!("{} is damaged: {said}", path.display()));
        }
    }

    /// Paid invoices (and whether they are acknowledged) against shipments per invoice.
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

    /// The one line that matters.
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

    /// What keeps this from being a good end, most important first; empty: nothing.
    pub(super) fn problems(&self, course: &Course) -> Vec<String> {
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
            let (guarded, paid) = (self.guarded, self.paid);
            problems.push(format!("Logistics' guard knows {guarded} events, not {paid}"));
        }
        if self.not_completed > 0 {
            problems.push(format!("{} deliveries are not completed", self.not_completed));
        }
        if let Some(pending) = course.out_of_time {
            let lasted = shown(course.lasted);
            problems.push(format!("time was up after {lasted}, with {pending} deliveries pending"));
        }
        problems
    }

    /// The latency that so many of 1,000 invoices do not exceed.
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

    fn course() -> Course {
        Course {
            started_at: Timestamp::from_ms(0),
            lasted: Duration::from_secs(1),
            kills: Vec::new(),
            recoveries: Vec::new(),
            out_of_time: None,
        }
    }

    fn tally(paid: &[u32], shipped: &[(u32, u32)]) -> LedgerCounts {
        let count = u32::try_from(paid.len()).unwrap();
        let mut tally = LedgerCounts {
            invoices: count,
            paid: count,
            guarded: count,
            ..LedgerCounts::default()
        };
        tally.compare(
            &paid.iter().map(|n| (*n, true)).collect(),
            &shipped.iter().copied().collect(),
        );
        tally
    }

    #[test]
    fn a_good_end_has_no_problems() {
        assert!(tally(&[1, 2], &[(1, 1), (2, 1)]).problems(&course()).is_empty());
    }

    #[test]
    fn lost_doubled_and_invented_are_told_apart_and_named() {
        let problems = tally(&[1, 2, 3], &[(2, 2), (3, 1), (9, 1)]).problems(&course());
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
        let problems = tally(&paid, &[]).problems(&course());
        assert_eq!(
            problems,
            ["30 lost: paid and never shipped: invoice 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more"]
        );
    }

    #[test]
    fn a_percentile_is_a_latency_that_occurred() {
        let tally = LedgerCounts { latencies_ms: (1..=200).collect(), ..LedgerCounts::default() };
        assert_eq!(tally.latency(500), Duration::from_millis(100));
        assert_eq!(tally.latency(990), Duration::from_millis(198));
        assert_eq!(LedgerCounts::default().latency(500), Duration::ZERO);
    }
}

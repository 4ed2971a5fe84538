//! What was measured, and a sentence about each of it.
//!
//! Not here: how it is printed.

use std::path::PathBuf;

use serde::Serialize;

use crate::bench::disk::Syncs;

/// Events a second of the projection: what a box beside a busy ERP has all day.
const PROJECTED_PACE: u64 = 5;
const SECONDS_A_YEAR: u64 = 365 * 24 * 60 * 60;
const GB: u64 = 1_000_000_000;
const TB: u64 = 1000 * GB;
/// Events a second that a box beside an ERP has at most, most of the time.
const ERP_PACE: u64 = 50;

/// All of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The directory in which it ran.
    pub directory: PathBuf,
    /// Syncs of the disk alone.
    pub syncs: Syncs,
    /// Events accepted over HTTP that nobody wants.
    pub accepted: Accepted,
    /// Events accepted over HTTP and delivered to the sink.
    pub delivered: Delivered,
    /// What an event writes that is alone.
    pub written: Written,
    /// How long a card lasts; nothing where bytes are not counted.
    pub wear: Option<Wear>,
    /// A sentence about each.
    pub verdicts: Verdicts,
}

/// Events a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Accepted {
    /// From one connection: each event waits for the commit of the one before.
    pub one_connection: u64,
    /// From sixteen connections: they share commits.
    pub connections_16: u64,
}

/// Events a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Delivered {
    /// Of sixteen connections, until the sink has them.
    pub per_second: u64,
}

/// Bytes on the device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Written {
    /// Events of the measurement.
    pub events: u64,
    /// How many came in a second.
    pub per_second: u64,
    /// Bytes written for an event; nothing in memory, or where the system does not count.
    pub bytes_an_event: Option<u64>,
}

/// A year at five events a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Wear {
    /// Gigabytes that the service writes in a year.
    pub gb_a_year: u64,
    /// Terabytes that can be written to the card.
    pub card_tb: u32,
    /// Years until then; to a tenth.
    pub card_years: f64,
}

impl Wear {
    /// The wear by events that write so many bytes each.
    pub(super) fn of(bytes_an_event: u64, card_tb: u32) -> Self {
        let a_year = bytes_an_event.saturating_mul(PROJECTED_PACE).saturating_mul(SECONDS_A_YEAR);
        let takes = u64::from(card_tb).saturating_mul(TB);
        let tenths = takes.saturating_mul(10).checked_div(a_year).unwrap_or(u64::MAX);
        let tenths = u32::try_from(tenths).unwrap_or(u32::MAX);
        Self { gb_a_year: a_year.div_ceil(GB), card_tb, card_years: f64::from(tenths) / 10.0 }
    }

    /// The years as people say them.
    fn years(self) -> String {
        if self.card_years > 100.0 {
            return "more than 100 years".to_owned();
        }
        format!("{:.1} years", self.card_years)
    }
}

/// A sentence about each measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Verdicts {
    /// Of the disk.
    pub syncs: String,
    /// Of accepting.
    pub accepted: String,
    /// Of accepting and delivering.
    pub delivered: String,
    /// Of what is written.
    pub written: String,
}

impl Verdicts {
    pub(super) fn of(
        syncs: &Syncs,
        accepted: Accepted,
        delivered: Delivered,
        wear: Option<Wear>,
    ) -> Self {
        Self {
            syncs: about_syncs(syncs),
            accepted: about_rate("accepts", accepted.connections_16),
            delivered: about_rate("accepts and delivers", delivered.per_second),
            written: about_wear(wear),
        }
    }
}

fn about_syncs(syncs: &Syncs) -> String {
    match syncs.unfit {
        Some("memory") => {
            return "This directory is in memory, not on a disk: give --dir a directory of the disk that will have the data."
                .to_owned();
        }
        Some(network) => {
            return format!(
                "This directory is on a network file system ({network}): give --dir one of a local disk."
            );
        }
        None => {}
    }
    let median = milliseconds(syncs.median_us);
    let begins = match syncs.median_us {
        0..50 => "Few disks are that fast: find out whether this one keeps what it acknowledged when the power fails".to_owned(),
        50..5_000 => format!("Good: an event waits {median} for the disk"),
        5_000..30_000 => format!("Enough: an event waits {median} for the disk, as on many SD cards"),
        _ => format!("Slow: an event waits {median} for the disk; look for another one"),
    };
    let is_uneven = syncs.p99_us >= 100_000 && syncs.p99_us / 10 >= syncs.median_us;
    if is_uneven {
        return format!("{begins}, and one in a hundred {}.", milliseconds(syncs.p99_us));
    }
    format!("{begins}.")
}

fn about_rate(does: &str, per_second: u64) -> String {
    let begins = match per_second / ERP_PACE {
        0 => "Too slow",
        1 => "Just enough",
        2..10 => "Enough",
        _ => "Plenty",
    };
    format!(
        "{begins}: it {does} {per_second} events a second, and a box beside an ERP gets up to {ERP_PACE}."
    )
}

fn about_wear(wear: Option<Wear>) -> String {
    let Some(wear) = wear else {
        return "What a process writes is not counted here, so the wear of a card is not known."
            .to_owned();
    };
    let Wear { gb_a_year, card_tb, .. } = wear;
    let years = wear.years();
    format!(
        "At 5 events a second this box writes {gb_a_year} GB a year; a card that takes {card_tb} TB lasts {years}."
    )
}

/// Microseconds as people say them: `0.14 ms`, `8.2 ms`, `120 ms`.
pub fn milliseconds(us: u64) -> String {
    match us {
        0..1_000 => format!("0.{:02} ms", us / 10),
        1_000..100_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => format!("{} ms", us / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_of_8_tb_lasts_two_years_at_25_kb_an_event() {
        let wear = Wear::of(25_000, 8);
        assert_eq!(wear.gb_a_year, 3_942);
        let said = about_wear(Some(wear));
        let whole = "At 5 events a second this box writes 3942 GB a year; a card that takes 8 TB lasts 2.0 years.";
        assert_eq!(said, whole);
        assert_eq!(Wear::of(0, 8).years(), "more than 100 years");
        assert!(about_wear(None).contains("not known"));
        let json = serde_json::to_value(wear).unwrap();
        assert_eq!(json["card_years"], 2.0);
    }

    #[test]
    fn a_disk_is_judged_by_its_middle_sync_and_by_its_slowest() {
        let of = |median_us, p99_us, unfit| {
            about_syncs(&Syncs { count: 1, median_us, p99_us, per_second: 1, unfit })
        };
        assert!(of(20, 40, None).starts_with("Few disks are that fast"));
        assert_eq!(of(140, 900, None), "Good: an event waits 0.14 ms for the disk.");
        let card = "Enough: an event waits 8.2 ms for the disk, as on many SD cards, and one in a hundred 400 ms.";
        assert_eq!(of(8_200, 400_000, None), card);
        assert!(of(45_000, 60_000, None).starts_with("Slow: an event waits 45.0 ms"));
        assert!(of(1, 1, Some("memory")).contains("is in memory"));
        assert!(of(1, 1, Some("nfs")).contains("a network file system (nfs)"));
    }

    #[test]
    fn a_rate_is_judged_by_what_an_erp_asks_of_its_box() {
        for (rate, begins) in [
            (49, "Too slow: it accepts 49"),
            (50, "Just enough"),
            (499, "Enough"),
            (5_000, "Plenty"),
        ] {
            let said = about_rate("accepts", rate);
            assert!(said.starts_with(begins), "{said}");
        }
    }
}

//! From exec to the first 200 of `/readyz`, which is the first commit: with an empty file, and with
//! deliveries that wait for a retry. Each start follows an end that was not clean.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    clippy::iter_over_hash_type,
    reason = "a bench owns its processes, ends by panicking, prints what it measures and reckons in floats"
)]

mod rig;

use std::path::Path;

use rig::report::Report;
use rig::server::{Server, fresh_directory};
use rig::{history, median, now_us};

/// Puts all deliveries into 10,000 lanes.
const IN_LANES: &str = "
    UPDATE subscriptions SET ordering = 'key';
    UPDATE deliveries SET lane = 1 + seq % 10000, order_at = seq, head = seq <= 10000";

fn starts(data: &Path, times: usize) -> f64 {
    let spans: Vec<f64> =
        (0..times).map(|_| Server::start_on(data).ready_after.as_secs_f64()).collect();
    median(&spans)
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("start", options);
    let times = options.pick(3, 5);
    let firsts: Vec<f64> =
        (0..times).map(|_| Server::start("start").ready_after.as_secs_f64()).collect();
    report.at_most("first start, which makes the file", median(&firsts), "s", 0.3);
    let data = fresh_directory("start");
    Server::start_on(&data).stop();
    report.at_most("start with an empty file", starts(&data, times), "s", 0.3);
    let conn = rig::floor::open(&data.join("oncebox.db"));
    history::subscribe(&conn, "http://127.0.0.1:40009/hook");
    let now = i64::try_from(now_us() / 1000).unwrap();
    let open = options.pick(20_000, 100_000);
    history::write(&conn, open, now, Some(now + 3_000_000));
    drop(conn);
    report.at_most(format!("start with {open} open deliveries"), starts(&data, times), "s", 1.0);
    if options.full {
        let conn = rig::floor::open(&data.join("oncebox.db"));
        history::write(&conn, 1_000_000 - open, now, Some(now + 3_000_000));
        conn.execute_batch(IN_LANES).unwrap();
        drop(conn);
        let what = "start with 1,000,000 open deliveries in 10,000 lanes";
        report.at_most(what, starts(&data, times), "s", 1.0);
    }
    drop(std::fs::remove_dir_all(data));
}

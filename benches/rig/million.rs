//! A table with very many rows that were taken, and four programs of the ERP that write on, with the source and without it
//! in turns.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use oncebox::databases::connection::{Connection, Statement};
use oncebox::databases::product::Product;
use serde_json::Value;

use crate::erp::{Erp, add_source};
use crate::rig::report::Report;
use crate::rig::{Options, quantile, rest};

const WRITERS: usize = 4;
/// How long a writer rests between two transactions.
const PAUSE: Duration = Duration::from_millis(10);
/// No INSERT of the ERP should wait longer for us, and no poll take longer.
const MOST_WAIT_US: u32 = 50_000;
const MOST_POLL_MS: f64 = 10.0;

/// Polls, and how long writers wait.
pub(crate) fn million(report: &mut Report, options: Options, erp: &Erp) {
    let rows = options.pick(50_000, 1_000_000);
    fill(erp, rows);
    let server = erp.serve();
    add_source(&server);
    let product = erp.product();
    let what = |what: &str| format!("{product}: beside {rows} taken rows: {what}");
    report.at_most(what("a poll"), poll_ms(erp), "ms", MOST_POLL_MS);
    let mut alone = Vec::new();
    let mut beside = Vec::new();
    for _ in 0..options.pick(2, 5) {
        alone.extend(insert_times(erp, options));
        server.ask("POST", "/v1/sources/erp/resume", &Value::Null);
        beside.extend(insert_times(erp, options));
        server.ask("POST", "/v1/sources/erp/pause", &Value::Null);
    }
    alone.sort_unstable();
    beside.sort_unstable();
    let slow = |times: &[u32]| times.iter().filter(|time| **time > MOST_WAIT_US).count() as f64;
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let mine = quantile(&beside, share) / 1e3;
        let theirs = quantile(&alone, share) / 1e3;
        let base = format!("{theirs:.2} ms without us");
        report.times(
            what(&format!("an INSERT, {name}")),
            (mine, "ms"),
            (base, mine / theirs),
            None,
        );
    }
    report.line(what("INSERTs"), beside.len() as f64, "");
    report.line(what("INSERTs over 50 ms"), slow(&beside), "");
    report.line(what("INSERTs over 50 ms without us"), slow(&alone), "");
}

fn fill(erp: &Erp, rows: u32) {
    erp.run(&match erp.product() {
        Product::Postgresql => format!(
            "TRUNCATE TABLE outbox; INSERT INTO outbox (event_type, payload, taken_at)
             SELECT 'old', '{{}}', now() FROM generate_series(1, {rows}); VACUUM ANALYZE outbox"
        ),
        Product::Mariadb | Product::SqlServer => format!(
            "TRUNCATE TABLE outbox; INSERT INTO outbox (event_type, payload, taken_at)
             SELECT 'old', '{{}}', UTC_TIMESTAMP(3) FROM seq_1_to_{rows}; ANALYZE TABLE outbox"
        ),
    });
}

/// The middle of how long a look takes that finds nothing, from its BEGIN to its COMMIT.
fn poll_ms(erp: &Erp) -> f64 {
    let mut connection = erp.connect();
    let poll = Statement::new(
        "SELECT id, event_type, payload FROM outbox WHERE taken_at IS NULL ORDER BY outbox.id LIMIT 500",
    );
    let mut times: Vec<u32> = (0..50)
        .map(|_| {
            let begun = Instant::now();
            connection.begin().unwrap();
            connection.rows(&poll, 500).unwrap();
            connection.commit().unwrap();
            begun.elapsed().as_micros() as u32
        })
        .collect();
    times.sort_unstable();
    quantile(&times, 0.5) / 1e3
}

/// How long each INSERT of four writers takes, in microseconds. One that fails ends the bench.
fn insert_times(erp: &Erp, options: Options) -> Vec<u32> {
    let span = Duration::from_secs(options.pick(2, 10));
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let times = writer_times(erp, span);
                all.lock().unwrap().extend(times);
            });
        }
    });
    all.into_inner().unwrap()
}

fn writer_times(erp: &Erp, span: Duration) -> Vec<u32> {
    let mut connection = erp.connect();
    let insert = Statement::new("INSERT INTO outbox (event_type, payload) VALUES ('new', '{}')");
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed() < span {
        connection.begin().unwrap();
        let sent = Instant::now();
        connection.run(&insert).unwrap();
        times.push(sent.elapsed().as_micros() as u32);
        connection.commit().unwrap();
        rest(PAUSE);
    }
    times
}

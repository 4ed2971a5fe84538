//! What a file that has grown costs: the due query, an insert and a settlement, beside an empty file.
//!
//! Calls the store's own functions, without HTTP. Without `--full` the past is a million events.

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

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox::base::clock::{Clock, Timestamp};
use oncebox::base::faults::Faults;
use oncebox::base::id::{self, DeliverySeq, SubscriptionSeq, SystemDraw};
use oncebox::model::attempt::{Attempt, AttemptReport};
use oncebox::model::event::EventOrder;
use oncebox::model::event::NewEvent;
use oncebox::model::outcome::AttemptClass;
use oncebox::model::sealed::Sealed;
use oncebox::model::settlement::Settlement;
use oncebox::pipeline::recent::Recent;
use oncebox::store::writer::WriterLoop;
use oncebox::store::{Store, deliveries, outbox, settlement};
use rig::report::Report;
use rig::server::fresh_directory;
use rig::{Options, history, median, now_us, quantile};

/// Rows of a claim, and of a transaction.
const ROWS: u32 = 100;
const SUBSCRIPTION: SubscriptionSeq = SubscriptionSeq(1);

struct File {
    store: Store,
    writer: WriterLoop,
    directory: PathBuf,
    draw: SystemDraw,
    /// What its events happened to.
    aggregate_id: Option<String>,
    /// Keys of its events, in turns; 0: they have none.
    keys: u32,
    /// The first of them in a commit.
    first_key: u32,
}

/// The indexes that an event and its delivery are written into for the sake of lists alone.
const LIST_INDEXES: [&str; 2] = ["outbox_listed", "outbox_aggregate"];

/// What one round took, in microseconds a row.
struct Round {
    insert: f64,
    settle: f64,
}

type Cost = fn(&Round) -> f64;

fn now() -> Timestamp {
    Timestamp::from_ms(i64::try_from(now_us() / 1000).unwrap())
}

impl File {
    fn with_past(events: i64) -> Self {
        let directory = fresh_directory("claim");
        let path = directory.join("oncebox.db");
        drop(Store::open(&path, Faults::none()).unwrap());
        let conn = rig::floor::open(&path);
        history::subscribe(&conn, "http://127.0.0.1:40009/hook");
        history::write(&conn, events, now().ms(), None);
        drop(conn);
        let (store, writer) = Store::open(&path, Faults::none()).unwrap();
        let draw = SystemDraw::new();
        Self { store, writer, directory, draw, aggregate_id: None, keys: 0, first_key: 0 }
    }

    fn insert(&mut self) -> f64 {
        let key = |n: u32| (self.first_key + n).checked_rem(self.keys).map(|key| key.to_string());
        let events: Vec<NewEvent> =
            (0..ROWS).map(|n| NewEvent { ordering_key: key(n), ..self.event() }).collect();
        let begun = Instant::now();
        let stored = self.writer.direct(|tx| {
            events.iter().try_for_each(|event| outbox::insert(tx, event, now()).map(drop))
        });
        stored.unwrap();
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROWS)
    }

    fn event(&self) -> NewEvent {
        let id = id::uuid7(now(), &self.draw);
        NewEvent {
            idempotency_key: format!("auto-{id}"),
            id,
            tenant: "default".to_owned(),
            source_system: "api".to_owned(),
            event_type: "bench.event".to_owned(),
            aggregate_type: None,
            aggregate_id: self.aggregate_id.clone(),
            target: None,
            payload: vec![b'x'; rig::load::EVENT_BYTES],
            content_type: "application/json".to_owned(),
            headers: None,
            occurred_at: None,
            received_at: now(),
            not_before: None,
            ordering_key: None,
            order: EventOrder::default(),
            process_id: None,
            trace_id: None,
            max_attempts: None,
            custom_data: None,
            sealed: Sealed::default(),
        }
    }

    /// The due query, as the dispatcher asks it.
    fn due(&self) -> (Vec<DeliverySeq>, Duration) {
        let begun = Instant::now();
        let now = now();
        let due = self.store.read(|tx| deliveries::due(tx, SUBSCRIPTION, now, ROWS, &[], None));
        let (due, _) = due.unwrap();
        (due.into_iter().map(|(delivery, _)| delivery).collect(), begun.elapsed())
    }

    fn settle(&mut self, due: &[DeliverySeq]) -> f64 {
        self.settle_and(due, |_| ())
    }

    /// Settles, and does something more with each settlement.
    fn settle_and(&mut self, due: &[DeliverySeq], more: impl Fn(&Settlement)) -> f64 {
        let reports: Vec<Arc<AttemptReport>> = due.iter().map(|seq| success(*seq)).collect();
        let begun = Instant::now();
        let stored = self.writer.direct(|tx| {
            reports
                .iter()
                .map(|report| settlement::settle(tx, report))
                .collect::<Result<Vec<_>, _>>()
        });
        stored.unwrap().iter().flatten().for_each(more);
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROWS)
    }

    fn round(&mut self, claims: &mut Vec<u32>) -> Round {
        let insert = self.insert();
        let mut due = Vec::new();
        for _ in 0..40 {
            let (found, span) = self.due();
            claims.push(u32::try_from(span.as_nanos() / 100).unwrap());
            due = found;
        }
        assert_eq!(due.len(), ROWS as usize);
        Round { insert, settle: self.settle(&due) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn success(delivery: DeliverySeq) -> Arc<AttemptReport> {
    let at = now();
    let attempt = Attempt {
        n: 1,
        started_at: at,
        finished_at: at,
        url: "http://127.0.0.1:40000/hook".to_owned(),
        class: AttemptClass::Success,
        counted: false,
        http_status: Some(200),
        latency_ms: 1,
        failed_reason: None,
        excerpt: Some("ok".to_owned()),
        key_id: Some("019a0000-0000-7000-8000-000000000001".to_owned()),
        span: Some("00f067aa0ba902b7".to_owned()),
        method: Some("POST".to_owned()),
        body_sha256: Some([7; 32]),
        fields: None,
        named: true,
    };
    let report = AttemptReport::new(delivery, SUBSCRIPTION, 1, attempt, at);
    Arc::new(AttemptReport { code: "200".to_owned(), ..report })
}

/// Both files in turns, so that what the machine does besides meets both alike.
fn compare(report: &mut Report, events: i64, options: Options) {
    let mut files = [File::with_past(0), File::with_past(events)];
    let mut claims = [Vec::new(), Vec::new()];
    let mut costs: [Vec<Round>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..options.pick(10, 50) {
        for ((file, claims), costs) in files.iter_mut().zip(&mut claims).zip(&mut costs) {
            costs.push(file.round(claims));
        }
    }
    for spans in &mut claims {
        spans.sort_unstable();
    }
    let claim = |file: usize, share: f64| quantile(&claims[file], share) / 10.0;
    let cost = |file: usize, of: Cost| median(&costs[file].iter().map(of).collect::<Vec<_>>());
    let past = format!("{events} events of history");
    for (what, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (empty, full) = (claim(0, share), claim(1, share));
        let base = (format!("{empty:.0} us empty"), full / empty);
        report.times(format!("claim of {ROWS}, {past}: {what}"), (full, "us"), base, None);
    }
    let p99 = claim(1, 0.99) / 1e3;
    report.at_most(format!("claim of {ROWS}, {past}: p99"), p99, "ms", 1.0);
    let insert: Cost = |round| round.insert;
    let settle: Cost = |round| round.settle;
    for (what, of) in [("insert", insert), ("settle", settle)] {
        let (empty, full) = (cost(0, of), cost(1, of));
        let base = (format!("{empty:.1} us empty"), full / empty);
        let what = format!("{what} a row, {ROWS} in a commit, {past}");
        report.times(what, (full, "us"), base, Some(2.0));
    }
}

/// What an event costs more for the lists: with their indexes and without, in turns.
fn list_indexes(report: &mut Report, options: Options) {
    let mut files = [File::with_past(0), File::with_past(0)];
    let bare = rig::floor::open(&files[1].directory.join("oncebox.db"));
    for index in LIST_INDEXES {
        bare.execute_batch(&format!("DROP INDEX {index}")).unwrap();
    }
    drop(bare);
    let mut costs = [Vec::new(), Vec::new()];
    for n in 0..options.pick(100, 1000) {
        for (file, costs) in files.iter_mut().zip(&mut costs) {
            file.aggregate_id = Some(format!("invoice-{n}"));
            costs.push(file.insert());
        }
    }
    let [with, without] = costs.map(|costs| median(&costs));
    let what = format!("insert a row, {ROWS} in a commit, without the lists' indexes");
    report.line(what, without, "us");
    report.at_most("the lists' indexes, an event", with - without, "us", 3.0);
}

/// What a settlement costs where somebody names `delivery.completed`, where many name something else, and where there
/// is nobody else; in turns.
fn operational_events(report: &mut Report, options: Options) {
    let mut files = [File::with_past(0), File::with_past(0), File::with_past(0)];
    let [_alone, others, named] = &files;
    let others = rig::floor::open(&others.directory.join("oncebox.db"));
    for n in 0..100 {
        history::subscribe_to(&others, &format!("other-{n}"), "integration.resolved");
    }
    let named = rig::floor::open(&named.directory.join("oncebox.db"));
    history::subscribe_to(&named, "named", "delivery.completed");
    drop((others, named));
    let mut costs: [Vec<Round>; 3] = Default::default();
    for _ in 0..options.pick(50, 500) {
        for (file, costs) in files.iter_mut().zip(&mut costs) {
            costs.push(file.round(&mut Vec::new()));
        }
    }
    let settle = costs
        .each_ref()
        .map(|costs| median(&costs.iter().map(|round| round.settle).collect::<Vec<_>>()));
    let insert = median(&costs[0].iter().map(|round| round.insert).collect::<Vec<_>>());
    let [alone, others, named] = settle;
    let base = (format!("{alone:.1} us without them"), others / alone);
    let what = "settle a row, 100 subscriptions name other operational events";
    report.times(what, (others, "us"), base, Some(1.1));
    let event = alone + insert;
    let base = (format!("{event:.1} us to settle one and insert one"), named / event);
    let what = "settle a row, one subscription names delivery.completed";
    report.times(what, (named, "us"), base, Some(1.2));
}

/// What an event costs more in a lane of its own: insert and settlement; and what the terms of an order cost an event
/// that is in no lane.
fn order(report: &mut Report, options: Options) {
    let mut files = [File::with_past(0), File::with_past(0), File::with_past(0)];
    let ask = |file: &File, terms: &str| {
        let sql = format!("UPDATE subscriptions SET {terms} WHERE seq = 1");
        rig::floor::open(&file.directory.join("oncebox.db")).execute_batch(&sql).unwrap();
    };
    ask(&files[1], "ordering = 'key'");
    ask(&files[2], r#"order_terms = '{"funnel_point":"sap","head_of_line":"skip"}'"#);
    files[1].keys = ROWS;
    files[2].keys = ROWS;
    let mut costs: [Vec<Round>; 3] = Default::default();
    for _ in 0..options.pick(200, 500) {
        for (file, costs) in files.iter_mut().zip(&mut costs) {
            costs.push(file.round(&mut Vec::new()));
        }
    }
    let event = |costs: &Vec<Round>| {
        median(&costs.iter().map(|round| round.insert + round.settle).collect::<Vec<_>>())
    };
    let [none, lane, terms] = costs.each_ref().map(event);
    report.line("insert and settle a row, no order", none, "us");
    report.at_most("a lane, an event", lane - none, "us", 3.0);
    report.at_most("the terms of an order, an event in no lane", terms - none, "us", 0.5);
}

/// What an event costs that others do not want: with 1 subscription, and with 10 to 10,000; in turns.
fn routing(report: &mut Report, options: Options) {
    let mut files = [0, 9, 99, 999, 9_999].map(|others| {
        let file = File::with_past(0);
        let conn = rig::floor::open(&file.directory.join("oncebox.db"));
        for n in 0..others {
            history::subscribe_to(&conn, &format!("other-{n}"), &format!("other.event{n}"));
        }
        (others + 1, file, Vec::new())
    });
    for _ in 0..options.pick(50, 500) {
        for (_, file, costs) in &mut files {
            costs.push(file.insert());
        }
    }
    let alone = median(&files[0].2);
    for (subscriptions, _, costs) in &files[1..] {
        let cost = median(costs);
        let base = (format!("{alone:.1} us with one"), cost / alone);
        let what = format!("insert a row, {subscriptions} subscriptions, one wants it");
        report.times(what, (cost, "us"), base, None);
    }
}

/// What an event costs with 10,000 lanes that wait, beside one lane for each row of a commit.
fn lanes(report: &mut Report, options: Options) {
    const LANES: u32 = 10_000;
    let mut files = [File::with_past(0), File::with_past(0)];
    for file in &files {
        let sql = "UPDATE subscriptions SET ordering = 'key' WHERE seq = 1";
        rig::floor::open(&file.directory.join("oncebox.db")).execute_batch(sql).unwrap();
    }
    for first in (0..LANES).step_by(ROWS as usize) {
        files[1].first_key = first;
        files[1].keys = LANES;
        files[1].insert();
    }
    for file in &mut files {
        (file.first_key, file.keys) = (LANES, 2 * LANES);
    }
    let mut costs: [Vec<f64>; 2] = Default::default();
    for _ in 0..options.pick(50, 500) {
        for (file, costs) in files.iter_mut().zip(&mut costs) {
            costs.push(file.insert());
        }
    }
    let [few, many] = costs.map(|costs| median(&costs));
    let base = (format!("{few:.1} us beside none"), many / few);
    report.times(format!("insert a row beside {LANES} lanes"), (many, "us"), base, None);
}

/// What a settlement costs more for the last hour's counts, which the console shows; in turns with none.
fn recent(report: &mut Report, options: Options) {
    let mut file = File::with_past(0);
    let recent = Recent::new(Clock::machine());
    let note = |settlement: &Settlement| {
        let AttemptReport { delivery, subscription, attempt, .. } = &*settlement.report;
        recent.attempted(*subscription, *delivery, attempt, true);
        recent.completed(*subscription);
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..options.pick(50, 500) {
        file.insert();
        let (due, _) = file.due();
        without.push(file.settle(&due));
        file.insert();
        let (due, _) = file.due();
        with.push(file.settle_and(&due, note));
    }
    let (without, with) = (median(&without), median(&with));
    let what = "settle a row, with the counts of the last hour";
    report.times(
        what,
        (with, "us"),
        (format!("{without:.1} us without"), with / without),
        Some(1.05),
    );
    let delivery = DeliverySeq(1);
    let report_of_one = success(delivery);
    let calls = 1_000_000;
    let begun = Instant::now();
    for _ in 0..calls {
        recent.attempted(SUBSCRIPTION, delivery, &report_of_one.attempt, true);
        recent.completed(SUBSCRIPTION);
    }
    let each = begun.elapsed().as_secs_f64() * 1e9 / f64::from(calls);
    report.line("the counts of the last hour, a settlement", each, "ns");
}

fn main() {
    let Some(options) = rig::begin() else { return };
    let mut report = Report::new("claim", options);
    list_indexes(&mut report, options);
    operational_events(&mut report, options);
    order(&mut report, options);
    routing(&mut report, options);
    lanes(&mut report, options);
    recent(&mut report, options);
    compare(&mut report, options.pick(20_000, 1_000_000), options);
    if options.full {
        compare(&mut report, 10_000_000, options);
    }
}

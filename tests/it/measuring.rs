//! `/metrics`: every line is as the format wants it, and the numbers move when something happens.

use oncebox::api::metrics::table::{self, METRICS, MetricKind};

use crate::rig::prelude::*;

/// Samples by name and labels, as text: a number that has to be equal is compared to the digit.
type Samples = BTreeMap<String, String>;

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// Takes labels apart: `a="b",c="d"`, with no character in a value that would need quoting.
fn labels(text: &str) -> BTreeMap<&str, &str> {
    let pairs = text.split_terminator("\",").map(|pair| {
        let (name, value) = pair.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        let value = value.strip_suffix('"').unwrap_or(value);
        assert!(is_name(name) && !value.contains(['"', '\\', '\n']), "{text}");
        (name, value)
    });
    pairs.collect()
}

/// Reads the text as strictly as its format is defined: HELP, TYPE, then the samples of that metric and no
/// other's; no sample twice; histograms rise to their count.
fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'));
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, about) = help.strip_prefix("# HELP ").unwrap().split_once(' ').unwrap();
        assert!(is_name(name) && !about.is_empty() && families.insert(name), "{help}");
        let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
        let mut buckets: Vec<u64> = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (key, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
            let (sample, inside) = key.split_once('{').unwrap_or((key, ""));
            let part = sample.strip_prefix(name).unwrap();
            let inside = inside.strip_suffix('}').unwrap_or_default();
            let known = labels(inside);
            match (kind, part) {
                ("counter" | "gauge", "") => assert!(!known.contains_key("le")),
                ("histogram", "_bucket") => buckets.push(value.parse().unwrap()),
                ("histogram", "_sum") => assert!(known.is_empty()),
                ("histogram", "_count") => {
                    assert!(buckets.is_sorted() && !buckets.is_empty(), "{line}");
                    assert_eq!(buckets.last().copied(), value.parse().ok(), "{line}");
                }
                other => panic!("{line}: {other:?}"),
            }
            assert!(samples.insert(key.to_owned(), value.to_owned()).is_none(), "twice: {line}");
        }
    }
    samples
}

fn scrape(rig: &Rig) -> Samples {
    let answer = rig.call("GET", "/metrics", b"").is(200);
    assert_eq!(answer.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    parse(&String::from_utf8(answer.message.body).unwrap())
}

#[test]
fn every_metric_of_the_table_is_there_and_no_other() {
    let rig = Rig::new();
    rig.publish_type("a");
    let text = String::from_utf8(rig.call("GET", "/metrics", b"").is(200).message.body).unwrap();
    parse(&text);
    let shown: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '))
        .map(|(name, _)| name)
        .collect();
    let known: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(shown, known);
}

#[test]
fn names_end_with_their_units() {
    for metric in METRICS {
        let counts = metric.name.ends_with("_total");
        assert_eq!(counts, metric.kind == MetricKind::Counter, "{}", metric.name);
        let stem = metric.name.trim_end_matches("_total");
        assert!(!stem.ends_with("_ms") && !stem.ends_with("_count"), "{}", metric.name);
    }
}

#[test]
fn the_document_is_made_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    if std::env::var_os("ONCEBOX_WRITE_DOCS").is_some() {
        fs::write(path, table::document()).unwrap();
    }
    let have = fs::read_to_string(path).unwrap();
    assert!(have == table::document(), "run this test with ONCEBOX_WRITE_DOCS=1 to write it anew");
}

#[test]
fn the_rules_and_the_dashboard_name_only_what_is_measured() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (rules, dashboard) = (read("prometheus/oncebox.rules.yml"), read("grafana/oncebox.json"));
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries =
        panels.flat_map(|panel| panel["targets"].as_array().unwrap()).map(|target| &target["expr"]);
    let queries: Vec<String> = queries
        .map(|expr| expr.as_str().unwrap().to_owned())
        .chain(
            rules
                .lines()
                .filter_map(|line| line.split_once("expr: "))
                .map(|(_, expr)| expr.to_owned()),
        )
        .collect();
    let words = queries
        .iter()
        .flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let names: BTreeSet<&str> =
        words.filter(|word| word.starts_with("oncebox_") || word.starts_with("process_")).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(METRICS.iter().any(|metric| metric.name == name), "{name} is not measured");
    }
}

/// What the numbers are after what the test below does.
const EXPECTED: &[(&str, &str)] = &[
    ("oncebox_events_total{result=\"stored\"}", "3"),
    ("oncebox_events_total{result=\"repeated\"}", "1"),
    ("oncebox_events_total{result=\"differing\"}", "1"),
    ("oncebox_webhooks_total{result=\"stored\"}", "1"),
    ("oncebox_webhooks_total{result=\"repeated\"}", "1"),
    ("oncebox_webhooks_total{result=\"refused\"}", "1"),
    ("oncebox_attempts_total{class=\"transient\"}", "1"),
    ("oncebox_attempts_total{class=\"validation\"}", "1"),
    ("oncebox_attempts_total{class=\"success\"}", "1"),
    ("oncebox_deliveries_finished_total{state=\"dead_letter\"}", "1"),
    ("oncebox_attempt_duration_seconds_count", "3"),
    ("oncebox_accept_delivered_seconds_count", "1"),
    ("oncebox_deliveries_pending", "1"),
    ("oncebox_dead_letters", "1"),
    ("oncebox_disk_free_bytes", "5000000000"),
    ("oncebox_http_requests_total{method=\"POST\",route=\"/v1/events\",status=\"2xx\"}", "5"),
    ("oncebox_http_requests_total{method=\"POST\",route=\"/in/{provider}\",status=\"4xx\"}", "1"),
    ("oncebox_http_requests_total{method=\"GET\",route=\"/v1/events\",status=\"4xx\"}", "1"),
    ("oncebox_http_requests_total{method=\"\",route=\"none\",status=\"4xx\"}", "1"),
    ("process_start_time_seconds", "1769860800"),
];

#[test]
fn the_numbers_move_when_something_happens() {
    let (rig, _receiver) =
        Rig::subscribed_to("erp", Receiver::scripted([Reply::status(500), Reply::status(400)]));
    rig.token_provider("plain", "a-shared-secret-of-32-characters");
    let before = scrape(&rig);
    assert_eq!(before["oncebox_events_total{result=\"stored\"}"], "0");

    let event = json!({ "event_type": "a", "idempotency_key": "k", "payload": 1 });
    rig.post("/v1/events", &event).is(201);
    rig.settle();
    rig.post("/v1/events", &event).is(200);
    let other = json!({ "event_type": "a", "idempotency_key": "k", "payload": 2 });
    rig.post("/v1/events", &other).is(200);
    rig.deliver("b");
    rig.deliver("c");
    for token in ["a-shared-secret-of-32-characters", "a-shared-secret-of-32-characters", "wrong"] {
        rig.send("POST", "/in/plain", &[("X-Token", token)], b"hook");
    }
    rig.send("GET", "/nowhere/at/all", &[], b"").is(404);
    rig.send("GET", "/v1/events", &[], b"").is(401);

    let mut after = scrape(&rig);
    until("the last settlement is counted", || {
        after = scrape(&rig);
        after["oncebox_deliveries_finished_total{state=\"completed\"}"] == "1"
    });
    for (name, value) in EXPECTED {
        assert_eq!(after.get(*name).map(String::as_str), Some(*value), "{name}");
    }
    let number = |samples: &Samples, name: &str| samples[name].parse::<f64>().unwrap();
    for name in words(
        "oncebox_accept_commit_seconds_count oncebox_writer_jobs_total \
        oncebox_writer_batch_jobs_sum oncebox_writer_commit_seconds_sum \
        oncebox_http_connections_total oncebox_http_request_seconds_count",
    ) {
        assert!(number(&after, name) > number(&before, name), "{name}");
    }
    for name in words(
        "oncebox_wal_size_bytes oncebox_database_size_bytes \
        process_resident_memory_bytes process_open_fds process_max_fds",
    ) {
        assert!(number(&after, name) > 0.0, "{name}");
    }
}

#[test]
fn metrics_want_a_token_that_reads_unless_they_are_public() {
    let mut rig = Rig::new();
    rig.send("GET", "/metrics", &[], b"").is(401);
    let (publisher, reader) = (rig.token_of("publish"), rig.token_of("read"));
    rig.call_as(&publisher, "GET", "/metrics", b"").is(403);
    rig.call_as(&reader, "GET", "/metrics", b"").is(200);
    rig.restart_with(|settings| settings.metrics.public = true);
    rig.send("GET", "/metrics", &[], b"").is(200);
}

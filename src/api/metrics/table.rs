//! All metrics: `/metrics` and `docs/metrics.md` are both made of this table.

use MetricKind::{Counter, Gauge, Histogram};

use crate::base::words::words;
use crate::model::duty::Duty;
use crate::model::escalation::Class;
use crate::model::hold::HoldReason;
use crate::model::outcome::AttemptClass;

words! {
    /// What kind of metric it is.
    pub enum MetricKind {
        /// Only goes up, until the process ends.
        Counter = "counter",
        /// Goes up and down.
        Gauge = "gauge",
        /// Values counted in buckets, with their sum and count.
        Histogram = "histogram",
    }
}

/// A metric and its description.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "internals"),
    allow(dead_code, reason = "alert is read for docs/metrics.md")
)]
pub struct Metric {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its labels and their values.
    pub labels: Labels,
    /// What it means.
    pub about: &'static str,
    /// When to alert; empty: never.
    pub alert: &'static str,
}

/// The labels of a metric.
#[derive(Clone, Copy, Debug)]
pub enum Labels {
    /// As they are shown: `result = stored, repeated`; empty: none.
    Listed(&'static str),
    /// One label, whose values are the words of an enum.
    Words {
        /// Its name.
        name: &'static str,
        /// The words, in the order of the values that are given.
        all: fn() -> Vec<&'static str>,
    },
}

impl Labels {
    /// The labels as people read them: `result = stored, repeated`; empty: none.
    pub fn shown(self) -> String {
        match self {
            Self::Listed(text) => text.to_owned(),
            Self::Words { name, all } => format!("{name} = {}", all().join(", ")),
        }
    }
}

const fn metric(
    name: &'static str,
    kind: MetricKind,
    labels: &'static str,
    about: &'static str,
    alert: &'static str,
) -> Metric {
    Metric { name, kind, labels: Labels::Listed(labels), about, alert }
}

impl Metric {
    /// One for each word of an enum.
    const fn each(self, name: &'static str, all: fn() -> Vec<&'static str>) -> Self {
        Self { labels: Labels::Words { name, all }, ..self }
    }
}

/// All metrics, in the order of `/metrics`. No label has a value from a request, or a name that a user gave.
#[rustfmt::skip]
pub static METRICS: &[Metric] = &[
    metric("oncebox_build_info", Gauge, "version, commit, target, sqlite", "Always 1; the labels say what runs.", ""),
    metric("oncebox_webhooks_total", Counter, "result = stored, repeated, refused, deferred, rejected, failed",
        "Webhooks by result; deferred: our clock is suspect; rejected: by a privacy policy.",
        "failed rises; refused rises for an hour"),
    metric("oncebox_events_total", Counter, "result = stored, repeated, differing, rejected",
        "Published events by result; differing: same key, other content; rejected: requests, by a privacy policy.",
        "differing rises: a publisher uses a key twice"),
    metric("oncebox_publish_failures_total", Counter, "",
        "Publish requests that failed: nothing was stored.", "it rises"),
    metric("oncebox_sql_events_total", Counter, "result = routed, quarantined",
        "Events inserted by plain SQL, by result.", "quarantined rises"),
    metric("oncebox_attempts_total", Counter, "",
        "Settled attempts by class.", "auth, validation or poison rises")
        .each("class", || AttemptClass::ALL.map(AttemptClass::as_str).to_vec()),
    metric("oncebox_deliveries_finished_total", Counter, "state = completed, dead_letter",
        "Deliveries that an attempt finished.", "dead_letter rises"),
    metric("oncebox_health_probes_total", Counter, "result = worked, failed", "Probes of idle targets by result.", ""),
    metric("oncebox_trace_spans_total", Counter, "result = exported, dropped",
        "Spans of attempts; dropped: the collector of traces did not take them.", ""),
    metric("oncebox_attempt_duration_seconds", Histogram, "",
        "How long attempts took.", "the 95th percentile nears the timeout"),
    metric("oncebox_accept_commit_seconds", Histogram, "",
        "How long a sender waits for the disk: from a job's arrival at the writer to the end of its COMMIT.",
        "the 99th percentile is above 1 s for 5 minutes"),
    metric("oncebox_accept_delivered_seconds", Histogram, "",
        "From an event's arrival to its completed delivery, retries and holds included.", ""),
    metric("oncebox_deliveries_pending", Gauge, "",
        "Deliveries that wait, due or not, held or not.", ""),
    metric("oncebox_deliveries_due", Gauge, "",
        "Deliveries due now, also of held subscriptions.", "it grows for an hour"),
    metric("oncebox_oldest_due_seconds", Gauge, "",
        "How long the oldest delivery without a hold has been due; 0: none.",
        "above 300"),
    metric("oncebox_deliveries_leased", Gauge, "", "Deliveries leased to pull consumers.", ""),
    metric("oncebox_consumers_waiting", Gauge, "", "Waiting requests of pull consumers.",
        "above 300: a tenant has at most 384 of 512; further ones are answered 503"),
    metric("oncebox_dead_letters", Gauge, "", "Deliveries that were given up.",
        "above 0"),
    metric("oncebox_events_quarantined", Gauge, "", "Events that cannot be used.",
        "above 0"),
    metric("oncebox_deliveries_in_doubt", Gauge, "",
        "Deliveries that may have been made before a restore.", "above 0"),
    metric("oncebox_backup_age_seconds", Gauge, "", "How old the newest backup is; NaN: there is none.",
        "above twice backup.every"),
    metric("oncebox_archive_months", Gauge, "", "Files of the archive.", ""),
    metric("oncebox_archive_size_bytes", Gauge, "", "Their bytes.", ""),
    metric("oncebox_archive_run_age_seconds", Gauge, "",
        "How long ago a run of the archive ended; NaN: none since the start.", "above 7200: the log says why"),
    metric("oncebox_archive_run_failed", Gauge, "", "1 if the last run ended early.", "above 0"),
    metric("oncebox_events_hot", Gauge, "",
        "Events and webhook events in the database after the last run; NaN: none since the start.", ""),
    metric("oncebox_events_hot_oldest_seconds", Gauge, "", "How old the oldest of them is.", ""),
    metric("oncebox_subscriptions_held", Gauge, "",
        "Holds by reason; offline: 1 for the site.", "disabled, rejecting, auth or offline above 0")
        .each("reason", || HoldReason::ALL.map(HoldReason::as_str).to_vec()),
    metric("oncebox_subscriptions_unhealthy", Gauge, "", "Subscriptions whose last two probes failed.", "above 0"),
    metric("oncebox_sources", Gauge, "state = active, paused, failing",
        "Sources by state; failing ones are active ones that cannot be read.",
        "failing above 0"),
    metric("oncebox_source_lag", Gauge, "",
        "The most rows and files that are not copied yet, of sources whose lag is known.",
        "it grows for an hour"),
    metric("oncebox_sources_lag_unknown", Gauge, "",
        "Active sources whose lag is unknown: they cannot be read, or wait.",
        "above 0 for ten minutes"),
    metric("oncebox_source_rows_quarantined_total", Counter, "",
        "Rows of sources that were quarantined.", "it rises"),
    metric("oncebox_source_files_total", Counter, "result = taken, rejected",
        "Files of drop folders by result.", "rejected rises"),
    metric("oncebox_reconciled_items", Gauge, "state = missing, taken_in",
        "Items of the latest comparisons with the lists of providers: not here when the run began; come by the list alone.",
        "missing above 0"),
    metric("oncebox_reconciliations_failed", Gauge, "", "Providers whose latest comparison failed.", "above 0"),
    metric("oncebox_reconciliation_age_seconds", Gauge, "",
        "How long ago the latest comparison of a provider ended: of the one that waits longest; NaN: none has ended.", ""),
    metric("oncebox_databases", Gauge, "state = up, away, unknown",
        "Databases of the settings by state; unknown: nothing has asked them yet.", "away above 0 for a minute"),
    metric("oncebox_database_process_restarts_total", Counter, "",
        "Processes of connections to databases that ended before their time.", "it rises steadily"),
    metric("oncebox_database_error_age_seconds", Gauge, "",
        "How long ago a database of the settings last failed; no sample: never.", ""),
    metric("oncebox_escalations_open", Gauge, "",
        "Escalations that are open, acknowledged or not.", "above 0")
        .each("class", || Class::ALL.map(Class::as_str).to_vec()),
    metric("oncebox_writer_queue_jobs", Gauge, "queue = settle, accept, upkeep",
        "Jobs that wait for the writer.", "accept above 4000: senders are soon answered 503"),
    metric("oncebox_writer_lag_seconds", Gauge, "",
        "How long the oldest job of the writer has waited.", "above 1 for a minute"),
    metric("oncebox_writer_jobs_total", Counter, "", "Jobs committed.", ""),
    metric("oncebox_writer_rollbacks_total", Counter, "",
        "Transactions rolled back; their jobs run again one by one.", "it rises steadily"),
    metric("oncebox_writer_batch_jobs", Histogram, "", "Jobs that shared a transaction.", ""),
    metric("oncebox_writer_commit_seconds", Histogram, "",
        "How long transactions took, the sync included.",
        "the 99th percentile is above 0.5 s: the disk is slow or dying"),
    metric("oncebox_database_size_bytes", Gauge, "", "The size of the database file.", ""),
    metric("oncebox_wal_size_bytes", Gauge, "", "The size of the write-ahead log.",
        "above 200 MB: a reader keeps its transaction open, or there are no checkpoints"),
    metric("oncebox_disk_free_bytes", Gauge, "", "Free space on the database's disk, minus what a checkpoint of the write-ahead log needs.", ""),
    metric("oncebox_disk_reserve_bytes", Gauge, "", "Space that is reserved for results of deliveries.",
        "oncebox_disk_free_bytes is below twice this"),
    metric("oncebox_disk_low", Gauge, "", "1 while new work is refused for lack of disk space.", "above 0"),
    metric("oncebox_disk_low_total", Counter, "", "Times the reserve was reached.", ""),
    metric("oncebox_disk_full_total", Counter, "", "Writes that failed because the disk was full.", "it rises"),
    metric("oncebox_refused_for_room_total", Counter, "",
        "Requests answered 507 to keep the reserve for results.", ""),
    metric("oncebox_clock_suspect", Gauge, "", "1 while the clock may be wrong: oncebox clock show.", "above 0"),
    metric("oncebox_duty_overdue_seconds", Gauge, "",
        "Since when a periodic duty is due; 0: it is not.", "above 86400")
        .each("duty", || Duty::ALL.map(Duty::as_str).to_vec()),
    metric("oncebox_http_requests_total", Counter, "method, route, status = 1xx … 5xx",
        "Answers by route; none: an unknown path, or an invalid request.",
        "5xx rises"),
    metric("oncebox_http_request_seconds", Histogram, "", "From a request's head to its answer.", ""),
    metric("oncebox_http_connections", Gauge, "state = busy, idle",
        "Open connections; busy: a request has begun or is being handled.", ""),
    metric("oncebox_http_connections_total", Counter, "", "Connections accepted.", ""),
    metric("oncebox_http_connections_refused_total", Counter, "reason = total, address",
        "Connections closed at once because there were too many.", "it rises"),
    metric("oncebox_http_accept_pauses_total", Counter, "",
        "Times a connection could not be accepted for lack of file descriptors.", "it rises: raise LimitNOFILE"),
    metric("oncebox_http_malformed_total", Counter, "", "Requests that were not valid HTTP.", ""),
    metric("oncebox_http_overloaded_total", Counter, "",
        "Requests answered 503: queue or buffers full.", "it rises"),
    metric("oncebox_http_timeouts_total", Counter, "", "Connections closed because the client was too slow.", ""),
    metric("oncebox_http_panics_total", Counter, "", "Requests whose handler panicked.", "above 0: report it"),
    metric("oncebox_http_buffered_bytes", Gauge, "", "Bytes of requests and answers in memory.", ""),
    metric("process_resident_memory_bytes", Gauge, "", "Memory in use.", ""),
    metric("process_open_fds", Gauge, "", "Open file descriptors.", "above 80 % of process_max_fds"),
    metric("process_max_fds", Gauge, "", "The limit of open file descriptors.", ""),
    metric("process_cpu_seconds_total", Counter, "", "Processor time.", ""),
    metric("process_start_time_seconds", Gauge, "", "When the process started, as Unix time.",
        "it changes: the process was restarted"),
];

/// The text of `docs/metrics.md`.
#[cfg(any(test, feature = "internals"))]
pub fn document() -> String {
    let named = |metric: &Metric| match metric.labels.shown().as_str() {
        "" => format!("`{}`", metric.name),
        labels => format!("`{}` ({labels})", metric.name),
    };
    let (alerting, others): (Vec<&Metric>, Vec<&Metric>) =
        METRICS.iter().partition(|metric| !metric.alert.is_empty());
    let row =
        |metric: &&Metric| format!("- {}: {} *{}*", named(metric), metric.about, metric.alert);
    let rows: Vec<String> = alerting.iter().map(row).collect();
    let others: Vec<String> = others.into_iter().map(named).collect();
    format!(
        "# Metrics\n\n\
         `GET /metrics` serves Prometheus text to a `read` token of the tenant `default`, or to anybody with `metrics.public`.\n\
         Values are of the whole box; counters start at 0 with the process. `# HELP` lines say what a metric means. A test writes this page.\n\n\
         ## Alerts\n\nWhen to alert is in italics.\n\n{}\n\n## Without an alert\n\n{}.\n",
        rows.join("\n"),
        others.join(",\n")
    )
}

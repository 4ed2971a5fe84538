//! `/metrics`: counters and gauges as Prometheus text.
//!
//! Other rooms count with atomics; the values are only read here. [`table`] has the names. The crate prometheus-client
//! is not used: its histograms take a lock for each value, and one table has to make both the page and its document.

mod page;
pub mod table;

use std::time::Duration;

use crate::api::health::archive_state;
use crate::api::metrics::page::Page;
use crate::api::prelude::*;
use crate::api::route::public;
use crate::backup::manifest;
use crate::base::build;
use crate::databases::state::{DatabaseHealth, Standing};
use crate::health_probes;
use crate::http::message::Method::Get;
use crate::model::disk::Room;
use crate::model::duty::Chore;
use crate::model::escalation::Class;
use crate::model::hold::HoldReason;
use crate::pipeline::upkeep::disk_watch::DiskState;
use crate::sources::{reconciliation, tables};
use crate::store::chores;
use crate::store::escalations;
use crate::store::stats::{self, Attention};
use crate::store::writer::Queue;
use crate::sys::{files, host};

/// The media type of the text.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Numbers for a monitoring system.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Metrics",
    about: "Numbers of the whole box, for a monitoring system.",
    routes: &[public(Get, "/metrics", Now(show))
        .doc("getMetrics", "Show the metrics", &[])
        .about(
            "Prometheus text. Needs a token of the tenant `default` with the role `read`, \
                 unless `metrics.public` is set. `docs/metrics.md` explains each metric.",
        )
        .returns(&[Returns::text("The metrics.", MEDIA_TYPE)])
        .problems(&[Kind::Unauthorized, Kind::Forbidden])],
};

/// `GET /metrics`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    if !api.env.settings.get().metrics.public {
        let token =
            api.auth.authorize(&call.request.head, Read).map_err(|denied| denied.problem)?;
        if token.tenant != DEFAULT_TENANT {
            let detail = "These metrics are of the whole box: use a token of the tenant default.";
            return Err(Problem::forbidden(detail));
        }
    }
    let mut page = Page::default();
    work(api, &mut page);
    queues(api, &mut page)?;
    sources(api, &mut page)?;
    writer(api, &mut page);
    disk(api, &mut page);
    http(api, &mut page);
    own_process(api, &mut page);
    Ok(Response::with_body(200, MEDIA_TYPE, page.into_bytes()))
}

/// What came in and went out.
fn work(api: &Api, page: &mut Page) {
    let counts = &api.flow.receive.counts;
    let version = build::VERSION;
    let commit = build::COMMIT.unwrap_or("unknown");
    let target = build::target();
    let sqlite = crate::store::sqlite_version();
    page.each(
        "oncebox_build_info",
        [(
            format!(
                "version=\"{version}\",commit=\"{commit}\",target=\"{target}\",sqlite=\"{sqlite}\""
            ),
            1_u64,
        )],
    );
    page.all(
        "oncebox_webhooks_total",
        [
            counts.webhooks_stored.get(),
            counts.webhooks_repeated.get(),
            counts.webhooks_refused.get(),
            counts.webhooks_deferred.get(),
            counts.webhooks_unwanted.get(),
            counts.webhooks_failed.get(),
        ],
    );
    page.all(
        "oncebox_events_total",
        [
            counts.events_stored.get(),
            counts.events_repeated.get(),
            counts.events_differing.get(),
            counts.publishes_unwanted.get(),
        ],
    );
    page.one("oncebox_publish_failures_total", counts.publishes_failed.get());
    page.all("oncebox_sql_events_total", [counts.sql_routed.get(), counts.sql_quarantined.get()]);
    page.all("oncebox_attempts_total", counts.attempts().map(|(_, count)| count));
    page.all(
        "oncebox_deliveries_finished_total",
        [counts.completed.get(), counts.dead_lettered.get()],
    );
    let probes = [counts.probes_worked.get(), counts.probes_failed.get()];
    page.all("oncebox_health_probes_total", probes);
    let spans = api.flow.traces.counts();
    page.all("oncebox_trace_spans_total", [spans.exported.get(), spans.dropped.get()]);
    page.spans("oncebox_attempt_duration_seconds", &counts.attempt_span.read());
    page.spans("oncebox_accept_commit_seconds", &api.env.store.writer().done().accept_span.read());
    page.spans("oncebox_accept_delivered_seconds", &counts.delivered_span.read());
}

/// What waits.
fn queues(api: &Api, page: &mut Page) -> Result<(), Problem> {
    let now = api.env.clock.now();
    let (pending, due) = api.env.store.read(|tx| stats::depth(tx, now))?;
    let Attention { oldest_due_at, dead_letters, holds, quarantined, in_doubt, .. } =
        api.env.store.read(stats::attention)?;
    page.one("oncebox_deliveries_pending", pending);
    page.one("oncebox_deliveries_due", due);
    page.one(
        "oncebox_oldest_due_seconds",
        oldest_due_at.map_or(Duration::ZERO, |at| now.since(at)),
    );
    page.one("oncebox_deliveries_leased", api.env.store.read(stats::leased)?);
    let waiting = u64::try_from(api.flow.consume.waiting()).unwrap_or(u64::MAX);
    page.one("oncebox_consumers_waiting", waiting);
    page.one("oncebox_dead_letters", dead_letters);
    page.one("oncebox_events_quarantined", quarantined);
    page.one("oncebox_deliveries_in_doubt", in_doubt);
    let now = api.env.clock.wall();
    let backups = api.env.settings.get().backup_directory();
    let newest = files::newest_until(&backups, manifest::ENDING, now);
    page.one("oncebox_backup_age_seconds", newest.map(|at| now.since(at)));
    let archive = archive_state(api);
    page.one("oncebox_archive_months", u64::try_from(archive.months).unwrap_or(u64::MAX));
    page.one("oncebox_archive_size_bytes", archive.bytes);
    let age = |at: Option<Timestamp>| at.map(|at| api.env.clock.wall().since(at));
    page.one("oncebox_archive_run_age_seconds", age(archive.ended_at));
    page.one("oncebox_archive_run_failed", archive.error.is_some());
    page.one("oncebox_events_hot", archive.hot);
    page.one("oncebox_events_hot_oldest_seconds", age(archive.oldest_at));
    let held = HoldReason::ALL
        .map(|reason| holds.iter().find(|(of, _)| *of == reason).map_or(0, |(_, count)| *count));
    page.all("oncebox_subscriptions_held", held);
    page.one("oncebox_subscriptions_unhealthy", api.env.store.read(health_probes::unhealthy)?);
    Ok(())
}

/// Sources and escalations.
fn sources(api: &Api, page: &mut Page) -> Result<(), Problem> {
    let (states, open) =
        api.env.store.read(|tx| Ok((tables::counts(tx)?, escalations::open(tx)?)))?;
    page.all("oncebox_sources", [states.active, states.paused, states.failing]);
    let (lag, unknown) = api.flow.sources.lag();
    page.one("oncebox_source_lag", lag);
    page.one("oncebox_sources_lag_unknown", unknown);
    let counts = &api.flow.receive.counts;
    page.one("oncebox_source_rows_quarantined_total", counts.events_quarantined.get());
    page.all("oncebox_source_files_total", [counts.files_taken.get(), counts.files_rejected.get()]);
    let runs = api.env.store.read(reconciliation::store::latest)?;
    page.all("oncebox_reconciled_items", [runs.missing, runs.taken_in]);
    page.one("oncebox_reconciliations_failed", runs.failed);
    let now = api.env.clock.wall();
    page.one("oncebox_reconciliation_age_seconds", runs.oldest_at.map(|at| now.since(at)));
    databases(api, page);
    let open =
        Class::ALL.map(|class| open.iter().find(|of| of.class == class).map_or(0, |of| of.count));
    page.all("oncebox_escalations_open", open);
    Ok(())
}

/// Databases of others. Their names are an operator's, and stand in `GET /v1/databases`.
fn databases(api: &Api, page: &mut Page) {
    let states: Vec<DatabaseHealth> =
        api.flow.databases.all().map(|database| database.state()).collect();
    let count = |standing| states.iter().filter(|state| state.standing == standing).count();
    let counts = [Standing::Up, Standing::Away, Standing::Unknown].map(count);
    page.all("oncebox_databases", counts.map(|count| u64::try_from(count).unwrap_or(u64::MAX)));
    let restarts: u64 = states.iter().map(|state| state.restarts).sum();
    page.one("oncebox_database_process_restarts_total", restarts);
    let last = states.iter().filter_map(|state| state.last_error.as_ref()).map(|error| error.at);
    let age = last.max().map(|at| ("", api.env.clock.now().since(at)));
    page.each("oncebox_database_error_age_seconds", age);
}

fn writer(api: &Api, page: &mut Page) {
    let writer = api.env.store.writer();
    let waiting = |queue| u64::try_from(writer.waiting_in(queue)).unwrap_or(u64::MAX);
    page.all(
        "oncebox_writer_queue_jobs",
        [
            waiting(Queue::Settle) + waiting(Queue::Later),
            waiting(Queue::Accept),
            waiting(Queue::Upkeep),
        ],
    );
    page.one("oncebox_writer_lag_seconds", writer.lag());
    page.one("oncebox_writer_jobs_total", writer.done().jobs.get());
    page.one("oncebox_writer_rollbacks_total", writer.done().failures.get());
    page.amounts("oncebox_writer_batch_jobs", &writer.done().batch_jobs.read());
    page.spans("oncebox_writer_commit_seconds", &writer.done().commit_span.read());
    let (database, log) = api.env.store.sizes();
    page.one("oncebox_database_size_bytes", database);
    page.one("oncebox_wal_size_bytes", log);
}

/// The disk and the clock.
fn disk(api: &Api, page: &mut Page) {
    let watch = &api.flow.disk;
    let DiskState { room, space, reserve } = watch.state();
    page.one("oncebox_disk_free_bytes", space.map_or(0, |space| space.free));
    page.one("oncebox_disk_reserve_bytes", reserve);
    page.one("oncebox_disk_low", room == Room::Low);
    page.one("oncebox_disk_low_total", watch.times_low.get());
    page.one("oncebox_disk_full_total", watch.full.get());
    page.one("oncebox_refused_for_room_total", watch.refused.get());
    let suspect = api.env.clock.is_suspect();
    page.one("oncebox_clock_suspect", suspect);
    let now = api.env.clock.now();
    let overdue = |chore: Chore| {
        let late = chore.overdue(now).unwrap_or_default().as_secs();
        (format!("duty=\"{}\"", chore.duty), late)
    };
    // A file that cannot be read is told by other metrics.
    let chores = api.env.store.read(chores::all).unwrap_or_default();
    page.each("oncebox_duty_overdue_seconds", chores.into_iter().map(overdue));
}

fn http(api: &Api, page: &mut Page) {
    let requests = api.requests.read();
    let labelled = requests.into_iter().map(|(method, route, class, count)| {
        (format!("method=\"{method}\",route=\"{route}\",status=\"{class}\""), count)
    });
    page.each("oncebox_http_requests_total", labelled);
    page.spans("oncebox_http_request_seconds", &api.requests.span.read());
    let stats = api.server_stats.stats();
    let busy = stats.busy.min(stats.connections);
    let idle = stats.connections.saturating_sub(busy);
    page.all("oncebox_http_connections", [busy, idle]);
    page.one("oncebox_http_connections_total", stats.accepted);
    let for_address = stats.refused_for_address;
    page.all(
        "oncebox_http_connections_refused_total",
        [stats.refused.saturating_sub(for_address), for_address],
    );
    page.one("oncebox_http_accept_pauses_total", stats.accept_pauses);
    page.one("oncebox_http_malformed_total", stats.malformed);
    page.one("oncebox_http_overloaded_total", stats.overloaded);
    page.one("oncebox_http_timeouts_total", stats.timeouts);
    page.one("oncebox_http_panics_total", stats.panics);
    page.one("oncebox_http_buffered_bytes", stats.buffered_bytes);
}

fn own_process(api: &Api, page: &mut Page) {
    let size = host::size();
    page.one("process_resident_memory_bytes", size.resident_bytes);
    page.one("process_open_fds", size.descriptors);
    page.one("process_max_fds", host::descriptors_most().unwrap_or(u64::MAX));
    page.one("process_cpu_seconds_total", Duration::from_millis(size.cpu_ms));
    let started = u64::try_from(api.started_at.ms()).unwrap_or(0);
    page.one("process_start_time_seconds", Duration::from_millis(started));
}

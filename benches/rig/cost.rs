//! What an event costs at one pace: time, processor time, bytes and commits.

use std::time::Duration;

use super::facts;
use super::load::Load;
use super::server::Server;
use super::sink::Sink;

/// How long a load runs before it is measured.
const WARM: Duration = Duration::from_millis(500);

/// The cost of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Accepted and delivered.
    pub(crate) per_second: f64,
    /// Sent to received.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Seconds for 1,000 events.
    pub(crate) processor: f64,
    /// KiB that the process wrote.
    pub(crate) written: f64,
    /// KiB that were written to the device, by whomever.
    pub(crate) to_device: f64,
    pub(crate) commits: f64,
}

impl Cost {
    /// Measures a load whose events a sink gets.
    pub(crate) fn of(server: &Server, sink: &Sink, load: &Load) -> Self {
        sink.reset();
        let warm = Load { span: WARM, ..load.clone() }.run();
        sink.wait_for(warm.accepted);
        sink.reset();
        let before = Used::now(server);
        let loaded = load.run();
        let came = sink.wait_for(loaded.accepted);
        let after = Used::now(server);
        let seconds = came.last_us.saturating_sub(loaded.first_us) as f64 / 1e6;
        let events = loaded.accepted as f64;
        Self {
            per_second: events / seconds,
            p50_ms: came.p50_us / 1e3,
            p99_ms: came.p99_us / 1e3,
            processor: (after.processor - before.processor) * 1e3 / events,
            written: (after.written - before.written) / 1024.0 / events,
            to_device: (after.to_device - before.to_device) / 1024.0 / events,
            commits: (after.commits - before.commits) / events,
        }
    }
}

/// What a server has used so far.
struct Used {
    processor: f64,
    written: f64,
    to_device: f64,
    commits: f64,
}

impl Used {
    fn now(server: &Server) -> Self {
        Self {
            processor: server.cpu_seconds(),
            written: facts::written(server.process()),
            to_device: facts::written_to_device(&server.data),
            commits: server.writer().0,
        }
    }
}

//! The service that is measured: a process of its own in the run's directory, with one subscription to the run's sink.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::app::data_directory::TOKEN_FILE;
use crate::base::stop::Stop;
use crate::bench::sink::Sink;
use crate::bench::time::RunLimits;
use crate::demo::process::OnceboxProcess;
use crate::demo::site::{Error, four_ports, read_line};
use crate::sys::host;

/// The type of events that the sink gets.
pub(super) const WANTED: &str = "bench.wanted";
/// The type of events that nobody gets.
pub(super) const UNWANTED: &str = "bench.unwanted";
/// Settings that differ from those of a new installation.
const SETTINGS: &str = "[delivery]\nallow = [\"127.0.0.0/8\"]\n";
/// How long the last deliveries may take once everything is accepted.
const MAX_DRAIN: Duration = Duration::from_secs(5);
/// How often the sink is asked.
const POLL: Duration = Duration::from_millis(5);

/// The service and its sink.
pub(super) struct Service {
    process: OnceboxProcess,
    pub(super) sink: Sink,
}

impl Service {
    pub(super) fn start(limits: &RunLimits<'_>, dir: &Path) -> Result<Self, Error> {
        let program =
            std::env::current_exe().map_err(Error::about("the running program cannot be found"))?;
        let [address, ..] = four_ports()?;
        let sink = Sink::start(&limits.clock)?;
        let mut process = OnceboxProcess::new(&program, dir, address, SETTINGS, &limits.clock)?;
        process.start()?;
        limits.check()?;
        let subscription = json!({ "name": "sink", "url": sink.url(), "event_types": [WANTED] });
        let api = process.api()?;
        api.request("POST", "/v1/subscriptions", "making the subscription", &subscription)?;
        Ok(Self { process, sink })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1/events", self.process.address())
    }

    pub(super) fn token(&self) -> Result<String, Error> {
        read_line(&self.process.data().join(TOKEN_FILE))
    }

    /// Stops the service in order. Returns the bytes of its writes; `None` where the system does not count them.
    pub(super) fn stop(&mut self) -> Option<u64> {
        let mut written = None;
        self.process.stop(|process| written = host::written_bytes(process));
        written
    }

    /// Stops the process, if there is one, and starts another. Returns the bytes that the new process has written by then.
    pub(super) fn restart(&mut self) -> Result<Option<u64>, Error> {
        self.stop();
        self.process.start()?;
        Ok(self.process.id().and_then(host::written_bytes))
    }

    /// Waits until the sink has that many requests, for a while. Returns how many it has.
    pub(super) fn await_deliveries(
        &self,
        limits: &RunLimits<'_>,
        wanted: u64,
    ) -> Result<u64, Error> {
        let begun = limits.clock.monotonic();
        let never = Stop::new();
        while self.sink.count() < wanted && limits.since(begun) < MAX_DRAIN {
            limits.check()?;
            never.wait(POLL);
        }
        Ok(self.sink.count().min(wanted))
    }
}

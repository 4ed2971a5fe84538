//! `oncebox bench`: measures a machine before anybody installs a box on it. Syncs of the disk, events accepted, events delivered
//! to a sink in this process, and the bytes of an event, in a directory that is removed.
//!
//! Read [`run`] first. Load, sink and service share the processors here, as they would not in a company: the rates are lower than
//! those of `benches/`, which need a toolchain.

mod disk;
mod load;
mod report;
mod service;
mod sink;
mod time;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::bench::load::Load;
use crate::bench::service::Service;
use crate::bench::time::{RunLimits, per_second};
use crate::demo::DemoDirectory;
use crate::demo::site::Error;
use crate::sys::disk::Gauge;
use crate::sys::host;

pub use crate::bench::report::{Accepted, Delivered, Report, Wear, Written, milliseconds};

/// Connections of the second and later measurements of the service.
const CONNECTIONS: usize = 16;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory in which the run makes its own.
    pub dir: PathBuf,
    /// Longest time of each of the five measurements.
    pub span: Duration,
    /// Terabytes that can be written to the card before it is worn.
    pub card_tb: u32,
}

/// Names of the measurements, as they begin.
pub type Announce<'a> = &'a mut dyn FnMut(&'static str);

/// Runs all measurements. The directory is removed at the end, after an error and after Ctrl-C as well.
pub fn run(options: &Options, announce: Announce<'_>) -> Result<Report, Error> {
    disk::check_room(&Gauge::machine(), &options.dir)?;
    let interrupted = host::stop_flag().map_err(Error::about("signal handlers"))?;
    let directory = make_directory(&options.dir)?;
    let limits =
        RunLimits { span: options.span, clock: Clock::machine(), interrupted: &interrupted };
    let measured = measure(&limits, &directory.dir, options, announce);
    let dir = directory.dir.clone();
    drop(directory);
    if dir.exists() {
        let dir = dir.display();
        return Err(Error::Failed(format!("{dir} could not be removed: remove it by hand")));
    }
    measured
}

/// Makes a directory that nobody uses.
fn make_directory(parent: &Path) -> Result<DemoDirectory, Error> {
    let number = SystemDraw::new().below(1 << 32);
    let dir = std::path::absolute(parent).map_err(Error::file(parent))?;
    let dir = dir.join(format!("oncebox-bench-{number:08x}"));
    let made = DirBuilder::new().mode(0o700).create(&dir);
    made.map_err(|error| {
        let parent = parent.display();
        Error::Failed(format!(
            "no directory can be made in {parent}: {error}; give --dir a directory that you may write to"
        ))
    })?;
    Ok(DemoDirectory { dir, keep: false })
}

fn measure(
    limits: &RunLimits<'_>,
    dir: &Path,
    options: &Options,
    announce: Announce<'_>,
) -> Result<Report, Error> {
    announce("syncs of the disk");
    let syncs = disk::syncs(limits, dir)?;
    announce("bytes of an event");
    let mut service = Service::start(limits, dir)?;
    let written = written(limits, &mut service)?;
    announce("events accepted from 1 connection");
    let one = load(limits, &service, service::UNWANTED)?.saturated(1)?;
    announce("events accepted from 16 connections");
    let many = load(limits, &service, service::UNWANTED)?.saturated(CONNECTIONS)?;
    announce("events accepted and delivered");
    let delivered = delivered(limits, &service)?;
    service.stop();
    let accepted = Accepted { one_connection: one.per_second(), connections_16: many.per_second() };
    let wear = written.bytes_an_event.map(|bytes| Wear::of(bytes, options.card_tb));
    let directory = options.dir.clone();
    Ok(Report {
        verdicts: report::Verdicts::of(&syncs, accepted, delivered, wear),
        directory,
        syncs,
        accepted,
        delivered,
        written,
        wear,
    })
}

fn load<'a>(
    limits: &'a RunLimits<'a>,
    service: &Service,
    event_type: &'static str,
) -> Result<Load<'a>, Error> {
    Load::new(limits, service.url(), service.token()?, event_type)
}

/// A few events a second, which are delivered, each alone. The service is started anew before it, and stopped after it: what
/// an event writes has two parts, one into the log and one when the log is copied into the database.
fn written(limits: &RunLimits<'_>, service: &mut Service) -> Result<Written, Error> {
    let before = service.restart()?;
    service.sink.reset();
    let sent = load(limits, service, service::WANTED)?.paced()?;
    service.await_deliveries(limits, sent.accepted)?;
    let after = service.stop();
    service.restart()?;
    let bytes = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    // Nothing is counted on a file system in memory.
    let bytes = bytes.filter(|bytes| *bytes > 0);
    let bytes_an_event = bytes.and_then(|bytes| bytes.checked_div(sent.accepted));
    Ok(Written { events: sent.accepted, per_second: sent.per_second(), bytes_an_event })
}

/// Accepts as many as it can, and waits until the sink has them.
fn delivered(limits: &RunLimits<'_>, service: &Service) -> Result<Delivered, Error> {
    service.sink.reset();
    let begun = limits.clock.monotonic();
    let sent = load(limits, service, service::WANTED)?.saturated(CONNECTIONS)?;
    let arrived = service.await_deliveries(limits, sent.accepted)?;
    Ok(Delivered { per_second: per_second(arrived, limits.since(begun)) })
}

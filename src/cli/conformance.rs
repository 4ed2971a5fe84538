//! `oncebox conformance`: the flags and the report. The test itself is in [`crate::conformance`].

use std::ffi::OsString;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::cli::out::Progress;
use crate::cli::prelude::*;
use crate::conformance::{self, EffectCounts, Error, Guard, Options, Report};

/// Most events that are listed for each fault.
const MAX_NAMES: usize = 10;

/// Test a consumer's guard with repeated, concurrent and out-of-order events and kill -9
///
/// The command is run once for each event, as `oncebox consume` runs it: the payload is on its input, the event's
/// webhook-id in the variable `ONCEBOX_WEBHOOK_ID`, and exit code 0 says that it is done. It is killed at random
/// moments and run again, until it has acknowledged every event. Then its effects are counted: each event must
/// have exactly one.
///
/// No Oncebox service has to run. Use a test database of the consumer.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  oncebox conformance --count ./list-effects -- ./consume-one")]
pub(super) struct Conformance {
    /// Number of events
    #[arg(long, default_value_t = 200, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    events: u32,
    /// Seed of the events' order and of the kills [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Shell command that prints the webhook-id of each effect, one a line, in the order of the effects
    #[arg(long, value_name = "CMD")]
    count: Option<String>,
    /// The consumer skips older versions: the payload's `version` of its `entity`. An effect of an older
    /// version after a newer one is a fault; only the last version must have an effect
    #[arg(long)]
    newer: bool,
    /// The command reads a topic until it is killed: `ONCEBOX_KAFKA_TOPIC` at `ONCEBOX_KAFKA_BROKERS`, from its
    /// beginning. The topic is on a mock of a cluster and has each event once or twice
    #[arg(long, requires = "count")]
    kafka: bool,
    /// Time limit of one run, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
    #[command(flatten)]
    format: Format,
    /// The consumer's command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Conformance {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let Self { events, seed, count, newer, kafka, timeout, format, command } = self;
        let draw = SystemDraw::new();
        let seed = seed.unwrap_or_else(|| u32::try_from(draw.below(10_000)).unwrap_or(0));
        let options = Options {
            events: *events,
            seed,
            command: command.clone(),
            count: count.clone(),
            guard: if *newer { Guard::Newer } else { Guard::Once },
            timeout: Duration::from_secs(u64::from(*timeout)),
            reads_topic: *kafka,
        };
        let mut progress = Progress::new();
        let ran = conformance::run(&options, &Clock::machine(), &draw, &mut |so_far| {
            let conformance::Progress { acknowledged, runs } = so_far;
            progress.show(|| format!("{acknowledged} of {} events done, {runs} runs", self.events));
        });
        progress.end();
        let report = ran.map_err(|error| match error {
            Error::Command { .. } => Failure::input(error),
            Error::Count { .. } | Error::Cluster(_) => Failure::failed(error),
        })?;
        if format.json {
            print_json(&options, &report)?;
        } else {
            print(&options, &report)?;
        }
        if report.is_good() {
            return Ok(());
        }
        Err(Failure::failed("the guard does not hold; docs/guards.md says what one has to do"))
    }
}

fn print_json(options: &Options, report: &Report) -> Result<(), Failure> {
    let Report { runs, kills, duplicates, concurrent, overtaken, refused, counted } = report;
    let refused: Vec<_> =
        refused.iter().map(|(id, why)| json!({ "id": id, "reason": why })).collect();
    let counted = counted.as_ref().map(|EffectCounts { effects, lost, doubled, stale }| {
        json!({ "effects": effects, "lost": lost, "doubled": doubled, "stale": stale })
    });
    out::json(&json!({
        "good": report.is_good(), "seed": options.seed, "events": options.events, "runs": runs,
        "kills": kills, "duplicates": duplicates, "concurrent": concurrent,
        "overtaken": overtaken, "refused": refused, "counted": counted,
    }))
}

fn print(options: &Options, report: &Report) -> Result<(), Failure> {
    let Options { events, seed, guard, .. } = options;
    let Report { runs, kills, duplicates, concurrent, overtaken, refused, counted } = report;
    out::line(format_args!(
        "{events} events in {runs} runs: {kills} killed with -9, {duplicates} duplicates ({concurrent} of them \
         at the same time), {overtaken} overtaken by a newer one (seed {seed})"
    ))?;
    names("never acknowledged", refused.iter().map(|(id, why)| format!("{id}: {why}")))?;
    let Some(EffectCounts { effects, lost, doubled, stale }) = counted else {
        return out::line("Effects were not counted: give --count CMD.");
    };
    let stale_count = match guard {
        Guard::Newer => stale.len().to_string(),
        Guard::Once => "not asked (--newer)".to_owned(),
    };
    out::line(format_args!(
        "{effects} effects: lost {}, doubled {}, stale applied {stale_count}",
        lost.len(),
        doubled.len()
    ))?;
    names("lost", lost)?;
    names("doubled", doubled)?;
    names("stale applied", stale)
}

/// Lists the first [`MAX_NAMES`] events that have the fault `what`.
fn names(
    what: &str,
    names: impl IntoIterator<Item = impl std::fmt::Display>,
) -> Result<(), Failure> {
    let mut rest = names.into_iter();
    for name in rest.by_ref().take(MAX_NAMES) {
        out::line(format_args!("{what}: {name}"))?;
    }
    match rest.count() {
        0 => Ok(()),
        more => out::line(format_args!("{what}: {more} more")),
    }
}

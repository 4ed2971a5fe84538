//! `oncebox serve`: the service, in the foreground, until SIGTERM or SIGINT.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::app::data_directory::{DATABASE, DirectoryError, TOKEN_FILE};
use crate::app::supervision::Supervision;
use crate::app::{Appliance, Error, master_key};
use crate::backup::Error as BackupError;
use crate::base::clock::{Clock, machine_monotonic};
use crate::base::stop::Stop;
use crate::cli::exit::{self, Failure};
use crate::cli::out;
use crate::cli::shared::Shared;
use crate::config::settings::Key;
use crate::config::{Settings, Sources, environment};
use crate::demo::children::end_with_parent;
use crate::sys::systemd::{Notifier, Offer};
use crate::telemetry;

/// How often the signals are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The file in the runtime directory that counts failed starts.
const FAILED_STARTS: &str = "failed-starts";
/// The longest wait after a failed start. Callers wait in the socket meanwhile, so it is not longer.
const MAX_START_WAIT: Duration = Duration::from_mins(1);

/// Run the service
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address and port to listen on [default: 127.0.0.1:8710]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Stop when standard input ends: for a parent that must not leave the service behind
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

impl Serve {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let signals = Signals::taken().map_err(Failure::failed)?;
        let mut sources = shared.sources();
        if let Some(address) = self.listen {
            sources.flag("listen.api", "--listen", address);
        }
        let settings = sources.load().map(|loaded| loaded.settings);
        // Without settings, their defaults say how the log is written that tells what is wrong with them.
        let defaults = Settings::default();
        telemetry::start(&settings.as_ref().unwrap_or(&defaults).log);
        let notifier = Notifier::to(environment("NOTIFY_SOCKET").as_deref());
        let failed_starts = FailedStarts::of_manager();
        let started = settings
            .map_err(Failure::from)
            .and_then(|settings| Ok((self.start(&settings, &notifier, &signals)?, settings)));
        let (appliance, settings) = match started {
            Ok(started) => started,
            Err(failure) => {
                signals.starting.store(false, Ordering::Relaxed);
                return Err(failed_starts.wait(failure, &notifier, &signals.stop));
            }
        };
        greet(&appliance, &settings);
        let stop = appliance.stop_signal().clone();
        let clock = Clock::machine();
        let mut supervision = Supervision::new(&appliance, notifier, watchdog());
        let mut counted = true;
        while !signals.stop.load(Ordering::Relaxed) && !stop.wait(LOOK_EVERY) {
            supervision.look(&appliance, clock.monotonic());
            if counted && supervision.is_ready() {
                failed_starts.forget();
                counted = false;
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                supervision.reloading(machine_monotonic());
                reload(&appliance, &sources);
                supervision.reloaded(&appliance);
            }
        }
        supervision.stopping();
        tracing::info!("stopping: what is under way is finished first");
        appliance.stop().map_err(Failure::failed)?;
        tracing::info!("stopped");
        Ok(())
    }

    /// From the settings to a listener that answers.
    fn start(
        &self,
        settings: &Settings,
        notifier: &Notifier,
        signals: &Signals,
    ) -> Result<Appliance, Failure> {
        if self.until_stdin_ends {
            end_with_parent().map_err(Failure::failed)?;
        }
        let passed = offer().take().map_err(Failure::failed)?;
        notifier.status("Starting.");
        let orderly = || signals.starting.store(false, Ordering::Relaxed);
        Appliance::start_when_there_is_room(passed, settings, notifier, orderly)
            .map_err(|error| refusal(error, settings, notifier))
    }
}

/// Why it did not start, also reported to the service manager.
fn refusal(error: Error, settings: &Settings, notifier: &Notifier) -> Failure {
    notifier.status(&format!("Not started: {error}"));
    match error {
        Error::Directory(DirectoryError::Locked { .. }) => Failure::temporary(error),
        Error::Unguarded { .. } => Failure::new(exit::BAD_CONFIGURATION, error.to_string()),
        Error::Store(store) | Error::Backup(BackupError::Store(store)) if store.is_damage() => {
            let file = settings.directory().join(DATABASE);
            Failure::failed(format!("{} is damaged: {store}", file.display())).and(
                "Look at it: oncebox doctor. Put a backup back: oncebox restore --force BACKUP; the damaged file \
                 is kept beside it. Nothing was changed in it.",
            )
        }
        other => Failure::failed(other),
    }
}

/// The sockets that the service manager hands over.
fn offer() -> Offer {
    Offer {
        pid: environment("LISTEN_PID"),
        count: environment("LISTEN_FDS"),
        names: environment("LISTEN_FDNAMES"),
    }
}

/// The longest silence that the service manager bears from this process.
fn watchdog() -> Option<Duration> {
    let ours = environment("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let span = environment("WATCHDOG_USEC").filter(|_| ours)?;
    span.parse().ok().filter(|usec| *usec > 0).map(Duration::from_micros)
}

/// What signals ask for.
struct Signals {
    /// SIGTERM and SIGINT; a second one ends the process at once.
    stop: Arc<AtomicBool>,
    /// Whether the first one ends it at once, too: no request was taken yet, and a start may wait for long.
    starting: Arc<AtomicBool>,
    /// SIGHUP.
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// From now on they set flags. SIGXFSZ is taken as well, so that a write beyond a file size limit is an
    /// error we can answer and not the end of the process.
    fn taken() -> std::io::Result<Self> {
        let (stop, reload) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let starting = Arc::new(AtomicBool::new(true));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(&starting))?;
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        Ok(Self { stop, starting, reload })
    }
}

/// Prints where the service is and what comes next; not into a service manager's journal. A closed stdout does not
/// stop the service.
fn greet(appliance: &Appliance, settings: &Settings) {
    if ["NOTIFY_SOCKET", "JOURNAL_STREAM"].iter().any(|name| environment(name).is_some()) {
        return;
    }
    let (address, data) = (appliance.address(), settings.directory().display());
    let key = master_key::whereabouts(settings);
    let mut text = format!(
        "oncebox {} listens on http://{address}
  database     {data}/{DATABASE}
  master key   {key}   (keep a copy elsewhere; without it no secret opens)
  admin token  {data}/{TOKEN_FILE}",
        env!("CARGO_PKG_VERSION"),
    );
    if appliance.intake_address() != address {
        let line = format!("\n  webhooks     http://{}/in/…", appliance.intake_address());
        text.push_str(&line);
    }
    if let Some(public) = &settings.listen.public_url {
        let line = format!("\n  for others   {}/in/…", public.trim_end_matches('/'));
        text.push_str(&line);
    }
    if !appliance.was_clean_before() {
        text.push_str(
            "\nThe run before this one did not end cleanly; everything acknowledged is here.",
        );
    }
    if appliance.is_first_start() {
        text.push_str(
            "\n\nNext, in another terminal:
  oncebox provider create stripe --scheme stripe --pii allow --generate-secret
  oncebox trigger stripe
  oncebox webhook list",
        );
    }
    if let Err(failure) = out::line(text) {
        tracing::debug!(?failure, "the greeting was not read");
    }
}

/// The count of failed starts since the last one that worked. Each waits longer before it ends, so that a service
/// manager that tries again for ever does not fill the log. It is kept in the directory that systemd makes
/// (`RuntimeDirectory=`); without one nothing starts the service again, and nothing waits.
#[derive(Debug)]
struct FailedStarts(Option<PathBuf>);

impl FailedStarts {
    /// The count that the service manager keeps for us, where there is one.
    fn of_manager() -> Self {
        let directory = environment("RUNTIME_DIRECTORY");
        Self(directory.map(|directory| PathBuf::from(directory).join(FAILED_STARTS)))
    }

    /// Reports a failed start, and waits: 1 s, then twice as long each time, up to a minute. A request to stop
    /// ends the wait and clears the count.
    fn wait(&self, failure: Failure, notifier: &Notifier, stop: &AtomicBool) -> Failure {
        let Some(path) = &self.0 else { return failure };
        let before = std::fs::read_to_string(path).ok();
        let before: u32 = before.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let span = Duration::from_secs(1_u64 << before.min(6)).min(MAX_START_WAIT);
        let count = before.saturating_add(1);
        // Where it cannot be written, every wait is a short one.
        drop(std::fs::write(path, count.to_string()));
        let Failure { code, message } = failure;
        let secs = span.as_secs();
        tracing::error!(code, error = message, failed_starts = count, wait_s = secs, "not started");
        notifier.status(&format!("Not started, tried again in {secs} s: {message}"));
        let never = Stop::new();
        let mut waited = Duration::ZERO;
        while waited < span && !stop.load(Ordering::Relaxed) {
            never.wait(LOOK_EVERY);
            waited = waited.saturating_add(LOOK_EVERY);
        }
        if stop.load(Ordering::Relaxed) {
            self.forget();
        }
        // The log has it.
        Failure { code, message: String::new() }
    }

    /// A start has worked.
    fn forget(&self) {
        // A count that stays only makes a later wait longer.
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Reads the settings again and tells the log what came of it. With a mistake in them nothing changes.
fn reload(appliance: &Appliance, sources: &Sources) {
    let refused = |error: &dyn Display| {
        tracing::error!(%error, "the settings cannot be used; what held before still holds");
    };
    let loaded = match sources.load() {
        Ok(loaded) => loaded,
        Err(error) => return refused(&error),
    };
    let change = match appliance.reload(&loaded.settings) {
        Ok(change) => change,
        Err(error) => return refused(&error),
    };
    tracing::info!(changed = named(&change.taken), "the settings were read again");
    if !change.waiting.is_empty() {
        let keys = named(&change.waiting);
        tracing::warn!(keys, "settings changed that take effect with the next start only");
    }
}

fn named(keys: &[&Key]) -> String {
    let paths: Vec<String> = keys.iter().map(|key| key.path()).collect();
    if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") }
}

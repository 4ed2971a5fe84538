//! `oncebox serve`: the service, in the foreground, until SIGTERM or SIGINT.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::app::data_directory::{DATABASE, DirectoryError, TOKEN_FILE};
use crate::app::supervision::Supervision;
use crate::app::{Appliance, Error, master_key};
use crate::backup::Error as BackupError;
use crate::base::build;
use crate::base::clock::{Clock, machine_monotonic};
use crate::base::stop::Stop;
use crate::cli::prelude::*;
use crate::config::settings::Key;
use crate::config::{Settings, Sources, environment};
use crate::model::health;
use crate::sys::host::end_with_parent;
use crate::sys::systemd::{Notifier, Offer};
use crate::sys::wake::SignalWake;
use crate::telemetry;

/// How often the supervision looks. A signal ends the wait.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a start that failed looks for a signal while it waits for the next try.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// The file in the runtime directory that counts failed starts.
const FAILED_STARTS: &str = "failed-starts";
/// The longest wait after a failed start. Not longer, because clients wait in systemd's socket meanwhile.
const MAX_START_WAIT: Duration = Duration::from_mins(1);

/// Run the service
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address and port to listen on [default: 127.0.0.1:8710]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Stop when standard input ends, so that the service ends with its parent process
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

impl Serve {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        let signals = Signals::register().map_err(Failure::failed)?;
        let mut sources = global.sources();
        if let Some(address) = self.listen {
            sources.flag("listen.api", "--listen", address);
        }
        let loaded = sources.load();
        // If the settings are wrong, the log that says so is written with the default settings.
        let defaults = Settings::default();
        telemetry::start(&loaded.as_ref().map_or(&defaults, |loaded| &loaded.settings).log);
        let notifier = Notifier::to(environment("NOTIFY_SOCKET").as_deref());
        let failed_starts = FailedStarts::of_manager();
        let started = loaded
            .map_err(Failure::from)
            .and_then(|loaded| Ok((self.start(&loaded.settings, &notifier, &signals)?, loaded)));
        let (appliance, loaded) = match started {
            Ok(started) => started,
            Err(failure) => {
                signals.starting.store(false, Ordering::Relaxed);
                return Err(failed_starts.wait(failure, &notifier, &signals.stop));
            }
        };
        appliance.note_origins(&loaded);
        greet(&appliance, &loaded.settings);
        let stop = appliance.stop_signal().clone();
        let clock = Clock::machine();
        let mut supervision = Supervision::new(&appliance, notifier, watchdog());
        let mut counted = true;
        while !signals.stop.load(Ordering::Relaxed) && !stop.asked() {
            supervision.check(&appliance, clock.monotonic());
            if counted && supervision.is_ready() {
                failed_starts.forget();
                counted = false;
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                supervision.reloading(machine_monotonic());
                reload(&appliance, &sources);
                supervision.reloaded(&appliance);
            }
            // Until the service is ready, its manager waits for this thread.
            signals.wake.wait(if counted { POLL_EVERY } else { LOOK_EVERY });
        }
        supervision.stopping();
        tracing::info!("stopping: running work is finished first");
        appliance.stop().map_err(Failure::failed)?;
        tracing::info!("stopped");
        Ok(())
    }

    /// Starts the service; returns when its listener answers.
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
        let before_answering = || signals.starting.store(false, Ordering::Relaxed);
        Appliance::start_when_there_is_room(passed, settings, notifier, before_answering)
            .map_err(|error| refusal(error, settings, notifier))
    }
}

/// The failure for a start that did not work, also reported to the service manager.
fn refusal(error: Error, settings: &Settings, notifier: &Notifier) -> Failure {
    notifier.status(&format!("Not started: {error}"));
    match error {
        Error::Directory(DirectoryError::Locked { .. }) => Failure::temporary(error),
        Error::Unguarded { .. } => Failure::new(exit::BAD_CONFIGURATION, error.to_string()),
        Error::Store(store) | Error::Backup(BackupError::Store(store)) if store.is_damage() => {
            let file = settings.directory().join(DATABASE);
            Failure::failed(format!("{} is damaged: {store}", file.display())).and(
                "Nothing was changed in it. Check it: oncebox doctor. Restore a backup: oncebox restore --force BACKUP; \
                 the damaged file is kept under another name.",
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

/// The watchdog interval of the service manager, if it watches this process.
fn watchdog() -> Option<Duration> {
    let ours = environment("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let span = environment("WATCHDOG_USEC").filter(|_| ours)?;
    span.parse().ok().filter(|usec| *usec > 0).map(Duration::from_micros)
}

/// Flags that signals set.
struct Signals {
    /// SIGTERM and SIGINT; a second one ends the process at once.
    stop: Arc<AtomicBool>,
    /// While set, the first SIGTERM or SIGINT ends the process at once: no request was accepted yet, and a start may
    /// take long.
    starting: Arc<AtomicBool>,
    /// SIGHUP.
    reload: Arc<AtomicBool>,
    /// Ended by SIGTERM, SIGINT and SIGHUP.
    wake: SignalWake,
}

impl Signals {
    /// Makes the signals set the flags. SIGXFSZ is caught as well, so that a write beyond a file size limit returns an
    /// error and does not end the process.
    fn register() -> std::io::Result<Self> {
        let (stop, reload) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let starting = Arc::new(AtomicBool::new(true));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(&starting))?;
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        let wake = SignalWake::on(&[SIGTERM, SIGINT, SIGHUP])?;
        Ok(Self { stop, starting, reload, wake })
    }
}

/// Prints addresses, files and next steps, but not into the journal of a service manager. A closed stdout does not stop
/// the service.
fn greet(appliance: &Appliance, settings: &Settings) {
    let address = appliance.address();
    let console = settings.console_url().map_or_else(
        || format!("http://{}", settings.listen.console.unwrap_or(address)),
        |url| url.trim_end_matches('/').to_owned(),
    );
    let first = appliance.first_code().map(|code| {
        let code = code.as_str();
        format!("{console}/console/ makes the first administrator with the code {code}")
    });
    if ["NOTIFY_SOCKET", "JOURNAL_STREAM"].iter().any(|name| environment(name).is_some()) {
        if appliance.is_first_start() {
            tracing::info!("{}", health::UNSTATED);
        }
        // Others read the journal too, so the code is not in it.
        if first.is_some() {
            tracing::info!(
                "there is no user yet: as root, `oncebox console link` prints a link for the first administrator of \
                 {console}/console/"
            );
        }
        return;
    }
    let data = settings.directory().display();
    let key = master_key::location(settings);
    let mut text = format!(
        "oncebox {} listens on http://{address}
  database     {data}/{DATABASE}
  master key   {key}   (keep a copy elsewhere; without it no secret can be decrypted)
  admin token  {data}/{TOKEN_FILE}",
        build::VERSION,
    );
    if appliance.intake_address() != address {
        let line = format!("\n  webhooks     http://{}/in/…", appliance.intake_address());
        text.push_str(&line);
    }
    if let Some(public) = &settings.listen.public_url {
        let line = format!("\n  public URL   {}/in/…", public.trim_end_matches('/'));
        text.push_str(&line);
    }
    if !appliance.was_clean_before() {
        text.push_str("\nThe previous run did not end cleanly; all acknowledged data is here.");
    }
    if appliance.is_first_start() {
        text.push_str("\n  privacy      ");
        text.push_str(health::UNSTATED);
    }
    if let Some(first) = first {
        text.push_str("\n  console      ");
        text.push_str(&first);
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

/// The number of failed starts in a row. Each failed start waits longer before the process ends, so that a service manager
/// that restarts it for ever does not fill the log. The number is kept in systemd's `RuntimeDirectory=`; without one,
/// nothing restarts the service and nothing waits.
#[derive(Debug)]
struct FailedStarts(Option<PathBuf>);

impl FailedStarts {
    /// The counter in the service manager's runtime directory, if there is one.
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
        // If the count cannot be written, the waits do not grow.
        drop(std::fs::write(path, count.to_string()));
        let Failure { code, message } = failure;
        let secs = span.as_secs();
        tracing::error!(code, error = message, failed_starts = count, wait_s = secs, "not started");
        notifier.status(&format!("Not started, trying again in {secs} s: {message}"));
        let never = Stop::new();
        let mut waited = Duration::ZERO;
        while waited < span && !stop.load(Ordering::Relaxed) {
            never.wait(POLL_EVERY);
            waited = waited.saturating_add(POLL_EVERY);
        }
        if stop.load(Ordering::Relaxed) {
            self.forget();
        }
        // The log already has the message.
        Failure { code, message: String::new() }
    }

    /// Clears the count after a successful start. If that fails, only later waits are longer.
    fn forget(&self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Reads the settings again and logs the result. If they have a mistake, the old settings stay.
fn reload(appliance: &Appliance, sources: &Sources) {
    let refused = |error: &dyn Display| {
        tracing::error!(%error, "the settings have a mistake; the old settings stay in effect");
    };
    let loaded = match sources.load() {
        Ok(loaded) => loaded,
        Err(error) => return refused(&error),
    };
    let change = match appliance.reload(&loaded.settings) {
        Ok(change) => change,
        Err(error) => return refused(&error),
    };
    appliance.note_origins(&loaded);
    tracing::info!(changed = named(&change.taken), "settings reloaded");
    if !change.waiting.is_empty() {
        let keys = named(&change.waiting);
        tracing::warn!(keys, "some changed settings take effect only after a restart");
    }
}

fn named(keys: &[&Key]) -> String {
    let paths: Vec<String> = keys.iter().map(|key| key.path()).collect();
    if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") }
}

//! Targets that are folders: each event becomes a file of its own, written once by its name.
//!
//! A file is written under a temporary name, synced and renamed, so that a reader never sees a part of one. A name that
//! exists with the same content is the event's file, written by an attempt whose outcome was lost.

mod once;
mod patience;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::base::clock::SureNow;
use crate::base::faults::Faults;
use crate::config::permitted;
use crate::env::Env;
use crate::formats::FILE_NAME;
use crate::http::trace::{StepName, Trace};
use crate::model::outcome::{AttemptClass, Outcome};
use crate::model::subscription::Target;
use crate::sys::files::Directory;
use crate::targets::folder::once::{NotWritten, Written};
use crate::targets::folder::patience::{Patience, Stuck};
use crate::targets::parcel::{Parcel, Sends};

/// How often leftovers in a folder are looked for.
const CLEANED_EVERY: Duration = Duration::from_hours(1);
/// Folders of which it is known when leftovers were last looked for.
const MAX_KNOWN: usize = 10_000;

/// Writes files.
#[derive(Debug)]
pub struct Folder {
    env: Env,
    patience: Patience,
    /// When leftovers of each folder were last looked for, by the monotonic clock.
    cleaned: Mutex<BTreeMap<PathBuf, Duration>>,
}

/// One file to be written.
struct Job {
    path: PathBuf,
    name: String,
    /// The name as people are shown it: sealed values may stand in it.
    shown: String,
    content: Vec<u8>,
    /// The time, if leftovers are looked for.
    cleans: Option<SureNow>,
    /// Whether nothing stays.
    is_look: bool,
    trace: Option<Trace>,
    faults: Faults,
}

/// Why nothing was written.
enum Failed {
    /// The settings do not permit the folder.
    NotPermitted(String),
    /// Nothing can be written to the folder now.
    Away(io::Error),
    /// This file can never be written.
    Refused(String),
}

impl Folder {
    /// Nothing was written yet.
    pub fn new(env: Env) -> Self {
        Self { env, patience: Patience::default(), cleaned: Mutex::default() }
    }

    fn run(&self, parcel: &Parcel<'_>, is_look: bool) -> Outcome {
        let Target::Folder(folder) = &parcel.subscription.new.target else {
            return Outcome::Unbuildable { reason: "its target is no folder".to_owned() };
        };
        let name = parcel.rendered.iter().find(|(field, _)| field == FILE_NAME);
        let Some((_, name)) = name else {
            return Outcome::Unbuildable { reason: "its file has no name".to_owned() };
        };
        let job = Job {
            path: folder.path().to_owned(),
            name: name.clone(),
            shown: if parcel.outgoing.sealed_fields > 0 { "***".to_owned() } else { name.clone() },
            content: parcel.outgoing.payload.clone(),
            cleans: self.cleans(folder.path()),
            is_look,
            trace: parcel.trace.cloned(),
            faults: self.env.faults.clone(),
        };
        let settings = self.env.settings.get();
        let tenant = parcel.outgoing.tenant.clone();
        // Links are resolved on the thread too, because a dead share would let this one wait for ever.
        let write = move || {
            let path = permitted(&settings, &tenant, &job.path, "folders");
            job.run(&path.map_err(Failed::NotPermitted)?)
        };
        let limit = parcel.call.timeout;
        match self.patience.run(folder.path(), limit, write) {
            Ok(Ok(said)) => Outcome::Accepted { excerpt: said },
            Ok(Err(Failed::Refused(reason))) => Outcome::Refused { reason },
            Ok(Err(Failed::NotPermitted(reason))) => away("not_permitted", reason),
            Ok(Err(Failed::Away(error))) => {
                let reason = format!("{}: {}", folder.path().display(), explained(&error));
                away(code_of(&error), reason)
            }
            Err(Stuck::Late) => away(
                "timeout",
                format!(
                    "{} did not answer for {} s; a network share may be gone",
                    folder.path().display(),
                    limit.as_secs()
                ),
            ),
            Err(Stuck::Before) => away(
                "timeout",
                format!("{} has not answered an earlier write yet", folder.path().display()),
            ),
            Err(Stuck::NoThread(error)) => away("no_thread", format!("no thread: {error}")),
        }
    }

    /// The time, if leftovers of a folder are to be looked for now.
    fn cleans(&self, path: &Path) -> Option<SureNow> {
        let now = self.env.clock.monotonic();
        let mut cleaned = self.cleaned.lock();
        let last = cleaned.get(path);
        if last.is_some_and(|last| now.saturating_sub(*last) < CLEANED_EVERY) {
            return None;
        }
        let sure = self.env.clock.sure_now()?;
        if cleaned.len() >= MAX_KNOWN {
            cleaned.clear();
        }
        cleaned.insert(path.to_owned(), now);
        Some(sure)
    }
}

impl Sends for Folder {
    fn send(&self, parcel: &Parcel<'_>) -> Outcome {
        self.run(parcel, false)
    }

    /// Writes the file under a temporary name and removes it.
    fn look(&self, parcel: &Parcel<'_>) -> Outcome {
        self.run(parcel, true)
    }
}

impl Job {
    fn run(&self, path: &Path) -> Result<String, Failed> {
        let Self { name, shown, content, faults, .. } = self;
        let folder = Directory::open(path).map_err(Failed::Away)?;
        self.note(StepName::Connect, || format!("the folder {} is open", path.display()));
        if let Some(now) = self.cleans {
            once::clean(&folder, now);
        }
        let bytes = content.len();
        if self.is_look {
            once::try_out(&folder, content).map_err(Failed::Away)?;
            self.note(StepName::Request, || {
                format!("{bytes} bytes written under a temporary name, synced and removed")
            });
            self.note(StepName::Answer, || format!("an event like this becomes {shown}"));
            return Ok(format!("would be written: {shown}, {bytes} bytes"));
        }
        match once::write(&folder, name, content, faults) {
            Ok(Written::New) => Ok(format!("written: {shown}, {bytes} bytes")),
            Ok(Written::Before(place)) => {
                Ok(format!("already done: {} has this content", place.path(shown)))
            }
            Err(not_written) => Err(self.failed(not_written)),
        }
    }

    fn failed(&self, why: NotWritten) -> Failed {
        match why {
            NotWritten::Taken { place, what } => Failed::Refused(format!(
                "{} {what}, and nothing is overwritten: move it away, or give the subscription another name template",
                place.path(&self.shown)
            )),
            NotWritten::Io(error) => match errno(&error) {
                // The file system cannot hold this name; other events may have others.
                Some(Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => Failed::Refused(format!(
                    "the file system refuses the name of the file: {error}"
                )),
                _ => Failed::Away(error),
            },
        }
    }

    fn note(&self, step: StepName, detail: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            trace.note(step, detail());
        }
    }
}

/// Nothing can be written there now, whichever event it is: the subscription is held, and no attempt is counted.
fn away(code: &str, reason: String) -> Outcome {
    let class = AttemptClass::Transient;
    Outcome::Unacknowledged { class, is_away: true, code: code.to_owned(), reason }
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// What is wrong with a folder, in one word.
fn code_of(error: &io::Error) -> &'static str {
    match errno(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => "full",
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => "not_writable",
        _ => "away",
    }
}

/// What is wrong with a folder, for a person.
fn explained(error: &io::Error) -> String {
    let more = match errno(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => ": make the folder, or mount the share again",
        Some(Errno::LOOP) => ": a part of its path is a link that appeared just now",
        Some(Errno::NOTCONN | Errno::STALE | Errno::IO | Errno::HOSTDOWN) => {
            ": mount the share again"
        }
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
            ": make room on the disk, or raise the quota"
        }
        Some(Errno::ACCESS | Errno::PERM) => ": give the service's user the right to write there",
        Some(Errno::ROFS) => {
            ": mount it writable; under systemd, add ReadWritePaths to the unit (docs/files.md)"
        }
        _ => "",
    };
    format!("{error}{more}")
}

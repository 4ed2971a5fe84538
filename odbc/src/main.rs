//! `oncebox-odbc`: speaks to one database over ODBC, for the service that started it.
//!
//! Requests come over standard input, answers go out over standard output: see `frame.rs`. A driver may hang, and may end
//! this process: then the service ends it or notices, and starts another. So nothing here waits with a limit of its own, and
//! nothing is kept. It ends with its standard input, so that it never outlives the service.

mod database;
#[path = "../../src/databases/frame.rs"]
mod frame;

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};

use database::Database;
use frame::{Answer, Refusal, Request};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // The service sees that it ended; the words of a driver are for nobody's log.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    keep_memory_from_others()?;
    let mut answers = std::fs::File::from(take_over_output()?);
    let requests = read_requests();
    let Ok(environment) = odbc_api::Environment::new() else {
        return Err(io::Error::other("unixODBC does not start"));
    };
    let mut database = Database::new(&environment);
    while let Ok(request) = requests.recv() {
        let answer = database.answer(request).unwrap_or_else(Answer::Refused);
        match frame::write(&mut answers, &answer) {
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                frame::write(&mut answers, &too_large(&error))?;
            }
            written => written?,
        }
    }
    Ok(())
}

/// One row with several large values. Nothing of it was written yet.
fn too_large(error: &io::Error) -> Answer {
    let message = format!("a row is too large: {error}");
    Answer::Refused(Refusal { sqlstate: "54000".to_owned(), native: 0, message })
}

/// The memory of this process has a password: no core dump, and no other process of the user may look into it.
fn keep_memory_from_others() -> io::Result<()> {
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, nothing)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// The standard output for frames alone: what a driver prints goes nowhere.
fn take_over_output() -> io::Result<OwnedFd> {
    let frames = rustix::io::fcntl_dupfd_cloexec(io::stdout().as_fd(), 3)?;
    let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(frames)
}

#[allow(
    clippy::disallowed_methods,
    reason = "this program has no supervision, and one thread that only reads"
)]
fn read_requests() -> Receiver<Request> {
    let (sender, requests) = sync_channel(1);
    drop(std::thread::spawn(move || {
        hand_on(&sender);
        end();
    }));
    requests
}

fn hand_on(sender: &SyncSender<Request>) {
    let mut input = io::stdin().lock();
    while let Ok(Some(request)) = frame::read(&mut input) {
        if sender.send(request).is_err() {
            break;
        }
    }
}

/// Ends this process even if a driver hangs, and runs no more code of a driver.
fn end() {
    let own = rustix::process::getpid();
    let _cannot_fail = rustix::process::kill_process(own, Signal::KILL);
}

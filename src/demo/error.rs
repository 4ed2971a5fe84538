//! Why there is no good end.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::http::client::SetupError;
use crate::store::error::Error as StoreError;

/// Why there is no good end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory of the run.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What the parts were to read is not that.
    #[error("{path}: {source}")]
    Site {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A ledger.
    #[error("a ledger of the demo: {0}")]
    Store(#[from] StoreError),
    /// The HTTP client.
    #[error("{0}")]
    Client(SetupError),
    /// Not enough ports are free.
    #[error("not enough free ports on 127.0.0.1: {0}")]
    Ports(#[source] io::Error),
    /// A listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The program does not know where it is.
    #[error("the running program cannot be found, so it cannot be started again: {0}")]
    Program(#[source] io::Error),
    /// No thread or signal handler could be set up.
    #[error("no thread or signal handler could be set up: {0}")]
    Thread(#[source] io::Error),
    /// A process could not be started or ended.
    #[error("{role}: {source}")]
    Start {
        /// Which.
        role: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A process ended by itself, or did not become ready.
    #[error("{role} {what}; its last words, from {log}:\n{words}")]
    Fell {
        /// Which.
        role: &'static str,
        /// What it did.
        what: String,
        /// Where its log is.
        log: PathBuf,
        /// The end of its log.
        words: String,
    },
    /// Oncebox refused what the demo asked of it.
    #[error("Oncebox answered {status} to {what}: {said}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The status; 0 for no answer.
        status: u16,
        /// The answer.
        said: String,
    },
    /// The count does not come out.
    #[error("{}\nThe ledgers and logs are in {dir}; the report is {report}", problems.join("\n"))]
    Wrong {
        /// What is wrong, most important first.
        problems: Vec<String>,
        /// Where the ledgers and logs are.
        dir: PathBuf,
        /// Where the report is.
        report: PathBuf,
    },
    /// Somebody pressed Ctrl-C.
    #[error("interrupted; the processes were ended")]
    Interrupted,
}

impl Error {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

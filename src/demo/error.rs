//! The error of the demo.

use std::fmt::Display;
use std::path::Path;

use crate::store::error::Error as StoreError;

/// Why the demo fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A database could not be read or written.
    #[error("a database of the demo: {0}")]
    Store(#[from] StoreError),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C was pressed.
    #[error("interrupted; the processes were ended")]
    Interrupted,
}

impl Error {
    /// An error about something, such as a file.
    pub(super) fn about<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }

    pub(super) fn file<E: Display>(path: &Path) -> impl FnOnce(E) -> Self {
        Self::about(path.display().to_string())
    }
}

//! `oncebox manual`: the manual pages, made from what `--help` says; a package runs it when it is built.
//!
//! Not here: the words of the pages, which are the commands' own.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Failure;

/// Write the manual pages into a directory, one a command
#[derive(Debug, Args)]
#[command(after_help = "To read one: man ./oncebox-serve.1")]
pub(super) struct Manual {
    /// The directory; made where it is absent
    directory: PathBuf,
}

impl Manual {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let shown = self.directory.display();
        let failed = |error: std::io::Error| Failure::failed(format!("{shown}: {error}"));
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        clap_mangen::generate_to(super::command(), &self.directory).map_err(failed)
    }
}

//! `oncebox openapi`, `completions` and `manual`: documents generated from the program, without a service.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::api::openapi;
use crate::cli::prelude::*;

#[derive(Debug, Args)]
pub(super) struct OpenApi {}

#[derive(Debug, Args)]
#[command(
    after_help = "For bash: oncebox completions bash > ~/.local/share/bash-completion/completions/oncebox"
)]
pub(super) struct Completions {
    /// Which shell
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "To read one: man ./oncebox-serve.1")]
pub(super) struct Manual {
    /// The directory; created if missing
    directory: PathBuf,
}

impl OpenApi {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, _shared: &Shared) -> Result<(), Failure> {
        out::line(format_args!("{:#}", openapi::document()))
    }
}

impl Completions {
    pub(super) fn run(&self, _shared: &Shared) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::whole_command(), "oncebox", &mut script);
        out::bytes(&script)
    }
}

impl Manual {
    pub(super) fn run(&self, _shared: &Shared) -> Result<(), Failure> {
        let shown = self.directory.display();
        let failed = |error: std::io::Error| Failure::failed(format!("{shown}: {error}"));
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        clap_mangen::generate_to(super::whole_command(), &self.directory).map_err(failed)
    }
}

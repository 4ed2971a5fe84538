//! `oncebox completions`: what a shell needs to complete commands and flags.
//!
//! Not here: where a shell looks for it, which its own manual says.

use clap::Args;
use clap_complete::Shell;

use crate::cli::{Failure, out};

/// Print the completions of a shell
#[derive(Debug, Args)]
#[command(
    after_help = "For bash: oncebox completions bash > ~/.local/share/bash-completion/completions/oncebox"
)]
pub(super) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::command(), "oncebox", &mut script);
        out::bytes(&script)
    }
}

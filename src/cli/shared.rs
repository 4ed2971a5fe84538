//! The flags that every command has, and the settings that follow from them.

use std::path::PathBuf;

use clap::Args;

use crate::cli::exit::Failure;
use crate::config::{Environment, Settings, Sources};

/// Flags every command has.
#[derive(Clone, Debug, Args)]
pub(super) struct Shared {
    /// Settings file [default: ./oncebox.toml, else /etc/oncebox/oncebox.toml, else none]
    #[arg(
        long,
        short,
        global = true,
        env = "ONCEBOX_CONFIG",
        value_name = "FILE",
        display_order = 900
    )]
    config: Option<PathBuf>,
    /// Directory of the database, the key and the first token
    #[arg(long, short, global = true, value_name = "DIR", display_order = 901)]
    data: Option<PathBuf>,
}

impl Shared {
    /// The sources of settings: flags, then environment, then file, then defaults.
    pub(super) fn sources(&self) -> Sources {
        let mut sources = Sources {
            file: self.config.clone(),
            environment: Environment::of_process(),
            flags: Vec::new(),
        };
        if let Some(data) = &self.data {
            sources.flag("database.directory", "--data", data.display());
        }
        sources
    }

    /// Loads the settings.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        Ok(self.sources().load()?.settings)
    }
}

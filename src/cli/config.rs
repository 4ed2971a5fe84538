//! `oncebox config`: shows settings and their origins, checks them, and prints their reference.
//!
//! Settings never hold secrets.

use std::path::PathBuf;

use clap::Subcommand;

use crate::app::forward_proxy;
use crate::cli::out;
use crate::cli::prelude::*;
use crate::cli::show;
use crate::config::settings::{KEYS, Key, TakesEffect};
use crate::config::{Loaded, Origin, pages};
use crate::http::client::check_ca_file;

#[derive(Debug, Args)]
pub(super) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the value of every key, and where it is set: flag, variable, file or default
    Show(Format),
    /// Report all mistakes; exit code 78 if there are any
    Check {
        /// The file [default: the one the service would read]
        file: Option<PathBuf>,
    },
    /// Print a JSON Schema of the file, for editors
    Schema,
    /// Print the file with every key at its default, commented out
    Default,
    /// Print the reference of all keys, as Markdown
    Reference,
}

const COLUMNS: Columns = Columns {
    columns: &[column("KEY", 0, "key"), column("VALUE", 0, "value"), column("FROM", 0, "from")],
    by: &[("value", value)],
};

impl Config {
    pub(super) fn run(&self, global: &GlobalArgs) -> Result<(), Failure> {
        match &self.verb {
            Verb::Show(Format { json }) => show(&global.sources().load()?, *json),
            Verb::Check { file } => {
                let mut sources = global.sources();
                sources.file = file.clone().or(sources.file);
                let loaded = sources.load()?;
                if let Some(path) = &loaded.settings.delivery.ca_file {
                    check_ca_file(path)
                        .map_err(|why| Failure::new(exit::BAD_CONFIGURATION, why))?;
                }
                forward_proxy(&loaded.settings.delivery)
                    .map_err(|why| Failure::new(exit::BAD_CONFIGURATION, why))?;
                let file = loaded.file.map(|path| path.display().to_string());
                let file = file.unwrap_or_else(|| "no file; defaults and environment".to_owned());
                out::line(format_args!("{file}: no mistakes"))
            }
            Verb::Schema => out::line(format_args!("{:#}", pages::schema())),
            Verb::Default => out::bytes(pages::default_file().as_bytes()),
            Verb::Reference => out::bytes(pages::reference().as_bytes()),
        }
    }
}

/// A line for each key that is not at its default: its value, and where it is set.
pub(super) fn changed(global: &GlobalArgs) -> Result<String, Failure> {
    let loaded = global.sources().load()?;
    let line = |key: &&Key| {
        let value = key.get(&loaded.settings);
        format!("{} = {value}  ({})", key.path(), loaded.origin(key))
    };
    let is_set = |key: &&Key| loaded.origin(key) != Origin::Default;
    let lines: Vec<String> = KEYS.iter().filter(is_set).map(|key| line(&key)).collect();
    Ok(if lines.is_empty() { "none".to_owned() } else { lines.join("\n") })
}

fn show(loaded: &Loaded, json: bool) -> Result<(), Failure> {
    let keys: Vec<Value> = KEYS
        .iter()
        .map(|key| {
            json!({
                "key": key.path(),
                "value": key.get(&loaded.settings),
                "from": loaded.origin(key).to_string(),
                "unset": key.unset.map(|(says, _)| says),
                "takes_effect": if key.takes == TakesEffect::Reload { "reload" } else { "restart" },
                "variable": key.variable(),
            })
        })
        .collect();
    if json {
        let file = loaded.file.as_ref().map(|path| path.display().to_string());
        return out::json(&json!({ "file": file, "keys": keys }));
    }
    COLUMNS.table(&keys)
}

/// A value as in a file; if none is set, what applies without it.
fn value(key: &Value) -> String {
    match key.get("value") {
        None | Some(Value::Null) => format!("({})", text(key, "unset")),
        Some(value) => show::clean(&value.to_string()),
    }
}

//! `oncebox keys`: the master key, which encrypts every stored secret.
//!
//! No key is ever printed or read from an argument. `rotate` calls the running service, or works on the file if none
//! runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::app::data_directory::{DATABASE, DirectoryError};
use crate::app::{Error, master_key};
use crate::base::clock::Clock;
use crate::base::id::SystemDraw;
use crate::base::secret::MasterKey;
use crate::cli::exit::{self, Failure};
use crate::cli::noun::Verbs;
use crate::cli::remote::ConnectArgs;
use crate::cli::shared::Shared;
use crate::cli::show::Cell::Text;
use crate::cli::show::{self, Column, text};
use crate::cli::{input, out};
use crate::config::Settings;
use crate::keys::file;
use crate::pipeline::rotation::Rotated;
use crate::store::{self, credentials, meta, subjects};
use crate::sys::files::is_missing;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the keys that the database names, with the number of secrets under each
    List,
    /// Replace the current key with a new one, and encrypt every secret again
    Rotate,
    /// Write a new key to a file: for a systemd credential or the environment
    New {
        /// The file, which must not exist
        file: PathBuf,
    },
}

const COLUMNS: &[Column] = &[
    ("KEY", 0, Text("id")),
    ("SECRETS", 0, Text("secrets")),
    ("NAMED", 0, Text("named")),
    ("OLD FILE", 1, Text("file")),
];

impl Verbs for Verb {
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
        match self {
            Self::List => list(shared, connect.json()),
            Self::Rotate => rotate(connect, shared),
            Self::New { file } => new(file),
        }
    }
}

/// The path of the database; fails if it is missing.
fn database(settings: &Settings) -> Result<PathBuf, Failure> {
    let path = settings.directory().join(DATABASE);
    if is_missing(&path) {
        let why = format!("there is no database {}", path.display());
        return Err(Failure::new(exit::NOT_FOUND, why));
    }
    Ok(path)
}

fn rotate(connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure> {
    let draw = Arc::new(SystemDraw::new());
    let settings = shared.settings()?;
    database(&settings)?;
    let done = match master_key::rotate_offline(&settings, &Clock::machine(), draw) {
        Ok(Rotated { from, to, secrets }) => {
            json!({ "from": from, "to": to, "secrets": secrets })
        }
        Err(Error::Directory(DirectoryError::Locked { .. })) => {
            connect.open(shared)?.post("/v1/keys/rotate", None)?
        }
        Err(Error::Rotation(error)) => return Err(Failure::new(exit::CONFLICT, error)),
        Err(error) => return Err(Failure::failed(error)),
    };
    if connect.json() {
        return out::json(&done);
    }
    let (from, to) = (text(&done, "from"), text(&done, "to"));
    out::line(format_args!(
        "{to} is the current key; {} secrets were encrypted again",
        text(&done, "secrets")
    ))?;
    out::note(format_args!(
        "Keep a copy of the new key elsewhere. The old one stays as {}: older backups need it. \
             Delete it when you have none left.",
        file::retired(&settings.master_key_file(), &from).display()
    ));
    Ok(())
}

fn list(shared: &Shared, as_json: bool) -> Result<(), Failure> {
    let settings = shared.settings()?;
    let path = database(&settings)?;
    input::check_open(settings.directory())?;
    let reader = store::read_only(&path).map_err(|error| {
        let why = "Run it as root or as the service's user (sudo).";
        Failure::failed(format!("{}: {error}", path.display())).and(why)
    })?;
    let tx = reader.tx();
    let named = meta::master_key_id(&tx)?.unwrap_or_default();
    let mut counts = credentials::count_by_key(&tx)?;
    for (id, more) in subjects::count_by_key(&tx)? {
        match counts.iter_mut().find(|(known, _)| *known == id) {
            Some((_, count)) => *count = count.saturating_add(more),
            None => counts.push((id, more)),
        }
    }
    if counts.iter().all(|(id, _)| *id != named) {
        counts.push((named.clone(), 0));
    }
    let shown = |(id, secrets): &(String, i64)| {
        let old = file::retired(&settings.master_key_file(), id);
        let old = old.exists().then(|| old.display().to_string());
        json!({ "id": id, "secrets": secrets, "named": *id == named, "file": old })
    };
    let rows: Vec<Value> = counts.iter().map(shown).collect();
    if as_json {
        return out::json(&json!({ "items": rows, "next": null }));
    }
    show::table(COLUMNS, &rows)
}

fn new(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::new(exit::CONFLICT, format!("{} already exists", path.display())));
    }
    let key = MasterKey::generate(&SystemDraw::new());
    file::write(path, &key).map_err(Failure::failed)?;
    out::line(format_args!("{}: key {}", path.display(), key.key_id()))?;
    out::note(
        "To use it: give it as the credential oncebox-master-key (or ONCEBOX_MASTER_KEY), give the \
         old key as oncebox-master-key-previous (ONCEBOX_MASTER_KEY_PREVIOUS), and restart. The start \
         encrypts every secret again; after that, only older backups need the old key.",
    );
    Ok(())
}

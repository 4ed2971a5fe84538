//! `oncebox keys`: the master key, which encrypts every stored secret.
//!
//! No key is ever printed or read from an argument. `rotate` calls the running service, or works on the file if none
//! runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::app::data_directory::{DATABASE, DirectoryError, TOKEN_FILE};
use crate::app::{Error, abandoning, installation, master_key};
use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::base::secret::MasterKey;
use crate::cli::prelude::*;
use crate::config::Settings;
use crate::keys::file;
use crate::pipeline::upkeep::master_key_rotation::Rotated;
use crate::store::{self, credentials, meta, subjects};
use crate::sys::files::is_missing;

const VERBS: &[CommandRow] = &[
    command("list", "List the keys that the database names, with the number of secrets under each")
        .offline(list_keys),
    command("rotate", "Replace the current key with a new one, and encrypt every secret again")
        .offline(rotate),
    command("abandon", "Give up what a lost key has sealed, and go on under a new key; events and their order stay")
        .asks("Give up every secret, token, alert URL and sealed personal field that no key opens any more")
        .offline(abandon),
    command("bind", "Note beside the key which database belongs to it: a start without that database is refused")
        .flags(&[&[
            own("none").help("Remove the note: the next start may begin with a new database"),
        ]])
        .offline(|call| bind(&call.global.settings()?, call.is("none"))),
    command("new", "Write a new key to a file: for a systemd credential or the environment")
        .flags(&[&[
            argument("file").help("The file, which must not exist"),
        ]])
        .offline(|call| new(call.text("file").as_ref())),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &KEYS,
    command("keys", "The master key, which encrypts every stored secret"),
    VERBS,
);

const KEYS: Noun = Noun::new("", "Key", "keys").columns(&[
    column("KEY", 0, "id"),
    column("SECRETS", 0, "secrets"),
    column("NAMED", 0, "named"),
    column("OLD FILE", 1, "file"),
]);

/// The path of the database; fails if it is missing.
fn database(settings: &Settings) -> Result<PathBuf, Failure> {
    let path = settings.directory().join(DATABASE);
    if is_missing(&path) {
        let why = format!("there is no database {}", path.display());
        return Err(Failure::new(exit::NOT_FOUND, why));
    }
    Ok(path)
}

fn rotate(call: &Call<'_>) -> Done {
    let draw = Arc::new(SystemDraw::new());
    let connect = call.connect;
    let settings = call.global.settings()?;
    database(&settings)?;
    let done = match master_key::rotate_offline(&settings, &Clock::machine(), draw) {
        Ok(Rotated { from, to, secrets }) => {
            json!({ "from": from, "to": to, "secrets": secrets })
        }
        Err(Error::Directory(DirectoryError::Locked { .. })) => {
            connect.open(call.global)?.post("/v1/keys/rotate", None)?
        }
        Err(Error::Rotation(error)) => return Err(Failure::new(exit::CONFLICT, error)),
        Err(error) => return Err(Failure::failed(error)),
    };
    if connect.json() {
        return out::json(&done);
    }
    let from = text(&done, "from");
    let to = text(&done, "to");
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

/// Notes which database belongs to the key, or removes the note.
pub(super) fn bind(settings: &Settings, none: bool) -> Result<(), Failure> {
    let id = if none { None } else { installation::id(settings).map_err(Failure::failed)? };
    let Some(path) = installation::note(settings, id.as_deref()).map_err(Failure::failed)? else {
        return Ok(());
    };
    let id = id.unwrap_or_else(|| "none".to_owned());
    out::note(format_args!("database of this installation, noted in {}: {id}", path.display()));
    Ok(())
}

fn abandon(call: &Call<'_>) -> Done {
    let settings = call.global.settings()?;
    database(&settings)?;
    call.confirm()?;
    let draw: Arc<dyn Draw> = Arc::new(SystemDraw::new());
    let clock = Clock::machine();
    let done = abandoning::abandon(&settings, &clock, &draw).map_err(|error| match error {
        Error::Directory(DirectoryError::Locked { .. }) => Failure::temporary(error)
            .and("Stop it first: systemctl stop oncebox.socket oncebox.service"),
        Error::NothingLost(_) => Failure::new(exit::CONFLICT, error),
        other => Failure::failed(other),
    })?;
    // Only after everything was printed it is noted as told: a command that is killed before prints it again.
    let printed = if call.connect.json() {
        out::json(&done)
    } else {
        print_lost(&done, &settings.directory().join(TOKEN_FILE))
    };
    printed?;
    abandoning::told(&settings, &clock).map_err(Failure::failed)
}

/// Prints the losses, and the remedy.
fn print_lost(lost: &Value, token: &Path) -> Done {
    out::line(format_args!("key {} is in force. Set anew:", text(lost, "key")))?;
    for lost in list(lost, "set_anew") {
        let of = text(lost, "of");
        let name = text(lost, "name");
        let tenant = text(lost, "tenant");
        let next = match of.as_str() {
            "provider" => format!("oncebox provider change {name} --secret-file FILE"),
            "alert" => format!("oncebox alert channel change {name} --url-file FILE"),
            _ => {
                format!("oncebox credential set {name} …, then oncebox subscription resume {name}")
            }
        };
        out::line(format_args!("  {of} {name} of {tenant} ({}): {next}", text(lost, "kind")))?;
    }
    if let Some(revoked) = lost.get("tokens_revoked").and_then(Value::as_u64) {
        out::line("  exports of audit events are signed with a new key, made at the next start")?;
        let token = token.display();
        out::line(format_args!(
            "  {revoked} tokens: oncebox token create …; a new admin token is in {token}"
        ))?;
    }
    out::line(format_args!("{} keys of subjects count as erased", text(lost, "subjects")))
}

fn list_keys(call: &Call<'_>) -> Done {
    let settings = call.global.settings()?;
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
    if call.connect.json() {
        return out::json(&json!({ "items": rows, "next": null }));
    }
    KEYS.table().table(&rows)
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

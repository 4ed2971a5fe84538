//! The ways out: one file or folder for each kind of target, behind the trait [`Sends`].
//!
//! A way sends one parcel and tells what became of it. It stores nothing of a delivery and decides nothing: what is sent is
//! made by `pipeline::deliver`, and what follows from an outcome is judged by `model::failure`.

pub mod command;
pub mod database;
pub mod email;
pub mod file_batch;
pub mod folder;
pub mod http;
pub mod kafka;
pub mod parcel;

use std::sync::Arc;

use crate::databases::database::Databases;
use crate::env::Env;
use crate::http::client::Sender;
use crate::model::subscription::Target;
use crate::targets::command::Command;
use crate::targets::database::Database;
use crate::targets::email::Email;
use crate::targets::folder::Folder;
use crate::targets::http::Http;
use crate::targets::kafka::Kafka;
use crate::targets::parcel::Sends;

/// All of them. Cheap to clone.
#[derive(Clone)]
pub struct Targets {
    http: Arc<Http>,
    kafka: Arc<Kafka>,
    folder: Arc<Folder>,
    database: Arc<Database>,
    email: Arc<Email>,
    command: Arc<Command>,
}

impl std::fmt::Debug for Targets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Targets").finish_non_exhaustive()
    }
}

impl Targets {
    /// All ways out, over this line.
    pub fn new(env: &Env, sender: Arc<dyn Sender>, databases: Databases) -> Self {
        let Env { clock, settings, .. } = env;
        Self {
            database: Arc::new(Database::new(databases)),
            folder: Arc::new(Folder::new(env.clone())),
            kafka: Arc::new(Kafka::new(settings.clone(), clock.clone(), Arc::clone(&sender))),
            email: Arc::new(Email { env: env.clone() }),
            command: Arc::new(Command { clock: clock.clone(), settings: settings.clone() }),
            http: Arc::new(Http { env: env.clone(), sender }),
        }
    }

    /// What sends to a target; `None` if consumers fetch its events.
    pub fn of(&self, target: &Target) -> Option<&dyn Sends> {
        match target {
            Target::Http(_) => Some(&*self.http),
            Target::Kafka(_) => Some(&*self.kafka),
            Target::Folder(_) => Some(&*self.folder),
            Target::Database(_) => Some(&*self.database),
            Target::Email(_) => Some(&*self.email),
            Target::Command(_) => Some(&*self.command),
            Target::Pull => None,
        }
    }
}

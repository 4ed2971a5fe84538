//! Oncebox: webhooks come in, business events go out through a transactional outbox, each exactly once.
//!
//! Start reading at `ARCHITECTURE.md`, then `schema.sql`, then [`flow`].
//!
//! Three modules are for programs that are not the service, and need none: [`outbox`] writes an event in the
//! transaction of an ERP, [`webhook`] checks the signature of what comes, [`guard`] makes its effect happen
//! once. They speak of transactions of [`rusqlite`], which is handed on so that versions agree.

pub mod api;
pub mod appliance;
pub mod budget;
pub mod cache;
pub mod cli;
pub mod clock;
pub mod conformance;
pub mod demo;
pub mod domain;
pub mod faults;
pub mod flow;
pub mod guard;
pub mod headers;
pub mod http;
pub mod id;
pub mod keeping;
pub mod keyring;
pub mod logging;
pub mod machine;
pub mod outbox;
pub mod pulse;
pub mod secret;
pub mod seeded;
pub mod settings;
pub mod stop;
pub mod store;
pub mod systemd;
pub mod tally;
pub mod webhook;

pub use rusqlite;

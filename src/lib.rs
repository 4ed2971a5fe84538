//! Oncebox: webhooks come in, business events go out through a transactional outbox, each exactly once.
//!
//! Three modules are for programs that embed Oncebox, and need no service: [`outbox`] writes an event in the
//! transaction of an ERP, [`webhook`] checks the signature of a request, [`guard`] makes its effect happen
//! once. They work on transactions of [`rusqlite`], which is re-exported so that versions agree.
//!
//! The feature `service` (default) adds the program itself. To read it, start at `ARCHITECTURE.md`, then
//! `schema.sql`, then `pipeline`. Its rooms are private; the feature `internals` opens them to the tests and
//! benches of this repository.

#![cfg_attr(feature = "internals", allow(missing_docs, reason = "rooms are not public"))]
#![cfg_attr(not(feature = "service"), allow(dead_code, reason = "the service uses the rest"))]

pub mod guard;
pub mod outbox;
pub mod webhook;

#[cfg(all(feature = "service", not(feature = "internals")))]
mod alerts;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod api;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod app;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod archive;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod backup;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod base;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod bench;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod cli;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod config;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod conformance;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod console;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod databases;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod demo;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod env;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod event_types;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod formats;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod health_probes;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod http;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod jobs;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod keys;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod model;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod pipeline;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod privacy;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod signatures;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod sources;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod store;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod sys;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod targets;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod telemetry;
#[cfg(all(feature = "service", not(feature = "internals")))]
mod traces;

// What the three public modules need: all that is compiled without the service.
#[cfg(not(feature = "service"))]
mod base {
    pub mod clock;
    pub mod headers;
    pub mod id;
    pub mod secret;
    pub mod text;
    pub mod words;
}
#[cfg(not(feature = "service"))]
mod model {
    pub mod event;
    pub mod event_field;
    pub mod json;
    pub mod name;
    pub mod sealed;
}
#[cfg(not(feature = "service"))]
mod signatures {
    pub mod check;
    pub mod signing;
    pub mod standard;
}

/// Opens the rooms to the tests and benches of this repository.
#[cfg(feature = "internals")]
macro_rules! open {
    ($($room:ident)*) => {$(pub mod $room;)*};
}
#[cfg(feature = "internals")]
open! { alerts api app archive backup base bench cli config conformance console databases demo env event_types formats health_probes http jobs keys model pipeline privacy signatures sources store sys targets telemetry traces }

pub use rusqlite;

#[cfg(feature = "service")]
/// Runs the program `oncebox`: see `oncebox --help`.
pub fn run() -> std::process::ExitCode {
    cli::main()
}

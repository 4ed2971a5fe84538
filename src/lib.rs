//! Oncebox: webhooks come in, business events go out through a transactional outbox, each exactly once.
//!
//! Start reading at `ARCHITECTURE.md`, then `schema.sql`, then [`pipeline`].
//!
//! Three modules are for programs that are not the service, and need none: [`outbox`] writes an event in the
//! transaction of an ERP, [`webhook`] checks the signature of what comes, [`guard`] makes its effect happen
//! once. They speak of transactions of [`rusqlite`], which is handed on so that versions agree.

pub mod api;
pub mod app;
pub mod backup;
pub mod base;
pub mod cli;
pub mod config;
pub mod conformance;
pub mod demo;
pub mod guard;
pub mod http;
pub mod keys;
pub mod model;
pub mod outbox;
pub mod pipeline;
pub mod store;
pub mod sys;
pub mod telemetry;
pub mod webhook;

pub use rusqlite;

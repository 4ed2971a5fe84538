//! Oncebox: webhooks come in, business events go out through a transactional outbox, each exactly once.
//!
//! Start reading at `ARCHITECTURE.md`, then `schema.sql`, then [`flow`].

pub mod api;
pub mod appliance;
pub mod cache;
pub mod cli;
pub mod clock;
pub mod demo;
pub mod domain;
pub mod faults;
pub mod flow;
pub mod headers;
pub mod http;
pub mod id;
pub mod keeping;
pub mod logging;
pub mod machine;
pub mod pulse;
pub mod secret;
pub mod settings;
pub mod stop;
pub mod store;
pub mod systemd;
pub mod tally;

//! What Oncebox does, seen from outside: real HTTP on both sides, a clock that stands still.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "tests fail by panicking and own their threads"
)]

mod acting;
mod auditing;
mod backing_up;
mod batching;
mod changing;
mod consuming;
mod delivering;
mod describing;
mod dropping;
mod embedding;
mod entering;
mod fairness;
mod foreign_programs;
mod forgetting;
mod guarding;
mod isolation;
mod keys;
mod listing;
mod looking;
mod measuring;
mod mending;
mod naming;
mod ordering;
mod plain_sql;
mod privacy;
mod publishers;
mod publishing;
mod receiving;
mod replays;
mod restoring;
mod retrying;
#[path = "../rig/mod.rs"]
mod rig;
mod roles;
mod running;
mod secrecy;
mod slow_bodies;
mod sourcing;
mod supervising;
mod tenants;
mod tls;
mod watching;

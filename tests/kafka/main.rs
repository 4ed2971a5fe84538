//! Events that are written to Kafka: to the library's own mock of a cluster, over real sockets.
#![cfg(feature = "kafka")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    reason = "tests fail by panicking and own their threads"
)]

mod chain;
mod cluster;
mod door;
mod foreign;
mod kills;
mod log_on;
mod records;
#[path = "../rig/mod.rs"]
mod rig;

#[allow(dead_code, reason = "the guards' tests start MariaDB as well")]
#[path = "../guards/server.rs"]
mod server;

use rig::process;

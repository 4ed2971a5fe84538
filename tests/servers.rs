//! Tests beside the servers of others: `PostgreSQL`, `MariaDB`, a stand-in for SQL Server, Kafka.
//!
//! `cargo build -p oncebox-odbc` comes first.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    reason = "tests fail by panicking, own their threads and processes, and say what they skip"
)]

mod databases;
mod guards;
#[cfg(feature = "kafka")]
mod kafka;
mod rig;

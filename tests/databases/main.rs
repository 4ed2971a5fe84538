//! Databases of others through `oncebox-odbc`: a real `PostgreSQL`, a real `MariaDB` and a stand-in for SQL Server,
//! real drivers, real processes.
//!
//! `cargo build -p oncebox-odbc` comes first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "tests fail by panicking and own their processes"
)]

mod ascii;
mod by_transaction;
mod chain;
mod claimed;
mod effects;
mod erp;
mod failures;
mod line;
mod marked;
mod million;
mod modest;
mod pages;
mod pooler;
mod processes;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../guards/server.rs"]
mod server;
mod service;
mod silence;
mod site;
mod sql_server;
mod sql_server_service;
mod stock;
mod tds;
mod terms;
mod transactions;

use rig::process;

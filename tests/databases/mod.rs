//! Databases of others through `oncebox-odbc`: a real `PostgreSQL`, a real `MariaDB` and a stand-in for SQL Server,
//! real drivers, real processes.
//!
//! `cargo build -p oncebox-odbc` comes first.

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
mod service;
mod silence;
mod site;
mod sql_server;
mod sql_server_service;
mod stock;
mod tds;
mod terms;
mod transactions;

use crate::rig::process;

//! Tests that need nothing but this machine: each folder says what it is about.
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

mod cli;
mod demo;
mod docs;
mod domain;
mod fault;
mod fuzz;
mod it;
mod listener;
mod model;
mod rig;
mod sim;
mod tidy;

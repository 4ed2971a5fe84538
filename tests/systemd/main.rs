//! The real program under a service manager: this test is the manager. It holds sockets, listens on a
//! notify socket, starts, stops and kills.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests fail by panicking and own their threads"
)]

mod activation;
mod lines;
mod notify;
mod process;
#[path = "../rig/mod.rs"]
mod rig;

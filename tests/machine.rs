//! Tests in a real browser, and of the program under a service manager, which this test is.
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

mod browser;
mod rig;
mod systemd;

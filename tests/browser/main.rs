//! The console in a real browser: Debian's Chromium, driven through `ChromeDriver`.
//!
//! Each test has an Oncebox of its own, and for its time a Chromium. Where there is no Chromium, it says so and is skipped.
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
mod asking;
mod axe;
mod entering;
mod everybody;
mod hostile;
mod pictures;
#[path = "../rig/mod.rs"]
mod rig;
mod trusting;
mod walk;
mod world;

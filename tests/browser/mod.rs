//! The console in a real browser: Debian's Chromium, driven through `ChromeDriver`.
//!
//! Each test has an Oncebox of its own, and for its time a Chromium. Where there is no Chromium, it says so and is skipped.

mod acting;
mod asking;
mod axe;
mod entering;
mod everybody;
mod hostile;
mod pictures;
mod trusting;
pub(crate) mod walk;
mod world;

//! The domain's decisions against tables, other people's libraries, and properties.
//!
//! Not here: what one function does with one input, which stands beside the function.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "tests fail by panicking and own their threads"
)]

mod addresses;
mod chains;
mod examined_rows;
mod lanes;
mod policies;
mod retries;
mod signatures;

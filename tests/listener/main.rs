//! The HTTP listener under everything a stranger may send it, over real sockets.
//!
//! What only concerns the grammar of a request is tested beside `framing`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "tests fail by panicking and own their threads"
)]

mod answering;
mod naming;
mod overload;
mod refusing;
mod rig;
mod shares;
mod slowness;

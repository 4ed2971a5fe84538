//! What the machine says about itself: room on a disk, the limits and the size of this process, as whom it runs,
//! and that a file has changed.
//!
//! Readings only. What they mean is decided elsewhere.

pub mod disk;
pub mod files;
pub mod host;
pub mod process;
pub mod user;
pub mod watch;

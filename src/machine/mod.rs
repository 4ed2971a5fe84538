//! What the machine says about itself: room on a disk, the limits and the size of this process.
//!
//! Readings only. What they mean is decided elsewhere.

pub mod disk;
pub mod files;
pub mod process;

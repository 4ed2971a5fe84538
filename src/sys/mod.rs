//! What the machine says about itself: room on a disk, the limits and the size of this process, as whom it runs,
//! that a file has changed or is locked; and programs that are run on it.
//!
//! What a reading or an end of a program means is decided elsewhere.

pub mod command;
pub mod disk;
pub mod files;
pub mod host;
pub mod locks;
pub mod systemd;
pub mod user;
pub mod watch;

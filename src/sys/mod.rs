//! All calls to Linux: files, disks, locks and changes of files, users, process limits, signals, systemd, and running programs.
//!
//! What a result means is decided elsewhere.

pub mod command;
pub mod dialogue;
pub mod disk;
pub mod files;
pub mod host;
pub mod locks;
pub mod name_service;
pub mod systemd;
pub mod user;
pub mod wake;
pub mod watch;

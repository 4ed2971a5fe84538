//! Events that are written to Kafka: to the library's own mock of a cluster, over real sockets.

mod chain;
mod cluster;
mod door;
mod foreign;
mod kills;
mod log_on;
mod records;

use crate::rig::process;

//! Bytes on sockets: the listener in front, the client behind. Knows no noun of the product.
//!
//! A request travels `listener` (reads) → `framing` (`head`, `chunks`) → `jobs` → `handler` →
//! [`service`] → `answer` → `turn` (writes). What one connection may do next is in `turn`.

mod answer;
mod chunks;
pub mod client;
mod connection;
mod core;
mod framing;
mod handler;
mod head;
mod jobs;
pub mod limits;
mod listener;
pub mod message;
mod origin;
pub mod proxies;
mod readiness;
mod resolver;
pub mod server;
pub mod service;
mod setup;
mod shares;
pub mod stats;
mod table;
mod turn;

//! Bytes on sockets: the listener in front, the client behind. Knows no noun of the product.
//!
//! `listener` waits for sockets; `connection` reads, frames (`framing`, `head`) and queues a request; a handler
//! thread (`server`) calls the [`service`]; `answer` encodes what `connection` then writes.

mod answer;
pub mod client;
mod connection;
mod core;
mod framing;
mod head;
pub mod limits;
mod listener;
pub mod message;
pub mod proxies;
mod readiness;
mod resolver;
pub mod server;
pub mod service;
mod shares;

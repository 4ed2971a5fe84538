//! HTTP: the server for the intake and the API, and the client for deliveries. Knows nothing of events.
//!
//! `listener` waits for sockets; `connection` reads, frames (`framing`, `head`) and queues a request; a handler
//! thread (`server`) calls the [`service`]; `answer` encodes the response, and `connection` writes it.

mod answer;
pub mod bounded;
pub mod certificate;
pub mod client;
mod connection;
pub mod content_coding;
mod core;
mod framing;
mod head;
pub mod identity;
mod listener;
pub mod message;
pub mod proxies;
mod readiness;
mod resolver;
pub mod server;
pub mod service;
mod shares;
mod socket;
pub mod trace;

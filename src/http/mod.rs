//! HTTP: the server for the intake and the API, and the client for deliveries. Knows nothing of events.
//!
//! `listener` waits for sockets; `connection` reads, frames (`framing`, `head`) and queues a request; a handler
//! thread (`server`) calls the [`service`]; `answer` encodes the response, and `connection` writes it.

mod answer;
mod answer_head;
pub mod bounded;
pub mod ca_file;
pub mod certificate;
pub mod client;
mod connecting;
mod connection;
pub mod content_coding;
mod core;
mod exchange;
mod framing;
mod head;
pub mod identity;
mod listener;
pub mod message;
mod p521;
pub mod proxies;
mod readiness;
mod resolver;
pub mod server;
pub mod service;
mod shares;
mod socket;
pub mod tls;
pub mod trace;
pub mod tunnel;

//! Bytes on sockets: the listener in front, the client behind. Knows no noun of the product.

pub mod client;
pub mod message;
mod resolver;
pub mod service;

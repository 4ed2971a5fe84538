//! Bytes on sockets: the listener in front, the client behind. Knows no noun of the product.

pub mod message;
pub mod service;

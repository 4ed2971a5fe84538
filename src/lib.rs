//! Oncebox: webhooks come in, business events go out through a transactional outbox, each exactly once.
//!
//! Start reading at `ARCHITECTURE.md`, then `schema.sql`, then `flow`.

pub mod clock;
pub mod headers;
pub mod http;
pub mod id;
pub mod stop;

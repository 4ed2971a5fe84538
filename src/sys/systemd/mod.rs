//! What a service manager and its service tell each other: sockets that are handed over, and messages.
//!
//! Knows nothing of webhooks, and of systemd only the two protocols, which others speak too. What is
//! said and when is decided in `appliance`.

pub mod activation;
pub mod notify;

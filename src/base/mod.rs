//! The lowest layer: values and services that know nothing of webhooks.

pub mod budget;
pub mod build;
pub mod cache;
pub mod clock;
pub mod fair;
pub mod faults;
pub mod headers;
pub mod id;
pub mod schema;
pub mod secret;
pub mod stop;
pub mod text;
pub mod words;

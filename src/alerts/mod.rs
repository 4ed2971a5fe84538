//! Alerts: escalations are told to people over channels.
//!
//! A channel ([`channel`]) has a subscription. The chore ([`chore`]) finds what a channel is to be told and stores it as an
//! event for that subscription, with the words of [`message`]. The event is delivered like any other: `targets` has what
//! sends e-mail and runs commands, and knows the secret URL of the others.

pub mod channel;
pub mod chore;
pub mod message;
pub mod store;

//! The command line as a person and a script use it: the real program, against a real service.
//!
//! What a command's words look like in detail is tested beside its code; here it is what they do.

mod acting_on_many;
mod admitting;
mod alerts;
mod archiving;
mod as_root;
mod asking;
mod auditing;
mod batching;
mod benching;
mod comparing;
mod configuring;
mod consuming;
mod credentials;
mod declaring;
mod diagnosing;
mod emitting;
mod event_types;
mod first_setup;
mod formatting;
mod keeping;
mod lanes;
mod looking;
mod named_commands;
mod recovering;
mod refusing;
mod replaying;
mod rig;
mod rotation;
mod setting_up;
mod subjects;
mod subscription_tests;
mod supporting;
mod triggering;
mod verifying;

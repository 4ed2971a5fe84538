//! What Oncebox does, seen from outside: real HTTP on both sides, a clock that stands still.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "tests fail by panicking and own their threads"
)]

mod alerts;
mod archiving;
mod audit_files;
mod auditing;
mod backing_up;
mod batching;
mod bulk;
mod changes;
mod clock;
mod confirmations;
mod console_actions;
mod console_address;
mod console_audit;
mod console_event_types;
mod console_events;
mod console_face;
mod console_first_admin;
mod console_forms;
mod console_log;
mod console_rig;
mod console_secrecy;
mod console_secrets;
mod console_settings;
mod console_sizes;
mod console_tenants;
mod consuming;
mod credentials;
mod credentials_tls;
mod delivering;
mod dependence;
mod describing;
mod drop_folder;
mod effects;
mod embedding;
mod erasing_events;
mod event_fields;
mod event_mails;
mod event_types;
mod failures;
mod fairness;
mod families;
mod folders;
mod foreign_programs;
mod formats;
mod fresh;
mod guarding;
mod health_probes;
mod history;
mod idempotency;
mod isolation;
mod json_texts;
mod keys;
mod lanes;
mod list_limits;
mod lists;
mod login;
mod measuring;
mod months;
mod offline;
mod operational;
mod order_of_sources;
mod ordering;
mod outgoing;
mod past_holds;
mod plain_sql;
mod privacy;
mod provider_habits;
mod provider_names;
mod publishers;
mod publishing;
mod receiving;
mod recent;
mod refused_webhooks;
mod regressions;
mod renderings;
mod replays;
mod restoring;
mod retries;
mod retry_schedule;
#[path = "../rig/mod.rs"]
mod rig;
mod roles;
mod rotation;
mod routes;
mod running;
mod searching;
mod secrecy;
mod seed_states;
mod settings;
mod slow_bodies;
mod sourcing;
mod subscription_tests;
mod supervising;
mod tenants;
mod tls;
mod users;
mod watching;
mod webhook_bodies;
mod webhook_lanes;

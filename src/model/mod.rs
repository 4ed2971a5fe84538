//! Nouns and decisions. Pure: no I/O, no clock, no randomness of its own.
//!
//! Each noun has three places: its type and decisions are here, its SQL is in `store`, its routes are in `api`. All
//! three use the same struct.

pub mod address;
pub mod answer_sentence;
pub mod attempt;
pub mod audit;
pub mod credential;
pub mod database_product;
pub mod database_target;
pub mod delivery;
pub mod disk;
pub mod duty;
pub mod effect;
pub mod effect_statement;
pub mod escalation;
pub mod event;
pub mod event_field;
pub mod external_call;
pub mod failure;
pub mod folder;
pub mod form_body;
pub mod format;
pub mod forward_proxy;
pub mod health;
pub mod health_probe;
pub mod history;
pub mod hold;
pub mod in_doubt;
pub mod inbox_table;
pub mod json;
pub mod json_fields;
pub mod json_path;
pub mod kafka_topic;
pub mod lane;
pub mod lease;
pub mod name;
pub mod operational;
pub mod outcome;
pub mod pattern;
pub mod pointer;
pub mod provider;
pub mod rate;
pub mod retry_rules;
pub mod sealed;
pub mod settlement;
pub mod sql_row;
pub mod subscription;
pub mod target_url;
pub mod throttle;
pub mod token;
pub mod user;
pub mod waiting;
pub mod webhook_event;

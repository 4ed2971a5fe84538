//! The pages: one file each, listed here in the order of the menu.

mod access;
mod alerts;
mod audit;
mod dead_letters;
mod event;
mod event_types;
mod events;
mod lanes;
mod overview;
mod search;
mod settings;
mod sources;
mod subscriptions;

use crate::console::page::Page;

/// All pages. Those with an entry in the menu, or among the tabs of a section, stand in its order.
pub(super) static PAGES: &[&Page] = &[
    &overview::PAGE,
    &search::PAGE,
    &events::EVENTS,
    &event_types::LIST,
    &event_types::ONE,
    &event::EVENT,
    &events::RECEIVED,
    &event::WEBHOOK,
    &events::DELIVERIES,
    &event::DELIVERY,
    &dead_letters::LIST,
    &dead_letters::JOBS,
    &dead_letters::JOB,
    &lanes::LIST,
    &lanes::ONE,
    &subscriptions::LIST,
    &subscriptions::ONE,
    &subscriptions::TEST,
    &sources::LIST,
    &sources::ONE,
    &sources::PROVIDER,
    &alerts::PAGE,
    &audit::LIST,
    &audit::ONE,
    &settings::PAGE,
    &access::OWN_SESSIONS,
    &access::USERS,
    &access::SESSIONS,
    &access::TOKENS,
    &settings::IN_FORCE,
    &settings::BACKUPS,
];

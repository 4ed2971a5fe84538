//! The pages: one file each, listed here in the order of the menu.

mod alerts;
mod audit;
mod dead_letters;
mod event;
mod events;
mod lanes;
mod overview;
mod search;
mod settings;
mod sources;
mod subscriptions;

use crate::console::error::PageError;
use crate::console::layout::Content;
use crate::console::texts::Texts;
use crate::console::view::View;
use crate::model::token::Right;

/// A page: its path, who may see it, and what makes it.
pub(super) struct Page {
    /// The path; `{…}` are variable parts.
    pub(super) path: &'static str,
    /// Its entry in the menu, if it has one.
    pub(super) menu: Option<fn(&Texts) -> &'static str>,
    /// What a person's role must allow.
    pub(super) right: Right,
    /// Whether it is refreshed while it is looked at.
    pub(super) is_live: bool,
    /// Reads and renders it.
    pub(super) show: fn(&View<'_>) -> Result<Content, PageError>,
}

impl Page {
    /// The first part of the path below `/console/`: pages of one section share an entry in the menu.
    pub(super) fn section(&self) -> &'static str {
        self.path.trim_start_matches("/console/").split('/').next().unwrap_or_default()
    }
}

/// All pages. Those with an entry in the menu stand in its order.
pub(super) static PAGES: &[&Page] = &[
    &overview::PAGE,
    &search::PAGE,
    &events::EVENTS,
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
    &sources::LIST,
    &sources::ONE,
    &sources::PROVIDER,
    &alerts::PAGE,
    &audit::PAGE,
    &settings::PAGE,
];

//! The pages: one file each, listed here in the order of the menu.

mod access;
mod alerts;
mod audit;
mod databases;
mod dead_letters;
mod delivery;
mod event;
mod events;
mod lanes;
mod overview;
mod reconciliations;
mod settings;
pub(super) mod sources;
mod start;
mod subscriptions;

use crate::console::actions;
use crate::console::page::Page;
use crate::model::token::Right::{Admin, Box, Read};

/// Whether a path is that of a page or of an action's form.
pub(super) fn is_page(path: &str) -> bool {
    let is_of = |page: &Page| {
        page.path.split('/').count() == path.split('/').count()
            && page
                .path
                .split('/')
                .zip(path.split('/'))
                .all(|(of, is)| of == is || (of.starts_with('{') && !is.is_empty()))
    };
    let action = path.strip_prefix("/console/act/");
    action.map_or_else(|| PAGES.iter().any(is_of), |name| actions::find(name).is_some())
}

/// All pages. Those with an entry in the menu, or among the tabs of a section, stand in its order.
pub(super) static PAGES: &[Page] = &[
    Page::new("/console/", Read, overview::show).menu(|t| t.overview),
    Page::new("/console/start", Admin, start::show),
    Page::new("/console/search", Read, events::search),
    Page::new("/console/events", Read, events::events).menu(|t| t.events),
    Page::new("/console/events/types", Read, events::types).menu(|t| t.event_types).still(),
    Page::new("/console/events/types/{name}", Read, events::event_type).still(),
    Page::new("/console/events/{id}", Read, event::event),
    Page::new("/console/events/{id}/payload", Read, event::payload).still(),
    Page::new("/console/events/{id}/support", Read, event::support).still(),
    Page::new("/console/webhooks", Read, events::received).menu(|t| t.received),
    Page::new("/console/webhooks/{id}", Read, event::webhook),
    Page::new("/console/deliveries", Read, events::deliveries).menu(|t| t.deliveries),
    Page::new("/console/deliveries/{id}", Read, delivery::show),
    // A list with boxes is not replaced under the hands.
    Page::new("/console/dead-letters", Read, dead_letters::list).menu(|t| t.dead_letters).still(),
    Page::new("/console/jobs", Read, dead_letters::jobs),
    Page::new("/console/jobs/{id}", Read, dead_letters::job),
    Page::new("/console/lanes", Read, lanes::list).menu(|t| t.lanes),
    Page::new("/console/lanes/{id}", Read, lanes::one),
    Page::new("/console/subscriptions", Read, subscriptions::list).menu(|t| t.subscriptions),
    Page::new("/console/subscriptions/{id}", Read, subscriptions::one),
    Page::new("/console/subscriptions/tests/{id}", Read, subscriptions::test),
    Page::new("/console/sources", Read, sources::list).menu(|t| t.sources),
    Page::new("/console/sources/{name}", Read, sources::one).still(),
    Page::new("/console/providers/{name}", Read, sources::provider).still(),
    Page::new("/console/providers/{name}/reconciliations/{id}", Read, reconciliations::one),
    Page::new("/console/alerts", Read, alerts::show).menu(|t| t.alerts),
    Page::new("/console/audit", Admin, audit::entries).menu(|t| t.audit),
    Page::new("/console/audit/{seq}", Admin, audit::entry).still(),
    Page::new("/console/settings", Read, settings::show).menu(|t| t.settings).still(),
    Page::new("/console/settings/my-sessions", Read, access::own_sessions)
        .menu(|t| t.own_sessions)
        .still(),
    Page::new("/console/settings/users", Admin, access::users).menu(|t| t.users).still(),
    Page::new("/console/settings/sessions", Admin, access::all_sessions)
        .menu(|t| t.all_sessions)
        .still(),
    Page::new("/console/settings/tokens", Admin, access::tokens).menu(|t| t.tokens).still(),
    Page::new("/console/settings/tenants", Box, access::tenants).menu(|t| t.tenants).still(),
    Page::new("/console/settings/in-force", Box, settings::in_force).menu(|t| t.in_force).still(),
    Page::new("/console/settings/databases", Box, databases::list).menu(|t| t.databases).still(),
    Page::new("/console/settings/backups", Box, settings::backups).menu(|t| t.backups).still(),
    Page::new("/console/settings/backups/{name}", Box, settings::backup).still(),
];

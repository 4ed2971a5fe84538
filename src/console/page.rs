//! What a page is: its place, its right, its content.

use maud::Markup;

use crate::console::error::PageError;
use crate::console::texts::Texts;
use crate::console::view::View;
use crate::model::token::Right;

/// A page: its path, who may see it, and what makes it.
pub(super) struct Page {
    /// The path; `{…}` are variable parts.
    pub(super) path: &'static str,
    /// Its entry in the menu, if it has one; below the first page of its section, among the section's tabs.
    pub(super) menu: Option<fn(&Texts) -> &'static str>,
    /// What a person's role must allow.
    pub(super) right: Right,
    /// Whether it is refreshed while it is looked at.
    pub(super) is_live: bool,
    /// Reads and renders it.
    pub(super) show: fn(&View<'_>) -> Result<Content, PageError>,
}

impl Page {
    /// A page that is refreshed, without an entry in the menu.
    pub(super) const fn new(
        path: &'static str,
        right: Right,
        show: fn(&View<'_>) -> Result<Content, PageError>,
    ) -> Self {
        Self { path, menu: None, right, is_live: true, show }
    }

    /// Gives it an entry in the menu.
    pub(super) const fn menu(mut self, name: fn(&Texts) -> &'static str) -> Self {
        self.menu = Some(name);
        self
    }

    /// The first part of the path below `/console/`: pages of one section share an entry in the menu.
    pub(super) fn section(&self) -> &'static str {
        self.path.trim_start_matches("/console/").split('/').next().unwrap_or_default()
    }

    /// Whether it is the first page of its section.
    pub(super) fn is_first(&self) -> bool {
        self.path.matches('/').count() == 2
    }
}

/// The content of a page.
pub(super) struct Content {
    /// Says where one is; also the heading.
    pub(super) title: String,
    /// Below the heading.
    pub(super) body: Markup,
    /// Whether it shows what goes on: it is refreshed each second, without JavaScript too.
    pub(super) is_running: bool,
}

impl Content {
    pub(super) fn new(title: impl Into<String>, body: Markup) -> Self {
        Self { title: title.into(), body, is_running: false }
    }
}

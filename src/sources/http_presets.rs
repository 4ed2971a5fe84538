//! The terms of lists that providers document: one row of a table for each.
//!
//! Only what a public document of the provider says stands here. Not here: terms that a person gives
//! ([`super::http_settings`]).

use crate::base::words::words;

words! {
    /// Whose list is read.
    #[derive(Default)]
    pub enum ListPreset as "ListPreset" {
        /// Any list: all terms are in the settings.
        #[default]
        Json = "json",
        /// The events of a Stripe account.
        Stripe = "stripe",
    }
}

words! {
    /// The form of a time in a query.
    pub enum SinceForm {
        /// Whole seconds since 1970.
        UnixSeconds = "unix_seconds",
        /// Milliseconds since 1970.
        UnixMs = "unix_ms",
        /// `2026-01-31T12:00:00.000Z`.
        Rfc3339 = "rfc3339",
    }
}

/// The terms of a preset; each can be replaced in the settings of a source.
#[derive(Debug)]
pub(super) struct PresetTerms {
    /// The first page.
    pub(super) url: Option<&'static str>,
    /// The path of the list in an answer.
    pub(super) items: Option<&'static str>,
    /// The paths of an item's id.
    pub(super) id: &'static [&'static str],
    /// The path of an item's time.
    pub(super) time: Option<&'static str>,
    /// How the next page is found.
    pub(super) next: PresetNext,
    /// How only items since a time are asked for: the parameter and its form.
    pub(super) since: Option<PresetSince>,
    /// Whether nothing is read before a credential was set.
    pub(super) needs_credential: bool,
    /// Whether items are webhooks of a provider and need one.
    pub(super) needs_provider: bool,
}

/// How a preset finds the next page.
#[derive(Clone, Copy, Debug)]
pub(super) enum PresetNext {
    /// There is one page.
    None,
    /// The id of the last item, while a member of the answer is true.
    LastItem { path: &'static str, parameter: &'static str, more: &'static str },
}

/// How a preset asks for items since a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PresetSince {
    pub(super) parameter: &'static str,
    pub(super) form: SinceForm,
}

static JSON: PresetTerms = PresetTerms {
    url: None,
    items: None,
    id: &[],
    time: None,
    next: PresetNext::None,
    since: None,
    needs_credential: false,
    needs_provider: false,
};

/// Source: <https://docs.stripe.com/api/events/list> and <https://docs.stripe.com/api/pagination>. The newest come first; `limit`
/// is 1 to 100; events are listed for 30 days.
static STRIPE: PresetTerms = PresetTerms {
    url: Some("https://api.stripe.com/v1/events?limit=100"),
    items: Some("/data"),
    id: &["/id"],
    time: Some("/created"),
    next: PresetNext::LastItem { path: "/id", parameter: "starting_after", more: "/has_more" },
    since: Some(PresetSince { parameter: "created[gte]", form: SinceForm::UnixSeconds }),
    needs_credential: true,
    needs_provider: true,
};

impl ListPreset {
    /// Its terms.
    pub(super) fn terms(self) -> &'static PresetTerms {
        match self {
            Self::Json => &JSON,
            Self::Stripe => &STRIPE,
        }
    }
}

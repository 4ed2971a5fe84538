//! What a person can do: one entry for each route of the API that a button or a form calls.

use crate::console::texts::Texts;
use crate::http::message::Method::{self, Post};
use crate::model::token::Right::{self, Operate};

type Text = fn(&Texts) -> &'static str;

/// An action and its form.
#[derive(Debug)]
pub(super) struct Action {
    /// The last part of its path in the console.
    pub(super) name: &'static str,
    /// Its button, and the heading of its form.
    pub(super) label: Text,
    /// What it does.
    pub(super) about: Text,
    /// What it needs.
    pub(super) right: Right,
    /// The route of the API.
    pub(super) method: Method,
    /// Its path. `{id}` is the form's field of that name.
    pub(super) path: &'static str,
    /// What can be filled in.
    pub(super) fields: &'static [Field],
    /// Whether a page shows first what it will do.
    pub(super) asks: Asks,
    /// What follows.
    pub(super) then: Then,
}

/// Whether a page comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// No: the button acts.
    No,
    /// A page with the form; it says what is touched.
    First,
    /// The same, with the answer of the API to `"dry_run": true`.
    DryRun,
}

/// What follows an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The page that it came from.
    Back,
    /// A page with the answer: what was tested, or a secret that is shown this once.
    Answer,
}

/// A field of a form.
#[derive(Debug)]
pub(super) struct Field {
    /// Its path in the JSON body: `reason`, `filter.subscription`.
    pub(super) name: &'static str,
    pub(super) label: Text,
    pub(super) kind: Kind,
    pub(super) is_required: bool,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    /// Many lines of text, sent as they are.
    Lines,
    /// JSON.
    Json,
    Number,
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A time in RFC 3339.
    Time,
    /// A list: one entry a line.
    List,
    /// A text that is not shown while it is typed.
    Secret,
}

const fn field(name: &'static str, label: Text, kind: Kind) -> Field {
    Field { name, label, kind, is_required: false }
}

const fn required(name: &'static str, label: Text, kind: Kind) -> Field {
    Field { name, label, kind, is_required: true }
}

impl Action {
    const fn new(
        name: &'static str,
        (label, about): (Text, Text),
        right: Right,
        (method, path): (Method, &'static str),
    ) -> Self {
        Self {
            name,
            label,
            about,
            right,
            method,
            path,
            fields: &[],
            asks: Asks::No,
            then: Then::Back,
        }
    }

    const fn fields(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self
    }

    /// Shows the form first.
    const fn asks(mut self, asks: Asks) -> Self {
        self.asks = asks;
        self
    }

    /// Shows the answer afterwards.
    const fn answers(mut self) -> Self {
        self.then = Then::Answer;
        self
    }

    pub(super) fn asks_first(&self) -> bool {
        self.asks != Asks::No
    }

    /// What the page says after it.
    pub(super) fn done(&self, t: &Texts) -> String {
        format!("{}: {}", (self.label)(t), t.done)
    }
}

const REASON: Field = field("reason", |t| t.reason, Kind::Text);

pub(super) const REPLAY_EVENT: Action = Action::new(
    "replay-event",
    (|t| t.replay, |t| t.replay_about),
    Operate,
    (Post, "/v1/events/{id}/replay"),
)
.fields(&[field("subscription", |t| t.only_subscription, Kind::Text)])
.asks(Asks::First);

pub(super) const CANCEL_EVENT: Action = Action::new(
    "cancel-event",
    (|t| t.cancel, |t| t.cancel_about),
    Operate,
    (Post, "/v1/events/{id}/cancel"),
)
.asks(Asks::First);

pub(super) const REPLAY_WEBHOOK: Action = Action::new(
    "replay-webhook",
    (|t| t.replay, |t| t.replay_about),
    Operate,
    (Post, "/v1/webhook-events/{id}/replay"),
)
.fields(&[field("subscription", |t| t.only_subscription, Kind::Text)])
.asks(Asks::First);

pub(super) const RETRY_DELIVERY: Action = Action::new(
    "retry-delivery",
    (|t| t.retry, |t| t.retry_about),
    Operate,
    (Post, "/v1/deliveries/{id}/retry"),
);

pub(super) const CANCEL_DELIVERY: Action = Action::new(
    "cancel-delivery",
    (|t| t.cancel, |t| t.cancel_about),
    Operate,
    (Post, "/v1/deliveries/{id}/cancel"),
)
.asks(Asks::First);

pub(super) const EDIT_AND_RESEND: Action = Action::new(
    "edit-and-resend",
    (|t| t.edit_and_resend, |t| t.edit_and_resend_about),
    Operate,
    (Post, "/v1/deliveries/{id}/edit-and-resend"),
)
.fields(&[required("payload", |t| t.payload, Kind::Json)])
.asks(Asks::First);

/// An action on a delivery that takes a reason.
const fn of_delivery(name: &'static str, texts: (Text, Text), path: &'static str) -> Action {
    Action::new(name, texts, Operate, (Post, path)).fields(&[REASON]).asks(Asks::First)
}

pub(super) const PARK: Action =
    of_delivery("park", (|t| t.park, |t| t.park_about), "/v1/deliveries/{id}/park");
pub(super) const SKIP: Action =
    of_delivery("skip", (|t| t.skip, |t| t.skip_about), "/v1/deliveries/{id}/skip");
pub(super) const RELEASE: Action =
    of_delivery("release", (|t| t.release, |t| t.release_about), "/v1/deliveries/{id}/release");
pub(super) const MOVE_TO_END: Action = of_delivery(
    "move-to-end",
    (|t| t.move_to_end, |t| t.move_to_end_about),
    "/v1/deliveries/{id}/move-to-end",
);

/// All actions.
pub(super) static ACTIONS: &[&Action] = &[
    &REPLAY_EVENT,
    &CANCEL_EVENT,
    &REPLAY_WEBHOOK,
    &RETRY_DELIVERY,
    &CANCEL_DELIVERY,
    &EDIT_AND_RESEND,
    &PARK,
    &SKIP,
    &RELEASE,
    &MOVE_TO_END,
];

/// The action of a name.
pub(super) fn find(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().copied().find(|action| action.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::routes;

    #[test]
    fn each_action_is_a_route_of_the_api_with_the_same_right() {
        for action in ACTIONS {
            let route =
                routes().find(|route| route.path == action.path && route.method == action.method);
            assert_eq!(route.map(|route| route.right), Some(Some(action.right)), "{action:?}");
        }
        let names: BTreeSet<&str> = ACTIONS.iter().map(|action| action.name).collect();
        assert_eq!(names.len(), ACTIONS.len(), "names are unique");
    }
}

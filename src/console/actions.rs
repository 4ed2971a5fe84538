//! What a person can do: one entry for each route of the API that a button or a form calls.

use crate::console::texts::Texts;
use crate::http::message::Method::{self, Delete, Patch, Post};
use crate::model::token::Right::{self, Admin, Operate, Read};

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
    /// A page with the answer: a secret that is shown this once.
    Answer,
    /// The list of this name; with an id in the answer, the page of the new thing.
    Leads(&'static str),
}

/// A field of a form.
#[derive(Clone, Copy, Debug)]
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
    /// Many lines of text, sent byte for byte as base64.
    Bytes,
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A time in RFC 3339.
    Time,
    /// A list: one entry a line.
    List,
    /// A text that is not shown while it is typed.
    Secret,
    /// Not a field of the form: it is always `true`.
    Always,
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

    /// Shows a list, or the new thing of it, afterwards.
    const fn leads_to(mut self, list: &'static str) -> Self {
        self.then = Then::Leads(list);
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
.fields(&[required("payload_base64", |t| t.payload, Kind::Bytes)])
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

// Dead letters and jobs.

const FILTER: [Field; 4] = [
    field("filter.subscription", |t| t.subscription, Kind::Text),
    field("filter.class", |t| t.result, Kind::Text),
    field("filter.code", |t| t.answer, Kind::Number),
    field("filter.ids", |t| t.only_these, Kind::List),
];
const RATE: Field = field("rate", |t| t.rate, Kind::Number);

pub(super) const REPLAY_DEAD: Action = Action::new(
    "replay-dead-letters",
    (|t| t.replay, |t| t.replay_dead_about),
    Operate,
    (Post, "/v1/dead-letters/replay"),
)
.fields(&[FILTER[0], FILTER[1], FILTER[2], FILTER[3], RATE])
.asks(Asks::DryRun)
.leads_to("jobs");

pub(super) const DISCARD_DEAD: Action = Action::new(
    "discard-dead-letters",
    (|t| t.discard, |t| t.discard_dead_about),
    Operate,
    (Post, "/v1/dead-letters/discard"),
)
.fields(&[FILTER[0], FILTER[1], FILTER[2], FILTER[3], required("reason", |t| t.reason, Kind::Text)])
.asks(Asks::DryRun)
.leads_to("jobs");

/// Only what was picked: an empty pick is refused, and never means all.
const PICKED: Field = required("filter.ids", |t| t.only_these, Kind::List);

pub(super) const REPLAY_PICKED: Action =
    Action { name: "replay-picked", fields: &[PICKED, RATE], ..REPLAY_DEAD };

pub(super) const DISCARD_PICKED: Action = Action {
    name: "discard-picked",
    fields: &[PICKED, required("reason", |t| t.reason, Kind::Text)],
    ..DISCARD_DEAD
};

pub(super) const CANCEL_JOB: Action = Action::new(
    "cancel-job",
    (|t| t.cancel, |t| t.cancel_job_about),
    Operate,
    (Post, "/v1/jobs/{id}/cancel"),
)
.asks(Asks::First);

// Subscriptions and credentials.

const URL: Field = required("url", |t| t.url, Kind::Text);
const TYPES: Field = field("event_types", |t| t.event_types_lines, Kind::List);

pub(super) const CREATE_SUBSCRIPTION: Action = Action::new(
    "create-subscription",
    (|t| t.create_subscription, |t| t.create_subscription_about),
    Admin,
    (Post, "/v1/subscriptions"),
)
.fields(&[required("name", |t| t.name, Kind::Text), URL, TYPES])
.asks(Asks::First)
.answers();

pub(super) const CHANGE_SUBSCRIPTION: Action = Action::new(
    "change-subscription",
    (|t| t.change, |t| t.change_subscription_about),
    Admin,
    (Patch, "/v1/subscriptions/{id}"),
)
.fields(&[URL, TYPES])
.asks(Asks::First);

pub(super) const DELETE_SUBSCRIPTION: Action = Action::new(
    "delete-subscription",
    (|t| t.delete, |t| t.delete_subscription_about),
    Admin,
    (Delete, "/v1/subscriptions/{id}"),
)
.asks(Asks::First)
.leads_to("subscriptions");

pub(super) const PAUSE: Action = Action::new(
    "pause-subscription",
    (|t| t.pause, |t| t.pause_about),
    Operate,
    (Post, "/v1/subscriptions/{id}/pause"),
);

pub(super) const RESUME: Action = Action::new(
    "resume-subscription",
    (|t| t.resume, |t| t.resume_about),
    Operate,
    (Post, "/v1/subscriptions/{id}/resume"),
);

pub(super) const TEST: Action = Action::new(
    "test-subscription",
    (|t| t.test, |t| t.test_about),
    Operate,
    (Post, "/v1/subscriptions/{id}/test"),
)
.fields(&[field("background", |t| t.test, Kind::Always)])
.leads_to("subscriptions/tests");

pub(super) const RECOVER: Action = Action::new(
    "recover-subscription",
    (|t| t.recover, |t| t.recover_about),
    Operate,
    (Post, "/v1/subscriptions/{id}/recover"),
)
.fields(&[
    required("since", |t| t.since, Kind::Time),
    field("until", |t| t.until, Kind::Time),
    RATE,
])
.asks(Asks::DryRun)
.leads_to("jobs");

pub(super) const REPLAY_SINCE: Action = Action::new(
    "replay-events",
    (|t| t.replay_since, |t| t.replay_since_about),
    Operate,
    (Post, "/v1/events/replay"),
)
.fields(&[
    required("filter.subscription", |t| t.subscription, Kind::Text),
    required("filter.since", |t| t.since, Kind::Time),
    field("filter.until", |t| t.until, Kind::Time),
    field("filter.event_type", |t| t.event_type, Kind::Text),
    RATE,
])
.asks(Asks::DryRun)
.leads_to("jobs");

pub(super) const ROTATE: Action = Action::new(
    "rotate-credential",
    (|t| t.rotate, |t| t.rotate_about),
    Admin,
    (Post, "/v1/credentials/{id}/rotate"),
)
.fields(&[field("secret", |t| t.new_secret, Kind::Secret), REASON])
.asks(Asks::First)
.answers();

pub(super) const REVOKE: Action = Action::new(
    "revoke-credential",
    (|t| t.revoke, |t| t.revoke_about),
    Admin,
    (Post, "/v1/credentials/{id}/revoke"),
)
.asks(Asks::First);

// Sources.

pub(super) const PAUSE_SOURCE: Action = Action::new(
    "pause-source",
    (|t| t.pause, |t| t.pause_source_about),
    Operate,
    (Post, "/v1/sources/{name}/pause"),
);

pub(super) const RESUME_SOURCE: Action = Action::new(
    "resume-source",
    (|t| t.resume, |t| t.resume_about),
    Operate,
    (Post, "/v1/sources/{name}/resume"),
);

pub(super) const RESET_SOURCE: Action = Action::new(
    "reset-source",
    (|t| t.reset, |t| t.reset_about),
    Operate,
    (Post, "/v1/sources/{name}/reset"),
)
.fields(&[
    field("cursor", |t| t.cursor, Kind::Number),
    field("from", |t| t.read_from, Kind::Choice(&["start", "now"])),
])
.asks(Asks::First);

// Alerts.

pub(super) const ACKNOWLEDGE: Action = Action::new(
    "acknowledge",
    (|t| t.acknowledge, |t| t.acknowledge_about),
    Operate,
    (Post, "/v1/escalations/{id}/acknowledge"),
);

pub(super) const CREATE_CHANNEL: Action = Action::new(
    "create-channel",
    (|t| t.create_channel, |t| t.create_channel_about),
    Admin,
    (Post, "/v1/alert-channels"),
)
.fields(&[
    required("name", |t| t.name, Kind::Text),
    required("kind", |t| t.kind, Kind::Choice(&["slack", "webhook", "email", "command"])),
    field("url", |t| t.url, Kind::Text),
    field("to", |t| t.mail_to, Kind::List),
    field("command", |t| t.command, Kind::Text),
    field("severity", |t| t.severity, Kind::Choice(&["info", "warning", "critical"])),
])
.asks(Asks::First)
.answers();

pub(super) const TEST_CHANNEL: Action = Action::new(
    "test-channel",
    (|t| t.test, |t| t.test_channel_about),
    Operate,
    (Post, "/v1/alert-channels/{name}/test"),
);

pub(super) const DELETE_CHANNEL: Action = Action::new(
    "delete-channel",
    (|t| t.delete, |t| t.delete_channel_about),
    Admin,
    (Delete, "/v1/alert-channels/{name}"),
)
.asks(Asks::First);

// Users, sessions, tokens.

const ROLES: Kind = Kind::Choice(&["read", "operate", "admin"]);

pub(super) const CREATE_USER: Action = Action::new(
    "create-user",
    (|t| t.create_user, |t| t.create_user_about),
    Admin,
    (Post, "/v1/users"),
)
.fields(&[
    required("name", |t| t.user_name, Kind::Text),
    required("role", |t| t.role, ROLES),
    field("password", |t| t.password, Kind::Secret),
])
.asks(Asks::First);

pub(super) const CHANGE_USER: Action = Action::new(
    "change-user",
    (|t| t.change, |t| t.change_user_about),
    Admin,
    (Patch, "/v1/users/{name}"),
)
.fields(&[field("role", |t| t.role, ROLES), field("password", |t| t.password, Kind::Secret)])
.asks(Asks::First);

pub(super) const DELETE_USER: Action = Action::new(
    "delete-user",
    (|t| t.delete, |t| t.delete_user_about),
    Admin,
    (Delete, "/v1/users/{name}"),
)
.asks(Asks::First);

pub(super) const USER_LINK: Action = Action::new(
    "user-link",
    (|t| t.make_link, |t| t.make_link_about),
    Admin,
    (Post, "/v1/users/{name}/link"),
)
.answers();

pub(super) const OWN_PASSWORD: Action = Action::new(
    "own-password",
    (|t| t.own_password, |t| t.own_password_about),
    Read,
    (Post, "/v1/users/{name}/password"),
)
.fields(&[
    required("current", |t| t.password_now, Kind::Secret),
    required("new", |t| t.password_new, Kind::Secret),
])
.asks(Asks::First);

pub(super) const END_SESSION: Action = Action::new(
    "end-session",
    (|t| t.end_session, |t| t.end_session_about),
    Admin,
    (Delete, "/v1/sessions/{id}"),
);

pub(super) const CREATE_TOKEN: Action = Action::new(
    "create-token",
    (|t| t.create_token, |t| t.create_token_about),
    Admin,
    (Post, "/v1/tokens"),
)
.fields(&[
    required("name", |t| t.name, Kind::Text),
    required("role", |t| t.role, Kind::Choice(&["publish", "read", "operate", "admin"])),
    field("source_systems", |t| t.source_systems_lines, Kind::List),
])
.asks(Asks::First)
.answers();

pub(super) const REVOKE_TOKEN: Action = Action::new(
    "revoke-token",
    (|t| t.revoke, |t| t.revoke_about),
    Admin,
    (Delete, "/v1/tokens/{id}"),
)
.asks(Asks::First);

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
    &REPLAY_DEAD,
    &DISCARD_DEAD,
    &REPLAY_PICKED,
    &DISCARD_PICKED,
    &CANCEL_JOB,
    &CREATE_SUBSCRIPTION,
    &CHANGE_SUBSCRIPTION,
    &DELETE_SUBSCRIPTION,
    &PAUSE,
    &RESUME,
    &TEST,
    &REPLAY_SINCE,
    &RECOVER,
    &ROTATE,
    &REVOKE,
    &PAUSE_SOURCE,
    &RESUME_SOURCE,
    &RESET_SOURCE,
    &ACKNOWLEDGE,
    &CREATE_CHANNEL,
    &TEST_CHANNEL,
    &DELETE_CHANNEL,
    &CREATE_USER,
    &CHANGE_USER,
    &DELETE_USER,
    &USER_LINK,
    &OWN_PASSWORD,
    &END_SESSION,
    &CREATE_TOKEN,
    &REVOKE_TOKEN,
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

//! What a person can do: one entry for each route of the API that a button or a form calls.

use crate::console::texts::Texts;
use crate::http::message::Method;
use crate::model::token::Right;

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
    /// Always this value; nobody types it.
    Is(bool),
}

const fn field(name: &'static str, label: Text, kind: Kind) -> Field {
    Field { name, label, kind, is_required: false }
}

const fn required(name: &'static str, label: Text, kind: Kind) -> Field {
    Field { name, label, kind, is_required: true }
}

impl Action {
    pub(super) fn asks_first(&self) -> bool {
        self.asks != Asks::No
    }
}

const NAME: Field = required("name", |t| t.name, Kind::Text);
const REASON: Field = field("reason", |t| t.reason, Kind::Text);
const WHY: Field = required("reason", |t| t.reason, Kind::Text);
const RATE: Field = field("rate", |t| t.rate, Kind::Number);
const ONLY: Field = field("subscription", |t| t.only_subscription, Kind::Text);
const DEAD_OF: Field = field("filter.subscription", |t| t.subscription, Kind::Text);
const CLASSES: Kind =
    Kind::Choice(&["transient", "rate_limited", "auth", "validation", "gone", "poison"]);
const DEAD_CLASS: Field = field("filter.class", |t| t.error, CLASSES);
const DEAD_CODE: Field = field("filter.code", |t| t.answer_code, Kind::Number);
const DEAD_IDS: Field = field("filter.ids", |t| t.only_these, Kind::List);
/// Only what was picked: an empty pick is refused, and never means all.
const PICKED: Field = required("filter.ids", |t| t.only_these, Kind::List);
/// Never all of them.
const OF: Field = required("filter.subscription", |t| t.subscription, Kind::Text);
const URL: Field = required("url", |t| t.url, Kind::Text);
const TYPES: Field = field("event_types", |t| t.event_types_lines, Kind::List);
const ROLES: Kind = Kind::Choice(&["read", "operate", "admin"]);
const TOKEN_ROLES: Kind = Kind::Choice(&["publish", "read", "operate", "admin"]);
const PASSWORD: Field = field("password", |t| t.password, Kind::Secret);

/// Makes each line a constant, and lists them all.
macro_rules! actions {
    ($($constant:ident = $name:literal ($label:ident, $about:ident) $right:ident $method:ident $path:literal
       [$($field:expr),*] $asks:ident $then:ident$(($list:literal))?;)*) => {
        $(pub(super) const $constant: Action = Action {
            name: $name,
            label: |t| t.$label,
            about: |t| t.$about,
            right: Right::$right,
            method: Method::$method,
            path: $path,
            fields: &[$($field),*],
            asks: Asks::$asks,
            then: Then::$then$(($list))?,
        };)*

        /// All actions.
        pub(super) static ACTIONS: &[&Action] = &[$(&$constant),*];
    };
}

// Constant = name (label, what it does), right, route, [fields], whether it asks, what follows.
actions! {
    REPLAY_EVENT = "replay-event" (replay, replay_about) Operate Post "/v1/events/{id}/replay" [ONLY] First Back;
    CANCEL_EVENT = "cancel-event" (cancel, cancel_about) Operate Post "/v1/events/{id}/cancel" [] First Back;
    REPLAY_WEBHOOK = "replay-webhook" (replay, replay_about) Operate Post "/v1/webhook-events/{id}/replay" [ONLY] First Back;
    RETRY_DELIVERY = "retry-delivery" (retry, retry_about) Operate Post "/v1/deliveries/{id}/retry" [] No Back;
    CANCEL_DELIVERY = "cancel-delivery" (cancel, cancel_about) Operate Post "/v1/deliveries/{id}/cancel" [] First Back;
    EDIT_AND_RESEND = "edit-and-resend" (edit_and_resend, edit_and_resend_about) Operate Post "/v1/deliveries/{id}/edit-and-resend"
        [required("payload_base64", |t| t.payload, Kind::Bytes)] First Back;
    PARK = "park" (park, park_about) Operate Post "/v1/deliveries/{id}/park" [REASON] First Back;
    SKIP = "skip" (skip, skip_about) Operate Post "/v1/deliveries/{id}/skip" [REASON] First Back;
    RELEASE = "release" (release, release_about) Operate Post "/v1/deliveries/{id}/release" [REASON] First Back;
    MOVE_TO_END = "move-to-end" (move_to_end, move_to_end_about) Operate Post "/v1/deliveries/{id}/move-to-end" [REASON] First Back;

    RELEASE_IN_DOUBT = "release-in-doubt" (release, release_in_doubt_about) Operate Post "/v1/deliveries/release"
        [OF, field("filter.until", |t| t.until, Kind::Time)] DryRun Back;
    SKIP_IN_DOUBT = "skip-in-doubt" (skip, skip_in_doubt_about) Operate Post "/v1/deliveries/skip"
        [OF, field("filter.until", |t| t.until, Kind::Time)] DryRun Back;

    // Dead letters and jobs.
    REPLAY_DEAD = "replay-dead-letters" (replay, replay_dead_about) Operate Post "/v1/dead-letters/replay"
        [DEAD_OF, DEAD_CLASS, DEAD_CODE, DEAD_IDS, RATE] DryRun Leads("jobs");
    DISCARD_DEAD = "discard-dead-letters" (discard, discard_dead_about) Operate Post "/v1/dead-letters/discard"
        [DEAD_OF, DEAD_CLASS, DEAD_CODE, DEAD_IDS, WHY] DryRun Leads("jobs");
    REPLAY_PICKED = "replay-picked" (replay, replay_dead_about) Operate Post "/v1/dead-letters/replay" [PICKED, RATE] DryRun Leads("jobs");
    DISCARD_PICKED = "discard-picked" (discard, discard_dead_about) Operate Post "/v1/dead-letters/discard" [PICKED, WHY] DryRun Leads("jobs");
    PAUSE_JOB = "pause-job" (pause_job, pause_job_about) Operate Post "/v1/jobs/{id}/pause" [] No Back;
    RESUME_JOB = "resume-job" (resume_job, resume_job_about) Operate Post "/v1/jobs/{id}/resume" [] No Back;
    CANCEL_JOB = "cancel-job" (cancel, cancel_job_about) Operate Post "/v1/jobs/{id}/cancel" [] First Back;

    // Subscriptions and credentials.
    CREATE_SUBSCRIPTION = "create-subscription" (create_subscription, create_subscription_about) Admin Post "/v1/subscriptions"
        [NAME, URL, TYPES] First Answer;
    CHANGE_SUBSCRIPTION = "change-subscription" (change, change_subscription_about) Admin Patch "/v1/subscriptions/{id}" [URL, TYPES] First Back;
    DELETE_SUBSCRIPTION = "delete-subscription" (delete, delete_subscription_about) Admin Delete "/v1/subscriptions/{id}"
        [] First Leads("subscriptions");
    PAUSE = "pause-subscription" (pause, pause_about) Operate Post "/v1/subscriptions/{id}/pause" [] No Back;
    RESUME = "resume-subscription" (resume, resume_about) Operate Post "/v1/subscriptions/{id}/resume" [] No Back;
    TEST = "test-subscription" (test, test_about) Operate Post "/v1/subscriptions/{id}/test"
        [field("background", |t| t.test, Kind::Is(true))] No Leads("subscriptions/tests");
    RECOVER = "recover-subscription" (recover, recover_about) Operate Post "/v1/subscriptions/{id}/recover"
        [required("since", |t| t.since, Kind::Time), field("until", |t| t.until, Kind::Time), RATE] DryRun Leads("jobs");
    REPLAY_SINCE = "replay-events" (replay_since, replay_since_about) Operate Post "/v1/events/replay"
        [
            OF,
            required("filter.since", |t| t.since, Kind::Time),
            field("filter.until", |t| t.until, Kind::Time),
            field("filter.event_type", |t| t.event_type, Kind::Text),
            RATE
        ] DryRun Leads("jobs");
    ROTATE = "rotate-credential" (rotate, rotate_about) Admin Post "/v1/credentials/{id}/rotate"
        [field("secret", |t| t.new_secret, Kind::Secret), REASON] First Answer;
    SCHEDULE = "schedule-rotation" (schedule, schedule_about) Admin Post "/v1/credentials/{id}/schedule"
        [field("every", |t| t.rotate_every, Kind::Text), field("command", |t| t.rotate_command, Kind::Text)] First Back;
    REVOKE = "revoke-credential" (revoke, revoke_about) Admin Post "/v1/credentials/{id}/revoke" [] First Back;

    // Sources and providers.
    PAUSE_SOURCE = "pause-source" (pause, pause_source_about) Operate Post "/v1/sources/{name}/pause" [] No Back;
    RESUME_SOURCE = "resume-source" (resume, resume_source_about) Operate Post "/v1/sources/{name}/resume" [] No Back;
    RESET_SOURCE = "reset-source" (reset, reset_about) Operate Post "/v1/sources/{name}/reset"
        [field("cursor", |t| t.cursor, Kind::Number), field("from", |t| t.read_from, Kind::Choice(&["start", "now"]))] First Back;

    ADD_SECRET = "add-secret" (add_secret, add_secret_about) Admin Post "/v1/providers/{name}/secrets"
        [required("secret", |t| t.new_secret, Kind::Secret)] First Back;
    WITHDRAW_SECRET = "withdraw-secret" (withdraw, withdraw_about) Admin Delete "/v1/providers/{name}/secrets/{secret_id}" [] First Back;

    // Alerts.
    ACKNOWLEDGE = "acknowledge" (acknowledge, acknowledge_about) Operate Post "/v1/escalations/{id}/acknowledge" [] No Back;
    CREATE_CHANNEL = "create-channel" (create_channel, create_channel_about) Admin Post "/v1/alert-channels"
        [
            NAME,
            required("kind", |t| t.kind, Kind::Choice(&["slack", "webhook", "email", "command"])),
            field("url", |t| t.url, Kind::Text),
            field("to", |t| t.mail_to, Kind::List),
            field("command", |t| t.command, Kind::Text),
            field("severity", |t| t.severity, Kind::Choice(&["info", "warning", "critical"]))
        ] First Answer;
    TEST_CHANNEL = "test-channel" (test, test_channel_about) Operate Post "/v1/alert-channels/{name}/test" [] No Leads("events");
    DELETE_CHANNEL = "delete-channel" (delete, delete_channel_about) Admin Delete "/v1/alert-channels/{name}" [] First Back;

    // Users, sessions, tokens.
    CREATE_USER = "create-user" (create_user, create_user_about) Admin Post "/v1/users"
        [required("name", |t| t.user_name, Kind::Text), required("role", |t| t.role, ROLES), PASSWORD] First Back;
    CHANGE_USER = "change-user" (change, change_user_about) Admin Patch "/v1/users/{name}" [field("role", |t| t.role, ROLES), PASSWORD] First Back;
    DISABLE_USER = "disable-user" (disable, disable_user_about) Admin Patch "/v1/users/{name}"
        [field("disabled", |t| t.state, Kind::Is(true))] First Back;
    ENABLE_USER = "enable-user" (enable, enable_user_about) Admin Patch "/v1/users/{name}"
        [field("disabled", |t| t.state, Kind::Is(false))] No Back;
    DELETE_USER = "delete-user" (delete, delete_user_about) Admin Delete "/v1/users/{name}" [] First Back;
    USER_LINK = "user-link" (make_link, make_link_about) Admin Post "/v1/users/{name}/link" [] No Answer;
    OWN_PASSWORD = "own-password" (own_password, own_password_about) Read Post "/v1/users/{name}/password"
        [field("current", |t| t.password_now, Kind::Secret), required("new", |t| t.password_new, Kind::Secret)] First Back;
    END_SESSION = "end-session" (end_session, end_session_about) Admin Delete "/v1/sessions/{id}" [] First Back;
    END_OWN_SESSION = "end-own-session" (end_session, end_session_about) Read Delete "/v1/me/sessions/{id}" [] No Back;
    CREATE_TOKEN = "create-token" (create_token, create_token_about) Admin Post "/v1/tokens"
        [
            NAME,
            required("role", |t| t.role, TOKEN_ROLES),
            field("source_systems", |t| t.source_systems, Kind::List),
            field("consumer_groups", |t| t.consumer_groups, Kind::List),
            field("expires_at", |t| t.valid_until, Kind::Time)
        ] First Answer;
    REVOKE_TOKEN = "revoke-token" (revoke, revoke_about) Admin Delete "/v1/tokens/{id}" [] First Back;

    // The box.
    BACK_UP = "back-up" (back_up, back_up_about) Box Post "/v1/backups" [] No Back;
    END_IN_DOUBT = "end-in-doubt" (end_in_doubt, end_in_doubt_about) Box Post "/v1/in-doubt/end" [] First Back;
}

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

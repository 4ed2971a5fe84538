//! What a person can do: one entry for each route of the API that a button or a form calls.

use crate::api::about;
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
    /// A description for people, where the API's is for programs.
    about: Option<Text>,
    /// What it needs.
    pub(super) right: Right,
    /// The route of the API.
    pub(super) method: Method,
    /// Its path. `{id}` is the form's field of that name.
    pub(super) path: &'static str,
    /// What can be filled in, in the words of [`crate::console::fields`].
    pub(super) fields: &'static str,
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
    /// The same, filled with the thing as it is: what is not touched is not sent.
    Change,
    /// A page with the answer of the API to `"dry_run": true`.
    DryRun,
    /// The form, filled with the thing as it is; then a page with the difference, which the API has checked.
    Correct,
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

impl Action {
    /// What it does: as the route says it, unless there is a text.
    pub(super) fn about(&self, t: &Texts) -> String {
        self.about
            .map_or_else(|| about(self.method, self.path).replace('`', ""), |own| own(t).to_owned())
    }

    pub(super) fn asks_first(&self) -> bool {
        self.asks != Asks::No
    }

    /// Whether its form is filled with the thing as it is.
    pub(super) fn is_filled(&self) -> bool {
        matches!(self.asks, Asks::Change | Asks::Correct)
    }

    /// How its button looks: what ends or removes something looks dangerous.
    pub(super) fn class(&self) -> &'static str {
        let ends = ["cancel", "disable", "discard", "revoke", "skip", "suspend"];
        let is_end = ends.iter().any(|verb| self.name.starts_with(verb));
        if is_end || self.method == Method::Delete { "danger" } else { "" }
    }
}

/// A text, if there is one.
macro_rules! optional {
    () => {
        None
    };
    ($text:ident) => {
        Some(|t| t.$text)
    };
}

/// Makes each line a constant, and lists them all.
macro_rules! actions {
    ($($constant:ident = $name:literal ($label:ident $(, $about:ident)?) $right:ident $method:ident $path:literal
       $fields:literal $asks:ident $then:ident$(($list:literal))?;)*) => {
        $(pub(super) const $constant: Action = Action {
            name: $name,
            label: |t| t.$label,
            about: optional!($($about)?),
            right: Right::$right,
            method: Method::$method,
            path: $path,
            fields: $fields,
            asks: Asks::$asks,
            then: Then::$then$(($list))?,
        };)*

        /// All actions.
        pub(super) static ACTIONS: &[&Action] = &[$(&$constant),*];
    };
}

// Constant = name (label, what it does if the route does not say it), right, route, fields, whether it asks, what follows.
actions! {
    REPLAY_EVENT = "replay-event" (replay, replay_about) Operate Post "/v1/events/{id}/replay" "subscription" First Back;
    CANCEL_EVENT = "cancel-event" (cancel) Operate Post "/v1/events/{id}/cancel" "" First Back;
    REPLAY_WEBHOOK = "replay-webhook" (replay, replay_about) Operate Post "/v1/webhook-events/{id}/replay" "subscription" First Back;
    RETRY_DELIVERY = "retry-delivery" (retry, retry_about) Operate Post "/v1/deliveries/{id}/retry" "" No Back;
    CANCEL_DELIVERY = "cancel-delivery" (cancel) Operate Post "/v1/deliveries/{id}/cancel" "" First Back;
    EDIT_AND_RESEND = "edit-and-resend" (edit_and_resend, edit_and_resend_about) Operate Post "/v1/deliveries/{id}/edit-and-resend"
        "payload_base64!" Correct Back;
    PARK = "park" (park) Operate Post "/v1/deliveries/{id}/park" "reason" First Back;
    SKIP = "skip" (skip) Operate Post "/v1/deliveries/{id}/skip" "reason" First Back;
    RELEASE = "release" (release) Operate Post "/v1/deliveries/{id}/release" "reason" First Back;
    MOVE_TO_END = "move-to-end" (move_to_end) Operate Post "/v1/deliveries/{id}/move-to-end" "reason" First Back;

    RELEASE_IN_DOUBT = "release-in-doubt" (release, release_in_doubt_about) Operate Post "/v1/deliveries/release"
        "filter.subscription! filter.until" DryRun Back;
    SKIP_IN_DOUBT = "skip-in-doubt" (skip) Operate Post "/v1/deliveries/skip"
        "filter.subscription! filter.until" DryRun Back;

    END_CALL = "end-external-call" (end_call) Operate Post "/v1/external-calls/{id}/end" "made! reason!" First Back;

    FIX_EVENT = "fix-event" (fix_event, fix_event_about) Operate Post "/v1/events/{id}/fix"
        "event_type payload_base64 * -payload" Correct Back;
    DISCARD_EVENT = "discard-event" (discard) Operate Post "/v1/events/{id}/discard" "reason!" First Back;

    // Event types.
    SEND_EVENT = "send-event" (send_example, send_example_about) Publish Post "/v1/events"
        "event_type! idempotency_key aggregate_type aggregate_id payload! * -payload_base64" First Leads("events");
    CREATE_EVENT_TYPE = "create-event-type" (create_event_type, create_event_type_about) Admin Put "/v1/event-types/{name}"
        "{name} description schema *" First Leads("events/types");
    CHANGE_EVENT_TYPE = "change-event-type" (change, change_event_type_about) Admin Put "/v1/event-types/{name}" "description schema *" Change Back;
    DELETE_EVENT_TYPE = "delete-event-type" (delete) Admin Delete "/v1/event-types/{name}" "" First Leads("events/types");

    // Dead letters and jobs.
    REPLAY_DEAD = "replay-dead-letters" (replay, replay_dead_about) Operate Post "/v1/dead-letters/replay"
        "filter.subscription filter.class filter.code filter.ids rate" DryRun Leads("jobs");
    DISCARD_DEAD = "discard-dead-letters" (discard) Operate Post "/v1/dead-letters/discard"
        "filter.subscription filter.class filter.code filter.ids reason!" DryRun Leads("jobs");
    REPLAY_PICKED = "replay-picked" (replay, replay_dead_about) Operate Post "/v1/dead-letters/replay" "filter.ids! rate" DryRun Leads("jobs");
    DISCARD_PICKED = "discard-picked" (discard) Operate Post "/v1/dead-letters/discard" "filter.ids! reason!" DryRun Leads("jobs");
    PAUSE_JOB = "pause-job" (pause_job) Operate Post "/v1/jobs/{id}/pause" "" No Back;
    RESUME_JOB = "resume-job" (resume_job) Operate Post "/v1/jobs/{id}/resume" "" No Back;
    CANCEL_JOB = "cancel-job" (cancel) Operate Post "/v1/jobs/{id}/cancel" "" First Back;

    // Subscriptions and credentials.
    CREATE_SUBSCRIPTION = "create-subscription" (create_subscription) Admin Post "/v1/subscriptions"
        "name! url event_types source ordering filter template * try" First Answer;
    CHANGE_SUBSCRIPTION = "change-subscription" (change) Admin Patch "/v1/subscriptions/{id}"
        "url event_types source ordering filter template * -target try" Change Back;
    DELETE_SUBSCRIPTION = "delete-subscription" (delete) Admin Delete "/v1/subscriptions/{id}"
        "" First Leads("subscriptions");
    PAUSE = "pause-subscription" (pause) Operate Post "/v1/subscriptions/{id}/pause" "" No Back;
    RESUME = "resume-subscription" (resume) Operate Post "/v1/subscriptions/{id}/resume" "" No Back;
    TEST = "test-subscription" (test, test_about) Operate Post "/v1/subscriptions/{id}/test"
        "background=true" No Leads("subscriptions/tests");
    RECOVER = "recover-subscription" (recover) Operate Post "/v1/subscriptions/{id}/recover"
        "since! until rate" DryRun Leads("jobs");
    REPLAY_SINCE = "replay-events" (replay_since, replay_since_about) Operate Post "/v1/events/replay"
        "filter.subscription! filter.since! filter.until filter.event_type rate" DryRun Leads("jobs");
    ROTATE = "rotate-credential" (rotate, rotate_about) Admin Post "/v1/credentials/{id}/rotate"
        "secret reason *" First Answer;
    SCHEDULE = "schedule-rotation" (schedule, schedule_about) Admin Post "/v1/credentials/{id}/schedule"
        "every command" First Back;
    SET_CREDENTIAL = "set-credential" (set_credential, set_credential_about) Admin Post "/v1/subscriptions/{id}/credentials"
        "kind! *" First Answer;
    REVOKE = "revoke-credential" (revoke) Admin Post "/v1/credentials/{id}/revoke" "" First Back;

    // Sources and providers.
    PAUSE_SOURCE = "pause-source" (pause) Operate Post "/v1/sources/{name}/pause" "" No Back;
    RESUME_SOURCE = "resume-source" (resume) Operate Post "/v1/sources/{name}/resume" "" No Back;
    RESET_SOURCE = "reset-source" (reset, reset_about) Operate Post "/v1/sources/{name}/reset"
        "cursor from" First Back;
    REOPEN_SOURCE = "reopen-source" (reopen, reopen_about) Operate Post "/v1/sources/{name}/reopen" "since!" First Back;
    RELEASE_SOURCE = "release-source" (release_rows, release_rows_about) Operate Post "/v1/sources/{name}/release"
        "box!" First Back;
    CREATE_SOURCE = "create-source" (create_source) Admin Post "/v1/sources" "name! kind! settings *" First Leads("sources");
    CHANGE_SOURCE = "change-source" (change) Admin Patch "/v1/sources/{name}" "settings *" Change Back;
    DELETE_SOURCE = "delete-source" (delete) Admin Delete "/v1/sources/{name}" "" First Leads("sources");

    CREATE_PROVIDER = "create-provider" (create_provider) Admin Post "/v1/providers"
        "name! scheme pii! secret * -secrets" First Leads("providers");
    CHANGE_PROVIDER = "change-provider" (change) Admin Patch "/v1/providers/{name}" "scheme pii * -secret" Change Back;
    DELETE_PROVIDER = "delete-provider" (delete) Admin Delete "/v1/providers/{name}" "" First Leads("sources");
    ADD_SECRET = "add-secret" (add_secret, add_secret_about) Admin Post "/v1/providers/{name}/secrets"
        "secret!" First Back;
    WITHDRAW_SECRET = "withdraw-secret" (withdraw) Admin Delete "/v1/providers/{name}/secrets/{secret_id}" "" First Back;

    // Alerts.
    ACKNOWLEDGE = "acknowledge" (acknowledge) Operate Post "/v1/escalations/{id}/acknowledge" "" No Back;
    CREATE_CHANNEL = "create-channel" (create_channel, create_channel_about) Admin Post "/v1/alert-channels"
        "name! kind! url to command severity *" First Answer;
    CHANGE_CHANNEL = "change-channel" (change) Admin Patch "/v1/alert-channels/{name}"
        "url to command severity *" Change Back;
    TEST_CHANNEL = "test-channel" (test) Operate Post "/v1/alert-channels/{name}/test" "" No Leads("events");
    DELETE_CHANNEL = "delete-channel" (delete) Admin Delete "/v1/alert-channels/{name}" "" First Back;

    // Users, sessions, tokens.
    CREATE_USER = "create-user" (create_user, create_user_about) Admin Post "/v1/users"
        "name! role! password *" First Back;
    CHANGE_USER = "change-user" (change, change_user_about) Admin Patch "/v1/users/{name}" "role password" Change Back;
    DISABLE_USER = "disable-user" (disable, disable_user_about) Admin Patch "/v1/users/{name}"
        "disabled=true" First Back;
    ENABLE_USER = "enable-user" (enable, enable_user_about) Admin Patch "/v1/users/{name}"
        "disabled=false" No Back;
    DELETE_USER = "delete-user" (delete) Admin Delete "/v1/users/{name}" "" First Back;
    USER_LINK = "user-link" (make_link) Admin Post "/v1/users/{name}/link" "" No Answer;
    OWN_PASSWORD = "own-password" (own_password, own_password_about) Read Post "/v1/users/{name}/password"
        "current new!" First Back;
    END_SESSION = "end-session" (end_session) Admin Delete "/v1/sessions/{id}" "" First Back;
    END_OWN_SESSION = "end-own-session" (end_session) Read Delete "/v1/me/sessions/{id}" "" No Back;
    CREATE_TOKEN = "create-token" (create_token, create_token_about) Admin Post "/v1/tokens"
        "name! role! source_systems consumer_groups expires_at *" First Answer;
    REVOKE_TOKEN = "revoke-token" (revoke) Admin Delete "/v1/tokens/{id}" "" First Back;

    // The box.
    CREATE_TENANT = "create-tenant" (create_tenant, create_tenant_about) Box Post "/v1/tenants" "name! title pii!" First Back;
    CHANGE_TENANT = "change-tenant" (change) Box Patch "/v1/tenants/{name}" "title pii" Change Back;
    SUSPEND_TENANT = "suspend-tenant" (suspend_tenant) Box Post "/v1/tenants/{name}/suspend" "" First Back;
    RESUME_TENANT = "resume-tenant" (resume) Box Post "/v1/tenants/{name}/resume" "" No Back;
    TEST_DATABASE = "test-database" (test, test_database_about) Box Post "/v1/databases/{name}/test" "" No Answer;
    BACK_UP = "back-up" (back_up) Box Post "/v1/backups" "" No Back;
    VERIFY_BACKUP = "verify-backup" (verify) Box Post "/v1/backups/{name}/verify" "" No Back;
    END_IN_DOUBT = "end-in-doubt" (end_in_doubt) Box Post "/v1/in-doubt/end" "" First Back;
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

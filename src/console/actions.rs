//! What a person can do: one entry for each route of the API that a button or a form calls.

use crate::api::about;
use crate::console::form_entry::{
    FormEntry, OTHERS, always, field, later, new_secret, of_path, receivers, required, without,
};
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
    /// The fields of its form.
    pub(super) fields: &'static [FormEntry],
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
    /// A page with what a comparison found.
    Comparison,
    /// The list of this name; with an id in the answer, the page of the new thing.
    Leads(&'static str),
}

impl Action {
    /// What it does: as the route says it, unless there is a text.
    pub(super) fn description(&self, t: &Texts) -> String {
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

/// Makes each line a constant, and lists them all.
macro_rules! actions {
    ($($constant:ident = $action:expr;)*) => {
        $(pub(super) const $constant: Action = $action;)*

        /// All actions.
        pub(super) static ACTIONS: &[&Action] = &[$(&$constant),*];
    };
}

/// An action, called with its button. The route gives the rest but for what the methods below add.
const fn action(name: &'static str, label: Text) -> Action {
    Action {
        name,
        label,
        about: None,
        right: Right::Box,
        method: Method::Post,
        path: "",
        fields: &[],
        asks: Asks::No,
        then: Then::Back,
    }
}

impl Action {
    const fn about(self, text: Text) -> Self {
        Self { about: Some(text), ..self }
    }

    const fn route(self, right: Right, method: Method, path: &'static str) -> Self {
        Self { right, method, path, ..self }
    }

    const fn fields(self, fields: &'static [FormEntry]) -> Self {
        Self { fields, ..self }
    }

    const fn asks(self, asks: Asks) -> Self {
        Self { asks, ..self }
    }

    const fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}

actions! {
    REPLAY_EVENT = action("replay-event", |t| t.replay)
        .about(|t| t.replay_about)
        .route(Right::Operate, Method::Post, "/v1/events/{id}/replay")
        .fields(&[receivers("subscriptions")])
        .asks(Asks::First);
    CANCEL_EVENT = action("cancel-event", |t| t.cancel)
        .route(Right::Operate, Method::Post, "/v1/events/{id}/cancel")
        .asks(Asks::First);
    REPLAY_WEBHOOK = action("replay-webhook", |t| t.replay)
        .about(|t| t.replay_about)
        .route(Right::Operate, Method::Post, "/v1/webhook-events/{id}/replay")
        .fields(&[receivers("subscriptions")])
        .asks(Asks::First);
    RETRY_DELIVERY = action("retry-delivery", |t| t.retry)
        .about(|t| t.retry_about)
        .route(Right::Operate, Method::Post, "/v1/deliveries/{id}/retry");
    CANCEL_DELIVERY = action("cancel-delivery", |t| t.cancel)
        .route(Right::Operate, Method::Post, "/v1/deliveries/{id}/cancel")
        .asks(Asks::First);
    EDIT_AND_RESEND = action("edit-and-resend", |t| t.edit_and_resend)
        .about(|t| t.edit_and_resend_about)
        .route(Right::Operate, Method::Post, "/v1/deliveries/{id}/edit-and-resend")
        .fields(&[required("payload_base64")])
        .asks(Asks::Correct);
    PARK = action("park", |t| t.park)
        .route(Right::Operate, Method::Post, "/v1/deliveries/{id}/park")
        .fields(&[field("reason")])
        .asks(Asks::First);
    SKIP = action("skip", |t| t.skip)
        .route(Right::Operate, Method::Post, "/v1/deliveries/{id}/skip")
        .fields(&[field("reason")])
        .asks(Asks::First);
    RELEASE = action("release", |t| t.release)
        .route(Right::Operate, Method::Post, "/v1/deliveries/{id}/release")
        .fields(&[field("reason")])
        .asks(Asks::First);
    MOVE_TO_END = action("move-to-end", |t| t.move_to_end)
        .route(Right::Operate, Method::Post, "/v1/deliveries/{id}/move-to-end")
        .fields(&[field("reason")])
        .asks(Asks::First);

    RELEASE_IN_DOUBT = action("release-in-doubt", |t| t.release)
        .about(|t| t.release_in_doubt_about)
        .route(Right::Operate, Method::Post, "/v1/deliveries/release")
        .fields(&[required("filter.subscription"), field("filter.until")])
        .asks(Asks::DryRun);
    SKIP_IN_DOUBT = action("skip-in-doubt", |t| t.skip)
        .route(Right::Operate, Method::Post, "/v1/deliveries/skip")
        .fields(&[required("filter.subscription"), field("filter.until")])
        .asks(Asks::DryRun);

    END_CALL = action("end-external-call", |t| t.end_call)
        .route(Right::Operate, Method::Post, "/v1/external-calls/{id}/end")
        .fields(&[required("made"), required("reason")])
        .asks(Asks::First);

    FIX_EVENT = action("fix-event", |t| t.fix_event)
        .about(|t| t.fix_event_about)
        .route(Right::Operate, Method::Post, "/v1/events/{id}/fix")
        .fields(&[field("event_type"), field("payload_base64"), OTHERS, without("payload")])
        .asks(Asks::Correct);
    DISCARD_EVENT = action("discard-event", |t| t.discard)
        .route(Right::Operate, Method::Post, "/v1/events/{id}/discard")
        .fields(&[required("reason")])
        .asks(Asks::First);

    // Event types.
    SEND_EVENT = action("send-event", |t| t.send_example)
        .about(|t| t.send_example_about)
        .route(Right::Publish, Method::Post, "/v1/events")
        .fields(&[
            required("event_type"), field("idempotency_key"), field("aggregate_type"),
            field("aggregate_id"), required("payload"), OTHERS, without("payload_base64"),
        ])
        .asks(Asks::First)
        .then(Then::Leads("events"));
    CREATE_EVENT_TYPE = action("create-event-type", |t| t.create_event_type)
        .about(|t| t.create_event_type_about)
        .route(Right::Admin, Method::Put, "/v1/event-types/{name}")
        .fields(&[of_path("name"), field("description"), field("schema"), OTHERS, field("what_if")])
        .asks(Asks::First)
        .then(Then::Leads("events/types"));
    CHANGE_EVENT_TYPE = action("change-event-type", |t| t.change)
        .about(|t| t.change_event_type_about)
        .route(Right::Admin, Method::Put, "/v1/event-types/{name}")
        .fields(&[field("description"), field("schema"), OTHERS, field("what_if")])
        .asks(Asks::Change);
    DELETE_EVENT_TYPE = action("delete-event-type", |t| t.delete)
        .route(Right::Admin, Method::Delete, "/v1/event-types/{name}")
        .asks(Asks::First)
        .then(Then::Leads("events/types"));

    // Dead letters and jobs.
    REPLAY_DEAD = action("replay-dead-letters", |t| t.replay_all)
        .about(|t| t.replay_dead_about)
        .route(Right::Operate, Method::Post, "/v1/dead-letters/replay")
        .fields(&[
            field("filter.subscription"), field("filter.class"), field("filter.code"),
            field("filter.answer"), field("filter.ids"), field("rate"),
        ])
        .asks(Asks::DryRun)
        .then(Then::Leads("jobs"));
    DISCARD_DEAD = action("discard-dead-letters", |t| t.discard)
        .route(Right::Operate, Method::Post, "/v1/dead-letters/discard")
        .fields(&[
            field("filter.subscription"), field("filter.class"), field("filter.code"),
            field("filter.answer"), field("filter.ids"), required("reason"),
        ])
        .asks(Asks::DryRun)
        .then(Then::Leads("jobs"));
    REPLAY_PICKED = action("replay-picked", |t| t.replay)
        .about(|t| t.replay_dead_about)
        .route(Right::Operate, Method::Post, "/v1/dead-letters/replay")
        .fields(&[required("filter.ids"), field("rate")])
        .asks(Asks::DryRun)
        .then(Then::Leads("jobs"));
    DISCARD_PICKED = action("discard-picked", |t| t.discard)
        .route(Right::Operate, Method::Post, "/v1/dead-letters/discard")
        .fields(&[required("filter.ids"), required("reason")])
        .asks(Asks::DryRun)
        .then(Then::Leads("jobs"));
    PAUSE_JOB = action("pause-job", |t| t.pause_job)
        .route(Right::Operate, Method::Post, "/v1/jobs/{id}/pause");
    RESUME_JOB = action("resume-job", |t| t.resume_job)
        .route(Right::Operate, Method::Post, "/v1/jobs/{id}/resume");
    CANCEL_JOB = action("cancel-job", |t| t.cancel)
        .route(Right::Operate, Method::Post, "/v1/jobs/{id}/cancel")
        .asks(Asks::First);

    // Subscriptions and credentials.
    CREATE_SUBSCRIPTION = action("create-subscription", |t| t.create_subscription)
        .route(Right::Admin, Method::Post, "/v1/subscriptions")
        .fields(&[
            required("name"), field("target"), field("url"), field("event_types"), OTHERS, field("try"), field("what_if"),
        ])
        .asks(Asks::First)
        .then(Then::Answer);
    CHANGE_SUBSCRIPTION = action("change-subscription", |t| t.change)
        .route(Right::Admin, Method::Patch, "/v1/subscriptions/{id}")
        .fields(&[
            field("url"), field("event_types"), OTHERS, without("target"), field("try"), field("what_if"),
        ])
        .asks(Asks::Change);
    DELETE_SUBSCRIPTION = action("delete-subscription", |t| t.delete)
        .route(Right::Admin, Method::Delete, "/v1/subscriptions/{id}")
        .asks(Asks::First)
        .then(Then::Leads("subscriptions"));
    PAUSE = action("pause-subscription", |t| t.pause)
        .route(Right::Operate, Method::Post, "/v1/subscriptions/{id}/pause");
    RESUME = action("resume-subscription", |t| t.resume)
        .route(Right::Operate, Method::Post, "/v1/subscriptions/{id}/resume");
    COMPARE = action("compare-subscription", |t| t.compare)
        .about(|t| t.compare_about)
        .route(Right::Operate, Method::Post, "/v1/subscriptions/{id}/comparison")
        .fields(&[
            required("since"), field("ids"), field("list"), later("list.next"), later("list.newer_than"), later("until"), later("next"),
        ])
        .asks(Asks::First)
        .then(Then::Comparison);
    TEST = action("test-subscription", |t| t.test)
        .about(|t| t.test_about)
        .route(Right::Operate, Method::Post, "/v1/subscriptions/{id}/test")
        .fields(&[always("background", true)])
        .then(Then::Leads("subscriptions/tests"));
    RECOVER = action("recover-subscription", |t| t.recover)
        .route(Right::Operate, Method::Post, "/v1/subscriptions/{id}/recover")
        .fields(&[required("since"), field("until"), field("rate")])
        .asks(Asks::DryRun)
        .then(Then::Leads("jobs"));
    REPLAY_SINCE = action("replay-events", |t| t.replay_since)
        .about(|t| t.replay_since_about)
        .route(Right::Operate, Method::Post, "/v1/events/replay")
        .fields(&[
            required("filter.subscription"), required("filter.since"), field("filter.until"),
            field("filter.event_type"), field("rate"),
        ])
        .asks(Asks::DryRun)
        .then(Then::Leads("jobs"));
    ROTATE = action("rotate-credential", |t| t.rotate)
        .about(|t| t.rotate_about)
        .route(Right::Admin, Method::Post, "/v1/credentials/{id}/rotate")
        .fields(&[field("secret"), field("reason"), OTHERS])
        .asks(Asks::First)
        .then(Then::Answer);
    SCHEDULE = action("schedule-rotation", |t| t.schedule)
        .about(|t| t.schedule_about)
        .route(Right::Admin, Method::Post, "/v1/credentials/{id}/schedule")
        .fields(&[field("every"), field("command")])
        .asks(Asks::First);
    SET_CREDENTIAL = action("set-credential", |t| t.set_credential)
        .about(|t| t.set_credential_about)
        .route(Right::Admin, Method::Post, "/v1/subscriptions/{id}/credentials")
        .fields(&[
            required("kind"), field("secret"), field("user"), field("header"), field("token_url"),
            field("client_id"), field("scope"), field("audience"), field("client_auth"), OTHERS,
        ])
        .asks(Asks::First)
        .then(Then::Answer);
    REVOKE = action("revoke-credential", |t| t.revoke)
        .route(Right::Admin, Method::Post, "/v1/credentials/{id}/revoke")
        .asks(Asks::First);

    // Sources and providers.
    PAUSE_SOURCE = action("pause-source", |t| t.pause)
        .route(Right::Operate, Method::Post, "/v1/sources/{name}/pause");
    RESUME_SOURCE = action("resume-source", |t| t.resume)
        .route(Right::Operate, Method::Post, "/v1/sources/{name}/resume");
    RESET_SOURCE = action("reset-source", |t| t.reset)
        .about(|t| t.reset_about)
        .route(Right::Operate, Method::Post, "/v1/sources/{name}/reset")
        .fields(&[field("cursor"), field("from")])
        .asks(Asks::First);
    REOPEN_SOURCE = action("reopen-source", |t| t.reopen)
        .about(|t| t.reopen_about)
        .route(Right::Operate, Method::Post, "/v1/sources/{name}/reopen")
        .fields(&[required("since")])
        .asks(Asks::First);
    RELEASE_SOURCE = action("release-source", |t| t.release_rows)
        .about(|t| t.release_rows_about)
        .route(Right::Operate, Method::Post, "/v1/sources/{name}/release")
        .fields(&[required("box")])
        .asks(Asks::First);
    SET_SOURCE_CREDENTIAL = action("credential-of-source", |t| t.set_credential)
        .about(|t| t.set_credential_about)
        .route(Right::Admin, Method::Post, "/v1/sources/{name}/credentials")
        .fields(&[
            required("kind"), field("secret"), field("user"), field("header"), field("token_url"),
            field("client_id"), field("scope"), field("audience"), field("client_auth"), OTHERS,
        ])
        .asks(Asks::First)
        .then(Then::Answer);
    CREATE_SOURCE = action("create-source", |t| t.create_source)
        .route(Right::Admin, Method::Post, "/v1/sources")
        .fields(&[required("name"), required("kind"), field("settings"), OTHERS])
        .asks(Asks::First)
        .then(Then::Leads("sources"));
    CHANGE_SOURCE = action("change-source", |t| t.change)
        .route(Right::Admin, Method::Patch, "/v1/sources/{name}")
        .fields(&[field("settings"), OTHERS])
        .asks(Asks::Change);
    DELETE_SOURCE = action("delete-source", |t| t.delete)
        .route(Right::Admin, Method::Delete, "/v1/sources/{name}")
        .asks(Asks::First)
        .then(Then::Leads("sources"));

    CREATE_PROVIDER = action("create-provider", |t| t.create_provider)
        .about(|t| t.create_provider_about)
        .route(Right::Admin, Method::Post, "/v1/providers")
        .fields(&[
            required("name"), field("scheme"), new_secret("secret"), required("pii"), OTHERS,
            later("scheme.repeats"), without("secrets"),
        ])
        .asks(Asks::First)
        .then(Then::Leads("providers"));
    CHANGE_PROVIDER = action("change-provider", |t| t.change)
        .route(Right::Admin, Method::Patch, "/v1/providers/{name}")
        .fields(&[field("scheme"), field("pii"), OTHERS, without("secret"), field("what_if")])
        .asks(Asks::Change);
    DELETE_PROVIDER = action("delete-provider", |t| t.delete)
        .route(Right::Admin, Method::Delete, "/v1/providers/{name}")
        .asks(Asks::First)
        .then(Then::Leads("sources"));
    RECONCILE_PROVIDER = action("reconcile-provider", |t| t.reconcile)
        .about(|t| t.reconcile_about)
        .route(Right::Operate, Method::Post, "/v1/providers/{name}/reconciliations")
        .fields(&[field("since"), field("dry_run"), field("source")])
        .asks(Asks::First);
    ADD_SECRET = action("add-secret", |t| t.add_secret)
        .about(|t| t.add_secret_about)
        .route(Right::Admin, Method::Post, "/v1/providers/{name}/secrets")
        .fields(&[required("secret")])
        .asks(Asks::First);
    WITHDRAW_SECRET = action("withdraw-secret", |t| t.withdraw)
        .route(Right::Admin, Method::Delete, "/v1/providers/{name}/secrets/{secret_id}")
        .asks(Asks::First);

    // Alerts.
    ACKNOWLEDGE = action("acknowledge", |t| t.acknowledge)
        .route(Right::Operate, Method::Post, "/v1/escalations/{id}/acknowledge");
    CREATE_CHANNEL = action("create-channel", |t| t.create_channel)
        .about(|t| t.create_channel_about)
        .route(Right::Admin, Method::Post, "/v1/alert-channels")
        .fields(&[
            required("name"), required("kind"), field("url"), field("to"), field("command"),
            field("severity"), OTHERS,
        ])
        .asks(Asks::First)
        .then(Then::Answer);
    CHANGE_CHANNEL = action("change-channel", |t| t.change)
        .route(Right::Admin, Method::Patch, "/v1/alert-channels/{name}")
        .fields(&[field("url"), field("to"), field("command"), field("severity"), OTHERS])
        .asks(Asks::Change);
    TEST_CHANNEL = action("test-channel", |t| t.test)
        .route(Right::Operate, Method::Post, "/v1/alert-channels/{name}/test")
        .then(Then::Leads("events"));
    DELETE_CHANNEL = action("delete-channel", |t| t.delete)
        .route(Right::Admin, Method::Delete, "/v1/alert-channels/{name}")
        .asks(Asks::First);

    // Users, sessions, tokens.
    CREATE_USER = action("create-user", |t| t.create_user)
        .about(|t| t.create_user_about)
        .route(Right::Admin, Method::Post, "/v1/users")
        .fields(&[required("name"), required("role"), field("password"), OTHERS])
        .asks(Asks::First);
    CHANGE_USER = action("change-user", |t| t.change)
        .about(|t| t.change_user_about)
        .route(Right::Admin, Method::Patch, "/v1/users/{name}")
        .fields(&[field("role"), field("password")])
        .asks(Asks::Change);
    DISABLE_USER = action("disable-user", |t| t.disable)
        .about(|t| t.disable_user_about)
        .route(Right::Admin, Method::Patch, "/v1/users/{name}")
        .fields(&[always("disabled", true)])
        .asks(Asks::First);
    ENABLE_USER = action("enable-user", |t| t.enable)
        .about(|t| t.enable_user_about)
        .route(Right::Admin, Method::Patch, "/v1/users/{name}")
        .fields(&[always("disabled", false)]);
    DELETE_USER = action("delete-user", |t| t.delete)
        .route(Right::Admin, Method::Delete, "/v1/users/{name}")
        .asks(Asks::First);
    USER_LINK = action("user-link", |t| t.make_link)
        .route(Right::Admin, Method::Post, "/v1/users/{name}/link")
        .then(Then::Answer);
    OWN_PASSWORD = action("own-password", |t| t.own_password)
        .about(|t| t.own_password_about)
        .route(Right::Read, Method::Post, "/v1/users/{name}/password")
        .fields(&[field("current"), required("new")])
        .asks(Asks::First);
    END_SESSION = action("end-session", |t| t.end_session)
        .route(Right::Admin, Method::Delete, "/v1/sessions/{id}")
        .asks(Asks::First);
    END_OWN_SESSION = action("end-own-session", |t| t.end_session)
        .route(Right::Read, Method::Delete, "/v1/me/sessions/{id}");
    CREATE_TOKEN = action("create-token", |t| t.create_token)
        .about(|t| t.create_token_about)
        .route(Right::Admin, Method::Post, "/v1/tokens")
        .fields(&[
            required("name"), required("role"), field("source_systems"),
            field("consumer_groups"), field("expires_at"), OTHERS,
        ])
        .asks(Asks::First)
        .then(Then::Answer);
    REVOKE_TOKEN = action("revoke-token", |t| t.revoke)
        .route(Right::Admin, Method::Delete, "/v1/tokens/{id}")
        .asks(Asks::First);

    // The box.
    CREATE_TENANT = action("create-tenant", |t| t.create_tenant)
        .about(|t| t.create_tenant_about)
        .route(Right::Box, Method::Post, "/v1/tenants")
        .fields(&[required("name"), field("title"), required("pii")])
        .asks(Asks::First);
    CHANGE_TENANT = action("change-tenant", |t| t.change)
        .route(Right::Box, Method::Patch, "/v1/tenants/{name}")
        .fields(&[field("title"), field("pii")])
        .asks(Asks::Change);
    SUSPEND_TENANT = action("suspend-tenant", |t| t.suspend_tenant)
        .route(Right::Box, Method::Post, "/v1/tenants/{name}/suspend")
        .asks(Asks::First);
    RESUME_TENANT = action("resume-tenant", |t| t.resume)
        .route(Right::Box, Method::Post, "/v1/tenants/{name}/resume");
    TEST_DATABASE = action("test-database", |t| t.test)
        .about(|t| t.test_database_about)
        .route(Right::Box, Method::Post, "/v1/databases/{name}/test")
        .then(Then::Answer);
    BACK_UP = action("back-up", |t| t.back_up).route(Right::Box, Method::Post, "/v1/backups");
    VERIFY_BACKUP = action("verify-backup", |t| t.verify)
        .route(Right::Box, Method::Post, "/v1/backups/{name}/verify");
    END_IN_DOUBT = action("end-in-doubt", |t| t.end_in_doubt)
        .route(Right::Box, Method::Post, "/v1/in-doubt/end")
        .asks(Asks::First);
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

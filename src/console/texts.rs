//! Every text of the console. A further language is a further table.

macro_rules! texts {
    ($($name:ident: $text:literal,)*) => {
        /// The texts of one language.
        pub(super) struct Texts { $(pub(super) $name: &'static str,)* }

        /// English.
        pub(super) static EN: Texts = Texts { $($name: $text,)* };
    };
}

texts! {
    // Frame.
    brand: "Oncebox",
    skip_to_content: "Skip to the content",
    menu: "Pages",
    search: "Search",
    search_placeholder: "4711, a key, an id, an event type",
    log_out: "Log out",
    to_overview: "To the overview",
    request_id: "Request",
    back: "Back",
    go_on: "Go on",
    done: "done",
    copy: "Copy",
    all: "all",
    filter: "Filter",
    clear: "Clear",
    pages: "Pages of the list",
    newest: "Newest",
    older: "Older",
    optional: "(optional)",
    name: "Name",
    reason: "Reason",

    // Errors.
    error_no_page: "There is no such page",
    error_no_page_help: "It may have been deleted, or it belongs to another tenant. Search for it above.",
    error_forbidden: "Your role does not allow this",
    error_forbidden_help: "Ask an administrator to do it, or to change your role.",
    error_logged_out: "You are logged out",
    error_logged_out_help: "Your session ended, and nothing was changed. Log in and do it again.",
    error_foreign_form: "This form is not from this session",
    error_foreign_form_help: "Nothing was changed. Open the page again and send the form from there.",
    error_running: "This is being done already",
    error_running_help: "The same form was sent a moment ago. Look at the page again in a few seconds.",
    error_form: "A field cannot be used",
    field_missing: "this field is required.",

    // Entering.
    log_in: "Log in",
    log_in_help: "No password? An administrator of this machine makes a one-time link:",
    user_name: "User name",
    password: "Password",
    link_help: "This link can be used once.",
    first_user_help: "Nobody can log in yet. Make a one-time link on this machine:",

    // Actions.
    replay: "Send again",
    replay_about: "The event is delivered again with the same webhook-id, so a guarded receiver takes it once.",
    only_subscription: "Only to this subscription",
    cancel: "Cancel",
    cancel_about: "What is still open is not sent any more.",
    retry: "Try now",
    retry_about: "The delivery is tried at once.",
    edit_and_resend: "Correct and send",
    edit_and_resend_about: "A new event with the corrected payload takes the place of this one. Write the whole payload as JSON.",
    park: "Set aside",
    park_about: "It waits apart until a person releases it. Its lane goes on.",
    skip: "Skip",
    skip_about: "It is not sent at all. Its lane goes on.",
    release: "Release",
    release_about: "It is sent when its turn comes.",
    move_to_end: "Move to the end",
    move_to_end_about: "It is sent after all others that wait in its lane.",
    touches: "This touches",
    deliveries_or_events: "deliveries or events",
    show_again: "Show what it touches",
    shown_once: "This is shown once. Copy it now.",

    // Overview.
    overview: "Overview",
    waiting_deliveries: "Waiting",
    queue_age: "The oldest is due since",
    nothing_is_late: "Nothing is late",
    in_doubt: "In doubt",
    quarantined: "Quarantined",
    checks: "Checks",
    check: "Check",
    detail: "Detail",
    needs_a_person: "Needs a person",
    accepted_hour: "Accepted in the last hour",
    delivered_hour: "Delivered",
    most_a_minute: "Most in a minute",
    latency_hour: "Requests in the last hour, by how long they took",
    nobody_needed: "Nothing needs a person.",
    since: "Since",
    count: "Count",
    what: "What",
    first_steps: "First steps",
    step_provider: "Tell Oncebox who sends webhooks, or publish an event.",
    step_subscription: "Make a subscription: which events go where.",
    step_test: "Test it: a ping goes its whole way.",
    step_alert: "Say who is told when something fails.",

    // Search.
    search_results: "Search",
    search_nothing: "Nothing was found.",
    search_found: "Found",
    search_more: "There is more. Write more of it.",
    matched: "Matched by",
    kind: "Kind",
    event_type: "Event type",
    state: "State",
    at: "At",
    search_hint: "Search for an invoice number, a key, a webhook-id, a provider's id or an event type, whole or its beginning.",

    // Events and webhook events.
    events: "Events",
    event: "Event",
    until: "Until",
    aggregate_id: "Number (aggregate)",
    source: "Source",
    error: "Error",
    no_events: "No events here yet.",
    no_events_help: "Publish one with POST /v1/events, with oncebox emit, or by plain SQL. A filter above may also hide them.",
    occurred: "Happened",
    completed: "Completed",
    key: "Key",
    webhook_id: "webhook-id",
    id: "Id",
    repeated: "Sent again to us",
    process: "Process",
    parent: "Parent",
    children: "Children",
    nobody_wants_it: "No subscription wants it.",
    nobody_wants_it_help: "Make a subscription whose event types match, then send it again.",
    payload: "Payload",
    payload_cut: "Only the beginning is shown. The API has the whole payload.",
    sealed_fields: "Personal fields are sealed here. They are opened only in what is sent.",
    headers: "Headers",
    webhook: "Webhook",

    // Deliveries.
    deliveries: "Deliveries",
    delivery: "Delivery",
    subscription: "Subscription",
    attempts: "Attempts",
    last_attempts: "Last attempts:",
    failed: "failed",
    due_or_done: "Due or done",
    no_deliveries: "No deliveries here.",
    no_deliveries_help: "Each event makes one for each subscription that wants it. A filter above may hide them.",
    lane: "Lane",
    runs: "Run",
    counted: "counted failures",
    waits_because: "It waits:",
    no_attempts: "It was not tried yet.",
    result: "Result",
    answer: "Answer",
    took: "Took",
    they_said: "What they said",
    sent_to: "Sent to",

    // Received.
    received: "Received",
    accepted: "Accepted webhooks",
    provider: "Provider",
    provider_id: "Provider's id",
    no_webhooks: "No webhooks here yet.",
    no_webhooks_help: "Tell Oncebox who sends them: oncebox provider create. A filter above may also hide them.",
    signature: "Signature",
    signature_checked: "checked with key",

    // Subscriptions and credentials.
    subscriptions: "Subscriptions",

    // Dead letters and jobs.
    dead_letters: "Dead letters",

    // Lanes.
    lanes: "Lanes",

    // Sources.
    sources: "Sources",

    // Alerts.
    alerts: "Alerts",

    // Audit.
    audit: "Audit",

    // Settings, tokens, users.
    settings: "Settings",
}

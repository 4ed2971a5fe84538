//! Every text of the console. A further language is a further table.

macro_rules! texts {
    ($($plain:ident)*; $($name:ident: $text:literal,)*) => {
        /// The texts of one language.
        pub(super) struct Texts {
            $(pub(super) $plain: &'static str,)*
            $(pub(super) $name: &'static str,)*
        }

        /// English.
        pub(super) static EN: Texts = Texts {
            $($plain: {
                const NAME: &str = stringify!($plain);
                const BYTES: [u8; NAME.len()] = as_words(NAME.as_bytes());
                match str::from_utf8(&BYTES) {
                    Ok(text) => text,
                    Err(_) => NAME,
                }
            },)*
            $($name: $text,)*
        };

        impl Texts {
            /// The text of this name, if there is one.
            pub(super) fn find(&self, name: &str) -> Option<&'static str> {
                match name {
                    $(stringify!($plain) => Some(self.$plain),)*
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// The text of this name.
            pub(super) fn named(&self, name: &str) -> &'static str {
                debug_assert!(self.find(name).is_some(), "there is no text {name}");
                self.find(name).unwrap_or_default()
            }
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($plain),)* $(stringify!($name)),*];
    };
}

/// A name as people write it: `due_or_done` is "Due or done".
#[expect(clippy::indexing_slicing, reason = "it runs when it is compiled")]
const fn as_words<const LEN: usize>(name: &[u8]) -> [u8; LEN] {
    let mut words = [b' '; LEN];
    let mut n = 0;
    while n < LEN {
        if name[n] != b'_' {
            words[n] = if n == 0 { name[n].to_ascii_uppercase() } else { name[n] };
        }
        n += 1;
    }
    words
}

// First the names that are texts themselves: `due_or_done` is "Due or done".
texts! {
    acknowledge acknowledged_by action address after alerts all_sessions all_terms answer at attempt attempts audit
    audit_entry back backups before began blocked browser calls_in_doubt cancel change changed changes check checks
    children clear command completed connections copy count credentials databases day dead_letters deliveries delivery detail directory
    disable discard due_or_done earlier enable ended error event event_type event_types events example failed_again
    failing_since failure_rate field file filter first_steps format from go_on goes_to gone hash headers held
    history id in_doubt job jobs key kind lane lanes last_attempts last_event last_failure last_probe
    last_success last_used log_in log_out logs_in_by made made_every manifest meaning method name needs_a_person
    nothing_is_late oldest overview owner parent password password_again payload personal_data pick process product progress
    provider providers reason received release reopen requests resolved restarts restored result resume retrying revoke role rotate schema
    scheme search secret sent sent_to settings show_all signature since size skip source sources state step steps
    subscription subscriptions succeeded tenant tenants test the_others there_is_no this_month title today took
    unhealthy_since until used_by user_name users valid_until value verify version waiting webhook what
    what_it_means who who_changed_it why withdraw yesterday;

    // Frame.
    brand: "Oncebox",
    skip_to_content: "Skip to the content",
    menu: "Pages",
    search_placeholder: "4711, a key, an id, an event type",
    show_tenant: "Show",
    to_overview: "To the overview",
    request_id: "Request",
    done: "done.",
    is_tried: "the new one is being tried. Until it works, the old one is used.",
    is_refused: "the new one does not work, and the old one is still used.",
    not_updated: "Not updated since",
    no_answer_since: "The service has not answered since",
    paused_while_read: "Paused while you read",
    update: "Update",
    log_in_to_go_on: "Your session ended: log in again.",
    all: "all",
    time_hint: "2h, yesterday, 08:29",
    past_hour: "Last hour",
    columns_and_csv: "Columns and CSV",
    show_columns: "Show these",
    csv: "Download as CSV",
    csv_about: "With all fields and these filters: at most 10,000 rows, and what is found in two seconds. The name of the file says if it is the beginning.",
    section: "Pages of this section",
    pages: "Pages of the list",
    newest: "First page",
    older: "Next page",
    and: "and",
    more: "more",
    optional: "(optional)",
    typed_or_made: "(type it, or let it be made, if the kind has one)",
    yes: "yes",
    no: "no",
    pii: "Personal data",
    pii_allow: "Keep everything as it comes.",
    pii_seal: "Seal values with an e-mail address, a phone, card or bank account number: the target gets them, and nobody sees them here.",
    pii_mask: "Mask e-mail addresses, phone, card and bank account numbers: only their end is kept and sent.",
    pii_reject: "Refuse what has an e-mail address, a phone, card or bank account number.",
    pii_own: "Rules of your own.",
    pii_rules: "The rules, as JSON (docs/privacy.md)",
    kept_typed: "What you typed here before is filled in.",
    start_anew: "Start anew",
    make_secret: "Make one, and show it once",
    give_it: "Give the secret to the provider, with the address below.",
    line: "line",
    column: "column",
    no_time: "This is not a time: write it as 2026-01-31 18:00; a past time may also be today, yesterday or 2h.",
    no_number: "This must be a whole number.",
    no_pair: "has no colon: write a name, a colon and the value.",
    only_for: "For",
    only_for_this: "Only for",
    scheme_check: "How does the sender prove itself?",
    more_fields: "More",
    cannot_be_empty: "This cannot be removed, and stays as it was:",
    try_it: "Show what would be sent",
    on_event: "Try it on this event (its id)",
    what_if: "What would it have done in the last … (7d, 12h)",
    what_if_title: "What these terms would have done",
    what_if_looked_at: "stored events were looked at, since",
    what_if_not_whole: "These are the newest; there are more. To look at older ones, put this into the field in place of the time:",
    what_if_wanted_now: "wanted now",
    what_if_wanted_then: "wanted with these terms",
    what_if_more: "more than now",
    what_if_fewer: "fewer than now",
    what_if_changed: "sent otherwise",
    what_if_failing: "cannot be written",
    what_if_other_lane: "in another lane",
    what_if_schema_title: "What this schema would have refused",
    what_if_refused_now: "refused by the schema of now",
    what_if_refused_then: "refused by this schema",
    what_if_provider_title: "What these terms would have done",
    what_if_refused: "would be refused",
    what_if_stored_otherwise: "would be stored otherwise",
    what_if_other_key: "would have another ordering key",
    what_if_sealed: "have sealed fields, which were not looked at",
    what_if_nothing: "Nothing differs.",
    what_if_nothing_help: "Each of these events would be treated as it is now.",

    // Errors.
    error_no_page: "There is no such page",
    error_no_page_help: "It may have been deleted, or it belongs to another tenant. Search for its number or name.",
    error_forbidden: "Your role does not allow this",
    error_forbidden_help: "Ask an administrator to do it, or to change your role.",
    error_logged_out: "You are logged out",
    error_logged_out_help: "Your session ended, and nothing was changed. Log in and do it again.",
    error_foreign_form: "This form is not from this session",
    error_foreign_form_help: "Nothing was changed. Open the page again and send the form from there.",
    error_running: "This is being done already",
    error_running_help: "The same form was sent a moment ago. Look at the page again in a few seconds.",
    error_form: "A field cannot be used",
    error_form_size: "The form is too large",
    error_form_size_help: "It has too many fields, or too much text in them. Nothing was changed.",
    error_form_parts: "The form cannot be read",
    error_form_parts_help: "The boundary between its parts must have 1 to 70 bytes (RFC 2046). Nothing was changed.",
    error_busy: "The service is busy",
    error_busy_help: "Too many large requests are in progress, and nothing was changed. Send it again shortly.",
    field_missing: "this field is required.",

    // Entering.
    log_in_help: "No password? An administrator of this machine makes a one-time link:",
    user_name_help: "Of a tenant other than default: tenant/name.",
    link_help: "This link can be used once.",
    log_in_again: "Log in again.",
    first_admin: "Make the first administrator",
    first_admin_help: "Nobody can log in yet. The first administrator may do everything, and makes the other users.",
    first_code: "Code",
    first_code_help: "The service printed it in the terminal in which it was started. A service of systemd prints none: there, use a link.",
    first_name_help: "1 to 63 characters of a-z, 0-9 and -.",
    password_help: "12 to 128 characters.",
    passwords_differ: "The two passwords differ.",
    first_user_help: "Without the code, make a one-time link on the machine of the service:",

    // Actions.
    replay: "Send again",
    replay_about: "The event is delivered again with the same webhook-id, so a guarded receiver takes it once.",
    retry: "Try now",
    retry_about: "The delivery is tried at once.",
    edit_and_resend: "Correct and send",
    edit_and_resend_about: "A new event with the corrected payload takes the place of this one.",
    download: "Download the payload",
    or_file: "Or a file with the whole payload (the event's page has the stored one)",
    difference: "What changes",
    no_difference: "Nothing: the payload is the same.",
    not_compared: "The two payloads are not compared here. Bytes of the new one:",
    look_twice: "It was checked, and nothing was sent yet. Press the button once more to send it.",
    is_no_json: "It is not JSON:",
    park: "Set aside",
    move_to_end: "Move to the end",
    touches: "This touches",
    deliveries_or_events: "deliveries or events",
    show_again: "Show what it touches",
    shown_once: "This is shown once. Copy it now.",

    // Overview.
    all_is_well: "All is well.",
    nobody_needed: "Nothing needs a person.",
    // One, and many.
    critical: "critical",
    warnings: "warning|warnings",
    are_waiting: "waiting",
    dead_need: "dead letter needs a person|dead letters need a person",
    lanes_blocked: "lane is blocked|lanes are blocked",
    are_in_doubt: "delivery may have been sent before a restore|deliveries may have been sent before a restore",
    are_unusable: "event cannot be used|events cannot be used",
    last_hour: "The last hour",
    words_here: "What the words on this page mean",
    counted_since: "Counted since the start of the service,",
    waiting_deliveries: "Waiting",
    queue_age: "The oldest is late by",
    disk_free: "Free on the disk",
    disk_lasts: "At the rate of the last hours it lasts",
    disk_steady: "It is not filling up",
    accepted_hour: "Accepted",
    delivered_hour: "Delivered",
    accepted_in_hour: "Accepted, last hour",
    delivered_in_hour: "Delivered, last hour",
    events_small: "events",
    webhooks_small: "webhooks",
    requests_small: "requests",
    accepted_small: "accepted",
    delivered_small: "delivered",
    not_counted_then: "not counted: the service did not run",
    latencies: "How long requests took",
    all_checks_well: "All checks are well:",
    some_checks_not: "of the checks need a look",
    worst_ones: "Subscriptions in trouble",
    quiet_hour: "Nothing was accepted or sent.",
    unknown_minutes: "minutes of it are unknown, shaded in the pictures: the service did not run then, or was killed.",
    failed_attempts: "failed attempts",
    most_a_minute: "most in a minute",
    a_minute: "By minute",
    now: "now",
    latency_hour: "Requests by how long they took",
    few: "few",
    many: "many",
    longer: "longer",
    steps_left: "Something is left to set up:",
    all_steps_done: "All four steps are done.",
    step_provider: "Provider: say who sends webhooks, or publish an event.",
    step_subscription: "Subscription: say which events go where.",
    step_test: "Test event: send one to the first subscription. It goes the whole way: name, address, TLS, credentials, answer.",
    step_alert: "Alert channel: say who is told when something fails.",

    // Search.
    search_results: "Search",
    search_nothing: "Nothing begins with",
    search_help: "Write the whole of it, or its beginning: 47 finds 4711, and 711 does not. Capital and small letters differ.",
    search_lists: "Lists with filters by state and time:",
    search_found: "Found",
    search_more: "There is more. Write more of it.",
    matched: "Matched by",
    search_hint: "Search for an invoice number, a key, an id, an event type, or a name.",

    // Events and webhook events.
    aggregate_type: "Kind of thing (aggregate)",
    aggregate_id: "Number (aggregate)",
    code: "Status of the last answer",
    correlation_id: "Correlation",
    no_events: "No events here yet.",
    no_events_help: "Publish one with POST /v1/events, with oncebox emit, or by plain SQL. A filter above may also hide them.",
    occurred: "Happened",
    webhook_id: "webhook-id",
    repeated: "Repeated by the sender",
    archived: "In the archive of",
    expunged: "Content removed",
    nobody_wants_it: "No subscription wants it.",
    nobody_wants_it_help: "Make a subscription whose event types match, then send it again.",
    as_written: "As it is written",
    request_as_sent: "The request",
    request_about: "As the next attempt would send it now. What is secret is ***.",
    request_sent_about: "As the latest attempt sent it. What is secret is ***.",
    request_erased_about: "As the latest attempt sent it, without what was erased since. What is secret is ***.",
    as_curl: "As a curl command",
    payload_cut: "Only the beginning is shown. The API has all of it.",
    on_invalid: "What does not fit is",
    no_event_types: "No event types are registered.",
    no_event_types_help: "Make one, or have oncebox event-type infer make a schema from events.",
    sealed_fields: "Personal fields are sealed here. They are opened only in what is sent.",

    // Deliveries.
    last_attempts_of: "Last attempts by subscription",
    failed: "failed",
    no_deliveries: "No deliveries here.",
    no_deliveries_help: "Each event makes one for each subscription that wants it. A filter above may hide them.",
    runs: "Run",
    counted: "counted failures",
    waits_because: "It waits:",
    no_attempts: "It was not tried.",
    it_came: "It came.",
    it_waits: "It waits",
    held_until: "It was held until",
    answer_small: "answer",
    took_small: "took",
    waited_small: "waited",
    what_happened: "What happened",
    exchange: "What was sent, and what they said",
    payload_beside: "(the payload, as it stands here)",
    said_nothing: "The answer has no text.",
    story_sent: "Sent to",
    story_answered: "they answered",
    story_refused: "refused it",
    story_given_up: "did not take it, and it was given up",
    story_not_sent: "Not sent to",
    story_has_not: "has not got it yet",
    story_last: "At the last attempt they answered",
    story_unusable: "It cannot be used:",
    story_further: "Other deliveries:",
    story_of_them: "of them",
    story_are_sent: "are sent.",
    not_counted: "not counted",
    last_error: "Last error:",
    wait_lane: "its turn in the lane",
    wait_first: "its time, or a hold",
    wait_retry: "retry",
    wait_asked: "the target asked to wait",
    wait_auth: "credential refused",
    wait_away: "target was away",
    wait_person: "a person sent it again",
    they_said: "What they said",

    // Received.
    accepted: "Accepted webhooks",
    pii_unstated: "Published events are kept in the clear, with all personal data: nobody has stated a policy yet.",
    with_own: "With operational events, those of Oncebox itself",
    provider_id: "Provider's id",
    no_webhooks: "No webhooks here yet.",
    no_webhooks_help: "Tell Oncebox who sends them: make a provider under Sources. A filter above may also hide them.",
    refused: "Refused webhooks",
    nothing_refused: "Nothing was refused.",
    signature_checked: "checked with key",
    reconciliations: "Compared with the provider's list",
    reconciliations_about: "Did the provider send what its list shows? Each comparison says so by day, and takes in what is missing.",
    no_reconciliations: "The list was not compared yet.",
    no_reconciliations_help: "It needs a source of the kind http that reads the provider's list. Make one under Sources.",
    reconcile: "Compare now",
    reconcile_dry: "Dry run",
    reconcile_about: "Reads the list from this time on, and takes in what is missing. In a dry run it is only counted. Webhooks of the last five minutes are left out, because they may still come.",
    run_sent: "In the list",
    run_received: "Came as webhooks",
    run_missing: "Missing",
    run_taken_in: "Taken in from the list",
    run_refused: "Not accepted",
    run_reasons: "Why not",
    run_days: "Days (UTC)",
    run_without_days: "There are no numbers. While it runs they are not known, and the list may have had nothing in this time.",
    run_is_dry: "This was a dry run: nothing was taken in.",
    run_under_way: "under way",
    run_done: "done",
    run_done_dry: "done, dry run",
    run_failed: "failed",
    origin: "How it came",
    origin_webhook: "sent by its provider",
    origin_listed: "read in its provider's list",
    origin_reconciled: "found missing by a comparison with its provider's list",

    fix_event: "Correct",
    fix_event_about: "What is changed here replaces the event's own. It is checked again, and sent if it can be used now.",
    send_example: "Send an example",
    send_example_about: "A real event: subscriptions that want its type get it.",
    support_text: "Text for support",
    support_about: "It has states, times and SHA-256, and no content: neither payload nor header fields, names of records, keys, addresses or answers.",
    create_event_type: "New event type",
    create_event_type_about: "Events of this type are checked by the schema from then on.",
    change_event_type_about: "Events that are published from now on are checked by this.",

    // Subscriptions and credentials.
    no_subscriptions: "No subscriptions yet.",
    no_subscriptions_help: "A subscription says which events go where.",
    create_subscription: "New subscription",
    delete: "Remove",
    pause: "Stop sending",
    troubled: "fail or are held",
    all_of_them: "All that fail or are held",
    all_subscriptions: "All subscriptions",
    wait_for_it: "wait for it.",
    out_of_paused: "A person paused it; Resume sends what waits.",
    out_of_disabled: "Correct the target or its URL, try it with Test, then Resume.",
    out_of_suspended: "Its tenant is suspended: an administrator of this machine resumes the tenant.",
    out_of_rejecting: "See what the target answers, correct the target or the subscription, then Resume.",
    out_of_rate_limit: "The target asked to wait; it goes on by itself.",
    out_of_breaker: "It is tried again by itself. If the target works again, Resume does not wait for that.",
    out_of_auth: "Set or rotate the credential below. A Test that works ends this, and so does Resume.",
    out_of_offline: "This machine has no line to the outside; it goes on by itself.",
    set_credential: "Set a credential",
    set_credential_about: "It is used from then on, in place of those of its kind.",
    compare: "Compare",
    compare_about: "Does the target have what was delivered to it? It is asked for its own list, or you give the ids that it has, one a line: webhook-ids or keys of events. Nothing is sent.",
    compared_delivered: "deliveries were compared",
    compared_listed: "ids at the target",
    compared_missing: "missing at the target",
    compared_nothing: "The target has all of them.",
    compared_nothing_help: "Deliveries of the last five minutes were left out: a target may list them late.",
    compared_not_whole: "These are the newest; there are more. To compare older ones, send the form again with this as “next”:",
    test_about: "A ping goes its whole way: name, address, TLS, credentials, answer.",
    replay_since: "Send again since",
    replay_since_about: "All its events since this time are sent again, also those that arrived. They keep their webhook-id.",
    recover: "Catch up",
    rate: "At most so many a second",
    rotate_about: "A new secret is tried beside the old one. Leave the secret empty to have one made, if its kind allows it.",
    schedule: "Rotate by itself",
    schedule_about: "The command is one of credentials.commands in the settings; what it writes is the new secret. It runs when the target refuses the old one, and as often as is said here. What stays empty is removed.",
    every: "How often, like 90d",
    rotation: "Rotated every",
    url: "URL",
    ordering: "Order",
    history_days: "The last 90 days (UTC)",
    history_hours: "By hour (UTC),",
    show_hours: "Show its hours",
    volume: "Attempts or requests",
    half_took: "Median (p50)",
    most_took: "p95",
    known_minutes: "Minutes counted",
    as_table: "As a table",
    nothing_known: "Nothing was counted.",
    shaded_unknown: "shaded: the service did not run",
    past_holds: "Holds that have ended",
    next_probe: "next try",
    target_health: "Target",
    probe_failed: "Why",
    no_credentials: "None.",
    act: "Do",
    test_waits: "It waits until another test has ended.",
    test_runs: "It is under way.",
    test_works: "It works.",
    test_fails: "It does not work.",
    whole_answer: "The whole answer",

    // Dead letters and jobs.
    what_became: "What became of it",
    dead_letters_about: "Deliveries that were given up. Nothing deletes them: a person sends them again, or discards them.",
    no_dead_letters: "Nothing was given up.",
    no_dead_letters_help: "What fails again and again comes here.",
    by_answer: "The newest 1,000, by what they said",
    correct_one: "Correct one",
    of_this_kind: "Dead letters with the same answer",
    replay_all: "Send all again",
    none_match: "No dead letter matches.",
    newest_one: "Newest",
    pick_all: "Pick all on this page",
    replay_picked: "Send the picked ones again",
    discard_picked: "Discard the picked ones",
    replay_dead_about: "All that match are sent again, the oldest first.",
    pause_job: "Pause",
    resume_job: "Resume",
    ids: "Only these, one a line",
    no_jobs: "No jobs yet.",
    no_jobs_help: "Sending or discarding many makes a job.",
    skipped: "Passed over",
    of_them_wait: "of them wait",
    is_held: "is held",

    // Lanes.
    no_lanes: "No lane has anything waiting.",
    no_lanes_help: "A filter above may also hide them.",
    lanes_about: "A lane keeps an order: what belongs together, such as all events of one invoice, is sent one after another. What comes later waits until the first one has arrived, or until a person skips it.",
    lanes_turn_on: "Each subscription has this switch:",
    behind: "Behind it",
    in_order: "In this order",
    lane_empty: "Nothing waits in this lane.",
    lane_empty_help: "All its deliveries have ended, or there was never such a lane.",
    parked: "Set aside",

    // Sources.
    no_sources: "No sources.",
    no_sources_help: "A source reads the table of an ERP's database or file, or a drop folder.",
    last_read: "Last look",
    lag: "Rows behind",
    cursor: "Position",
    no_providers: "No providers.",
    provider_url: "The provider posts to:",
    public_host: "your public host",
    no_public_url: "This service does not know the name by which others reach it. Set listen.public_url in the file of settings, such as https://hooks.example.com, and reload the service; until then, put the name in yourself.",
    secrets: "Secrets in force",
    secrets_about: "A webhook is taken if it is signed with one of them. They are never shown.",
    add_secret: "Add a secret",
    add_secret_about: "It is valid beside the others at once: add the new one, change it at the provider, then withdraw the old one.",
    sample: "A signed sample",
    sample_ok: "A webhook like this one is taken:",
    sample_bad: "A webhook like this one is refused:",
    sample_about: "Header fields and body as the provider would send them. The secret, and what is made with it, is ***.",
    reset: "Read again",
    reset_about: "Reading begins at this position. What is known already is not taken twice.",

    create_source: "New source",
    create_provider_about: "Its webhooks are accepted from then on, at the address that its page shows.",
    create_provider: "New provider",

    // Alerts.
    show_resolved: "Show resolved ones too",
    open_only: "Show open ones only",
    channels: "Who is told",
    no_channels: "Nobody is told.",
    no_channels_help: "Make a channel, or failures stay on this page.",
    create_channel: "New channel",
    create_channel_about: "Slack and webhook need a URL, e-mail needs addresses, a command needs its name in the settings.",
    to: "E-mail addresses, one a line",
    severity: "From severity",
    how_bad: "Severity",
    about_what: "About, such as subscription:erp",

    // Audit.
    resource: "What",
    no_audit: "Nothing was changed.",
    no_audit_help: "A filter above may hide entries.",
    audit_intact: "newest entries are unchanged.",
    audit_broken: "Entries were changed, removed or added by somebody who writes the file.",
    looked_up: "as looked up at",
    audit_position: "The audit is a chain of entries; the newest is",
    audit_verify: "Each entry holds the hash of the one before it. This checks the whole chain:",

    // Databases of others.
    databases_about: "Databases of others that sources read and subscriptions write into, such as an ERP's own. They stand in the file of settings.",
    no_databases: "The settings name no database.",
    no_databases_help: "Add [databases.NAME] to the file of settings, and restart the service.",
    nobody: "nothing",
    not_usable: "it cannot be used as it is; the lines below say why.",
    test_database_about: "Connects, and looks at encryption, durability, letters and rights. Nothing is changed there.",
    reopen_about: "After a restore of this box: rows that were read since then are read again. What is known is not stored again.",
    release_rows: "Give back rows",
    release_rows_about: "Only for a box that is gone for good: other boxes take the rows that it has claimed.",

    // Settings and backups.
    you: "You are",
    events_held_until: "New events are held until",
    release_in_doubt_about: "What may have been sent before the restore is sent. A guarded receiver takes each once. At most 2,000 at once.",
    end_in_doubt: "Stop holding new events",
    calls_in_doubt_help: "No answer came, so the target may have accepted the call. No older state is sent until a person says what it has.",
    call_about: "About",
    end_call: "Say what the target has",
    in_force: "Settings in force",
    in_force_about: "What this box runs with. It is changed in the file of settings, in the environment or by flags. Secrets are not shown.",
    set_by: "From",
    not_shown: "(not shown)",
    create_tenant: "New tenant",
    create_tenant_about: "Its data is apart from that of all others. Make its first user or token with its name as the tenant.",
    suspend_tenant: "Suspend",
    back_up: "Back up now",
    never: "never by itself",
    made_by: "Why",
    no_backups: "There is no backup here.",
    no_backups_help: "Make one now, and set backup.every so that they are made by themselves.",
    backups_help: "The master key is not in a backup: keep it elsewhere. This checks a backup:",

    // Users, sessions, tokens.
    last_log_in: "Last log-in",
    no_users: "There is no user.",
    no_users_help: "Make one for each person, so that the audit names them.",
    create_user: "New user",
    create_user_about: "Without a password, the user enters by one-time links.",
    change_user_about: "What stays empty is not changed. The user's sessions end.",
    last_admin: "This is the only person who may administer here. Afterwards, only the shell of this machine makes another: oncebox user create NAME --role admin",
    disable_user_about: "The user cannot log in any more, and the user's sessions end.",
    enable_user_about: "The user can log in again.",
    make_link: "One-time link",
    own_password: "Change my password",
    own_password_about: "At least 12 characters. All your sessions end: log in again with the new password.",
    current: "Password now, if you have one",
    new: "New password",
    own_sessions: "My sessions",
    sessions_about: "Each browser that is logged in. End those that you do not know.",
    no_sessions: "Nobody is logged in.",
    this_session: "(this one)",
    end_session: "End",
    tokens: "Tokens of programs",
    no_tokens: "There is no token.",
    no_tokens_help: "Make one for each program that calls the API.",
    create_token: "New token",
    create_token_about: "A program sends it with each request. It is shown once. One that publishes names its source systems or consumer groups.",
    source_systems: "Source systems it may publish for, one a line; * is any",
    consumer_groups: "Groups it may claim events for, one a line; * is any",
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::NAMES;

    #[test]
    fn every_text_is_used() {
        let mut open = vec![PathBuf::from("src/console")];
        let mut code = String::new();
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else if !path.ends_with("texts.rs") {
                code += &std::fs::read_to_string(path).unwrap();
            }
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words: Vec<&str> = code.split(|c| !is_part(c)).collect();
        let unused: Vec<_> = NAMES.iter().filter(|name| !words.contains(name)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}

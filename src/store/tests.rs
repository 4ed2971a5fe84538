//! Tests of statements. Frequent ones use their indexes and never scan a whole table.

use rusqlite::Connection;

use crate::model::subscription::SubscriptionTerms;
use crate::store::{
    attempts, audit_events, confirmations, deliveries, delivery_lists, escalations, external_calls,
    families, idempotency_keys, in_doubt, lane_lists, lanes, leases, outbox, outbox_lists,
    outbox_relay, outbox_routing, payloads, pool, postponed, processed_events, quarantine, runs,
    schema_shape, search, search_values, sessions, sql_rows, stats, subjects, subscriptions,
    tokens, users, webhook_events,
};

/// The query plan of a statement, one step per line.
fn plan(sql: &str) -> String {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(schema_shape::SCHEMA).unwrap();
    pool::set_up_reader(&conn).unwrap();
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    // Unbound parameters are NULL, which changes no plan.
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get::<_, String>(3).unwrap());
    }
    steps.join("\n")
}

/// Asserts that the plan contains these texts, scans no table and sorts nothing.
#[track_caller]
pub(crate) fn uses(sql: &str, texts: &[&str]) {
    let plan = plan(sql);
    for text in texts {
        assert!(plan.contains(text), "{text}:\n{plan}");
    }
    let small = [
        "SCAN CONSTANT ROW",
        "SCAN (subquery-1)",
        "SCAN (subquery-2)",
        "SCAN (subquery-3)",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
    ];
    let scans = plan.lines().any(|step| step.starts_with("SCAN") && !small.contains(&step));
    assert!(!scans && !plan.contains("AUTOMATIC") && !plan.contains("TEMP B-TREE"), "{plan}");
}

/// Columns of texts and bytes that still hold what they held in the only row of each of these tables, after a change. Each
/// number of a row is 1, so that rows refer to each other.
pub(crate) fn unforgotten(tables: &[&str], change: impl FnOnce(&Connection)) -> Vec<String> {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(schema_shape::SCHEMA).unwrap();
    conn.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF").unwrap();
    for trigger in texts(&conn, "SELECT name FROM sqlite_schema WHERE type = 'trigger'") {
        conn.execute(&format!("DROP TRIGGER {trigger}"), []).unwrap();
    }
    for table in tables {
        let sql = format!(
            "SELECT iif(type IN ('TEXT', 'BLOB', 'ANY'), 'CAST(''secret'' AS ' || type || ')', '1')
               FROM pragma_table_info('{table}')"
        );
        let values = texts(&conn, &sql).join(", ");
        let row = conn.execute(&format!("INSERT INTO {table} VALUES ({values})"), []);
        assert_eq!(row, Ok(1), "{table}: {values}");
    }
    change(&conn);
    let holding = |table: &&str| -> Vec<String> {
        let sql = format!("SELECT name FROM pragma_table_info('{table}')");
        let columns = texts(&conn, &sql).into_iter();
        let still = |column: &String| {
            let sql = format!("SELECT 1 FROM {table} WHERE CAST({column} AS TEXT) = 'secret'");
            conn.prepare(&sql).unwrap().exists([]).unwrap()
        };
        columns.filter(still).map(|column| format!("{table}.{column}")).collect()
    };
    tables.iter().flat_map(holding).collect()
}

fn texts(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

const BY_ROW: &str = "USING INTEGER PRIMARY KEY";

/// Whether SQLite copies each page that a statement changes, to be able to take back this statement alone: it does where a
/// step may end with `OE_Abort` (2) and triggers make it more than one write.
fn may_abort(sql: &str) -> bool {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(schema_shape::SCHEMA).unwrap();
    let mut statement = conn.prepare(&format!("EXPLAIN {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut aborts = false;
    while let Some(row) = rows.next().unwrap() {
        let [error, on_error] = [2, 3].map(|column| row.get::<_, i64>(column).unwrap());
        let opcode = row.get::<_, String>(1).unwrap();
        aborts |= opcode.starts_with("Halt") && error != 0 && on_error == 2;
    }
    aborts
}

#[test]
fn the_statements_of_an_outcome_make_no_copies_of_pages() {
    assert!(!may_abort(deliveries::FINISH));
    assert!(!may_abort(outbox::SETTLED));
    assert!(may_abort(deliveries::WAIT), "the look at the steps sees it");
}

#[test]
fn due_deliveries_are_found_by_the_due_index() {
    uses(
        deliveries::DUE,
        &["USING COVERING INDEX deliveries_due (subscription_seq=? AND due_at>? AND due_at<?)"],
    );
    uses(deliveries::NEXT_DUE, &["INDEX deliveries_due (subscription_seq=? AND due_at>?)"]);
    uses(
        deliveries::CLAMP_DUE,
        &["INDEX deliveries_due (subscription_seq=? AND due_at>?)", BY_ROW],
    );
}

#[test]
fn an_outgoing_request_is_read_by_the_numbers_of_its_rows() {
    uses(deliveries::OUTGOING, &["SEARCH d USING INTEGER PRIMARY KEY", "SEARCH o", "SEARCH w"]);
    uses(payloads::READ, &[BY_ROW]);
}

#[test]
fn a_settlement_touches_rows_by_their_numbers() {
    for sql in [
        deliveries::STATE,
        deliveries::RETRY,
        deliveries::FINISH,
        deliveries::WAIT,
        outbox::SETTLED,
        outbox_routing::END,
        outbox::REPEATED,
        webhook_events::SETTLED,
    ] {
        uses(sql, &[BY_ROW]);
    }
}

#[test]
fn the_deliveries_of_an_event_are_counted_by_their_index() {
    uses(deliveries::COUNTS_OF_EVENT, &["INDEX deliveries_of_event (outbox_seq=?)"]);
    uses(
        deliveries::COUNTS_OF_WEBHOOK_EVENT,
        &["INDEX deliveries_of_webhook_event (webhook_seq=?)"],
    );
}

#[test]
fn an_identity_is_looked_up_by_its_index() {
    for sql in [outbox::EXISTS, outbox_lists::BY_IDENTITY] {
        let index = "INDEX outbox_identity (tenant=? AND source_system=? AND idempotency_key=?)";
        uses(sql, &[index]);
    }
    let index = "INDEX webhook_events_identity (tenant=? AND provider=? AND provider_event_id=?)";
    uses(webhook_events::FIND_IDENTITY, &[index]);
    let index = "INDEX webhook_events_fingerprint (fingerprint=?)";
    uses(webhook_events::FIND_REPLAYED, &[index]);
}

#[test]
fn rows_that_plain_sql_inserted_are_found_by_their_index() {
    uses(sql_rows::UNROUTED, &["INDEX outbox_unrouted (seq>?)"]);
    for sql in [
        sql_rows::ROW,
        outbox_relay::ROUTED,
        outbox_relay::REPLACE_PAYLOAD,
        outbox_relay::SET_ASIDE,
        quarantine::DISCARD,
        outbox_lists::BY_SEQ,
    ] {
        uses(sql, &["INTEGER PRIMARY KEY"]);
    }
}

#[test]
fn keys_and_tokens_are_looked_up_by_their_indexes() {
    uses(idempotency_keys::FIND, &["PRIMARY KEY (tenant=? AND key=?)"]);
    assert!(
        plan(idempotency_keys::KEPT_BYTES).contains("COVERING INDEX idempotency_keys_of_changes")
    );
    uses(idempotency_keys::FINISH, &["PRIMARY KEY (tenant=? AND key=?)"]);
    uses(idempotency_keys::ANY_EXPIRED, &["INDEX idempotency_keys_expiry (expires_at<?)"]);
    uses(idempotency_keys::EXPIRE, &["INDEX idempotency_keys_expiry (expires_at<?)"]);
    uses(processed_events::PAGE, &["PRIMARY KEY ((tenant,consumer_group,event_id)>(?,?,?))"]);
    uses(processed_events::FORGET, &["PRIMARY KEY (tenant=? AND consumer_group=? AND event_id=?)"]);
    let needed = plan(processed_events::NEEDED);
    for index in ["deliveries_due", "deliveries_behind", "deliveries_attention (state=?)"] {
        assert!(needed.contains(index), "{needed}");
    }
    uses(tokens::BY_HASH, &["INDEX sqlite_autoindex_tokens_2 (hash=?)"]);
    uses(sessions::BY_HASH, &["INDEX sqlite_autoindex_sessions_2 (hash=?)"]);
    uses(users::BY_NAME, &["INDEX users_name (tenant=? AND name=?)"]);
    uses(users::OF_LINK, &["INDEX sqlite_autoindex_login_links_1 (hash=?)"]);
    uses(sessions::END_OF_USER, &["INDEX sessions_of_user (user_seq=?)"]);
    uses(sessions::OF_USER, &["INDEX sessions_of_user (user_seq=? AND seq>?)"]);
    uses(sessions::PRUNE, &["INDEX sessions_of_user (user_seq=?)"]);
}

/// Asserts that the statements of a page search one index within the range of numbers.
#[track_caller]
fn searches_range(sqls: &[&str], index: &str, keys: &str, number: &str) {
    for sql in sqls {
        uses(sql, &[&format!("INDEX {index} ({keys}{number}>? AND {number}<?)")]);
    }
}

#[test]
fn lists_use_their_indexes() {
    use outbox_lists::{CUTOFF_OF_AGGREGATE, CUTOFF_OF_TENANT, PAGE_OF_AGGREGATE, PAGE_OF_TENANT};
    searches_range(&[PAGE_OF_TENANT, CUTOFF_OF_TENANT], "outbox_listed", "tenant=? AND ", "rowid");
    let of_aggregate = [PAGE_OF_AGGREGATE, CUTOFF_OF_AGGREGATE];
    let keys = "tenant=? AND aggregate_id=? AND ";
    searches_range(&of_aggregate, "outbox_aggregate", keys, "rowid");
    let of_parent = [outbox_lists::PAGE_OF_CHILDREN, outbox_lists::CUTOFF_OF_CHILDREN];
    searches_range(&of_parent, "outbox_children", "parent_seq=? AND ", "rowid");
    let of_process = [outbox_lists::PAGE_OF_PROCESS, outbox_lists::CUTOFF_OF_PROCESS];
    let keys = "tenant=? AND process_id=? AND ";
    searches_range(&of_process, "outbox_process", keys, "rowid");
    searches_range(&[quarantine::CUTOFF], "outbox_quarantined", "", "seq");
    let quarantined = plan(quarantine::PAGE);
    let index = "INDEX outbox_quarantined (seq>? AND seq<?)";
    assert!(quarantined.contains(index), "{quarantined}");
    let webhooks = [webhook_events::PAGE, webhook_events::CUTOFF];
    searches_range(&webhooks, "webhook_events_listed", "tenant=? AND ", "rowid");
    let audit = [audit_events::PAGE, audit_events::CUTOFF];
    searches_range(&audit, "audit_events_listed", "tenant=? AND ", "rowid");
    let correlation = [audit_events::PAGE_OF_CORRELATION, audit_events::CUTOFF_OF_CORRELATION];
    let keys = "correlation_id=? AND ";
    searches_range(&correlation, "audit_events_correlation", keys, "rowid");
    // The few rows of an aggregate are sorted.
    let of_aggregate = plan(audit_events::RESOURCES_OF_AGGREGATE);
    let of_resources = plan(audit_events::PAGE_OF_RESOURCES);
    for (plan, index) in [
        (&of_aggregate, "INDEX outbox_aggregate (tenant=? AND aggregate_id=?)"),
        (&of_aggregate, "INDEX deliveries_of_event (outbox_seq=?)"),
        (&of_resources, "INDEX audit_events_resource (resource_id=? AND rowid>? AND rowid<?)"),
    ] {
        assert!(plan.contains(index) && !plan.contains("AUTOMATIC"), "{plan}");
    }
    uses(outbox_lists::TRACED, &["outbox_trace (tenant=? AND trace_id=?)"]);
    uses(outbox_lists::TRACED_WEBHOOKS, &["webhook_events_trace (tenant=? AND trace_id=?)"]);
    uses(delivery_lists::PAGE_OF_TRACE, &["deliveries_of_event (outbox_seq=?)"]);
    for sql in [outbox_lists::PAGE_OF_TRACE, webhook_events::PAGE_OF_TRACE] {
        uses(sql, &["INTEGER PRIMARY KEY (rowid=?)"]);
    }
    for sql in
        [outbox_lists::PAGE, outbox_lists::NEWEST, delivery_lists::PAGE, delivery_lists::NEWEST]
    {
        let plan = plan(sql);
        assert!(plan.contains("INTEGER PRIMARY KEY (rowid>? AND rowid<?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
    for sql in [
        outbox_lists::RECEIVED_FROM,
        webhook_events::RECEIVED_FROM,
        audit_events::DONE_FROM,
        delivery_lists::MADE_FROM,
    ] {
        uses(sql, &["INTEGER PRIMARY KEY (rowid>?)"]);
    }
    for sql in [
        delivery_lists::PAGE_OF_DEAD,
        delivery_lists::CUTOFF_OF_DEAD,
        delivery_lists::PAGE_IN_DOUBT,
        delivery_lists::CUTOFF_IN_DOUBT,
    ] {
        let plan = plan(sql);
        let index = "INDEX deliveries_attention (state=? AND tenant=? AND seq>? AND seq<?)";
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
    }
    uses(attempts::OF, &["PRIMARY KEY (delivery_seq=? AND n>?)"]);
    uses(escalations::PAGE, &["INDEX escalations_listed (tenant=? AND seq<?)"]);
    uses(escalations::PAGE_OF_OPEN, &["INDEX escalations_open_listed (tenant=? AND seq<?)"]);
    uses(subjects::PAGE, &["INDEX subjects_listed (tenant=? AND seq>?)"]);
    uses(subjects::PAGE_OF_ERASED, &["INDEX subjects_erased (tenant=? AND seq>?)"]);
    uses(subjects::OF, &["INDEX subjects_identity (tenant=? AND subject=? AND rowid<?)"]);
}

#[test]
fn an_id_of_a_source_or_a_provider_is_found_by_one_seek_per_source() {
    // The few rows that are found may be sorted; the list of sources is built in the same statement.
    for (sql, name, id) in [
        (outbox_lists::PAGE_OF_KEY, "outbox_identity", "source_system=? AND idempotency_key=?"),
        (
            webhook_events::PAGE_OF_ID,
            "webhook_events_identity",
            "provider=? AND provider_event_id=?",
        ),
    ] {
        let plan = plan(sql);
        let found = format!("INDEX {name} (tenant=? AND {id} AND rowid>? AND rowid<?)");
        assert!(plan.contains(&found), "{plan}");
        let least = format!("COVERING INDEX {name} (tenant=?");
        assert_eq!(plan.matches(&least).count(), 2, "{plan}");
        assert!(!plan.contains("AUTOMATIC") && !plan.contains("SCAN t"), "{plan}");
    }
}

#[test]
fn a_start_reads_the_attempts_of_the_newest_deliveries_only() {
    uses(
        runs::ATTEMPTS_OF_NEWEST,
        &[
            "SEARCH d USING INTEGER PRIMARY KEY (rowid>?)",
            "SEARCH a USING PRIMARY KEY (delivery_seq=?)",
        ],
    );
}

#[test]
fn a_search_seeks_in_an_index_or_reads_the_newest_rows() {
    let key = "INDEX outbox_identity (tenant=? AND source_system=? AND idempotency_key>? AND idempotency_key<?)";
    uses(search::EVENTS_OF_KEY, &[key]);
    let values = "SEARCH v USING PRIMARY KEY (tenant=? AND value>? AND value<?)";
    uses(search::EVENTS_OF_PAYLOAD, &[values, "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)"]);
    uses(search_values::FOUND, &["SEARCH o USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    let id = "INDEX webhook_events_identity (tenant=? AND provider=? AND provider_event_id>? AND provider_event_id<?)";
    uses(search::WEBHOOK_EVENTS_OF_ID, &[id]);
    for (sql, index) in [
        (search::SOURCE_SYSTEMS, "COVERING INDEX outbox_identity (tenant=?"),
        (search::PROVIDERS, "COVERING INDEX webhook_events_identity (tenant=?"),
    ] {
        let plan = plan(sql);
        assert_eq!(plan.matches(index).count(), 2, "{plan}");
        assert!(!plan.contains("AUTOMATIC") && !plan.contains("SCAN t"), "{plan}");
    }
    for (sql, index) in [
        (search::EVENT_OF_IDENTITY, "COVERING INDEX outbox_identity (tenant=?)"),
        (search::WEBHOOK_EVENT_OF_IDENTITY, "COVERING INDEX webhook_events_identity (tenant=?)"),
        (search::HAS_MORE_EVENTS, "COVERING INDEX outbox_listed (tenant=?)"),
    ] {
        let plan = plan(sql);
        assert!(plan.contains(index), "{plan}");
    }
    // The few rows of the inner statement, which has a LIMIT, are scanned.
    let newest = "INDEX webhook_events_listed (tenant=?)";
    for (sql, inner) in [
        (
            search::EVENTS_OF_AGGREGATE,
            "INDEX outbox_aggregate (tenant=? AND aggregate_id>? AND aggregate_id<?)",
        ),
        (
            search::EVENTS_OF_PAIR,
            "INDEX outbox_aggregate (tenant=? AND aggregate_id>? AND aggregate_id<?)",
        ),
        (search::EVENTS_BY_ID, "INDEX sqlite_autoindex_outbox_1 (id>? AND id<?)"),
        (search::WEBHOOK_EVENTS_BY_ID, "INDEX sqlite_autoindex_webhook_events_1 (id>? AND id<?)"),
        (search::EVENTS_OF_WEBHOOK_ID_OF_TENANT, "INDEX outbox_listed (tenant=?)"),
        (search::EVENTS_OF_TYPE_OF_TENANT, "INDEX outbox_listed (tenant=?)"),
        (search::WEBHOOK_EVENTS_OF_WEBHOOK_ID_OF_TENANT, newest),
        (search::WEBHOOK_EVENTS_OF_TYPE_OF_TENANT, newest),
    ] {
        let plan = plan(sql);
        assert!(plan.contains(inner), "{inner}:\n{plan}");
        assert!(plan.contains("SEARCH t USING INTEGER PRIMARY KEY (rowid=?)"), "{plan}");
        assert!(!plan.contains("AUTOMATIC") && !plan.contains("TEMP B-TREE"), "{plan}");
        assert_eq!(plan.matches("SCAN").count(), 1, "{plan}");
    }
    // The latest rows are one range of the table, read once.
    for sql in [
        search::EVENTS_OF_WEBHOOK_ID,
        search::EVENTS_OF_TYPE,
        search::WEBHOOK_EVENTS_OF_WEBHOOK_ID,
        search::WEBHOOK_EVENTS_OF_TYPE,
    ] {
        let plan = plan(sql);
        assert!(plan.contains("SEARCH t USING INTEGER PRIMARY KEY (rowid>?)"), "{plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
    }
    for (sql, index) in [
        (search::SUBSCRIPTIONS_OF_NAME, "subscriptions_name"),
        (search::PROVIDERS_OF_NAME, "providers_name"),
        (search::SOURCES_OF_NAME, "sources_name"),
    ] {
        uses(sql, &[&format!("INDEX {index} (tenant=? AND name>? AND name<?)")]);
    }
    uses(search::SUBSCRIPTIONS_BY_ID, &["INDEX subscriptions_name (tenant=?)"]);
}

#[test]
fn the_deliveries_of_one_event_are_listed_by_its_index() {
    // The few rows of one event may be sorted.
    let of_event = plan(delivery_lists::OF_EVENT);
    assert!(of_event.contains("INDEX deliveries_of_event (outbox_seq=?)"), "{of_event}");
    let of_webhook = plan(delivery_lists::OF_WEBHOOK_EVENT);
    assert!(
        of_webhook.contains("INDEX deliveries_of_webhook_event (webhook_seq=?)"),
        "{of_webhook}"
    );
    for plan in [of_event, of_webhook] {
        // What is in flight is a short list of numbers.
        assert!(!plan.replace("SCAN json_each", "").contains("SCAN"), "{plan}");
    }
}

#[test]
fn a_term_that_another_program_changes_is_noticed() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(schema_shape::SCHEMA).unwrap();
    let sql = "SELECT sql FROM sqlite_schema WHERE name = 'subscriptions_updated_at'";
    let trigger = texts(&conn, sql).concat();
    let (_, of) = trigger.split_once("UPDATE OF ").unwrap();
    let (columns, _) = of.split_once(" ON ").unwrap();
    let columns: Vec<&str> = columns.split(',').map(str::trim).collect();
    let terms = serde_json::to_value(SubscriptionTerms::default()).unwrap();
    for name in terms.as_object().unwrap().keys() {
        let column = if name == "order" { "order_terms" } else { name };
        assert!(columns.contains(&column), "{column} is not in the trigger of updated_at");
    }
}

#[test]
fn a_failure_is_written_even_if_a_success_follows_in_its_transaction() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(schema_shape::SCHEMA).unwrap();
    let new = "INSERT INTO subscriptions (id, name, event_types, url, created_at, updated_at, last_success_at)
               VALUES ('a', 'erp', '[]', 'http://erp/', 1, 1, 1000)";
    conn.execute_batch(new).unwrap();
    let failed_at = |success: i64, failure: Option<i64>| {
        let row = (1, 0, None::<i64>, success, failure, None::<String>, 0, 0);
        conn.execute(subscriptions::STORE_ATTEMPTS, row).unwrap();
        let sql = "SELECT last_success_at, last_failure_at FROM subscriptions";
        conn.query_row(sql, [], |row| <(i64, Option<i64>)>::try_from(row)).unwrap()
    };
    assert_eq!(failed_at(1500, None), (1000, None));
    assert_eq!(failed_at(1600, Some(1400)), (1600, Some(1400)));
}

#[test]
fn stats_are_counted_in_partial_indexes() {
    uses(stats::OVERDUE, &["INDEX deliveries_due (subscription_seq=?)"]);
    uses(stats::DEAD, &["INDEX deliveries_attention (state=?)"]);
    for sql in [quarantine::COUNT, quarantine::COUNT_OF] {
        assert!(plan(sql).contains("outbox_quarantined"), "{sql}");
    }
    let depth = plan(stats::DEPTH);
    assert!(depth.contains("COVERING INDEX deliveries_due"), "{depth}");
    let plan = plan(stats::COUNTS);
    assert!(plan.contains("INDEX deliveries_attention (state=? AND tenant=?)"), "{plan}");
    assert_eq!(plan.matches("USING COVERING INDEX deliveries_due").count(), 2, "{plan}");
    assert!(plan.contains("COVERING INDEX deliveries_behind"), "{plan}");
    assert!(!plan.contains("AUTOMATIC"), "{plan}");
}

#[test]
fn deliveries_in_doubt_are_found_by_their_index_and_changed_by_number() {
    uses(in_doubt::IN_DOUBT, &["INDEX deliveries_attention (state=? AND tenant=?)"]);
    uses(in_doubt::COUNT, &["INDEX deliveries_attention (state=? AND tenant=?)"]);
    for sql in [in_doubt::UNSENT, in_doubt::RELEASE, in_doubt::SKIP] {
        uses(sql, &[BY_ROW]);
    }
}

#[test]
fn unfinished_deliveries_of_a_subscription_are_found_by_three_seeks() {
    uses(
        deliveries::HAS_UNFINISHED,
        &[
            "INDEX deliveries_due (subscription_seq=?)",
            "INDEX deliveries_behind (subscription_seq=?)",
            "INDEX deliveries_attention_of (subscription_seq=?",
        ],
    );
}

#[test]
fn taking_and_reporting_deliveries_uses_indexes() {
    let due = "INDEX deliveries_due (subscription_seq=? AND due_at<?)";
    uses(leases::DUE_WITH_SIZE, &[due, "SEARCH o", "SEARCH w", "SEARCH p"]);
    for sql in [leases::LEASE, leases::HELD, leases::PUT_BACK, leases::FINISH, leases::EXTEND] {
        uses(sql, &[BY_ROW]);
    }
    uses(leases::BETWEEN, &["INDEX deliveries_leases (lease_until>? AND lease_until<?)"]);
    uses(leases::CLAMP, &["INDEX deliveries_leases (lease_until>?)", BY_ROW]);
    uses(leases::NEXT_EXPIRY, &["COVERING INDEX deliveries_leases"]);
}

#[test]
fn ends_of_times_to_confirm_are_found_by_their_index() {
    uses(confirmations::OVER, &["INDEX deliveries_confirmations (confirm_until<?)"]);
    uses(confirmations::CLAMP, &["INDEX deliveries_confirmations (confirm_until>?)", BY_ROW]);
}

#[test]
fn a_family_is_followed_by_seeks() {
    uses(families::BY_ID, &["INDEX sqlite_autoindex_outbox_1 (id=?)"]);
    let identity = "INDEX outbox_identity (tenant=? AND source_system=? AND idempotency_key=?)";
    uses(families::BY_KEY, &[identity]);
    for sql in [families::JOIN, families::LEAVE, families::PARENT, families::KIN, families::FOLLOW]
    {
        uses(sql, &[BY_ROW]);
    }
    let children = plan(families::CHILDREN);
    let seek = "INDEX outbox_hard_children (parent_seq=? AND status=?)";
    assert_eq!(children.matches(seek).count(), 3, "{children}");
    let chain = plan(families::CHAIN);
    assert_eq!(chain.matches("SEARCH o USING INTEGER PRIMARY KEY").count(), 2, "{chain}");
}

#[test]
fn the_head_and_the_first_delivery_of_a_lane_are_one_seek_each() {
    uses(lanes::HEAD, &["INDEX deliveries_lane_head (lane=?)"]);
    uses(lanes::FIRST_IN_LANE, &["INDEX deliveries_lane (lane=?)"]);
    uses(lanes::DEMOTE, &[BY_ROW]);
    uses(lanes::PROMOTE, &[BY_ROW]);
    uses(lanes::BLOCKED_BY, &["INDEX deliveries_blocking (lane=?", BY_ROW]);
    uses(lanes::BLOCKING_OF, &["INDEX deliveries_attention_of (subscription_seq=? AND state=?)"]);
    for (sql, seq) in [(deliveries::PLACE, "seq<?"), (deliveries::MAKE_WAY, "seq>?")] {
        let of = |index: &str| format!("INDEX {index} (lane=? AND order_at=? AND {seq})");
        uses(sql, &[BY_ROW, &of("deliveries_lane"), &of("deliveries_blocking")]);
    }
    let of =
        ["lane", "blocking", "dead_in_lane"].map(|of| format!("INDEX deliveries_{of} (lane=?)"));
    uses(lanes::LAST, &of.each_ref().map(String::as_str));
    uses(deliveries::STATE, &[BY_ROW, "INDEX deliveries_lane (lane=?)"]);
}

#[test]
fn what_a_newer_delivery_or_call_makes_superfluous_is_found_by_seeks() {
    let entity = "INDEX deliveries_entity (entity=? AND order_at>?)";
    uses(external_calls::NEWER, &["SEARCH d USING INTEGER PRIMARY KEY", entity, "SEARCH o"]);
    let entity = "INDEX deliveries_entity (entity=? AND order_at<?)";
    uses(external_calls::OLDER, &["SEARCH d USING INTEGER PRIMARY KEY", entity]);
    uses(external_calls::ORDER_AT, &[BY_ROW]);
    let call = "PRIMARY KEY (subscription_seq=? AND entity=?)";
    uses(external_calls::MADE, &[call, BY_ROW]);
    uses(external_calls::ADVANCE, &[call]);
    uses(external_calls::NEWEST_PLACE, &[call, "INDEX deliveries_entity (entity=?)"]);
    let newest = "INDEX external_calls_newest (subscription_seq=? AND delivery_seq";
    uses(external_calls::END, &[newest, BY_ROW]);
    uses(external_calls::PAGE, &[newest, BY_ROW]);
}

#[test]
fn what_waits_too_long_behind_others_is_found_by_its_due_time() {
    uses(postponed::BEHIND, &["INDEX deliveries_behind (subscription_seq=? AND due_at<?)"]);
    let due = "INDEX deliveries_due (subscription_seq=? AND due_at<?)";
    uses(postponed::IN_FUNNEL, &[due, "INDEX deliveries_funnel_taken (funnel=?)", BY_ROW]);
}

#[test]
fn lanes_are_listed_in_the_order_of_their_indexes() {
    uses(lane_lists::WITH_HEAD, &["INDEX deliveries_lane_head (lane>?)"]);
    uses(
        lane_lists::WITHOUT_HEAD,
        &["INDEX deliveries_blocking (lane>?)", "INDEX deliveries_lane_head (lane=?)"],
    );
    uses(lane_lists::BLOCKER, &["INDEX deliveries_blocking (lane=?)"]);
    uses(lane_lists::IN_LANE, &["INDEX deliveries_lane (lane=?)"]);
    for (sql, index) in [
        (lane_lists::COUNT, "INDEX deliveries_lane (lane=?)"),
        (lane_lists::PARKED, "INDEX deliveries_attention (state=? AND tenant=?)"),
    ] {
        let plan = plan(sql);
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}

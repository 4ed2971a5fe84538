//! Who may do what: one table of every route and every role.

use oncebox::api::routes;

use crate::rig::prelude::*;

/// What nobody, `publish`, `read`, `operate`, an admin of another tenant and an admin of the tenant `default` are
/// answered, and for which routes. `1` is 401, `3` is 403, `.` is neither: the route itself answers.
/// Only for the user who is logged in is `133333`: tests/it/users.rs.
const TABLE: &[(&str, &str)] = &[
    (
        "......",
        "POST /confirm/{token}, GET /in/{provider}, POST /in/{provider}, GET /in/{tenant}/{provider}, POST /in/{tenant}/{provider}, GET /livez, \
         GET /openapi.json, GET /readyz",
    ),
    ("1.3...", "POST /v1/events, POST /v1/processed-events"),
    (
        "13....",
        "GET /v1/alert-channels, GET /v1/alert-channels/{name}, GET /v1/credentials, \
         GET /v1/credentials/{id}, GET /v1/dead-letters, GET /v1/dead-letters/summary, \
         GET /v1/deliveries, GET /v1/deliveries/{id}, GET /v1/deliveries/{id}/attempts, \
         GET /v1/deliveries/{id}/request, GET /v1/escalations, GET /v1/escalations/{id}, \
         GET /v1/event-types, GET /v1/event-types/{name}, GET /v1/event-types/{name}/proposal, \
         GET /v1/events, GET /v1/events/{id}, GET /v1/external-calls, GET /v1/in-doubt, \
         GET /v1/jobs, GET /v1/jobs/{id}, GET /v1/lanes, GET /v1/lanes/{id}, GET /v1/me/sessions, \
         GET /v1/providers, GET /v1/providers/{name}, GET /v1/providers/{name}/secrets, \
         GET /v1/refused-webhooks, GET /v1/search, GET /v1/sources, GET /v1/sources/{name}, \
         GET /v1/stats, GET /v1/stats/recent, GET /v1/subscription-tests/{id}, \
         GET /v1/subscriptions, GET /v1/subscriptions/{id}, GET /v1/subscriptions/{id}/history, GET /v1/providers/{name}/history, \
         GET /v1/providers/{name}/reconciliations, GET /v1/providers/{name}/reconciliations/{id}, GET /v1/subscriptions/{id}/past-holds, GET /v1/webhook-events, \
         GET /v1/webhook-events/{id}, DELETE /v1/me/sessions/{id}",
    ),
    ("13..3.", "GET /metrics"),
    (
        "133...",
        "POST /v1/alert-channels/{name}/test, POST /v1/consumers/{name}/ack, \
         POST /v1/consumers/{name}/extend, POST /v1/consumers/{name}/nack, \
         POST /v1/dead-letters/discard, POST /v1/dead-letters/replay, POST /v1/deliveries/release, \
         POST /v1/deliveries/skip, POST /v1/deliveries/{id}/cancel, \
         POST /v1/deliveries/{id}/confirm, POST /v1/deliveries/{id}/edit-and-resend, \
         POST /v1/deliveries/{id}/move-to-end, POST /v1/deliveries/{id}/park, \
         POST /v1/deliveries/{id}/release, POST /v1/deliveries/{id}/retry, \
         POST /v1/deliveries/{id}/skip, POST /v1/escalations/{id}/acknowledge, \
         POST /v1/external-calls/{id}/end, POST /v1/events/replay, POST /v1/events/{id}/cancel, POST /v1/events/{id}/discard, \
         POST /v1/events/{id}/fix, POST /v1/events/{id}/replay, POST /v1/jobs/{id}/cancel, \
         POST /v1/jobs/{id}/pause, POST /v1/jobs/{id}/resume, POST /v1/providers/{name}/reconciliations, POST /v1/sources/{name}/pause, \
         POST /v1/sources/{name}/release, POST /v1/sources/{name}/reopen, POST /v1/sources/{name}/reset, \
         POST /v1/sources/{name}/resume, \
         POST /v1/subscriptions/{id}/pause, POST /v1/subscriptions/{id}/recover, \
         POST /v1/subscriptions/{id}/comparison, POST /v1/subscriptions/{id}/resume, POST /v1/subscriptions/{id}/test, \
         POST /v1/webhook-events/replay, POST /v1/webhook-events/{id}/replay, \
         GET /v1/consumers/{name}/next, GET /v1/sources/{name}/test, GET /v1/providers/{name}/sample",
    ),
    (
        "1333..",
        "PUT /v1/event-types/{name}, DELETE /v1/alert-channels/{name}, \
         DELETE /v1/event-types/{name}, DELETE /v1/providers/{name}, \
         DELETE /v1/providers/{name}/secrets/{secret_id}, DELETE /v1/sessions/{id}, \
         DELETE /v1/sources/{name}, DELETE /v1/subscriptions/{id}, DELETE /v1/tokens/{id}, \
         DELETE /v1/users/{name}, POST /integrations/credentials/rotate, POST /v1/alert-channels, \
         POST /v1/credentials/{id}/reveal, POST /v1/credentials/{id}/revoke, POST /v1/credentials/{id}/rotate, \
         POST /v1/credentials/{id}/schedule, POST /v1/events/expunge, POST /v1/providers, \
         POST /v1/providers/{name}/secrets, POST /v1/sources, POST /v1/sources/{name}/credentials, POST /v1/subjects/erase, \
         POST /v1/subjects/find, POST /v1/subscriptions, POST /v1/subscriptions/{id}/credentials, \
         POST /v1/subscriptions/{id}/secrets, POST /v1/tokens, POST /v1/users, \
         POST /v1/users/{name}/link, POST /v1/webhook-events/expunge, PATCH /v1/alert-channels/{name}, PATCH /v1/providers/{name}, \
         PATCH /v1/sources/{name}, PATCH /v1/subscriptions/{id}, PATCH /v1/users/{name}, \
         GET /v1/audit-events, GET /v1/audit-events/verification, GET /v1/audit-events/{seq}, \
         GET /v1/sessions, GET /v1/sessions/{id}, GET /v1/subjects, GET /v1/tokens, \
         GET /v1/tokens/{id}, GET /v1/users, GET /v1/users/{name}",
    ),
    (
        "13333.",
        "DELETE /v1/archive/{month}, DELETE /v1/legal-holds/{name}, GET /v1/archive, GET /v1/clock, GET /v1/databases, POST /v1/databases/{name}/test, GET /v1/legal-holds, GET /v1/backups, GET /v1/backups/{name}, POST /v1/backups/{name}/verify, GET /v1/settings, GET /v1/tenants, GET /v1/tenants/{name}, \
         POST /v1/archive/runs, POST /v1/clock/confirm, POST /v1/legal-holds, POST /v1/backups, POST /v1/in-doubt/end, POST /v1/keys/rotate, POST /v1/tenants, \
         POST /v1/tenants/{name}/resume, POST /v1/tenants/{name}/suspend, PATCH /v1/tenants/{name}",
    ),
    ("133333", "POST /v1/users/{name}/password"),
];

/// The routes of the table, each with what is answered.
fn table() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().flat_map(|(expected, all)| all.split(", ").map(|route| (route, *expected)))
}

/// A path of the table with something in its variable parts that is nowhere.
fn concrete(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn the_table_has_every_route_once() {
    let there: BTreeSet<String> = routes().map(|route| format!("{route:?}")).collect();
    let table: BTreeSet<String> = table().map(|(route, _)| route.to_owned()).collect();
    assert_eq!(there, table, "say in {} who may call a new route", file!());
    assert_eq!(table.len(), self::table().count());
}

#[test]
fn every_role_may_do_what_the_table_says_and_nothing_else() {
    let rig = Rig::new();
    let roles = ["publish", "read", "operate"].map(|role| rig.token_of(role));
    let [publish, read, operate] = &roles;
    let admin = rig.tenant("acme");
    let callers = [None, Some(publish), Some(read), Some(operate), Some(&admin), Some(&rig.token)];
    for (route, expected) in table() {
        let (method, path) = route.split_once(' ').unwrap();
        for (n, (caller, expected)) in callers.iter().zip(expected.chars()).enumerate() {
            let path = concrete(path);
            let answer = match caller {
                None => rig.send(method, &path, &[], b"{}"),
                Some(token) => rig.call_as(token, method, &path, b"{}"),
            };
            let told = match answer.status {
                401 => '1',
                403 => '3',
                _ => '.',
            };
            assert_eq!(told, expected, "{route}, caller {n}: {answer:?}");
            assert_eq!(answer.field("www-authenticate"), (told == '1').then_some("Bearer"));
        }
    }
}

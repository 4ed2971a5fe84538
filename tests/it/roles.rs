//! Who may do what: one table of every route and every role.

use oncebox::api::routes;

use crate::rig::prelude::*;

/// For each route: what nobody, `publish`, `read`, `operate`, an admin of another tenant and an admin of the
/// tenant `default` are answered. `1` is 401, `3` is 403, `.` is neither: the route itself answers.
const TABLE: &[(&str, &str)] = &[
    ("POST /in/{provider}", "......"),
    ("POST /in/{tenant}/{provider}", "......"),
    ("POST /v1/events", "1.3..."),
    ("GET /v1/events", "13...."),
    ("GET /v1/events/{id}", "13...."),
    ("POST /v1/events/{id}/fix", "133..."),
    ("POST /v1/events/{id}/discard", "133..."),
    ("GET /v1/event-types", "13...."),
    ("GET /v1/event-types/{name}", "13...."),
    ("GET /v1/event-types/{name}/proposal", "13...."),
    ("PUT /v1/event-types/{name}", "1333.."),
    ("DELETE /v1/event-types/{name}", "1333.."),
    ("GET /v1/webhook-events", "13...."),
    ("GET /v1/webhook-events/{id}", "13...."),
    ("GET /v1/providers", "13...."),
    ("POST /v1/providers", "1333.."),
    ("GET /v1/providers/{name}", "13...."),
    ("PATCH /v1/providers/{name}", "1333.."),
    ("DELETE /v1/providers/{name}", "1333.."),
    ("GET /v1/subscriptions", "13...."),
    ("POST /v1/subscriptions", "1333.."),
    ("GET /v1/subscriptions/{id}", "13...."),
    ("PATCH /v1/subscriptions/{id}", "1333.."),
    ("DELETE /v1/subscriptions/{id}", "1333.."),
    ("POST /v1/subscriptions/{id}/test", "133..."),
    ("GET /v1/subscription-tests/{id}", "13...."),
    ("POST /v1/credentials/{id}/rotate", "1333.."),
    ("POST /v1/credentials/{id}/schedule", "1333.."),
    ("POST /integrations/credentials/rotate", "1333.."),
    ("POST /v1/subscriptions/{id}/pause", "133..."),
    ("POST /v1/subscriptions/{id}/resume", "133..."),
    ("GET /v1/deliveries", "13...."),
    ("GET /v1/deliveries/{id}", "13...."),
    ("GET /v1/deliveries/{id}/attempts", "13...."),
    ("GET /v1/deliveries/{id}/request", "13...."),
    ("POST /v1/deliveries/{id}/retry", "133..."),
    ("POST /v1/deliveries/{id}/cancel", "133..."),
    ("POST /v1/deliveries/{id}/confirm", "133..."),
    ("POST /confirm/{token}", "......"),
    ("GET /v1/dead-letters", "13...."),
    ("GET /v1/dead-letters/summary", "13...."),
    ("POST /v1/dead-letters/replay", "133..."),
    ("POST /v1/dead-letters/discard", "133..."),
    ("GET /v1/jobs", "13...."),
    ("GET /v1/jobs/{id}", "13...."),
    ("POST /v1/jobs/{id}/pause", "133..."),
    ("POST /v1/jobs/{id}/resume", "133..."),
    ("POST /v1/jobs/{id}/cancel", "133..."),
    ("POST /v1/events/replay", "133..."),
    ("POST /v1/webhook-events/replay", "133..."),
    ("POST /v1/subscriptions/{id}/recover", "133..."),
    ("POST /v1/events/{id}/replay", "133..."),
    ("POST /v1/events/{id}/cancel", "133..."),
    ("POST /v1/webhook-events/{id}/replay", "133..."),
    ("GET /v1/consumers/{name}/next", "133..."),
    ("POST /v1/consumers/{name}/ack", "133..."),
    ("POST /v1/consumers/{name}/nack", "133..."),
    ("POST /v1/consumers/{name}/extend", "133..."),
    ("POST /v1/processed-events", "1.3..."),
    ("GET /v1/tokens", "1333.."),
    ("POST /v1/tokens", "1333.."),
    ("GET /v1/tokens/{id}", "1333.."),
    ("DELETE /v1/tokens/{id}", "1333.."),
    ("GET /v1/users", "1333.."),
    ("POST /v1/users", "1333.."),
    ("GET /v1/users/{name}", "1333.."),
    ("PATCH /v1/users/{name}", "1333.."),
    ("DELETE /v1/users/{name}", "1333.."),
    ("POST /v1/users/{name}/link", "1333.."),
    // Only for the user who is logged in: tests/it/users.rs.
    ("POST /v1/users/{name}/password", "133333"),
    ("GET /v1/sessions", "1333.."),
    ("GET /v1/sessions/{id}", "1333.."),
    ("DELETE /v1/sessions/{id}", "1333.."),
    ("GET /v1/me/sessions", "13...."),
    ("DELETE /v1/me/sessions/{id}", "13...."),
    ("GET /v1/tenants", "13333."),
    ("POST /v1/tenants", "13333."),
    ("GET /v1/tenants/{name}", "13333."),
    ("PATCH /v1/tenants/{name}", "13333."),
    ("POST /v1/tenants/{name}/suspend", "13333."),
    ("POST /v1/tenants/{name}/resume", "13333."),
    ("GET /v1/sources", "13...."),
    ("POST /v1/sources", "1333.."),
    ("GET /v1/sources/{name}", "13...."),
    ("PATCH /v1/sources/{name}", "1333.."),
    ("DELETE /v1/sources/{name}", "1333.."),
    ("GET /v1/sources/{name}/test", "133..."),
    ("POST /v1/sources/{name}/pause", "133..."),
    ("POST /v1/sources/{name}/resume", "133..."),
    ("POST /v1/sources/{name}/reset", "133..."),
    ("GET /v1/external-calls", "13...."),
    ("GET /v1/escalations", "13...."),
    ("GET /v1/escalations/{id}", "13...."),
    ("POST /v1/escalations/{id}/acknowledge", "133..."),
    ("GET /v1/alert-channels", "13...."),
    ("POST /v1/alert-channels", "1333.."),
    ("GET /v1/alert-channels/{name}", "13...."),
    ("PATCH /v1/alert-channels/{name}", "1333.."),
    ("DELETE /v1/alert-channels/{name}", "1333.."),
    ("POST /v1/alert-channels/{name}/test", "133..."),
    ("GET /v1/audit-events", "1333.."),
    ("GET /v1/audit-events/{seq}", "1333.."),
    ("GET /v1/subjects", "1333.."),
    ("POST /v1/subjects/find", "1333.."),
    ("POST /v1/subjects/erase", "1333.."),
    ("GET /v1/providers/{name}/secrets", "13...."),
    ("POST /v1/providers/{name}/secrets", "1333.."),
    ("DELETE /v1/providers/{name}/secrets/{secret_id}", "1333.."),
    ("POST /v1/subscriptions/{id}/secrets", "1333.."),
    ("GET /v1/credentials", "13...."),
    ("GET /v1/credentials/{id}", "13...."),
    ("POST /v1/subscriptions/{id}/credentials", "1333.."),
    ("POST /v1/credentials/{id}/revoke", "1333.."),
    ("POST /v1/deliveries/{id}/release", "133..."),
    ("POST /v1/deliveries/{id}/skip", "133..."),
    ("GET /v1/lanes", "13...."),
    ("GET /v1/lanes/{id}", "13...."),
    ("POST /v1/deliveries/{id}/park", "133..."),
    ("POST /v1/deliveries/{id}/move-to-end", "133..."),
    ("POST /v1/deliveries/{id}/edit-and-resend", "133..."),
    ("POST /v1/deliveries/release", "133..."),
    ("POST /v1/deliveries/skip", "133..."),
    ("GET /v1/in-doubt", "13...."),
    ("POST /v1/in-doubt/end", "13333."),
    ("POST /v1/keys/rotate", "13333."),
    ("GET /metrics", "13..3."),
    ("GET /v1/stats", "13...."),
    ("GET /v1/stats/recent", "13...."),
    ("GET /v1/search", "13...."),
    ("GET /v1/refused-webhooks", "13...."),
    ("GET /v1/audit-events/verification", "1333.."),
    ("GET /v1/backups", "13333."),
    ("POST /v1/backups", "13333."),
    ("GET /v1/settings", "13333."),
    ("GET /livez", "......"),
    ("GET /readyz", "......"),
    ("GET /openapi.json", "......"),
];

/// A path of the table with something in its variable parts that is nowhere.
fn concrete(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "none" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn the_table_has_every_route_once() {
    let there: BTreeSet<String> = routes().map(|route| format!("{route:?}")).collect();
    let table: BTreeSet<String> = TABLE.iter().map(|(route, _)| (*route).to_owned()).collect();
    assert_eq!(there, table, "say in {} who may call a new route", file!());
    assert_eq!(table.len(), TABLE.len());
}

#[test]
fn every_role_may_do_what_the_table_says_and_nothing_else() {
    let rig = Rig::new();
    let roles = ["publish", "read", "operate"].map(|role| rig.token_of(role));
    let [publish, read, operate] = &roles;
    let admin = rig.tenant("acme");
    let callers = [None, Some(publish), Some(read), Some(operate), Some(&admin), Some(&rig.token)];
    for (route, expected) in TABLE {
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

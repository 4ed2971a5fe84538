//! Nothing crosses from one tenant to another: asserted over every route there is. A route that is added
//! has to be added here, or the first test says so.

use oncebox::api::route::Route;
use oncebox::api::routes;

use crate::rig::prelude::*;

/// Stands in everything of the first tenant that can hold a text, and nowhere else.
const MARK: &str = "only-for-the-first";
/// Names that tell who else is on this box.
const FIRST: &str = "tenant-of-the-first";
const SECOND: &str = "tenant-of-the-second";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// A lane of the first tenant.
const LANE: &str = "lane_4711";
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// One tenant with one of everything. The names, keys and ids that people choose are the same in each.
struct Side {
    tenant: &'static str,
    token: String,
    receiver: Receiver,
    subscription: String,
    provider: String,
    /// The id of the provider's secret.
    credential: String,
    event: Value,
    webhook_event: String,
    robot: String,
    dead: String,
    pending: String,
    source: String,
    escalation: String,
    channel: String,
    job: String,
    user: String,
    session: String,
}

impl Side {
    fn new(rig: &Rig, tenant: &'static str, mark: &str) -> Self {
        let token = rig.tenant(tenant);
        let post = |path: &str, body: &Value| rig.post_as(&token, path, body).is(201).json();
        // Who publishes is refused, who posts webhooks is to come again.
        let receiver = Receiver::scripted([Reply::status(422), Reply::status(500)]);
        let (source, escalation) = source(rig, tenant, &token, mark);
        let body =
            json!({ "name": "erp", "url": receiver.url(), "source": "all", "owner_id": mark });
        let subscription = text(&post("/v1/subscriptions", &body), "id");
        let body = json!({ "name": "ops", "kind": "webhook", "url": receiver.url(), "classes": ["disk.low"] });
        let channel = text(&post("/v1/alert-channels", &body), "id");
        let body = json!({
            "name": "hub", "scheme": { "kind": "github" }, "pii": "allow", "secret": secret(tenant),
        });
        let provider = text(&post("/v1/providers", &body), "id");
        let secrets = rig.get_as(&token, "/v1/providers/hub/secrets");
        let credential = text(&secrets["items"][0], "id");
        let robot = text(&post("/v1/tokens", &json!({ "name": mark, "role": "read" })), "id");
        let path = format!("/v1/event-types/{mark}");
        let body = json!({ "schema": true, "description": mark }).to_string();
        rig.call_as(&token, "PUT", &path, body.as_bytes()).is(201);
        let published = publish(rig, &token, mark);
        assert_eq!(published.status, 201, "{published:?}");
        assert_eq!(published.field("idempotency-replayed"), None);
        rig.sent(&receiver, 1);
        let hooked = hook(rig, &format!("/in/{tenant}/hub"), tenant, mark).is(200).json();
        assert_eq!(hooked.get("already_processed"), None, "the same id in another tenant is new");
        rig.sent(&receiver, 2);
        guard(rig, &token).is(201);
        // It finds nothing, and is over at once.
        let nothing = json!({ "filter": { "event_type": mark } });
        let job = text(&post("/v1/dead-letters/replay", &nothing), "id");
        let user = format!("user-{tenant}");
        post("/v1/users", &json!({ "name": user, "role": "read" }));
        let path = format!("/v1/users/{user}/link");
        let url = text(&post(&path, &Value::Null), "url");
        let (head, link) = (Rig::head(Method::Post, "/"), url.rsplit('=').next().unwrap());
        drop(rig.appliance().api().enter(&head, link).unwrap());
        let sessions = rig.get_as(&token, "/v1/sessions");
        let session = text(&sessions["items"][0], "id");
        let delivery = |state: &str| {
            let path = format!("/v1/deliveries?state={state}");
            let listed = rig.get_as(&token, &path);
            assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{tenant}: {listed}");
            text(&listed["items"][0], "id")
        };
        Self {
            tenant,
            subscription,
            provider,
            credential,
            event: published.json()["events"][0].clone(),
            webhook_event: text(&hooked, "id"),
            robot,
            dead: delivery("dead_letter"),
            pending: delivery("pending"),
            source,
            escalation,
            channel,
            job,
            user,
            session,
            token,
            receiver,
        }
    }

    /// What nobody else may be shown.
    fn marks(&self) -> [String; 16] {
        [
            MARK.to_owned(),
            FIRST.to_owned(),
            self.subscription.clone(),
            self.provider.clone(),
            self.credential.clone(),
            text(&self.event, "id"),
            text(&self.event, "webhook_id"),
            self.webhook_event.clone(),
            self.robot.clone(),
            self.receiver.url(),
            self.source.clone(),
            self.escalation.clone(),
            self.channel.clone(),
            self.job.clone(),
            self.user.clone(),
            self.session.clone(),
        ]
    }
}

/// Tenants may have sources.
fn rig() -> Rig {
    Rig::with(|settings| {
        let home = settings.database.directory.parent().unwrap();
        settings.sources.tenants_directory = Some(home.join("tenants"));
    })
}

/// Two tenants with one of everything.
fn sides() -> (Rig, Side, Side) {
    let rig = rig();
    let (first, second) = (Side::new(&rig, FIRST, MARK), Side::new(&rig, SECOND, "mine"));
    (rig, first, second)
}

/// Where the sources of a tenant may lie.
fn directory(rig: &Rig, tenant: &str) -> PathBuf {
    let directory = rig.home().join("tenants").join(tenant);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// A source without its table, which is an escalation; the ids of both.
fn source(rig: &Rig, tenant: &str, token: &str, mark: &str) -> (String, String) {
    let path = directory(rig, tenant).join("erp.db");
    Connection::open(&path).unwrap().run("CREATE TABLE a (a)");
    let settings = json!({ "path": path, "table": mark });
    let body = json!({ "name": "erp", "kind": "sqlite", "settings": settings });
    let made = rig.post_as(token, "/v1/sources", &body).is(201).json();
    let mut escalation = Value::Null;
    until("it is raised", || {
        escalation = rig.get_as(token, "/v1/escalations")["items"][0]["id"].clone();
        escalation.is_string()
    });
    (text(&made, "id"), escalation.as_str().unwrap().to_owned())
}

fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_else(|| panic!("no {field} in {of}")).to_owned()
}

fn secret(tenant: &str) -> String {
    format!("what GitHub and {tenant} know")
}

fn publish(rig: &Rig, token: &str, mark: &str) -> Answer {
    let body = json!({
        "event_type": "invoice.paid", "payload": { "of": mark }, "idempotency_key": "invoice:4711",
        "aggregate_type": "invoice", "aggregate_id": "4711",
    });
    rig.post_keyed(token, KEY, &body.to_string())
}

fn hook(rig: &Rig, path: &str, signed_for: &str, mark: &str) -> Answer {
    let body = json!({ "of": mark }).to_string();
    let signature = http::github(&secret(signed_for), body.as_bytes());
    let fields = [
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", "delivery-1"),
        ("X-GitHub-Event", "push"),
    ];
    rig.send("POST", path, &fields, body.as_bytes())
}

fn guard(rig: &Rig, token: &str) -> Answer {
    let body = json!({ "consumer_group": "logistics", "event_id": "evt_1" });
    rig.post_as(token, "/v1/processed-events", &body)
}

/// What an outsider does with a route.
enum Case {
    /// Looks, in all these ways, and sees nothing of the first tenant.
    Looks(Vec<String>),
    /// Names what belongs to the first tenant, and is told that there is no such thing.
    Names(Vec<String>, Value),
    /// Acts on all that a filter fits, which is nothing of the first tenant.
    Acts(Value),
    /// Does what the first tenant has done, and it is his own.
    Does(fn(&Rig, &str) -> Answer),
    /// The same, with this body.
    Makes(Value),
    /// Is not the box's administrator.
    OfTheBox,
    /// Is asserted in a test of its own.
    Apart,
}

/// What a route is to keep; `None` for one that nobody has thought about.
fn case(of: &Side, route: &Route) -> Option<Case> {
    // The audit of who asks holds what he has named, which is no leak; so it is looked at apart.
    // Only the user who is logged in has an own password and own sessions (tests/it/users.rs).
    if route.path == "/v1/users/{name}/password" || route.path.starts_with("/v1/me/") {
        return Some(Case::Apart);
    }
    // A confirm URL names a delivery by a token that nobody else can make (tests/it/confirmations.rs). Tests are in memory
    // (tests/it/console_face.rs).
    let is_apart = ["/in/", "/confirm/", "/v1/audit-events", "/v1/subscription-tests/"];
    if is_apart.iter().any(|path| route.path.starts_with(path)) {
        return Some(Case::Apart);
    }
    if [
        "/v1/tenants",
        "/v1/keys",
        "/v1/in-doubt/end",
        "/v1/archive",
        "/v1/clock",
        "/v1/databases",
        "/v1/legal-holds",
        "/v1/backups",
        "/v1/settings",
    ]
    .iter()
    .any(|noun| route.path.starts_with(noun))
    {
        return Some(Case::OfTheBox);
    }
    if route.path.starts_with("/v1/subjects/") {
        // The first tenant may be named, by its own people and by the box's alone.
        let named = format!("{}?tenant={}", route.path, FIRST);
        return Some(Case::Names(vec![route.path.to_owned(), named], json!({ "subject": MARK })));
    }
    if route.path.starts_with("/v1/event-types/") {
        let path = route.path.replace("{name}", MARK);
        return Some(match route.method.as_str() {
            "PUT" => Case::Does(|rig, token| {
                rig.call_as(token, "PUT", "/v1/event-types/mine", br#"{"schema":true}"#)
            }),
            _ if path.ends_with("/proposal") => Case::Looks(vec![path]),
            _ => Case::Names(vec![path], json!({})),
        });
    }
    if route.path == "/integrations/credentials/rotate" {
        let body = json!({ "credential_id": of.credential });
        return Some(Case::Names(vec![route.path.to_owned()], body));
    }
    naming(of, route).or_else(|| looking(of, route)).or_else(|| doing(route))
}

/// Routes with a thing's name in their path, whatever they do to it.
fn naming(of: &Side, route: &Route) -> Option<Case> {
    let event = text(&of.event, "id");
    let (noun, rest) = route.path.split_once("/{")?;
    let (_, rest) = rest.split_once('}')?;
    let ids: Vec<&str> = match noun {
        "/v1/events" => vec![&event],
        "/v1/webhook-events" => vec![&of.webhook_event],
        "/v1/subscriptions" | "/v1/consumers" => vec![&of.subscription],
        // A provider is found by the name that people give; its id must not lead to it either.
        "/v1/providers" => vec![&of.provider],
        "/v1/deliveries" | "/v1/external-calls" => vec![&of.dead, &of.pending],
        "/v1/lanes" => vec![LANE],
        "/v1/tokens" => vec![&of.robot],
        // Like a provider, it is found by its name alone.
        "/v1/sources" => vec![&of.source],
        "/v1/escalations" => vec![&of.escalation],
        "/v1/alert-channels" => vec![&of.channel],
        "/v1/jobs" => vec![&of.job],
        "/v1/users" => vec![&of.user],
        "/v1/sessions" => vec![&of.session],
        "/v1/credentials" => vec![&of.credential],
        _ => return None,
    };
    let rest = rest.replace("{secret_id}", &of.credential);
    let body = match (route.method.as_str(), noun) {
        ("POST", _) if rest == "/credentials" => json!({ "kind": "bearer", "secret": "mine" }),
        ("POST", _) if rest == "/secrets" => json!({ "secret": SECRET }),
        ("POST", "/v1/subscriptions") if rest == "/recover" => {
            json!({ "since": "2026-01-01T00:00:00Z" })
        }
        ("POST", "/v1/subscriptions") if rest == "/comparison" => {
            json!({ "since": "2026-01-01T00:00:00Z", "ids": [] })
        }
        ("POST", "/v1/events") if rest == "/discard" => json!({ "reason": "not mine" }),
        ("PATCH", "/v1/subscriptions") => json!({ "owner_id": "mine" }),
        ("PATCH", "/v1/alert-channels") => json!({ "severity": "critical" }),
        ("PATCH", "/v1/sources") => json!({ "silent_after_ms": 0 }),
        ("POST", "/v1/sources") if rest == "/reset" => json!({ "cursor": 0 }),
        ("POST", "/v1/sources") if rest == "/reopen" => json!({ "since": "2026-01-01T00:00:00Z" }),
        ("POST", "/v1/sources") if rest == "/release" => json!({ "box": "mine" }),
        ("PATCH", "/v1/providers") => json!({ "tolerance_secs": 5 }),
        ("POST", "/v1/external-calls") => json!({ "made": true, "reason": "not mine" }),
        ("POST", "/v1/deliveries") if rest == "/confirm" => json!({ "result": "ok" }),
        ("POST", "/v1/deliveries") if rest == "/edit-and-resend" => json!({ "payload": "mine" }),
        ("POST", "/v1/consumers") => json!({ "items": [{ "delivery": of.pending, "lease": "x" }] }),
        _ => json!({}),
    };
    Some(Case::Names(ids.iter().map(|id| format!("{noun}/{id}{rest}")).collect(), body))
}

/// Lists and numbers without a filter that could name something of another tenant.
const UNFILTERED: &str = "/v1/in-doubt /v1/subjects /v1/sources /v1/providers /v1/subscriptions \
                          /v1/users /v1/sessions /v1/alert-channels /v1/event-types /v1/stats \
                          /v1/stats/recent /v1/tokens /metrics /livez /openapi.json \
                          /v1/refused-webhooks /v1/audit-events/verification";

/// Lists and numbers, with every filter that could lead to the first tenant.
fn looking(of: &Side, route: &Route) -> Option<Case> {
    let (event, webhook_id) = (text(&of.event, "id"), text(&of.event, "webhook_id"));
    let filters: &[(&str, &str)] = match (route.method.as_str(), route.path) {
        ("GET", "/v1/events") => &[
            ("idempotency_key", "invoice:4711"),
            ("aggregate_id", "4711"),
            ("webhook_id", &webhook_id),
            ("status", "dead_letter"),
            ("event_type", "invoice.paid"),
            ("parent_id", &event),
        ],
        ("GET", "/v1/webhook-events") => {
            &[("provider", "hub"), ("provider_event_id", "delivery-1"), ("event_type", "push")]
        }
        ("GET", "/v1/deliveries") => &[
            ("event_id", &event),
            ("event_id", &of.webhook_event),
            ("subscription", &of.subscription),
            ("subscription", "erp"),
            ("state", "pending"),
            ("state", "dead_letter"),
        ],
        ("GET", "/v1/dead-letters" | "/v1/dead-letters/summary") => {
            &[("subscription", &of.subscription), ("subscription", "erp")]
        }
        ("GET", "/v1/lanes" | "/v1/external-calls") => {
            &[("subscription", "erp"), ("subscription", &of.subscription)]
        }
        ("GET", "/v1/credentials") => {
            &[("subscription", "erp"), ("subscription", &of.subscription), ("provider", "hub")]
        }
        ("GET", "/v1/escalations") => &[("all", "true")],
        ("GET", "/v1/search") => return Some(searching(of, (&event, &webhook_id))),
        ("GET", "/v1/jobs") => &[("state", "completed")],
        ("GET", "/readyz") => &[("verbose", ""), ("verbose", "true")],
        ("POST", "/v1/deliveries/release" | "/v1/deliveries/skip") => {
            return Some(Case::Acts(json!({ "filter": {} })));
        }
        ("POST", "/v1/dead-letters/replay" | "/v1/events/replay" | "/v1/webhook-events/replay") => {
            return Some(Case::Acts(json!({ "filter": {}, "dry_run": true })));
        }
        (
            "POST",
            "/v1/dead-letters/discard" | "/v1/events/expunge" | "/v1/webhook-events/expunge",
        ) => {
            return Some(Case::Acts(
                json!({ "filter": {}, "reason": "not mine", "dry_run": true }),
            ));
        }
        ("GET", path) if UNFILTERED.split(' ').any(|one| one == path) => &[],
        _ => return None,
    };
    let filtered = filters.iter().map(|(name, value)| format!("{}?{name}={value}", route.path));
    Some(Case::Looks([route.path.to_owned()].into_iter().chain(filtered).collect()))
}

/// Searches for all that the first tenant has.
fn searching(of: &Side, (event, webhook_id): (&str, &str)) -> Case {
    let chosen = ["4711", "invoice:4711", "invoice", "delivery-1", "push", "erp", MARK];
    let ids = [webhook_id, event, &of.webhook_event, &of.subscription, &of.dead, &of.pending];
    let texts = chosen.into_iter().chain(ids);
    Case::Looks(texts.map(|text| format!("/v1/search?q={text}")).collect())
}

/// Routes that make something under a name or a key which the first tenant has as well.
fn doing(route: &Route) -> Option<Case> {
    const URL: &str = "http://127.0.0.1:8069/";
    Some(match (route.method.as_str(), route.path) {
        ("POST", "/v1/events") => Case::Does(|rig, token| publish(rig, token, "mine")),
        ("POST", "/v1/processed-events") => Case::Does(guard),
        ("POST", "/v1/providers") => Case::Makes(json!({
            "name": "hub", "scheme": { "kind": "github" }, "pii": "allow",
            "secret": "what is mine alone",
        })),
        ("POST", "/v1/subscriptions") => Case::Makes(json!({ "name": "erp", "url": URL })),
        ("POST", "/v1/alert-channels") => {
            Case::Makes(json!({ "name": "ops", "kind": "slack", "url": URL }))
        }
        ("POST", "/v1/sources") => Case::Does(|rig, token| {
            let theirs = rig.home().join("tenants").join(SECOND).join("erp.db");
            let path = if token == rig.token { rig.home().join("other.db") } else { theirs };
            let body = json!({ "name": "erp", "kind": "sqlite", "settings": { "path": path } });
            rig.post_as(token, "/v1/sources", &body)
        }),
        ("POST", "/v1/tokens") => Case::Makes(json!({ "name": "robot", "role": "read" })),
        // The name is of the whole box, so each needs its own.
        ("POST", "/v1/users") => Case::Does(|rig, token| {
            let users = rig.one("SELECT count(*) FROM users");
            let body = json!({ "name": format!("mine-{users}"), "role": "read" });
            rig.post_as(token, "/v1/users", &body)
        }),
        _ => return None,
    })
}

/// Every row of a tenant, but for when its tokens were used.
fn rows(rig: &Rig, tenant: &str) -> Vec<String> {
    let conn = rig.file();
    let of = |sql: String| file::lines(&conn, &sql);
    let whole = "providers subscriptions credentials webhook_events outbox deliveries \
                 processed_events idempotency_keys tenants escalations event_types alert_channels \
                 jobs users";
    let mut all: Vec<String> = Vec::new();
    for table in whole.split(' ') {
        let column = if table == "tenants" { "name" } else { "tenant" };
        all.extend(of(format!("SELECT * FROM {table} WHERE {column} = '{tenant}'")));
    }
    all.extend(of(format!("SELECT id, revoked_at FROM tokens WHERE tenant = '{tenant}'")));
    all.extend(of(format!(
        "SELECT s.* FROM sessions AS s JOIN users AS u ON u.seq = s.user_seq WHERE u.tenant = '{tenant}'"
    )));
    all.extend(of(format!(
        "SELECT a.* FROM attempts AS a JOIN deliveries AS d ON d.seq = a.delivery_seq
          WHERE d.tenant = '{tenant}'"
    )));
    all.extend(of(format!(
        "SELECT h.* FROM holds AS h JOIN subscriptions AS s ON s.seq = h.subscription_seq
          WHERE s.tenant = '{tenant}'"
    )));
    all
}

#[track_caller]
fn shows_nothing(first: &Side, of: &str, answer: &Answer) {
    for mark in first.marks() {
        assert!(!answer.text().contains(&mark), "{of} shows {mark}: {}", answer.text());
    }
}

#[track_caller]
fn keeps(rig: &Rig, first: &Side, (who, token): (&str, &str), (route, case): (&Route, Case)) {
    let (method, name) = (route.method.as_str(), format!("{who}: {route:?}"));
    match case {
        Case::Looks(paths) => {
            for path in paths {
                let answer = rig.call_as(token, method, &path, b"");
                assert!(answer.status < 500, "{name} {path}: {answer:?}");
                shows_nothing(first, &format!("{who}: {path}"), &answer);
            }
        }
        Case::Names(paths, body) => {
            for path in paths {
                let answer = rig.call_as(token, method, &path, body.to_string().as_bytes());
                assert_eq!(answer.status, 404, "{name} {path}: {answer:?}");
                shows_nothing(first, &name, &answer);
            }
        }
        Case::Acts(body) => {
            shows_nothing(first, &name, &rig.post_as(token, route.path, &body).is(200));
        }
        Case::Does(_) | Case::Makes(_) => {
            let answer = match case {
                Case::Makes(body) => rig.post_as(token, route.path, &body),
                Case::Does(act) => act(rig, token),
                _ => return,
            };
            shows_nothing(first, &name, &answer);
            // The second tenant has its own already.
            assert!(who == SECOND || answer.status == 201, "{name}: {answer:?}");
        }
        Case::OfTheBox if who != "default" => {
            let path = route.path.replace("{name}", FIRST);
            shows_nothing(first, &name, &rig.call_as(token, method, &path, b"{}").is(403));
        }
        Case::OfTheBox | Case::Apart => {}
    }
}

#[test]
fn no_route_shows_or_changes_what_belongs_to_another_tenant() {
    let (rig, first, second) = sides();
    assert_eq!(first.tenant, FIRST);
    let conn = rig.writable();
    let doubted = conn.execute(
        "UPDATE deliveries SET state = 'in_doubt', due_at = NULL, lane = 4711
          WHERE tenant = ?1 AND state = 'pending'",
        [FIRST],
    );
    assert_eq!(doubted.unwrap(), 1);
    drop(conn);
    let before = rows(&rig, FIRST);
    assert!(before.len() > 10, "the first tenant has one of everything: {before:?}");
    // Another tenant's administrator, and the box's, who may not cross either. Last, because both could.
    for (who, token) in [(SECOND, &second.token), ("default", &rig.token)] {
        for route in routes() {
            let case = case(&first, route)
                .unwrap_or_else(|| panic!("say in {} what {route:?} must keep", file!()));
            keeps(&rig, &first, (who, token), (route, case));
        }
    }
    assert_eq!(rows(&rig, FIRST), before);
}

#[test]
fn what_is_counted_is_the_tenants_own() {
    let (rig, first, second) = sides();
    let of = |token: &str| {
        let stats = rig.get_as(token, "/v1/stats");
        let count = |field: &str| stats[field].as_u64().unwrap();
        assert_eq!(stats.get("writer_jobs").is_some(), token == rig.token);
        (
            count("subscriptions"),
            count("pending"),
            count("dead_letters"),
            stats["oldest_due_at"].clone(),
        )
    };
    assert_eq!(of(&first.token), of(&second.token));
    assert_eq!((of(&first.token).0, of(&first.token).1, of(&first.token).2), (2, 1, 1));
    assert_eq!(of(&rig.token), (0, 0, 0, Value::Null));
}

#[test]
fn the_audit_shows_what_was_done_to_ones_own() {
    let (rig, first, second) = sides();
    let of = |token: &str| rig.call_as(token, "GET", "/v1/audit-events?limit=500", b"").is(200);
    shows(&of(&first.token).text(), &[&first.subscription, &first.robot]);
    shows_nothing(&first, "the second one's audit", &of(&second.token));
    // The administrator of the box has made the tenant, and nothing in it but its first token.
    let boxs = of(&rig.token).text();
    assert!(boxs.contains(FIRST));
    for mark in first.marks().iter().filter(|mark| *mark != FIRST) {
        assert!(!boxs.contains(mark), "{mark}: {boxs}");
    }
}

#[test]
fn two_tenants_may_use_the_same_names_keys_and_ids() {
    let (rig, first, second) = sides();
    for (path, own) in [
        ("/v1/subscriptions/erp", [&first.subscription, &second.subscription]),
        ("/v1/providers/hub", [&first.provider, &second.provider]),
    ] {
        for (side, own) in [&first, &second].into_iter().zip(own) {
            let shown = rig.get_as(&side.token, path);
            assert_eq!(
                (text(&shown, "id"), text(&shown, "tenant")),
                (own.clone(), side.tenant.into())
            );
        }
    }
    assert_ne!(first.event["id"], second.event["id"]);
    assert_ne!(first.event["webhook_id"], second.event["webhook_id"]);
    // Each is told of its own again.
    for (side, mark) in [(&first, MARK), (&second, "mine")] {
        let again = publish(&rig, &side.token, mark).is(201);
        assert_eq!(again.field("idempotency-replayed"), Some("true"));
        assert_eq!(again.json()["events"][0]["id"], side.event["id"]);
        guard(&rig, &side.token).is(200);
    }
    // Each gets its own alone.
    for (side, other) in [(&first, "mine"), (&second, MARK)] {
        assert!(
            side.receiver
                .seen()
                .iter()
                .all(|seen| { !String::from_utf8_lossy(&seen.body).contains(other) })
        );
    }
}

#[test]
fn a_webhook_comes_in_at_its_own_tenants_door_alone() {
    let (rig, first, second) = sides();
    let before = rows(&rig, FIRST);
    // The other's door, with one's own key.
    hook(&rig, &format!("/in/{FIRST}/hub"), SECOND, "mine").is(401);
    // The door of the tenant default, where no such provider is.
    hook(&rig, "/in/hub", FIRST, MARK).is(404);
    hook(&rig, "/in/default/hub", FIRST, MARK).is(404);
    hook(&rig, "/in/nobody/hub", FIRST, MARK).is(404);
    assert_eq!(rows(&rig, FIRST), before);
    let again = hook(&rig, &format!("/in/{SECOND}/hub"), SECOND, "mine").is(200).json();
    has(&again, &json!({ "already_processed": true, "id": second.webhook_event }));
    assert_ne!(first.webhook_event, second.webhook_event);
}

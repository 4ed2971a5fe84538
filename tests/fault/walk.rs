//! A walk along the route table: whatever one tenant sends, as large as it may be and again and again, the process stays
//! small and goes on for others.
//!
//! `ONCEBOX_WALK` says how often each route is called; `ONCEBOX_WALK_TIMES` shows how long others waited.

use crate::fault::memory::{Cage, SECRET, zeros};
use crate::fault::process::prelude::*;

/// What the process may hold in the end, in KiB.
const MAX_RESIDENT_KIB: u64 = 300 << 10;
/// The largest body of most routes.
const SMALL: usize = 256 << 10;
/// The largest body of a publish, and of the provider that this test makes.
const LARGE: usize = 8 << 20;
/// The largest payload of an event.
const PAYLOAD: usize = 1 << 20;
/// Requests at once.
const AT_ONCE: usize = 4;
/// How often a request is sent that is answered 503: others of the tenant are under way.
const AGAIN: u32 = 50;
/// Routes that take what they are sent here: a walk where all is refused shows nothing.
const TAKEN: [&str; 6] = [
    "POST /v1/events",
    "POST /in/walker/hub",
    "PUT /v1/event-types/a.b",
    "POST /v1/subscriptions",
    "GET /v1/events",
    "GET /v1/audit-events",
];

/// A route of `/openapi.json`, with names for the variable parts of its path.
struct Walked {
    method: String,
    path: String,
    /// An example of its JSON body, if it takes one.
    example: Option<Value>,
    is_list: bool,
}

fn walked(document: &Value) -> Vec<Walked> {
    let mut all = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let body = &operation["requestBody"]["content"];
            let example = body.as_object().map(|_| body["application/json"]["example"].clone());
            let query = operation["parameters"].as_array().into_iter().flatten();
            let is_list = query.into_iter().any(|one| one["name"] == "limit");
            if example.is_some() || is_list {
                let (method, path) = (method.to_ascii_uppercase(), named(path));
                all.push(Walked { method, path, example, is_list });
            }
        }
    }
    assert!(all.len() > 50, "{}", all.len());
    all
}

/// The path with what [`prepare`] makes.
fn named(path: &str) -> String {
    let noun = path.split('/').nth(2).unwrap_or_default();
    let name = match noun {
        "deliveries" | "dead-letters" | "in-doubt" => "dlv_1",
        "providers" => "hub",
        "subscriptions" | "consumers" | "lanes" => "erp",
        "event-types" => "a.b",
        _ => "1",
    };
    let part = |part: &str| match part {
        "{provider}" if path.starts_with("/in/") => "hub".to_owned(),
        "{tenant}" if path.starts_with("/in/") => "walker".to_owned(),
        part if part.starts_with('{') => name.to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// What the routes are called with: a tenant of its own and what they name. Returns its token.
fn prepare(process: &Process, receiver: &Receiver) -> String {
    process.post("/v1/tenants", &json!({ "name": "walker", "pii": "allow" }));
    let token = json!({ "name": "walker", "role": "admin", "tenant": "walker" });
    let made = process.post("/v1/tokens", &token);
    let token = text(&made, "token");
    for (path, body) in [
        ("/v1/subscriptions", json!({ "name": "erp", "url": receiver.url() })),
        (
            "/v1/providers",
            json!({ "name": "hub", "pii": "allow", "secret": SECRET, "scheme": { "kind": "github" }, "body_bytes_max": LARGE }),
        ),
        ("/v1/events", json!({ "event_type": "a.b", "payload": {} })),
    ] {
        call(process.address, &token, "POST", path, &body).unwrap().is(201);
    }
    token
}

/// The largest bodies that a route may be sent: its example with a member that is too much, and for some what is allowed.
fn bodies(route: &Walked, n: u64) -> Vec<String> {
    let Some(example) = &route.example else { return vec![String::new()] };
    if route.path.starts_with("/in/") {
        return vec![format!("[{n},{}]", zeros(LARGE - 100))];
    }
    let mut padded = example.as_object().cloned().unwrap_or_default();
    padded.insert("padding".to_owned(), json!("PADDING"));
    let padded = Value::Object(padded).to_string();
    let most = if route.path == "/v1/events" { LARGE } else { SMALL };
    let room = most - padded.len();
    let mut all = vec![padded.replace("\"PADDING\"", &zeros(room - 16))];
    let filled = |mut example: Value, member: &str, value: Value| {
        example[member] = value;
        example.to_string()
    };
    let numbers = |bytes: usize| serde_json::from_str::<Value>(&zeros(bytes)).unwrap();
    match (route.method.as_str(), route.path.as_str()) {
        ("POST", "/v1/events") => {
            let payload = zeros(PAYLOAD - 16);
            let event = |part| {
                let key = format!("{n}-{part}");
                format!(r#"{{"event_type":"a.b","idempotency_key":"{key}","payload":{payload}}}"#)
            };
            let events: Vec<String> = (1..LARGE / PAYLOAD).map(event).collect();
            all.push(format!("[{}]", events.join(",")));
        }
        ("PUT", "/v1/event-types/a.b") => {
            let schema = json!({ "properties": { "walked": { "enum": numbers(60 << 10) } } });
            all.push(filled(example.clone(), "schema", schema));
        }
        ("POST" | "PATCH", path)
            if path.starts_with("/v1/subscriptions") && example.is_object() =>
        {
            let value = "x".repeat(15 << 10);
            let filter = json!([{ "path": "$.a", "op": "equals", "value": value }]);
            let mut own = example.clone();
            if own.get("name").is_some() {
                own["name"] = json!(format!("walked-{n}"));
            }
            all.push(filled(own, "filter", filter));
        }
        _ => {}
    }
    all
}

/// Sends a route its largest input, as its tenant.
fn send(address: SocketAddr, token: &str, route: &Walked, body: &str) -> std::io::Result<Answer> {
    let list = if route.is_list { "?limit=500" } else { "" };
    let path = format!("{}{list}", route.path);
    let bearer = format!("Bearer {token}");
    let (signature, id) = (http::github(SECRET, body.as_bytes()), body.len().to_string());
    let mut fields = vec![("Authorization", bearer.as_str())];
    if !body.is_empty() {
        fields.push(("Content-Type", "application/json"));
    }
    if path.starts_with("/in/") {
        fields = vec![
            ("Content-Type", "application/json"),
            ("X-Hub-Signature-256", &signature),
            ("X-GitHub-Delivery", &id),
            ("X-GitHub-Event", "push"),
        ];
    }
    http::send(address, &route.method, &path, &fields, body.as_bytes())
}

/// The status of the answer; 0 where a body was refused early and the connection ended. What is answered 503 is sent
/// again.
fn answered(address: SocketAddr, token: &str, route: &Walked, body: &str) -> u16 {
    let mut status = 503;
    for _ in 0..AGAIN {
        status = send(address, token, route, body).map_or(0, |answer| answer.status);
        if status != 503 {
            break;
        }
        thread::sleep(ms(20));
    }
    status
}

/// Another tenant's publish and `/livez` are answered; how long both took.
pub(crate) fn others_go_on(process: &Process, key: &str) -> [Duration; 2] {
    let begun = Instant::now();
    process.call("GET", "/livez", &Value::Null).is(200);
    let lives = begun.elapsed();
    let event = json!({ "event_type": "a", "idempotency_key": key, "payload": 1 });
    until(key, || process.call("POST", "/v1/events", &event).status < 300);
    [lives, begun.elapsed().saturating_sub(lives)]
}

pub(crate) fn resident_kib(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

#[test]
fn one_tenant_with_the_largest_of_everything_stops_nobody() {
    let Some(cage) = Cage::new("walk") else { return };
    let home = tempfile::tempdir().unwrap();
    let mut process = cage.start(home.path());
    let receiver = Receiver::new();
    let token = prepare(&process, &receiver);
    let document = process.call("GET", "/openapi.json", &Value::Null).is(200).json();
    let (times, shown) = (number("ONCEBOX_WALK", 2), std::env::var_os("ONCEBOX_WALK_TIMES"));
    let mut accepted = 0;
    for route in walked(&document) {
        let what = format!("{} {}", route.method, route.path);
        let address = process.address;
        let (others, seen) = thread::scope(|scope| {
            let (route, token) = (&route, &token);
            let sent = |first: u64| {
                let numbers = (first..times).step_by(AT_ONCE);
                let status = |body: String| answered(address, token, route, &body);
                numbers.flat_map(|n| bodies(route, n)).map(status).collect::<Vec<u16>>()
            };
            let threads: [_; AT_ONCE] =
                std::array::from_fn(|n| scope.spawn(move || sent(u64::try_from(n).unwrap())));
            let others = others_go_on(&process, &what);
            let seen = threads.into_iter().flat_map(|one| one.join().unwrap());
            (others, seen.collect::<BTreeSet<u16>>())
        });
        assert!(!process.has_ended() && !seen.contains(&500), "{what}: {seen:?}");
        // Of what others may ask for alone, and of what names nothing here, only the refusal is seen.
        if TAKEN.contains(&what.as_str()) {
            accepted += 1;
            assert!(seen.contains(&200) || seen.contains(&201), "{what}: {seen:?}");
        }
        let resident = resident_kib(&process);
        if shown.is_some() {
            let [lives, published] = others;
            println!(
                "{what}: {seen:?}, /livez {lives:?}, publish {published:?}, {} MiB",
                resident >> 10
            );
        }
    }
    assert_eq!(accepted, TAKEN.len());
    let resident = resident_kib(&process);
    assert!(resident < MAX_RESIDENT_KIB, "{} MiB", resident >> 10);
    cage.tell("the walk");
    process.stop();
}

//! `/openapi.json` says what there is, no less and no more; and every error is a problem.

use std::fmt::Write as _;

use oncebox::api::kind::{Facts, Kind};
use oncebox::api::route::{Param, Place, Route};
use oncebox::api::{openapi, routes};
use oncebox::config::databases::DatabaseAt;

use crate::rig::contract::{self, judge};
use crate::rig::http::read_message;
use crate::rig::prelude::*;

type Operations = BTreeMap<(String, String), Value>;

fn operations(document: &Value) -> Operations {
    let mut found = Operations::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            found.insert((path.clone(), method.to_uppercase()), operation.clone());
        }
    }
    found
}

#[test]
fn the_document_is_served_to_anybody_and_is_the_one_of_this_version() {
    let rig = Rig::new();
    let answer = rig.send("GET", "/openapi.json", &[], b"").is(200);
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.json(), openapi::document());
    assert_eq!(answer.json()["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_document_has_every_route_and_nothing_else() {
    let described: BTreeSet<_> = operations(&openapi::document()).into_keys().collect();
    let there: Vec<_> =
        routes().map(|route| (route.path.to_owned(), route.method.as_str().to_owned())).collect();
    let once: BTreeSet<_> = there.iter().cloned().collect();
    assert_eq!(once.len(), there.len(), "a route is there twice");
    assert_eq!(described, once);
}

#[test]
fn every_operation_says_what_it_does_under_a_name_of_its_own() {
    let mut ids = BTreeSet::new();
    for route in routes() {
        let doc = &route.doc;
        assert!(ids.insert(doc.id), "{route:?}: {} is taken", doc.id);
        assert!(!doc.summary.is_empty() && !doc.summary.ends_with('.'), "{route:?}: a heading");
        assert!(doc.about.ends_with('.'), "{route:?}: sentences");
        assert!(!doc.returns.is_empty(), "{route:?}: it answers something");
        let params = |place| doc.params.iter().filter(move |param| param.place == place);
        let in_path: Vec<String> =
            params(Place::Path).map(|param: &Param| format!("{{{}}}", param.name)).collect();
        let variable: Vec<&str> =
            route.path.split('/').filter(|part| part.starts_with('{')).collect();
        assert_eq!(in_path, variable, "{route:?}: the variable parts of the path");
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_shape_is_used() {
    let document = openapi::document();
    let used: BTreeSet<String> = contract::references(&document).into_iter().collect();
    for reference in &used {
        let place = reference.trim_start_matches('#');
        assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(used.contains(&format!("#/components/schemas/{name}")), "nobody uses {name}");
    }
}

#[test]
fn every_example_is_what_its_schema_allows() {
    let document = openapi::document();
    for ((path, method), operation) in operations(&document) {
        let media = &operation["requestBody"]["content"]["application/json"];
        if !media.is_null() {
            let validator = contract::validator(&document, media["schema"].clone());
            assert!(validator.is_valid(&media["example"]), "{method} {path}: {}", media["example"]);
        }
        for param in operation["parameters"].as_array().unwrap_or(&Vec::new()) {
            let reference =
                param["schema"]["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
            let schema =
                reference.map_or(&param["schema"], |place| document.pointer(place).unwrap());
            let words = schema["enum"].is_array();
            assert!(words || !param["example"].is_null(), "{method} {path}: {param}");
            let validator = contract::validator(&document, param["schema"].clone());
            assert!(words || validator.is_valid(&param["example"]), "{method} {path}: {param}");
        }
    }
    for (name, told) in document["webhooks"].as_object().unwrap() {
        let media = &told["post"]["requestBody"]["content"]["application/json"];
        let validator = contract::validator(&document, media["schema"].clone());
        assert!(validator.is_valid(&media["example"]), "{name}: {}", media["example"]);
    }
}

/// The path of a route with the ids of things that it can change.
fn path_of(rig: &Rig, receiver: &Receiver, path: &str) -> String {
    // Of events, those that are quarantined can be changed; they have ids that nobody chose.
    if path.starts_with("/v1/events/") {
        let mut event = json!({ "event_type": "a", "payload": 1, "target": "nobody" });
        if path.ends_with("/replay") {
            event["target"] = json!("erp");
        }
        path.replace("{id}", rig.publish(&event)["id"].as_str().unwrap())
    } else if path.contains("/confirm") {
        let (id, token) = crate::it::confirmations::waiting(rig, receiver);
        path.replace("{id}", &id).replace("{token}", &token)
    } else if path.starts_with("/v1/deliveries/") {
        let lane = json!({ "name": "lane", "target": "pull", "ordering": "strict" });
        rig.post("/v1/subscriptions", &lane);
        rig.publish(&json!({ "event_type": "a", "payload": 1, "target": "lane" }));
        let newest = rig.one("SELECT max(seq) FROM deliveries");
        if path.ends_with("/release") {
            rig.post(&format!("/v1/deliveries/{newest}/park"), &json!({})).is(200);
        }
        path.replace("{id}", &newest)
    } else if path.starts_with("/v1/external-calls/") {
        let mute = Receiver::scripted([Reply::CutRead]);
        let order = json!({ "order": { "external_calls": "event" }, "event_types": ["call"] });
        rig.subscribe_with("calls", &mute, &order);
        rig.publish(&json!({ "event_type": "call", "payload": 1, "target": "calls" }));
        rig.settle();
        let newest = rig.one("SELECT max(seq) FROM deliveries");
        rig.post(&format!("/v1/deliveries/{newest}/cancel"), &json!({})).is(200);
        path.replace("{id}", &newest)
    } else if path == "/v1/sources/{name}/credentials" {
        let settings = json!({ "url": "http://127.0.0.1:8009/list", "item_id": ["/id"] });
        rig.source("list", "http", &settings);
        path.replace("{name}", "list")
    } else if path.starts_with("/v1/webhook-events/") {
        let id = crate::it::bulk::skipped_webhook(rig);
        rig.patch("/v1/subscriptions/erp", &json!({ "source": "all", "event_types": ["*"] }))
            .is(200);
        path.replace("{id}", &id)
    } else if let Some(act) = path.strip_prefix("/v1/sources/{name}/").filter(|act| of_table(act)) {
        rig.source(act, "database", &json!({ "database": "erp", "mode": "claim" }));
        path.replace("{name}", act)
    } else {
        path.to_owned()
    }
}

/// Whether something is done to the marks in the table of a database.
fn of_table(act: &str) -> bool {
    matches!(act, "reopen" | "release")
}

/// The credential that signs what goes to the first subscription.
const SIGNING: &str = "SELECT id FROM credentials
                        WHERE state = 'active' AND subscription_seq IS NOT NULL AND kind = 'signing' LIMIT 1";

/// Bodies that are out of one limit each: the body with another value at each place that has a limit.
fn out_of_limits(document: &Value, schema: &Value, body: &Value) -> Vec<(String, Value)> {
    if let Some(name) = schema["$ref"].as_str() {
        let named = document.pointer(name.trim_start_matches('#')).unwrap();
        return out_of_limits(document, named, body);
    }
    let mut out = Vec::new();
    for word in ["anyOf", "oneOf"] {
        // Parts for another form are skipped: what is an object in the body is one in the schema.
        for part in schema[word].as_array().into_iter().flatten() {
            let required = part["required"].as_array().into_iter().flatten();
            if part["type"] != "null"
                && required.into_iter().all(|name| !body[name.as_str().unwrap()].is_null())
            {
                out.extend(out_of_limits(document, part, body));
            }
        }
    }
    let is = |word: &str| {
        schema["type"] == word
            || schema["type"].as_array().is_some_and(|all| all.contains(&json!(word)))
    };
    let mut bad = |value: Value| out.push((value.to_string().chars().take(40).collect(), value));
    match schema["maxLength"].as_u64() {
        Some(most) if is("string") => bad(json!("x".repeat(usize::try_from(most + 1).unwrap()))),
        _ => {}
    }
    // No pattern allows a line end, and it is no word.
    if (schema["pattern"].is_string() || schema["enum"].is_array()) && is("string") {
        bad(json!("\n"));
    }
    if schema["propertyNames"].is_object() {
        bad(json!({ "\n": "x" }));
    }
    match schema["maxItems"].as_u64() {
        Some(most) if is("array") => {
            bad(Value::from(vec![json!("x"); usize::try_from(most + 1).unwrap()]));
        }
        _ => {}
    }
    match schema["maximum"].as_u64() {
        Some(most) if most < 1 << 53 && (is("integer") || is("number")) => bad(json!(most + 1)),
        _ => {}
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        for (shown, value) in out_of_limits(document, inner, &body[name]) {
            let mut body = body.clone();
            if !body.is_object() {
                body = json!({});
            }
            body[name] = value;
            out.push((format!("{name} {shown}"), body));
        }
    }
    out
}

#[test]
fn every_example_of_a_body_is_accepted() {
    let rig = Rig::with(|settings| {
        settings.listen.public_url = Some(crate::it::confirmations::PUBLIC.to_owned());
        // It does not answer, and is not asked here.
        let driver = Some("PostgreSQL Unicode".to_owned());
        let away = DatabaseAt { driver, ..DatabaseAt::default() };
        settings.databases.all.insert("erp".to_owned(), away);
    });
    let receiver = Receiver::new();
    let described = operations(&openapi::document());
    let example = |path: &str, method: &str| {
        let operation = &described[&(path.to_owned(), method.to_owned())];
        operation["requestBody"]["content"]["application/json"]["example"].clone()
    };
    // A subject is there once something of it is sealed.
    let sealing = json!({ "rules": [{ "path": "$.of", "action": "seal" }], "subject": "$.of" });
    rig.patch("/v1/tenants/default", &json!({ "pii": sealing })).is(200);
    rig.publish(&json!({ "event_type": "a", "payload": { "of": "customer-4711" } }));
    // What a changing route changes is made first, by the example of the creating one.
    let creating: Vec<_> = routes().filter(|route| !route.path.contains('{')).collect();
    for route in creating {
        let mut body = example(route.path, route.method.as_str());
        if body["credential_id"].is_string() {
            body["credential_id"] = json!(rig.one(SIGNING));
        }
        if !body.is_null() {
            refuses_limits(&rig, route, route.path, &body);
            let answer = rig.call(route.method.as_str(), route.path, body.to_string().as_bytes());
            assert!(answer.status < 300, "{route:?}: {}", answer.text());
        }
    }
    rig.post("/v1/subscriptions", &json!({ "name": "warehouse", "target": "pull" })).is(201);
    let list = json!({ "preset": "stripe", "provider": "stripe", "url": receiver.url() });
    rig.source("list-of-stripe", "http", &list);
    for route in routes().filter(|route| route.path.contains('{')) {
        let body = example(route.path, route.method.as_str());
        // No token may change a password; tests/it/users.rs does it as the user.
        if body.is_null() || route.path == "/v1/users/{name}/password" {
            continue;
        }
        let path = path_of(&rig, &receiver, route.path);
        let mut body = body;
        let path = if route.path.starts_with("/v1/credentials/") {
            // The rotation that the first loop began is over.
            let next = "SELECT coalesce(max(id), '') FROM credentials WHERE state = 'next'";
            rig.post(&format!("/v1/credentials/{}/revoke", rig.one(next)), &json!({}));
            path.replace("{id}", &rig.one(SIGNING))
        } else {
            path
        };
        if route.path.ends_with("/test") {
            body["event_id"] = json!(rig.one("SELECT id FROM outbox LIMIT 1"));
        }
        let concrete =
            route.doc.params.iter().fold(path, |path, param| {
                path.replace(&format!("{{{}}}", param.name), param.example)
            });
        refuses_limits(&rig, route, &concrete, &body);
        let answer = rig.call(route.method.as_str(), &concrete, body.to_string().as_bytes());
        assert!(answer.status < 300, "{route:?}: {}", answer.text());
    }
}

/// Whether a route refuses its body with any value that is out of a limit, and nothing else in its way.
fn refuses_limits(rig: &Rig, route: &Route, path: &str, body: &Value) {
    let document = openapi::document();
    let operation =
        &operations(&document)[&(route.path.to_owned(), route.method.as_str().to_owned())];
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    for (what, wrong) in out_of_limits(&document, schema, body) {
        let answer = rig.call(route.method.as_str(), path, wrong.to_string().as_bytes());
        let status = answer.status;
        assert!([400, 413, 422].contains(&status), "{route:?} {what}: {status} {}", answer.text());
    }
}

#[test]
fn a_parameter_out_of_its_limits_is_refused() {
    let (rig, document) = (Rig::new(), openapi::document());
    let mut refused = 0;
    for ((path, method), operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let concrete = parameters.iter().fold(path.clone(), |path, param| {
            let example = param["example"].as_str().unwrap_or("x");
            path.replace(&format!("{{{}}}", param["name"].as_str().unwrap()), example)
        });
        let in_query = parameters.iter().filter(|param| param["in"] == "query");
        for (name, schema) in in_query.map(|param| (&param["name"], &param["schema"])) {
            for (_, wrong) in out_of_limits(&document, schema, &Value::Null) {
                let wrong = wrong
                    .as_str()
                    .map_or_else(|| wrong.to_string(), |text| text.replace('\n', "%0A"));
                let path = format!("{concrete}?{}={wrong}", name.as_str().unwrap());
                let answer = rig.call(&method, &path, b"");
                assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

/// A box that has seen nothing has empty tables, whose sums and highest numbers are NULL.
#[test]
fn a_box_that_has_seen_nothing_answers_each_question() {
    let rig = Rig::new();
    let mut asked = 0;
    for ((path, method), operation) in operations(&openapi::document()) {
        if method != "GET" {
            continue;
        }
        let mut concrete = path.clone();
        let mut queries = vec![String::new()];
        for param in operation["parameters"].as_array().into_iter().flatten() {
            let name = param["name"].as_str().unwrap();
            let example = param["example"].as_str().unwrap_or("1");
            if param["in"] == "path" {
                concrete = concrete.replace(&format!("{{{name}}}"), example);
            } else if param["in"] == "query" {
                queries.extend([example, "invoice"].map(|value| format!("?{name}={value}")));
            }
        }
        for query in queries {
            let path = format!("{concrete}{}", query.replace(' ', "%20").replace('+', "%2B"));
            let answer = rig.call("GET", &path, b"");
            assert!(answer.status < 500, "{path}: {}", answer.text());
            asked += 1;
        }
    }
    assert!(asked > 200, "{asked}");
}

#[test]
fn patterns_can_be_compiled_but_for_one() {
    fn failing(schema: &Value, into: &mut Vec<String>) {
        if let Some(pattern) = schema["pattern"].as_str()
            && regex_lite::Regex::new(pattern).is_err()
        {
            into.push(pattern.to_owned());
        }
        schema.as_object().into_iter().flatten().for_each(|(_, inner)| failing(inner, into));
        schema.as_array().into_iter().flatten().for_each(|inner| failing(inner, into));
    }
    let mut found = Vec::new();
    failing(&openapi::document(), &mut found);
    found.dedup();
    assert_eq!(found, ["^(?!in:)[ -~]*$"], "publishing refuses these itself");
}

#[test]
fn a_query_that_is_not_described_is_refused() {
    let rig = Rig::new();
    for query in ["limits=5", "limit=5&limit=5", "limit=", "after", "after=-1", "limit=0", "x=%ff"]
    {
        rig.call("GET", &format!("/v1/subscriptions?{query}"), b"").is(400);
    }
    rig.call("GET", "/v1/stats?limit=5", b"").is(400);
    rig.send("GET", "/livez?limit=5", &[], b"").is(400);
    rig.call("GET", "/v1/subscriptions?limit=5&after=1", b"").is(200);
    assert!(rig.call("GET", "/v1/tokens?x=1", b"").detail().contains("limit, after"));
}

#[test]
fn an_array_does_not_pass_for_an_object() {
    let rig = Rig::new();
    rig.call("PATCH", "/v1/subscriptions/none", b"[]").is(404);
    rig.call("POST", "/v1/tokens", br#"["erp","read",null]"#).is(400);
    let url = "https://erp.example.com/hooks";
    rig.post("/v1/subscriptions", &json!({ "name": "a", "url": url, "policy": [["5s"]] })).is(400);
    let event = json!([[
        "x",
        {},
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        1,
        null
    ]]);
    rig.post("/v1/events", &event).is(400);
    let limit = json!({ "name": "a", "url": url, "policy": { "max_attempts": 3.0 } });
    assert_eq!(rig.post("/v1/subscriptions", &limit).is(201).json()["policy"]["max_attempts"], 3);
}

#[test]
fn head_options_and_unknown_methods_are_answered_by_the_book() {
    let rig = Rig::new();
    assert!(rig.call("HEAD", "/v1/subscriptions", b"").is(200).body().is_empty());
    rig.call("HEAD", "/v1/deliveries/dlv_1/retry", b"").is(405);
    let options = rig.send("OPTIONS", "/v1/subscriptions", &[], b"").is(204);
    assert_eq!(options.field("allow"), Some("GET, POST, HEAD, OPTIONS"));
    rig.send("OPTIONS", "/v1/nothing", &[], b"").is(404);
    for method in ["TRACE", "PUT", "DELETE", "PATCH"] {
        let answer = rig.call(method, "/v1/subscriptions", b"").is(405);
        assert_eq!(answer.field("allow"), Some("GET, POST, HEAD, OPTIONS"), "{method}");
    }
}

#[test]
fn what_is_read_is_stored_nowhere_and_each_401_names_a_way_in() {
    let rig = Rig::new();
    for path in ["/v1/subscriptions", "/v1/nothing", "/metrics", "/openapi.json"] {
        let answer = rig.call("GET", path, b"");
        assert_eq!(answer.field("cache-control"), Some("no-store"), "{path}");
    }
    let answer = rig.send("GET", "/v1/subscriptions", &[], b"").is(401);
    assert_eq!(answer.field("www-authenticate"), Some("Bearer"));
}

/// Sends bytes as they are and reads what comes back; the head's end is up to the caller.
fn raw(rig: &Rig, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(rig.address()).unwrap();
    stream.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let message = read_message(&mut stream).unwrap().unwrap();
    let status = message.first_line.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, message }
}

#[test]
fn what_the_listener_refuses_is_a_problem_too() {
    let rig = Rig::new();
    let token = &rig.token;
    let line = "POST /v1/events HTTP/1.1\r\nHost: a\r\n";
    let bearer = format!("{line}Authorization: Bearer {token}\r\n");
    for (request, kind) in [
        ("nonsense\r\n\r\n".to_owned(), Kind::BadRequest),
        (format!("{line}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), Kind::BadRequest),
        ("GET /livez HTTP/1.1\r\n\r\n".to_owned(), Kind::BadRequest),
        (format!("{bearer}Content-Length: 64000000000\r\n\r\n"), Kind::TooLarge),
        (format!("{bearer}Content-Length: 1\r\nExpect: a pony\r\n\r\n"), Kind::ExpectationFailed),
        (format!("{line}X: {}\r\n\r\n", "x".repeat(17_000)), Kind::HeadTooLarge),
        ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), Kind::NotImplemented),
        (format!("{line}Transfer-Encoding: gzip\r\n\r\n"), Kind::NotImplemented),
        ("GET /livez HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), Kind::HttpVersion),
        ("GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), Kind::NotFound),
        (format!("{line}Content-Length: 2\r\n\r\n{{}}"), Kind::Unauthorized),
    ] {
        let answer = raw(&rig, request.as_bytes());
        let Facts { status, title, .. } = kind.facts();
        assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{request}");
        let body = answer.json();
        let told = (answer.status, body["type"].as_str().unwrap(), body["title"].as_str().unwrap());
        assert_eq!(told, (status, kind.uri().as_str(), title), "{request}");
        if kind != Kind::NotFound {
            contract::check(("POST", "/v1/events", b""), &answer);
        }
    }
}

/// `docs/problems.md`, as the code would have it.
fn problems_page() -> String {
    let mut page = String::from(PROBLEMS_PREFACE);
    for kind in Kind::ALL {
        let Facts { word, status, when, remedy, .. } = kind.facts();
        write!(page, "\n## {word}\n\n**{status}.** {when}\n\n**Remedy.** {remedy}\n").unwrap();
    }
    page
}

const PROBLEMS_PREFACE: &str = "\
# Problems

<!-- Made from src/api/kind.rs by a test: ONCEBOX_WRITE_DOCS=1 cargo test --test plain problem -->

Every error is `application/problem+json` (RFC 9457): `type`, `title`, `status`, `detail`, `request_id`. Decide by `type`, which is stable:
`urn:oncebox:problem:` and a name below. `detail` is for people and may change. A problem acknowledges nothing.
";

#[test]
fn the_page_of_problems_explains_every_kind() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/problems.md");
    if std::env::var_os("ONCEBOX_WRITE_DOCS").is_some() {
        fs::write(path, problems_page()).unwrap();
    }
    let words: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.facts().word).collect();
    assert_eq!(words.len(), Kind::ALL.len(), "a name is there twice");
    let page = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(page, problems_page(), "run it with ONCEBOX_WRITE_DOCS=1");
}

#[test]
fn the_judge_finds_planted_faults() {
    let rig = Rig::new();
    let get = |change: fn(&mut Answer)| {
        let mut answer = rig.call("GET", "/v1/stats", b"").is(200);
        change(&mut answer);
        judge(("GET", "/v1/stats", b""), &answer)
    };
    let body = |answer: &mut Answer, change: fn(&mut Value)| {
        let mut json = answer.json();
        change(&mut json);
        answer.message.body = json.to_string().into_bytes();
    };
    assert_eq!(get(|_| {}), Ok(()));
    assert!(get(|answer| answer.status = 418).unwrap_err().contains("418 is not described"));
    let mut answer = rig.call("GET", "/v1/stats", b"").is(200);
    body(&mut answer, |json| json["more"] = 1.into());
    assert!(judge(("GET", "/v1/stats", b""), &answer).unwrap_err().contains("more"));
    let mut answer = rig.call("GET", "/v1/stats", b"").is(200);
    body(&mut answer, |json| json["pending"] = "no".into());
    assert!(judge(("GET", "/v1/stats", b""), &answer).is_err());
    let extra = |answer: &mut Answer| answer.message.fields.push(("x-new".into(), "1".into()));
    assert!(get(extra).unwrap_err().contains("x-new"));
    let bare =
        |answer: &mut Answer| answer.message.fields.retain(|(name, _)| name != "x-request-id");
    assert!(get(bare).unwrap_err().contains("X-Request-Id is missing"));
    let other = |answer: &mut Answer| {
        for (name, value) in &mut answer.message.fields {
            if name == "content-type" {
                *value = "text/html".to_owned();
            }
        }
    };
    assert!(get(other).unwrap_err().contains("text/html"));
    let wrong = json!({ "consumer_group": 1, "event_id": "x" }).to_string();
    let claimed = rig
        .post("/v1/processed-events", &json!({ "consumer_group": "g", "event_id": "x" }))
        .is(201);
    assert!(judge(("POST", "/v1/processed-events", wrong.as_bytes()), &claimed).is_err());
}

#[test]
fn the_changelog_says_which_version_the_schema_has() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/CHANGELOG.md");
    let text = fs::read_to_string(path).unwrap();
    let now = oncebox::store::schema::VERSION;
    let said = format!(
        "- The schema is at version {now}; files of versions 1 to {} are upgraded.",
        now - 1
    );
    assert!(text.lines().any(|line| line == said), "{said}");
}

//! A walk along everything else that a client chooses in size: each field of each form of the console, each parameter of
//! each query and path, cookies and header fields. The process stays small, answers, and goes on for others.

use std::io::{Read, Write};

use socket2::{Domain, Socket, Type};

use crate::fault::memory::Cage;
use crate::fault::process::prelude::*;
use crate::fault::walk::{others_go_on, resident_kib};

/// What the process may hold in the end, in KiB.
const MAX_RESIDENT_KIB: u64 = 300 << 10;
/// The largest form, and more.
const FORM: usize = 5 << 20;
/// A large value in a head: a little less than the listener takes.
const VALUE: usize = 12 << 10;
/// Requests at once.
const AT_ONCE: usize = 4;
/// Header fields that the program reads.
const FIELDS: [&str; 20] = [
    "Accept",
    "Accept-Encoding",
    "Authorization",
    "Content-Type",
    "Cookie",
    "Host",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "Oncebox-Poll",
    "Origin",
    "Sec-Fetch-Site",
    "traceparent",
    "tracestate",
    "User-Agent",
    "X-Correlation-Id",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Request-Id",
];

/// A request of the walk.
#[derive(Debug)]
struct Sent {
    what: String,
    method: String,
    path: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Sent {
    fn status(&self, address: SocketAddr) -> u16 {
        let fields: Vec<(&str, &str)> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        // A body that is refused early may end the connection before the answer is read.
        let answer = http::send(address, &self.method, &self.path, &fields, &self.body);
        answer.map_or(0, |answer| answer.status)
    }
}

/// The cookie of a new person's session.
fn log_in(process: &Process, name: &str, role: &str) -> String {
    let person = json!({ "name": name, "role": role, "password": "a long password of the walk" });
    process.call("POST", "/v1/users", &person).is(201);
    let link = process.call("POST", &format!("/v1/users/{name}/link"), &Value::Null).is(201).json();
    let query = text(&link, "url").split_once('?').unwrap().1.to_owned();
    let own =
        [("Sec-Fetch-Site", "same-origin"), ("Content-Type", "application/x-www-form-urlencoded")];
    let entered =
        http::send(process.address, "POST", "/console/enter", &own, query.as_bytes()).unwrap();
    let cookie = entered.is(303).field("set-cookie").unwrap().to_owned();
    cookie.split(';').next().unwrap().to_owned()
}

/// What a page's form carries against forged ones.
fn csrf(process: &Process, cookie: &str) -> String {
    let page = http::send(process.address, "GET", "/console/settings", &[("Cookie", cookie)], b"");
    let page = page.unwrap().is(200).text();
    let rest = page.split_once("name=\"csrf\" value=\"").unwrap().1;
    rest.split('"').next().unwrap().to_owned()
}

/// Names of fields, of which some stand in every form.
const NAMES: [&str; 23] = [
    "form",
    "was",
    "filter",
    "payload",
    "csrf",
    "back",
    "shown",
    "again",
    "id",
    "name",
    "keep",
    "to",
    "link",
    "code",
    "password",
    "tenant",
    "secret",
    "payload_base64",
    "event_types",
    "schema",
    "headers",
    "reason",
    "try",
];

/// Forms of the largest size: many fields, many parts, and each field in turn with a large value.
fn forms(action: &str, (cookie, token): (&str, &str), names: &[&str]) -> Vec<Sent> {
    let path = format!("/console/{action}");
    let own = format!("csrf={token}&form=019a0000-0000-7000-8000-000000000001&back=/console/");
    let plain = "application/x-www-form-urlencoded";
    let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n";
    let of = |what: &str, kind: &str, body: String| Sent {
        what: format!("{action}: {what}"),
        method: "POST".to_owned(),
        path: path.clone(),
        fields: vec![
            ("Cookie".to_owned(), cookie.to_owned()),
            ("Content-Type".to_owned(), kind.to_owned()),
            ("Sec-Fetch-Site".to_owned(), "same-origin".to_owned()),
        ],
        body: body.into_bytes(),
    };
    let mut all = vec![
        of("many fields", plain, "a&".repeat(FORM / 2)),
        of("fields", plain, format!("{own}&{}", "a&".repeat(900))),
        of("a long name", plain, "a".repeat(FORM)),
        of("parts", "multipart/form-data; boundary=b", part.repeat(FORM / part.len())),
    ];
    for name in names {
        let large = "[0,".repeat(3_500_000 / 3);
        all.push(of(name, plain, format!("{name}={large}&{own}")));
        let lines = "a%0A".repeat(60_000);
        all.push(of(name, plain, format!("{own}&{name}={lines}")));
        let json = format!("[{}0]", "[0],".repeat(60_000));
        all.push(of(name, plain, format!("{own}&{name}={json}")));
    }
    all
}

/// Requests with a large header field, cookie, part of the path and parameter.
fn heads(document: &Value, token: &str) -> Vec<Sent> {
    let bearer = ("Authorization".to_owned(), format!("Bearer {token}"));
    let large = "x".repeat(VALUE);
    let mut all = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let given = operation["parameters"].as_array().into_iter().flatten();
            let method = method.to_ascii_uppercase();
            let of = |what: &str, path: String| Sent {
                what: format!("{method} {path:.60}: {what}"),
                method: method.clone(),
                path,
                fields: vec![bearer.clone()],
                body: Vec::new(),
            };
            let named = path.replace(['{', '}'], "");
            for one in given.filter(|one| one["in"] == "query") {
                let name = one["name"].as_str().unwrap();
                all.push(of(name, format!("{named}?{name}={large}")));
                all.push(of(name, format!("{named}?{}", format!("{name}=1&").repeat(1_000))));
            }
            if path.contains('{') {
                let first = path.split('{').next().unwrap();
                all.push(of("the path", format!("{first}{large}")));
            }
        }
    }
    for field in FIELDS {
        let values = [large.clone(), "a=b;".repeat(VALUE / 4), "a,".repeat(VALUE / 2)];
        for (path, value) in ["/v1/events", "/console/events"].into_iter().zip(values) {
            let fields = vec![bearer.clone(), (field.to_owned(), value)];
            let what = format!("{path}: {field}");
            let (method, body) = ("GET".to_owned(), Vec::new());
            all.push(Sent { what, method, path: path.to_owned(), fields, body });
        }
    }
    all
}

fn walk(process: &mut Process, all: &[Sent]) {
    let address = process.address;
    for (at, sent) in all.chunks(AT_ONCE * 8).enumerate() {
        let seen = thread::scope(|scope| {
            let own = |first: usize| {
                let own = sent.iter().skip(first).step_by(AT_ONCE);
                own.map(|sent| (sent.status(address), &sent.what)).collect::<Vec<_>>()
            };
            let threads: [_; AT_ONCE] =
                std::array::from_fn(|first| scope.spawn(move || own(first)));
            others_go_on(process, &format!("{at} of {}", sent[0].what));
            let mut seen = Vec::new();
            for one in threads {
                seen.extend(one.join().unwrap());
            }
            seen
        });
        let has_failed = seen.iter().any(|(status, _)| *status == 500);
        assert!(!process.has_ended() && !has_failed, "{seen:?}");
    }
    let resident = resident_kib(process);
    assert!(resident < MAX_RESIDENT_KIB, "{} MiB", resident >> 10);
}

#[test]
fn no_form_query_cookie_or_field_stops_the_service() {
    let Some(cage) = Cage::new("walk-console") else { return };
    let home = tempfile::tempdir().unwrap();
    let mut process = cage.start(home.path());
    let mut all = Vec::new();
    for role in ["read", "admin"] {
        let cookie = log_in(&process, role, role);
        let token = csrf(&process, &cookie);
        let actions = oncebox::console::actions().map(|(name, _)| format!("act/{name}"));
        // For whom the right is missing, a few show that nothing is read.
        let actions: Vec<String> =
            if role == "read" { actions.take(3).collect() } else { actions.collect() };
        let others = ["log-in", "enter", "first-admin", "tenant"].map(str::to_owned);
        for action in others.into_iter().chain(actions) {
            all.push((cookie.clone(), token.clone(), action));
        }
    }
    for (at, (cookie, token, action)) in all.iter().enumerate() {
        let names = if at % 8 == 0 { NAMES.len() } else { 4 };
        walk(&mut process, &forms(action, (cookie, token), &NAMES[..names]));
    }
    let document = process.call("GET", "/openapi.json", &Value::Null).is(200).json();
    let token = process.token();
    walk(&mut process, &heads(&document, &token));
    cage.tell("the walk of the console");
    process.stop();
}

/// A form of the largest size, sent from one of the loopback addresses: each client has a share of its own.
fn post_from(host: u8, sent: &Sent, address: SocketAddr) -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    let Sent { method, path, fields, body, .. } = sent;
    let fields = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let fields = fields.collect::<Vec<_>>().concat();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n"
    );
    // A body that is refused early may end the connection before it is read.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer));
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// The lowest role, from many addresses at once: no share of one of them, but all together.
#[test]
fn forms_of_many_pairs_from_many_addresses_do_not_end_the_service() {
    let Some(cage) = Cage::new("pairs") else { return };
    let home = tempfile::tempdir().unwrap();
    let mut process = cage.start(home.path());
    let cookie = log_in(&process, "read", "read");
    let token = csrf(&process, &cookie);
    let mut most = forms("act/create-provider", (&cookie, &token), &[]).swap_remove(0);
    // As many as a form may have in bytes.
    most.body.truncate((4 << 20) - 16);
    let most = &most;
    let address = process.address;
    for _ in 0..3 {
        thread::scope(|scope| {
            for host in 2..18 {
                scope.spawn(move || post_from(host, most, address));
            }
        });
        assert!(!process.has_ended(), "it has ended");
    }
    others_go_on(&process, "after the forms");
    let resident = resident_kib(&process);
    assert!(resident < MAX_RESIDENT_KIB, "{} MiB", resident >> 10);
    cage.tell("forms of many pairs");
    process.stop();
}

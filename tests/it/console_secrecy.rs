//! No page of the console has a secret or a sealed value in its source, whoever looks.

use std::collections::VecDeque;

use oncebox::console::pages;

use crate::it::console_rig::{Browser, form, links, unescaped};
use crate::rig::prelude::*;

/// More pages than there are: a list that leads on without end would be seen.
const MAX_PAGES: usize = 1_000;
const NAME: &str = "Jane Marker-Roe";
const MAIL: &str = "jane.marker@example.org";
const PASSWORD: &str = "correct horse battery";
const PROVIDER: &str = "a-shared-secret-of-32-characters";
const SECOND: &str = "another-secret-of-32-characters!";
const BEARER: &str = "bearer-4711-of-the-target";
const BASIC: &str = "basic-4711-of-the-target";
const API_KEY: &str = "api-key-4711-of-the-target";
const CLIENT: &str = "client-4711-of-the-target";
const ACCESS: &str = "access-4711-of-the-target";
const SLACK: &str = "T0471/B0815/slack-4711-of-the-channel";

/// What must not be in a page, by what it is.
struct Planted {
    rig: Rig,
    hidden: Vec<(&'static str, String)>,
    receivers: [Receiver; 2],
}

/// All that a request carries, as an answer: receivers echo what they get, and one of them refuses it.
fn echo(request: &Message) -> Reply {
    let fields = request.fields.iter().map(|(name, value)| format!("{name}: {value}\n"));
    let mut body = format!("{}\n{}", request.first_line, fields.collect::<String>()).into_bytes();
    body.extend_from_slice(&request.body);
    let is_basic = request.field("authorization").is_some_and(|field| field.starts_with("Basic"));
    Reply::Answer(
        if is_basic { 422 } else { 500 },
        vec![("content-type", "text/plain".to_owned())],
        body,
    )
}

impl Planted {
    fn new() -> Self {
        let (rig, receiver, tokens) = (Rig::new(), Receiver::new(), Receiver::new());
        receiver.decide(echo);
        let token = json!({ "access_token": ACCESS, "token_type": "Bearer", "expires_in": 3600 });
        tokens.always(Reply::Answer(200, Vec::new(), token.to_string().into_bytes()));
        let mut planted = Self { rig, hidden: Vec::new(), receivers: [receiver, tokens] };
        for (what, secret) in [
            ("a sealed name", NAME),
            ("a sealed address", MAIL),
            ("a password", PASSWORD),
            ("a provider's secret", PROVIDER),
            ("a provider's second secret", SECOND),
            ("a bearer token", BEARER),
            ("a basic password", BASIC),
            ("an API key", API_KEY),
            ("a client's secret", CLIENT),
            ("an access token", ACCESS),
            ("a channel's URL", SLACK),
        ] {
            planted.hide(what, secret);
        }
        planted.hide("basic authentication", &BASE64.encode(format!("erp:{BASIC}").as_bytes()));
        planted.seal();
        planted.credentials();
        planted.people();
        planted.everything_else();
        planted
    }

    fn hide(&mut self, what: &'static str, secret: &str) {
        assert!(secret.len() >= 15, "{what} is too short to be found: {secret}");
        self.hidden.push((what, secret.to_owned()));
    }

    /// A comparison with a list whose item cannot be used, and has personal data.
    fn compare(&self) {
        let rig = &self.rig;
        let at = rig.now().minus(secs(3_600)).secs();
        let item = json!({ "id": MAIL, "at": at, "customer": { "id": "c-1", "name": NAME } });
        let page = json!([item]).to_string().into_bytes();
        let list = Receiver::with(Reply::Answer(200, Vec::new(), page));
        let terms =
            json!({ "url": list.url(), "provider": "github", "item_id": ["/id"], "time": "/at" });
        rig.source("github-list", "http", &terms);
        let runs = "/v1/providers/github/reconciliations";
        rig.post(runs, &json!({})).is(201);
        until("it has ended", || rig.items(runs)[0]["refused"] == 1);
        rig.call("DELETE", "/v1/sources/github-list", b"").is(204);
    }

    /// Events with sealed fields, which receivers echo.
    fn seal(&self) {
        let rig = &self.rig;
        let policy = json!({
            "rules": [
                { "path": "$.customer.name", "action": "seal" },
                { "detect": ["email"], "action": "seal" },
            ],
            "subject": "$.customer.id",
        });
        rig.patch("/v1/tenants/default", &json!({ "pii": policy })).is(200);
        let provider = json!({
            "name": "github", "scheme": { "kind": "github" }, "pii": policy, "secret": PROVIDER,
        });
        rig.post("/v1/providers", &provider).is(201);
        let terms = json!({
            "source": "all", "ordering": "key",
            "event_types": ["order.paid", "push"],
        });
        rig.subscribe_with("sealed", &self.receivers[0], &terms);
        let payload =
            json!({ "customer": { "id": "c-1", "name": NAME }, "to": [MAIL], "total": 12 });
        let event = json!({
            "event_type": "order.paid", "aggregate_id": "4711", "ordering_key": "4711", "payload": payload,
        });
        rig.publish(&event);
        let signature = http::github(PROVIDER, payload.to_string().as_bytes());
        let fields = [
            ("X-Hub-Signature-256", &*signature),
            ("X-GitHub-Delivery", "d-1"),
            ("X-GitHub-Event", "push"),
            ("Content-Type", "application/json"),
            ("User-Agent", MAIL),
        ];
        rig.send("POST", "/in/github", &fields, payload.to_string().as_bytes()).is(200);
        rig.post("/v1/providers/github/secrets", &json!({ "secret": SECOND })).is(201);
    }

    /// A subscription with a credential of each kind, and what its receiver answers.
    fn credentials(&mut self) {
        let certificate = crate::it::credentials_tls::pem(2090);
        let key = certificate.rsplit("PRIVATE KEY-----").nth(1).unwrap();
        let line = key.lines().find(|line| line.len() > 40).unwrap().to_owned();
        self.hide("a client certificate's key", &line);
        let token_url = self.receivers[1].url();
        for (name, credential) in [
            ("bearer", json!({ "kind": "bearer", "secret": BEARER })),
            ("basic", json!({ "kind": "basic", "user": "erp", "secret": BASIC })),
            ("key", json!({ "kind": "api_key", "header": "X-Key", "secret": API_KEY })),
            ("ed", json!({ "kind": "signing_ed25519" })),
            (
                "oauth",
                json!({ "kind": "oauth2", "token_url": token_url, "client_id": "erp", "secret": CLIENT }),
            ),
            ("tls", json!({ "kind": "client_certificate", "secret": certificate })),
        ] {
            let signing = self.rig.subscribe_with(
                name,
                &self.receivers[0],
                &json!({ "event_types": ["order.paid"] }),
            );
            self.hide("a signing secret", &signing);
            let path = format!("/v1/subscriptions/{name}/credentials");
            let made = self.rig.post(&path, &credential).is(201).json();
            if let Some(secret) = made["secret"].as_str() {
                self.hide("a signing key", secret);
            }
        }
        let id = self.rig.get("/v1/credentials?subscription=bearer")["items"][0]["id"].clone();
        let rotated =
            self.rig.post(&format!("/v1/credentials/{}/rotate", id.as_str().unwrap()), &json!({}));
        let rotated = rotated.json();
        let secret =
            rotated["secret"].as_str().or_else(|| rotated["credential"]["secret"].as_str());
        self.hide("a rotated secret", secret.unwrap_or_else(|| panic!("{rotated}")));
        let payload = json!({ "customer": { "id": "c-2", "name": NAME }, "to": [MAIL] });
        self.rig.publish(
            &json!({ "event_type": "order.paid", "aggregate_id": "4712", "payload": payload }),
        );
        self.rig.settle();
        until("all receivers echoed", || self.receivers[0].count() >= 8);
        self.rig.settle();
    }

    fn people(&mut self) {
        let rig = &self.rig;
        for (name, role) in [("anna", "admin"), ("otto", "operate"), ("rita", "read")] {
            let user = json!({ "name": name, "role": role, "password": PASSWORD });
            rig.post("/v1/users", &user).is(201);
        }
        let (link, session) = (rig.link("rita"), rig.log_in_by_link("otto").secret);
        let (token, first) = (rig.token_of("operate"), rig.token.clone());
        let key = fs::read_to_string(rig.data().join("master.key")).unwrap();
        self.hide("a one-time link", &link);
        self.hide("a session", &session);
        self.hide("a token", &token);
        self.hide("the first token", &first);
        self.hide("the master key", key.trim());
    }

    /// What further pages need: a job, a lane, a source, channels, a dead letter.
    fn everything_else(&self) {
        let rig = &self.rig;
        let slack = format!("{}/services/{SLACK}", self.receivers[0].url());
        let channel = json!({ "name": "ops", "kind": "slack", "url": slack });
        rig.post("/v1/alert-channels", &channel).is(201);
        let path = rig.home().join("erp.db");
        let erp = Connection::open(&path).unwrap();
        erp.run("CREATE TABLE outbox (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT)");
        rig.source("erp", "sqlite", &json!({ "path": path }));
        self.compare();
        let dead = rig.get("/v1/deliveries?subscription=bearer")["items"][0]["id"].clone();
        let dead = format!("/v1/deliveries/{}", dead.as_str().unwrap());
        rig.post(&format!("{dead}/cancel"), &Value::Null).is(200);
        let body = json!({ "filter": { "subscription": "sealed" } });
        rig.post("/v1/dead-letters/replay", &body).is(201);
        let schema = json!({ "type": "object" });
        rig.call(
            "PUT",
            "/v1/event-types/order.paid",
            json!({ "schema": schema }).to_string().as_bytes(),
        )
        .is(201);
    }

    /// The page of a test that has run.
    fn tested(&self) -> String {
        let begun = self.rig.post("/v1/subscriptions/bearer/test", &json!({ "background": true }));
        let id = begun.is(202).json()["id"].as_str().unwrap().to_owned();
        let progress = format!("/v1/subscription-tests/{id}");
        until("the test is over", || self.rig.get(&progress)["is_running"] == false);
        format!("/console/subscriptions/tests/{id}")
    }

    /// Asserts that nothing hidden is in a text, in any of the ways it may be written there.
    #[track_caller]
    fn is_clean(&self, path: &str, html: &str) {
        let shown = unescaped(html);
        for (what, secret) in &self.hidden {
            let bare = secret.trim_start_matches("whsec_").trim_start_matches("whsk_");
            let encoded =
                [BASE64.encode(secret.as_bytes()), crate::it::console_rig::encoded(secret)];
            for form in [bare, encoded[0].trim_end_matches('='), &encoded[1]] {
                assert!(!shown.contains(form), "{path} shows {what}: {form}\n{shown}");
            }
        }
    }
}

/// Whether a path is one of a page: `{…}` stands for any part.
fn is_of(page: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    page.split('/').count() == path.split('/').count()
        && page.split('/').zip(path.split('/')).all(|(of, is)| of == is || of.starts_with('{'))
}

/// Follows all links that lead to the console; returns the paths.
fn walk(planted: &Planted, browser: &Browser<'_>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut next: VecDeque<String> =
        ["/console/", "/console/search?q=4711", "/console/search?q=order", &planted.tested()]
            .map(str::to_owned)
            .into();
    // No page leads to the first steps of a box that is set up. They are for admins.
    if browser.send("GET", "/console/start", b"").status == 200 {
        next.push_back("/console/start".to_owned());
    }
    // No page leads to a test that somebody else began.
    let begun = json!({ "background": true });
    let test = planted.rig.post("/v1/subscriptions/bearer/test", &begun).is(202).json();
    next.push_back(format!("/console/subscriptions/tests/{}", test["id"].as_str().unwrap()));
    while let Some(path) = next.pop_front() {
        if !path.starts_with("/console/") || !seen.insert(path.clone()) {
            continue;
        }
        assert!(seen.len() < MAX_PAGES, "{seen:#?}");
        let html = browser.get(&path);
        planted.is_clean(&path, &html);
        // Spans of time show the same things once more.
        let new = links(&html).into_iter().filter(|link| !link.contains("since="));
        next.extend(new.map(|link| link.split('#').next().unwrap().to_owned()));
    }
    seen
}

#[test]
fn no_page_shows_a_secret_or_a_sealed_value() {
    let planted = Planted::new();
    let anna = Browser::enter(&planted.rig, "anna");
    planted.rig.post("/v1/backups", &json!({})).is(201);
    let seen = walk(&planted, &anna);
    for page in pages() {
        assert!(seen.iter().any(|path| is_of(page, path)), "{page} was not seen: {seen:#?}");
    }
    // What is looked for is there: the pages say that it is sealed, and the receivers got it.
    let mut events = seen.iter().filter(|path| is_of("/console/events/{id}", path));
    assert!(events.any(|event| anna.get(event).contains("[sealed]")));
    let sent = planted.receivers[0].bodies().concat();
    assert!(sent.contains(NAME) && sent.contains(MAIL));
    for (name, acts) in [("otto", true), ("rita", false)] {
        let seen = walk(&planted, &Browser::enter(&planted.rig, name));
        let forms = seen.iter().filter(|path| path.contains("/act/") && !path.contains("password"));
        assert_eq!(forms.count() > 0, acts, "{name}: {seen:#?}");
    }
}

#[test]
fn a_form_that_fails_does_not_show_the_secrets_that_were_typed() {
    let planted = Planted::new();
    let anna = Browser::enter(&planted.rig, "anna");
    let credential =
        planted.rig.get("/v1/credentials?subscription=bearer")["items"][0]["id"].clone();
    for (action, given, typed) in [
        ("create-user", String::new(), vec![("name", "a b"), ("password", PASSWORD)]),
        ("own-password", "name=anna".to_owned(), vec![("current", BEARER), ("new", PASSWORD)]),
        ("change-user", "name=nobody".to_owned(), vec![("password", PASSWORD)]),
        (
            "rotate-credential",
            format!("id={}", credential.as_str().unwrap()),
            vec![("secret", BEARER)],
        ),
    ] {
        let path = format!("/console/act/{action}");
        let page = anna.get(&format!("{path}?{given}"));
        let answer = anna.submit(&form(&page, &path).unwrap(), &typed);
        assert!((400..500).contains(&answer.status), "{action}: {answer:?}");
        assert!(answer.text().contains("role=\"alert\""), "{action}: {}", answer.text());
        planted.is_clean(action, &answer.text());
    }
    let typed = format!("name=anna&password={BEARER}");
    let fields = [("Sec-Fetch-Site", "same-origin")];
    let entered =
        http::send(planted.rig.address(), "POST", "/console/log-in", &fields, typed.as_bytes());
    let entered = entered.unwrap().is(401).text();
    assert!(entered.contains("value=\"anna\""), "{entered}");
    planted.is_clean("the page to log in", &entered);
    // A page in a sandbox, or of another site, logs nobody in.
    for origin in ["null", "https://evil.example.com"] {
        let fields = [("Origin", origin)];
        let log_in = "/console/log-in";
        let answer =
            http::send(planted.rig.address(), "POST", log_in, &fields, typed.as_bytes()).unwrap();
        assert_eq!(answer.status, 403, "{origin}");
    }
}

#[test]
fn a_new_secret_is_in_the_one_page_that_made_it() {
    let planted = Planted::new();
    let anna = Browser::enter(&planted.rig, "anna");
    let mut made = Vec::new();
    for (page, action, typed, from) in [
        (
            "/console/settings/tokens",
            "create-token",
            vec![("name", "erp"), ("role", "read")],
            "obx_",
        ),
        ("/console/subscriptions/key", "rotate-credential", vec![], "whsec_"),
        ("/console/settings/users", "user-link", vec![], "/console/enter?link="),
        (
            "/console/subscriptions",
            "create-subscription",
            vec![("name", "new"), ("url", "http://127.0.0.1:8099/")],
            "whsec_",
        ),
    ] {
        let page = unescaped(&anna.act(page, action, &typed));
        planted.is_clean(action, &page);
        let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("{action}: {page}"));
        made.push(
            rest.split(|c: char| !c.is_ascii_alphanumeric() && !"-_+/=".contains(c))
                .next()
                .unwrap()
                .to_owned(),
        );
    }
    // Its test logs on with the credential.
    for name in ["bearer", "basic", "key", "oauth"] {
        let page = format!("/console/subscriptions/{name}");
        let sent = form(&anna.get(&page), "/console/act/test-subscription").unwrap();
        let test = anna.submit(&sent, &[]).is(303).field("location").unwrap().to_owned();
        until("the test is over", || !anna.get(&test).contains("http-equiv=\"refresh\""));
        planted.is_clean(&page, &anna.get(&test));
    }
    for path in walk(&planted, &anna) {
        let page = unescaped(&anna.get(&path));
        for secret in &made {
            assert!(secret.len() > 15 && !page.contains(secret), "{path} shows {secret}");
        }
    }
}

//! Acting in the console: for each action of its table, who is refused, and that a form is carried out once.

use oncebox::console::actions;
use oncebox::model::in_doubt::Window;
use oncebox::model::token::Role;
use oncebox::store::meta;

use crate::it::console_rig::{Browser, Form, away_erp, encoded, form, links};
use crate::rig::prelude::*;

const PASSWORD: &str = "correct horse battery";

/// A box with people; what an action is done to is made by its case.
struct World {
    rig: Rig,
    well: Receiver,
    /// Refuses what it is sent.
    bad: Receiver,
    /// Is out of order.
    away: Receiver,
    /// Never answers.
    mute: Receiver,
    /// A list without items.
    list: Receiver,
}

/// How a person carries out an action.
struct Case {
    /// The page with its button.
    page: String,
    /// What is typed or picked.
    values: Vec<(&'static str, String)>,
}

impl World {
    fn new() -> Self {
        let rig = Rig::with(away_erp);
        for (name, role) in [("anna", "admin"), ("otto", "operate"), ("rita", "read")] {
            rig.user(name, role);
        }
        rig.patch("/v1/users/anna", &json!({ "password": PASSWORD })).is(200);
        let [well, bad, away, mute] = [(); 4].map(|()| Receiver::new());
        bad.always(Reply::status(422));
        away.always(Reply::status(503));
        mute.always(Reply::CutRead);
        let list = Receiver::with(Reply::Answer(200, Vec::new(), b"[]".to_vec()));
        Self { rig, well, bad, away, mute, list }
    }

    /// A subscription of its own for an action: it wants the events of the type of that name.
    fn subscribe(&self, action: &str, to: &Receiver, more: &Value) {
        let terms = merged(json!({ "event_types": [action] }), more);
        self.rig.subscribe_with(action, to, &terms);
    }

    /// An event for that subscription: the event's id and its delivery's.
    fn sent(&self, action: &str) -> (String, String) {
        let event = json!({ "event_type": action, "ordering_key": action, "payload": {} });
        let event = text(&self.rig.publish(&event), "id");
        self.rig.settle();
        let delivery = self.rig.id(&format!("/v1/deliveries?event_id={event}"));
        (event, delivery)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.rig.post(path, body);
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        answer.json()
    }

    /// What an action needs. An action without a case fails its tests.
    fn case(&self, action: &str) -> Case {
        let (page, values) = match action {
            "replay-event" | "cancel-event" => {
                let is_open = action == "cancel-event";
                let to = if is_open { &self.away } else { &self.well };
                self.subscribe(action, to, &json!({}));
                (format!("/console/events/{}", self.sent(action).0), vec![])
            }
            "end-external-call" => {
                let order = json!({ "order": { "external_calls": "event" } });
                self.subscribe(action, &self.mute, &order);
                let (_, delivery) = self.sent(action);
                self.post(&format!("/v1/deliveries/{delivery}/cancel"), &Value::Null);
                let told = [("made", "true"), ("reason", "it has it")];
                let values = told.map(|(name, text)| (name, text.to_owned())).to_vec();
                (format!("/console/subscriptions/{action}"), values)
            }
            "fix-event" | "discard-event" => self.quarantined(action),
            "create-event-type" | "change-event-type" | "delete-event-type" | "send-event" => {
                self.event_type(action)
            }
            "replay-webhook" => {
                let secret = "a-shared-secret-of-32-characters";
                self.rig.token_provider("shop", secret);
                self.rig.subscribe_with(action, &self.well, &json!({ "source": "provider:shop" }));
                self.rig.send("POST", "/in/shop", &[("X-Token", secret)], b"{\"n\":1}").is(200);
                self.rig.settle();
                (format!("/console/webhooks/{}", self.rig.id("/v1/webhook-events")), vec![])
            }
            "retry-delivery" | "cancel-delivery" | "edit-and-resend" | "skip" => {
                self.subscribe(action, &self.away, &json!({}));
                let page = format!("/console/deliveries/{}", self.sent(action).1);
                let typed = ("payload_base64", "{\"total\": 1.00}".to_owned());
                (page, if action == "edit-and-resend" { vec![typed] } else { vec![] })
            }
            "park" | "release" | "move-to-end" => (self.in_lane(action), vec![]),
            "pause-job" | "resume-job" | "cancel-job" => self.dead_letters(action),
            picked if picked.ends_with("-dead-letters") || picked.ends_with("-picked") => {
                self.dead_letters(action)
            }
            "create-subscription"
            | "change-subscription"
            | "delete-subscription"
            | "pause-subscription"
            | "resume-subscription"
            | "test-subscription"
            | "compare-subscription"
            | "recover-subscription"
            | "replay-events"
            | "rotate-credential"
            | "schedule-rotation"
            | "set-credential"
            | "revoke-credential" => self.of_subscription(action),
            source if source.ends_with("-source") => self.source(action),
            "acknowledge" => {
                self.subscribe(action, &self.bad, &json!({}));
                self.sent(action);
                ("/console/alerts".to_owned(), vec![("id", self.escalation(action))])
            }
            "add-secret" | "withdraw-secret" => self.provider(action),
            of if of.ends_with("-provider") => self.provider(action),
            of if of.ends_with("-channel") => self.channel(action),
            "release-in-doubt" | "skip-in-doubt" | "end-in-doubt" => self.in_doubt(action),
            _ => {
                let (page, values) = self.of_settings(action);
                (format!("/console/settings{page}"), values)
            }
        };
        Case { page, values }
    }

    /// An event that cannot be used.
    fn quarantined(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        let event = json!({ "event_type": action, "payload": 1, "target": "nobody" });
        let page = format!("/console/events/{}", text(&self.rig.publish(&event), "id"));
        let typed = if action == "fix-event" { ("target", "") } else { ("reason", "a test") };
        (page, vec![(typed.0, typed.1.to_owned())])
    }

    /// A channel of alerts. What other cases raise is less severe.
    fn channel(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        let name = ("name", action.to_owned());
        let terms = [("kind", "webhook".to_owned()), ("url", self.well.url())];
        let severity = ("severity", "critical".to_owned());
        let values = if action == "create-channel" {
            [&[name][..], &terms, &[severity]].concat()
        } else {
            let channel = json!({
                "name": action, "kind": "webhook", "url": self.well.url(), "severity": "critical",
            });
            self.post("/v1/alert-channels", &channel);
            vec![name]
        };
        ("/console/alerts".to_owned(), values)
    }

    /// What is done to a subscription, its events or its credentials.
    fn of_subscription(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        let page = "/console/subscriptions".to_owned();
        if action == "create-subscription" {
            return (page, vec![("name", action.to_owned()), ("url", self.well.url())]);
        }
        let page = self.subscription(action);
        match action {
            "change-subscription" => return (page, vec![("event_types", "other.*".to_owned())]),
            "resume-subscription" => {
                self.post(&format!("/v1/subscriptions/{action}/pause"), &Value::Null);
            }
            "replay-events" => drop(self.sent(action)),
            "set-credential" => {
                let secret = ("secret", "a-token".to_owned());
                return (page, vec![("kind", "bearer".to_owned()), secret]);
            }
            "compare-subscription" => {
                self.sent(action);
                let ids = ("ids", "a-key-of-ours".to_owned());
                return (page, vec![("since", "2026-01-01 00:00 UTC".to_owned()), ids]);
            }
            "recover-subscription" => {
                self.sent(action);
                return (page, vec![("since", "2026-01-31 00:00 UTC".to_owned())]);
            }
            "revoke-credential" => {
                let bearer = json!({ "kind": "bearer", "secret": "a-token" });
                self.post(&format!("/v1/subscriptions/{action}/credentials"), &bearer);
            }
            _ => {}
        }
        (page, vec![])
    }

    /// The page of a new subscription.
    fn subscription(&self, action: &str) -> String {
        self.subscribe(action, &self.well, &json!({}));
        format!("/console/subscriptions/{action}")
    }

    /// The page of a delivery that waits in a lane, or of the lane.
    fn in_lane(&self, action: &str) -> String {
        self.subscribe(action, &self.away, &json!({ "ordering": "key" }));
        self.post(&format!("/v1/subscriptions/{action}/pause"), &Value::Null);
        let (_, delivery) = self.sent(action);
        match action {
            "move-to-end" => {
                self.sent(action);
                let lane = self.rig.id(&format!("/v1/lanes?subscription={action}"));
                return format!("/console/lanes/{lane}");
            }
            "release" => drop(self.post(&format!("/v1/deliveries/{delivery}/park"), &json!({}))),
            _ => {}
        }
        format!("/console/deliveries/{delivery}")
    }

    fn dead_letters(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        self.subscribe(action, &self.bad, &json!({}));
        let (_, delivery) = self.sent(action);
        let page = format!("/console/dead-letters?subscription={action}");
        let mut values = Vec::new();
        if action.ends_with("picked") {
            values.push(("filter.ids", delivery));
        }
        if action.starts_with("discard") {
            values.push(("reason", "of no use".to_owned()));
        }
        if !action.ends_with("-job") {
            return (page, values);
        }
        // One a second, and the clock stands still.
        self.sent(action);
        let body = json!({ "filter": { "subscription": action }, "rate": 1 });
        let job = self.post("/v1/dead-letters/replay", &body)["id"].as_str().unwrap().to_owned();
        until("the first is sent", || self.rig.get(&format!("/v1/jobs/{job}"))["done"] == 1);
        self.rig.settle();
        if action == "resume-job" {
            self.post(&format!("/v1/jobs/{job}/pause"), &Value::Null);
        }
        (format!("/console/jobs/{job}"), values)
    }

    /// A source that reads a file of its own.
    fn source(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        if let "reopen-source" | "release-source" = action {
            let settings = json!({ "database": "erp", "mode": "claim" });
            self.post(
                "/v1/sources",
                &json!({ "name": action, "kind": "database", "settings": settings }),
            );
            let value = match action {
                "reopen-source" => ("since", "2026-01-31T12:00:00Z".to_owned()),
                _ => ("box", "north".to_owned()),
            };
            return (format!("/console/sources/{action}"), vec![value]);
        }
        if action == "credential-of-source" {
            let settings = json!({ "url": "http://127.0.0.1:8009/list", "item_id": ["/id"] });
            let source = json!({ "name": action, "kind": "http", "settings": settings });
            self.post("/v1/sources", &source);
            let values = vec![("kind", "bearer".to_owned()), ("secret", "a-token".to_owned())];
            return (format!("/console/sources/{action}"), values);
        }
        let path = self.rig.home().join(format!("{action}.db"));
        drop(file::new_outbox(&path));
        if action == "create-source" {
            let path = ("settings.path", path.to_string_lossy().into_owned());
            let kind = ("kind", "sqlite".to_owned());
            return ("/console/sources".to_owned(), vec![("name", action.to_owned()), kind, path]);
        }
        let source = json!({ "name": action, "kind": "sqlite", "settings": { "path": path } });
        self.post("/v1/sources", &source);
        let of = format!("/v1/sources/{action}");
        until("it is read", || !self.rig.get(&of)["last_read_at"].is_null());
        if action == "resume-source" {
            self.post(&format!("{of}/pause"), &Value::Null);
        }
        let from = ("from", "start".to_owned());
        let values = match action {
            "reset-source" => vec![from],
            "change-source" => vec![("silent_after_ms", "60000".to_owned())],
            _ => vec![],
        };
        (format!("/console/sources/{action}"), values)
    }

    /// The escalation of a subscription's dead letter.
    fn escalation(&self, subscription: &str) -> String {
        let is_of =
            |row: &&Value| row["subject"].as_str().is_some_and(|text| text.contains(subscription));
        let listed = self.rig.get("/v1/escalations");
        let found = listed["items"].as_array().unwrap().iter().find(is_of);
        found.unwrap_or_else(|| panic!("{listed}"))["id"].as_str().unwrap().to_owned()
    }

    /// A provider, which has two secrets where one is withdrawn.
    fn provider(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        let second = "another-secret-of-more-than-32-characters";
        let first = "a-secret-of-more-than-32-characters";
        if action == "create-provider" {
            let own = [("name", action), ("scheme.kind", "github")];
            let typed = own.into_iter().chain([("pii", "allow"), ("secret", first)]);
            let typed = typed.map(|(name, text)| (name, text.to_owned()));
            return ("/console/sources".to_owned(), typed.collect());
        }
        self.rig.provider(action, &json!({ "kind": "github" }), first);
        let page = format!("/console/providers/{action}");
        match action {
            "add-secret" => return (page, vec![("secret", second.to_owned())]),
            "change-provider" => return (page, vec![("tolerance_secs", "90".to_owned())]),
            "delete-provider" => return (page, vec![]),
            "reconcile-provider" => {
                let terms = json!({ "url": self.list.url(), "provider": action, "item_id": ["/id"], "time": "/at" });
                self.rig.source(action, "http", &terms);
                return (page, vec![("dry_run", "true".to_owned())]);
            }
            _ => {}
        }
        self.post(&format!("/v1/providers/{action}/secrets"), &json!({ "secret": second }));
        (page, vec![])
    }

    /// The page of an event type, or of all where one is made.
    fn event_type(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        if action == "create-event-type" {
            let schema = ("schema", "{\"type\":\"object\"}".to_owned());
            return ("/console/events/types".to_owned(), vec![("name", action.to_owned()), schema]);
        }
        let kept =
            self.rig.call("PUT", &format!("/v1/event-types/{action}"), br#"{"schema":true}"#);
        assert!(kept.status < 300, "{kept:?}");
        let about = ("description", "What a shop sells.".to_owned());
        let values = if action == "change-event-type" { vec![about] } else { vec![] };
        (format!("/console/events/types/{action}"), values)
    }

    /// What a restore leaves: a delivery in doubt, or the time in which new ones are held. The action that ends this
    /// time is the last of the table, so that no other case is held.
    fn in_doubt(&self, action: &str) -> (String, Vec<(&'static str, String)>) {
        let set = |window: Option<Window>| {
            let writer = self.rig.appliance().store().writer();
            writer.write(Queue::Accept, move |tx| meta::set_window(tx, window)).unwrap();
        };
        let now = self.rig.now();
        set(Some(Window { lost_at: now, until: now.plus(secs(3600)) }));
        let mut values = Vec::new();
        if action != "end-in-doubt" {
            self.subscribe(action, &self.well, &json!({}));
            let (_, delivery) = self.sent(action);
            assert_eq!(self.rig.get(&format!("/v1/deliveries/{delivery}"))["state"], "in_doubt");
            set(None);
            values.push(("filter.subscription", action.to_owned()));
        }
        ("/console/settings".to_owned(), values)
    }

    /// The page of the settings, and what is typed in its form.
    fn of_settings(&self, action: &str) -> (&'static str, Vec<(&'static str, String)>) {
        let name = ("name", action.to_owned());
        match action {
            "create-user" => ("/users", vec![name, ("role", "read".to_owned())]),
            "change-user" | "disable-user" | "enable-user" | "delete-user" | "user-link" => {
                self.rig.user(action, "read");
                if action == "enable-user" {
                    let disabled = json!({ "disabled": true });
                    self.rig.patch(&format!("/v1/users/{action}"), &disabled).is(200);
                }
                let role = ("role", "operate".to_owned());
                ("/users", if action == "change-user" { vec![name, role] } else { vec![name] })
            }
            "own-password" => {
                let new = ("new", "another good password".to_owned());
                ("", vec![("current", PASSWORD.to_owned()), new])
            }
            "end-session" => {
                self.rig.user(action, "read");
                ("/sessions", vec![self.session_of(action)])
            }
            "end-own-session" => ("/my-sessions", vec![self.session_of("anna")]),
            "create-token" => {
                let systems = ("source_systems", "erp\nshop".to_owned());
                ("/tokens", vec![name, ("role", "publish".to_owned()), systems])
            }
            "revoke-token" => {
                let made = self.post("/v1/tokens", &json!({ "name": action, "role": "read" }));
                ("/tokens", vec![("id", text(&made, "id"))])
            }
            "test-database" => ("/databases", vec![]),
            "create-tenant" => {
                let pii = ("pii", "allow".to_owned());
                ("/tenants", vec![name, pii])
            }
            tenant if tenant.ends_with("-tenant") => {
                self.post("/v1/tenants", &json!({ "name": action, "pii": "allow" }));
                if action == "resume-tenant" {
                    self.post(&format!("/v1/tenants/{action}/suspend"), &Value::Null);
                }
                let title = ("title", "Shops of the north".to_owned());
                ("/tenants", if action == "change-tenant" { vec![name, title] } else { vec![name] })
            }
            "back-up" => ("/backups", vec![]),
            "verify-backup" => {
                let there = self.rig.get("/v1/backups")["items"].get(0).cloned();
                let made = there.unwrap_or_else(|| self.post("/v1/backups", &json!({})));
                let name = text(&made, "path").rsplit('/').next().unwrap().to_owned();
                ("/backups", vec![("name", name)])
            }
            _ => panic!("the action {action} has no case here"),
        }
    }

    /// A new session of a user.
    fn session_of(&self, user: &str) -> (&'static str, String) {
        drop(self.rig.log_in_by_link(user));
        let listed = self.rig.get("/v1/sessions?limit=500");
        let mut newest_first = listed["items"].as_array().unwrap().iter().rev();
        let own = newest_first.find(|row| row["user"] == user).unwrap();
        ("id", text(own, "id"))
    }
}

/// Whether a page has the button of an action: a form, a link, or a button of a form.
fn offers(html: &str, action: &str) -> bool {
    ["\"", "?"].iter().any(|end| html.contains(&format!("/console/act/{action}{end}")))
}

impl Case {
    fn values(&self) -> Vec<(&str, &str)> {
        self.values.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// The form that acts, as a person gets to it from the page, filled in.
    #[track_caller]
    fn form(&self, browser: &Browser<'_>, action: &str) -> Form {
        let (html, path) = (browser.get(&self.page), format!("/console/act/{action}"));
        assert!(offers(&html, action), "{} has no {action}:\n{html}", self.page);
        let acts = |form: &Form| form.method == "post";
        let own = form(&html, &path).filter(acts).unwrap_or_else(|| {
            let link = links(&html).into_iter().find(|link| link.split('?').next() == Some(&path));
            // Rows are picked in a form that leads to the one that acts.
            let values =
                self.values.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
            let picked = format!("{path}?{}", values.collect::<Vec<_>>().join("&"));
            form(&browser.get(&link.unwrap_or(picked)), &path).filter(acts).unwrap()
        });
        let is_dry_run = own.fields.iter().any(|(name, _)| name == "shown");
        let own = if ["edit-and-resend", "fix-event"].contains(&action) {
            let looked = browser.submit(&own, &self.values()).is(200).text();
            form(&looked, &path).unwrap()
        } else if is_dry_run {
            let shown = browser.submit(&own, &[self.values(), vec![("again", "yes")]].concat());
            form(&shown.is(200).text(), &path).unwrap()
        } else {
            own
        };
        let mut fields = own.fields;
        for (name, value) in &self.values {
            fields.retain(|(have, _)| have != name);
            fields.push(((*name).to_owned(), value.clone()));
        }
        Form { fields, ..own }
    }
}

/// The token against forged forms of a browser's session.
fn token(browser: &Browser<'_>) -> String {
    form(&browser.get("/console/settings"), "/console/log-out").unwrap().value("csrf").to_owned()
}

/// All rows of all tables but those that a look at a page changes: uses of a session, and test writes; and but what the
/// service tells by itself when it looks at the site.
fn rows(rig: &Rig) -> Vec<String> {
    let conn = rig.file();
    let tables = file::lines(
        &conn,
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
            AND name NOT IN ('sessions', 'boots') ORDER BY name",
    );
    let rows = tables.iter().flat_map(|table| {
        // When something was used last is noted later, and not by what is tested here.
        let columns = format!(
            "SELECT group_concat(name) FROM pragma_table_info('{table}') WHERE name <> 'last_used_at'"
        );
        let columns = file::lines(&conn, &columns).concat();
        let rows = file::lines(&conn, &format!("SELECT {columns} FROM {table}"));
        rows.into_iter().map(move |row| format!("{table}: {row}"))
    });
    let is_own = ["meta: probe ", "meta: audit_head "];
    let is_told = |row: &str| {
        row.contains(" escalation.raise ")
            || (row.starts_with("escalations: ") && row.contains(" site "))
    };
    rows.filter(|row| is_own.iter().all(|own| !row.starts_with(own)) && !is_told(row)).collect()
}

/// Asserts that nothing was changed since those rows were read.
#[track_caller]
fn unchanged(rig: &Rig, before: &[String], action: &str) {
    let after = rows(rig);
    let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
    assert!(new.is_empty() && after.len() == before.len(), "{action} changed something: {new:#?}");
}

#[test]
fn a_form_without_its_sessions_token_is_refused_and_changes_nothing() {
    let world = World::new();
    let (anna, again) = (Browser::enter(&world.rig, "anna"), Browser::enter(&world.rig, "anna"));
    let own_of_another = token(&again);
    assert_ne!(token(&anna), own_of_another);
    for (action, _) in actions() {
        let form = world.case(action).form(&anna, action);
        let before = rows(&world.rig);
        let mut without = form.clone();
        without.fields.retain(|(name, _)| name != "csrf");
        let (body, foreign) = (form.body(&[]), [("Sec-Fetch-Site", "cross-site")]);
        let from_elsewhere = anna.send_with(&foreign, "POST", &form.action, body.as_bytes());
        let refused = [
            ("no token", anna.submit(&without, &[])),
            ("an empty token", anna.submit(&form, &[("csrf", "")])),
            ("a wrong token", anna.submit(&form, &[("csrf", &"0".repeat(64))])),
            ("another session's token", anna.submit(&form, &[("csrf", &own_of_another)])),
            ("another session", again.submit(&form, &[])),
            ("another site", from_elsewhere),
        ];
        for (what, answer) in refused {
            assert_eq!(answer.status, 403, "{action}, {what}: {}", answer.text());
            let says = answer.text().contains("This form is not from this session");
            assert!(says, "{action}, {what}: {}", answer.text());
        }
        let nobody = Browser::nobody(&world.rig).submit(&form, &[]);
        assert_eq!(nobody.status, 401, "{action}, nobody: {}", nobody.text());
        unchanged(&world.rig, &before, action);
    }
}

#[test]
fn who_lacks_the_right_sees_no_button_and_is_refused() {
    let world = World::new();
    let anna = Browser::enter(&world.rig, "anna");
    let others = [("rita", Role::Read), ("otto", Role::Operate)];
    let others = others.map(|(name, role)| (Browser::enter(&world.rig, name), role));
    for (action, right) in actions() {
        let case = world.case(action);
        let form = case.form(&anna, action);
        let before = rows(&world.rig);
        for (browser, role) in &others {
            let page = browser.send("GET", &case.page, b"").text();
            assert_eq!(offers(&page, action), role.may(right), "{action}, {role}: {page}");
            if role.may(right) {
                continue;
            }
            let asked = browser.send("GET", &format!("{}?{}", form.action, form.body(&[])), b"");
            let sent = browser.submit(&form, &[("csrf", &token(browser))]);
            for answer in [asked, sent] {
                assert_eq!(answer.status, 403, "{action}, {role}: {}", answer.text());
                let says = answer.text().contains("Your role does not allow this");
                assert!(says, "{action}, {role}: {}", answer.text());
            }
        }
        unchanged(&world.rig, &before, action);
    }
}

#[test]
fn a_form_that_is_sent_twice_is_carried_out_once() {
    let world = World::new();
    let done = || -> u32 {
        // What is published is no change, and stands in no audit event.
        let by_people = "SELECT (SELECT count(*) FROM audit_events WHERE actor_type = 'user')
                              + (SELECT count(*) FROM outbox WHERE event_type = 'send-event')";
        world.rig.one(by_people).parse().unwrap()
    };
    for (action, _) in actions() {
        let anna = Browser::enter(&world.rig, "anna");
        let form = world.case(action).form(&anna, action);
        let before = done();
        // A double click, and the same form once more later.
        let clicks = thread::scope(|scope| {
            let other = scope.spawn(|| anna.submit(&form, &[]));
            [anna.submit(&form, &[]), other.join().unwrap()]
        });
        let later = anna.submit(&form, &[]);
        // What runs in the background is in the audit trail when it has ended.
        until("it is in the audit trail", || done() > before);
        assert_eq!(done(), before + 1, "{action}");
        // A new password ends all sessions: what is sent then needs a new one.
        let is_out = action == "own-password";
        let next = later.field("location").unwrap_or_default();
        let is_done = |answer: &&Answer| match answer.status {
            303 => is_out || answer.field("location") == Some(next),
            200 => answer.text().contains("role=\"status\""),
            _ => false,
        };
        let statuses = clicks.each_ref().map(|click| click.status);
        let late = statuses.iter().filter(|status| **status == 409 || is_out && **status == 401);
        let first = clicks.iter().filter(is_done).count();
        assert!(first > 0 && first + late.count() == 2, "{action}: {statuses:?}, then {next}");
        assert_eq!(later.status, if is_out { 401 } else { 303 }, "{action}: {}", later.text());
        // The page of what was begun tells itself how far it is.
        let is_begun = ["/console/jobs/", "/console/subscriptions/tests/", "/console/events/"];
        let is_begun = is_begun.iter().any(|page| next.starts_with(page));
        let is_told = || anna.get(next).contains("role=\"status\"");
        assert!(is_out || is_begun || is_told(), "{action}: {next}");
        // An address alone says nothing.
        if !is_out && let Some((address, _)) = next.split_once("did=") {
            let page = anna.get(&format!("{address}did={action}"));
            assert!(!page.contains("role=\"status\""), "{action}");
        }
    }
}

//! E-mail as the target of a subscription: composed by templates, with one Message-ID at every attempt.

use oncebox::config::SmtpTls;

use crate::rig::prelude::*;
use crate::rig::smtp::{Encryption, MailServer};

/// A rig with a mail server.
struct Mailing {
    rig: Rig,
    server: MailServer,
    _home: TempDir,
}

impl Mailing {
    fn new(faults: Faults) -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = MailServer::start(Encryption::None, &home.path().join("ca.pem"));
        let port = u32::from(server.address.port());
        let set = |settings: &mut oncebox::config::Settings| {
            settings.smtp.host = Some("localhost".to_owned());
            settings.smtp.port = Some(port);
            settings.smtp.tls = SmtpTls::None;
            settings.smtp.from = Some("Oncebox <oncebox@shop.example>".to_owned());
        };
        Self { rig: Rig::with_faults(set, faults), server, _home: home }
    }

    fn subscribed(more: &Value) -> Self {
        let made = Self::new(Faults::none());
        made.subscribe(more);
        made
    }

    fn subscribe(&self, more: &Value) {
        let url = "mailto:a@b.example,c@d.example";
        let body = merged(json!({ "name": "office", "url": url }), more);
        self.rig.post("/v1/subscriptions", &body).is(201);
    }

    /// The text of the only mail that the server has.
    #[track_caller]
    fn only(&self) -> String {
        let mails = self.server.mails();
        let [mail] = mails.as_slice() else { panic!("{mails:?}") };
        assert_eq!(mail.to.len(), 2, "{mail:?}");
        mail.data.clone()
    }
}

#[test]
fn an_event_becomes_a_mail_by_its_templates() {
    let mailing = Mailing::subscribed(&json!({ "template": {
        "subject": "Invoice {{ payload.no }}\nBcc: x@y.example",
        "body": "Dear {{ payload.name }},\ntotal: {{ payload.total }}\n",
        "content_type": "text/plain", "attach": true, "name": "{{ payload.no }}.json",
    } }));
    let payload = json!({ "no": "RE-1", "name": "Ada", "total": 99.90 });
    let event =
        mailing.rig.publish(&json!({ "event_type": "invoice.created", "payload": payload }));
    mailing.rig.settle();
    let mail = mailing.only();
    let webhook_id = text(&event, "webhook_id");
    let attached = BASE64.encode(payload.to_string().as_bytes());
    for part in [
        "From: Oncebox <oncebox@shop.example>",
        "Subject: Invoice RE-1 Bcc: x@y.example",
        "Dear Ada,\r\ntotal: 99.9",
        &format!("Message-ID: <{webhook_id}.office@shop.example>"),
        "filename=\"RE-1.json\"",
        "Content-Type: application/json",
        "Auto-Submitted: auto-generated",
    ] {
        assert!(mail.contains(part), "{part} in {mail}");
    }
    assert!(mail.contains(&attached) || mail.contains(&payload.to_string()), "{mail}");
    assert!(!mail.contains("\r\nBcc:"), "{mail}");
    let attempt = mailing.rig.one("SELECT method || ' ' || url || ' ' || excerpt FROM attempts");
    assert_eq!(attempt, "MAIL mailto:a@b.example,c@d.example 250 taken as 4711");
    mailing.rig.says("SELECT mail_count || ' ' || event_mail_count FROM tenants", "0 1");
}

#[test]
fn without_templates_the_payload_is_the_text() {
    let mailing = Mailing::subscribed(&json!({}));
    let event = json!({ "event_type": "order.paid", "aggregate_type": "order", "aggregate_id": "4711",
                        "payload": { "n": 1 } });
    mailing.rig.publish(&event);
    mailing.rig.settle();
    let mail = mailing.only();
    assert!(mail.contains("Subject: order.paid 4711") && mail.contains("{\"n\":1}"), "{mail}");
}

#[test]
fn an_answer_that_is_lost_sends_the_mail_again_with_the_same_message_id() {
    let mailing = Mailing::new(Faults::at(Step::AfterSend, 1));
    mailing.subscribe(&json!({}));
    mailing.rig.publish_type("a");
    mailing.rig.passing("it is done", secs(1), || {
        mailing.rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == "1"
    });
    let mails = mailing.server.mails();
    let ids: BTreeSet<&str> = mails
        .iter()
        .filter_map(|mail| mail.data.lines().find(|line| line.starts_with("Message-ID: ")))
        .collect();
    assert_eq!((mails.len(), ids.len()), (2, 1), "{mails:?}");
}

#[test]
fn what_the_mail_server_says_decides_what_follows() {
    let mailing = Mailing::subscribed(&json!({ "policy": { "max_attempts": 3 } }));
    mailing.server.answer_rcpt("450 later");
    mailing.rig.publish_type("a");
    mailing.rig.becomes("SELECT count(*) FROM attempts WHERE class = 'transient'", "1");
    mailing.server.answer_rcpt("550 unknown");
    mailing.rig.passing("it is refused", secs(10), || mailing.rig.state(1) == "dead_letter");
    let reason = mailing.rig.one("SELECT failed_reason FROM attempts WHERE class = 'validation'");
    shows(&reason, &["550", "unknown"]);
    mailing.server.answer_rcpt("250 ok");
    mailing.rig.deliver("b");
    assert_eq!(mailing.server.mails().len(), 1);
}

#[test]
fn mails_of_events_have_a_limit_of_their_own() {
    let mut mailing = Mailing::subscribed(&json!({}));
    mailing.rig.restart_with(|settings| {
        settings.smtp.event_mails_per_day_max = 1;
        settings.alerts.emails_per_day_max = 2;
    });
    mailing.rig.deliver("a");
    mailing.rig.publish_type("b");
    mailing.rig.becomes("SELECT count(*) FROM attempts", "2");
    let reason = mailing.rig.one("SELECT failed_reason FROM attempts WHERE failed_reason <> ''");
    shows(&reason, &["smtp.event_mails_per_day_max"]);
    mailing.rig.says("SELECT sum(counted) FROM attempts", "0");
    // Alerts are not hindered by them.
    let channel = json!({ "name": "ops", "kind": "email", "to": ["a@b.example", "c@d.example"] });
    mailing.rig.post("/v1/alert-channels", &channel).is(201);
    mailing.rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("the alert is sent", || mailing.server.mails().len() == 2);
    mailing.rig.becomes("SELECT mail_count || ' ' || event_mail_count FROM tenants", "1 1");
    mailing.rig.pass(Duration::from_hours(24));
    mailing.rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'pending'", "0");
    mailing.rig.says("SELECT mail_count || ' ' || event_mail_count FROM tenants", "0 1");
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_reason() {
    let mailing = Mailing::subscribed(&json!({}));
    let refuse = |rig: &Rig, more: &Value, word: &str| {
        let body = merged(json!({ "name": "more", "url": "mailto:a@b.example" }), more);
        let refused = rig.post("/v1/subscriptions", &body).is(422).json();
        shows(&refused["detail"].to_string(), &[word]);
    };
    for (more, word) in [
        (json!({ "url": "mailto:nobody" }), "no e-mail address"),
        (json!({ "url": "mailto:" }), "no e-mail address"),
        (json!({ "url": "mailto:a@b.example?bcc=x@y.example" }), "no e-mail address"),
        (json!({ "url": format!("mailto:{}", ["a@b.example"; 21].join(",")) }), "21 addresses"),
        (json!({ "target": "email", "url": "http://127.0.0.1:8099/" }), "mailto:"),
        (json!({ "policy": { "probe": { "every": "5min" } } }), "of HTTP requests"),
        (json!({ "template": { "name": "{{ id }}.json" } }), "template.attach"),
        (json!({ "owner_id": "oncebox" }), "alert channels"),
        (json!({ "headers": { "X-A": "b" } }), "no header fields"),
    ] {
        refuse(&mailing.rig, &more, word);
    }
    let kind = json!({ "kind": "bearer", "secret": "a-bearer-token" });
    let path = "/v1/subscriptions/office/credentials";
    mailing.rig.post(path, &kind).is(422).tells("email");
    let mut rig = mailing.rig;
    rig.restart_with(|settings| settings.alerts.allowed_domains = vec!["z.example".to_owned()]);
    refuse(&rig, &json!({}), "alerts.allowed_domains");
    rig.restart_with(|settings| {
        settings.alerts.allowed_domains.clear();
        settings.smtp.host = None;
    });
    refuse(&rig, &json!({}), "[smtp]");
}

#[test]
fn a_test_sends_a_mail_and_shows_what_the_server_said() {
    let mailing = Mailing::subscribed(&json!({ "template": { "subject": "{{ payload.no }}" } }));
    let tested = mailing.rig.post("/v1/subscriptions/office/test", &json!({})).is(200).json();
    assert_eq!((&tested["ok"], &tested["excerpt"]), (&json!(true), &json!("250 taken as 4711")));
    assert!(mailing.only().contains("Subject: Test of the subscription office"));
    mailing.server.answer_rcpt("550 unknown");
    let tested = mailing.rig.post("/v1/subscriptions/office/test", &json!({})).is(200).json();
    assert_eq!((&tested["ok"], &tested["class"]), (&json!(false), &json!("validation")));
    shows(&tested["advice"].to_string(), &["[smtp]"]);
}

#[test]
fn bytes_that_are_no_text_go_as_an_attachment() {
    let mailing = Mailing::subscribed(&json!({ "source": "provider:plain" }));
    mailing.rig.token_provider("plain", "a-shared-secret-of-32-characters");
    let send = |body: &[u8]| {
        let fields =
            [("X-Token", "a-shared-secret-of-32-characters"), ("Content-Type", "application/pdf")];
        mailing.rig.send("POST", "/in/plain", &fields, body).is(200);
        mailing.rig.settle();
    };
    send(b"%PDF \xff\xfe 1");
    shows(&mailing.rig.one("SELECT failed_reason FROM attempts"), &["--attach"]);
    let template = json!({ "template": { "body": "See the attachment.", "attach": true } });
    mailing.rig.patch("/v1/subscriptions/office", &template).is(200);
    send(b"%PDF \xff\xfe 2");
    let mail = mailing.only();
    let attached = BASE64.encode(b"%PDF \xff\xfe 2");
    for part in ["See the attachment.", "application/pdf", ".pdf\"", &attached] {
        assert!(mail.contains(part), "{part} in {mail}");
    }
}

//! Alert channels: who is told of an escalation, when, and over what.

use std::os::unix::fs::PermissionsExt;

use oncebox::base::id::uuid7_of;
use oncebox::model::escalation::Class;

use crate::it::console_rig::{Browser, links};
use crate::rig::prelude::*;
use crate::rig::smtp::{Encryption, MailServer};

const HOUR: Duration = Duration::from_hours(1);

fn channel(rig: &Rig, kind: &str, receiver: &Receiver, more: &Value) {
    let body = merged(json!({ "name": "ops", "kind": kind, "url": receiver.url() }), more);
    rig.post("/v1/alert-channels", &body).is(201);
}

/// Writes to the database as another program would.
fn write(rig: &Rig, sql: &str) {
    rig.write(sql);
}

/// Raises an escalation of that class now.
fn raise(rig: &Rig, class: &str, subject: &str) {
    let (at, id) = (rig.now().ms(), uuid7_of(rig.now(), &[class, subject]));
    write(
        rig,
        &format!(
            "INSERT INTO escalations (id, tenant, class, subject, detail, first_at, last_at)
             VALUES ('{id}', 'default', '{class}', '{subject}', 'what was found', {at}, {at})"
        ),
    );
}

fn resolve(rig: &Rig, subject: &str) {
    let at = rig.now().ms();
    write(rig, &format!("UPDATE escalations SET resolved_at = {at} WHERE subject = '{subject}'"));
}

/// What a receiver was told: `state class subject`, one text for each message.
fn told(receiver: &Receiver) -> Vec<String> {
    let texts = receiver.seen().into_iter().map(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let alerts = body["alerts"].as_array().unwrap();
        let line = |alert: &Value| {
            let word = |field: &str| alert[field].as_str().unwrap().to_owned();
            format!("{} {} {}", word("state"), word("class"), word("subject"))
        };
        alerts.iter().map(line).collect::<Vec<_>>().join(", ")
    });
    texts.collect()
}

#[track_caller]
fn until_told(receiver: &Receiver, messages: &[&str]) {
    until(&format!("{messages:?}"), || told(receiver).len() >= messages.len());
    assert_eq!(told(receiver), messages);
}

/// Lets upkeep look a few times.
fn let_upkeep_look(rig: &Rig) {
    let key = format!("k-{}", rig.now());
    write(
        rig,
        &format!(
            "INSERT INTO escalations (id, tenant, class, subject, detail, first_at, last_at)
             VALUES ('{key}', 'marker', 'disk.low', '{key}', '', 0, 0)"
        ),
    );
    // Another channel, which sees the marker after every channel before it was looked at.
    until("upkeep has looked", || {
        rig.one(&format!(
            "SELECT count(*) FROM alerts AS a JOIN escalations AS e ON e.seq = a.escalation_seq WHERE e.id = '{key}'"
        )) == "1"
    });
}

/// A channel that is told of markers alone.
fn watch_upkeep(rig: &Rig) -> Receiver {
    let receiver = Receiver::new();
    let token = rig.tenant("marker");
    let body = json!({ "name": "upkeep", "kind": "webhook", "url": receiver.url(), "rate_per_hour": 1000 });
    rig.post_as(&token, "/v1/alert-channels", &body).is(201);
    receiver
}

#[test]
fn a_disk_that_fills_is_told_signed_and_its_end_too() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let body = json!({ "name": "ops", "kind": "webhook", "url": receiver.url() });
    let made = rig.post("/v1/alert-channels", &body).is(201).json();
    rig.disk_free(1_000_000);
    until_told(&receiver, &["raised disk.low site"]);
    let request = receiver.seen().remove(0);
    let fields: Vec<(&str, &[u8])> =
        request.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let secret = made["secret"].as_str().unwrap();
    oncebox::webhook::verify_at(&[secret], fields, &request.body, rig.now(), secs(1)).unwrap();
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let text = body["text"].as_str().unwrap();
    for part in ["What to do: Free space", "Since: 2026-01-31T12:00:00", "oncebox escalation show "]
    {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(body["title"], "[critical] this site has a disk that is nearly full");
    let id = body["alerts"][0]["escalation_id"].as_str().unwrap();
    assert_eq!(rig.get(&format!("/v1/escalations/{id}"))["class"], "disk.low");
    rig.disk_free(5_000_000_000);
    until_told(&receiver, &["raised disk.low site", "resolved disk.low site"]);
    assert_eq!(rig.one("SELECT count(*) FROM alerts"), "0");
}

#[test]
fn slack_gets_a_text_and_path_and_query_of_its_url_are_nowhere_in_the_clear() {
    let (rig, receiver) = (Rig::new(), Receiver::scripted([Reply::status(500)]));
    // Teams' workflows have their secret in the query.
    let url = format!("{}/T0/B0/hidden-token?sig=hidden-token", receiver.url());
    let body = json!({ "name": "ops", "kind": "slack", "url": url });
    let made = rig.post("/v1/alert-channels", &body).is(201).text();
    raise(&rig, "backup.old", "<!channel> & co");
    rig.sent(&receiver, 1);
    rig.advance(secs(5));
    rig.sent(&receiver, 2);
    let request = receiver.seen().remove(1);
    assert!(
        request.first_line.starts_with("POST /hook/T0/B0/hidden-token?sig=hidden-token "),
        "{request:?}"
    );
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body.as_object().unwrap().len(), 1);
    let text = body["text"].as_str().unwrap();
    assert!(
        text.starts_with("[warning] this &lt;!channel&gt; &amp; co has no recent backup"),
        "{text}"
    );
    // Another key seals it again.
    rig.post("/v1/keys/rotate", &Value::Null).is(200);
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    rig.sent(&receiver, 3);
    let mut seen = made;
    for path in words(
        "/v1/alert-channels /v1/alert-channels/ops /v1/subscriptions /v1/deliveries \
        /v1/deliveries/dlv_1/attempts /v1/audit-events",
    ) {
        seen += &rig.get(path).to_string();
    }
    assert!(seen.contains("/***") && !seen.contains("hidden-token"), "{seen}");
    for name in ["oncebox.db", "oncebox.db-wal"] {
        let bytes = fs::read(rig.data().join(name)).unwrap_or_default();
        assert!(!bytes.windows(12).any(|at| at == b"hidden-token"), "{name}");
    }
}

#[test]
fn the_page_names_each_class_with_its_severity() {
    let page = include_str!("../../docs/alerts.md");
    for class in Class::ALL {
        let row = format!("| {} |", class.severity().as_str());
        let row = page.lines().find(|line| line.starts_with(&row)).unwrap();
        assert!(row.contains(&format!("`{}`", class.as_str())), "{class:?} is missing: {row}");
    }
}

#[test]
fn one_is_told_again_until_somebody_has_seen_it() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let _watch = watch_upkeep(&rig);
    channel(&rig, "webhook", &receiver, &json!({ "repeat_after": "2h", "severity": "info" }));
    raise(&rig, "backup.old", "erp");
    until_told(&receiver, &["raised backup.old erp"]);
    rig.advance(HOUR);
    let_upkeep_look(&rig);
    assert_eq!(receiver.count(), 1);
    rig.advance(HOUR);
    until_told(&receiver, &["raised backup.old erp", "repeated backup.old erp"]);
    rig.post("/v1/escalations/backup.old-site/acknowledge", &Value::Null);
    write(
        &rig,
        "UPDATE escalations SET acknowledged_at = 1, acknowledged_by = 'x' WHERE class = 'backup.old'",
    );
    rig.advance(4 * HOUR);
    let_upkeep_look(&rig);
    assert_eq!(receiver.count(), 2);
    resolve(&rig, "erp");
    until("its end is told", || receiver.count() == 3);
    assert_eq!(told(&receiver)[2], "resolved backup.old erp");
}

/// "resolved" is good news: a delivery that was given up is none.
#[test]
fn that_a_given_up_delivery_fails_no_more_is_told_when_no_dead_letter_is_left() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    let _watched = watch_upkeep(&rig);
    channel(&rig, "webhook", &receiver, &json!({}));
    let of = "subscription:erp";
    raise(&rig, "delivery.failing", of);
    until_told(&receiver, &["raised delivery.failing subscription:erp"]);
    resolve(&rig, of);
    raise(&rig, "delivery.dead_lettered", of);
    let dead = "raised delivery.dead_lettered subscription:erp";
    until_told(&receiver, &["raised delivery.failing subscription:erp", dead]);
    let_upkeep_look(&rig);
    assert_eq!(receiver.count(), 2);
    resolve(&rig, of);
    until("both ends are told", || receiver.count() == 3);
    let last = told(&receiver).remove(2);
    for class in ["delivery.failing", "delivery.dead_lettered"] {
        assert!(last.contains(&format!("resolved {class} {of}")), "{last}");
    }
    let body: Value = serde_json::from_slice(&receiver.seen()[2].body).unwrap();
    has(&body, &json!({ "severity": "info" }));
    assert_eq!(body["alerts"][0]["severity"], "info");
}

#[test]
fn in_quiet_hours_only_critical_ones_are_told_and_the_rest_waits() {
    let (mut rig, receiver) = (Rig::new(), Receiver::new());
    // It is 13:00 there.
    channel(&rig, "webhook", &receiver, &json!({ "quiet_hours": "12:00-14:00 +01:00" }));
    raise(&rig, "backup.old", "erp");
    raise(&rig, "source.silent", "source:gone");
    raise(&rig, "source.failing", "source:erp");
    until_told(&receiver, &["raised source.failing source:erp"]);
    // What is over by the end was never told, so its end is not told either.
    resolve(&rig, "source:gone");
    rig.restart();
    rig.advance(HOUR);
    until_told(&receiver, &["raised source.failing source:erp", "raised backup.old erp"]);
}

#[test]
fn many_that_wait_for_the_morning_do_not_hide_a_critical_one() {
    let (mut rig, receiver) = (Rig::new(), Receiver::new());
    channel(&rig, "webhook", &receiver, &json!({ "quiet_hours": "12:00-14:00 +01:00" }));
    rig.stop();
    for n in 0..210 {
        raise(&rig, "source.silent", &format!("source:{n}"));
    }
    raise(&rig, "source.failing", "source:erp");
    rig.start_again();
    until_told(&receiver, &["raised source.failing source:erp"]);
}

#[test]
fn the_rest_of_an_hour_and_a_digest_are_one_message() {
    let (mut rig, receiver) = (Rig::new(), Receiver::new());
    let _watch = watch_upkeep(&rig);
    channel(&rig, "webhook", &receiver, &json!({ "rate_per_hour": 2 }));
    rig.stop();
    for n in 0..4 {
        raise(&rig, "source.silent", &format!("source:{n}"));
    }
    rig.start_again();
    until("both are told", || receiver.count() == 2);
    let last = "raised source.silent source:1, raised source.silent source:2, raised source.silent source:3";
    let messages = told(&receiver);
    assert!(messages.contains(&"raised source.silent source:0".to_owned()), "{messages:?}");
    assert!(messages.contains(&last.to_owned()), "{messages:?}");
    raise(&rig, "backup.old", "erp");
    let_upkeep_look(&rig);
    assert_eq!(receiver.count(), 2);
    rig.patch("/v1/alert-channels/ops", &json!({ "digest": "10min" })).is(200);
    rig.advance(secs(3300));
    raise(&rig, "clock.wrong", "erp");
    let_upkeep_look(&rig);
    rig.advance(secs(300));
    until("the digest is told", || receiver.count() == 3);
    assert_eq!(told(&receiver)[2], "raised backup.old erp, raised clock.wrong erp");
}

#[test]
fn a_channel_that_fails_is_not_told_of_itself_and_others_are() {
    let (rig, bad, good) = (Rig::new(), Receiver::new(), Receiver::new());
    bad.always(Reply::status(422));
    channel(&rig, "webhook", &bad, &json!({ "severity": "info" }));
    let body = json!({ "name": "good", "kind": "webhook", "url": good.url(), "severity": "info" });
    rig.post("/v1/alert-channels", &body).is(201);
    let _watch = watch_upkeep(&rig);
    raise(&rig, "backup.old", "erp");
    let about = "raised delivery.dead_lettered subscription:alert-ops";
    until_told(&good, &["raised backup.old erp", about]);
    for _ in 0..3 {
        rig.advance(HOUR);
        let_upkeep_look(&rig);
    }
    assert_eq!((bad.count(), good.count()), (1, 2));
    assert_eq!(rig.get("/v1/alert-channels/ops")["failing_since"], "2026-01-31T12:00:00.000Z");
    // No operational event is made of it, whoever asks.
    assert_eq!(rig.one("SELECT count(*) FROM outbox WHERE event_type <> 'oncebox.alert'"), "0");
    // When both fail they do not go on telling each other.
    good.always(Reply::status(422));
    raise(&rig, "source.silent", "source:erp");
    until("both were tried", || bad.count() == 2 && good.count() == 3);
    for _ in 0..3 {
        rig.advance(HOUR);
        let_upkeep_look(&rig);
    }
    assert_eq!((bad.count(), good.count()), (2, 3));
}

#[test]
fn what_others_publish_does_not_reach_a_channel() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    // It is not told of the quarantine below, which is a warning.
    channel(&rig, "webhook", &receiver, &json!({ "severity": "critical" }));
    let event = json!({ "event_type": "oncebox.alert", "target": "alert-ops", "payload": {} });
    let published = rig.publish(&event);
    assert_eq!(published["status"], "quarantined", "{published}");
    rig.deliver("oncebox.alert");
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_channel_is_deleted_with_its_subscription_and_what_is_open() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    receiver.always(Reply::status(500));
    channel(&rig, "slack", &receiver, &json!({}));
    for call in ["PATCH", "DELETE"] {
        let refused = rig.call(call, "/v1/subscriptions/alert-ops", b"{}").is(409);
        assert!(refused.text().contains("alert channel"), "{refused:?}");
    }
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    rig.settle();
    rig.delete("/v1/alert-channels/ops").is(204);
    rig.call("GET", "/v1/alert-channels/ops", b"").is(404);
    assert_eq!(rig.get("/v1/subscriptions")["items"], json!([]));
    assert_eq!(rig.one("SELECT state FROM deliveries"), "cancelled");
    channel(&rig, "slack", &receiver, &json!({}));
}

#[test]
fn what_a_channel_cannot_be_is_refused_with_the_reason() {
    let rig = Rig::with(|settings| {
        settings.alerts.commands.insert("pager".to_owned(), vec!["/bin/true".to_owned()]);
    });
    let acme = rig.tenant("acme");
    let url = "https://ops.example/x";
    for (body, reason) in [
        (json!({ "kind": "slack" }), "url is missing"),
        (json!({ "kind": "fax", "url": url }), "slack, webhook, email, command"),
        (json!({ "kind": "slack", "url": url, "to": ["a@b.example"] }), "no other one"),
        (json!({ "kind": "slack", "url": "https://a/{id}" }), "no placeholders"),
        (json!({ "kind": "slack", "url": "http://10.0.0.1/" }), "10.0.0.1"),
        (json!({ "kind": "email", "to": ["a@b.example"] }), "no mail server is set"),
        (json!({ "kind": "email", "to": ["a@b,c@d"] }), "no e-mail address"),
        (json!({ "kind": "email", "to": [] }), "1 to 20"),
        (json!({ "kind": "command", "command": "none" }), "[alerts.commands]"),
        (
            json!({ "kind": "slack", "url": url, "quiet_hours": "late" }),
            "22:00-06:00 Europe/Budapest",
        ),
        (json!({ "kind": "slack", "url": url, "digest": "soon" }), "15min"),
        (json!({ "kind": "slack", "url": url, "rate_per_hour": 0 }), "1 to 1000"),
        (json!({ "kind": "slack", "url": url, "classes": ["disk.high"] }), "disk.low"),
        (
            json!({ "kind": "slack", "url": url, "classes": ["backup.old"], "severity": "critical" }),
            "none of the classes",
        ),
        (json!({ "kind": "slack", "url": url, "severity": "dire" }), "info, warning, critical"),
        (json!({ "kind": "slack", "url": url, "colour": "red" }), "colour"),
    ] {
        let mut body = body;
        body["name"] = json!("ops");
        let refused = rig.post("/v1/alert-channels", &body);
        assert!(matches!(refused.status, 400 | 422), "{body}: {refused:?}");
        assert!(refused.text().contains(reason), "{body}: {refused:?}");
    }
    for body in [
        json!({ "name": "ops", "kind": "command", "command": "pager" }),
        json!({ "name": "ops", "kind": "slack", "url": url, "all_tenants": true }),
    ] {
        rig.post_as(&acme, "/v1/alert-channels", &body).is(422);
    }
    let body = json!({ "name": "mine", "url": url, "owner_id": "oncebox" });
    rig.post("/v1/subscriptions", &body).is(422);
    rig.post("/v1/alert-channels", &json!({ "name": "x".repeat(58), "kind": "slack", "url": url }))
        .is(422);
}

#[test]
fn a_channel_of_the_default_tenant_may_be_told_of_all_tenants() {
    let (rig, all, own) = (Rig::new(), Receiver::new(), Receiver::new());
    rig.tenant("acme");
    channel(&rig, "webhook", &own, &json!({}));
    let body = json!({ "name": "all", "kind": "webhook", "url": all.url(), "all_tenants": true });
    rig.post("/v1/alert-channels", &body).is(201);
    let at = rig.now().ms();
    write(
        &rig,
        &format!(
            "INSERT INTO escalations (id, tenant, class, subject, detail, first_at, last_at)
             VALUES ('a', 'acme', 'source.silent', 'source:erp', '', {at}, {at})"
        ),
    );
    raise(&rig, "backup.old", "erp");
    until("both are told", || all.count() == 2 && own.count() == 1);
    assert_eq!(told(&own), ["raised backup.old erp"]);
}

#[test]
fn a_command_gets_the_alert_and_its_exit_code_counts() {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("pager");
    let (seen, fails) = (home.path().join("seen"), home.path().join("fails"));
    let text = format!(
        "#!/bin/sh\ntest -e {0} && {{ echo no line >&2; exit 3; }}\ncat > {1}\nenv | grep -c ONCEBOX_TOKEN; echo paged\n",
        fails.display(),
        seen.display()
    );
    executable::write(&script, &text);
    fs::write(&fails, "").unwrap();
    let argv = vec![script.display().to_string()];
    let rig = Rig::with(|settings| {
        settings.alerts.commands.insert("pager".to_owned(), argv);
    });
    let body = json!({ "name": "ops", "kind": "command", "command": "pager" });
    rig.post("/v1/alert-channels", &body).is(201);
    raise(&rig, "backup.old", "erp");
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "1");
    let attempt = rig.one("SELECT class || ' ' || url || ' ' || failed_reason FROM attempts");
    assert_eq!(attempt, "transient command:pager the command pager failed (exit 3): no line");
    fs::remove_file(&fails).unwrap();
    rig.advance(secs(5));
    until("it was told", || rig.one("SELECT state FROM deliveries") == "completed");
    let alert: Value = serde_json::from_slice(&fs::read(&seen).unwrap()).unwrap();
    assert_eq!(alert["alerts"][0]["class"], "backup.old");
    assert_eq!(rig.one("SELECT excerpt FROM attempts WHERE n = 2"), "0\npaged\n");
}

fn mail_rig(server: &MailServer, tls: oncebox::config::SmtpTls, home: &Path) -> Rig {
    let password = home.join("password");
    fs::write(&password, "s3cret\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let rig = Rig::with(|settings| {
        settings.delivery.ca_file = Some(home.join("ca.pem"));
        settings.smtp.host = Some("localhost".to_owned());
        settings.smtp.port = Some(server.address.port().into());
        settings.smtp.tls = tls;
        settings.smtp.from = Some("Oncebox <oncebox@shop.example>".to_owned());
        if tls != oncebox::config::SmtpTls::None {
            settings.smtp.user = Some("shop".to_owned());
            settings.smtp.password_file = Some(password);
        }
    });
    let body = json!({ "name": "ops", "kind": "email", "to": ["a@b.example", "c@d.example"] });
    rig.post("/v1/alert-channels", &body).is(201);
    rig
}

#[test]
fn mail_goes_out_over_starttls_tls_and_to_localhost_in_the_clear() {
    use oncebox::config::SmtpTls;
    for (encryption, tls) in [
        (Encryption::StartTls, SmtpTls::StartTls),
        (Encryption::Tls, SmtpTls::Tls),
        (Encryption::None, SmtpTls::None),
    ] {
        let home = tempfile::tempdir().unwrap();
        let server = MailServer::start(encryption, &home.path().join("ca.pem"));
        let rig = mail_rig(&server, tls, home.path());
        raise(&rig, "subscription.disabled", "subscription:erp");
        rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'completed'", "1");
        let mails = server.mails();
        let [mail] = mails.as_slice() else { panic!("{mails:?}") };
        assert_eq!(mail.was_encrypted, tls != SmtpTls::None);
        assert_eq!(mail.who, if tls == SmtpTls::None { "" } else { "shop:s3cret" });
        assert!(mail.from.contains("oncebox@shop.example"), "{mail:?}");
        assert_eq!(mail.to.len(), 2, "{mail:?}");
        let event = rig.get("/v1/events?operational=true")["items"][0].clone();
        for part in [
            // The mail says which box it comes from.
            &format!("Subject: {}: [critical] subscription", oncebox::sys::host::machine_name()),
            "Date: Sat, 31 Jan 2026 12:00:00 ",
            "What to do: Its target is gone",
            &format!("Message-ID: <{}@shop.example>", event["webhook_id"].as_str().unwrap()),
        ] {
            assert!(mail.data.contains(part), "{part} in {}", mail.data);
        }
        assert_eq!(rig.one("SELECT excerpt FROM attempts"), "250 taken as 4711");
    }
}

#[test]
fn mail_goes_to_allowed_domains_only() {
    let home = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::None, &home.path().join("ca.pem"));
    let mut rig = mail_rig(&server, oncebox::config::SmtpTls::None, home.path());
    rig.restart_with(|settings| {
        settings.alerts.allowed_domains = vec!["b.example".to_owned()];
    });
    for to in ["x@c.example", "x@sub.b.example", "x@b.example.org"] {
        let body = json!({ "name": "more", "kind": "email", "to": ["x@B.example", to] });
        rig.post("/v1/alert-channels", &body).is(422).tells("alerts.allowed_domains");
    }
    // The channel was made before: its mail waits, with the reason.
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "1");
    let attempt = rig.one("SELECT class || ' ' || failed_reason FROM attempts");
    assert!(attempt.starts_with("transient ") && attempt.contains("b.example only"), "{attempt}");
    rig.patch("/v1/alert-channels/ops", &json!({ "to": ["c@d.example"] })).is(422);
    rig.patch("/v1/alert-channels/ops", &json!({ "to": ["x@B.example"] })).is(200);
    assert!(server.mails().is_empty());
}

#[test]
fn a_tenant_sends_so_many_mails_a_day_and_the_rest_waits() {
    let home = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::None, &home.path().join("ca.pem"));
    let mut rig = mail_rig(&server, oncebox::config::SmtpTls::None, home.path());
    rig.restart_with(|settings| settings.alerts.emails_per_day_max = 1);
    let _upkeep = watch_upkeep(&rig);
    raise(&rig, "subscription.disabled", "subscription:erp");
    until("it is told", || server.mails().len() == 1);
    until("it is counted", || rig.one("SELECT sum(mail_count) FROM tenants") == "1");
    raise(&rig, "subscription.disabled", "subscription:shop");
    raise(&rig, "subscription.disabled", "subscription:crm");
    // Whatever is sent otherwise waits with the reason.
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "2");
    let reason = rig.one("SELECT failed_reason FROM attempts WHERE failed_reason <> ''");
    assert!(reason.contains("alerts.emails_per_day_max"), "{reason}");
    let_upkeep_look(&rig);
    let told = "SELECT count(*) FROM alerts WHERE channel_seq = 1";
    assert_eq!(rig.one(told), "1", "the others are due");
    rig.restart_with(|settings| settings.alerts.emails_per_day_max = 2);
    until("the next one has all that waited", || rig.one(told) == "3");
    until("it is told", || server.mails().len() == 2);
}

#[test]
fn mails_that_are_still_to_be_sent_count_in_what_is_left_of_a_day() {
    let home = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::None, &home.path().join("ca.pem"));
    let mut rig = mail_rig(&server, oncebox::config::SmtpTls::None, home.path());
    rig.restart_with(|settings| {
        settings.alerts.emails_per_day_max = 2;
        settings.smtp.host = None;
    });
    let _upkeep = watch_upkeep(&rig);
    for subject in ["subscription:a", "subscription:b", "subscription:c"] {
        raise(&rig, "subscription.disabled", subject);
        let_upkeep_look(&rig);
        rig.advance(secs(1));
    }
    // No mail server is set, so the mails of the day wait; what is more is not told on this day.
    let pending =
        "SELECT count(*) FROM deliveries AS d JOIN subscriptions AS s ON s.seq = d.subscription_seq
                    WHERE s.target_kind = 'email' AND d.state = 'pending'";
    assert_eq!(rig.one(pending), "2");
}

#[test]
fn warnings_leave_a_quarter_of_the_mails_of_a_day_to_critical_alerts() {
    let home = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::None, &home.path().join("ca.pem"));
    let mut rig = mail_rig(&server, oncebox::config::SmtpTls::None, home.path());
    rig.restart_with(|settings| settings.alerts.emails_per_day_max = 4);
    let _upkeep = watch_upkeep(&rig);
    rig.patch("/v1/alert-channels/ops", &json!({ "severity": "warning" })).is(200);
    let counted = |count: usize| {
        let wanted = count.to_string();
        until("it is counted", || rig.one("SELECT sum(mail_count) FROM tenants") == wanted);
        assert_eq!(server.mails().len(), count);
    };
    for n in 1..=3 {
        raise(&rig, "source.silent", &format!("source:{n}"));
        counted(n);
    }
    raise(&rig, "source.silent", "source:4");
    // A test is no critical alert either.
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "4");
    let reason = rig.one("SELECT failed_reason FROM attempts WHERE failed_reason <> ''");
    assert!(reason.contains("1 of them are kept for critical alerts"), "{reason}");
    let_upkeep_look(&rig);
    assert_eq!(rig.one("SELECT count(*) FROM alerts WHERE channel_seq = 1"), "3");
    // However many wait for tomorrow: nothing is counted, and nothing holds the channel.
    let tried = "SELECT count(*) FROM attempts WHERE failed_reason <> ''";
    for n in 2..=21 {
        rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
        until("it was tried", || rig.one(tried) == n.to_string());
    }
    assert_eq!(rig.one("SELECT count(*) FROM attempts WHERE counted"), "0");
    assert_eq!(rig.one("SELECT count(*) FROM holds"), "0");
    let tomorrow =
        "SELECT count(*) FROM deliveries WHERE state = 'pending' AND due_at % 86400000 < 60000";
    assert_eq!(rig.one(tomorrow), "21");
    raise(&rig, "source.failing", "source:erp");
    counted(4);
    // It is the last one of the day, so it lists what waited.
    assert_eq!(rig.one("SELECT count(*) FROM alerts WHERE channel_seq = 1"), "5");
    let last = server.mails().remove(3).data;
    assert!(last.contains("[warning] source 4"), "{last}");
}

#[test]
fn what_comes_and_goes_is_told_once_with_its_count_and_once_more_when_it_stays_away() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let _watch = watch_upkeep(&rig);
    channel(&rig, "webhook", &receiver, &json!({}));
    let open = "SELECT count(*) FROM escalations WHERE subject = 'site' AND resolved_at IS NULL";
    let comes = |again: usize| {
        rig.disk_free(1_000_000);
        until("it is raised", || rig.one(open) == "1");
        if again <= 2 {
            until("it is told", || told(&receiver).last().unwrap().starts_with("raised"));
        }
        let_upkeep_look(&rig);
        rig.advance(secs(50));
    };
    let goes = || {
        rig.disk_free(5_000_000_000);
        until("it is over", || rig.one(open) == "0");
        let_upkeep_look(&rig);
        rig.advance(secs(50));
    };
    rig.disk_free(1_000_000);
    until_told(&receiver, &["raised disk.low site"]);
    goes();
    until_told(&receiver, &["raised disk.low site", "resolved disk.low site"]);
    for again in 2..=4 {
        comes(again);
        goes();
    }
    let so_far = ["raised disk.low site", "resolved disk.low site", "raised disk.low site"];
    assert_eq!(told(&receiver), so_far);
    let body = receiver.json(2);
    assert_eq!(body["alerts"][0]["count"], 2);
    let title = body["title"].as_str().unwrap();
    assert!(title.starts_with("[critical] again: "), "{title}");
    rig.advance(HOUR);
    until("its end is told", || receiver.count() == 4);
    assert_eq!(told(&receiver)[3], "resolved disk.low site");
    assert_eq!(receiver.json(3)["alerts"][0]["count"], 4);
    // After an hour it is another one.
    rig.disk_free(1_000_000);
    until("the next one is told", || receiver.count() == 5);
    assert_eq!(receiver.json(4)["alerts"][0]["count"], 1);
}

#[test]
fn what_came_back_and_stays_is_told_after_an_hour() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let _watch = watch_upkeep(&rig);
    channel(&rig, "webhook", &receiver, &json!({ "repeat_after": "0s" }));
    let open = "SELECT count(*) FROM escalations WHERE subject = 'site' AND resolved_at IS NULL";
    rig.disk_free(1_000_000);
    until("it is told", || receiver.count() == 1);
    rig.disk_free(5_000_000_000);
    until("its end is told", || receiver.count() == 2);
    rig.disk_free(1_000_000);
    until("it is told again", || receiver.count() == 3);
    rig.disk_free(5_000_000_000);
    until("it is over", || rig.one(open) == "0");
    rig.advance(secs(60));
    rig.disk_free(1_000_000);
    until("it is raised", || rig.one(open) == "1");
    let_upkeep_look(&rig);
    assert_eq!(receiver.count(), 3);
    rig.advance(HOUR);
    until("it is told", || receiver.count() == 4);
    assert_eq!(told(&receiver)[3], "repeated disk.low site");
    rig.advance(2 * HOUR);
    let_upkeep_look(&rig);
    assert_eq!(receiver.count(), 4, "it did not come back since");
}

/// Greets as it is told, and tells how the first attempt of a mail went.
fn greeted_by(greet: fn(&mut TcpStream) -> std::io::Result<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().for_each(|one| drop(greet(&mut one.unwrap()))));
    let rig = Rig::with(|settings| {
        settings.smtp.host = Some("localhost".to_owned());
        settings.smtp.port = Some(port.into());
        settings.smtp.tls = oncebox::config::SmtpTls::None;
        settings.smtp.timeout = secs(1);
    });
    let body = json!({ "name": "ops", "kind": "email", "to": ["a@b.example"] });
    rig.post("/v1/alert-channels", &body).is(201);
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "1");
    rig.one("SELECT class || ' ' || failed_reason FROM attempts")
}

#[test]
fn a_mail_server_that_sends_a_line_without_end_is_left() {
    // The sender stops by itself, so that a client that takes everything does not end the machine.
    let reason = greeted_by(|server| {
        (0..4096).try_for_each(|_| server.write_all(&[b'2'; 16_000]))?;
        thread::sleep(secs(5));
        Ok(())
    });
    assert_eq!(reason, "transient the mail server: it sent more than 262144 bytes");
}

#[test]
fn a_mail_server_that_sends_answers_without_end_is_left() {
    let reason = greeted_by(|server| {
        loop {
            server.write_all(b"220-still here\r\n")?;
            thread::sleep(secs(1) / 20);
        }
    });
    assert_eq!(reason, "transient the mail server: the mail took more than 4 s");
}

#[test]
fn a_mail_server_that_says_later_is_tried_again_and_never_is_a_dead_letter() {
    let home = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::StartTls, &home.path().join("ca.pem"));
    let rig = mail_rig(&server, oncebox::config::SmtpTls::StartTls, home.path());
    server.answer_rcpt("451 later");
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "1");
    let attempt = rig.one("SELECT class || ' ' || url || ' ' || failed_reason FROM attempts");
    assert!(
        attempt.starts_with("transient mailto:a@b.example,c@d.example the mail server: "),
        "{attempt}"
    );
    assert!(attempt.contains("451") && attempt.contains("later"), "{attempt}");
    // It has steps of its own: the schedule of targets reaches half an hour with its fourth.
    for n in 2..=9 {
        rig.advance(secs(400));
        until("it was tried", || rig.one("SELECT count(*) FROM attempts") == n.to_string());
    }
    assert_eq!(rig.one("SELECT count(*) FROM holds"), "0", "an alert does not wait for probes");
    server.answer_rcpt("550 nobody here");
    rig.advance(secs(400));
    until("it was given up", || rig.one("SELECT state FROM deliveries") == "dead_letter");
    shows(&rig.one("SELECT failed_reason FROM attempts WHERE n = 10"), &["550", "nobody here"]);
    assert!(server.mails().is_empty());
}

#[test]
fn no_mail_and_no_password_goes_to_a_server_whose_certificate_is_not_trusted() {
    let home = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::StartTls, &home.path().join("other.pem"));
    MailServer::start(Encryption::None, &home.path().join("ca.pem"));
    let rig = mail_rig(&server, oncebox::config::SmtpTls::StartTls, home.path());
    rig.post("/v1/alert-channels/ops/test", &Value::Null).is(200);
    until("it was tried", || rig.one("SELECT count(*) FROM attempts") == "1");
    let attempt = rig.one("SELECT class || ' ' || failed_reason FROM attempts");
    assert!(
        attempt.starts_with("transient ") && attempt.contains("invalid peer certificate"),
        "{attempt}"
    );
    assert!(server.mails().is_empty());
}

/// A change of the mail server's settings; the path is that of a password.
type Change = fn(&mut oncebox::config::Smtp, PathBuf);

#[test]
fn settings_that_would_send_in_the_clear_or_show_a_password_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let password = home.path().join("password");
    fs::write(&password, "x").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let cases: [(Change, &str); 3] = [
        (|smtp, _| smtp.tls = oncebox::config::SmtpTls::None, "for localhost"),
        (|smtp, _| smtp.user = Some("x".to_owned()), "smtp.password_file"),
        (
            |smtp, path| {
                smtp.user = Some("x".to_owned());
                smtp.password_file = Some(path);
            },
            "chmod 600",
        ),
    ];
    for (change, reason) in cases {
        let rig = Rig::with(|settings| {
            settings.smtp.host = Some("mail.example".to_owned());
            change(&mut settings.smtp, password.clone());
        });
        let body = json!({ "name": "ops", "kind": "email", "to": ["a@b.example"] });
        let refused = rig.post("/v1/alert-channels", &body).is(422);
        assert!(refused.text().contains(reason), "{refused:?}");
    }
}

#[test]
fn the_rows_of_a_channel_are_checked_by_the_database() {
    let rig = Rig::new();
    let conn = rig.writable();
    let wrong = "INSERT INTO alert_channels (id, tenant, name, kind, subscription_seq, terms, created_at, updated_at)
                 VALUES ('a', 'default', 'ops', 'slack', 1, '{}', 0, 0)";
    shows(&conn.execute_batch(wrong).unwrap_err().to_string(), &["alert_channel_url_is_sealed"]);
    drop(file::lines(&conn, "SELECT 1"));
}

#[test]
fn after_8_attempts_a_slack_channel_is_told_the_subscription_and_how_many() {
    // 001: "After 8 attempts: delivery_status = 'failed', alert on a Slack channel."
    let (rig, slack, erp) = (Rig::new(), Receiver::new(), Receiver::new());
    erp.always(Reply::status(500));
    rig.subscribe_with("erp", &erp, &json!({ "policy": { "in_flight_max": 1 } }));
    // As it is made by default.
    channel(&rig, "slack", &slack, &json!({}));
    let text = |n: usize| {
        let body: Value = serde_json::from_slice(&slack.seen()[n].body).unwrap();
        body["text"].as_str().unwrap().lines().next().unwrap().to_owned()
    };
    rig.deliver("a");
    for n in 1..8 {
        assert_eq!((erp.count(), slack.count()), (n, 0));
        rig.pass(4 * HOUR);
    }
    until("people are told", || slack.count() == 1);
    assert_eq!(
        text(0),
        "[warning] subscription erp has a delivery that fails again and again: 1 waiting"
    );
    erp.always(Reply::status(422));
    rig.deliver("a");
    rig.pass(4 * HOUR);
    until("people are told of dead letters", || slack.count() == 2);
    // That it no longer fails is no good news.
    let wanted = "[warning] subscription erp has deliveries that were given up: ";
    assert!(text(1).starts_with(wanted) && text(1).contains(" dead letter"), "{}", text(1));
}

#[test]
fn alerts_are_listed_by_severity_and_lead_to_what_they_are_about() {
    let (rig, _receiver) = Rig::subscribed("erp");
    for n in 0..30 {
        raise(&rig, "source.silent", &format!("source:s{n:02}"));
    }
    // The oldest of many would be on no first page.
    rig.advance(secs(1));
    rig.write("UPDATE escalations SET seq = seq + 1000");
    rig.write("UPDATE sqlite_sequence SET seq = 2000 WHERE name = 'escalations'");
    let (at, id) = (rig.now().ms(), uuid7_of(rig.now(), &["critical"]));
    rig.write(&format!(
        "INSERT INTO escalations (seq, id, tenant, class, subject, detail, first_at, last_at)
         VALUES (1, '{id}', 'default', 'subscription.rejecting', 'subscription:erp', 'refused', {at}, {at})"
    ));
    let subjects = |query: &str| -> Vec<String> {
        let found = rig.items(&format!("/v1/escalations?{query}"));
        found.iter().map(|row| text(row, "subject")).collect()
    };
    assert_eq!(subjects("severity=critical"), ["subscription:erp"]);
    assert_eq!(subjects("severity=warning&limit=100").len(), 30);
    assert_eq!(subjects("subject=source:s07"), ["source:s07"]);
    assert_eq!(subjects("all=true&severity=critical"), ["subscription:erp"]);
    rig.call("GET", "/v1/escalations?severity=bad", b"").is(400);
    let browser = Browser::new(&rig, "read");
    let page = browser.get("/console/alerts");
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is not in {page}"));
    assert!(place("<h2>critical: 1</h2>") < place("/console/subscriptions/erp"));
    assert!(place("/console/subscriptions/erp") < place("<h2>warning: 20+</h2>"));
    assert!(!page.contains("<h2>info"), "{page}");
    let all = "/console/alerts?severity=warning".to_owned();
    assert!(
        links(&page).contains(&all) && links(&page).contains(&"/console/sources/s29".to_owned())
    );
    let rest = browser.get(&all);
    assert!(
        rest.contains("rel=\"next\"") && !rest.contains("/console/subscriptions/erp"),
        "{rest}"
    );
}

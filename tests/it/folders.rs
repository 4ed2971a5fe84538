//! The target `folder`: a file an event, written once by its name, whatever was interrupted before.

use std::os::unix::fs::{PermissionsExt, symlink};

use oncebox::base::faults::Stall;

use crate::rig::prelude::*;

/// A rig with a folder that is written to.
struct Out {
    rig: Rig,
    path: PathBuf,
}

impl Out {
    fn new(more: &Value) -> Self {
        Self::on(Rig::new(), more)
    }

    fn on(rig: Rig, more: &Value) -> Self {
        let path = rig.home().join("out");
        fs::create_dir(&path).unwrap();
        let body = merged(json!({ "name": "files", "url": url_of(&path) }), more);
        rig.post("/v1/subscriptions", &body).is(201);
        Self { rig, path }
    }

    /// What is in the folder, temporary files included, without directories.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| !entry.path().is_dir());
        let mut names: Vec<String> =
            files.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The text of the only file.
    #[track_caller]
    fn only(&self) -> String {
        let names = self.names();
        let [name] = names.as_slice() else { panic!("{names:?}") };
        fs::read_to_string(self.path.join(name)).unwrap()
    }

    /// What attempts came to, the oldest first.
    fn attempts(&self) -> Vec<String> {
        self.rig.lines(
            "SELECT class || ' ' || counted || ' ' || coalesce(excerpt, failed_reason, '')
               FROM attempts ORDER BY delivery_seq, n",
        )
    }
}

fn url_of(path: &Path) -> String {
    format!("folder:{}", path.display())
}

#[test]
fn each_event_becomes_a_file_that_its_readers_may_read() {
    let out = Out::new(&json!({}));
    fs::set_permissions(&out.path, fs::Permissions::from_mode(0o2770)).unwrap();
    let payload = json!({ "no": "RE-1", "total": 99.90 });
    let event = out.rig.publish(&json!({ "event_type": "invoice.created", "payload": payload }));
    out.rig.settle();
    let name = format!("{}.json", text(&event, "webhook_id"));
    assert_eq!(out.names(), std::slice::from_ref(&name));
    assert_eq!(serde_json::from_str::<Value>(&out.only()).unwrap(), payload);
    let mode = fs::metadata(out.path.join(&name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660, "who may use the folder, may use the file");
    let bytes = payload.to_string().len();
    assert_eq!(out.attempts(), [format!("success 0 written: {name}, {bytes} bytes")]);
    let shown = out.rig.get("/v1/deliveries")["items"][0].clone();
    let request = out.rig.get(&format!("/v1/deliveries/{}/request", text(&shown, "id")));
    assert_eq!(request["method"], "WRITE");
    assert_eq!(request["url"], json!(format!("{}/{name}", url_of(&out.path))));
    assert_eq!(request["body"], json!(payload.to_string()));
}

#[test]
fn a_template_makes_the_name_and_an_escaped_body() {
    let values = json!({
        "no": "RE/1", "customer": "Müller; \"Söhne\" <&>", "total": "99.90", "note": null,
    });
    let csv = "no;customer;total;note\n{{ payload.no }};{{ payload.customer }};{{ payload.total }};{{ payload.note }}\n";
    let xml = "<r c='{{ payload.customer }}'>{{ payload.note }}{{ payload.total }}</r>";
    let line =
        "{\"c\":{{ payload.customer }},\"all\":{{ payload|tojson }},\"n\":{{ payload.note }}}\n";
    let all = serde_json::from_str::<Value>(&values.to_string()).unwrap();
    for (escape, body, wanted) in [
        (
            "csv",
            csv,
            "no;customer;total;note\nRE/1;\"Müller; \"\"Söhne\"\" <&>\";99.90;\n".to_owned(),
        ),
        ("xml", xml, "<r c='Müller; &quot;Söhne&quot; &lt;&amp;&gt;'>99.90</r>".to_owned()),
        ("json", line, format!("{{\"c\":{},\"all\":{all},\"n\":null}}\n", values["customer"])),
    ] {
        let template = json!({
            "body": body, "escape": escape, "name": "{{ payload.no }}-{{ id }}.x",
            "content_type": "text/plain",
        });
        let out = Out::new(&json!({ "template": template }));
        let event = json!({ "event_type": "invoice.created", "payload": values });
        let id = text(&out.rig.publish(&event), "id");
        out.rig.settle();
        assert_eq!(out.names(), [format!("RE_1-{id}.x")], "{escape}");
        assert_eq!(out.only(), wanted, "{escape}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_reason() {
    let out = Out::new(&json!({}));
    let file = out.path.join("file");
    fs::write(&file, "x").unwrap();
    let here = url_of(&out.path);
    for (body, word) in [
        (json!({ "url": "folder:srv" }), "folder:/srv/erp/in"),
        (json!({ "url": "folder:/srv/../etc" }), "folder:/srv/erp/in"),
        (json!({ "url": "folder:/not/there" }), "make it, or mount it"),
        (json!({ "url": url_of(&file) }), "no folder"),
        (json!({ "url": url_of(&out.rig.data()) }), "data directory"),
        (json!({ "url": url_of(&out.rig.home()) }), "data directory"),
        (json!({ "target": "folder" }), "url is missing"),
        (json!({ "url": here, "method": "PUT" }), "of HTTP requests"),
        (json!({ "url": here, "policy": { "classes": { "404": "success" } } }), "of HTTP requests"),
        (json!({ "url": here, "policy": { "lease": "60s" } }), "lease is of pull"),
        (json!({ "url": here, "headers": { "X-A": "b" } }), "no header fields"),
        (json!({ "url": here, "format": "cloudevents_binary" }), "cloudevents_structured"),
        (json!({ "url": here, "order": { "external_calls": "event" } }), "once by its name"),
        (json!({ "url": here, "template": { "name": "{{ type }}.json" } }), "{{ webhook_id }}"),
        (json!({ "url": here, "template": { "name": "a/{{ id }}" } }), "no /"),
        (json!({ "url": here, "template": { "name": ".{{ id }}" } }), "dot"),
        (json!({ "url": here, "template": { "name": "{{ id }}{{ x }}" } }), "no variable"),
        (json!({ "url": here, "template": { "subject": "a" } }), "of the target email"),
        (json!({ "url": here, "template": { "escape": "csv" } }), "escape is of the body"),
        (
            json!({ "url": "http://127.0.0.1:8099/", "template": { "name": "{{ id }}" } }),
            "folder and email",
        ),
    ] {
        let body = merged(json!({ "name": "more" }), &body);
        let refused = out.rig.post("/v1/subscriptions", &body).is(422).json();
        shows(&refused["detail"].to_string(), &[word]);
    }
}

#[test]
fn a_tenant_writes_to_its_own_directory_alone() {
    let tenants = tempfile::tempdir().unwrap();
    let root = tenants.path().to_owned();
    let mut rig = Rig::new();
    rig.post("/v1/tenants", &json!({ "name": "shop", "pii": "allow" })).is(201);
    let token = rig.token_in("shop", "admin");
    let make = |rig: &Rig, path: &Path| {
        rig.post_as(&token, "/v1/subscriptions", &json!({ "name": "files", "url": url_of(path) }))
    };
    for folder in ["shop/out", "other/out"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    symlink(root.join("other/out"), root.join("shop/link")).unwrap();
    make(&rig, &root.join("shop/out")).is(422).tells("sources.tenants_directory");
    rig.restart_with(|settings| settings.sources.tenants_directory = Some(root.clone()));
    for wrong in ["other/out", "shop", "shop/link"] {
        make(&rig, &root.join(wrong)).is(422).tells("must be in");
    }
    make(&rig, &root.join("shop/out")).is(201);
    // A link that takes the folder's place later is not followed either.
    let event = json!({ "event_type": "a", "payload": {} });
    rig.post_as(&token, "/v1/events", &event).is(201);
    rig.settle();
    assert_eq!(fs::read_dir(root.join("shop/out")).unwrap().count(), 1);
    fs::remove_dir_all(root.join("shop/out")).unwrap();
    symlink(root.join("other/out"), root.join("shop/out")).unwrap();
    rig.post_as(&token, "/v1/events", &event).is(201);
    rig.becomes("SELECT count(*) FROM holds WHERE reason = 'breaker'", "1");
    assert_eq!(fs::read_dir(root.join("other/out")).unwrap().count(), 0);
    let why = rig.one("SELECT failed_reason FROM attempts WHERE failed_reason <> ''");
    shows(&why, &["folders of the tenant shop"]);
}

#[test]
fn what_is_in_the_way_is_never_overwritten_or_followed() {
    let out = Out::new(&json!({ "template": { "name": "{{ idempotency_key }}-{{ id }}" } }));
    out.rig.post("/v1/subscriptions/files/pause", &Value::Null).is(200);
    let victim = out.rig.home().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let publish = |key: &str| {
        let event = json!({ "event_type": "a", "idempotency_key": key, "payload": { "n": 1 } });
        format!("{key}-{}", text(&out.rig.publish(&event), "id"))
    };
    let [other, link, folder, same, done] =
        ["other", "link", "folder", "same", "done"].map(publish);
    fs::write(out.path.join(&other), "something else").unwrap();
    symlink(&victim, out.path.join(&link)).unwrap();
    fs::create_dir(out.path.join(&folder)).unwrap();
    fs::write(out.path.join(&same), r#"{"n":1}"#).unwrap();
    fs::create_dir(out.path.join("done")).unwrap();
    fs::write(out.path.join("done").join(&done), r#"{"n":1}"#).unwrap();
    out.rig.post("/v1/subscriptions/files/resume", &Value::Null).is(200);
    out.rig.becomes("SELECT count(*) FROM attempts", "5");
    for (name, wanted) in [
        (&other, format!("validation 1 {other} exists with other content")),
        (&link, format!("validation 1 {link} is no regular file")),
        (&folder, format!("validation 1 {folder} is no regular file")),
        (&same, format!("success 0 already done: {same} has this content")),
        (&done, format!("success 0 already done: done/{done} has this content")),
    ] {
        let said = out.attempts();
        assert!(said.iter().any(|line| line.starts_with(&wanted)), "{name}: {said:?}");
    }
    out.rig.says("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "3");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(fs::read_to_string(out.path.join(&other)).unwrap(), "something else");
    assert_eq!(out.names().len(), 3, "the other, the link and the same: {:?}", out.names());
}

#[test]
fn an_outcome_that_is_lost_ends_with_the_same_one_file() {
    let rig = Rig::with_faults(|_| {}, Faults::at(Step::AfterSend, 1));
    let out = Out::on(rig, &json!({}));
    out.rig.publish_type("a");
    out.rig.passing("it is done", secs(1), || {
        out.rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == "1"
    });
    let attempts = out.attempts();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts[1].starts_with("success 0 already done: "), "{attempts:?}");
    assert_eq!(out.only(), "{}");
}

#[test]
fn a_changed_name_template_does_not_write_an_event_twice() {
    let rig = Rig::with_faults(|_| {}, Faults::at(Step::AfterSend, 1));
    let out = Out::on(rig, &json!({ "template": { "name": "old-{{ id }}" } }));
    let event = out.rig.publish_type("a");
    out.rig.becomes("SELECT count(*) FROM attempts", "1");
    let change = json!({ "template": { "name": "new-{{ id }}" } });
    out.rig.patch("/v1/subscriptions/files", &change).is(200);
    out.rig.passing("it is done", secs(1), || {
        out.rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'") == "1"
    });
    assert_eq!(out.names(), [format!("old-{}", text(&event, "id"))]);
}

#[test]
fn a_file_that_appears_at_the_last_moment_is_kept() {
    for (content, class) in [("{}", "success"), ("other", "validation")] {
        let faults = Faults::stalling();
        faults.stall(Some(Stall::FileWritten));
        let out = Out::on(Rig::with_faults(|_| {}, faults.clone()), &json!({}));
        let event = out.rig.publish_type("a");
        until("it is written", || faults.is_standing(Stall::FileWritten));
        let waiting = out.names();
        assert!(waiting.len() == 1 && waiting[0].starts_with(".oncebox-"), "{waiting:?}");
        let name = format!("{}.json", text(&event, "webhook_id"));
        fs::write(out.path.join(&name), content).unwrap();
        faults.stall(None);
        out.rig.settle();
        assert_eq!(out.rig.one("SELECT class FROM attempts"), class);
        assert_eq!((out.names(), out.only()), (vec![name], content.to_owned()));
    }
}

#[test]
fn a_folder_that_is_away_holds_the_subscription_and_counts_nothing() {
    let out = Out::new(&json!({ "policy": { "max_attempts": 2 } }));
    let away = out.rig.home().join("away");
    fs::rename(&out.path, &away).unwrap();
    out.rig.publish_types(&["a", "b", "c"]);
    out.rig.becomes("SELECT count(*) FROM holds WHERE reason = 'breaker'", "1");
    for _ in 0..6 {
        out.rig.pass(secs(600));
    }
    let attempts = out.attempts();
    assert!(attempts.len() > 3, "{attempts:?}");
    for attempt in &attempts {
        shows(attempt, &["transient 0 ", "mount the share again"]);
    }
    out.rig.says("SELECT count(*) FROM deliveries WHERE state = 'pending'", "3");
    out.rig.says("SELECT DISTINCT code FROM failures", "away");
    fs::rename(&away, &out.path).unwrap();
    out.rig.passing("all are written", secs(60), || out.names().len() == 3);
    out.rig.becomes("SELECT count(*) FROM holds", "0");
}

#[test]
fn a_full_disk_holds_the_subscription_and_leaves_no_part_of_a_file() {
    let out = Out::new(&json!({}));
    let shown = out.path.display().to_string();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &shown])
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skipped("no file system can be mounted here");
    }
    let filler = out.path.join("filler");
    let too_large = fs::write(&filler, vec![b'x'; 128 * 1024]);
    assert!(too_large.is_err(), "the disk is full");
    out.rig.publish(&json!({ "event_type": "a", "payload": "x".repeat(5000) }));
    out.rig.becomes("SELECT count(*) FROM holds WHERE reason = 'breaker'", "1");
    shows(&out.attempts()[0], &["transient 0 ", "make room"]);
    out.rig.says("SELECT code FROM failures", "full");
    assert_eq!(out.names(), ["filler"]);
    fs::remove_file(filler).unwrap();
    out.rig.passing("it is written", secs(60), || out.names().len() == 1);
    out.rig.settle();
    let unmounted = Command::new("umount").arg("-l").arg(&shown).status();
    assert!(unmounted.unwrap().success());
}

#[test]
fn old_temporary_files_of_ours_are_removed_and_no_others() {
    let out = Out::new(&json!({}));
    let now = std::time::SystemTime::UNIX_EPOCH
        + Duration::from_secs(u64::try_from(out.rig.now().secs()).unwrap());
    let make = |name: &str, age: u64| {
        let file = fs::File::create(out.path.join(name)).unwrap();
        file.set_modified(now - secs(age)).unwrap();
    };
    make(".oncebox-7-0.tmp", 3 * 3600);
    make(".oncebox-7-1.tmp", 60);
    make(".other-7-0.tmp", 3 * 3600);
    make("oncebox-7-0.tmp", 3 * 3600);
    out.rig.deliver("a");
    let names = out.names();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(!names.contains(&".oncebox-7-0.tmp".to_owned()), "{names:?}");
}

#[test]
fn a_test_shows_what_would_be_written_and_leaves_no_file() {
    let out = Out::new(&json!({ "template": { "name": "{{ type }}-{{ id }}.json" } }));
    let tested = out.rig.post("/v1/subscriptions/files/test", &json!({})).is(200).json();
    assert_eq!((&tested["ok"], &tested["class"]), (&json!(true), &json!("success")), "{tested}");
    shows(&tested["excerpt"].to_string(), &["would be written: oncebox.ping-"]);
    assert_eq!(out.names(), [""; 0]);
    let event = out.rig.publish_type("order.paid");
    out.rig.settle();
    let before = out.names();
    let body = json!({ "event_id": event["id"] });
    let tested = out.rig.post("/v1/subscriptions/files/test", &body).is(200).json();
    shows(&tested["excerpt"].to_string(), &["order.paid-", "would be written"]);
    assert_eq!(out.names(), before);
    fs::remove_dir_all(&out.path).unwrap();
    let tested = out.rig.post("/v1/subscriptions/files/test", &json!({})).is(200).json();
    assert_eq!(tested["ok"], json!(false));
    shows(&tested["advice"].to_string(), &["mount its share again"]);
    let steps = tested["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["step"]), (1, &json!("connect")), "{tested}");
    // What would be written is also shown without a file.
    let trial = json!({ "try": event["id"] });
    let shown = out.rig.patch("/v1/subscriptions/files", &trial).is(200).json();
    let name = format!("order.paid-{}.json", text(&event, "id"));
    assert_eq!((&shown["file_name"], &shown["body"]), (&json!(name), &json!("{}")));
}

#[test]
fn a_webhook_goes_into_a_file_too() {
    let out = Out::new(&json!({ "source": "provider:plain" }));
    out.rig.token_provider("plain", "a-shared-secret-of-32-characters");
    let fields = [("X-Token", "a-shared-secret-of-32-characters"), ("Content-Type", "text/csv")];
    out.rig.send("POST", "/in/plain", &fields, b"a;b\n1;2\n").is(200);
    out.rig.settle();
    assert_eq!(out.only(), "a;b\n1;2\n");
    assert_eq!(Path::new(&out.names()[0]).extension().unwrap(), "csv");
}

#[test]
fn files_of_one_box_are_events_of_another() {
    let out = Out::new(&json!({
        "format": "raw", "template": { "name": "{{ webhook_id }}.json" }
    }));
    let reader = Rig::new();
    let defaults = json!({ "event_type": "order.paid" });
    reader.source("orders", "drop", &json!({ "path": out.path, "defaults": defaults }));
    for n in 0..20 {
        out.rig.publish(&json!({ "event_type": "a", "payload": { "n": n } }));
    }
    out.rig.settle();
    until("all are read", || reader.one("SELECT count(*) FROM outbox") == "20");
    until("all are moved", || out.names().is_empty());
    // What was read is not written again.
    let list = out.rig.lines("SELECT seq FROM deliveries");
    assert_eq!(list.len(), 20);
}

#[test]
fn sealed_values_stand_in_the_file_and_its_name_and_nowhere_else() {
    let rig = Rig::new();
    let policy = json!({
        "rules": [{ "path": "$.customer.name", "action": "seal" }], "subject": "$.customer.id",
    });
    rig.patch("/v1/tenants/default", &json!({ "pii": policy })).is(200);
    let out = Out::on(
        rig,
        &json!({ "template": {
        "name": "{{ payload.customer.name }}-{{ id }}.txt", "body": "{{ payload.customer.name }}\n",
    } }),
    );
    let payload = json!({ "customer": { "id": "c-1", "name": "Ada/Lovelace" } });
    let event = json!({ "event_type": "a", "payload": payload });
    let id = text(&out.rig.publish(&event), "id");
    out.rig.settle();
    assert_eq!(out.names(), [format!("Ada_Lovelace-{id}.txt")]);
    assert_eq!(out.only(), "Ada/Lovelace\n");
    let attempt = out.rig.one("SELECT url || ' ' || excerpt FROM attempts");
    assert_eq!(attempt, format!("{}/*** written: ***, 13 bytes", url_of(&out.path)));
    assert!(!out.rig.dump().contains("Lovelace"), "nothing of it stands in the clear");
}

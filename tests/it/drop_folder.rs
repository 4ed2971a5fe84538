//! Drop folders: files that are put into a folder, each taken as one transaction or not at all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use oncebox::base::faults::Stall;

use crate::rig::prelude::*;

/// A folder and a source over it.
struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A rig, and a folder of it.
    fn alone(more: &Value) -> (Rig, Self) {
        let rig = Rig::new();
        let folder = Self::new(&rig, more);
        (rig, folder)
    }

    fn new(rig: &Rig, more: &Value) -> Self {
        let path = rig.home().join("drop");
        fs::create_dir(&path).unwrap();
        let settings = merged(json!({ "path": path }), more);
        rig.source("files", "drop", &settings);
        Self { path }
    }

    /// Puts a file there as a careful writer does.
    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        let begun = self.path.join(format!("{name}.tmp"));
        fs::write(&begun, text).unwrap();
        fs::rename(begun, self.path.join(name)).unwrap();
    }

    /// Puts a file there and waits until it is taken.
    #[track_caller]
    fn take(&self, name: &str, text: impl AsRef<[u8]>) {
        self.put(name, text);
        self.until_done(name);
    }

    fn has(&self, place: &str) -> bool {
        self.path.join(place).exists()
    }

    #[track_caller]
    fn until_done(&self, name: &str) {
        until(&format!("{name} is taken"), || self.has(&format!("done/{name}")) && !self.has(name));
    }

    /// Why a file was refused.
    #[track_caller]
    fn reason(&self, name: &str) -> String {
        let rejected = self.path.join("rejected");
        until(&format!("{name} is refused"), || rejected.join(name).exists() && !self.has(name));
        fs::read_to_string(rejected.join(format!("{name}.reason"))).unwrap()
    }
}

fn stored(rig: &Rig) -> String {
    rig.one("SELECT count(*) FROM outbox")
}

#[test]
fn a_csv_file_is_delivered_row_by_row_and_moved_to_done() {
    let (rig, receiver) = Rig::subscribed("logistics");
    let folder = Folder::new(
        &rig,
        &json!({ "delimiter": ";", "fields": { "idempotency_key": "No" },
                 "defaults": { "event_type": "invoice.created" } }),
    );
    folder.take("invoices.csv", "No;Total\r\nRE-1;99,00\r\nRE-2;\"1;5\"\r\n");
    until("both are delivered", || receiver.count() == 2);
    let mut bodies: Vec<_> = receiver.seen().into_iter().map(|seen| seen.body).collect();
    bodies.sort();
    assert_eq!(bodies[0], br#"{"No":"RE-1","Total":"99,00"}"#);
    let event = rig.get("/v1/events?idempotency_key=RE-2")["items"][0].clone();
    has(&event, &json!({ "source_system": "files", "event_type": "invoice.created" }));
    let source = rig.get("/v1/sources/files");
    assert_eq!((&source["event_count"], &source["cursor"]), (&json!(2), &json!(1)));
    rig.settle();
}

#[test]
fn json_lines_and_xml_are_taken_as_well() {
    let rig = Rig::new();
    let folder = Folder::new(
        &rig,
        &json!({ "row": "Orders/Order", "fields": { "aggregate_id": "@id" },
                 "defaults": { "event_type": "order.placed" } }),
    );
    folder.put("a.json", r#"[{"event_type":"a","payload":{}},{"payload":1}]"#);
    folder.put("b.ndjson", "{\"payload\":1}\n{\"payload\":2}\n");
    folder.take("c.xml", "<Orders><Order id='7'><No>1</No></Order><Order id='8'/></Orders>");
    assert_eq!(stored(&rig), "6");
    let event = rig.get("/v1/events?aggregate_id=7")["items"][0].clone();
    let id = event["id"].as_str().unwrap();
    assert_eq!(rig.get(&format!("/v1/events/{id}"))["payload"], json!({ "@id": "7", "No": "1" }));
}

#[test]
fn a_file_with_a_mistake_is_refused_as_a_whole_with_the_position() {
    let (rig, folder) = Folder::alone(&json!({}));
    let good = r#"{"event_type":"a","payload":1}"#;
    folder.put(
        "bad.ndjson",
        format!("{good}\n{{\"payload\":1}}\n{{\"event_type\":\"\",\"payload\":1}}\n"),
    );
    let why = folder.reason("bad.ndjson");
    assert_eq!(why.lines().count(), 2, "{why}");
    assert!(why.starts_with("line 2: event_type is missing"), "{why}");
    folder.take("good.ndjson", good);
    assert_eq!(stored(&rig), "1");
    let raised = rig.get("/v1/escalations")["items"][0].clone();
    assert_eq!((&raised["class"], &raised["count"]), (&json!("drop.rejected"), &json!(1)));
    assert!(raised["detail"].as_str().unwrap().contains("bad.ndjson"), "{raised}");
    // Mended, it may come again under its name. Seen, the escalation is over.
    folder.take("bad.ndjson", good.replace('1', "2"));
    let path = format!("/v1/escalations/{}/acknowledge", raised["id"].as_str().unwrap());
    assert!(rig.post(&path, &Value::Null).is(200).json()["resolved_at"].is_string());
    assert_eq!(rig.get("/v1/escalations")["items"], json!([]));
    let metrics = rig.call("GET", "/metrics", b"").is(200).text();
    assert!(metrics.contains("oncebox_source_files_total{result=\"rejected\"} 1"), "{metrics}");
}

#[test]
fn a_repeated_file_is_recognised_and_other_content_under_its_name_is_refused() {
    let (rig, folder) = Folder::alone(&json!({ "defaults": { "event_type": "a" } }));
    folder.take("a.csv", "x\n1\n2\n");
    folder.take("a.csv", "x\n1\n2\n");
    // Under another name its rows have the same keys.
    folder.take("b.csv", "x\n1\n2\n");
    assert_eq!(stored(&rig), "2");
    folder.put("a.csv", "x\n3\n");
    assert!(folder.reason("a.csv").contains("taken before, with other content"));
    folder.put("a.csv", "x\n4\n");
    folder.reason("a.csv.2");
    assert_eq!(stored(&rig), "2");
    let raised = rig.get("/v1/escalations")["items"][0].clone();
    let detail = raised["detail"].as_str().unwrap();
    assert_eq!(raised["count"], 2);
    assert!(
        detail.starts_with("2 times a file was refused") && !detail.contains("lies in rejected:")
    );
    assert!(detail.contains("The last: the file \"a.csv\" was refused and put into rejected: "));
}

#[test]
fn a_file_being_written_is_read_when_its_writer_has_finished() {
    let (rig, folder) =
        Folder::alone(&json!({ "writer": "done", "defaults": { "event_type": "a" } }));
    fs::write(folder.path.join("a.csv"), "x\n1").unwrap();
    fs::write(folder.path.join("b.csv"), "x\n1\n").unwrap();
    fs::write(folder.path.join("b.csv.done"), "").unwrap();
    folder.until_done("b.csv");
    // The marker goes after the file has.
    until("the marker is gone", || !folder.has("b.csv.done"));
    assert!(folder.has("a.csv"));
    let settings = json!({ "path": folder.path, "writer": "stable", "stable_ms": 60_000,
                           "defaults": { "event_type": "a" } });
    rig.patch("/v1/sources/files", &json!({ "settings": settings })).is(200);
    let half = folder.path.join("c.csv");
    fs::write(&half, "x\n1").unwrap();
    // However often it is looked at, it is not taken before it has stood still.
    until("it is looked at", || rig.get("/v1/sources/files")["lag"] != 0);
    rig.advance(secs(30));
    assert!(folder.has("c.csv") && folder.has("a.csv"));
    rig.passing("they are taken", secs(61), || {
        folder.has("done/a.csv") && folder.has("done/c.csv")
    });
}

#[test]
fn a_file_written_in_place_is_not_read_while_it_is_empty() {
    let (rig, folder) = Folder::alone(&json!({ "defaults": { "event_type": "a" } }));
    let path = folder.path.join("a.csv");
    drop(fs::File::create(&path).unwrap());
    until("it is looked at", || rig.get("/v1/sources/files")["lag"] == 1);
    folder.take("b.csv", "x\n1\n");
    assert!(folder.has("a.csv"), "it is empty and waits");
    fs::write(&path, "x\n2\n").unwrap();
    folder.until_done("a.csv");
    // One that stays empty is refused.
    drop(fs::File::create(folder.path.join("c.csv")).unwrap());
    rig.passing("it is refused", secs(6), || folder.has("rejected/c.csv"));
}

#[test]
fn large_files_and_other_entries_are_not_imported() {
    let (rig, folder) = Folder::alone(&json!({ "defaults": { "event_type": "a" } }));
    let secret = rig.home().join("secret.json");
    fs::write(&secret, r#"{"event_type":"a","payload":1}"#).unwrap();
    std::os::unix::fs::symlink(&secret, folder.path.join("link.json")).unwrap();
    fs::create_dir(folder.path.join("folder.json")).unwrap();
    let large = fs::File::create(folder.path.join("large.json.tmp")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    fs::rename(folder.path.join("large.json.tmp"), folder.path.join("large.json")).unwrap();
    assert!(folder.reason("large.json").contains("split it"));
    folder.put("many.csv", format!("x\n{}", "1\n".repeat(10_001)));
    assert!(folder.reason("many.csv").contains("at most 10000"));
    folder.put("latin.csv", b"x\nGr\xf6\xdfe\n");
    assert!(folder.reason("latin.csv").starts_with("line 2: the byte 0xF6 is not UTF-8"));
    let big = format!("{{\"event_type\":\"a\",\"payload\":\"{}\"}}", "x".repeat(1 << 20));
    folder.put("big.json", big);
    assert!(folder.reason("big.json").starts_with("row 1: payload has 1048578 bytes"));
    assert!(folder.has("link.json") && folder.has("folder.json"));
    assert_eq!(stored(&rig), "0");
}

#[test]
fn a_file_with_an_unusable_name_is_reported_and_does_not_stop_others() {
    let (rig, folder) = Folder::alone(&json!({ "defaults": { "event_type": "a" } }));
    let latin = OsStr::from_bytes(b"M\xfcller.csv");
    for (name, why) in [
        (latin, "not UTF-8"),
        (OsStr::new("a\nb.csv"), "a control character"),
        (OsStr::new(&format!("{}.csv", "x".repeat(200))), "more than 200 bytes"),
    ] {
        fs::write(folder.path.join(name), "n\n1\n").unwrap();
        until("it is said", || {
            rig.advance(secs(11));
            rig.get("/v1/sources/files")["last_error"]
                .as_str()
                .is_some_and(|error| error.contains(why))
        });
        shows(&rig.get("/v1/sources/files/test").to_string(), &[why]);
        folder.put("good.csv", "n\n1\n");
        until("the other is taken", || !folder.has("good.csv"));
        fs::remove_file(folder.path.join(name)).unwrap();
        until("it is well", || rig.get("/v1/sources/files")["last_error"].is_null());
    }
    assert_eq!(stored(&rig), "1");
}

#[test]
fn rows_of_a_file_with_one_key_and_different_content_are_refused() {
    let rig = Rig::new();
    let folder = Folder::new(
        &rig,
        &json!({ "defaults": { "event_type": "a" }, "fields": { "idempotency_key": "No" } }),
    );
    folder.put("lines.csv", "No,Article\n7,nail\n8,saw\n7,hammer\n");
    let why = folder.reason("lines.csv");
    assert!(why.starts_with("line 4: it has the key of line 2, but other content"), "{why}");
    assert_eq!(stored(&rig), "0");
    // The same twice is the same.
    folder.take("again.csv", "No,Article\n7,nail\n7,nail\n");
    assert_eq!(stored(&rig), "1");
}

#[test]
fn a_row_without_the_key_in_the_settings_refuses_its_file() {
    let rig = Rig::new();
    let folder = Folder::new(
        &rig,
        &json!({ "row": "Orders/Order", "fields": { "idempotency_key": "No" },
                 "defaults": { "event_type": "order.placed" } }),
    );
    for (name, text, place) in [
        ("absent.json", r#"[{"No":"1"},{"Nr":"2"}]"#, "row 2"),
        ("null.ndjson", "{\"No\":\"1\"}\n\n{\"No\":null}\n", "line 3"),
        ("empty.json", r#"{"No":"","payload":1}"#, "row 1"),
        ("absent.xml", "<Orders><Order><No>1</No></Order>\n<Order/></Orders>", "line 2"),
        ("empty.xml", "<Orders>\n<Order><No/></Order></Orders>", "line 2"),
        ("empty.csv", "No,x\n1,1\n,2\n", "line 3"),
    ] {
        folder.put(name, text);
        let why = folder.reason(name);
        let said =
            format!("{place}: idempotency_key (here \"No\") is absent, null or empty, and the");
        assert!(why.starts_with(&said) && why.contains("correct the name"), "{name}: {why}");
    }
    assert_eq!(stored(&rig), "0");
    folder.take("whole.xml", "<Orders><Order><No>1</No></Order></Orders>");
    assert_eq!(rig.one("SELECT idempotency_key FROM outbox"), "1");
}

#[test]
fn ten_thousand_rows_are_one_transaction() {
    let (rig, folder) = Folder::alone(&json!({ "defaults": { "event_type": "a" } }));
    folder.take("many.csv", format!("x\n{}", "1\n".repeat(10_000)));
    assert_eq!(stored(&rig), "10000");
    assert_eq!(rig.get("/v1/sources/files")["event_count"], 10_000);
}

#[test]
fn a_missing_folder_is_reported_and_read_when_it_is_back() {
    let (rig, folder) = Folder::alone(&json!({}));
    until("it is read", || folder.has("done"));
    let away = rig.home().join("away");
    fs::rename(&folder.path, &away).unwrap();
    until("it is said", || {
        rig.advance(secs(11));
        rig.get("/v1/sources/files")["last_error"]
            .as_str()
            .is_some_and(|why| why.contains("cannot be listed"))
    });
    assert_eq!(rig.get("/v1/sources/files/test")["ok"], false);
    assert_eq!(rig.get("/v1/sources/files")["lag"], Value::Null);
    fs::rename(away, &folder.path).unwrap();
    folder.take("a.json", r#"{"event_type":"a","payload":1}"#);
    until("it is well", || rig.get("/v1/sources/files")["last_error"].is_null());
    assert_eq!(rig.get("/v1/sources/files/test")["ok"], true);
}

#[test]
fn one_folder_has_one_source() {
    let (rig, folder) = Folder::alone(&json!({}));
    let over =
        |path: &Path| json!({ "name": "again", "kind": "drop", "settings": { "path": path } });
    rig.post("/v1/sources", &over(&folder.path)).is(409);
    let (other, link) = (rig.home().join("other"), rig.home().join("link"));
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&folder.path, &link).unwrap();
    rig.post("/v1/sources", &over(&link)).is(409);
    rig.post("/v1/sources", &over(&other)).is(201);
    for (path, status) in [(&folder.path, 409), (&link, 409), (&other, 200)] {
        rig.patch("/v1/sources/again", &json!({ "settings": { "path": path } })).is(status);
    }
    rig.post("/v1/sources/files/reset", &json!({ "cursor": 0 })).is(409);
    let from = json!({ "name": "x", "kind": "drop", "from": "now", "settings": { "path": "/x" } });
    rig.post("/v1/sources", &from).is(422);
    // One that is paused leaves everything where it is.
    rig.post("/v1/sources/files/pause", &Value::Null).is(200);
    folder.put("a.json", r#"{"event_type":"a","payload":1}"#);
    rig.post("/v1/sources/files/resume", &Value::Null).is(200);
    folder.until_done("a.json");
}

#[test]
fn a_file_that_cannot_be_imported_is_reported_once_and_does_not_stop_others() {
    let (rig, folder) = Folder::alone(&json!({}));
    // It cannot be moved to where a directory stands.
    fs::create_dir_all(folder.path.join("done/a.json/in the way")).unwrap();
    folder.put("a.json", r#"{"event_type":"a","payload":1}"#);
    until("it is said", || rig.get("/v1/sources/files")["last_error"].is_string());
    for name in ["b.json", "c.json", "d.json"] {
        folder.take(name, format!(r#"{{"event_type":"a","payload":"{name}"}}"#));
    }
    until("the one that waits is counted", || rig.get("/v1/sources/files")["lag"] == 1);
    let raised = rig.get("/v1/escalations");
    assert_eq!(
        (raised["items"].as_array().unwrap().len(), &raised["items"][0]["count"]),
        (1, &json!(1))
    );
    fs::remove_dir_all(folder.path.join("done/a.json")).unwrap();
    folder.until_done("a.json");
    until("it is taken back", || rig.get("/v1/sources/files")["last_error"].is_null());
    until("nothing waits", || rig.get("/v1/sources/files")["lag"] == 0);
}

#[test]
fn links_named_done_and_rejected_are_not_followed() {
    let (rig, folder) = Folder::alone(&json!({ "defaults": { "event_type": "a" } }));
    until("it is read", || folder.has("rejected"));
    let outside = rig.home().join("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["a.csv", "b.csv.reason"] {
        fs::write(outside.join(name), "ours").unwrap();
    }
    // A planted reason is not written through, and what is refused gets another name.
    std::os::unix::fs::symlink(
        outside.join("b.csv.reason"),
        folder.path.join("rejected/b.csv.reason"),
    )
    .unwrap();
    folder.put("b.csv", b"x\nGr\xf6\xdfe\n");
    until("it is refused", || folder.has("rejected/b.csv.2.reason") && !folder.has("b.csv"));
    // Nothing is moved through a link, nor over what is there.
    let done = folder.path.join("done");
    until("it is a link", || {
        // A look may make the folder again before the link is there.
        drop(fs::remove_dir_all(&done));
        std::os::unix::fs::symlink(&outside, &done).is_ok()
    });
    folder.put("a.csv", "x\n1\n");
    until("it is said", || {
        rig.get("/v1/sources/files")["last_error"]
            .as_str()
            .is_some_and(|why| why.contains("a link or not a directory"))
    });
    for name in ["a.csv", "b.csv.reason"] {
        assert_eq!(fs::read_to_string(outside.join(name)).unwrap(), "ours");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
    fs::remove_file(folder.path.join("done")).unwrap();
    folder.until_done("a.csv");
    folder.put("a.csv", "x\n1\n");
    until("the first one stays", || folder.has("done/a.csv.2"));
    assert_eq!(stored(&rig), "1");
}

/// A rig whose folder's thread stands still at that place with `a.csv`, once two rows were read from it; and its
/// writer, which still has it open.
fn standing_at(place: Stall, text: &str) -> (Rig, Faults, Folder, fs::File) {
    let faults = Faults::stalling();
    let rig = Rig::with_faults(|_| {}, faults.clone());
    let folder = Folder::new(&rig, &json!({ "defaults": { "event_type": "a" } }));
    faults.stall(Some(place));
    let mut writer = fs::File::create(folder.path.join("a.csv.tmp")).unwrap();
    writer.write_all(text.as_bytes()).unwrap();
    fs::rename(folder.path.join("a.csv.tmp"), folder.path.join("a.csv")).unwrap();
    until("it is about to be moved", || faults.is_standing(place));
    (rig, faults, folder, writer)
}

#[test]
fn bytes_appended_to_a_file_after_it_was_read_are_not_lost() {
    for place in [Stall::Stored, Stall::Unchanged] {
        let (rig, faults, folder, mut writer) = standing_at(place, "x\n1\n2\n");
        writer.write_all(b"3\n").unwrap();
        faults.stall(None);
        let why = folder.reason("a.csv");
        assert!(
            why.starts_with("its first 6 bytes were taken") && why.contains("other 2 "),
            "{why}"
        );
        let kept = fs::read_to_string(folder.path.join("rejected/a.csv")).unwrap();
        assert_eq!((stored(&rig).as_str(), kept.as_str()), ("2", "x\n1\n2\n3\n"));
        assert_eq!(fs::read_dir(folder.path.join("done")).unwrap().count(), 0);
        until("nothing is in the way", || rig.get("/v1/sources/files")["last_error"].is_null());
    }
}

#[test]
fn a_file_that_replaces_one_that_was_read_is_read_itself() {
    for place in [Stall::Stored, Stall::Unchanged] {
        let (rig, faults, folder, _) = standing_at(place, "x\n1\n2\n");
        folder.put("a.csv", "x\n8\n9\n");
        faults.stall(None);
        assert!(folder.reason("a.csv").contains("taken before, with other content"));
        let kept = fs::read_to_string(folder.path.join("rejected/a.csv")).unwrap();
        assert_eq!((stored(&rig).as_str(), kept.as_str()), ("2", "x\n8\n9\n"));
        assert_eq!(fs::read_dir(folder.path.join("done")).unwrap().count(), 0);
    }
    // One that was to be refused, and is mended meanwhile.
    let (rig, faults, folder, _) = standing_at(Stall::Unchanged, "x\n\"1\n");
    folder.put("a.csv", "x\n1\n");
    faults.stall(None);
    folder.until_done("a.csv");
    assert_eq!(stored(&rig), "1");
    assert_eq!(fs::read_dir(folder.path.join("rejected")).unwrap().count(), 0);
}

#[test]
fn a_file_removed_while_it_is_read_is_stored_without_an_error() {
    let (rig, faults, folder, _) = standing_at(Stall::Unchanged, "x\n1\n2\n");
    fs::remove_file(folder.path.join("a.csv")).unwrap();
    faults.stall(None);
    folder.take("b.csv", "x\n3\n");
    assert_eq!(stored(&rig), "3");
    assert_eq!(rig.get("/v1/escalations")["items"], json!([]));
}

#[test]
fn links_and_special_files_are_not_read_and_are_reported() {
    let (rig, folder) = Folder::alone(&json!({ "defaults": { "event_type": "a" } }));
    let said = |part: &str| {
        until(&format!("{part:?} is said"), || {
            rig.advance(secs(11));
            let source = rig.get("/v1/sources/files");
            source["last_error"].as_str().is_some_and(|why| why.contains(part))
        });
    };
    let theirs = rig.home().join("theirs");
    fs::write(&theirs, "x\n1\n").unwrap();
    let put = folder.path.join("a.csv");
    // A second name of a file that whoever put it there may not be able to read.
    fs::hard_link(&theirs, &put).unwrap();
    said("a.csv has other names as well (hard links)");
    // Our own file is no exception, and is neither moved nor changed.
    let (ours, own) = (rig.data().join("oncebox.db"), folder.path.join("own.csv"));
    fs::hard_link(&ours, &own).unwrap();
    fs::remove_file(&put).unwrap();
    said("own.csv has other names as well (hard links)");
    fs::remove_file(&own).unwrap();
    fs::hard_link(&theirs, &put).unwrap();
    assert!(ours.exists() && !folder.has("done/own.csv") && !folder.has("rejected/own.csv"));
    folder.take("b.csv", "x\n2\n");
    let test = rig.get("/v1/sources/files/test");
    assert_eq!(
        (&test["ok"], &test["checks"][1]["state"]),
        (&json!(true), &json!("warn")),
        "{test}"
    );
    // A writer that links and then unlinks is not refused, only waited for.
    fs::remove_file(&theirs).unwrap();
    folder.until_done("a.csv");
    until("it is taken back", || rig.get("/v1/sources/files")["last_error"].is_null());

    std::os::unix::fs::symlink(folder.path.join("done/a.csv"), &put).unwrap();
    said("a.csv is a link, which is never followed");
    fs::remove_file(&put).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &put, rustix::fs::Mode::RUSR).unwrap();
    said("a.csv is a pipe, a device or a socket");
    folder.take("c.csv", "x\n3\n");
    fs::remove_file(&put).unwrap();
    fs::create_dir(folder.path.join("archive")).unwrap();
    until("nothing is in the way", || rig.get("/v1/sources/files")["last_error"].is_null());
    assert_eq!(stored(&rig), "3");
}

#[test]
fn long_numbers_in_json_stay_different_keys_and_a_time_in_another_unit_is_refused() {
    let (rig, folder) = Folder::alone(&json!({ "fields": { "not_before": "start" } }));
    let row = |key: &str| {
        format!(r#"{{"event_type":"a","payload":1,"idempotency_key":{key},"aggregate_id":{key}}}"#)
    };
    let keys = ["20261121123456000001", "20261121123456000002"];
    folder.take("a.ndjson", keys.map(row).join("\n"));
    assert_eq!(stored(&rig), "2");
    for key in keys {
        let found = rig.get(&format!("/v1/events?idempotency_key={key}"))["items"][0].clone();
        assert_eq!(found["aggregate_id"], key);
    }
    folder.put("b.json", r#"{"event_type":"a","payload":1,"start":1763728496000000}"#);
    let why = folder.reason("b.json");
    let first = "row 1: not_before (here \"start\") is \"1763728496000000\", which is not a time";
    assert!(why.starts_with(first), "{why}");
    assert!(why.contains("seconds or milliseconds since 1970"), "{why}");
}

#[test]
fn rows_of_another_xml_element_are_new_events() {
    let rig = Rig::new();
    let row = |row: &str| json!({ "row": row, "defaults": { "event_type": "a" } });
    let folder = Folder::new(&rig, &row("Orders/Order"));
    let text = "<Orders><Order><Line/><Line/></Order></Orders>";
    folder.take("a.xml", text);
    assert_eq!(stored(&rig), "1");
    let mut settings = row("Orders/Order/Line");
    settings["path"] = json!(folder.path);
    rig.patch("/v1/sources/files", &json!({ "settings": settings })).is(200);
    for name in ["b.xml", "c.xml"] {
        folder.take(name, text);
        assert_eq!(stored(&rig), "3");
    }
}

/// Every second one makes a source over a folder, the others turn theirs to it.
fn ask_for(rig: &Rig, path: &Path, round: usize, n: usize) -> u16 {
    let settings = json!({ "path": path });
    if n.is_multiple_of(2) {
        let name = format!("made-{round}-{n}");
        let body = json!({ "name": name, "kind": "drop", "settings": settings });
        return rig.post("/v1/sources", &body).status;
    }
    let name = format!("/v1/sources/turned-{round}-{n}");
    rig.patch(&name, &json!({ "settings": settings })).status
}

#[test]
fn of_concurrent_requests_for_one_folder_one_succeeds() {
    let rig = Rig::new();
    for round in 0..12 {
        let path = rig.home().join(format!("drop-{round}"));
        fs::create_dir(&path).unwrap();
        for n in [1, 3] {
            let other = rig.home().join(format!("other-{round}-{n}"));
            fs::create_dir(&other).unwrap();
            let (name, settings) = (format!("turned-{round}-{n}"), json!({ "path": other }));
            rig.source(&name, "drop", &settings);
        }
        let taken = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..4 {
                let (rig, path, taken) = (&rig, &path, &taken);
                scope.spawn(move || {
                    let got = ask_for(rig, path, round, n) < 300;
                    taken.fetch_add(usize::from(got), Ordering::SeqCst)
                });
            }
        });
        let taken = taken.into_inner();
        assert!(taken <= 1, "{taken} of them have it");
        let over = format!(
            "SELECT count(*) FROM sources WHERE json_extract(settings, '$.path') = '{}'",
            path.display()
        );
        assert_eq!(rig.one(&over), taken.to_string());
    }
}

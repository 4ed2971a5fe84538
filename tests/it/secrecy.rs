//! No secret is readable: not in the file, not in its log, not in an answer.

use data_encoding::BASE64_NOPAD;

use crate::rig::prelude::*;

const STRIPE: &str = "whsec_stripe0123456789abcdef0123456789";

/// Whether the bytes stand in the database, its log or its index, as they are on the disk now.
fn on_disk(rig: &Rig, needle: &[u8]) -> bool {
    ["oncebox.db", "oncebox.db-wal", "oncebox.db-shm"].iter().any(|name| {
        let bytes = fs::read(rig.data().join(name)).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle)
    })
}

#[test]
fn no_secret_stands_in_the_file_or_its_log() {
    let (mut rig, receiver) = (Rig::new(), Receiver::scripted([Reply::status(500)]));
    let secret = rig.subscribe("erp", &receiver);
    rig.provider("stripe", &json!({ "kind": "stripe" }), STRIPE);
    let token = rig.token_of("operate");
    rig.deliver("marker-that-can-be-found");
    let encoded = secret.strip_prefix("whsec_").unwrap().trim_end_matches('=').to_owned();
    let raw = BASE64_NOPAD.decode(encoded.as_bytes()).unwrap();
    let key = fs::read_to_string(rig.data().join("master.key")).unwrap();
    let look = |rig: &Rig| {
        assert!(on_disk(rig, b"marker-that-can-be-found"), "the search itself works");
        assert!(!on_disk(rig, encoded.as_bytes()), "the signing secret's text");
        assert!(!on_disk(rig, &raw), "the signing secret's bytes");
        assert!(!on_disk(rig, &STRIPE.as_bytes()[6..]), "the provider's secret");
        assert!(!on_disk(rig, token.strip_prefix("obx_").unwrap().as_bytes()), "a token");
        assert!(
            !on_disk(rig, rig.token.strip_prefix("obx_").unwrap().as_bytes()),
            "the first token"
        );
        assert!(!on_disk(rig, key.trim().as_bytes()), "the master key");
    };
    look(&rig);
    rig.stop();
    look(&rig);
    rig.start_again();
}

#[test]
fn no_answer_shows_a_secret_after_the_one_that_made_it() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let secret = rig.subscribe("erp", &receiver);
    rig.provider("stripe", &json!({ "kind": "stripe" }), STRIPE);
    let token = rig.token_of("operate");
    let line = rig.publish_type("a");
    rig.settle();
    let event = format!("/v1/events/{}", line["id"].as_str().unwrap());
    for path in [
        "/v1/subscriptions",
        "/v1/subscriptions/erp",
        "/v1/providers",
        "/v1/providers/stripe",
        "/v1/tokens",
        "/v1/deliveries",
        "/v1/deliveries/dlv_1",
        "/v1/deliveries/dlv_1/attempts",
        "/v1/events",
        &event,
        "/v1/stats",
    ] {
        let text = rig.call("GET", path, b"").is(200).text();
        for hidden in [secret.as_str(), STRIPE, &token, &rig.token] {
            assert!(!text.contains(hidden), "{path}");
        }
    }
    let changed = rig.patch("/v1/subscriptions/erp", &json!({ "owner_id": "x" })).is(200).text();
    assert!(!changed.contains(&secret));
}

#[test]
fn only_their_owner_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    for name in ["oncebox.db", "oncebox.db-wal", "oncebox.db-shm", "master.key", "admin.token"] {
        let mode = fs::metadata(rig.data().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    let mode = fs::metadata(rig.data()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
}

#[test]
fn a_group_that_is_named_may_open_database_and_archive_and_nothing_else() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mut rig = Rig::new();
    let directory = fs::metadata(rig.data()).unwrap();
    // Root may give a file to any group; anybody else to one of his own.
    let group = if directory.uid() == 0 { 4711 } else { directory.gid() };
    rig.restart_with(|settings| settings.database.group = Some(group.to_string()));
    let data = rig.data();
    let look = |name: &str| {
        let found = fs::metadata(data.join(name)).unwrap();
        (found.permissions().mode() & 0o7777, found.gid())
    };
    assert_eq!(look(""), (0o2770, group));
    for name in ["oncebox.db", "oncebox.db-wal", "oncebox.db-shm"] {
        assert_eq!(look(name), (0o660, group), "{name}");
    }
    // The archive too, for reports over both: the months that are there, and those to come.
    for _ in 0..2 {
        let event = json!({ "event_type": "a", "payload": 1 });
        rig.publish(&event);
        rig.settle();
        rig.advance(secs(35 * 24 * 3600));
        rig.becomes("SELECT count(*) FROM outbox", "0");
    }
    rig.restart();
    assert_eq!(look("archive"), (0o2770, group));
    for month in fs::read_dir(rig.data().join("archive")).unwrap() {
        let name = format!("archive/{}", month.unwrap().file_name().to_str().unwrap());
        assert_eq!(look(&name), (0o660, group), "{name}");
    }
    assert_eq!(look("audit").0 & 0o777, 0o700);
    assert_eq!(look("master.key").0, 0o600);
    assert_eq!(look("admin.token").0, 0o600);

    rig.restart_with(|settings| settings.database.group = None);
    for name in ["oncebox.db", "oncebox.db-wal", "oncebox.db-shm"] {
        let mode = fs::metadata(rig.data().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_group_that_is_not_there_is_refused_by_name() {
    let refused = Rig::refused(|settings| {
        settings.database.group = Some("no-such-group".to_owned());
    });
    let refusal = refused.to_string();
    assert!(refusal.contains("no group \"no-such-group\""), "{refusal}");
    assert!(refusal.contains("groupadd"), "{refusal}");
}

#[test]
fn a_refused_secret_is_not_repeated_in_the_answer() {
    let rig = Rig::new();
    let pasted = "whsec_this is not base64 but somebodys password";
    let body = json!({ "name": "erp", "url": "http://127.0.0.1:8069/", "secret": pasted });
    let refused = rig.post("/v1/subscriptions", &body).is(422);
    assert!(!refused.text().contains("password"), "{}", refused.text());
}

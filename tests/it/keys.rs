//! The master key: rotated while everything goes on, and never lost half way.

use oncebox::base::id::SystemDraw;
use oncebox::base::secret::MasterKey;
use oncebox::keys::file as key_file;

use crate::rig::prelude::*;
use crate::rig::process::passes;

const STRIPE: &str = "whsec_0123456789abcdef0123456789";
const SHARED: &str = "a-shared-secret-of-32-characters";

/// A box with secrets of both kinds and a token that is not the first.
struct Sealed {
    rig: Rig,
    receiver: Receiver,
    token: String,
}

impl Sealed {
    fn new() -> Self {
        Self::over(Rig::new())
    }

    fn over(rig: Rig) -> Self {
        let receiver = Receiver::new();
        rig.subscribe("erp", &receiver);
        rig.token_provider("plain", SHARED);
        rig.provider("stripe", &json!({ "kind": "stripe" }), STRIPE);
        let token = rig.token_of("publish");
        Self { rig, receiver, token }
    }

    fn key_path(&self) -> PathBuf {
        self.rig.data().join("master.key")
    }

    /// What must open whatever was done to the keys: both secrets and both tokens.
    #[track_caller]
    fn check(&self) {
        let event = json!({ "event_type": "a", "payload": 1 });
        self.rig.post_as(&self.token, "/v1/events", &event).is(201);
        self.rig.settle();
        let signed = self.receiver.seen().last().unwrap().field("webhook-signature").is_some();
        assert!(signed, "the event went out signed");
        self.rig.send("POST", "/in/plain", &[("X-Token", SHARED)], b"hook").is(200);
        assert_eq!(self.rig.one("SELECT count(*) FROM deliveries WHERE state <> 'completed'"), "0");
    }

    fn named(&self) -> String {
        self.rig.one("SELECT value FROM meta WHERE key = 'master_key_id'")
    }

    /// The keys that seal something now.
    fn sealing(&self) -> Vec<String> {
        file::lines(&self.rig.file(), "SELECT DISTINCT master_key_id FROM credentials")
    }

    #[track_caller]
    fn all_under(&self, key: &str) {
        assert_eq!((self.named(), self.sealing()), (key.to_owned(), vec![key.to_owned()]));
    }
}

#[test]
fn a_rotation_seals_everything_anew_and_every_secret_and_token_works_on() {
    let mut sealed = Sealed::new();
    let old = key_file::read(&sealed.key_path()).unwrap();
    sealed.check();
    let done = sealed.rig.post("/v1/keys/rotate", &Value::Null).is(200).json();
    let new = key_file::read(&sealed.key_path()).unwrap();
    assert_eq!(done, json!({ "from": old.key_id(), "to": new.key_id(), "secrets": 3 }));
    sealed.all_under(&new.key_id());
    let retired = key_file::retired(&sealed.key_path(), &old.key_id());
    assert_eq!(key_file::read(&retired).unwrap().key_id(), old.key_id());
    sealed.check();
    sealed.rig.subscribe("later", &sealed.receiver);
    sealed.rig.restart();
    sealed.check();
    sealed.all_under(&new.key_id());
    // Nothing in the file needs the old key any more.
    sealed.rig.stop();
    fs::remove_file(retired).unwrap();
    sealed.rig.start_again();
    sealed.check();
    let row = sealed.rig.get("/v1/audit-events?action=master_key.rotate")["items"][0].clone();
    assert_eq!(row["changes"]["id"], json!({ "before": old.key_id(), "after": new.key_id() }));
    assert_eq!(row["actor"]["type"], "token");
}

/// Seed 002: "DEK". A rotation wraps the data keys anew, and touches nothing that they seal.
#[test]
fn a_rotation_leaves_what_is_sealed_as_it_is() {
    let sealed = Sealed::new();
    let bodies = "SELECT hex(substr(sealed, 66)) FROM credentials ORDER BY seq";
    let heads = "SELECT hex(substr(sealed, 1, 65)) FROM credentials ORDER BY seq";
    let before = (sealed.rig.lines(bodies), sealed.rig.lines(heads));
    sealed.rig.post("/v1/keys/rotate", &Value::Null).is(200);
    let after = (sealed.rig.lines(bodies), sealed.rig.lines(heads));
    assert_eq!(before.0, after.0);
    assert!(before.1.iter().zip(&after.1).all(|(before, after)| before != after));
    // Two secrets have two data keys.
    assert_eq!(before.1.iter().collect::<BTreeSet<_>>().len(), 3);
    sealed.check();
}

/// Seed 002: "from Vault".
#[test]
fn the_master_key_may_come_from_a_program() {
    let keys = tempfile::tempdir().unwrap();
    let draw = SystemDraw::new();
    let (first, second) = (MasterKey::generate(&draw), MasterKey::generate(&draw));
    for (key, name) in [(&first, "first"), (&second, "second")] {
        fs::write(keys.path().join(name), key.to_text().as_bytes()).unwrap();
    }
    let directory = keys.path().display().to_string();
    let command = ["/bin/cat", &format!("{directory}/first")].map(str::to_owned).to_vec();
    let mut sealed = Sealed::over(Rig::with(|settings| settings.keys.command = command.clone()));
    sealed.all_under(&first.key_id());
    assert!(!sealed.key_path().exists());
    sealed.rig.post("/v1/keys/rotate", &Value::Null).is(409).tells("keys.command");
    // It is asked for an older key by its id.
    fs::rename(keys.path().join("first"), keys.path().join(format!("old-{}", first.key_id())))
        .unwrap();
    let script = format!(
        "test -z \"$ONCEBOX_KEY_ID\" || exec cat {directory}/old-$ONCEBOX_KEY_ID; cat {directory}/second"
    );
    sealed.rig.restart_with(|settings| {
        settings.keys.command = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
    });
    sealed.all_under(&second.key_id());
    sealed.check();
    // Nothing starts without a key, and no other one is made.
    for (script, wanted) in [
        ("echo no network >&2; exit 3", "exit 3: no network"),
        ("echo hunter2", "this is not a master key"),
    ] {
        let refused = Rig::refused(|settings| {
            settings.keys.command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        });
        shows(&refused.to_string(), &["keys.command: /bin/sh", wanted]);
    }
}

/// "Rotation is triggered on a schedule (rotation policy)" (seed 003); of the master key only where the settings say so.
#[test]
fn the_master_key_rotates_on_a_schedule() {
    const DAY: u64 = 24 * 3600;
    let mut sealed = Sealed::over(Rig::with(|settings| {
        settings.keys.rotate_every = Some(secs(90 * DAY));
    }));
    let mut keys = vec![sealed.named()];
    for _ in 0..2 {
        sealed.rig.advance(secs(89 * DAY));
        // A restart does not begin the span anew.
        sealed.rig.restart();
        sealed.check();
        sealed.all_under(keys.last().unwrap());
        sealed.rig.advance(secs(DAY));
        until("the database names another key", || !keys.contains(&sealed.named()));
        keys.push(sealed.named());
        sealed.all_under(keys.last().unwrap());
        sealed.check();
    }
    let rows = sealed.rig.get("/v1/audit-events?action=master_key.rotate");
    let changed =
        |row: &Value| (text(&row["changes"]["id"], "before"), text(&row["changes"]["id"], "after"));
    let [second, first] = [&rows["items"][0], &rows["items"][1]];
    assert_eq!(changed(first), (keys[0].clone(), keys[1].clone()));
    assert_eq!(changed(second), (keys[1].clone(), keys[2].clone()));
    assert_eq!(first["actor"]["type"], "system");
    // Older backups name the older keys, which are kept.
    for old in &keys[..2] {
        let kept = key_file::read(&key_file::retired(&sealed.key_path(), old)).unwrap();
        assert_eq!(kept.key_id(), *old);
    }
}

#[test]
fn a_scheduled_rotation_that_cannot_write_the_key_is_told_and_done_later() {
    let faults = Faults::at(Step::KeyFile, 1);
    let sealed = Sealed::over(Rig::with_faults(
        |settings| settings.keys.rotate_every = Some(secs(3600)),
        faults.clone(),
    ));
    let key = sealed.named();
    sealed.rig.advance(secs(3600));
    let told =
        "SELECT count(*) FROM escalations WHERE subject = 'master_key' AND resolved_at IS NULL";
    until("a person is told", || sealed.rig.one(told) == "1");
    assert!(faults.happened());
    sealed.all_under(&key);
    sealed.check();
    sealed.rig.advance(secs(600));
    until("it is done", || sealed.named() != key);
    sealed.all_under(&sealed.named());
    assert_eq!(sealed.rig.one(told), "0");
    sealed.check();
}

/// A rotation that a person began and the disk stopped is finished without a restart.
#[test]
fn a_rotation_that_stopped_half_way_goes_on_by_itself() {
    let mut stopped = 0;
    for nth in 1..40 {
        let faults = Faults::at(Step::Commit, nth);
        let Ok(rig) = Rig::try_with_faults(faults.clone()) else { continue };
        if faults.happened() {
            continue;
        }
        let Some(sealed) = set_up(rig, &faults) else { continue };
        let before = sealed.named();
        let answer = sealed.rig.post("/v1/keys/rotate", &Value::Null);
        if answer.status == 200 {
            // Which commit is the rotation's differs: other threads commit, too.
            if stopped > 0 {
                break;
            }
            continue;
        }
        let current = key_file::read(&sealed.key_path()).unwrap().key_id();
        sealed.rig.becomes("SELECT count(*) FROM claimed_effects", "0");
        if current == before {
            // The claim was refused, or the transaction of another thread met the failure.
            assert_eq!(sealed.named(), before);
            sealed.all_under(&before);
            continue;
        }
        until("the database names it", || sealed.named() == current);
        sealed.all_under(&current);
        sealed.check();
        stopped += 1;
    }
    assert!(stopped > 0, "no commit of a rotation failed");
}

#[test]
fn what_was_stored_after_a_rotation_under_the_key_before_opens_and_the_next_start_seals_it_anew() {
    let mut sealed = Sealed::new();
    let old =
        file::lines(&sealed.rig.file(), "SELECT id, hex(sealed), master_key_id FROM credentials");
    sealed.rig.post("/v1/keys/rotate", &Value::Null).is(200);
    let new = sealed.named();
    let conn = Connection::open(sealed.rig.data().join("oncebox.db")).unwrap();
    for row in old {
        let [id, bytes, key] = row.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let put = format!(
            "UPDATE credentials SET sealed = X'{bytes}', master_key_id = '{key}' WHERE id = '{id}'"
        );
        conn.run(&put);
        assert_ne!(key, new);
    }
    sealed.check();
    sealed.rig.restart();
    sealed.check();
    sealed.all_under(&new);
}

#[test]
fn a_rotation_that_fails_anywhere_leaves_everything_readable_and_is_finished_by_the_next() {
    for step in [Step::KeyFile, Step::Write, Step::Commit] {
        for nth in (1..40).step_by(passes()) {
            let faults = Faults::at(step, nth);
            let Ok(rig) = Rig::try_with_faults(faults.clone()) else { continue };
            if faults.happened() {
                continue;
            }
            let Some(mut sealed) = set_up(rig, &faults) else { continue };
            let answer = sealed.rig.post("/v1/keys/rotate", &Value::Null);
            if !faults.happened() {
                answer.is(200);
                break;
            }
            if answer.status != 200 {
                sealed.check();
            }
            sealed.rig.restart();
            sealed.check();
            let current = key_file::read(&sealed.key_path()).unwrap().key_id();
            sealed.all_under(&current);
            sealed.rig.post("/v1/keys/rotate", &Value::Null).is(200);
            sealed.check();
        }
    }
}

/// One damaged value keeps neither the service nor the other secrets.
#[test]
fn a_rotation_that_meets_a_damaged_secret_does_not_keep_the_service_from_starting() {
    let mut sealed = Sealed::over(Rig::with(|settings| {
        settings.keys.rotate_every = Some(secs(3600));
    }));
    let other = json!({ "kind": "bearer", "secret": "token-0" });
    let made = sealed.rig.post("/v1/subscriptions/erp/credentials", &other).is(201).json();
    let id = text(&made, "id");
    sealed.rig.post(&format!("/v1/credentials/{id}/revoke"), &json!({})).is(200);
    let conn = Connection::open(sealed.rig.data().join("oncebox.db")).unwrap();
    conn.run(&format!("UPDATE credentials SET sealed = zeroblob(64) WHERE id = '{id}'"));
    drop(conn);
    sealed.rig.advance(secs(3600));
    let told =
        "SELECT count(*) FROM escalations WHERE subject = 'master_key' AND resolved_at IS NULL";
    until("a person is told", || sealed.rig.one(told) == "1");
    sealed.check();
    sealed.rig.restart();
    sealed.check();
}

/// The box with its secrets, unless the planned failure hits the set-up.
fn set_up(rig: Rig, faults: &Faults) -> Option<Sealed> {
    let receiver = Receiver::new();
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } } });
    let provider = json!({ "name": "plain", "scheme": scheme, "pii": "allow", "secret": SHARED });
    let subscription = json!({ "name": "erp", "url": receiver.url() });
    let token = json!({ "name": "t", "role": "publish", "source_systems": ["shop"] });
    let mut made = Value::Null;
    for (path, body) in
        [("/v1/subscriptions", subscription), ("/v1/providers", provider), ("/v1/tokens", token)]
    {
        let answer = rig.post(path, &body);
        if faults.happened() {
            return None;
        }
        made = answer.is(201).json();
    }
    let token = text(&made, "token");
    Some(Sealed { rig, receiver, token })
}

#[test]
fn a_key_that_is_replaced_by_hand_is_turned_to_when_the_old_one_stands_beside_it() {
    let mut sealed = Sealed::new();
    let old = key_file::read(&sealed.key_path()).unwrap();
    let new = MasterKey::generate(&SystemDraw::new());
    sealed.rig.stop();
    key_file::write(&sealed.key_path(), &new).unwrap();
    shows(&sealed.rig.appliance_again().unwrap_err().to_string(), &[&old.key_id(), &new.key_id()]);
    key_file::write(&key_file::retired(&sealed.key_path(), &old.key_id()), &old).unwrap();
    sealed.rig.start_again();
    sealed.all_under(&new.key_id());
    sealed.check();
    let row = sealed.rig.get("/v1/audit-events?action=master_key.rotate")["items"][0].clone();
    assert_eq!(row["actor"]["type"], "system");
}

#[test]
fn tokens_of_a_file_from_before_the_pepper_was_kept_open_after_a_rotation() {
    let mut sealed = Sealed::new();
    let old = key_file::read(&sealed.key_path()).unwrap();
    sealed.rig.stop();
    // As it was then: tokens are hashed under what is derived from the master key, and nothing is kept.
    let hasher = hmac::Key::new(hmac::HMAC_SHA256, &old.derive("api tokens"));
    let conn = Connection::open(sealed.rig.data().join("oncebox.db")).unwrap();
    conn.execute("DELETE FROM meta WHERE key = 'token_pepper'", []).unwrap();
    for (name, token) in [("first admin token", &sealed.rig.token), ("publish", &sealed.token)] {
        let hash = hmac::sign(&hasher, token.as_bytes());
        let changed =
            conn.execute("UPDATE tokens SET hash = ?2 WHERE name = ?1", (name, hash.as_ref()));
        assert_eq!(changed.unwrap(), 1);
    }
    drop(conn);
    sealed.rig.start_again();
    sealed.check();
    sealed.rig.post("/v1/keys/rotate", &Value::Null).is(200);
    sealed.check();
    sealed.rig.restart();
    sealed.check();
}

#[test]
fn a_key_file_that_others_could_read_is_refused_with_what_mends_it() {
    use std::os::unix::fs::PermissionsExt;
    let mut sealed = Sealed::new();
    sealed.rig.stop();
    let mode = |mode| fs::set_permissions(sealed.key_path(), fs::Permissions::from_mode(mode));
    mode(0o640).unwrap();
    shows(&sealed.rig.appliance_again().unwrap_err().to_string(), &["chmod 600"]);
    mode(0o400).unwrap();
    sealed.rig.start_again();
    sealed.check();
}

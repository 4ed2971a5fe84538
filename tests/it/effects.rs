//! Effects outside the file: claimed by a committed row with the key of its request, done once, then finished.

use oncebox::backup::restore::{self, Plan};

use crate::it::restoring::plan;
use crate::rig::prelude::*;

const KEY: &str = "1f0c6d3e-8a51-4f7a-9b65-0a4cf5b7f9d2";

fn send(rig: &Rig, method: &str, path: &str, key: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {}", rig.token);
    let fields = [("Authorization", bearer.as_str()), ("Idempotency-Key", key)];
    rig.send(method, path, &fields, body.as_bytes())
}

/// The answers of four equal requests that are sent at once.
fn four(call: impl Fn() -> Answer + Sync) -> Vec<Answer> {
    thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(&call)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

/// One answer stands for all: the first, or the same again; or 409 while the first is under way.
#[track_caller]
fn all_are_one(answers: &[Answer], status: u16) -> Value {
    let done: Vec<&Answer> = answers.iter().filter(|answer| answer.status == status).collect();
    assert!(
        !done.is_empty() && answers.iter().all(|one| [status, 409].contains(&one.status)),
        "{answers:?}"
    );
    let fresh = done.iter().filter(|one| one.field("idempotency-replayed").is_none()).count();
    assert_eq!(fresh, 1, "{answers:?}");
    let first = done[0].json();
    assert!(done.iter().all(|one| one.json() == first), "{answers:?}");
    first
}

/// A box with a bearer token at a receiver that accepts nothing yet, and a vault that counts its runs.
struct Vault {
    rig: Rig,
    dir: TempDir,
    receiver: Receiver,
    credential: String,
}

impl Vault {
    /// `script` runs after the run was noted in the file `runs`.
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let script = format!("echo run >> {at}/runs; {}", script.replace("DIR", &at.to_string()));
        let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
        let rig = Rig::with(|settings| {
            settings.credentials.commands = [("vault".to_owned(), argv)].into_iter().collect();
        });
        let receiver = Receiver::new();
        rig.subscribe("erp", &receiver);
        let given = json!({ "kind": "bearer", "secret": "first" });
        let made = rig.post("/v1/subscriptions/erp/credentials", &given).is(201).json();
        let credential = text(&made, "id");
        Self { rig, dir, receiver, credential }
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.dir.path().join("runs")).unwrap_or_default().lines().count()
    }

    fn path(&self, verb: &str) -> String {
        format!("/v1/credentials/{}/{verb}", self.credential)
    }

    fn rotate(&self) -> Answer {
        self.rig.post(&self.path("rotate"), &json!({ "command": "vault" }))
    }
}

#[test]
fn a_rotation_that_is_refused_runs_no_command() {
    let vault = Vault::new("printf second");
    // The target accepts nothing, so the new one stays next.
    vault.receiver.decide(|_| Reply::status(503));
    vault.rotate().is(201);
    assert_eq!(vault.runs(), 1);
    for _ in 0..3 {
        vault.rotate().is(409).tells("is not over");
    }
    assert_eq!(vault.runs(), 1);
}

#[test]
fn four_rotations_of_a_credential_with_one_key_run_its_command_once() {
    let vault = Vault::new("printf second");
    let rotate = || send(&vault.rig, "POST", &vault.path("rotate"), KEY, r#"{"command":"vault"}"#);
    // The first answer comes after the verification. A repeat in between has the new version as it was stored.
    let answers = four(rotate);
    assert!(answers.iter().all(|one| matches!(one.status, 201 | 409)), "{answers:?}");
    let is_first = |one: &&Answer| one.status == 201 && one.field("idempotency-replayed").is_none();
    let made = answers.iter().find(is_first).unwrap().json();
    assert_eq!(made["state"], "active");
    assert_eq!(vault.runs(), 1);
    let again = rotate().is(201);
    assert_eq!(again.field("idempotency-replayed"), Some("true"));
    assert_eq!((again.json(), vault.runs()), (made, 1));
    assert_eq!(vault.rig.one("SELECT count(*) FROM audit_events WHERE action = 'credential.rotate' AND result = 'SUCCESS'"), "1");
}

#[test]
fn four_rotations_of_the_master_key_with_one_key_are_one() {
    let rig = Rig::new();
    let rotate = || send(&rig, "POST", "/v1/keys/rotate", KEY, "");
    let before = rig.one("SELECT value FROM meta WHERE key = 'master_key_id'");
    let done = all_are_one(&four(rotate), 200);
    let named = rig.one("SELECT value FROM meta WHERE key = 'master_key_id'");
    assert_eq!((text(&done, "from"), text(&done, "to")), (before, named));
    assert_eq!(rotate().is(200).json(), done);
    let kept = fs::read_dir(rig.data()).unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("master.key.")
    });
    assert_eq!(kept.count(), 1, "one key is retired");
    assert_eq!(rig.one("SELECT count(*) FROM audit_events WHERE action = 'master_key.rotate' AND result = 'SUCCESS'"), "1");
}

#[test]
fn four_runs_of_the_archive_with_one_key_are_one() {
    let rig = Rig::new();
    let run = || send(&rig, "POST", "/v1/archive/runs", KEY, r#"{"older_than":"30days"}"#);
    for answers in [four(run), four(run)] {
        assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    }
    assert_eq!(rig.one("SELECT count(*) FROM audit_events WHERE action = 'archive.run'"), "1");
    until("the run ends", || rig.get("/v1/archive")["run"]["since"].is_null());
}

#[test]
fn four_backups_with_one_key_are_one() {
    let rig = Rig::new();
    let back_up = || send(&rig, "POST", "/v1/backups", KEY, "");
    let made = all_are_one(&four(back_up), 201);
    assert_eq!(back_up().is(201).json(), made);
    assert_eq!(rig.items("/v1/backups").len(), 1);
}

/// Keeps a vault's command waiting until a file is there.
fn slow_vault() -> Vault {
    Vault::new("while [ ! -e DIR/go ]; do sleep 0.01; done; printf second")
}

#[test]
fn a_credential_is_not_changed_while_a_command_makes_its_next_version() {
    let vault = slow_vault();
    let (rig, go) = (&vault.rig, vault.dir.path().join("go"));
    thread::scope(|scope| {
        let rotation = scope.spawn(|| vault.rotate());
        until("the command runs", || vault.runs() == 1);
        let given = json!({ "kind": "bearer", "secret": "third" });
        rig.post("/v1/subscriptions/erp/credentials", &given).is(409).tells("at this moment");
        rig.post(&vault.path("revoke"), &json!({})).is(409).tells("at this moment");
        rig.post(&vault.path("rotate"), &json!({ "secret": "third" }))
            .is(409)
            .tells("at this moment");
        fs::write(&go, b"").unwrap();
        rotation.join().unwrap().is(201);
    });
    assert_eq!(vault.runs(), 1);
    rig.says("SELECT count(*) FROM claimed_effects", "0");
}

#[test]
fn a_command_that_fails_leaves_its_key_free_and_the_credential_as_it_was() {
    let vault = Vault::new("test -e DIR/go && printf second");
    let rotate = || send(&vault.rig, "POST", &vault.path("rotate"), KEY, r#"{"command":"vault"}"#);
    rotate().is(422).tells("failed");
    vault.rig.says("SELECT count(*) FROM claimed_effects", "0");
    fs::write(vault.dir.path().join("go"), b"").unwrap();
    rotate().is(201);
    assert_eq!(vault.runs(), 2);
}

#[test]
fn a_rotation_by_the_clock_that_is_refused_runs_no_command() {
    let vault = Vault::new("printf second");
    let plan = json!({ "every": "30d", "command": "vault" });
    vault.rig.post(&vault.path("schedule"), &plan).is(200);
    // A rotation that no request has begun stands in the way, as after a restore.
    let claim = format!(
        "INSERT INTO claimed_effects (kind, subject, tenant, terms, asked_by, claimed_at)
         VALUES ('credential.rotate', '{}', 'default', '{{\"command\":\"vault\"}}',
                 '{{\"kind\":\"system\",\"id\":\"\",\"display\":\"oncebox\",\"action\":\"credential.rotate\"}}', 1)",
        vault.credential
    );
    vault.rig.write(&claim);
    // Nobody works on it: it is ended, and a person is told. Only then the clock may begin another one.
    vault.rig.becomes("SELECT count(*) FROM claimed_effects", "0");
    vault
        .rig
        .says("SELECT count(*) FROM escalations WHERE class = 'credential.rotation_failed'", "1");
    let cut = "SELECT count(*) FROM audit_events WHERE action = 'credential.rotate' AND result = 'FAILURE'";
    vault.rig.says(cut, "1");
    assert_eq!(vault.runs(), 0);
    vault.rig.advance(secs(31 * 24 * 3600));
    until("it runs when it is due", || vault.runs() == 1);
}

#[test]
fn an_erasure_that_is_refused_notes_nothing() {
    let rig = Rig::new();
    rig.post("/v1/subjects/erase", &json!({ "subject": "anna" })).is(404);
    rig.says("SELECT count(*) FROM claimed_effects", "0");
}

/// A test sends its request once, however often it is asked for under one key.
#[test]
fn four_tests_of_a_subscription_with_one_key_send_one_request() {
    let (rig, receiver) = Rig::subscribed("erp");
    let test = || send(&rig, "POST", "/v1/subscriptions/erp/test", KEY, "{}");
    all_are_one(&four(test), 200);
    test().is(200);
    assert_eq!(receiver.count(), 1);
}

/// A backup has the claim of the request that makes it: a restored database knows nothing of it.
#[test]
fn a_restored_database_has_no_effect_that_was_under_way() {
    let mut rig = Rig::new();
    let made = rig.post("/v1/backups", &Value::Null).is(201).json();
    let copy = Connection::open(text(&made, "path")).unwrap();
    assert_eq!(file::lines(&copy, "SELECT kind FROM claimed_effects"), ["backup.make"]);
    drop(copy);
    rig.stop();
    let of_request = Plan { from: text(&made, "path").into(), ..plan(&rig) };
    restore::run(&of_request).unwrap();
    rig.start_again();
    rig.says("SELECT count(*) FROM claimed_effects", "0");
    rig.says(
        "SELECT count(*) FROM audit_events WHERE action = 'backup.make' AND result = 'FAILURE'",
        "0",
    );
}

#[test]
fn a_test_in_the_background_is_carried_out_once_under_its_key() {
    let rig = Rig::new();
    let receiver = Receiver::new();
    rig.subscribe("erp", &receiver);
    let path = "/v1/subscriptions/erp/test";
    let test = || send(&rig, "POST", path, KEY, r#"{"background":true}"#);
    let id = all_are_one(&four(test), 202);
    assert_eq!(test().is(202).json(), id);
    let shown = || rig.get(&format!("/v1/subscription-tests/{}", text(&id, "id")));
    until("the test has ended", || shown()["is_running"] == false);
    assert_eq!(shown()["result"]["ok"], true);
    assert_eq!(test().is(202).json(), id);
    assert_eq!(receiver.count(), 1, "one ping was sent");
    let tests = "SELECT count(*) FROM audit_events WHERE action = 'subscription.test'";
    rig.becomes("SELECT count(*) FROM claimed_effects", "0");
    rig.says(&format!("{tests} AND result = 'SUCCESS'"), "1");
    // Another request under the same key is refused.
    send(&rig, "POST", path, KEY, r#"{"background":true,"ping":true}"#).is(422);
}

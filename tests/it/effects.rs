//! Effects outside the file: claimed by a committed row with the key of its request, done once, then finished.

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
    let made = all_are_one(&four(rotate), 201);
    assert_eq!(vault.runs(), 1);
    let again = rotate().is(201);
    assert_eq!(again.field("idempotency-replayed"), Some("true"));
    assert_eq!((again.json()["id"].clone(), vault.runs()), (made["id"].clone(), 1));
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
    let make = || send(&rig, "POST", "/v1/backups", KEY, "");
    let made = all_are_one(&four(make), 201);
    assert_eq!(make().is(201).json(), made);
    assert_eq!(rig.items("/v1/backups").len(), 1);
}

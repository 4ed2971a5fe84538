//! Credentials are rotated under traffic: nothing is lost, nothing is refused.
//!
//! The receivers check each request with code of their own. `ONCEBOX_ROTATIONS` says how often each is rotated.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ring::signature;

use crate::it::credentials_tls::{authority, issued, site};
use crate::rig::prelude::*;
use crate::rig::process::number;

fn rounds() -> usize {
    usize::try_from(number("ONCEBOX_ROTATIONS", 3)).unwrap()
}

/// What a receiver accepts at this moment; anything else gets 401.
#[derive(Clone, Default)]
struct Accepted(Arc<Mutex<BTreeSet<String>>>);

impl Accepted {
    fn set(&self, all: &[&str]) {
        *self.0.lock().unwrap() = all.iter().map(|one| (*one).to_owned()).collect();
    }

    fn add(&self, one: &str) {
        self.0.lock().unwrap().insert(one.to_owned());
    }
}

/// What a receiver has seen.
#[derive(Clone, Default)]
struct Seen {
    events: Arc<Mutex<BTreeSet<String>>>,
    refused: Arc<Mutex<Vec<String>>>,
}

/// Accepts a request that any of the accepted credentials passes.
fn checking(
    receiver: &Receiver,
    accepted: &Accepted,
    passes: impl Fn(&Message, &str) -> bool + Send + 'static,
) -> Seen {
    let (accepted, seen) = (accepted.clone(), Seen::default());
    let noted = seen.clone();
    receiver.decide(move |request| {
        let all = accepted.0.lock().unwrap().clone();
        let is_ping = String::from_utf8_lossy(&request.body).contains("oncebox.ping");
        if all.iter().any(|one| passes(request, one)) {
            if !is_ping {
                let id = request.field("x-idempotency-key").unwrap().to_owned();
                noted.events.lock().unwrap().insert(id);
            }
            return Reply::status(204);
        }
        if !is_ping {
            noted.refused.lock().unwrap().push(format!("{:?}", request.fields));
        }
        Reply::status(401)
    });
    seen
}

/// Standard Webhooks v1 and v1a, with ring alone.
fn is_signed(request: &Message, with: &str) -> bool {
    let Some(public) = with.strip_prefix("whpk_") else { return request.is_signed(with) };
    let field = |name| request.field(name).unwrap();
    let signed = [field("webhook-id"), ".", field("webhook-timestamp"), "."].concat();
    let signed = [signed.as_bytes(), &request.body].concat();
    let key = BASE64.decode(public.as_bytes()).unwrap();
    let key = signature::UnparsedPublicKey::new(&signature::ED25519, key);
    let mut own = field("webhook-signature").split(' ').filter_map(|one| one.strip_prefix("v1a,"));
    own.any(|text| key.verify(&signed, &BASE64.decode(text.as_bytes()).unwrap()).is_ok())
}

/// The credential of a subscription that is in a state.
fn credential(rig: &Rig, kind: &str, state: &str) -> Value {
    let found = rig.get(&format!("/v1/credentials?subscription=erp&state={state}"));
    let found = found["items"].as_array().unwrap().iter().find(|one| one["kind"] == kind).cloned();
    found.unwrap_or(Value::Null)
}

fn rotate(rig: &Rig, id: &Value, body: &Value) -> Value {
    rig.post(&format!("/v1/credentials/{}/rotate", id.as_str().unwrap()), body).is(201).json()
}

/// Publishes events until it is told to stop; returns how many.
fn traffic<T>(rig: &Rig, during: impl FnOnce() -> T) -> (usize, T) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::SeqCst) {
                rig.publish(
                    &json!({ "event_type": "a", "idempotency_key": format!("e-{count}"), "payload": {} }),
                );
                count += 1;
                thread::sleep(Duration::from_millis(10));
            }
            count
        });
        // Also when it fails, or the test would wait for ever.
        let done = catch_unwind(AssertUnwindSafe(during));
        stop.store(true, Ordering::SeqCst);
        (publisher.join().unwrap(), done.unwrap_or_else(|failed| resume_unwind(failed)))
    })
}

fn nothing_is_lost_or_refused(rig: &Rig, seen: &Seen, published: usize) {
    rig.settle();
    let refused = seen.refused.lock().unwrap().clone();
    assert!(refused.is_empty(), "{} refused, like {}", refused.len(), refused[0]);
    assert_eq!(seen.events.lock().unwrap().len(), published);
    assert_eq!(rig.one("SELECT count(*) FROM attempts WHERE class <> 'success'"), "0");
    assert_eq!(rig.one("SELECT count(*) FROM escalations"), "0");
    assert_eq!(rig.one("SELECT count(*) FROM credentials WHERE state = 'next'"), "0");
}

#[test]
fn signing_secrets_are_rotated_again_and_again_under_traffic() {
    what_signs_is_rotated("signing");
}

#[test]
fn signing_key_pairs_are_rotated_again_and_again_under_traffic() {
    what_signs_is_rotated("signing_ed25519");
}

fn what_signs_is_rotated(kind: &str) {
    let rig = Rig::new();
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let seen = checking(&receiver, &accepted, is_signed);
    rig.subscribe("erp", &receiver);
    let set = json!({ "kind": kind });
    let made = rig.post("/v1/subscriptions/erp/credentials", &set).is(201).json();
    let known = |made: &Value| match kind {
        "signing" => text(made, "secret"),
        _ => text(&made["settings"], "public_key"),
    };
    accepted.set(&[&known(&made)]);
    let (published, ()) = traffic(&rig, || {
        for n in 0..rounds() {
            let old = credential(&rig, kind, "active");
            let next = rotate(&rig, &old["id"], &json!({ "overlap": "1h" }));
            assert_eq!(next["state"], "next");
            until("a ping signed with it alone is refused", || {
                credential(&rig, kind, "next")["verify_error"] == "the target answered 401"
            });
            // The receiver learns the new one and forgets the old one in the same moment.
            accepted.set(&[&known(&next)]);
            rig.advance(secs(60));
            until("it is promoted", || credential(&rig, kind, "active")["id"] == next["id"]);
            assert_eq!(credential(&rig, kind, "retiring")["id"], old["id"], "rotation {n}");
            rig.advance(secs(3600));
            until("the old one ends", || credential(&rig, kind, "retiring").is_null());
        }
    });
    nothing_is_lost_or_refused(&rig, &seen, published);
    let revoked = rig.one("SELECT count(*) FROM credentials WHERE state = 'revoked'");
    assert_eq!(revoked, (rounds() + 1).to_string());
}

/// The open escalation of a class; null if there is none.
fn open_escalation(rig: &Rig, class: &str) -> Value {
    let open = rig.get("/v1/escalations");
    let found = open["items"].as_array().unwrap().iter().find(|one| one["class"] == class).cloned();
    found.unwrap_or(Value::Null)
}

fn schedule(rig: &Rig, made: &Value, body: &Value) -> Answer {
    rig.post(&format!("/v1/credentials/{}/schedule", made["id"].as_str().unwrap()), body)
}

fn reveal(rig: &Rig, of: &Value) -> Answer {
    rig.post(&format!("/v1/credentials/{}/reveal", of["id"].as_str().unwrap()), &json!({}))
}

/// "Rotation is triggered on a schedule (rotation policy)"; "The prior secret version stays active until the new version
/// passes verification" (seed 003).
#[test]
fn a_signing_secret_rotates_on_a_schedule_without_a_command() {
    let rig = Rig::new();
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let seen = checking(&receiver, &accepted, is_signed);
    rig.subscribe("erp", &receiver);
    let set = json!({ "kind": "signing" });
    let made = rig.post("/v1/subscriptions/erp/credentials", &set).is(201).json();
    accepted.set(&[&text(&made, "secret")]);
    schedule(&rig, &made, &json!({ "every": "30d" })).is(200);
    reveal(&rig, &made).is(409).tells("Only a signing secret that is next is shown");
    let mut published = 0;
    for n in 0..2 {
        let old = credential(&rig, "signing", "active");
        rig.advance(secs(32 * 24 * 3600));
        until("the next one is made", || !credential(&rig, "signing", "next").is_null());
        let next = credential(&rig, "signing", "next");
        let told = open_escalation(&rig, "credential.new_secret");
        let id = text(&next, "id");
        shows(&told["detail"].to_string(), &["subscription:erp", "oncebox credential reveal", &id]);
        // Both sign meanwhile; the receiver, which knows the old one alone, refuses nothing.
        rig.publish(
            &json!({ "event_type": "a", "idempotency_key": format!("k-{n}"), "payload": {} }),
        );
        published += 1;
        rig.settle();
        // It is not tried before somebody has seen it: a target that accepts all pings would make it the active one.
        rig.advance(secs(3600));
        assert!(credential(&rig, "signing", "next")["verify_error"].is_null());
        let secret = text(&reveal(&rig, &next).is(200).json(), "secret");
        assert_eq!(reveal(&rig, &next).is(200).json()["secret"], secret, "as long as it is next");
        until("a ping signed with it alone is refused", || {
            credential(&rig, "signing", "next")["verify_error"] == "the target answered 401"
        });
        // The plan is changed meanwhile.
        schedule(&rig, &old, &json!({ "every": format!("{}d", 31 + n) })).is(200);
        accepted.set(&[&secret]);
        rig.advance(secs(24 * 3600));
        until("it is promoted", || credential(&rig, "signing", "active")["id"] == next["id"]);
        assert_eq!(credential(&rig, "signing", "retiring")["id"], old["id"]);
        reveal(&rig, &next).is(409);
        until("the escalation ends", || open_escalation(&rig, "credential.new_secret").is_null());
        assert_eq!(
            credential(&rig, "signing", "active")["rotate_every"],
            format!("{}d", 31 + n),
            "the plan goes on"
        );
        let audited = rig.get("/v1/audit-events?action=credential.reveal").to_string();
        assert!(audited.contains(&id) && !audited.contains(&secret));
    }
    assert_eq!(*seen.refused.lock().unwrap(), [""; 0]);
    assert_eq!(seen.events.lock().unwrap().len(), published);
}

#[test]
fn a_scheduled_secret_that_nobody_takes_is_revoked_and_the_old_one_stays() {
    let rig = Rig::new();
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let _seen = checking(&receiver, &accepted, is_signed);
    rig.subscribe("erp", &receiver);
    let set = json!({ "kind": "signing_ed25519" });
    let made = rig.post("/v1/subscriptions/erp/credentials", &set).is(201).json();
    accepted.set(&[&text(&made["settings"], "public_key")]);
    schedule(&rig, &made, &json!({ "every": "4h" })).is(200);
    rig.advance(secs(4 * 3600 + 1));
    until("the next one is made", || !credential(&rig, "signing_ed25519", "next").is_null());
    let next = credential(&rig, "signing_ed25519", "next");
    let told = open_escalation(&rig, "credential.new_secret");
    // A receiver needs the public key alone, which is no secret.
    shows(
        &told["detail"].to_string(),
        &["subscription:erp", &text(&next["settings"], "public_key")],
    );
    reveal(&rig, &next).is(409);
    // Half of the span is over.
    until("it was tried", || {
        !credential(&rig, "signing_ed25519", "next")["verify_error"].is_null()
    });
    rig.advance(secs(2 * 3600));
    until("it is revoked", || credential(&rig, "signing_ed25519", "next").is_null());
    until("one escalation takes the place of the other", || {
        open_escalation(&rig, "credential.new_secret").is_null()
            && !open_escalation(&rig, "credential.rotation_failed").is_null()
    });
    assert_eq!(credential(&rig, "signing_ed25519", "active")["id"], made["id"]);
}

/// A target that accepts every ping proves nothing about a secret that nobody has seen.
#[test]
fn a_scheduled_secret_that_nobody_has_seen_does_not_become_the_active_one() {
    let (rig, receiver) = Rig::subscribed("erp");
    let old = credential(&rig, "signing", "active");
    schedule(&rig, &old, &json!({ "every": "4h" })).is(200);
    rig.advance(secs(4 * 3600 + 1));
    until("the next one is made", || !credential(&rig, "signing", "next").is_null());
    rig.advance(secs(2 * 3600 + 1));
    until("it is revoked", || credential(&rig, "signing", "next").is_null());
    let failed = open_escalation(&rig, "credential.rotation_failed");
    shows(&failed["detail"].to_string(), &["nobody asked for it", "credential reveal"]);
    assert_eq!((&credential(&rig, "signing", "active")["id"], receiver.count()), (&old["id"], 0));
}

#[test]
fn what_logs_on_needs_a_command_to_rotate_on_a_schedule() {
    let rig = Rig::new();
    rig.subscribe("erp", &Receiver::new());
    let set = json!({ "kind": "bearer", "secret": "token-0" });
    let made = rig.post("/v1/subscriptions/erp/credentials", &set).is(201).json();
    let plan = json!({ "every": "30d" });
    schedule(&rig, &made, &plan).is(422).tells("needs a command that gives the new secret");
    reveal(&rig, &made).is(409);
}

/// "`RotateCredential (credentialId, reason)`" (seed 003) also takes the new value.
#[test]
fn the_seeds_path_takes_a_new_value_of_every_kind() {
    let rig = Rig::new();
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let carries = |request: &Message, secret: &str| {
        let basic = format!("Basic {}", BASE64.encode(format!("erp:{secret}").as_bytes()));
        let fields = [request.field("authorization"), request.field("x-api-key")];
        let known = [format!("Bearer {secret}"), basic, secret.to_owned()];
        fields.iter().flatten().any(|field| known.iter().any(|one| one == field))
    };
    checking(&receiver, &accepted, carries);
    rig.subscribe("erp", &receiver);
    let path = "/integrations/credentials/rotate";
    for set in [
        json!({ "kind": "bearer", "secret": "value-0" }),
        json!({ "kind": "basic", "user": "erp", "secret": "value-0" }),
        json!({ "kind": "api_key", "header": "x-api-key", "secret": "value-0" }),
    ] {
        let kind = text(&set, "kind");
        let made = rig.post("/v1/subscriptions/erp/credentials", &set).is(201).json();
        let named = |secret: &str| json!({ "credential_id": made["id"], "reason": "lost", "secret": secret });
        // Not accepted: the old one stays.
        accepted.set(&["value-0"]);
        assert_eq!(rig.post(path, &named("value-1")).is(201).json()["state"], "revoked", "{kind}");
        assert_eq!(credential(&rig, &kind, "active")["id"], made["id"], "{kind}");
        // Accepted: verified before it is promoted.
        accepted.set(&["value-1"]);
        let next = rig.post(path, &named("value-1")).is(201).json();
        assert_eq!(next["state"], "active", "{kind}");
        assert_eq!(credential(&rig, &kind, "active")["id"], next["id"], "{kind}");
    }
    rig.post(
        path,
        &json!({ "credential_id": rig.get("/v1/credentials")["items"][0]["id"], "secrets": "x" }),
    )
    .is(400)
    .tells("secrets");
    let audited = rig.get("/v1/audit-events?action=credential.rotate_named").to_string();
    assert!(audited.contains("lost") && !audited.contains("value-1"));
}

/// Rotates a login ten times; `secret` makes the n-th, and a request passes with the one it names.
fn logins_are_rotated(
    set: &Value,
    secret: fn(usize) -> String,
    passes: fn(&Message, &str) -> bool,
) {
    let rig = Rig::new();
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let seen = checking(&receiver, &accepted, passes);
    rig.subscribe("erp", &receiver);
    let mut set = set.clone();
    set["secret"] = json!(secret(0));
    accepted.set(&[&secret(0)]);
    rig.post("/v1/subscriptions/erp/credentials", &set).is(201);
    let kind = set["kind"].as_str().unwrap();
    let (published, ()) = traffic(&rig, || {
        for n in 1..=rounds() {
            let old = credential(&rig, kind, "active");
            // A wrong one changes nothing but that a person is told.
            let kept = rotate(&rig, &old["id"], &json!({ "secret": "wrong" }));
            has(&kept, &json!({ "state": "revoked", "verify_error": "the target answered 401" }));
            assert_eq!(credential(&rig, kind, "active")["id"], old["id"]);
            accepted.add(&secret(n));
            let next = rotate(&rig, &old["id"], &json!({ "secret": secret(n) }));
            assert_eq!(next["state"], "active", "{next}");
            rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'pending'", "0");
            accepted.set(&[&secret(n)]);
        }
    });
    rig.settle();
    assert!(seen.refused.lock().unwrap().is_empty());
    assert_eq!(seen.events.lock().unwrap().len(), published);
    assert_eq!(rig.one("SELECT count(*) FROM attempts WHERE class <> 'success'"), "0");
    let told = "SELECT count(*) FROM escalations WHERE class = 'credential.rotation_failed'";
    assert_eq!(rig.one(told), rounds().to_string());
    assert_eq!(rig.one(&format!("{told} AND resolved_at IS NULL")), "0");
}

#[test]
fn bearer_tokens_are_rotated_again_and_again_under_traffic() {
    logins_are_rotated(
        &json!({ "kind": "bearer" }),
        |n| format!("token-{n}"),
        |request, token| request.field("authorization") == Some(&format!("Bearer {token}")),
    );
}

#[test]
fn passwords_are_rotated_again_and_again_under_traffic() {
    logins_are_rotated(
        &json!({ "kind": "basic", "user": "erp" }),
        |n| format!("password {n}"),
        |request, password| {
            let expected = BASE64.encode(format!("erp:{password}").as_bytes());
            request.field("authorization") == Some(&format!("Basic {expected}"))
        },
    );
}

#[test]
fn api_keys_are_rotated_again_and_again_under_traffic() {
    logins_are_rotated(
        &json!({ "kind": "api_key", "header": "X-API-Key" }),
        |n| format!("key-{n}"),
        |request, key| request.field("x-api-key") == Some(key),
    );
}

#[test]
fn a_signing_secret_that_is_not_accepted_is_revoked_at_the_end_of_the_overlap() {
    let rig = Rig::new();
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let seen = checking(&receiver, &accepted, is_signed);
    let watching = Receiver::new();
    rig.subscribe_with(
        "watch",
        &watching,
        &json!({ "event_types": ["credential.rotation_failed"] }),
    );
    let secret = rig.subscribe_with("erp", &receiver, &json!({ "event_types": ["a"] }));
    accepted.set(&[&secret]);
    let old = credential(&rig, "signing", "active");
    let next = rotate(&rig, &old["id"], &json!({ "overlap": "2h" }));
    let again =
        rig.post(&format!("/v1/credentials/{}/rotate", old["id"].as_str().unwrap()), &json!({}));
    again.is(409).tells(next["id"].as_str().unwrap());
    for _ in 0..12 {
        rig.advance(secs(600));
        rig.deliver("a");
    }
    until("it is revoked", || credential(&rig, "signing", "next").is_null());
    assert_eq!(credential(&rig, "signing", "active")["id"], old["id"]);
    let open = rig.get("/v1/escalations")["items"][0].clone();
    assert_eq!(open["class"], "credential.rotation_failed");
    assert!(open["detail"].as_str().unwrap().contains("401"), "{open}");
    until("the event came", || watching.count() == 1);
    let event = watching.json(0);
    assert_eq!((&event["credential_id"], &event["kind"]), (&next["id"], &json!("signing")));
    assert!(seen.refused.lock().unwrap().is_empty());
    let audited = rig.get("/v1/audit-events?action=credential.rotation_failed");
    assert_eq!(audited["items"][0]["resource"]["id"], next["id"]);
}

#[test]
fn a_rotation_goes_on_after_a_restart_and_its_event_is_sent() {
    let mut rig = Rig::new();
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let seen = checking(&receiver, &accepted, is_signed);
    let watching = Receiver::new();
    rig.subscribe_with("watch", &watching, &json!({ "event_types": ["credential.rotated"] }));
    let secret = rig.subscribe_with("erp", &receiver, &json!({ "event_types": ["a"] }));
    accepted.set(&[&secret]);
    let old = credential(&rig, "signing", "active");
    let body = json!({ "credential_id": old["id"], "reason": "every quarter" });
    let next = rig.post("/integrations/credentials/rotate", &body).is(201).json();
    rig.restart();
    accepted.set(&[next["secret"].as_str().unwrap()]);
    rig.deliver("a");
    rig.advance(secs(3600));
    until("it is promoted", || credential(&rig, "signing", "active")["id"] == next["id"]);
    rig.restart();
    until("the event came", || watching.count() == 1);
    let event = watching.json(0);
    assert_eq!((&event["owner"], &event["version"]), (&json!("subscription:erp"), &json!(2)));
    rig.advance(secs(24 * 3600));
    until("the old one ends", || credential(&rig, "signing", "retiring").is_null());
    assert!(seen.refused.lock().unwrap().is_empty());
}

#[test]
fn a_providers_old_secret_is_accepted_until_the_window_ends() {
    let rig = Rig::new();
    let secrets = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
    let scheme = json!({ "kind": "generic", "check": { "token": { "header": "X-Token" } },
                         "event_type": { "constant": "a" } });
    rig.provider("shop", &scheme, secrets[0]);
    let old = rig.get("/v1/credentials?provider=shop")["items"][0].clone();
    let path = format!("/v1/credentials/{}/rotate", old["id"].as_str().unwrap());
    rig.post(&path, &json!({})).is(422);
    let body = json!({ "secret": secrets[1], "overlap": "1h" });
    let new = rig.post(&path, &body).is(201).json();
    assert_eq!((&new["state"], &new["secret"]), (&json!("active"), &Value::Null));
    let status = |secret: &str, id: u32| {
        let body = json!({ "id": id.to_string() }).to_string();
        rig.send("POST", "/in/shop", &[("X-Token", secret)], body.as_bytes()).status
    };
    assert_eq!((status(secrets[0], 1), status(secrets[1], 2)), (200, 200));
    rig.advance(secs(3600));
    assert_eq!(status(secrets[0], 3), 401, "at once, even before upkeep looks");
    assert_eq!(status(secrets[1], 4), 200);
    rig.becomes("SELECT state FROM credentials ORDER BY seq LIMIT 1", "revoked");
}

#[test]
fn a_tenant_whose_targets_hang_does_not_delay_the_rotations_of_others() {
    let (rig, hanging, receiver) = (Rig::new(), Receiver::new(), Receiver::new());
    hanging.always(Reply::status(500));
    let begin = |token: &str, name: &str, url: &str| {
        let post = |path: &str, body: &Value| rig.post_as(token, path, body).is(201);
        let body = json!({ "name": name, "url": url, "policy": { "timeout": "30s" } });
        post("/v1/subscriptions", &body);
        let path = format!("/v1/credentials?subscription={name}");
        let old = rig.call_as(token, "GET", &path, b"").json()["items"][0]["id"].clone();
        post(&format!("/v1/credentials/{}/rotate", old.as_str().unwrap()), &json!({}));
    };
    // More than one look of upkeep takes.
    let slow = rig.tenant("slow");
    (0..25).for_each(|n| begin(&slow, &format!("s-{n}"), &hanging.url()));
    rig.becomes("SELECT count(*) FROM credentials WHERE verify_error IS NOT NULL", "25");
    let before = hanging.count();
    hanging.always(Reply::Hang);
    rig.advance(secs(900));
    until("one is under way", || hanging.count() > before);
    begin(&rig.tenant("quick"), "erp", &receiver.url());
    rig.becomes(
        "SELECT count(*) FROM credentials WHERE tenant = 'quick' AND state = 'retiring'",
        "1",
    );
    assert_eq!(hanging.count(), before + 1, "one of a tenant at a time");
    hanging.release();
}

#[test]
fn a_command_that_writes_more_than_a_secret_may_have_is_refused() {
    let script = "head -c 65537 /dev/zero | tr '\\0' x";
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let rig = Rig::with(|settings| {
        settings.credentials.commands = [("vault".to_owned(), argv)].into_iter().collect();
    });
    rig.subscribe("erp", &Receiver::new());
    let set = json!({ "kind": "bearer", "secret": "token-0" });
    let made = rig.post("/v1/subscriptions/erp/credentials", &set).is(201).json();
    let path = format!("/v1/credentials/{}/rotate", made["id"].as_str().unwrap());
    rig.post(&path, &json!({ "command": "vault" })).is(422).tells("more than 65536 bytes");
    assert_eq!(rig.one("SELECT count(*) FROM credentials WHERE kind = 'bearer'"), "1");
}

#[test]
fn a_command_of_the_settings_gives_the_next_secret_once_per_hold() {
    let rig_with = |script: &Path| {
        let argv = vec!["/bin/sh".to_owned(), script.display().to_string()];
        Rig::with(|settings| {
            settings.credentials.commands = [("vault".to_owned(), argv)].into_iter().collect();
        })
    };
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("new-token.sh");
    fs::write(&script, "echo run >> \"$0.runs\"\ncat \"$0.next\"\n").unwrap();
    let runs = || {
        fs::read_to_string(home.path().join("new-token.sh.runs"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    let next = |token: &str| fs::write(home.path().join("new-token.sh.next"), token).unwrap();
    let rig = rig_with(&script);
    let (receiver, accepted) = (Receiver::new(), Accepted::default());
    let bearer = |request: &Message, token: &str| {
        request.field("authorization") == Some(&format!("Bearer {token}"))
    };
    checking(&receiver, &accepted, bearer);
    rig.subscribe("erp", &receiver);
    let set = json!({ "kind": "bearer", "secret": "token-0" });
    let made = rig.post("/v1/subscriptions/erp/credentials", &set).is(201).json();
    let path = format!("/v1/credentials/{}/schedule", made["id"].as_str().unwrap());
    rig.post(&path, &json!({ "command": "unknown" })).is(422);
    rig.post(&path, &json!({ "every": "30d", "command": "vault" })).is(200);
    // The target refuses the token: the command runs once, and what it gives works.
    accepted.set(&["token-1"]);
    next("token-1\n");
    rig.advance(secs(60));
    rig.publish_type("a");
    rig.becomes("SELECT count(*) FROM credentials WHERE kind = 'bearer'", "2");
    until("the hold ends", || rig.one("SELECT count(*) FROM holds") == "0");
    rig.pass(secs(60));
    assert_eq!(rig.one("SELECT state FROM deliveries"), "completed");
    assert_eq!(runs(), 1);
    // Refused again, and the command has nothing better: once for this hold, and a person is told.
    accepted.set(&["token-9"]);
    rig.advance(secs(60));
    rig.publish_type("a");
    until("a person is told", || {
        let told = "SELECT count(*) FROM escalations WHERE class = 'credential.rotation_failed'";
        rig.one(told) == "1"
    });
    for _ in 0..5 {
        rig.advance(secs(600));
        thread::sleep(Duration::from_millis(1100));
    }
    assert_eq!(runs(), 2);
    // By the clock.
    accepted.set(&["token-1", "token-2"]);
    next("token-2");
    let active = credential(&rig, "bearer", "active");
    assert_eq!(
        active["rotate_command"], "vault",
        "the plan goes on with the next version: {active}"
    );
    rig.advance(secs(30 * 24 * 3600));
    until("it is rotated by the clock", || {
        credential(&rig, "bearer", "active")["id"] != active["id"]
    });
    assert_eq!(runs(), 3);
}

#[test]
fn commands_on_a_refused_credential_have_a_limit_of_their_own_which_the_hold_says() {
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("new-token.sh");
    fs::write(&script, "echo run >> \"$0.runs\"\necho token-1\n").unwrap();
    let runs = || {
        let runs = fs::read_to_string(home.path().join("new-token.sh.runs"));
        runs.unwrap_or_default().lines().count()
    };
    let argv = vec!["/bin/sh".to_owned(), script.display().to_string()];
    let rig = Rig::with(|settings| {
        settings.credentials.commands = [("vault".to_owned(), argv)].into_iter().collect();
        settings.credentials.auth_commands_per_day_max = 1;
    });
    let receiver = Receiver::new();
    receiver.always(Reply::status(401));
    rig.subscribe("erp", &receiver);
    let set = |secret: &str| {
        let body = json!({ "kind": "bearer", "secret": secret });
        let made = rig.post("/v1/subscriptions/erp/credentials", &body).is(201).json();
        let path = format!("/v1/credentials/{}/schedule", made["id"].as_str().unwrap());
        rig.post(&path, &json!({ "command": "vault" })).is(200);
    };
    // What a person sets does not count.
    (0..4).for_each(|n| set(&format!("token-{n}")));
    rig.advance(secs(60));
    rig.publish_type("a");
    until("the command has run", || runs() == 1);
    until("its failure is told", || {
        rig.one("SELECT count(*) FROM escalations WHERE class = 'credential.rotation_failed'")
            == "1"
    });
    let detail = || rig.get("/v1/subscriptions/erp")["holds"][0]["detail"].to_string();
    shows(&detail(), &["401", "on 2026-01-31 its command ran 1 times, 1 at most"]);
    // Another hold on the same day runs no command; one on the next day does.
    for (hours, ran) in [(1, 1), (24, 2)] {
        rig.call("POST", "/v1/subscriptions/erp/resume", b"").is(200);
        rig.advance(secs(hours * 3600));
        until("it is held again", || rig.one("SELECT count(*) FROM holds") == "1");
        rig.pass(secs(60));
        thread::sleep(Duration::from_millis(2200));
        assert_eq!(runs(), ran);
    }
    shows(&detail(), &["on 2026-02-01"]);
}

#[test]
fn oauth2_secrets_are_rotated_again_and_again_under_traffic() {
    let rig = Rig::new();
    let (receiver, endpoint, accepted) = (Receiver::new(), Receiver::new(), Accepted::default());
    // A token names the secret that it was given for; it ends when the secret does.
    let seen = checking(&receiver, &accepted, |request, secret| {
        request.field("authorization") == Some(&format!("Bearer token-of-{secret}"))
    });
    let secrets = accepted.clone();
    endpoint.decide(move |request| {
        let given = request.field("authorization").unwrap().strip_prefix("Basic ").unwrap();
        let given = String::from_utf8(BASE64.decode(given.as_bytes()).unwrap()).unwrap();
        let secret = given.strip_prefix("oncebox:").unwrap().replace("%2D", "-");
        if secrets.0.lock().unwrap().contains(&secret) {
            let body = json!({ "access_token": format!("token-of-{secret}"), "expires_in": 3600 });
            return Reply::Answer(200, Vec::new(), body.to_string().into_bytes());
        }
        Reply::Answer(401, Vec::new(), br#"{"error":"invalid_client"}"#.to_vec())
    });
    rig.subscribe("erp", &receiver);
    accepted.set(&["secret-0"]);
    let set = json!({ "kind": "oauth2", "token_url": endpoint.url(), "client_id": "oncebox", "secret": "secret-0" });
    rig.post("/v1/subscriptions/erp/credentials", &set).is(201);
    let (published, ()) = traffic(&rig, || {
        for n in 1..=rounds() {
            let old = credential(&rig, "oauth2", "active");
            let kept = rotate(&rig, &old["id"], &json!({ "secret": "wrong" }));
            assert_eq!(kept["state"], "revoked", "{kept}");
            assert!(kept["verify_error"].as_str().unwrap().contains("invalid_client"), "{kept}");
            accepted.add(&format!("secret-{n}"));
            let next = rotate(&rig, &old["id"], &json!({ "secret": format!("secret-{n}") }));
            assert_eq!(next["state"], "active", "{next}");
            rig.becomes("SELECT count(*) FROM deliveries WHERE state = 'pending'", "0");
            accepted.set(&[&format!("secret-{n}")]);
        }
    });
    rig.settle();
    assert!(seen.refused.lock().unwrap().is_empty());
    assert_eq!(seen.events.lock().unwrap().len(), published);
    assert_eq!(rig.one("SELECT count(*) FROM attempts WHERE class <> 'success'"), "0");
    let test = rig.call("POST", "/v1/subscriptions/erp/test", b"").is(200).json();
    let step = &test["steps"].as_array().unwrap()[1];
    assert_eq!(step["detail"], "signature, OAuth2 token", "{test}");
}

#[test]
fn client_certificates_are_rotated_again_and_again_under_traffic() {
    let (clients, others) = (authority("clients"), authority("others"));
    let (rig, server, _home) = site(&clients);
    let set = json!({ "kind": "client_certificate", "secret": issued(&clients, 2090) });
    rig.post("/v1/subscriptions/erp/credentials", &set).is(201);
    let (published, ()) = traffic(&rig, || {
        for n in 1..=rounds() {
            let until_year = 2090 + i32::try_from(n).unwrap();
            let old = credential(&rig, "client_certificate", "active");
            let refused = json!({ "secret": issued(&others, 2090), "overlap": "1h" });
            let next = rotate(&rig, &old["id"], &refused);
            assert_eq!(next["state"], "next", "TLS may fail for another reason: {next}");
            rig.post(
                &format!("/v1/credentials/{}/revoke", next["id"].as_str().unwrap()),
                &json!({}),
            )
            .is(200);
            let next = rotate(&rig, &old["id"], &json!({ "secret": issued(&clients, until_year) }));
            assert_eq!(next["state"], "active", "{next}");
            assert_eq!(next["valid_until"], format!("{until_year}-01-01T00:00:00.000Z"));
            until("it is used", || {
                server.seen().pop().unwrap().0 == next["settings"]["fingerprint"]
            });
        }
    });
    rig.settle();
    assert_eq!(rig.one("SELECT count(*) FROM attempts WHERE class <> 'success'"), "0");
    assert_eq!(
        rig.one("SELECT count(*) FROM deliveries WHERE state = 'completed'"),
        published.to_string()
    );
}

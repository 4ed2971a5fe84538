//! A captured request that is sent again under another id: where the signature does not cover the id, the same signed
//! bytes count once within the provider's window.

use crate::rig::prelude::*;

const SECRET: &str = "a-shared-secret-of-32-characters";
const DAY: Duration = Duration::from_hours(24);
const GITHUB: &str = "x-github-delivery";

/// A request as somebody captured it: signed header fields, and the field of the id, which is not signed.
struct Captured {
    fields: Vec<(&'static str, String)>,
    id: &'static str,
    body: Vec<u8>,
}

impl Captured {
    /// Posts it under this id; without one, the field is left out.
    fn post(&self, rig: &Rig, id: Option<&str>) -> Answer {
        let own = id.map(|id| (self.id, id));
        let fields: Vec<_> =
            self.fields.iter().map(|(name, value)| (*name, value.as_str())).chain(own).collect();
        rig.send("POST", "/in/p", &fields, &self.body)
    }

    /// Sent under this id, it leaves so many events and repetitions.
    #[track_caller]
    fn makes(&self, rig: &Rig, id: &str, wanted: &str) {
        self.post(rig, Some(id)).is(200);
        assert_eq!(counted(rig), wanted);
    }
}

fn sign(algorithm: hmac::Algorithm, parts: &[&[u8]]) -> Vec<u8> {
    let key = hmac::Key::new(algorithm, SECRET.as_bytes());
    hmac::sign(&key, &parts.concat()).as_ref().to_vec()
}

/// A request of one of the schemes whose HMAC covers the body alone.
fn plain(kind: &str) -> Captured {
    let at = START.ms();
    let body = format!(r#"{{"action":"opened","type":"Issue","n":1,"webhookTimestamp":{at}}}"#);
    let mac = sign(hmac::HMAC_SHA256, &[body.as_bytes()]);
    let (hex, base64) = (HEXLOWER.encode(&mac), BASE64.encode(&mac));
    let (fields, id) = match kind {
        "github" => (
            vec![
                ("x-hub-signature-256", format!("sha256={hex}")),
                ("x-github-event", "issues".into()),
            ],
            GITHUB,
        ),
        "shopify" => (
            vec![("x-shopify-hmac-sha256", base64), ("x-shopify-topic", "orders/paid".into())],
            "x-shopify-event-id",
        ),
        "woocommerce" => (
            vec![
                ("x-wc-webhook-signature", base64),
                ("x-wc-webhook-topic", "order.updated".into()),
            ],
            "x-wc-webhook-delivery-id",
        ),
        "gitea" => (
            vec![("x-gitea-signature", hex), ("x-gitea-event", "issues".into())],
            "x-gitea-delivery",
        ),
        "forgejo" => (
            vec![("x-forgejo-signature", hex), ("x-forgejo-event", "issues".into())],
            "x-forgejo-delivery",
        ),
        _ => (vec![("linear-signature", hex)], "linear-delivery"),
    };
    Captured { fields, id, body: body.into_bytes() }
}

/// A form without a SID, so that the unsigned token is its id.
fn twilio() -> Captured {
    let url = b"https://edge.example/in/p";
    let signature =
        BASE64.encode(&sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &[url, b"EventTypeonXa"]));
    Captured {
        fields: vec![("x-twilio-signature", signature)],
        id: "i-twilio-idempotency-token",
        body: b"X=a&EventType=on".to_vec(),
    }
}

fn generic_scheme(signed: &str) -> Value {
    json!({
        "kind": "generic",
        "check": { "hmac": { "signed": signed, "header": "x-sig", "timestamp": { "header": "x-time" } } },
        "event_id": { "header": "x-id" }, "event_type": { "header": "x-type" },
    })
}

fn generic(at: i64) -> Captured {
    let (at, body) = (at.to_string(), b"{}".to_vec());
    let signature = HEXLOWER.encode(&sign(hmac::HMAC_SHA256, &[at.as_bytes(), b".", &body]));
    let fields = vec![("x-sig", signature), ("x-time", at), ("x-type", "a".to_owned())];
    Captured { fields, id: "x-id", body }
}

/// A box with that provider, and the receiver of what comes in.
fn rig(scheme: &Value) -> (Rig, Receiver) {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    rig.subscribe_with("all", &receiver, &json!({ "source": "all" }));
    let provider = json!({
        "name": "p", "scheme": scheme, "pii": "allow", "secret": SECRET,
        "public_url": "https://edge.example/in/p",
    });
    rig.post("/v1/providers", &provider).is(201);
    (rig, receiver)
}

/// How many events there are, and how many repetitions were counted.
fn counted(rig: &Rig) -> String {
    rig.one("SELECT count(*), sum(duplicate_count) FROM webhook_events")
}

#[test]
fn a_captured_request_counts_once_whatever_id_it_is_sent_under() {
    let schemes = ["github", "shopify", "woocommerce", "gitea", "forgejo", "linear"];
    let plain = schemes.map(|kind| (json!({ "kind": kind }), plain(kind)));
    let others = [
        (json!({ "kind": "twilio" }), twilio()),
        (generic_scheme("{ts}.{body}"), generic(START.secs())),
    ];
    for (scheme, captured) in plain.into_iter().chain(others) {
        let (rig, receiver) = rig(&scheme);
        let first = captured.post(&rig, Some("1")).is(200).json();
        assert_eq!(first["already_processed"], Value::Null, "{scheme}: {first}");
        for id in [Some("2"), Some("3"), None] {
            let again = captured.post(&rig, id).is(200).json();
            let want = json!({ "status": "ok", "id": first["id"], "already_processed": true });
            assert_eq!(again, want, "{scheme}");
        }
        assert_eq!(counted(&rig), "1 3", "{scheme}");
        let shown = rig.get(&format!("/v1/webhook-events/{}", first["id"].as_str().unwrap()));
        assert_eq!(shown["duplicate_count"], 3);
        rig.settle();
        assert_eq!(receiver.count(), 1, "{scheme}");
    }
}

#[test]
fn the_signature_may_be_written_otherwise_and_is_the_same() {
    let (rig, _receiver) = rig(&json!({ "kind": "gitea" }));
    let mut captured = plain("gitea");
    captured.post(&rig, Some("1")).is(200);
    captured.fields[0].1.make_ascii_uppercase();
    captured.makes(&rig, "2", "1 1");
}

#[test]
fn another_body_another_type_and_another_time_are_other_events() {
    let (rig, _receiver) = rig(&json!({ "kind": "shopify" }));
    let mut captured = plain("shopify");
    captured.post(&rig, Some("1")).is(200);
    // What a merchant does once comes under two topics with the same body.
    captured.fields[1].1 = "orders/create".to_owned();
    captured.makes(&rig, "1", "2 0");
    let (rig, _receiver) = self::rig(&generic_scheme("{ts}.{body}"));
    generic(START.secs()).post(&rig, Some("1")).is(200);
    generic(START.secs() + 1).post(&rig, Some("2")).is(200);
    assert_eq!(counted(&rig), "2 0");
}

#[test]
fn after_the_window_it_is_a_new_event_and_the_first_id_never_is() {
    let (rig, _receiver) = rig(&json!({ "kind": "github" }));
    let captured = plain("github");
    captured.post(&rig, Some("1")).is(200);
    rig.advance(DAY);
    captured.makes(&rig, "2", "1 1");
    // Repetitions do not prolong it.
    rig.advance(secs(1));
    captured.post(&rig, Some("3")).is(200);
    captured.makes(&rig, "4", "2 2");
    rig.advance(DAY * 30);
    captured.makes(&rig, "1", "2 3");
}

#[test]
fn the_window_is_set_per_provider_and_none_takes_each_id() {
    let (rig, _receiver) = rig(&json!({ "kind": "github" }));
    let captured = plain("github");
    let set = |secs: u64| rig.patch("/v1/providers/p", &json!({ "replay_window_secs": secs }));
    assert_eq!(rig.get("/v1/providers/p")["replay_window_secs"], 86_400);
    assert_eq!(set(60).is(200).json()["replay_window_secs"], 60);
    captured.post(&rig, Some("1")).is(200);
    rig.advance(secs(61));
    captured.makes(&rig, "2", "2 0");
    set(0).is(200);
    captured.post(&rig, Some("3")).is(200);
    captured.makes(&rig, "4", "4 0");
    set(31 * 86_400).is(422).tells("replay_window_secs");
}

#[test]
fn where_the_id_is_signed_every_id_is_an_event() {
    let (rig, _receiver) = rig(&generic_scheme("{id}.{ts}.{body}"));
    for id in ["1", "2"] {
        let (at, body) = (START.secs().to_string(), b"{}".to_vec());
        let parts: [&[u8]; 5] = [id.as_bytes(), b".", at.as_bytes(), b".", &body];
        let signature = HEXLOWER.encode(&sign(hmac::HMAC_SHA256, &parts));
        let fields = vec![("x-sig", signature), ("x-time", at)];
        Captured { fields, id: "x-id", body }.post(&rig, Some(id)).is(200);
    }
    assert_eq!(counted(&rig), "2 0");
    assert_eq!(rig.one("SELECT count(fingerprint) FROM webhook_events"), "0");
}

#[test]
fn two_providers_with_one_secret_are_two() {
    let (rig, _receiver) = rig(&json!({ "kind": "github" }));
    rig.provider("q", &json!({ "kind": "github" }), SECRET);
    let captured = plain("github");
    captured.post(&rig, Some("1")).is(200);
    let fields: Vec<_> =
        captured.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    rig.send("POST", "/in/q", &fields, &captured.body).is(200);
    assert_eq!(counted(&rig), "2 0");
}

#[test]
fn of_many_sent_at_the_same_time_one_is_stored() {
    let (rig, receiver) = rig(&json!({ "kind": "github" }));
    let captured = plain("github");
    thread::scope(|scope| {
        for thread in 0..8 {
            let (rig, captured) = (&rig, &captured);
            scope.spawn(move || {
                for n in 0..10 {
                    captured.post(rig, Some(&format!("{thread}-{n}"))).is(200);
                }
            });
        }
    });
    assert_eq!(counted(&rig), "1 79");
    rig.sent(&receiver, 1);
    assert_eq!(receiver.count(), 1);
}

#[test]
fn the_time_in_the_body_of_linear_is_checked() {
    let (rig, _receiver) = rig(&json!({ "kind": "linear" }));
    let captured = plain("linear");
    rig.advance(secs(301));
    captured.post(&rig, Some("1")).is(401);
    rig.patch("/v1/providers/p", &json!({ "tolerance_secs": 302 })).is(200);
    captured.post(&rig, Some("1")).is(200);
}

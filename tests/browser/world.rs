//! A box as an accountant finds it in the morning: an ERP that publishes, webhooks that come in, and some trouble.

use data_encoding::HEXLOWER;
use ring::hmac;
use serde_json::{Value, json};

use crate::rig::http::Answer;
use crate::rig::receiver::{Receiver, Reply};
use crate::rig::webdriver::Browser;
use crate::rig::{Rig, secs, until};

pub(crate) const PASSWORD: &str = "correct horse battery";
/// Stripe's secret.
pub(crate) const STRIPE: &str = "whsec_stripe0123456789abcdef0123456789";
/// The receiver's own secret, which it must not see on a page again.
pub(crate) const BEARER: &str = "bearer-secret-of-the-crm-0123456789";

/// A service with users.
pub(crate) struct World {
    pub(crate) rig: Rig,
    /// Where `bank` and `crm` are delivered: it answers well.
    pub(crate) well: Receiver,
    /// Where `shop` is delivered: it refuses.
    pub(crate) bad: Receiver,
}

impl World {
    /// Users of each role, and nothing else.
    pub(crate) fn empty() -> Self {
        let rig = Rig::new();
        for (name, role) in [("anna", "admin"), ("otto", "operate"), ("rita", "read")] {
            let user = json!({ "name": name, "role": role, "password": PASSWORD });
            rig.post("/v1/users", &user).is(201);
        }
        Self { rig, well: Receiver::new(), bad: Receiver::new() }
    }

    /// Invoices went out, one receiver refuses, webhooks came in and were refused, a lane is blocked.
    pub(crate) fn new() -> Self {
        let world = Self::empty();
        let rig = &world.rig;
        let answer = br#"{"accepted":true,"booking":"B-90210"}"#.to_vec();
        world.well.always(Reply::Answer(
            200,
            vec![("content-type", "application/json".to_owned())],
            answer,
        ));
        let refusal = b"the price list is missing".to_vec();
        world.bad.always(Reply::Answer(422, Vec::new(), refusal));
        rig.subscribe_with("bank", &world.well, &json!({ "event_types": ["invoice.*"] }));
        let crm = json!({ "event_types": ["customer.*"], "ordering": "key" });
        rig.subscribe_with("crm", &world.well, &crm);
        let crm = rig.get("/v1/subscriptions")["items"][1]["id"].as_str().unwrap().to_owned();
        let bearer = json!({ "kind": "bearer", "secret": BEARER });
        rig.post(&format!("/v1/subscriptions/{crm}/credentials"), &bearer).is(201);
        rig.subscribe_with("shop", &world.bad, &json!({ "event_types": ["price.*"] }));
        for n in 4705..4715 {
            world.invoice(n);
        }
        for n in 1..4 {
            rig.publish(&json!({
                "event_type": "price.changed", "aggregate_type": "Price", "aggregate_id": format!("P-{n}"),
                "payload": { "price": format!("{n}9.90") },
            }));
        }
        rig.publish(&json!({
            "event_type": "customer.changed", "aggregate_type": "Customer", "aggregate_id": "C-7",
            "payload": { "name": "Jansen & Zonen" },
        }));
        rig.provider("stripe", &json!({ "kind": "stripe" }), STRIPE);
        for n in 1..4 {
            world
                .stripe(&format!(r#"{{"id":"evt_{n}","type":"invoice.paid","amount":{n}00}}"#))
                .is(200);
        }
        let forged = [("Stripe-Signature", "t=1769860800,v1=00")];
        rig.send("POST", "/in/stripe", &forged, br#"{"id":"evt_9","type":"invoice.paid"}"#).is(401);
        rig.settle();
        // All attempts that the schedule allows.
        for _ in 0..14 {
            rig.advance(secs(48 * 3600));
            rig.settle();
        }
        world
    }

    pub(crate) fn invoice(&self, n: u32) -> Value {
        self.rig.publish(&json!({
            "event_type": "invoice.booked", "aggregate_type": "Invoice", "aggregate_id": n.to_string(),
            "idempotency_key": format!("invoice-{n}"),
            "payload": { "invoice": n, "customer": "C-7", "total": "1250.00", "currency": "EUR" },
        }))
    }

    pub(crate) fn stripe(&self, body: &str) -> Answer {
        let at = self.rig.now().secs();
        let key = hmac::Key::new(hmac::HMAC_SHA256, STRIPE.as_bytes());
        let signature = hmac::sign(&key, format!("{at}.{body}").as_bytes());
        let header = format!("t={at},v1={}", HEXLOWER.encode(signature.as_ref()));
        let fields = [("Stripe-Signature", header.as_str()), ("Content-Type", "application/json")];
        self.rig.send("POST", "/in/stripe", &fields, body.as_bytes())
    }

    /// The address of a page.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.rig.address())
    }

    /// The URL of a new one-time link.
    pub(crate) fn link(&self, name: &str) -> String {
        let made = self.rig.post(&format!("/v1/users/{name}/link"), &Value::Null);
        made.is(201).json()["url"].as_str().unwrap().to_owned()
    }

    /// Logs in by a link, which needs no expensive password.
    #[track_caller]
    pub(crate) fn enter(&self, browser: &Browser<'_>, name: &str) {
        browser.open(&self.link(name));
        browser.follow("main button");
        assert!(browser.has(".me"), "{}", browser.text("body"));
    }

    /// Types into the search box and sends it.
    #[track_caller]
    pub(crate) fn search(&self, browser: &Browser<'_>, text: &str) {
        browser.fill("#q", text);
        browser.follow(".search button");
    }

    /// Waits for a delivery to the good receiver.
    pub(crate) fn arrives(&self, count: usize) {
        until("it arrives", || self.well.count() >= count);
    }
}

//! A box as an accountant finds it in the morning: an ERP that publishes, webhooks that come in, and some trouble.

use crate::rig::prelude::*;
use crate::rig::webdriver::Browser;

/// What most files of this program import.
pub(crate) mod prelude {
    pub(crate) use super::World;
    pub(crate) use crate::browser::walk;
    pub(crate) use crate::rig::prelude::*;
    pub(crate) use crate::rig::webdriver::{Browser, Driver};
}

pub(crate) const PASSWORD: &str = "correct horse battery";
/// Stripe's secret.
pub(crate) const STRIPE: &str = "whsec_stripe0123456789abcdef0123456789";
/// A receiver's secret.
pub(crate) const BEARER: &str = "bearer-secret-of-the-crm-0123456789";

/// A service with users.
pub(crate) struct World {
    pub(crate) rig: Rig,
    /// Where `bank` and `crm` are delivered: it answers well.
    pub(crate) well: Receiver,
    /// Where `shop` and `ledger` are delivered: it refuses.
    pub(crate) bad: Receiver,
    /// Where `warehouse` is delivered: it is out of order.
    pub(crate) away: Receiver,
}

impl World {
    /// Users of each role, and nothing else.
    pub(crate) fn empty() -> Self {
        let rig = Rig::new();
        for (name, role) in [("anna", "admin"), ("otto", "operate"), ("rita", "read")] {
            let user = json!({ "name": name, "role": role, "password": PASSWORD });
            rig.post("/v1/users", &user).is(201);
        }
        Self { rig, well: Receiver::new(), bad: Receiver::new(), away: Receiver::new() }
    }

    /// A morning: invoices went out, one receiver refuses, one is away, a lane is blocked, webhooks came in.
    pub(crate) fn new() -> Self {
        let world = Self::empty();
        let rig = &world.rig;
        let json_type = ("content-type", "application/json".to_owned());
        let answer = br#"{"accepted":true,"booking":"B-90210"}"#.to_vec();
        world.well.always(Reply::Answer(200, vec![json_type], answer));
        world.bad.always(Reply::Answer(422, Vec::new(), b"the price list is missing".to_vec()));
        world.away.always(Reply::status(503));
        for (name, to, types, ordering) in [
            ("archive", &world.well, "order.*", "none"),
            ("bank", &world.well, "invoice.*", "none"),
            ("crm", &world.well, "customer.*", "key"),
            ("ledger", &world.bad, "booking.*", "key"),
            ("shop", &world.bad, "price.*", "none"),
            ("warehouse", &world.away, "order.*", "none"),
        ] {
            rig.subscribe_with(name, to, &json!({ "event_types": [types], "ordering": ordering }));
        }
        let bearer = json!({ "kind": "bearer", "secret": BEARER });
        rig.post("/v1/subscriptions/crm/credentials", &bearer).is(201);
        rig.call("POST", "/v1/subscriptions/archive/pause", b"").is(200);
        rig.provider("stripe", &json!({ "kind": "stripe" }), STRIPE);
        let told = json!({ "name": "office", "kind": "webhook", "url": world.well.url() });
        rig.post("/v1/alert-channels", &told).is(201);
        for n in 0..45_u32 {
            for more in 0..n % 4 {
                world.invoice(4680 + n + more);
            }
            if n % 6 == 0 {
                world
                    .stripe(&format!(r#"{{"id":"evt_{n}","type":"invoice.paid","amount":{n}}}"#))
                    .is(200);
            }
            rig.advance(secs(60));
        }
        for n in 1..4 {
            let price = json!({ "price": format!("{n}9.90"), "currency": "EUR" });
            world.of("price.changed", "Price", &format!("P-{n}"), &price);
        }
        for n in 1..4 {
            world.of("booking.made", "Account", "A-9", &json!({ "booking": n, "amount": "10.00" }));
        }
        world.of("customer.changed", "Customer", "C-7", &json!({ "name": "Jansen & Zonen" }));
        world.of("order.placed", "Order", "O-88", &json!({ "order": 88, "lines": 3 }));
        let forged = [("Stripe-Signature", "t=1769860800,v1=00")];
        rig.send("POST", "/in/stripe", &forged, br#"{"id":"evt_9","type":"invoice.paid"}"#).is(401);
        rig.settle();
        until("everybody is told", || rig.get("/v1/escalations")["items"] != json!([]));
        world
    }

    fn of(&self, event_type: &str, kind: &str, id: &str, payload: &Value) -> Value {
        self.rig.publish(&json!({
            "event_type": event_type, "aggregate_type": kind, "aggregate_id": id, "payload": payload,
        }))
    }

    pub(crate) fn invoice(&self, n: u32) -> Value {
        self.rig.publish(&json!({
            "event_type": "invoice.booked", "aggregate_type": "Invoice", "aggregate_id": n.to_string(),
            "idempotency_key": format!("invoice-{n}"),
            "payload": { "invoice": n, "customer": "C-7", "total": "1250.00", "currency": "EUR" },
        }))
    }

    /// Returned goods, of which the warehouse's system knows and the tax office's does not want to hear. Its id.
    pub(crate) fn returned(&self) -> String {
        let rig = &self.rig;
        self.bad.always(Reply::Answer(
            422,
            Vec::new(),
            b"{\"message\":\"unknown article A-99\"}".to_vec(),
        ));
        for (name, to) in [("stock", &self.well), ("tax-office", &self.bad)] {
            rig.subscribe_with(name, to, &json!({ "event_types": ["return.*"] }));
        }
        let lines = json!([{ "article": "A-99", "count": 2 }, { "article": "A-17", "count": 1 }]);
        let payload = json!({ "return": "R 2026/17", "customer": "C-7", "lines": lines });
        let event = self.of("return.booked", "Return", "R 2026/17", &payload);
        rig.settle();
        event["id"].as_str().unwrap().to_owned()
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
    #[expect(clippy::unused_self, reason = "it reads as what a person in this world does")]
    #[track_caller]
    pub(crate) fn search(&self, browser: &Browser<'_>, text: &str) {
        browser.fill("#q", text);
        browser.follow(".search button");
    }

    /// Waits until so many requests reached the good receiver.
    #[track_caller]
    pub(crate) fn arrives(&self, count: usize) {
        until("it arrives", || self.well.count() >= count);
    }
}

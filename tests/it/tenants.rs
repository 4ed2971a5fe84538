//! Tenants: made, looked at, suspended and resumed by the box's administrator.

use crate::rig::prelude::*;

const GITHUB: &str = "a secret that GitHub knows too";

fn names(rig: &Rig) -> Vec<String> {
    let listed = rig.get("/v1/tenants");
    let name = |tenant: &Value| text(tenant, "name");
    listed["items"].as_array().unwrap().iter().map(name).collect()
}

/// A GitHub delivery to a tenant's provider `hub`; its status.
fn hook(rig: &Rig, tenant: &str, id: &str) -> Answer {
    let signature = http::github(GITHUB, b"{}");
    let fields = [
        ("X-Hub-Signature-256", signature.as_str()),
        ("X-GitHub-Delivery", id),
        ("X-GitHub-Event", "push"),
    ];
    rig.send("POST", &format!("/in/{tenant}/hub"), &fields, b"{}")
}

/// A tenant with a provider, a subscription, and an admin token, which is returned.
fn furnished(rig: &Rig, name: &str, receiver: &Receiver) -> String {
    let admin = rig.tenant(name);
    let post = |path: &str, body: &Value| rig.post_as(&admin, path, body).is(201);
    let scheme = json!({ "kind": "github" });
    post(
        "/v1/providers",
        &json!({ "name": "hub", "scheme": scheme, "pii": "allow", "secret": GITHUB }),
    );
    post("/v1/subscriptions", &json!({ "name": "erp", "url": receiver.url(), "source": "all" }));
    admin
}

fn publish(rig: &Rig, token: &str) -> Answer {
    rig.call_as(token, "POST", "/v1/events", br#"{"event_type":"a","payload":{}}"#)
}

fn kind(answer: &Answer) -> String {
    answer.json()["type"].as_str().unwrap().to_owned()
}

#[test]
fn a_tenant_is_made_listed_and_given_another_title() {
    let rig = Rig::new();
    let body = json!({ "name": "acme", "title": "Acme Ltd" });
    rig.post("/v1/tenants", &body).is(422).tells("Say what happens to personal data");
    let body = merged(body, &json!({ "pii": "allow" }));
    let made = rig.post("/v1/tenants", &body).is(201).json();
    has(&made, &json!({ "name": "acme", "title": "Acme Ltd", "suspended_at": null }));
    rig.post("/v1/tenants", &body).is(409);
    assert_eq!(names(&rig), ["default", "acme"]);
    rig.patch("/v1/tenants/acme", &json!({ "title": "Acme plc" })).is(200);
    assert_eq!(rig.get("/v1/tenants/acme")["title"], "Acme plc");
    let long = json!({ "name": "b", "title": "x".repeat(201), "pii": "allow" });
    for wrong in [json!({ "name": "Acme", "pii": "allow" }), long] {
        rig.post("/v1/tenants", &wrong).is(422);
    }
    rig.patch("/v1/tenants/acme", &json!({ "name": "other" })).is(400);
    rig.call("GET", "/v1/tenants/none", b"").is(404);
    rig.post("/v1/tenants/none/suspend", &json!({})).is(404);
}

#[test]
fn an_admin_of_another_tenant_administers_his_own_alone() {
    let rig = Rig::new();
    let admin = rig.tenant("acme");
    rig.tenant("other");
    for (method, path) in [
        ("GET", "/v1/tenants"),
        ("GET", "/v1/tenants/acme"),
        ("POST", "/v1/tenants"),
        ("PATCH", "/v1/tenants/acme"),
        ("POST", "/v1/tenants/other/suspend"),
        ("POST", "/v1/tenants/acme/resume"),
    ] {
        let answer = rig.call_as(&admin, method, path, br#"{"name":"x","title":"x"}"#).is(403);
        assert!(answer.detail().contains("default"), "{path}");
    }
    let make = |tenant: &str| {
        let body = json!({ "name": "x", "role": "read", "tenant": tenant });
        rig.post_as(&admin, "/v1/tokens", &body)
    };
    assert_eq!(make("acme").is(201).json()["tenant"], "acme");
    for other in ["other", "default", "none"] {
        make(other).is(404);
        rig.call_as(&admin, "GET", &format!("/v1/tokens?tenant={other}"), b"").is(404);
    }
}

#[test]
fn the_administrator_of_the_box_works_for_a_tenant_with_a_token_of_it() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    furnished(&rig, "acme", &receiver);
    rig.call("GET", "/v1/subscriptions/erp", b"").is(404);
    rig.call("GET", "/v1/tokens?tenant=none", b"").is(404);
    assert_eq!(rig.items("/v1/tokens?tenant=acme").len(), 1);
    let reader = rig.token_in("acme", "read");
    rig.call_as(&reader, "GET", "/v1/subscriptions/erp", b"").is(200);
    let id = rig.get("/v1/tokens?tenant=acme")["items"][1]["id"].as_str().unwrap().to_owned();
    rig.delete(&format!("/v1/tokens/{id}")).is(404);
    rig.delete(&format!("/v1/tokens/{id}?tenant=acme")).is(200);
    rig.call_as(&reader, "GET", "/v1/subscriptions/erp", b"").is(401);
}

#[test]
fn a_suspended_tenant_is_refused_at_every_door_and_loses_nothing() {
    let rig = Rig::new();
    let receiver = Receiver::scripted([Reply::status(500), Reply::status(500)]);
    let admin = furnished(&rig, "acme", &receiver);
    publish(&rig, &admin).is(201);
    hook(&rig, "acme", "1").is(200);
    rig.has_sent(&receiver, 2);
    let suspended = rig.post("/v1/tenants/acme/suspend", &json!({})).is(200).json();
    assert_eq!(suspended["suspended_at"], rig.now().to_string());
    let refused = publish(&rig, &admin).is(403);
    assert_eq!(kind(&refused), "urn:oncebox:problem:tenant-suspended");
    rig.call_as(&admin, "GET", "/v1/stats", b"").is(403);
    let later = hook(&rig, "acme", "2").is(503);
    assert_eq!(later.field("retry-after"), Some("600"));
    rig.send("POST", "/in/acme/none", &[], b"").is(404);
    // Both retries are long due; another tenant's event shows that the dispatcher has looked.
    rig.advance(secs(3600));
    let elsewhere = Receiver::new();
    rig.subscribe("elsewhere", &elsewhere);
    rig.deliver("a");
    assert_eq!((receiver.count(), elsewhere.count()), (2, 1));
    let of_acme =
        "SELECT count(*) FROM attempts AS a JOIN deliveries AS d ON d.seq = a.delivery_seq
                    WHERE d.tenant = 'acme'";
    assert_eq!(rig.one(of_acme), "2");
    assert_eq!(rig.one("SELECT count(*) FROM deliveries WHERE state = 'pending'"), "2");
    // Asked twice, it stays as it is.
    let again = rig.post("/v1/tenants/acme/suspend", &json!({})).is(200).json();
    assert_eq!(again["suspended_at"], suspended["suspended_at"]);
    rig.advance(secs(60));
    let until = rig.now().ms();
    let resumed = rig.post("/v1/tenants/acme/resume", &json!({})).is(200).json();
    assert_eq!(resumed["suspended_at"], Value::Null);
    rig.has_sent(&receiver, 4);
    let meanwhile =
        format!("{of_acme} AND a.started_at > {} AND a.started_at < {until}", START.ms());
    assert_eq!(rig.one(&meanwhile), "0", "nothing was attempted");
    publish(&rig, &admin).is(201);
    hook(&rig, "acme", "2").is(200);
    rig.settle();
}

#[test]
fn a_tenant_stays_suspended_over_a_restart() {
    let (mut rig, receiver) = (Rig::new(), Receiver::scripted([Reply::status(500)]));
    let admin = furnished(&rig, "acme", &receiver);
    publish(&rig, &admin).is(201);
    rig.settle();
    rig.post("/v1/tenants/acme/suspend", &json!({})).is(200);
    rig.restart();
    rig.pass(secs(3600));
    publish(&rig, &admin).is(403);
    hook(&rig, "acme", "1").is(503);
    assert_eq!(receiver.count(), 1);
    rig.post("/v1/tenants/acme/resume", &json!({})).is(200);
    rig.has_sent(&receiver, 2);
}

#[test]
fn the_others_go_on_while_one_is_suspended() {
    let rig = Rig::new();
    let (one, two) = (Receiver::new(), Receiver::new());
    let (first, second) = (furnished(&rig, "one", &one), furnished(&rig, "two", &two));
    rig.post("/v1/tenants/one/suspend", &json!({})).is(200);
    publish(&rig, &first).is(403);
    publish(&rig, &second).is(201);
    hook(&rig, "two", "1").is(200);
    rig.settle();
    assert_eq!((one.count(), two.count()), (0, 2));
    rig.get("/v1/stats");
}

#[test]
fn the_box_itself_cannot_be_suspended() {
    let rig = Rig::new();
    rig.post("/v1/tenants/default/suspend", &json!({})).is(409).tells("nobody could resume it");
    rig.get("/v1/stats");
}

#[test]
fn a_suspended_subscription_says_so_beside_its_other_holds() {
    let (rig, receiver) = (Rig::new(), Receiver::new());
    let admin = furnished(&rig, "acme", &receiver);
    rig.call_as(&admin, "POST", "/v1/subscriptions/erp/pause", b"").is(200);
    publish(&rig, &admin).is(201);
    rig.post("/v1/tenants/acme/suspend", &json!({})).is(200);
    rig.post("/v1/tenants/acme/resume", &json!({})).is(200);
    let shown = rig.get_as(&admin, "/v1/subscriptions/erp");
    let holds = shown["holds"].as_array().unwrap();
    assert_eq!(holds.len(), 1, "the pause outlives the suspension: {holds:?}");
    rig.has_sent(&receiver, 0);
    rig.call_as(&admin, "POST", "/v1/subscriptions/erp/resume", b"").is(200);
    rig.settle();
    until("the delivery is made", || receiver.count() == 1);
}

#[test]
fn a_tenant_that_has_what_it_may_have_gets_no_more_and_can_shrink() {
    let rig = Rig::with(|settings| {
        let limits = &mut settings.tenants;
        (limits.subscriptions_max, limits.event_types_max, limits.providers_max) = (1, 1, 1);
        (limits.sources_max, limits.channels_max, limits.users_max) = (1, 1, 1);
        (limits.tokens_max, limits.terms_bytes_max) = (3, 64 << 10);
        let home = settings.database.directory.parent().unwrap();
        settings.sources.tenants_directory = Some(home.to_owned());
    });
    let drop_folders = rig.home().join("acme");
    for name in ["first", "second"] {
        fs::create_dir_all(drop_folders.join(name)).unwrap();
    }
    let refused = |answer: Answer, setting: &str| {
        let problem = answer.is(422).json();
        assert_eq!(problem["type"], "urn:oncebox:problem:over-limit");
        shows(problem["detail"].as_str().unwrap(), &[&format!("raise tenants.{setting}")]);
    };
    let token = rig.tenant("acme");
    let call = |method: &str, path: &str, body: &Value| {
        rig.call_as(&token, method, path, body.to_string().as_bytes())
    };
    let subscription = |name: &str| json!({ "name": name, "target": "pull" });
    let scheme = json!({ "kind": "github" });
    let provider = |name: &str| json!({ "name": name, "pii": "allow", "scheme": scheme, "secret": "a-shared-secret-of-32-characters" });
    let user = |name: &str| json!({ "name": name, "role": "read" });
    let source = |name: &str| json!({ "name": name, "kind": "drop", "settings": { "path": drop_folders.join(name), "defaults": { "event_type": "a" } } });
    let of_role = |name: &str| json!({ "name": name, "role": "read" });
    for (path, body, setting) in [
        ("/v1/subscriptions", &subscription as &dyn Fn(&str) -> Value, "subscriptions_max"),
        ("/v1/providers", &provider, "providers_max"),
        ("/v1/users", &user, "users_max"),
        ("/v1/sources", &source, "sources_max"),
    ] {
        call("POST", path, &body("first")).is(201);
        refused(call("POST", path, &body("second")), setting);
        let items = call("GET", path, &Value::Null).is(200).json()["items"].clone();
        assert_eq!(items.as_array().unwrap().len(), 1, "{path}");
    }
    while call("POST", "/v1/tokens", &of_role("more")).status == 201 {}
    refused(call("POST", "/v1/tokens", &of_role("more")), "tokens_max");
    let event_type = |bytes: usize| json!({ "schema": true, "example": "x".repeat(bytes) });
    call("PUT", "/v1/event-types/a", &event_type(60_000)).is(201);
    refused(call("PUT", "/v1/event-types/b", &event_type(1)), "event_types_max");
    refused(call("PUT", "/v1/event-types/a", &event_type(70_000)), "terms_bytes_max");
    // Another tenant is none the poorer, and what is deleted makes room.
    rig.call("POST", "/v1/subscriptions", subscription("other").to_string().as_bytes()).is(201);
    call("DELETE", "/v1/subscriptions/first", &Value::Null).is(204);
    call("POST", "/v1/subscriptions", &subscription("second")).is(201);
}

#[test]
fn what_all_tenants_have_together_is_limited_and_the_newest_is_paused_at_the_start() {
    let mut rig = Rig::with(|settings| settings.tenants.all_terms_bytes_max = 25_000);
    let acme = rig.tenant("acme");
    let filter = |name: &str| {
        let values: Vec<String> = (0..100).map(|n| format!("{n:0>98}")).collect();
        let filter = json!([{ "path": "$.a", "op": "in", "value": values }]);
        json!({ "name": name, "target": "pull", "filter": filter }).to_string()
    };
    let post = |token: &str, name: &str| {
        rig.call_as(token, "POST", "/v1/subscriptions", filter(name).as_bytes())
    };
    post(&rig.token, "a").is(201);
    post(&acme, "b").is(201);
    let refused = post(&acme, "c").is(422).json();
    assert_eq!(refused["type"], "urn:oncebox:problem:over-limit");
    assert!(refused["detail"].as_str().unwrap().contains("tenants.all_terms_bytes_max"));
    rig.restart_with(|settings| settings.tenants.all_terms_bytes_max = 15_000);
    let states = "SELECT group_concat(name || ' ' || state, ', ') FROM subscriptions";
    assert_eq!(rig.one(states), "a ACTIVE, b PAUSED");
    let told = rig.call_as(&acme, "GET", "/v1/escalations", b"").json();
    assert_eq!(told["items"][0]["class"], "tenant.over_limit");
    rig.call_as(&acme, "DELETE", "/v1/subscriptions/b", b"").is(204);
}

#[test]
fn one_tenant_does_not_use_up_the_terms_of_all() {
    let mut rig = Rig::with(|settings| settings.tenants.all_terms_bytes_max = 100_000);
    let [acme, other] = ["acme", "other"].map(|name| rig.tenant(name));
    let post = |token: &str, name: &str| {
        let filter = json!([{ "path": "$.a", "op": "equals", "value": "x".repeat(5_000) }]);
        let body = json!({ "name": name, "target": "pull", "filter": filter }).to_string();
        rig.call_as(token, "POST", "/v1/subscriptions", body.as_bytes())
    };
    let filled =
        |token: &str| (0..30).take_while(|n| post(token, &format!("s{n}")).status == 201).count();
    assert_eq!(filled(&acme), 14);
    let refused = post(&acme, "more").is(422).json();
    assert!(text(&refused, "detail").contains("share of what is left"), "{refused}");
    assert_eq!([filled(&other), filled(&rig.token)], [4, 1]);
    // A lower limit takes from who has most.
    rig.restart_with(|settings| settings.tenants.all_terms_bytes_max = 65_536);
    let active = "SELECT group_concat(count) FROM (SELECT tenant || ' ' || count(*) AS count
                    FROM subscriptions WHERE state = 'ACTIVE' GROUP BY tenant ORDER BY tenant)";
    assert_eq!(rig.one(active), "acme 7,default 1,other 4");
}

#[test]
fn a_tenant_beyond_a_lowered_limit_has_the_rest_paused_and_may_change_and_delete() {
    let mut rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.post("/v1/subscriptions", &json!({ "name": name, "target": "pull" })).is(201);
    }
    for _ in 0..2 {
        rig.restart_with(|settings| settings.tenants.subscriptions_max = 1);
        let states = "SELECT group_concat(name || ' ' || state, ', ') FROM subscriptions";
        assert_eq!(rig.one(states), "a ACTIVE, b PAUSED, c PAUSED");
    }
    let escalations = rig.get("/v1/escalations")["items"].clone();
    has(&escalations, &json!({ "0.class": "tenant.over_limit", "1": null, "0.count": 1 }));
    let path = "/v1/subscriptions/a";
    rig.call("PATCH", path, br#"{"owner_id":"erp"}"#).is(200);
    rig.post("/v1/subscriptions", &json!({ "name": "d", "target": "pull" })).is(422);
    rig.call("DELETE", path, b"").is(204);
    rig.call("DELETE", "/v1/subscriptions/b", b"").is(204);
    rig.call("POST", "/v1/subscriptions/c/resume", b"").is(200);
    rig.restart_with(|settings| settings.tenants.subscriptions_max = 1);
    assert_eq!(rig.get("/v1/subscriptions/c")["state"], "ACTIVE");
}

//! Providers, subscriptions and tokens, and the secrets that are shown once and never again.

use std::io::{BufRead, BufReader};
use std::process::Child;

use crate::cli::rig::prelude::*;

const STRIPE: &str = "whsec_5ba31f0cc7e84b1f9d9f00c4d4aa11ee";

#[test]
fn what_stands_in_the_way_of_a_source_is_listed_to_its_end() {
    let rig = Rig::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join(format!("{}.db", "a-long-name-".repeat(12)));
    rig.run(&["source", "add", "erp", "--sqlite", path.to_str().unwrap()]);
    rig.run(&["source", "pause", "erp"]);
    let db = Connection::open(rig.dir.path().join("oncebox.db")).unwrap();
    let why = format!("{} cannot be read: no such file", path.display());
    db.execute("UPDATE sources SET last_error = ?1, failing_since = created_at", [&why]).unwrap();
    shows(&rig.ok(&["source", "list"]), &[&why]);
    assert!(rig.ok(&["source", "show", "erp"]).contains("unknown while it is not read"));
}

#[test]
fn a_list_is_added_with_its_terms_and_read_once_it_has_a_credential() {
    let rig = Rig::new();
    let items = json!([{ "id": 1, "at": 1_769_860_000, "kind": "order.paid" }]);
    let page = json!({ "data": items, "more": false }).to_string().into_bytes();
    let server = Receiver::with(Reply::Answer(200, Vec::new(), page));
    let key = rig.file("list.key", "a-token\n");
    let url = format!("http://{}/orders", server.address);
    let next = r#"{"by":"last_item","path":"/id","parameter":"after","more":"/more"}"#;
    let newer = r#"{"parameter":"since","form":"rfc3339"}"#;
    let terms = ["--url", &url, "--items", "/data", "--item-id", "/id", "--time", "/at"];
    let paged = ["--next", next, "--newer-than", newer, "--field", "event_type=/kind"];
    let add =
        ["source", "add", "orders", "--list", "json", "--interval", "2s", "--needs-credential"];
    let added = rig.ok(&[&add[..], &terms, &paged].concat());
    shows(&added, &["oncebox source credential orders"]);
    let source = rig.json(&["source", "show", "orders"]);
    has(
        &source,
        &json!({ "kind": "http", "settings.interval_ms": 2_000, "settings.next.by": "last_item" }),
    );
    let wrong = [&add[..2], &["more", "--list", "json", "--next", "link"]].concat();
    rig.run(&wrong).fails(&["--next is not a JSON object"]);
    let key = ["--kind", "bearer", "--secret-file", key.to_str().unwrap()];
    rig.ok(&[&["source", "credential", "orders"][..], &key].concat());
    rig.until("it is read", |rig| rig.json(&["source", "show", "orders"])["event_count"] == 1);
    assert_eq!(server.seen()[0].field("authorization"), Some("Bearer a-token"));
    shows(&rig.ok(&["credential", "list"]), &["source orders", "bearer"]);
    assert!(!rig.ok(&["export"]).contains("a-token"));
}

#[test]
fn a_list_is_compared_with_what_came() {
    let rig = Rig::new();
    let at = Clock::machine().wall().minus(Duration::from_hours(3)).secs();
    let item = |id: &str| json!({ "id": id, "type": "invoice.paid", "created": at });
    let page = json!([item("evt_1"), item("evt_2")]).to_string().into_bytes();
    let server = Receiver::new();
    server.decide(move |request| {
        let since = request.first_line.split("since=").nth(1).unwrap();
        let since: String = since.chars().take_while(char::is_ascii_digit).collect();
        let is_asked = since.parse::<i64>().unwrap() <= at;
        Reply::Answer(200, Vec::new(), if is_asked { page.clone() } else { b"[]".to_vec() })
    });
    let secret = rig.file("secret", &format!("{STRIPE}\n"));
    let made = ["provider", "create", "shop", "--scheme", "stripe", "--pii", "allow"];
    rig.ok(&[&made[..], &["--secret-file", secret.to_str().unwrap()]].concat());
    let compare = ["provider", "reconcile", "shop", "--since", "1d"];
    rig.run(&compare).ends(5, &["oncebox source add shop-list"]);
    rig.run(&["provider", "reconcile", "other"]).ends(4, &["provider"]);
    let url = format!("http://{}/events", server.address);
    let newer = r#"{"parameter":"since","form":"unix_seconds"}"#;
    // Its rounds ask for what comes from now on.
    let add = ["source", "add", "shop-list", "--list", "json", "--url", &url, "--item-id", "/id"];
    let more = ["--time", "/created", "--provider", "shop", "--needs-credential", "--from", "now"];
    rig.ok(&[&add[..], &more, &["--newer-than", newer]].concat());
    rig.run(&compare).ends(1, &["oncebox source credential shop-list"]);
    let key = rig.file("list.key", "a-token\n");
    let key = ["--kind", "bearer", "--secret-file", key.to_str().unwrap()];
    rig.ok(&["source", "pause", "shop-list"]);
    rig.run(&compare).ends(5, &["oncebox source resume shop-list"]);
    rig.ok(&["source", "resume", "shop-list"]);
    rig.ok(&[&["source", "credential", "shop-list"][..], &key].concat());
    let found = rig.run(&[&compare[..], &["--dry-run"]].concat());
    shows(&found.out, &["DAY (UTC)", "MISSING", "total"]);
    found.ends(6, &["2 of 2 were missing and would be taken in", "Nothing was taken in"]);
    rig.run(&compare).ends(6, &["2 of 2 were missing and are here now"]);
    let again = rig.json(&compare);
    has(&again, &json!({ "state": "DONE", "sent": 2, "missing": 0, "taken_in": 2 }));
    shows(&rig.ok(&["provider", "reconciliations", "shop"]), &["DONE", "FAILED", "SENT"]);
    let id = text(&again, "id");
    shows(&rig.ok(&["provider", "reconciliation", "shop", &id]), &["TAKEN IN", "total"]);
    shows(
        &rig.ok(&["webhook", "show", &text(&rig.items(&["webhook", "list"])[0], "id")]),
        &["origin", "reconciled"],
    );
}

#[test]
fn a_provider_is_made_looked_at_changed_and_deleted() {
    let rig = Rig::new();
    let secret = rig.file("secret", &format!("{STRIPE}\n"));
    let args = ["provider", "create", "shop", "--scheme", "stripe", "--pii", "allow"];
    let made = rig.ok(&[&args[..], &["--secret-file", secret.to_str().unwrap()]].concat());
    assert!(made.contains("/in/shop") && made.contains("oncebox trigger stripe --provider shop"));
    assert!(!made.contains(STRIPE), "a secret that was brought is not repeated");
    assert!(rig.ok(&["provider", "list"]).contains("/in/shop"));
    assert!(rig.ok(&["provider", "show", "shop"]).contains("300 s"));
    shows(&rig.ok(&["provider", "change", "shop", "--tolerance", "10min"]), &["600 s"]);
    rig.run_with(&["provider", "change", "shop", "--secret-stdin"], "not a secret\n")
        .ends(65, &["whsec_"]);
    assert_eq!(rig.run(&["provider", "change", "shop"]).code, 2);
    assert_eq!(rig.run(&[&args[..], &["--generate-secret"]].concat()).code, 5);
    rig.ok(&["provider", "delete", "shop", "--yes"]);
    assert_eq!(rig.run(&["provider", "show", "shop"]).code, 4);
}

#[test]
fn a_generic_provider_takes_its_scheme_from_a_file() {
    let rig = Rig::new();
    let scheme = r#"{"check":{"token":{"header":"X-Gitlab-Token"}},"event_type":{"header":"X-Gitlab-Event"}}"#;
    let scheme = format!("@{}", rig.file("scheme.json", scheme).display());
    let args = ["provider", "create", "gitlab", "--scheme", "generic", "--pii", "allow"];
    rig.run(&[&args[..], &["--generate-secret"]].concat()).ends(65, &["generic"]);
    let made =
        rig.json(&[&args[..], &["--scheme-settings", &scheme, "--generate-secret"]].concat());
    assert_eq!(made["scheme"]["check"]["token"]["header"], "X-Gitlab-Token");
    assert_eq!(made["secret"].as_str().unwrap().len(), 64);
}

#[test]
fn a_secret_is_shown_once_and_is_no_argument() {
    let rig = Rig::new();
    let args = ["provider", "create", "stripe", "--scheme", "stripe", "--pii", "allow"];
    let argued = rig.run(&[&args[..], &["--secret", STRIPE]].concat());
    assert_eq!(argued.code, 2, "{argued:?}");
    assert_eq!(rig.run(&args).code, 2);
    let made = rig.ok(&[&args[..], &["--generate-secret"]].concat());
    let secret = made.split_whitespace().find(|word| word.starts_with("whsec_")).unwrap();
    assert_eq!(made.matches(secret).count(), 1);
    let made = rig.ok(&["subscription", "create", "odoo", "--url", "https://erp.example/hook"]);
    let signing = made.split_whitespace().find(|word| word.starts_with("whsec_")).unwrap();
    assert_eq!(made.matches(signing).count(), 1);
    let token = fs::read_to_string(rig.dir.path().join("admin.token")).unwrap();
    rig.ok(&["trigger", "stripe"]);
    for command in [
        &["provider", "show", "stripe"][..],
        &["provider", "list"],
        &["provider", "change", "stripe", "--tolerance", "1min"],
        &["subscription", "show", "odoo"],
        &["subscription", "list"],
        &["token", "list"],
        &["trigger", "stripe"],
        &["webhook", "list"],
        &["status"],
    ] {
        for form in [command.to_vec(), [command, &["--json"]].concat()] {
            let ran = rig.run(&form);
            assert_eq!(ran.code, 0, "{form:?}: {ran:?}");
            for hidden in [secret, signing, token.trim()] {
                assert!(!ran.out.contains(hidden) && !ran.err.contains(hidden), "{form:?}");
            }
        }
    }
}

#[test]
fn who_misspells_a_provider_or_adds_a_source_twice_is_told_what_to_do() {
    let rig = Rig::new();
    let args = ["subscription", "create", "erp", "--pull", "--source", "provider:shpo"];
    rig.run(&args).ends(0, &["There is no provider shpo"]);
    let args = ["--scheme", "shopify", "--pii", "allow", "--generate-secret"];
    rig.ok(&[&["provider", "create", "shop"], &args[..]].concat());
    let changed = rig.run(&["subscription", "change", "erp", "--source", "provider:shop"]);
    assert!(changed.code == 0 && changed.err.is_empty(), "{changed:?}");
    let nowhere = ["source", "add", "drop", "--drop", "/there/is/none"];
    rig.run(&nowhere).ends(1, &["The source was added"]);
    rig.run(&nowhere).ends(5, &["oncebox source remove drop"]);
    assert!(rig.ok(&["source", "remove", "drop", "--yes"]).contains("deleted: drop"));
    let generic = ["--scheme", "generic", "--pii", "allow", "--generate-secret"];
    rig.run(&[&["provider", "create", "own"], &generic[..]].concat())
        .ends(65, &["--scheme-settings '{"]);
    let policy =
        ["provider", "create", "x", "--scheme", "stripe", "--pii", "none", "--generate-secret"];
    rig.run(&policy).warns(&["--pii is allow, a file with a policy"]);
}

#[test]
fn a_webhook_that_came_before_anybody_wanted_it_is_brought_on_its_way_by_what_is_shown() {
    let rig = Rig::new();
    let args = ["--scheme", "shopify", "--pii", "allow", "--generate-secret"];
    rig.ok(&[&["provider", "create", "shop"], &args[..]].concat());
    rig.ok(&["trigger", "shopify", "--provider", "shop"]);
    let id = rig.items(&["webhook", "list"])[0]["id"].as_str().unwrap().to_owned();
    rig.ok(&["subscription", "create", "erp", "--pull", "--source", "all"]);
    let screen = rig.ok(&["webhook", "show", &id]);
    assert!(screen.contains("--source provider:shop --url URL"), "{screen}");
    let line = screen.lines().find(|line| line.contains("oncebox webhook replay")).unwrap();
    let args: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert!(rig.ok(&args).contains(" is received"));
    let delivery = &rig.items(&["delivery", "list", "--subscription", "erp"])[0];
    assert_eq!((&delivery["of"], &delivery["event_id"]), (&"webhook_event".into(), &id.into()));
}

#[test]
fn a_subscription_is_changed_without_losing_what_was_not_named() {
    let rig = Rig::new();
    let args = ["subscription", "create", "odoo", "--url", "https://erp.example/{aggregate_id}"];
    let terms = ["--event-type", "invoice.*", "--event-type", "order.paid", "--source", "all"];
    let more = ["--header", "X-One: 1", "--header", "X-Two: a:b", "--owner", "it@example.com"];
    let policy = ["--steps", "5s,30s", "--max-attempts", "7", "--timeout", "9s", "--method", "put"];
    let made = rig.json(&[&args[..], &terms, &more, &policy, &["--in-flight-max", "2"]].concat());
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!(made["event_types"], serde_json::json!(["invoice.*", "order.paid"]));
    assert_eq!((made["method"].as_str(), made["source"].as_str()), (Some("PUT"), Some("all")));
    let change = ["subscription", "change", "odoo", "--max-attempts", "3", "--header", "x-one: 2"];
    let changed = rig.json(&[&change[..], &["--remove-header", "X-TWO"]].concat());
    assert_eq!(changed["policy"]["max_attempts"], 3);
    assert_eq!(changed["policy"]["steps"], serde_json::json!(["5s", "30s"]));
    assert_eq!(changed["headers"], serde_json::json!({ "x-one": "2" }));
    shows(
        &rig.ok(&["subscription", "pause", "odoo"]),
        &["paused", "oncebox subscription resume odoo"],
    );
    assert!(!rig.ok(&["subscription", "resume", "odoo"]).contains("held"));
    rig.ok(&["subscription", "delete", "odoo", "--yes"]);
    assert_eq!(rig.run(&["subscription", "show", "odoo"]).code, 4);
}

#[test]
fn a_token_opens_what_its_role_allows_until_it_is_revoked() {
    let rig = Rig::new();
    let made = rig.run(&["token", "create", "shop floor", "--role", "read", "--expires", "90days"]);
    assert!(made.code == 0 && made.out.starts_with("obx_") && made.out.lines().count() == 1);
    let file = rig.file("reader.token", &made.out);
    let with = ["--token-file", file.to_str().unwrap()];
    rig.ok(&[&["event", "list"][..], &with].concat());
    rig.run(&[&["emit", "a", "--payload", "1"][..], &with].concat()).ends(77, &["read"]);
    let id = made.err.split_whitespace().last().unwrap();
    assert!(rig.ok(&["token", "list"]).contains("shop floor"));
    rig.ok(&["token", "revoke", id, "--yes"]);
    assert_eq!(rig.run(&[&["event", "list"][..], &with].concat()).code, 77);
}

#[test]
fn the_description_of_the_api_is_printed_without_a_service() {
    let printed = Rig::stopped().ok(&["openapi"]);
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document, oncebox::api::openapi::document());
}

#[test]
fn completions_are_made_for_every_shell() {
    let rig = Rig::stopped();
    for shell in ["bash", "zsh", "fish"] {
        assert!(rig.ok(&["completions", shell]).contains("oncebox"));
    }
}

#[test]
fn a_provider_says_where_its_ordering_key_is() {
    let rig = Rig::new();
    let args = ["provider", "create", "shop", "--scheme", "shopify", "--pii", "allow"];
    let key = ["--generate-secret", "--ordering-key", "$.order_id"];
    rig.ok(&[&args[..], &key[..]].concat());
    let shown = || rig.items(&["provider", "list"])[0]["ordering_key"].clone();
    assert_eq!(shown(), serde_json::json!({ "path": "$.order_id" }));
    let change = |to| rig.run(&["provider", "change", "shop", "--ordering-key", to]);
    assert_eq!(change("header:X-Order-Id").code, 0);
    assert_eq!(shown(), serde_json::json!({ "header": "X-Order-Id" }));
    assert_eq!(change("none").code, 0);
    assert_eq!(shown(), Value::Null);
    let refused = change("order_id");
    assert!(refused.code == 2 && refused.err.contains("header:NAME"), "{refused:?}");
}

#[test]
fn the_first_start_says_what_is_kept_in_the_clear_and_a_stated_policy_ends_the_warning() {
    // 000: "Provider webhook payloads containing PII must be scrubbed before storage."
    let mut rig = Rig::stopped();
    let greeting = |rig: &Rig| {
        let mut serve = rig.command(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said: Vec<String> = lines.by_ref().take(5).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        said
    };
    let said = greeting(&rig);
    let line = said.iter().find(|line| line.contains("in the clear")).unwrap();
    assert!(line.contains("tenant change default --pii"), "{line}");
    rig.start();
    rig.ok(&["tenant", "change", "default", "--title", "Ours"]);
    assert!(rig.ok(&["status"]).contains("Published events are kept in the clear"));
    assert!(rig.ok(&["doctor"]).contains("warn  personal_data"));
    rig.ok(&["tenant", "change", "default", "--pii", "allow"]);
    assert!(!rig.ok(&["status"]).contains("in the clear"));
    assert!(rig.ok(&["doctor"]).contains("ok    personal_data"));
    rig.kill();
    assert!(!greeting(&rig).iter().any(|line| line.contains("in the clear")));
}

#[test]
fn a_start_without_a_user_prints_the_code_of_the_first_admin_to_a_terminal_and_not_to_the_journal()
{
    let rig = Rig::stopped();
    // What is said, up to the line about the first administrator.
    let start = |is_journal: bool| {
        let mut serve = rig.command(&["serve", "--listen", "127.0.0.1:0"]);
        serve.env_remove("JOURNAL_STREAM");
        if is_journal {
            serve.env("JOURNAL_STREAM", "8:4711");
        }
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let said: Box<dyn Read> = if is_journal { Box::new(err) } else { Box::new(out) };
        let mut lines = BufReader::new(said).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("first administrator")).unwrap();
        (child, line)
    };
    let end = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let (child, line) = start(true);
    assert!(line.contains("oncebox console link"), "{line}");
    assert!(!line.contains("with the code"), "{line}");
    end(child);
    // The code, as a browser enters it.
    let (child, line) = start(false);
    let (address, code) =
        line.split_once("/console/ makes the first administrator with the code ").unwrap();
    let address: SocketAddr = address.rsplit_once("http://").unwrap().1.parse().unwrap();
    let code: String = code.chars().take(34).collect();
    for (name, status) in [("not a name", 422), ("anna", 303)] {
        let form = format!("code={code}&name={name}&password={STRIPE}&again={STRIPE}");
        let answer =
            http::send(address, "POST", "/console/first-admin", &[], form.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{name}");
    }
    end(child);
    let mut serve = rig.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<String> = lines.take(4).collect();
    assert!(!said.concat().contains("first administrator"), "{said:?}");
    end(child);
}

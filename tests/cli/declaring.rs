//! `apply` and `export`: the service as a file declares it.

use crate::cli::rig::prelude::*;

const DECLARED: &str = r#"
[[provider]]
name = "stripe"
scheme = "stripe"
pii = "allow"
secret_file = "stripe.secret"

[[provider]]
name = "machine"
scheme = { kind = "generic", check = { token = { header = "X-Token" } } }
pii = "allow"
tolerance_secs = 60
ordering_key = { path = "$.order.id" }
secret_env = ["MACHINE_NEW", "MACHINE_OLD"]

[[subscription]]
name = "erp"
url = "http://127.0.0.1:9999/hook"
event_types = ["invoice.*"]
headers = { X-Site = "north" }
policy = { steps = ["1s", "30min"], max_attempts = 3 }

[[token]]
name = "shop"
role = "publish"
source_systems = ["shop"]
token_file = "shop.token"
"#;

/// A service, the file, and its secrets.
fn rig() -> Rig {
    let rig = Rig::new();
    rig.file("declared.toml", DECLARED);
    rig.file("stripe.secret", "whsec_one-one-one-one-one\n");
    rig
}

/// Runs apply with these flags; stdout.
#[track_caller]
fn apply(rig: &Rig, flags: &[&str]) -> String {
    let args = [&["apply", "--file", "declared.toml"], flags].concat();
    let mut command = rig.command(&args);
    command.env("MACHINE_NEW", "new-token-1234567890").env("MACHINE_OLD", "old-token-1234567890");
    let ran = run(&mut command, "");
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out
}

#[test]
fn what_is_declared_is_made_once_and_the_second_run_changes_nothing() {
    let rig = rig();
    let would = apply(&rig, &["--dry-run"]);
    assert_eq!(would.matches("would create").count(), 4, "{would}");
    assert!(rig.items(&["provider", "list"]).is_empty(), "a dry run makes nothing");
    let did = apply(&rig, &[]);
    shows(&did, &["created provider machine\ncreated subscription erp\ncreated token shop"]);
    assert_eq!(apply(&rig, &[]), "");
    assert_eq!(apply(&rig, &["--prune", "--dry-run"]), "");

    assert_eq!(rig.items(&["provider", "secrets", "machine"]).len(), 2);
    let path = rig.dir.path().join("shop.token");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let token = path.to_str().unwrap();
    rig.ok(&["emit", "invoice.paid", "--payload", "1", "--token-file", token]);
    assert_eq!(rig.run(&["token", "list", "--token-file", token]).code, 77);
}

#[test]
fn a_difference_is_shown_field_by_field_and_carried_out() {
    let rig = rig();
    apply(&rig, &[]);
    rig.ok(&["subscription", "create", "by-hand", "--url", "http://127.0.0.1:9999/x"]);
    let changed = DECLARED
        .replace("tolerance_secs = 60", "tolerance_secs = 90")
        .replace("invoice.*", "order.*")
        .replace("stripe.secret", "next.secret");
    rig.file("declared.toml", &changed);
    rig.file("next.secret", "whsec_two-two-two-two-two\n");
    let lines = [
        "add provider stripe: the secret in ",
        "change provider machine: tolerance_secs 60 -> 90",
        "change subscription erp: event_types [\"invoice.*\"] -> [\"order.*\"]",
    ];
    let would = apply(&rig, &["--dry-run"]);
    for line in lines {
        assert!(would.contains(&format!("would {line}")), "{line} is not in {would}");
    }
    assert_eq!(would.lines().count(), 3, "{would}");
    apply(&rig, &[]);
    assert_eq!(apply(&rig, &[]), "");
    assert_eq!(
        rig.items(&["provider", "secrets", "stripe"]).len(),
        2,
        "the old one stays in force"
    );

    let pruned = apply(&rig, &["--prune", "--yes"]);
    assert!(pruned.contains("withdrawn provider stripe: the secret "), "{pruned}");
    assert!(pruned.contains("deleted subscription by-hand"), "{pruned}");
    assert_eq!(rig.items(&["provider", "secrets", "stripe"]).len(), 1);
    assert_eq!(apply(&rig, &["--prune", "--yes"]), "");
    let left = rig.items(&["provider", "secrets", "stripe"])[0]["id"].clone();
    rig.run(&["provider", "withdraw", "stripe", left.as_str().unwrap(), "--yes"])
        .ends(5, &["last secret"]);
}

#[test]
fn a_new_secret_of_a_subscription_replaces_the_old_one() {
    let rig = rig();
    apply(&rig, &[]);
    let declared = DECLARED.replace("event_types", "secret_file = \"erp.secret\"\nevent_types");
    rig.file("declared.toml", &declared);
    rig.file("erp.secret", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3\n");
    assert!(apply(&rig, &[]).contains("added subscription erp: the secret in "));
    assert_eq!(apply(&rig, &[]), "");
}

#[test]
fn what_is_exported_makes_the_same_elsewhere() {
    let rig = rig();
    apply(&rig, &[]);
    let exported = rig.ok(&["export"]);
    for secret in ["whsec_one-one-one-one-one", "new-token-1234567890", "obx_"] {
        assert!(!exported.contains(secret), "{exported}");
    }
    let supplied = exported
        .replace("# secret_file = \"secrets/stripe\"", "secret_file = \"stripe.secret\"")
        .replace("# secret_file = \"secrets/machine\"", "secret_file = \"stripe.secret\"")
        .replace("# token_file", "token_file");
    let other = Rig::new();
    other.file("stripe.secret", "whsec_one-one-one-one-one\n");
    let file = other.file("exported.toml", &supplied);
    let missing = other.file("missing.toml", &exported);
    other
        .run(&["apply", "--file", missing.to_str().unwrap()])
        .ends(65, &["provider stripe: a new provider needs"]);
    other.ok(&["apply", "--file", file.to_str().unwrap()]);
    assert_eq!(other.ok(&["export"]), exported);
    assert_eq!(other.ok(&["apply", "--file", file.to_str().unwrap()]), "");
}

/// A file that declares two sources and a provider with a policy.
fn with_sources(rig: &Rig, table: &str, delimiter: &str) {
    rig.file("stripe.secret", "whsec_one-one-one-one-one\n");
    rig.file(
        "declared.toml",
        &format!(
            r#"
[[provider]]
name = "stripe"
scheme = "stripe"
public_url = "https://erp.example/hooks/stripe"
pii = {{ rules = [{{ path = "$.customer.email", action = "mask" }}] }}
secret_file = "stripe.secret"

[[source]]
name = "erp"
kind = "sqlite"
settings = {{ path = "/srv/erp/erp.db", table = "{table}", columns = {{ event_type = "kind" }} }}
silent_after_ms = 86_400_000
from = "start"

[[source]]
name = "shop"
kind = "drop"
settings = {{ path = "/srv/there-is-none", delimiter = "{delimiter}", defaults = {{ event_type = "invoice.created" }} }}
silent_after_ms = 0
"#
        ),
    );
}

#[test]
fn sources_are_declared_changed_pruned_and_exported_like_the_rest() {
    let rig = Rig::new();
    with_sources(&rig, "outbox", ";");
    let would = apply(&rig, &["--dry-run"]);
    assert!(would.ends_with("would create source erp\nwould create source shop\n"), "{would}");
    assert!(rig.items(&["source", "list"]).is_empty(), "a dry run makes nothing");
    apply(&rig, &[]);
    assert_eq!(apply(&rig, &["--prune", "--yes"]), "");
    let erp = rig.json(&["source", "show", "erp"]);
    assert_eq!(erp["settings"]["columns"]["event_type"], "kind");
    assert_eq!(erp["silent_after_ms"], 86_400_000);

    // Elsewhere the same, without secrets, and it does nothing the second time.
    let exported = rig.ok(&["export"]);
    assert!(exported.contains("public_url = \"https://erp.example/hooks/stripe\""), "{exported}");
    assert!(
        exported.contains("\"$.customer.email\"") && !exported.contains("whsec_one"),
        "{exported}"
    );
    let other = Rig::new();
    other.file("stripe.secret", "whsec_one-one-one-one-one\n");
    let supplied =
        exported.replace("# secret_file = \"secrets/stripe\"", "secret_file = \"stripe.secret\"");
    let file = other.file("exported.toml", &supplied);
    other.ok(&["apply", "--file", file.to_str().unwrap()]);
    assert_eq!(other.ok(&["export"]), exported);
    assert_eq!(other.ok(&["apply", "--file", file.to_str().unwrap(), "--prune", "--yes"]), "");

    with_sources(&rig, "events", ",");
    let changed = apply(&rig, &[]);
    assert!(changed.contains("changed source erp: settings {"), "{changed}");
    assert_eq!(rig.json(&["source", "show", "erp"])["settings"]["table"], "events");
    assert_eq!(apply(&rig, &[]), "");
    rig.ok(&["source", "add", "by-hand", "--sqlite", "/srv/other.db", "--json"]);
    assert_eq!(apply(&rig, &["--prune", "--yes"]), "deleted source by-hand\n");

    let kind = "[[source]]\nname = \"erp\"\nkind = \"drop\"\nsettings = { path = \"/srv/x\" }\n";
    rig.file("declared.toml", kind);
    rig.run(&["apply", "--file", "declared.toml"])
        .ends(5, &["the kind of a source cannot be changed"]);
    rig.file("declared.toml", &kind.replace("/srv/x", "srv"));
    rig.run(&["apply", "--file", "declared.toml"]).ends(65, &["source erp: settings: "]);
}

#[test]
fn a_declared_policy_that_allows_everything_is_stated_once() {
    let rig = Rig::new();
    rig.file("declared.toml", "[[tenant]]\nname = \"default\"\npii = \"allow\"\n\n[[tenant]]\nname = \"acme\"\npii = \"allow\"\n");
    shows(&apply(&rig, &[]), &["changed tenant default: pii", "created tenant acme"]);
    assert_eq!(apply(&rig, &[]), "");
    assert!(!rig.ok(&["status"]).contains("in the clear"));
}

#[test]
fn a_tenants_policy_on_personal_data_is_declared_before_anything_is_read_and_exported() {
    let rig = Rig::new();
    let declared = |action: &str| {
        format!(
            "[[tenant]]\nname = \"default\"\n\
             pii = {{ rules = [{{ path = \"$.name\", action = \"{action}\" }}], subject = \"$.id\" }}\n\n\
             [[tenant]]\nname = \"acme\"\ntitle = \"Acme Ltd\"\npii = \"allow\"\n"
        )
    };
    rig.file("declared.toml", &declared("mask"));
    let would = apply(&rig, &["--dry-run"]);
    assert!(would.starts_with("would change tenant default: pii \"allow\" -> {"), "{would}");
    assert!(would.ends_with("would create tenant acme\n"), "{would}");
    apply(&rig, &[]);
    assert_eq!(apply(&rig, &["--prune", "--yes"]), "", "tenants are never deleted");
    let made =
        rig.json(&["emit", "invoice.paid", "--payload", "{\"name\":\"Annemarie Duck\",\"id\":1}"]);
    let id = made["events"][0]["id"].as_str().unwrap();
    let payload = rig.ok(&["event", "show", id, "--payload"]);
    assert!(!payload.contains("Annemarie"), "{payload}");

    let exported = rig.ok(&["export"]);
    let other = Rig::new();
    let token = exported.replace("# token_file", "token_file");
    let file = other.file("exported.toml", &token);
    other.ok(&["apply", "--file", file.to_str().unwrap()]);
    assert_eq!(other.ok(&["export"]), exported);

    rig.file("declared.toml", &declared("encrypt"));
    rig.run(&["apply", "--file", "declared.toml"])
        .ends(65, &["tenant default: pii: unknown variant"]);

    // Whose token is a tenant's sees no tenants, and is told whose it takes.
    let args = ["token", "create", "acme-admin", "--role", "admin", "--tenant", "acme"];
    let acme = rig.json(&args)["token"].as_str().unwrap().to_owned();
    let acme = rig.file("acme.token", &acme);
    let acme = acme.to_str().unwrap();
    rig.file("declared.toml", &declared("mask"));
    rig.run(&["apply", "--file", "declared.toml", "--token-file", acme])
        .ends(77, &["of the tenant default"]);
    let theirs = rig.ok(&["export", "--token-file", acme]);
    assert!(!theirs.contains("[[tenant]]") && theirs.contains("[[token]]"), "{theirs}");
}

#[test]
fn a_mistake_in_the_last_object_is_found_before_the_first_is_made() {
    let rig = rig();
    let args = ["apply", "--file", "declared.toml"];
    let mistakes = [
        (
            "[[tenant]]\nname = \"acme\"\n[[tenant]]\nname = \"north\"\npii = \"allow\"\n",
            65,
            "tenant acme: a new tenant says",
        ),
        (
            "[[tenant]]\nname = \"north\"\npii = \"allow\"\n[[token]]\nname = \"shop\"\nrole = \"publish\"\n",
            65,
            "token shop: a new token is written to a file",
        ),
        (
            "[[tenant]]\nname = \"north\"\npii = \"allow\"\n[[provider]]\nname = \"stripe\"\nscheme = \"stripe\"\npii = \"allow\"\nsecret_env = [\"NOT_SET\"]\n",
            65,
            "provider stripe: the variable NOT_SET is not set",
        ),
    ];
    for (declared, code, says) in mistakes {
        rig.file("declared.toml", declared);
        rig.run(&args).ends(code, &[says]);
        assert_eq!(rig.items(&["tenant", "list"]).len(), 1, "nothing was made: {says}");
    }
}

#[test]
fn a_mistake_in_what_is_declared_is_named_with_its_place() {
    let rig = Rig::stopped();
    let text = "[[provider]]\nname = \"a\"\nscheme = \"stripe\"\nsecret = \"whsec_x\"\n\
                [[subscription]]\nname = 1\nurll = \"x\"\n[[token]]\nname = \"t\"\nrole = \"read\"\n\
                [[token]]\nname = \"t\"\nrole = \"read\"\n";
    let file = rig.file("wrong.toml", text);
    let ran = rig.run(&["config", "check", file.to_str().unwrap()]);
    assert_eq!(ran.code, 78);
    for part in [
        "wrong.toml:4:1: provider.secret: secrets do not belong in this file",
        "wrong.toml:1:1: provider has no pii",
        "wrong.toml:6:8: subscription.name must be a string in quotes",
        "wrong.toml:7:1: unknown key subscription.urll; did you mean url?",
        "token t is declared twice",
    ] {
        assert!(ran.err.contains(part), "{part} is not in {}", ran.err);
    }
    assert!(!ran.err.contains("whsec_x"));
}

#[test]
fn what_a_tenant_may_not_have_is_refused_with_the_setting() {
    let mut rig = Rig::stopped();
    rig.file("oncebox.toml", "[disk]\nreserve = 0\n[tenants]\nsubscriptions_max = 1\n");
    rig.start();
    let one = |name: &str| format!("[[subscription]]\nname = \"{name}\"\ntarget = \"pull\"\n");
    rig.file("declared.toml", &format!("{}{}", one("first"), one("second")));
    let ran = rig.run(&["apply", "--file", "declared.toml"]);
    let why = "would have 2 subscriptions, and may have 1: delete what it does not need, or raise tenants.subscriptions_max";
    assert!(ran.code != 0 && ran.err.contains(why) && ran.err.contains("second"), "{ran:?}");
}

#[test]
fn an_export_that_fails_prints_nothing_that_looks_like_all_there_is() {
    let rig = Rig::stopped();
    rig.file("admin.token", "obx_none\n");
    let ran = rig.run(&["export", "--server", "http://127.0.0.1:1"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
}

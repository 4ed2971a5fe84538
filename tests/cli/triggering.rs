//! `oncebox trigger`: signed samples to the own intake, with a secret nobody typed.

use oncebox::signatures::kinds;

use crate::cli::rig::prelude::*;

#[test]
fn a_sample_of_every_scheme_is_stored_and_known_the_second_time() {
    let rig = Rig::new();
    // Of the others nobody but the provider can make a sample.
    let others = ["sendgrid", "paypal", "sns", "generic"];
    for scheme in kinds().filter(|kind| !others.contains(kind)) {
        let args = ["provider", "create", scheme, "--scheme", scheme, "--pii", "allow"];
        let settings: &[&str] = match scheme {
            "chargebee" => &["--scheme-settings", r#"{"user":"erp"}"#],
            _ => &[],
        };
        rig.ok(&[&args[..], &["--generate-secret"], settings].concat());
        let first = rig.ok(&["trigger", scheme, "--id", "evt_4711"]);
        assert!(first.contains("stored as"), "{first}");
        let next = first.lines().find(|line| line.contains("oncebox webhook ")).unwrap();
        let args: Vec<&str> = next.split_whitespace().skip(1).collect();
        // Some are known by the SHA-256 of their body, which the id is part of.
        let shown = rig.ok(&args);
        let by_body = ["terraform", "grafana", "frappe", "dynamics", "meta", "xero", "zoom"]
            .contains(&scheme);
        assert!(by_body || shown.contains("evt_4711"), "{shown}");
        shows(&rig.ok(&["trigger", scheme, "--id", "evt_4711"]), &["already processed"]);
        assert_eq!(rig.json(&["trigger", scheme, "--type", "thing.changed"])["status"], "ok");
        let found = rig.items(&["webhook", "list", "--provider", scheme]);
        assert_eq!((found.len(), found[0]["event_type"].as_str()), (2, Some("thing.changed")));
    }
}

#[test]
fn a_scheme_that_signs_its_url_signs_the_public_one() {
    let rig = Rig::new();
    let secret = rig.file("secret", "0123456789abcdef0123456789abcdef");
    let secret = secret.to_str().unwrap();
    for scheme in ["square", "twilio"] {
        let url = format!("https://edge.example/hooks/{scheme}");
        let create = ["provider", "create", scheme, "--scheme", scheme, "--pii", "allow"];
        let more = ["--secret-file", secret, "--public-url", &url];
        rig.ok(&[&create[..], &more].concat());
        assert!(rig.ok(&["trigger", scheme]).contains("stored as"));
        // With a secret file the URL is asked of the service, or read where the database is at hand.
        assert!(rig.ok(&["trigger", scheme, "--secret-file", secret]).contains("stored as"));
        let token = rig.dir.path().join("admin.token");
        let address = fs::read_to_string(rig.dir.path().join("oncebox.address")).unwrap();
        let server = format!("http://{}", address.trim());
        let args = ["trigger", scheme, "--secret-file", secret, "--server", &server];
        let named = ["--token-file", token.to_str().unwrap()];
        assert!(Rig::stopped().ok(&[&args[..], &named].concat()).contains("stored as"));
    }
}

#[test]
fn a_provider_of_another_name_or_of_none_is_told_apart() {
    let rig = Rig::new();
    rig.run(&["trigger", "stripe"]).ends(4, &["oncebox provider create stripe"]);
    let args = ["provider", "create", "shop", "--scheme", "github", "--pii", "allow"];
    rig.ok(&[&args[..], &["--generate-secret"]].concat());
    rig.run(&["trigger", "stripe", "--provider", "shop"]).ends(65, &["is github, not"]);
    assert!(rig.ok(&["trigger", "github", "--provider", "shop"]).contains("stored as"));
    let secret = rig.file("wrong", "0123456789abcdef\n");
    let wrong =
        ["trigger", "github", "--provider", "shop", "--secret-file", secret.to_str().unwrap()];
    assert_eq!(rig.run(&wrong).code, 77);
    let listed = rig.ok(&["webhook", "refused", "--since", "1d", "--provider", "shop"]);
    for part in ["shop", "401", "127.0.0.1", "signature"] {
        assert!(listed.contains(part), "{listed}");
    }
}

#[test]
fn a_secret_file_needs_neither_key_nor_database() {
    let rig = Rig::new();
    let secret = rig.file("secret", "0123456789abcdef0123456789abcdef");
    let secret = secret.to_str().unwrap();
    let args = ["provider", "create", "github", "--scheme", "github", "--pii", "allow"];
    rig.ok(&[&args[..], &["--secret-file", secret]].concat());
    let address = fs::read_to_string(rig.dir.path().join("oncebox.address")).unwrap();
    let elsewhere = Rig::stopped();
    let url = format!("http://{}", address.trim());
    let args = ["trigger", "github", "--server", &url];
    assert!(elsewhere.ok(&[&args[..], &["--secret-file", secret]].concat()).contains("stored as"));
    elsewhere.run(&args).ends(65, &["--secret-file"]);
}

#[test]
fn what_a_public_key_checks_is_signed_by_a_pair_that_is_made_here() {
    let rig = Rig::new();
    for (scheme, provider) in [("sendgrid", "sendgrid"), ("standard", "by-key")] {
        let file = rig.dir.path().join(format!("{scheme}.key"));
        let path = file.to_str().unwrap();
        let made = rig.ok(&["trigger", scheme, "--provider", provider, "--new-key", path]);
        // What it prints works as printed.
        let next: Vec<&str> =
            made.lines().filter_map(|line| line.strip_prefix("  oncebox ")).collect();
        assert_eq!(next.len(), 2, "{made}");
        let run = |line: &str| rig.ok(&line.split_whitespace().collect::<Vec<_>>());
        run(next[0]);
        assert!(run(next[1]).contains("stored as"));
        assert_eq!(rig.items(&["webhook", "list", "--provider", provider]).len(), 1);
        // Nothing is overwritten, the private key is its owner's, and another's signs nothing here.
        rig.run(&["trigger", scheme, "--new-key", path]).ends(5, &["nothing was overwritten"]);
        let rights = PermissionsExt::mode(&file.metadata().unwrap().permissions());
        assert_eq!(rights & 0o777, 0o600);
        let other = rig.dir.path().join(format!("{scheme}.other"));
        let other = other.to_str().unwrap();
        rig.ok(&["trigger", scheme, "--new-key", other]);
        let wrong = ["trigger", scheme, "--provider", provider, "--secret-file", other];
        assert_eq!(rig.run(&wrong).code, 77);
        // Without the private key it is said what to do.
        rig.run(&["trigger", scheme, "--provider", provider]).ends(65, &["--new-key"]);
    }
    let shared = rig.dir.path().join("x");
    rig.run(&["trigger", "github", "--new-key", shared.to_str().unwrap()])
        .ends(2, &["signs with a secret"]);
}

#[test]
fn why_nobody_can_sign_for_paypal_and_sns_is_said_with_what_sends_a_real_one() {
    let rig = Rig::new();
    for (scheme, settings, real) in [
        ("paypal", r#"{"webhook_id":"4JH86294D6297924G"}"#, "sandbox"),
        (
            "sns",
            r#"{"topics":["arn:aws:sns:eu-central-1:123456789012:orders"]}"#,
            "aws sns publish",
        ),
    ] {
        let args = ["provider", "create", scheme, "--scheme", scheme, "--pii", "allow"];
        rig.ok(&[&args[..], &["--scheme-settings", settings]].concat());
        let none = rig.run(&["trigger", scheme]);
        assert!(none.code == 65 && none.err.contains("its own certificate"), "{none:?}");
        assert!(none.err.contains(real), "{none:?}");
    }
}

#[test]
fn a_named_token_s_tenant_is_posted_to_and_a_suspended_one_is_said() {
    let rig = Rig::new();
    let create = ["provider", "create", "shop", "--scheme", "shopify", "--pii", "allow"];
    rig.ok(&[&create[..], &["--generate-secret"]].concat());
    rig.ok(&["tenant", "create", "acme", "--pii", "allow"]);
    let file = rig.dir.path().join("acme.token");
    let path = file.to_str().unwrap();
    let token = ["token", "create", "acme", "--role", "admin", "--tenant", "acme", "--out", path];
    rig.ok(&token);
    let as_acme = ["--token-file", path];
    let trigger = ["trigger", "shopify", "--provider", "shop"];
    let missing = rig.run(&[&trigger[..], &as_acme].concat());
    assert_eq!(missing.code, 4, "acme has no provider of that name: {missing:?}");
    rig.ok(&[&create[..], &["--generate-secret"], &as_acme].concat());
    shows(&rig.ok(&[&trigger[..], &as_acme].concat()), &["/in/acme/shop"]);
    assert_eq!(rig.items(&["webhook", "list"]).len(), 0, "nothing came to the tenant default");
    assert!(rig.ok(&trigger).contains("/in/shop"));
    rig.ok(&["tenant", "suspend", "acme"]);
    let refused = rig.run(&[&trigger[..], &as_acme].concat());
    assert_eq!(refused.code, 77);
    assert!(refused.err.contains("suspended"), "{refused:?}");
}

//! `oncebox verify-signature`: offline, it says why.

use ring::hmac;

use crate::cli::rig::prelude::*;

const SECRET: &str = "whsec_0123456789abcdef0123";
const BODY: &str = r#"{"id":"evt_1","type":"invoice.paid","livemode":false}"#;

fn signed(secret: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mac = hmac::sign(&key, format!("1700000000.{body}").as_bytes());
    format!("t=1700000000,v1={}", HEXLOWER.encode(mac.as_ref()))
}

#[test]
fn a_captured_request_is_said_to_be_valid_or_why_not() {
    let rig = Rig::stopped();
    let secret = rig.file("secret", &format!("{SECRET}\n"));
    let check = |header: &str, body: &str, at: &str| {
        let head = "POST /in/stripe HTTP/1.1\r\nHost: edge.example\r\nStripe-Signature: ";
        let request = rig.file("request", &format!("{head}{header}\r\n\r\n{body}"));
        rig.run(&[
            "verify-signature",
            "--scheme",
            "stripe",
            "--secret-file",
            secret.to_str().unwrap(),
            "--request",
            request.to_str().unwrap(),
            "--at",
            at,
        ])
    };
    let valid = check(&signed(SECRET, BODY), BODY, "1700000010");
    assert_eq!((valid.code, valid.out.trim()), (0, "valid: invoice.paid evt_1"), "{valid:?}");
    let late = check(&signed(SECRET, BODY), BODY, "2023-11-14T23:13:20Z");
    assert!(late.code == 1 && late.out.contains("it is 3600 s away"), "{late:?}");
    let spaced = check(&signed(SECRET, BODY), &BODY.replace(':', ": "), "1700000000");
    assert!(spaced.code == 1 && spaced.out.contains("the body were re-serialised"), "{spaced:?}");
    // The secret is right, so the last line must not say that none is.
    let last = "not valid: the signature would be right if the body were re-serialised";
    assert!(spaced.err.contains(last), "{spaced:?}");
    let newline = check(&signed(&format!("{SECRET}\n"), BODY), BODY, "1700000000");
    assert!(newline.code == 1 && newline.out.contains("newline at its end"), "{newline:?}");
    let other = check(&signed("whsec_of_another_endpoint", BODY), BODY, "1700000000");
    assert!(other.code == 1 && other.out.contains("the secret is another one"), "{other:?}");
    assert!(other.out.contains("the body is of test mode"), "{other:?}");
    let last = "not valid: the signature does not match this secret and this body";
    assert!(
        other.err.contains(last) && other.out.contains("the body was reformatted"),
        "{other:?}"
    );
    for ran in [&late, &spaced, &newline, &other] {
        assert!(!format!("{ran:?}").contains(SECRET), "{ran:?}");
    }
}

#[test]
fn what_is_missing_is_asked_for() {
    let rig = Rig::stopped();
    rig.run(&["verify-signature", "--scheme", "github"]).ends(2, &["--secret-file"]);
    let secret = rig.file("secret", "0123456789abcdef");
    let secret = secret.to_str().unwrap();
    let args = ["verify-signature", "--scheme", "github", "--secret-file", secret];
    rig.run(&args).ends(2, &["--body"]);
    let body = rig.file("body", "{}");
    let more = ["--body", body.to_str().unwrap(), "--header", "X-Hub-Signature: sha1=00"];
    rig.run(&[&args[..], &more].concat()).ends(1, &[]).prints(&["it has x-hub-signature"]);
}

//! Policies on personal data: what becomes of a body, as a table, and that nothing else of it changes.

use oncebox::model::sealed::splice;
use oncebox::privacy::policy::detect::Detector;
use oncebox::privacy::policy::{Applied, Policy, With};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A policy of rules like `seal $.a; mask $.note email`: an action, a path, and what is to be found there.
fn policy(rules: &str) -> Policy {
    let rule = |rule: &str| {
        let mut words = rule.split(' ').peekable();
        let mut rule = json!({ "action": words.next() });
        if let Some(path) = words.next_if(|word| word.starts_with('$')) {
            rule["path"] = path.into();
        }
        if words.peek().is_some() {
            rule["detect"] = words.collect();
        }
        rule
    };
    let rules: Vec<Value> = rules.split("; ").map(rule).collect();
    Policy::parse(&json!({ "rules": rules }).to_string()).unwrap()
}

fn apply(policy: &Policy, media: &str, body: &str) -> Result<Applied, String> {
    let hash = |text: &str| format!("hmac:<{text}>");
    policy.apply(media, body.as_bytes(), &hash, true).map_err(|refused| refused.to_string())
}

/// The body as it would be stored; what is sealed stands between pointed brackets.
fn stored(policy: &Policy, media: &str, body: &str) -> Result<String, String> {
    let applied = apply(policy, media, body)?;
    let parts = applied.edits.into_iter().map(|edit| {
        let with = match edit.with {
            With::Text(text) => text,
            With::Seal(_) => format!("<{}>", body.get(edit.span.clone()).unwrap()),
        };
        (edit.span, with.into_bytes())
    });
    Ok(String::from_utf8(splice(body.as_bytes(), parts)).unwrap())
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn json_keeps_every_byte_that_no_rule_matches() {
    for (rules, body, expected) in [
        (
            "seal $.a",
            r#"{ "a" : "x\u0041" , "b":1.50e3 }"#,
            r#"{ "a" : <"x\u0041"> , "b":1.50e3 }"#,
        ),
        ("seal $.a", r#"{"a":{"b":[1]},"a":null}"#, r#"{"a":<{"b":[1]}>,"a":null}"#),
        ("drop $.a", r#"{"a":1, "b":2}"#, r#"{"b":2}"#),
        ("drop $.b", r#"{"a":1, "b":2 }"#, r#"{"a":1 }"#),
        ("drop $.*", r#"{ "a":1, "b":2 }"#, r"{ }"),
        ("drop $..x", r#"{"x":0,"x":0,"a":{"x":1,"y":{"x":2}},"x":3}"#, r#"{"a":{"y":{}}}"#),
        ("drop $[*]", r#"[1, "b"]"#, "[null, null]"),
        ("drop $", r#" {"a":1} "#, " null "),
        ("mask $.a", r#"{"a":"jane@x.org"}"#, r#"{"a":"***@x.org"}"#),
        (
            "mask $.*",
            r#"{"a":123456789,"b":true,"c":{"d":1},"e":null}"#,
            r#"{"a":"***6789","b":"***","c":"***","e":null}"#,
        ),
        (
            "hash $..a",
            r#"{"a":"\u0041","b":[{"a":"A"},{"a":1.0}]}"#,
            r#"{"a":"hmac:<A>","b":[{"a":"hmac:<A>"},{"a":"hmac:<1.0>"}]}"#,
        ),
    ] {
        assert_eq!(stored(&policy(rules), JSON, body).as_deref(), Ok(expected), "{rules}");
    }
}

#[test]
fn matches_are_changed_within_their_text_and_allow_rules_win() {
    for (rules, body, expected) in [
        (
            "mask email",
            r#"{"a":"to jane@x.org, joe\u0040y.org","n":4}"#,
            r#"{"a":"to ***@x.org, ***@y.org","n":4}"#,
        ),
        (
            "hash card; seal email",
            r#"["4111111111111111","x 4111111111111111 a@x.org"]"#,
            r#"["hmac:<4111111111111111>",<"x 4111111111111111 a@x.org">]"#,
        ),
        ("drop iban", r#"{"a":"IBAN DE89370400440532013000","b":1}"#, r#"{"b":1}"#),
        (
            "mask $.note email",
            r#"{"note":{"x":["a@x.org"]},"to":"a@x.org"}"#,
            r#"{"note":{"x":["***@x.org"]},"to":"a@x.org"}"#,
        ),
        (
            "seal email; allow $.shop",
            r#"{"shop":{"to":"a@x.org"},"to":"a@x.org"}"#,
            r#"{"shop":{"to":"a@x.org"},"to":<"a@x.org">}"#,
        ),
        (
            "seal $.c; allow $.c.id",
            r#"{"c":{"id":17,"n":"Jane","p":{"q":[1,{}]}}}"#,
            r#"{"c":{"id":17,"n":<"Jane">,"p":<{"q":[1,{}]}>}}"#,
        ),
        ("hash $.a; drop $.a", r#"{"a":1}"#, r#"{"a":"hmac:<1>"}"#),
        ("seal $['a.b'][1]", r#"{"a.b":[0,1,2]}"#, r#"{"a.b":[0,<1>,2]}"#),
    ] {
        assert_eq!(stored(&policy(rules), JSON, body).as_deref(), Ok(expected), "{rules}");
    }
}

#[test]
fn forms_and_texts_are_searched_in_their_own_way() {
    let both = policy("seal $.name; mask email");
    let form = "name=J%C3%BCrgen+M&to=a%40x.org&n=1&name=&flag";
    let expected = "name=<J%C3%BCrgen+M>&to=%2A%2A%2A%40x%2Eorg&n=1&name=&flag";
    assert_eq!(stored(&both, FORM, form).as_deref(), Ok(expected));
    // JSON that a sender calls a form is JSON.
    let called = stored(&both, FORM, r#" {"name":"Jane","to":"a@x.org"}"#);
    assert_eq!(called.as_deref(), Ok(r#" {"name":<"Jane">,"to":"***@x.org"}"#));
    // What stands without a name, or as one, is looked through as well.
    let called = stored(&both, FORM, "a@x.org&b%40x.org=1&name=J&{a@x.org=");
    let expected = "%2A%2A%2A%40x%2Eorg&%2A%2A%2A%40x%2Eorg=1&name=<J>&%7B%2A%2A%2A%40x%2Eorg=";
    assert_eq!(called.as_deref(), Ok(expected));
    let all = policy("seal $.*");
    assert_eq!(stored(&all, FORM, "a=1&Jane&").as_deref(), Ok("a=<1>&<Jane>&"));
    let rejected = policy("reject email");
    let refused = stored(&rejected, FORM, "n=1&b%40x.org=1").unwrap_err();
    assert!(refused.contains("byte 4") && !refused.contains("x.org"), "{refused}");
    let detectors = policy("seal email; drop card");
    let text = "<to>a@x.org</to> 4111 1111 1111 1111.";
    assert_eq!(stored(&detectors, "application/xml", text).as_deref(), Ok("<to><a@x.org></to> ."));
    let refused = stored(&both, "application/xml", text).unwrap_err();
    assert!(refused.contains("neither JSON"), "{refused}");
    let text = json!({ "rules": [{"path": "$.a", "action": "seal"}], "unreadable": "allow" });
    let lenient = Policy::parse(&text.to_string()).unwrap();
    assert_eq!(stored(&lenient, "text/plain", "a@x.org").as_deref(), Ok("a@x.org"));
    let bytes = |policy: &Policy| policy.apply("image/png", b"\xff\xfe", &|_| String::new(), false);
    assert!(bytes(&detectors).is_err() && bytes(&lenient).unwrap().edits.is_empty());
}

#[test]
fn json_in_a_form_is_searched_where_other_readers_see_it() {
    for (rules, form, expected) in [
        (
            "mask $.a",
            "payload=%7B%22a%22%3A%22xyz%22%7D",
            "payload=%7B%22a%22%3A%22%2A%2A%2A%22%7D",
        ),
        ("seal $.a", r#"payload={"a":"x+%C3%A4","b":1}"#, r#"payload={"a":<"x+%C3%A4">,"b":1}"#),
        (
            "seal $.a",
            "p=%7B%22a%22:%22x%22%2C%22b%22:1%7D",
            "p=%7B%22a%22:<%22x%22>%2C%22b%22:1%7D",
        ),
        ("seal $.a", "p={\"a\":{\"b\":[1,+2]}}", "p={\"a\":<{\"b\":[1,+2]}>}"),
        ("drop $.a", "p={\"a\":1,%22b%22:2}", "p={%22b%22:2}"),
        ("drop $.*", "p={\"a\":1}", "p="),
        // With a second field, the path begins with the name of the field.
        ("drop $.a; drop $.p.b", "p={\"a\":1,\"b\":2}&q=1", "p={\"a\":1}&q=1"),
        // A rule for the whole field counts before those for what is in it.
        ("seal $.p", "p={\"a\":1}", "p=<{\"a\":1}>"),
        ("allow $.p; seal $.*", "p={\"a\":1}&q=1", "p={\"a\":1}&q=<1>"),
        ("mask $.p email", "p={\"a\":\"j@x.org\"}", "p={\"a\":%22%2A%2A%2A%40x%2Eorg%22}"),
        (
            "mask email",
            "p=[\"j@x.org\"]&q=j@x.org",
            "p=[%22%2A%2A%2A%40x%2Eorg%22]&q=%2A%2A%2A%40x%2Eorg",
        ),
    ] {
        assert_eq!(stored(&policy(rules), FORM, form).as_deref(), Ok(expected), "{rules} {form}");
    }
    let refused = stored(&policy("reject email"), FORM, "p={\"a\":\"j@x.org\"}").unwrap_err();
    assert!(refused.ends_with("$.a"), "{refused}");
    let refused = stored(&policy("reject email"), FORM, "p={\"a\":\"j@x.org\"}&q=1").unwrap_err();
    assert!(refused.ends_with("$.p.a"), "{refused}");
}

#[test]
fn a_rejection_names_the_rule_and_the_path_and_never_the_value() {
    let rules = policy("drop $.x; reject $..iban; reject email");
    let refused = stored(&rules, JSON, r#"{"a":[{"b c":{"iban":"secret"}}]}"#).unwrap_err();
    assert!(refused.contains("rule 2") && refused.ends_with(r#"$.a[0]["b c"].iban"#), "{refused}");
    let refused = stored(&rules, JSON, r#"{"a":"who@x.org"}"#).unwrap_err();
    assert!(
        refused.contains("rule 3") && refused.ends_with("an e-mail address at $.a"),
        "{refused}"
    );
    assert!(!refused.contains("who@"));
    assert_eq!(stored(&rules, JSON, r#"{"iban":null}"#).as_deref(), Ok(r#"{"iban":null}"#));
    let deep = format!("{}1{}", "[".repeat(129), "]".repeat(129));
    assert!(stored(&rules, JSON, &deep).unwrap_err().contains("128 deep"));
}

#[test]
fn a_body_with_too_many_matches_is_refused_and_searched_once() {
    let policy = policy("mask email phone");
    let body = |n: usize| "jane@x.org +49 30 1234567; ".repeat(n);
    assert!(stored(&policy, "text/plain", &body(10_000)).is_ok());
    for (media, body) in
        [("text/plain", body(60_000)), (JSON, format!("[{}0]", r#""jane@x.org","#.repeat(100_001)))]
    {
        let why = stored(&policy, media, &body).unwrap_err();
        assert!(why.contains("more than 100000 values"), "{why}");
    }
}

#[test]
fn the_subject_is_read_only_if_a_field_is_sealed() {
    let text = json!({ "rules": [{"path": "$.c", "action": "seal"}], "subject": "$.c.id" });
    let policy = Policy::parse(&text.to_string()).unwrap();
    let subject = |media, body: &str| apply(&policy, media, body).unwrap().subject;
    assert_eq!(
        subject(JSON, r#"{"c":{"x":{"id":1},"id":1234567890123456789012}}"#).as_deref(),
        Some("1234567890123456789012")
    );
    assert_eq!(subject(JSON, r#"{"c":{"id":"\u0041"}}"#).as_deref(), Some("A"));
    assert_eq!(subject(JSON, r#"{"c":{"id":{}}}"#), None);
    assert_eq!(subject(JSON, r#"{"id":1}"#), None, "nothing is sealed");
    assert_eq!(subject(FORM, "c=1"), None);
}

/// Something personal, with what finds it.
fn planted() -> impl Strategy<Value = (Detector, &'static str)> {
    prop::sample::select(vec![
        (Detector::Email, "jane.roe@example.org"),
        (Detector::Phone, "+49 151 12345678"),
        (Detector::Card, "4111 1111 1111 1111"),
        (Detector::Iban, "DE89 3704 0044 0532 0130 00"),
    ])
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z \"\\\\\u{e4}\u{1f600}]{0,12}".prop_map(Value::from),
        ("[a-z]{0,6}", planted())
            .prop_map(|(before, (_, found))| format!("{before} {found}").into()),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Every text in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn what_is_stored_is_json_without_what_was_planted_and_with_every_other_byte(
        body in value(),
        pretty in any::<bool>(),
        action in prop::sample::select(vec!["mask", "hash", "seal", "drop"]),
        path in prop::sample::select(vec!["$.a", "$..b", "$[0]", "$.*.c", "$..d"]),
    ) {
        let text = if pretty { format!("{body:#}") } else { body.to_string() };
        let rules = policy(&format!("{action} {path}; {action} email phone card iban"));
        let applied = rules.apply(JSON, text.as_bytes(), &|_| "hmac:0".to_owned(), false).unwrap();
        let edits = applied.edits;
        let sealed = "\"obx-sealed.v.AAAA.\"";
        let with = |with: &With| match with {
            With::Text(text) => text.clone(),
            With::Seal(_) => sealed.to_owned(),
        };
        let parts = edits.iter().map(|edit| (edit.span.clone(), with(&edit.with).into_bytes()));
        let stored = String::from_utf8(splice(text.as_bytes(), parts)).unwrap();

        let read: Value = serde_json::from_str(&stored).unwrap();
        for left in texts(&read) {
            for detector in Detector::ALL {
                prop_assert!(detector.find(left).is_empty(), "{left}");
            }
        }
        // In order and apart, and what is between them is what was there.
        let (mut past, mut at) = (0, 0);
        for edit in &edits {
            prop_assert!(past <= edit.span.start && edit.span.start <= edit.span.end);
            let kept = text.get(past..edit.span.start).unwrap();
            prop_assert_eq!(Some(kept), stored.get(at..at + kept.len()));
            at += kept.len() + with(&edit.with).len();
            past = edit.span.end;
        }
        prop_assert_eq!(text.get(past..), stored.get(at..));
    }
}

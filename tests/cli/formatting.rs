//! What is sent of an event, and of which: the flags of `subscription`, `emit --header`, and what a file declares.

use crate::cli::rig::prelude::*;

const URL: &str = "http://127.0.0.1:9999/hook";

#[test]
fn a_subscription_is_tried_made_and_changed_by_flags() {
    let rig = Rig::new();
    let payload = r#"{"total":"150.00","status":"paid"}"#;
    let emit = ["emit", "invoice.paid", "--payload", payload, "--header", "X-Region: north"];
    let event = rig.json(&emit)["events"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(rig.json(&["event", "show", &event])["headers"], json!({ "X-Region": "north" }));
    rig.file("invoice.j2", "<total>\n{{ payload.total }}</total>\n");
    let create = [
        "subscription",
        "create",
        "erp",
        "--url",
        URL,
        "--filter",
        "$.total > 100",
        "--filter",
        "$.status in [\"paid\"]",
        "--event-header",
        "X-Region",
        "--template-file",
        "invoice.j2",
        "--template-type",
        "text/xml",
        "--template-header",
        "X-Type: {{ type }}",
    ];
    let shown = rig.ok(&[&create[..], &["--try", &event]].concat());
    let wanted = format!(
        "The event {event} matches. This would be sent:\n\ncontent-type: text/xml\nX-Type: invoice.paid\n\
         X-Region: north\n\n<total>\n150.00</total>\n"
    );
    assert_eq!(shown, wanted);
    assert!(rig.items(&["subscription", "list"]).is_empty());

    rig.ok(&create);
    let made = rig.json(&["subscription", "show", "erp"]);
    let filter = json!([{ "path": "$.total", "op": "gt", "value": 100 }, { "path": "$.status", "op": "in", "value": ["paid"] }]);
    assert_eq!((&made["filter"], &made["event_headers"]), (&filter, &json!(["X-Region"])));
    assert_eq!(made["template"]["headers"], json!({ "X-Type": "{{ type }}" }));

    let tried = ["subscription", "change", "erp", "--filter", "$.total < 100", "--try", &event];
    let shown = rig.ok(&tried);
    assert!(
        shown.starts_with(&format!(
            "The event {event} does not match: the condition does not hold: $.total lt 100."
        )),
        "{shown}"
    );
    let asked = ["subscription", "change", "erp", "--filter", "$.total < 100", "--what-if", "7d"];
    let shown = rig.ok(&asked);
    assert!(
        shown.contains("1 stored events since ") && shown.contains("       1    fewer than now")
    );
    assert!(shown.contains("would not be sent\n  the condition does not hold: $.total lt 100\n"));
    assert!(shown.contains("- X-Region: north\n- \n- <total>\n- 150.00</total>\n"), "{shown}");
    let changed =
        rig.json(&["subscription", "change", "erp", "--template-header", "x-type: {{ id }}"]);
    assert_eq!(changed["template"]["headers"], json!({ "x-type": "{{ id }}" }));
    assert!(changed["template"]["body"].is_string() && changed["filter"] == filter);
    let change = words(
        "subscription change erp --remove template --remove filter --remove \
        event-headers",
    );
    let changed = rig.json(&[&change[..], &["--format", "cloudevents_structured"]].concat());
    let left =
        [&changed["template"], &changed["filter"], &changed["event_headers"], &changed["format"]];
    assert_eq!(left, [&json!(null), &json!([]), &json!([]), &json!("cloudevents_structured")]);
}

#[test]
fn what_cannot_be_used_is_refused_with_what_to_change() {
    let rig = Rig::new();
    rig.file("wrong.j2", "a\n{{ b");
    rig.run(&["subscription", "create", "two", "--url", URL, "--template-file", "wrong.j2"])
        .fails(&["body, line 2: syntax error"]);
    rig.run(&["subscription", "create", "two", "--url", URL, "--remove", "filter"])
        .ends(2, &["--remove"]);
    rig.run(&["subscription", "create", "two", "--url", URL, "--filter", "$.total is 100"])
        .fails(&["PATH OP VALUE"]);
}

#[test]
fn a_file_declares_it_and_applying_it_again_changes_nothing() {
    let rig = Rig::new();
    let declared = r#"
[[subscription]]
name = "erp"
url = "http://127.0.0.1:9999/hook"
event_headers = ["X-Region"]
filter = [{ path = "$.total", op = "gt", value = 100 }, { op = "exists", path = "$.id" }]

[subscription.template]
headers = { X-Type = "{{ type }}" }
body = """
{"total": {{ payload.total|tojson }}}
"""

[[subscription]]
name = "bus"
url = "http://127.0.0.1:9999/bus"
format = "cloudevents_binary"
"#;
    rig.file("declared.toml", declared);
    let apply = ["apply", "--file", "declared.toml"];
    rig.ok(&apply);
    assert_eq!(rig.json(&["subscription", "show", "bus"])["format"], "cloudevents_binary");
    let again = rig.run(&apply);
    assert_eq!((again.code, again.err.trim()), (0, "2 unchanged"), "{again:?}");
    rig.file("declared.toml", &declared.replace("100", "200"));
    let changed = rig.ok(&apply);
    assert!(
        changed.starts_with("changed subscription erp: filter [")
            && changed.contains("\"value\":200"),
        "{changed}"
    );

    rig.file("exported.toml", &rig.ok(&["export"]));
    let same = rig.run(&["apply", "--file", "exported.toml", "--dry-run"]);
    assert_eq!((same.code, same.out.contains("subscription")), (0, false), "{same:?}");
    rig.file("wrong.toml", "[[subscription]]\nname = \"x\"\nfilter = [\"$.total > 1\"]\n");
    rig.run(&["apply", "--file", "wrong.toml"])
        .warns(&["wrong.toml:3:10: subscription.filter must be a list of tables"]);
}

#[test]
fn the_whole_policy_of_a_subscription_is_given_by_flags() {
    let rig = Rig::new();
    let create = "subscription create erp --url http://127.0.0.1:9999/ --rate 10/s --breaker-after 3 \
                  --confirm-within 1h --class 409=success --class 5xx=validation";
    rig.ok(&words(create));
    let policy = || rig.json(&["subscription", "show", "erp"])["policy"].clone();
    let classes = json!({ "409": "success", "5xx": "validation" });
    has(
        &policy(),
        &json!({ "rate": "10/s", "breaker_after": 3, "confirm_within": "1h", "classes": classes }),
    );
    rig.ok(&words("subscription change erp --rate 5/min --class 404=gone"));
    has(&policy(), &json!({ "rate": "5/min", "breaker_after": 3 }));
    assert_eq!(policy()["classes"]["404"], "gone");
    rig.run(&words("subscription change erp --class 409=fine")).ends(65, &["fine"]);
}

#[test]
fn lists_are_filtered_by_flags() {
    let rig = Rig::new();
    rig.ok(&words("subscription create erp --pull --owner finance --event-type invoice.*"));
    rig.ok(&words("emit invoice.paid --aggregate invoice/4711 --payload 1"));
    for (flags, count) in [
        ("subscription list --owner finance", 1),
        ("subscription list --event-type invoice.paid", 1),
        ("subscription list --event-type order.paid", 0),
        ("event list --aggregate-type invoice --aggregate-id 4711", 1),
        ("event list --aggregate-type order --aggregate-id 4711", 0),
        ("delivery list --code 503", 0),
        ("audit list --correlation-id ticket-17", 0),
        ("audit list --aggregate-type invoice --aggregate-id 4711", 0),
    ] {
        assert_eq!(rig.items(&words(flags)).len(), count, "{flags}");
    }
}

#[test]
fn events_go_into_files_and_mails_by_flags() {
    let rig = Rig::new();
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    rig.file("line.j2", "no;name\n{{ payload.no }};{{ payload.name }}\n");
    let create = ["subscription", "create", "files", "--folder", folder];
    let more = ["--name-template", "{{ type }}-{{ id }}.csv", "--template-file", "line.j2"];
    let more = [&more[..], &["--escape", "csv", "--template-type", "text/csv"]].concat();
    let emit = ["emit", "invoice.paid", "--payload", r#"{"no":"RE-1","name":"a;b"}"#];
    let before = rig.json(&emit)["events"][0]["id"].as_str().unwrap().to_owned();
    let shown = rig.ok(&[&create[..], &more, &["--try", &before]].concat());
    shows(&shown, &[&format!("file: invoice.paid-{before}.csv"), "no;name\nRE-1;\"a;b\"\n"]);
    rig.run(&[&create[..], &["--name-template", "{{ type }}.csv"]].concat())
        .fails(&["it must have {{ id }} or {{ webhook_id }}"]);
    let made = rig.ok(&[&create[..], &more].concat());
    assert!(!made.contains("secret"), "files are not signed: {made}");
    let event = rig.json(&emit)["events"][0]["id"].as_str().unwrap().to_owned();
    let file = out.path().join(format!("invoice.paid-{event}.csv"));
    rig.until("it is written", |_| file.exists());
    assert_eq!(fs::read_to_string(&file).unwrap(), "no;name\nRE-1;\"a;b\"\n");
    let tested = rig.ok(&["subscription", "test", "files"]);
    shows(&tested, &["synced and removed", "would be written", "It works."]);
    let shown = rig.json(&["subscription", "show", "files"]);
    assert_eq!(
        (&shown["target"], &shown["url"]),
        (&json!("folder"), &json!(format!("folder:{folder}")))
    );
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
    let mail = ["subscription", "create", "office", "--mail-to", "a@b.example", "--subject", "x"];
    rig.run(&mail).fails(&["no mail server is set"]);
}

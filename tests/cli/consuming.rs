//! `oncebox consume` with real commands, and `oncebox listen` with a real receiver.

use std::io::{BufRead, BufReader};
use std::process::Child;

use crate::cli::rig::prelude::*;

/// More than a command's output, of which the beginning is passed on, and what is said beside it.
const MOST_OUTPUT: usize = 300 * 1024;

/// A service with a pull subscription to everything, and these events for it.
fn with_events(types: &[&str]) -> Rig {
    let rig = Rig::new();
    shows(
        &rig.ok(&["subscription", "create", "shop", "--pull", "--steps", "100ms"]),
        &["oncebox consume shop -- COMMAND"],
    );
    for (n, event_type) in types.iter().enumerate() {
        let payload = format!("{{\"n\":{n}}}");
        let aggregate = ["--aggregate", &format!("order/{n}")].map(str::to_owned);
        let args = ["emit", event_type, "--payload", &payload];
        let aggregate: Vec<&str> = aggregate.iter().map(String::as_str).collect();
        rig.ok(&[&args[..], &aggregate].concat());
    }
    rig
}

fn consume(rig: &Rig, flags: &[&str], script: &str) -> Ran {
    rig.run(&[&["consume", "shop", "--once"], flags, &["--", "sh", "-c", script]].concat())
}

fn states(rig: &Rig) -> Vec<String> {
    let mut items = rig.items(&["delivery", "list"]);
    items.reverse();
    items.iter().map(|item| item["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_exit_code_of_a_command_says_what_came_of_the_event() {
    let rig = with_events(&["done", "later", "never", "failed", "killed"]);
    // What failed is not due again while the others are worked off, however slow the machine is.
    rig.ok(&["subscription", "change", "shop", "--steps", "1h"]);
    let script = "case $ONCEBOX_EVENT_TYPE in done) exit 0;; later) exit 75;; \
                  never) echo 'no such customer' >&2; exit 65;; failed) exit 3;; killed) kill -9 $$;; esac";
    let ran = consume(&rig, &["--delay", "1h", "--parallel", "5"], script);
    assert_eq!(
        (ran.code, ran.err.lines().last()),
        (1, Some("oncebox: 4 failed, 1 done")),
        "{ran:?}"
    );
    assert_eq!(states(&rig), ["completed", "pending", "dead_letter", "pending", "pending"]);
    let attempts = |n: u32| rig.items(&["delivery", "list"])[5 - n as usize].clone();
    let counted: Vec<Value> = (1..=5).map(|n| attempts(n)["counted_failures"].clone()).collect();
    assert_eq!(counted, [0, 0, 1, 1, 1]);
    assert_eq!(attempts(3)["reason"], "exit 65: no such customer");
    for line in
        ["dlv_1 done: done", "dlv_2 later: later (exit 75)", "dlv_5 killed: failed (killed by"]
    {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    shows(
        &rig.ok(&["event", "show", attempts(4)["event_id"].as_str().unwrap()]),
        &["pull:shop", "exit 3"],
    );
}

#[test]
fn a_command_reads_the_payload_and_finds_the_rest_in_its_environment() {
    let rig = with_events(&["order.paid"]);
    // The directory is set for the program itself, as the token and the master key can be.
    let script = "cat; echo; echo $ONCEBOX_DATABASE__DIRECTORY $ONCEBOX_WEBHOOK_ID $ONCEBOX_EVENT_TYPE $ONCEBOX_ATTEMPT \
                  $ONCEBOX_AGGREGATE_TYPE/$ONCEBOX_AGGREGATE_ID $ONCEBOX_CONTENT_TYPE";
    let ran = consume(&rig, &[], script);
    let mut lines = ran.out.lines();
    assert_eq!(lines.next(), Some("{\"n\":0}"), "{ran:?}");
    let words: Vec<&str> = lines.next().unwrap().split(' ').collect();
    assert!(words[0].starts_with("evt_"), "{ran:?}");
    assert_eq!(words[1..], ["order.paid", "1", "order/0", "application/json"]);
    rig.ok(&["emit", "b", "--payload", "{}"]);
    let ran = consume(&rig, &["--envelope", "--json"], "cat");
    let envelope: Value =
        serde_json::from_str(ran.out.lines().next().unwrap().split("}{").next().unwrap())
            .or_else(|_| {
                serde_json::from_str(&format!("{}}}", ran.out.split("}{").next().unwrap()))
            })
            .unwrap();
    assert_eq!((&envelope["payload_base64"], &envelope["attempt"]), (&"e30=".into(), &1.into()));
}

#[test]
fn no_command_is_told_where_our_secrets_stand() {
    let rig = with_events(&["order.paid"]);
    let script = "cat >/dev/null; echo \"<${CREDENTIALS_DIRECTORY-none} ${ONCEBOX_DATABASE__DIRECTORY-none} $ELSE>\" >>seen";
    for (args, seen) in [
        (&["consume", "shop", "--once", "--"][..], 1),
        (&["conformance", "--events", "1", "--count", script, "--"], 2),
    ] {
        let mut command = rig.command(&[args, &["sh", "-c", script]].concat());
        command.env("CREDENTIALS_DIRECTORY", "/run/credentials/x").env("ELSE", "else");
        run(&mut command, "");
        let found = fs::read_to_string(rig.dir.path().join("seen")).unwrap();
        assert!(found.lines().count() >= seen, "{args:?}: {found}");
        assert!(found.lines().all(|line| line == "<none none else>"), "{args:?}: {found}");
    }
}

#[test]
fn a_command_whose_time_is_over_is_killed_with_its_grandchildren() {
    let rig = with_events(&["slow"]);
    let pid_file = rig.dir.path().join("pid");
    let script = format!("sleep 600 & echo $! >{}; wait", pid_file.display());
    let ran = consume(&rig, &["--timeout", "300ms"], &script);
    assert!(ran.out.contains("failed (timed out)"), "{ran:?}");
    let pid = fs::read_to_string(pid_file).unwrap();
    rig.until("the grandchild is dead", |_| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.map_or(true, |stat| stat.contains(") Z"))
    });
}

#[test]
fn what_a_command_has_started_is_killed_at_its_timeout_even_if_it_heeds_no_signal() {
    let rig = with_events(&["slow"]);
    let pid_file = rig.dir.path().join("pid");
    let script = format!(
        "sh -c 'trap \"\" TERM; echo $$ >{}; while :; do sleep 1; done' & wait",
        pid_file.display()
    );
    let ran = consume(&rig, &["--timeout", "500ms"], &script);
    assert!(ran.out.contains("failed (timed out)"), "{ran:?}");
    let pid = fs::read_to_string(pid_file).unwrap();
    rig.until("the child is dead", |_| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.map_or(true, |stat| stat.contains(") Z"))
    });
    assert_eq!(states(&rig), ["pending"]);
}

#[test]
fn a_command_need_not_read_a_mebibyte_of_payload_and_gets_all_of_it_if_it_does() {
    let rig = with_events(&[]);
    let payload = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    rig.file("large.json", &payload);
    for event_type in ["unread", "read"] {
        rig.ok(&["emit", event_type, "--payload", "@large.json"]);
    }
    let ran = consume(&rig, &["--parallel", "2"], "case $ONCEBOX_EVENT_TYPE in read) wc -c;; esac");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.lines().any(|line| line.trim() == payload.len().to_string()), "{ran:?}");
    assert_eq!(states(&rig), ["completed"; 2]);
}

#[test]
fn of_output_that_never_ends_the_beginning_is_passed_on_until_the_time_is_over() {
    let rig = with_events(&["loud"]);
    let ran = consume(&rig, &["--timeout", "500ms"], "yes out & yes err >&2");
    assert!(ran.out.contains("failed (timed out"), "{}", ran.out.len());
    assert!(ran.out.len() < MOST_OUTPUT, "{}", ran.out.len());
    assert!(ran.err.len() < MOST_OUTPUT, "{}", ran.err.len());
    assert_eq!(rig.items(&["delivery", "list"])[0]["counted_failures"].clone(), 1);
}

#[test]
fn of_much_output_the_beginning_is_passed_on() {
    let rig = with_events(&["loud"]);
    let ran = consume(&rig, &[], "yes out | head -c 1000000 & yes err | head -c 1000000 >&2; wait");
    for passed in [&ran.out, &ran.err] {
        assert!((1000..MOST_OUTPUT).contains(&passed.len()), "{}", passed.len());
    }
    assert_eq!(rig.items(&["delivery", "list"])[0]["state"], "completed");
}

#[test]
fn a_command_that_cannot_be_begun_costs_no_event_an_attempt_that_counts() {
    let rig = with_events(&["a", "b", "c"]);
    let plain = rig.file("plain", "#!/bin/sh\n");
    let odd = rig.dir.path().join("odd");
    executable::write(&odd, "#!/nowhere/at/all\n");
    for (command, why) in [
        ("/nowhere/at/all", "No such file"),
        ("nowhere-in-the-path", "No such file"),
        (plain.to_str().unwrap(), "Permission denied"),
        (odd.to_str().unwrap(), "No such file"),
    ] {
        let ran = rig.run(&["consume", "shop", "--parallel", "2", "--", command]);
        assert_eq!(ran.code, 65, "{ran:?}");
        assert!(ran.err.contains("cannot be run") && ran.err.contains(why), "{ran:?}");
        let given = rig.items(&["delivery", "list"]);
        assert!(given.iter().all(|one| one["state"] == "pending" && one["counted_failures"] == 0));
    }
    assert_eq!(consume(&rig, &["--parallel", "3"], "true").code, 0);
}

#[test]
fn what_came_of_a_command_while_the_service_was_away_is_said_when_it_is_back() {
    let mut rig = with_events(&[]);
    rig.ok(&["subscription", "change", "shop", "--lease", "1s"]);
    for event_type in ["short", "long"] {
        rig.ok(&["emit", event_type, "--payload", "{}"]);
    }
    let ran = rig.dir.path().join("ran");
    let script = format!(
        "echo $ONCEBOX_EVENT_TYPE >>{0}; until [ -e go-$ONCEBOX_EVENT_TYPE ]; do sleep 0.02; done; \
         echo $ONCEBOX_EVENT_TYPE ended >>{0}",
        ran.display()
    );
    let child = start(&rig, &["consume", "shop", "--parallel", "3", "--", "sh", "-c", &script]);
    let said = |rig: &Rig, text: &str| {
        rig.until(text, |_| fs::read_to_string(&ran).is_ok_and(|said| said.contains(text)));
    };
    said(&rig, "short");
    said(&rig, "long");
    rig.kill();
    rig.file("go-short", "");
    said(&rig, "short ended");
    // So long that both leases are over when the service comes back, which gives both events again.
    thread::sleep(Duration::from_millis(1500));
    rig.start();
    rig.until("the first is done", |rig| states(rig).contains(&"completed".to_owned()));
    rig.until("the other one is ours again", |rig| {
        let given = rig.items(&["delivery", "list"]);
        given.iter().any(|one| one["state"] == "leased" && one["attempt_count"] == 1)
    });
    rig.file("go-long", "");
    rig.until("both are done", |rig| states(rig) == ["completed"; 2]);
    signal(&child, "TERM");
    let ended = end(child);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("the results are kept"), "{ended:?}");
    let ran = fs::read_to_string(ran).unwrap();
    assert_eq!(ran.lines().count(), 4, "each ran once: {ran}");
}

#[test]
fn a_lease_is_extended_while_its_command_runs() {
    let rig = with_events(&[]);
    rig.ok(&["subscription", "change", "shop", "--lease", "1s"]);
    rig.ok(&["emit", "slow", "--payload", "{}"]);
    let ran = consume(&rig, &[], "sleep 2.5");
    assert_eq!(ran.code, 0, "{ran:?}");
    let delivery = &rig.items(&["delivery", "list"])[0];
    assert_eq!((&delivery["state"], &delivery["attempt_count"]), (&"completed".into(), &1.into()));
}

fn start(rig: &Rig, args: &[&str]) -> Child {
    let mut command = rig.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn when_it_is_stopped_what_runs_is_finished_and_the_rest_waits_for_others() {
    let rig = with_events(&["a", "b", "c"]);
    let go = rig.dir.path().join("go");
    let run = format!("until [ -e {} ]; do sleep 0.05; done; echo did it", go.display());
    let child = start(&rig, &["consume", "shop", "--", "sh", "-c", &run]);
    rig.until("one is leased", |rig| states(rig).contains(&"leased".to_owned()));
    signal(&child, "TERM");
    fs::write(&go, "").unwrap();
    let ran = end(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("did it"), "{ran:?}");
    let states = states(&rig);
    assert_eq!(states.iter().filter(|state| *state == "leased").count(), 0);
    let done = states.iter().filter(|state| *state == "completed").count();
    assert_eq!(done, ran.out.matches("done").count());
    assert!(done < 3, "{states:?}");
}

#[test]
fn it_goes_on_when_the_service_comes_back() {
    let mut rig = with_events(&["a"]);
    let child = start(&rig, &["consume", "shop", "--json", "--", "true"]);
    rig.until("the first is done", |rig| states(rig) == ["completed"]);
    rig.kill();
    rig.start();
    rig.ok(&["emit", "b", "--payload", "{}"]);
    rig.until("the second is done", |rig| states(rig) == ["completed"; 2]);
    signal(&child, "INT");
    assert_eq!(end(child).code, 0);
}

#[test]
fn what_cannot_be_consumed_is_said_with_the_way_out() {
    let rig = Rig::new();
    let none = rig.run(&["consume", "shop", "--", "true"]);
    assert_eq!(none.code, 4, "{none:?}");
    rig.ok(&["subscription", "create", "pushed", "--url", "http://127.0.0.1:8069/"]);
    rig.run(&["consume", "pushed", "--", "true"]).ends(5, &["--pull"]);
    rig.ok(&["subscription", "create", "shop", "--pull"]);
    rig.ok(&["emit", "a", "--payload", "{}"]);
    rig.run(&["consume", "shop", "--timeout", "0s", "--", "true"]).ends(2, &["must be above zero"]);
    rig.run(&["consume", "shop", "--", "/nowhere/at/all"]).ends(65, &["cannot be run"]);
    let delivery = &rig.items(&["delivery", "list", "--state", "pending"])[0];
    assert_eq!(delivery["counted_failures"], 0);
    let both = ["subscription", "create", "x", "--pull", "--url", "http://127.0.0.1:8069/"];
    assert_eq!(rig.run(&both).code, 2);
    let without = rig.run(&["subscription", "create", "x"]);
    without.ends(2, &["--url", "--pull", "--folder", "--database", "--mail-to"]);
}

/// Takes one request, answers 201, and tells what it was.
fn receiver() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut length) = (String::new(), 0);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line);
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        stream
            .write_all(b"HTTP/1.1 201 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .unwrap();
        tell.send((head, body)).unwrap();
    });
    (url, told)
}

#[test]
fn listening_shows_and_forwards_signed_events_and_leaves_nothing_behind() {
    let rig = Rig::new();
    let (url, told) = receiver();
    let mut child = start(&rig, &["listen", "--event-type", "order.*", "--to", &url]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert!(line().starts_with("Listening for order.* from all, forwarded to http"));
    let secret = line().strip_prefix("secret: ").unwrap().to_owned();
    rig.ok(&["emit", "order.paid", "--payload", "{\"total\": 1.0}"]);
    shows(&line(), &["order.paid  evt_", "→ 201 in "]);
    assert_eq!(line().trim(), "{\"total\": 1.0}");
    let (head, body) = told.recv_timeout(crate::rig::PATIENCE).unwrap();
    assert_eq!(&*body, b"{\"total\": 1.0}");
    let field = |name: &str| {
        let found = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        found.unwrap_or_else(|| panic!("no {name} in {head}")).trim().to_owned()
    };
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(field);
    let signing = oncebox::signatures::signing::SigningSecret::parse(&secret).unwrap();
    let at = Timestamp::from_secs(headers[1].parse().unwrap());
    assert_eq!(headers[2], signing.sign(&headers[0], at, &body));
    // One that comes while it ends is cancelled with it.
    signal(&child, "INT");
    rig.ok(&["emit", "order.late", "--payload", "{}"]);
    assert_eq!(end(child).code, 0);
    assert_eq!(rig.items(&["subscription", "list"]), [] as [Value; 0]);
}

#[test]
fn what_a_killed_listener_left_is_told_of_and_deleted() {
    let rig = Rig::new();
    let mut child = start(&rig, &["listen"]);
    rig.until("it listens", |rig| rig.items(&["subscription", "list"]).len() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    rig.ok(&["emit", "a", "--payload", "{}"]);
    let second = start(&rig, &["listen"]);
    rig.until("both are there", |rig| rig.items(&["subscription", "list"]).len() == 2);
    signal(&second, "INT");
    let ran = end(second);
    assert!(ran.code == 0 && ran.err.contains("oncebox listen --clean"), "{ran:?}");
    let cleaned = rig.ok(&["listen", "--clean", "--yes"]);
    assert!(cleaned.starts_with("deleted: listen-"), "{cleaned}");
    assert_eq!(rig.items(&["subscription", "list"]), [] as [Value; 0]);
}

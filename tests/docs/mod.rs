//! Runs the commands of the README, of the examples and of the pages on consumers, guards and sources as a reader would
//! paste them: the service in one shell, the rest in another, in a directory of their own.
//!
//! Few things differ from the page: ports are free ones, the demo and the conformance program are given less to do, a
//! reader's own program is one of the test's, and what cargo runs has been built before.

mod pages;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::rig::executable;
use crate::rig::port::free_port;
use crate::rig::receiver::Receiver;
use serde_json::Value;

const README: &str = include_str!("../../README.md");
const INTEGRATOR: &str = include_str!("../../docs/integrator.md");
const NO_PUBLIC_ADDRESS: &str = include_str!("../../docs/no-public-address.md");
const EXAMPLES: &str = include_str!("../../examples/README.md");
const CONSUMERS: &str = include_str!("../../docs/consumers.md");
const GUARDS: &str = include_str!("../../docs/guards.md");
const SOURCES: &str = include_str!("../../docs/sources.md");
const ERP_ON_SQLITE: &str = include_str!("../../docs/erp/sqlite.md");
const PRIVACY: &str = include_str!("../../docs/privacy.md");
const ORDER: &str = include_str!("../../docs/order.md");
const PROVIDERS: &str = include_str!("../../docs/providers.md");

/// A `sh` block of a page and the shell its marker names: `serve`, `client`, `stopped` for what runs until it is stopped,
/// or none.
struct Block<'a> {
    shell: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut before = "";
    for (n, part) in page.split("```").enumerate() {
        if n % 2 == 0 {
            before = part;
        } else if let Some(text) = part.strip_prefix("sh\n") {
            let marker = before.trim_end().rsplit_once("<!-- run: ");
            let shell = marker.and_then(|(_, rest)| rest.strip_suffix(" -->")).unwrap_or("");
            found.push(Block { shell, text });
        }
    }
    found
}

fn shell(script: &str, directory: &Path, port: u16) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_oncebox"));
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = Command::new("sh");
    command
        .args(["-e", "-c", &script.replace("8710", &port.to_string())])
        .current_dir(directory)
        .env("PATH", path)
        .env("HOME", directory)
        .env_remove("XDG_DATA_HOME")
        .env_remove("STATE_DIRECTORY")
        .env("ONCEBOX_LISTEN__API", format!("127.0.0.1:{port}"))
        // This machine may be fuller than one that keeps invoices.
        .env("ONCEBOX_DISK__RESERVE", "0");
    command
}

/// A process that is ended with this.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // The shell is replaced by the service (exec), so this ends the service itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(script: &str, directory: &Path, port: u16) -> Service {
    let script = script.replace("oncebox serve", "exec oncebox serve");
    let child = shell(&script, directory, port).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let service = Service(child.unwrap());
    let data = if script.contains("--data target/shop") { "--data target/shop" } else { "" };
    let until = Instant::now() + crate::rig::PATIENCE;
    while !shell(&format!("oncebox status {data}"), directory, port)
        .output()
        .unwrap()
        .status
        .success()
    {
        assert!(Instant::now() < until, "the service did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    service
}

fn run(script: &str, directory: &Path, port: u16) -> String {
    let Output { status, stdout, stderr } = shell(script, directory, port).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{script}\nended with {status}\n{out}\n{err}");
    out.into_owned()
}

#[test]
fn the_two_minutes_of_the_readme_work_as_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let all = blocks(README);
    let of =
        |shell: &str| all.iter().filter(|b| b.shell == shell).map(|b| b.text).collect::<Vec<_>>();
    let [serve] = of("serve")[..] else { panic!("one block starts the service") };
    let [webhook, event] = of("client")[..] else { panic!("two blocks use it") };

    let service = start(serve, home, port);
    let seen = run(webhook, home, port);
    assert!(seen.contains("/in/stripe"), "{seen}");
    // The page says where the data is, and what the status of the first webhook means.
    let data = "~/.local/share/oncebox";
    assert!(README.contains(&format!("its key and a first token in `{data}`")));
    assert!(home.join(data.trim_start_matches("~/")).join("oncebox.db").exists());
    assert!(seen.contains("skipped") && README.contains("The status `skipped` means"), "{seen}");
    run(event, home, port);
    let until = Instant::now() + crate::rig::PATIENCE;
    loop {
        let delivered = run("oncebox delivery list", home, port);
        let received = run("oncebox webhook list --provider from-finance", home, port);
        if delivered.contains("completed") && received.contains("from-finance") {
            break;
        }
        assert!(Instant::now() < until, "not delivered:\n{delivered}\n{received}");
        std::thread::sleep(Duration::from_millis(50));
    }

    // "Run the emit line again … Kill the service with kill -9 and start it again."
    let emit = event.lines().find(|line| line.starts_with("oncebox emit")).unwrap();
    let again = run(emit, home, port);
    assert!(again.contains("known before"), "{again}");
    drop(service);
    let _service = start(serve, home, port);
    let events = run("oncebox event list --aggregate-id 4711 --json", home, port);
    assert_eq!(events.matches("invoice.paid:4711").count(), 1, "{events}");
}

#[test]
fn the_first_page_of_an_integrator_works_as_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let all = blocks(INTEGRATOR);
    let [Block { shell: "client", text }] = all.as_slice() else { panic!("one block is run") };
    let _service = start("oncebox serve", home, port);
    let seen = run(text, home, port);
    assert!(seen.contains("Provider stripe: created") && seen.contains("invoice.paid"), "{seen}");
}

#[test]
fn a_relay_hands_a_webhook_to_a_box_as_printed() {
    let [relay, boxed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (relay, boxed) = (relay.path(), boxed.path());
    let ports = [free_port(), free_port()];
    let page = NO_PUBLIC_ADDRESS
        .replace("10.8.0.2:8711", &format!("127.0.0.1:{}", ports[1]))
        .replace("10.8.0.0/24", "127.0.0.0/8")
        .replace("/etc/oncebox", &relay.display().to_string());
    let all = blocks(&page);
    let shells: Vec<&str> = all.iter().map(|block| block.shell).collect();
    assert_eq!(shells, ["relay", "relay", "box", "relay"]);
    let [secret, apply, provider, trigger] = [0, 1, 2, 3].map(|n| all[n].text);
    let settings = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    std::fs::write(relay.join("oncebox.toml"), "").unwrap();
    std::fs::create_dir(relay.join("conf.d")).unwrap();
    std::fs::write(relay.join("conf.d/relay.toml"), settings.unwrap()).unwrap();
    std::fs::write(relay.join("stripe.secret"), "whsec_of_the_shop_at_stripe\n").unwrap();

    let _relay = start("oncebox serve", relay, ports[0]);
    let _box = start("oncebox serve", boxed, ports[1]);
    run(secret, relay, ports[0]);
    std::fs::copy(relay.join("relay.secret"), boxed.join("relay.secret")).unwrap();
    run(provider, boxed, ports[1]);
    run(apply, relay, ports[0]);
    run(trigger, relay, ports[0]);
    let until = Instant::now() + crate::rig::PATIENCE;
    loop {
        let came = parsed(&run("oncebox webhook list --json", boxed, ports[1]));
        let came = came["items"].as_array().unwrap().clone();
        if let [webhook] = came.as_slice() {
            assert_eq!([&webhook["provider"], &webhook["event_type"]], ["relay", "invoice.paid"]);
            return;
        }
        assert!(came.is_empty() && Instant::now() < until, "{came:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_page_on_order_says_what_a_confirm_url_needs() {
    let said = ORDER.split("## ").find(|part| part.starts_with("Confirmation")).unwrap();
    assert!(said.contains("`oncebox-confirm-url`") && said.contains("`listen.public_url`"));
}

#[test]
fn the_examples_do_everything_once_as_printed() {
    for program in ["python3", "openssl"] {
        if Command::new(program).arg("version").output().is_err() {
            return crate::rig::skipped("needs python3 and openssl");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let erp = Path::new(env!("CARGO_BIN_EXE_oncebox")).with_file_name("examples").join("erp");
    if !erp.exists() {
        // `cargo test` has built it; `cargo test --test plain docs` has not.
        let build =
            Command::new(env!("CARGO")).args(["build", "--quiet", "--example", "erp"]).status();
        assert!(build.unwrap().success());
    }
    let ports = [free_port(), free_port()];
    let placed = EXAMPLES
        .replace("cargo run --example erp --", erp.to_str().unwrap())
        .replace("examples/erp.py", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/erp.py"))
        .replace("examples/oauth2", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/oauth2"))
        .replace("examples/mtls", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/mtls"))
        .replace("examples/rotation", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rotation"))
        .replace("examples/order", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/order"))
        .replace("8720", &ports[0].to_string())
        .replace("8730", &ports[1].to_string());
    let mut said = String::new();
    let mut service = None;
    for Block { shell, text } in blocks(&placed) {
        match shell {
            "serve" => service = Some(start(text, home, port)),
            _ => said.push_str(&run(text, home, port)),
        }
    }
    drop(service);
    // What the page shows, but for the id.
    let shown = EXAMPLES
        .split("```\n")
        .filter(|part| part.starts_with("invoice 1 ") || part.starts_with("order 1"));
    for line in shown.flat_map(str::lines) {
        let (before, after) = line.split_once("evt_…").unwrap_or((line, ""));
        let is_there = |said: &str| said.starts_with(before) && said.ends_with(after);
        assert!(said.lines().any(is_there), "{line:?} is not in\n{said}");
    }
    assert_eq!(said.matches("completed").count(), 4, "two events and two deliveries:\n{said}");
}

/// A program of the reader's own, in the directory the commands run in.
fn program(home: &Path, name: &str, script: &str) -> String {
    let path = home.join(name);
    executable::write(&path, script);
    path.to_str().unwrap().to_owned()
}

/// Runs what does not end by itself until something has come of it, and ends it as a person does.
fn run_until(script: &str, home: &Path, port: u16, mut seen: impl FnMut() -> bool) -> String {
    let log = home.join("log");
    let script = format!("exec {script}");
    let out = std::fs::File::create(&log).unwrap();
    let mut running = Service(shell(&script, home, port).stdout(out).spawn().unwrap());
    let until = Instant::now() + Duration::from_mins(1);
    while !seen() {
        let said = std::fs::read_to_string(&log).unwrap();
        let is_running = running.0.try_wait().unwrap().is_none();
        assert!(Instant::now() < until && is_running, "{script}: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(Command::new("kill").args(["-INT", &running.0.id().to_string()]).status());
    assert!(running.0.wait().unwrap().success(), "{script}");
    std::fs::read_to_string(log).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_commands_of_the_page_on_consumers_work_as_printed() {
    if Command::new("curl").arg("--version").output().is_err() {
        return crate::rig::skipped("needs curl");
    }
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let ship = program(home, "ship-order", "#!/bin/sh\ncat >>shipped\necho >>shipped\n");
    let hook = Receiver::new();
    let sandbox = Receiver::new();
    let page = CONSUMERS
        .replace("/usr/local/bin/ship-order", &ship)
        .replace("http://127.0.0.1:3000/hook", &hook.url())
        .replace("http://erp-test:8080/hooks", &sandbox.url());
    let all = blocks(&page);
    let shells: Vec<&str> = all.iter().map(|block| block.shell).collect();
    assert_eq!(shells, ["client", "stopped", "stopped", "client", "client", "client"]);
    let [create, consume, listen, replay, next, ack] = [0, 1, 2, 3, 4, 5].map(|n| all[n].text);

    let _service = start("oncebox serve", home, port);
    run(create, home, port);
    let order = "oncebox emit order.paid --aggregate order/7 --payload '{\"id\":7}'";
    run(order, home, port);
    let shipped = home.join("shipped");
    let said = run_until(consume, home, port, || shipped.exists());
    assert!(said.contains("order.paid: done"), "{said}");
    assert_eq!(std::fs::read_to_string(shipped).unwrap(), "{\"id\":7}\n");

    let mut came = false;
    let said = run_until(listen, home, port, || {
        // What it has asked for is there before it says so.
        came = came || run("oncebox subscription list", home, port).contains("listen-");
        if came && hook.count() == 0 {
            run("oncebox emit invoice.paid --key inv-1 --payload '{}'", home, port);
        }
        hook.count() > 0
    });
    assert!(said.contains("secret: whsec_") && said.contains("→ 200 in "), "{said}");

    let said = run(&format!("{} --yes", replay.trim_end()), home, port);
    assert!(said.contains("accepted: 1"), "{said}");
    assert_eq!(sandbox.seen()[0].field("oncebox-copy"), Some("1"));

    run(order, home, port);
    let given = parsed(&run(next, home, port));
    let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
    let (example, item) = (parsed(example.unwrap()), &given["items"][0]);
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&example), fields(item));
    for field in fields(&example["headers"]) {
        assert!(item["headers"][&field].is_string(), "{field}: {item}");
    }
    let variables = next.lines().next().unwrap();
    let heard = parsed(&run(&format!("{variables}\n{ack}"), home, port));
    assert_eq!(heard["items"][0]["status"], 404, "the example's own is nobody's: {heard}");
    let lease = ack.split('"').find(|part| part.starts_with("019c")).unwrap();
    let text = |field: &str| item[field].as_str().unwrap();
    let ack = ack.replace("dlv_17", text("delivery")).replace(lease, text("lease"));
    let heard = parsed(&run(&format!("{variables}\n{ack}"), home, port));
    assert_eq!(heard["items"][0]["state"], "completed", "{heard}");
}

#[test]
fn the_command_of_the_page_on_guards_works_and_reports_as_printed() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return crate::rig::skipped("needs sqlite3");
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    run(
        "sqlite3 effects.db 'PRAGMA journal_mode = WAL; CREATE TABLE effects (id TEXT PRIMARY KEY)'",
        home,
        free_port(),
    );
    // The shortest guard there is: the effect's own key.
    let consume = "#!/bin/sh\ncat >/dev/null\nexec sqlite3 -cmd '.timeout 10000' effects.db \\\n  \
                   \"INSERT INTO effects VALUES ('$ONCEBOX_WEBHOOK_ID') ON CONFLICT DO NOTHING\"\n";
    program(home, "consume-one", consume);
    program(home, "list-effects", "#!/bin/sh\nexec sqlite3 effects.db 'SELECT id FROM effects'\n");
    let all = blocks(GUARDS);
    let [Block { shell: "client", text }] = all.as_slice() else { panic!("one block is run") };
    let said = run(&text.replace(" --count", " --events 25 --count"), home, free_port());
    let numberless = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect()
    };
    let shown = GUARDS.split("```\n").find(|part| part.starts_with("200 events")).unwrap();
    assert_eq!(numberless(&said), numberless(shown), "{said}");
}

/// What a receiver without a library checks: a request as Oncebox signs it, with a stale signature beside the right one.
fn signature_headers(secret: &str, body: &str, home: &Path) -> Value {
    let signed = "import base64, hashlib, hmac, json, sys, time\n\
        secret, body, at = sys.argv[1], sys.argv[2], str(int(time.time()))\n\
        mac = hmac.digest(base64.b64decode(secret[6:]), ('evt_1.' + at + '.' + body).encode(), 'sha256')\n\
        print(json.dumps({'webhook-id': 'evt_1', 'webhook-timestamp': at, \
        'webhook-signature': 'v1,AAAA v1,' + base64.b64encode(mac).decode()}))";
    let out = Command::new("python3").args(["-c", signed, secret, body]).current_dir(home).output();
    parsed(&String::from_utf8(out.unwrap().stdout).unwrap())
}

#[test]
fn the_receivers_of_the_page_on_guards_tell_a_right_signature_from_a_wrong_one() {
    for tool in ["python3", "php"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return crate::rig::skipped(&format!("needs {tool}"));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let (secret, body) =
        ("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", r#"{"total":"9.00","to":"Müller"}"#);
    let headers = signature_headers(secret, body, home).to_string();
    let stale = headers.replace("\"webhook-timestamp\":\"", "\"webhook-timestamp\":\"1");
    let of = |language: &str| {
        GUARDS.split(&format!("```{language}\n")).nth(1).unwrap().split("```").next().unwrap()
    };
    let python = format!(
        "{}\nimport json, sys\nprint(is_ours(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].encode()))",
        of("python")
    );
    let php = format!(
        "{}\necho is_ours($argv[1], json_decode($argv[2], true), $argv[3]) ? 'True' : 'False';",
        of("php")
    );
    for (program, flag, script) in [("python3", "-c", &python), ("php", "-r", &php)] {
        for (headers, body, is_right) in [
            (&headers, body, "True"),
            (&headers, r#"{"total": "9.00", "to": "Müller"}"#, "False"),
            (&stale, body, "False"),
        ] {
            let mut command = Command::new(program);
            command.args([flag, script]);
            // Where PHP's own flags end.
            command.args((program == "php").then_some("--")).args([secret, headers, body]);
            let Output { stdout, stderr, .. } = command.output().unwrap();
            let said = String::from_utf8_lossy(&stdout);
            let err = String::from_utf8_lossy(&stderr);
            assert_eq!(said.trim(), is_right, "{program} {headers} {body}: {err}");
        }
    }
}

#[test]
fn the_commands_of_the_page_on_privacy_work_as_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let policy = PRIVACY.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
    std::fs::write(home.join("policy.json"), policy.unwrap()).unwrap();
    let order = r#"{"customer":{"id":"customer-4711","name":"Jane Roe"},"shop":"x@example.org"}"#;
    std::fs::write(home.join("order.json"), order).unwrap();
    std::fs::write(home.join("shop.secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let all = blocks(PRIVACY);
    let shells: Vec<&str> = all.iter().map(|block| block.shell).collect();
    assert_eq!(shells, ["client", "client"]);

    let _service = start("oncebox serve", home, port);
    let said = run(all[0].text, home, port);
    assert!(said.contains("x@example.org") && !said.contains("\"Jane Roe\""), "{said}");
    run(
        "oncebox tenant create acme --pii allow && oncebox tenant pii acme policy.json",
        home,
        port,
    );
    let made = run(
        "oncebox token create shop --role publish --source-system api --tenant acme --json",
        home,
        port,
    );
    let token = parsed(&made)["token"].as_str().unwrap().to_owned();
    let emit = "oncebox emit order.paid --key o-1 --payload @order.json";
    run(&format!("{emit}; ONCEBOX_TOKEN={token} {emit}"), home, port);
    let said = run(all[1].text, home, port);
    assert_eq!(said.matches("erased: 1 key destroyed").count(), 2, "{said}");
}

#[test]
fn the_commands_of_the_page_on_providers_work_for_a_secret_and_for_a_key_pair() {
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    for name in ["first", "second"] {
        std::fs::write(home.join(name), format!("{name}-0123456789abcdef0123456789")).unwrap();
    }
    let _service = start("oncebox serve", home, port);
    let of = |text: &str, scheme: &str, file: &str| {
        assert!(PROVIDERS.contains(text), "the page does not print {text}");
        let placed = text.replace("SCHEME", scheme).replace("NAME", scheme).replace("FILE", file);
        run(&placed, home, port)
    };
    let all = blocks(PROVIDERS);
    let [Block { shell: "client", text: create }] = all.as_slice() else { panic!("one is run") };
    assert!(of(create, "github", "first").contains("/in/github"));
    assert!(of("oncebox trigger SCHEME --provider NAME", "github", "").contains("stored as"));
    of("oncebox provider change NAME --secret-file FILE", "github", "second");
    assert!(of("oncebox trigger SCHEME --provider NAME", "github", "").contains("stored as"));
    assert!(of("oncebox provider show NAME", "github", "").contains("/in/github"));
    let made = of("oncebox trigger SCHEME --new-key FILE", "sendgrid", "pair");
    let next: Vec<&str> = made.lines().filter(|line| line.starts_with("  oncebox ")).collect();
    assert!(run(&next.join("\n"), home, port).contains("stored as"), "{made}");
}

#[test]
fn every_other_command_of_the_readme_is_known_here() {
    let directory = tempfile::tempdir().unwrap();
    for block in blocks(README).iter().filter(|block| block.shell.is_empty()) {
        for line in block.text.lines() {
            match line {
                "cargo run -- demo" => {
                    let report = directory.path().join("report.html");
                    let demo = format!("oncebox demo --invoices 100 --report {}", report.display());
                    let said = run(&demo, directory.path(), free_port());
                    assert!(said.contains("0 lost, 0 duplicated"), "{said}");
                }
                // Builds what this test already runs, or runs this test.
                "cargo install --path ." | "cargo test" => {}
                other => panic!("the README has a command that no test runs: {other}"),
            }
        }
    }
}

#[test]
fn an_erps_file_and_a_drop_folder_are_read_as_printed() {
    for tool in ["sqlite3", "python3"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return crate::rig::skipped(&format!("needs {tool}"));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (home, port) = (directory.path(), free_port());
    let service = start("oncebox serve", home, port);
    let placed = SOURCES.replace("/srv/", &format!("{}/srv/", home.display()));
    std::fs::create_dir_all(home.join("srv/erp")).unwrap();
    // What needs a server is followed by `tests/databases/pages.rs`.
    // A provider's list needs its server: `tests/it/http_sources.rs`.
    let [table, rights, decision, _database, _reopened, folder, _list, _any, _compared] =
        &blocks(&placed)[..]
    else {
        panic!("nine blocks")
    };
    run(table.text, home, port);
    let in_python = placed.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(home.join("erp.py"), in_python).unwrap();
    run("python3 erp.py", home, port);
    // What only root may do, and systemd, is left out.
    let test = rights.text.lines().find(|line| line.starts_with("oncebox source test")).unwrap();
    let suits = run(test, home, port);
    assert!(suits.contains("outbox can be read"), "{suits}");
    let files = run(folder.text, home, port);
    assert!(files.ends_with("invoices.csv\n"), "{files}");
    let stored =
        || run("oncebox event list --json", home, port).matches("\"idempotency_key\"").count();
    let until = Instant::now() + crate::rig::PATIENCE;
    while stored() < 4 {
        assert!(Instant::now() < until, "{}", run("oncebox source list", home, port));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Nothing is stored twice, whatever a person decides.
    run(decision.text, home, port);
    run("oncebox source reset erp --from-start", home, port);
    assert_eq!(stored(), 4);

    let declared = placed.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(home.join("sources.toml"), declared).unwrap();
    let steps = run("oncebox apply --file sources.toml --dry-run", home, port);
    assert_eq!(steps, "", "what was added by hand is what is declared");
    drop(service);
}

#[test]
fn an_erp_on_sqlite_goes_from_nothing_to_a_webhook_out_and_a_row_in() {
    for tool in ["sqlite3", "python3"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return crate::rig::skipped(&format!("needs {tool}"));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let port = free_port();
    let receiver = Receiver::new();
    let guards = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/sql/sqlite.sql");
    let placed = ERP_ON_SQLITE
        .replace("/srv/", &format!("{}/srv/", home.display()))
        .replace("/usr/share/oncebox/sql/sqlite.sql", guards.to_str().unwrap())
        .replace("https://shop.example.com/hooks", &receiver.url());
    let script = placed.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let take_order = program(home, "take-order", script);
    let placed = placed.replace("/usr/local/bin/take-order", &take_order);
    // The first needs root and systemd.
    let [_rights, outbox, look, tables, orders, consume] = &blocks(&placed)[..] else {
        panic!("six blocks")
    };
    std::fs::create_dir_all(home.join("srv/erp")).unwrap();
    let sqlite = |sql: &str| {
        let file = home.join("srv/erp/erp.db");
        run(&format!("sqlite3 -cmd '.timeout 10000' {} \"{sql}\"", file.display()), home, port)
    };
    sqlite("CREATE TABLE invoices (number TEXT PRIMARY KEY, total TEXT)");
    // The receiver is on this machine.
    let _service = start("export ONCEBOX_DELIVERY__ALLOW=127.0.0.0/8\noncebox serve", home, port);
    let tested = run(outbox.text, home, port);
    assert!(tested.contains("outbox can be read"), "{tested}");
    sqlite("INSERT INTO invoices VALUES ('INV-1', '119.00')");
    let until = Instant::now() + Duration::from_mins(1);
    while !run(look.text, home, port).contains("completed") {
        assert!(Instant::now() < until, "{}", run(look.text, home, port));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(receiver.count(), 1);
    let sent: Value = serde_json::from_slice(&receiver.seen()[0].body).unwrap();
    assert_eq!(sent, serde_json::json!({ "number": "INV-1", "total": "119.00" }));

    run(tables.text, home, port);
    run(orders.text, home, port);
    for _ in 0..2 {
        run("oncebox trigger standard --provider webshop --id msg_1", home, port);
    }
    let rows = || sqlite("SELECT count(*) FROM orders").trim().to_owned();
    run_until(consume.text, home, port, || rows() == "1");
    // A second run for the same webhook leaves no second row.
    let webhooks = parsed(&run("oncebox webhook list --json", home, port));
    let id = webhooks["items"][0]["id"].as_str().unwrap();
    run(&format!("oncebox webhook replay {id} --yes"), home, port);
    let log = home.join("log");
    let is_done = || std::fs::read_to_string(&log).unwrap().contains("invoice.paid: done");
    let again = run_until(consume.text, home, port, is_done);
    assert_eq!(rows(), "1", "{again}");
}

/// What a program gets that embeds Oncebox: `default-features = false`.
#[test]
fn without_the_service_the_crate_builds_and_its_tree_is_small() {
    let cargo = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args(args).arg("--no-default-features");
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let tree =
        cargo(&["tree", "--offline", "-e", "normal", "--prefix", "none", "--format", "{lib}"]);
    let crates: BTreeSet<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    assert!(crates.contains("rusqlite") && crates.contains("ring"), "{crates:?}");
    assert!(crates.len() <= 45, "{} crates: {crates:?}", crates.len());
    for of_service in ["tracing", "clap", "ureq", "crossbeam_channel", "httparse", "rustix"] {
        assert!(!crates.contains(of_service), "{of_service} is the service's");
    }
    cargo(&["check", "--offline", "--quiet", "--lib"]);
}

//! `oncebox demo` as a person runs it: the good end, the two bad ends it must be able to see, and that it
//! leaves no process behind.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::rig::executable;

/// The demo in a temporary directory of its own, so that what it leaves there can be seen.
fn demo(dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command
        .arg("demo")
        .args(flags)
        .env("TMPDIR", dir)
        .env("ONCEBOX_DATABASE__DIRECTORY", dir.join("not-used"));
    command
}

fn run(dir: &Path, flags: &[&str]) -> (Output, String, String) {
    let output = demo(dir, flags).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (told, complained) = (text(&output.stdout), text(&output.stderr));
    (output, told, complained)
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Checks that every element that is opened is closed, in order.
fn assert_well_formed(html: &str) {
    let mut open = Vec::new();
    let mut rest = html.strip_prefix("<!doctype html>").expect("a doctype");
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a stray > in {before:?}");
        let (tag, behind) = after.split_once('>').expect("an unclosed tag");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        rest = behind;
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order");
        } else if name == "style" {
            // A style sheet is not markup.
            rest = behind.split_once("</style>").expect("an unclosed style").1;
        } else if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn three_hundred_invoices_are_shipped_once_each_through_faults_and_kills() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    let flags = ["--invoices", "300", "--seed", "7", "--report", report.to_str().unwrap()];
    let (output, told, complained) = run(dir.path(), &flags);
    assert!(output.status.success(), "{told}{complained}");
    assert!(told.contains("300 invoices → 300 shipments, 0 lost, 0 duplicated ("), "{told}");
    assert!(told.contains("retries after 100ms, 500ms, 1s, 2s"), "{told}");
    assert_eq!(entries(dir.path()), std::slice::from_ref(&report), "only the report is left");

    let html = std::fs::read_to_string(&report).unwrap();
    assert_well_formed(&html);
    assert_eq!(html.matches("<svg ").count(), 3);
    assert_eq!(html.matches("aria-labelledby=").count(), 3);
    assert!(html.contains("class=\"kill\""), "no kill is marked");
    assert!(html.contains("oncebox demo --invoices 300 --seed 7"));
    assert!(!html.contains("<script") && !html.contains("http://"), "the page needs the network");
}

#[test]
fn three_hundred_invoices_travel_a_chain_of_two_boxes_with_a_bad_line_and_are_shipped_once_each() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.html");
    let flags = ["--chain", "--invoices", "300", "--seed", "7"];
    let flags = [&flags[..], &["--report", report.to_str().unwrap()]].concat();
    let (output, told, complained) = run(dir.path(), &flags);
    assert!(output.status.success(), "{told}{complained}");
    assert!(told.contains("300 invoices → 300 shipments, 0 lost, 0 duplicated ("), "{told}");
    assert!(told.contains("the line   between the two Onceboxes loses 2 %"), "{told}");
    let html = std::fs::read_to_string(&report).unwrap();
    assert_well_formed(&html);
    assert!(html.contains("oncebox demo --chain --invoices 300 --seed 7"));
    assert!(html.contains("Downstream killed after"), "every one of the four is killed");
}

#[cfg(feature = "kafka")]
#[test]
fn three_hundred_invoices_pass_a_topic_whose_broker_fails_and_are_shipped_once_each() {
    let dir = tempfile::tempdir().unwrap();
    let (output, told, complained) =
        run(dir.path(), &["--kafka", "--invoices", "300", "--seed", "7"]);
    assert!(output.status.success(), "{told}{complained}");
    assert!(told.contains("300 invoices → 300 shipments, 0 lost, 0 duplicated ("), "{told}");
    assert!(told.contains("the broker is a mock of a cluster"), "{told}");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn without_the_feature_a_topic_is_refused_before_anything_begins() {
    let dir = tempfile::tempdir().unwrap();
    let (output, told, complained) = run(dir.path(), &["--kafka", "--invoices", "300"]);
    assert_eq!((output.status.code(), told.as_str()), (Some(1), ""), "{complained}");
    assert!(complained.contains("built without Kafka: install the Debian package"), "{complained}");
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn invoices_of_a_postgresql_are_booked_in_a_mariadb_once_each() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    // The servers do not run as root, and look for their directory.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let flags = ["--databases", "--invoices", "120", "--seed", "7"];
    let (output, told, complained) = run(dir.path(), &flags);
    assert!(output.status.success(), "{told}{complained}");
    if let Some(lacks) = told.strip_prefix("skipped: ") {
        assert!(std::env::var_os("ONCEBOX_SKIP_NOTHING").is_none(), "would be skipped: {lacks}");
        println!("skipped: {lacks}");
        return;
    }
    let verdict = "120 invoices → 120 bookings, 0 lost, 0 duplicated, 0 errors in the ERP's own transactions (12 kills";
    assert!(told.contains(verdict), "{told}");
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new(), "nothing is left");
}

#[test]
fn a_machine_that_lacks_what_databases_need_is_told_what_to_install() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("oncebox");
    executable::copy(Path::new(env!("CARGO_BIN_EXE_oncebox")), &alone);
    let output =
        Command::new(alone).args(["demo", "--databases"]).env("PATH", "/nowhere").output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(
        told.starts_with("skipped: ") && told.contains("install the package oncebox-odbc"),
        "{told}"
    );
}

#[test]
fn at_the_end_of_a_chain_too_a_receiver_without_a_guard_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--chain", "--invoices", "300", "--seed", "7", "--break", "guard"];
    let (output, told, complained) = run(dir.path(), &flags);
    assert_eq!(output.status.code(), Some(1), "{told}{complained}");
    assert!(complained.contains("duplicated: shipped more than once: invoice "), "{complained}");
}

#[test]
fn a_receiver_that_does_not_look_at_its_guard_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--invoices", "300", "--seed", "7", "--break", "guard"];
    let (output, told, complained) = run(dir.path(), &flags);
    assert_eq!(output.status.code(), Some(1), "{told}{complained}");
    assert!(told.contains(" 0 lost, ") && !told.contains(" 0 duplicated"), "{told}");
    assert!(complained.contains("duplicated: shipped more than once: invoice "), "{complained}");
    assert!(complained.contains("(2 times)"), "{complained}");
    // Somebody will want to look: ledgers, logs and report are kept, and named.
    for kept in entries(dir.path()) {
        assert!(complained.contains(kept.to_str().unwrap()), "{complained}");
    }
    assert_eq!(entries(dir.path()).len(), 2);
}

#[test]
fn a_receiver_that_forgets_effects_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--invoices", "300", "--seed", "7", "--break", "effect"];
    let (output, told, complained) = run(dir.path(), &flags);
    assert_eq!(output.status.code(), Some(1), "{told}{complained}");
    assert!(!told.contains(" 0 lost") && told.contains(" 0 duplicated"), "{told}{complained}");
    assert!(complained.contains("lost: paid and never shipped: invoice "), "{complained}");
}

/// Starts a demo and waits until all three processes run; tells where its directory is.
fn under_way(dir: &Path) -> (Child, PathBuf) {
    let mut child = demo(dir, &["--invoices", "300"]).stdout(Stdio::piped()).spawn().unwrap();
    let told = BufReader::new(child.stdout.take().unwrap()).lines();
    let named = told.map_while(Result::ok).find(|line| line.contains("directory")).unwrap();
    let place = PathBuf::from(named.split_whitespace().last().unwrap());
    wait_until("all three run", || place.join("storm/finance.log").exists());
    (child, place)
}

fn ports(place: &Path) -> [String; 2] {
    let site = std::fs::read_to_string(place.join("storm/site.json")).unwrap();
    let site: serde_json::Value = serde_json::from_str(&site).unwrap();
    ["oncebox", "logistics"].map(|name| site[name].as_str().unwrap().to_owned())
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < crate::rig::PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_outlives_a_demo_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, place) = under_way(dir.path());
    let ports = ports(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("nobody listens", || ports.iter().all(|port| TcpStream::connect(port).is_err()));
}

#[test]
fn an_interrupted_demo_ends_its_processes_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, place) = under_way(dir.path());
    let ports = ports(&place);
    let asked = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(asked.success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(ports.iter().all(|port| TcpStream::connect(port).is_err()));
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new());
}

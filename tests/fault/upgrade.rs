//! A file of each older schema version is upgraded, and what waits in it is delivered.

use oncebox::backup::upgrade;
use oncebox::base::faults::Faults;
use oncebox::model::audit::Actor;
use oncebox::store::audit_events::Trail;
use oncebox::store::schema::{Steps, VERSION};

use crate::fault::process::prelude::*;

/// The database that the last binary of a schema version made: two subscriptions, one of them paused, and three events.
/// What was sent found nobody; the key and the token belong to nothing else. Those of versions 12, 13 and 16 are that of 11
/// or 15 after their steps.
fn place(version: i64, data: &Path) {
    fs::create_dir_all(data).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/schema");
    let unpacked = Command::new("gzip")
        .arg("-dc")
        .arg(fixtures.join(format!("{version}.db.gz")))
        .output()
        .unwrap();
    assert!(unpacked.status.success());
    fs::write(data.join("oncebox.db"), unpacked.stdout).unwrap();
    for (from, to) in [("key", "master.key"), ("token", "admin.token")] {
        fs::copy(fixtures.join(format!("{version}.{from}")), data.join(to)).unwrap();
    }
    let private = |name: &str| Command::new("chmod").arg("600").arg(data.join(name)).status();
    for name in ["oncebox.db", "master.key", "admin.token"] {
        assert!(private(name).unwrap().success());
    }
}

#[test]
fn a_file_of_schema_1_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(1);
}

#[test]
fn a_file_of_schema_2_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(2);
}

#[test]
fn a_file_of_schema_3_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(3);
}

#[test]
fn a_file_of_schema_4_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(4);
}

#[test]
fn a_file_of_schema_5_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(5);
}

#[test]
fn a_file_of_schema_6_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(6);
}

#[test]
fn a_file_of_schema_7_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(7);
}

#[test]
fn a_file_of_schema_8_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(8);
}

#[test]
fn a_file_of_schema_9_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(9);
}

#[test]
fn a_file_of_schema_10_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(10);
}

#[test]
fn a_file_of_schema_11_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(11);
}

#[test]
fn a_file_of_schema_12_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(12);
}

#[test]
fn a_file_of_schema_13_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(13);
}

#[test]
fn a_file_of_schema_14_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(14);
}

#[test]
fn each_older_schema_has_a_fixture_and_the_text_for_contributors_names_the_present_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for version in 1..VERSION {
        for part in ["db.gz", "key", "token"] {
            let path = root.join(format!("tests/data/schema/{version}.{part}"));
            assert!(path.exists(), "{}", path.display());
        }
    }
    let text = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    shows(&text, &[&format!("`schema.sql` is version {VERSION};")]);
}

#[test]
fn a_file_of_schema_15_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(15);
}

#[test]
fn a_file_of_schema_16_is_upgraded_and_what_waits_in_it_is_delivered() {
    upgraded_and_delivered(16);
}

#[test]
fn an_erp_may_have_tables_with_the_names_of_our_views() {
    let home = tempfile::tempdir().unwrap();
    place(8, &home.path().join("data"));
    let path = home.path().join("data/oncebox.db");
    let erp = "CREATE TABLE request (no INTEGER); CREATE TABLE message (msg_id INTEGER); INSERT INTO message VALUES (7)";
    Connection::open(&path).unwrap().run(erp);
    let clock = Clock::machine();
    let rehearsed = upgrade::rehearse(&path, Steps::RELEASED, &clock, &mut |_| true).unwrap();
    assert_eq!((rehearsed.from, rehearsed.differences), (8, Vec::new()));
    let process = Process::start(home.path());
    let database = file::open(&path);
    assert_eq!(file::lines(&database, "SELECT msg_id FROM message"), ["7"]);
    assert_eq!(file::lines(&database, "SELECT count(*) FROM integration_outbox"), ["3"]);
    process.stop();
}

#[test]
fn an_erp_table_with_a_name_of_a_later_schema_is_named_before_the_upgrade_begins() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    place(11, &data);
    let path = data.join("oncebox.db");
    Connection::open(&path).unwrap().run("CREATE TABLE Search_Values (no INTEGER)");
    let before = fs::read(&path).unwrap();
    let clock = Clock::machine();
    let by = (clock.wall(), Actor::system());
    let rehearsed = upgrade::rehearse(&path, Steps::RELEASED, &clock, &mut |_| true).unwrap_err();
    let refused =
        upgrade::run(&path, Steps::RELEASED, &by, &Faults::none(), &mut |_| true).unwrap_err();
    for error in [rehearsed.to_string(), refused.to_string()] {
        shows(&error, &["named search_values", "Nothing was changed", "Rename your table"]);
    }
    assert!(fs::read(&path).unwrap() == before);
    // A reader leaves the log and its index beside a file.
    let names = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
    let is_made = |name: &str| name.starts_with("before-upgrade") || name.contains("rehearsal");
    let made: Vec<_> = names.filter(|name| is_made(&name.to_string_lossy())).collect();
    assert!(made.is_empty(), "not even a backup was made: {made:?}");
}

fn upgraded_and_delivered(from: i64) {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    place(from, &data);
    let path = data.join("oncebox.db");
    let rehearsed =
        upgrade::rehearse(&path, Steps::RELEASED, &Clock::machine(), &mut |_| true).unwrap();
    assert_eq!(
        (rehearsed.from, rehearsed.differences),
        (from, Vec::new()),
        "it ends at schema.sql"
    );
    let process = Process::start(home.path());
    let database = file::open(&data.join("oncebox.db"));
    assert_eq!(file::lines(&database, "PRAGMA user_version"), ["17"]);
    let held = process.call("GET", "/v1/subscriptions/erp", &Value::Null).json();
    assert_eq!(held["holds"][0]["reason"], "paused");
    let receiver = Receiver::new();
    for name in ["erp", "shop"] {
        let path = format!("/v1/subscriptions/{name}");
        process.call("PATCH", &path, &json!({ "url": receiver.url() })).is(200);
        process.call("POST", &format!("{path}/resume"), &Value::Null).is(200);
    }
    until("all are delivered", || process.pending() == Some(0));
    assert_eq!(receiver.count(), 6);
    process.stop();
    let chain = Trail::open(&data.join("oncebox.db")).unwrap().unwrap().verify(&[]).unwrap();
    assert!(chain.rows > 4 && chain.breaks.is_empty(), "{chain:?}");
    file::check(&data.join("oncebox.db"));
}

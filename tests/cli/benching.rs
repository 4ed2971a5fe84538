//! `oncebox bench`: a run with little to do, the runs that must not begin, and what is left behind.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::rig::prelude::*;

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_machine_is_measured_without_an_installation_and_nothing_is_left() {
    let rig = Rig::stopped();
    // A disk: what is written in memory is not counted.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = place.path().to_str().unwrap();
    let measured = rig.json(&["bench", "--dir", dir, "--seconds", "1", "--card-tb", "30"]);
    assert_eq!(measured["directory"], dir);
    let figure = |name: &str| measured.pointer(name).and_then(Value::as_u64);
    for name in ["/accepted/one_connection", "/accepted/connections_16", "/delivered/per_second"] {
        assert!(figure(name).is_some(), "{name}: {measured}");
    }
    let counted = ["/syncs/count", "/syncs/p99_us", "/written/bytes_an_event", "/wear/gb_a_year"];
    for name in counted {
        assert!(figure(name).is_some_and(|value| value > 0), "{name}: {measured}");
    }
    assert_eq!(measured["written"]["events"], 20);
    assert_eq!(measured["wear"]["card_tb"], 30);
    let written = measured["verdicts"]["written"].as_str().unwrap();
    assert!(written.contains("a card that takes 30 TB lasts"), "{written}");
    assert_eq!(entries(place.path()), Vec::<PathBuf>::new());
    let own = entries(rig.dir.path());
    assert_eq!(own, [rig.dir.path().join("oncebox.toml")], "the installation is not touched");
}

#[test]
fn a_person_reads_a_table_and_a_sentence_about_each_measurement() {
    let rig = Rig::stopped();
    let ran = rig.run(&["bench", "--seconds", "1"]);
    ran.ends(0, &[]).prints(&[
        "syncs of 4 KiB, median ",
        "events accepted, 1 connection ",
        "accepted and delivered, 16 connections ",
        "written for an event that is alone ",
        "it accepts and delivers ",
        "a card",
    ]);
    assert_eq!(ran.out.lines().count(), 12, "{}", ran.out);
}

#[test]
fn a_directory_that_cannot_be_used_is_named_with_what_to_do() {
    let rig = Rig::stopped();
    let nowhere = ["bench", "--dir", "nowhere"];
    rig.run(&nowhere).ends(1, &["nowhere: No such file", "give --dir a directory that exists"]);
    let file = rig.file("file", "");
    let on_file = ["bench", "--dir", file.to_str().unwrap()];
    rig.run(&on_file).ends(1, &["no directory can be made in", "that you may write to"]);
    rig.run(&["bench", "--seconds", "0"]).ends(2, &["--seconds"]);
}

#[test]
fn an_interrupted_bench_ends_its_service_and_leaves_no_directory() {
    let rig = Rig::stopped();
    let place = tempfile::tempdir().unwrap();
    let mut command = rig.command(&["bench", "--seconds", "60", "--dir"]);
    command.arg(place.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let id = child.id().to_string();
    let mut service = PathBuf::new();
    rig.until("its service is ready", |_| {
        service = entries(place.path()).pop().unwrap_or_default().join("oncebox");
        service.join("admin.token").exists()
    });
    let settings = fs::read_to_string(service.with_file_name("oncebox.toml")).unwrap();
    let address = settings.split('"').nth(1).unwrap();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; the directory was removed"), "{said}");
    assert!(TcpStream::connect(address).is_err(), "the service still listens");
    assert_eq!(entries(place.path()), Vec::<PathBuf>::new());
}

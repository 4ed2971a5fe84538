//! `oncebox batch-files`: offline, it makes one file of many.

use crate::cli::rig::prelude::*;

#[test]
fn files_become_one_file_and_what_is_wrong_is_said() {
    let rig = Rig::stopped();
    let lines = rig.file("lines", "");
    fs::remove_file(&lines).unwrap();
    let into = lines.with_file_name("in");
    for folder in [&lines, &into] {
        fs::create_dir(folder).unwrap();
    }
    for n in 0..3 {
        fs::write(lines.join(format!("{n}.csv")), format!("{n};a\n")).unwrap();
    }
    let folders = [lines.to_str().unwrap(), into.to_str().unwrap()];
    let batch = |more: &[&str]| rig.run(&[&["batch-files", folders[0], folders[1]], more].concat());
    batch(&["--max", "0"]).ends(2, &["0 is not in 1..=10000"]);
    let made = batch(&["--max", "2", "--first-line", "no;name", "--json"]);
    let made: Value = serde_json::from_str(&made.prints(&[]).out).unwrap();
    assert_eq!(made["batches"][0]["lines"], 2);
    assert_eq!(made["batches"][1]["file"], into.join("2.csv").to_str().unwrap());
    let text = fs::read_to_string(into.join("0.csv")).unwrap();
    assert_eq!(text, "no;name\n0;a\n1;a\n");
    assert_eq!(batch(&[]).prints(&[]).out, "");
    // Another run is under way.
    let lock = fs::File::open(lines.join(".oncebox-batch.lock")).unwrap();
    lock.lock().unwrap();
    batch(&[]).ends(75, &["another run uses"]);
    drop(lock);
    // A name is taken; what was finished before is told.
    for name in ["7.csv", "8.csv"] {
        fs::write(lines.join(name), "x").unwrap();
    }
    fs::write(into.join("8.csv"), "of somebody").unwrap();
    let ran = batch(&["--max", "1"]);
    ran.ends(1, &["8.csv exists already, and nothing is overwritten: move it away"]);
    assert!(ran.out.contains("in/7.csv: 1 line\n"), "{ran:?}");
    rig.run(&["batch-files", folders[0], folders[0]]).ends(1, &["write the batches into another"]);
    rig.run(&["batch-files", "/nowhere", folders[0]]).ends(1, &["/nowhere: No such file"]);
}

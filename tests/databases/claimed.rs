//! Two boxes on one table: a row has one owner before anybody stores it.

use std::collections::BTreeSet;

use crate::databases::erp::{add, erps, oncebox, stored, until_stored, write_beside};
use crate::databases::process::prelude::*;

/// A box of this name beside the first one.
fn another(erp: &crate::databases::erp::Erp, name: &str) -> (TempDir, Process) {
    let home = tempfile::tempdir().unwrap();
    erp.settings(home.path(), &format!("[box]\nname = {name:?}"));
    let process = Process::start(home.path());
    add(&process, "claim");
    (home, process)
}

#[test]
fn two_boxes_that_are_killed_share_the_rows_and_double_none() {
    for erp in erps("claim") {
        let (north_home, mut north) = erp.read("claim");
        let (south_home, mut south) = another(&erp, "south");
        let count = || stored(north_home.path()).len() + stored(south_home.path()).len();
        let (committed, boxes) = write_beside(&erp, || {
            for n in 0..number("ONCEBOX_KILLS", 5) {
                let before = count();
                until("they read", || count() > before || erp.unmarked() == "0");
                thread::sleep(ms(n * 37 % 90));
                if n % 2 == 0 {
                    north.kill();
                    north = Process::start(north_home.path());
                } else {
                    south.kill();
                    south = Process::start(south_home.path());
                }
            }
            [north, south]
        });
        until("all is stored", || count() >= committed.len());
        until("all is marked", || erp.unmarked() == "0");
        let mut all = stored(north_home.path());
        all.extend(stored(south_home.path()));
        assert_eq!(all.len(), committed.len(), "none is doubled");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), committed);
        for service in boxes {
            service.stop();
        }
    }
}

#[test]
fn the_claims_of_a_box_that_is_gone_wait_until_a_person_gives_them_back() {
    for erp in erps("claim") {
        erp.facts(0..10);
        erp.run("UPDATE outbox SET taken_by = 'gone' WHERE id <= 4");
        let (home, process) = erp.read("claim");
        until_stored(home.path(), 6);
        until("the others are marked", || erp.unmarked() == "4");
        erp.facts(10..12);
        until_stored(home.path(), 8);
        assert_eq!(stored(home.path()).len(), 8, "claims of another box are left alone");
        oncebox(home.path(), &["source", "release", "erp", "--box", "gone", "--yes"]);
        until_stored(home.path(), 12);
        until("all is marked", || erp.unmarked() == "0");
        assert_eq!(erp.run("SELECT count(*) FROM outbox WHERE taken_by = 'north'"), "12");
        process.stop();
    }
}

#[test]
fn a_box_without_a_name_is_told_to_have_one() {
    for erp in erps("claim") {
        let home = tempfile::tempdir().unwrap();
        erp.settings(home.path(), "");
        let process = Process::start(home.path());
        add(&process, "claim");
        let why = crate::databases::erp::trouble(&process, "box.name");
        assert!(why.contains("another one on each box"), "{why}");
        process.stop();
    }
}

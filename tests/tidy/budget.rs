//! How much code there may be: `tests/budget.toml` has a number for each room, for all of `src` and for the tests.
//!
//! A room above its number fails. So does one that is more than 1 % below it: the number follows the code down, in the
//! same commit. What repeats a fact is counted too, and its count never grows.
//! `ONCEBOX_WRITE_DOCS=1 cargo test --test tidy budget` lowers all numbers to what is there; it raises none.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::{code_of, files, shown};

/// Files of fewer lines of code stand in another one, unless they are a room's `mod.rs` or `prelude.rs`.
const SMALL_FILE_LINES: usize = 40;
/// How far below its number a room may be, in hundredths.
const SLACK_PERCENT: usize = 1;

const HEAD: &str = "\
# How many lines of code there may be: neither blank nor a comment, without unit tests (tests/tidy/budget.rs).
# Raise a number in a commit of its own, before the work, with the reason and who is served. It falls with the code:
# ONCEBOX_WRITE_DOCS=1 cargo test --test tidy budget
";

type Numbers = BTreeMap<String, usize>;

/// A text that repeats a fact, or gets around a rule.
struct Repeat {
    name: &'static str,
    why: &'static str,
    count: fn(&str) -> usize,
}

const REPEATS: [Repeat; 5] = [
    Repeat {
        name: "mirrored types",
        why: "serde(remote: derive on the type itself",
        count: |code| code.matches("serde(remote").count(),
    },
    Repeat {
        name: "schemas beside types",
        why: "schemars(with: give the field a type that describes itself",
        count: |code| code.matches("schemars(with").count(),
    },
    Repeat {
        name: "words by hand",
        why: "fn as_str, const ALL: a list of words is made by a macro",
        count: |code| code.matches("fn as_str(").count() + code.matches("const ALL:").count(),
    },
    Repeat {
        name: "tuple parameters",
        why: "(a, b): (A, B) dodges the limit of arguments: name what belongs together",
        count: |code| code.lines().filter(|line| is_tuple_parameter(line)).count(),
    },
    Repeat {
        name: "small files",
        why: "fewer than 40 lines of code: put it where it is used",
        // Counted by file, in `measure`.
        count: |_| 0,
    },
];

/// Whether a line of a function's head takes several things as one parameter.
fn is_tuple_parameter(line: &str) -> bool {
    let is_head = line.contains("fn ") || line.trim_start().starts_with('(');
    let names = |part: &str| {
        let inside = part.rsplit_once('(').map_or("", |(_, inside)| inside);
        let is_name = |c: char| c.is_ascii_lowercase() || "_ &,".contains(c);
        inside.contains(',') && inside.chars().all(is_name)
    };
    let parts: Vec<&str> = line.split("): (").collect();
    is_head && parts.split_last().is_some_and(|(_, heads)| heads.iter().any(|head| names(head)))
}

fn code_lines(code: &str) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    code.lines().filter(is_code).count()
}

/// What there is now, under the names of `tests/budget.toml`.
fn measure() -> BTreeMap<String, Numbers> {
    let (mut rooms, mut repeats, mut all) = (Numbers::new(), Numbers::new(), Numbers::new());
    repeats.extend(REPEATS.iter().map(|repeat| (repeat.name.to_owned(), 0)));
    for file in files("src", "rs") {
        let (path, text) = (shown(&file), fs::read_to_string(&file).unwrap());
        if path.ends_with("/tests.rs") {
            continue;
        }
        let parts: Vec<&str> = path.split('/').collect();
        let room = if parts.len() > 2 { parts[1] } else { "root" };
        let stays = path.ends_with("/mod.rs") || path.ends_with("/prelude.rs");
        let (code, is_small) = (code_of(&text), parts.len() > 2 && !stays);
        let lines = code_lines(code);
        *rooms.entry(room.to_owned()).or_default() += lines;
        *all.entry("src".to_owned()).or_default() += lines;
        for repeat in &REPEATS {
            *repeats.get_mut(repeat.name).unwrap() += (repeat.count)(code);
        }
        if is_small && lines < SMALL_FILE_LINES {
            *repeats.get_mut("small files").unwrap() += 1;
        }
    }
    let lines = |file: &PathBuf| code_lines(&fs::read_to_string(file).unwrap());
    all.insert("tests".to_owned(), files("tests", "rs").iter().map(lines).sum());
    let tables = [("all", all), ("rooms", rooms), ("repeats", repeats)];
    tables.map(|(name, numbers)| (name.to_owned(), numbers)).into()
}

/// What is wrong with one number; `most` is the one in the file.
fn fault(table: &str, name: &str, have: usize, most: usize) -> Option<String> {
    let slack = if table == "repeats" { 0 } else { (most * SLACK_PERCENT).div_ceil(100) };
    if have > most {
        let why = REPEATS.iter().find(|repeat| repeat.name == name).map(|repeat| repeat.why);
        let why = why
            .unwrap_or("say it once; a number is raised before the work, in a commit of its own");
        return Some(format!("{table}.{name}: {have}, allowed are {most}: {why}"));
    }
    (have + slack < most).then(|| format!("{table}.{name}: {have}, the file says {most}: lower it"))
}

fn page(numbers: &BTreeMap<String, Numbers>) -> String {
    let mut page = HEAD.to_owned();
    for (table, numbers) in numbers {
        write!(page, "\n[{table}]\n").unwrap();
        for (name, number) in numbers {
            let quote = if name.contains(' ') { "\"" } else { "" };
            writeln!(page, "{quote}{name}{quote} = {number}").unwrap();
        }
    }
    page
}

#[test]
fn each_room_keeps_its_budget() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/budget.toml");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut budget: BTreeMap<String, Numbers> = toml::from_str(&text).unwrap();
    let there = measure();
    if std::env::var_os("ONCEBOX_WRITE_DOCS").is_some() {
        for (table, numbers) in &there {
            let most = budget.entry(table.clone()).or_default();
            most.retain(|name, _| numbers.contains_key(name));
            for (name, have) in numbers {
                let most = most.entry(name.clone()).or_insert(*have);
                *most = (*most).min(*have);
            }
        }
        fs::write(&path, page(&budget)).unwrap();
    }
    let mut faults = Vec::new();
    for (table, numbers) in &there {
        for (name, have) in numbers {
            match budget.get(table).and_then(|most| most.get(name)) {
                Some(most) => faults.extend(fault(table, name, *have, *most)),
                None => faults.push(format!("{table}.{name}: tests/budget.toml has no number")),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn planted_excess_is_found() {
    assert!(fault("rooms", "api", 101, 100).unwrap().contains("allowed are 100"));
    assert_eq!(fault("rooms", "api", 99, 100), None);
    assert!(fault("rooms", "api", 98, 100).unwrap().contains("lower it"));
    assert!(fault("repeats", "small files", 9, 10).unwrap().contains("lower it"));
    assert!(is_tuple_parameter("fn of((a, b): (u8, u8)) {"));
    assert!(is_tuple_parameter("    (store, clock): (&Store, &Clock),"));
    assert!(!is_tuple_parameter("fn of(a: (u8, u8)) {"));
    assert!(!is_tuple_parameter("let two = |(a, b): (u8, u8)| a + b;"));
    assert_eq!(code_lines("// x\n\n  a\n  // y\n"), 1);
}

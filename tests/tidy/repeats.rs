//! What repeats a fact, or gets around a rule, is counted. `tests/repeats.toml` has the numbers, which only fall.
//!
//! `ONCEBOX_WRITE_DOCS=1 cargo test --test plain repeats` lowers them to what is there; it raises none.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::{code_of, files};

const HEAD: &str = "\
# How often the code repeats a fact, or gets around a rule (tests/tidy/repeats.rs). The numbers only fall:
# ONCEBOX_WRITE_DOCS=1 cargo test --test plain repeats

";

type Numbers = BTreeMap<String, usize>;

/// A text that repeats a fact, or gets around a rule.
struct Repeat {
    name: &'static str,
    why: &'static str,
    count: fn(&str) -> usize,
}

const REPEATS: [Repeat; 4] = [
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

/// What there is now, under the names of `tests/repeats.toml`.
fn measure() -> Numbers {
    let mut counts: Numbers = REPEATS.iter().map(|repeat| (repeat.name.to_owned(), 0)).collect();
    for file in files("src", "rs") {
        let text = fs::read_to_string(&file).unwrap();
        for repeat in &REPEATS {
            *counts.get_mut(repeat.name).unwrap() += (repeat.count)(code_of(&text));
        }
    }
    counts
}

/// What is wrong with one number; `most` is the one in the file.
fn fault(name: &str, have: usize, most: usize) -> Option<String> {
    let why = REPEATS.iter().find(|repeat| repeat.name == name).map_or("", |repeat| repeat.why);
    match have.cmp(&most) {
        std::cmp::Ordering::Greater => Some(format!("{name}: {have}, allowed are {most}: {why}")),
        std::cmp::Ordering::Less => Some(format!("{name}: {have}, the file says {most}: lower it")),
        std::cmp::Ordering::Equal => None,
    }
}

#[test]
fn what_repeats_a_fact_only_becomes_less() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/repeats.toml");
    let mut allowed: Numbers = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let there = measure();
    if std::env::var_os("ONCEBOX_WRITE_DOCS").is_some() {
        let mut page = HEAD.to_owned();
        for (name, have) in &there {
            let most = allowed.get_mut(name).unwrap();
            *most = (*most).min(*have);
            writeln!(page, "\"{name}\" = {most}").unwrap();
        }
        fs::write(&path, page).unwrap();
    }
    assert!(allowed.keys().eq(there.keys()), "tests/repeats.toml has other names");
    let faults: Vec<String> =
        there.iter().filter_map(|(name, have)| fault(name, *have, allowed[name])).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn planted_repeats_are_found() {
    assert!(fault("tuple parameters", 101, 100).unwrap().contains("allowed are 100"));
    assert_eq!(fault("tuple parameters", 100, 100), None);
    assert!(fault("tuple parameters", 99, 100).unwrap().contains("lower it"));
    assert!(is_tuple_parameter("fn of((a, b): (u8, u8)) {"));
    assert!(is_tuple_parameter("    (store, clock): (&Store, &Clock),"));
    assert!(!is_tuple_parameter("fn of(a: (u8, u8)) {"));
    assert!(!is_tuple_parameter("let two = |(a, b): (u8, u8)| a + b;"));
}

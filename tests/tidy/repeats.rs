//! What repeats a fact, or gets around a rule, is counted. `tests/repeats.toml` has the numbers, which only fall.
//!
//! `ONCEBOX_WRITE_DOCS=1 cargo test --test plain repeats` lowers them to what is there; it raises none.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::names::{MANY_MEANINGS, NO_MEANING, named};
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
    /// How often it is in the code of all files.
    count: fn(&[String]) -> usize,
}

const REPEATS: [Repeat; 8] = [
    Repeat {
        name: "mirrored types",
        why: "serde(remote: derive on the type itself",
        count: |files| texts(files, "serde(remote"),
    },
    Repeat {
        name: "schemas beside types",
        why: "schemars(with: give the field a type that describes itself",
        count: |files| texts(files, "schemars(with"),
    },
    Repeat {
        name: "words by hand",
        why: "fn as_str, const ALL: a list of words is made by a macro",
        count: |files| texts(files, "fn as_str(") + texts(files, "const ALL:"),
    },
    Repeat {
        name: "tuple parameters",
        why: "(a, b): (A, B) dodges the limit of arguments: name what belongs together",
        count: |files| files.iter().map(|code| tuple_parameters(code)).sum(),
    },
    Repeat {
        name: "tuple lets",
        why: "let (a, b) = (x, y): two statements say it, or a type that has a name",
        count: |files| files.iter().map(|code| tuple_lets(code)).sum(),
    },
    Repeat {
        name: "macros",
        why: "macro_rules!: a function or a trait says it, and editors follow it",
        count: |files| texts(files, "macro_rules! "),
    },
    Repeat {
        name: "types without a meaning",
        why: "Given, Parts, Shared: name the type after what it is",
        count: |files| NO_MEANING.iter().map(|name| named(files, name)).sum(),
    },
    Repeat {
        name: "types with many meanings",
        why: "a second State, Kind or Filter: put the noun in front, as in DeliveryState",
        count: |files| {
            let others = |name: &&str| named(files, name).saturating_sub(1);
            MANY_MEANINGS.iter().map(others).sum()
        },
    },
];

fn texts(files: &[String], text: &str) -> usize {
    files.iter().map(|code| code.matches(text).count()).sum()
}

/// Parameters that are a tuple with a name for each part: on one line, or on several where rustfmt breaks them.
fn tuple_parameters(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let begins = |at: usize| {
        let before = lines[..at].iter().rev().find(|line| indent(line) == indent(lines[at]));
        before.is_some_and(|line| line.trim() == "(")
    };
    let is_end = |at: usize| lines[at].trim_start().starts_with("): (") && begins(at);
    (0..lines.len()).filter(|at| is_tuple_parameter(lines[*at]) || is_end(*at)).count()
}

/// Statements that give several names at once to the parts of a tuple that is made for it. The state of a loop or a fold,
/// where each name is `mut`, may be one.
fn tuple_lets(code: &str) -> usize {
    let places = code.match_indices("let (").map(|(at, _)| code.split_at(at));
    let is_let = |(before, statement): &(&str, &str)| {
        let line = before.rsplit('\n').next().unwrap_or("");
        line.trim().is_empty() && is_tuple_let(statement)
    };
    places.filter(is_let).count()
}

/// Whether a statement begins with names in parentheses that get values in parentheses.
fn is_tuple_let(statement: &str) -> bool {
    let names = statement.strip_prefix("let ").and_then(parenthesized);
    let Some((names, rest)) = names else { return false };
    let value = match rest.trim_start().strip_prefix(':') {
        Some(typed) => parenthesized(typed.trim_start()).map_or("", |(_, rest)| rest),
        None => rest,
    };
    let value = value.trim_start().strip_prefix('=').unwrap_or("");
    let Some((_, end)) = parenthesized(value.trim_start()) else { return false };
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let is_state = names.clone().all(|name| name.starts_with("mut "));
    end.starts_with(';') && names.count() > 1 && !is_state
}

/// What stands in the parentheses that a text begins with, and what comes after them.
fn parenthesized(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix('(')?;
    let mut depth = 1;
    let mut rest = inside.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '"' => {
                while let Some((_, c)) = rest.next().filter(|(_, c)| *c != '"') {
                    if c == '\\' {
                        rest.next();
                    }
                }
            }
            // A parenthesis in quotes is none.
            '\'' if rest.clone().nth(1).is_some_and(|(_, end)| end == '\'') => {
                rest.nth(1);
            }
            _ => {}
        }
        if depth == 0 {
            let (inside, end) = inside.split_at(at);
            return Some((inside, end.strip_prefix(')')?));
        }
    }
    None
}

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
    let read = |file| code_of(&fs::read_to_string(file).unwrap()).to_owned();
    let code: Vec<String> = files("src", "rs").iter().map(read).collect();
    REPEATS.iter().map(|repeat| (repeat.name.to_owned(), (repeat.count)(&code))).collect()
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
    assert_eq!(
        tuple_parameters("fn of(\n    (\n        a,\n        b,\n    ): (u8, u8),\n) {}"),
        1
    );
    assert_eq!(tuple_parameters("let (\n    a,\n    b,\n): (u8, u8) = two();"), 0);

    assert_eq!(tuple_lets("    let (a, b) = (x, y);\n    let (c, d) = (1, \")\");"), 2);
    assert_eq!(tuple_lets("let (a, b): (u8, char) =\n    (first(1, 2), '(');"), 1);
    assert_eq!(tuple_lets("let (\n    a,\n    (b, c),\n) = (\n    x,\n    y,\n);"), 1);
    assert_eq!(tuple_lets("let (mut low, mut high) = (0, 9);"), 0, "the state of a loop");
    assert_eq!(tuple_lets("let (a, b) = two();\nlet (c, d) = (both)(1, 2)?;"), 0);
    assert_eq!(tuple_lets("let (Some(a), Some(b)) = (x, y) else { return };"), 0);
    assert_eq!(
        tuple_lets("for (a, b) in [(x, y)] {\n    all.fold((0, 0), |(c, d), e| (c, e));"),
        0
    );

    let planted = ["macro_rules! twice {\n".to_owned(), "struct Given;\nenum State {}".to_owned()];
    let count = |name: &str| {
        let repeat = REPEATS.iter().find(|repeat| repeat.name == name).unwrap();
        (repeat.count)(&planted)
    };
    assert_eq!(count("macros"), 1);
    assert_eq!(count("types without a meaning"), 1);
    assert_eq!(count("types with many meanings"), 0, "one may have the name");
}

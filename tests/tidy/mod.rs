//! The house rules that can be checked on the text of the code: which part may import which, how long a
//! file may be, where SQL, sockets, time and threads may be named, which words are not used.
//!
//! Every rule names its reason in the message. The rules are tried on planted faults below.

mod names;
mod repeats;
mod sentences;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of code a file may have: blank lines, comments and unit tests are not counted.
const MAX_FILE_LINES: usize = 800;

/// The rooms from the ground up. A room may import rooms of the layers before its own, and itself. A part of a room
/// can have a layer of its own.
const LAYERS: [&[&str]; 29] = [
    &["base"],
    &["sys"],
    &["model"],
    &["privacy/policy"],
    &["formats", "signatures"],
    // For programs that are not the service: each stands alone on what is below.
    &["guard", "outbox", "webhook"],
    &["config", "keys"],
    &["telemetry"],
    &["databases", "http", "store"],
    &["traces"],
    &["archive"],
    &["backup"],
    &["event_types", "privacy"],
    &["env"],
    &["alerts"],
    &["targets"],
    &["pipeline"],
    &["archive/work"],
    &["archive/removal"],
    &["archive/expiry"],
    &["archive/audit"],
    &["archive/mover", "health_probes", "sources"],
    &["jobs"],
    &["api"],
    &["console"],
    &["app"],
    &["conformance", "demo"],
    &["bench"],
    &["cli"],
];

/// A text that only some places may hold, and why.
struct Forbidden {
    text: &'static str,
    allowed: &'static [&'static str],
    reason: &'static str,
}

/// Where SQL may stand: in the core's store, and in `store.rs` or `tables/` of a feature's room.
const SQL: &[&str] = &["src/store/", "/store.rs", "/tables/"];

const FORBIDDEN: [Forbidden; 14] = [
    Forbidden {
        text: "rusqlite::",
        // The last two take a transaction of the program that embeds them.
        allowed: &["src/store/", "/store.rs", "/tables/", "src/guard/", "src/outbox/"],
        reason: "only the store, store.rs and tables of a room know that it is SQLite",
    },
    Forbidden { text: "SELECT ", allowed: SQL, reason: "SQL stands in a store" },
    Forbidden { text: "UPDATE ", allowed: SQL, reason: "SQL stands in a store" },
    Forbidden {
        text: "TcpListener::bind",
        allowed: &["src/http/"],
        reason: "only http opens sockets",
    },
    Forbidden {
        text: "TcpStream::connect",
        allowed: &["src/http/"],
        reason: "only http opens sockets",
    },
    Forbidden {
        text: "SystemTime::now",
        allowed: &["src/base/clock/"],
        reason: "only clock reads time",
    },
    Forbidden {
        text: "clock.shown()",
        allowed: &[
            "src/base/clock/",
            "src/api/clock.rs",
            "src/api/health.rs",
            "src/pipeline/upkeep/clock_watch.rs",
            "src/pipeline/upkeep/site_watch.rs",
        ],
        reason: "what the wall clock shows is for people: decide by now(), or by sure_now()",
    },
    Forbidden {
        text: "clock.for_signatures()",
        allowed: &[
            "src/base/clock/",
            "src/api/provider_samples.rs",
            "src/pipeline/deliver/",
            "src/pipeline/receive.rs",
        ],
        reason: "what the wall clock shows is for signatures: decide by now(), or by sure_now()",
    },
    Forbidden {
        text: "env::var",
        allowed: &["src/config/"],
        reason: "only config reads the environment",
    },
    Forbidden {
        text: "PoisonError",
        allowed: &[],
        reason: "take the locks of parking_lot: a panic does not poison them",
    },
    Forbidden { text: "LazyLock", allowed: &[], reason: "no global state" },
    Forbidden { text: "OnceLock", allowed: &[], reason: "no global state" },
    Forbidden { text: "static mut", allowed: &[], reason: "no global state" },
    Forbidden { text: "super::super", allowed: &[], reason: "say the path from crate" },
];

/// Words for unfinished work, spelt so that this file does not hold them.
fn unfinished() -> [String; 4] {
    ["TO_DO", "FIX_ME", "XX_X", "HA_CK"].map(|word| word.replace('_', ""))
}

/// File names that say nothing.
const NAMES_BANNED: [&str; 6] = ["util", "utils", "common", "helpers", "types", "misc"];

fn files(root: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(root)];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path).display().to_string()
}

fn code_of(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Every `crate::room::module` that a file names outside comments, as `room/module`.
fn imports(text: &str) -> Vec<String> {
    let lines = code_of(text).lines().filter(|line| !line.trim_start().starts_with("//"));
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    lines
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.split(|c| !word(c)).next().unwrap_or("").replace("::", "/"))
        .filter(|path| !path.is_empty())
        .collect()
}

/// The room of a module, or the part of a room that has a layer of its own; and its layer.
fn place_of(path: &str) -> Option<(&'static str, usize)> {
    let all =
        LAYERS.iter().enumerate().flat_map(|(n, layer)| layer.iter().map(move |room| (*room, n)));
    let holds = |room: &str| {
        path.strip_prefix(room)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    all.filter(|(room, _)| holds(room)).max_by_key(|(room, _)| room.len())
}

/// What is wrong with the imports of one file.
fn upward_imports(path: &str, text: &str) -> Vec<String> {
    let own = path.strip_prefix("src/").unwrap_or(path);
    if own == "lib.rs" || own == "main.rs" {
        return Vec::new();
    }
    let Some((own_room, own_layer)) = place_of(own) else {
        return vec![format!("{path}: this room has no place in LAYERS of tests/tidy/mod.rs")];
    };
    let is_upward = |import: &String| {
        place_of(import).is_none_or(|(room, layer)| room != own_room && layer >= own_layer)
    };
    imports(text)
        .into_iter()
        .filter(is_upward)
        .map(|import| {
            format!("{path}: imports {import}; imports only point down (tests/tidy/mod.rs, LAYERS)")
        })
        .collect()
}

/// The file that a path of modules leads to: the longest beginning of it that is one.
fn file_of(path: &[&str], files: &BTreeSet<String>) -> Option<String> {
    (1..=path.len()).rev().find_map(|n| {
        let stem = format!("src/{}", path[..n].join("/"));
        [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|f| files.contains(f))
    })
}

/// The files that a file imports with `use`. What a room's `mod.rs` hands on counts as the `mod.rs`.
fn imported_files(path: &str, text: &str, files: &BTreeSet<String>) -> BTreeSet<String> {
    let code: String =
        code_of(text).lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let own: Vec<&str> =
        path.trim_start_matches("src/").trim_end_matches(".rs").split('/').collect();
    let room = &own[..own.len() - 1];
    let mut found = BTreeSet::new();
    for statement in code.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        for name in leaves(statement.trim()) {
            let parts: Vec<&str> = name.split("::").collect();
            let target = match parts[0] {
                "crate" => file_of(&parts[1..], files),
                "super" => file_of(&[room, &parts[1..]].concat(), files),
                _ => None,
            };
            found.extend(target.filter(|target| target != path));
        }
    }
    found
}

/// `a::{b, c::{self, d}}` as `a::b`, `a::c::self`, `a::c::d`.
fn leaves(statement: &str) -> Vec<String> {
    let Some((head, rest)) = statement.split_once('{') else {
        return vec![statement.split(" as ").next().unwrap().replace(' ', "")];
    };
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in inside.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push(c);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(leaves).map(|leaf| format!("{}{leaf}", head.trim())).collect()
}

/// Circles of files that import each other, each as its files.
fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in imports.get(file).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|file| (file, reach(file))).collect();
    let circle = |file: &&String| {
        let with =
            |other: &&String| reached[*file].contains(*other) && reached[other].contains(*file);
        imports.keys().filter(with).cloned().collect::<Vec<_>>()
    };
    imports.keys().map(|file| circle(&file)).filter(|files| files.len() > 1).collect()
}

/// What is wrong with the text of one file.
fn text_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//!") {
        faults.push(format!("{path}: the first line says what the file is for, with //!"));
    }
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines = code_of(text).lines().filter(is_code).count();
    if lines > MAX_FILE_LINES {
        faults.push(format!(
            "{path}: {lines} lines of code; {MAX_FILE_LINES} are allowed: split it by noun"
        ));
    }
    for Forbidden { text: forbidden, allowed, reason } in FORBIDDEN {
        // A place within a room begins with a slash.
        let here = allowed.iter().any(|place| match place.strip_prefix('/') {
            Some(_) => path.contains(place),
            None => path.starts_with(place),
        });
        let uses = |line: &str| line.contains(forbidden) && !line.trim_start().starts_with("//");
        if !here && code_of(text).lines().any(uses) {
            faults.push(format!("{path}: {forbidden:?} does not belong here: {reason}"));
        }
    }
    faults
}

#[test]
fn imports_only_point_down() {
    let mut faults = Vec::new();
    for file in files("src", "rs") {
        faults.extend(upward_imports(&shown(&file), &fs::read_to_string(&file).unwrap()));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_two_files_import_each_other() {
    let all: BTreeSet<String> = files("src", "rs").iter().map(|file| shown(file)).collect();
    let read = |file: &String| (file.clone(), fs::read_to_string(file).unwrap());
    let imports = all.iter().map(read).map(|(file, text)| {
        let imported = imported_files(&file, &text, &all);
        (file, imported)
    });
    let found = circles(&imports.collect());
    let lines: Vec<String> = found.iter().map(|files| files.join(" <-> ")).collect();
    assert!(lines.is_empty(), "circles of imports:\n{}", lines.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut faults = Vec::new();
    for file in files("src", "rs") {
        faults.extend(text_faults(&shown(&file), &fs::read_to_string(&file).unwrap()));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_file_is_dead_or_has_a_name_that_says_nothing() {
    let all = files("src", "rs");
    for file in &all {
        let stem = file.file_stem().unwrap().to_str().unwrap();
        assert!(!NAMES_BANNED.contains(&stem), "{}: name it after its noun", shown(file));
        if ["lib", "main"].contains(&stem) {
            continue;
        }
        let (folder, name) = if stem == "mod" {
            (file.parent().unwrap().parent().unwrap(), file.parent().unwrap().file_name().unwrap())
        } else {
            (file.parent().unwrap(), file.file_stem().unwrap())
        };
        let declared = ["mod.rs", "lib.rs"].iter().any(|parent| {
            let text = fs::read_to_string(folder.join(parent)).unwrap_or_default();
            text.contains(&format!("mod {};", name.to_str().unwrap()))
        });
        assert!(declared, "{}: no mod line names it", shown(file));
    }
}

#[test]
fn nothing_is_left_unfinished_and_no_test_is_switched_off() {
    let mut faults = Vec::new();
    for root in ["src", "tests", "benches"] {
        for file in files(root, "rs") {
            let (path, text) = (shown(&file), fs::read_to_string(&file).unwrap());
            for word in unfinished() {
                if text.contains(&word) {
                    faults.push(format!("{path}: {word}: open an issue, or do it"));
                }
            }
            for attribute in ["ignore", "should_panic"] {
                if text.contains(&format!("#[{attribute}")) {
                    faults.push(format!("{path}: #[{attribute}] hides a failure"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Paths that a document names in backticks and that look like files of this repository.
fn named_paths(text: &str) -> Vec<&str> {
    let roots = ["src/", "tests/", "benches/", "docs/", "packaging/", ".ci/", "fuzz/"];
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|name| {
            roots.iter().any(|root| name.starts_with(root)) && !name.contains(['*', ' ', '{'])
        })
        .collect()
}

/// Items that a document says to be in a file: "`A` and `B` in `src/c.rs`" is A in src/c.rs, and B in it.
fn placed_items(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split('`').collect();
    let is_item = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut placed = Vec::new();
    for (n, path) in parts.iter().enumerate().skip(3).step_by(2) {
        let is_file = path.starts_with("src/") && Path::new(path).extension().is_some();
        if !is_file || parts[n - 1].trim() != "in" {
            continue;
        }
        let mut at = n - 2;
        while is_item(parts[at]) {
            placed.push((parts[at], *path));
            if at < 3 || !matches!(parts[at - 1].trim(), "and" | ",") {
                break;
            }
            at -= 2;
        }
    }
    placed
}

#[test]
fn every_document_has_one_title_and_names_only_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = files("docs", "md");
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "md") {
            documents.push(path);
        }
    }
    let mut faults = Vec::new();
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let mut in_code = false;
        let titles = text.lines().filter(|line| {
            in_code ^= line.starts_with("```");
            !in_code && line.starts_with("# ")
        });
        let count = titles.count();
        // Each part of the site is a title of its summary.
        if count != 1 && !document.ends_with("docs/SUMMARY.md") {
            faults.push(format!("{}: {count} titles; a document has one", shown(&document)));
        }
        for path in named_paths(&text) {
            if !root.join(path.trim_end_matches('/')).exists() {
                faults.push(format!("{}: names {path}, which does not exist", shown(&document)));
            }
        }
        // A decision tells what was there on its day.
        if document.starts_with(root.join("docs/decisions")) {
            continue;
        }
        for (item, path) in placed_items(&text) {
            let source = fs::read_to_string(root.join(path)).unwrap_or_default();
            if !source.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == item) {
                faults.push(format!("{}: says that {item} is in {path}", shown(&document)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn planted_faults_are_found() {
    let placed =
        placed_items("a row, `A` and `B` in `src/c.rs`; `d` in `src/e/`, `F` of `src/c.rs`");
    assert_eq!(placed, [("B", "src/c.rs"), ("A", "src/c.rs")]);
    let upward = "//! x\nuse crate::pipeline::Pipeline;\n";
    assert_eq!(upward_imports("src/model/x.rs", upward).len(), 1);
    assert_eq!(upward_imports("src/store/x.rs", "use crate::http::client::Client;").len(), 1);
    assert_eq!(upward_imports("src/pipeline/x.rs", "use crate::store::Store;").len(), 0);
    assert_eq!(upward_imports("src/new/x.rs", "").len(), 1);
    assert_eq!(text_faults("src/api/x.rs", "//! x\nconst Q: &str = \"SELECT 1\";\n").len(), 1);
    assert_eq!(
        text_faults("src/backup/store.rs", "//! x\nconst Q: &str = \"SELECT 1\";\n").len(),
        0
    );
    assert_eq!(text_faults("src/api/x.rs", "fn x() {}\n").len(), 1);
    assert_eq!(text_faults("src/api/x.rs", &format!("//! x\n{}", "a\n".repeat(801))).len(), 1);
    assert_eq!(text_faults("src/api/x.rs", "//! x\n// SELECT in a comment\n").len(), 0);
    let two = BTreeSet::from(["src/a/b.rs".to_owned(), "src/a/mod.rs".to_owned()]);
    let imported = imported_files("src/a/mod.rs", "use crate::a::{b::{self, X}, c};", &two);
    assert_eq!(imported, BTreeSet::from(["src/a/b.rs".to_owned()]));
    let back = imported_files("src/a/b.rs", "use super::Y;", &two);
    let both =
        BTreeMap::from([("src/a/mod.rs".to_owned(), imported), ("src/a/b.rs".to_owned(), back)]);
    assert_eq!(circles(&both), BTreeSet::from([two.into_iter().collect::<Vec<_>>()]));
    assert_eq!(named_paths("see `src/nowhere.rs` and `cargo test`"), ["src/nowhere.rs"]);
}

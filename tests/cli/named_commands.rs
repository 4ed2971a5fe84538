//! Every command that a text, a page, a document or a message names exists.

use crate::cli::rig::prelude::*;

/// Commands as one word, such as `oncebox-event-type-set`: the names of the manual's pages.
fn commands() -> BTreeSet<String> {
    let rig = Rig::stopped();
    let manual = rig.dir.path().join("manual");
    rig.ok(&["manual", manual.to_str().unwrap()]);
    let pages = fs::read_dir(manual).unwrap().map(|page| page.unwrap().path());
    pages.map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Files below a directory, but for what is built.
fn files(path: &Path, into: &mut Vec<PathBuf>) {
    if path.is_file() {
        return into.push(path.to_owned());
    }
    for entry in fs::read_dir(path).unwrap() {
        files(&entry.unwrap().path(), into);
    }
}

/// The parts of a text that name commands: what is quoted in a line, but for bytes.
fn quoted(line: &str) -> Vec<&str> {
    // Every second part stands between quotes; in a block of commands the whole line is one.
    let parts: Vec<&str> = line.split(['`', '"']).collect();
    let is_command = line.trim_start().starts_with("oncebox ");
    let is_meant = |n: usize| {
        if n % 2 == 1 { !parts[n - 1].ends_with('b') } else { n == 0 && is_command }
    };
    (0..parts.len()).filter(|n| is_meant(*n)).map(|n| parts[n]).collect()
}

/// What a text names that does not exist.
fn unknown(text: &str, is_page: bool, commands: &BTreeSet<String>) -> Vec<String> {
    let mut unknown = Vec::new();
    let parts = text.lines().flat_map(quoted);
    for (part, named) in
        parts.flat_map(|part| part.split("oncebox ").skip(1).map(move |named| (part, named)))
    {
        let is_word = |word: &&str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
        };
        let words: Vec<&str> = named
            .split([' ', ',', '.', ':', ';', ')', '\\', '\''])
            .take(2)
            .take_while(is_word)
            .collect();
        let Some(first) = words.first() else { continue };
        let command = format!("oncebox-{first}");
        // In a message, or in the middle of a sentence, the program may be meant.
        let is_command = is_page && part.starts_with("oncebox ");
        if !commands.contains(&command) && !is_command {
            continue;
        }
        let below = format!("{command}-");
        let has_verbs = commands.iter().any(|known| known.starts_with(&below));
        let verb = words.get(1).filter(|_| has_verbs);
        let whole = verb.map_or_else(|| command.clone(), |verb| format!("{below}{verb}"));
        if !commands.contains(&whole) {
            unknown.push(format!("oncebox {}", words.join(" ")));
        }
    }
    unknown
}

#[test]
fn every_command_that_is_named_exists() {
    let commands = commands();
    let wrong = "run `oncebox event-type propose` or `oncebox nothing`, not `oncebox emit a`";
    assert_eq!(unknown(wrong, true, &commands), ["oncebox event-type propose", "oncebox nothing"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut read = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for directory in ["src", "docs", "packaging", "examples"] {
        files(&root.join(directory), &mut read);
    }
    for path in read {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        assert_eq!(unknown(&text, is_page, &commands), [""; 0], "{}", path.display());
    }
}

//! The pages as a whole: `docs/SUMMARY.md` has each of them once, and each link leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use oncebox::store::schema::{Steps, VERSION};

/// The pages below a directory, by their paths from the repository.
fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// The links of a page to other places of the repository, without those in its code.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for prose in text.split("```").step_by(2) {
        for part in prose.split("](").skip(1) {
            let link = part.split(')').next().unwrap();
            if !link.contains("://") && !link.starts_with("mailto:") {
                found.push(link);
            }
        }
    }
    found
}

/// The anchors of a page: its headings in small letters, with `-` for each space, and without punctuation.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = text.split("```").step_by(2).flat_map(str::lines);
    let titles = prose.filter_map(|line| line.strip_prefix('#'));
    let of = |title: &str| {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    titles.map(of).collect()
}

#[test]
fn the_summary_has_each_page_once() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    all.retain(|path| !path.ends_with("SUMMARY.md"));
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed = BTreeMap::<PathBuf, usize>::new();
    for link in links(&summary) {
        *listed.entry(docs.join(link)).or_default() += 1;
    }
    for page in all {
        assert_eq!(listed.remove(&page), Some(1), "docs/SUMMARY.md: {}", page.display());
    }
    assert!(listed.is_empty(), "docs/SUMMARY.md lists what is not there: {listed:?}");
}

#[test]
fn each_link_of_the_pages_leads_to_a_file_and_to_a_heading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    pages(&root.join("docs"), &mut all);
    let outer = ["README.md", "INSTALL.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
    all.extend(outer.map(|name| root.join(name)));
    let mut count = 0;
    for page in &all {
        let text = fs::read_to_string(page).unwrap();
        for link in links(&text) {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            assert!(to.exists(), "{}: {link} leads to nothing", page.display());
            if !anchor.is_empty() {
                let known = anchors(&fs::read_to_string(&to).unwrap());
                assert!(known.contains(anchor), "{}: {link} has no heading", page.display());
            }
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn the_table_of_upgrades_says_what_this_program_opens() {
    let page = include_str!("../../docs/operating.md");
    let program = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0;
    let Steps { oldest, .. } = Steps::RELEASED;
    let row = format!("\n{program} | {VERSION} | {oldest} to {}, after a copy |", VERSION - 1);
    assert!(page.contains(&row), "docs/operating.md has no row{row}");
}

#[test]
fn a_link_and_a_heading_are_read() {
    let text = "# A `b`, C-d!\n[x](a.md#b) [y](https://c)\n```sh\n# no\n[z](no)\n```\n[w](e/f.md)";
    assert_eq!(links(text), ["a.md#b", "e/f.md"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-b-c-d".to_owned()]));
}

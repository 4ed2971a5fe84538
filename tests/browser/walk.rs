//! Finds every page: follows the links of pages as a person would, one or two of each kind.

use std::collections::{BTreeMap, VecDeque};

use crate::rig::webdriver::Browser;
use crate::world::World;

/// Pages of one kind that are looked at.
const EACH: usize = 2;

/// What a page's address has in common with its siblings: ids and values are left out.
pub(crate) fn kind(path: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<_> = path.trim_start_matches("/console/").split('/').collect();
    let parts: Vec<_> = parts
        .iter()
        .enumerate()
        .map(|(n, part)| {
            let is_word = part.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            if n == 0 || parts[0] == "act" || parts[0] == "settings" && is_word {
                *part
            } else {
                "*"
            }
        })
        .collect();
    let mut names: Vec<_> = query.split('&').filter_map(|pair| pair.split('=').next()).collect();
    names.retain(|name| parts[0] != "act" && !matches!(*name, "after" | "" | "back"));
    format!("/console/{}?{}", parts.join("/"), names.join("&")).trim_end_matches('?').to_owned()
}

/// The paths of all pages that can be reached by links, each kind at most twice.
#[track_caller]
pub(crate) fn pages(world: &World, browser: &Browser<'_>) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    let mut next = VecDeque::from(
        [
            "/console/",
            "/console/search?q=4711",
            "/console/search",
            "/console/search?q=nothing-like-it",
        ]
        .map(str::to_owned),
    );
    while let Some(path) = next.pop_front() {
        let count = seen.entry(kind(&path)).or_default();
        if *count >= EACH || found.contains(&path) {
            continue;
        }
        *count += 1;
        browser.open(&world.at(&path));
        let links = browser.run(
            "return [...document.querySelectorAll('a[href]')].map((a) => a.href)\
             .filter((href) => href.startsWith(location.origin + '/console/'))\
             .map((href) => href.slice(location.origin.length).split('#')[0])",
        );
        next.extend(links.as_array().unwrap().iter().map(|link| link.as_str().unwrap().to_owned()));
        found.push(path);
    }
    found
}

//! Finds every page: follows the links of pages as a person would, one or two of each kind.
//!
//! One page of each kind is looked at; with `ONCEBOX_EVERY_PAGE`, which `.ci/nightly` sets, two.

use crate::browser::world::prelude::*;

/// Pages of one kind whose links are followed.
const EACH: usize = 2;

/// Whether the long form was asked for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("ONCEBOX_EVERY_PAGE").is_some()
}

/// What a page's address has in common with its siblings: ids and values are left out.
pub(crate) fn kind(path: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<_> = path.trim_start_matches("/console/").split('/').collect();
    let parts: Vec<_> = parts
        .iter()
        .enumerate()
        .map(|(n, part)| {
            let is_word = part.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            if n == 0 || parts[0] == "act" || ["settings", "events"].contains(&parts[0]) && is_word
            {
                *part
            } else {
                "*"
            }
        })
        .collect();
    let mut names: Vec<_> = query.split('&').filter_map(|pair| pair.split('=').next()).collect();
    names.retain(|name| parts[0] != "act" && !matches!(*name, "after" | "" | "back"));
    // Of several filters, the first tells what kind of page it is.
    names.truncate(1);
    format!("/console/{}?{}", parts.join("/"), names.join("&")).trim_end_matches('?').to_owned()
}

/// Where the links of these pages lead, page by page, as the browser reads their HTML. A file is no page.
const LINKS: &str = r"
const [paths, done] = arguments;
const links = async (path) => {
  const html = await (await fetch(path, { cache: 'no-store' })).text();
  const page = new DOMParser().parseFromString(html, 'text/html');
  return [...page.querySelectorAll('a[href]:not([download])')]
    .map((a) => new URL(a.getAttribute('href'), new URL(path, location.origin)).href)
    .filter((href) => href.startsWith(location.origin + '/console/'))
    .map((href) => href.slice(location.origin.length).split('#')[0]);
};
Promise.all(paths.map(links)).then(done);
";

/// The paths of pages of all kinds that can be reached by links. The browser is in the console.
#[track_caller]
pub(crate) fn pages(browser: &Browser<'_>) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found: Vec<String> = Vec::new();
    let mut next = [
        "/console/",
        "/console/search?q=4711",
        "/console/search",
        "/console/search?q=nothing-like-it",
    ]
    .map(str::to_owned)
    .to_vec();
    while !next.is_empty() {
        let mut new = Vec::new();
        for path in next {
            let count = seen.entry(kind(&path)).or_default();
            if *count < EACH && !found.contains(&path) {
                *count += 1;
                found.push(path.clone());
                new.push(path);
            }
        }
        let links = browser.run_until_done(LINKS, &json!([new]));
        let links = links.as_array().unwrap().iter().filter_map(Value::as_array).flatten();
        next = links.map(|link| link.as_str().unwrap().to_owned()).collect();
    }
    if !is_long() {
        let mut kinds = BTreeSet::new();
        found.retain(|path| kinds.insert(kind(path)));
    }
    found
}

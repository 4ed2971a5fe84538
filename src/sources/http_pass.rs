//! A pass over a list, from the first page to the last: which items the pass has not seen, and whether the list has an end.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};

use crate::sources::http_list::ListItem;
use crate::sources::http_round::ListRound;

/// Pages of a pass at most.
const MAX_PAGES: usize = 10_000;
/// Pages in a row without an item that is new to the pass: the list leads in a circle.
const MAX_STALE_PAGES: u32 = 3;
/// Items of a pass that are remembered at most.
const MAX_SEEN: usize = 1_000_000;

/// The items of a pass so far.
#[derive(Debug, Default)]
pub(super) struct Pass {
    seen: BTreeSet<[u8; 8]>,
    pages: usize,
    stale: u32,
}

/// The items of a page, as its pass sees them.
#[derive(Debug, Default)]
pub(super) struct PassPage {
    /// The sum over items that are new to the pass and from before the round.
    pub(super) sum: u64,
    /// For each item, whether it is new to the pass.
    pub(super) is_new: Vec<bool>,
}

impl Pass {
    /// Adds the items of a page.
    pub(super) fn add(&mut self, items: &[ListItem<'_>], round: &ListRound) -> PassPage {
        self.pages = self.pages.saturating_add(1);
        let mut page = PassPage::default();
        for item in items {
            let hash = digest(&SHA256, item.key().as_bytes());
            let short = hash.as_ref().first_chunk().copied().unwrap_or_default();
            let is_new = self.seen.insert(short);
            if is_new && round.has(item.time) {
                page.sum = page.sum.wrapping_add(u64::from_be_bytes(short));
            }
            page.is_new.push(is_new);
        }
        let is_stale = !page.is_new.contains(&true);
        self.stale = if is_stale { self.stale.saturating_add(1) } else { 0 };
        page
    }

    /// Whether the pages lead in a circle, or are too many.
    pub(super) fn is_endless(&self) -> bool {
        self.stale > MAX_STALE_PAGES || self.pages > MAX_PAGES || self.seen.len() > MAX_SEEN
    }
}

//! A pass over a list, from the first page to the last: which items the pass has not seen, and whether the list has an end.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};

use crate::base::budget::{Budget, Share};
use crate::base::clock::Timestamp;
use crate::sources::http_list::ListItem;
use crate::sources::http_round::ListRound;

/// Pages of a pass at most.
const MAX_PAGES: usize = 10_000;
/// Pages in a row without an item that is new to the pass: the list leads in a circle.
const MAX_STALE_PAGES: u32 = 3;
/// Items of a pass that are remembered at most.
const MAX_SEEN: usize = 1_000_000;

/// Bytes of an item that is remembered: nodes of the tree have room for eleven, and are two thirds full.
const ITEM_BYTES: usize = 18;

/// The items of a pass so far.
#[derive(Debug, Default)]
pub(super) struct Pass {
    seen: BTreeSet<[u8; 8]>,
    /// The memory of `seen` between two pages.
    seen_share: Option<Share>,
    pages: usize,
    stale: u32,
    /// The latest time of an item so far.
    latest: Option<Timestamp>,
    /// Whether an item was older than one before it.
    is_mixed: bool,
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
    /// Takes the memory of a page. The memory of the items so far is taken anew together with it, because a thread that waits
    /// for memory must hold none.
    pub(super) fn take_page(&mut self, budget: &Budget, page_bytes: usize) -> Share {
        self.seen_share = None;
        let seen_bytes = self.seen.len().saturating_mul(ITEM_BYTES);
        let mut share = budget.take_own(page_bytes.saturating_add(seen_bytes));
        self.seen_share = Some(share.split(seen_bytes));
        share
    }

    /// Adds the items of a page.
    pub(super) fn add(&mut self, items: &[ListItem<'_>], round: &ListRound) -> PassPage {
        self.pages = self.pages.saturating_add(1);
        let mut page = PassPage::default();
        for item in items {
            let hash = digest(&SHA256, item.key().as_bytes());
            let short = hash.as_ref().first_chunk().copied().unwrap_or_default();
            let is_new = self.seen.insert(short);
            self.is_mixed |= item.time.is_some() && item.time < self.latest;
            self.latest = self.latest.max(item.time);
            if is_new && round.has(item.time) {
                page.sum = page.sum.wrapping_add(u64::from_be_bytes(short));
            }
            page.is_new.push(is_new);
        }
        let is_stale = !page.is_new.contains(&true);
        self.stale = if is_stale { self.stale.saturating_add(1) } else { 0 };
        page
    }

    /// Whether a list that shows at most so many items was read to that end.
    pub(super) fn is_cut(&self, items_max: Option<u32>) -> bool {
        let max = items_max.and_then(|max| usize::try_from(max).ok());
        max.is_some_and(|max| self.seen.len() >= max)
    }

    /// Whether the items so far did not come with the oldest first.
    pub(super) const fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// Whether the pages lead in a circle, or are too many.
    pub(super) fn is_endless(&self) -> bool {
        self.stale > MAX_STALE_PAGES || self.pages > MAX_PAGES || self.seen.len() > MAX_SEEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use std::time::Duration;

    #[test]
    fn the_items_of_a_pass_are_charged_until_it_ends() {
        let budget = Budget::new(1_000_000);
        let round = ListRound::begin(0, Duration::ZERO, Timestamp::from_secs(1_700_000_000), None);
        let items: Vec<ListItem<'_>> = (0..500)
            .map(|n| ListItem {
                id: Some(n.to_string()),
                raw: Cow::Borrowed("{}"),
                ..ListItem::default()
            })
            .collect();
        let mut pass = Pass::default();
        let page = pass.take_page(&budget, 1_000);
        pass.add(&items, &round);
        drop(page);
        assert_eq!(budget.used(), 0);
        let page = pass.take_page(&budget, 1_000);
        assert_eq!(budget.used(), 1_000 + 500 * ITEM_BYTES);
        drop(page);
        assert_eq!(budget.used(), 500 * ITEM_BYTES);
        drop(pass);
        assert_eq!(budget.used(), 0);
    }
}

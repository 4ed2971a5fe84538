//! A round over a list: from its first page to its last one, and again until two passes find the same. Pure.
//!
//! The position of the source moves when a round has ended, never before: a list may be sorted in any way. A list can also
//! pass over an item from one page to the next, as when an item of an earlier page is deleted meanwhile. So a round of
//! several pages is read again until a pass finds the same items as the pass before it. Items that came after the round began
//! are for the next round.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::clock::Timestamp;
use crate::sources::http_list::PageMark;

/// Passes of a round at most. A list that still changes is left alone until the next round, and the position stays.
const MAX_PASSES: u32 = 8;

/// How far a round has come. Stored in `sources.identity`, with the items that were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRound {
    /// Since when items are asked for.
    since: Option<Timestamp>,
    /// When it began.
    began_at: Timestamp,
    /// The latest time of an item so far.
    highest: Option<Timestamp>,
    /// Passes that have begun.
    passes: u32,
    /// Pages with items in this pass.
    pages: u32,
    /// The sum over the items of this pass from before the round.
    sum: u64,
    /// The same of the pass before.
    sum_before: Option<u64>,
    /// The page to be read.
    mark: Option<PageMark>,
}

/// What a page adds to its round.
#[derive(Clone, Debug, Default)]
pub(super) struct PageFacts {
    /// The sum over its items that are new to the pass and from before the round.
    pub(super) sum: u64,
    /// The latest time of an item.
    pub(super) highest: Option<Timestamp>,
    /// Whether it has items.
    pub(super) has_items: bool,
    /// The page after it.
    pub(super) next: Option<PageMark>,
    /// Whether the list has more items and does not show them.
    pub(super) is_cut: bool,
}

/// What follows a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoundStep {
    /// A further page of the pass.
    Page(ListRound),
    /// Another pass.
    Pass(ListRound),
    /// The end of the round.
    End(RoundEnd),
}

/// What is left of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoundEnd {
    /// The source's position from now on.
    pub(super) position: i64,
    /// The last pass, for the next round.
    pub(super) last: LastPass,
    /// Whether the list came to rest: two passes found the same, or it has one page.
    pub(super) is_at_rest: bool,
    /// Whether the list has more items, which a round from the new position can reach.
    pub(super) has_more: bool,
}

/// The items of a pass over the list since a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastPass {
    since: Option<Timestamp>,
    sum: u64,
}

impl ListRound {
    /// A round that begins now. The position is in milliseconds; 0 is the beginning of the list.
    pub(super) fn begin(
        position: i64,
        overlap: Duration,
        now: Timestamp,
        last: Option<LastPass>,
    ) -> Self {
        let since = (position > 0).then(|| Timestamp::from_ms(position).minus(overlap));
        let since = since.map(|at| at.max(Timestamp::default()));
        let last = last.filter(|last| last.since == since);
        Self {
            since,
            began_at: now,
            highest: None,
            passes: 1,
            pages: 0,
            sum: 0,
            sum_before: last.map(|last| last.sum),
            mark: None,
        }
    }

    /// Whether an item with this time is from before the round.
    pub(super) fn has(&self, time: Option<Timestamp>) -> bool {
        time.is_some_and(|at| at <= self.began_at)
    }

    /// The stored form, read.
    pub(super) fn read(text: Option<&str>) -> Option<Self> {
        serde_json::from_str(text?).ok()
    }

    /// The stored form.
    pub(super) fn to_text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// Since when items are asked for.
    pub(super) const fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// The page to be read; the first one has no mark.
    pub(super) const fn mark(&self) -> Option<&PageMark> {
        self.mark.as_ref()
    }

    /// The same round from its first page, because a later page could not be had.
    pub(super) fn again(&self) -> Self {
        self.next_pass(None)
    }

    fn next_pass(&self, sum_before: Option<u64>) -> Self {
        let passes = self.passes.saturating_add(1);
        Self { passes, pages: 0, sum: 0, sum_before, mark: None, ..self.clone() }
    }

    /// Whether it was read from the beginning too often.
    pub(super) const fn is_worn(&self) -> bool {
        self.passes > MAX_PASSES
    }

    /// What follows a page. `position` is that of the source before.
    pub(super) fn after(&self, page: PageFacts, position: i64) -> RoundStep {
        let PageFacts { sum, highest, has_items, next, is_cut } = page;
        let read = Self {
            highest: self.highest.max(highest),
            pages: self.pages.saturating_add(u32::from(has_items)),
            sum: self.sum.wrapping_add(sum),
            ..self.clone()
        };
        if next.is_some() {
            return RoundStep::Page(Self { mark: next, ..read });
        }
        let last = LastPass { since: read.since, sum: read.sum };
        if read.pages > 1 && read.sum_before != Some(read.sum) {
            if read.passes < MAX_PASSES {
                return RoundStep::Pass(read.next_pass(Some(read.sum)));
            }
            return RoundStep::End(RoundEnd {
                position,
                last,
                is_at_rest: false,
                has_more: is_cut,
            });
        }
        // An item with a time in the future must not hide those between.
        let reached = read.highest.map_or(position, |highest| highest.min(read.began_at).ms());
        let position = reached.max(position);
        RoundStep::End(RoundEnd { position, last, is_at_rest: true, has_more: is_cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000 + secs)
    }

    fn page(sum: u64, highest: i64, next: Option<u64>) -> PageFacts {
        PageFacts {
            sum,
            highest: Some(at(highest)),
            has_items: true,
            next: next.map(PageMark::Page),
            is_cut: false,
        }
    }

    fn begin(position: i64) -> ListRound {
        ListRound::begin(position, Duration::from_mins(1), at(100), None)
    }

    fn further(step: RoundStep) -> ListRound {
        match step {
            RoundStep::Page(round) | RoundStep::Pass(round) => round,
            RoundStep::End(_) => panic!("the round has ended"),
        }
    }

    fn end(step: RoundStep) -> RoundEnd {
        match step {
            RoundStep::End(end) => end,
            other => panic!("the round goes on: {other:?}"),
        }
    }

    /// A pass of two pages with these sums.
    fn pass(round: &ListRound, first: u64, second: u64) -> RoundStep {
        further(round.after(page(first, 9, Some(2)), 0)).after(page(second, 8, None), 0)
    }

    #[test]
    fn a_round_of_one_page_ends_at_its_latest_item() {
        assert_eq!(end(begin(0).after(page(1, 9, None), 0)).position, at(9).ms());
        assert_eq!(begin(0).since(), None);
        assert_eq!(begin(at(9).ms()).since(), Some(at(-51)));
    }

    #[test]
    fn the_position_never_goes_back_nor_beyond_the_begin_of_the_round() {
        let position = at(50).ms();
        assert_eq!(end(begin(position).after(page(1, 9, None), position)).position, position);
        assert_eq!(end(begin(0).after(page(1, 9_999, None), 0)).position, at(100).ms());
        assert_eq!(end(begin(0).after(PageFacts::default(), 0)).position, 0);
    }

    #[test]
    fn a_round_of_several_pages_ends_when_two_passes_find_the_same() {
        let first = begin(0);
        let second_page = further(first.after(page(1, 9, Some(2)), 0));
        assert_eq!(second_page.mark(), Some(&PageMark::Page(2)));
        let second = further(pass(&first, 1, 2));
        assert_eq!(second.mark(), None);
        let third = further(pass(&second, 1, 7));
        assert_eq!(end(pass(&third, 7, 1)).position, at(9).ms(), "the order does not matter");
    }

    #[test]
    fn a_round_that_finds_what_the_last_one_found_needs_one_pass() {
        let ended = end(pass(&further(pass(&begin(0), 1, 2)), 1, 2));
        let overlap = Duration::from_mins(1);
        let next = ListRound::begin(0, overlap, at(200), Some(ended.last));
        end(pass(&next, 2, 1));
        let other = ListRound::begin(at(9).ms(), overlap, at(200), Some(ended.last));
        further(pass(&other, 2, 1));
    }

    #[test]
    fn a_list_that_ends_early_has_more_for_the_next_round() {
        let cut = PageFacts { is_cut: true, ..page(1, 9, None) };
        let ended = end(begin(0).after(cut, 0));
        assert_eq!((ended.position, ended.has_more), (at(9).ms(), true));
        assert!(!end(begin(0).after(page(1, 9, None), 0)).has_more);
    }

    #[test]
    fn items_that_came_after_its_begin_are_for_the_next_round() {
        assert!(begin(0).has(Some(at(100))) && !begin(0).has(Some(at(101))) && !begin(0).has(None));
    }

    #[test]
    fn a_list_that_never_comes_to_rest_does_not_move_the_position() {
        let mut round = begin(0);
        for sum in 1..MAX_PASSES {
            round = further(pass(&round, sum.into(), 0));
        }
        assert_eq!(end(pass(&round, 99, 0)).position, 0);
    }

    #[test]
    fn a_round_survives_its_stored_form() {
        let second = further(begin(at(50).ms()).after(page(u64::MAX, 9, Some(2)), 0));
        assert_eq!(ListRound::read(second.to_text().as_deref()), Some(second));
        assert_eq!(ListRound::read(Some("{\"file\":[1,2]}")), None);
        assert_eq!(ListRound::read(None), None);
    }
}

//! The list in which a target says what it has: the ids of webhooks, or keys of events.
//!
//! Not here: what was delivered, and the comparison of both (`api/comparisons.rs`).

use std::collections::BTreeSet;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::base::clock::Timestamp;
use crate::model::pointer::Pointer;
use crate::model::subscription::{Subscription, Target};
use crate::model::target_url::TargetUrl;
use crate::sources::http_client::{ListClient, ListReader, MAX_PAGE_BYTES, NoPage, WantedPage};
use crate::sources::http_list::ListItem;
use crate::sources::http_settings::{ListTerms, MAX_URL_BYTES, NextPage, SinceParameter};
use crate::store::credentials::Owner;
use crate::store::error::Error;

/// Pages of a list at most.
const MAX_PAGES: usize = 1_000;
/// Ids of a list at most.
const MAX_IDS: usize = 200_000;

/// The list of a target, which is read with the credentials of its subscription.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetList {
    /// The first page: on the server of the subscription's target.
    #[schemars(length(min = 1, max = MAX_URL_BYTES))]
    url: String,
    /// The path of the list in an answer; without it the answer itself is the list.
    items: Option<Pointer>,
    /// The path in an item of the `webhook-id` or the key that it came with; without it, items are such texts themselves.
    item_id: Option<Pointer>,
    /// How the next page is found; without it there is one page.
    next: Option<NextPage>,
    /// How only items since a time are asked for.
    newer_than: Option<SinceParameter>,
}

/// Why a list was not read.
#[derive(Debug)]
pub enum NotListed {
    /// What was asked for cannot be read.
    Unusable(String),
    /// The target does not answer as it should.
    Unanswered(String),
    /// Something of ours failed.
    Ours(Error),
}

impl TargetList {
    /// Its terms. Fails when they cannot be used, or when the list is not on the server of the target: the credentials go there.
    fn terms(&self, subscription: &Subscription) -> Result<ListTerms, String> {
        let Target::Http(target) = &subscription.new.target else {
            return Err("The target is no URL: give ids in place of a list".to_owned());
        };
        let url =
            TargetUrl::parse(&self.url).map_err(|why| format!("url cannot be used: {why}"))?;
        let is_same = url.authority() == target.authority() && url.is_https() == target.is_https();
        if !is_same || url.has_placeholders() {
            return Err(format!(
                "url must be on the server of the target, {}: the credentials of the subscription go there",
                target.authority()
            ));
        }
        Ok(ListTerms {
            url,
            items: self.items.clone(),
            id: self.item_id.iter().cloned().collect(),
            time: None,
            next: self.next.clone(),
            since: self.newer_than.clone(),
            headers: Vec::new(),
            body: None,
            items_max: None,
            details: None,
            event_type: None,
            credential: "--kind bearer",
            needs_credential: false,
            fields: Vec::new(),
        })
    }

    /// Reads the ids of the list since a time, to its end.
    /// Fails when that takes longer than `most`, or the list has more than 1,000 pages or 200,000 ids.
    pub fn read(
        &self,
        lists: &ListClient,
        subscription: &Subscription,
        since: Timestamp,
        most: Duration,
    ) -> Result<BTreeSet<String>, NotListed> {
        let terms = self.terms(subscription).map_err(NotListed::Unusable)?;
        let clock = &lists.env.clock;
        let ends_at = clock.monotonic().saturating_add(most);
        let _share = lists.env.budget.take_own(MAX_PAGE_BYTES.saturating_mul(2));
        let mut cache = Vec::new();
        let mut ids = BTreeSet::new();
        let mut mark = None;
        for _page in 0..MAX_PAGES {
            let left = ends_at.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return Err(NotListed::Unanswered(format!(
                    "the list was not read to its end within {} s: ask for a shorter period",
                    most.as_secs()
                )));
            }
            let request = terms.request(mark.as_ref(), Some(since));
            let wanted = WantedPage {
                reader: ListReader {
                    owner: Owner::Subscription(subscription.seq),
                    tenant: &subscription.new.tenant,
                    name: &subscription.new.name,
                },
                terms: &terms,
                request: &request,
                most: MAX_PAGE_BYTES,
                timeout: left,
            };
            let fetched = lists.fetch(&wanted, &mut cache).map_err(NotListed::of)?;
            let page =
                terms.read(fetched.answered(mark.as_ref())).map_err(NotListed::Unanswered)?;
            ids.extend(page.items.iter().filter_map(id_of));
            if ids.len() > MAX_IDS {
                break;
            }
            if page.next.is_none() {
                return Ok(ids);
            }
            if page.next == mark {
                let why = "the list has no end: its next page is the same again";
                return Err(NotListed::Unanswered(why.to_owned()));
            }
            mark = page.next;
        }
        Err(NotListed::Unanswered(format!(
            "the list has more than {MAX_PAGES} pages or {MAX_IDS} ids: ask for a shorter period"
        )))
    }
}

/// The id of an item: the text at its path, or the item itself.
fn id_of(item: &ListItem<'_>) -> Option<String> {
    item.id.clone().or_else(|| serde_json::from_str(&item.raw).ok())
}

impl NotListed {
    fn of(error: NoPage) -> Self {
        let why = error.to_text();
        match error {
            NoPage::Ours(error) => Self::Ours(error),
            NoPage::Passing(..)
            | NoPage::Large
            | NoPage::Gone(_)
            | NoPage::Lasting(_)
            | NoPage::NoCredential(_) => Self::Unanswered(why),
        }
    }
}

//! The member `what_if` of a new or changed subscription: how its terms would have treated the stored events of a period,
//! beside the terms of now. Nothing is saved, and nothing is sent.
//!
//! The newest events are looked at first, for two seconds at most. Archived months are not looked at. What is sealed in an
//! event stays hidden, as in [`super::subscription_trials`].

use std::time::Duration;

use crate::api::call::SHOWN_FACTOR;
use crate::api::prelude::*;
use crate::api::subscription_trials::{Trial, why_not, written};
use crate::base::clock;
use crate::base::id::SubscriptionSeq;
use crate::formats::Formats;
use crate::model::delivery::OutgoingRequest;
use crate::model::event::Status;
use crate::model::lane::{self, Key};
use crate::model::subscription::NewSubscription;
use crate::store::deliveries;
use crate::store::outbox_lists::{self, OutboxFilter};
use crate::store::page::{Newest, RowPage, Span};
use crate::store::webhook_events::{self, WebhookEventFilter};

/// Stored events that are looked at, at most.
pub(super) const MAX_EVENTS: u64 = 10_000;
/// How long they are looked at.
pub(super) const MAX_TIME: Duration = Duration::from_secs(2);
/// Events of a page.
pub(super) const PAGE: u32 = 500;
/// Examples of each difference. No more are kept, however many events differ.
const MAX_OF_EACH: usize = 5;
/// Examples at most.
const MAX_EXAMPLES: usize = 4 * MAX_OF_EACH;
/// Characters of a body that an example shows.
const MAX_BODY_CHARS: usize = 2_000;
/// The longest period that is asked for.
const MAX_PERIOD: Duration = Duration::from_hours(400 * 24);

/// What the terms would have done with the stored events of a period. Nothing was saved or sent.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct WhatIf {
    /// The begin of the period.
    since: Timestamp,
    /// Stored events that were looked at, the newest first. Archived months are not looked at.
    looked_at: u64,
    /// Whether these are all of the period: at most 10,000 are looked at, for two seconds.
    is_whole: bool,
    /// Events that the stored subscription wants; 0 for a new subscription.
    wanted_now: u64,
    /// Events that it would want.
    wanted_then: u64,
    /// Events that it would want, and does not want now.
    more: u64,
    /// Events that it wants now, and would not want.
    fewer: u64,
    /// Events that it wants now and then, with another body, media type or header field.
    changed: u64,
    /// Events that it would want, and whose request could not be written.
    failing: u64,
    /// Events that it wants now and then, in another lane.
    other_lane: u64,
    /// Up to five examples of each difference, the newest first.
    #[schemars(length(max = MAX_EXAMPLES))]
    examples: Vec<Example>,
}

/// The answer to a body that asks for a trial.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes two kinds of answers")]
pub(super) enum AnyTrial {
    Event(Box<Trial<'static>>),
    Period(Box<WhatIf>),
}

/// The answer to a change: the subscription, or a trial.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes three kinds of answers")]
pub(super) enum OrTrial<T> {
    Subscription(T),
    Event(Box<Trial<'static>>),
    Period(Box<WhatIf>),
}

/// What differs for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Difference {
    /// It would be wanted.
    More,
    /// It would not be wanted.
    Fewer,
    /// It would be sent otherwise.
    Changed,
    /// It could not be written.
    Failing,
}

/// One event for which the terms make a difference.
#[derive(Serialize, JsonSchema)]
struct Example {
    event: Is<Uuid>,
    event_type: String,
    received_at: Timestamp,
    difference: Difference,
    /// Why it would not be wanted, or could not be written.
    why: Option<String>,
    /// What is sent of it now: header fields and the beginning of the body.
    now: Option<String>,
    /// What would be sent of it.
    then: Option<String>,
}

/// Terms that are asked about an event.
struct AskedTerms<'a> {
    new: &'a NewSubscription,
    seq: SubscriptionSeq,
    formats: Formats,
}

/// What terms say about an event.
#[derive(PartialEq, Eq)]
enum Said {
    /// It is not wanted, and why.
    Unwanted(String),
    /// It is wanted and cannot be written, and why.
    Unwritable(String),
    /// It is wanted and sent like this.
    Sent { headers: Vec<(String, String)>, body: Vec<u8> },
}

impl<'a> AskedTerms<'a> {
    fn of(api: &Api, new: &'a NewSubscription, seq: SubscriptionSeq) -> Result<Self, Problem> {
        let box_name = api.env.settings.get().r#box.name.clone();
        let formats = Formats::of(new, box_name);
        let formats = formats.map_err(|why| Problem::unprocessable(format!("{why}.")))?;
        Ok(Self { new, seq, formats })
    }

    /// The answer of the terms for an event. An event with a target is wanted by no other subscription.
    fn say(&self, outgoing: &OutgoingRequest, target: Option<&str>) -> Said {
        if let Some(why) = why_not(self.new, outgoing, target) {
            return Said::Unwanted(why);
        }
        let mut outgoing = outgoing.clone();
        match written(self.new, &self.formats, &mut outgoing) {
            Ok(headers) => Said::Sent { headers, body: outgoing.payload },
            Err(why) => Said::Unwritable(why),
        }
    }

    fn lane_of(&self, outgoing: &OutgoingRequest) -> Option<i64> {
        let key = Key {
            ordering_key: outgoing.order.ordering_key.as_deref(),
            aggregate: (outgoing.aggregate_type.as_deref(), outgoing.aggregate_id.as_deref()),
            order: None,
        };
        lane::lane(self.new.scope(self.seq), key)
    }
}

impl Said {
    fn is_wanted(&self) -> bool {
        !matches!(self, Self::Unwanted(_))
    }

    /// What is sent, as an example shows it.
    fn shown(&self) -> Option<String> {
        let Self::Sent { headers, body } = self else { return None };
        let fields: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let mut text = fields.concat();
        text.push('\n');
        text.extend(String::from_utf8_lossy(body).chars().take(MAX_BODY_CHARS));
        Some(text)
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Unwanted(why) | Self::Unwritable(why) => Some(why.clone()),
            Self::Sent { .. } => None,
        }
    }
}

/// What is asked: the terms of now, if there are some, and those of then.
pub(super) struct Asked<'a> {
    /// The subscription as it is stored; `None` for a new one.
    pub(super) stored: Option<(&'a NewSubscription, SubscriptionSeq)>,
    /// As it would be.
    pub(super) wanted: &'a NewSubscription,
    /// The period, such as `7d`.
    pub(super) period: &'a str,
}

/// Shows what terms would have done with the stored events of a period.
/// Fails with 422 if the period is no span, or a template cannot be used at all.
pub(super) fn show(api: &Api, call: &Call, asked: &Asked<'_>) -> Result<Audited<Value>, Problem> {
    let period = period_of(asked.period)?;
    let seq = asked.stored.map_or(SubscriptionSeq(0), |(_, seq)| seq);
    let since = api.env.clock.wall().minus(period);
    let mut look = Look {
        api,
        tenant: &call.tenant,
        now: asked.stored.map(|(new, seq)| AskedTerms::of(api, new, seq)).transpose()?,
        then: AskedTerms::of(api, asked.wanted, seq)?,
        ends_at: api.env.clock.monotonic().saturating_add(MAX_TIME),
        seen: WhatIf { since, is_whole: true, ..WhatIf::default() },
    };
    look.at_all(outbox_page)?;
    look.at_all(webhook_page)?;
    let mut seen = look.seen;
    seen.examples.sort_by_key(|example| std::cmp::Reverse(example.received_at));
    Ok(Audited::dry_run(value(seen)))
}

/// Reads a period, such as `7d`. Fails with 422 if it is none.
pub(super) fn period_of(text: &str) -> Result<Duration, Problem> {
    let period = clock::span(text).ok().filter(|span| *span <= MAX_PERIOD);
    period.ok_or_else(|| {
        Problem::unprocessable("what_if must be a span of at most 400 days, such as 7d or 12h.")
    })
}

/// A stored event, as it is looked up.
struct StoredEvent {
    id: String,
    target: Option<String>,
    received_at: Timestamp,
    /// Whether it has a payload that may be sent.
    is_usable: bool,
}

/// A page of a tenant's events of a period.
type ReadPage = fn(&ReadTx<'_>, Newest<'_>, Span) -> StoreResult<RowPage<StoredEvent>>;

fn outbox_page(
    tx: &ReadTx<'_>,
    newest: Newest<'_>,
    received: Span,
) -> StoreResult<RowPage<StoredEvent>> {
    let filter = OutboxFilter { received, operational: true, ..OutboxFilter::default() };
    let RowPage { rows, next } = outbox_lists::page(tx, newest, &filter)?;
    let rows = rows.into_iter().map(|event| StoredEvent {
        is_usable: event.status != Status::Quarantined && event.expunged_at.is_none(),
        id: event.new.id,
        target: event.new.target,
        received_at: event.new.received_at,
    });
    Ok(RowPage { rows: rows.collect(), next })
}

fn webhook_page(
    tx: &ReadTx<'_>,
    newest: Newest<'_>,
    received: Span,
) -> StoreResult<RowPage<StoredEvent>> {
    let filter = WebhookEventFilter { received, ..WebhookEventFilter::default() };
    let RowPage { rows, next } = webhook_events::page(tx, newest, &filter)?;
    let rows = rows.into_iter().map(|event| StoredEvent {
        is_usable: event.expunged_at.is_none(),
        id: event.new.id,
        target: None,
        received_at: event.new.received_at,
    });
    Ok(RowPage { rows: rows.collect(), next })
}

/// A look at the events of a period.
struct Look<'a> {
    api: &'a Api,
    tenant: &'a str,
    now: Option<AskedTerms<'a>>,
    then: AskedTerms<'a>,
    /// By the monotonic clock.
    ends_at: Duration,
    seen: WhatIf,
}

impl Look<'_> {
    fn is_over(&self) -> bool {
        self.seen.looked_at >= MAX_EVENTS || self.api.env.clock.monotonic() >= self.ends_at
    }

    fn at_all(&mut self, read: ReadPage) -> Result<(), Problem> {
        let received = Span { since: Some(self.seen.since), until: None };
        let mut next = Some(i64::MAX);
        while let Some(before) = next {
            let newest = Newest { tenant: self.tenant, before, limit: PAGE };
            let page = self.api.env.store.read(|tx| read(tx, newest, received))?;
            next = page.next;
            for event in page.rows {
                if self.is_over() {
                    self.seen.is_whole = false;
                    return Ok(());
                }
                self.at(&event)?;
            }
        }
        Ok(())
    }

    fn at(&mut self, event: &StoredEvent) -> Result<(), Problem> {
        self.seen.looked_at = self.seen.looked_at.saturating_add(1);
        if !event.is_usable {
            return Ok(());
        }
        let of = (self.tenant, event.id.as_str());
        let found = self
            .api
            .env
            .store
            .read(|tx| deliveries::outgoing_of_event(tx, SubscriptionSeq(0), of))?;
        // Archived or expunged meanwhile.
        let Some(outgoing) = found else { return Ok(()) };
        let factor = self.then.formats.memory_factor().unwrap_or(SHOWN_FACTOR);
        let bytes = outgoing.payload.len().saturating_mul(factor).saturating_mul(2);
        let _share = self.api.share(bytes)?;
        let target = event.target.as_deref();
        let now = self.now.as_ref().map(|terms| terms.say(&outgoing, target));
        let then = self.then.say(&outgoing, target);
        let is_other_lane = self.is_other_lane(&outgoing);
        self.seen.count(now.as_ref(), &then, is_other_lane);
        let difference = Difference::between(now.as_ref(), &then);
        if let Some(difference) = difference.filter(|of| self.seen.lacks_examples(*of)) {
            self.seen.examples.push(Example {
                event: outgoing.event_id.into(),
                event_type: outgoing.event_type,
                received_at: event.received_at,
                difference,
                why: then.why(),
                now: now.as_ref().and_then(Said::shown),
                then: then.shown(),
            });
        }
        Ok(())
    }

    fn is_other_lane(&self, outgoing: &OutgoingRequest) -> bool {
        let now = self.now.as_ref().map(|terms| terms.lane_of(outgoing));
        now.is_some_and(|lane| lane != self.then.lane_of(outgoing))
    }
}

impl WhatIf {
    fn lacks_examples(&self, difference: Difference) -> bool {
        let shown = self.examples.iter().filter(|example| example.difference == difference);
        shown.count() < MAX_OF_EACH
    }

    fn count(&mut self, now: Option<&Said>, then: &Said, is_other_lane: bool) {
        let is_wanted_now = now.is_some_and(Said::is_wanted);
        let is_wanted_then = then.is_wanted();
        let is_changed = Difference::between(now, then) == Some(Difference::Changed);
        let is_failing = matches!(then, Said::Unwritable(_));
        for (count, is_one) in [
            (&mut self.wanted_now, is_wanted_now),
            (&mut self.wanted_then, is_wanted_then),
            (&mut self.more, is_wanted_then && !is_wanted_now),
            (&mut self.fewer, is_wanted_now && !is_wanted_then),
            (&mut self.changed, is_changed),
            (&mut self.failing, is_failing),
            (&mut self.other_lane, is_wanted_now && is_wanted_then && is_other_lane),
        ] {
            *count = count.saturating_add(u64::from(is_one));
        }
    }
}

impl Difference {
    /// What terms change for an event. `now` is absent for a new subscription.
    fn between(now: Option<&Said>, then: &Said) -> Option<Self> {
        let is_wanted_now = now.is_some_and(Said::is_wanted);
        match then {
            Said::Unwritable(_) => Some(Self::Failing),
            Said::Sent { .. } if !is_wanted_now => Some(Self::More),
            Said::Sent { .. } => (now != Some(then)).then_some(Self::Changed),
            Said::Unwanted(_) => is_wanted_now.then_some(Self::Fewer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(body: &str) -> Said {
        Said::Sent { headers: Vec::new(), body: body.into() }
    }

    #[test]
    fn each_pair_of_answers_counts_once() {
        let unwanted = || Said::Unwanted("no".to_owned());
        let unwritable = || Said::Unwritable("no".to_owned());
        let pairs = [
            (None, sent("a"), Some(Difference::More)),
            (None, unwanted(), None),
            (Some(unwanted()), sent("a"), Some(Difference::More)),
            (Some(sent("a")), unwanted(), Some(Difference::Fewer)),
            (Some(sent("a")), sent("a"), None),
            (Some(sent("a")), sent("b"), Some(Difference::Changed)),
            (Some(unwritable()), sent("b"), Some(Difference::Changed)),
            (Some(sent("a")), unwritable(), Some(Difference::Failing)),
            (Some(unwanted()), unwanted(), None),
        ];
        let mut seen = WhatIf::default();
        for (now, then, difference) in &pairs {
            assert_eq!(Difference::between(now.as_ref(), then), *difference);
            seen.count(now.as_ref(), then, true);
        }
        assert_eq!([seen.wanted_now, seen.wanted_then], [5, 6]);
        assert_eq!([seen.more, seen.fewer, seen.changed, seen.failing], [2, 1, 2, 1]);
        assert_eq!(seen.wanted_now + seen.more - seen.fewer, seen.wanted_then);
        assert_eq!(seen.other_lane, 4);
    }
}

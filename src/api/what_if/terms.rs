//! What the terms of a subscription would have done with stored events, beside the terms of now.
//!
//! What is sealed in an event stays hidden, as in [`crate::api::subscription_trials`].

use crate::api::call::SHOWN_FACTOR;
use crate::api::prelude::*;
use crate::api::subscription_trials::{Trial, why_not, written};
use crate::api::what_if::{WalkFilter, Walked, WalkedEvent, walk};
use crate::base::id::SubscriptionSeq;
use crate::formats::Formats;
use crate::model::delivery::OutgoingRequest;
use crate::model::lane::{self, Key};
use crate::model::subscription::NewSubscription;
use crate::store::outbox_lists::OutboxFilter;
use crate::store::webhook_events::WebhookEventFilter;

/// Examples of each difference. No more are kept, however many events differ.
const MAX_OF_EACH: usize = 5;
/// Examples at most.
const MAX_EXAMPLES: usize = 4 * MAX_OF_EACH;
/// Characters of a body that an example shows.
const MAX_BODY_CHARS: usize = 2_000;

/// What the terms would have done with the stored events of a period. Nothing was saved or sent.
#[derive(Default, Serialize, JsonSchema)]
pub(in crate::api) struct WhatIf {
    #[serde(flatten)]
    walked: Walked,
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
pub(in crate::api) enum AnyTrial {
    Event(Box<Trial<'static>>),
    Period(Box<WhatIf>),
}

/// The answer to a change: the subscription, or a trial.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes three kinds of answers")]
pub(in crate::api) enum OrTrial<T> {
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
struct JudgedTerms<'a> {
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

impl<'a> JudgedTerms<'a> {
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
pub(in crate::api) struct AskedTerms<'a> {
    /// The subscription as it is stored; `None` for a new one.
    pub(in crate::api) stored: Option<(&'a NewSubscription, SubscriptionSeq)>,
    /// As it would be.
    pub(in crate::api) wanted: &'a NewSubscription,
    /// The period, such as `7d`, or where a walk goes on.
    pub(in crate::api) period: &'a str,
}

impl AskedTerms<'_> {
    /// Shows what the terms would have done with the stored events of a period.
    /// Fails with 422 if the period is no span, or a template cannot be used at all.
    pub(in crate::api) fn show(&self, api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
        let seq = self.stored.map_or(SubscriptionSeq(0), |(_, seq)| seq);
        let mut look = Look {
            tenant: &call.tenant,
            now: self.stored.map(|(new, seq)| JudgedTerms::of(api, new, seq)).transpose()?,
            then: JudgedTerms::of(api, self.wanted, seq)?,
            seen: WhatIf::default(),
        };
        let filter = WalkFilter {
            outbox: Some(OutboxFilter { operational: true, ..OutboxFilter::default() }),
            webhooks: Some(WebhookEventFilter::default()),
        };
        let walked = walk(api, call, self.period, filter, |file, event| look.at(file, event))?;
        let mut seen = WhatIf { walked, ..look.seen };
        seen.examples.sort_by_key(|example| std::cmp::Reverse(example.received_at));
        Ok(Audited::dry_run(value(seen)))
    }
}

/// A look at the events of a period.
struct Look<'a> {
    tenant: &'a str,
    now: Option<JudgedTerms<'a>>,
    then: JudgedTerms<'a>,
    seen: WhatIf,
}

impl Look<'_> {
    fn at(&mut self, file: &Api, event: &WalkedEvent) -> Result<(), Problem> {
        if event.is_quarantined || event.is_expunged {
            return Ok(());
        }
        let Some(outgoing) = event.outgoing(file, self.tenant)? else { return Ok(()) };
        let factor = self.then.formats.memory_factor().unwrap_or(SHOWN_FACTOR);
        let bytes = outgoing.payload.len().saturating_mul(factor).saturating_mul(2);
        let _share = file.share(bytes)?;
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

//! The member `what_if` of a change: how the changed terms would have treated the stored events of a period. Nothing is saved,
//! and nothing is sent.
//!
//! This file walks over the events, the newest first: those of the database, then those of the archive's months. A walk ends
//! after 10,000 events or two seconds, and says where the next one begins. An event that is archived between two walks may be
//! in both. What the terms say about an event is in [`terms`], [`schema`] and [`provider`].

pub(super) mod provider;
pub(super) mod schema;
pub(super) mod terms;

use std::cmp::Ordering;
use std::time::Duration;

use crate::api::archived;
use crate::api::prelude::*;
use crate::archive::{ArchivedKind, Month};
use crate::base::clock;
use crate::base::id::SubscriptionSeq;
use crate::model::delivery::OutgoingRequest;
use crate::model::event::Status;
use crate::store::deliveries;
use crate::store::outbox_lists::{self, OutboxFilter};
use crate::store::page::{Newest, RowPage, Span};
use crate::store::webhook_events::{self, WebhookEventFilter};

/// Events of a walk at most.
const MAX_EVENTS: u64 = 10_000;
/// How long a walk lasts.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Events of a page.
const PAGE: u32 = 500;
/// The longest period that is asked for.
const MAX_PERIOD: Duration = Duration::from_hours(400 * 24);
/// What a period is.
const WRONG_PERIOD: &str =
    "what_if must be a span of at most 400 days, such as 7d or 12h, or next of an answer.";

values! {
    /// A span such as `7d`; or `next` of an answer, which goes on where that answer ended.
    WhatIfPeriod = { "type": "string", "minLength": 2, "maxLength": 80 }
}

/// Where a walk goes on. As text: `2026-11-24T12:00:00.000Z/2026-05/webhook_event/1234`; without a month it is in the
/// database.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The begin of the period.
    since: Timestamp,
    /// The month of the archive; `None`: the database.
    month: Option<Month>,
    kind: ArchivedKind,
    /// Events with lower numbers follow.
    before: i64,
}

impl Place {
    /// Where a walk begins. Fails with 422 if the text is neither a span nor a place.
    fn parse(text: &str, now: Timestamp) -> Result<Self, Problem> {
        if let Some(place) = Self::read(text) {
            return Ok(place);
        }
        let period = clock::span(text).ok().filter(|span| *span <= MAX_PERIOD);
        let period = period.ok_or_else(|| Problem::unprocessable(WRONG_PERIOD))?;
        let kind = ArchivedKind::Event;
        Ok(Self { since: now.minus(period), month: None, kind, before: i64::MAX })
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let since = Timestamp::parse(parts.next()?)?;
        let month = match parts.next()? {
            "" => None,
            month => Some(Month::parse(month)?),
        };
        let kind = ArchivedKind::parse(parts.next()?)?;
        let before = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { since, month, kind, before })
    }

    fn to_text(&self) -> String {
        let Self { since, month, kind, before } = self;
        let month = month.as_ref().map(Month::to_string).unwrap_or_default();
        format!("{since}/{month}/{}/{before}", kind.as_str())
    }

    /// The place from which the events of a file are read on: their kind, and the number that they are below. `None`: the
    /// file is done.
    fn within(&self, month: Option<&Month>, kind: ArchivedKind) -> Option<i64> {
        let is_webhook = |kind: ArchivedKind| kind == ArchivedKind::WebhookEvent;
        match archived::order_of_files(month, self.month.as_ref()) {
            Ordering::Less => None,
            Ordering::Greater => Some(i64::MAX),
            Ordering::Equal if is_webhook(kind) && !is_webhook(self.kind) => Some(i64::MAX),
            Ordering::Equal => (kind == self.kind).then_some(self.before),
        }
    }
}

/// Which stored events a walk is for.
#[derive(Debug, Default)]
struct WalkFilter {
    /// Those of the outbox; `None`: none.
    outbox: Option<OutboxFilter>,
    /// Those of webhooks; `None`: none.
    webhooks: Option<WebhookEventFilter>,
}

/// A stored event, as a walk finds it.
struct WalkedEvent {
    seq: i64,
    id: String,
    target: Option<String>,
    received_at: Timestamp,
    is_quarantined: bool,
    is_expunged: bool,
}

impl WalkedEvent {
    /// The request of the event, before a format is applied. `None`: the event was archived or expunged meanwhile.
    fn outgoing(&self, api: &Api, tenant: &str) -> Result<Option<OutgoingRequest>, Problem> {
        let of = (tenant, self.id.as_str());
        Ok(api.env.store.read(|tx| deliveries::outgoing_of_event(tx, SubscriptionSeq(0), of))?)
    }
}

/// How far a walk came.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Walked {
    /// The begin of the period.
    since: Timestamp,
    /// Stored events that were looked at, the newest first: 10,000 at most, for two seconds.
    looked_at: u64,
    /// What `what_if` is to look at older ones; null: these were all of the period, those of the archive included.
    next: Option<Is<WhatIfPeriod>>,
}

/// A page of a tenant's events that were received in a span.
fn page(
    tx: &ReadTx<'_>,
    newest: Newest<'_>,
    filter: &WalkFilter,
    kind: ArchivedKind,
) -> StoreResult<RowPage<WalkedEvent>> {
    let nothing = || RowPage { rows: Vec::new(), next: None };
    match kind {
        ArchivedKind::Event => {
            let Some(filter) = &filter.outbox else { return Ok(nothing()) };
            let RowPage { rows, next } = outbox_lists::page(tx, newest, filter)?;
            let rows = rows.into_iter().map(|event| WalkedEvent {
                seq: event.seq,
                is_quarantined: event.status == Status::Quarantined,
                is_expunged: event.expunged_at.is_some(),
                id: event.new.id,
                target: event.new.target,
                received_at: event.new.received_at,
            });
            Ok(RowPage { rows: rows.collect(), next })
        }
        ArchivedKind::WebhookEvent => {
            let Some(filter) = &filter.webhooks else { return Ok(nothing()) };
            let RowPage { rows, next } = webhook_events::page(tx, newest, filter)?;
            let rows = rows.into_iter().map(|event| WalkedEvent {
                seq: event.seq,
                is_quarantined: false,
                is_expunged: event.expunged_at.is_some(),
                id: event.new.id,
                target: None,
                received_at: event.new.received_at,
            });
            Ok(RowPage { rows: rows.collect(), next })
        }
    }
}

/// Walks over the stored events of a period, which `asked` says: `7d`, or where a walk ended. Each event comes with the API of
/// the file that has it.
fn walk(
    api: &Api,
    call: &Call,
    asked: &str,
    mut filter: WalkFilter,
    mut look: impl FnMut(&Api, &WalkedEvent) -> Result<(), Problem>,
) -> Result<Walked, Problem> {
    let begin = Place::parse(asked, api.env.clock.wall())?;
    let ends_at = api.env.clock.monotonic().saturating_add(MAX_TIME);
    let received = Span { since: Some(begin.since), until: None };
    if let Some(filter) = &mut filter.outbox {
        filter.received = received;
    }
    if let Some(filter) = &mut filter.webhooks {
        filter.received = received;
    }
    let mut walked = Walked { since: begin.since, ..Walked::default() };
    let kinds = [ArchivedKind::Event, ArchivedKind::WebhookEvent];
    let files = archived::files_since(api, begin.since)?;
    let parts = files.flat_map(|month| kinds.map(|kind| (month.clone(), kind)));
    for (month, kind) in parts {
        let mut next = begin.within(month.as_ref(), kind);
        if next.is_none() {
            continue;
        }
        let file = archived::file(api, month.as_ref())?;
        while let Some(before) = next {
            let newest = Newest { tenant: &call.tenant, before, limit: PAGE };
            let found = file.env.store.read(|tx| page(tx, newest, &filter, kind))?;
            for event in &found.rows {
                look(&file, event)?;
                walked.looked_at = walked.looked_at.saturating_add(1);
                if walked.looked_at >= MAX_EVENTS || api.env.clock.monotonic() >= ends_at {
                    let place = Place { since: begin.since, month, kind, before: event.seq };
                    walked.next = Some(place.to_text().into());
                    return Ok(walked);
                }
            }
            next = found.next;
        }
    }
    Ok(walked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(month: Option<&str>, kind: ArchivedKind, before: i64) -> Place {
        let since = Timestamp::from_secs(1_790_000_000);
        Place { since, month: month.and_then(Month::parse), kind, before }
    }

    #[test]
    fn a_place_is_read_as_it_was_written_and_a_span_is_the_newest_place() {
        let now = Timestamp::from_secs(1_790_086_400);
        for place in [
            place(None, ArchivedKind::Event, 17),
            place(Some("2026-05"), ArchivedKind::WebhookEvent, 1),
        ] {
            assert_eq!(Place::parse(&place.to_text(), now), Ok(place));
        }
        assert_eq!(Place::parse("1d", now), Ok(place(None, ArchivedKind::Event, i64::MAX)));
        for wrong in ["", "week", "401d", "2026-05-01T00:00:00Z", "2026-05-01T00:00:00Z//event/x"] {
            assert!(Place::parse(wrong, now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_walk_goes_on_behind_the_place_where_it_ended() {
        use ArchivedKind::{Event, WebhookEvent};
        let may = Month::parse("2026-05").unwrap();
        let april = Month::parse("2026-04").unwrap();
        let june = Month::parse("2026-06").unwrap();
        let at = place(Some("2026-05"), Event, 17);
        assert_eq!(at.within(None, WebhookEvent), None);
        assert_eq!(at.within(Some(&june), WebhookEvent), None);
        assert_eq!(at.within(Some(&may), Event), Some(17));
        assert_eq!(at.within(Some(&may), WebhookEvent), Some(i64::MAX));
        assert_eq!(at.within(Some(&april), Event), Some(i64::MAX));
        let at = place(None, WebhookEvent, 5);
        assert_eq!(at.within(None, Event), None);
        assert_eq!(at.within(None, WebhookEvent), Some(5));
        assert_eq!(at.within(Some(&june), Event), Some(i64::MAX));
    }
}

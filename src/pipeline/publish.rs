//! Publishing: events are stored once, all of a request or none, then acknowledged.

use std::collections::BTreeMap;

use crate::base::id;
use crate::event_types::{EventTypes, Misfit, OnInvalid};
use crate::model::event::{NewEvent, Status};
use crate::model::sql_row::Defect;
use crate::pipeline::counts::Counts;
use crate::pipeline::prelude::*;
use crate::pipeline::relay::SqlRows;
use crate::pipeline::source_marks::SourceMarks;
use crate::privacy::NotAdmitted;
use crate::privacy::policy::Refused;
use crate::store::idempotency_keys::{self, Idempotency, Seen};
use crate::store::matching::Matches;
use crate::store::outbox::{self, Inserted, UNUSABLE};
use crate::store::outbox_relay::MISFIT;
use crate::store::tx::ReadTx;
use crate::store::{outbox_routing, subscriptions};

/// Whether the tenant has a source of this name.
pub type IsSource = fn(&ReadTx<'_>, &str, &str) -> Result<bool>;

/// Why events of a request are quarantined, by their place in it: code and reason.
type Misfits = BTreeMap<usize, (&'static str, String)>;

/// The events of one request.
pub struct NewEvents {
    /// Each has passed [`NewEvent::check`].
    pub events: Vec<NewEvent>,
    /// Why they are stored quarantined, if their publisher found them unusable.
    pub quarantine: Option<String>,
}

/// A request whose events are ready to be stored: the policies on personal data were applied to them.
struct PreparedRequest {
    tenant: String,
    events: Vec<NewEvent>,
    misfits: Misfits,
}

/// A stored event, as its publisher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its UUID. A repeated event keeps the UUID of its first publish.
    pub id: String,
    /// The `webhook-id` its deliveries carry.
    pub webhook_id: String,
    /// Its status.
    pub status: Status,
    /// Whether it was stored before. It may be quarantined, and so not processed.
    pub repeated: bool,
    /// Whether it was stored before with other content. The first content stays.
    pub differs: bool,
    /// Whether it is new and held, because it may have been sent before a restore.
    pub in_doubt: bool,
}

/// The outcome of a publish request.
#[derive(Debug)]
pub enum Outcome {
    /// All its events are stored, and on the disk.
    Stored(Vec<Published>),
    /// The same request was answered before. This was the answer.
    Replayed {
        /// The stored status.
        status: u16,
        /// The stored body.
        body: Vec<u8>,
    },
    /// Its `Idempotency-Key` was used by another request.
    OtherRequest,
    /// The same request is still being carried out.
    Running,
    /// A policy on personal data refuses one of its events; none is stored.
    Refused {
        /// Which, from 0.
        event: usize,
        /// The rule, and the field that it refuses.
        why: Refused,
    },
    /// An event's source system is a configured source; nothing was stored.
    OfSource(String),
    /// An event does not fit its type; none is stored.
    Misfit {
        /// Which, from 0.
        event: usize,
        /// What is wrong.
        why: String,
    },
    /// An event cannot have the parent that it names; none is stored.
    NoParent {
        /// Which, from 0.
        event: usize,
        /// What is wrong.
        why: String,
    },
    /// Nothing was stored.
    Failed(Error),
}

impl Outcome {
    /// Counts the outcome. A replayed answer stores nothing and is not counted.
    fn count(&self, tenant: &str, counts: &Counts) {
        match self {
            Self::Stored(events) => {
                counts.admitted(tenant, events.iter().map(|event| (event.repeated, event.differs)));
            }
            Self::Refused { .. } | Self::Misfit { .. } | Self::NoParent { .. } => {
                counts.publishes_unwanted.add();
            }
            Self::Failed(_) => counts.publishes_failed.add(),
            _ => (),
        }
    }
}

/// Makes the status and body that are stored with an `Idempotency-Key`.
pub type Encode = fn(&[Published]) -> (u16, Vec<u8>);

/// The publisher.
#[derive(Clone)]
pub struct Publish {
    /// The environment.
    pub env: Env,
    /// Counters and histograms.
    pub counts: Arc<Counts>,
    /// The registered event types.
    pub event_types: Arc<EventTypes>,
    /// Routes rows that plain SQL inserted before.
    pub sql_rows: SqlRows,
    /// How far the sources are read.
    pub source_marks: SourceMarks,
    /// Whether the tenant has a source of this name.
    pub is_source: IsSource,
}

impl Publish {
    /// Stores the events of one request; `done` is called after COMMIT. Each event has passed [`NewEvent::check`], so
    /// no single event can make the transaction fail.
    pub fn publish(
        &self,
        tenant: String,
        NewEvents { mut events, quarantine }: NewEvents,
        idempotency: Option<Idempotency>,
        encode: Encode,
        done: impl FnOnce(Outcome) + Send + 'static,
    ) {
        let clock = self.env.clock.clone();
        let counts = Arc::clone(&self.counts);
        let sql_rows = self.sql_rows.clone();
        let is_source = self.is_source;
        let prepared = match quarantine {
            Some(why) => self.withheld(&mut events, &why),
            None => self.admitted(&mut events),
        };
        let misfits = match prepared {
            Ok(misfits) => misfits,
            Err(outcome) => {
                outcome.count(&tenant, &counts);
                return done(outcome);
            }
        };
        let is_guaranteed = events.iter().any(|event| event.order.guaranteed);
        self.source_marks.wait(Some(&tenant), || is_guaranteed || self.is_ordered(&tenant));
        let examined = match self.sql_rows.examine_before(&self.env.store, is_guaranteed) {
            Ok(examined) => examined,
            Err(error) => {
                let outcome = Outcome::Failed(error);
                outcome.count(&tenant, &counts);
                return done(outcome);
            }
        };
        let candidates = examined.usable().chain(&events).map(outbox_routing::candidate);
        let candidates: Vec<_> = candidates.collect();
        let matches =
            Matches::ahead(self.env.store.writer().routes(), &self.env.budget, &candidates);
        let request = PreparedRequest { tenant: tenant.clone(), events, misfits };
        self.env.store.writer().submit(
            Queue::Accept,
            move |tx| {
                tx.set_matches(matches.as_ref());
                let relayed = sql_rows.relay_before(tx, &examined, is_guaranteed)?;
                if let Some(name) = configured_source(tx, is_source, &request)? {
                    return Ok((Outcome::OfSource(name), relayed));
                }
                let outcome = all_or_none(tx, &request.events, || match &idempotency {
                    None => store_all(tx, &request, &clock),
                    Some(key) => store_once(tx, &request, key, &clock, encode),
                })?;
                Ok((outcome, relayed))
            },
            move |stored| {
                let outcome = match stored {
                    Ok((outcome, relayed)) => {
                        counts.relayed(&relayed);
                        outcome
                    }
                    Err(error) => Outcome::Failed(error),
                };
                outcome.count(&tenant, &counts);
                done(outcome);
            },
        );
    }
}

impl Publish {
    /// Whether a subscription of the tenant asks for order.
    fn is_ordered(&self, tenant: &str) -> bool {
        self.env.store.read(|tx| subscriptions::has_order(tx, Some(tenant))).unwrap_or(false)
    }

    /// Applies the policy on personal data to usable events, and finds those that do not fit their types.
    fn admitted(&self, events: &mut [NewEvent]) -> std::result::Result<Misfits, Outcome> {
        let misfits = self.misfits(events)?;
        self.env.privacy.admit(events).map_err(|not| match not {
            NotAdmitted::Refused { event, why } => Outcome::Refused { event, why },
            NotAdmitted::Failed(error) => Outcome::Failed(error),
        })?;
        Ok(misfits)
    }

    /// Prepares events that their publisher found unusable: under a policy on personal data their content is left out.
    fn withheld(
        &self,
        events: &mut [NewEvent],
        why: &str,
    ) -> std::result::Result<Misfits, Outcome> {
        let mut reasons = Misfits::new();
        for (n, event) in events.iter_mut().enumerate() {
            let withheld = self.env.privacy.withhold(std::mem::take(event), why.to_owned());
            let (kept, why) = withheld.map_err(Outcome::Failed)?;
            *event = kept;
            reasons.insert(n, (UNUSABLE, why));
        }
        Ok(reasons)
    }

    /// The events that do not fit their types and are quarantined, each with the reason. The error is that of an event
    /// that is rejected.
    fn misfits(&self, events: &[NewEvent]) -> std::result::Result<Misfits, Outcome> {
        let mut misfits = Misfits::new();
        for (event, new) in events.iter().enumerate() {
            match self.event_types.misfit(new).map_err(Outcome::Failed)? {
                None => {}
                Some(Misfit { why, on_invalid: OnInvalid::Reject }) => {
                    return Err(Outcome::Misfit { event, why });
                }
                Some(Misfit { why, on_invalid: OnInvalid::Quarantine }) => {
                    let why =
                        self.env.privacy.sanitize(&new.tenant, &why).map_err(Outcome::Failed)?;
                    misfits.insert(event, (MISFIT, why));
                }
            }
        }
        Ok(misfits)
    }
}

/// The first source system among these events that is a configured source. Only that source may publish under it.
fn configured_source(
    tx: &ReadTx<'_>,
    is_source: IsSource,
    request: &PreparedRequest,
) -> Result<Option<String>> {
    let mut before = None;
    for NewEvent { source_system, .. } in &request.events {
        // Most requests have one source system throughout.
        if before.replace(source_system) != Some(source_system)
            && is_source(tx, &request.tenant, source_system)?
        {
            return Ok(Some(source_system.clone()));
        }
    }
    Ok(None)
}

/// Stores the events of a request with `store`. If one of them cannot have its parent, nothing is stored.
fn all_or_none(
    tx: &WriteTx<'_>,
    events: &[NewEvent],
    store: impl Fn() -> Result<Outcome>,
) -> Result<Outcome> {
    let has_parent =
        |event: &NewEvent| event.order.parent_id.is_some() || event.order.parent_key.is_some();
    if !events.iter().any(has_parent) {
        return store();
    }
    let mut refused = None;
    let stored = tx.in_savepoint(|| match store()? {
        outcome @ Outcome::NoParent { .. } => {
            refused = Some(outcome);
            Err(Error::Changed("the parent"))
        }
        outcome => Ok(outcome),
    })?;
    refused.map_or(stored, Ok)
}

/// Stores the events of a request, unless the request was carried out before.
fn store_once(
    tx: &WriteTx<'_>,
    request: &PreparedRequest,
    idempotency: &Idempotency,
    clock: &Clock,
    encode: Encode,
) -> Result<Outcome> {
    let Idempotency { key, request_hash } = idempotency;
    let tenant = &request.tenant;
    match idempotency_keys::begin(tx, tenant, key, request_hash, clock.now())? {
        Seen::First => {
            let outcome = store_all(tx, request, clock)?;
            if let Outcome::Stored(stored) = &outcome {
                let (status, body) = encode(stored);
                idempotency_keys::finish(tx, tenant, key, status, &body)?;
            }
            Ok(outcome)
        }
        Seen::Answered { status, body } => Ok(Outcome::Replayed { status, body }),
        Seen::OtherRequest => Ok(Outcome::OtherRequest),
        Seen::Running => Ok(Outcome::Running),
    }
}

fn store_all(tx: &WriteTx<'_>, request: &PreparedRequest, clock: &Clock) -> Result<Outcome> {
    let now = clock.now();
    let mut published = Vec::with_capacity(request.events.len());
    for (n, event) in request.events.iter().enumerate() {
        let webhook_id =
            id::webhook_id(&event.tenant, &event.source_system, &event.idempotency_key);
        let stored = match request.misfits.get(&n) {
            None => admit(tx, event, now)?,
            Some((code, why)) => outbox::insert_quarantined(tx, event, code, why, now)?,
        };
        published.push(match stored {
            Inserted::First { status, in_doubt } => Published {
                id: event.id.clone(),
                webhook_id,
                status,
                repeated: false,
                differs: false,
                in_doubt,
            },
            Inserted::Again { id, status, differs } => {
                Published { id, webhook_id, status, repeated: true, differs, in_doubt: false }
            }
            Inserted::NoParent(Defect { reason, .. }) => {
                return Ok(Outcome::NoParent { event: n, why: reason });
            }
        });
    }
    Ok(Outcome::Stored(published))
}

/// As [`admit`], for an event of a source: it is quarantined if it cannot have the parent that it names. Tells whether
/// it was.
pub(crate) fn admit_or_quarantine(
    tx: &WriteTx<'_>,
    event: &NewEvent,
    now: Timestamp,
) -> Result<(Inserted, bool)> {
    match admit(tx, event, now)? {
        Inserted::NoParent(Defect { code, reason }) => {
            Ok((outbox::insert_quarantined(tx, event, code, &reason, now)?, true))
        }
        stored => Ok((stored, false)),
    }
}

/// Stores an event once, with its deliveries. It has passed [`NewEvent::check`].
pub(crate) fn admit(tx: &WriteTx<'_>, event: &NewEvent, now: Timestamp) -> Result<Inserted> {
    outbox::insert(tx, event, now)
}

//! The stages from their parts: what each is given.
//!
//! Not here: threads, which [`crate::pipeline`] starts.

use crate::http::client::Call;
use crate::model::delivery::Settlement;
use crate::pipeline::Parts;
use crate::pipeline::clock_watch::ClockWatch;
use crate::pipeline::consume::Consume;
use crate::pipeline::counts::Counts;
use crate::pipeline::deliver::Deliver;
use crate::pipeline::destinations::Destinations;
use crate::pipeline::provider_cache::ProviderCache;
use crate::pipeline::publish::Publish;
use crate::pipeline::receive::Receive;
use crate::pipeline::refusals::Refusals;
use crate::pipeline::scheduler::{Dispatcher, HandOut, Mailbox};
use crate::pipeline::sql_rows::SqlRows;
use crate::pipeline::upkeep::Upkeep;
use crate::privacy::Privacy;
use crate::signatures::certificate_cache::{Certificates, Fetch};
use crate::store::error::Result;
use crate::telemetry::heartbeat::Heartbeat;
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;

pub(super) fn deliver(
    parts: &Parts,
    (destinations, counts, privacy): (&Arc<Destinations>, &Arc<Counts>, &Arc<Privacy>),
    mailbox: Mailbox,
    unsettled: Sender<Settlement>,
) -> Deliver {
    Deliver {
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        draw: Arc::clone(&parts.draw),
        sender: Arc::clone(&parts.sender),
        destinations: Arc::clone(destinations),
        mailbox,
        unsettled,
        counts: Arc::clone(counts),
        privacy: Arc::clone(privacy),
        budget: parts.budget.clone(),
        suspects: Arc::clone(&parts.suspects),
        faults: parts.faults.clone(),
    }
}

pub(super) fn consume(
    parts: &Parts,
    destinations: &Arc<Destinations>,
    (counts, privacy): (&Arc<Counts>, &Arc<Privacy>),
) -> Consume {
    let end = (parts.store.clone(), parts.clock.clone(), Arc::clone(&parts.draw));
    let counted = (Arc::clone(counts), Arc::clone(privacy));
    Consume::new(end, Arc::clone(destinations), parts.settings.clone(), counted)
}

pub(super) fn destinations(parts: &Parts) -> Destinations {
    Destinations::new(parts.store.clone(), Arc::clone(&parts.key), parts.settings.clone())
}

pub(super) fn dispatcher(
    parts: &Parts,
    inbox: (Mailbox, Heartbeat),
    hand_out: HandOut,
) -> Result<Dispatcher> {
    let (clock, reader) = (parts.clock.clone(), parts.store.own_reader()?);
    let (settings, faults) = (parts.settings.clone(), parts.faults.clone());
    Ok(Dispatcher::new(clock, inbox, reader, hand_out, settings, faults))
}

pub(super) fn upkeep(
    parts: &Parts,
    clock_watch: Arc<ClockWatch>,
    unsettled: Receiver<Settlement>,
    deliver: &Deliver,
) -> Upkeep {
    let (store, clock) = (parts.store.clone(), parts.clock.clone());
    let refusals = Refusals::new(store.clone(), clock.clone());
    let (disk, deliver) = (Arc::clone(&parts.disk), deliver.clone());
    Upkeep { store, clock, clock_watch, disk, refusals, unsettled, deliver }
}

pub(super) fn privacy(parts: &Parts) -> Arc<Privacy> {
    let (key, draw) = (Arc::clone(&parts.key), Arc::clone(&parts.draw));
    Arc::new(Privacy::new(parts.store.clone(), key, parts.names.clone(), draw))
}

pub(super) fn sql_rows(parts: &Parts) -> SqlRows {
    let (clock, draw) = (parts.clock.clone(), Arc::clone(&parts.draw));
    SqlRows { clock, draw, settings: parts.settings.clone() }
}

/// Certificates are fetched as deliveries are sent: under the same address policy, with the same roots.
fn fetch(parts: &Parts) -> Fetch {
    let sender = Arc::clone(&parts.sender);
    Box::new(move |url, timeout| {
        let call = Call { method: "GET", url, headers: &[], body: &[], timeout };
        sender.send(&call).map(|answer| (answer.status, answer.body)).map_err(|e| e.to_string())
    })
}

pub(super) fn entrances(
    parts: &Parts,
    (gates, privacy): (Arc<ProviderCache>, &Arc<Privacy>),
    clock_watch: &Arc<ClockWatch>,
    counts: Arc<Counts>,
) -> (Receive, Publish) {
    let (store, clock) = (parts.store.clone(), parts.clock.clone());
    let sql_rows = sql_rows(parts);
    let (counted, privately) = (Arc::clone(&counts), Arc::clone(privacy));
    let is_source = parts.is_source;
    let publish =
        Publish { store, clock, counts: counted, privacy: privately, sql_rows, is_source };
    let receive = Receive {
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        draw: Arc::clone(&parts.draw),
        gates,
        clock_watch: Arc::clone(clock_watch),
        certificates: Arc::new(Certificates::new(fetch(parts), parts.clock.clone())),
        turns: Arc::default(),
        counts,
        privacy: Arc::clone(privacy),
    };
    (receive, publish)
}

//! The load: events over HTTP, as fast as they are accepted or at a pace.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::base::stop::Stop;
use crate::bench::time::{RunLimits, per_second};
use crate::demo::site::{Error, loopback_client};
use crate::http::client::{Call, Client};

/// Bytes of a payload, about those of an invoice.
const PAYLOAD_BYTES: usize = 500;
/// Most events of one measurement, so that the files stay small on a fast machine.
const MAX_EVENTS: u64 = 20_000;
/// Events a second at a box's pace: each event is alone, and a few seconds have enough of them.
const PACE: u64 = 20;
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends events of a type.
pub(super) struct Load<'a> {
    limits: &'a RunLimits<'a>,
    client: Client,
    url: String,
    headers: [(String, String); 2],
    event_type: &'static str,
    /// Part of each event's key: no two loads make the same keys.
    name: String,
    sent: AtomicU64,
}

/// What was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) accepted: u64,
    pub(super) took: Duration,
}

impl Sent {
    pub(super) fn per_second(self) -> u64 {
        per_second(self.accepted, self.took)
    }
}

impl<'a> Load<'a> {
    pub(super) fn new(
        limits: &'a RunLimits<'a>,
        url: String,
        token: String,
        event_type: &'static str,
    ) -> Result<Self, Error> {
        Ok(Self {
            limits,
            client: loopback_client()?,
            url,
            headers: [
                ("content-type".to_owned(), "application/json".to_owned()),
                ("authorization".to_owned(), format!("Bearer {token}")),
            ],
            event_type,
            name: format!("bench-{}", limits.clock.monotonic().as_nanos()),
            sent: AtomicU64::new(0),
        })
    }

    /// Sends over so many connections, each the next event as soon as the last one is accepted.
    pub(super) fn saturated(&self, connections: usize) -> Result<Sent, Error> {
        let begun = self.limits.clock.monotonic();
        let outcomes: Vec<Result<u64, Error>> = thread::scope(|scope| {
            let started: Vec<_> =
                (0..connections).map(|_| scope.spawn(|| self.connection(begun))).collect();
            let broken = || Error::Failed("a thread of the load panicked".to_owned());
            started
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_panic| Err(broken())))
                .collect()
        });
        let took = self.limits.since(begun);
        let accepted = outcomes.into_iter().sum::<Result<u64, Error>>()?;
        Ok(Sent { accepted, took })
    }

    fn connection(&self, begun: Duration) -> Result<u64, Error> {
        let mut accepted: u64 = 0;
        while self.limits.since(begun) < self.limits.span {
            self.limits.check()?;
            let number = self.sent.fetch_add(1, Ordering::Relaxed);
            if number >= MAX_EVENTS {
                break;
            }
            self.send(number)?;
            accepted = accepted.saturating_add(1);
        }
        Ok(accepted)
    }

    /// Sends [`PACE`] events a second, at least one.
    pub(super) fn paced(&self) -> Result<Sent, Error> {
        let gap = Duration::from_secs(1) / u32::try_from(PACE).unwrap_or(1);
        let events = u64::try_from(self.limits.span.as_millis()).unwrap_or(0).saturating_mul(PACE);
        let events = (events / 1000).max(1);
        let never = Stop::new();
        let begun = self.limits.clock.monotonic();
        let mut due = Duration::ZERO;
        for number in 0..events {
            self.limits.check()?;
            never.wait(due.saturating_sub(self.limits.since(begun)));
            self.send(number)?;
            due = due.saturating_add(gap);
        }
        // The gap after the last event belongs to its pace.
        never.wait(due.saturating_sub(self.limits.since(begun)));
        Ok(Sent { accepted: events, took: self.limits.since(begun) })
    }

    fn send(&self, number: u64) -> Result<(), Error> {
        let event = json!({
            "event_type": self.event_type,
            "idempotency_key": format!("{}-{number}", self.name),
            "payload": { "number": number, "text": "x".repeat(PAYLOAD_BYTES) },
        });
        let body = event.to_string();
        let call = Call {
            method: "POST",
            url: &self.url,
            headers: &self.headers,
            body: body.as_bytes(),
            timeout: TIMEOUT,
            ..Call::default()
        };
        let answer = self.client.call(&call).map_err(Error::about("the service did not answer"))?;
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&answer.body);
        Err(Error::Failed(format!("Oncebox answered {} to an event: {said}", answer.status)))
    }
}

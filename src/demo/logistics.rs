//! Logistics: simulates a receiver that ships once per event, with planned faults.
//!
//! HTTP handlers verify the signature and queue the event. The main thread commits many at once, guard and shipment in one
//! transaction, and then answers them. Where there is a topic, it reads that instead.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::base::clock::Clock;
use crate::config::Log;
use crate::demo::chaos::{self, Fault};
use crate::demo::site::{self, Broken, Error, LOGISTICS_PATH, LOGISTICS_READY, Site, read_line};
use crate::demo::store::{Arrival, Bookkeeping, Ledger};
use crate::demo::topic::{Reader, Record};
use crate::http::message::{Head, Method, Request, Response};
use crate::http::server::{self, Server, Setup};
use crate::http::service::{Limits, Reply, Service};
use crate::signatures::{Incoming, Scheme};
use crate::sys::host::end_with_parent;
use crate::telemetry;

/// Largest body.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Most arrivals of one transaction.
const MAX_BATCH: usize = 256;
/// Most arrivals that wait for a transaction; beyond that, 503.
const MAX_WAITING: usize = 4096;
/// How often held requests are checked.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Largest age of a signature.
const TOLERANCE: Duration = Duration::from_mins(5);

/// A job for the main thread.
enum Job {
    /// Commit, then answer, or hang up if the answer is to be lost.
    Take { arrival: Arrival, bookkeeping: Bookkeeping, answer: Response, reply: Reply },
    /// Hold until the sender has given up.
    Hold(Reply),
}

struct Receiving {
    site: Site,
    life: u32,
    clock: Clock,
    secret: String,
    jobs: Sender<Job>,
    /// How often each event was delivered in this life.
    seen: Mutex<HashMap<String, u32>>,
}

#[derive(Deserialize)]
struct Body {
    invoice: u32,
}

/// Runs until it is killed.
pub fn run(site: &Path, life: u32) -> Result<(), Error> {
    end_with_parent().map_err(Error::about("no thread"))?;
    telemetry::start(&Log::default());
    let site = Site::read(site)?;
    let ledger = Ledger::logistics(&site.logistics_db())?;
    let secret = read_line(&site.secret())?;
    let listen = || Error::about(site.logistics);
    let listener = server::bind(site.logistics).map_err(listen())?;
    let (jobs, waiting) = bounded(MAX_WAITING);
    let clock = Clock::machine();
    let service = Receiving {
        site: site.clone(),
        life,
        clock: clock.clone(),
        secret,
        jobs,
        seen: Mutex::default(),
    };
    let setup = Setup::new(Limits::default(), clock.clone());
    let server = Server::start(vec![listener], setup, Arc::new(service));
    let server = server.map_err(listen())?;
    if site.brokers.is_empty() {
        commit(ledger, &waiting, &clock);
    } else {
        consume(ledger, &Reader::start(&site)?, &site, &clock);
    }
    drop(server);
    Ok(())
}

/// Reads the topic: guard and shipment in one transaction, then the offsets.
fn consume(mut ledger: Ledger, reader: &Reader, site: &Site, clock: &Clock) {
    loop {
        let records = reader.take(MAX_BATCH, POLL_EVERY);
        let mut batch = Vec::new();
        for Record { event_id, body } in records {
            match serde_json::from_slice::<Body>(&body) {
                Ok(Body { invoice }) => {
                    let bookkeeping = bookkeeping(site, &event_id);
                    batch.push((Arrival { event_id, invoice }, bookkeeping));
                }
                Err(error) => tracing::error!(%error, "a record is not about an invoice"),
            }
        }
        // They are not read again before the next start: nothing behind them may be committed.
        while let Err(error) = ledger.take(&batch, clock.wall()) {
            tracing::error!(%error, "a batch of records was not stored; it is tried again");
        }
        if !batch.is_empty() {
            reader.commit();
        }
    }
}

fn bookkeeping(site: &Site, event_id: &str) -> Bookkeeping {
    match site.run.broken {
        Broken::Guard => Bookkeeping::WithoutGuard,
        Broken::Effect if chaos::is_effectless(site.run.seed, event_id) => {
            Bookkeeping::WithoutEffect
        }
        Broken::Nothing | Broken::Effect => Bookkeeping::Right,
    }
}

impl Service for Receiving {
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        match (head.method, head.path.as_str()) {
            (Method::Post, LOGISTICS_PATH) | (Method::Get, LOGISTICS_READY) => Ok(MAX_BODY_BYTES),
            _ => Err(Response::new(404)),
        }
    }

    fn call(&self, request: Request, reply: Reply) {
        if request.head.path == LOGISTICS_READY {
            return reply.send(Response::new(204));
        }
        let arrival = match self.read(&request) {
            Ok(arrival) => arrival,
            Err(refusal) => return reply.send(refusal),
        };
        let fault = self.fault(&arrival.event_id);
        let job = match fault {
            Some(Fault::Refuse) => return reply.send(Response::new(500)),
            Some(Fault::Hang) => Job::Hold(reply),
            Some(Fault::LoseAnswer) | None => {
                let lost = fault == Some(Fault::LoseAnswer);
                let ok = || Response::with_body(200, "application/json", b"{\"ok\":true}".to_vec());
                let answer = if lost { Response::hang_up() } else { ok() };
                let bookkeeping = bookkeeping(&self.site, &arrival.event_id);
                Job::Take { arrival, bookkeeping, answer, reply }
            }
        };
        if let Err(back) = self.jobs.try_send(job) {
            match back.into_inner() {
                Job::Take { reply, .. } | Job::Hold(reply) => reply.send(Response::new(503)),
            }
        }
    }

    fn refusal(&self, status: u16, _detail: &str) -> Response {
        Response::new(status)
    }
}

impl Receiving {
    /// Verifies a request and reads its event.
    fn read(&self, request: &Request) -> Result<Arrival, Response> {
        let Request { head, body } = request;
        let incoming = Incoming {
            method: head.method.as_str(),
            path: &head.path,
            url: &head.path,
            headers: &head.headers,
            body,
        };
        let now = self.clock.wall();
        let verified = Scheme::Standard.verify(&[&self.secret], &incoming, now, TOLERANCE);
        if let Err(refused) = verified {
            tracing::error!(%refused, "a request is not from Oncebox");
            return Err(Response::new(401));
        }
        let event_id = head.headers.get("webhook-id").ok_or_else(|| Response::new(400))?;
        let body: Body = serde_json::from_slice(body).map_err(|error| {
            tracing::error!(%error, "a signed request is not about an invoice");
            Response::new(400)
        })?;
        Ok(Arrival { event_id: event_id.to_owned(), invoice: body.invoice })
    }

    fn fault(&self, event_id: &str) -> Option<Fault> {
        if !self.site.run.faults {
            return None;
        }
        let mut seen = self.seen.lock();
        let nth = seen.entry(event_id.to_owned()).or_default();
        *nth = nth.saturating_add(1);
        chaos::fault_of(self.site.run.seed, event_id, self.life, *nth)
    }
}

/// Commits arrivals and answers them; hangs up on held requests after the sender's timeout.
fn commit(mut ledger: Ledger, waiting: &Receiver<Job>, clock: &Clock) {
    let hold_for = site::TIMEOUT.saturating_add(Duration::from_millis(300));
    let mut held: Vec<(Duration, Reply)> = Vec::new();
    loop {
        let first = match waiting.recv_timeout(POLL_EVERY) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let now = clock.monotonic();
        let mut batch = Vec::new();
        let mut answers = Vec::new();
        for job in first.into_iter().chain(waiting.try_iter().take(MAX_BATCH)) {
            match job {
                Job::Take { arrival, bookkeeping, answer, reply } => {
                    batch.push((arrival, bookkeeping));
                    answers.push((reply, answer));
                }
                Job::Hold(reply) => held.push((now, reply)),
            }
        }
        let taken = if batch.is_empty() { Ok(()) } else { ledger.take(&batch, clock.wall()) };
        match taken {
            Ok(()) => answers.into_iter().for_each(|(reply, answer)| reply.send(answer)),
            // The replies are dropped, which answers 500, so that the events come again.
            Err(error) => tracing::error!(%error, "a batch of arrivals was not stored"),
        }
        for (_, reply) in held.extract_if(.., |(since, _)| now.saturating_sub(*since) > hold_for) {
            reply.send(Response::hang_up());
        }
    }
}

//! Tests of subscriptions: one request goes the way of a delivery and tells each step with its time. No delivery is made,
//! and nothing is settled.
//!
//! Tests wait for the network, so they have threads of their own. A person's rotations use them too; those by
//! the clock and health probes have others. A
//! tenant takes half of the threads at most, so that one whose targets hang does not delay the others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, Sender, bounded};
use serde_json::json;

use crate::base::fair::{Fair, FairQueue, Payer};
use crate::base::id;
use crate::http::certificate::Seen;
use crate::http::trace::{Step, StepName, Trace};
use crate::model::delivery::{OutgoingOrder, OutgoingRequest};
use crate::model::event::OWN_SOURCE;
pub use crate::model::event::PING;
use crate::model::outcome::{AttemptClass, Outcome};
use crate::model::subscription::{Subscription, Target};
use crate::pipeline::advice::advice;
use crate::pipeline::deliver::deliverer::Deliverer;
use crate::pipeline::deliver::trial::{Preview, Trial};
use crate::pipeline::destinations::Destination;
use crate::pipeline::prelude::*;
use crate::pipeline::threads::Spawner;

/// A tenant may take a thread while it has fewer than are free: half of them, so that the others are for others.
const THREADS_TIMES: usize = 1;

/// What the names of threads begin with, how many there are, and how many jobs may wait for one.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub &'static str, pub usize, pub usize);

/// The threads of tests and rotations that a person waits for.
pub const THREADS: Threads = Threads("test", 2, 16);
/// The threads of rotations that are due by the clock.
pub const ROTATIONS: Threads = Threads("rotate", 2, 32);

/// Whether a job runs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It does.
    Now,
    /// Too many of its tenant wait.
    Full,
}

/// Why a job is not taken.
pub const FULL: &str = "Too many tests and rotations of this tenant wait: they run one at a time. Try again when one has ended.";

/// A test, with what follows it. Called once.
pub type Job = Box<dyn FnOnce(Turn) + Send>;

/// Takes the class of a probe, why it failed, and the wait that the target asks for. Called once.
pub type Probed = Box<dyn FnOnce(AttemptClass, String, Option<Duration>) + Send>;

/// Runs tests. Cheap to clone.
#[derive(Clone)]
pub struct SubscriptionTests {
    /// What sends.
    pub deliver: Deliverer,
    jobs: Arc<Mutex<FairQueue<Job>>>,
    /// Wakes a thread for each job; the threads end when nobody can send.
    bell: Sender<()>,
}

impl std::fmt::Debug for SubscriptionTests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionTests").finish_non_exhaustive()
    }
}

/// What a test came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The URL that was called; empty if there was none yet.
    pub url: String,
    /// The steps, and which of them failed.
    pub steps: Vec<(Step, bool)>,
    /// What came of it.
    pub outcome: Outcome,
    /// The class that the attempt of a delivery would have.
    pub class: AttemptClass,
    /// What to change, where it failed.
    pub advice: Option<&'static str>,
}

impl SubscriptionTests {
    /// Starts so many threads, for which so many jobs may wait. Nobody waits for their end: what moves is written by a job's
    /// last step.
    pub fn start(deliver: Deliverer, spawner: &Spawner, threads: Threads) -> Result<Self> {
        let Threads(name, count, waiting) = threads;
        let jobs = FairQueue::new(Fair::new(count, THREADS_TIMES), waiting);
        let jobs = Arc::new(Mutex::new(jobs));
        let (bell, rung) = bounded(waiting);
        for n in 0..count {
            let jobs = Arc::clone(&jobs);
            let rung = rung.clone();
            drop(spawner.spawn(&format!("{name}-{n}"), move || work(&jobs, &rung))?);
        }
        Ok(Self { deliver, jobs, bell })
    }

    /// Runs a job of a tenant on another thread, or tells it that too many wait.
    pub fn submit(&self, tenant: &str, job: Job) {
        let pushed = self.jobs.lock().push(&Payer::tenant(tenant), job);
        if let Err(job) = pushed {
            return job(Turn::Full);
        }
        // A bell that is full wakes enough threads already.
        let _rung = self.bell.try_send(());
    }

    /// A ping for a subscription.
    pub fn ping(&self, subscription: &Subscription) -> OutgoingRequest {
        let now = self.deliver.env.clock.wall();
        let event_id = id::uuid7(now, &*self.deliver.env.draw);
        let key = format!("{PING}/{event_id}");
        let new = &subscription.new;
        let body = json!({ "type": PING, "subscription": new.name.as_str(), "at": now });
        OutgoingRequest {
            delivery: DeliverySeq(0),
            subscription: subscription.seq,
            run_no: 0,
            attempt_count: 0,
            accepted_at: now,
            tenant: new.tenant.clone(),
            source: OWN_SOURCE.to_owned(),
            webhook_id: id::webhook_id(&new.tenant, OWN_SOURCE, &key),
            event_id,
            idempotency_key: key,
            event_type: PING.to_owned(),
            aggregate_type: Some("subscription".to_owned()),
            aggregate_id: Some(new.name.to_string()),
            payload: body.to_string().into_bytes(),
            sealed_fields: 0,
            content_type: "application/json".to_owned(),
            headers: "{}".to_owned(),
            occurred_at: None,
            trace_id: None,
            max_attempts: None,
            order: OutgoingOrder::default(),
            rendering: None,
            type_field: None,
        }
    }

    /// Sends a ping with one credential alone, in place of all others of its purpose; tells the class and why it failed.
    pub fn ping_with(
        &self,
        subscription: SubscriptionSeq,
        credential: &str,
    ) -> Result<(AttemptClass, String)> {
        let destination = match self.deliver.destinations.trying(subscription, credential) {
            Ok(destination) => destination,
            // The reason is on our side: it may be mended.
            Err(reason) => return Ok((AttemptClass::Transient, reason)),
        };
        let mut ping = self.ping(&destination.subscription);
        // A topic is looked at, and its consumers see nothing of it.
        let sends = matches!(destination.subscription.new.target, Target::Http(_));
        let trace = Trace::new(self.deliver.env.clock.clone()).sending(sends);
        let Trial { outcome, .. } = self.deliver.try_out(&mut ping, &destination, &trace)?;
        let class = destination.classes.classify(&outcome);
        Ok((class, outcome.failed_reason(class).unwrap_or_default()))
    }

    /// Probes the target of a subscription, and hands in the class and why it failed. If the site is offline, nothing is
    /// learnt of the target, and `done` is dropped.
    pub fn probe(&self, of: &Subscription, done: Probed) {
        let Deliverer { env, destinations, line, .. } = &self.deliver;
        let (probe, target) = (&of.new.policy.probe, &of.new.target);
        let (Some(probe), Target::Http(url)) = (probe, target) else { return };
        let ready = probe.request(url).and_then(|own| Ok((own, destinations.of(of.seq)?)));
        let (own, destination) = match ready {
            Ok(ready) => ready,
            // The reason is on our side: the next event would fail as well.
            Err(reason) => return done(AttemptClass::Poison, reason, None),
        };
        let started = env.clock.monotonic();
        let outcome = self.deliver.probe(self.ping(of), &destination, own);
        let class = destination.classes.classify(&outcome);
        let reason = outcome.failed_reason(class).unwrap_or_default();
        let asked = outcome.retry_after();
        let done = move |is_offline: bool| {
            if !is_offline {
                done(class, reason, asked);
            }
        };
        match self.deliver.is_offline(of, started, &outcome) {
            Some(is_offline) => done(is_offline),
            None => line.doubt(started, Box::new(done)),
        }
    }

    /// What a delivery would send; nothing is sent.
    pub fn preview(&self, outgoing: OutgoingRequest) -> std::result::Result<Preview, String> {
        self.deliver.preview(outgoing)
    }

    /// Sends one request as a delivery of it would, and notes its steps as they are done.
    pub fn run(&self, mut outgoing: OutgoingRequest, trace: &Trace) -> Result<Report> {
        match self.deliver.destinations.of(outgoing.subscription) {
            Ok(destination) => {
                let trial = self.deliver.try_out(&mut outgoing, &destination, trace)?;
                Ok(report(trial, Some(&*destination), trace))
            }
            // The reason is on our side: a key, a setting.
            Err(reason) => Ok(report(Trial::unbuildable(reason), None, trace)),
        }
    }
}

/// Works off jobs until nobody can hand in one.
fn work(jobs: &Mutex<FairQueue<Job>>, rung: &Receiver<()>) {
    let begin = || jobs.lock().begin();
    while rung.recv().is_ok() {
        // The end of a job lets the next one of its tenant begin, for which the bell has rung before.
        while let Some((payer, job)) = begin() {
            // The panic of one job must not end the others.
            if catch_unwind(AssertUnwindSafe(|| job(Turn::Now))).is_err() {
                tracing::error!(?payer, "a test or a rotation panicked");
            }
            jobs.lock().end(&payer);
        }
    }
}

fn report(trial: Trial, destination: Option<&Destination>, trace: &Trace) -> Report {
    let Trial { url, outcome } = trial;
    let class = destination
        .map_or(AttemptClass::Poison, |destination| destination.classes.classify(&outcome));
    let seen = trace.seen();
    let mut steps: Vec<(Step, bool)> = trace.steps().into_iter().map(|s| (s, false)).collect();
    let status = outcome.status();
    if status.is_none() && !class.is_success() {
        let (mut name, took) = trace.unfinished(&url);
        if matches!(outcome, Outcome::Unbuildable { .. }) {
            name = StepName::Build;
            steps.clear();
        }
        let detail = outcome.failed_reason(class).unwrap_or_default();
        steps.push((Step { name, took, detail }, true));
    }
    for (step, failed) in &mut steps {
        match (step.name, &seen) {
            (StepName::Tls, Some(seen)) => step.detail = with_certificate(&step.detail, seen),
            (StepName::Answer, _) if let Some(status) = status => {
                step.detail = status.to_string();
                *failed = !class.is_success();
            }
            _ => {}
        }
    }
    let failed = steps.iter().find(|(_, failed)| *failed).map(|(step, _)| step.name);
    let advice = failed.map(|step| advice(&outcome, step));
    Report { url, steps, outcome, class, advice }
}

/// The detail of TLS: what failed, the version, until when the certificate is valid.
fn with_certificate(detail: &str, seen: &Seen) -> String {
    let version = seen.version.replace('_', ".");
    let day = |until: Timestamp| until.to_string().chars().take(10).collect::<String>();
    let until = seen.until.map(|until| format!("certificate valid until {}", day(until)));
    let all = [Some(detail.to_owned()), Some(version), until];
    let said: Vec<String> = all.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    said.join(", ")
}

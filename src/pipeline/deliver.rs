//! The deliverers: each takes one assignment, sends one request, hands in its outcome.
//!
//! No transaction is open while a request is under way, and nobody waits for the settlement's COMMIT:
//! the dispatcher learns of it from the writer. An external call is noted before it is made, and that is waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::Sender as ChannelSender;
use ring::digest::{SHA256, digest};

use crate::base::budget::Budget;
use crate::base::faults::{Faults, Step};
use crate::base::headers::{CONFIRM_URL, CUSTOM_DATA};
use crate::formats::filter::{self, Payload};
use crate::formats::{FILE_NAME, SUBJECT, add_headers};
use crate::http::client::{Call, Sender};
use crate::http::trace::Trace;
use crate::keys::ConfirmTokens;
use crate::model::attempt::{Attempt, AttemptOrder, AttemptReport};
use crate::model::delivery::{Jitter, OutgoingOrder, OutgoingRequest, is_custom_data};
use crate::model::event::EventOrder;
use crate::model::external_call::{NewCall, SentTo};
use crate::model::format::Format;
use crate::model::health_probe::ProbeRequest;
use crate::model::json_path::Path;
use crate::model::lane::{self, CallKey, Key};
use crate::model::outcome::{AttemptClass, Cause, Outcome};
use crate::model::subscription::{Subscription, Target};
use crate::pipeline::confirmations;
use crate::pipeline::connectivity::Line;
use crate::pipeline::counts::Counts;
use crate::pipeline::destinations::{Destination, Destinations};
use crate::pipeline::in_flight::InFlight;
use crate::pipeline::prelude::*;
use crate::pipeline::rendering::{Request, made, masked, render};
use crate::pipeline::scheduler::decisions::{Assignment, FIRST_TRY, Input};
use crate::pipeline::scheduler::{Assignments, Mailbox};
use crate::pipeline::suspects::Suspects;
use crate::privacy::policy::ResponseScrub;
use crate::privacy::{NOT_OPENED, Opened, Privacy};
use crate::store::deliveries::Sized;
use crate::store::error::Result as StoreResult;
use crate::store::tx::Settled;
use crate::store::{deliveries, external_calls, renderings, settlement, subscriptions, superseded};
use crate::targets::Targets;
use crate::targets::parcel::{Attachment, Parcel};

/// When a delivery whose subscription cannot be called for a reason of ours is looked at again.
const UNCALLABLE_AGAIN: Duration = Duration::from_secs(30);
/// When a delivery whose row could not be read is looked at again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(5);
/// Time for a test of a subscription at most: other tests wait for it.
const MAX_TEST_TIME: Duration = Duration::from_secs(30);
/// Time for a health probe at most: others wait for its thread.
const MAX_PROBE_TIME: Duration = Duration::from_secs(10);
/// When a large delivery is looked at again while others have the memory.
const CROWDED_AGAIN: Duration = Duration::from_millis(100);
/// When a delivery is looked at again while one is attempted that the process may have died on.
const SUSPECT_AGAIN: Duration = Duration::from_millis(20);
/// When a delivery is looked at again that a person replaces at this moment.
const CLAIMED_AGAIN: Duration = Duration::from_millis(20);
/// Bodies up to this many bytes take nothing of the budget: all deliverers together have a few MiB of them.
const SMALL_REQUEST_BYTES: usize = 64 * 1024;
/// How much memory an outgoing request takes for each byte of its body: as it is stored, and with its seals opened.
const PARCEL_FACTOR: usize = 2;
/// Characters of an external call's key that are kept.
const MAX_KEY_CHARS: usize = 255;
/// The method of an attempt that writes to a topic.
const PRODUCE: &str = "PRODUCE";
/// The method of an attempt that writes a file.
const WRITE: &str = "WRITE";
/// The method of an attempt that runs a statement in a database.
const RUN: &str = "RUN";
/// The method of an attempt that sends a mail.
const MAIL: &str = "MAIL";
/// Why a delivery of a pull subscription is not sent.
const PULLED: &str = "its consumers fetch its events";
/// Why an attempt of a new target ended early.
const CUT_SHORT: &str = "a first try of one second, because many new targets are called; it is not counted, and the next \
                         attempt has all of its time";
/// Why a delivery is given up that was in hand at two unclean ends.
const DIED: &str = "the service ended twice in a row while this was being sent, without being asked to (for want \
                    of memory, perhaps; its log says more), so it is not sent again by itself";

/// What all deliverers share.
#[derive(Clone)]
pub struct Deliver {
    /// Where outgoing requests are read and outcomes handed in.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Randomness for jitter and spans.
    pub draw: Arc<dyn Draw>,
    /// The line to the outside.
    pub sender: Arc<dyn Sender>,
    /// How each subscription is called.
    pub destinations: Arc<Destinations>,
    /// Where the dispatcher is told.
    pub mailbox: Mailbox,
    /// Reports that could not be stored and are handed in again. Holds at most what is in hand.
    pub unsettled: ChannelSender<Arc<AttemptReport>>,
    /// Whether the site has a line to the outside.
    pub line: Arc<Line>,
    /// What is under way.
    pub in_flight: Arc<InFlight>,
    /// What was counted.
    pub counts: Arc<Counts>,
    /// What opens sealed fields.
    pub privacy: Arc<Privacy>,
    /// What sends, by kind of target.
    pub targets: Targets,
    /// What large requests take their memory from.
    pub budget: Budget,
    /// What the process may have died on.
    pub suspects: Arc<Suspects>,
    /// Makes the tokens of confirm URLs.
    pub confirm_tokens: ConfirmTokens,
    /// Planned failures.
    pub faults: Faults,
}

/// A request as an attempt would send it now, without its secrets.
#[derive(Debug)]
pub struct Preview {
    /// Where it goes.
    pub url: String,
    /// Its header fields: name, value, and whether the value or a part of it is hidden.
    pub headers: Vec<(String, String, bool)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Deliver {
    /// The request that a delivery would send. The error says why there is none.
    pub fn preview(&self, mut outgoing: OutgoingRequest) -> Result<Preview, String> {
        let destination = self.destinations.of(outgoing.subscription)?;
        let signed_at = self.clock.for_signatures();
        let request = self.build(&mut outgoing, &destination, signed_at)?;
        let mut headers = request.headers;
        if matches!(request.method, WRITE | MAIL) {
            headers.push(("content-type".to_owned(), outgoing.content_type.clone()));
            let subject = request.rendered.iter().find(|(name, _)| name == SUBJECT);
            headers.extend(subject.map(|(_, value)| ("subject".to_owned(), value.clone())));
        }
        let log_on = destination.access.log_on_field();
        // It takes the place of a field of the event.
        headers.retain(|(name, _)| log_on.is_none_or(|own| !name.eq_ignore_ascii_case(own)));
        headers.extend(log_on.map(|name| (name.to_owned(), String::new())));
        let shown = headers.into_iter().map(|(name, value)| match masked(&name, &value, log_on) {
            Some(masked) => (name, masked, true),
            None => (name, value, false),
        });
        Ok(Preview { url: request.url, headers: shown.collect(), body: outgoing.payload })
    }

    /// Works off assignments until there are no more.
    pub fn run(&self, assignments: &Assignments) {
        while let Some(assignment) = assignments.take() {
            let started = self.clock.monotonic();
            let attempt = if self.in_flight.begin(assignment.delivery, self.clock.wall()) {
                let attempt = self.attempt_once(assignment);
                self.in_flight.end(assignment.delivery);
                attempt
            } else {
                self.reschedule(assignment, CLAIMED_AGAIN, false);
                None
            };
            let mut latency = self.clock.monotonic().saturating_sub(started);
            if attempt.as_ref().is_some_and(|attempt| attempt.is_cut) {
                latency = latency.max(FIRST_TRY);
            }
            let limit = attempt.as_ref().map(|attempt| attempt.limit);
            let class = attempt.map(|attempt| attempt.class);
            let subscription = assignment.subscription;
            let finished = Input::Finished { subscription, latency, limit, class };
            self.mailbox.leave_quietly(|messages| messages.inputs.push(finished));
        }
    }

    /// One attempt, from the row to the settlement that is handed in; `None` if there was none.
    fn attempt_once(&self, assignment: Assignment) -> Option<Attempted> {
        let delivery = assignment.delivery;
        let item = self.suspects.is_on().then(|| format!("delivery/{delivery}"));
        let item = item.as_deref();
        let is_convicted = item.is_some_and(|item| self.suspects.is_convicted(item));
        // All are held until the attempt is over.
        let (share, _marked_large);
        let (_alone, beside_others);
        if item.is_some_and(|item| self.suspects.is_suspect(item)) {
            _alone = self.suspects.alone();
        } else if self.suspects.is_careful() {
            beside_others = self.suspects.beside_others();
            if beside_others.is_none() {
                self.reschedule(assignment, SUSPECT_AGAIN, false);
                return None;
            }
        }
        let marked = item.and_then(|item| self.suspects.mark(item, 0));
        let (small, factor) = self.memory_of(assignment.subscription);
        let mut found = self.read(delivery, small);
        if let Ok(Some(Sized::Larger(bytes))) = found {
            share = self.budget.try_take_own(bytes.saturating_mul(factor));
            if share.is_none() {
                // Others have the memory: this thread goes on with another delivery.
                self.reschedule(assignment, CROWDED_AGAIN, false);
                return None;
            }
            if marked.is_none() {
                _marked_large = item.and_then(|item| self.suspects.mark(item, bytes));
            }
            found = self.read(delivery, usize::MAX);
        }
        match found {
            Ok(Some(Sized::OutgoingRequest(outgoing))) => {
                self.deliver(assignment, *outgoing, is_convicted)
            }
            // Cancelled or put behind others of its lane since it was fetched: the dispatcher looks again.
            Ok(_) => {
                self.let_go(assignment, Some(self.clock.now()));
                None
            }
            Err(error) => {
                tracing::error!(%error, %delivery, "a delivery could not be read");
                self.reschedule(assignment, UNREADABLE_AGAIN, false);
                None
            }
        }
    }

    /// The largest body that takes nothing of the budget, and how much others take for each byte.
    fn memory_of(&self, subscription: SubscriptionSeq) -> (usize, usize) {
        let Ok(destination) = self.destinations.of(subscription) else {
            return (SMALL_REQUEST_BYTES, PARCEL_FACTOR);
        };
        // The thread that writes a file has its own copy.
        let is_copied = matches!(destination.subscription.new.target, Target::Folder(_));
        let usual = (SMALL_REQUEST_BYTES, PARCEL_FACTOR + usize::from(is_copied));
        destination.formats.memory_factor().map_or(usual, |factor| (0, factor))
    }

    /// What an attempt needs, unless its body has more bytes than that: from memory if nothing has touched it, else from its
    /// row.
    fn read(&self, delivery: DeliverySeq, most: usize) -> StoreResult<Option<Sized>> {
        if self.faults.hit(Step::ReadOutgoing) {
            return Err(Error::Busy);
        }
        let fresh = self.store.writer().fresh().take(delivery);
        if let Some(outgoing) = fresh.filter(|outgoing| outgoing.payload.len() <= most) {
            return Ok(Some(Sized::OutgoingRequest(Box::new(outgoing))));
        }
        self.store.read(|tx| deliveries::outgoing_within(tx, delivery, most))
    }

    fn deliver(
        &self,
        assignment: Assignment,
        mut outgoing: OutgoingRequest,
        is_convicted: bool,
    ) -> Option<Attempted> {
        let delivery = outgoing.delivery;
        match self.destinations.of(outgoing.subscription) {
            // Held since it was handed out: the person who held it relies on no further attempt.
            Ok(destination) if destination.subscription.is_held_by_a_person() => {
                self.let_go(assignment, Some(self.clock.now()));
            }
            Ok(destination) if self.is_superseded(assignment, &outgoing, &destination) => {}
            Ok(destination) => {
                let call = external_call(&outgoing, &destination);
                match self.privacy.open_sealed(&mut outgoing) {
                    Ok(opened) => {
                        let why_not = is_convicted.then_some(DIED);
                        let why_not = why_not.or_else(|| (!opened.is_whole).then_some(NOT_OPENED));
                        let request = (&opened, why_not, call.as_ref());
                        return self.attempt(&mut outgoing, &destination, request, assignment);
                    }
                    Err(error) => {
                        tracing::error!(%error, %delivery, "a sealed field cannot be opened");
                        self.reschedule(assignment, UNCALLABLE_AGAIN, false);
                    }
                }
            }
            // The reason is on our side (settings, key, file): the target has refused nothing, so nothing counts.
            Err(reason) => {
                tracing::error!(%delivery, %reason, "the subscription cannot be called; it is tried again");
                self.reschedule(assignment, UNCALLABLE_AGAIN, true);
            }
        }
        None
    }

    fn let_go(&self, assignment: Assignment, next_due: Option<Timestamp>) {
        let Assignment { delivery, subscription, .. } = assignment;
        self.tell(Input::Settled(Settled { delivery, subscription, next_due }));
    }

    fn tell(&self, input: Input) {
        self.mailbox.leave(|messages| messages.inputs.push(input));
    }

    /// Reschedules a delivery in the dispatcher alone: its row stays due.
    fn reschedule(&self, assignment: Assignment, span: Duration, all: bool) {
        let Assignment { delivery, subscription, .. } = assignment;
        let until = self.clock.now().plus(span);
        self.tell(Input::Reschedule { delivery, subscription, until, all });
    }

    /// Whether the delivery is not sent, because a newer one about the same entity waits.
    fn is_superseded(
        &self,
        assignment: Assignment,
        outgoing: &OutgoingRequest,
        destination: &Destination,
    ) -> bool {
        if !is_latest_only(outgoing, destination) {
            return false;
        }
        let (delivery, now) = (outgoing.delivery, self.clock.now());
        let skipped =
            self.store.read(|tx| external_calls::newer(tx, delivery, now)).and_then(|newer| {
                // A read is cheap, and mostly finds nothing.
                newer.map_or(Ok(false), |_| {
                    let skip = move |tx: &WriteTx<'_>| superseded::skip_if_newer(tx, delivery, now);
                    self.store.writer().write(Queue::Settle, skip)
                })
            });
        skipped.unwrap_or_else(|error| {
            tracing::error!(%error, %delivery, "whether a newer delivery waits could not be read");
            self.reschedule(assignment, UNREADABLE_AGAIN, false);
            true
        })
    }

    /// Notes that an external call is about to be made; tells whether it may be.
    fn begins(&self, assignment: Assignment, call: NewCall) -> bool {
        let delivery = call.delivery;
        let now = self.clock.now();
        let at = self.clock.wall();
        let begin = move |tx: &WriteTx<'_>| superseded::begin_call(tx, &call, now, at);
        self.store.writer().write(Queue::Settle, begin).unwrap_or_else(|error| {
            tracing::error!(%error, %delivery, "an external call could not be noted; it is not made yet");
            self.reschedule(assignment, UNREADABLE_AGAIN, false);
            false
        })
    }

    /// Sends a delivery and hands in its outcome; `None` if it must not be sent.
    fn attempt(
        &self,
        outgoing: &mut OutgoingRequest,
        destination: &Destination,
        request: (&Opened, Option<&str>, Option<&NewCall>),
        assignment: Assignment,
    ) -> Option<Attempted> {
        let (opened, _, call) = request;
        let started_at = self.clock.wall();
        let started = self.clock.monotonic();
        let at = (self.clock.for_signatures(), None);
        // A panic on the way is an outcome, not the end of the thread.
        let exchange = || self.exchange(outgoing, destination, request, (assignment, at));
        let exchanged = catch_unwind(AssertUnwindSafe(exchange)).unwrap_or_else(|_panic| {
            tracing::error!(delivery = %outgoing.delivery, "sending panicked; it counts as a failed attempt");
            let reason = "oncebox failed while sending; see its log".to_owned();
            Some((None, Outcome::Unreachable { cause: Cause::Broken, reason }))
        });
        let (request, outcome) = exchanged?;
        let custom_data = custom_data(&outcome, outgoing.delivery, &opened.echo);
        let is_call = call.is_some() && request.is_some();
        // Before it is judged: what is given up tells the reason as well.
        let outcome = outcome.map_reason(|reason| cleaned(&opened.echo, reason));
        let latency = self.clock.monotonic().saturating_sub(started);
        let class = destination.classes.classify(&outcome);
        let target = &destination.subscription.new.target;
        let is_cut = is_short(assignment, destination) && is_cut(latency, &outcome);
        let outcome = if is_cut { outcome.map_reason(cut_short) } else { outcome };
        let of = &destination.subscription;
        let is_inconclusive = self.says_nothing(of, started, is_cut, &outcome);
        let kept = request
            .map(|it| it.kept(&outcome, destination, opened.stored.is_some()))
            .unwrap_or_default();
        let code = if class.is_success() { String::new() } else { outcome.code() };
        let (retry_after, is_away) = (outcome.retry_after(), outcome.is_away());
        let attempt = Attempt {
            n: outgoing.attempt_count.saturating_add(1),
            started_at,
            finished_at: self.clock.wall(),
            url: if kept.url.is_empty() { target.unfilled_url() } else { kept.url },
            class,
            counted: false,
            http_status: outcome.status(),
            latency_ms: u32::try_from(latency.as_millis()).unwrap_or(u32::MAX),
            failed_reason: outcome.failed_reason(class),
            excerpt: excerpt_of(outcome),
            ..kept
        };
        let report = AttemptReport {
            delivery: outgoing.delivery,
            subscription: outgoing.subscription,
            run_no: outgoing.run_no,
            accepted_at: outgoing.accepted_at,
            attempt,
            code,
            retry_after,
            rules: destination.rules.of_event(outgoing.max_attempts),
            jitter: Jitter::new(&*self.draw),
            is_probe: assignment.is_probe,
            is_inconclusive: is_inconclusive.unwrap_or(false),
            is_away,
            order: AttemptOrder {
                is_latest_only: is_latest_only(outgoing, destination),
                is_call,
                custom_data,
                can_wait: class.is_success() && !destination.subscription.new.sends_one_by_one(),
            },
            now: self.clock.now(),
        };
        if is_inconclusive.is_some() {
            self.settle(Arc::new(report));
        } else {
            let deliver = self.clone();
            let settle = move |is_inconclusive| {
                deliver.settle(Arc::new(AttemptReport { is_inconclusive, ..report }));
            };
            self.line.doubt(started, Box::new(settle));
        }
        Some(Attempted { limit: destination.timeout, class, is_cut })
    }

    /// Whether an attempt that began at a time (monotonic) says nothing about the target: it was cut short, nothing was tried,
    /// or the site is offline; `None`: the line has to be asked.
    fn says_nothing(
        &self,
        of: &Subscription,
        at: Duration,
        is_cut: bool,
        outcome: &Outcome,
    ) -> Option<bool> {
        if is_cut || outcome.is_postponed() {
            return Some(true);
        }
        self.is_offline(of, at, outcome)
    }

    /// Whether a request that began at a time (monotonic) failed because the site is offline; `None`: the line has to be
    /// asked.
    pub fn is_offline(&self, of: &Subscription, at: Duration, outcome: &Outcome) -> Option<bool> {
        if self.needs_line(of) { self.line.note(at, outcome) } else { Some(false) }
    }

    /// Whether a subscription that was just called needs the line to the outside. Where its host is, is stored when it has
    /// changed: a site that is offline goes on calling hosts on its own network.
    fn needs_line(&self, called: &Subscription) -> bool {
        let Target::Http(url) = &called.new.target else { return false };
        if !called.new.target.needs_network() {
            return false;
        }
        let known = called.site_host.as_deref() == Some(url.host());
        let is_on_site = self.sender.is_on_site(url.host()).unwrap_or(known);
        if is_on_site != known && url.literal_ip().is_none() {
            let (seq, host) = (called.seq, is_on_site.then(|| url.host().to_owned()));
            let note =
                move |tx: &WriteTx<'_>| subscriptions::set_site_host(tx, seq, host.as_deref());
            self.store.writer().submit(Queue::Upkeep, note, |stored| {
                if let Err(error) = stored {
                    tracing::warn!(%error, "where a host is could not be stored; it is tried again");
                }
            });
        }
        !is_on_site
    }

    /// Builds and sends the request, and notes before that an external call is made; `None` if it must not be sent. The
    /// request is there if it was sent.
    fn exchange(
        &self,
        outgoing: &mut OutgoingRequest,
        destination: &Destination,
        (opened, why_not, call): (&Opened, Option<&str>, Option<&NewCall>),
        (assignment, at): (Assignment, (Timestamp, Option<&Trace>)),
    ) -> Option<(Option<Request>, Outcome)> {
        if let Some(why) = why_not {
            return Some((None, Outcome::Unbuildable { reason: why.to_owned() }));
        }
        // An envelope names the event and its time, so two with the same state differ.
        let has_envelope = destination.subscription.new.format != Format::Raw;
        let own = call.filter(|_| has_envelope).map(|_| sha256(&outgoing.payload));
        let is_new = outgoing.rendering.is_none();
        let mut request = match self.build(outgoing, destination, at.0) {
            Ok(request) => request,
            Err(reason) => return Some((None, Outcome::Unbuildable { reason })),
        };
        if is_short(assignment, destination) {
            request.timeout = FIRST_TRY;
        }
        let (of, stored) = ((&*outgoing, destination), opened.stored.as_deref());
        if is_new && !self.is_fixed(&request, of, stored, assignment) {
            return None;
        }
        if let Some(call) = call {
            let body_hash = own.unwrap_or(request.body_sha256).to_vec();
            let sent = SentTo { method: request.method.to_owned(), url: request.url.clone() };
            if !self.begins(assignment, NewCall { body_hash, sent, ..call.clone() }) {
                return None;
            }
        }
        let outcome = self.send(&request, outgoing, destination, (&opened.echo, at));
        Some((Some(request), outcome))
    }

    /// Fixes what is sent, where it is not the payload as it is; tells whether it may be sent.
    fn is_fixed(
        &self,
        request: &Request,
        of: (&OutgoingRequest, &Destination),
        stored: Option<&[u8]>,
        assignment: Assignment,
    ) -> bool {
        if of.1.formats.is_plain() {
            return true;
        }
        let (delivery, run_no) = (of.0.delivery, of.0.run_no);
        let made = made(&self.privacy, of.0, of.1, &request.rendered, stored);
        let fixed = made.and_then(|made| {
            let fix = move |tx: &WriteTx<'_>| renderings::fix(tx, delivery, run_no, &made);
            self.store.writer().write(Queue::Settle, fix)
        });
        match fixed {
            Ok(true) => return true,
            Ok(false) => self.let_go(assignment, Some(self.clock.now())),
            Err(error) => {
                tracing::error!(%error, %delivery, "what is sent could not be stored; it is not sent yet");
                self.reschedule(assignment, UNREADABLE_AGAIN, false);
            }
        }
        false
    }

    /// One request as a delivery of it would send it, on a connection of its own; no delivery is touched. Returns its
    /// URL and its outcome.
    pub fn try_out(
        &self,
        outgoing: &mut OutgoingRequest,
        destination: &Destination,
        trace: &Trace,
    ) -> StoreResult<(String, Outcome)> {
        let opened = self.privacy.open_sealed(outgoing)?;
        if !opened.is_whole {
            return Ok((String::new(), Outcome::Unbuildable { reason: NOT_OPENED.to_owned() }));
        }
        let now = (self.clock.for_signatures(), Some(trace));
        let (url, outcome) = match self.build(outgoing, destination, now.0) {
            Ok(mut request) => {
                request.timeout = request.timeout.min(MAX_TEST_TIME);
                let outcome = self.send(&request, outgoing, destination, (&opened.echo, now));
                (request.url, outcome)
            }
            Err(reason) => (String::new(), Outcome::Unbuildable { reason }),
        };
        Ok((url, outcome.map_reason(|reason| cleaned(&opened.echo, reason))))
    }

    /// Probes a target with a ping or, in place of it, with a request of its own; no delivery is touched.
    pub fn probe(&self, mut ping: OutgoingRequest, to: &Destination, own: ProbeRequest) -> Outcome {
        let at = self.clock.for_signatures();
        let built = own.is_none().then(|| self.build(&mut ping, to, at)).transpose();
        let mut request = match built {
            Ok(built) => built.unwrap_or_default(),
            Err(reason) => return Outcome::Unbuildable { reason },
        };
        if let Some((method, url)) = own {
            ping.payload.clear();
            (request.method, request.url) = (method.as_str(), url.to_string());
            request.headers = to.subscription.new.headers.clone().into_iter().collect();
        }
        request.timeout = to.timeout.min(MAX_PROBE_TIME);
        self.send(&request, &ping, to, (&ResponseScrub::default(), (at, None)))
    }

    fn send(
        &self,
        request: &Request,
        outgoing: &OutgoingRequest,
        destination: &Destination,
        (echo, (at, trace)): (&ResponseScrub, (Timestamp, Option<&Trace>)),
    ) -> Outcome {
        let subscription = &destination.subscription;
        let Some(target) = self.targets.of(&subscription.new.target) else {
            return Outcome::Unbuildable { reason: PULLED.to_owned() };
        };
        let call = Call {
            method: request.method,
            url: &request.url,
            headers: &request.headers,
            body: &outgoing.payload,
            timeout: request.timeout,
            identity: None,
            tenant: Some(&outgoing.tenant),
            is_once: subscription.new.order.external_calls.is_some(),
        };
        if self.faults.hit(Step::BeforeSend) {
            let reason = "planned: the line is down".to_owned();
            return Outcome::Unreachable { cause: Cause::NoConnection, reason };
        }
        let access = &destination.access;
        let rendered = request.rendered.as_slice();
        let attachment = request.attachment.as_ref();
        let parcel =
            Parcel { subscription, outgoing, rendered, attachment, call, access, echo, at, trace };
        let outcome = match trace {
            Some(trace) if !trace.sends() => target.look(&parcel),
            _ => target.send(&parcel),
        };
        if self.faults.hit(Step::AfterSend) {
            let reason = "planned: the answer is lost".to_owned();
            return Outcome::Unreachable { cause: Cause::Broken, reason };
        }
        assert!(!self.faults.hit(Step::Panic), "planned");
        outcome
    }

    /// Makes the request. The error says why it cannot be made.
    fn build(
        &self,
        outgoing: &mut OutgoingRequest,
        destination: &Destination,
        at: Timestamp,
    ) -> Result<Request, String> {
        let new = &destination.subscription.new;
        let value = |name: &str| match name {
            "id" => Some(outgoing.event_id.as_str()),
            "event_type" => Some(outgoing.event_type.as_str()),
            "aggregate_type" => outgoing.aggregate_type.as_deref(),
            "aggregate_id" => outgoing.aggregate_id.as_deref(),
            "idempotency_key" => Some(outgoing.idempotency_key.as_str()),
            _ => None,
        };
        let (mut method, timeout) = (new.method.as_str(), destination.timeout);
        let url = match &new.target {
            Target::Http(url) => url.fill(value).map_err(|error| error.to_string())?,
            Target::Kafka(topic) => {
                let value = |name: &str| match name {
                    "tenant" => Some(outgoing.tenant.as_str()),
                    other => value(other),
                };
                method = PRODUCE;
                format!("kafka://{}/{}", topic.cluster(), topic.fill(value)?)
            }
            Target::Folder(_) => {
                method = WRITE;
                String::new()
            }
            Target::Database(database) => {
                method = RUN;
                database.url().to_owned()
            }
            Target::Email(url) if !new.is_of_alerts() => {
                method = MAIL;
                url.clone()
            }
            Target::Email(url) | Target::Command(url) => {
                return Ok(Request { url: url.clone(), timeout, ..Request::default() });
            }
            Target::Pull => return Err(PULLED.to_owned()),
        };
        let mut span = [0_u8; 8];
        self.draw.fill_open(&mut span);
        let span = data_encoding::HEXLOWER.encode(&span);
        let attachment = destination.formats.attaches().then(|| Attachment {
            content_type: outgoing.content_type.clone(),
            content: outgoing.payload.clone(),
        });
        let rendered = render(&self.privacy, outgoing, destination)?;
        let body_sha256 = sha256(&outgoing.payload);
        if matches!(method, WRITE | RUN | MAIL) {
            let mut request =
                Request { method, timeout, url, rendered, body_sha256, span, ..Request::default() };
            let name = request.rendered.iter().find(|(field, _)| field == FILE_NAME);
            if let (WRITE, Some((_, name))) = (method, name) {
                request.url = format!("{}/{name}", new.target.url());
            }
            request.attachment = attachment;
            return Ok(request);
        }
        let mut headers = destination.headers(outgoing, at, &span);
        // A record without an envelope is a CloudEvent all the same.
        if matches!((&new.target, new.format), (Target::Kafka(_), Format::Raw)) {
            add_headers(&mut headers, destination.formats.attributes(outgoing));
        }
        add_headers(&mut headers, rendered.iter().cloned());
        let key_id = destination.access.key_id().to_owned();
        let confirm_url = confirmations::url(&self.confirm_tokens, destination, outgoing);
        headers.extend(confirm_url.map(|url| (CONFIRM_URL.to_owned(), url)));
        let type_field = outgoing.type_field.clone();
        let request = Request { method, timeout, type_field, ..Request::default() };
        Ok(Request { url, headers, rendered, body_sha256, key_id, span, ..request })
    }

    /// Hands in an outcome. What the disk refuses for now is handed in again by upkeep; until then the
    /// delivery stays in hand and is not sent again.
    pub fn settle(&self, report: Arc<AttemptReport>) {
        let again = Arc::clone(&report);
        let unsettled = self.unsettled.clone();
        let counts = Arc::clone(&self.counts);
        let queue = if report.order.can_wait { Queue::Later } else { Queue::Settle };
        self.store.writer().submit(
            queue,
            move |tx| settlement::settle(tx, &report),
            move |outcome| {
                let error = match outcome {
                    Ok(settled) => return settled.iter().for_each(|settled| counts.settled(settled)),
                    Err(error) => error,
                };
                let delivery = again.delivery;
                if error.is_lasting() {
                    // Handing it in again would fail again. It stays in hand: the next start sends it.
                    tracing::error!(%error, %delivery, "an outcome cannot be stored");
                    return;
                }
                tracing::error!(%error, %delivery, "an outcome could not be stored; it is kept and tried again");
                drop(unsettled.send(again));
            },
        );
    }
}

/// An attempt that has ended, as the dispatcher is told of it.
#[derive(Clone, Copy, Debug)]
struct Attempted {
    /// The subscription's time limit.
    limit: Duration,
    class: AttemptClass,
    /// Whether it was a first try that was cut short.
    is_cut: bool,
}

/// Whether an attempt has less time than its subscription gives it.
fn is_short(assignment: Assignment, destination: &Destination) -> bool {
    assignment.is_short && destination.timeout > FIRST_TRY
}

/// Why an attempt failed that was cut short.
fn cut_short(reason: String) -> String {
    format!("{reason} ({CUT_SHORT})")
}

/// Whether a short attempt ended because of its time limit.
fn is_cut(latency: Duration, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Unreachable { cause: Cause::Timeout, .. } => true,
        Outcome::Unreachable { .. } | Outcome::NoToken { .. } => latency >= FIRST_TRY,
        _ => false,
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn is_latest_only(outgoing: &OutgoingRequest, destination: &Destination) -> bool {
    destination.subscription.new.order.latest_only && outgoing.order.entity.is_some()
}

/// The external call that the request is, where the subscription protects them. The key is read of what is stored: what
/// is sealed in it stays sealed.
fn external_call(outgoing: &OutgoingRequest, destination: &Destination) -> Option<NewCall> {
    let Destination { subscription, .. } = destination;
    let kind = subscription.new.order.external_calls?;
    let OutgoingOrder { entity, entity_type, .. } = &outgoing.order;
    let order = EventOrder { entity_type: entity_type.clone(), ..EventOrder::default() };
    let key = Key {
        aggregate: (None, outgoing.aggregate_id.as_deref()),
        order: Some(&order),
        ..Key::default()
    };
    let at_path = |path: &str| {
        let body = outgoing.body().json_view();
        // What cannot be read was a dead letter when it came; a person has sent it all the same.
        filter::first_text(&Path::parse(path).ok()?, &Payload::read(&body)).ok()?
    };
    let (entity, entity_key) = if kind == CallKey::Event {
        (outgoing.delivery.0, outgoing.event_id.clone())
    } else {
        let found = lane::entity(subscription.scope(), (&outgoing.event_type, key), at_path);
        let key = found.map(|entity| entity.key).unwrap_or_default();
        // It is the number by which the dispatcher sends one after another.
        ((*entity)?, key.chars().take(MAX_KEY_CHARS).collect())
    };
    Some(NewCall {
        delivery: outgoing.delivery,
        subscription: outgoing.subscription,
        run_no: outgoing.run_no,
        kind,
        entity,
        entity_key,
        body_hash: Vec::new(),
        sent: SentTo::default(),
    })
}

/// What an answer says to send back, if it can be stored and sent.
fn custom_data(outcome: &Outcome, delivery: DeliverySeq, echo: &ResponseScrub) -> Option<String> {
    let Outcome::Answered { custom_data: Some(data), .. } = outcome else { return None };
    let is_clean = echo.is_idle() || echo.clean(data.clone()) == *data;
    if is_clean && is_custom_data(data) {
        return Some(data.clone());
    }
    tracing::warn!(
        %delivery,
        "the answer's {CUSTOM_DATA} is ignored: it may have 1,024 printable ASCII characters, and no personal data"
    );
    None
}

/// Why an attempt failed is always told.
fn cleaned(echo: &ResponseScrub, reason: String) -> String {
    if echo.is_idle() { reason } else { echo.clean_reason(reason) }
}

fn excerpt_of(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Answered { excerpt, .. } | Outcome::Accepted { excerpt }
            if !excerpt.is_empty() =>
        {
            Some(excerpt)
        }
        _ => None,
    }
}

//! `POST /v1/subscriptions/{id}/test`: one request to a subscription, with what each step came to.
//! `GET /v1/subscription-tests/{id}`: the steps so far of a test in the background.

use serde_json::json;

use crate::api::audited::carry_out;
use crate::api::background_probes::BackgroundTest;
use crate::api::call::answer;
use crate::api::claimed::{self, Wanted};
use crate::api::idempotency::ChangeKey;
use crate::api::prelude::*;
use crate::api::subscriptions;
use crate::base::id;
use crate::http::trace::{Step, StepName, Trace};
use crate::model::delivery::OutgoingRequest;
use crate::model::effect::{AskedBy, EffectKind};
use crate::model::hold::HoldReason;
use crate::model::outcome::{AttemptClass, Outcome};
use crate::model::subscription::{Subscription, Target};
use crate::pipeline::claims::Claim;
use crate::pipeline::probe::{FULL, Report, Turn};
use crate::store::claimed_effects::{self, NewEffect};
use crate::store::writer::Queue;
use crate::store::{deliveries, settlement};

/// The status of the answer to a request for a test in the background.
const BEGUN: u16 = 202;
/// Why a test is refused while the same one is claimed.
const BUSY: &str = "The same test is under way at this moment.";
/// How much memory a test takes for each byte of the body: as it is stored, and with its seals opened.
const BODY_FACTOR: usize = 2;

const ID: Param =
    Param::path::<Uuid>("id", "The test's id.", "019c1447-5800-7000-8000-000000000002");

/// Tests of subscriptions.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Subscription tests",
    about: "One request goes the way of a delivery, and each step is shown. No delivery is made.",
    routes: &[
        post("/v1/subscriptions/{id}/test", Operate, ActLater("subscription.test", test))
            .doc("testSubscription", "Test a subscription", &[subscriptions::ID])
            .about(
                "Sends an `oncebox.ping`, or a past event as a delivery would, whatever holds the subscription. The \
                 test has a connection of its own. The receiver may carry out a past event: it has its `webhook-id`. \
                 In a `folder` no file stays; a `database` rolls back. When the test succeeds, the hold `auth` ends. It takes 30 s at most. Tests and rotations of a tenant run \
                 one at a time; twelve wait.",
            )
            .returns(&[
                Returns::json::<TestAnswer>(200, "What came of it; `ok` says whether it worked."),
                Returns::json::<TestBegun>(202, "It runs in the background."),
            ])
            .optional_body::<TestRequest>(r#"{"event_id":"019c1447-5800-7000-8000-000000000001"}"#),
        get("/v1/subscription-tests/{id}", Read, Now(progress))
            .doc("getSubscriptionTest", "Show a test in the background", &[ID])
            .about("Its steps so far, and what came of it. The last 100 tests are kept in memory.")
            .returns(&[Returns::json::<TestProgress>(200, "The test as it is now.")]),
    ],
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TestRequest {
    /// A past event or webhook event to send instead of a ping.
    event_id: Option<Is<Uuid>>,
    /// Whether a ping is sent where no event is. By default it is, but not to a `kafka` target, whose cluster is
    /// looked at instead. To a `folder` nothing is ever sent: a file is written under a temporary name and removed. A `database` rolls back.
    ping: Option<bool>,
    /// Answer at once with 202 and the test's id; its steps are asked for while it runs.
    #[serde(default)]
    background: bool,
}

/// A test that runs in the background.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SubscriptionTestBegun")]
struct TestBegun<'a> {
    id: Is<Uuid, &'a str>,
}

/// A test in the background.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SubscriptionTestProgress")]
struct TestProgress<'a> {
    id: Is<Uuid, &'a str>,
    /// The subscription's name.
    subscription: Is<NameText, &'a str>,
    is_running: bool,
    /// The steps that were done while it runs; afterwards, `result` has them.
    steps: Vec<StepAnswer>,
    /// The step that is being done; null while it waits for its turn.
    step: Option<StepName>,
    /// What came of it.
    result: Option<Is<TestAnswer, &'a Value>>,
    /// Why it was not carried out.
    problem: Option<&'a str>,
}

/// What a test came to.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SubscriptionTest")]
struct TestAnswer {
    /// Whether the target took it.
    ok: bool,
    /// The subscription's name.
    subscription: String,
    event_id: Is<Uuid>,
    event_type: String,
    webhook_id: String,
    /// Where it was sent; empty if that could not be worked out.
    url: String,
    /// What was done, in order. The last one failed, if one did.
    steps: Vec<StepAnswer>,
    /// The status that was answered.
    status: Option<u16>,
    /// The beginning of the answer, without personal data that was sent.
    excerpt: Option<String>,
    /// The class that the attempt of a delivery would have.
    class: AttemptClass,
    /// Why it failed.
    reason: Option<String>,
    /// What to change.
    advice: Option<&'static str>,
    /// Holds that ended, because it worked.
    ended_holds: Vec<HoldReason>,
}

/// A step of a test.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SubscriptionTestStep")]
struct StepAnswer {
    step: StepName,
    ok: bool,
    /// How long it took.
    took_ms: f64,
    /// What came of it; may be empty.
    detail: String,
}

impl StepAnswer {
    fn of((step, failed): &(Step, bool)) -> Self {
        let took_ms = (step.took.as_secs_f64() * 1e6).round() / 1e3;
        Self { step: step.name, ok: !failed, took_ms, detail: step.detail.clone() }
    }
}

/// `POST /v1/subscriptions/{id}/test`
fn test(api: &Api, mut call: Call, reply: Reply) {
    let (subscription, outgoing, how) = match prepared(api, &call) {
        Ok(prepared) => prepared,
        Err(problem) => return reply.send(api.acted(&call, Err(problem))),
    };
    let own = api.clone();
    let tenant = call.tenant.clone();
    let id = id::uuid7(api.env.clock.wall(), &*api.env.draw);
    let mut claim = None;
    let reply = if how.is_background {
        claim = match claim_background(api, &call, &subscription, &id) {
            Ok(claim) => claim,
            Err(problem) => return reply.send(api.acted(&call, Err(problem))),
        };
        api.tests.add(&id, &tenant, &subscription);
        reply.send(answer(BEGUN, &TestBegun { id: id.as_str().into() }));
        // The answer that was sent is kept with the claim; the result is another one.
        call.key = None;
        None
    } else {
        Some(reply)
    };
    let job = move |turn: Turn| {
        let trace = Trace::new(own.env.clock.clone()).sending(how.sends);
        own.tests.begin(&id, &trace);
        let done = match turn {
            Turn::Now => run(&own, &call, &subscription, outgoing, &trace, claim),
            Turn::Full => {
                if let Some(claim) = claim {
                    claimed::end(&own, claim);
                }
                Err(Problem::unavailable(FULL, 5))
            }
        };
        let answer = own.acted(&call, done);
        match reply {
            Some(reply) => reply.send(answer),
            None => own.tests.end(&id, &answer),
        }
    };
    api.flow.tests.submit(&tenant, Box::new(job));
}

/// `GET /v1/subscription-tests/{id}`
fn progress(api: &Api, call: &Call) -> Result<Response, Problem> {
    let shown = api.tests.show(call.param(0), &call.tenant, |test| {
        let BackgroundTest { id, subscription, url, trace, answer, .. } = test;
        let trace = trace.as_ref().filter(|_| answer.is_none());
        let steps = trace.map(Trace::steps).unwrap_or_default();
        let (result, problem) = match answer {
            None => (None, None),
            Some(Ok(result)) => (Some(result), None),
            Some(Err(problem)) => (None, Some(problem.as_str())),
        };
        ok(&TestProgress {
            id: id.as_str().into(),
            subscription: subscription.as_str().into(),
            is_running: answer.is_none(),
            steps: steps.into_iter().map(|step| StepAnswer::of(&(step, false))).collect(),
            step: trace.map(|trace| trace.unfinished(url).0),
            result: result.map(Into::into),
            problem,
        })
    });
    shown.or_not_found("subscription test")
}

/// How a test runs.
struct How {
    /// Whether nobody waits for it.
    is_background: bool,
    /// Whether something is sent.
    sends: bool,
}

/// What is sent, and how.
fn prepared(api: &Api, call: &Call) -> Result<(Subscription, OutgoingRequest, How), Problem> {
    let TestRequest { event_id, ping, background } = call.optional_json()?;
    let subscription = subscriptions::find(api, call)?;
    if subscription.new.is_of_alerts() {
        let detail = "It belongs to an alert channel: test that one.";
        return Err(Problem::unprocessable(detail));
    }
    if subscription.new.target == Target::Pull {
        return Err(Problem::conflict(
            "Nothing is sent to this subscription: consumers ask for its events. Try it with `oncebox consume`.",
        ));
    }
    // A file that stays would be read by others, and so would a row.
    let leaves_nothing = matches!(subscription.new.target, Target::Folder(_) | Target::Database(_));
    let can_look = leaves_nothing || matches!(subscription.new.target, Target::Kafka(_));
    let sends = !leaves_nothing && (event_id.is_some() || ping.unwrap_or(!can_look));
    if !sends && !can_look {
        let detail = "ping is false, and an HTTP target is tried by sending: leave ping out.";
        return Err(Problem::unprocessable(detail));
    }
    let how = How { is_background: background, sends };
    let Some(event_id) = event_id else {
        let ping = api.flow.tests.ping(&subscription);
        return Ok((subscription, ping, how));
    };
    let event = (call.tenant.as_str(), &*event_id);
    let found =
        api.env.store.read(|tx| deliveries::outgoing_of_event(tx, subscription.seq, event))?;
    let outgoing = found.or_not_found("event or webhook event")?;
    Ok((subscription, outgoing, how))
}

fn run(
    api: &Api,
    call: &Call,
    subscription: &Subscription,
    outgoing: OutgoingRequest,
    trace: &Trace,
    claim: Option<Claim>,
) -> Result<Audited<Value>, Problem> {
    let _share = match api.share(outgoing.payload.len().saturating_mul(BODY_FACTOR)) {
        Ok(share) => share,
        Err(problem) => {
            if let Some(claim) = claim {
                claimed::end(api, claim);
            }
            return Err(problem);
        }
    };
    let claim = match claim {
        Some(claim) => Some(claim),
        None => claim_test(api, call, subscription)?,
    };
    let event_id = outgoing.event_id.clone();
    let event_type = outgoing.event_type.clone();
    let webhook_id = outgoing.webhook_id.clone();
    let report = match api.flow.tests.run(outgoing, trace) {
        Ok(report) => report,
        Err(error) => {
            if let Some(claim) = claim {
                claimed::end(api, claim);
            }
            return Err(error.into());
        }
    };
    let Report { url, steps, outcome, class, advice } = report;
    let ok = class.is_success();
    let reason = outcome.failed_reason(class);
    let mut answer = TestAnswer {
        ok,
        subscription: subscription.new.name.to_string(),
        event_id: event_id.into(),
        event_type,
        webhook_id,
        url,
        steps: steps.iter().map(StepAnswer::of).collect(),
        status: outcome.status(),
        excerpt: match outcome {
            Outcome::Answered { excerpt, .. } | Outcome::Accepted { excerpt }
                if !excerpt.is_empty() =>
            {
                Some(excerpt)
            }
            _ => None,
        },
        class,
        reason,
        advice,
        ended_holds: Vec::new(),
    };
    let seq = subscription.seq;
    let id = subscription.new.id.clone();
    let now = api.env.clock.wall();
    let effect = claim.as_ref().map(|claim| claim.effect.clone());
    let done = carry_out(api, call, effect, move |tx| {
        let has_ended = ok && settlement::end_auth_hold(tx, seq, now)?;
        answer.ended_holds = has_ended.then_some(HoldReason::Auth).into_iter().collect();
        let tested = Change::changed("subscription", &id, &(), &())
            .and("event_id", &*answer.event_id)
            .and("class", class.as_str());
        Ok((tested.answer(&answer), ()))
    })?;
    Ok(done.map(|(body, ())| body))
}

/// Claims a test with an `Idempotency-Key`, so that a repeated request sends nothing. Without one nothing is refused
/// after the request was sent.
fn claim_test(api: &Api, call: &Call, of: &Subscription) -> Result<Option<Claim>, Problem> {
    let Some(key) = &call.key else { return Ok(None) };
    // Tests of one subscription under different keys may run at once.
    let subject = format!("{} {}", of.new.id, key.key);
    let reserved = claimed::reserve(api, EffectKind::SubscriptionTest, &subject, BUSY)?;
    let wanted = Wanted { reserved, terms: json!({}), busy: BUSY };
    claimed::claim(api, call, wanted, |_tx| Ok(())).map(Some)
}

/// Claims a test in the background with an `Idempotency-Key`, and keeps its answer: a repeated request gets the id of the
/// same test. Without a key nothing is claimed.
fn claim_background(
    api: &Api,
    call: &Call,
    of: &Subscription,
    test_id: &str,
) -> Result<Option<Claim>, Problem> {
    let Some(key) = ChangeKey::new(api, call) else { return Ok(None) };
    let subject = format!("{} {test_id}", of.new.id);
    let reserved = claimed::reserve(api, EffectKind::SubscriptionTest, &subject, BUSY)?;
    let new = NewEffect {
        kind: EffectKind::SubscriptionTest,
        subject,
        tenant: call.tenant.clone(),
        terms: json!({}),
        asked_by: AskedBy::of(&call.event(api.env.clock.wall())),
        // The answer is kept now, so the end of the effect keeps none.
        key: None,
        claimed_at: api.env.clock.now(),
    };
    let begun = value(TestBegun { id: test_id.into() }).to_string();
    let claimed = api.env.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        if let Err(problem) = key.check(tx)? {
            return Ok(Err(problem));
        }
        // A refusal leaves no answer for the key.
        let Some(claimed) = claimed_effects::claim(tx, &new)? else {
            return Ok(Err(Problem::conflict(BUSY)));
        };
        key.keep(tx, BEGUN, begun.as_bytes())?;
        Ok(Ok(claimed))
    })?;
    claimed.map(|effect| Some(Claim::of(effect, reserved)))
}

//! The sample at the end of a setup: a signed webhook as the provider would post it, or a ping to the target.

use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::stop::Stop;
use crate::cli::prelude::*;
use crate::cli::probe;
use crate::cli::setup::Report;
use crate::cli::trigger::{Sent, Trigger};

/// How often a delivery is looked at, and how long.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(45);

/// Posts a webhook, and follows it to the target of the subscription `to`, if there is one.
pub(super) fn webhook(
    remote: &Remote,
    trigger: Trigger,
    global: &GlobalArgs,
    to: Option<&str>,
    report: &mut Report,
) -> Result<(), Failure> {
    let signed = match trigger.signed(global) {
        Ok(signed) => signed,
        // Some schemes sign with a key that only the provider has.
        Err(why) if why.code == exit::BAD_INPUT => {
            report.say(format_args!("Sample: none, {}", why.message))?;
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    let Sent { url, event_type, stored, is_batch, .. } = trigger.post(signed)?;
    report.say(format_args!("Sample: {event_type} to {url}"))?;
    report.say(format_args!("  stored as {stored}"))?;
    report.part("sample", json!({ "url": url, "event_type": event_type, "stored": stored }));
    // A batch has an id of its own, which no delivery has.
    let Some(to) = to.filter(|_| !is_batch) else { return Ok(()) };
    let attempt = first_attempt(remote, &stored, to)?;
    let took = text(&attempt, "latency_ms");
    let status = text(&attempt, "http_status");
    let class = text(&attempt, "class");
    let reason = text(&attempt, "failed_reason");
    report.part("attempt", attempt);
    if class == "success" {
        return report.say(format_args!("  arrived: the target answered {status} after {took} ms"));
    }
    let why = format!("the sample did not arrive: {class}: {reason}");
    Err(Failure::failed(why).and(format_args!(
        "It is tried again by itself. More: oncebox webhook show {stored}, oncebox subscription test {to}"
    )))
}

/// Sends a ping to a subscription, and prints each step.
pub(super) fn ping(remote: &Remote, name: &str, report: &mut Report) -> Result<(), Failure> {
    let path = format!("/v1/subscriptions/{}/test", percent_encoded(name));
    if !report.json {
        return probe::run(remote, &path, None);
    }
    let tested = remote.post(&path, None)?;
    let ok = tested.get("ok") == Some(&Value::Bool(true));
    report.part("sample", tested);
    if ok { Ok(()) } else { Err(Failure::failed("the ping did not arrive")) }
}

/// The first attempt to send an event to a subscription, once there is one.
fn first_attempt(remote: &Remote, event: &str, to: &str) -> Result<Value, Failure> {
    let clock = Clock::machine();
    let end = clock.monotonic().saturating_add(PATIENCE);
    let query = [("event_id", event.to_owned()), ("subscription", to.to_owned())];
    loop {
        let found = remote.get(&with_query("/v1/deliveries", &query))?;
        if let Some(delivery) = list(&found, "items").first() {
            let id = text(delivery, "id");
            let path = format!("/v1/deliveries/{}/attempts", percent_encoded(&id));
            let attempts = remote.get(&path)?;
            if let Some(attempt) = list(&attempts, "items").first() {
                return Ok(attempt.clone());
            }
        }
        if clock.monotonic() >= end {
            let why = format!("the sample {event} was not sent within {} s", PATIENCE.as_secs());
            return Err(
                Failure::failed(why).and(format_args!("More: oncebox webhook show {event}"))
            );
        }
        Stop::new().wait(LOOK_EVERY);
    }
}

//! Completes every answer before it is sent: a problem gets the request's id, and the log gets a line; and counts answers.
//!
//! Changes and refusals are logged at `info`, everything else at `debug`: a busy box would otherwise write more log
//! than data. Anybody can cause refusals, so the number at `info` is limited for each client. The log has a request's
//! method, path and address, but never its query, header fields or body.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use crate::http::message::{Asked, Method, Response};
use crate::model::throttle::{self, Limit, Throttle, ThrottleVerdict};
use crate::pipeline::confirmations::CONFIRM_PATH;
use crate::telemetry::tally::{self, Counter, Histogram};

/// Paths whose successful requests are ordinary traffic, not changes by a person.
const TRAFFIC: [&str; 4] = ["/in/", CONFIRM_PATH, "/v1/events", "/v1/processed-events"];

/// How many refusals of one client are logged at `info`.
const REFUSALS_LOGGED: Limit = Limit { max: 60, span: Duration::from_mins(1), max_keys: 4096 };

/// The classes of status codes.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Counts refusals by client, to limit how many are logged.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<Throttle<IpAddr>>);

impl Refusals {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Throttle::new(REFUSALS_LOGGED)))
    }

    fn count(&self, client: IpAddr, now: Duration) -> ThrottleVerdict {
        let mut counts = self.0.lock();
        counts.count(throttle::client(client), now)
    }
}

/// Adds the request's id to a problem, and logs the answer.
pub(super) fn finish(
    asked: &Asked,
    took: Duration,
    refusals: &Refusals,
    now: Duration,
    mut response: Response,
) -> Response {
    add_request_id(&mut response, &asked.request_id);
    forbid_storing(asked, &mut response);
    log(asked, took, refusals, now, &response);
    response
}

/// Tells browsers and proxies not to store answers to `GET`, but for those with a `Cache-Control` of their own. Answers to other
/// methods are not stored by them anyway (RFC 9111, section 3).
fn forbid_storing(asked: &Asked, response: &mut Response) {
    let is_read = matches!(asked.target, Some((Method::Get | Method::Head, _)));
    if is_read && response.headers.iter().all(|(name, _)| *name != "cache-control") {
        response.headers.push(("cache-control", "no-store".to_owned()));
    }
}

/// Adds the request's id to a problem, so that a report can name it. The body of a problem is always a JSON object
/// that this program wrote.
fn add_request_id(response: &mut Response, request_id: &str) {
    let is_problem = response
        .headers
        .iter()
        .any(|(name, value)| *name == "content-type" && value == "application/problem+json");
    if is_problem && response.body.pop_if(|last| *last == b'}').is_some() {
        let member = format!(",\"request_id\":{}}}", serde_json::Value::from(request_id));
        response.body.extend_from_slice(member.as_bytes());
    }
}

/// Logs an answer. `now` is the monotonic time, for the limit of logged refusals.
fn log(asked: &Asked, took: Duration, refusals: &Refusals, now: Duration, response: &Response) {
    let Asked { request_id, client, target } = asked;
    let (method, path) = match target {
        // The rest of the path is a secret.
        Some((method, path)) if path.starts_with(CONFIRM_PATH) => (method.as_str(), CONFIRM_PATH),
        Some((method, path)) => (method.as_str(), path.as_str()),
        None => ("-", "-"),
    };
    let status = response.status;
    let cause = response.cause.as_deref();
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    // The macros need a constant level and message.
    if status == 500 {
        tracing::error!(request_id, %client, method, path, status, took_ms, cause, "a request failed");
    } else if status >= 400 {
        let verdict = refusals.count(*client, now);
        if let ThrottleVerdict::Beyond(_) = verdict {
            tracing::debug!(request_id, %client, method, path, status, took_ms, cause, "a request was refused");
            return;
        }
        tracing::info!(request_id, %client, method, path, status, took_ms, cause, "a request was refused");
        if let ThrottleVerdict::Reached(left) = verdict {
            let secs = left.as_secs();
            tracing::info!(%client, secs, "further refused requests of this client are not logged for now");
        }
    } else if target.as_ref().is_some_and(is_change) {
        let [actor, action, resource] = response.done.as_deref().cloned().unwrap_or_default();
        tracing::info!(
            request_id, %client, method, path, status, took_ms, actor, action, resource, "a change was made"
        );
    } else {
        tracing::debug!(request_id, %client, method, path, status, took_ms, "a request was answered");
    }
}

fn is_change((method, path): &(Method, String)) -> bool {
    let reads = matches!(method, Method::Get | Method::Head | Method::Options);
    let is_traffic = TRAFFIC.iter().any(|prefix| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || prefix.ends_with('/'))
    });
    !reads && !is_traffic
}

/// Answers so far, by route and by class of status. All unknown paths share one counter, so that clients cannot make labels.
#[derive(Debug)]
pub(super) struct Requests {
    /// For each route its method and path, and its answers.
    by_route: Vec<(&'static str, &'static str, [Counter; 5])>,
    /// Answers to unknown paths and invalid requests.
    no_route: [Counter; 5],
    /// From the head to the answer.
    pub(super) span: Histogram,
}

impl Requests {
    /// Starts to count, for routes of these methods and paths.
    pub(super) fn new(routes: impl Iterator<Item = (&'static str, &'static str)>) -> Self {
        Self {
            by_route: routes.map(|(method, path)| (method, path, Default::default())).collect(),
            no_route: Default::default(),
            span: Histogram::new(tally::SPANS),
        }
    }

    /// Counts an answer; `index` is the route's among those of [`Self::new`].
    pub(super) fn count(&self, index: Option<usize>, status: u16, took: Duration) {
        let known = index.and_then(|index| self.by_route.get(index));
        let counters = known.map_or(&self.no_route, |(.., counters)| counters);
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = counters.get(class) {
            counter.add();
        }
        self.span.note_span(took);
    }

    /// Method, path, class and count of answers; counts of 0 are left out.
    pub(super) fn read(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let known = self.by_route.iter().map(|(method, path, each)| (*method, *path, each));
        let all = known.chain([("", "none", &self.no_route)]);
        all.flat_map(|(method, path, counters)| {
            let each = CLASSES.into_iter().zip(counters);
            each.map(move |(class, counter)| (method, path, class, counter.get()))
        })
        .filter(|(.., count)| *count > 0)
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_problem_gets_the_request_id() {
        let mut problem =
            Response::with_body(404, "application/problem+json", br#"{"status":404}"#.to_vec());
        add_request_id(&mut problem, "a\"b");
        assert_eq!(problem.body, br#"{"status":404,"request_id":"a\"b"}"#);
        let mut other = Response::with_body(200, "application/json", b"{}".to_vec());
        add_request_id(&mut other, "id");
        assert_eq!(other.body, b"{}");
    }

    #[test]
    fn traffic_is_not_a_change() {
        let change = |method, path: &str| is_change(&(method, path.to_owned()));
        assert!(change(Method::Post, "/v1/subscriptions"));
        assert!(change(Method::Delete, "/v1/tokens/1"));
        assert!(change(Method::Post, "/v1/events/1/replay"));
        assert!(!change(Method::Post, "/v1/events"));
        assert!(!change(Method::Post, "/in/acme/stripe"));
        assert!(!change(Method::Post, "/confirm/1-1-1-x"));
        assert!(!change(Method::Get, "/v1/tokens"));
    }
}

//! Health probes: how a target is probed to which nothing is sent for a while, and what is known of it.
//!
//! Not here: when one is due and what follows (`health_probes`).

use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::clock::{Timestamp, span};
use crate::base::words::{self, words};
use crate::model::outcome::AttemptClass;
use crate::model::target_url::TargetUrl;

/// How long nothing was sent before a target is probed.
const SPANS: RangeInclusive<Duration> = Duration::from_secs(30)..=Duration::from_hours(30 * 24);
/// Characters that are kept of why a probe failed.
const MAX_DETAIL_CHARS: usize = 500;

words! {
    /// The method of a probe of a path.
    pub enum ProbeMethod as "ProbeMethod" {
        /// `GET`
        Get = "GET",
        /// `HEAD`
        Head = "HEAD",
        /// `OPTIONS`
        Options = "OPTIONS",
    }
}

/// Method and URL of a probe; `None`: it is a ping to the target's own URL.
pub type ProbeRequest = Option<(ProbeMethod, TargetUrl)>;

/// How an idle target is probed: by a request to `path`, or without it by a signed `oncebox.ping`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// How long nothing was sent before the target is probed: `30s` to `30days`.
    pub every: String,
    /// Given together with `path`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "words::optional")]
    pub method: Option<ProbeMethod>,
    /// A path of the target's host, like `/health`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Probe {
    /// Its request to a target. The error says what cannot be used.
    pub fn request(&self, target: &TargetUrl) -> Result<ProbeRequest, String> {
        let every = span(&self.every).map_err(|why| format!("probe.every {why}"))?;
        if !SPANS.contains(&every) {
            return Err(format!("probe.every is {}; it must be 30s to 30days", self.every));
        }
        let wrong = match (self.method, &self.path) {
            (None, None) if !target.has_placeholders() => return Ok(None),
            (None, None) => {
                "a ping has no values for the placeholders of the url: give probe.method and probe.path"
            }
            (Some(method), Some(path)) if path.starts_with('/') => {
                let url = target.at(path).map_err(|error| format!("probe.path: {error}"))?;
                match url.secret_in_query() {
                    None if !url.has_placeholders() => return Ok(Some((method, url))),
                    None => "probe.path has a placeholder, and a probe is about no event",
                    Some(_) => "probe.path carries a secret: set a credential in its place",
                }
            }
            (Some(_), Some(_)) => "probe.path does not begin with a slash",
            _ => "probe.method and probe.path go together: give both, or none of them for a ping",
        };
        Err(wrong.to_owned())
    }
}

words! {
    /// Whether a target works.
    #[derive(Default)]
    pub enum HealthState as "HealthState" {
        /// The last probe or attempt worked.
        Healthy = "healthy",
        /// Two probes in a row have failed.
        Unhealthy = "unhealthy",
        /// Nothing was sent yet, or what was sent last has failed.
        #[default]
        Unknown = "unknown",
    }
}

/// Knowledge about a target that is probed while idle.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Health {
    pub state: HealthState,
    /// When the first of the probes failed that made it unhealthy; null unless it is.
    pub unhealthy_since: Option<Timestamp>,
    /// When it was last probed.
    pub probed_at: Option<Timestamp>,
    /// Why the last probe failed; null if it worked, or if a delivery has worked since.
    pub detail: Option<String>,
    /// Whether the target refused our credential in one of the probes that have failed in a row.
    #[serde(skip)]
    pub was_refused: bool,
    /// When a probe has ended a hold, unless a delivery has worked since.
    #[serde(skip)]
    pub ended_at: Option<Timestamp>,
}

impl Health {
    /// What is known after one more probe. The first that fails may be an accident.
    #[must_use]
    pub fn and(&self, class: AttemptClass, reason: &str, at: Timestamp) -> Self {
        let probed_at = Some(at);
        let is_second = self.detail.is_some();
        if class.is_success() {
            return Self { state: HealthState::Healthy, probed_at, ..Self::default() };
        }
        let first = self.unhealthy_since.or(self.probed_at);
        Self {
            state: if is_second { HealthState::Unhealthy } else { HealthState::Unknown },
            unhealthy_since: first.filter(|_| is_second),
            probed_at,
            detail: Some(reason.chars().take(MAX_DETAIL_CHARS).collect()),
            was_refused: self.was_refused || class == AttemptClass::Auth,
            ended_at: self.ended_at,
        }
    }

    /// What is known with the last attempts, too: what was sent last counts.
    #[must_use]
    pub fn with_attempts(self, success: Option<Timestamp>, failure: Option<Timestamp>) -> Self {
        let probed_at = self.probed_at;
        if success.is_some() && success >= probed_at.max(failure) {
            return Self { state: HealthState::Healthy, probed_at, ..Self::default() };
        }
        let is_doubtful = self.state == HealthState::Healthy && failure > probed_at;
        if is_doubtful { Self { state: HealthState::Unknown, ..self } } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn probe(every: &str, method: Option<ProbeMethod>, path: Option<&str>) -> Probe {
        Probe { every: every.to_owned(), method, path: path.map(str::to_owned) }
    }

    #[test]
    fn a_probe_of_a_path_stays_at_the_targets_host() {
        let target = TargetUrl::parse("https://erp.example:8443/in/{aggregate_id}").unwrap();
        let get = Some(ProbeMethod::Get);
        let found = probe("30s", get, Some("/health?x=1")).request(&target).unwrap().unwrap();
        assert_eq!(found.1.as_str(), "https://erp.example:8443/health?x=1");
        for (wrong, part) in [
            (probe("29s", get, Some("/h")), "30s to 30days"),
            (probe("31days", get, Some("/h")), "30s to 30days"),
            (probe("often", get, Some("/h")), "is not a span"),
            (probe("5min", get, None), "go together"),
            (probe("5min", None, Some("/h")), "go together"),
            (probe("5min", get, Some(".evil.example/")), "begin with a slash"),
            (probe("5min", get, Some("/a/../b")), "segment"),
            (probe("5min", get, Some("/{id}")), "placeholder"),
            (probe("5min", get, Some("/h?token=abc")), "carries a secret"),
            (probe("5min", None, None), "placeholders of the url"),
        ] {
            let error = wrong.request(&target).unwrap_err();
            assert!(error.contains(part), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn two_failures_in_a_row_are_unhealthy_and_what_was_sent_last_counts() {
        let none = Health::default();
        let one = none.and(AttemptClass::Auth, "401", at(10));
        let two = one.and(AttemptClass::Transient, "no answer", at(40));
        let more = two.and(AttemptClass::Transient, "no answer", at(45));
        let good = two.and(AttemptClass::Success, "", at(50));
        let states = [&none, &one, &two, &more, &good].map(|health| health.state.as_str());
        assert_eq!(states, ["unknown", "unknown", "unhealthy", "unhealthy", "healthy"]);
        let since = [&none, &one, &two, &more, &good].map(|health| health.unhealthy_since);
        assert_eq!(since, [None, None, Some(at(10)), Some(at(10)), None]);
        assert!(two.was_refused && !good.was_refused && two.detail.is_some());
        let state = |health: &Health, success: i64, failure: i64| {
            let time = |secs: i64| (secs > 0).then(|| at(secs));
            health.clone().with_attempts(time(success), time(failure)).state.as_str()
        };
        assert_eq!((state(&none, 5, 4), state(&none, 4, 5)), ("healthy", "unknown"));
        assert_eq!((state(&two, 45, 0), state(&two, 45, 46)), ("healthy", "unhealthy"));
        assert_eq!((state(&good, 0, 60), state(&good, 0, 45)), ("unknown", "healthy"));
    }
}

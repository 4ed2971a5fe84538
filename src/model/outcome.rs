//! The outcome of one attempt, and its class. The class decides what follows (`model::failure`).
//!
//! A failed attempt is data, not an error: `Err` elsewhere means that Oncebox itself is broken.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::words::words;

/// Most entries of a subscription's class table.
const MAX_CLASSES: usize = 64;

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target answered.
    Answered {
        /// The status code.
        status: u16,
        /// `Retry-After`, parsed and limited.
        retry_after: Option<Duration>,
        /// What the target wants to get back with the next attempt.
        custom_data: Option<String>,
        /// The first 2,048 characters of the answer.
        excerpt: String,
    },
    /// No answer, and none will come.
    Unreachable {
        /// Why there is no answer.
        cause: Cause,
        /// What happened, for a person.
        reason: String,
    },
    /// A mail server, a broker or a folder has it, or a command handled it.
    Accepted {
        /// What it said.
        excerpt: String,
    },
    /// A mail server or a folder will never take it.
    Refused {
        /// The target's words, or the obstacle.
        reason: String,
    },
    /// A broker refused it or did not acknowledge it, or a folder cannot be written.
    Unacknowledged {
        /// What that means for the attempt.
        class: AttemptClass,
        /// Whether no other delivery could pass: no broker of the cluster answers, or the folder is away.
        is_away: bool,
        /// The error, in one word.
        code: String,
        /// What happened, for a person.
        reason: String,
    },
    /// We did not send: the target's address or URL is not allowed.
    Blocked {
        /// The refusal, with the configuration line that allows it.
        reason: String,
    },
    /// Nothing was tried: a limit of ours is used up. It says nothing about the target.
    Postponed {
        /// How long until there is room again.
        wait: Duration,
        /// The limit, for a person.
        reason: String,
    },
    /// We could not build the request (unreadable secret, URL that cannot be filled).
    Unbuildable {
        /// What is missing.
        reason: String,
    },
    /// We did not send: the token endpoint gave us no token.
    NoToken {
        /// What its answer means.
        class: AttemptClass,
        /// Its `Retry-After`, read and capped.
        retry_after: Option<Duration>,
        /// What it answered.
        reason: String,
    },
}

words! {
    /// Why there is no answer.
    pub enum Cause {
        /// No connection: the name has no address, there is no route, or nobody answered in time.
        NoConnection = "no_connection",
        /// The host refused the connection, so the network to it works.
        Refused = "refused",
        /// TLS failed: a certificate is not trusted, has expired or names another host.
        Tls = "tls",
        /// Connected, but no answer in time.
        Timeout = "timeout",
        /// The connection broke, or the answer is not HTTP.
        Broken = "broken",
    }
}

words! {
    /// The class of an attempt. Stored in `attempts.class`; decides what follows.
    #[derive(Default)]
    pub enum AttemptClass as "AttemptClass" {
        /// 2xx.
        Success = "success",
        /// May work later: no connection, timeout, 404, 405, 408, 425, 5xx, an address we do not allow yet.
        #[default]
        Transient = "transient",
        /// 429, or 503 with `Retry-After`.
        RateLimited = "rate_limited",
        /// 401, 403, 407: our credential is not accepted.
        Auth = "auth",
        /// Any other 4xx, and 3xx: this request would be refused again.
        Validation = "validation",
        /// 410: the target wants no more requests.
        Gone = "gone",
        /// The request cannot be sent, or fails while all others succeed.
        Poison = "poison",
    }
}

impl AttemptClass {
    /// Whether the target was reached and accepted it.
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

/// A subscription's own classes of answers: for a status like `404`, or for a group of statuses like `5xx`. All other
/// answers have their default class.
///
/// ```
/// use oncebox::model::outcome::{AttemptClass, ClassTable};
/// let own = [("409".to_owned(), AttemptClass::Success)].into();
/// let table = ClassTable::new(&own).unwrap();
/// assert_eq!(table.of_status(409, None), AttemptClass::Success);
/// assert_eq!(table.of_status(422, None), AttemptClass::Validation);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassTable {
    statuses: BTreeMap<u16, AttemptClass>,
    hundreds: BTreeMap<u16, AttemptClass>,
}

impl ClassTable {
    /// Reads a table; the error says which entry cannot be used.
    pub fn new(own: &BTreeMap<String, AttemptClass>) -> Result<Self, String> {
        if own.len() > MAX_CLASSES {
            return Err(format!("classes has {} entries; at most {MAX_CLASSES}", own.len()));
        }
        let mut table = Self::default();
        for (key, class) in own {
            let hundred = key.strip_suffix("xx").and_then(|digit| digit.parse::<u16>().ok());
            let status = key.parse::<u16>().ok().filter(|status| (100..=599).contains(status));
            match (hundred, status) {
                (Some(hundred @ 1..=5), _) => table.hundreds.insert(hundred, *class),
                (None, Some(status)) => table.statuses.insert(status, *class),
                _ => {
                    return Err(format!(
                        "classes has {key:?}; an entry is a status like \"404\" or \"5xx\""
                    ));
                }
            };
        }
        Ok(table)
    }

    /// The class of a status.
    pub fn of_status(&self, status: u16, retry_after: Option<Duration>) -> AttemptClass {
        let own = self.statuses.get(&status).or_else(|| self.hundreds.get(&(status / 100)));
        own.copied().unwrap_or_else(|| default_class(status, retry_after))
    }

    /// The class of an outcome.
    pub fn classify(&self, outcome: &Outcome) -> AttemptClass {
        match outcome {
            Outcome::Answered { status, retry_after, .. } => self.of_status(*status, *retry_after),
            Outcome::Unreachable { .. } | Outcome::Blocked { .. } | Outcome::Postponed { .. } => {
                AttemptClass::Transient
            }
            Outcome::Unbuildable { .. } => AttemptClass::Poison,
            Outcome::NoToken { class, .. } | Outcome::Unacknowledged { class, .. } => *class,
            Outcome::Accepted { .. } => AttemptClass::Success,
            Outcome::Refused { .. } => AttemptClass::Validation,
        }
    }
}

/// The default table (`docs/failures.md`).
fn default_class(status: u16, retry_after: Option<Duration>) -> AttemptClass {
    match (status, retry_after) {
        (200..=299, _) => AttemptClass::Success,
        (429, _) | (503, Some(_)) => AttemptClass::RateLimited,
        (401 | 403 | 407, _) => AttemptClass::Auth,
        (410, _) => AttemptClass::Gone,
        (404 | 405 | 408 | 425, _) => AttemptClass::Transient,
        (300..=499, _) => AttemptClass::Validation,
        _ => AttemptClass::Transient,
    }
}

impl Outcome {
    /// The status code, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether a request may have been sent.
    pub fn was_sent(&self) -> bool {
        use Outcome::{Accepted, Answered, Unacknowledged, Unreachable};
        matches!(
            self,
            Answered { .. } | Unreachable { .. } | Unacknowledged { .. } | Accepted { .. }
        )
    }

    /// Whether the whole target is away: what failed says nothing of this delivery.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unacknowledged { is_away: true, .. })
    }

    /// Whether nothing was tried, because a limit of ours is used up.
    pub fn is_postponed(&self) -> bool {
        matches!(self, Self::Postponed { .. })
    }

    /// The wait the target asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered { retry_after, .. } | Self::NoToken { retry_after, .. } => *retry_after,
            Self::Postponed { wait, .. } => Some(*wait),
            _ => None,
        }
    }

    /// What failed, in one word: the status, or the cause.
    pub fn code(&self) -> String {
        match self {
            Self::Answered { status, .. } => status.to_string(),
            Self::Unreachable { cause, .. } => cause.as_str().to_owned(),
            Self::Blocked { .. } => "blocked".to_owned(),
            Self::Postponed { .. } => "postponed".to_owned(),
            Self::Unbuildable { .. } => "unbuildable".to_owned(),
            Self::NoToken { .. } => "no_token".to_owned(),
            Self::Unacknowledged { code, .. } => code.clone(),
            Self::Accepted { .. } => "accepted".to_owned(),
            Self::Refused { .. } => "refused".to_owned(),
        }
    }

    /// The outcome with its reason rewritten.
    #[must_use]
    pub fn map_reason(mut self, with: impl FnOnce(String) -> String) -> Self {
        match &mut self {
            Self::Unreachable { reason, .. }
            | Self::Blocked { reason }
            | Self::Postponed { reason, .. }
            | Self::Unbuildable { reason }
            | Self::NoToken { reason, .. }
            | Self::Unacknowledged { reason, .. }
            | Self::Refused { reason } => *reason = with(std::mem::take(reason)),
            Self::Answered { .. } | Self::Accepted { .. } => {}
        }
        self
    }

    /// Why it failed, in words a person can use; `None` for an attempt that counts as a success.
    pub fn failed_reason(&self, class: AttemptClass) -> Option<String> {
        if class.is_success() {
            return None;
        }
        Some(match self {
            Self::Answered { status, .. } => format!("the target answered {status}"),
            Self::Accepted { .. } => "it was accepted".to_owned(),
            Self::Unreachable { reason, .. }
            | Self::Blocked { reason }
            | Self::Postponed { reason, .. }
            | Self::Unbuildable { reason }
            | Self::NoToken { reason, .. }
            | Self::Unacknowledged { reason, .. }
            | Self::Refused { reason } => reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_the_class_of_the_table() {
        for (status, class) in [
            (200, AttemptClass::Success),
            (204, AttemptClass::Success),
            (301, AttemptClass::Validation),
            (400, AttemptClass::Validation),
            (401, AttemptClass::Auth),
            (403, AttemptClass::Auth),
            (404, AttemptClass::Transient),
            (405, AttemptClass::Transient),
            (407, AttemptClass::Auth),
            (408, AttemptClass::Transient),
            (410, AttemptClass::Gone),
            (422, AttemptClass::Validation),
            (425, AttemptClass::Transient),
            (429, AttemptClass::RateLimited),
            (500, AttemptClass::Transient),
            (503, AttemptClass::Transient),
            (599, AttemptClass::Transient),
            (100, AttemptClass::Transient),
        ] {
            assert_eq!(ClassTable::default().of_status(status, None), class, "{status}");
        }
        let asked = Some(Duration::from_secs(1));
        assert_eq!(ClassTable::default().of_status(503, asked), AttemptClass::RateLimited);
    }

    #[test]
    fn an_entry_for_a_status_overrides_one_for_its_hundred() {
        let own = [
            ("5xx".to_owned(), AttemptClass::Validation),
            ("502".to_owned(), AttemptClass::Transient),
        ];
        let table = ClassTable::new(&own.into()).unwrap();
        assert_eq!(table.of_status(500, None), AttemptClass::Validation);
        assert_eq!(table.of_status(502, None), AttemptClass::Transient);
    }

    #[test]
    fn an_entry_that_is_no_status_is_named() {
        for key in ["6xx", "xx", "42", "1000", "five"] {
            let own = [(key.to_owned(), AttemptClass::Transient)].into();
            assert!(ClassTable::new(&own).unwrap_err().contains(key));
        }
    }
}

//! What an attempt came to, and which class of failure that is.
//!
//! A failed delivery is data, not an error: `Err` elsewhere means that Oncebox itself is broken.
//! What follows from a class stands in `delivery`.

use std::fmt;
use std::time::Duration;

/// What came of one attempt, before anybody judged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target answered.
    Answered {
        /// The status code.
        status: u16,
        /// `Retry-After`, read and capped.
        retry_after: Option<Duration>,
        /// The first 2,048 characters of the answer.
        excerpt: String,
    },
    /// No answer, and none will come: connect, TLS, timeout, cut connection.
    Unreachable {
        /// What happened, for a person.
        reason: String,
    },
    /// We did not send: the target's address or URL is not allowed.
    Blocked {
        /// The refusal, with the line that would allow it.
        reason: String,
    },
    /// We could not build the request (unreadable secret, URL that cannot be filled).
    Unbuildable {
        /// What is missing.
        reason: String,
    },
}

/// The class of an attempt. Stored in `attempts.class`; decides the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// 2xx.
    Success,
    /// May work later: no connection, timeout, 404, 405, 408, 425, 5xx, an address we do not allow yet.
    Transient,
    /// 429, or 503 with `Retry-After`.
    RateLimited,
    /// 401, 403, 407: our credential is not accepted.
    Auth,
    /// Any other 4xx, and 3xx: the same request will be refused again.
    Validation,
    /// 410: the target wants no more.
    Gone,
    /// Cannot be sent at all.
    Poison,
}

impl Class {
    /// All, in the order of the table in `docs/states.md`.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Transient,
        Self::RateLimited,
        Self::Auth,
        Self::Validation,
        Self::Gone,
        Self::Poison,
    ];

    /// The word in SQL, API and console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Transient => "transient",
            Self::RateLimited => "rate_limited",
            Self::Auth => "auth",
            Self::Validation => "validation",
            Self::Gone => "gone",
            Self::Poison => "poison",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }

    /// Whether the target was reached and took it.
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Sorts an outcome into its class (the table is in `docs/states.md`).
///
/// ```
/// use oncebox::model::failure::{classify, Class, Outcome};
/// let gone = Outcome::Answered { status: 410, retry_after: None, excerpt: String::new() };
/// assert_eq!(classify(&gone), Class::Gone);
/// ```
pub fn classify(outcome: &Outcome) -> Class {
    match outcome {
        Outcome::Answered { status, retry_after, .. } => match (*status, retry_after) {
            (200..=299, _) => Class::Success,
            (429, _) | (503, Some(_)) => Class::RateLimited,
            (401 | 403 | 407, _) => Class::Auth,
            (410, _) => Class::Gone,
            (404 | 405 | 408 | 425, _) => Class::Transient,
            (300..=499, _) => Class::Validation,
            _ => Class::Transient,
        },
        Outcome::Unreachable { .. } | Outcome::Blocked { .. } => Class::Transient,
        Outcome::Unbuildable { .. } => Class::Poison,
    }
}

impl Outcome {
    /// The status code, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Blocked { .. } | Self::Unbuildable { .. } => None,
        }
    }

    /// The wait the target asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered { retry_after, .. } => *retry_after,
            Self::Unreachable { .. } | Self::Blocked { .. } | Self::Unbuildable { .. } => None,
        }
    }

    /// The same with other words for what went wrong.
    #[must_use]
    pub fn told(self, with: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Unreachable { reason } => Self::Unreachable { reason: with(reason) },
            Self::Blocked { reason } => Self::Blocked { reason: with(reason) },
            Self::Unbuildable { reason } => Self::Unbuildable { reason: with(reason) },
            answered @ Self::Answered { .. } => answered,
        }
    }

    /// Why it failed, in words a person can use; `None` for 2xx.
    pub fn failed_reason(&self) -> Option<String> {
        match self {
            Self::Answered { status: 200..=299, .. } => None,
            Self::Answered { status, .. } => Some(format!("the target answered {status}")),
            Self::Unreachable { reason }
            | Self::Blocked { reason }
            | Self::Unbuildable { reason } => Some(reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, retry_after: Option<u64>) -> Class {
        let retry_after = retry_after.map(Duration::from_secs);
        classify(&Outcome::Answered { status, retry_after, excerpt: String::new() })
    }

    #[test]
    fn every_status_has_the_class_of_the_table() {
        for (status, class) in [
            (200, Class::Success),
            (204, Class::Success),
            (301, Class::Validation),
            (400, Class::Validation),
            (401, Class::Auth),
            (403, Class::Auth),
            (404, Class::Transient),
            (405, Class::Transient),
            (407, Class::Auth),
            (408, Class::Transient),
            (410, Class::Gone),
            (422, Class::Validation),
            (425, Class::Transient),
            (429, Class::RateLimited),
            (500, Class::Transient),
            (503, Class::Transient),
            (599, Class::Transient),
            (100, Class::Transient),
        ] {
            assert_eq!(answered(status, None), class, "{status}");
        }
        assert_eq!(answered(503, Some(1)), Class::RateLimited);
    }

    #[test]
    fn every_class_is_read_back_from_its_word() {
        for class in
            ["success", "transient", "rate_limited", "auth", "validation", "gone", "poison"]
        {
            assert_eq!(Class::parse(class).unwrap().as_str(), class);
        }
        assert_eq!(Class::parse("other"), None);
    }
}

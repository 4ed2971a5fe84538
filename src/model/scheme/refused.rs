//! Why a webhook is not believed.

use crate::base::headers::Headers;

/// Why a webhook is not believed. For our log: outside, every one of them is the same 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header that the scheme needs is not there.
    #[error("the header {header} is missing")]
    Missing {
        /// Its name.
        header: String,
    },
    /// A header is there but cannot be read.
    #[error("the header {header} cannot be read: {why}")]
    Malformed {
        /// Its name.
        header: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The body has not what the scheme signs with.
    #[error("the body cannot be checked: {why}")]
    Body {
        /// What is wrong with it.
        why: &'static str,
    },
    /// Everything is right but the time. Only said of a correct signature, so a caller whose own clock
    /// is in doubt may ask for the webhook again.
    #[error("the signature is correct but {skew_secs} s away from our time")]
    Stale {
        /// How far its time is from ours, in whole seconds, either way.
        skew_secs: u64,
    },
    /// The time is too far away for the signature to be worth a check by public key.
    #[error("its time is {skew_secs} s away from ours, so its signature was not checked")]
    Untimely {
        /// How far its time is from ours, in whole seconds, either way.
        skew_secs: u64,
    },
    /// No secret in force makes this signature.
    #[error("no secret in force makes this signature")]
    Mismatch,
    /// There is no usable secret to check with.
    #[error("no usable secret is in force for this provider")]
    NoSecret,
}

/// The value of a header that the scheme needs.
pub(super) fn needed<'a>(headers: &'a Headers, name: &str) -> Result<&'a str, Refused> {
    headers.get(name).ok_or_else(|| Refused::Missing { header: name.to_owned() })
}

pub(super) fn body(why: &'static str) -> Refused {
    Refused::Body { why }
}

pub(super) fn malformed(header: &str, why: &'static str) -> Refused {
    Refused::Malformed { header: header.to_owned(), why }
}

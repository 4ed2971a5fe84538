//! The header fields that a subscription adds to its requests: which it may not.

use std::collections::BTreeMap;

use crate::api::problem::Problem;

/// Header fields that are ours to set.
const HEADERS_OURS: [&str; 11] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "x-idempotency-key",
    "traceparent",
    "expect",
];

/// Header fields that carry secrets. Headers stand in the file in the clear, so these are refused.
const HEADERS_SECRET: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"];

/// Refuses fields that are ours, that carry secrets, or that are no header fields.
///
/// # Errors
/// 422 with the field's name.
pub(super) fn check(headers: &BTreeMap<String, String>) -> Result<(), Problem> {
    for (name, value) in headers {
        let ours = HEADERS_OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours));
        if ours {
            return Err(Problem::unprocessable(format!("The header {name} is set by Oncebox.")));
        }
        if HEADERS_SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret)) {
            return Err(Problem::unprocessable(format!(
                "The header {name} carries a secret, and headers are not sealed; this version signs \
                 requests and has no other way to authenticate."
            )));
        }
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let fits = !name.is_empty()
            && name.bytes().all(token)
            && value.bytes().all(|b| (b' '..=b'~').contains(&b));
        if !fits || name.len() + value.len() > 4096 {
            let detail = format!("The header {name:?} is not a valid header field.");
            return Err(Problem::unprocessable(detail));
        }
    }
    Ok(())
}

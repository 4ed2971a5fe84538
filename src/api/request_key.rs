//! `Idempotency-Key`: the name of one request, and what it was used for.
//!
//! Not here: what was answered to it, which `flow::publish` keeps.

use ring::digest;

use crate::api::call::Call;
use crate::api::problem::Problem;
use crate::pipeline::publish::Idempotency;

/// The key of a request, and what the request was; `None` where it has none.
///
/// # Errors
/// 400 where it is no key.
pub(super) fn of(call: &Call) -> Result<Option<Idempotency>, Problem> {
    let mut all = call.request.head.headers.iter().filter(|(name, _)| *name == "idempotency-key");
    let Some((_, value)) = all.next() else { return Ok(None) };
    let key = request_key(value).filter(|_| all.next().is_none()).ok_or_else(|| {
        Problem::bad_request(
            "Idempotency-Key stands once and has 1 to 128 visible ASCII characters without \
             quotes, backslash, comma and semicolon; a UUID will do. It may stand in double quotes. \
             An event's own key goes into the body as idempotency_key.",
        )
    })?;
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(call.request.head.method.as_str().as_bytes());
    context.update(b"\n");
    context.update(call.request.head.path.as_bytes());
    context.update(b"\n");
    context.update(&call.request.body);
    let request_hash = context.finish().as_ref().to_vec();
    Ok(Some(Idempotency { key: key.to_owned(), request_hash }))
}

/// The key in the value of an `Idempotency-Key`, with double quotes as the IETF's draft has it, or without.
fn request_key(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let key = quoted.unwrap_or(text);
    // These have a meaning in a structured field, so two readers could see two keys.
    let allowed = |b: u8| b.is_ascii_graphic() && !b"\"\\,;".contains(&b);
    ((1..=128).contains(&key.len()) && key.bytes().all(allowed)).then_some(key)
}

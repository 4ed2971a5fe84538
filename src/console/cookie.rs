//! The session's cookie.

use crate::http::message::Head;

const NAME: &str = "oncebox_session";

/// The secret in the request's cookie.
pub(super) fn session(head: &Head) -> Option<&str> {
    let pairs = head.headers.values("cookie").flat_map(|field| field.split(';'));
    let named = pairs.filter_map(|pair| pair.trim().split_once('='));
    named.filter(|(name, _)| *name == NAME).map(|(_, value)| value).next()
}

/// `Set-Cookie` for a new session. `is_tls`: the browser must send it over TLS only.
pub(super) fn set(secret: &str, seconds: i64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{NAME}={secret}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// `Set-Cookie` that ends it.
pub(super) fn clear() -> String {
    format!("{NAME}=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict")
}

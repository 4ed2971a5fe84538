//! Secrets in a URL's query. URLs stand in lists, logs and attempts in the clear, so none may carry a secret.

use percent_encoding::percent_decode_str;

/// Names that are secrets as they stand.
const NAMES: [&str; 7] = ["code", "auth", "authorization", "pwd", "pass", "passwd", "apikey"];
/// Names that end like this, alone or after `_`, `-` or `.`, are secrets.
const ENDINGS: [&str; 6] = ["token", "key", "secret", "sig", "signature", "password"];

/// The first parameter that is named like a secret and has a value. One that an event fills in is none.
pub(super) fn in_query(query: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = pairs
        .filter(|(_, value)| !value.is_empty() && !value.contains('{'))
        .map(|(name, _)| percent_decode_str(name).decode_utf8_lossy().into_owned());
    named.find(|name| is_secret(&name.to_ascii_lowercase()))
}

/// Whether a name in lower case, of a query parameter or a header field, is that of a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    let last = name.rsplit(['_', '-', '.']).next().unwrap_or(name);
    NAMES.contains(&name) || ENDINGS.contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_named_like_secrets_are_found() {
        for query in [
            "token=x",
            "a=b&access_token=x",
            "API-Key=x",
            "apikey=x",
            "x-functions-key=x",
            "sp=1&sig=abc",
            "client_secret=x",
            "%74oken=x",
            "code=abc%3D%3D",
        ] {
            assert!(in_query(query).is_some(), "{query}");
        }
        for query in [
            "",
            "a=b",
            "token=",
            "token",
            "key={idempotency_key}",
            "keyword=x",
            "design=x",
            "zipcode=1",
        ] {
            assert_eq!(in_query(query), None, "{query}");
        }
    }
}

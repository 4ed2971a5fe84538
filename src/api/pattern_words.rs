//! The patterns of texts in words: who types a text is told what it may have, not an expression.

use std::borrow::Cow;

/// A pattern in words, which go on from "must".
struct PatternWords {
    pattern: &'static str,
    words: &'static str,
}

const fn words(pattern: &'static str, words: &'static str) -> PatternWords {
    PatternWords { pattern, words }
}

/// Those of the requests.
const PATTERNS: &[PatternWords] = &[
    words("^[a-z0-9-]{1,63}$", "have 1 to 63 of the characters a-z, 0-9 and -"),
    words("^[a-z0-9-]+$", "have only the characters a-z, 0-9 and -"),
    words("^[ -~]*$", "have only letters, digits, spaces and signs of ASCII"),
    words("^[!-~]*$", "have only letters, digits and signs of ASCII, without a space"),
    words(
        "^(?!in:)[ -~]*$",
        "have only letters, digits, spaces and signs of ASCII, and not begin with in:",
    ),
    words("^[^\\x00-\\x1f\\x7f-\\x9f]*$", "have no line breaks and no other control characters"),
    words(
        "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
        "be the name of a header field: letters, digits and -, without a space",
    ),
    words(
        "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,255}$",
        "be the name of a header field: 1 to 255 letters, digits and -, without a space",
    ),
    words(
        "^[A-Za-z0-9_+:/-]+(\\.[A-Za-z0-9_+:/-]+|\\.\\*)*$|^\\*(\\.([A-Za-z0-9_+:/-]+|\\*))*$",
        "be an event type such as invoice.paid, invoice.* for all that begin so, or * for all",
    ),
    words(
        "^(outbox|all|provider:[a-z0-9-]{1,63})$",
        "be outbox, all, or provider: with the name of a provider",
    ),
    words("^(https?://.*)?$", "begin with https:// or http://, or be empty"),
    words("^(dlv_)?[0-9]{1,18}$", "be the id of a delivery, such as dlv_17"),
    words(
        "^([1-5][0-9][0-9]|[1-5]xx)$",
        "be a status of HTTP, such as 409, or a class of them, such as 5xx",
    ),
    words(
        "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        "be base64 with its padding (RFC 4648, section 4)",
    ),
    words("^whsec_[A-Za-z0-9+/]+={0,2}$", "be whsec_ and the secret in base64"),
    words("^(whsec|whsk)_[A-Za-z0-9+/]+={0,2}$", "be whsec_ or whsk_ and the secret in base64"),
];

/// The words of a pattern; one that has none is shown as it is.
pub(super) fn of(pattern: &str) -> Cow<'static, str> {
    let known = PATTERNS.iter().find(|one| one.pattern == pattern);
    known.map_or_else(
        || Cow::Owned(format!("match the pattern {pattern}")),
        |one| Cow::Borrowed(one.words),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api::described_value::SentType;
    use crate::api::description::Body;
    use crate::api::routes;

    /// Each pattern of a request has its words.
    #[test]
    fn each_pattern_of_a_request_has_words() {
        let mut missing = Vec::new();
        for route in routes() {
            let Some(Body::Json { describe, .. }) = route.doc.body else { continue };
            let sent = SentType::of(describe);
            for schema in sent.named.values().chain([&sent.schema]) {
                note(schema, &mut missing);
            }
        }
        missing.sort();
        missing.dedup();
        assert!(missing.is_empty(), "{missing:?}");
    }

    fn note(schema: &Value, missing: &mut Vec<String>) {
        if let Some(Value::String(pattern)) = schema.get("pattern")
            && PATTERNS.iter().all(|one| one.pattern != pattern)
        {
            missing.push(pattern.clone());
        }
        match schema {
            Value::Object(members) => members.values().for_each(|one| note(one, missing)),
            Value::Array(items) => items.iter().for_each(|one| note(one, missing)),
            _ => {}
        }
    }
}

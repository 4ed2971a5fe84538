//! Masks secrets that can be recognised by their form before a text is logged.
//!
//! This is the second defence: callers leave secrets out. But a library's error may quote a URL that contains a
//! password.

/// Replaces a secret.
const MASK: &str = "[redacted]";
/// Prefixes of our own secrets, tokens and keys, and of `Authorization` fields.
const SECRETS: [&str; 9] = [
    "obx_",
    "obs_",
    "obl_",
    "whsec_",
    "whsk_",
    "oncebox-master-key-1:",
    "Bearer ",
    "Basic ",
    "Bearer%20",
];

/// The text without secrets, and without the userinfo and the query of any URL.
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, found)) = next(rest) {
        let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(before);
        out.push_str(found);
        let tail = from.strip_prefix(found).unwrap_or_default();
        rest = if found == "://" { url(&mut out, tail) } else { secret(&mut out, tail) };
    }
    out.push_str(rest);
    out
}

/// The first mark of a secret or a URL, and its position.
fn next(text: &str) -> Option<(usize, &'static str)> {
    let all = SECRETS.into_iter().chain(["://"]);
    all.filter_map(|mark| text.find(mark).map(|at| (at, mark))).min_by_key(|(at, _)| *at)
}

/// Masks a secret's characters; returns the rest.
fn secret<'a>(out: &mut String, text: &'a str) -> &'a str {
    let within = |c: char| c.is_ascii_alphanumeric() || "-_.+/=~".contains(c);
    let end = text.find(|c| !within(c)).unwrap_or(text.len());
    let (hidden, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    out.push_str(if hidden.is_empty() { "" } else { MASK });
    rest
}

/// Masks userinfo and query of a URL, given after its `://`; returns the rest.
fn url<'a>(out: &mut String, text: &'a str) -> &'a str {
    let ends = |c: char| c.is_whitespace() || c.is_control() || "\"'<>`".contains(c);
    let end = text.find(ends).unwrap_or(text.len());
    let (url, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    let authority_end = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (authority, tail) = url.split_at_checked(authority_end).unwrap_or((url, ""));
    match authority.rsplit_once('@') {
        Some((_, host)) => {
            out.push_str(MASK);
            out.push('@');
            out.push_str(host);
        }
        None => out.push_str(authority),
    }
    match tail.split_once(['?', '#']) {
        Some((path, _)) => {
            out.push_str(&redact(path));
            out.push('?');
            out.push_str(MASK);
        }
        None => out.push_str(&redact(tail)),
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_by_their_form() {
        for (text, shown) in [
            ("nothing to hide", "nothing to hide"),
            ("token obx_abc-DEF_123 is unknown", "token obx_[redacted] is unknown"),
            ("whsec_AAAA/bb+cc==, whsec_DD", "whsec_[redacted], whsec_[redacted]"),
            ("authorization: Bearer abc.def.ghi\n", "authorization: Bearer [redacted]\n"),
            ("Basic dXNlcjpwYXNz", "Basic [redacted]"),
            ("http://user:pass@host/path", "http://[redacted]@host/path"),
            ("http://host:80/p?key=1&b=2 failed", "http://host:80/p?[redacted] failed"),
            (
                "\"https://a@b@host?x\" and https://h/#f",
                "\"https://[redacted]@host?[redacted]\" and https://h/?[redacted]",
            ),
            ("https://host/obx_x", "https://host/obx_[redacted]"),
            ("://", "://"),
            ("obx_", "obx_"),
            ("ends with http://", "ends with http://"),
            ("ünïcode http://ü:ö@häst/", "ünïcode http://[redacted]@häst/"),
        ] {
            assert_eq!(redact(text), shown, "{text}");
        }
    }
}

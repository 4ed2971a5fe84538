//! Finds out why a signature does not match: repeats the check with one thing changed at a time.
//!
//! No result contains a secret. Not here: reading the request and printing the result.

use std::time::Duration;

use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use serde_json::Value;

use super::check::{Incoming, Refused};
use super::{Scheme, json_variants, kinds};
use crate::base::clock::Timestamp;
use crate::base::headers::Headers;

/// A tolerance that accepts every time.
const ANY_TIME: Duration = Duration::from_secs(1 << 40);

/// A request whose signature is diagnosed.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// How it should be signed.
    pub scheme: &'a Scheme,
    /// The secret's text, as entered.
    pub secret: &'a [u8],
    /// The certificate that was fetched for the request, PEM.
    pub fetched: Option<&'a [u8]>,
    /// The request.
    pub incoming: Incoming<'a>,
    /// The time of the check.
    pub now: Timestamp,
    /// How far the request's time may be from `now`.
    pub tolerance: Duration,
}

/// The result of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Why it is refused; `None`: it is valid.
    pub refused: Option<Refused>,
    /// Changes with which it would match, the likeliest first.
    pub matches_if: Vec<String>,
    /// What else to check.
    pub hints: Vec<String>,
}

impl Case<'_> {
    /// Checks the request, and looks for the reason if it is refused.
    pub fn diagnose(&self) -> Diagnosis {
        let verified = self.scheme.verify_with(
            &[self.secret],
            self.fetched,
            &self.incoming,
            self.now,
            self.tolerance,
        );
        let mut found =
            Diagnosis { refused: verified.err(), matches_if: Vec::new(), hints: Vec::new() };
        match &found.refused {
            None => return found,
            Some(Refused::Stale { skew_secs }) => {
                found.matches_if.push(format!(
                    "it were checked within {} s of its own time; it is {skew_secs} s away (another --at?)",
                    self.tolerance.as_secs()
                ));
                return found;
            }
            Some(_) => {}
        }
        found.matches_if = self.changes();
        found.hints = self.hints(found.refused.as_ref());
        found
    }

    fn fits(&self, secret: &[u8], incoming: &Incoming<'_>) -> bool {
        self.scheme.verify_with(&[secret], self.fetched, incoming, self.now, ANY_TIME).is_ok()
    }

    /// Each single change that makes it match; if there is none, pairs of a changed secret and a changed body.
    fn changes(&self) -> Vec<String> {
        let mut found = Vec::new();
        let secrets = secrets(self.secret);
        let bodies = bodies(self.incoming.body);
        for (what, secret) in &secrets {
            if self.fits(secret, &self.incoming) {
                found.push(format!("the secret were {what}"));
            }
        }
        for (what, body) in &bodies {
            if self.fits(self.secret, &Incoming { body, ..self.incoming }) {
                found.push(format!("the body were {what}"));
            }
        }
        for (what, url) in urls(self.incoming.url) {
            if self.fits(self.secret, &Incoming { url: &url, ..self.incoming }) {
                found.push(format!("the URL were {url} ({what})"));
            }
        }
        for (what, headers) in fields(self.incoming.headers) {
            if self.fits(self.secret, &Incoming { headers: &headers, ..self.incoming }) {
                found.push(what);
            }
        }
        found.extend(self.other_schemes());
        if found.is_empty() {
            let pairs =
                secrets.iter().flat_map(|secret| bodies.iter().map(move |body| (secret, body)));
            let fitting = pairs.filter(|((_, secret), (_, body))| {
                self.fits(secret, &Incoming { body, ..self.incoming })
            });
            found.extend(fitting.map(|((of_secret, _), (of_body, _))| {
                format!("the secret were {of_secret}, and the body {of_body}")
            }));
        }
        found
    }

    fn other_schemes(&self) -> Vec<String> {
        let others = kinds().filter(|kind| *kind != self.scheme.kind());
        let fitting = others
            .filter_map(Scheme::of)
            .filter(|s| s.verify(&[self.secret], &self.incoming, self.now, ANY_TIME).is_ok());
        fitting.map(|scheme| format!("the scheme were `{}`", scheme.kind())).collect()
    }

    fn hints(&self, refused: Option<&Refused>) -> Vec<String> {
        let mut hints = Vec::new();
        let text = std::str::from_utf8(self.secret).unwrap_or_default();
        if let Err(error) = self.scheme.check_secret(text) {
            hints.push(error.to_string());
        }
        if let Some(Refused::Missing { header }) = refused {
            let names: Vec<&str> = self.incoming.headers.iter().map(|(name, _)| name).collect();
            let like = |name: &&&str| name.contains("signature") || name.contains("hmac");
            let like: Vec<&str> = names.iter().filter(like).copied().collect();
            hints.push(if like.is_empty() {
                format!("the request has no signature header; it needs {header}")
            } else {
                format!("the request has no {header}; it has {}", like.join(", "))
            });
        }
        let body = serde_json::from_slice::<Value>(self.incoming.body).ok();
        if let Some(live) = body.as_ref().and_then(|body| body.get("livemode")?.as_bool()) {
            let (is, other) = if live { ("live", "test") } else { ("test", "live") };
            hints.push(format!(
                "the body is of {is} mode: the endpoints of {is} and {other} mode have different secrets"
            ));
        }
        hints
    }
}

/// Usual mistakes in copying a secret.
fn secrets(secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let with = |end: &[u8]| [secret, end].concat();
    let mut found = vec![
        ("with a newline at its end (copied from a secret file)", with(b"\n")),
        ("with a line end of Windows", with(b"\r\n")),
    ];
    let text = std::str::from_utf8(secret).unwrap_or_default();
    if text.trim() != text {
        found.push(("without the white space around it", text.trim().as_bytes().to_vec()));
    }
    let bare = text.trim_matches(['"', '\'']);
    if bare != text {
        found.push(("without the quotes around it", bare.as_bytes().to_vec()));
    }
    for prefix in ["whsec_", "v1,whsec_", "polar_whs_", "sha256="] {
        match text.strip_prefix(prefix) {
            Some(rest) => found.push(("without its prefix", rest.as_bytes().to_vec())),
            None if prefix == "whsec_" => {
                found.push(("with `whsec_` before it", format!("{prefix}{text}").into_bytes()));
            }
            None => {}
        }
    }
    let inside = text.strip_prefix("whsec_").unwrap_or(text);
    if let Ok(decoded) = BASE64_NOPAD.decode(inside.trim_end_matches('=').as_bytes()) {
        found.push(("base64-decoded", decoded));
    }
    if let Ok(decoded) = HEXLOWER_PERMISSIVE.decode(inside.as_bytes()) {
        found.push(("hex-decoded", decoded.clone()));
        // Standard Webhooks decodes base64, so a hex key has to be converted.
        found.push(("that key in base64", format!("whsec_{}", BASE64.encode(&decoded)).into()));
    }
    let verbatim = format!("whsec_{}", BASE64.encode(secret));
    found.push(("verbatim, not base64-decoded", verbatim.into_bytes()));
    found.retain(|(_, variant)| !variant.is_empty() && variant != secret);
    found
}

/// Usual changes of a body before it is checked.
fn bodies(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut found = vec![
        ("followed by a newline", [body, b"\n"].concat()),
        ("followed by a line end of Windows", [body, b"\r\n"].concat()),
        ("without the white space around it", body.trim_ascii().to_vec()),
        (
            "without its byte order mark",
            body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).to_vec(),
        ),
        ("empty", Vec::new()),
    ];
    if let Ok(text) = std::str::from_utf8(body) {
        let unix = text.replace("\r\n", "\n");
        found.push(("with line ends of Windows (CRLF)", unix.replace('\n', "\r\n").into_bytes()));
        found.push(("with line ends of Unix (LF)", unix.into_bytes()));
    }
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        found.extend(json_variants::forms(&value));
    }
    found.retain(|(_, variant)| variant != body);
    found
}

/// Usual changes of a URL by a proxy.
fn urls(url: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let Some((scheme, rest)) = url.split_once("://") else { return found };
    let (other, own) = if scheme == "https" { ("http", "443") } else { ("https", "80") };
    found.push(("the other scheme: a proxy ends TLS", format!("{other}://{rest}")));
    let (bare, query) = match rest.split_once('?') {
        Some((bare, query)) => (bare, format!("?{query}")),
        None => (rest, String::new()),
    };
    match bare.strip_suffix('/') {
        Some(bare) => found.push(("without the slash", format!("{scheme}://{bare}{query}"))),
        None => found.push(("with a slash at its end", format!("{scheme}://{bare}/{query}"))),
    }
    if !query.is_empty() {
        found.push(("without its query", format!("{scheme}://{bare}")));
    }
    let (authority, path) = bare.split_once('/').unwrap_or((bare, ""));
    let slash = if bare.contains('/') { "/" } else { "" };
    match authority.rsplit_once(':') {
        Some((host, _)) => {
            found.push(("without its port", format!("{scheme}://{host}{slash}{path}{query}")));
            found.push(("other scheme, no port", format!("{other}://{host}{slash}{path}{query}")));
        }
        None => found
            .push(("with its port", format!("{scheme}://{authority}:{own}{slash}{path}{query}"))),
    }
    let lower = authority.to_ascii_lowercase();
    found.push(("the host in lower case", format!("{scheme}://{lower}{slash}{path}{query}")));
    found.retain(|(_, variant)| variant != url);
    found
}

/// Other ways to write the signature headers.
fn fields(headers: &Headers) -> Vec<(String, Headers)> {
    let mut found = Vec::new();
    for (name, value) in headers.iter() {
        if !name.contains("signature") && !name.contains("hmac") {
            continue;
        }
        let Ok(text) = std::str::from_utf8(value) else { continue };
        for (what, written) in writings(text.trim()) {
            let mut changed = Headers::default();
            for (other, kept) in headers.iter() {
                changed.push(other, if other == name { written.as_bytes() } else { kept });
            }
            found.push((format!("the header {name} were {what}"), changed));
        }
    }
    found
}

fn writings(text: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let (prefix, bare) = match text.rfind(['=', ',']) {
        // A `=` at the end is padding of base64, not the end of a prefix.
        Some(at) if at.saturating_add(1) < text.len() && !text.ends_with('=') => {
            text.split_at_checked(at.saturating_add(1)).unwrap_or(("", text))
        }
        _ => ("", text),
    };
    if let Ok(bytes) = HEXLOWER_PERMISSIVE.decode(bare.as_bytes()) {
        found.push(("in base64 instead of hex", format!("{prefix}{}", BASE64.encode(&bytes))));
    } else if let Ok(bytes) = BASE64.decode(bare.as_bytes()) {
        found.push(("in hex instead of base64", format!("{prefix}{}", HEXLOWER.encode(&bytes))));
    }
    for begin in ["sha256=", "v0=", "v1=", "v1,"] {
        match text.strip_prefix(begin) {
            Some(rest) => found.push(("without its prefix", rest.to_owned())),
            None => found.push(("with its scheme's prefix", format!("{begin}{bare}"))),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signatures::signing::{Hash, mac};

    const SECRET: &[u8] = b"0123456789abcdef";
    const BODY: &[u8] = br#"{"b":1,"a":"x/y"}"#;

    fn diagnose(
        scheme: &str,
        secret: &[u8],
        header: (&str, String),
        body: &[u8],
        url: &str,
    ) -> String {
        let mut headers = Headers::default();
        headers.push(header.0, header.1.as_bytes());
        let scheme = Scheme::of(scheme).unwrap();
        let case = Case {
            scheme: &scheme,
            secret,
            fetched: None,
            incoming: Incoming { method: "POST", path: "/", url, headers: &headers, body },
            now: Timestamp::from_secs(1_700_000_000),
            tolerance: Duration::from_mins(5),
        };
        let found = case.diagnose();
        if found.refused.is_none() { "valid".to_owned() } else { found.matches_if.join("; ") }
    }

    fn github(secret: &[u8], body: &[u8]) -> (&'static str, String) {
        let signature = HEXLOWER.encode(&mac(Hash::Sha256, secret, &[body]));
        ("x-hub-signature-256", format!("sha256={signature}"))
    }

    #[test]
    fn a_changed_body_is_named() {
        let of = |signed: &[u8]| diagnose("github", SECRET, github(SECRET, signed), BODY, "");
        assert_eq!(of(BODY), "valid");
        assert_eq!(of(b"{\"b\":1,\"a\":\"x/y\"}\n"), "the body were followed by a newline");
        assert!(of(br#"{"b": 1, "a": "x/y"}"#).contains("with a space after"));
        assert!(of(b"{\n  \"b\": 1,\n  \"a\": \"x/y\"\n}").contains("indented by 2"));
        assert!(of(br#"{"a":"x/y","b":1}"#).contains("sorted"));
        assert!(of(br#"{"b":1,"a":"x\/y"}"#).contains("slashes"));
        assert_eq!(of(b"something else"), "");
        let spaced =
            diagnose("github", SECRET, github(SECRET, BODY), b"{\"b\": 1, \"a\": \"x/y\"}", "");
        assert!(spaced.contains("compact"), "{spaced}");
    }

    #[test]
    fn a_wrong_secret_is_named() {
        let newline = diagnose("github", SECRET, github(b"0123456789abcdef\n", BODY), BODY, "");
        assert!(newline.contains("newline at its end"), "{newline}");
        let key = BASE64.decode(b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let secret = b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let decoded = diagnose("github", secret, github(&key, BODY), BODY, "");
        assert!(decoded.contains("base64-decoded"), "{decoded}");
    }

    #[test]
    fn a_url_that_a_proxy_changed_is_named() {
        let sign = |url: &str| {
            let mac = mac(Hash::Sha256, SECRET, &[url.as_bytes(), BODY]);
            ("x-square-hmacsha256-signature", BASE64.encode(&mac))
        };
        let of =
            |signed: &str| diagnose("square", SECRET, sign(signed), BODY, "http://a.example/in/x");
        assert!(of("https://a.example/in/x").contains("a proxy ends TLS"));
        assert!(of("http://a.example/in/x/").contains("with a slash"));
        assert!(of("http://a.example:80/in/x").contains("with its port"));
    }

    #[test]
    fn another_scheme_and_another_encoding_are_named() {
        let bare = HEXLOWER.encode(&mac(Hash::Sha256, SECRET, &[BODY]));
        let unprefixed =
            diagnose("github", SECRET, ("x-hub-signature-256", bare.clone()), BODY, "");
        assert!(unprefixed.contains("prefix"), "{unprefixed}");
        let gitea = diagnose("github", SECRET, ("x-gitea-signature", bare.clone()), BODY, "");
        assert_eq!(gitea, "the scheme were `gitea`");
        let hex = diagnose("shopify", SECRET, ("x-shopify-hmac-sha256", bare), BODY, "");
        assert!(hex.contains("in base64 instead of hex"), "{hex}");
    }
}

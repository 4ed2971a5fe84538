//! `oncebox verify-signature`: checks the signature of a captured request, and explains a mismatch.
//!
//! Works offline, without service or database. Not here: the explanations (`signatures::diagnosis`).

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;

use crate::base::budget::Budget;
use crate::base::clock::{Clock, Timestamp, span};
use crate::base::headers::Headers;
use crate::cli::prelude::*;
use crate::cli::provider::parse_scheme;
use crate::cli::secrets;
use crate::http::content_coding;
use crate::signatures::diagnosis::{Case, Diagnosis};
use crate::signatures::provider::MAX_BODY_BYTES;
use crate::signatures::{Incoming, Refused, kinds};

/// Check the signature of a captured webhook, and explain why it does not match
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0: valid; 1: not valid, with the change that would make it match.\n\
    A request file holds the raw HTTP request, or the output of `curl -v`. The body must be the raw\n\
    bytes: logs often reformat it."
)]
pub(super) struct VerifySignature {
    /// Signature scheme
    #[arg(long, value_name = "SCHEME", value_parser = PossibleValuesParser::new(kinds()))]
    scheme: String,
    /// Settings of the scheme, if it has any: a JSON object, or @file
    #[arg(long, value_name = "JSON")]
    scheme_settings: Option<String>,
    /// File that holds the secret
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// File with the certificate (PEM) that the request names, for PayPal and SNS
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// A header field of the request, like 'X-Hub-Signature-256: sha256=…'; several times
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// File with the request: its head, and its body unless --body is given
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// File with the body
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// The URL that the provider posts to, for schemes whose signature covers it
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// When the request arrived, like 2026-01-31T12:00:00Z or seconds since 1970 [default: now]
    #[arg(long, value_name = "TIME", value_parser = at)]
    at: Option<Timestamp>,
    /// Largest difference between the signed time and --at
    #[arg(long, value_name = "SPAN", default_value = "5min", value_parser = span)]
    tolerance: Duration,
    #[command(flatten)]
    format: Format,
}

fn at(text: &str) -> Result<Timestamp, String> {
    let seconds = text.parse().ok().map(Timestamp::from_secs);
    let wrong = || "write it like 2026-01-31T12:00:00Z, or in seconds since 1970".to_owned();
    seconds.or_else(|| Timestamp::parse(text)).ok_or_else(wrong)
}

/// A captured request.
#[derive(Debug, Default, PartialEq, Eq)]
struct CapturedRequest {
    method: String,
    path: String,
    headers: Headers,
    body: Option<Vec<u8>>,
}

impl VerifySignature {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let (_json, scheme) = parse_scheme(&self.scheme, self.scheme_settings.as_deref())?;
        let secret = match &self.secret_file {
            Some(path) => secrets::one_line(path)?,
            None if scheme.has_secret() => {
                return Err(Failure::usage("give the secret with --secret-file"));
            }
            None => String::new().into(),
        };
        let captured = self.captured()?;
        let body = match (&self.body, captured.body) {
            (Some(path), _) => input::file(path)?,
            (None, Some(body)) => body,
            (None, None) => return Err(Failure::usage("give the body with --body")),
        };
        let certificate = self.certificate.as_deref().map(input::file).transpose()?;
        let host = captured.headers.get("host").unwrap_or_default();
        let url = self.url.clone().unwrap_or_else(|| format!("https://{host}{}", captured.path));
        let case = Case {
            scheme: &scheme,
            secret: secret.as_bytes(),
            fetched: certificate.as_deref(),
            incoming: Incoming {
                method: &captured.method,
                path: &captured.path,
                url: &url,
                headers: &captured.headers,
                body: &body,
            },
            now: self.at.unwrap_or_else(|| Clock::machine().wall()),
            tolerance: self.tolerance,
        };
        let found = case.diagnose();
        // As the service does: over the packed bytes, then over the unpacked ones.
        let unpacked = unpacked(&captured.headers, &body)?;
        if let (Some(_), Some(plain)) = (&found.refused, &unpacked) {
            let case = Case { incoming: Incoming { body: plain, ..case.incoming }, ..case };
            let found = case.diagnose();
            return self.print(&case, found);
        }
        self.print(&case, found)
    }

    fn captured(&self) -> Result<CapturedRequest, Failure> {
        let mut captured = match &self.request {
            Some(path) => {
                let bytes = input::file(path)?;
                read(&bytes).ok_or_else(|| {
                    Failure::input(format!("{} does not begin like a request", path.display())).and(
                        "It should look like: POST /in/stripe HTTP/1.1, then the header fields.",
                    )
                })?
            }
            None => CapturedRequest {
                method: "POST".to_owned(),
                path: "/".to_owned(),
                ..CapturedRequest::default()
            },
        };
        for field in &self.headers {
            let (name, value) = field
                .split_once(':')
                .ok_or_else(|| Failure::usage(format!("--header {field:?} has no colon")))?;
            captured.headers.push(name.trim(), value.trim().as_bytes());
        }
        Ok(captured)
    }

    fn print(&self, case: &Case<'_>, found: Diagnosis) -> Result<(), Failure> {
        let Diagnosis { refused, matches_if, hints } = found;
        let identity = case.scheme.identify(&case.incoming);
        let reason = refused.as_ref().map(|refused| reason(refused, &matches_if));
        if self.format.json {
            out::json(&json!({
                "valid": refused.is_none(), "reason": reason,
                "matches_if": matches_if, "hints": hints,
                "event_id": identity.event_id, "event_type": identity.event_type,
            }))?;
        }
        let Some(reason) = reason else {
            if self.format.json {
                return Ok(());
            }
            let id = identity.event_id;
            let name = identity.event_type;
            return out::line(format_args!("valid: {name} {id}"));
        };
        if !self.format.json {
            for change in &matches_if {
                out::line(format_args!("It matches if {change}."))?;
            }
            if matches_if.is_empty() {
                out::line(format_args!(
                    "No known change makes it match: the secret is another one, or the body was reformatted. \
                     Use the raw bytes."
                ))?;
            }
            for hint in &hints {
                out::line(format_args!("Hint: {hint}."))?;
            }
        }
        Err(Failure::failed(format!("not valid: {reason}")))
    }
}

/// The unpacked body, if the request has a content coding.
fn unpacked(headers: &Headers, body: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let codings = content_coding::codings(headers).map_err(Failure::input)?;
    if codings.is_empty() {
        return Ok(None);
    }
    let most = usize::try_from(MAX_BODY_BYTES).unwrap_or(usize::MAX);
    let budget = Budget::new(most.saturating_mul(8));
    let unpacked = content_coding::unpack(&codings, body, most, &budget);
    unpacked.map(|unpacked| Some(unpacked.body)).map_err(Failure::input)
}

/// Why the request is not valid. Unlike in the service, one secret was checked, and changes that would match are known.
fn reason(refused: &Refused, matches_if: &[String]) -> String {
    match (refused, matches_if) {
        (Refused::Mismatch, []) => {
            "the signature does not match this secret and this body".to_owned()
        }
        (Refused::Mismatch, [change, ..]) => format!("the signature would be right if {change}"),
        (other, _) => other.to_string(),
    }
}

/// Parses a raw HTTP request, or the output of `curl -v`, which has no body.
fn read(bytes: &[u8]) -> Option<CapturedRequest> {
    let text = String::from_utf8_lossy(bytes);
    let sent: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    let by_curl = !sent.is_empty();
    let lines: Vec<&str> = if by_curl {
        sent
    } else {
        text.lines().take_while(|line| !line.trim_end().is_empty()).collect()
    };
    let (first, fields) = lines.split_first()?;
    let mut words = first.split_whitespace();
    let method = words.next()?.to_owned();
    let path = words.next()?.to_owned();
    words.next().filter(|version| version.starts_with("HTTP/"))?;
    let mut captured = CapturedRequest { method, path, ..CapturedRequest::default() };
    for (name, value) in fields.iter().filter_map(|field| field.split_once(':')) {
        captured.headers.push(name.trim(), value.trim().as_bytes());
    }
    if !by_curl {
        let end = [&b"\r\n\r\n"[..], b"\n\n"].into_iter().filter_map(|end| {
            let at = bytes.windows(end.len()).position(|window| window == end)?;
            Some(at.saturating_add(end.len()))
        });
        captured.body = end.min().and_then(|at| bytes.get(at..)).map(<[u8]>::to_vec);
    }
    Some(captured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_body_is_unpacked_as_the_service_does() {
        let packed = b"\x78\x9c\xab\xae\x05\x00\x01\x75\x00\xf9";
        let of = |coding: &str| {
            let mut headers = Headers::default();
            headers.push("Content-Encoding", coding.as_bytes());
            unpacked(&headers, packed)
        };
        assert_eq!(of("deflate").unwrap().as_deref(), Some(&b"{}"[..]));
        assert_eq!(of("identity").unwrap(), None);
        assert!(of("gzip").is_err() && of("exi").is_err());
    }

    #[test]
    fn a_request_is_read_from_the_wire_and_from_curl() {
        let wire =
            read(b"POST /in/x?a=1 HTTP/1.1\r\nHost: a\r\nX-Sig: b c\r\n\r\n{\"a\":\r\n\r\n1}")
                .unwrap();
        assert_eq!((wire.path.as_str(), wire.headers.get("x-sig")), ("/in/x?a=1", Some("b c")));
        assert_eq!(wire.body.as_deref(), Some(&b"{\"a\":\r\n\r\n1}"[..]));
        let curl = read(
            b"* Connected\n> POST /in/x HTTP/1.1\n> Host: a\n> X-Sig: b\n> \n< HTTP/1.1 401\n",
        )
        .unwrap();
        assert_eq!((curl.headers.get("x-sig"), curl.body), (Some("b"), None));
        assert_eq!(read(b"{}"), None);
    }
}

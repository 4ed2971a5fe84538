//! The URL of an HTTP target: which URLs are accepted, and how an event's values are filled in.
//!
//! A host that some programs read as an address and others as a name is refused. URLs stand in lists, logs and attempts
//! in the clear, so none may carry a secret.
//!
//! Not here: which addresses may be called ([`super::address`]), and resolving the host's name.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use percent_encoding::percent_decode_str;

use crate::base::words::as_text;
use crate::model::address::{AddressPolicy, PortRefused, Refused, check_port};

/// The longest template, in bytes.
const MAX_TEXT_BYTES: usize = 2048;
/// The longest filled URL, in bytes: what servers accept by default.
const MAX_FILLED_BYTES: usize = 8000;
/// Source: RFC 1035, section 2.3.4.
const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// The values of an event that a URL can name.
const PLACEHOLDERS: [&str; 5] =
    ["aggregate_id", "aggregate_type", "event_type", "id", "idempotency_key"];
/// The same for messages.
const PLACEHOLDERS_SHOWN: &str =
    "{aggregate_id}, {aggregate_type}, {event_type}, {id}, {idempotency_key}";

/// Names that are secrets as they stand.
const SECRET_NAMES: [&str; 7] =
    ["code", "auth", "authorization", "pwd", "pass", "passwd", "apikey"];
/// Names that end like this, alone or after `_`, `-` or `.`, are secrets.
const SECRET_ENDINGS: [&str; 6] = ["token", "key", "secret", "sig", "signature", "password"];

/// An HTTP or HTTPS URL whose path and query may have placeholders.
///
/// *Shape*: a string. The scheme and host are kept in lower case, an IPv6 address in its short form.
///
/// ```
/// use oncebox::model::target_url::TargetUrl;
/// let target = TargetUrl::parse("https://ERP.example/orders/{aggregate_id}?type={event_type}")?;
/// assert_eq!((target.host(), target.is_https()), ("erp.example", true));
/// let url = target.fill(|name| match name {
///     "aggregate_id" => Some("A/7 ü"),
///     "event_type" => Some("order.paid"),
///     _ => None,
/// })?;
/// assert_eq!(url, "https://erp.example/orders/A%2F7%20%C3%BC?type=order.paid");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    https: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// As in the URL and in the `Host` header.
    authority: String,
    /// Path and query, beginning with a slash.
    rest: Vec<Piece>,
    text: String,
}

impl TargetUrl {
    /// Reads a URL or a template of one.
    ///
    /// Hosts that some programs read as an address and others as a name (`2130706433`, `0177.0.0.1`,
    /// `0x7f.1`, a dot at the end) are refused, so that the host that is checked is the host that is called.
    /// Fails with [`UrlError`], which says what to write instead.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        check_characters(text)?;
        let (https, after_scheme) = split_scheme(text)?;
        let end = after_scheme.find(['/', '?']).unwrap_or(after_scheme.len());
        let (authority, rest) = after_scheme.split_at_checked(end).unwrap_or((after_scheme, ""));
        if authority.contains(['{', '}']) {
            return Err(UrlError::PlaceholderInHost);
        }
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (host, port_text) = split_port(authority)?;
        let (host, shown) = read_host(host)?;
        let port = match port_text {
            Some(text) => read_port(text)?,
            None if https => 443,
            None => 80,
        };
        check_port(port)?;
        let authority = port_text.map_or_else(|| shown.clone(), |_| format!("{shown}:{port}"));
        let slash = if rest.starts_with('/') { "" } else { "/" };
        let rest = format!("{slash}{rest}");
        let pieces = read_template(&rest)?;
        // A value may turn a segment into a dot segment; that is checked when it is filled in.
        if let Some(segment) = dot_segment(&rest) {
            return Err(UrlError::DotSegment(segment));
        }
        let scheme = if https { "https" } else { "http" };
        let text = format!("{scheme}://{authority}{rest}");
        let target = Self { https, host, port, authority, rest: pieces, text };
        target.agrees_with_client().then_some(target).ok_or(UrlError::Client)
    }

    /// Checks `localhost`, and a host that is an address. Other names are checked when they are resolved: see
    /// [`AddressPolicy::check`].
    /// Fails with [`Refused`], which prints the configuration line that allows the address.
    pub fn check(&self, policy: &AddressPolicy) -> Result<(), Refused> {
        if let Some(ip) = self.literal_ip() {
            return policy.check(ip);
        }
        if self.host == "localhost" || self.host.ends_with(".localhost") {
            let v6 = policy.check(Ipv6Addr::LOCALHOST.into());
            return v6.or_else(|_refused| policy.check(Ipv4Addr::LOCALHOST.into()));
        }
        Ok(())
    }

    /// Whether its host is this machine by its name or address, so that it is reached without a network.
    pub fn is_on_this_machine(&self) -> bool {
        let by_name = self.host == "localhost" || self.host.ends_with(".localhost");
        by_name || self.literal_ip().is_some_and(|ip| ip.is_loopback())
    }

    /// The URL for one event. Values are percent-encoded, except for unreserved characters.
    /// Fails with [`FillError::Missing`] if `value` has none for a placeholder, or an empty one in the path;
    /// [`FillError::DotSegment`] if a path segment becomes `.` or `..`; [`FillError::Long`] above 8,000 bytes.
    pub fn fill<'v>(
        &self,
        value: impl Fn(&'static str) -> Option<&'v str>,
    ) -> Result<String, FillError> {
        let mut rest = String::new();
        for piece in &self.rest {
            match piece {
                Piece::Literal(text) => rest.push_str(text),
                Piece::Value(name) => {
                    let in_path = !rest.contains('?');
                    let value = value(name).filter(|value| !(in_path && value.is_empty()));
                    encode(value.ok_or(FillError::Missing(name))?, &mut rest);
                }
            }
        }
        if let Some(segment) = dot_segment(&rest) {
            return Err(FillError::DotSegment(segment));
        }
        let scheme = if self.https { "https" } else { "http" };
        let url = format!("{scheme}://{}{rest}", self.authority);
        if url.len() > MAX_FILLED_BYTES {
            return Err(FillError::Long(url.len()));
        }
        Ok(url)
    }

    /// The URL of a path, which begins with a slash, at this scheme, host and port.
    /// Fails with [`UrlError`] as [`TargetUrl::parse`] does.
    pub fn at(&self, path: &str) -> Result<Self, UrlError> {
        let scheme = if self.https { "https" } else { "http" };
        Self::parse(&format!("{scheme}://{}{path}", self.authority))
    }

    /// The host in lower case: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Host and port as in the `Host` header; the port only if the URL has one.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether an event's values are filled in.
    pub fn has_placeholders(&self) -> bool {
        self.rest.len() > 1
    }

    /// The first parameter of the query that is named like a secret and has a value of its own.
    pub fn secret_in_query(&self) -> Option<String> {
        self.text.split_once('?').and_then(|(_, query)| secret_in_query(query))
    }

    /// The URL, with its placeholders.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The address, if the host is one.
    pub fn literal_ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether the HTTP client's own parser finds the same host and port, so that the checked address is the called
    /// address.
    fn agrees_with_client(&self) -> bool {
        let Ok(sample) = self.fill(|_name| Some("x")) else { return false };
        let Ok(uri) = sample.parse::<http::Uri>() else { return false };
        let host = uri.host().map(|host| host.trim_start_matches('[').trim_end_matches(']'));
        let default = if self.https { 443 } else { 80 };
        host == Some(self.host.as_str())
            && uri.port_u16().unwrap_or(default) == self.port
            && uri.path_and_query().is_some_and(|rest| sample.ends_with(rest.as_str()))
    }
}

as_text!(TargetUrl, text);

/// Allows the characters of RFC 3986 and braces only, because parsers disagree about others.
fn check_characters(text: &str) -> Result<(), UrlError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(UrlError::Long(text.len()));
    }
    let allowed = |letter: char| {
        letter.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%{}".contains(letter)
    };
    if let Some(letter) = text.chars().find(|letter| !allowed(*letter)) {
        return Err(UrlError::Letter(letter));
    }
    if text.contains('#') {
        return Err(UrlError::Fragment);
    }
    let encodes = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if text.split('%').skip(1).all(encodes) { Ok(()) } else { Err(UrlError::Percent) }
}

fn split_scheme(text: &str) -> Result<(bool, &str), UrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
    match scheme.to_ascii_lowercase().as_str() {
        "https" => Ok((true, rest)),
        "http" => Ok((false, rest)),
        _ => Err(UrlError::Scheme),
    }
}

/// A piece of path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Value(&'static str),
}

/// Splits path and query at their placeholders.
fn read_template(rest: &str) -> Result<Vec<Piece>, UrlError> {
    let mut pieces = Vec::new();
    let mut left = rest;
    while let Some((before, after)) = left.split_once('{') {
        let (name, after) = after.split_once('}').ok_or(UrlError::Brace)?;
        let known = PLACEHOLDERS.iter().find(|known| **known == name);
        let Some(known) = known else {
            return Err(UrlError::Unknown(name.to_owned()));
        };
        pieces.push(Piece::Literal(before.to_owned()));
        pieces.push(Piece::Value(known));
        left = after;
    }
    pieces.push(Piece::Literal(left.to_owned()));
    let stray = |piece: &Piece| matches!(piece, Piece::Literal(text) if text.contains('}'));
    if pieces.iter().any(stray) { Err(UrlError::Brace) } else { Ok(pieces) }
}

/// The first segment of the path that is `.` or `..`, also where a dot is written `%2e`.
fn dot_segment(path_and_query: &str) -> Option<String> {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let leads_elsewhere = |segment: &&str| {
        matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
    };
    path.split('/').find(leads_elsewhere).map(str::to_owned)
}

/// Appends a value. It is percent-encoded, except for unreserved characters.
fn encode(value: &str, into: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _written: fmt::Result = write!(into, "%{byte:02X}");
        }
    }
}

/// The host, with brackets if it has them, and the text after the colon.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    let after_address = authority.rfind(']').map_or(0, |at| at + 1);
    let (address, tail) = authority.split_at_checked(after_address).unwrap_or(("", authority));
    match tail.split_once(':') {
        None if address.is_empty() || tail.is_empty() => Ok((authority, None)),
        Some((host, port)) if address.is_empty() => Ok((host, Some(port))),
        Some(("", port)) => Ok((address, Some(port))),
        Some(_) | None => Err(UrlError::Host(authority.to_owned())),
    }
}

/// A port in plain digits.
fn read_port(text: &str) -> Result<u16, UrlError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let port = text.parse().ok().filter(|port: &u16| plain && *port > 0);
    port.ok_or_else(|| UrlError::Port(text.to_owned()))
}

/// The host without brackets, and as written in a URL.
fn read_host(host: &str) -> Result<(String, String), UrlError> {
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let ip: Ipv6Addr = inside.parse().map_err(|_why| UrlError::NotV6(inside.to_owned()))?;
        return Ok((ip.to_string(), format!("[{ip}]")));
    }
    let name = host.to_ascii_lowercase();
    let label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if looks_like_address(&name) {
        // Rust reads four decimal numbers without leading zeros, and nothing else.
        return match name.parse::<Ipv4Addr>() {
            Ok(ip) => Ok((ip.to_string(), ip.to_string())),
            Err(_) => Err(UrlError::OddAddress(name)),
        };
    }
    if name.len() > MAX_HOST_BYTES || !name.split('.').all(label) {
        return Err(UrlError::Host(name));
    }
    Ok((name.clone(), name))
}

/// Whether some program reads this as an address: its last label is a number.
/// Source: WHATWG URL, "ends in a number checker"; `inet_aton` reads the same forms.
fn looks_like_address(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or(name);
    let decimal = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    let hex = last.strip_prefix("0x");
    decimal || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The first parameter that is named like a secret and has a value. One that an event fills in is none.
fn secret_in_query(query: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = pairs
        .filter(|(_, value)| !value.is_empty() && !value.contains('{'))
        .map(|(name, _)| percent_decode_str(name).decode_utf8_lossy().into_owned());
    named.find(|name| is_named_like_a_secret(&name.to_ascii_lowercase()))
}

/// Whether a name in lower case, of a query parameter or a header field, is that of a secret.
pub(crate) fn is_named_like_a_secret(name: &str) -> bool {
    let last = name.rsplit(['_', '-', '.']).next().unwrap_or(name);
    SECRET_NAMES.contains(&name) || SECRET_ENDINGS.contains(&last)
}

/// Why a text is not accepted as a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Too long.
    #[error("the URL has {0} bytes; at most {MAX_TEXT_BYTES} are allowed")]
    Long(usize),
    /// A character that is not allowed in URLs.
    #[error(
        "the URL contains {0:?}, which is not allowed in URLs; write it percent-encoded, or the host in Punycode"
    )]
    Letter(char),
    /// A percent sign that encodes nothing.
    #[error("the URL has a `%` without two hex digits after it; write `%25` for the sign itself")]
    Percent,
    /// Not HTTP.
    #[error("the URL does not begin with `https://` or `http://`")]
    Scheme,
    /// A user name or password.
    #[error(
        "the URL contains a user name or an `@` before its path; leave it out, and give user and password as a credential \
         of the kind basic"
    )]
    UserInfo,
    /// A fragment, which would never be sent.
    #[error("the URL contains a `#`; fragments are not sent, leave it out or write `%23`")]
    Fragment,
    /// No host.
    #[error("the URL names no host")]
    NoHost,
    /// A host that no name service resolves.
    #[error(
        "`{0}` is not a host name; it has labels of letters, digits, `-` and `_`, and no dot at its end"
    )]
    Host(String),
    /// An address in one of the forms that programs read differently.
    #[error("`{0}` is an address in an unusual form; write four decimal numbers, like 192.0.2.1")]
    OddAddress(String),
    /// The text in brackets is not an IPv6 address.
    #[error("`[{0}]` is not an IPv6 address")]
    NotV6(String),
    /// A port that is no number from 1 to 65535.
    #[error("`{0}` is not a port; write a number from 1 to 65535, or nothing")]
    Port(String),
    /// A port of another service.
    #[error(transparent)]
    PortRefused(#[from] PortRefused),
    /// A placeholder where none is allowed.
    #[error(
        "`{{` in the scheme, host or port: an event must not choose which host is called; use placeholders after the host"
    )]
    PlaceholderInHost,
    /// A placeholder that does not exist.
    #[error("`{{{0}}}` is not a placeholder of URLs; there are {PLACEHOLDERS_SHOWN}")]
    Unknown(String),
    /// A brace without its partner.
    #[error("the URL has a brace without its partner; write `%7B` and `%7D` for braces themselves")]
    Brace,
    /// A path with `.` or `..` in it.
    #[error("the path contains the segment `{0}`; write the path that it leads to")]
    DotSegment(String),
    /// Our HTTP client would read it differently.
    #[error("the HTTP client reads this URL differently; write it in a simpler form")]
    Client,
}

/// Why a template could not be filled for one event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// The event has no such value, or an empty one in the path, which would name another resource.
    #[error("the URL needs {{{0}}}, and the event has none")]
    Missing(&'static str),
    /// A path segment became `.` or `..`, which leads to another path.
    #[error("a value makes `{0}` a segment of the URL's path, which leads to another path")]
    DotSegment(String),
    /// The result is too long to be sent.
    #[error("the filled URL has {0} bytes; at most {MAX_FILLED_BYTES} are sent")]
    Long(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_kept_in_one_form() {
        let table = [
            ("https://erp.example", "https://erp.example/", "erp.example", 443),
            (
                "HTTP://ERP.Example:8069/In?x=1",
                "http://erp.example:8069/In?x=1",
                "erp.example",
                8069,
            ),
            ("https://erp.example?x=1", "https://erp.example/?x=1", "erp.example", 443),
            ("http://192.0.2.7/", "http://192.0.2.7/", "192.0.2.7", 80),
            ("https://[2001:DB8:0::1]:8443/", "https://[2001:db8::1]:8443/", "2001:db8::1", 8443),
            ("http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1", 80),
            (
                "http://xn--mnchen-3ya.example/%7Ea",
                "http://xn--mnchen-3ya.example/%7Ea",
                "xn--mnchen-3ya.example",
                80,
            ),
            ("http://erp_1/a//b/?q=%2e./..", "http://erp_1/a//b/?q=%2e./..", "erp_1", 80),
        ];
        for (text, kept, host, port) in table {
            let target = TargetUrl::parse(text).unwrap();
            assert_eq!((target.as_str(), target.host(), target.port), (kept, host, port));
            assert_eq!(TargetUrl::parse(kept).unwrap(), target);
        }
    }

    #[test]
    fn a_wrong_url_is_refused_with_the_reason() {
        let refuse = |text: &str| TargetUrl::parse(text).unwrap_err();
        assert_eq!(refuse("ftp://a/"), UrlError::Scheme);
        assert_eq!(refuse("//a/"), UrlError::Scheme);
        assert_eq!(refuse(""), UrlError::Scheme);
        assert_eq!(refuse("http:///x"), UrlError::NoHost);
        assert_eq!(refuse("http://?x"), UrlError::NoHost);
        assert_eq!(refuse("http://:80/"), UrlError::NoHost);
        assert_eq!(refuse("http://u:p@a/"), UrlError::UserInfo);
        assert_eq!(refuse("http://a@b@c/"), UrlError::UserInfo);
        assert_eq!(refuse("http://a/#x"), UrlError::Fragment);
        assert_eq!(refuse("http://a/ b"), UrlError::Letter(' '));
        assert_eq!(refuse("http://a\\@b/"), UrlError::Letter('\\'));
        assert_eq!(refuse("http://mün/"), UrlError::Letter('ü'));
        assert_eq!(refuse("http://a/\r\nX: y"), UrlError::Letter('\r'));
        assert_eq!(refuse("http://a/%g0"), UrlError::Percent);
        assert_eq!(refuse("http://a/%"), UrlError::Percent);
        assert!(matches!(refuse("http://a:/"), UrlError::Port(..)));
        assert!(matches!(refuse("http://a:080/"), UrlError::Port(..)));
        assert!(matches!(refuse("http://a:65536/"), UrlError::Port(..)));
        assert!(matches!(refuse("http://a:22/"), UrlError::PortRefused(_)));
        assert!(matches!(refuse("http://::1/"), UrlError::Port(..) | UrlError::NoHost));
        assert!(matches!(refuse("http://[::1/"), UrlError::Host(..) | UrlError::Port(..)));
        assert!(matches!(refuse("http://[fe80::1%25eth0]/"), UrlError::NotV6(..)));
        assert!(matches!(refuse("http://[::1]x/"), UrlError::Host(..)));
        assert!(matches!(refuse("http://a%2eb/"), UrlError::Host(..)));
        assert!(matches!(refuse("http://a..b/"), UrlError::Host(..)));
        assert!(matches!(refuse("http://a.example./"), UrlError::Host(..)));
        assert!(matches!(refuse("http://-a/"), UrlError::Host(..)));
        assert!(matches!(refuse("http://a/x/../y"), UrlError::DotSegment(..)));
        assert!(matches!(refuse("http://a/%2E%2e/{id}"), UrlError::DotSegment(..)));
        assert!(matches!(refuse(&format!("http://a/{}", "x".repeat(2048))), UrlError::Long(..)));
    }

    #[test]
    fn addresses_in_odd_forms_are_refused() {
        for host in [
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0X7F.1",
            "0177.0.0.1",
            "127.1",
            "127.0.0.01",
            "127.0.0.1.",
            "256.0.0.1",
            "1.2.3.4.5",
            "0x",
            "foo.0x7f",
            "foo.1",
        ] {
            let refused = TargetUrl::parse(&format!("http://{host}/")).unwrap_err();
            assert!(matches!(refused, UrlError::OddAddress(..)), "{host}: {refused}");
        }
    }

    #[test]
    fn addresses_in_the_url_are_checked() {
        let check = |text: &str, allow: &[&str]| {
            let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
            TargetUrl::parse(text).unwrap().check(&AddressPolicy::new(allow)).is_ok()
        };
        assert!(check("http://erp.example/", &[]) && check("http://8.8.8.8/", &[]));
        for text in ["http://127.0.0.1/", "http://[::ffff:7f00:1]/", "http://LOCALHOST:8069/"] {
            assert!(!check(text, &[]), "{text}");
            assert!(check(text, &["127.0.0.0/8"]), "{text}");
        }
        assert!(!check("http://a.localhost/", &[]) && check("http://a.localhost/", &["::1/128"]));
    }

    #[test]
    fn placeholders_are_allowed_after_the_host_only() {
        let refuse = |text: &str| TargetUrl::parse(text).unwrap_err();
        assert_eq!(refuse("http://{id}/"), UrlError::PlaceholderInHost);
        assert_eq!(refuse("http://a:{id}/"), UrlError::PlaceholderInHost);
        assert_eq!(refuse("http://a/{order}"), UrlError::Unknown("order".to_owned()));
        assert_eq!(refuse("http://a/{id"), UrlError::Brace);
        assert_eq!(refuse("http://a/id}"), UrlError::Brace);
        assert_eq!(refuse("http://a/{{id}}"), UrlError::Unknown("{id".to_owned()));
    }

    #[test]
    fn a_value_stays_in_its_place() {
        let target = TargetUrl::parse("http://a/o/{id}/x?t={event_type}").unwrap();
        let fill = |id: Option<&'static str>, event_type: Option<&'static str>| {
            target.fill(|name| if name == "id" { id } else { event_type })
        };
        assert_eq!(
            fill(Some("a/../b?c#d%"), Some("")).unwrap(),
            "http://a/o/a%2F..%2Fb%3Fc%23d%25/x?t="
        );
        assert_eq!(fill(Some("..."), Some("..")).unwrap(), "http://a/o/.../x?t=..");
        assert_eq!(fill(Some("\r\n"), Some("&")).unwrap(), "http://a/o/%0D%0A/x?t=%26");
        assert_eq!(fill(None, Some("")), Err(FillError::Missing("id")));
        assert_eq!(fill(Some(""), Some("")), Err(FillError::Missing("id")));
        assert_eq!(fill(Some("x"), None), Err(FillError::Missing("event_type")));
        assert_eq!(fill(Some(".."), Some("")), Err(FillError::DotSegment("..".to_owned())));
        let long = "ü".repeat(2000);
        assert!(matches!(target.fill(|_| Some(&long)), Err(FillError::Long(..))));
    }

    #[test]
    fn a_dot_segment_put_together_from_two_values_is_refused() {
        let target = TargetUrl::parse("http://a/{id}{event_type}/x").unwrap();
        assert!(matches!(target.fill(|_| Some(".")), Err(FillError::DotSegment(..))));
        let half = TargetUrl::parse("http://a/%2E{id}").unwrap();
        assert!(matches!(half.fill(|_| Some(".")), Err(FillError::DotSegment(..))));
    }

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
            assert!(secret_in_query(query).is_some(), "{query}");
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
            assert_eq!(secret_in_query(query), None, "{query}");
        }
    }
}

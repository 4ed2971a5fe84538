//! The URL of an HTTP target: which URLs are accepted, and how an event's values are filled in.
//!
//! Not here: which addresses may be called ([`super::address`]), and resolving the host's name.

mod error;
mod host;
mod placeholders;
mod secrets;
mod template;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use error::{MAX_FILLED_BYTES, MAX_TEXT_BYTES};
use host::{read_host, read_port, split_port};
use template::{Piece, dot_segment, encode, read_template};

use crate::model::address::{AddressPolicy, Refused, check_port};

pub use error::{FillError, UrlError};
pub(crate) use secrets::is_secret as is_named_like_a_secret;

/// An HTTP or HTTPS URL whose path and query may have placeholders.
///
/// *Shape*: a string. The scheme and host are kept in lower case, an IPv6 address in its short form.
///
/// ```
/// use oncebox::model::target_url::TargetUrl;
/// let target = TargetUrl::parse("https://ERP.example/orders/{aggregate_id}?type={event_type}")?;
/// assert_eq!((target.host(), target.port(), target.is_https()), ("erp.example", 443, true));
/// let url = target.fill(|name| match name {
///     "aggregate_id" => Some("A/7 ü"),
///     "event_type" => Some("order.paid"),
///     _ => None,
/// })?;
/// assert_eq!(url, "https://erp.example/orders/A%2F7%20%C3%BC?type=order.paid");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
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

    /// The host in lower case: a name, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 443 or 80 if the URL has none.
    pub fn port(&self) -> u16 {
        self.port
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
        self.text.split_once('?').and_then(|(_, query)| secrets::in_query(query))
    }

    /// The URL, with its placeholders.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The address, if the host is one.
    pub fn literal_ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether the HTTP client's own parser finds the same host and port, so that it calls what was checked.
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

impl TryFrom<String> for TargetUrl {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Self, UrlError> {
        Self::parse(&text)
    }
}

impl From<TargetUrl> for String {
    fn from(target: TargetUrl) -> Self {
        target.text
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

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
            assert_eq!((target.as_str(), target.host(), target.port()), (kept, host, port));
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
}

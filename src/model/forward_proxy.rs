//! Which hosts are called through a forward proxy, and which names the proxy may be asked for.
//!
//! A proxy looks names up itself, so the address policy sees no address. Names are checked by lists in its place.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The port of a proxy whose URL names none.
const DEFAULT_PORT: u16 = 80;
/// Endings of names that belong to a site's own network. Source: RFC 6761, RFC 6762, RFC 8375, and what routers and
/// domain controllers use.
const LOCAL_ENDINGS: [&str; 9] =
    ["localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "home.arpa"];

/// A host, as settings name it: a name with all names below it, an address range, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Every host.
    All,
    /// A name, in lower case, and all names below it.
    Domain(String),
    /// The addresses of a network, where a URL has an address in place of a name.
    Network(IpNet),
}

impl HostPattern {
    /// Reads a pattern; `None` if it is none.
    ///
    /// ```
    /// use oncebox::model::forward_proxy::HostPattern;
    /// let pattern = HostPattern::parse(".Example.com").unwrap();
    /// assert!(pattern.fits("erp.example.com") && pattern.fits("example.com"));
    /// assert!(!pattern.fits("notexample.com"));
    /// assert_eq!(HostPattern::parse("a b"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(Self::Network(network));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Network(address.into()));
        }
        let name = text.strip_prefix("*.").or_else(|| text.strip_prefix('.')).unwrap_or(text);
        let is_label = |label: &str| {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !label.is_empty() && label.bytes().all(is_valid)
        };
        name.split('.').all(is_label).then(|| Self::Domain(name.to_ascii_lowercase()))
    }

    /// Whether a host is meant: a name, or an address without brackets.
    pub fn fits(&self, host: &str) -> bool {
        match self {
            Self::All => true,
            Self::Domain(domain) => is_below(host, domain),
            Self::Network(network) => host.parse().is_ok_and(|ip: IpAddr| network.contains(&ip)),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Domain(domain) => f.write_str(domain),
            Self::Network(network) => network.fmt(f),
        }
    }
}

/// Whether a name is `domain` or below it.
fn is_below(name: &str, domain: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    match name.strip_suffix(domain) {
        Some(before) => before.is_empty() || before.ends_with('.'),
        None => false,
    }
}

/// A name that goes past the proxy, with the settings that change this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameRefused {
    /// It looks like one of the site's own network.
    #[error(
        "{0} looks like a name of this network, and the proxy may reach it where nothing else may: if it is to be called \
         without the proxy, add it to delivery.proxy_except, or else to delivery.proxy_allow"
    )]
    Local(String),
    /// It is denied.
    #[error("{0} is denied by delivery.proxy_deny; delivery.proxy_allow makes exceptions")]
    Denied(String),
}

/// A forward proxy and its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardProxy {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Hosts that are called without it.
    pub except: Vec<HostPattern>,
    /// Names that it may be asked for, whatever else holds.
    pub allow: Vec<HostPattern>,
    /// Names that it is not asked for.
    pub deny: Vec<HostPattern>,
}

impl ForwardProxy {
    /// Reads the host and the port of `http://HOST:PORT`. The error says what is wrong and what to do.
    pub fn parse_url(url: &str) -> Result<(String, u16), String> {
        let like = "it must be like http://proxy.example.com:3128";
        let rest = url.strip_prefix("http://").ok_or_else(|| {
            format!("is {url:?}; {like}: the connection to the proxy itself is not encrypted")
        })?;
        let authority = rest.trim_end_matches('/');
        if authority.contains('@') {
            return Err("holds a user; set delivery.proxy_user and proxy_password_file".to_owned());
        }
        let wrong = || format!("is {url:?}; {like}");
        let parsed: http::uri::Authority = authority.parse().map_err(|_why| wrong())?;
        let host = parsed.host().trim_start_matches('[').trim_end_matches(']');
        let has_port = authority.strip_prefix(parsed.host()).is_some_and(|rest| !rest.is_empty());
        match parsed.port_u16() {
            Some(port @ 1..) if !host.is_empty() => Ok((host.to_owned(), port)),
            None if !host.is_empty() && !has_port => Ok((host.to_owned(), DEFAULT_PORT)),
            _ => Err(wrong()),
        }
    }

    /// Whether a host is called through the proxy. An address that is not public is called directly, as the address policy
    /// can judge it, and so is this machine.
    pub fn serves(&self, host: &str) -> bool {
        let is_near = match host.parse() {
            Ok(ip) => super::address::why_not_public(ip).is_some(),
            Err(_) => is_below(host, "localhost"),
        };
        !is_near && !self.except.iter().any(|pattern| pattern.fits(host))
    }

    /// Checks a host that the proxy is to be asked for.
    pub fn check(&self, host: &str) -> Result<(), NameRefused> {
        let fits = |patterns: &[HostPattern]| patterns.iter().any(|pattern| pattern.fits(host));
        if fits(&self.allow) {
            return Ok(());
        }
        if fits(&self.deny) {
            return Err(NameRefused::Denied(host.to_owned()));
        }
        let is_name = host.parse::<IpAddr>().is_err();
        let is_local = !host.trim_end_matches('.').contains('.')
            || LOCAL_ENDINGS.iter().any(|ending| is_below(host, ending));
        if is_name && is_local {
            return Err(NameRefused::Local(host.to_owned()));
        }
        Ok(())
    }
}

impl fmt::Display for ForwardProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<HostPattern> {
        texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_proxy_is_named_by_its_url() {
        for (url, host, port) in [
            ("http://proxy.example.com:3128", "proxy.example.com", 3128),
            ("http://10.0.0.1:8080/", "10.0.0.1", 8080),
            ("http://[fd00::1]:3128", "fd00::1", 3128),
            ("http://proxy", "proxy", 80),
        ] {
            assert_eq!(ForwardProxy::parse_url(url), Ok((host.to_owned(), port)), "{url}");
        }
        for (url, why) in [
            ("https://proxy:3128", "not encrypted"),
            ("socks5://proxy", "it must be like"),
            ("proxy:3128", "it must be like"),
            ("http://", "it must be like"),
            ("http://proxy:0", "it must be like"),
            ("http://proxy:99999", "it must be like"),
            ("http://proxy/path", "it must be like"),
            ("http://user:s3cret@proxy:3128", "proxy_user"),
        ] {
            let error = ForwardProxy::parse_url(url).unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn hosts_of_the_site_and_exceptions_are_called_directly() {
        let except = patterns(&["example.org", "203.0.113.0/24", "2001:db8::7"]);
        let proxy = ForwardProxy { except, ..ForwardProxy::default() };
        for host in ["hooks.example.com", "example.com", "8.8.8.8", "erp", "notexample.org"] {
            assert!(proxy.serves(host), "{host}");
        }
        for host in
            ["localhost", "127.0.0.1", "10.1.2.3", "::1", "fd00::1", "a.EXAMPLE.org", "203.0.113.9"]
        {
            assert!(!proxy.serves(host), "{host}");
        }
        let nothing = ForwardProxy { except: patterns(&["*"]), ..ForwardProxy::default() };
        assert!(!nothing.serves("hooks.example.com"));
    }

    #[test]
    fn names_that_the_proxy_resolves_are_checked_by_lists() {
        let proxy = ForwardProxy {
            allow: patterns(&["erp.corp", "good.example.com"]),
            deny: patterns(&["example.com", "9.9.9.0/24"]),
            ..ForwardProxy::default()
        };
        for host in ["hooks.example.org", "erp.corp", "a.erp.corp", "good.example.com", "8.8.8.8"] {
            assert_eq!(proxy.check(host), Ok(()), "{host}");
        }
        for host in ["erp", "erp.", "vault.internal", "router.LAN", "nas.local", "x.home.arpa"] {
            assert_eq!(proxy.check(host), Err(NameRefused::Local(host.to_owned())), "{host}");
        }
        for host in ["example.com", "bad.example.com", "9.9.9.9"] {
            assert_eq!(proxy.check(host), Err(NameRefused::Denied(host.to_owned())), "{host}");
        }
        let closed = ForwardProxy { deny: patterns(&["*"]), ..ForwardProxy::default() };
        assert!(closed.check("hooks.example.org").is_err());
    }

    #[test]
    fn a_pattern_is_a_name_a_range_or_all() {
        for text in ["", ".", "a..b", "a b", "http://x", "x:80", "*.", "10.0.0.0/33"] {
            assert_eq!(HostPattern::parse(text), None, "{text:?}");
        }
        assert_eq!(HostPattern::parse("*.Example.com").unwrap().to_string(), "example.com");
        assert_eq!(HostPattern::parse("10.0.0.7").unwrap().to_string(), "10.0.0.7/32");
    }
}

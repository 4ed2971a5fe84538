//! Finds the client of a request that came through proxies.
//!
//! Anybody can write a header field, so only entries that a trusted proxy appended count. The list is read from the
//! right: the first address that is not a trusted proxy is the client.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use crate::base::headers::Headers;

/// Fewest characters of an accepted request id: fewer would not tell requests apart.
const MIN_ID_CHARS: usize = 8;
/// Most characters of an accepted request id, because it goes into every line of the log.
const MAX_ID_CHARS: usize = 128;

/// The trusted proxies.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<IpNet>);

impl Proxies {
    /// Trusts the proxies in these networks.
    pub const fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// Whether an address is a trusted proxy's.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The address of the client, as far as it is known.
    ///
    /// A proxy sets `X-Forwarded-For` or `Forwarded` and passes the other one on as the client wrote it. Which one it
    /// sets is not known here, so if both are present and differ, neither counts: the request is the proxy's own.
    pub fn client(&self, peer: SocketAddr, headers: &Headers) -> IpAddr {
        let peer = peer.ip().to_canonical();
        if self.0.is_empty() || !self.trusts(peer) {
            return peer;
        }
        let walk = |hops: Vec<Option<IpAddr>>| (!hops.is_empty()).then(|| self.walk(peer, hops));
        let plain = walk(headers.values("x-forwarded-for").flat_map(plain_hops).collect());
        let named = walk(headers.values("forwarded").flat_map(named_hops).collect());
        match (plain, named) {
            (Some(plain), Some(named)) if plain != named => peer,
            (plain, named) => plain.or(named).unwrap_or(peer),
        }
    }

    /// The request id that a trusted proxy set, if it is safe for the log.
    pub fn request_id<'a>(&self, peer: SocketAddr, headers: &'a Headers) -> Option<&'a str> {
        if self.0.is_empty() || !self.trusts(peer.ip()) {
            return None;
        }
        let mut all = headers.values("x-request-id");
        let first = all.next();
        let second = all.next();
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(&byte);
        first.filter(|id| {
            second.is_none()
                && (MIN_ID_CHARS..=MAX_ID_CHARS).contains(&id.len())
                && id.bytes().all(known)
        })
    }

    /// Goes back from the last hop while each hop was reported by a trusted proxy.
    fn walk(&self, peer: IpAddr, hops: Vec<Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for hop in hops.into_iter().rev() {
            let Some(address) = hop.filter(|_| self.trusts(client)) else { break };
            client = address;
        }
        client
    }
}

/// The hops of one `X-Forwarded-For` line; `None` for an entry that is not an address.
fn plain_hops(line: &str) -> impl Iterator<Item = Option<IpAddr>> {
    line.split(',').map(|hop| address(hop.trim()))
}

/// The hops of one `Forwarded` line (RFC 7239). An element without `for` is a hop too.
fn named_hops(line: &str) -> Vec<Option<IpAddr>> {
    unquoted(line, ',').into_iter().map(element).collect()
}

fn element(text: &str) -> Option<IpAddr> {
    let pairs = unquoted(text, ';');
    let mut nodes = pairs.into_iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then(|| value.trim())
    });
    let node = nodes.next()?;
    let bare = node.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(node);
    // No proxy writes two of them.
    address(bare).filter(|_| nodes.next().is_none())
}

/// Splits a text at separators outside quoted strings.
fn unquoted(text: &str, separator: char) -> Vec<&str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => (),
        }
        c == separator && !quoted
    })
    .collect()
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address = text.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

/// The address that a client is counted by: for IPv6 the /64, because a host usually has all of it.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.1:4000";

    fn proxies() -> Proxies {
        Proxies::new(vec!["10.0.0.0/8".parse().unwrap(), "2001:db8:1::/48".parse().unwrap()])
    }

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in fields {
            headers.push(name, value.as_bytes());
        }
        headers
    }

    #[track_caller]
    fn client(peer: &str, fields: &[(&str, &str)], wanted: &str) {
        let found = proxies().client(peer.parse().unwrap(), &headers(fields));
        assert_eq!(found.to_string(), wanted, "{peer} {fields:?}");
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        client("203.0.113.9:1", &[("X-Forwarded-For", "1.2.3.4")], "203.0.113.9");
        client("203.0.113.9:1", &[("Forwarded", "for=1.2.3.4")], "203.0.113.9");
        client(PROXY, &[("X-Forwarded-For", "198.51.100.7")], "198.51.100.7");
        client("[::ffff:10.0.0.1]:1", &[("X-Forwarded-For", "198.51.100.7")], "198.51.100.7");
        client(PROXY, &[], "10.0.0.1");
        let nobody = Proxies::default();
        let fields = headers(&[("X-Forwarded-For", "1.2.3.4")]);
        assert_eq!(nobody.client(PROXY.parse().unwrap(), &fields).to_string(), "10.0.0.1");
    }

    #[test]
    fn what_the_client_wrote_itself_is_behind_what_the_proxy_appended() {
        client(PROXY, &[("X-Forwarded-For", "127.0.0.1, 198.51.100.7")], "198.51.100.7");
        client(PROXY, &[("X-Forwarded-For", "10.9.9.9, 198.51.100.7, 10.0.0.2")], "198.51.100.7");
        let lines = [("X-Forwarded-For", "1.1.1.1"), ("X-Forwarded-For", "198.51.100.7")];
        client(PROXY, &lines, "198.51.100.7");
        client(PROXY, &[("X-Forwarded-For", "10.0.0.3, 10.0.0.2")], "10.0.0.3");
    }

    #[test]
    fn what_is_no_address_ends_the_walk() {
        for garbage in
            ["unknown", "", "1.2.3", "evil\u{1b}[31m", "1.2.3.4, ", "for=1.2.3.4", "::1]"]
        {
            client(PROXY, &[("X-Forwarded-For", garbage)], "10.0.0.1");
        }
        client(PROXY, &[("X-Forwarded-For", "1.2.3.4, unknown, 10.0.0.2")], "10.0.0.2");
    }

    #[test]
    fn addresses_are_read_in_every_form_proxies_write_them() {
        for (written, wanted) in [
            ("192.0.2.1:8080", "192.0.2.1"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("[2001:db8::7]:443", "2001:db8::7"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            client(PROXY, &[("X-Forwarded-For", written)], wanted);
            client(PROXY, &[("Forwarded", &format!("for=\"{written}\""))], wanted);
        }
        client("[2001:db8:1::1]:1", &[("X-Forwarded-For", "2001:db8::7")], "2001:db8::7");
    }

    #[test]
    fn the_standard_field_is_read_with_its_quotes() {
        client(PROXY, &[("Forwarded", "For=192.0.2.60;proto=http;by=203.0.113.43")], "192.0.2.60");
        client(PROXY, &[("Forwarded", "for=1.1.1.1, for=192.0.2.60")], "192.0.2.60");
        client(PROXY, &[("Forwarded", "for=192.0.2.60;host=\"a, for=1.1.1.1\"")], "192.0.2.60");
        client(PROXY, &[("Forwarded", "for=_hidden")], "10.0.0.1");
        client(PROXY, &[("Forwarded", "proto=http")], "10.0.0.1");
        client(PROXY, &[("Forwarded", "for=1.1.1.1;for=2.2.2.2")], "10.0.0.1");
    }

    #[test]
    fn two_fields_that_do_not_agree_are_both_doubted() {
        let spoofed = [("X-Forwarded-For", "198.51.100.7"), ("Forwarded", "for=1.2.3.4")];
        client(PROXY, &spoofed, "10.0.0.1");
        let agreed = [("X-Forwarded-For", "198.51.100.7"), ("Forwarded", "for=198.51.100.7")];
        client(PROXY, &agreed, "198.51.100.7");
    }

    #[test]
    fn a_request_id_is_taken_over_from_a_trusted_proxy_if_it_can_stand_in_a_log() {
        let take = |peer: &str, fields: &[(&str, &str)]| {
            let fields = headers(fields);
            proxies().request_id(peer.parse().unwrap(), &fields).map(str::to_owned)
        };
        let sane = "Root=1-67891233-abcdef012345678912345678";
        assert_eq!(take(PROXY, &[("X-Request-Id", sane)]).as_deref(), Some(sane));
        assert_eq!(take("203.0.113.9:1", &[("X-Request-Id", sane)]), None);
        let long = "a".repeat(129);
        for odd in ["short", &long, "with a space", "line\u{7f}feed", "quote\"quote"] {
            assert_eq!(take(PROXY, &[("X-Request-Id", odd)]), None, "{odd:?}");
        }
        assert_eq!(take(PROXY, &[("X-Request-Id", sane), ("X-Request-Id", sane)]), None);
    }

    fn of(text: &str) -> IpAddr {
        client_network(text.parse().unwrap())
    }

    #[test]
    fn a_network_of_ipv6_addresses_counts_as_one() {
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}

//! What the text of `oncebox support` leaves out: secrets, mail addresses, public addresses, paths of URLs, names of homes.
//!
//! The text goes to somebody outside. Of two mistakes, hiding too much is the better one.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use crate::model::address::why_not_public;
use crate::telemetry::redact::redact;

const MAIL: &str = "[mail]";
const PUBLIC: &str = "[public address]";
const PATH: &str = "/[path]";
const HOME: &str = "/home/[user]";

/// The text without what names a person or opens a door.
///
/// Secrets are known by their form. Names that people here have chosen stay: of subscriptions, providers, tenants, sources
/// and hosts.
pub(super) fn redacted(text: &str) -> String {
    let text = redact(text);
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_between) {
        let word = piece.trim_end_matches(is_between);
        out.push_str(&redacted_word(word));
        out.push_str(piece.strip_prefix(word).unwrap_or_default());
    }
    out
}

fn is_between(c: char) -> bool {
    c.is_whitespace() || "\"'`<>(){},;=".contains(c)
}

fn redacted_word(word: &str) -> Cow<'_, str> {
    if let Some((scheme, rest)) = word.split_once("://") {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = if is_public(host) { PUBLIC } else { host };
        let path = if path.is_empty() { "" } else { PATH };
        return format!("{scheme}://{host}{path}").into();
    }
    if word.contains('@') {
        return MAIL.into();
    }
    if is_public(word) {
        return PUBLIC.into();
    }
    if let Some(rest) = word.strip_prefix("/home/") {
        let below = rest.split_once('/').map_or("", |(_, below)| below);
        let slash = if below.is_empty() { "" } else { "/" };
        return format!("{HOME}{slash}{below}").into();
    }
    word.into()
}

/// Whether it is an address of the Internet: alone, with a port, or with the length of its network.
fn is_public(word: &str) -> bool {
    let address = word.trim_end_matches(['.', ':']).trim_matches(['[', ']']);
    let address = address.split_once('/').map_or(address, |(address, _)| address);
    let ip = address.parse::<IpAddr>().ok();
    let ip = ip.or_else(|| word.parse::<SocketAddr>().ok().map(|address| address.ip()));
    ip.is_some_and(|ip| why_not_public(ip).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_person_or_opens_a_door_is_left_out() {
        for (text, without) in [
            (
                "url = https://hooks.slack.com/services/T0/B0/x?y=1",
                "url = https://hooks.slack.com/[path]",
            ),
            ("https://anna:pw@erp.example:8443", "https://erp.example:8443"),
            (
                "http://8.8.8.8/a and https://[2606:4700::1]:443",
                "http://[public address]/[path] and https://[public address]",
            ),
            ("to \"anna.berg@shop.example\", then", "to \"[mail]\", then"),
            ("peer=8.8.4.4:5123 net=8.8.0.0/16", "peer=[public address] net=[public address]"),
            ("token obx_abcdefgh whsec_AAAA", "token obx_[redacted] whsec_[redacted]"),
            (
                "in /home/anna/erp.toml:3 and /home/otto",
                "in /home/[user]/erp.toml:3 and /home/[user]",
            ),
        ] {
            assert_eq!(redacted(text), without);
        }
    }

    #[test]
    fn the_rest_stays_as_it_is() {
        for text in [
            "http://10.1.2.3:8710",
            "127.0.0.1:8710, [::1]:8710, 0.0.0.0 and ::",
            "version 0.1.0\nSQLite    3.51.3",
            "12:45:00.123Z  oncebox_events{subscription=\"erp\"} 17",
            "/var/lib/oncebox/oncebox.db",
            "",
        ] {
            assert_eq!(redacted(text), text);
        }
    }
}

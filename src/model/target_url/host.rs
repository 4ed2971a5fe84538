//! Host and port of a URL. A host that some programs read as an address and others as a name is refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::model::target_url::error::UrlError;

/// Source: RFC 1035, section 2.3.4.
const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// The host, with brackets if it has them, and the text after the colon.
pub(super) fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
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
pub(super) fn read_port(text: &str) -> Result<u16, UrlError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let port = text.parse().ok().filter(|port: &u16| plain && *port > 0);
    port.ok_or_else(|| UrlError::Port(text.to_owned()))
}

/// The host without brackets, and as written in a URL.
pub(super) fn read_host(host: &str) -> Result<(String, String), UrlError> {
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

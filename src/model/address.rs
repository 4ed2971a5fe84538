//! Which addresses and ports may be called. This prevents server-side request forgery (SSRF) into our own network.
//!
//! Not here: reading URLs ([`super::target_url`]), and resolving names. A name is checked each time it is resolved,
//! address by address, because DNS answers change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::base::words::words;

words! {
    /// Why an address is only called if the allow list contains it.
    pub enum Reason {
        /// The machine itself.
        Loopback = "a loopback address",
        /// A private network. Source: RFC 1918.
        Private = "a private address",
        /// The local network segment. Source: RFC 3927, RFC 4291.
        LinkLocal = "a link-local address",
        /// A cloud's metadata service, which hands out credentials.
        Metadata = "a cloud's metadata address",
        /// Carrier-grade NAT. Source: RFC 6598.
        CarrierNat = "a carrier-grade NAT address",
        /// A private IPv6 network. Source: RFC 4193, and RFC 3879 for its predecessor.
        UniqueLocal = "a unique local address",
        /// A group of machines.
        Multicast = "a multicast address",
        /// Every machine of the local network segment.
        Broadcast = "the broadcast address",
        /// The unspecified address; many systems route it to the machine itself.
        Unspecified = "an unspecified address",
        /// For examples in documents.
        Documentation = "an address for documentation",
        /// For benchmarks in a laboratory.
        Benchmarking = "an address for benchmarking",
        /// Reserved by IANA; not routed on the Internet.
        Reserved = "a reserved address",
        /// An IPv4 address written as IPv6: `::ffff:…` or one of its older forms.
        Mapped = "an IPv4 address written as IPv6",
        /// IPv4 behind a NAT64 translator. Source: RFC 6052, RFC 8215.
        Nat64 = "an IPv4 address behind NAT64",
        /// IPv4 behind a 6to4 or Teredo tunnel. Source: RFC 3056, RFC 4380.
        Tunnel = "an IPv4 address behind a tunnel",
    }
}

/// A refused address, with the reason and the configuration line that allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ip} is {reason}; to allow it add to oncebox.toml: [delivery] allow = [\"{entry}\"]")]
pub struct Refused {
    /// The address.
    pub ip: IpAddr,
    /// Why it is refused.
    pub reason: Reason,
    /// The narrowest allow-list entry that permits it.
    pub entry: IpNet,
}

/// IPv4 ranges that are not public. The first range that contains an address gives the reason.
/// Source: IANA's IPv4 special-purpose registry; metadata addresses from the clouds' own pages.
const RANGES_V4: [(Ipv4Addr, u8, Reason); 23] = [
    (Ipv4Addr::new(169, 254, 169, 254), 32, Reason::Metadata),
    // ECS tasks, Alibaba, Oracle and Azure's wire server; the last lies in a public range.
    (Ipv4Addr::new(169, 254, 170, 2), 32, Reason::Metadata),
    (Ipv4Addr::new(100, 100, 100, 200), 32, Reason::Metadata),
    (Ipv4Addr::new(192, 0, 0, 192), 32, Reason::Metadata),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Reason::Metadata),
    (Ipv4Addr::UNSPECIFIED, 32, Reason::Unspecified),
    (Ipv4Addr::BROADCAST, 32, Reason::Broadcast),
    (Ipv4Addr::UNSPECIFIED, 8, Reason::Reserved),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Reason::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Reason::CarrierNat),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Reason::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Reason::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Reason::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Reason::Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Reason::Documentation),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Reason::Tunnel),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Reason::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Reason::Benchmarking),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Reason::Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Reason::Documentation),
    (Ipv4Addr::new(233, 252, 0, 0), 24, Reason::Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Reason::Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Reason::Reserved),
];

const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// IPv6 ranges that are not public. The first range that contains an address gives the reason. Addresses outside
/// `2000::/3` are never public, even if no range contains them. Source: IANA's IPv6 special-purpose registry.
const RANGES_V6: [(Ipv6Addr, u8, Reason); 22] = [
    // Amazon's and Google's.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, Reason::Metadata),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Reason::Metadata),
    (Ipv6Addr::UNSPECIFIED, 128, Reason::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Reason::Loopback),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Reason::Mapped),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, Reason::Mapped),
    (Ipv6Addr::UNSPECIFIED, 96, Reason::Mapped),
    (NAT64, 96, Reason::Nat64),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Reason::Nat64),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Reason::Tunnel),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, Reason::Benchmarking),
    // A few addresses of this block are global, for anycast and other network services. No webhook goes there.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Reason::Reserved),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Reason::Documentation),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Reason::Tunnel),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, Reason::Reserved),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Reason::Documentation),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Reason::UniqueLocal),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Reason::LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Reason::UniqueLocal),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Reason::Multicast),
    (Ipv6Addr::UNSPECIFIED, 3, Reason::Reserved),
    (Ipv6Addr::new(0x4000, 0, 0, 0, 0, 0, 0, 0), 2, Reason::Reserved),
];

/// Which addresses may be called: public ones, and those on the allow list.
///
/// ```
/// use oncebox::model::address::AddressPolicy;
/// let policy = AddressPolicy::new(vec!["10.0.0.0/8".parse()?]);
/// assert!(policy.check("10.1.2.3".parse()?).is_ok());
/// let refused = policy.check("127.0.0.1".parse()?).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "127.0.0.1 is a loopback address; to allow it add to oncebox.toml: \
///      [delivery] allow = [\"127.0.0.1/32\"]"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    allow: Vec<IpNet>,
}

impl AddressPolicy {
    /// Public addresses, and those inside one of these networks.
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow }
    }

    /// All addresses: for what the settings file names.
    pub fn everything() -> Self {
        Self { allow: vec![Ipv4Net::default().into(), Ipv6Net::default().into()] }
    }

    /// Whether this address may be called.
    ///
    /// An IPv6 address that embeds an IPv4 address (mapped, NAT64, 6to4) is allowed by an entry for the IPv4 address.
    /// An entry for an IPv6 range, such as `64:ff9b::/96` for a site behind NAT64, allows only those that embed a
    /// public IPv4 address.
    /// Fails with [`Refused`], which prints the configuration line that allows it.
    pub fn check(&self, ip: IpAddr) -> Result<(), Refused> {
        let Some(reason) = why_not_public(ip) else { return Ok(()) };
        let inner = embedded_v4(ip).map(IpAddr::V4);
        let listed = self.allow.iter().any(|net| net.contains(&ip));
        let Some(inner) = inner else {
            return if listed { Ok(()) } else { Err(Refused { ip, reason, entry: ip.into() }) };
        };
        let listed_exactly = self.allow.contains(&IpNet::from(ip));
        if listed_exactly || self.allow.iter().any(|net| net.contains(&inner)) {
            return Ok(());
        }
        match (why_not_public(inner), listed) {
            (Some(reason), _) => Err(Refused { ip, reason, entry: inner.into() }),
            (None, true) => Ok(()),
            (None, false) => Err(Refused { ip, reason, entry: entry_for_embedded(ip, inner) }),
        }
    }
}

/// The entry that allows an IPv6 address with a public IPv4 address inside. A site behind NAT64 needs the whole range.
fn entry_for_embedded(ip: IpAddr, inner: IpAddr) -> IpNet {
    match Ipv6Net::new(NAT64, 96) {
        Ok(net) if IpNet::V6(net).contains(&ip) => IpNet::V6(net),
        Ok(_) | Err(_) => inner.into(),
    }
}

/// Why an address is not public; `None` for a public one.
pub fn why_not_public(ip: IpAddr) -> Option<Reason> {
    match ip {
        IpAddr::V4(ip) => {
            let inside = |(net, bits, _): &&(Ipv4Addr, u8, Reason)| {
                let shift = 32_u32.saturating_sub(u32::from(*bits));
                ip.to_bits().checked_shr(shift) == net.to_bits().checked_shr(shift)
            };
            RANGES_V4.iter().find(inside).map(|(_, _, reason)| *reason)
        }
        IpAddr::V6(ip) => {
            let inside = |(net, bits, _): &&(Ipv6Addr, u8, Reason)| {
                let shift = 128_u32.saturating_sub(u32::from(*bits));
                ip.to_bits().checked_shr(shift) == net.to_bits().checked_shr(shift)
            };
            let listed = RANGES_V6.iter().find(inside).map(|(_, _, reason)| *reason);
            let global = ip.to_bits() >> 125 == 1;
            listed.or(if global { None } else { Some(Reason::Reserved) })
        }
    }
}

/// The IPv4 address that is embedded in an IPv6 address, if there is one.
fn embedded_v4(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return None };
    let [a, b, c, d, e, f, g, h] = ip.segments();
    match [a, b, c, d, e, f] {
        // `::` and `::1` are addresses of their own, not 0.0.0.0 and 0.0.0.1.
        [0, 0, 0, 0, 0, 0] if g == 0 => None,
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            Some(v4(g, h))
        }
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low))
}

/// A refused port, and the service that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "port {port} belongs to {service}, which a webhook must not reach; have the endpoint listen on another port"
)]
pub struct PortRefused {
    /// The port.
    pub port: u16,
    /// The service that uses it.
    pub service: &'static str,
}

/// Ports of services that could read an HTTP request as commands, or that obey any caller. Ports of ordinary
/// applications are not listed, even if HTTP is unusual there.
const PORTS: [(u16, &str); 76] = [
    (0, "nothing"),
    (1, "tcpmux"),
    (7, "echo"),
    (9, "discard"),
    (13, "daytime"),
    (17, "quote of the day"),
    (19, "chargen"),
    (20, "FTP data"),
    (21, "FTP"),
    (22, "SSH"),
    (23, "Telnet"),
    (25, "SMTP"),
    (37, "time"),
    (43, "whois"),
    (53, "DNS"),
    (69, "TFTP"),
    (79, "finger"),
    (110, "POP3"),
    (111, "RPC portmapper"),
    (113, "ident"),
    (119, "NNTP"),
    (123, "NTP"),
    (135, "Windows RPC"),
    (137, "NetBIOS"),
    (138, "NetBIOS"),
    (139, "NetBIOS"),
    (143, "IMAP"),
    (161, "SNMP"),
    (162, "SNMP traps"),
    (179, "BGP"),
    (389, "LDAP"),
    (427, "SLP"),
    (445, "SMB"),
    (465, "SMTP over TLS"),
    (512, "rexec"),
    (513, "rlogin"),
    (514, "syslog and rsh"),
    (515, "printers"),
    (548, "AFP"),
    (554, "RTSP"),
    (587, "mail submission"),
    (636, "LDAP over TLS"),
    (873, "rsync"),
    (989, "FTP over TLS"),
    (990, "FTP over TLS"),
    (993, "IMAP over TLS"),
    (995, "POP3 over TLS"),
    (1433, "SQL Server"),
    (1434, "SQL Server browser"),
    (1521, "Oracle"),
    (1723, "PPTP"),
    (1883, "MQTT"),
    (2049, "NFS"),
    (2375, "the Docker daemon"),
    (2376, "the Docker daemon"),
    (3306, "MySQL and MariaDB"),
    (3389, "remote desktop"),
    (3659, "Apple SASL"),
    (4369, "the Erlang port mapper"),
    (5060, "SIP"),
    (5061, "SIP over TLS"),
    (5432, "PostgreSQL"),
    (5671, "AMQP over TLS"),
    (5672, "AMQP"),
    (5900, "VNC"),
    (6000, "X11"),
    (6379, "Redis"),
    (6667, "IRC"),
    (6697, "IRC over TLS"),
    (8883, "MQTT over TLS"),
    (9042, "Cassandra"),
    (9092, "Kafka"),
    (11211, "memcached"),
    (27017, "MongoDB"),
    (27018, "MongoDB"),
    (27019, "MongoDB"),
];

/// Checks that webhooks may be sent to this port.
/// Fails with [`PortRefused`], which names the service.
///
/// ```
/// use oncebox::model::address::check_port;
/// assert!(check_port(8069).is_ok());
/// assert_eq!(check_port(6379).unwrap_err().service, "Redis");
/// ```
pub fn check_port(port: u16) -> Result<(), PortRefused> {
    match PORTS.iter().find(|(known, _)| *known == port) {
        Some((_, service)) => Err(PortRefused { port, service }),
        None => Ok(()),
    }
}

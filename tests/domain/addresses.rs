//! The address guard against a table: each range at its borders and just outside.

use std::net::IpAddr;

use oncebox::model::address::{AddressPolicy, Reason, check_port};
use oncebox::model::target_url::TargetUrl;

const PUBLIC: [&str; 38] = [
    "1.0.0.0",
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.1.255",
    "192.0.3.0",
    "192.88.98.255",
    "192.88.100.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "198.51.99.255",
    "198.51.101.0",
    "203.0.112.255",
    "203.0.114.0",
    "223.255.255.255",
    "2000::",
    "2001:200::1",
    "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db9::",
    "2003::",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "3ffd:ffff::1",
];

const REFUSED: [(&str, Reason); 92] = [
    ("0.0.0.0", Reason::Unspecified),
    ("0.0.0.1", Reason::Reserved),
    ("0.255.255.255", Reason::Reserved),
    ("10.0.0.0", Reason::Private),
    ("10.255.255.255", Reason::Private),
    ("100.64.0.0", Reason::CarrierNat),
    ("100.127.255.255", Reason::CarrierNat),
    ("100.100.100.200", Reason::Metadata),
    ("127.0.0.0", Reason::Loopback),
    ("127.0.0.1", Reason::Loopback),
    ("127.255.255.255", Reason::Loopback),
    ("168.63.129.16", Reason::Metadata),
    ("169.254.0.0", Reason::LinkLocal),
    ("169.254.169.253", Reason::LinkLocal),
    ("169.254.169.254", Reason::Metadata),
    ("169.254.170.2", Reason::Metadata),
    ("169.254.255.255", Reason::LinkLocal),
    ("172.16.0.0", Reason::Private),
    ("172.31.255.255", Reason::Private),
    ("192.0.0.0", Reason::Reserved),
    ("192.0.0.192", Reason::Metadata),
    ("192.0.0.255", Reason::Reserved),
    ("192.0.2.0", Reason::Documentation),
    ("192.0.2.255", Reason::Documentation),
    ("192.88.99.0", Reason::Tunnel),
    ("192.88.99.255", Reason::Tunnel),
    ("192.168.0.0", Reason::Private),
    ("192.168.255.255", Reason::Private),
    ("198.18.0.0", Reason::Benchmarking),
    ("198.19.255.255", Reason::Benchmarking),
    ("198.51.100.0", Reason::Documentation),
    ("198.51.100.255", Reason::Documentation),
    ("203.0.113.0", Reason::Documentation),
    ("203.0.113.255", Reason::Documentation),
    ("224.0.0.0", Reason::Multicast),
    ("233.252.0.1", Reason::Documentation),
    ("239.255.255.255", Reason::Multicast),
    ("240.0.0.0", Reason::Reserved),
    ("255.255.255.254", Reason::Reserved),
    ("255.255.255.255", Reason::Broadcast),
    ("::", Reason::Unspecified),
    ("::1", Reason::Loopback),
    ("::2", Reason::Mapped),
    ("::8.8.8.8", Reason::Mapped),
    ("::127.0.0.1", Reason::Loopback),
    ("::10.1.2.3", Reason::Private),
    ("::ffff:0.0.0.0", Reason::Unspecified),
    ("::ffff:8.8.8.8", Reason::Mapped),
    ("::ffff:10.1.2.3", Reason::Private),
    ("::ffff:127.0.0.1", Reason::Loopback),
    ("::ffff:169.254.169.254", Reason::Metadata),
    ("::ffff:0:10.1.2.3", Reason::Private),
    ("::ffff:0:8.8.8.8", Reason::Mapped),
    ("::1:0:0", Reason::Reserved),
    ("64:ff9b::8.8.8.8", Reason::Nat64),
    ("64:ff9b::10.1.2.3", Reason::Private),
    ("64:ff9b::169.254.169.254", Reason::Metadata),
    ("64:ff9b::1:0:0", Reason::Reserved),
    ("64:ff9b:1::", Reason::Nat64),
    ("64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Reason::Nat64),
    ("64:ff9b:2::", Reason::Reserved),
    ("100::1", Reason::Reserved),
    ("200::1", Reason::Reserved),
    ("1fff:ffff::1", Reason::Reserved),
    ("2001::", Reason::Tunnel),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Reason::Tunnel),
    ("2001:1::1", Reason::Reserved),
    ("2001:2::1", Reason::Benchmarking),
    ("2001:2:1::1", Reason::Reserved),
    ("2001:20::1", Reason::Reserved),
    ("2001:1ff::1", Reason::Reserved),
    ("2001:db8::", Reason::Documentation),
    ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Reason::Documentation),
    ("2002:0a01:0203::1", Reason::Private),
    ("2002:7f00:1::", Reason::Loopback),
    ("2002:808:808::1", Reason::Tunnel),
    ("3ffe::1", Reason::Reserved),
    ("3fff::1", Reason::Documentation),
    ("4000::1", Reason::Reserved),
    ("5f00::1", Reason::Reserved),
    ("8000::1", Reason::Reserved),
    ("fbff:ffff::1", Reason::Reserved),
    ("fc00::", Reason::UniqueLocal),
    ("fd00:ec2::254", Reason::Metadata),
    ("fd00:ec2::253", Reason::UniqueLocal),
    ("fd20:ce::254", Reason::Metadata),
    ("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reason::UniqueLocal),
    ("fe80::1", Reason::LinkLocal),
    ("febf:ffff::1", Reason::LinkLocal),
    ("fec0::1", Reason::UniqueLocal),
    ("ff00::", Reason::Multicast),
    ("ff02::1", Reason::Multicast),
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn policy(allow: &[&str]) -> AddressPolicy {
    AddressPolicy::new(allow.iter().map(|net| net.parse().unwrap()).collect())
}

#[test]
fn public_addresses_may_be_called() {
    for text in PUBLIC {
        assert_eq!(policy(&[]).check(ip(text)), Ok(()), "{text}");
    }
}

#[test]
fn every_other_address_is_refused_with_its_reason() {
    for (text, reason) in REFUSED {
        let refused = policy(&[]).check(ip(text)).expect_err(text);
        assert_eq!(refused.reason, reason, "{text}");
    }
}

#[test]
fn the_line_that_a_refusal_prints_lets_the_address_pass() {
    for (text, _) in REFUSED {
        let refused = policy(&[]).check(ip(text)).expect_err(text);
        let entry = refused.entry.to_string();
        assert!(refused.to_string().ends_with(&format!("[delivery] allow = [\"{entry}\"]")));
        assert_eq!(policy(&[&entry]).check(ip(text)), Ok(()), "{text} with {entry}");
    }
}

#[test]
fn an_entry_for_an_ipv4_network_allows_it_in_every_form() {
    let policy = policy(&["10.0.0.0/8"]);
    for text in
        ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "2002:a01:203::1", "::10.1.2.3"]
    {
        assert_eq!(policy.check(ip(text)), Ok(()), "{text}");
    }
    for text in ["11.0.0.1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "64:ff9b::8.8.8.8"] {
        assert_eq!(policy.check(ip(text)).is_ok(), text == "11.0.0.1", "{text}");
    }
}

#[test]
fn an_entry_for_nat64_opens_no_private_network_behind_it() {
    let policy = policy(&["64:ff9b::/96"]);
    assert_eq!(policy.check(ip("64:ff9b::8.8.8.8")), Ok(()));
    let refused = policy.check(ip("64:ff9b::a01:203")).unwrap_err();
    assert_eq!(
        (refused.reason, refused.entry.to_string()),
        (Reason::Private, "10.1.2.3/32".into())
    );
    let everything = self::policy(&["::/0"]);
    assert!(everything.check(ip("::ffff:169.254.169.254")).is_err());
    assert_eq!(everything.check(ip("fd00::1")), Ok(()));
}

#[test]
fn a_refusal_says_what_to_do() {
    let refused = policy(&[]).check(ip("10.1.2.3")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "10.1.2.3 is a private address; to allow it add to oncebox.toml: \
         [delivery] allow = [\"10.1.2.3/32\"]"
    );
}

#[test]
fn ports_of_other_services_are_refused_with_the_service() {
    for port in [22, 23, 25, 53, 110, 135, 139, 389, 445, 1433, 3306, 5432, 6379, 11211, 27017] {
        let refused = check_port(port).unwrap_err().to_string();
        assert!(refused.contains(&format!("port {port} belongs to ")), "{refused}");
        assert!(TargetUrl::parse(&format!("http://erp.example:{port}/")).is_err());
    }
    for port in [80, 443, 3000, 5000, 8000, 8069, 8080, 8443, 9200, 50000, 65535] {
        assert_eq!(check_port(port), Ok(()));
    }
}

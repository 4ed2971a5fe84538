//! How much of something is too much: occurrences counted per key within a fixed span.
//!
//! Nobody is locked out here. What is beyond the measure is answered or logged otherwise; who decides
//! that also decides what is counted.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// How much is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Occurrences of one key in a span that are within the measure.
    pub most: u32,
    /// How long a key's occurrences are counted together, from the first one.
    pub span: Duration,
    /// Keys remembered at most. Beyond, the one counted longest is forgotten and begins anew.
    pub keys_most: usize,
}

/// What an occurrence came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the measure.
    Within,
    /// The first beyond it in this span, which ends so much later.
    Reached(Duration),
    /// Further ones beyond it.
    Beyond(Duration),
}

/// The counts.
#[derive(Debug)]
pub struct Throttle<K> {
    measure: Measure,
    counts: HashMap<K, Count>,
    /// Every counted key once, the longest counted first.
    order: VecDeque<K>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    since: Duration,
    seen: u32,
}

impl<K: Clone + Eq + Hash> Throttle<K> {
    /// Nothing counted yet.
    pub fn new(measure: Measure) -> Self {
        Self { measure, counts: HashMap::new(), order: VecDeque::new() }
    }

    /// Counts one occurrence, at a time that never goes back.
    pub fn count(&mut self, key: K, now: Duration) -> Verdict {
        self.forget_what_is_over(now);
        let Measure { most, span, keys_most } = self.measure;
        if let Some(count) = self.counts.get_mut(&key) {
            count.seen = count.seen.saturating_add(1);
            let left = count.since.saturating_add(span).saturating_sub(now);
            return match count.seen.checked_sub(most) {
                None | Some(0) => Verdict::Within,
                Some(1) => Verdict::Reached(left),
                Some(_) => Verdict::Beyond(left),
            };
        }
        if self.order.len() >= keys_most
            && let Some(longest) = self.order.pop_front()
        {
            self.counts.remove(&longest);
        }
        self.counts.insert(key.clone(), Count { since: now, seen: 1 });
        self.order.push_back(key);
        if most == 0 { Verdict::Reached(span) } else { Verdict::Within }
    }

    /// Keys remembered.
    #[cfg(test)]
    pub fn keys(&self) -> usize {
        self.order.len()
    }

    /// All spans are equally long, so the longest counted ends first.
    fn forget_what_is_over(&mut self, now: Duration) {
        while let Some(key) = self.order.front() {
            let since = self.counts.get(key).map(|count| count.since);
            if since.is_some_and(|since| now.saturating_sub(since) < self.measure.span) {
                break;
            }
            self.counts.remove(key);
            self.order.pop_front();
        }
    }
}

/// What counts as one client: an IPv4 address, or the /64 network of an IPv6 address, because a client can use every
/// address of its network.
pub fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURE: Measure = Measure { most: 2, span: Duration::from_mins(1), keys_most: 3 };

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn what_is_beyond_the_measure_is_told_until_the_span_is_over() {
        let mut throttle = Throttle::new(MEASURE);
        for (at, verdict) in [
            (0, Verdict::Within),
            (10, Verdict::Within),
            (20, Verdict::Reached(secs(40))),
            (21, Verdict::Beyond(secs(39))),
            (59, Verdict::Beyond(secs(1))),
            (60, Verdict::Within),
            (61, Verdict::Within),
            (62, Verdict::Reached(secs(58))),
        ] {
            assert_eq!(throttle.count("a", secs(at)), verdict, "at {at} s");
        }
    }

    #[test]
    fn keys_are_counted_apart() {
        let mut throttle = Throttle::new(MEASURE);
        for _ in 0..5 {
            throttle.count("a", secs(0));
        }
        assert_eq!(throttle.count("b", secs(0)), Verdict::Within);
    }

    #[test]
    fn no_more_keys_are_remembered_than_allowed() {
        let mut throttle = Throttle::new(MEASURE);
        for key in 0..1000 {
            throttle.count(key, secs(key / 100));
            assert!(throttle.keys() <= 3 && throttle.counts.len() == throttle.keys());
        }
        assert_eq!(throttle.count(999, secs(9)), Verdict::Within);
        assert_eq!(throttle.count(999, secs(9)), Verdict::Reached(secs(60)));
        throttle.count(7, secs(100));
        assert_eq!(throttle.keys(), 1, "what is over is forgotten");
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let of = |text: &str| client(text.parse().unwrap());
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}

//! Counts occurrences per key within a time span, and tells whether they are within a limit.
//!
//! Not here: what is counted, and what happens beyond the limit. The caller decides that.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Most occurrences of one key in a span.
    pub max: u32,
    /// How long a key's occurrences are counted together, from the first one.
    pub span: Duration,
    /// Most keys that are counted at once. If there are more, the oldest one is forgotten.
    pub max_keys: usize,
}

/// Whether an occurrence is within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleVerdict {
    /// Within the limit.
    Within,
    /// The first one beyond the limit in this span, and how long the span still lasts.
    Reached(Duration),
    /// Another one beyond the limit, and how long the span still lasts.
    Beyond(Duration),
}

/// The counts.
#[derive(Debug)]
pub struct Throttle<K> {
    limit: Limit,
    counts: HashMap<K, Count>,
    /// Every counted key once, the oldest first.
    order: VecDeque<K>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    since: Duration,
    seen: u32,
}

impl<K: Clone + Eq + Hash> Throttle<K> {
    /// Nothing counted yet.
    pub fn new(limit: Limit) -> Self {
        Self { limit, counts: HashMap::new(), order: VecDeque::new() }
    }

    /// Counts one occurrence. `now` must never go back.
    pub fn count(&mut self, key: K, now: Duration) -> ThrottleVerdict {
        self.forget_ended(now);
        let Limit { max, span, max_keys } = self.limit;
        if let Some(count) = self.counts.get_mut(&key) {
            count.seen = count.seen.saturating_add(1);
            let left = count.since.saturating_add(span).saturating_sub(now);
            return match count.seen.checked_sub(max) {
                None | Some(0) => ThrottleVerdict::Within,
                Some(1) => ThrottleVerdict::Reached(left),
                Some(_) => ThrottleVerdict::Beyond(left),
            };
        }
        if self.order.len() >= max_keys
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.counts.insert(key.clone(), Count { since: now, seen: 1 });
        self.order.push_back(key);
        if max == 0 { ThrottleVerdict::Reached(span) } else { ThrottleVerdict::Within }
    }

    /// How long a key still has to wait; `None` if another occurrence is within the limit. Counts nothing.
    pub fn blocked(&mut self, key: &K, now: Duration) -> Option<Duration> {
        self.forget_ended(now);
        let count = self.counts.get(key).filter(|count| count.seen >= self.limit.max)?;
        Some(count.since.saturating_add(self.limit.span).saturating_sub(now))
    }

    /// The number of counted keys.
    #[cfg(test)]
    pub fn keys(&self) -> usize {
        self.order.len()
    }

    /// Forgets keys whose span has ended. All spans are equally long, so the oldest ends first.
    fn forget_ended(&mut self, now: Duration) {
        while let Some(key) = self.order.front() {
            let since = self.counts.get(key).map(|count| count.since);
            if since.is_some_and(|since| now.saturating_sub(since) < self.limit.span) {
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

    const LIMIT: Limit = Limit { max: 2, span: Duration::from_mins(1), max_keys: 3 };

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn beyond_the_limit_the_rest_of_the_span_is_returned() {
        let mut throttle = Throttle::new(LIMIT);
        for (at, verdict) in [
            (0, ThrottleVerdict::Within),
            (10, ThrottleVerdict::Within),
            (20, ThrottleVerdict::Reached(secs(40))),
            (21, ThrottleVerdict::Beyond(secs(39))),
            (59, ThrottleVerdict::Beyond(secs(1))),
            (60, ThrottleVerdict::Within),
            (61, ThrottleVerdict::Within),
            (62, ThrottleVerdict::Reached(secs(58))),
        ] {
            assert_eq!(throttle.count("a", secs(at)), verdict, "at {at} s");
        }
    }

    #[test]
    fn keys_are_counted_separately() {
        let mut throttle = Throttle::new(LIMIT);
        for _ in 0..5 {
            throttle.count("a", secs(0));
        }
        assert_eq!(throttle.count("b", secs(0)), ThrottleVerdict::Within);
    }

    #[test]
    fn no_more_keys_are_counted_than_allowed() {
        let mut throttle = Throttle::new(LIMIT);
        for key in 0..1000 {
            throttle.count(key, secs(key / 100));
            assert!(throttle.keys() <= 3 && throttle.counts.len() == throttle.keys());
        }
        assert_eq!(throttle.count(999, secs(9)), ThrottleVerdict::Within);
        assert_eq!(throttle.count(999, secs(9)), ThrottleVerdict::Reached(secs(60)));
        throttle.count(7, secs(100));
        assert_eq!(throttle.keys(), 1, "ended spans are forgotten");
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

//! The rate limit of a subscription, and when its next request may start.

use crate::base::clock::Timestamp;

/// The most requests per time span, like `10/s`, `60/min` or `5000/h`.
///
/// ```
/// use oncebox::model::rate::Rate;
/// assert_eq!(Rate::parse("60/min"), Rate::parse("1/s"));
/// assert!(Rate::parse("0/s").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Microseconds from one request to the next.
    interval_us: i64,
    /// How many may start at once: the requests of one second.
    burst: i64,
}

impl Rate {
    /// Parses a rate; the error says what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "rate is {text:?}; it is 1 to 100000 per s, min or h, like \"10/s\" or \"60/min\""
            )
        };
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let unit_us: i64 = match unit {
            "s" => 1_000_000,
            "min" => 60_000_000,
            "h" => 3_600_000_000,
            _ => return Err(wrong()),
        };
        let count: i64 =
            count.parse().ok().filter(|n| (1..=100_000).contains(n)).ok_or_else(wrong)?;
        Ok(Self { interval_us: unit_us / count, burst: (count * 1_000_000 / unit_us).max(1) })
    }
}

/// A token bucket for the requests of one second. At the start it has one token.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// When the bucket would be full again, in microseconds.
    full_at_us: i64,
}

impl Bucket {
    /// When the next request may start, at the earliest.
    pub fn next_at(self, rate: Rate) -> Timestamp {
        let room = rate.interval_us * (rate.burst - 1);
        let at_us = self.full_at_us - room;
        Timestamp::from_ms(at_us.div_euclid(1000) + i64::from(at_us.rem_euclid(1000) > 0))
    }

    /// Takes one token.
    pub fn take(&mut self, rate: Rate, now: Timestamp) {
        let now_us = now.ms().saturating_mul(1000);
        // The first time the bucket holds one token.
        if self.full_at_us == 0 {
            self.full_at_us = now_us + rate.interval_us * (rate.burst - 1);
        }
        self.full_at_us = self.full_at_us.max(now_us) + rate.interval_us;
    }

    /// Puts back a token whose request was not sent.
    pub fn give_back(&mut self, rate: Rate) {
        self.full_at_us = self.full_at_us.saturating_sub(rate.interval_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_has_more_than_the_rate_and_one_burst() {
        let rate = Rate::parse("10/s").unwrap();
        let mut bucket = Bucket::default();
        let mut started = Vec::new();
        for ms in 1_000_000..1_005_000 {
            let now = Timestamp::from_ms(ms);
            while bucket.next_at(rate) <= now {
                bucket.take(rate, now);
                started.push(ms);
            }
        }
        assert!((48..=51).contains(&started.len()), "{}", started.len());
        for from in &started {
            let in_window = started.iter().filter(|at| (*from..from + 1000).contains(*at)).count();
            assert!(in_window <= 20, "{in_window}");
        }
        // After a minute without requests, those of one second may start at once.
        let later = Timestamp::from_ms(1_065_000);
        let mut burst = 0;
        while bucket.next_at(rate) <= later {
            bucket.take(rate, later);
            burst += 1;
        }
        assert_eq!(burst, 10);
    }

    #[test]
    fn an_invalid_rate_is_refused_with_an_example() {
        for text in ["", "10", "10/d", "x/s", "-1/s", "100001/s", "1.5/s"] {
            assert!(Rate::parse(text).unwrap_err().contains("60/min"), "{text}");
        }
    }
}

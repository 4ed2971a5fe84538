//! Waits, as properties over all schedules and headers.

use std::time::Duration;

use oncebox::base::clock::Timestamp;
use oncebox::base::id::Draw;
use oncebox::base::id::{DeliverySeq, SubscriptionSeq};
use oncebox::model::attempt::{Attempt, AttemptReport};
use oncebox::model::delivery::{Jitter, Schedule, retry_after};
use oncebox::model::failure::{Next, RetryFacts, judge};
use oncebox::model::outcome::AttemptClass;
use oncebox::model::retry_rules::RetryRules;
use proptest::prelude::*;

/// Draws the same eight bytes again and again.
struct Fixed(u64);

impl Draw for Fixed {
    fn fill(&self, into: &mut [u8]) {
        for (to, from) in into.iter_mut().zip(self.0.to_le_bytes().iter().cycle()) {
            *to = *from;
        }
    }
}

const DAY: Duration = Duration::from_hours(24);

fn schedule() -> impl Strategy<Value = Schedule> {
    (prop::collection::vec(100_u64..604_800_000, 1..=50), 1_u32..=1000).prop_map(|(steps, max)| {
        Schedule::new(steps.into_iter().map(Duration::from_millis).collect(), max).unwrap()
    })
}

proptest! {
    #[test]
    fn jitter_adds_up_to_a_tenth_and_takes_nothing_off(ms in 0_u64..10_000_000_000, drawn: u64) {
        let base = Duration::from_millis(ms);
        let wait = Jitter::new(&Fixed(drawn)).lengthen(base);
        prop_assert!(base <= wait && wait <= base + base / 10 + Duration::from_millis(1));
    }

    #[test]
    fn jitter_survives_any_span(secs: u64, drawn: u64) {
        let base = Duration::from_secs(secs);
        prop_assert!(Jitter::new(&Fixed(drawn)).lengthen(base) >= base);
    }

    #[test]
    fn the_next_wait_is_never_shorter_than_step_or_header(
        schedule in schedule(), failures in 0_u32..998, drawn: u64,
        asked in prop::option::of(0_u64..90_000),
    ) {
        let asked = asked.map(Duration::from_secs);
        let schedule = schedule.with_max_attempts(1000).unwrap();
        let step = schedule.wait_after(failures + 1);
        let attempt = Attempt {
            class: AttemptClass::Transient,
            failed_reason: Some("no".to_owned()),
            http_status: Some(404),
            ..Attempt::default()
        };
        let now = Timestamp::from_secs(0);
        let report = AttemptReport {
            retry_after: asked,
            rules: RetryRules { schedule, ..RetryRules::default() },
            jitter: Jitter::new(&Fixed(drawn)),
            ..AttemptReport::new(DeliverySeq(1), SubscriptionSeq(1), 1, attempt, now)
        };
        let facts = RetryFacts { counted_failures: failures, ..RetryFacts::default() };
        let verdict = judge(&report, &facts);
        let Next::Retry(wait) = verdict.next else { panic!("{verdict:?}") };
        prop_assert!(wait >= step && wait >= asked.unwrap_or_default());
        prop_assert!(wait <= (step + step / 10 + Duration::from_millis(1)).max(asked.unwrap_or_default()));
    }

    #[test]
    fn a_schedule_is_the_same_after_being_stored(schedule in schedule()) {
        let stored = serde_json::to_string(&schedule).unwrap();
        prop_assert_eq!(serde_json::from_str::<Schedule>(&stored).unwrap(), schedule);
    }

    #[test]
    fn a_delivery_is_given_up_once_and_for_all(schedule in schedule(), failures in 0_u32..2000) {
        prop_assert_eq!(schedule.gives_up(failures), failures >= schedule.max_attempts());
    }

    #[test]
    fn seconds_are_taken_up_to_a_day(secs: u64) {
        let wait = retry_after(&secs.to_string(), Timestamp::from_secs(0));
        prop_assert_eq!(wait, Some(Duration::from_secs(secs).min(DAY)));
    }

    #[test]
    fn a_date_asks_for_what_lies_between_it_and_now(at in 0_i64..4_000_000_000, now in 0_i64..4_000_000_000) {
        let shown = imf_fixdate(at);
        let wait = retry_after(&shown, Timestamp::from_secs(now)).unwrap();
        let between = u64::try_from((at - now).clamp(0, 86_400)).unwrap();
        prop_assert_eq!(wait, Duration::from_secs(between), "{}", shown);
    }

    #[test]
    fn no_header_breaks_anything(text in ".*", now: i64) {
        if let Some(wait) = retry_after(&text, Timestamp::from_ms(now)) {
            prop_assert!(wait <= DAY);
        }
    }
}

/// An IMF-fixdate, built from the RFC 3339 form so as not to test a calendar with itself.
fn imf_fixdate(secs: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = Timestamp::from_secs(secs).to_string();
    let (date, time) = text.split_once('T').unwrap();
    let [year, month, day] = date.split('-').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let month = MONTHS[month.parse::<usize>().unwrap() - 1];
    let (time, _milliseconds) = time.split_once('.').unwrap();
    format!("Mon, {day} {month} {year} {time} GMT")
}

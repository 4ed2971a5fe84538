//! What is asked for, input by input.

use std::time::Duration;

use super::*;

const SUB: SubscriptionSeq = SubscriptionSeq(1);

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn machine(deliverers: usize, cap: u32) -> Machine {
    let mut machine = Machine::new(deliverers);
    let out = machine.step(
        at(0),
        In::SubscriptionChanged { subscription: SUB, cap, hard: false, callable: true },
    );
    assert_eq!(fetches(&out), [SUB]);
    machine
}

fn fetched(rows: std::ops::Range<i64>) -> In {
    let rows = rows.map(|seq| (DeliverySeq(seq), None)).collect();
    In::Fetched { subscription: SUB, rows, more: false, next_due: None }
}

fn fetches(out: &[Out]) -> Vec<SubscriptionSeq> {
    out.iter()
        .filter_map(|o| match o {
            Out::Fetch { subscription, .. } => Some(*subscription),
            Out::Start { .. } | Out::Drained => None,
        })
        .collect()
}

fn starts(out: &[Out]) -> Vec<i64> {
    out.iter()
        .filter_map(|o| match o {
            Out::Start { delivery, .. } => Some(delivery.0),
            Out::Fetch { .. } | Out::Drained => None,
        })
        .collect()
}

fn settled(delivery: i64, next_due: Option<Timestamp>) -> In {
    In::Settled { delivery: DeliverySeq(delivery), subscription: SUB, next_due }
}

#[test]
fn no_more_are_started_than_the_cap() {
    let mut machine = machine(64, 3);
    assert_eq!(starts(&machine.step(at(0), fetched(1..10))), [1, 2, 3]);
    let finished = In::Finished { subscription: SUB, latency: Duration::from_secs(2) };
    assert_eq!(starts(&machine.step(at(0), finished)), [4]);
}

#[test]
fn a_fast_subscription_may_exceed_its_cap_while_half_the_deliverers_are_idle() {
    let mut machine = machine(8, 1);
    assert_eq!(starts(&machine.step(at(0), fetched(1..20))), [1]);
    let finished = In::Finished { subscription: SUB, latency: Duration::from_millis(5) };
    assert_eq!(starts(&machine.step(at(0), finished)), [2, 3, 4, 5]);
}

#[test]
fn a_cap_that_was_asked_for_holds_however_fast_the_target_is() {
    let mut machine = machine(8, 1);
    machine.step(
        at(0),
        In::SubscriptionChanged { subscription: SUB, cap: 1, hard: true, callable: true },
    );
    assert_eq!(starts(&machine.step(at(0), fetched(1..20))), [1]);
    let finished = In::Finished { subscription: SUB, latency: Duration::from_millis(5) };
    assert_eq!(starts(&machine.step(at(0), finished)), [2]);
}

#[test]
fn a_delivery_that_is_finished_but_not_settled_is_not_sent_again() {
    let mut machine = machine(64, 8);
    assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [1]);
    machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
    machine.step(at(0), In::Rang(SUB));
    assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [0_i64; 0]);
    machine.step(at(0), settled(1, None));
    machine.step(at(0), In::Rang(SUB));
    assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [1]);
}

#[test]
fn a_retry_is_looked_for_when_it_is_due() {
    let mut machine = machine(64, 8);
    machine.step(at(0), fetched(1..2));
    machine.step(at(0), settled(1, Some(at(5))));
    assert_eq!(machine.sleep_until(), Some(at(5)));
    assert_eq!(fetches(&machine.step(at(4), In::Tick)), [SubscriptionSeq(0); 0]);
    assert_eq!(fetches(&machine.step(at(5), In::Tick)), [SUB]);
}

#[test]
fn a_held_subscription_starts_nothing_and_lets_go_of_its_window() {
    let mut machine = machine(64, 1);
    machine.step(at(0), fetched(1..5));
    machine.step(
        at(0),
        In::SubscriptionChanged { subscription: SUB, cap: 1, hard: false, callable: false },
    );
    assert_eq!(machine.in_hand(), 1, "only the one in flight stays in hand");
    let out = machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
    assert_eq!(out, []);
}

#[test]
fn turns_go_round_so_that_one_subscription_does_not_starve_another() {
    let mut machine = machine(2, 8);
    let other = SubscriptionSeq(2);
    machine.step(
        at(0),
        In::SubscriptionChanged { subscription: other, cap: 8, hard: false, callable: true },
    );
    machine.step(at(0), fetched(1..50));
    let rows = (100..150).map(|seq| (DeliverySeq(seq), None)).collect();
    let out =
        machine.step(at(0), In::Fetched { subscription: other, rows, more: false, next_due: None });
    assert_eq!(starts(&out), [100]);
    let finished = In::Finished { subscription: SUB, latency: Duration::from_millis(5) };
    assert_eq!(starts(&machine.step(at(0), finished)), [2]);
}

#[test]
fn half_of_the_deliverers_are_kept_for_the_first_request_of_each() {
    let mut machine = machine(8, 8);
    assert_eq!(starts(&machine.step(at(0), fetched(1..50))), [1, 2, 3, 4]);
    let other = SubscriptionSeq(2);
    machine.step(
        at(0),
        In::SubscriptionChanged { subscription: other, cap: 8, hard: false, callable: true },
    );
    let rows = (100..150).map(|seq| (DeliverySeq(seq), None)).collect();
    let fetched = In::Fetched { subscription: other, rows, more: false, next_due: None };
    assert_eq!(starts(&machine.step(at(0), fetched)), [100]);
}

#[test]
fn a_stop_is_drained_when_the_last_attempt_is_settled() {
    let mut machine = machine(64, 8);
    machine.step(at(0), fetched(1..2));
    assert_eq!(machine.step(at(0), In::Stop), []);
    assert_eq!(
        machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO }),
        []
    );
    assert_eq!(machine.step(at(0), settled(1, None)), [Out::Drained]);
}

#[test]
fn a_lane_in_hand_is_refused_until_its_delivery_is_settled() {
    let mut machine = machine(4, 4);
    let fetched = |seq| In::Fetched {
        subscription: SUB,
        rows: vec![(DeliverySeq(seq), Some(7))],
        more: false,
        next_due: None,
    };
    let started = |out: &[Out], seq| {
        out.contains(&Out::Start { delivery: DeliverySeq(seq), subscription: SUB })
    };
    assert!(started(&machine.step(at(0), fetched(1)), 1));
    machine.step(at(0), In::Rang(SUB));
    // An earlier one has come, and is the head now.
    assert!(!started(&machine.step(at(0), fetched(2)), 2));
    machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
    let settled = In::Settled { delivery: DeliverySeq(1), subscription: SUB, next_due: None };
    assert_eq!(fetches(&machine.step(at(0), settled)), [SUB]);
    assert!(started(&machine.step(at(0), fetched(2)), 2));
}

fn put_off(delivery: i64, until: Timestamp, whole: bool) -> In {
    In::PutOff { delivery: DeliverySeq(delivery), subscription: SUB, until, whole }
}

#[test]
fn a_delivery_that_is_put_off_is_not_started_again_before_its_time() {
    let mut machine = machine(4, 4);
    // It is unordered, and there are more than fit into a window: it is looked at again and again.
    let more = |rows: std::ops::Range<i64>| match fetched(rows) {
        In::Fetched { subscription, rows, next_due, .. } => {
            In::Fetched { subscription, rows, more: true, next_due }
        }
        other => other,
    };
    assert_eq!(starts(&machine.step(at(0), more(1..2))), [1]);
    machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
    machine.step(at(0), put_off(1, at(30), false));
    assert_eq!(starts(&machine.step(at(0), more(1..3))), [2], "others are not held up");
    assert_eq!(machine.sleep_until(), Some(at(30)));
    machine.step(at(30), In::Tick);
    assert_eq!(starts(&machine.step(at(30), more(1..2))), [1]);
}

#[test]
fn a_subscription_that_is_put_off_is_not_read_before_its_time_however_much_is_due() {
    let mut machine = machine(2, 4);
    assert_eq!(starts(&machine.step(at(0), fetched(1..50))), [1]);
    machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
    let out = machine.step(at(0), put_off(1, at(30), true));
    assert_eq!(out, []);
    assert_eq!(machine.step(at(0), In::Rang(SUB)), []);
    machine.step(at(1), In::Finished { subscription: SUB, latency: Duration::ZERO });
    assert_eq!(machine.step(at(1), put_off(2, at(31), true)), []);
    assert_eq!(machine.step(at(29), In::Tick), []);
    assert_eq!(fetches(&machine.step(at(30), In::Tick)), [SUB]);
    assert_eq!(starts(&machine.step(at(30), fetched(1..50))), [1]);
}

#[test]
fn what_is_put_off_is_looked_at_when_its_subscription_is_changed_and_keeps_no_stop_waiting() {
    let mut machine = machine(4, 4);
    machine.step(at(0), fetched(1..2));
    machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
    machine.step(at(0), put_off(1, at(30), false));
    let changed = In::SubscriptionChanged { subscription: SUB, cap: 9, hard: true, callable: true };
    assert_eq!(fetches(&machine.step(at(1), changed)), [SUB]);
    machine.step(at(1), fetched(1..2));
    machine.step(at(1), In::Finished { subscription: SUB, latency: Duration::ZERO });
    machine.step(at(1), put_off(1, at(31), false));
    assert_eq!(machine.step(at(2), In::Stop), [Out::Drained]);
}

#[test]
fn a_lane_that_is_let_go_of_before_its_time_is_looked_at_then_and_not_at_once() {
    let (mut machine, lane) = (machine(4, 4), Some(7));
    let rows = vec![(DeliverySeq(1), lane)];
    machine.step(at(0), In::Fetched { subscription: SUB, rows, more: false, next_due: None });
    machine.step(at(0), In::Finished { subscription: SUB, latency: Duration::ZERO });
    // Its secret does not open: nothing came of it, and it is still due by its row.
    let later = Some(at(30));
    let let_go = In::Settled { delivery: DeliverySeq(1), subscription: SUB, next_due: later };
    assert!(fetches(&machine.step(at(0), let_go)).is_empty());
    assert!(fetches(&machine.step(at(29), In::Tick)).is_empty());
    assert_eq!(fetches(&machine.step(at(30), In::Tick)), [SUB]);
}

//! The machine's commands, input by input.

use std::time::Duration;

use super::*;

const SUB: SubscriptionSeq = SubscriptionSeq(1);

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn changed(subscription: SubscriptionSeq, cap: u32, hard: bool, callable: bool) -> Input {
    let (tenant, pace) = ("default".to_owned(), Pace::Prompt);
    let gate = if callable { Gate::Open } else { Gate::Closed };
    let limits =
        Limits { cap, is_hard: hard, rate: None, gate, has_funnels: true, can_be_cut: false };
    Input::SubscriptionChanged { subscription, limits, tenant, pace }
}

fn finished(latency: Duration) -> Input {
    let class = Some(AttemptClass::Success);
    Input::Finished { subscription: SUB, latency, limit: None, class }
}

fn machine(deliverers: usize, cap: u32) -> Machine {
    let mut machine = Machine::new(deliverers);
    let out = machine.step(at(0), changed(SUB, cap, false, true));
    assert_eq!(fetches(&out), [SUB]);
    machine
}

fn fetched(rows: std::ops::Range<i64>) -> Input {
    let rows = rows.map(|seq| (DeliverySeq(seq), Places::default())).collect();
    Input::Fetched { subscription: SUB, rows, more: false, next_due: None }
}

fn fetches(out: &[Command]) -> Vec<SubscriptionSeq> {
    out.iter()
        .filter_map(|o| match o {
            Command::Fetch { subscription, .. } => Some(*subscription),
            Command::Start(_) | Command::Drained => None,
        })
        .collect()
}

fn starts(out: &[Command]) -> Vec<i64> {
    out.iter()
        .filter_map(|o| match o {
            Command::Start(Assignment { delivery, .. }) => Some(delivery.0),
            Command::Fetch { .. } | Command::Drained => None,
        })
        .collect()
}

fn settled(delivery: i64, next_due: Option<Timestamp>) -> Input {
    Input::Settled(Settled { delivery: DeliverySeq(delivery), subscription: SUB, next_due })
}

#[test]
fn no_more_are_started_than_the_cap() {
    let mut machine = machine(64, 3);
    assert_eq!(starts(&machine.step(at(0), fetched(1..10))), [1, 2, 3]);
    let finished = finished(Duration::from_secs(2));
    assert_eq!(starts(&machine.step(at(0), finished)), [4]);
}

#[test]
fn a_fast_subscription_may_exceed_its_cap_while_half_the_deliverers_are_idle() {
    let mut machine = machine(8, 1);
    assert_eq!(starts(&machine.step(at(0), fetched(1..20))), [1]);
    let finished = finished(Duration::from_millis(5));
    assert_eq!(starts(&machine.step(at(0), finished)), [2, 3, 4, 5]);
}

#[test]
fn a_cap_that_was_asked_for_holds_however_fast_the_target_is() {
    let mut machine = machine(8, 1);
    machine.step(at(0), changed(SUB, 1, true, true));
    assert_eq!(starts(&machine.step(at(0), fetched(1..20))), [1]);
    let finished = finished(Duration::from_millis(5));
    assert_eq!(starts(&machine.step(at(0), finished)), [2]);
}

#[test]
fn a_delivery_that_is_finished_but_not_settled_is_not_sent_again() {
    let mut machine = machine(64, 8);
    assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [1]);
    machine.step(at(0), finished(Duration::ZERO));
    machine.step(at(0), Input::Woken(SUB));
    assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [0_i64; 0]);
    machine.step(at(0), settled(1, None));
    machine.step(at(0), Input::Woken(SUB));
    assert_eq!(starts(&machine.step(at(0), fetched(1..2))), [1]);
}

#[test]
fn a_retry_is_looked_for_when_it_is_due() {
    let mut machine = machine(64, 8);
    machine.step(at(0), fetched(1..2));
    machine.step(at(0), settled(1, Some(at(5))));
    assert_eq!(machine.sleep_until(), Some(at(5)));
    assert_eq!(fetches(&machine.step(at(4), Input::Tick)), [SubscriptionSeq(0); 0]);
    assert_eq!(fetches(&machine.step(at(5), Input::Tick)), [SUB]);
}

#[test]
fn a_held_subscription_starts_nothing_and_releases_its_window() {
    let mut machine = machine(64, 1);
    machine.step(at(0), fetched(1..5));
    machine.step(at(0), changed(SUB, 1, false, false));
    assert_eq!(machine.in_hand(), 1, "only the delivery in flight stays in hand");
    let out = machine.step(at(0), finished(Duration::ZERO));
    assert_eq!(out, []);
}

#[test]
fn turns_go_round_so_that_one_subscription_does_not_starve_another() {
    let mut machine = machine(2, 8);
    let other = SubscriptionSeq(2);
    machine.step(at(0), changed(other, 8, false, true));
    machine.step(at(0), fetched(1..50));
    let rows = (100..150).map(|seq| (DeliverySeq(seq), Places::default())).collect();
    let out = machine
        .step(at(0), Input::Fetched { subscription: other, rows, more: false, next_due: None });
    assert_eq!(starts(&out), [100]);
    let finished = finished(Duration::from_millis(5));
    assert_eq!(starts(&machine.step(at(0), finished)), [2]);
}

#[test]
fn half_of_the_deliverers_are_kept_for_the_first_request_of_each() {
    let mut machine = machine(8, 8);
    assert_eq!(starts(&machine.step(at(0), fetched(1..50))), [1, 2, 3, 4]);
    let other = SubscriptionSeq(2);
    machine.step(at(0), changed(other, 8, false, true));
    let rows = (100..150).map(|seq| (DeliverySeq(seq), Places::default())).collect();
    let fetched = Input::Fetched { subscription: other, rows, more: false, next_due: None };
    assert_eq!(starts(&machine.step(at(0), fetched)), [100]);
}

#[test]
fn a_stop_is_drained_when_the_last_attempt_is_settled() {
    let mut machine = machine(64, 8);
    machine.step(at(0), fetched(1..2));
    assert_eq!(machine.step(at(0), Input::Stop), []);
    assert_eq!(machine.step(at(0), finished(Duration::ZERO)), []);
    assert_eq!(machine.step(at(0), settled(1, None)), [Command::Drained]);
}

#[test]
fn a_lane_in_hand_is_refused_until_its_delivery_is_settled() {
    let mut machine = machine(4, 4);
    let fetched = |seq| Input::Fetched {
        subscription: SUB,
        rows: vec![(DeliverySeq(seq), Places { lane: Some(7), funnel: None })],
        more: false,
        next_due: None,
    };
    let started = |out: &[Command], seq| starts(out).contains(&seq);
    assert!(started(&machine.step(at(0), fetched(1)), 1));
    machine.step(at(0), Input::Woken(SUB));
    // An earlier delivery was inserted and is the head of the lane now.
    assert!(!started(&machine.step(at(0), fetched(2)), 2));
    machine.step(at(0), finished(Duration::ZERO));
    let settled = settled(1, None);
    assert_eq!(fetches(&machine.step(at(0), settled)), [SUB]);
    assert!(started(&machine.step(at(0), fetched(2)), 2));
}

#[test]
fn a_funnel_in_hand_is_refused_in_every_subscription_that_names_its_point() {
    let mut machine = machine(4, 4);
    let other = SubscriptionSeq(2);
    machine.step(at(0), changed(other, 4, false, true));
    let fetched = |subscription, seq| Input::Fetched {
        subscription,
        rows: vec![(DeliverySeq(seq), Places { lane: Some(seq), funnel: Some(9) })],
        more: false,
        next_due: None,
    };
    assert_eq!(starts(&machine.step(at(0), fetched(SUB, 1))), [1]);
    assert!(starts(&machine.step(at(0), fetched(other, 2))).is_empty());
    let out = machine.step(at(0), Input::Woken(SUB));
    assert!(matches!(&out[..], [Command::Fetch { taken, .. }] if *taken == [9]), "{out:?}");
    machine.step(at(0), finished(Duration::ZERO));
    assert_eq!(fetches(&machine.step(at(0), settled(1, None))), [other]);
    assert_eq!(starts(&machine.step(at(0), fetched(other, 2))), [2]);
}

#[test]
fn rows_whose_places_are_all_taken_are_not_asked_for_again_before_a_release() {
    for place in [Places { lane: Some(7), funnel: None }, Places { lane: None, funnel: Some(9) }] {
        let mut machine = machine(4, 4);
        let other = SubscriptionSeq(2);
        let gate = Gate::Open;
        let limits = Limits {
            cap: 4,
            is_hard: true,
            rate: None,
            gate,
            has_funnels: false,
            can_be_cut: false,
        };
        let (tenant, pace) = ("default".to_owned(), Pace::Prompt);
        let changed = Input::SubscriptionChanged { subscription: other, limits, tenant, pace };
        machine.step(at(0), changed);
        let fetched = |subscription, seqs: std::ops::Range<i64>, more| Input::Fetched {
            subscription,
            rows: seqs.map(|seq| (DeliverySeq(seq), place)).collect(),
            more,
            next_due: None,
        };
        assert_eq!(starts(&machine.step(at(0), fetched(SUB, 1..2, false))), [1]);
        assert!(fetches(&machine.step(at(0), fetched(other, 2..80, true))).is_empty());
        machine.step(at(0), finished(Duration::ZERO));
        assert_eq!(fetches(&machine.step(at(0), settled(1, None))), [other]);
    }
}

fn reschedule(delivery: i64, until: Timestamp, all: bool) -> Input {
    Input::Reschedule { delivery: DeliverySeq(delivery), subscription: SUB, until, all }
}

#[test]
fn a_delivery_that_is_rescheduled_is_not_started_again_before_its_time() {
    let mut machine = machine(4, 4);
    // It has no lane, and more rows are due than a window holds: every fetch reads it again.
    let more = |rows: std::ops::Range<i64>| match fetched(rows) {
        Input::Fetched { subscription, rows, next_due, .. } => {
            Input::Fetched { subscription, rows, more: true, next_due }
        }
        other => other,
    };
    assert_eq!(starts(&machine.step(at(0), more(1..2))), [1]);
    machine.step(at(0), finished(Duration::ZERO));
    machine.step(at(0), reschedule(1, at(30), false));
    assert_eq!(starts(&machine.step(at(0), more(1..3))), [2], "others are not held up");
    assert_eq!(machine.sleep_until(), Some(at(30)));
    machine.step(at(30), Input::Tick);
    assert_eq!(starts(&machine.step(at(30), more(1..2))), [1]);
}

#[test]
fn a_subscription_that_is_rescheduled_is_not_read_before_its_time_however_much_is_due() {
    let mut machine = machine(2, 4);
    assert_eq!(starts(&machine.step(at(0), fetched(1..50))), [1]);
    machine.step(at(0), finished(Duration::ZERO));
    let out = machine.step(at(0), reschedule(1, at(30), true));
    assert_eq!(out, []);
    assert_eq!(machine.step(at(0), Input::Woken(SUB)), []);
    machine.step(at(1), finished(Duration::ZERO));
    assert_eq!(machine.step(at(1), reschedule(2, at(31), true)), []);
    assert_eq!(machine.step(at(29), Input::Tick), []);
    assert_eq!(fetches(&machine.step(at(30), Input::Tick)), [SUB]);
    assert_eq!(starts(&machine.step(at(30), fetched(1..50))), [1]);
}

#[test]
fn a_rescheduled_delivery_is_fetched_when_its_subscription_changes_and_delays_no_stop() {
    let mut machine = machine(4, 4);
    machine.step(at(0), fetched(1..2));
    machine.step(at(0), finished(Duration::ZERO));
    machine.step(at(0), reschedule(1, at(30), false));
    let changed = changed(SUB, 9, true, true);
    assert_eq!(fetches(&machine.step(at(1), changed)), [SUB]);
    machine.step(at(1), fetched(1..2));
    machine.step(at(1), finished(Duration::ZERO));
    machine.step(at(1), reschedule(1, at(31), false));
    assert_eq!(machine.step(at(2), Input::Stop), [Command::Drained]);
}

#[test]
fn a_released_lane_that_is_due_later_is_looked_at_then_and_not_at_once() {
    let mut machine = machine(4, 4);
    let rows = vec![(DeliverySeq(1), Places { lane: Some(7), funnel: None })];
    machine.step(at(0), Input::Fetched { subscription: SUB, rows, more: false, next_due: None });
    machine.step(at(0), finished(Duration::ZERO));
    // Its secret cannot be opened: no attempt was made, and its row is still due.
    let later = Some(at(30));
    let released = settled(1, later);
    assert!(fetches(&machine.step(at(0), released)).is_empty());
    assert!(fetches(&machine.step(at(29), Input::Tick)).is_empty());
    assert_eq!(fetches(&machine.step(at(30), Input::Tick)), [SUB]);
}

/// Subscriptions of one kind: their tenant, their pace, how many, and how many deliveries each has due.
type Group = (&'static str, Pace, usize, i64);

/// A machine of 64 deliverers with all due deliveries read, and how many of each group were started.
fn served(groups: &[Group]) -> (Machine, Vec<usize>) {
    let mut machine = Machine::new(64);
    let mut group_of = Vec::new();
    for (n, (tenant, pace, subscriptions, _)) in groups.iter().enumerate() {
        for _ in 0..*subscriptions {
            group_of.push(n);
            let (subscription, tenant) = (sub(group_of.len()), (*tenant).to_owned());
            let limits = Limits { cap: 8, is_hard: true, ..Limits::default() };
            let new = Input::SubscriptionChanged { subscription, limits, tenant, pace: *pace };
            assert_eq!(fetches(&machine.step(at(0), new)), [subscription]);
        }
    }
    let mut counts = vec![0; groups.len()];
    for (n, group) in group_of.iter().enumerate() {
        let subscription = sub(n + 1);
        let rows = (0..groups[*group].3).map(|row| DeliverySeq(subscription.0 * 1000 + row));
        let rows = rows.map(|delivery| (delivery, Places::default())).collect();
        let fetched = Input::Fetched { subscription, rows, more: false, next_due: None };
        for out in machine.step(at(0), fetched) {
            if let Command::Start(Assignment { subscription, .. }) = out {
                counts[group_of[usize::try_from(subscription.0).unwrap() - 1]] += 1;
            }
        }
    }
    (machine, counts)
}

fn sub(n: usize) -> SubscriptionSeq {
    SubscriptionSeq(i64::try_from(n).unwrap())
}

#[test]
fn endpoints_that_hang_get_half_and_those_that_may_hang_three_quarters() {
    use Pace::{Hangs, Prompt, Unknown};
    for (groups, wanted) in [
        (&[("a", Hangs, 100, 1), ("a", Prompt, 1, 1)][..], &[32, 1][..]),
        (&[("a", Hangs, 100, 1)], &[32]),
        (&[("a", Hangs, 3, 20)], &[15]),
        (&[("a", Hangs, 10, 20)], &[32]),
        (&[("a", Unknown, 100, 1), ("a", Prompt, 1, 1)], &[48, 1]),
        (&[("a", Unknown, 100, 1), ("a", Hangs, 9, 1), ("a", Prompt, 20, 1)], &[48, 0, 16]),
        (&[("a", Hangs, 100, 1), ("a", Unknown, 100, 1), ("a", Prompt, 9, 1)], &[32, 16, 9]),
        (&[("a", Prompt, 100, 1)], &[64]),
        // An unknown endpoint gets one request. A prompt one gets more, even while others hang.
        (&[("a", Unknown, 30, 20), ("a", Unknown, 1, 1)], &[30, 1]),
        (&[("a", Hangs, 100, 1), ("a", Prompt, 1, 20)], &[32, 8]),
        (&[("a", Hangs, 100, 1), ("a", Unknown, 100, 1), ("a", Prompt, 9, 20)], &[32, 16, 16]),
    ] {
        assert_eq!(served(groups).1, wanted, "{groups:?}");
    }
}

/// How many requests are in flight of twenty subscriptions with much due, after ten of each took so long. `others`: groups beside
/// them.
fn width_after(latency: Duration, others: &[Group]) -> usize {
    let groups = [&[("a", Pace::Prompt, 20, 200)], others].concat();
    let (mut machine, counts) = served(&groups);
    let mut in_flight = counts[0];
    for n in 0..200 {
        let subscription = sub(n % 20 + 1);
        let class = Some(AttemptClass::Success);
        let ended = Input::Finished { subscription, latency, limit: None, class };
        in_flight = in_flight - 1 + starts(&machine.step(at(60), ended)).len();
    }
    in_flight
}

#[test]
fn many_fast_endpoints_use_all_deliverers_but_one_and_slow_ones_half() {
    let fast = Duration::from_millis(50);
    let slow = Duration::from_secs(2);
    assert_eq!(width_after(fast, &[]), 63);
    // Half, and a first request.
    assert_eq!(width_after(slow, &[]), 33);
    // A quarter is kept for another tenant, which has nothing due.
    assert_eq!(width_after(fast, &[("b", Pace::Prompt, 1, 0)]), 48);
}

#[test]
fn a_fast_endpoint_that_has_not_answered_for_a_second_is_fast_no_longer() {
    // All, a first request in the last place; or half, and a first request of each of the others.
    for (secs, wanted) in [(60, 64), (62, 48)] {
        let (mut machine, counts) = served(&[("a", Pace::Prompt, 20, 1)]);
        assert_eq!(counts, [20]);
        for n in 1..=20 {
            let subscription = sub(n);
            let latency = Duration::from_millis(50);
            let class = Some(AttemptClass::Success);
            let ended = Input::Finished { subscription, latency, limit: None, class };
            machine.step(at(60), ended);
        }
        let mut in_flight = 0;
        for n in 1..=20 {
            let subscription = sub(n);
            machine.step(at(secs), Input::Woken(subscription));
            let rows = (100..200).map(|row| DeliverySeq(subscription.0 * 1000 + row));
            let rows = rows.map(|delivery| (delivery, Places::default())).collect();
            let due = Input::Fetched { subscription, rows, more: false, next_due: None };
            in_flight += starts(&machine.step(at(secs), due)).len();
        }
        assert_eq!(in_flight, wanted, "at {secs}");
    }
}

#[test]
fn a_tenant_gets_half_of_each_share_while_another_has_something_due() {
    use Pace::{Hangs, Prompt, Unknown};
    for (groups, wanted) in [
        (&[("a", Prompt, 100, 1), ("b", Prompt, 1, 1)][..], &[32, 1][..]),
        (&[("a", Prompt, 100, 9), ("b", Prompt, 100, 9)], &[32, 32]),
        (&[("a", Prompt, 100, 1), ("b", Prompt, 9, 0)], &[64, 0]),
        (&[("a", Hangs, 100, 1), ("b", Hangs, 100, 1)], &[16, 16]),
        (&[("a", Unknown, 100, 1), ("b", Unknown, 1, 1)], &[24, 1]),
        (&[("a", Hangs, 100, 1), ("b", Prompt, 1, 1)], &[16, 1]),
        (&[("a", Unknown, 100, 1), ("b", Prompt, 1, 0)], &[36, 0]),
    ] {
        assert_eq!(served(groups).1, wanted, "{groups:?}");
    }
}

#[test]
fn an_endpoint_hangs_from_half_of_its_time_limit_until_it_is_prompt_again() {
    for (pace, latency, limit, wanted) in [
        (Pace::Unknown, 5_000, Some(30), Pace::Hangs),
        (Pace::Unknown, 4_999, Some(30), Pace::Prompt),
        (Pace::Prompt, 500, Some(1), Pace::Hangs),
        (Pace::Hangs, 499, Some(1), Pace::Prompt),
        (Pace::Hangs, 0, None, Pace::Hangs),
        (Pace::Unknown, 9_000, None, Pace::Unknown),
    ] {
        let (mut machine, _) = served(&[("a", pace, 1, 2)]);
        let limit = limit.map(Duration::from_secs);
        let latency = Duration::from_millis(latency);
        machine.step(at(9), Input::Finished { subscription: SUB, latency, limit, class: None });
        assert_eq!(machine.windows[&SUB].pace, wanted, "{pace:?} {latency:?} of {limit:?}");
        let finished = Input::Finished { subscription: SUB, latency, limit: None, class: None };
        machine.step(at(9), finished);
        assert!(!machine.is_busy(), "{:?}", machine.load);
    }
}

#[test]
fn every_endpoint_that_hangs_gets_its_turn() {
    let (mut machine, _) = served(&[("a", Pace::Hangs, 100, 1), ("b", Pace::Hangs, 1, 1)]);
    let (mut seen, mut busy) = (BTreeSet::new(), VecDeque::new());
    let limit = Some(Duration::from_secs(30));
    busy.extend((1..=101).filter(|n| machine.windows[&SubscriptionSeq(*n)].in_flight > 0));
    while let Some(n) = busy.pop_front() {
        assert!(seen.insert(n), "nobody has two turns");
        let (subscription, latency) = (SubscriptionSeq(n), Duration::from_secs(30));
        for out in
            machine.step(at(30), Input::Finished { subscription, latency, limit, class: None })
        {
            if let Command::Start(Assignment { subscription, .. }) = out {
                busy.push_back(subscription.0);
            }
        }
    }
    assert_eq!(seen.len(), 101);
}

fn gate(gate: Gate) -> Input {
    Input::GateChanged { subscription: SUB, gate }
}

#[test]
fn until_a_gate_opens_nothing_starts_and_then_everything() {
    let mut machine = machine(64, 8);
    machine.step(at(0), fetched(1..2));
    machine.step(at(0), gate(Gate::Until(at(60))));
    assert_eq!(starts(&machine.step(at(59), Input::Woken(SUB))), [0; 0]);
    assert_eq!(machine.sleep_until(), Some(at(60)));
    assert_eq!(fetches(&machine.step(at(60), Input::Tick)), [SUB]);
    assert_eq!(starts(&machine.step(at(60), fetched(2..5))), [2, 3, 4]);
}

#[test]
fn a_probe_is_one_delivery_and_the_next_waits_for_its_outcome() {
    let mut machine = machine(64, 8);
    machine.step(at(0), gate(Gate::Probe(at(5))));
    // What was asked for before the gate changed is dropped.
    assert_eq!(starts(&machine.step(at(0), fetched(1..9))), [0; 0]);
    let out = machine.step(at(5), Input::Tick);
    assert_eq!(out, [Command::Fetch { subscription: SUB, limit: 1, taken: Vec::new() }]);
    let out = machine.step(at(5), fetched(1..9));
    let (delivery, is_short) = (DeliverySeq(1), false);
    let probe = Assignment { delivery, subscription: SUB, is_probe: true, is_short };
    assert_eq!(out, [Command::Start(probe)]);
    assert_eq!(machine.step(at(6), Input::Woken(SUB)), []);
    assert_eq!(machine.step(at(6), finished(Duration::from_millis(1))), []);
    // The new gate comes before the settlement.
    assert_eq!(machine.step(at(6), gate(Gate::Probe(at(30)))), []);
    assert_eq!(machine.step(at(6), settled(1, Some(at(30)))), []);
    assert_eq!(fetches(&machine.step(at(30), Input::Tick)), [SUB]);
}

#[test]
fn a_gate_opens_although_something_was_due_before() {
    let mut machine = machine(64, 64);
    machine.step(at(0), fetched(0..0));
    machine.step(at(0), settled(1, Some(at(5))));
    machine.step(at(0), gate(Gate::Probe(at(10))));
    assert_eq!(machine.sleep_until(), Some(at(5)));
    assert_eq!(fetches(&machine.step(at(5), Input::Tick)), []);
    assert_eq!(machine.sleep_until(), Some(at(10)));
    assert_eq!(fetches(&machine.step(at(10), Input::Tick)), [SUB]);
}

#[test]
fn a_probe_that_works_opens_the_gate() {
    let mut machine = machine(64, 8);
    machine.step(at(0), fetched(0..0));
    machine.step(at(0), gate(Gate::Probe(at(5))));
    machine.step(at(5), Input::Tick);
    machine.step(at(5), fetched(1..2));
    machine.step(at(5), finished(Duration::from_millis(1)));
    let out = machine.step(at(5), gate(Gate::Open));
    assert!(matches!(out.as_slice(), [Command::Fetch { limit: 65.., .. }]), "{out:?}");
}

#[test]
fn a_rate_spreads_what_is_due() {
    let mut machine = machine(64, 8);
    let rate = Rate::parse("60/min").ok();
    let limits = Limits {
        cap: 8,
        is_hard: false,
        rate,
        gate: Gate::Open,
        has_funnels: false,
        can_be_cut: false,
    };
    let (tenant, pace) = ("default".to_owned(), Pace::Prompt);
    machine.step(at(10), Input::SubscriptionChanged { subscription: SUB, limits, tenant, pace });
    assert_eq!(starts(&machine.step(at(10), fetched(1..9))), [1]);
    let latency = Duration::from_millis(1);
    let (limit, class) = (Some(Duration::from_secs(30)), None);
    machine.step(at(10), Input::Finished { subscription: SUB, latency, limit, class });
    assert_eq!(machine.sleep_until(), Some(at(11)));
    assert_eq!(starts(&machine.step(at(11), Input::Tick)), [2]);
    // What was not sent gives its place to the next one.
    assert_eq!(starts(&machine.step(at(11), finished(latency))), [3]);
    // Not beside another one: its place may be free again already.
    assert_eq!(starts(&machine.step(at(12), Input::Tick)), [4]);
    assert!(starts(&machine.step(at(12), finished(latency))).is_empty());
}

#[test]
fn what_falls_due_before_a_hold_ends_is_looked_at_when_it_ends() {
    for held in [Gate::Until(at(20)), Gate::Probe(at(20))] {
        let mut machine = machine(64, 8);
        machine.step(at(1), fetched(1..1));
        machine.step(at(1), gate(held));
        let settled =
            Settled { delivery: DeliverySeq(1), subscription: SUB, next_due: Some(at(10)) };
        machine.step(at(1), Input::Settled(settled));
        assert!(starts(&machine.step(at(10), Input::Tick)).is_empty());
        assert_eq!(machine.sleep_until(), Some(at(20)));
        let out = machine.step(at(20), Input::Tick);
        assert!(matches!(out.as_slice(), [Command::Fetch { .. }]), "{out:?}");
    }
}

#[test]
fn when_the_site_is_back_online_more_start_each_second() {
    let mut machine = machine(64, 64);
    machine.step(at(0), finished(Duration::from_millis(1)));
    machine.step(at(0), Input::LineIsBack);
    assert_eq!(starts(&machine.step(at(0), fetched(1..60))).len(), 2);
    assert_eq!(starts(&machine.step(at(1), Input::Tick)).len(), 2);
    assert_eq!(starts(&machine.step(at(2), Input::Tick)).len(), 4);
    assert_eq!(machine.sleep_until(), Some(at(3)), "not earlier, or it would never sleep");
    machine.step(at(9), Input::Tick);
    assert_eq!(machine.sleep_until(), None);
}

#[test]
fn a_clock_that_is_set_back_delays_nothing() {
    let mut machine = machine(64, 64);
    machine.step(at(100), Input::LineIsBack);
    machine.step(at(100), fetched(1..3));
    let one = |all| Input::Reschedule {
        delivery: DeliverySeq(if all { 2 } else { 1 }),
        subscription: SUB,
        until: at(130),
        all,
    };
    machine.step(at(100), one(false));
    machine.step(at(100), one(true));
    machine.step(at(100), settled(9, Some(at(200))));
    let out = machine.step(at(10), Input::Tick);
    assert_eq!(fetches(&out), [SUB], "what was rescheduled is fetched now");
    assert_eq!(machine.sleep_until(), None);
    assert_eq!(machine.in_hand(), 0);
}

/// How a tenant with new endpoints shares the deliverers.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// It is alone.
    Nobody,
    /// There is another tenant, which has nothing due.
    AnIdleTenant,
    /// Another tenant always has more due than it may send.
    ABusyTenant,
}

/// Plays a hundred new endpoints that hang and then an answering endpoint, all of one tenant, due at once. Returns when the
/// last one is called, and how many requests were cut short.
fn healthy_behind_a_hundred(beside: Beside, timeout: Duration) -> (Duration, usize) {
    const HANGING: usize = 100;
    let healthy = sub(HANGING + 1);
    let other = sub(HANGING + 2);
    let mut machine = Machine::new(64);
    let mut ends: BTreeMap<(Timestamp, DeliverySeq), Assignment> = BTreeMap::new();
    let mut cut = 0;
    let mut inputs = VecDeque::new();
    for n in 1..=HANGING + 2 {
        let subscription = sub(n);
        let is_other = subscription == other;
        let limits = Limits { cap: 8, can_be_cut: true, ..Limits::default() };
        let tenant = if is_other { "b" } else { "a" }.to_owned();
        let pace = if is_other { Pace::Prompt } else { Pace::Unknown };
        if is_other && matches!(beside, Beside::Nobody) {
            continue;
        }
        inputs.push_back(Input::SubscriptionChanged { subscription, limits, tenant, pace });
    }
    let mut now = at(0);
    loop {
        while let Some(input) = inputs.pop_front() {
            for out in machine.step(now, input) {
                match out {
                    Command::Fetch { subscription, .. } => {
                        let is_busy = matches!(beside, Beside::ABusyTenant);
                        let count = if subscription == other { i64::from(is_busy) * 64 } else { 1 };
                        let rows = (0..count).map(|row| DeliverySeq(subscription.0 * 1000 + row));
                        let rows = rows.map(|delivery| (delivery, Places::default())).collect();
                        let (more, next_due) = (false, None);
                        inputs.push_back(Input::Fetched { subscription, rows, more, next_due });
                    }
                    Command::Start(started) if started.subscription == healthy => {
                        return (now.since(at(0)), cut);
                    }
                    Command::Start(started) => {
                        cut += usize::from(started.is_short);
                        // The requests of the other tenant last, so that it always has something due.
                        let takes = if started.is_short { FIRST_TRY } else { timeout };
                        ends.insert((now.plus(takes), started.delivery), started);
                    }
                    Command::Drained => {}
                }
            }
        }
        let ((end, delivery), Assignment { subscription, is_short, .. }) =
            ends.pop_first().expect("the healthy one is never called");
        now = end;
        let latency = if is_short { FIRST_TRY } else { timeout };
        let (limit, class) = (Some(timeout), Some(AttemptClass::Transient));
        inputs.push_back(Input::Finished { subscription, latency, limit, class });
        let next_due = Some(now.plus(Duration::from_secs(5)));
        inputs.push_back(Input::Settled(Settled { delivery, subscription, next_due }));
    }
}

#[test]
fn a_new_endpoint_that_answers_is_called_within_seconds_behind_a_hundred_that_hang() {
    for beside in [Beside::Nobody, Beside::AnIdleTenant, Beside::ABusyTenant] {
        for timeout in [30, 60].map(Duration::from_secs) {
            let (called, cut) = healthy_behind_a_hundred(beside, timeout);
            assert!(called <= Duration::from_secs(4), "{beside:?} {timeout:?}: {called:?}");
            assert!(cut < 100, "the first ones have all of their time: {cut}");
        }
    }
}

/// Starts new endpoints of one tenant, one delivery each; tells which of them are cut short.
fn cut_short(limits: &[Limits]) -> (Machine, Vec<bool>) {
    let mut machine = Machine::new(16);
    let mut found = Vec::new();
    for (n, limits) in (1..).zip(limits) {
        let (subscription, tenant) = (sub(n), "a".to_owned());
        let (limits, pace) = (*limits, Pace::Unknown);
        machine.step(at(0), Input::SubscriptionChanged { subscription, limits, tenant, pace });
        let rows = vec![(DeliverySeq(subscription.0), Places::default())];
        let fetched = Input::Fetched { subscription, rows, more: false, next_due: None };
        for out in machine.step(at(0), fetched) {
            if let Command::Start(started) = out {
                found.push(started.is_short);
            }
        }
    }
    (machine, found)
}

#[test]
fn only_first_requests_that_may_be_sent_twice_are_cut_short() {
    let new = Limits { cap: 8, can_be_cut: true, ..Limits::default() };
    let call = Limits { can_be_cut: false, ..new };
    let probe = Limits { gate: Gate::Probe(at(0)), ..new };
    let (mut machine, found) = cut_short(&[new, new, new, call, probe, new]);
    assert_eq!(found, [false, false, true, false, false, true]);
    for (n, latency, wanted) in
        [(1, 1_500, Pace::Prompt), (3, 999, Pace::Prompt), (6, 1_000, Pace::Hangs)]
    {
        let (subscription, latency) = (sub(n), Duration::from_millis(latency));
        let (limit, class) = (Some(Duration::from_secs(30)), None);
        machine.step(at(1), Input::Finished { subscription, latency, limit, class });
        assert_eq!(machine.windows[&subscription].pace, wanted, "{n}");
    }
}

#[test]
fn no_more_are_sent_than_the_brake_needs_until_one_succeeds() {
    use AttemptClass::{Success, Validation};
    let mut machine = machine(64, 8);
    let (latency, limit) = (Duration::from_millis(1), Some(Duration::from_secs(30)));
    let ended = |class| Input::Finished { subscription: SUB, latency, limit, class: Some(class) };
    assert_eq!(starts(&machine.step(at(0), fetched(1..500))).len(), 8);
    for _ in 1..=8 {
        assert_eq!(starts(&machine.step(at(0), ended(Validation))), [0; 0]);
    }
    for delivery in 1..=7 {
        assert_eq!(starts(&machine.step(at(0), settled(delivery, None))), [0; 0]);
    }
    assert_eq!(starts(&machine.step(at(0), settled(8, None))), [9], "it was not held");
    assert!(starts(&machine.step(at(0), ended(Success))).len() > 5);
}

//! The endpoints of the simulated world: what each does with a request, and until when.

use crate::sim::dice::{DAY, Dice, HOUR, MINUTE, Ms, SECOND};

/// What an endpoint does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Takes it and answers 200 after so long.
    Takes(Ms),
    /// Answers with a status, and with the seconds to wait.
    Answers(u16, Option<i64>),
    /// Nobody listens.
    Refuses,
    /// There is no way to it.
    Unreachable,
    /// Takes it and never answers.
    Hangs,
    /// Takes it; the connection breaks before the answer.
    LosesAnswer,
}

/// An endpoint: how it behaves from which time on.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// In the order of time; the first one is from the start.
    phases: Vec<(Ms, Manner)>,
    /// A delivery it never takes, counted from its first, and the status of that.
    poison: Option<(i64, u16)>,
    poisoned: Option<i64>,
    seen: i64,
}

impl Endpoint {
    /// One that is healthy from `heal_at` on.
    pub(crate) fn draw(dice: &mut Dice, heal_at: Ms) -> Self {
        let mut phases = vec![(0, manner(dice, heal_at))];
        for _ in 0..dice.below(6) {
            phases.push((dice.spread(SECOND, heal_at), manner(dice, heal_at)));
        }
        phases.retain(|(from, _)| *from < heal_at);
        phases.push((heal_at, Manner::Takes(dice.spread(1, 400))));
        phases.sort_by_key(|(from, _)| *from);
        let poison = dice.one_in(5).then(|| (dice.below(8), dice.pick(&[500, 422, 403, 500, 401])));
        Self { phases, poison, poisoned: None, seen: 0 }
    }

    /// What it does with this delivery at this time.
    pub(crate) fn manner(&mut self, delivery: i64, now: Ms, heal_at: Ms) -> Manner {
        if let Some((n, status)) = self.poison {
            self.seen += 1;
            if self.poisoned.is_none() && self.seen > n {
                self.poisoned = Some(delivery);
            }
            if self.poisoned == Some(delivery) && now < heal_at {
                return Manner::Answers(status, None);
            }
        }
        let began = self.phases.iter().rev().find(|(from, _)| *from <= now);
        began.map_or(Manner::Takes(1), |(_, manner)| *manner)
    }
}

fn manner(dice: &mut Dice, heal_at: Ms) -> Manner {
    // A target may ask for a second each time, for days: that is too much to look at.
    let least = heal_at / SECOND / 100;
    let asks = |secs: i64| Some(secs.max(least));
    match dice.below(16) {
        0..=4 => Manner::Takes(dice.spread(1, 20 * SECOND)),
        5 | 6 => Manner::Answers(dice.pick(&[500, 502, 404, 500]), None),
        7 => Manner::Answers(dice.pick(&[500, 503]), asks(dice.spread(1, DAY / SECOND))),
        8 | 9 => Manner::Answers(429, dice.pick(&[asks(0), asks(1), asks(60), asks(3600), None])),
        10 => Manner::Answers(429, asks(dice.spread(1, 3 * HOUR / SECOND))),
        11 => Manner::Answers(dice.pick(&[401, 403, 422, 302, 401]), None),
        12 => Manner::Answers(dice.pick(&[410, 401, 401, 401]), dice.pick(&[None, Some(600)])),
        13 => dice.pick(&[Manner::Refuses, Manner::Unreachable]),
        14 => Manner::Hangs,
        _ => dice.pick(&[Manner::LosesAnswer, Manner::Takes(MINUTE)]),
    }
}

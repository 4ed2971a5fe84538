//! Plans which process is killed when, from the seed.

use std::time::Duration;

use crate::base::faults::SplitMix64;
use crate::base::words::words;

/// The shortest and the longest time from the end of one kill to the next.
const SHORTEST: Duration = Duration::from_millis(300);
const LONGEST: Duration = Duration::from_millis(900);

words! {
    /// What is killed.
    pub(super) enum Victim {
        /// The server of the first ERP.
        Postgresql = "PostgreSQL",
        /// The server of the second ERP.
        Mariadb = "MariaDB",
        /// Oncebox.
        Oncebox = "Oncebox",
        /// The programs that hold Oncebox's connections.
        Connections = "connections",
    }
}

/// A planned kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    /// How long after the one before.
    pub(super) after: Duration,
    /// Of what.
    pub(super) victim: Victim,
}

/// So many kills. Each round kills everything once.
pub(super) fn kills(seed: u32, count: usize) -> Vec<Kill> {
    let mut draw = SplitMix64::of(seed, "kills of databases", 0);
    let mut round = Vec::new();
    let mut kills = Vec::with_capacity(count);
    for _ in 0..count {
        if round.is_empty() {
            round = Victim::ALL.to_vec();
        }
        let chosen = draw.below(u64::try_from(round.len()).unwrap_or(1));
        let victim = round.swap_remove(usize::try_from(chosen).unwrap_or(0));
        kills.push(Kill { after: draw.between(SHORTEST, LONGEST), victim });
    }
    kills
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_kills_the_same_and_nothing_is_spared() {
        assert_eq!(kills(7, 12), kills(7, 12));
        assert_ne!(kills(7, 12), kills(8, 12));
        for seed in 0..20 {
            for victim in Victim::ALL {
                let all = kills(seed, 12);
                assert_eq!(all.iter().filter(|kill| kill.victim == victim).count(), 3);
            }
        }
    }
}

//! Counts the memory of requests and answers: in total, of large bodies, and by client.
//!
//! An exceeded share is recorded for the listener thread, which ends requests in it (`listener`).

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::{Mutex, MutexGuard};

use crate::http::proxies::client_network;
use crate::http::service::{Limits, SMALL_BODY};

/// The memory of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) bytes: usize,
    /// The largest size that its body may reach.
    pub(crate) body: usize,
    /// The client; `None` until a trusted proxy has named it.
    pub(crate) client: Option<IpAddr>,
    /// The service has the request, so it cannot be ended.
    pub(crate) in_hand: bool,
}

/// A part of the memory that has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The share of one client.
    Client(IpAddr),
    /// The share of all bodies over [`SMALL_BODY`].
    Large,
    /// All memory.
    All,
}

/// The shares of one server. A client is removed when it holds nothing, so there are never more clients than
/// connections.
pub(crate) struct Shares {
    all_bytes: usize,
    client_requests: usize,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    all: Sums,
    large: Sums,
    clients: HashMap<IpAddr, Sums>,
    exceeded: Vec<Share>,
}

/// Memory of a share, with the service's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    held: Sum,
    in_hand: Sum,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    requests: usize,
    bytes: usize,
}

impl Holding {
    /// Whether the request can be ended to get its memory back.
    pub(crate) const fn can_end(&self) -> bool {
        self.bytes > 0 && !self.in_hand
    }

    pub(crate) fn is_in(&self, share: Share) -> bool {
        match share {
            Share::Client(client) => self.client.map(client_network) == Some(client),
            Share::Large => self.body > SMALL_BODY,
            Share::All => true,
        }
    }
}

impl Shares {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            all_bytes: limits.buffered_bytes,
            client_requests: limits.connections_per_address,
            ledger: Mutex::default(),
        }
    }

    /// Counts `new` instead of `old`. Returns false if `new` is in hand but does not fit, even after ending all requests
    /// that can be ended. It is counted in any case, until the caller replaces it.
    pub(crate) fn replace(&self, old: Holding, new: Holding) -> bool {
        let mut ledger = self.lock();
        ledger.remove(old);
        ledger.add(new);
        let shares = [new.client.map(|client| Share::Client(client_network(client)))];
        let shares = shares.into_iter().flatten().chain([Share::Large, Share::All]);
        let mut fits = true;
        for share in shares.filter(|share| new.bytes > 0 && new.is_in(*share)) {
            let sums = ledger.sums(share);
            fits &= !new.in_hand || !self.is_over(share, sums.in_hand, 0);
            let can_end = sums.held.requests > sums.in_hand.requests;
            if can_end && self.is_over(share, sums.held, 0) && !ledger.exceeded.contains(&share) {
                ledger.exceeded.push(share);
            }
        }
        fits
    }

    /// The shares exceeded since the last call.
    pub(crate) fn take_exceeded(&self) -> Vec<Share> {
        std::mem::take(&mut self.lock().exceeded)
    }

    /// Whether more requests must be ended in an exceeded share. Ends a sixteenth more than needed, because finding the
    /// requests is expensive.
    pub(crate) fn wants_room(&self, share: Share) -> bool {
        let held = self.lock().sums(share).held;
        self.is_over(share, held, 16)
    }

    /// Bytes held in total.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().all.held.bytes
    }

    /// Whether a sum is over the limit of its share, reduced by one part in `kept_free`. A client may always have one
    /// request of any size.
    fn is_over(&self, share: Share, sum: Sum, kept_free: usize) -> bool {
        let less = |most: usize| most.saturating_sub(most.checked_div(kept_free).unwrap_or(0));
        let all = self.all_bytes;
        match share {
            Share::Client(_) => {
                let too_many = sum.requests > less(self.client_requests).max(1);
                too_many || sum.bytes > less(all.div_euclid(8)) && sum.requests > 1
            }
            Share::Large => sum.bytes > less(all.saturating_sub(all.div_euclid(4))),
            Share::All => sum.bytes > less(all),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }
}

impl Ledger {
    fn sums(&self, share: Share) -> Sums {
        match share {
            Share::Client(client) => self.clients.get(&client).copied().unwrap_or_default(),
            Share::Large => self.large,
            Share::All => self.all,
        }
    }

    fn add(&mut self, holding: Holding) {
        self.change(holding, |sum| Sum {
            requests: sum.requests.saturating_add(1),
            bytes: sum.bytes.saturating_add(holding.bytes),
        });
    }

    fn remove(&mut self, holding: Holding) {
        self.change(holding, |sum| Sum {
            requests: sum.requests.saturating_sub(1),
            bytes: sum.bytes.saturating_sub(holding.bytes),
        });
    }

    fn change(&mut self, holding: Holding, change: impl Fn(Sum) -> Sum) {
        if holding.bytes == 0 {
            return;
        }
        let change = |sums: &mut Sums| {
            sums.held = change(sums.held);
            if holding.in_hand {
                sums.in_hand = change(sums.in_hand);
            }
        };
        change(&mut self.all);
        if holding.is_in(Share::Large) {
            change(&mut self.large);
        }
        if let Some(client) = holding.client.map(client_network) {
            let sums = self.clients.entry(client).or_default();
            change(sums);
            if sums.held.requests == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> Shares {
        let limits = Limits { buffered_bytes: 800_000, ..Limits::default() };
        Shares::new(&Limits { connections_per_address: 3, ..limits })
    }

    fn holding(client: &str, bytes: usize) -> Holding {
        Holding { bytes, body: bytes, client: client.parse().ok(), in_hand: false }
    }

    /// Counts them; gives what is exceeded then.
    fn exceeded(shares: &Shares, holdings: &[Holding]) -> Vec<Share> {
        for new in holdings {
            shares.replace(Holding::default(), *new);
        }
        shares.take_exceeded()
    }

    fn client(address: &str) -> Share {
        Share::Client(address.parse().unwrap())
    }

    #[test]
    fn a_client_has_an_eighth_and_one_request_however_large() {
        let shares = shares();
        assert_eq!(exceeded(&shares, &[holding("192.0.2.1", 200_000)]), []);
        let more = exceeded(&shares, &[holding("192.0.2.1", 1)]);
        assert_eq!(more, [client("192.0.2.1")]);
        let network = [holding("2001:db8::1", 50_000), holding("2001:db8::ffff:1", 50_001)];
        assert_eq!(exceeded(&shares, &network), [client("2001:db8::")]);
    }

    #[test]
    fn a_client_has_so_many_requests() {
        let shares = shares();
        assert_eq!(exceeded(&shares, &[holding("192.0.2.1", 1); 3]), []);
        assert_eq!(exceeded(&shares, &[holding("192.0.2.1", 1)]), [client("192.0.2.1")]);
    }

    #[test]
    fn large_bodies_leave_a_quarter_to_small_ones() {
        let shares = shares();
        assert_eq!(exceeded(&shares, &[holding("-", 100_000); 6]), []);
        assert_eq!(exceeded(&shares, &[holding("-", SMALL_BODY); 3]), []);
        assert_eq!(exceeded(&shares, &[holding("-", SMALL_BODY + 1)]), [Share::Large, Share::All]);
    }

    #[test]
    fn what_is_in_hand_fits_if_the_rest_can_be_ended() {
        let shares = shares();
        let in_hand = |bytes| Holding { in_hand: true, ..holding("-", bytes) };
        exceeded(&shares, &[holding("-", 300_000); 2]);
        assert!(shares.replace(Holding::default(), in_hand(600_000)));
        assert_eq!(shares.take_exceeded(), [Share::Large, Share::All]);
        assert!(shares.wants_room(Share::All));
        assert!(!shares.replace(Holding::default(), in_hand(100_000)));
    }

    #[test]
    fn what_is_dropped_is_forgotten() {
        let shares = shares();
        let held = holding("192.0.2.1", 90_000);
        exceeded(&shares, &[held]);
        let less = Holding { bytes: 10, in_hand: true, ..held };
        assert!(shares.replace(held, less));
        assert_eq!(shares.bytes(), 10);
        assert!(shares.replace(less, Holding::default()));
        let ledger = shares.lock();
        assert_eq!((ledger.all, ledger.large), (Sums::default(), Sums::default()));
        assert!(ledger.clients.is_empty());
    }
}

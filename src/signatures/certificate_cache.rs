//! Certificates that requests name: fetched once, cached for a day, bounded in size and time.
//!
//! Any stranger can name a certificate. So a fetched one is only *tried* until it verified a request, and then
//! *proven*. Few tried ones are cached, they never displace proven ones, and each doubles the pause before the next
//! fetch. A request waits for its certificate on its handler thread. Only one is fetched at a time; other requests
//! that need a new one are answered so that the provider sends again.
//!
//! Not here: which URLs are allowed (the scheme decides), and whether a certificate is trusted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock::Clock;

/// How long a certificate is used before it is fetched again.
const PROVEN_AGE: Duration = Duration::from_hours(24);
/// How long a URL is not fetched again after it failed, or while its certificate has verified no request.
const TRIED_AGE: Duration = Duration::from_mins(1);
/// The first and the longest pause in which nothing new is fetched for a provider. The pause doubles with each
/// certificate that verified no request.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Time for one fetch; shorter than providers wait for their answer.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Cached at most; a provider has one or two. Beyond that, the oldest is removed.
const MAX_PROVEN: usize = 64;
const MAX_TRIED: usize = 16;
const MAX_PAUSES: usize = 256;
/// Larger than any chain of certificates.
const MAX_BYTES: usize = 32 * 1024;

/// The result of a fetch, and when it was made, by the monotonic clock.
#[derive(Clone)]
struct Fetched {
    at: Duration,
    /// `None`: it failed.
    body: Option<Arc<Vec<u8>>>,
}

/// How many fetches in a row were of no use, and until when nothing is fetched, by the monotonic clock.
#[derive(Clone, Copy)]
struct Pause {
    failures: u32,
    until: Duration,
}

#[derive(Default)]
struct CachedCertificates {
    /// By URL.
    proven: HashMap<String, Fetched>,
    tried: HashMap<String, Fetched>,
    /// By provider.
    pauses: HashMap<String, Pause>,
}

/// Fetches a URL within a timeout: the status and the body of the answer, or the error.
pub type Fetch = Box<dyn Fn(&str, Duration) -> Result<(u16, Vec<u8>), String> + Send + Sync>;

/// The cache of fetched certificates.
pub struct Certificates {
    fetch: Fetch,
    clock: Clock,
    state: Mutex<CachedCertificates>,
    fetching: Mutex<()>,
}

/// A certificate to check a request with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The bytes at its URL.
    pub body: Arc<Vec<u8>>,
    /// Whether it has verified a request before.
    pub is_proven: bool,
}

/// Why a certificate is not available now; it may be a little later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Another certificate is being fetched.
    #[error("another certificate is being fetched")]
    Busy,
    /// The last fetch failed shortly before.
    #[error("{0} could not be fetched a moment ago")]
    FailedBefore(String),
    /// The last certificates for this provider verified no request.
    #[error("{0} is not fetched now: the last certificates for this provider verified no request")]
    Paused(String),
    /// The fetch failed.
    #[error("{url} cannot be fetched: {why}")]
    Failed {
        /// The URL.
        url: String,
        /// The error.
        why: String,
    },
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// An empty cache.
    pub fn new(fetch: Fetch, clock: Clock) -> Self {
        Self { fetch, clock, state: Mutex::default(), fetching: Mutex::default() }
    }

    /// The certificate at a URL that a request to this provider names.
    pub fn get(&self, provider: &str, url: &str) -> Result<Certificate, Missing> {
        if let Some(known) = self.known(provider, url)? {
            return Ok(known);
        }
        let fetched = match self.call(url) {
            Err(Missing::Busy) => return Err(Missing::Busy),
            Ok(body) if body.len() > MAX_BYTES => {
                let why = format!("it has more than {MAX_BYTES} bytes");
                Err(Missing::Failed { url: url.to_owned(), why })
            }
            fetched => fetched,
        };
        let mut state = self.state.lock();
        let at = self.clock.monotonic();
        make_room(&mut state.tried, MAX_TRIED, url, |tried| tried.at);
        state.tried.insert(url.to_owned(), Fetched { at, body: fetched.as_ref().ok().cloned() });
        // Renewing a proven certificate needs no pause: strangers cannot make proven ones.
        if !state.proven.contains_key(url) {
            let failures = state.pauses.get(provider).map_or(0, |pause| pause.failures);
            let span = PAUSE.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_PAUSE);
            make_room(&mut state.pauses, MAX_PAUSES, provider, |pause| pause.until);
            let pause =
                Pause { failures: failures.saturating_add(1), until: at.saturating_add(span) };
            state.pauses.insert(provider.to_owned(), pause);
        }
        fetched.map(|body| Certificate { body, is_proven: false })
    }

    /// Marks a certificate as proven: it has verified a request to this provider.
    pub fn proved(&self, provider: &str, url: &str, found: &Certificate) {
        let mut state = self.state.lock();
        let now = self.clock.monotonic();
        let at = state.tried.remove(url).map_or(now, |tried| tried.at);
        state.pauses.remove(provider);
        make_room(&mut state.proven, MAX_PROVEN, url, |proven| proven.at);
        state.proven.insert(url.to_owned(), Fetched { at, body: Some(Arc::clone(&found.body)) });
    }

    /// Calls a URL that confirms a subscription; after a failure it is not called again for a minute.
    pub fn confirm(&self, url: &str) -> Result<(), Missing> {
        let now = self.clock.monotonic();
        let failed = self
            .state
            .lock()
            .tried
            .get(url)
            .is_some_and(|tried| now.saturating_sub(tried.at) < TRIED_AGE);
        if failed {
            return Err(Missing::FailedBefore(without_query(url).to_owned()));
        }
        let called = self.call(url);
        if let Err(Missing::Failed { .. }) = &called {
            let mut state = self.state.lock();
            make_room(&mut state.tried, MAX_TRIED, url, |tried| tried.at);
            state.tried.insert(url.to_owned(), Fetched { at: now, body: None });
        }
        called.map(drop)
    }

    /// Fetches a URL, even if it is cached.
    fn call(&self, url: &str) -> Result<Arc<Vec<u8>>, Missing> {
        // One at a time, so that requests of strangers block one handler at most.
        let _one = self.fetching.try_lock().ok_or(Missing::Busy)?;
        let shown = without_query(url);
        let failed =
            |why: String| Missing::Failed { url: shown.to_owned(), why: why.replace(url, shown) };
        let (status, body) = (self.fetch)(url, TIMEOUT).map_err(failed)?;
        if status != 200 {
            return Err(failed(format!("the answer was {status}")));
        }
        Ok(Arc::new(body))
    }

    /// The cached certificate of a URL; `None` if it may be fetched.
    fn known(&self, provider: &str, url: &str) -> Result<Option<Certificate>, Missing> {
        let state = self.state.lock();
        let now = self.clock.monotonic();
        let fresh = |fetched: &&Fetched, span| now.saturating_sub(fetched.at) < span;
        let proven = state.proven.get(url);
        if let Some(Fetched { body: Some(body), .. }) = proven.filter(|it| fresh(it, PROVEN_AGE)) {
            return Ok(Some(Certificate { body: Arc::clone(body), is_proven: true }));
        }
        match state.tried.get(url).filter(|tried| fresh(tried, TRIED_AGE)) {
            // A stranger may have named the right one first.
            Some(Fetched { body: Some(body), .. }) => {
                Ok(Some(Certificate { body: Arc::clone(body), is_proven: false }))
            }
            Some(Fetched { body: None, .. }) => Err(Missing::FailedBefore(url.to_owned())),
            None if proven.is_some() => Ok(None),
            None => match state.pauses.get(provider) {
                Some(pause) if now < pause.until => Err(Missing::Paused(url.to_owned())),
                _ => Ok(None),
            },
        }
    }
}

/// A URL without its query, which may contain a token and must not be logged.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Makes room for a key by removing the oldest entry.
fn make_room<V>(map: &mut HashMap<String, V>, most: usize, key: &str, at: fn(&V) -> Duration) {
    if map.len() >= most && !map.contains_key(key) {
        let oldest = map.iter().min_by_key(|(_, value)| at(value)).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| map.remove(&oldest));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::base::clock::{ManualTime, Timestamp};

    /// A cache whose fetches answer by the URL's ending, and are counted.
    fn counting(fetches: &Arc<AtomicUsize>) -> (Certificates, Arc<ManualTime>) {
        let time = ManualTime::at(Timestamp::from_secs(0));
        let fetches = Arc::clone(fetches);
        let fetch = move |url: &str, _timeout: Duration| {
            fetches.fetch_add(1, Ordering::SeqCst);
            let status = if url.ends_with("gone") { 404 } else { 200 };
            let long = if url.ends_with("long") { MAX_BYTES } else { 0 };
            Ok((status, [url.as_bytes(), &vec![b'x'; long]].concat()))
        };
        (Certificates::new(Box::new(fetch), Clock::from_source(time.clone())), time)
    }

    #[test]
    fn a_proven_certificate_is_fetched_once_a_day_and_a_failed_one_once_a_minute() {
        let fetches = Arc::default();
        let (certificates, time) = counting(&fetches);
        let asked = || fetches.load(Ordering::SeqCst);
        let found = certificates.get("p", "https://a").unwrap();
        assert_eq!(found.body.as_slice(), b"https://a");
        certificates.proved("p", "https://a", &found);
        assert!(certificates.get("p", "https://a").unwrap().is_proven);
        assert_eq!(asked(), 1);
        time.advance(Duration::from_hours(25));
        let again = certificates.get("p", "https://a").unwrap();
        assert!(!again.is_proven);
        certificates.proved("p", "https://a", &again);
        assert_eq!(asked(), 2);
        let gone = "https://gone".to_owned();
        assert!(matches!(certificates.get("p", &gone), Err(Missing::Failed { .. })));
        assert_eq!(certificates.get("p", &gone), Err(Missing::FailedBefore(gone.clone())));
        assert_eq!(asked(), 3);
        time.advance(Duration::from_secs(61));
        assert!(matches!(certificates.get("p", &gone), Err(Missing::Failed { .. })));
        assert!(matches!(certificates.get("q", "https://long"), Err(Missing::Failed { .. })));
        assert_eq!(asked(), 5);
        let held = certificates.fetching.lock();
        assert_eq!(certificates.get("r", "https://b"), Err(Missing::Busy));
        drop(held);
        certificates.get("r", "https://b").unwrap();
    }

    #[test]
    fn strangers_cause_ever_fewer_fetches_and_displace_no_proven_certificate() {
        let fetches = Arc::default();
        let (certificates, time) = counting(&fetches);
        let found = certificates.get("p", "https://own").unwrap();
        certificates.proved("p", "https://own", &found);
        // An hour of requests, ten each second, each naming another certificate.
        for n in 0..36_000 {
            drop(certificates.get("p", &format!("https://{n}")));
            time.advance(Duration::from_millis(100));
        }
        let asked = fetches.load(Ordering::SeqCst) - 1;
        assert!((60..=70).contains(&asked), "{asked}");
        let state = certificates.state.lock();
        assert!(state.tried.len() <= MAX_TRIED && state.pauses.len() == 1);
        drop(state);
        assert!(certificates.get("p", "https://own").unwrap().is_proven);
        assert!(matches!(certificates.get("p", "https://new"), Err(Missing::Paused(_))));
        // Another provider is not affected, and a proven certificate is renewed in spite of the pause.
        certificates.get("q", "https://new").unwrap();
        time.advance(Duration::from_hours(24));
        drop(certificates.get("p", "https://x"));
        assert!(matches!(certificates.get("p", "https://y"), Err(Missing::Paused(_))));
        let renewed = certificates.get("p", "https://own").unwrap();
        assert!(!renewed.is_proven);
        // A certificate that a stranger named first is available to the request that it verifies.
        assert!(!certificates.get("q", "https://own").unwrap().is_proven);
        certificates.proved("q", "https://own", &renewed);
        assert!(certificates.get("p", "https://own").unwrap().is_proven);
    }
}

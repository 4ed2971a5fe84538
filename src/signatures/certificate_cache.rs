//! Certificates that requests name: fetched once, kept a day, bounded in size and time.
//!
//! Anybody can name one, so what was fetched is only *tried* until a request was right with it: such are few,
//! drive out nothing that was *proven*, and each makes the pause before the next longer. The request that needs
//! one waits for it on its handler thread, one at a time: while another is being fetched, a provider is asked
//! to send again. Not here: which URL may be asked for, which the scheme knows, and whether a certificate is to
//! be believed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::base::clock::{Clock, Timestamp};

/// How long a certificate is used before it is fetched again.
const KEPT: Duration = Duration::from_hours(24);
/// How long a URL is not asked again after it failed, or after nothing was right with what it gave.
const TRIED: Duration = Duration::from_mins(1);
/// How long a provider's requests have nothing new fetched, at first and at most: it doubles with each
/// certificate that was of no use.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Time for one exchange; providers wait longer than this for their answer.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Kept at most; a provider has one or two. Beyond, the oldest goes.
const MAX_PROVEN: usize = 64;
const MAX_TRIED: usize = 16;
const MAX_PAUSES: usize = 256;
/// No chain of certificates is longer.
const MAX_BYTES: usize = 32 * 1024;

/// What came of asking for one, and when.
#[derive(Clone)]
struct Kept {
    at: Timestamp,
    /// `None`: it failed.
    body: Option<Arc<Vec<u8>>>,
}

/// How often in a row nothing came of asking, and until when nothing is asked.
#[derive(Clone, Copy)]
struct Pause {
    failures: u32,
    until: Timestamp,
}

#[derive(Default)]
struct State {
    /// By URL.
    proven: HashMap<String, Kept>,
    tried: HashMap<String, Kept>,
    /// By provider.
    pauses: HashMap<String, Pause>,
}

/// Asks for a URL within a time: the status and the body of the answer, or why there is none.
pub type Fetch = Box<dyn Fn(&str, Duration) -> Result<(u16, Vec<u8>), String> + Send + Sync>;

/// The certificates that were fetched.
pub struct Certificates {
    fetch: Fetch,
    clock: Clock,
    state: Mutex<State>,
    fetching: Mutex<()>,
}

/// A certificate to check a request with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What was at its URL.
    pub body: Arc<Vec<u8>>,
    /// Whether a request was right with it before.
    pub is_proven: bool,
}

/// Why there is none now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Another certificate is being fetched.
    #[error("another certificate is being fetched")]
    Busy,
    /// It failed shortly before.
    #[error("{0} could not be fetched a moment ago")]
    FailedBefore(String),
    /// Too much was fetched for this provider that was of no use.
    #[error("{0} is not fetched now: what such requests named before was of no use")]
    Paused(String),
    /// It failed.
    #[error("{url} cannot be fetched: {why}")]
    Failed {
        /// What was asked for.
        url: String,
        /// What went wrong.
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

    /// What is at a URL that a request to this provider names.
    pub fn get(&self, provider: &str, url: &str) -> Result<Found, Missing> {
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
        let (mut state, at) = (self.state(), self.clock.now());
        bounded(&mut state.tried, MAX_TRIED, url, |kept| kept.at);
        state.tried.insert(url.to_owned(), Kept { at, body: fetched.as_ref().ok().cloned() });
        // Renewing what was proven before is nothing that a stranger can multiply.
        if !state.proven.contains_key(url) {
            let failures = state.pauses.get(provider).map_or(0, |pause| pause.failures);
            let span = PAUSE.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_PAUSE);
            bounded(&mut state.pauses, MAX_PAUSES, provider, |pause| pause.until);
            let pause = Pause { failures: failures.saturating_add(1), until: at.plus(span) };
            state.pauses.insert(provider.to_owned(), pause);
        }
        fetched.map(|body| Found { body, is_proven: false })
    }

    /// A request to this provider was right with what [`Certificates::get`] found: it is kept.
    pub fn proved(&self, provider: &str, url: &str, found: &Found) {
        let (mut state, now) = (self.state(), self.clock.now());
        let at = state.tried.remove(url).map_or(now, |kept| kept.at);
        state.pauses.remove(provider);
        bounded(&mut state.proven, MAX_PROVEN, url, |kept| kept.at);
        state.proven.insert(url.to_owned(), Kept { at, body: Some(Arc::clone(&found.body)) });
    }

    /// Calls a URL for what the call itself does; one that failed is not called again for a while.
    pub fn confirm(&self, url: &str) -> Result<(), Missing> {
        let now = self.clock.now();
        let failed = self.state().tried.get(url).is_some_and(|kept| now.since(kept.at) < TRIED);
        if failed {
            return Err(Missing::FailedBefore(place(url).to_owned()));
        }
        let called = self.call(url);
        if let Err(Missing::Failed { .. }) = &called {
            let mut state = self.state();
            bounded(&mut state.tried, MAX_TRIED, url, |kept| kept.at);
            state.tried.insert(url.to_owned(), Kept { at: now, body: None });
        }
        called.map(drop)
    }

    /// Asks for a URL, whatever is kept.
    fn call(&self, url: &str) -> Result<Arc<Vec<u8>>, Missing> {
        // One at a time, so that strangers who name URLs hold one handler at most.
        let _one = self.fetching.try_lock().ok_or(Missing::Busy)?;
        let place = place(url);
        let failed =
            |why: String| Missing::Failed { url: place.to_owned(), why: why.replace(url, place) };
        let (status, body) = (self.fetch)(url, TIMEOUT).map_err(failed)?;
        if status != 200 {
            return Err(failed(format!("it was answered {status}")));
        }
        Ok(Arc::new(body))
    }

    /// What is known of a URL; `None` when it may be asked for.
    fn known(&self, provider: &str, url: &str) -> Result<Option<Found>, Missing> {
        let (state, now) = (self.state(), self.clock.now());
        let fresh = |kept: &&Kept, span| now.since(kept.at) < span;
        let proven = state.proven.get(url);
        if let Some(Kept { body: Some(body), .. }) = proven.filter(|kept| fresh(kept, KEPT)) {
            return Ok(Some(Found { body: Arc::clone(body), is_proven: true }));
        }
        match state.tried.get(url).filter(|kept| fresh(kept, TRIED)) {
            // Strangers may have named the right one first.
            Some(Kept { body: Some(body), .. }) => {
                Ok(Some(Found { body: Arc::clone(body), is_proven: false }))
            }
            Some(Kept { body: None, .. }) => Err(Missing::FailedBefore(url.to_owned())),
            None if proven.is_some() => Ok(None),
            None => match state.pauses.get(provider) {
                Some(pause) if now < pause.until => Err(Missing::Paused(url.to_owned())),
                _ => Ok(None),
            },
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A URL without its query, which may hold a token: that belongs in no log.
fn place(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Makes room for that key: the oldest goes.
fn bounded<V>(map: &mut HashMap<String, V>, most: usize, key: &str, at: fn(&V) -> Timestamp) {
    if map.len() >= most && !map.contains_key(key) {
        let oldest = map.iter().min_by_key(|(_, value)| at(value)).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| map.remove(&oldest));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::base::clock::ManualTime;

    /// Answers what its URL says, and counts.
    #[derive(Default)]
    struct Line(AtomicUsize);

    fn over(line: &Arc<Line>) -> (Certificates, Arc<ManualTime>) {
        let time = ManualTime::at(Timestamp::from_secs(0));
        let line = Arc::clone(line);
        let fetch = move |url: &str, _timeout: Duration| {
            line.0.fetch_add(1, Ordering::SeqCst);
            let status = if url.ends_with("gone") { 404 } else { 200 };
            let long = if url.ends_with("long") { MAX_BYTES } else { 0 };
            Ok((status, [url.as_bytes(), &vec![b'x'; long]].concat()))
        };
        (Certificates::new(Box::new(fetch), Clock::from_source(time.clone())), time)
    }

    #[test]
    fn what_was_proven_is_fetched_once_a_day_and_a_failure_once_a_minute() {
        let line = Arc::new(Line::default());
        let (certificates, time) = over(&line);
        let asked = || line.0.load(Ordering::SeqCst);
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
    fn strangers_have_less_and_less_fetched_and_drive_out_nothing_that_was_proven() {
        let line = Arc::new(Line::default());
        let (certificates, time) = over(&line);
        let found = certificates.get("p", "https://own").unwrap();
        certificates.proved("p", "https://own", &found);
        // An hour of requests, ten each second, each naming another certificate.
        for n in 0..36_000 {
            drop(certificates.get("p", &format!("https://{n}")));
            time.advance(Duration::from_millis(100));
        }
        let asked = line.0.load(Ordering::SeqCst) - 1;
        assert!((60..=70).contains(&asked), "{asked}");
        let state = certificates.state();
        assert!(state.tried.len() <= MAX_TRIED && state.pauses.len() == 1);
        drop(state);
        assert!(certificates.get("p", "https://own").unwrap().is_proven);
        assert!(matches!(certificates.get("p", "https://new"), Err(Missing::Paused(_))));
        // Another provider is none the worse, and what was proven is renewed in spite of the pause.
        certificates.get("q", "https://new").unwrap();
        time.advance(Duration::from_hours(24));
        drop(certificates.get("p", "https://x"));
        assert!(matches!(certificates.get("p", "https://y"), Err(Missing::Paused(_))));
        let renewed = certificates.get("p", "https://own").unwrap();
        assert!(!renewed.is_proven);
        // One that a stranger named first is there for the request that is right with it.
        assert!(!certificates.get("q", "https://own").unwrap().is_proven);
        certificates.proved("q", "https://own", &renewed);
        assert!(certificates.get("p", "https://own").unwrap().is_proven);
    }
}

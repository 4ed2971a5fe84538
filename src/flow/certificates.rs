//! Certificates that requests name: fetched once, kept a day, bounded in size and time.
//!
//! The request that needs one waits for it on its handler thread, one at a time: while another is being
//! fetched, a provider is asked to send again. Not here: which URL may be asked for, which the scheme knows,
//! and whether a certificate is to be believed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::flow::deliver::Sender;
use crate::http::client::Call;

/// How long a certificate is used before it is fetched again.
const KEPT: Duration = Duration::from_hours(24);
/// How long nothing is asked again after it failed.
const FAILED: Duration = Duration::from_mins(1);
/// Time for one exchange; providers wait longer than this for their answer.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Kept at most; a provider has one or two. Beyond, the oldest goes.
const KEPT_MOST: usize = 64;

/// What came of asking for one, and when.
#[derive(Clone)]
struct Kept {
    at: Timestamp,
    found: Option<Arc<Vec<u8>>>,
}

/// Those that were fetched.
pub struct Certificates {
    sender: Arc<dyn Sender>,
    clock: Clock,
    kept: Mutex<HashMap<String, Kept>>,
    fetching: Mutex<()>,
}

/// Why there is none now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Somebody else's comes first.
    #[error("another certificate is being fetched")]
    Busy,
    /// It failed shortly before.
    #[error("{0} could not be fetched a moment ago")]
    FailedBefore(String),
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
    /// None yet. What is fetched goes the way of deliveries: the same address policy, the same roots.
    pub fn new(sender: Arc<dyn Sender>, clock: Clock) -> Self {
        Self { sender, clock, kept: Mutex::default(), fetching: Mutex::default() }
    }

    /// What is at a URL.
    ///
    /// # Errors
    /// [`Missing`]: it may be there a little later.
    pub fn get(&self, url: &str) -> Result<Arc<Vec<u8>>, Missing> {
        if let Some(known) = self.known(url) {
            return known.found.ok_or_else(|| Missing::FailedBefore(url.to_owned()));
        }
        let fetched = self.call(url);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // What failed drives out nothing that was found.
        let good = |one: &Kept| one.found.is_some();
        let stays = fetched.is_err() && kept.get(url).is_some_and(good);
        if !stays && !matches!(fetched, Err(Missing::Busy)) {
            if kept.len() >= KEPT_MOST && !kept.contains_key(url) {
                let oldest = kept.iter().min_by_key(|(_, one)| (good(one), one.at));
                let oldest = oldest.filter(|(_, one)| fetched.is_ok() || !good(one));
                let Some(oldest) = oldest.map(|(url, _)| url.clone()) else { return fetched };
                kept.remove(&oldest);
            }
            let (at, found) = (self.clock.now(), fetched.as_ref().ok().cloned());
            kept.insert(url.to_owned(), Kept { at, found });
        }
        fetched
    }

    /// Asks for a URL, whatever is kept.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn call(&self, url: &str) -> Result<Arc<Vec<u8>>, Missing> {
        // One at a time, so that strangers who name URLs hold one handler at most.
        let _one = match self.fetching.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Missing::Busy),
        };
        // A query may hold a token, which belongs in no log.
        let place = url.split('?').next().unwrap_or_default();
        let failed =
            |why: String| Missing::Failed { url: place.to_owned(), why: why.replace(url, place) };
        let call = Call { method: "GET", url, headers: &[], body: &[], timeout: TIMEOUT };
        let answer = self.sender.send(&call).map_err(|error| failed(error.to_string()))?;
        if answer.status != 200 {
            return Err(failed(format!("it was answered {}", answer.status)));
        }
        Ok(Arc::new(answer.body))
    }

    fn known(&self, url: &str) -> Option<Kept> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let one = kept.get(url)?;
        let fresh = if one.found.is_some() { KEPT } else { FAILED };
        (self.clock.now().since(one.at) < fresh).then(|| one.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::ManualTime;
    use crate::http::client::{Answer, CallError};

    /// Answers what its URL says, and counts.
    #[derive(Default)]
    struct Line(AtomicUsize);

    impl Sender for Line {
        fn send(&self, call: &Call<'_>) -> Result<Answer, CallError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            let status = if call.url.ends_with("gone") { 404 } else { 200 };
            Ok(Answer { status, retry_after: None, body: call.url.as_bytes().to_vec() })
        }
    }

    #[test]
    fn a_certificate_is_fetched_once_a_day_and_a_failure_once_a_minute() {
        let (line, time) = (Arc::new(Line::default()), ManualTime::at(Timestamp::from_secs(0)));
        let sender: Arc<dyn Sender> = Arc::<Line>::clone(&line);
        let certificates = Certificates::new(sender, Clock::from_source(time.clone()));
        let asked = || line.0.load(Ordering::SeqCst);
        assert_eq!(certificates.get("https://a").unwrap().as_slice(), b"https://a");
        certificates.get("https://a").unwrap();
        assert_eq!(asked(), 1);
        time.advance(Duration::from_hours(25));
        certificates.get("https://a").unwrap();
        assert_eq!(asked(), 2);
        let gone = "https://gone".to_owned();
        assert!(matches!(certificates.get(&gone), Err(Missing::Failed { .. })));
        assert_eq!(certificates.get(&gone), Err(Missing::FailedBefore(gone.clone())));
        assert_eq!(asked(), 3);
        time.advance(Duration::from_secs(61));
        assert!(matches!(certificates.get(&gone), Err(Missing::Failed { .. })));
        assert_eq!(asked(), 4);
        let held = certificates.fetching.lock().unwrap();
        assert_eq!(certificates.get("https://b"), Err(Missing::Busy));
        drop(held);
        certificates.get("https://b").unwrap();
    }
}

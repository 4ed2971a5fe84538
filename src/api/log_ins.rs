//! What log-ins need besides the store: passwords, cached sessions, and how often a log-in failed.
//!
//! A failure is counted for the client, and for the client with the name: nobody can lock a person out from elsewhere.
//! Beyond the limit nothing is checked, because a check of a password takes 19 MiB and some 30 ms of a core.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use parking_lot::Mutex;

use crate::api::problem::Problem;
use crate::base::cache::Cache;
use crate::base::clock::{Timestamp, millis};
use crate::base::id::Draw;
use crate::base::secret::SecretBytes;
use crate::model::throttle::{self, Limit, Throttle};
use crate::model::user::StoredSession;

/// How often a session's last use is stored.
const USE_NOTED_EVERY: Duration = Duration::from_mins(1);
/// The most sessions that are cached.
const MAX_REMEMBERED: usize = 1024;
/// Failures of one client.
const OF_CLIENT: Limit = Limit { max: 10, span: Duration::from_mins(1), max_keys: 4096 };
/// Failures of one client with one name. A client adds at most 50 keys: ten a minute, for five minutes. One-time links
/// are not limited by this.
const OF_NAME: Limit = Limit { max: 10, span: Duration::from_mins(5), max_keys: 4096 };
/// The longest name that is counted and audited, in characters: a tenant, `/` and a user.
const MAX_NAME_CHARS: usize = 127;
/// The parameters of argon2id that OWASP names: KiB, passes, lanes.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);
/// Bytes of a salt.
const SALT_BYTES: usize = 16;

/// What log-ins need.
#[derive(Debug)]
pub(super) struct LogIns {
    sessions: Cache<Vec<u8>, KnownSession>,
    clients: Mutex<Throttle<IpAddr>>,
    names: Mutex<Throttle<(IpAddr, String, String)>>,
    /// Locked while a password is hashed: one at a time, since each takes 19 MiB.
    hashing: Mutex<()>,
    /// Locked by the one thread that waits for `hashing`.
    waiting: Mutex<()>,
    /// The code that makes the first admin; `None` once there is a user.
    pub(super) first_code: Mutex<Option<SecretBytes>>,
}

/// A session that was presented before.
#[derive(Debug)]
pub(super) struct KnownSession {
    /// Its row.
    pub(super) stored: StoredSession,
    /// Its last use, in ms.
    used_at: AtomicI64,
}

/// Tenant and name of a user.
type Whose<'a> = (&'a str, &'a str);

fn key(client: IpAddr, (tenant, name): Whose<'_>) -> (IpAddr, String, String) {
    (throttle::client(client), shortened(tenant), shortened(name))
}

/// What was entered as a name, as it is audited.
pub(super) fn shortened(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

impl LogIns {
    /// Nothing known yet.
    pub(super) fn new() -> Self {
        Self {
            sessions: Cache::new(MAX_REMEMBERED),
            clients: Mutex::new(Throttle::new(OF_CLIENT)),
            names: Mutex::new(Throttle::new(OF_NAME)),
            hashing: Mutex::default(),
            waiting: Mutex::default(),
            first_code: Mutex::default(),
        }
    }

    /// Empties the cache; called after a commit that changed a user, a session or a tenant.
    pub(super) fn forget(&self) {
        self.sessions.forget();
    }

    /// The session with this hash: the cached one, or what `read` finds.
    pub(super) fn session<E>(
        &self,
        hash: Vec<u8>,
        read: impl FnOnce(&[u8]) -> Result<Option<StoredSession>, E>,
    ) -> Result<Option<Arc<KnownSession>>, E> {
        self.sessions.get(hash, |hash| {
            let stored = read(hash)?;
            Ok(stored.map(|stored| {
                let used_at = AtomicI64::new(stored.last_used_at.ms());
                KnownSession { stored, used_at }
            }))
        })
    }

    /// Fails with 429 if the client failed too often, or with this name.
    pub(super) fn check(
        &self,
        client: IpAddr,
        whose: Option<Whose<'_>>,
        now: Duration,
    ) -> Result<(), Problem> {
        let of_client = self.clients.lock().blocked(&throttle::client(client), now);
        let of_name = whose.and_then(|whose| self.names.lock().blocked(&key(client, whose), now));
        match of_client.max(of_name) {
            Some(left) => Err(Problem::too_many_log_ins(left)),
            None => Ok(()),
        }
    }

    /// Counts a failure.
    pub(super) fn failed(&self, client: IpAddr, whose: Option<Whose<'_>>, now: Duration) {
        let _verdict = self.clients.lock().count(throttle::client(client), now);
        if let Some(whose) = whose {
            let _verdict = self.names.lock().count(key(client, whose), now);
        }
    }

    /// The hash of a new password.
    /// Fails with 503 if others are hashed at the same time.
    pub(super) fn hash(&self, password: &str, draw: &dyn Draw) -> Result<String, Problem> {
        let mut salt = [0; SALT_BYTES];
        draw.fill(&mut salt);
        let hash = self.one_at_a_time(|argon2| {
            argon2.hash_password_with_salt(password.as_bytes(), &salt).map(|hash| hash.to_string())
        })?;
        hash.map_err(failed)
    }

    /// Whether a password is the one with this hash. Without a hash it takes the same time, and is not.
    /// Fails with 503 if others are checked at the same time.
    pub(super) fn verify(&self, password: &str, hash: Option<&str>) -> Result<bool, Problem> {
        let Some(hash) = hash else {
            let salt = [0; SALT_BYTES];
            let hash = self.one_at_a_time(|argon2| -> Result<PasswordHash, _> {
                argon2.hash_password_with_salt(password.as_bytes(), &salt)
            })?;
            return hash.map(|_hash| false).map_err(failed);
        };
        let hash = PasswordHash::new(hash).map_err(|error| Problem::internal(error.to_string()))?;
        self.one_at_a_time(|argon2| argon2.verify_password(password.as_bytes(), &hash).is_ok())
    }

    /// At most a single handler of four computes and another waits, so that the others stay free.
    fn one_at_a_time<T>(&self, compute: impl FnOnce(&Argon2<'_>) -> T) -> Result<T, Problem> {
        let (memory, passes, lanes) = COST;
        let params = Params::new(memory, passes, lanes, None)
            .map_err(|error| Problem::internal(error.to_string()))?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let turn = self.waiting.try_lock().ok_or_else(|| {
            Problem::unavailable("Several passwords are checked right now; try it again.", 1)
        })?;
        let computing = self.hashing.lock();
        drop(turn);
        let done = compute(&argon2);
        drop(computing);
        Ok(done)
    }
}

fn failed(error: argon2::password_hash::Error) -> Problem {
    Problem::internal(error.to_string())
}

impl KnownSession {
    /// Whether it has ended, by its age or because it was not used for `idle`.
    pub(super) fn is_over(&self, now: Timestamp, idle: Duration) -> bool {
        let used_at = Timestamp::from_ms(self.used_at.load(Ordering::Relaxed));
        now >= self.stored.ends_at || now.since(used_at) >= idle
    }

    /// Whether this use is to be stored: once a minute, by one of concurrent requests.
    pub(super) fn is_to_be_noted(&self, now: Timestamp) -> bool {
        let used = self.used_at.load(Ordering::Relaxed);
        if now.ms().saturating_sub(used) < millis(USE_NOTED_EVERY) {
            return false;
        }
        let taken =
            self.used_at.compare_exchange(used, now.ms(), Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    #[test]
    fn a_password_is_verified_by_its_hash_only() {
        let log_ins = LogIns::new();
        let hash = log_ins.hash("correct horse battery", &SystemDraw::new()).unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(log_ins.verify("correct horse battery", Some(&hash)).unwrap());
        assert!(!log_ins.verify("correct horse batterz", Some(&hash)).unwrap());
        assert!(!log_ins.verify("correct horse battery", None).unwrap());
    }

    #[test]
    fn failures_are_limited_by_client_and_by_name_of_that_client() {
        let log_ins = LogIns::new();
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        for _ in 0..10 {
            log_ins.check(one, Some(("default", "anna")), Duration::ZERO).unwrap();
            log_ins.failed(one, Some(("default", "anna")), Duration::ZERO);
        }
        let check = |client, name, secs| log_ins.check(client, name, Duration::from_secs(secs));
        assert_eq!(check(one, Some(("default", "bela")), 1).unwrap_err().status(), 429);
        assert_eq!(check(one, Some(("default", "anna")), 61).unwrap_err().status(), 429);
        check(other, Some(("default", "anna")), 1).unwrap();
        check(one, Some(("default", "bela")), 61).unwrap();
        check(other, None, 61).unwrap();
        check(one, Some(("default", "anna")), 300).unwrap();
    }
}

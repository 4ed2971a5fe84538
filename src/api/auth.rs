//! Bearer tokens, looked up by their keyed hash.
//!
//! A valid token is never throttled, even if other clients behind its address fail: tokens are looked up
//! first, and only failures are counted. A failure costs one hash and at most one probe of an index.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ring::hmac;

use crate::api::log_ins::LogIns;
use crate::api::problem::Problem;
use crate::base::cache::Cache;
use crate::base::clock::{Clock, Timestamp, millis};
use crate::base::secret::SecretBytes;
use crate::http::message::Head;
use crate::model::audit::{Actor, ActorType};
use crate::model::name::DEFAULT_TENANT;
use crate::model::throttle::{self, Limit, Throttle, ThrottleVerdict};
use crate::model::token::{self, Right, Role, Scope, Token};
use crate::store::tokens::Presented;
use crate::store::writer::Queue;
use crate::store::{Store, tokens};

/// How often a token's last use is stored.
const USE_NOTED_EVERY: Duration = Duration::from_mins(1);
/// The most tokens that are cached.
const MAX_REMEMBERED: usize = 1024;
/// Failures of one client that are answered 401; further ones in the same minute are answered 429.
const FAILURES: Limit = Limit { max: 10, span: Duration::from_mins(1), max_keys: 4096 };

/// Hashes tokens for storage. The hash is keyed, so that a row that somebody inserts gives no access.
pub struct TokenHasher(hmac::Key);

impl std::fmt::Debug for TokenHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHasher")
    }
}

impl TokenHasher {
    /// Hashes under this key. The database has it sealed, so that tokens stay valid when the master key changes.
    pub fn new(pepper: &SecretBytes) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, pepper.expose()))
    }

    /// The hash of a token.
    pub fn hash(&self, token: &str) -> Vec<u8> {
        hmac::sign(&self.0, token.as_bytes()).as_ref().to_vec()
    }
}

/// Why a call is denied, and its token, if that is known.
#[derive(Debug)]
pub(super) struct Denied {
    /// What is answered.
    pub(super) problem: Problem,
    /// The tenant of the caller, and the caller.
    pub(super) by: Option<Box<(String, Actor)>>,
}

/// Who calls, after authorization.
#[derive(Debug)]
pub(super) struct Caller {
    /// The tenant.
    pub(super) tenant: String,
    /// The bearer of the token, or the person.
    pub(super) who: Actor,
    /// The source systems and consumer groups of a `publish` token; `None`: not limited.
    pub(super) scope: Option<Scope>,
}

impl Caller {
    /// Nobody in particular, on public paths.
    pub(super) fn anonymous() -> Self {
        Self { tenant: DEFAULT_TENANT.to_owned(), who: Actor::anonymous(), scope: None }
    }

    /// The bearer of a token.
    pub(super) fn of(token: Token) -> Self {
        let who = actor(&token);
        let scope = (token.role == Role::Publish).then_some(token.scope);
        Self { tenant: token.tenant, who, scope }
    }
}

impl Denied {
    /// Denies a call without a valid token.
    fn without_token(problem: Problem) -> Self {
        Self { problem, by: None }
    }
}

/// The bearer of a token, for audit events.
fn actor(token: &Token) -> Actor {
    Actor { kind: ActorType::Token, id: token.id.clone(), display: token.name.clone() }
}

/// Finds the token of a request. Tokens are cached until a token or a tenant changes.
#[derive(Clone, Debug)]
pub struct Auth(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Clock,
    hasher: Arc<TokenHasher>,
    /// Tokens by [`Inner::mark`], which costs a tenth of the hash that finds them in the file.
    known: Cache<[u64; 2], Known>,
    marks: [RandomState; 2],
    /// Failures by client.
    failures: Mutex<Throttle<IpAddr>>,
    log_ins: LogIns,
}

impl Inner {
    /// 128 bits that stand for a token's text in memory. Their keys are random and never leave the process, so nobody
    /// finds another text with the same bits.
    fn mark(&self, text: &str) -> [u64; 2] {
        self.marks.each_ref().map(|keyed| keyed.hash_one(text))
    }
}

/// A token that was presented before.
#[derive(Debug)]
struct Known {
    presented: Presented,
    /// When its use was last stored, in ms.
    noted_at: AtomicI64,
}

impl Auth {
    /// Begins with an empty cache.
    pub fn new(store: Store, clock: Clock, hasher: Arc<TokenHasher>) -> Self {
        let known = Cache::new(MAX_REMEMBERED);
        let failures = Mutex::new(Throttle::new(FAILURES));
        let log_ins = LogIns::new();
        let marks = [RandomState::new(), RandomState::new()];
        Self(Arc::new(Inner { store, clock, hasher, known, marks, failures, log_ins }))
    }

    /// Empties the caches; called after a commit that changed a token, a user, a session or a tenant.
    pub fn forget(&self) {
        self.0.known.forget();
        self.0.log_ins.forget();
    }

    /// What log-ins of people need.
    pub(super) fn log_ins(&self) -> &LogIns {
        &self.0.log_ins
    }

    /// The token of a request, if it has the right.
    /// Fails with 401 without a valid token, 429 after too many such failures, 403 if its role does not allow it or its
    /// tenant is suspended.
    pub(super) fn authorize(&self, head: &Head, right: Right) -> Result<Token, Denied> {
        let text = bearer(head).ok_or_else(|| {
            Denied::without_token(Problem::unauthorized(
                "Send a token: `Authorization: Bearer obx_…`.",
            ))
        })?;
        let now = self.0.clock.wall();
        let Some(known) = self.find(text).map_err(Denied::without_token)? else {
            let problem = self.failed(head.client, "the token is unknown".to_owned());
            return Err(Denied::without_token(problem));
        };
        if !known.presented.token.is_valid(now) {
            let Token { id, name, .. } = &known.presented.token;
            let cause = format!("the token {id} ({name:?}) is revoked or expired");
            return Err(Denied::without_token(self.failed(head.client, cause)));
        }
        self.note_use(&known, now);
        let Presented { token, suspended } = &known.presented;
        let by = || Some(Box::new((token.tenant.clone(), actor(token))));
        let denied = |problem| Denied { problem, by: by() };
        if *suspended {
            return Err(denied(Problem::tenant_suspended()));
        }
        if !token.may(right) {
            return Err(denied(Problem::forbidden(refusal(token, right))));
        }
        Ok(token.clone())
    }

    /// The tenant of a request's token.
    pub(super) fn tenant(&self, head: &Head) -> Option<String> {
        let known = self.find(bearer(head)?).ok()??;
        Some(known.presented.token.tenant.clone())
    }

    fn find(&self, text: &str) -> Result<Option<Arc<Known>>, Problem> {
        if !token::has_form(text) {
            return Ok(None);
        }
        let inner = &*self.0;
        let found = inner.known.get(inner.mark(text), |_mark| {
            let hash = inner.hasher.hash(text);
            let presented = inner.store.look_up(|tx| tokens::by_hash(tx, &hash))?;
            Ok(presented.map(|presented| {
                let noted = presented.token.last_used_at.map_or(i64::MIN, Timestamp::ms);
                Known { presented, noted_at: AtomicI64::new(noted) }
            }))
        });
        found.map_err(|error: crate::store::error::Error| error.into())
    }

    /// Counts a failure, and returns its answer.
    fn failed(&self, client: IpAddr, cause: String) -> Problem {
        let client = throttle::client(client);
        let now = self.0.clock.monotonic();
        let mut failures = self.0.failures.lock();
        let problem = match failures.count(client, now) {
            ThrottleVerdict::Within => {
                Problem::unauthorized("The token is unknown, revoked or expired.")
            }
            ThrottleVerdict::Reached(left) | ThrottleVerdict::Beyond(left) => {
                Problem::throttled(left)
            }
        };
        problem.because(cause)
    }

    fn note_use(&self, known: &Known, now: Timestamp) {
        let noted = known.noted_at.load(Ordering::Relaxed);
        if now.ms().saturating_sub(noted) < millis(USE_NOTED_EVERY) {
            return;
        }
        // Of concurrent requests, only one stores it.
        let mine =
            known.noted_at.compare_exchange(noted, now.ms(), Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_err() {
            return;
        }
        let seq = known.presented.token.seq;
        self.0.store.writer().submit(
            Queue::Upkeep,
            move |tx| tokens::used(tx, seq, now),
            |outcome| {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a token's last use was not stored");
                }
            },
        );
    }
}

/// The token of a request, as it was sent.
fn bearer(head: &Head) -> Option<&str> {
    let (scheme, text) = head.headers.get("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
}

fn refusal(token: &Token, right: Right) -> String {
    if right == Right::Box {
        return "Only an admin token of the tenant default may do this.".to_owned();
    }
    format!("A token with the role {} may not do this.", token.role)
}

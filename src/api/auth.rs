//! Who is asking: bearer tokens, looked up by their keyed hash.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ring::hmac;

use crate::api::audited::Denied;
use crate::api::problem::Problem;
use crate::clock::{Clock, Timestamp};
use crate::domain::audit::{Actor, ActorType};
use crate::domain::token::{Right, Token};
use crate::headers::Headers;
use crate::secret::SecretBytes;
use crate::store::writer::Queue;
use crate::store::{Store, tokens};

/// How often a token's last use is written down.
const USE_NOTED_EVERY: Duration = Duration::from_mins(1);
/// Tokens remembered at most; more are looked up each time.
const REMEMBERED_MOST: usize = 1024;

/// Makes the hashes tokens are kept as. Keyed, so that a row somebody inserts opens nothing.
pub struct TokenHasher(hmac::Key);

impl std::fmt::Debug for TokenHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHasher")
    }
}

impl TokenHasher {
    /// Under this key, which the file holds sealed, so that tokens outlive the master key.
    pub fn new(pepper: &SecretBytes) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, pepper.expose()))
    }

    /// The hash of a token.
    pub fn hash(&self, token: &str) -> Vec<u8> {
        hmac::sign(&self.0, token.as_bytes()).as_ref().to_vec()
    }
}

/// A token's bearer, as audit events name it.
pub(super) fn actor(token: &Token) -> Actor {
    Actor { kind: ActorType::Token, id: token.id.clone(), display: token.name.clone() }
}

/// Tells who is asking, and remembers it until a token changes.
#[derive(Clone, Debug)]
pub struct Auth {
    store: Store,
    clock: Clock,
    hasher: Arc<TokenHasher>,
    known: Arc<RwLock<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    generation: u64,
    tokens: HashMap<Vec<u8>, Token>,
}

impl Auth {
    /// Nobody known yet.
    pub fn new(store: Store, clock: Clock, hasher: Arc<TokenHasher>) -> Self {
        Self { store, clock, hasher, known: Arc::default() }
    }

    /// Forgets whom it knew; called after a commit that changed a token.
    pub fn forget(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.generation += 1;
        known.tokens.clear();
    }

    /// The token of a request, if it has the right.
    ///
    /// # Errors
    /// 401 without a valid token, 403 where its role does not allow it.
    pub(super) fn authorize(&self, headers: &Headers, right: Right) -> Result<Token, Denied> {
        let missing = || {
            Denied::stranger(Problem::unauthorized("Send a token: `Authorization: Bearer obx_…`."))
        };
        let field = headers.get("authorization").ok_or_else(missing)?;
        let (scheme, text) = field.split_once(' ').ok_or_else(missing)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(missing());
        }
        let hash = self.hasher.hash(text.trim());
        let now = self.clock.wall();
        let token = self.find(hash).map_err(Denied::stranger)?.filter(|token| token.is_valid(now));
        let Some(token) = token else {
            let problem = Problem::unauthorized("The token is unknown, revoked or expired.");
            return Err(Denied::stranger(problem));
        };
        self.note_use(&token, now);
        if !token.role.may(right) {
            let detail = format!("A token with the role {} may not do this.", token.role);
            let problem = Problem::forbidden(detail);
            return Err(Denied { problem, token: Some(Box::new(token)) });
        }
        Ok(token)
    }

    fn find(&self, hash: Vec<u8>) -> Result<Option<Token>, Problem> {
        let generation = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(token) = known.tokens.get(&hash) {
                return Ok(Some(token.clone()));
            }
            known.generation
        };
        let found = self.store.look_up(|tx| tokens::by_hash(tx, &hash))?;
        if let Some(token) = &found {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.generation == generation && known.tokens.len() < REMEMBERED_MOST {
                known.tokens.insert(hash, token.clone());
            }
        }
        Ok(found)
    }

    fn note_use(&self, token: &Token, now: Timestamp) {
        if token.last_used_at.is_some_and(|last| now.since(last) < USE_NOTED_EVERY) {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for kept in known.tokens.values_mut().filter(|kept| kept.seq == token.seq) {
            kept.last_used_at = Some(now);
        }
        drop(known);
        let seq = token.seq;
        self.store.writer().submit(
            Queue::Upkeep,
            move |tx| tokens::used(tx, seq, now),
            |outcome| {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a token's last use was not noted");
                }
            },
        );
    }
}

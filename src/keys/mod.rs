//! The loaded master keys: one that seals, and older ones that only open; and the tokens of confirm URLs, with which the
//! target of an attempt reports what became of it without a token of the API.
//!
//! During a rotation some secrets are sealed under the old key and some under the new one; each contains the id of
//! its key. Not here: where keys are on the machine (`app::master_key`), the sealing itself ([`crate::base::secret`]), and
//! whether an attempt still waits (`store::confirmations`).

pub mod file;
pub mod subject;

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use parking_lot::RwLock;
use ring::hmac;

use crate::base::id::{DeliverySeq, Draw};
use crate::base::secret::{MasterKey, OpenError, SecretBytes};
use crate::keys::subject::keyed;

/// The loaded master keys; the first one seals.
#[derive(Debug)]
pub struct Keyring(RwLock<Vec<Arc<MasterKey>>>);

impl Keyring {
    /// A keyring with one key, which seals.
    pub fn new(current: MasterKey) -> Self {
        Self(RwLock::new(vec![Arc::new(current)]))
    }

    /// The key that seals.
    ///
    /// # Panics
    /// Never: a keyring starts with a key, and keys are never removed.
    #[expect(
        clippy::expect_used,
        reason = "a keyring starts with a key, and keys are never removed"
    )]
    pub fn current(&self) -> Arc<MasterKey> {
        let keys = self.0.read();
        Arc::clone(keys.first().expect("a keyring has a key"))
    }

    /// The key with this id.
    pub fn of(&self, id: &str) -> Option<Arc<MasterKey>> {
        let keys = self.0.read();
        keys.iter().find(|key| key.key_id() == id).cloned()
    }

    /// Adds a key that only opens.
    pub fn add(&self, key: MasterKey) {
        self.0.write().push(Arc::new(key));
    }

    /// Seals with this key from now on; the earlier keys still open.
    pub fn turn_to(&self, key: MasterKey) {
        self.0.write().insert(0, Arc::new(key));
    }

    /// Opens a value that was sealed for this context under any of the keys; [`OpenError::OtherKey`] if under none.
    pub fn open(&self, context: &str, sealed: &[u8]) -> Result<SecretBytes, OpenError> {
        let named = MasterKey::id_in(sealed).and_then(|id| self.of(&id));
        named.unwrap_or_else(|| self.current()).open(context, sealed)
    }

    /// Has a value that was sealed for this context under any of the keys opened by the current one: only its data key is
    /// wrapped anew. [`OpenError::OtherKey`] if it was sealed under none.
    pub fn rewrap(
        &self,
        context: &str,
        sealed: &[u8],
        draw: &dyn Draw,
    ) -> Result<Vec<u8>, OpenError> {
        let current = self.current();
        let named = MasterKey::id_in(sealed).and_then(|id| self.of(&id));
        let by = named.unwrap_or_else(|| Arc::clone(&current));
        by.rewrap(&current, context, sealed, draw)
    }
}

/// One attempt of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptKey {
    /// The delivery.
    pub delivery: DeliverySeq,
    /// Its run.
    pub run_no: u32,
    /// The attempt's number within the delivery.
    pub n: u32,
}

/// Makes and verifies tokens of confirm URLs under a key of this installation. A rotation of the master key does not
/// change it.
#[derive(Clone, Debug)]
pub struct ConfirmTokens(hmac::Key);

/// A token of the right shape, whose HMAC is not verified yet.
#[derive(Clone, Debug)]
pub struct PresentedToken {
    /// The attempt that it names.
    pub attempt: AttemptKey,
    mac: Vec<u8>,
}

impl ConfirmTokens {
    /// Derives the HMAC key from the installation's pepper.
    pub fn new(pepper: &SecretBytes) -> Self {
        let key = keyed(pepper.expose(), &[b"oncebox confirm urls 1"]);
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
    }

    /// The token of an attempt: delivery, run, attempt and an HMAC over these and the event's id, with hyphens between. The
    /// event's id makes it worthless after a restore, which gives the number of a lost delivery to another event.
    ///
    /// ```
    /// use oncebox::base::{id::DeliverySeq, secret::SecretBytes};
    /// use oncebox::keys::{AttemptKey, ConfirmTokens, PresentedToken};
    /// let tokens = ConfirmTokens::new(&SecretBytes::new(vec![7; 32]));
    /// let attempt = AttemptKey { delivery: DeliverySeq(17), run_no: 1, n: 2 };
    /// let presented = PresentedToken::parse(&tokens.token(attempt, "the event")).unwrap();
    /// assert_eq!(presented.attempt, attempt);
    /// assert!(tokens.verify(&presented, "the event") && !tokens.verify(&presented, "another"));
    /// ```
    pub fn token(&self, attempt: AttemptKey, event_id: &str) -> String {
        let mac = hmac::sign(&self.0, text(attempt, event_id).as_bytes());
        text(attempt, &BASE64URL_NOPAD.encode(mac.as_ref()))
    }

    /// Whether we made this token, for an attempt that carried this event. Takes the same time for every wrong HMAC.
    pub fn verify(&self, presented: &PresentedToken, event_id: &str) -> bool {
        let signed = text(presented.attempt, event_id);
        hmac::verify(&self.0, signed.as_bytes(), &presented.mac).is_ok()
    }
}

fn text(AttemptKey { delivery, run_no, n }: AttemptKey, rest: &str) -> String {
    format!("{}-{run_no}-{n}-{rest}", delivery.0)
}

impl PresentedToken {
    /// Reads a token; `None` if it has another shape.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '-');
        let mut number = || parts.next().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let delivery = DeliverySeq(number()?.parse().ok()?);
        let run_no = number()?.parse().ok()?;
        let n = number()?.parse().ok()?;
        let mac = BASE64URL_NOPAD.decode(parts.next()?.as_bytes()).ok()?;
        Some(Self { attempt: AttemptKey { delivery, run_no, n }, mac })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    #[test]
    fn after_a_rotation_old_values_open_and_new_values_use_the_new_key() {
        let draw = SystemDraw::new();
        let old = MasterKey::generate(&draw);
        let new = MasterKey::generate(&draw);
        let other = MasterKey::generate(&draw);
        let ring = Keyring::new(old.clone());
        let before = ring.current().seal("x", b"before", &draw);
        ring.turn_to(new.clone());
        let after = ring.current().seal("x", b"after", &draw);
        assert_eq!(ring.open("x", &before).unwrap().expose(), b"before");
        assert_eq!(ring.open("x", &after).unwrap().expose(), b"after");
        assert_eq!(MasterKey::id_in(&after), Some(new.key_id()));
        assert!(ring.of(&old.key_id()).is_some() && ring.of(&other.key_id()).is_none());
        let foreign = ring.open("x", &other.seal("x", b"y", &draw)).unwrap_err();
        assert_eq!(foreign, OpenError::OtherKey { have: new.key_id(), need: other.key_id() });
    }

    #[test]
    fn a_token_of_another_attempt_installation_or_shape_is_not_accepted() {
        let tokens = ConfirmTokens::new(&SecretBytes::new(vec![7; 32]));
        let other = ConfirmTokens::new(&SecretBytes::new(vec![8; 32]));
        let attempt = AttemptKey { delivery: DeliverySeq(17), run_no: 1, n: 2 };
        let token = tokens.token(attempt, "event");
        let accepted = |text: &str| {
            PresentedToken::parse(text).is_some_and(|presented| tokens.verify(&presented, "event"))
        };
        assert!(accepted(&token));
        assert!(!accepted(&other.token(attempt, "event")));
        for (from, to) in [("17-", "18-"), ("-1-", "-2-"), ("-2-", "-3-")] {
            assert!(!accepted(&token.replacen(from, to, 1)), "{to}");
        }
        for text in
            ["", "-", "17-1-2", "17-1-2-", "17-1--", "+17-1-2-AA", "99999999999999999999-1-2-AA"]
        {
            assert!(!accepted(text), "{text}");
        }
        assert!(!accepted(token.split_at(token.len() - 1).0) && !accepted(&format!("{token}A")));
    }
}

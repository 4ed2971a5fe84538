//! The loaded master keys: one that seals, and older ones that only open.
//!
//! During a rotation some secrets are sealed under the old key and some under the new one; each contains the id of
//! its key. Not here: where keys are on the machine (`app::master_key`), and the sealing itself
//! ([`crate::base::secret`]).

pub mod confirm_token;
pub mod file;
pub mod subject;

use std::sync::Arc;

use parking_lot::RwLock;

use crate::base::secret::{MasterKey, OpenError, SecretBytes};

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    #[test]
    fn after_a_rotation_old_values_open_and_new_values_use_the_new_key() {
        let draw = SystemDraw::new();
        let (old, new, other) =
            (MasterKey::generate(&draw), MasterKey::generate(&draw), MasterKey::generate(&draw));
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
}

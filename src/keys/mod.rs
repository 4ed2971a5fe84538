//! The master keys that are loaded: one that seals, and those that only open what was sealed before.
//!
//! While keys are rotated some secrets stand under the old key and some under the new one; each names its
//! own. Not here: where keys lie on the machine (`app::master_key`), and the sealing itself
//! ([`crate::base::secret`]).

pub mod file;
pub mod subject;

use std::sync::Arc;

use parking_lot::RwLock;

use crate::base::secret::{MasterKey, OpenError, SecretBytes};

/// The keys, shared by all that seals or opens.
#[derive(Debug)]
pub struct Keyring(RwLock<Vec<Arc<MasterKey>>>);

impl Keyring {
    /// With one key, which seals.
    pub fn new(current: MasterKey) -> Self {
        Self(RwLock::new(vec![Arc::new(current)]))
    }

    /// The key that seals.
    ///
    /// # Panics
    /// Never: a ring is made with a key, and none is taken off.
    #[expect(clippy::expect_used, reason = "a ring is made with a key, and none is taken off")]
    pub fn current(&self) -> Arc<MasterKey> {
        let keys = self.0.read();
        Arc::clone(keys.first().expect("a ring has a key"))
    }

    /// The key of this id.
    pub fn of(&self, id: &str) -> Option<Arc<MasterKey>> {
        let keys = self.0.read();
        keys.iter().find(|key| key.key_id() == id).cloned()
    }

    /// Adds a key that only opens.
    pub fn add(&self, key: MasterKey) {
        self.0.write().push(Arc::new(key));
    }

    /// Seals with this key from now on; those before it go on to open.
    pub fn turn_to(&self, key: MasterKey) {
        self.0.write().insert(0, Arc::new(key));
    }

    /// Opens what was sealed for the same context under any of the keys.
    ///
    /// # Errors
    /// [`OpenError::OtherKey`] when the key is none of them; else as [`MasterKey::open`].
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
    fn what_was_sealed_before_opens_after_and_new_things_are_sealed_under_the_new_key() {
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

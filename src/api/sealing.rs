//! Secrets on their way into the file: sealed in the transaction that stores them.
//!
//! Not before it: a rotation of the master key seals anew what is in the file, and would miss what is sealed and not
//! yet stored.

use std::sync::Arc;

use crate::api::context::Api;
use crate::base::clock::Timestamp;
use crate::base::id::{self, Draw};
use crate::base::secret::SecretBytes;
use crate::keys::Keyring;
use crate::model::credential::{CredentialState, RotationPlan, Settings};
use crate::store::credentials::{NewCredential, Owner, context};

/// A secret for a row that is not stored yet, with the key ring to seal it.
#[derive(Clone)]
pub(super) struct ToSeal {
    id: String,
    settings: Settings,
    secret: SecretBytes,
    /// When it ends by itself, as a certificate does.
    pub(super) valid_until: Option<Timestamp>,
    key: Arc<Keyring>,
    draw: Arc<dyn Draw>,
}

/// Gets a secret ready for the file.
pub(super) fn to_seal(api: &Api, now: Timestamp, settings: Settings, secret: &str) -> ToSeal {
    let key = Arc::clone(&api.env.keyring);
    let draw = Arc::clone(&api.env.draw);
    let id = id::uuid7(now, &*draw);
    let secret = SecretBytes::new(secret.as_bytes().to_vec());
    ToSeal { id, settings, secret, valid_until: None, key, draw }
}

/// The names of secrets, for an audit event: which were added, not what they are.
pub(super) fn ids(of: &[ToSeal]) -> Vec<String> {
    of.iter().map(|secret| secret.id.clone()).collect()
}

impl ToSeal {
    /// The row, once its owner has one. Only the writer may ask.
    pub(super) fn of(&self, tenant: &str, owner: Owner, now: Timestamp) -> NewCredential {
        let key = self.key.current();
        NewCredential {
            id: self.id.clone(),
            tenant: tenant.to_owned(),
            owner,
            settings: self.settings.clone(),
            state: CredentialState::Active,
            sealed: key.seal(&context(&self.id), self.secret.expose(), &*self.draw),
            master_key_id: key.key_id(),
            created_at: now,
            valid_until: self.valid_until,
            verify: None,
            rotation: RotationPlan::default(),
            unseen: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{SubscriptionSeq, SystemDraw};
    use crate::base::secret::MasterKey;

    #[test]
    fn a_secret_that_waits_while_the_key_is_rotated_is_sealed_under_the_new_one() {
        let draw = Arc::new(SystemDraw::new());
        let key = Arc::new(Keyring::new(MasterKey::generate(&*draw)));
        let secret = SecretBytes::new(b"s3cret".to_vec());
        let waiting = ToSeal {
            id: "1".to_owned(),
            settings: Settings::Signing {},
            secret,
            valid_until: None,
            key: Arc::clone(&key),
            draw: draw.clone(),
        };
        key.turn_to(MasterKey::generate(&*draw));
        let row =
            waiting.of("default", Owner::Subscription(SubscriptionSeq(1)), Timestamp::from_secs(1));
        assert_eq!(row.master_key_id, key.current().key_id());
        assert_eq!(key.current().open(&context("1"), &row.sealed).unwrap().expose(), b"s3cret");
    }
}

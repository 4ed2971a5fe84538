//! Secrets on their way into the file: sealed before they leave the handler.

use crate::api::Api;
use crate::clock::Timestamp;
use crate::id;
use crate::store::credentials::{NewCredential, Owner, context};

/// A secret that is sealed, and waits for its owner's row.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    id: String,
    ciphertext: Vec<u8>,
    master_key_id: String,
}

/// Seals a secret for the file.
pub(super) fn seal(api: &Api, now: Timestamp, secret: &str) -> Sealed {
    let id = id::uuid7(now, &*api.draw);
    let ciphertext = api.key.seal(&context(&id), secret.as_bytes(), &*api.draw);
    Sealed { id, ciphertext, master_key_id: api.key.key_id() }
}

/// The names of secrets, for an audit event: which were added, not what they are.
pub(super) fn ids(of: &[Sealed]) -> Vec<String> {
    of.iter().map(|sealed| sealed.id.clone()).collect()
}

impl Sealed {
    /// The row, once its owner has one.
    pub(super) fn of(&self, tenant: &str, owner: Owner, now: Timestamp) -> NewCredential {
        NewCredential {
            id: self.id.clone(),
            tenant: tenant.to_owned(),
            owner,
            sealed: self.ciphertext.clone(),
            master_key_id: self.master_key_id.clone(),
            created_at: now,
        }
    }
}

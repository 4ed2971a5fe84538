//! Keys of rows that name none: they are made of what tells a row from every other one, so that one that is
//! read again is known again.
//!
//! Not here: what that is ([`crate::model::source::draft::Draft::fingerprint`], the file's hash).

use crate::model::event::NewEvent;
use crate::pipeline::sources::shared::Shared;
use crate::store::error::Result;
use crate::store::outbox;

/// The key a row gets, and second the one it would have had before a policy on personal data was stated, or
/// taken away.
pub(super) type Keys = [String; 2];

/// An event under the second of its keys, where it was stored under that one: a policy that came or went since
/// makes no new fact of it. One that names its own key is left as it is.
pub(super) fn recognise(shared: &Shared, event: &mut NewEvent, keys: &Keys) -> Result<()> {
    let [now, otherwise] = keys;
    if event.idempotency_key != *now {
        return Ok(());
    }
    let is_otherwise = shared.store.read(|tx| {
        let is_stored =
            |key: &str| outbox::is_stored(tx, (&event.tenant, &event.source_system, key));
        Ok(!is_stored(now)? && is_stored(otherwise)?)
    })?;
    if is_otherwise {
        event.idempotency_key.clone_from(otherwise);
    }
    Ok(())
}

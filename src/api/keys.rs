//! `/v1/keys`: rotating the master key while the service runs.

use std::sync::Arc;

use serde_json::json;

use crate::api::claimed::{self, Wanted};
use crate::api::prelude::*;
use crate::model::effect::EffectKind;
use crate::model::token::Right::Box;
use crate::pipeline::upkeep::master_key_rotation::{self, SUBJECT};
use crate::store::writer::Queue;

/// Why a rotation is refused while another one is claimed.
const BUSY: &str = "The master key is being rotated at this moment.";

/// The master key.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Keys",
    about: "The master key, under which every stored secret is sealed. It is never shown.",
    routes: &[post("/v1/keys/rotate", Box, Act("master_key.rotate", rotate))
        .doc("rotateMasterKey", "Rotate the master key", &[])
        .about(
            "Makes a new key, and seals every secret again with it. Tokens and signatures do not \
                 change. The old key is kept: older backups need it. Answers 409 if Oncebox does \
                 not write the key itself, and while the key is being rotated.",
        )
        .returns(&[Returns::json::<Rotation<'_>>(200, "The key was rotated.")])],
};

/// `POST /v1/keys/rotate`
fn rotate(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let rotation = &api.flow.rotation;
    let reserved = claimed::reserve(api, EffectKind::MasterKeyRotate, SUBJECT, BUSY)?;
    let next = rotation.prepare().map_err(|error| Problem::conflict(format!("{error}.")))?;
    let wanted = Wanted { reserved, terms: next.terms(), busy: BUSY };
    let claim = claimed::claim(api, call, wanted, |_tx| Ok(()))?;
    if let Err(error) = rotation.put(next) {
        tracing::error!(%error, "the master key was not rotated");
        claimed::end(api, claim);
        let detail =
            "The key's file cannot be written; the log says why. The old key stays in use.";
        return Err(Problem::conflict(detail));
    }
    // From here on upkeep finishes what this call does not.
    let writer = api.env.store.writer().clone();
    let seq = Some(claim.effect.seq);
    let keyring = Arc::clone(rotation.keyring());
    let draw = Arc::clone(rotation.draw());
    master_key_rotation::reseal(&keyring, &draw, seq, |job| writer.write(Queue::Upkeep, job))?;
    let now = api.env.clock.wall();
    let effect = claim.effect.clone();
    claimed::finish(api, call, &claim, move |tx| {
        master_key_rotation::name_current(tx, &keyring, &*draw, now)?;
        let secrets = master_key_rotation::sealed_by(tx, &effect)?;
        let from = effect.term("from");
        let to = effect.term("to");
        let change = Change::changed(SUBJECT, to, &json!({ "id": from }), &json!({ "id": to }));
        Ok(change.and("secrets", secrets).answer(Rotation { from, to, secrets }))
    })
}

values! {
    /// A master key's id.
    MasterKeyId = { "type": "string", "pattern": "^[0-9a-f]{8}$" }
}

/// What a rotation did.
#[derive(Serialize, JsonSchema)]
struct Rotation<'a> {
    /// The key before.
    #[schemars(with = "MasterKeyId")]
    from: &'a str,
    /// The key now.
    #[schemars(with = "MasterKeyId")]
    to: &'a str,
    /// How many secrets were sealed again.
    secrets: u64,
}

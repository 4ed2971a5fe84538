//! `/v1/keys`: rotating the master key while the service runs.

use serde_json::json;

use crate::api::prelude::*;
use crate::model::token::Right::Box;
use crate::pipeline::upkeep::master_key_rotation::{self, Rotated, RotationError};
use crate::store::writer::Queue;

/// The master key.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Keys",
    about: "The master key, under which every stored secret is sealed. It is never shown.",
    routes: &[post("/v1/keys/rotate", Box, Act("master_key.rotate", rotate))
        .doc("rotateMasterKey", "Rotate the master key", &[])
        .about(
            "Makes a new key, and seals every secret again with it. Tokens and signatures do not \
                 change. The old key is kept: older backups need it. Answers 409 if Oncebox does \
                 not write the key itself.",
        )
        .returns(&[Returns::json::<Rotation<'_>>(200, "The key was rotated.")])],
};

/// `POST /v1/keys/rotate`
fn rotate(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let writer = api.store.writer().clone();
    let outcome = api.flow.rotation.run(|job| writer.write(Queue::Upkeep, job));
    let Rotated { from, to, secrets } = outcome.map_err(|error| match error {
        RotationError::Given(_) => Problem::conflict(format!("{error}.")),
        RotationError::Store(error) => error.into(),
        RotationError::File(error) => {
            tracing::error!(%error, "the master key was not rotated");
            Problem::conflict(
                "The key's file cannot be written; the log says why. The old key stays in use.",
            )
        }
    })?;
    let (keyring, draw, now) = (api.key.clone(), api.draw.clone(), api.clock.wall());
    let named = change(api, call, move |tx| {
        master_key_rotation::name_current(tx, &keyring, &*draw, now)?;
        let change =
            Change::changed("master_key", &to, &json!({ "id": from }), &json!({ "id": to }));
        Ok(change.and("secrets", secrets).answer(Rotation { from: &from, to: &to, secrets }))
    });
    named.inspect_err(|_| api.flow.rotation.leave())
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

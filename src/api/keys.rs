//! `/v1/keys`: rotating the master key while the service runs.

use serde_json::{Value, json};

use crate::api::Api;
use crate::api::audited::{Audited, Change, change};
use crate::api::call::Call;
use crate::api::problem::Problem;
use crate::api::route::{Answer, Resource, Returns, doc, route, shape};
use crate::api::schema;
use crate::http::message::Method::Post;
use crate::model::token::Right;
use crate::pipeline::rotation::{self, Rotated, RotationError};
use crate::store::writer::Queue;

/// The master key.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Keys",
    about: "The master key, under which every stored secret is sealed. It is never shown.",
    routes: &[route(
        Post,
        "/v1/keys/rotate",
        Some(Right::Box),
        Answer::Change("master_key.rotate", rotate),
        doc(
            "rotateMasterKey",
            "Rotate the master key",
            "A new key takes the place of the one in force, and every secret is sealed anew. Tokens and \
             signatures stay as they are. The old key stays beside the new one: backups from before need \
             it. 409 where Oncebox does not write the key itself.",
            &[Returns::json(200, "What was done.", "Rotation")],
        ),
    )],
    shapes: &[shape("Rotation", schema)],
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
                "The key's file cannot be written; the log says why. The old key stays.",
            )
        }
    })?;
    let (keyring, draw) = (api.key.clone(), api.draw.clone());
    change(api, call, move |tx| {
        rotation::name_current(tx, &keyring, &*draw)?;
        let body = json!({ "from": from, "to": to, "secrets": secrets });
        let change =
            Change::changed("master_key", &to, &json!({ "id": from }), &json!({ "id": to }));
        Ok(Ok((body, change.and("secrets", secrets))))
    })
}

fn schema() -> Value {
    let id = || json!({ "type": "string", "pattern": "^[0-9a-f]{8}$" });
    schema::object(json!({
        "from": schema::about(id(), "The key before."),
        "to": schema::about(id(), "The key now."),
        "secrets": schema::about(schema::count(), "Secrets that were sealed anew."),
    }))
}

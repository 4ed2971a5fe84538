//! `…/secrets`: the secrets of providers and subscriptions, which are told apart but never shown.
//!
//! Whoever has a secret can ask whether it is in force; nobody can read one back.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok};
use crate::api::credentials::to_seal;
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::Now;
use crate::api::route::{Answer, Param, Resource, Returns, doc, route, shape};
use crate::api::{provider_shapes, providers, schema, subscriptions};
use crate::http::message::Method::{Delete, Get, Post};
use crate::http::message::Response;
use crate::model::token::Right;
use crate::signatures::signing::SigningSecret;
use crate::store::credentials::{self, Credential, Owner, context};
use crate::store::tx::ReadTx;

const PROVIDER: Param = Param::path("name", "The provider's name.", schema::name, "stripe");
const SUBSCRIPTION: Param =
    Param::path("id", "The subscription's name or id.", schema::text, "erp");
const SECRET: Param = Param::path(
    "secret_id",
    "The secret's id.",
    schema::uuid,
    "0198c5a0-0000-7000-8000-000000000000",
);

/// The secrets of providers and subscriptions.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Secrets",
    about: "What providers and subscriptions sign with. A secret is told by its id and never shown.",
    routes: &[
        route(
            Get,
            "/v1/providers/{name}/secrets",
            Some(Right::Read),
            Now(list),
            doc(
                "listProviderSecrets",
                "List a provider's secrets",
                "Those in force, the newest first, without the secrets themselves.",
                &[Returns::json(200, "The secrets in force.", "SecretList")],
            )
            .params(&[PROVIDER]),
        ),
        route(
            Post,
            "/v1/providers/{name}/secrets",
            Some(Right::Admin),
            Answer::Change("provider.secret.add", add),
            doc(
                "addProviderSecret",
                "Add a secret to a provider",
                "The others stay in force. One that is in force already is left as it is.",
                &[
                    Returns::json(200, "It was in force already, or `dry_run` was asked for.", "SecretAnswer"),
                    Returns::json(201, "It is in force now.", "SecretAnswer"),
                ],
            )
            .params(&[PROVIDER])
            .body("SecretGiven", example)
            .problems(&[Kind::Conflict]),
        ),
        route(
            Delete,
            "/v1/providers/{name}/secrets/{secret_id}",
            Some(Right::Admin),
            Answer::Change("provider.secret.withdraw", withdraw),
            doc(
                "withdrawProviderSecret",
                "Withdraw a provider's secret",
                "What is signed with it is refused from then on. The last one stays.",
                &[Returns::nothing("It is withdrawn.")],
            )
            .params(&[PROVIDER, SECRET])
            .problems(&[Kind::Conflict]),
        ),
        route(
            Post,
            "/v1/subscriptions/{id}/secrets",
            Some(Right::Admin),
            Answer::Change("subscription.secret.replace", replace),
            doc(
                "replaceSubscriptionSecret",
                "Replace a subscription's secret",
                "What is sent from then on is signed with it alone. The one in force is left as it is.",
                &[
                    Returns::json(200, "It was in force already, or `dry_run` was asked for.", "SecretAnswer"),
                    Returns::json(201, "It is in force now.", "SecretAnswer"),
                ],
            )
            .params(&[SUBSCRIPTION])
            .body("SecretGiven", example),
        ),
    ],
    shapes: &[
        shape("SecretList", list_schema),
        shape("SecretGiven", given_schema),
        shape("SecretAnswer", answer_schema),
    ],
};

/// A secret somebody has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    secret: String,
    /// Whether only to ask if it is in force.
    #[serde(default)]
    dry_run: bool,
}

/// `GET /v1/providers/{name}/secrets`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let seq = providers::find(api, call)?.seq;
    let found = api.store.read(|tx| credentials::of_provider(tx, seq))?;
    let items: Vec<Value> = found
        .iter()
        .map(
            |kept| json!({ "id": kept.id, "version": kept.version, "created_at": kept.created_at }),
        )
        .collect();
    Ok(ok(&json!({ "items": items })))
}

/// `POST /v1/providers/{name}/secrets`
fn add(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let provider = providers::find(api, call)?;
    let given: Given = call.json()?;
    let checked = provider.new.scheme.check_secret(&given.secret);
    checked.map_err(|error| providers::unusable(&error))?;
    let whose = ("provider", provider.new.id);
    store(api, call, given, (Owner::Provider(provider.seq), whose))
}

/// `POST /v1/subscriptions/{id}/secrets`
fn replace(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let subscription = subscriptions::find(api, call)?;
    let Given { secret, dry_run } = call.json()?;
    let parsed = SigningSecret::parse(&secret).map_err(|error| providers::unusable(&error))?;
    let given = Given { secret: parsed.to_text().as_str().to_owned(), dry_run };
    let whose = ("subscription", subscription.new.id);
    store(api, call, given, (Owner::Subscription(subscription.seq), whose))
}

/// Stores a secret that is not in force yet. A subscription's takes the place of the one before. Also the
/// question leaves an audit event: who asks often enough is guessing.
fn store(
    api: &Api,
    call: &Call,
    given: Given,
    (owner, (kind, owner_id)): (Owner, (&'static str, String)),
) -> Result<Audited<Value>, Problem> {
    let Given { secret, dry_run } = given;
    let known = api.store.read(|tx| in_force(tx, owner))?;
    let full = known.len() >= provider_shapes::MAX_SECRETS && matches!(owner, Owner::Provider(_));
    let known = known.into_iter().find(|known| is(api, known, &secret)).map(|known| known.id);
    let now = api.clock.wall();
    let sealed = to_seal(api, now, &secret);
    let tenant = call.tenant.clone();
    change(api, call, move |tx| {
        if known.is_some() || dry_run {
            let body = json!({ "id": known, "already_in_force": known.is_some() });
            return Ok(Ok((body, Change::changed(kind, &owner_id, &Value::Null, &Value::Null))));
        }
        if full {
            let most = provider_shapes::MAX_SECRETS;
            let detail = format!("A provider has {most} secrets at most: withdraw one first.");
            return Ok(Err(Problem::conflict(detail)));
        }
        if matches!(owner, Owner::Subscription(_)) {
            for before in in_force(tx, owner)? {
                credentials::revoke(tx, owner, &before.id)?;
            }
        }
        let new = sealed.of(&tenant, owner, now);
        credentials::insert(tx, &new)?;
        let added = Change::made(kind, &owner_id, &Value::Null).and("credentials", new.id.as_str());
        Ok(Ok((json!({ "id": new.id, "already_in_force": false }), added)))
    })
}

/// `DELETE /v1/providers/{name}/secrets/{secret_id}`
fn withdraw(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let provider = providers::find(api, call)?;
    let owner = Owner::Provider(provider.seq);
    let id = call.param(1).to_owned();
    change(api, call, move |tx| {
        let known = in_force(tx, owner)?;
        if !known.iter().any(|known| known.id == id) {
            return Ok(Err(Problem::not_found("secret")));
        }
        if known.len() == 1 {
            return Ok(Err(Problem::conflict(
                "It is the provider's last secret: add another first, or delete the provider.",
            )));
        }
        credentials::revoke(tx, owner, &id)?;
        let gone = Change::gone("provider", &provider.new.id, &Value::Null);
        Ok(Ok((Value::Null, gone.and("withdrawn", id.as_str()))))
    })
}

fn in_force(tx: &ReadTx<'_>, owner: Owner) -> crate::store::error::Result<Vec<Credential>> {
    match owner {
        Owner::Provider(seq) => credentials::of_provider(tx, seq),
        Owner::Subscription(seq) => {
            Ok(credentials::of_subscription(tx, seq)?.into_iter().collect())
        }
    }
}

/// Whether a stored secret is this one. One that does not open is another one.
fn is(api: &Api, kept: &Credential, secret: &str) -> bool {
    let opened = api.key.open(&context(&kept.id), &kept.sealed);
    opened.is_ok_and(|opened| {
        bool::from(subtle::ConstantTimeEq::ct_eq(opened.expose(), secret.as_bytes()))
    })
}

fn list_schema() -> Value {
    let secret = schema::object(json!({
        "id": schema::uuid(), "version": schema::count(), "created_at": schema::time(),
    }));
    schema::object(json!({ "items": schema::list(secret) }))
}

fn given_schema() -> Value {
    let dry_run = schema::about(schema::yes_or_no(), "Only ask whether it is in force.");
    schema::request(
        &["secret"],
        json!({ "secret": provider_shapes::secret_schema(), "dry_run": dry_run }),
    )
}

fn answer_schema() -> Value {
    let id = schema::about(schema::nullable(schema::uuid()), "Null when it was not stored.");
    schema::object(json!({ "id": id, "already_in_force": schema::yes_or_no() }))
}

fn example() -> Value {
    json!({ "secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", "dry_run": true })
}

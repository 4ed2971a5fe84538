//! `…/secrets`: the secrets of providers and subscriptions, which have ids and are never shown.
//!
//! A caller that has a secret can ask whether it is in force; no caller can read one.

use crate::api::claimed::check_not_rotating;
use crate::api::prelude::*;
use crate::api::providers::{MAX_SECRETS, SecretText};
use crate::api::sealing::to_seal;
use crate::api::{providers, subscriptions};
use crate::model::credential::{Purpose, Settings};
use crate::signatures::signing_key::SigningKey;
use crate::store::credentials::{self, Credential, Owner, context};
use crate::store::settlement;

const PROVIDER: Param = Param::path::<NameText>("name", "The provider's name.", "stripe");
const SUBSCRIPTION: Param = Param::path::<String>("id", "The subscription's name or id.", "erp");
const SECRET: Param =
    Param::path::<Uuid>("secret_id", "The secret's id.", "0198c5a0-0000-7000-8000-000000000000");

/// The secrets of providers and subscriptions.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Secrets",
    about: "What providers and subscriptions sign with. A secret is told by its id and never shown.",
    routes: &[
        get("/v1/providers/{name}/secrets", Read, Now(list))
            .doc("listProviderSecrets", "List a provider's secrets", &[PROVIDER])
            .about("Those in force, the newest first, without the secrets themselves.")
            .returns(&[Returns::json::<SecretList>(200, "The secrets in force.")]),
        post("/v1/providers/{name}/secrets", Admin, Act("provider.secret.add", add))
            .doc("addProviderSecret", "Add a secret to a provider", &[PROVIDER])
            .about("The others stay in force. One that is in force already is left as it is.")
            .returns(&[
                Returns::json::<SecretAnswer>(
                    200,
                    "It was in force already, or `dry_run` was asked for.",
                ),
                Returns::json::<SecretAnswer>(201, "It is in force now."),
            ])
            .body::<SecretGiven>(
                r#"{"secret":"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3","dry_run":true}"#,
            )
            .problems(&[Kind::Conflict]),
        delete(
            "/v1/providers/{name}/secrets/{secret_id}",
            Admin,
            Act("provider.secret.withdraw", withdraw),
        )
        .doc("withdrawProviderSecret", "Withdraw a provider's secret", &[PROVIDER, SECRET])
        .about("What is signed with it is refused from then on. The last one stays.")
        .returns(&[Returns::nothing("It is withdrawn.")])
        .problems(&[Kind::Conflict]),
        post("/v1/subscriptions/{id}/secrets", Admin, Act("subscription.secret.replace", replace))
            .doc("replaceSubscriptionSecret", "Replace a subscription's secret", &[SUBSCRIPTION])
            .about(
                "What is sent from then on is signed with it alone. The one in force is left \
                 as it is.",
            )
            .returns(&[
                Returns::json::<SecretAnswer>(
                    200,
                    "It was in force already, or `dry_run` was asked for.",
                ),
                Returns::json::<SecretAnswer>(201, "It is in force now."),
            ])
            .body::<SecretGiven>(
                r#"{"secret":"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3","dry_run":true}"#,
            ),
    ],
};

/// A secret of the caller.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SecretGiven {
    /// A secret it signs with. It is kept sealed and shown nowhere.
    #[schemars(with = "SecretText")]
    secret: String,
    /// Only ask whether it is in force.
    #[serde(default)]
    dry_run: bool,
}

/// What became of a secret.
#[derive(Serialize, JsonSchema)]
struct SecretAnswer {
    /// Null when it was not stored.
    #[schemars(with = "Option<Uuid>")]
    id: Option<String>,
    already_in_force: bool,
}

/// The secrets in force.
#[derive(Serialize, JsonSchema)]
struct SecretList {
    items: Vec<SecretInForce>,
}

/// A secret in force, without the secret itself.
#[derive(Serialize, JsonSchema)]
struct SecretInForce {
    id: Is<Uuid>,
    version: Is<u64, i64>,
    created_at: Timestamp,
}

/// `GET /v1/providers/{name}/secrets`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let seq = providers::find(api, call)?.seq;
    let found = api.env.store.read(|tx| credentials::of_provider(tx, seq))?;
    let shown = |kept: Credential| SecretInForce {
        id: kept.id.into(),
        version: kept.version.into(),
        created_at: kept.created_at,
    };
    Ok(ok(&SecretList { items: found.into_iter().map(shown).collect() }))
}

/// `POST /v1/providers/{name}/secrets`
fn add(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let provider = providers::find(api, call)?;
    let given: SecretGiven = call.json()?;
    let checked = provider.new.scheme.check_secret(&given.secret);
    checked.map_err(|error| providers::unusable(&error))?;
    let new = NewSecret {
        secret: given.secret,
        settings: Settings::Signing {},
        owner: Owner::Provider(provider.seq),
        kind: "provider",
        owner_id: provider.new.id,
    };
    store(api, call, new, given.dry_run)
}

/// `POST /v1/subscriptions/{id}/secrets`
fn replace(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let subscription = subscriptions::find(api, call)?;
    let SecretGiven { secret, dry_run } = call.json()?;
    let parsed = SigningKey::parse(&secret).map_err(|error| providers::unusable(&error))?;
    let new = NewSecret {
        secret: parsed.to_text().as_str().to_owned(),
        settings: parsed.settings(),
        owner: Owner::Subscription(subscription.seq),
        kind: "subscription",
        owner_id: subscription.new.id.clone(),
    };
    store(api, call, new, dry_run)
}

/// A secret that is about to be stored, and its owner.
struct NewSecret {
    secret: String,
    settings: Settings,
    owner: Owner,
    /// The kind of the owner, as audit events name it.
    kind: &'static str,
    owner_id: String,
}

/// Stores a secret that is not in force yet; a dry run only tells whether it is. A subscription's takes the place of the one before. Also the
/// question leaves an audit event: who asks often enough is guessing.
fn store(api: &Api, call: &Call, new: NewSecret, dry_run: bool) -> Result<Audited<Value>, Problem> {
    let NewSecret { secret, settings, owner, kind, owner_id } = new;
    let known = api.env.store.read(|tx| in_force(tx, owner))?;
    let full = known.len() >= MAX_SECRETS && matches!(owner, Owner::Provider(_));
    let known = known.into_iter().find(|one| matches_stored(api, one, &secret)).map(|one| one.id);
    let now = api.env.clock.wall();
    let sealed = to_seal(api, now, settings, &secret);
    let tenant = call.tenant.clone();
    change(api, call, move |tx| {
        if known.is_some() || dry_run {
            let body = SecretAnswer { already_in_force: known.is_some(), id: known.clone() };
            return Ok(Change::changed(kind, &owner_id, &(), &()).answer(body));
        }
        if full {
            let most = MAX_SECRETS;
            let detail = format!("A provider has {most} secrets at most: withdraw one first.");
            return Err(Problem::conflict(detail).into());
        }
        if let Owner::Subscription(seq) = owner {
            let before = in_force(tx, owner)?;
            for before in &before {
                check_not_rotating(tx, &before.id)?;
            }
            // The target may accept the new one.
            settlement::end_holds_by_change(tx, seq, now)?;
            for before in before {
                credentials::revoke(tx, owner, &before.id)?;
            }
        }
        let new = sealed.of(&tenant, owner, now);
        credentials::insert(tx, &new)?;
        let added = Change::made(kind, &owner_id, &()).and("credentials", new.id.as_str());
        Ok(added.answer(SecretAnswer { id: Some(new.id), already_in_force: false }))
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
            return Err(Problem::not_found("secret").into());
        }
        if known.len() == 1 {
            return Err(Problem::conflict(
                "It is the provider's last secret: add another first, or delete the provider.",
            )
            .into());
        }
        check_not_rotating(tx, &id)?;
        credentials::revoke(tx, owner, &id)?;
        let gone = Change::gone("provider", &provider.new.id, &());
        Ok(gone.and("withdrawn", id.as_str()))
    })
}

fn in_force(tx: &ReadTx<'_>, owner: Owner) -> crate::store::error::Result<Vec<Credential>> {
    let mut found = credentials::in_force(tx, owner)?;
    found.retain(|one| one.purpose() == Purpose::Sign);
    Ok(found)
}

/// Whether a stored secret is this one. One that does not open is another one.
fn matches_stored(api: &Api, kept: &Credential, secret: &str) -> bool {
    let opened = api.env.keyring.open(&context(&kept.id), &kept.sealed);
    opened.is_ok_and(|opened| {
        bool::from(subtle::ConstantTimeEq::ct_eq(opened.expose(), secret.as_bytes()))
    })
}

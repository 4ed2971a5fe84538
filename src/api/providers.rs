//! `/v1/providers`: who may post webhooks, and how they sign.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_of};
use crate::api::credentials::{ToSeal, ids, to_seal};
use crate::api::pii_shapes;
use crate::api::problem::Problem;
use crate::api::provider_shapes as shapes;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Answer, Param, Resource, Returns, doc, route};
use crate::api::schema::{self, AFTER, LIMIT};
use crate::api::{Api, DEFAULT_TENANT, lists};
use crate::base::id;
use crate::http::message::Method::{Delete, Get, Patch, Post};
use crate::http::message::Response;
use crate::model::lenient_int;
use crate::model::name::Name;
use crate::model::public_url::PublicUrl;
use crate::model::token::Right;
use crate::signatures::Scheme;
use crate::signatures::provider::{
    BODY_BYTES_DEFAULT, MAX_BODY_BYTES, MAX_REPLAY_WINDOW, NewProvider, Provider,
    REPLAY_WINDOW_DEFAULT,
};
use crate::store::credentials::{self, Owner};
use crate::store::providers;

const NAME: Param = Param::path("name", "The provider's name.", schema::name, "stripe");

/// Who may post webhooks.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Providers",
    about: "External systems that post webhooks: how they sign, and with which secrets.",
    routes: &[
        route(
            Get,
            "/v1/providers",
            Some(Right::Read),
            Listed(list),
            doc(
                "listProviders",
                "List the providers",
                "Without their secrets, which are shown nowhere.",
                &[Returns::page("A page of providers, the oldest first.", "Provider")],
            )
            .params(&[LIMIT, AFTER]),
        ),
        route(
            Post,
            "/v1/providers",
            Some(Right::Admin),
            Answer::Change("provider.create", create),
            doc(
                "createProvider",
                "Make a provider",
                "Its webhooks are taken in at `path` from the answer on. What happens to personal data has to \
                 be stated.",
                &[Returns::json(201, "The provider.", "Provider")],
            )
            .body("ProviderCreation", shapes::creation_example),
        ),
        route(
            Get,
            "/v1/providers/{name}",
            Some(Right::Read),
            Now(show),
            doc(
                "getProvider",
                "Show a provider",
                "Without its secrets.",
                &[Returns::json(200, "The provider.", "Provider")],
            )
            .params(&[NAME]),
        ),
        route(
            Patch,
            "/v1/providers/{name}",
            Some(Right::Admin),
            Answer::Change("provider.change", change_one),
            doc(
                "changeProvider",
                "Change a provider",
                "What is absent stays. A secret that is given is added; the others stay in force.",
                &[Returns::json(200, "The provider as it is now.", "Provider")],
            )
            .params(&[NAME])
            .body("ProviderChange", shapes::change_example),
        ),
        route(
            Delete,
            "/v1/providers/{name}",
            Some(Right::Admin),
            Answer::Change("provider.delete", delete),
            doc(
                "deleteProvider",
                "Delete a provider",
                "Its path answers 404 from then on. What came in stays.",
                &[Returns::nothing("It is deleted.")],
            )
            .params(&[NAME]),
        ),
    ],
    shapes: shapes::ALL,
};

/// `POST /v1/providers`. The PII policy has to be stated, so that nobody stores personal data without
/// having said so.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    scheme: Value,
    pii: Option<Value>,
    /// One secret.
    secret: Option<String>,
    /// Several, while one replaces another; the newest first.
    #[serde(default)]
    secrets: Vec<String>,
    public_url: Option<String>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    body_bytes_max: Option<u32>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    tolerance_secs: Option<u64>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    replay_window_secs: Option<u64>,
}

/// `PATCH /v1/providers/{name}`. A secret that is given is added; the others stay in force.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alteration {
    scheme: Option<Value>,
    pii: Option<Value>,
    secret: Option<String>,
    /// An empty one takes it away.
    public_url: Option<String>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    body_bytes_max: Option<u32>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    tolerance_secs: Option<u64>,
    #[serde(default, deserialize_with = "lenient_int::optional")]
    replay_window_secs: Option<u64>,
}

/// `POST /v1/providers`
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Creation {
        name,
        scheme,
        pii,
        secret,
        secrets,
        public_url,
        body_bytes_max,
        tolerance_secs,
        replay_window_secs,
    } = call.json()?;
    let name = Name::parse(&name).map_err(|error| Problem::unprocessable(format!("{error}.")))?;
    let Some(pii) = pii else {
        return Err(Problem::unprocessable(
            "State what happens to personal data: `\"pii\": \"allow\"` stores what the provider sends \
             as it is, a policy of rules changes it before (docs/privacy.md).",
        ));
    };
    let pii = pii_shapes::read(&pii)?;
    let secrets: Vec<String> = secret.into_iter().chain(secrets).collect();
    let scheme = read_scheme(scheme)?;
    if (secrets.is_empty() && scheme.has_secret()) || secrets.len() > shapes::MAX_SECRETS {
        return Err(Problem::unprocessable(
            "Give the provider's signing secret as `secret`, or up to 32 as `secrets`.",
        ));
    }
    check_secrets(&scheme, &secrets)?;
    let public_url_default = public_base(api);
    let now = api.clock.wall();
    let usual = scheme.tolerance_default();
    let new = NewProvider {
        id: id::uuid7(now, &*api.draw),
        tenant: call.tenant.clone(),
        name,
        scheme,
        public_url: public_url.map(|url| read_url(&url)).transpose()?.flatten(),
        pii,
        body_bytes_max: body_bytes(body_bytes_max)?.unwrap_or(BODY_BYTES_DEFAULT),
        tolerance: tolerance(tolerance_secs)?.unwrap_or(usual),
        replay_window: replay_window(replay_window_secs)?.unwrap_or(REPLAY_WINDOW_DEFAULT),
    };
    // Versions are numbered as they are stored, and the newest is tried first.
    let sealed: Vec<ToSeal> =
        secrets.iter().rev().map(|secret| to_seal(api, now, secret)).collect();
    change(api, call, move |tx| {
        let Some(seq) = providers::insert(tx, &new, now)? else {
            let detail = format!("There is a provider named {:?} already.", new.name.as_str());
            return Ok(Err(Problem::conflict(detail)));
        };
        for secret in &sealed {
            credentials::insert(tx, &secret.of(&new.tenant, Owner::Provider(seq), now))?;
        }
        let provider = Provider { seq, new: new.clone(), created_at: now, updated_at: now };
        let body = shown(&provider, public_url_default.as_deref());
        let change = Change::made("provider", &new.id, &body).and("credentials", ids(&sealed));
        Ok(Ok((body, change)))
    })
}

/// `GET /v1/providers`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| providers::page(tx, &call.tenant, after, page.limit))?;
    let base = public_base(api);
    Ok(page_of(&found, page, |provider| provider.seq, |one| shown(one, base.as_deref())))
}

/// `GET /v1/providers/{name}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call)?, public_base(api).as_deref())))
}

/// `PATCH /v1/providers/{name}`
pub(super) fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let Alteration {
        scheme,
        pii,
        secret,
        public_url,
        body_bytes_max,
        tolerance_secs,
        replay_window_secs,
    } = call.json()?;
    let public_url = public_url.map(|url| read_url(&url)).transpose()?;
    let base = public_base(api);
    let pii = pii.as_ref().map(pii_shapes::read).transpose()?;
    let scheme = scheme.map(read_scheme).transpose()?;
    let body_bytes_max = body_bytes(body_bytes_max)?;
    let tolerance = tolerance(tolerance_secs)?;
    let replay_window = replay_window(replay_window_secs)?;
    check_secrets(scheme.as_ref().unwrap_or(&found.new.scheme), secret.as_slice())?;
    let now = api.clock.wall();
    let sealed = secret.as_deref().map(|secret| to_seal(api, now, secret));
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("provider")));
        let Some(before) = providers::by_name(tx, &tenant, &name)? else { return missing() };
        let mut row = before.clone();
        if let Some(scheme) = &scheme {
            let (was, public) = (&row.new.scheme, Scheme::takes_public_keys);
            let same = was.kind() == scheme.kind() && public(was) == public(scheme);
            if !same && (public(was) || public(scheme)) {
                // Its secrets stay, and a public key must never become a shared secret.
                return Ok(Err(Problem::unprocessable(
                    "A scheme that is checked with public keys cannot be changed into another, nor \
                     another into it: make a new provider.",
                )));
            }
            row.new.scheme = scheme.clone();
        }
        if let Some(url) = &public_url {
            row.new.public_url.clone_from(url);
        }
        if let Some(pii) = &pii {
            row.new.pii = pii.clone();
        }
        row.new.body_bytes_max = body_bytes_max.unwrap_or(row.new.body_bytes_max);
        row.new.tolerance = tolerance.unwrap_or(row.new.tolerance);
        row.new.replay_window = replay_window.unwrap_or(row.new.replay_window);
        providers::update(tx, &row, now)?;
        if let Some(secret) = &sealed {
            credentials::insert(tx, &secret.of(&tenant, Owner::Provider(row.seq), now))?;
        }
        let Some(after) = providers::by_name(tx, &tenant, &name)? else { return missing() };
        let (was, body) = (shown(&before, base.as_deref()), shown(&after, base.as_deref()));
        let mut change = Change::changed("provider", &row.new.id, &was, &body);
        if let Some(secret) = &sealed {
            change = change.and("credentials", ids(std::slice::from_ref(secret)));
        }
        Ok(Ok((body, change)))
    })
}

/// `DELETE /v1/providers/{name}`
pub(super) fn delete(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    let now = api.clock.wall();
    let base = public_base(api);
    change(api, call, move |tx| {
        let Some(before) = providers::by_name(tx, &tenant, &name)? else {
            return Ok(Err(Problem::not_found("provider")));
        };
        providers::delete(tx, before.seq, now)?;
        Ok(Ok((
            Value::Null,
            Change::gone("provider", &before.new.id, &shown(&before, base.as_deref())),
        )))
    })
}

/// The provider that the path names.
pub(super) fn find(api: &Api, call: &Call) -> Result<Provider, Problem> {
    let found = api.store.read(|tx| providers::by_name(tx, &call.tenant, call.param(0)))?;
    found.ok_or_else(|| Problem::not_found("provider"))
}

/// Read apart from the body: what is wrong with it are its values, not the body's form.
fn read_scheme(scheme: Value) -> Result<Scheme, Problem> {
    serde_json::from_value(scheme)
        .map_err(|error| Problem::unprocessable(format!("The scheme cannot be used: {error}.")))
}

fn check_secrets(scheme: &Scheme, secrets: &[String]) -> Result<(), Problem> {
    for secret in secrets {
        scheme.check_secret(secret).map_err(|error| unusable(&error))?;
    }
    Ok(())
}

/// 422: the secret does not suit.
pub(super) fn unusable(error: &dyn std::fmt::Display) -> Problem {
    Problem::unprocessable(format!("The secret cannot be used: {error}."))
}

/// An empty one stands for none.
fn read_url(text: &str) -> Result<Option<PublicUrl>, Problem> {
    let read = (!text.is_empty()).then(|| PublicUrl::parse(text)).transpose();
    read.map_err(|error| Problem::unprocessable(format!("public_url cannot be used: {error}.")))
}

fn body_bytes(asked: Option<u32>) -> Result<Option<u32>, Problem> {
    if asked.is_some_and(|most| !(1..=MAX_BODY_BYTES).contains(&most)) {
        let detail = format!("body_bytes_max must be 1 to {MAX_BODY_BYTES}.");
        return Err(Problem::unprocessable(detail));
    }
    Ok(asked)
}

fn tolerance(asked: Option<u64>) -> Result<Option<Duration>, Problem> {
    if asked.is_some_and(|secs| !(1..=shapes::MAX_TOLERANCE_SECS).contains(&secs)) {
        let most = shapes::MAX_TOLERANCE_SECS;
        let detail = format!("tolerance_secs must be 1 to {most}.");
        return Err(Problem::unprocessable(detail));
    }
    Ok(asked.map(Duration::from_secs))
}

fn replay_window(asked: Option<u64>) -> Result<Option<Duration>, Problem> {
    let most = MAX_REPLAY_WINDOW.as_secs();
    if asked.is_some_and(|secs| secs > most) {
        return Err(Problem::unprocessable(format!("replay_window_secs must be 0 to {most}.")));
    }
    Ok(asked.map(Duration::from_secs))
}

/// Where the intake is reached from outside, where that is set.
fn public_base(api: &Api) -> Option<String> {
    let settings = api.settings.get();
    let public = settings.listen.public_url.as_deref();
    public.map(|public| public.trim_end_matches('/').to_owned())
}

fn shown(provider: &Provider, public_base: Option<&str>) -> Value {
    let Provider { seq: _, new, created_at, updated_at } = provider;
    let NewProvider {
        id,
        tenant,
        name,
        scheme,
        pii,
        public_url,
        body_bytes_max,
        tolerance,
        replay_window,
    } = new;
    let path = if tenant == DEFAULT_TENANT {
        format!("/in/{name}")
    } else {
        format!("/in/{tenant}/{name}")
    };
    let own = public_url.as_ref().map(PublicUrl::as_str);
    let url = own.map(str::to_owned).or_else(|| public_base.map(|base| format!("{base}{path}")));
    json!({
        "id": id, "tenant": tenant, "name": name, "scheme": scheme, "pii": pii.to_json(),
        "path": path, "public_url": own, "url": url, "body_bytes_max": body_bytes_max, "tolerance_secs": tolerance.as_secs(),
        "replay_window_secs": replay_window.as_secs(), "created_at": created_at, "updated_at": updated_at,
    })
}

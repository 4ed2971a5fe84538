//! `/v1/providers`: who may post webhooks, and how they sign.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_of};
use crate::api::credentials::{Sealed, ids, seal};
use crate::api::problem::Problem;
use crate::api::{Api, DEFAULT_TENANT};
use crate::domain::name::Name;
use crate::domain::provider::{
    BODY_BYTES_DEFAULT, BODY_BYTES_MOST, NewProvider, Provider, TOLERANCE_DEFAULT,
};
use crate::domain::scheme::Scheme;
use crate::http::message::Response;
use crate::id;
use crate::store::credentials::{self, Owner};
use crate::store::providers;

/// The longest tolerance that may be set: a day.
const TOLERANCE_SECS_MOST: u64 = 86_400;

/// `POST /v1/providers`. The PII policy has to be stated, so that nobody stores personal data without
/// having said so; this version carries out `allow` alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    scheme: Scheme,
    pii: Option<String>,
    /// One secret.
    secret: Option<String>,
    /// Several, while one replaces another; the newest first.
    #[serde(default)]
    secrets: Vec<String>,
    body_bytes_max: Option<u32>,
    tolerance_secs: Option<u64>,
}

/// `PATCH /v1/providers/{name}`. A secret that is given is added; the others stay in force.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alteration {
    scheme: Option<Scheme>,
    secret: Option<String>,
    body_bytes_max: Option<u32>,
    tolerance_secs: Option<u64>,
}

/// `POST /v1/providers`
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Creation { name, scheme, pii, secret, secrets, body_bytes_max, tolerance_secs } =
        call.json()?;
    let name = Name::parse(&name).map_err(|error| Problem::unprocessable(format!("{error}.")))?;
    if pii.as_deref() != Some("allow") {
        return Err(Problem::unprocessable(
            "State what happens to personal data: `\"pii\": \"allow\"` stores what the provider sends \
             as it is. Other policies are not in this version.",
        ));
    }
    let secrets: Vec<String> = secret.into_iter().chain(secrets).collect();
    if secrets.is_empty() || secrets.len() > 32 {
        return Err(Problem::unprocessable(
            "Give the provider's signing secret as `secret`, or up to 32 as `secrets`.",
        ));
    }
    check_secrets(&scheme, &secrets)?;
    let now = api.clock.wall();
    let new = NewProvider {
        id: id::uuid7(now, &*api.draw),
        tenant: call.tenant.clone(),
        name,
        scheme,
        body_bytes_max: body_bytes(body_bytes_max)?.unwrap_or(BODY_BYTES_DEFAULT),
        tolerance: tolerance(tolerance_secs)?.unwrap_or(TOLERANCE_DEFAULT),
    };
    // Versions are numbered as they are stored, and the newest is tried first.
    let sealed: Vec<Sealed> = secrets.iter().rev().map(|secret| seal(api, now, secret)).collect();
    change(api, call, move |tx| {
        let Some(seq) = providers::insert(tx, &new, now)? else {
            let detail = format!("There is a provider named {:?} already.", new.name.as_str());
            return Ok(Err(Problem::conflict(detail)));
        };
        for secret in &sealed {
            credentials::insert(tx, &secret.of(&new.tenant, Owner::Provider(seq), now))?;
        }
        let provider = Provider { seq, new: new.clone(), created_at: now, updated_at: now };
        let body = shown(&provider);
        let change = Change::made("provider", &new.id, &body).and("credentials", ids(&sealed));
        Ok(Ok((body, change)))
    })
}

/// `GET /v1/providers`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query(&[])?.page()?;
    let after = page.after.unwrap_or(0);
    let found = api.store.read(|tx| providers::page(tx, &call.tenant, after, page.limit))?;
    Ok(page_of(&found, page, |provider| provider.seq, shown))
}

/// `GET /v1/providers/{name}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call)?)))
}

/// `PATCH /v1/providers/{name}`
pub(super) fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let found = find(api, call)?;
    let Alteration { scheme, secret, body_bytes_max, tolerance_secs } = call.json()?;
    let body_bytes_max = body_bytes(body_bytes_max)?;
    let tolerance = tolerance(tolerance_secs)?;
    check_secrets(scheme.as_ref().unwrap_or(&found.new.scheme), secret.as_slice())?;
    let now = api.clock.wall();
    let sealed = secret.as_deref().map(|secret| seal(api, now, secret));
    let (tenant, name) = (call.tenant.clone(), call.param(0).to_owned());
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("provider")));
        let Some(before) = providers::by_name(tx, &tenant, &name)? else { return missing() };
        let mut row = before.clone();
        if let Some(scheme) = &scheme {
            row.new.scheme = scheme.clone();
        }
        row.new.body_bytes_max = body_bytes_max.unwrap_or(row.new.body_bytes_max);
        row.new.tolerance = tolerance.unwrap_or(row.new.tolerance);
        providers::update(tx, &row, now)?;
        if let Some(secret) = &sealed {
            credentials::insert(tx, &secret.of(&tenant, Owner::Provider(row.seq), now))?;
        }
        let Some(after) = providers::by_name(tx, &tenant, &name)? else { return missing() };
        let body = shown(&after);
        let mut change = Change::changed("provider", &row.new.id, &shown(&before), &body);
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
    change(api, call, move |tx| {
        let Some(before) = providers::by_name(tx, &tenant, &name)? else {
            return Ok(Err(Problem::not_found("provider")));
        };
        providers::delete(tx, before.seq, now)?;
        Ok(Ok((Value::Null, Change::gone("provider", &before.new.id, &shown(&before)))))
    })
}

fn find(api: &Api, call: &Call) -> Result<Provider, Problem> {
    let found = api.store.read(|tx| providers::by_name(tx, &call.tenant, call.param(0)))?;
    found.ok_or_else(|| Problem::not_found("provider"))
}

fn check_secrets(scheme: &Scheme, secrets: &[String]) -> Result<(), Problem> {
    for secret in secrets {
        scheme.check_secret(secret).map_err(|error| {
            Problem::unprocessable(format!("The secret cannot be used: {error}."))
        })?;
    }
    Ok(())
}

fn body_bytes(asked: Option<u32>) -> Result<Option<u32>, Problem> {
    if asked.is_some_and(|most| !(1..=BODY_BYTES_MOST).contains(&most)) {
        let detail = format!("body_bytes_max must be 1 to {BODY_BYTES_MOST}.");
        return Err(Problem::unprocessable(detail));
    }
    Ok(asked)
}

fn tolerance(asked: Option<u64>) -> Result<Option<Duration>, Problem> {
    if asked.is_some_and(|secs| !(1..=TOLERANCE_SECS_MOST).contains(&secs)) {
        let detail = format!("tolerance_secs must be 1 to {TOLERANCE_SECS_MOST}.");
        return Err(Problem::unprocessable(detail));
    }
    Ok(asked.map(Duration::from_secs))
}

fn shown(provider: &Provider) -> Value {
    let Provider { seq: _, new, created_at, updated_at } = provider;
    let NewProvider { id, tenant, name, scheme, body_bytes_max, tolerance } = new;
    let path = if tenant == DEFAULT_TENANT {
        format!("/in/{name}")
    } else {
        format!("/in/{tenant}/{name}")
    };
    json!({
        "id": id, "tenant": tenant, "name": name, "scheme": scheme, "pii": "allow",
        "path": path, "body_bytes_max": body_bytes_max, "tolerance_secs": tolerance.as_secs(),
        "created_at": created_at, "updated_at": updated_at,
    })
}

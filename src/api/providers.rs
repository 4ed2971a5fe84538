//! `/v1/providers`: who may post webhooks, and how they sign.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::call::{Call, answer, ok, page_of};
use crate::api::credentials::{Sealed, seal};
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
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;

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
struct Change {
    scheme: Option<Scheme>,
    secret: Option<String>,
    body_bytes_max: Option<u32>,
    tolerance_secs: Option<u64>,
}

/// `POST /v1/providers`
pub(super) fn create(api: &Api, call: &Call) -> Result<Response, Problem> {
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
    let row = new.clone();
    let stored = api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        let Some(seq) = providers::insert(tx, &row, now)? else { return Ok(None) };
        for secret in &sealed {
            credentials::insert(tx, &secret.of(&row.tenant, Owner::Provider(seq), now))?;
        }
        Ok(Some(seq))
    })?;
    let Some(seq) = stored else {
        let detail = format!("There is a provider named {:?} already.", new.name.as_str());
        return Err(Problem::conflict(detail));
    };
    Ok(answer(201, &shown(&Provider { seq, new, created_at: now, updated_at: now })))
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
pub(super) fn change(api: &Api, call: &Call) -> Result<Response, Problem> {
    let mut provider = find(api, call)?;
    let Change { scheme, secret, body_bytes_max, tolerance_secs } = call.json()?;
    if let Some(scheme) = scheme {
        provider.new.scheme = scheme;
    }
    if let Some(most) = body_bytes(body_bytes_max)? {
        provider.new.body_bytes_max = most;
    }
    if let Some(tolerance) = tolerance(tolerance_secs)? {
        provider.new.tolerance = tolerance;
    }
    check_secrets(&provider.new.scheme, secret.as_slice())?;
    let now = api.clock.wall();
    let sealed = secret.as_deref().map(|secret| seal(api, now, secret));
    let row = provider;
    api.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        providers::update(tx, &row, now)?;
        if let Some(secret) = &sealed {
            credentials::insert(tx, &secret.of(&row.new.tenant, Owner::Provider(row.seq), now))?;
        }
        Ok(())
    })?;
    show(api, call)
}

/// `DELETE /v1/providers/{name}`
pub(super) fn delete(api: &Api, call: &Call) -> Result<Response, Problem> {
    let seq = find(api, call)?.seq;
    let now = api.clock.wall();
    let run = move |tx: &WriteTx<'_>| providers::delete(tx, seq, now);
    api.store.writer().write(Queue::Accept, run)?;
    Ok(Response::new(204))
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

//! `/v1/tokens`: who may use the API.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, page_of};
use crate::api::problem::Problem;
use crate::clock::Timestamp;
use crate::domain::token::{self, Role, Token};
use crate::http::message::Response;
use crate::id;
use crate::store::tokens::{self, NewToken};

/// `POST /v1/tokens`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    role: Role,
    expires_at: Option<Timestamp>,
}

/// `POST /v1/tokens`: answers with the token, this once.
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Creation { name, role, expires_at } = call.json()?;
    if name.is_empty() || name.chars().count() > 100 {
        return Err(Problem::unprocessable("A token's name has 1 to 100 characters."));
    }
    let now = api.clock.wall();
    if expires_at.is_some_and(|end| end <= now) {
        return Err(Problem::unprocessable("expires_at lies in the past."));
    }
    let secret = token::generate(&*api.draw);
    let new = NewToken {
        id: id::uuid7(now, &*api.draw),
        tenant: call.tenant.clone(),
        name,
        role,
        hash: api.hasher.hash(&secret),
        expires_at,
    };
    let made = change(api, call, move |tx| {
        tokens::insert(tx, &new, now)?;
        let Some(token) = tokens::by_id(tx, &new.tenant, &new.id)? else {
            return Ok(Err(Problem::not_found("token")));
        };
        let body = shown(&token);
        let change = Change::made("token", &new.id, &body);
        Ok(Ok((body, change)))
    })?;
    Ok(made.map(|mut body| {
        if let Value::Object(fields) = &mut body {
            fields.insert("token".to_owned(), secret.into());
        }
        body
    }))
}

/// `GET /v1/tokens`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query(&[])?.page()?;
    let after = page.after.unwrap_or(0);
    let found = api.store.read(|tx| tokens::page(tx, &call.tenant, after, page.limit))?;
    Ok(page_of(&found, page, |token| token.seq, shown))
}

/// `DELETE /v1/tokens/{id}`: opens nothing from now on.
pub(super) fn revoke(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (tenant, id, now) = (call.tenant.clone(), call.param(0).to_owned(), api.clock.wall());
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("token")));
        let Some(before) = tokens::by_id(tx, &tenant, &id)? else { return missing() };
        tokens::revoke(tx, before.seq, now)?;
        let Some(after) = tokens::by_id(tx, &tenant, &id)? else { return missing() };
        let body = shown(&after);
        let change = Change::changed("token", &id, &shown(&before), &body);
        Ok(Ok((body, change)))
    })
}

fn shown(token: &Token) -> Value {
    let Token { seq: _, id, tenant, name, role, created_at, expires_at, last_used_at, revoked_at } =
        token;
    json!({
        "id": id, "tenant": tenant, "name": name, "role": role.as_str(), "created_at": created_at,
        "expires_at": expires_at, "last_used_at": last_used_at, "revoked_at": revoked_at,
    })
}

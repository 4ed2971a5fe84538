//! `/v1/tokens`: who may use the API.
//!
//! An admin manages the tokens of his own tenant. The box's administrator (an admin of the tenant
//! `default`) may name another tenant; with a token of it he then works there.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, page_of};
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::Listed;
use crate::api::route::{Answer, Param, Resource, Returns, doc, route, shape};
use crate::api::schema::{self, AFTER, LIMIT};
use crate::api::{Api, DEFAULT_TENANT, lists};
use crate::base::clock::Timestamp;
use crate::base::id;
use crate::http::message::Method::{Delete, Get, Post};
use crate::http::message::Response;
use crate::model::token::{self, Right, Role, Scope, Token};
use crate::store::tenants;
use crate::store::tokens::{self, NewToken};

const ID: Param = Param::path("id", "The token's id.", schema::uuid, ID_EXAMPLE);
const TENANT: Param = Param::query(
    "tenant",
    "Whose tokens; yours if absent. Another than your own is for an admin token of `default`.",
    schema::name,
    "default",
);
const ID_EXAMPLE: &str = "019c1447-5800-7000-8000-000000000001";

/// Who may use the API.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Tokens",
    about: "Who may use the API. A token has one role: `publish`, `read`, `operate` or `admin`.",
    routes: &[
        route(
            Get,
            "/v1/tokens",
            Some(Right::Admin),
            Listed(list),
            doc(
                "listTokens",
                "List the tokens",
                "Revoked and expired ones too. The tokens themselves are not kept and cannot be shown.",
                &[Returns::page("A page of tokens, the oldest first.", "Token")],
            )
            .params(&[TENANT, LIMIT, AFTER])
            .problems(&[Kind::NotFound]),
        ),
        route(
            Post,
            "/v1/tokens",
            Some(Right::Admin),
            Answer::Change("token.create", create),
            doc(
                "createToken",
                "Make a token",
                "The answer has the token itself, this once: only its hash is kept. A `publish` token lists what it \
                 speaks for: `source_systems`, `consumer_groups`, or both. Other roles list nothing.",
                &[Returns::json(201, "The token.", "NewToken")],
            )
            .body("TokenCreation", creation_example)
            .problems(&[Kind::NotFound]),
        ),
        route(
            Delete,
            "/v1/tokens/{id}",
            Some(Right::Admin),
            Answer::Change("token.revoke", revoke),
            doc(
                "revokeToken",
                "Revoke a token",
                "It opens nothing from the answer on. The last valid admin token of the tenant `default` stays: \
                 nobody could administer the box.",
                &[Returns::json(200, "The token as it is now.", "Token")],
            )
            .params(&[ID, TENANT]),
        ),
    ],
    shapes: &[
        shape("Token", token_schema),
        shape("NewToken", new_token_schema),
        shape("TokenCreation", creation_schema),
    ],
};

/// `POST /v1/tokens`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    role: Role,
    /// Whose data it opens; the caller's own tenant where it is absent.
    tenant: Option<String>,
    #[serde(default)]
    source_systems: Vec<String>,
    #[serde(default)]
    consumer_groups: Vec<String>,
    expires_at: Option<Timestamp>,
}

/// `POST /v1/tokens`: answers with the token, this once.
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Creation { name, role, tenant, source_systems, consumer_groups, expires_at } =
        call.json()?;
    token::check_name(&name).map_err(Problem::unprocessable)?;
    let scope = Scope { source_systems, consumer_groups };
    scope.check(role).map_err(Problem::unprocessable)?;
    let tenant = tenant_of(api, call, tenant.as_deref())?;
    let now = api.clock.wall();
    if expires_at.is_some_and(|end| end <= now) {
        return Err(Problem::unprocessable("expires_at lies in the past."));
    }
    let secret = token::generate(&*api.draw);
    let new = NewToken {
        id: id::uuid7(now, &*api.draw),
        tenant,
        name,
        role,
        scope,
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
    Ok(made.map(|body| with_secret(body, &secret)))
}

/// A token just made, with the token itself.
pub(crate) fn shown_new(token: &Token, secret: &str) -> Value {
    with_secret(shown(token), secret)
}

fn with_secret(mut body: Value, secret: &str) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.insert("token".to_owned(), secret.into());
    }
    body
}

/// `GET /v1/tokens`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| tokens::page(tx, &tenant, after, page.limit))?;
    Ok(page_of(&found, page, |token| token.seq, shown))
}

/// `DELETE /v1/tokens/{id}`: opens nothing from now on. The last one that can administer the box stays.
pub(super) fn revoke(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let (id, now) = (call.param(0).to_owned(), api.clock.wall());
    change(api, call, move |tx| {
        let missing = || Ok(Err(Problem::not_found("token")));
        let Some(before) = tokens::by_id(tx, &tenant, &id)? else { return missing() };
        if before.revoked_at.is_some() {
            return Ok(Err(Problem::conflict("The token was revoked before.")));
        }
        if before.administers_the_box(now) && !tokens::another_admin(tx, &before, now)? {
            return Ok(Err(Problem::conflict(
                "This is the last valid admin token of the box; without it nobody could administer it. Make \
                 another one first: oncebox token create NAME --role admin.",
            )));
        }
        tokens::revoke(tx, before.seq, now)?;
        let Some(after) = tokens::by_id(tx, &tenant, &id)? else { return missing() };
        let body = shown(&after);
        let change = Change::changed("token", &id, &shown(&before), &body);
        Ok(Ok((body, change)))
    })
}

/// The tenant a call is about: the caller's own, or one that the box's administrator names.
///
/// # Errors
/// 404 for any other.
pub(super) fn tenant_of(api: &Api, call: &Call, named: Option<&str>) -> Result<String, Problem> {
    let named = named.unwrap_or(&call.tenant);
    let there = named == call.tenant
        || (call.tenant == DEFAULT_TENANT
            && api.store.read(|tx| tenants::by_name(tx, named))?.is_some());
    if there { Ok(named.to_owned()) } else { Err(Problem::not_found("tenant")) }
}

fn shown(token: &Token) -> Value {
    let Token {
        seq: _,
        id,
        tenant,
        name,
        role,
        scope: Scope { source_systems, consumer_groups },
        created_at,
        expires_at,
        last_used_at,
        revoked_at,
    } = token;
    json!({
        "id": id, "tenant": tenant, "name": name, "role": role.as_str(),
        "source_systems": source_systems, "consumer_groups": consumer_groups,
        "created_at": created_at, "expires_at": expires_at, "last_used_at": last_used_at, "revoked_at": revoked_at,
    })
}

fn token_schema() -> Value {
    schema::object(json!({
        "id": schema::uuid(), "tenant": schema::name(), "name": schema::text_of(1, 100),
        "role": schema::words(Role::ALL.map(Role::as_str)),
        "source_systems": names("What it may publish as; `*` is any."),
        "consumer_groups": names("The groups it may claim events for; `*` is any."),
        "created_at": schema::time(),
        "expires_at": schema::nullable(schema::time()),
        "last_used_at": schema::about(
            schema::nullable(schema::time()), "Its last use, to the minute."),
        "revoked_at": schema::nullable(schema::time()),
    }))
}

fn names(about: &str) -> Value {
    schema::about(json!({ "type": "array", "items": schema::text() }), about)
}

fn new_token_schema() -> Value {
    let secret = schema::about(schema::text(), "The token. It is shown this once.");
    schema::with(token_schema(), "token", secret)
}

fn creation_schema() -> Value {
    schema::request(
        &["name", "role"],
        json!({
            "name": schema::about(schema::text_of(1, 100), "Who it is for."),
            "role": schema::words(Role::ALL.map(Role::as_str)),
            "tenant": schema::about(
                schema::nullable(schema::name()),
                "Whose data it opens; yours if absent. Another than your own is for an admin token of \
                 `default`."),
            "source_systems": names(
                "What it may publish as; `*` is any. An event that names no source system is from the one that is \
                 listed alone. `sql`, `in:…` and the names of configured sources are never taken over HTTP."),
            "consumer_groups": names("The groups it may claim events for; `*` is any."),
            "expires_at": schema::about(
                schema::nullable(schema::time()), "When it stops to open anything; never, if absent."),
        }),
    )
}

fn creation_example() -> Value {
    json!({ "name": "shop", "role": "publish", "source_systems": ["shop", "pos"] })
}

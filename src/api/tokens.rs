//! `/v1/tokens`: access to the API.
//!
//! An admin token manages the tokens of its own tenant. An admin token of the tenant `default` manages those of all
//! tenants.

use std::convert::identity;

use crate::api::prelude::*;
use crate::base::id;
use crate::model::token::{self, Role, Scope, Token};
use crate::store::{tenants, tokens};

const ID: Param = Param::path::<Uuid>("id", "The token's id.", ID_EXAMPLE);
const TENANT: Param = Param::query::<NameText>(
    "tenant",
    "The tenant of the tokens; your own if absent. Only an admin token of `default` may name another one.",
    "default",
);
const ID_EXAMPLE: &str = "019c1447-5800-7000-8000-000000000001";

/// Access to the API.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Tokens",
    about: "Who may use the API. A token has one role: `publish`, `read`, `operate` or `admin`.",
    routes: &[
        get("/v1/tokens", Admin, Listed(list))
            .doc("listTokens", "List the tokens", &[TENANT, LIMIT, AFTER])
            .about(
                "Includes revoked and expired ones. The tokens themselves are not stored and cannot \
                 be shown.",
            )
            .returns(&[Returns::page::<Token>("A page of tokens, the oldest first.")])
            .problems(&[Kind::NotFound]),
        post("/v1/tokens", Admin, Act("token.create", create))
            .doc("createToken", "Make a token", &[])
            .about(
                "Only this answer has the token itself, because only its hash is stored. A `publish` \
                 token lists what it may be used for: `source_systems`, `consumer_groups`, or both. \
                 Other roles list nothing.",
            )
            .returns(&[Returns::json::<NewToken>(201, "The token.")])
            .body::<TokenCreation>(
                r#"{"name":"shop","role":"publish","source_systems":["shop","pos"]}"#,
            )
            .problems(&[Kind::NotFound]),
        get("/v1/tokens/{id}", Admin, Now(show))
            .doc("getToken", "Show a token", &[ID, TENANT])
            .about("The token itself is not stored and cannot be shown.")
            .returns(&[Returns::json::<Token>(200, "The token.")]),
        delete("/v1/tokens/{id}", Admin, Act("token.revoke", revoke))
            .doc("revokeToken", "Revoke a token", &[ID, TENANT])
            .about(
                "The token is refused from then on. The last valid admin token of the tenant \
                 `default` cannot be revoked: nobody could administer the box.",
            )
            .returns(&[Returns::json::<Token>(200, "The token as it is now.")]),
    ],
};

/// `POST /v1/tokens`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TokenCreation {
    /// Who it is for.
    name: Is<Text<1, 100>>,
    role: Role,
    /// The tenant that it gives access to; your own if absent. Only an admin token of `default` may name another one.
    tenant: Option<Is<NameText>>,
    /// The source systems it may publish as; `*` is any. If exactly one is listed, it is the default for events that name
    /// none. `sql`, `in:…` and the names of configured sources are never accepted over HTTP.
    #[serde(default)]
    source_systems: Vec<String>,
    /// The groups it may claim events for; `*` is any.
    #[serde(default)]
    consumer_groups: Vec<String>,
    /// When it expires; never if absent.
    expires_at: Option<Timestamp>,
}

/// `POST /v1/tokens`: only this answer has the token itself.
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let TokenCreation { name, role, tenant, source_systems, consumer_groups, expires_at } =
        call.json()?;
    let scope = Scope { source_systems, consumer_groups };
    scope.check(role).map_err(Problem::unprocessable)?;
    let tenant = tenant_of(api, call, tenant.as_deref())?;
    let now = api.env.clock.wall();
    if expires_at.is_some_and(|end| end <= now) {
        return Err(Problem::unprocessable("expires_at is in the past."));
    }
    let secret = token::generate(&*api.env.draw);
    let new = tokens::NewToken {
        id: id::uuid7(now, &*api.env.draw),
        tenant,
        name: name.0,
        role,
        scope,
        hash: api.hasher.hash(&secret),
        expires_at,
    };
    change(api, call, move |tx| {
        tokens::insert(tx, &new, now)?;
        let token = tokens::by_id(tx, &new.tenant, &new.id)?.or_not_found("token")?;
        let made = Change::made("token", &new.id, &token);
        Ok(made.shown(|made| NewToken { made, token: secret.clone() }))
    })
}

/// A token just made, with the token itself.
pub(crate) fn shown_new(token: &Token, secret: &str) -> Value {
    value(NewToken { made: value(token), token: secret.to_owned() })
}

/// `GET /v1/tokens`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| tokens::page(tx, &tenant, after, page.limit))?;
    Ok(page_of(&found, page, |token| token.seq, identity))
}

/// `GET /v1/tokens/{id}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let found = api.env.store.read(|tx| tokens::by_id(tx, &tenant, call.param(0)))?;
    Ok(ok(&found.or_not_found("token")?))
}

/// `DELETE /v1/tokens/{id}`: refuses the last token that can administer the box.
pub(super) fn revoke(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let id = call.param(0).to_owned();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        let before = tokens::by_id(tx, &tenant, &id)?.or_not_found("token")?;
        if before.revoked_at.is_some() {
            return Err(Problem::conflict("The token is already revoked.").into());
        }
        if before.administers_the_box(now) && !tokens::another_admin(tx, &before, now)? {
            return Err(Problem::conflict(
                "This is the last valid admin token of the box; without it nobody could administer it. Make \
                 another one first: oncebox token create NAME --role admin.",
            ).into());
        }
        tokens::revoke(tx, before.seq, now)?;
        let after = tokens::by_id(tx, &tenant, &id)?.or_not_found("token")?;
        Ok(Change::changed("token", &id, &before, &after))
    })
}

/// The tenant a call is about: the caller's own, or one that the box's administrator names.
/// Fails with 404 for any other.
pub(super) fn tenant_of(api: &Api, call: &Call, named: Option<&str>) -> Result<String, Problem> {
    let named = named.unwrap_or(&call.tenant);
    let exists = named == call.tenant
        || (call.tenant == DEFAULT_TENANT
            && api.env.store.read(|tx| tenants::by_name(tx, named))?.is_some());
    if exists { Ok(named.to_owned()) } else { Err(Problem::not_found("tenant")) }
}

/// A token just made.
#[derive(Serialize, JsonSchema)]
struct NewToken<T = Token> {
    #[serde(flatten)]
    made: T,
    /// The token. It is not shown again.
    token: String,
}

//! `/v1/tenants`: whose rows there are. For the box's administrator alone: an admin token of the tenant
//! `default`. What belongs to another tenant is reached with a token of it, never from here.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_of};
use crate::api::pii_shapes;
use crate::api::problem::Problem;
use crate::api::route::Answer;
use crate::api::route::Answer::{Listed, Now};
use crate::api::route::{Param, Resource, Returns, doc, route, shape};
use crate::api::schema::{self, AFTER, LIMIT};
use crate::api::{Api, lists};
use crate::http::message::Method::{Get, Patch, Post};
use crate::http::message::Response;
use crate::model::name::Name;
use crate::model::tenant;
use crate::model::token::Right;
use crate::privacy::policy::Pii;
use crate::store::error::Result as StoreResult;
use crate::store::tenants::{self, Tenant};
use crate::store::tx::WriteTx;

const NAME: Param = Param::path("name", "The tenant's name.", schema::name, "acme");
const IS: &[Returns] = &[Returns::json(200, "The tenant as it is now.", "Tenant")];

/// Whose rows there are.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Tenants",
    about: "Whose data there is on this box. For its administrator: an admin token of the tenant `default`. \
            What belongs to another tenant is reached with a token of that tenant.",
    routes: &[
        route(
            Get,
            "/v1/tenants",
            Some(Right::Box),
            Listed(list),
            doc(
                "listTenants",
                "List the tenants",
                "Suspended ones too.",
                &[Returns::page("A page of tenants, the oldest first.", "Tenant")],
            )
            .params(&[LIMIT, AFTER]),
        ),
        route(
            Post,
            "/v1/tenants",
            Some(Right::Box),
            Answer::Change("tenant.create", create),
            doc(
                "createTenant",
                "Make a tenant",
                "Its first token is made with `POST /v1/tokens`, which takes a `tenant`.",
                &[Returns::json(201, "The tenant.", "Tenant")],
            )
            .body("TenantCreation", creation_example),
        ),
        route(
            Get,
            "/v1/tenants/{name}",
            Some(Right::Box),
            Now(show),
            doc("getTenant", "Show a tenant", "One tenant.", IS).params(&[NAME]),
        ),
        route(
            Patch,
            "/v1/tenants/{name}",
            Some(Right::Box),
            Answer::Change("tenant.change", change_one),
            doc("changeTenant", "Change a tenant", "Its title, and what happens to personal data in events that are published from then on; its name stays.", IS)
                .params(&[NAME])
                .body("TenantChange", change_example),
        ),
        route(
            Post,
            "/v1/tenants/{name}/suspend",
            Some(Right::Box),
            Answer::Change("tenant.suspend", suspend),
            doc(
                "suspendTenant",
                "Suspend a tenant",
                "From the answer on its tokens are answered 403 and its webhooks 503, and its deliveries wait. \
                 Nothing is deleted. Suspending it again changes nothing; `default` cannot be suspended.",
                IS,
            )
            .params(&[NAME]),
        ),
        route(
            Post,
            "/v1/tenants/{name}/resume",
            Some(Right::Box),
            Answer::Change("tenant.resume", resume),
            doc(
                "resumeTenant",
                "Resume a tenant",
                "Everything goes on where it stands.",
                IS,
            )
            .params(&[NAME]),
        ),
    ],
    shapes: &[
        shape("Tenant", tenant_schema),
        shape("TenantCreation", creation_schema),
        shape("TenantChange", change_schema),
    ],
};

/// `POST /v1/tenants`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    #[serde(default)]
    title: String,
    pii: Option<Value>,
}

/// `PATCH /v1/tenants/{name}`. What is absent stays. The name stays: every row of the tenant carries it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alteration {
    title: Option<String>,
    pii: Option<Value>,
}

/// `POST /v1/tenants`
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Creation { name, title, pii } = call.json()?;
    let name = Name::parse(&name).map_err(|error| Problem::unprocessable(format!("{error}.")))?;
    check(&title)?;
    let pii = pii.as_ref().map_or(Ok(Pii::Allow), pii_shapes::read)?;
    let now = api.clock.wall();
    change(api, call, move |tx| {
        if !tenants::insert(tx, (&name, &title), &pii, now)? {
            let detail = format!("There is a tenant named {:?} already.", name.as_str());
            return Ok(Err(Problem::conflict(detail)));
        }
        let Some(made) = tenants::by_name(tx, name.as_str())? else { return Ok(Err(missing())) };
        let body = shown(&made);
        let change = Change::made("tenant", name.as_str(), &body);
        Ok(Ok((body, change)))
    })
}

/// `GET /v1/tenants`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| tenants::page(tx, after, page.limit))?;
    Ok(page_of(&found, page, |tenant| tenant.seq, shown))
}

/// `GET /v1/tenants/{name}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&shown(&find(api, call.param(0))?)))
}

/// `PATCH /v1/tenants/{name}`
pub(super) fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Alteration { title, pii } = call.json()?;
    title.as_deref().map_or(Ok(()), check)?;
    let pii = pii.as_ref().map(pii_shapes::read).transpose()?;
    alter(api, call, move |tx, name| {
        title.iter().try_for_each(|title| tenants::set_title(tx, name, title))?;
        pii.iter().try_for_each(|pii| tenants::set_pii(tx, name, pii))
    })
}

/// `POST /v1/tenants/{name}/suspend`: its tokens and its intake are refused from now on, its deliveries
/// wait. Nothing is deleted, and nothing happens where it is suspended already.
pub(super) fn suspend(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    if call.param(0) == tenant::DEFAULT {
        return Err(Problem::conflict(
            "The tenant default is the box's own and cannot be suspended: nobody could end it.",
        ));
    }
    let now = api.clock.wall();
    alter(api, call, move |tx, name| tenants::set_suspended(tx, name, Some(now)).map(drop))
}

/// `POST /v1/tenants/{name}/resume`: everything goes on where it stands.
pub(super) fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    alter(api, call, |tx, name| tenants::set_suspended(tx, name, None).map(drop))
}

/// Changes the tenant that the path names.
fn alter(
    api: &Api,
    call: &Call,
    mut run: impl FnMut(&WriteTx<'_>, &str) -> StoreResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let name = call.param(0).to_owned();
    change(api, call, move |tx| {
        let Some(before) = tenants::by_name(tx, &name)? else { return Ok(Err(missing())) };
        run(tx, &name)?;
        let Some(after) = tenants::by_name(tx, &name)? else { return Ok(Err(missing())) };
        let body = shown(&after);
        let change = Change::changed("tenant", &name, &shown(&before), &body);
        Ok(Ok((body, change)))
    })
}

fn missing() -> Problem {
    Problem::not_found("tenant")
}

fn find(api: &Api, name: &str) -> Result<Tenant, Problem> {
    let found = api.store.read(|tx| tenants::by_name(tx, name))?;
    found.ok_or_else(missing)
}

fn check(title: &str) -> Result<(), Problem> {
    if title.chars().count() > tenant::MAX_TITLE_CHARS {
        let most = tenant::MAX_TITLE_CHARS;
        return Err(Problem::unprocessable(format!("A title has at most {most} characters.")));
    }
    Ok(())
}

fn shown(tenant: &Tenant) -> Value {
    let Tenant { seq: _, name, title, pii, created_at, suspended_at } = tenant;
    json!({
        "name": name, "title": title, "pii": pii.to_json(), "created_at": created_at, "suspended_at": suspended_at,
    })
}

fn title_schema() -> Value {
    let title = json!({ "type": "string", "maxLength": tenant::MAX_TITLE_CHARS });
    schema::about(title, "What a person calls it.")
}

fn tenant_schema() -> Value {
    schema::object(json!({
        "name": schema::name(), "title": title_schema(), "pii": pii_shapes::stated(),
        "created_at": schema::time(),
        "suspended_at": schema::about(
            schema::nullable(schema::time()), "Since when it is suspended; null when it is not."),
    }))
}

fn creation_schema() -> Value {
    let pii = schema::nullable(pii_shapes::stated());
    schema::request(
        &["name"],
        json!({ "name": schema::name(), "title": title_schema(), "pii": pii }),
    )
}

fn creation_example() -> Value {
    json!({ "name": "acme", "title": "Acme Ltd" })
}

fn change_schema() -> Value {
    let or_null = schema::nullable;
    let pii = or_null(pii_shapes::stated());
    schema::request(&[], json!({ "title": or_null(title_schema()), "pii": pii }))
}

fn change_example() -> Value {
    json!({ "title": "Acme plc" })
}

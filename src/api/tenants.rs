//! `/v1/tenants`: the tenants of this box. Only for admin tokens of the tenant `default`. The data of another tenant
//! needs a token of that tenant.

use std::convert::identity;

use crate::api::prelude::*;
use crate::model::name::Name;
use crate::model::token::Right::Box;
use crate::privacy::policy::Pii;
use crate::store::tenants::{self, MAX_TITLE_CHARS, Tenant};

const NAME: Param = Param::path::<NameText>("name", "The tenant's name.", "acme");
const IS: &[Returns] = &[Returns::json::<Tenant>(200, "The tenant as it is now.")];

/// Tenants.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Tenants",
    about: "The tenants of this box. Only for admin tokens of the tenant `default`. The data of another tenant \
            needs a token of that tenant.",
    routes: &[
        get("/v1/tenants", Box, Listed(list))
            .doc("listTenants", "List the tenants", &[LIMIT, AFTER])
            .about("Includes suspended ones.")
            .returns(&[Returns::page::<Tenant>("A page of tenants, the oldest first.")]),
        post("/v1/tenants", Box, Act("tenant.create", create))
            .doc("createTenant", "Make a tenant", &[])
            .about("Its first token is made with `POST /v1/tokens`, which takes a `tenant`.")
            .returns(&[Returns::json::<Tenant>(201, "The tenant.")])
            .body::<TenantCreation>(r#"{"name":"acme","title":"Acme Ltd","pii":"allow"}"#),
        get("/v1/tenants/{name}", Box, Now(show))
            .doc("getTenant", "Show a tenant", &[NAME])
            .about("One tenant.")
            .returns(IS),
        patch("/v1/tenants/{name}", Box, Act("tenant.change", change_one))
            .doc("changeTenant", "Change a tenant", &[NAME])
            .about(
                "Changes its title, and what happens to personal data in events that are published \
                 from then on. The name cannot be changed.",
            )
            .returns(IS)
            .body::<TenantChange>(r#"{"title":"Acme plc"}"#),
        post("/v1/tenants/{name}/suspend", Box, Act("tenant.suspend", suspend))
            .doc("suspendTenant", "Suspend a tenant", &[NAME])
            .about(
                "From then on its tokens are answered 403 and its webhooks 503, and its deliveries \
                 wait. Nothing is deleted. Suspending it twice changes nothing. `default` cannot be \
                 suspended.",
            )
            .returns(IS),
        post("/v1/tenants/{name}/resume", Box, Act("tenant.resume", resume))
            .doc("resumeTenant", "Resume a tenant", &[NAME])
            .about("Its tokens and webhooks are accepted again, and its deliveries continue.")
            .returns(IS),
    ],
};

/// `POST /v1/tenants`. `pii` is required, so that personal data is not stored by accident.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantCreation {
    name: Name,
    /// A title for people.
    #[serde(default)]
    title: Is<Text<0, MAX_TITLE_CHARS>>,
    /// What happens to personal data in published events before it is stored: `allow` stores it unchanged, a policy
    /// applies its rules (docs/privacy.md). Required.
    #[schemars(with = "Pii")]
    pii: Option<Pii>,
}

/// `PATCH /v1/tenants/{name}`. Absent fields stay as they are. The name cannot be changed: every row of the tenant has
/// it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantChange {
    /// A title for people.
    title: Option<Is<Text<0, MAX_TITLE_CHARS>>>,
    pii: Option<Pii>,
}

/// `POST /v1/tenants`
pub(super) fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let TenantCreation { name, title, pii } = call.json()?;
    let Some(pii) = pii else {
        return Err(Problem::unprocessable(
            "Say what happens to personal data in the tenant's events: `\"pii\": \"allow\"` stores it as it is \
             published; a policy of rules changes it before it is stored (docs/privacy.md).",
        ));
    };
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        if !tenants::insert(tx, &name, &title, &pii, now)? {
            let detail = format!("There is a tenant named {:?} already.", name.as_str());
            return Err(Problem::conflict(detail).into());
        }
        let made = tenants::by_name(tx, name.as_str())?.or_not_found("tenant")?;
        Ok(Change::made("tenant", name.as_str(), &made))
    })
}

/// `GET /v1/tenants`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| tenants::page(tx, after, page.limit))?;
    Ok(page_of(&found, page, |tenant| tenant.seq, identity))
}

/// `GET /v1/tenants/{name}`
pub(super) fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    Ok(ok(&find(api, call.param(0))?))
}

/// `PATCH /v1/tenants/{name}`
pub(super) fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let TenantChange { title, pii } = call.json()?;
    alter(api, call, move |tx, name| {
        title.iter().try_for_each(|title| tenants::set_title(tx, name, title))?;
        pii.iter().try_for_each(|pii| tenants::set_pii(tx, name, pii))
    })
}

/// `POST /v1/tenants/{name}/suspend`
pub(super) fn suspend(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    if call.param(0) == DEFAULT_TENANT {
        return Err(Problem::conflict(
            "The tenant default cannot be suspended: nobody could resume it.",
        ));
    }
    let now = api.env.clock.wall();
    alter(api, call, move |tx, name| tenants::set_suspended(tx, name, true, now).map(drop))
}

/// `POST /v1/tenants/{name}/resume`
pub(super) fn resume(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let now = api.env.clock.wall();
    alter(api, call, move |tx, name| tenants::set_suspended(tx, name, false, now).map(drop))
}

/// Changes the tenant that the path names.
fn alter(
    api: &Api,
    call: &Call,
    mut run: impl FnMut(&WriteTx<'_>, &str) -> StoreResult<()> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let name = call.param(0).to_owned();
    change(api, call, move |tx| {
        let before = tenants::by_name(tx, &name)?.or_not_found("tenant")?;
        run(tx, &name)?;
        let after = tenants::by_name(tx, &name)?.or_not_found("tenant")?;
        Ok(Change::changed("tenant", &name, &before, &after))
    })
}

fn find(api: &Api, name: &str) -> Result<Tenant, Problem> {
    api.env.store.read(|tx| tenants::by_name(tx, name))?.or_not_found("tenant")
}

//! `/v1/sessions`: who is logged in to the console.

use std::convert::identity;

use crate::api::prelude::*;
use crate::api::tokens::tenant_of;
use crate::model::user::StoredSession;
use crate::store::sessions::{self, Live, Whose};

const ID: Param =
    Param::path::<Uuid>("id", "The session's id.", "019c1447-5800-7000-8000-000000000001");
const TENANT: Param = Param::query::<NameText>(
    "tenant",
    "The tenant of the users; your own if absent. Only an admin of `default` may name another one.",
    "default",
);

/// Who is logged in.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Sessions",
    about: "Who is logged in to the console.",
    routes: &[
        get("/v1/sessions", Admin, Listed(list))
            .doc("listSessions", "List the sessions", &[TENANT, LIMIT, AFTER])
            .about("Without those that have ended.")
            .returns(&[Returns::page::<StoredSession>("A page of sessions, the oldest first.")])
            .problems(&[Kind::NotFound]),
        get("/v1/sessions/{id}", Admin, Now(show))
            .doc("getSession", "Show a session", &[ID, TENANT])
            .about("Until it is ended.")
            .returns(&[Returns::json::<StoredSession>(200, "The session.")]),
        delete("/v1/sessions/{id}", Admin, Act("session.end", end))
            .doc("endSession", "End a session", &[ID, TENANT])
            .about("Whoever uses it has to log in again.")
            .returns(&[Returns::nothing("It is ended.")]),
        get("/v1/me/sessions", Read, Listed(list_own))
            .doc("listOwnSessions", "List your own sessions", &[LIMIT, AFTER])
            .about(
                "For the user who is logged in; a token has none. Without those that have ended.",
            )
            .returns(&[Returns::page::<StoredSession>("A page of sessions, the oldest first.")]),
        delete("/v1/me/sessions/{id}", Read, Act("session.end_own", end_own))
            .doc("endOwnSession", "End one of your own sessions", &[ID])
            .about("For the user who is logged in; a token has none.")
            .returns(&[Returns::nothing("It is ended.")]),
    ],
};

/// `GET /v1/sessions`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    page_of_live(api, call, Whose::Tenant(&tenant))
}

/// `GET /v1/me/sessions`
fn list_own(api: &Api, call: &Call) -> Result<Response, Problem> {
    page_of_live(api, call, Whose::User(&call.who.id))
}

fn page_of_live(api: &Api, call: &Call, whose: Whose<'_>) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let now = api.env.clock.wall();
    let live = Live { now, used_since: now.minus(api.env.settings.get().console.idle_timeout) };
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| sessions::page(tx, whose, live, after, page.limit))?;
    Ok(page_of(&found, page, |session| session.seq, identity))
}

/// `GET /v1/sessions/{id}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let found = api.env.store.read(|tx| sessions::by_id(tx, &tenant, call.param(0)))?;
    Ok(ok(&found.or_not_found("session")?))
}

/// `DELETE /v1/sessions/{id}`
fn end(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    end_if(api, call, tenant, |_session| true)
}

/// `DELETE /v1/me/sessions/{id}`
fn end_own(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let user = call.who.id.clone();
    end_if(api, call, call.tenant.clone(), move |session| session.user.id == user)
}

/// Ends the session of the path, if it is among the person's sessions.
fn end_if(
    api: &Api,
    call: &Call,
    tenant: String,
    may: impl Fn(&StoredSession) -> bool + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let id = call.param(0).to_owned();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        let found = sessions::by_id(tx, &tenant, &id)?.filter(|session| may(session));
        let session = found.or_not_found("session")?;
        sessions::end(tx, session.seq, now)?;
        Ok(Change::gone("session", &id, &session))
    })
}

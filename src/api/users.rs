//! `/v1/users`: the people who use the console.
//!
//! An admin manages the users of its own tenant. An admin of the tenant `default` manages those of all tenants.

use std::convert::identity;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::api::prelude::*;
use crate::api::tokens::tenant_of;
use crate::base::id;
use crate::model::audit::ActorType;
use crate::model::name::Name;
use crate::model::token::{self, Role};
use crate::model::user::{
    LINK_PREFIX, MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, User, UserRole, check_password, check_role,
};
use crate::store::sessions;
use crate::store::users::{self, NewUser, UserWithPassword};

const NAME: Param = Param::path::<NameText>("name", "The user's name.", "anna");
const TENANT: Param = Param::query::<NameText>(
    "tenant",
    "The tenant of the users; your own if absent. Only an admin of `default` may name another one.",
    "default",
);
/// How long a one-time link can be used.
const LINK_LIFETIME: Duration = Duration::from_mins(15);

/// The people who use the console.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Users",
    about: "The people who use the console. A user has one role: `read`, `operate` or `admin`. Programs use tokens.",
    routes: &[
        get("/v1/users", Admin, Listed(list))
            .doc("listUsers", "List the users", &[TENANT, LIMIT, AFTER])
            .about("Without deleted ones.")
            .returns(&[Returns::page::<User>("A page of users, the oldest first.")])
            .problems(&[Kind::NotFound]),
        post("/v1/users", Admin, Act("user.create", create))
            .doc("createUser", "Make a user", &[])
            .about(
                "The name is unique in the tenant. A user logs in as `tenant/name`; one of `default` by the name alone. \
                 A user without a password logs in with one-time links.",
            )
            .returns(&[Returns::json::<User>(201, "The user.")])
            .body::<UserCreation>(r#"{"name":"anna","role":"operate"}"#)
            .problems(&[Kind::NotFound]),
        get("/v1/users/{name}", Admin, Now(show))
            .doc("getUser", "Show a user", &[NAME, TENANT])
            .about("A password is not shown.")
            .returns(&[Returns::json::<User>(200, "The user.")]),
        patch("/v1/users/{name}", Admin, Act("user.change", change_one))
            .doc("changeUser", "Change a user", &[NAME, TENANT])
            .about("What is absent stays. A change ends the user's sessions and its one-time link.")
            .returns(&[Returns::json::<User>(200, "The user as it is now.")])
            .body::<UserChange>(r#"{"role":"read","disabled":false}"#),
        delete("/v1/users/{name}", Admin, Act("user.delete", remove))
            .doc("deleteUser", "Delete a user", &[NAME, TENANT])
            .about("Its sessions end. Its name can be given again; audit events keep it.")
            .returns(&[Returns::nothing("It is deleted.")]),
        post("/v1/users/{name}/link", Admin, Act("user.link", link))
            .doc("createLoginLink", "Make a one-time link", &[NAME, TENANT])
            .about(
                "Whoever opens it is logged in as this user, once and within 15 minutes. An earlier link of the user is \
                 void. Only this answer has it.",
            )
            .returns(&[Returns::json::<LoginLink>(201, "The link.")]),
        post("/v1/users/{name}/password", Read, Act("user.password", change_own_password))
            .doc("changeOwnPassword", "Change your own password", &[NAME])
            .about("For the user who is logged in; tokens are answered 403. Ends all sessions of the user.")
            .returns(&[Returns::json::<User>(200, "The user.")])
            .body::<PasswordChange>(
                r#"{"current":"correct horse battery","new":"staple correct horse"}"#,
            ),
    ],
};

/// `POST /v1/users`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UserCreation {
    name: Name,
    role: Is<UserRole, Role>,
    /// The tenant whose data it may use; your own if absent. Only an admin of `default` may name another one.
    tenant: Option<Is<NameText>>,
    /// Absent: the user logs in with one-time links.
    password: Option<Is<Text<MIN_PASSWORD_CHARS, MAX_PASSWORD_CHARS>, Zeroizing<String>>>,
}

/// `PATCH /v1/users/{name}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UserChange {
    role: Option<Is<UserRole, Role>>,
    password: Option<Is<Text<MIN_PASSWORD_CHARS, MAX_PASSWORD_CHARS>, Zeroizing<String>>>,
    /// Whether it is kept from logging in.
    disabled: Option<bool>,
}

/// `POST /v1/users/{name}/password`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PasswordChange {
    /// Absent only if the user has no password yet.
    current: Option<Is<String, Zeroizing<String>>>,
    new: Is<Text<MIN_PASSWORD_CHARS, MAX_PASSWORD_CHARS>, Zeroizing<String>>,
}

/// `GET /v1/users`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let after = page.after.unwrap_or(0);
    let found = lists::read(api, call, |tx| users::page(tx, &tenant, after, page.limit))?;
    Ok(page_of(&found, page, |user| user.seq, identity))
}

/// `GET /v1/users/{name}`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let found = api
        .env
        .store
        .read(|tx| users::by_name(tx, &tenant, call.param(0)))?
        .or_not_found("user")?;
    Ok(ok(&found.user))
}

/// `POST /v1/users`
fn create(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let UserCreation { name, role, tenant, password } = call.json()?;
    check_role(role.0).map_err(Problem::unprocessable)?;
    let tenant = tenant_of(api, call, tenant.as_deref())?;
    let password_hash = password.map(|password| hash_of(api, &password)).transpose()?;
    let now = api.env.clock.wall();
    let id = id::uuid7(now, &*api.env.draw);
    let new = NewUser { id, tenant, name: name.to_string(), role: role.0, password_hash };
    let made = change(api, call, move |tx| {
        if !users::insert(tx, &new, now)? {
            let name = &new.name;
            return Err(Problem::conflict(format!("The name {name:?} is taken.")).into());
        }
        let found = users::by_name(tx, &new.tenant, &new.name)?.or_not_found("user")?;
        Ok(Change::made("user", &new.id, &found.user))
    })?;
    api.forget_first_code();
    Ok(made)
}

/// `PATCH /v1/users/{name}`
fn change_one(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let UserChange { role, password, disabled } = call.json()?;
    let role = bare(role);
    role.map_or(Ok(()), check_role).map_err(Problem::unprocessable)?;
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let hash = password.map(|password| hash_of(api, &password)).transpose()?;
    let now = api.env.clock.wall();
    alter(api, call, tenant, move |found| {
        found.user.role = role.unwrap_or(found.user.role);
        if let Some(disabled) = disabled {
            found.user.disabled_at = disabled.then(|| found.user.disabled_at.unwrap_or(now));
        }
        set_password(found, hash.as_ref());
        Ok(())
    })
}

/// `POST /v1/users/{name}/password`
fn change_own_password(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let name = call.param(0);
    if call.who.kind != ActorType::User || call.who.display != name {
        return Err(Problem::forbidden(
            "A user changes the own password only. An admin sets the password of another user with PATCH.",
        ));
    }
    let PasswordChange { current, new } = call.json()?;
    let log_ins = api.auth.log_ins();
    let client = call.request.head.client;
    let now = api.env.clock.monotonic();
    let whose = Some((call.tenant.as_str(), name));
    log_ins.check(client, whose, now)?;
    let found =
        api.env.store.read(|tx| users::by_name(tx, &call.tenant, name))?.or_not_found("user")?;
    let before = found.password_hash;
    if let Some(hash) = &before {
        let current = current.as_ref().map_or("", |current| current.as_str());
        if !log_ins.verify(current, Some(hash))? {
            log_ins.failed(client, whose, now);
            return Err(Problem::forbidden("The current password is wrong."));
        }
    }
    let hash = hash_of(api, &new)?;
    alter(api, call, call.tenant.clone(), move |found| {
        if found.password_hash != before {
            return Err(Problem::conflict("The password was changed meanwhile."));
        }
        set_password(found, Some(&hash));
        Ok(())
    })
}

/// Changes the user that the path names, and ends its sessions.
fn alter(
    api: &Api,
    call: &Call,
    tenant: String,
    run: impl Fn(&mut UserWithPassword) -> Result<(), Problem> + Send + 'static,
) -> Result<Audited<Value>, Problem> {
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        let before = users::by_name(tx, &tenant, &name)?.or_not_found("user")?;
        let mut after = before.clone();
        run(&mut after)?;
        users::set(tx, &after)?;
        let ended = shut_out(tx, after.user.seq, now)?;
        let change = Change::changed("user", &after.user.id, &before.user, &after.user);
        let change = change.and("sessions_ended", ended);
        let is_new = before.password_hash != after.password_hash;
        Ok(if is_new { change.and("password", "changed") } else { change })
    })
}

/// `DELETE /v1/users/{name}`
fn remove(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let name = call.param(0).to_owned();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        let UserWithPassword { user, .. } =
            users::by_name(tx, &tenant, &name)?.or_not_found("user")?;
        users::delete(tx, user.seq, now)?;
        let ended = shut_out(tx, user.seq, now)?;
        Ok(Change::gone("user", &user.id, &user).and("sessions_ended", ended))
    })
}

/// `POST /v1/users/{name}/link`: only this answer has the link.
fn link(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let secret = Zeroizing::new(token::secret(LINK_PREFIX, &*api.env.draw));
    let name = call.param(0).to_owned();
    let hash = api.hasher.hash(&secret);
    let expires_at = api.env.clock.wall().plus(LINK_LIFETIME);
    let url = format!("{}/console/enter?link={}", address(api, call), secret.as_str());
    change(api, call, move |tx| {
        let UserWithPassword { user, .. } =
            users::by_name(tx, &tenant, &name)?.or_not_found("user")?;
        if user.disabled_at.is_some() {
            return Err(Problem::conflict("The user is disabled.").into());
        }
        users::set_link(tx, user.seq, &hash, expires_at)?;
        let made = Change::made("user", &user.id, &()).and("expires_at", expires_at.to_string());
        Ok(made.answer(LoginLink { url: url.clone(), expires_at }))
    })
}

/// The URL of the console, as people reach it.
fn address(api: &Api, call: &Call) -> String {
    let settings = api.env.settings.get();
    if let Some(url) = settings.console_url() {
        return url.trim_end_matches('/').to_owned();
    }
    let listen = &settings.listen;
    if let Some(address) = listen.console {
        return format!("http://{address}");
    }
    let host = call.request.head.headers.get("host").filter(|host| !host.is_empty());
    host.map_or_else(|| format!("http://{}", listen.api), |host| format!("http://{host}"))
}

/// Ends the sessions and the one-time link of a user; returns how many sessions.
fn shut_out(tx: &WriteTx<'_>, seq: i64, now: Timestamp) -> crate::store::error::Result<usize> {
    users::drop_link(tx, seq)?;
    sessions::end_all(tx, seq, now)
}

/// The hash of a new password.
/// Fails with 422 if it is too short or too long, 503 if others are hashed at the same time.
pub(super) fn hash_of(api: &Api, password: &str) -> Result<String, Problem> {
    check_password(password).map_err(Problem::unprocessable)?;
    api.auth.log_ins().hash(password, &*api.env.draw)
}

fn set_password(found: &mut UserWithPassword, hash: Option<&String>) {
    if let Some(hash) = hash {
        found.password_hash = Some(hash.clone());
        found.user.has_password = true;
    }
}

/// A one-time link.
#[derive(Serialize, JsonSchema)]
struct LoginLink {
    /// Where to open it. It is not shown again.
    url: String,
    expires_at: Timestamp,
}

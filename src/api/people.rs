//! People who are logged in: log-in, sessions, and requests that are answered in a person's name.
//!
//! Called by the console, in this process. Over HTTP, programs use tokens.

use std::time::Duration;

use zeroize::Zeroizing;

use crate::api::audited::origin;
use crate::api::auth::{Caller, Denied};
use crate::api::log_ins::shortened;
use crate::api::prelude::*;
use crate::api::route::Route;
use crate::base::id;
use crate::http::message::{Head, Request};
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, ActorType, NewAuditEvent, Outcome};
use crate::model::token::{self, Right, Role};
use crate::model::user::{LINK_PREFIX, MAX_PASSWORD_CHARS, SESSION_PREFIX, User, parse_login};
use crate::store::sessions::{self, NewSession as StoredNew};
use crate::store::writer::Queue;
use crate::store::{audit_events, tenants, users};

/// How long an ended session stays in the file.
const SESSIONS_KEPT: Duration = Duration::from_hours(30 * 24);
/// The longest stored name of a browser, in characters.
const MAX_AGENT_CHARS: usize = 200;

/// A person who is logged in.
#[derive(Clone, Debug)]
pub struct Person {
    /// The user's UUID.
    pub id: String,
    /// The user's name.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// The tenant whose data it uses: its own, or the one that an admin of the box chose.
    pub shown: String,
    /// What it may do.
    pub role: Role,
}

/// A session that was just begun.
pub struct NewSession {
    /// The cookie's value; only its hash is stored.
    pub secret: Zeroizing<String>,
    /// Whose it is.
    pub person: Person,
    /// When it ends at the latest.
    pub ends_at: Timestamp,
}

impl std::fmt::Debug for NewSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSession").field("person", &self.person).finish_non_exhaustive()
    }
}

/// The session of a request.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its UUID.
    pub id: String,
    /// Whose it is.
    pub person: Person,
    seq: i64,
}

impl Person {
    fn of(user: &User) -> Self {
        let User { id, name, tenant, role, .. } = user.clone();
        Self { id, name, shown: tenant.clone(), tenant, role }
    }

    /// Whether the role allows something.
    pub(crate) fn may(&self, right: Right) -> bool {
        self.role.may_in(&self.tenant, right)
    }

    /// The tenant whose data a route uses.
    fn tenant_of(&self, route: &Route) -> &str {
        if route.is_of_own_tenant() { &self.tenant } else { &self.shown }
    }

    /// Who acts in a tenant: in another one than its own with the name to log in.
    fn actor(&self, tenant: &str) -> Actor {
        let is_own = self.tenant == tenant;
        let display =
            if is_own { self.name.clone() } else { format!("{}/{}", self.tenant, self.name) };
        Actor { kind: ActorType::User, id: self.id.clone(), display }
    }
}

impl Session {
    /// The session with the data of this tenant, if its person is an admin of the box.
    #[must_use]
    pub fn showing(mut self, tenant: Option<&str>) -> Self {
        if let Some(tenant) = tenant.filter(|_| self.person.may(Right::Box)) {
            tenant.clone_into(&mut self.person.shown);
        }
        self
    }
}

/// A new session, before it is stored.
struct Beginning {
    secret: Zeroizing<String>,
    new: StoredNew,
    now: Timestamp,
    event: NewAuditEvent,
}

impl Api {
    /// Begins a session of the user with this `tenant/name` and password; a name alone is of the tenant `default`.
    /// Fails with 401 when one of them is wrong, 403 when the tenant is suspended, 429 after too many failures.
    pub fn log_in(&self, head: &Head, login: &str, password: &str) -> Result<NewSession, Problem> {
        let refused = |problem| self.refused(head, Some(login), problem);
        let (tenant, name) = parse_login(login);
        let whose = Some((tenant, name));
        self.auth
            .log_ins()
            .check(head.client, whose, self.env.clock.monotonic())
            .map_err(refused)?;
        let found = self.env.store.read(|tx| users::by_name(tx, tenant, name))?;
        let found = found.filter(|found| found.user.disabled_at.is_none());
        let hash = found.as_ref().and_then(|found| found.password_hash.as_deref());
        let fits = password.chars().count() <= MAX_PASSWORD_CHARS;
        let is_right = fits && self.auth.log_ins().verify(password, hash)?;
        let (Some(found), true) = (&found, is_right) else {
            self.auth.log_ins().failed(head.client, whose, self.env.clock.monotonic());
            return Err(refused(Problem::log_in_failed("The name or the password is wrong.")));
        };
        let user = found.user.clone();
        let hash = found.password_hash.clone();
        // The password may have been changed while it was checked.
        let begun = self.begin(head, "password", move |tx, _now| {
            let now_found = users::by_name(tx, &user.tenant, &user.name)?;
            let same = now_found.filter(|now| now.password_hash == hash);
            Ok(same.map(|found| found.user).filter(|user| user.disabled_at.is_none()))
        })?;
        begun.ok_or_else(|| Problem::log_in_failed("The name or the password is wrong."))
    }

    /// Begins a session with a one-time link's secret, which is used up by that.
    /// Fails with 401 when it is not valid, 403 when the tenant is suspended, 429 after too many failures.
    pub fn enter(&self, head: &Head, link: &str) -> Result<NewSession, Problem> {
        let refused = |problem| self.refused(head, None, problem);
        self.auth
            .log_ins()
            .check(head.client, None, self.env.clock.monotonic())
            .map_err(refused)?;
        let hash = self.hasher.hash(link);
        let begun = if token::is_secret(LINK_PREFIX, link) {
            self.begin(head, "link", move |tx, now| users::of_link(tx, &hash, now))?
        } else {
            None
        };
        begun.ok_or_else(|| {
            self.auth.log_ins().failed(head.client, None, self.env.clock.monotonic());
            refused(Problem::log_in_failed(
                "The link is unknown, used or expired. Make another one: oncebox console link.",
            ))
        })
    }

    /// The session of a cookie's value; `None` if there is none, or it has ended.
    /// `is_use`: a person did something, and not only a page that stays fresh.
    pub fn session(&self, secret: &str, is_use: bool) -> Result<Option<Session>, Problem> {
        if !token::is_secret(SESSION_PREFIX, secret) {
            return Ok(None);
        }
        let read = |hash: &[u8]| self.env.store.look_up(|tx| sessions::by_hash(tx, hash));
        let found = self.auth.log_ins().session(self.hasher.hash(secret), read)?;
        let now = self.env.clock.wall();
        let idle = self.env.settings.get().console.idle_timeout;
        let Some(known) = found.filter(|known| !known.is_over(now, idle)) else { return Ok(None) };
        let seq = known.stored.seq;
        if is_use && known.is_to_be_noted(now) {
            self.env.store.writer().submit(
                Queue::Upkeep,
                move |tx| sessions::used(tx, seq, now),
                |outcome| {
                    if let Err(error) = outcome {
                        tracing::debug!(%error, "a session's last use was not stored");
                    }
                },
            );
        }
        let person = Person::of(&known.stored.user);
        Ok(Some(Session { id: known.stored.id.clone(), person, seq }))
    }

    /// Ends a session.
    pub fn log_out(&self, head: &Head, session: &Session) -> Result<(), Problem> {
        let now = self.env.clock.wall();
        let seq = session.seq;
        let Person { id, tenant, .. } = &session.person;
        let event = NewAuditEvent::local(now, tenant, session.person.actor(tenant), "user.logout");
        let changes = Changes::none().and("session", session.id.as_str());
        let mut event = event.of("user", id, changes);
        let name = &session.person.name;
        let client = head.client;
        tracing::info!(actor = name, tenant, action = "user.logout", %client, "a person logs out");
        event.origin = origin(head);
        Ok(self.env.store.writer().write(Queue::Accept, move |tx| {
            sessions::end(tx, seq, now)?;
            audit_events::append(tx, &event)
        })?)
    }

    /// Whether there is any user.
    pub fn has_users(&self) -> Result<bool, Problem> {
        Ok(self.env.store.read(users::any)?)
    }

    /// Answers a request in a person's name, with the rights of its role and tenant.
    pub fn ask(&self, person: &Person, request: Request, reply: Reply) {
        match self.called_by(person, request) {
            Err(problem) => reply.send(problem.into()),
            Ok((route, call)) => self.dispatch(route, call, reply),
        }
    }

    /// The same for a caller that waits for the answer, and whose turn in the queue of lists has come
    /// ([`Api::in_turn`]). A route that answers later is a 500: use [`Api::ask`].
    pub fn ask_now(&self, person: &Person, request: Request) -> Response {
        let (route, call) = match self.called_by(person, request) {
            Err(problem) => return problem.into(),
            Ok(called) => called,
        };
        match route.answer {
            Now(answer) | Listed(answer) => answer(self, &call).unwrap_or_else(Into::into),
            Act(_, answer) => self.acted(&call, answer(self, &call)),
            Later(_) | ActLater(..) => {
                Problem::internal(format!("{route:?} does not answer at once")).into()
            }
        }
    }

    /// The route and the call of a person's request.
    fn called_by(
        &self,
        person: &Person,
        request: Request,
    ) -> Result<(&'static Route, Call), Problem> {
        let head = &request.head;
        let (route, params) = self.find(head.method, &head.path)?;
        let tenant = person.tenant_of(route).to_owned();
        let who = person.actor(&tenant);
        if let Some(right) = route.right {
            self.allow(person, &tenant, right).inspect_err(|problem| {
                let denies = problem.status() == 403;
                if let Some(action) = route.action().filter(|_| denies) {
                    let by = Some(Box::new((tenant.clone(), who.clone())));
                    self.note_denial(
                        action,
                        &params,
                        head,
                        &Denied { problem: problem.clone(), by },
                    );
                }
            })?;
        }
        route.check_room(self)?;
        let caller = Caller { tenant, who, scope: None };
        self.prepared(route, params, request, caller)
    }

    /// A mark of a text that only this service can make.
    pub fn mark(&self, text: &str) -> String {
        data_encoding::HEXLOWER.encode(&self.hasher.hash(text))
    }

    /// Notes that an admin of the box looks at the data of a tenant; a cookie of the console says so from then on.
    /// Fails with 403 when the person is none or the tenant is suspended, 404 when there is no such tenant.
    pub fn show_tenant(&self, head: &Head, session: &Session, tenant: &str) -> Result<(), Problem> {
        let person = &session.person;
        let now = self.env.clock.wall();
        let action = "session.show_tenant";
        self.allow(person, &person.tenant, Right::Box).inspect_err(|problem| {
            let by = Some(Box::new((person.tenant.clone(), person.actor(&person.tenant))));
            self.note_denial(action, &[], head, &Denied { problem: problem.clone(), by });
        })?;
        self.env.store.read(|tx| tenants::by_name(tx, tenant))?.or_not_found("tenant")?;
        self.check_tenant(tenant)?;
        let event = NewAuditEvent::local(now, tenant, person.actor(tenant), action);
        let mut event = event.of("session", &session.id, Changes::none());
        event.origin = origin(head);
        Ok(self
            .env
            .store
            .writer()
            .write(Queue::Accept, move |tx| audit_events::append(tx, &event))?)
    }

    /// Fails with 403 when the person's role does not allow it, or the tenant is suspended.
    fn allow(&self, person: &Person, tenant: &str, right: Right) -> Result<(), Problem> {
        self.check_tenant(tenant)?;
        if person.may(right) {
            return Ok(());
        }
        Err(Problem::forbidden(if right == Right::Box {
            "Only an admin of the tenant default may do this.".to_owned()
        } else {
            format!("A user with the role {} may not do this.", person.role)
        }))
    }

    fn check_tenant(&self, tenant: &str) -> Result<(), Problem> {
        let is_suspended = self.env.store.look_up(|tx| tenants::is_suspended(tx, tenant))?;
        if is_suspended { Err(Problem::tenant_suspended()) } else { Ok(()) }
    }

    /// Stores a new session of the user that `find` finds; `None` if it finds none.
    pub(super) fn begin(
        &self,
        head: &Head,
        by: &'static str,
        find: impl Fn(&WriteTx<'_>, Timestamp) -> StoreResult<Option<User>> + Send + 'static,
    ) -> Result<Option<NewSession>, Problem> {
        let Beginning { secret, new, now, event } = self.beginning(head, by);
        let ends_at = new.ends_at;
        let client = head.client;
        let user = self.env.store.writer().write(Queue::Accept, move |tx| {
            let Some(user) = find(tx, now)? else { return Ok(None) };
            if tenants::is_suspended(tx, &user.tenant)? {
                return Ok(Some(Err(Problem::tenant_suspended())));
            }
            users::drop_link(tx, user.seq)?;
            users::logged_in(tx, user.seq, now)?;
            sessions::insert(tx, user.seq, &new, now, now.minus(SESSIONS_KEPT))?;
            let person = Person::of(&user);
            let mut event = event.clone();
            event.actor = person.actor(&user.tenant);
            event.tenant = user.tenant;
            event.resource_id = Some(user.id);
            audit_events::append(tx, &event)?;
            Ok(Some(Ok(person)))
        })?;
        let person = user.transpose()?;
        if let Some(Person { name, tenant, .. }) = &person {
            tracing::info!(actor = name, tenant, action = "user.login", by, %client, "a person has logged in");
        }
        Ok(person.map(|person| NewSession { secret, person, ends_at }))
    }

    fn beginning(&self, head: &Head, by: &'static str) -> Beginning {
        let now = self.env.clock.wall();
        let secret = Zeroizing::new(token::secret(SESSION_PREFIX, &*self.env.draw));
        let agent = |text: &str| -> String {
            text.chars().filter(|c| !c.is_control()).take(MAX_AGENT_CHARS).collect()
        };
        let new = StoredNew {
            id: id::uuid7(now, &*self.env.draw),
            hash: self.hasher.hash(&secret),
            ends_at: now.plus(self.env.settings.get().console.session_lifetime),
            address: head.client.to_string(),
            user_agent: head.headers.get("user-agent").map(agent),
        };
        let changes = Changes::none().and("session", new.id.as_str()).and("by", by);
        let event = NewAuditEvent::local(now, DEFAULT_TENANT, Actor::anonymous(), "user.login");
        let event = NewAuditEvent { origin: origin(head), changes, ..event };
        Beginning { secret, new, now, event }
    }

    /// Audits a log-in that failed.
    pub(super) fn refused(&self, head: &Head, name: Option<&str>, problem: Problem) -> Problem {
        let now = self.env.clock.wall();
        let event = NewAuditEvent::local(now, DEFAULT_TENANT, Actor::anonymous(), "user.login");
        let resource_id = name.map(shortened);
        let actor = resource_id.as_deref().unwrap_or("unknown");
        let client = head.client;
        // Further ones of the same client or name are only counted.
        if problem.status() != 429 {
            let problem = problem.kind();
            tracing::info!(actor, action = "user.login", %client, problem, "a log-in was refused");
        }
        let event = NewAuditEvent { origin: origin(head), resource_id, ..event };
        self.note(event, Outcome::Failure, &problem);
        problem
    }
}

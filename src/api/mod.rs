//! The HTTP interface: which path means what, who may call it, and how errors are answered.
//!
//! [`ROUTES`] is the whole of it. Each resource is a file that reads a [`Call`], asks the store or a
//! stage, and shows the result; none of them decides anything about deliveries.

mod audit_events;
mod audited;
pub mod auth;
mod call;
mod credentials;
mod deliveries;
mod events;
mod guards;
mod intake;
mod problem;
mod providers;
mod status;
mod subscriptions;
mod tokens;
mod webhook_events;

use std::sync::Arc;

use serde_json::Value;

use crate::api::audited::{Audited, Denied};
use crate::api::auth::{Auth, TokenHasher};
use crate::api::call::Call;
use crate::api::problem::Problem;
use crate::clock::Clock;
use crate::domain::audit::Actor;
use crate::domain::token::{Right, Token};
use crate::flow::destinations::Defaults;
use crate::flow::publish::Publish;
use crate::flow::receive::Receive;
use crate::flow::refusals::Refusals;
use crate::http::message::{Head, Method, Request, Response};
use crate::http::service::{Reply, Service};
use crate::id::Draw;
use crate::secret::MasterKey;
use crate::settings::Settings;
use crate::store::Store;

/// Whose data it is where nobody asked for tenants.
pub const DEFAULT_TENANT: &str = "default";
/// The largest body of a request that changes settings.
const BODY_BYTES_SMALL: usize = 256 * 1024;

/// The stages the API hands work to.
#[derive(Clone, Debug)]
pub struct Stages {
    /// The intake.
    pub receive: Receive,
    /// The publisher.
    pub publish: Publish,
    /// Where refused calls are noted.
    pub refusals: Refusals,
}

/// The API and what it is built from.
#[derive(Clone)]
pub struct Api {
    /// The file.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// What secrets are sealed with.
    pub key: Arc<MasterKey>,
    /// How tokens are hashed.
    pub hasher: Arc<TokenHasher>,
    /// Who is asking.
    pub auth: Auth,
    /// The stages.
    pub flow: Stages,
    /// What holds.
    pub settings: Arc<Settings>,
    /// What holds where a subscription does not say.
    pub defaults: Defaults,
    router: Arc<matchit::Router<Vec<&'static Route>>>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// A path, a method, and who answers.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; `{…}` are variable parts.
    pub path: &'static str,
    /// What the token must allow; `None`: public.
    pub right: Option<Right>,
    answer: Answer,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)
    }
}

/// Who answers, and how.
enum Answer {
    /// At once. Changes nothing.
    Now(fn(&Api, &Call) -> Result<Response, Problem>),
    /// After a COMMIT that the handler does not wait for: what providers and publishers send.
    Later(fn(&Api, Call, Reply)),
    /// A change by a person or a program, under the name that its audit event gives it.
    Change(&'static str, fn(&Api, &Call) -> Result<Audited<Value>, Problem>),
}

impl Route {
    /// What audit events call it; `None` where no call of it makes one.
    ///
    /// A call that succeeds makes one where something is changed; one that is denied makes one also where
    /// events are published or only an administrator may look.
    pub fn action(&self) -> Option<&'static str> {
        match (&self.answer, self.right) {
            (Change(action, _), _) => Some(action),
            (_, Some(MayPublish)) => Some("event.publish"),
            (_, Some(Admin)) => Some("administration.read"),
            _ => None,
        }
    }

    /// Whether it changes something, and each call that succeeds makes one audit event.
    pub fn is_audited(&self) -> bool {
        matches!(self.answer, Change(..))
    }
}

const fn route(method: Method, path: &'static str, right: Option<Right>, answer: Answer) -> Route {
    Route { method, path, right, answer }
}

use Answer::{Change, Later, Now};
use Method::{Delete, Get, Patch, Post};
use Right::{Admin, Operate, Publish as MayPublish, Read};

/// Every path there is.
pub static ROUTES: &[Route] = &[
    route(Post, "/in/{provider}", None, Later(intake::receive)),
    route(Post, "/in/{tenant}/{provider}", None, Later(intake::receive)),
    route(Post, "/v1/events", Some(MayPublish), Later(events::publish)),
    route(Get, "/v1/events", Some(Read), Now(events::list)),
    route(Get, "/v1/events/{id}", Some(Read), Now(events::show)),
    route(Get, "/v1/webhook-events", Some(Read), Now(webhook_events::list)),
    route(Get, "/v1/webhook-events/{id}", Some(Read), Now(webhook_events::show)),
    route(Get, "/v1/providers", Some(Read), Now(providers::list)),
    route(Post, "/v1/providers", Some(Admin), Change("provider.create", providers::create)),
    route(Get, "/v1/providers/{name}", Some(Read), Now(providers::show)),
    route(
        Patch,
        "/v1/providers/{name}",
        Some(Admin),
        Change("provider.change", providers::change_one),
    ),
    route(
        Delete,
        "/v1/providers/{name}",
        Some(Admin),
        Change("provider.delete", providers::delete),
    ),
    route(Get, "/v1/subscriptions", Some(Read), Now(subscriptions::list)),
    route(
        Post,
        "/v1/subscriptions",
        Some(Admin),
        Change("subscription.create", subscriptions::create),
    ),
    route(Get, "/v1/subscriptions/{id}", Some(Read), Now(subscriptions::show)),
    route(
        Patch,
        "/v1/subscriptions/{id}",
        Some(Admin),
        Change("subscription.change", subscriptions::change_one),
    ),
    route(
        Delete,
        "/v1/subscriptions/{id}",
        Some(Admin),
        Change("subscription.delete", subscriptions::delete),
    ),
    route(
        Post,
        "/v1/subscriptions/{id}/pause",
        Some(Operate),
        Change("subscription.pause", subscriptions::pause),
    ),
    route(
        Post,
        "/v1/subscriptions/{id}/resume",
        Some(Operate),
        Change("subscription.resume", subscriptions::resume),
    ),
    route(Get, "/v1/deliveries", Some(Read), Now(deliveries::list)),
    route(Get, "/v1/deliveries/{id}", Some(Read), Now(deliveries::show)),
    route(Get, "/v1/deliveries/{id}/attempts", Some(Read), Now(deliveries::list_attempts)),
    route(
        Post,
        "/v1/deliveries/{id}/retry",
        Some(Operate),
        Change("delivery.retry", deliveries::retry),
    ),
    route(
        Post,
        "/v1/deliveries/{id}/cancel",
        Some(Operate),
        Change("delivery.cancel", deliveries::cancel),
    ),
    route(Get, "/v1/dead-letters", Some(Read), Now(deliveries::list_dead)),
    route(Post, "/v1/processed-events", Some(MayPublish), Later(guards::claim)),
    route(Get, "/v1/tokens", Some(Admin), Now(tokens::list)),
    route(Post, "/v1/tokens", Some(Admin), Change("token.create", tokens::create)),
    route(Delete, "/v1/tokens/{id}", Some(Admin), Change("token.revoke", tokens::revoke)),
    route(Get, "/v1/audit-events", Some(Admin), Now(audit_events::list)),
    route(Get, "/v1/stats", Some(Read), Now(status::show)),
    route(Get, "/livez", None, Now(status::live)),
    route(Get, "/readyz", None, Later(status::ready)),
];

/// What [`Api::new`] takes.
#[derive(Clone)]
pub struct Parts {
    /// The file.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub draw: Arc<dyn Draw>,
    /// What secrets are sealed with.
    pub key: Arc<MasterKey>,
    /// Who is asking.
    pub auth: Auth,
    /// How tokens are hashed.
    pub hasher: Arc<TokenHasher>,
    /// The stages.
    pub flow: Stages,
    /// What holds.
    pub settings: Arc<Settings>,
    /// What holds where a subscription does not say.
    pub defaults: Defaults,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Api {
    /// The API over its parts.
    pub fn new(parts: Parts) -> Self {
        let Parts { store, clock, draw, key, auth, hasher, flow, settings, defaults } = parts;
        let router = Arc::new(router());
        Self { store, clock, draw, key, hasher, auth, flow, settings, defaults, router }
    }

    /// The route of a request, and the variable parts of its path.
    fn find(&self, method: Method, path: &str) -> Result<(&'static Route, Vec<String>), Problem> {
        let missing = || Problem::not_found("path");
        let found = self.router.at(path).map_err(|_not_found| missing())?;
        let asked = if method == Method::Head { Get } else { method };
        let Some(route) = found.value.iter().find(|route| route.method == asked) else {
            let allowed: Vec<&str> =
                found.value.iter().map(|route| route.method.as_str()).collect();
            return Err(Problem::method_not_allowed(&allowed.join(", ")));
        };
        let decode = |text: &str| {
            percent_encoding::percent_decode_str(text)
                .decode_utf8()
                .ok()
                .map(std::borrow::Cow::into_owned)
        };
        let params = found.params.iter().map(|(_, value)| decode(value)).collect::<Option<_>>();
        Ok((route, params.ok_or_else(missing)?))
    }

    fn call(&self, request: Request) -> Result<(&'static Route, Call), Problem> {
        let head = &request.head;
        let (route, params) = self.find(head.method, &head.path)?;
        let (tenant, who) = match self.authorize(route, head)? {
            None => (DEFAULT_TENANT.to_owned(), Actor::anonymous()),
            Some(token) => {
                let who = auth::actor(&token);
                (token.tenant, who)
            }
        };
        let action = route.action().unwrap_or_default();
        Ok((route, Call { request, params, tenant, who, action }))
    }

    /// The token of a call; `None` on public paths. A denial is noted.
    fn authorize(&self, route: &Route, head: &Head) -> Result<Option<Token>, Problem> {
        let Some(right) = route.right else { return Ok(None) };
        let token = self.auth.authorize(&head.headers, right).map_err(|denied| {
            if matches!(denied.problem.status(), 401 | 403) {
                self.note_denial(route, head, &denied);
            }
            let Denied { problem, token: _ } = denied;
            problem
        })?;
        Ok(Some(token))
    }
}

fn router() -> matchit::Router<Vec<&'static Route>> {
    let mut router = matchit::Router::new();
    let mut paths: Vec<&'static str> = ROUTES.iter().map(|route| route.path).collect();
    paths.dedup();
    for path in paths {
        let here = ROUTES.iter().filter(|route| route.path == path).collect();
        let inserted = router.insert(path, here);
        assert!(inserted.is_ok(), "the route table is contradictory at {path}");
    }
    router
}

impl Service for Api {
    /// Who may not send, or sends to nobody, is told before the body is read and takes no memory.
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        let (route, params) = self.find(head.method, &head.path).map_err(Response::from)?;
        self.authorize(route, head).map_err(Response::from)?;
        let bytes = match (route.method, route.path) {
            (Post, "/v1/events") => self.settings.request_bytes,
            (Post, path) if path.starts_with("/in/") => {
                let (tenant, provider) = intake::address(&params);
                let gate = self.flow.receive.gate(tenant, provider).map_err(Problem::from)?;
                let gate = gate.ok_or_else(|| Problem::not_found("provider"))?;
                gate.provider.new.body_bytes_max
            }
            _ => return Ok(BODY_BYTES_SMALL),
        };
        Ok(usize::try_from(bytes).unwrap_or(BODY_BYTES_SMALL))
    }

    fn call(&self, request: Request, reply: Reply) {
        match Self::call(self, request) {
            Err(problem) => reply.send(problem.into()),
            Ok((route, call)) => match route.answer {
                Now(answer) => {
                    reply.send(answer(self, &call).unwrap_or_else(Into::into));
                }
                Later(answer) => answer(self, call, reply),
                Change(_, answer) => {
                    let response = match answer(self, &call) {
                        Ok(audited) => audited.into_response(),
                        Err(problem) => {
                            self.note_failure(&call, &problem);
                            problem.into()
                        }
                    };
                    reply.send(response);
                }
            },
        }
    }

    fn refusal(&self, status: u16, detail: &str) -> Response {
        Problem::of_listener(status, detail).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_no_look_is_audited_or_what_providers_and_publishers_send() {
        for route in ROUTES.iter().filter(|route| route.method != Get && !route.is_audited()) {
            let sent = route.path.starts_with("/in/")
                || ["/v1/events", "/v1/processed-events"].contains(&route.path);
            assert!(sent && matches!(route.answer, Later(_)), "{route:?} has to be a Change");
        }
        for route in ROUTES.iter().filter(|route| route.is_audited()) {
            assert!(route.method != Get && route.right.is_some(), "{route:?}");
        }
    }

    #[test]
    fn the_route_table_is_not_contradictory() {
        let router = router();
        assert!(router.at("/v1/events/1").is_ok());
        assert!(router.at("/in/acme/stripe").is_ok());
    }
}

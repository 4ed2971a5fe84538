//! The HTTP interface: which path means what, who may call it, and how errors are answered.
//!
//! [`routes`] is the whole of it. Each resource is a file with its routes and their descriptions, which
//! reads a [`Call`], asks the store or a stage, and shows the result; none of them decides anything about
//! deliveries.

mod answered;
mod audit_events;
mod audited;
pub mod auth;
mod call;
mod consumers;
pub mod context;
mod credentials;
mod dead_letters;
mod deliveries;
mod description;
mod escalations;
mod event_repairs;
mod events;
mod guards;
mod health;
mod in_doubt;
mod intake;
mod jobs;
mod keys;
pub mod kind;
mod last_write;
mod list_queue;
pub mod listeners;
mod lists;
pub mod metrics;
pub mod openapi;
mod payloads;
mod pii;
mod problem;
mod providers;
mod replays;
mod requests;
mod room;
pub mod route;
mod schema;
mod scheme;
mod secrets;
mod sources;
mod status;
mod subjects;
mod subscription_terms;
mod subscriptions;
mod tenants;
mod tokens;
mod webhook_events;

use std::sync::Arc;
use std::time::Duration;

use crate::api::auth::{Auth, Denied, TokenHasher};
use crate::api::call::{Call, Query};
use crate::api::context::{Api, Stages};
use crate::api::problem::Problem;
use crate::api::requests::Requests;
use crate::api::route::{Answer, Resource, Route};
use crate::base::budget::{Budget, Share};
use crate::base::clock::Clock;
use crate::base::id::Draw;
use crate::config::Live;
use crate::http::message::{Asked, Head, Method, Request, Response};
use crate::http::server::StatsHandle;
use crate::http::service::{Reply, Service};
use crate::keys::Keyring;
use crate::model::audit::Actor;
use crate::model::token::{Role, Token};
use crate::store::Store;

pub(crate) use crate::api::tokens::shown_new as shown_new_token;
pub use crate::model::tenant::DEFAULT as DEFAULT_TENANT;

/// The largest body of a request that changes settings.
const BODY_BYTES_SMALL: usize = 256 * 1024;
/// When to come again while too much memory is taken.
const FULL_RETRY_AFTER_SECS: u64 = 1;

use Answer::{Act, Later, Listed, Now};
use Method::{Get, Post};

/// Every noun there is; its routes and their descriptions stand in its file.
static RESOURCES: &[&Resource] = &[
    &intake::RESOURCE,
    &events::RESOURCE,
    &event_repairs::RESOURCE,
    &webhook_events::RESOURCE,
    &providers::RESOURCE,
    &subscriptions::RESOURCE,
    &secrets::RESOURCE,
    &sources::RESOURCE,
    &deliveries::RESOURCE,
    &dead_letters::RESOURCE,
    &replays::RESOURCE,
    &jobs::RESOURCE,
    &in_doubt::RESOURCE,
    &consumers::RESOURCE,
    &guards::RESOURCE,
    &subjects::RESOURCE,
    &tokens::RESOURCE,
    &keys::RESOURCE,
    &tenants::RESOURCE,
    &escalations::RESOURCE,
    &audit_events::RESOURCE,
    &status::RESOURCE,
    &metrics::RESOURCE,
    &openapi::RESOURCE,
];

/// Every route there is.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    RESOURCES.iter().flat_map(|resource| resource.routes)
}

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
    pub key: Arc<Keyring>,
    /// Who is asking.
    pub auth: Auth,
    /// How tokens are hashed.
    pub hasher: Arc<TokenHasher>,
    /// The stages.
    pub flow: Stages,
    /// What requests take their memory from.
    pub budget: Budget,
    /// What holds.
    pub settings: Live,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Api {
    /// The API over its parts.
    pub fn new(parts: Parts) -> Self {
        let Parts { store, clock, draw, key, auth, hasher, flow, budget, settings } = parts;
        let router = Arc::new(router());
        let counted = routes().map(|route| (route.method.as_str(), route.path));
        let started_at = clock.wall();
        let refusals = Arc::new(answered::Refusals::new());
        Self {
            store,
            clock,
            draw,
            key,
            hasher,
            auth,
            flow,
            budget,
            settings,
            last_write: Arc::default(),
            requests: Arc::new(Requests::new(counted)),
            lists: Arc::default(),
            server_stats: StatsHandle::default(),
            started_at,
            refusals,
            router,
            document: Arc::default(),
        }
    }

    /// Why it is not ready, as `/readyz` would say it; `None` where it is. Waits for nothing.
    pub fn not_ready(&self) -> Option<String> {
        health::not_ready(self)
    }

    /// The route of a request, and the variable parts of its path.
    fn find(&self, method: Method, path: &str) -> Result<(&'static Route, Vec<String>), Problem> {
        let missing = || Problem::not_found("path");
        let found = self.router.at(path).map_err(|_not_found| missing())?;
        let Some((_, route)) = of_method(found.value, method) else {
            return Err(Problem::method_not_allowed(&allowed(found.value)));
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

    /// The place of a route among all [`routes`], for counting.
    fn place(&self, method: Method, path: &str) -> Option<usize> {
        let here = self.router.at(path).ok()?.value;
        of_method(here, method).map(|(place, _)| place)
    }

    /// What a path answers, for `OPTIONS`; `*` asks for nothing in particular.
    fn options(&self, path: &str) -> Response {
        match self.router.at(path) {
            Ok(found) => Response::new(204).header("allow", allowed(found.value)),
            Err(_) if path == "*" => Response::new(204),
            Err(_) => Problem::not_found("path").into(),
        }
    }

    fn call(&self, request: Request) -> Result<(&'static Route, Call), Problem> {
        let head = &request.head;
        let (route, params) = self.find(head.method, &head.path)?;
        let (tenant, who, scope) = match self.authorize(route, head)? {
            None => (DEFAULT_TENANT.to_owned(), Actor::anonymous(), None),
            Some(token) => {
                let who = auth::actor(&token);
                (token.tenant, who, (token.role == Role::Publish).then_some(token.scope))
            }
        };
        let action = route.action().unwrap_or_default();
        let query = Query::read(head.query.as_deref(), &route.doc)?;
        let doc = &route.doc;
        let share = self.share(request.body.len().saturating_mul(factor(route)))?;
        Ok((route, Call { request, params, query, tenant, scope, who, action, doc, share }))
    }

    /// Memory for a request, until it is answered.
    /// Fails with 503 while too much is taken.
    fn share(&self, bytes: usize) -> Result<Share, Problem> {
        self.budget.try_take(bytes).ok_or_else(|| {
            let detail = "Too many large requests are worked on now; send it again shortly.";
            Problem::unavailable(detail, FULL_RETRY_AFTER_SECS)
        })
    }

    /// The token of a call; `None` on public paths. A denial is noted.
    fn authorize(&self, route: &Route, head: &Head) -> Result<Option<Token>, Problem> {
        let Some(right) = route.right else { return Ok(None) };
        let token = self.auth.authorize(head, right).map_err(|denied| {
            if matches!(denied.problem.status(), 401 | 403 | 429) {
                // Only what changes something, and what only an administrator may see, is noted.
                if let Some(action) = route.action() {
                    self.note_denial(action, head, &denied);
                }
            }
            let Denied { problem, token: _ } = denied;
            problem
        })?;
        Ok(Some(token))
    }
}

/// How much memory a body takes while it is worked on, for each of its bytes: what is published or received is
/// copied once and bound to a statement; everything else is read into JSON values, of 32 bytes for a `0,`.
fn factor(route: &Route) -> usize {
    let is_kept_as_bytes = route.path == "/v1/events" || route.path.starts_with("/in/");
    if is_kept_as_bytes { 2 } else { 32 }
}

/// The methods of a path, as the field `Allow` lists them.
fn allowed(places: &[usize]) -> String {
    let mut methods: Vec<&str> = at(places).map(|(_, route)| route.method.as_str()).collect();
    if at(places).any(|(_, route)| route.method == Get) {
        methods.push(Method::Head.as_str());
    }
    methods.push(Method::Options.as_str());
    methods.join(", ")
}

/// The routes at these places among all [`routes`], each with its place.
fn at(places: &[usize]) -> impl Iterator<Item = (usize, &'static Route)> {
    places.iter().filter_map(|place| Some((*place, routes().nth(*place)?)))
}

/// The one of these routes that answers a method, with its place.
fn of_method(places: &[usize], method: Method) -> Option<(usize, &'static Route)> {
    let asked = if method == Method::Head { Get } else { method };
    at(places).find(|(_, route)| route.method == asked)
}

/// For each path the places of its routes among all [`routes`].
fn router() -> matchit::Router<Vec<usize>> {
    let mut router = matchit::Router::new();
    let mut paths: Vec<&'static str> = routes().map(|route| route.path).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let all = routes().enumerate();
        let here = all.filter(|(_, route)| route.path == path).map(|(place, _)| place).collect();
        let inserted = router.insert(path, here);
        assert!(inserted.is_ok(), "the routes are contradictory at {path}");
    }
    router
}

impl Service for Api {
    /// A request without the right, or for no route, is refused before its body is read and takes no memory.
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        if head.method == Method::Options {
            return Err(self.options(&head.path));
        }
        let (route, params) = self.find(head.method, &head.path).map_err(Response::from)?;
        self.authorize(route, head).map_err(Response::from)?;
        room::check(self, route).map_err(Response::from)?;
        let bytes = match (route.method, route.path) {
            (Post, "/v1/events") => self.settings.get().limits.request_bytes,
            (Post, path) if path.starts_with("/in/") => {
                intake::gate(self, &params)?.provider.new.body_bytes_max
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
                Listed(answer) => lists::answer(self, answer, call, reply),
                Later(answer) => answer(self, call, reply),
                Act(_, answer) => {
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

    fn finish(&self, asked: &Asked, took: Duration, response: Response) -> Response {
        let target = asked.target.as_ref();
        let place = target.and_then(|(method, path)| self.place(*method, path));
        self.requests.note(place, response.status, took);
        answered::finish(asked, took, (&self.refusals, self.clock.monotonic()), response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_no_look_is_audited_or_what_providers_and_publishers_send() {
        // A look whose question is in the body, because it is personal.
        let looks = ["/v1/subjects/find"];
        let unaudited = routes().filter(|route| route.method != Get && !route.is_audited());
        for route in unaudited.filter(|route| !looks.contains(&route.path)) {
            let sent = route.path.starts_with("/in/")
                || route.path.starts_with("/v1/consumers/")
                || ["/v1/events", "/v1/processed-events"].contains(&route.path);
            assert!(sent && matches!(route.answer, Later(_)), "{route:?} has to be a Change");
        }
        for route in routes().filter(|route| route.is_audited()) {
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

//! The HTTP interface: which path means what, who may call it, and how errors are answered.
//!
//! [`ROUTES`] is the whole of it. Each resource is a file that reads a [`Call`], asks the store or a
//! stage, and shows the result; none of them decides anything about deliveries.

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

use crate::api::auth::{Auth, TokenHasher};
use crate::api::call::Call;
use crate::api::problem::Problem;
use crate::clock::Clock;
use crate::domain::token::Right;
use crate::flow::publish::Publish;
use crate::flow::receive::Receive;
use crate::http::message::{Head, Method, Request, Response};
use crate::http::service::{Reply, Service};
use crate::id::Draw;
use crate::secret::MasterKey;
use crate::settings::Live;
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
    pub settings: Live,
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

/// Who answers: at once, or after a COMMIT the handler does not wait for.
enum Answer {
    Now(fn(&Api, &Call) -> Result<Response, Problem>),
    Later(fn(&Api, Call, Reply)),
}

const fn route(method: Method, path: &'static str, right: Option<Right>, answer: Answer) -> Route {
    Route { method, path, right, answer }
}

use Answer::{Later, Now};
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
    route(Post, "/v1/providers", Some(Admin), Now(providers::create)),
    route(Get, "/v1/providers/{name}", Some(Read), Now(providers::show)),
    route(Patch, "/v1/providers/{name}", Some(Admin), Now(providers::change)),
    route(Delete, "/v1/providers/{name}", Some(Admin), Now(providers::delete)),
    route(Get, "/v1/subscriptions", Some(Read), Now(subscriptions::list)),
    route(Post, "/v1/subscriptions", Some(Admin), Now(subscriptions::create)),
    route(Get, "/v1/subscriptions/{id}", Some(Read), Now(subscriptions::show)),
    route(Patch, "/v1/subscriptions/{id}", Some(Admin), Now(subscriptions::change)),
    route(Delete, "/v1/subscriptions/{id}", Some(Admin), Now(subscriptions::delete)),
    route(Post, "/v1/subscriptions/{id}/pause", Some(Operate), Now(subscriptions::pause)),
    route(Post, "/v1/subscriptions/{id}/resume", Some(Operate), Now(subscriptions::resume)),
    route(Get, "/v1/deliveries", Some(Read), Now(deliveries::list)),
    route(Get, "/v1/deliveries/{id}", Some(Read), Now(deliveries::show)),
    route(Get, "/v1/deliveries/{id}/attempts", Some(Read), Now(deliveries::list_attempts)),
    route(Post, "/v1/deliveries/{id}/retry", Some(Operate), Now(deliveries::retry)),
    route(Post, "/v1/deliveries/{id}/cancel", Some(Operate), Now(deliveries::cancel)),
    route(Get, "/v1/dead-letters", Some(Read), Now(deliveries::list_dead)),
    route(Post, "/v1/processed-events", Some(MayPublish), Later(guards::claim)),
    route(Get, "/v1/tokens", Some(Admin), Now(tokens::list)),
    route(Post, "/v1/tokens", Some(Admin), Now(tokens::create)),
    route(Delete, "/v1/tokens/{id}", Some(Admin), Now(tokens::revoke)),
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
        let Parts { store, clock, draw, key, auth, hasher, flow, settings } = parts;
        let router = Arc::new(router());
        Self { store, clock, draw, key, hasher, auth, flow, settings, router }
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
        let (tenant, actor) = match route.right {
            None => (DEFAULT_TENANT.to_owned(), String::new()),
            Some(right) => {
                let token = self.auth.authorize(&head.headers, right)?;
                (token.tenant, token.name)
            }
        };
        Ok((route, Call { request, params, tenant, actor }))
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
        if let Some(right) = route.right {
            self.auth.authorize(&head.headers, right).map_err(Response::from)?;
        }
        let bytes = match (route.method, route.path) {
            (Post, "/v1/events") => self.settings.get().limits.request_bytes,
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
    fn the_route_table_is_not_contradictory() {
        let router = router();
        assert!(router.at("/v1/events/1").is_ok());
        assert!(router.at("/in/acme/stripe").is_ok());
    }
}

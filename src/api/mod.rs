//! The HTTP API: its routes, who may call them, and how errors are answered.
//!
//! Each resource has a file with its routes, their descriptions and their handlers. A handler reads a [`Call`], asks
//! the store or a stage, and returns the answer. No handler decides about deliveries.

mod alert_channels;
mod answered;
mod archive_months;
mod archived;
mod audit_events;
mod audited;
pub mod auth;
mod background_probes;
mod backups;
mod call;
mod claimed;
mod clock;
mod comparisons;
mod confirmations;
mod consumers;
pub mod context;
mod credential_rotation;
mod credentials;
mod databases;
mod dead_letters;
mod deliveries;
mod delivery_request;
pub mod described_value;
mod description;
mod escalations;
mod event_repairs;
mod event_types;
mod events;
mod external_calls;
mod first_admin;
mod guards;
mod health;
mod history;
mod idempotency;
mod in_doubt;
mod intake;
mod jobs;
mod kept_counts;
mod keys;
pub mod kind;
mod lanes;
mod last_write;
mod legal_holds;
mod limits;
mod list_sources;
pub mod listeners;
mod lists;
mod log_ins;
pub mod metrics;
pub mod openapi;
mod pattern_words;
pub mod people;
mod prelude;
mod probe;
pub mod problem;
mod provider_samples;
mod providers;
mod reconciliations;
mod refused_webhooks;
mod replays;
pub mod route;
mod schema;
mod sealing;
mod search;
mod secrets;
mod sessions;
mod settings;
mod sources;
mod status;
mod subjects;
mod subscription_terms;
mod subscription_trials;
mod subscriptions;
mod tenants;
mod terms_body;
mod tokens;
mod users;
mod webhook_events;
mod what_if;

use std::sync::Arc;
use std::time::Duration;

use crate::api::answered::Requests;
use crate::api::auth::{Auth, Caller, Denied, TokenHasher};
use crate::api::call::{Call, Query};
use crate::api::context::{Api, Stages};
use crate::api::described_value::SentType;
use crate::api::problem::Problem;
use crate::api::route::{Answer, Resource, Route};
use crate::base::budget::Share;
use crate::base::fair::Payer;
use crate::env::Env;
use crate::http::message::{Asked, Head, Method, Request, Response};
use crate::http::server::StatsHandle;
use crate::http::service::{Reply, Service};
use crate::model::token::Token;
use crate::pipeline::confirmations::CONFIRM_PATH;
use crate::signatures::handshake;

pub(crate) use crate::api::tokens::shown_new as shown_new_token;

/// The largest body of a request that changes settings.
const BODY_BYTES_SMALL: usize = 256 * 1024;
/// `Retry-After` while requests use all of the memory budget.
const FULL_RETRY_AFTER_SECS: u64 = 1;

use Answer::{Act, ActLater, Later, Listed, Now};
use Method::{Get, Post};

/// All resources.
static RESOURCES: &[&Resource] = &[
    &intake::RESOURCE,
    &events::RESOURCE,
    &event_repairs::RESOURCE,
    &event_types::RESOURCE,
    &webhook_events::RESOURCE,
    &providers::RESOURCE,
    &provider_samples::RESOURCE,
    &subscriptions::RESOURCE,
    &probe::RESOURCE,
    &secrets::RESOURCE,
    &credentials::RESOURCE,
    &credential_rotation::RESOURCE,
    &reconciliations::RESOURCE,
    &comparisons::RESOURCE,
    &sources::RESOURCE,
    &databases::RESOURCE,
    &deliveries::RESOURCE,
    &delivery_request::RESOURCE,
    &confirmations::RESOURCE,
    &dead_letters::RESOURCE,
    &external_calls::RESOURCE,
    &lanes::RESOURCE,
    &replays::RESOURCE,
    &jobs::RESOURCE,
    &in_doubt::RESOURCE,
    &consumers::RESOURCE,
    &history::RESOURCE,
    &guards::RESOURCE,
    &subjects::RESOURCE,
    &tokens::RESOURCE,
    &users::RESOURCE,
    &sessions::RESOURCE,
    &keys::RESOURCE,
    &tenants::RESOURCE,
    &escalations::RESOURCE,
    &alert_channels::RESOURCE,
    &refused_webhooks::RESOURCE,
    &archive_months::RESOURCE,
    &legal_holds::RESOURCE,
    &clock::RESOURCE,
    &backups::RESOURCE,
    &settings::RESOURCE,
    &search::RESOURCE,
    &audit_events::RESOURCE,
    &status::RESOURCE,
    &metrics::RESOURCE,
    &openapi::RESOURCE,
];

/// All routes.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    RESOURCES.iter().flat_map(|resource| resource.routes)
}

fn route(method: Method, path: &str) -> Option<&'static Route> {
    routes().find(|route| route.method == method && route.path == path)
}

/// What a route does; empty if there is none.
pub fn about(method: Method, path: &str) -> &'static str {
    route(method, path).map_or("", |route| route.doc.about)
}

/// What a route's JSON body is; `None`: it takes none.
pub fn body_of(method: Method, path: &str) -> Option<SentType> {
    route(method, path)?.doc.sent_body()
}

impl Api {
    /// An API that has answered nothing yet.
    pub fn new(env: Env, auth: Auth, hasher: Arc<TokenHasher>, flow: Stages) -> Self {
        let router = Arc::new(router());
        let counted = routes().map(|route| (route.method.as_str(), route.path));
        let started_at = env.clock.wall();
        let refusals = Arc::new(answered::Refusals::new());
        Self {
            env,
            hasher,
            auth,
            flow,
            last_write: Arc::default(),
            kept_counts: Arc::default(),
            tests: Arc::default(),
            requests: Arc::new(Requests::new(counted)),
            lists: Arc::new(lists::none_yet()),
            trials: Arc::new(lists::none_yet()),
            server_stats: StatsHandle::default(),
            started_at,
            refusals,
            router,
            document: Arc::default(),
            limits: Arc::default(),
        }
    }

    /// Why the service is not ready, in the words of `/readyz`; `None` if it is ready. Does not block.
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

    /// The index of a route in [`routes`], for counting.
    fn route_index(&self, method: Method, path: &str) -> Option<usize> {
        let here = self.router.at(path).ok()?.value;
        of_method(here, method).map(|(index, _)| index)
    }

    /// The answer to `OPTIONS`. The path `*` means the server itself. A sender of webhooks that asks for permission gets
    /// it where there is a provider.
    fn options(&self, head: &Head) -> Response {
        let path = head.path.as_str();
        if let Some(origin) = handshake::allowed_origin(&head.headers)
            && let Ok((route, params)) = self.find(Post, path)
            && intake::tenant(route, &params).is_some()
        {
            return match intake::find(self, &params) {
                Ok(_) => intake::permission(&origin),
                Err(problem) => problem.into(),
            };
        }
        match self.router.at(path) {
            Ok(found) => Response::new(204).header("allow", allowed(found.value)),
            Err(_) if path == "*" => Response::new(204),
            Err(_) => Problem::not_found("path").into(),
        }
    }

    fn call(&self, request: Request) -> Result<(&'static Route, Call), Problem> {
        let head = &request.head;
        let (route, params) = self.find(head.method, &head.path)?;
        let caller =
            self.authorize(route, &params, head)?.map_or_else(Caller::anonymous, Caller::of);
        self.prepared(route, params, request, caller)
    }

    /// The call of a request that was authorized.
    fn prepared(
        &self,
        route: &'static Route,
        params: Vec<String>,
        request: Request,
        Caller { tenant, who, scope }: Caller,
    ) -> Result<(&'static Route, Call), Problem> {
        let head = &request.head;
        let action = route.action().unwrap_or_default();
        let query = Query::read(head.query.as_deref(), &route.doc)?;
        let takes_key = route.takes_key();
        let of = || idempotency::of(self, head, &request.body);
        let key = if takes_key { of()? } else { None };
        let doc = &route.doc;
        self.limits.check_query(doc, query.pairs())?;
        if route.reads_rows() {
            self.env.store.writer().store_waiting();
        }
        let share = self.share(request.body.len().saturating_mul(factor(route)))?;
        let limits = Arc::clone(&self.limits);
        let call =
            Call { request, params, query, tenant, scope, who, action, key, doc, limits, share };
        Ok((route, call))
    }

    /// Answers a call.
    fn dispatch(&self, route: &Route, call: Call, reply: Reply) {
        if route.is_audited() {
            match self.replayed(&call) {
                Ok(None) => {}
                Ok(Some(response)) => return reply.send(response),
                Err(problem) => return reply.send(self.failed(&call, problem)),
            }
        }
        match route.answer {
            Now(answer) => reply.send(answer(self, &call).unwrap_or_else(Into::into)),
            Listed(answer) => lists::answer(self, answer, call, reply),
            Later(answer) | ActLater(_, answer) => answer(self, call, reply),
            Act(_, answer) if subscription_trials::is_asked(&call) => {
                lists::answer_trial(self, answer, call, reply);
            }
            Act(_, answer) => reply.send(self.acted(&call, answer(self, &call))),
        }
    }

    /// Reserves memory for a request until it is answered.
    /// Fails with 503 if the budget is used up.
    fn share(&self, bytes: usize) -> Result<Share, Problem> {
        self.env.budget.try_take(bytes).ok_or_else(|| {
            let detail = "Too many large requests are in progress; send it again shortly.";
            Problem::unavailable(detail, FULL_RETRY_AFTER_SECS)
        })
    }

    /// The token of a call; `None` on public paths. Audits a denial.
    fn authorize(
        &self,
        route: &Route,
        params: &[String],
        head: &Head,
    ) -> Result<Option<Token>, Problem> {
        let Some(right) = route.right else { return Ok(None) };
        let token = self.auth.authorize(head, right).map_err(|denied| {
            if matches!(denied.problem.status(), 401 | 403 | 429) {
                // Denials of ordinary reads have no action and are not audited.
                if let Some(action) = route.action() {
                    self.note_denial(action, params, head, &denied);
                }
            }
            let Denied { problem, by: _ } = denied;
            problem
        })?;
        Ok(Some(token))
    }
}

/// How much memory a request needs for each byte of its body. Events and webhooks are copied once and bound to a
/// statement. All other bodies become JSON values: a `0,` takes 32 bytes.
fn factor(route: &Route) -> usize {
    let is_kept_as_bytes = route.path == "/v1/events" || route.path.starts_with("/in/");
    if is_kept_as_bytes { 2 } else { 32 }
}

/// The value of `Allow` for these routes.
fn allowed(indexes: &[usize]) -> String {
    let mut methods: Vec<&str> = at(indexes).map(|(_, route)| route.method.as_str()).collect();
    if at(indexes).any(|(_, route)| route.method == Get) {
        methods.push(Method::Head.as_str());
    }
    methods.push(Method::Options.as_str());
    methods.join(", ")
}

/// The routes at these indexes of [`routes`], each with its index.
fn at(indexes: &[usize]) -> impl Iterator<Item = (usize, &'static Route)> {
    indexes.iter().filter_map(|index| Some((*index, routes().nth(*index)?)))
}

/// The one of these routes that answers a method, with its index.
fn of_method(indexes: &[usize], method: Method) -> Option<(usize, &'static Route)> {
    let asked = if method == Method::Head { Get } else { method };
    at(indexes).find(|(_, route)| route.method == asked)
}

/// Maps each path to the indexes of its routes in [`routes`].
fn router() -> matchit::Router<Vec<usize>> {
    let mut router = matchit::Router::new();
    let mut paths: Vec<&'static str> = routes().map(|route| route.path).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let all = routes().enumerate();
        let here = all.filter(|(_, route)| route.path == path).map(|(index, _)| index).collect();
        let inserted = router.insert(path, here);
        assert!(inserted.is_ok(), "the routes conflict at {path}");
    }
    router
}

impl Service for Api {
    /// Refuses a request without a route or a sufficient token before its body is read, so that it takes no memory.
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        if head.method == Method::Options {
            return Err(self.options(head));
        }
        let (route, params) = self.find(head.method, &head.path).map_err(Response::from)?;
        self.authorize(route, &params, head).map_err(Response::from)?;
        route.check_room(self).map_err(Response::from)?;
        let bytes = match (route.method, route.path) {
            (Post, "/v1/events" | "/v1/deliveries/{id}/edit-and-resend") => {
                self.env.settings.get().limits.request_bytes
            }
            (Post, path) if path.starts_with("/in/") => {
                intake::find(self, &params)?.provider.new.body_bytes_max
            }
            (Post, path) if path.starts_with(CONFIRM_PATH) => {
                confirmations::named(self, &params)?;
                return Ok(confirmations::BODY_BYTES);
            }
            _ => return Ok(BODY_BYTES_SMALL),
        };
        Ok(usize::try_from(bytes).unwrap_or(BODY_BYTES_SMALL))
    }

    /// The tenant of the token, or of the provider that a webhook is for.
    fn payer(&self, head: &Head) -> Payer {
        let found = self.find(head.method, &head.path).ok();
        let tenant = found.and_then(|(route, params)| match route.right {
            Some(_) => self.auth.tenant(head),
            None => intake::tenant(route, &params),
        });
        tenant.map_or(Payer::Anonymous, |tenant| Payer::tenant(&tenant))
    }

    fn call(&self, request: Request, reply: Reply) {
        match Self::call(self, request) {
            Err(problem) => reply.send(problem.into()),
            Ok((route, call)) => self.dispatch(route, call, reply),
        }
    }

    fn refusal(&self, status: u16, detail: &str) -> Response {
        Problem::of_listener(status, detail).into()
    }

    fn finish(&self, asked: &Asked, took: Duration, response: Response) -> Response {
        let target = asked.target.as_ref();
        let index = target.and_then(|(method, path)| self.route_index(*method, path));
        self.requests.count(index, response.status, took);
        refused_webhooks::note(self, asked, &response);
        answered::finish(asked, took, &self.refusals, self.env.clock.monotonic(), response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_audited_except_what_providers_publishers_and_consumers_send() {
        // A read that is a POST, because its body has personal data.
        let reads = ["/v1/subjects/find"];
        let unaudited = routes().filter(|route| route.method != Get && !route.is_audited());
        for route in unaudited.filter(|route| !reads.contains(&route.path)) {
            let sent = route.path.starts_with("/in/")
                || route.path.starts_with(CONFIRM_PATH)
                || route.path.starts_with("/v1/consumers/")
                || ["/v1/events", "/v1/processed-events"].contains(&route.path);
            assert!(sent && matches!(route.answer, Later(_)), "{route:?} has to be a Change");
        }
        // A backup has everything in it, so reading a whole one is audited.
        let audited_reads = ["/v1/backups/{name}"];
        for route in routes().filter(|route| route.is_audited()) {
            let is_read = route.method == Get && !audited_reads.contains(&route.path);
            assert!(!is_read && route.right.is_some(), "{route:?}");
        }
    }

    #[test]
    fn the_routes_do_not_conflict() {
        let router = router();
        assert!(router.at("/v1/events/1").is_ok());
        assert!(router.at("/in/acme/stripe").is_ok());
    }
}

//! The types of the route table. Each route carries its description, so that `/openapi.json` follows from the table
//! ([`crate::api::openapi`]).

use schemars::JsonSchema;

use crate::api::audited::ActHandler;
use crate::api::call::Call;
use crate::api::context::{Api, ReadHandler};
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::schema;
use crate::http::message::Method;
use crate::http::service::Reply;
use crate::model::token::Right;

/// POST paths that make something new. Every other POST acts on something that exists.
const NEW_WORK: [&str; 12] = [
    "/in/{provider}",
    "/in/{tenant}/{provider}",
    "/v1/events",
    "/v1/providers",
    "/v1/subscriptions",
    "/v1/sources",
    "/v1/processed-events",
    "/v1/tokens",
    "/v1/users",
    "/v1/tenants",
    "/v1/alert-channels",
    // A move needs room before it gives any.
    "/v1/archive/runs",
];

pub(super) use crate::api::description::{AFTER, LIMIT, SINCE, UNTIL};
pub use crate::api::description::{Body, Content, Doc, Param, Place, Returns};

/// The routes of one noun.
#[derive(Debug)]
pub struct Resource {
    /// The noun, by which the document groups operations.
    pub tag: &'static str,
    /// A description in a sentence or two.
    pub about: &'static str,
    /// Its routes.
    pub routes: &'static [Route],
}

/// A path, a method, who may call it, its handler, and its description.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; `{…}` are variable parts.
    pub path: &'static str,
    /// What the token must allow; `None`: public.
    pub right: Option<Right>,
    /// The handler.
    pub(super) answer: Answer,
    /// Its description.
    pub doc: Doc,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)
    }
}

/// The kinds of handlers.
pub(super) enum Answer {
    /// Answers at once and changes nothing.
    Now(ReadHandler),
    /// Changes nothing, but may read many rows: few run at a time ([`crate::api::lists`]).
    Listed(ReadHandler),
    /// Answers after a COMMIT that the handler does not wait for: webhooks, events, and reports of consumers.
    Later(fn(&Api, Call, Reply)),
    /// A change by a person or a program, with the action that its audit event names.
    Act(&'static str, ActHandler),
    /// The same, where the network is waited for: answers from another thread.
    ActLater(&'static str, fn(&Api, Call, Reply)),
}

impl Route {
    /// Whether it answers with rows that somebody may have changed just before.
    pub(super) const fn reads_rows(&self) -> bool {
        self.right.is_some() && matches!(self.answer, Answer::Now(_) | Answer::Listed(_))
    }

    /// Sets the operation's name in generated clients, its heading, and its parameters.
    pub(super) const fn doc(
        mut self,
        id: &'static str,
        summary: &'static str,
        params: &'static [Param],
    ) -> Self {
        self.doc = Doc { id, summary, params, ..self.doc };
        self
    }

    /// Sets the description.
    pub(super) const fn about(mut self, about: &'static str) -> Self {
        self.doc.about = about;
        self
    }

    /// Sets the answers on success.
    pub(super) const fn returns(mut self, returns: &'static [Returns]) -> Self {
        self.doc.returns = returns;
        self
    }

    /// Accepts any query parameters, besides those described.
    pub(super) const fn any_query(mut self) -> Self {
        self.doc.any_query = true;
        self
    }

    /// Takes a JSON body; the example has to be valid.
    pub(super) const fn body<T: JsonSchema>(mut self, example: &'static str) -> Self {
        self.doc.body = Some(Body::Json { describe: schema::of::<T>, example, is_optional: false });
        self
    }

    /// Takes a JSON body, or none.
    pub(super) const fn optional_body<T: JsonSchema>(mut self, example: &'static str) -> Self {
        self.doc.body = Some(Body::Json { describe: schema::of::<T>, example, is_optional: true });
        self
    }

    /// Takes any bytes as the body.
    pub(super) const fn any_body(mut self) -> Self {
        self.doc.body = Some(Body::Any);
        self
    }

    /// Sets the problems that not all routes answer.
    pub(super) const fn problems(mut self, problems: &'static [Kind]) -> Self {
        self.doc.problems = problems;
        self
    }

    /// The action of its audit events; `None` if it makes none.
    ///
    /// Changes are audited when they succeed, fail or are denied. Publishing, and reading what only administrators may
    /// see, is audited only when it is denied.
    pub fn action(&self) -> Option<&'static str> {
        match (&self.answer, self.right) {
            (Answer::Act(action, _) | Answer::ActLater(action, _), _) => Some(action),
            (_, Some(Right::Publish)) => Some("event.publish"),
            (_, Some(Right::Admin | Right::Box)) => Some("administration.read"),
            _ => None,
        }
    }

    /// Whether each successful call makes one audit event.
    pub fn is_audited(&self) -> bool {
        matches!(self.answer, Answer::Act(..) | Answer::ActLater(..))
    }

    /// Whether a request may have an `Idempotency-Key`: what makes, changes, deletes or does something at the request of a
    /// person or a program. Providers, targets and consumers repeat what they send under its own id.
    pub fn takes_key(&self) -> bool {
        // What shows a secret shows none to a repeated call: each time is audited.
        let is_reveal = self.path.ends_with("/reveal");
        let is_read = matches!(self.method, Method::Get | Method::Head);
        !is_read && !is_reveal && (self.is_audited() || self.path == "/v1/events")
    }

    /// Whether it is about the caller's own tenant or user, also for an admin of the box who looks at another tenant.
    pub(super) fn is_of_own_tenant(&self) -> bool {
        self.right == Some(Right::Box)
            || self.path.starts_with("/v1/me/")
            || self.path == "/v1/users/{name}/password"
    }

    /// Refuses new work while free disk space is below the reserve, before the body of a request is read. What a person does
    /// to existing work (retry, cancel, pause, change, delete) is not new work.
    /// Fails with 507 and `Retry-After`.
    pub(super) fn check_room(&self, api: &Api) -> Result<(), Problem> {
        let disk = &api.flow.disk;
        if disk.is_low() && self.method == Method::Post && NEW_WORK.contains(&self.path) {
            disk.refused.add();
            return Err(Problem::no_room());
        }
        Ok(())
    }
}

/// A `GET` with a token.
pub(super) const fn get(path: &'static str, right: Right, answer: Answer) -> Route {
    with_right(Method::Get, path, right, answer)
}

/// A `POST` with a token.
pub(super) const fn post(path: &'static str, right: Right, answer: Answer) -> Route {
    with_right(Method::Post, path, right, answer)
}

/// A `PUT` with a token.
pub(super) const fn put(path: &'static str, right: Right, answer: Answer) -> Route {
    with_right(Method::Put, path, right, answer)
}

/// A `PATCH` with a token.
pub(super) const fn patch(path: &'static str, right: Right, answer: Answer) -> Route {
    with_right(Method::Patch, path, right, answer)
}

/// A `DELETE` with a token.
pub(super) const fn delete(path: &'static str, right: Right, answer: Answer) -> Route {
    with_right(Method::Delete, path, right, answer)
}

/// A route without a token.
pub(super) const fn public(method: Method, path: &'static str, answer: Answer) -> Route {
    Route { method, path, right: None, answer, doc: Doc::NONE }
}

const fn with_right(method: Method, path: &'static str, right: Right, answer: Answer) -> Route {
    Route { method, path, right: Some(right), answer, doc: Doc::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes;

    /// Whether a path ends with an action on one thing or on many.
    fn acts(path: &str) -> bool {
        let verb = [
            "/clock/confirm",
            "/confirm/{token}",
            "/backups",
            "/verify",
            "/discard",
            "/end",
            "/erase",
            "/expunge",
            "/find",
            "/release",
            "/replay",
            "/rotate",
            "/skip",
        ]
        .iter()
        .any(|verb| path.ends_with(verb));
        // A full disk deletes what no hold keeps.
        let keeps = path == "/v1/legal-holds";
        verb || keeps || (path.contains("}/") && !path.starts_with("/in/"))
    }

    #[test]
    fn every_post_is_either_new_work_or_acts_on_something() {
        for route in routes().filter(|route| route.method == Method::Post) {
            assert_ne!(NEW_WORK.contains(&route.path), acts(route.path), "{route:?}");
        }
        for path in NEW_WORK {
            assert!(routes().any(|route| route.path == path), "{path}");
        }
    }
}

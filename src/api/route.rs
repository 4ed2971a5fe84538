//! A route. None exists without its description: what `/openapi.json` says of a route stands where the route
//! stands, beside its handler.
//!
//! Not here: how the descriptions become a document ([`crate::api::openapi`]).

use serde_json::Value;

use crate::api::Api;
use crate::api::audited::Audited;
use crate::api::call::Call;
use crate::api::problem::Problem;
use crate::http::message::{Method, Response};
use crate::http::service::Reply;
use crate::model::token::Right;

pub use crate::api::description::{Body, Content, Doc, Param, Place, Returns, Shape};
pub(super) use crate::api::description::{doc, shape};

/// The routes of one noun, and the shapes they speak of.
#[derive(Debug)]
pub struct Resource {
    /// The noun, as the document groups by it.
    pub tag: &'static str,
    /// What it is, in one or two sentences.
    pub about: &'static str,
    /// Its routes.
    pub routes: &'static [Route],
    /// The shapes its routes name.
    pub shapes: &'static [Shape],
}

/// A path, a method, who may call it, who answers, and what is to be known about it.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; `{…}` are variable parts.
    pub path: &'static str,
    /// What the token must allow; `None`: public.
    pub right: Option<Right>,
    /// Who answers.
    pub(super) answer: Answer,
    /// What is to be known about it.
    pub doc: Doc,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)
    }
}

/// Answers without changing anything.
pub(super) type Looked = fn(&Api, &Call) -> Result<Response, Problem>;

/// Who answers, and how.
pub(super) enum Answer {
    /// At once. Changes nothing.
    Now(Looked),
    /// The same, where it may look at many rows: few at a time ([`crate::api::lists`]).
    Listed(Looked),
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
            (Answer::Change(action, _), _) => Some(action),
            (_, Some(Right::Publish)) => Some("event.publish"),
            (_, Some(Right::Admin | Right::Box)) => Some("administration.read"),
            _ => None,
        }
    }

    /// Whether it changes something, and each call that succeeds makes one audit event.
    #[cfg(any(test, feature = "internals"))]
    pub fn is_audited(&self) -> bool {
        matches!(self.answer, Answer::Change(..))
    }
}

/// A route, from its parts.
pub(super) const fn route(
    method: Method,
    path: &'static str,
    right: Option<Right>,
    answer: Answer,
    doc: Doc,
) -> Route {
    Route { method, path, right, answer, doc }
}

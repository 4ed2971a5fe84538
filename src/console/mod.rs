//! The console: pages for people under `/console/`, made on top of the API in this process.
//!
//! A page reads the API with the rights of the person who is logged in, and renders what it answers. So the console has
//! no SQL and no second meaning of anything. An action is an API route too: its audit event names the person.
//! A page is one file in `pages/` and one line in [`pages::PAGES`]; an action is one entry in [`actions::ACTIONS`].

mod act;
mod actions;
mod assets;
mod cells;
mod charts;
mod comparison;
mod correction;
mod elements;
mod enter;
mod error;
mod fields;
mod first_admin;
mod form;
mod form_entry;
mod history;
mod input;
mod json;
mod layout;
mod list;
mod page;
mod pages;
mod personal_data;
mod prelude;
mod standing;
mod story;
mod texts;
mod timeline;
mod what_if;
mod words;

use std::sync::Arc;
use std::time::Duration;

use crate::api::context::Api;
use crate::api::people::Session;
use crate::base::fair::Payer;
use crate::console::error::PageError;
use crate::console::form::Form;
use crate::console::page::{ConsoleContext, Page, View, chosen_tenant};
use crate::console::pages::PAGES;
use crate::http::message::{Asked, Head, Method, Request, Response};
use crate::http::service::{Reply, Service};
#[cfg(any(test, feature = "internals"))]
use crate::model::token::Right;

/// The header field of a page that only asks whether it is still fresh.
const POLL: &str = "oncebox-poll";
/// The largest form that is no action's, or that its sender may not send: bytes.
const MAX_LOGIN_BYTES: usize = 8 << 10;

/// The API, and the console beside it.
#[derive(Clone)]
pub struct Console(Arc<Inner>);

struct Inner {
    context: ConsoleContext,
    router: matchit::Router<&'static Page>,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Console")
    }
}

/// The names of all actions, each with what it needs.
#[cfg(any(test, feature = "internals"))]
pub fn actions() -> impl Iterator<Item = (&'static str, Right)> {
    actions::ACTIONS.iter().map(|action| (action.name, action.right))
}

/// The paths of all pages; `{…}` are variable parts.
#[cfg(any(test, feature = "internals"))]
pub fn pages() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|page| page.path)
}

impl Console {
    /// Puts the console beside the API.
    ///
    /// # Panics
    /// Two pages have the same path: a test would have failed.
    pub fn new(api: Api) -> Self {
        let mut router = matchit::Router::new();
        for page in PAGES {
            let inserted = router.insert(page.path, page);
            assert!(inserted.is_ok(), "two pages have the path {}", page.path);
        }
        Self(Arc::new(Inner { context: ConsoleContext::new(api), router }))
    }

    fn serves(&self, path: &str) -> bool {
        let is_ours = path == "/console" || path.starts_with("/console/");
        is_ours && self.0.context.api.env.settings.get().console.enabled
    }
}

impl Inner {
    /// Answers a request below `/console`. Runs in the queue of the lists.
    fn answer(self: &Arc<Self>, request: Request, reply: Reply) {
        let context = &self.context;
        let head = &request.head;
        let path = head.path.strip_prefix("/console/").unwrap_or_default().to_owned();
        let session = match self.session(head) {
            Ok(session) => session,
            Err(error) => return reply.send(layout::error(context, head, None, &error)),
        };
        let is_post = head.method == Method::Post;
        let response = match (path.as_str(), session) {
            ("enter" | "log-in", _) => enter::answer(context, &request),
            ("first-admin", _) if is_post => enter::first_admin(context, &request),
            (path, None) if is_post => enter::keep(context, &request, path),
            (_, None) => enter::form(context, head),
            ("log-out", Some(session)) if is_post => enter::leave(context, &request, &session),
            ("tenant", Some(session)) if is_post => {
                enter::choose_tenant(context, &request, &session)
            }
            (path, Some(session)) => match path.strip_prefix("act/") {
                Some(action) => return act::answer(context, request, &session, action, reply),
                None => self
                    .page(head, &session)
                    .unwrap_or_else(|error| layout::error(context, head, Some(&session), &error)),
            },
        };
        reply.send(response);
    }

    /// A page, or 304 if nothing was committed since the reader's copy.
    fn page(&self, head: &Head, session: &Session) -> Result<Response, PageError> {
        let found = self.router.at(&head.path).ok();
        let is_read = matches!(head.method, Method::Get | Method::Head);
        let Some(found) = found.filter(|_| is_read) else {
            return Err(PageError::not_found(self.context.texts));
        };
        let page = *found.value;
        let query = Form::of_query(head);
        let query = query.map_err(|why| PageError::form_refused(self.context.texts, why))?;
        let mut view = View::new(&self.context, head, session, query);
        if !view.may(page.right) {
            return Err(PageError::forbidden(self.context.texts));
        }
        let version = page.is_live.then(|| view.version());
        if version.is_some() && head.headers.get("if-none-match") == version.as_deref() {
            return Ok(Response::new(304));
        }
        view.params = found.params.iter().map(|(_, value)| form::decode(value)).collect();
        let named = |error: PageError| error.naming(view.t, page.path, view.param(0));
        let content = (page.show)(&view).map_err(named)?;
        if let Some(file) = content.file {
            return Ok(file);
        }
        // What runs may change without a commit.
        let version = version.filter(|_| !content.is_running);
        let response = layout::page(&view, Some(page), &content);
        Ok(version.into_iter().fold(response, |response, version| response.header("etag", version)))
    }

    fn session(&self, head: &Head) -> Result<Option<Session>, PageError> {
        let Some(secret) = form::session_secret(head) else { return Ok(None) };
        let is_use = head.headers.get(POLL).is_none();
        let found = self.context.api.session(secret, is_use);
        let session = found.map_err(|problem| PageError::of(problem.into()))?;
        Ok(session.map(|session| session.showing(chosen_tenant(&self.context, head))))
    }
}

impl Service for Console {
    fn body_limit(&self, head: &Head) -> Result<usize, Response> {
        if !self.serves(&head.path) {
            return self.0.context.api.body_limit(head);
        }
        if !matches!(head.method, Method::Get | Method::Head | Method::Post) {
            return Err(Response::new(405).header("allow", "GET, HEAD, POST"));
        }
        let action = head.path.strip_prefix("/console/act/");
        let most = action.and_then(|name| {
            let session = self.0.session(head).ok().flatten()?;
            act::most_bytes(&self.0.context, &session, name)
        });
        Ok(most.unwrap_or(MAX_LOGIN_BYTES))
    }

    fn payer(&self, head: &Head) -> Payer {
        if !self.serves(&head.path) {
            return self.0.context.api.payer(head);
        }
        let session = self.0.session(head).ok().flatten();
        session.map_or(Payer::Anonymous, |session| Payer::tenant(&session.person.shown))
    }

    fn call(&self, request: Request, reply: Reply) {
        let path = &request.head.path;
        if !self.serves(path) {
            return self.0.context.api.call(request, reply);
        }
        let reply = layout::zipped(&request.head, reply);
        if path == "/console" {
            return reply.send(Response::new(308).header("location", "/console/"));
        }
        if let Some(name) = path.strip_prefix("/console/assets/") {
            return reply.send(self.0.context.assets.get(name));
        }
        let inner = Arc::clone(&self.0);
        let payer = self.payer(&request.head);
        self.0.context.api.in_turn(&payer, move |_api, reply| inner.answer(request, reply), reply);
    }

    fn refusal(&self, status: u16, detail: &str) -> Response {
        self.0.context.api.refusal(status, detail)
    }

    fn finish(&self, asked: &Asked, took: Duration, response: Response) -> Response {
        self.0.context.api.finish(asked, took, response)
    }
}

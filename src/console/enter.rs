//! Logging in, by name and password or by a one-time link, and logging out.

use std::time::Duration;

use maud::html;

use crate::api::people::{NewSession, Session};
use crate::base::clock::millis;
use crate::base::headers::Headers;
use crate::console::act;
use crate::console::error::PageError;
use crate::console::fields::SECRETS;
use crate::console::first_admin;
use crate::console::form::{
    Form, clear_cookie, done_number, is_own, local_page, session_cookie, set_cookie, set_session,
};
use crate::console::layout::{self, entrance};
use crate::console::page::{
    ConsoleContext, Content, TENANT_COOKIE, chosen_tenant, csrf, tenant_choice,
};
use crate::console::pages::is_page;
use crate::http::message::{Head, Method, Request, Response};

/// `/console/enter` and `/console/log-in`. A link is used by a button, not by opening it: programs that look at links
/// in mails do not use it up.
pub(super) fn answer(inner: &ConsoleContext, request: &Request) -> Response {
    let head = &request.head;
    if head.method != Method::Post {
        let given = Form::of_query(head).unwrap_or_default();
        let link = given.get("link");
        return link.map_or_else(|| form(inner, head), |link| link_form(inner, link));
    }
    let given = match own_form(inner, request) {
        Ok(given) => given,
        Err(error) => return layout::error(inner, head, None, &error),
    };
    let begun = if let Some(link) = given.get("link") {
        inner.api.enter(head, link)
    } else {
        let name = given.get("name");
        let password = given.raw("password");
        inner.api.log_in(head, name.unwrap_or_default(), password.unwrap_or_default())
    };
    match begun {
        Ok(session) => enter(inner, head, &session, &given),
        Err(problem) => {
            let error = PageError::of(problem.into());
            login(inner, &given, head, Some(&error))
        }
    }
}

/// The form that a page of ours sends.
/// Fails if it comes from elsewhere, or cannot be read.
fn own_form(inner: &ConsoleContext, request: &Request) -> Result<Form, PageError> {
    if !is_own(&request.head) {
        return Err(PageError::foreign_form(inner.texts));
    }
    let given = Form::of_body(request, None, &inner.api.env.budget);
    given.map_err(|why| PageError::form_refused(inner.texts, why))
}

/// The form that a page of this session sends.
/// Fails if it comes from elsewhere, or cannot be read.
fn session_form(
    inner: &ConsoleContext,
    request: &Request,
    session: &Session,
) -> Result<Form, PageError> {
    let given = own_form(inner, request)?;
    if given.get("csrf") != Some(csrf(&request.head, session).as_str()) {
        return Err(PageError::foreign_form(inner.texts));
    }
    Ok(given)
}

fn enter(inner: &ConsoleContext, head: &Head, new: &NewSession, given: &Form) -> Response {
    let to = given.get("to").and_then(|to| local_page(to, is_page)).unwrap_or("/console/");
    let lasts = new.ends_at.ms().saturating_sub(inner.api.env.clock.wall().ms()) / 1000;
    let page = again(inner, head, new, given).unwrap_or_else(|| {
        Response::new(303).header("location", to).header("cache-control", "no-store")
    });
    page.header("set-cookie", set_session(&new.secret, lasts, is_tls(inner, head)))
}

/// A form that came after its session had ended: the person logs in on this page, and gets it as it was typed.
pub(super) fn keep(inner: &ConsoleContext, request: &Request, path: &str) -> Response {
    let head = &request.head;
    let error = PageError::logged_out(inner.texts);
    // A form for another tenant is not kept: the new session begins with the person's own.
    if !path.starts_with("act/") || !is_own(head) || chosen_tenant(inner, head).is_some() {
        return layout::error(inner, head, None, &error);
    }
    let mut given = Form::default();
    given.fill("to", &head.path);
    let Ok(mut kept) = own_form(inner, request) else {
        return layout::error(inner, head, None, &error);
    };
    kept.forget(&["csrf", "form", "shown", "again"]);
    kept.forget(&SECRETS);
    given.fill("keep", &kept.encoded());
    login(inner, &given, head, Some(&error))
}

/// The form that was kept, for the new session. It is shown, and not carried out.
fn again(inner: &ConsoleContext, head: &Head, new: &NewSession, given: &Form) -> Option<Response> {
    let action = given.get("to")?.strip_prefix("/console/act/")?;
    let kept = Form::parse(given.raw("keep")?.as_bytes()).ok()?;
    let session = inner.api.session(&new.secret, true).ok().flatten()?;
    let mut headers = Headers::default();
    for (name, value) in head.headers.iter().filter(|(name, _)| *name != "cookie") {
        headers.push(name, value);
    }
    headers.push("cookie", session_cookie(&new.secret).as_bytes());
    let head = Head { method: Method::Get, headers, query: None, ..head.clone() };
    Some(act::form(inner, head, &session, action, kept))
}

/// `POST /console/first-admin`: makes the first admin of the box, who is logged in at once.
pub(super) fn first_admin(inner: &ConsoleContext, request: &Request) -> Response {
    let head = &request.head;
    let mut given = match own_form(inner, request) {
        Ok(given) => given,
        Err(error) => return layout::error(inner, head, None, &error),
    };
    given.fill("to", "/console/");
    match first_admin::make(inner, head, &given) {
        Ok(session) => enter(inner, head, &session, &given),
        Err(error) => login(inner, &given, head, Some(&error)),
    }
}

/// `POST /console/tenant`: shows another tenant. Leads to its overview: what a page shows is not there in another one.
pub(super) fn choose_tenant(
    inner: &ConsoleContext,
    request: &Request,
    session: &Session,
) -> Response {
    let head = &request.head;
    let refused = |error| layout::error(inner, head, Some(session), &error);
    let given = match session_form(inner, request, session) {
        Ok(given) => given,
        Err(error) => return refused(error),
    };
    let name = given.get("tenant").unwrap_or_default();
    if let Err(problem) = inner.api.show_tenant(head, session, name) {
        return refused(PageError::of(problem.into()));
    }
    // The own tenant needs no cookie.
    let is_own = name == session.person.tenant;
    let lasts =
        if is_own { Duration::ZERO } else { inner.api.env.settings.get().console.session_lifetime };
    let choice = tenant_choice(inner, head, name);
    let cookie = set_cookie(TENANT_COOKIE, &choice, millis(lasts) / 1000, is_tls(inner, head));
    Response::new(303)
        .header("location", "/console/")
        .header("cache-control", "no-store")
        .header("set-cookie", cookie)
}

/// Ends the session.
pub(super) fn leave(inner: &ConsoleContext, request: &Request, session: &Session) -> Response {
    let head = &request.head;
    if let Err(error) = session_form(inner, request, session) {
        return layout::error(inner, head, Some(session), &error);
    }
    if let Err(problem) = inner.api.log_out(head, session) {
        return layout::error(inner, head, Some(session), &PageError::of(problem.into()));
    }
    Response::new(303).header("location", "/console/").header("set-cookie", clear_cookie())
}

/// The form to log in.
pub(super) fn form(inner: &ConsoleContext, head: &Head) -> Response {
    login(inner, &Form::default(), head, None)
}

/// The form to log in, or to make the first admin while there is no user; with what was typed and what went wrong.
fn login(inner: &ConsoleContext, given: &Form, head: &Head, error: Option<&PageError>) -> Response {
    let t = inner.texts;
    let has_users = inner.api.has_users().unwrap_or(true);
    let query = head.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
    let here = format!("{}{query}", head.path);
    let to = given.get("to").unwrap_or(&here);
    // What a person did may have ended the own session: a new password, for instance.
    let did = Form::of_query(head).unwrap_or_default();
    let did = done_number(&did).map(|number| format!(" {number}"));
    let done = did.and_then(|number| inner.submissions.said(&number));
    let body = html! {
        @if let Some(done) = done { p.notice role="status" { (done.text) " " (t.log_in_again) } }
        @if let Some(error) = error {
            @if has_users || error.field.is_none() { p.error role="alert" { (error.detail) } }
            p.small { (t.request_id) ": " code { (head.request_id) } }
        }
        @if has_users {
            form method="post" action="/console/log-in" {
                input type="hidden" name="to" value=(to);
                @if let Some(kept) = given.raw("keep") { input type="hidden" name="keep" value=(kept); }
                label for="name" { (t.user_name) }
                input #name name="name" autocomplete="username" required maxlength="127"
                    value=(given.get("name").unwrap_or_default());
                p.small { (t.user_name_help) }
                label for="password" { (t.password) }
                input #password type="password" name="password" autocomplete="current-password" required maxlength="128";
                button.primary type="submit" { (t.log_in) }
            }
            p.small { (t.log_in_help) " " code { "oncebox console link" } }
        } @else {
            (first_admin::form(t, given, error))
        }
    };
    let title = if has_users { t.log_in } else { t.first_admin };
    let title = error.filter(|_| given.raw("keep").is_some()).map_or(title, |error| &error.title);
    entrance(inner, error.map_or(200, |error| error.status), &Content::new(title, body))
}

fn link_form(inner: &ConsoleContext, link: &str) -> Response {
    let t = inner.texts;
    let body = html! {
        p { (t.link_help) }
        form method="post" action="/console/enter" {
            input type="hidden" name="link" value=(link);
            button.primary type="submit" autofocus { (t.log_in) }
        }
    };
    entrance(inner, 200, &Content::new(t.log_in, body))
}

/// Whether the browser's connection is encrypted, by a proxy before us.
fn is_tls(inner: &ConsoleContext, head: &Head) -> bool {
    let settings = inner.api.env.settings.get();
    let by_proxy =
        head.client != head.peer.ip() && head.headers.get("x-forwarded-proto") == Some("https");
    let is_https = |url: &str| url.starts_with("https://") && host_is(head, url);
    by_proxy || settings.console_url().is_some_and(is_https)
}

/// Whether a URL has the host that the browser asked.
fn host_is(head: &Head, url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next();
    head.headers.get("host").is_some_and(|host| authority == Some(host))
}

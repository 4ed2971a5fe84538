//! The frame of every page: head, menu, search box, main part.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use crate::api::people::Session;
use crate::console::error::PageError;
use crate::console::form::{Form, done_number, with_query};
use crate::console::json::Fields as _;
use crate::console::page::{ConsoleContext, Content, Page, View};
use crate::console::pages::PAGES;
use crate::console::words::{legend, with_meanings};
use crate::http::message::{Head, Response};
use crate::http::service::{Reply, ResponseHandle};
use crate::model::token::Right;

/// Shorter bodies are not compressed: bytes.
const MIN_ZIPPED_BYTES: usize = 8_000;

/// Tenants that the form in the head offers, the oldest. The page of tenants has a button for each.
const OFFERED: &str = "50";

/// A way back on which long bodies are compressed.
struct Zipped(Reply);

/// The same way back, with long bodies compressed if the browser takes gzip.
///
/// A page says its reader's token beside what a URL asks for, which compression would tell to who sees its length and
/// chooses the URL (BREACH, 2013). The cookie is `SameSite=Strict`, so another site's request gets no such page.
pub(super) fn zipped(head: &Head, reply: Reply) -> Reply {
    let accepted = head.headers.get("accept-encoding").unwrap_or_default();
    let is_accepted = accepted.split(',').any(|coding| coding.trim() == "gzip");
    if !is_accepted {
        return reply;
    }
    Reply::new(Box::new(Zipped(reply)), Response::new(500))
}

impl ResponseHandle for Zipped {
    fn deliver(self: Box<Self>, mut response: Response) {
        if response.body.len() >= MIN_ZIPPED_BYTES {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            let whole = encoder.write_all(&response.body).and_then(|()| encoder.finish());
            if let Ok(body) = whole {
                response.body = body;
                response =
                    response.header("content-encoding", "gzip").header("vary", "accept-encoding");
            }
        }
        self.0.send(response);
    }

    fn is_left(&self) -> bool {
        self.0.is_left()
    }
}

/// A page for a person who is logged in. `page`: the entry of the menu it belongs to.
pub(super) fn page(view: &View<'_>, page: Option<&Page>, content: &Content) -> Response {
    let here = page.map(Page::section);
    let is_live = page.is_some_and(|page| page.is_live);
    // Only what this session did: an address alone says nothing.
    let number = done_number(&view.query).map(|number| format!("{} {number}", view.session.id));
    let said = number.and_then(|number| view.inner().submissions.said(&number));
    let t = view.t;
    let shown = html! {
        div.head { h1 { (content.title) } @if let Some(badge) = &content.badge { (badge) } }
        (stale(view, is_live))
        (tabs(view, page))
        @if let Some(said) = said { p class={ "notice " (said.mood) } role="status" { (said.text) } }
        (content.body)
    };
    let body = html! {
        a.skip href="#main" { (t.skip_to_content) }
        header.top {
            a.brand href="/console/" { (t.brand) }
            form.search role="search" action="/console/search" method="get" {
                label.hidden for="q" { (t.search) }
                input #q type="search" name="q" placeholder=(t.search_placeholder)
                    value=(view.query.get("q").unwrap_or_default()) maxlength="255" accesskey="s";
                button type="submit" { (t.search) }
            }
            div.me {
                span { (view.person().name) " · " (view.person().role.as_str())
                    @if view.person().shown != "default" { " · " (view.person().shown) } }
                (tenants(view))
                form method="post" action="/console/log-out" {
                    input type="hidden" name="csrf" value=(view.csrf());
                    button.quiet type="submit" { (t.log_out) }
                }
            }
        }
        nav.menu aria-label=(t.menu) {
            ul {
                @for entry in PAGES.iter().filter(|entry| entry.is_first() && view.may(entry.right)) {
                    @if let Some(name) = entry.menu {
                        li { a href=(entry.path) aria-current=[(Some(entry.section()) == here).then_some("page")] {
                            (name(t)) } }
                    }
                }
            }
        }
        main #main tabindex="-1" data-now=(view.inner().api.env.clock.wall()) data-live=[is_live.then_some(if content.is_running { "1" } else { "3" })] {
            (with_meanings(&shown))
            (legend(t, &shown))
        }
    };
    framed(view.inner(), 200, content, &body)
}

/// The form to choose another tenant, for an admin of the box that has several.
fn tenants(view: &View<'_>) -> Markup {
    let t = view.t;
    let person = view.person();
    if !view.may(Right::Box) {
        return html! {};
    }
    let listed = view.read_or_null("/v1/tenants", &[("limit", OFFERED)]);
    let mut names = vec![person.tenant.as_str(), person.shown.as_str()];
    let is_open = |row: &&Value| row.maybe("suspended_at").is_none();
    names.extend(listed.items("items").iter().filter(is_open).map(|row| row.text("name")));
    names.sort_unstable();
    names.dedup();
    html! {
        @if names.len() > 1 {
            form method="post" action="/console/tenant" {
                input type="hidden" name="csrf" value=(view.csrf());
                label.hidden for="tenant" { (t.tenant) }
                select #tenant name="tenant" {
                    @for name in names { option value=(name) selected[name == person.shown] { (name) } }
                }
                button.quiet type="submit" { (t.show_tenant) }
            }
        }
    }
}

/// Two notes for the script: the page is old (no answer, or the session ended), and the page is paused while somebody reads.
fn stale(view: &View<'_>, is_live: bool) -> Markup {
    let t = view.t;
    let query = view.head.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
    let here = format!("{}{query}", view.head.path);
    html! {
        p.error #stale role="alert" hidden {
            (if is_live { t.not_updated } else { t.no_answer_since }) " " strong {} ". "
            a href=(here) hidden { (t.log_in_to_go_on) }
        }
        @if is_live { p.small #paused hidden { (t.paused_while_read) " · " a href=(here) { (t.update) } } }
    }
}

/// The other pages of a section that has several.
fn tabs(view: &View<'_>, page: Option<&Page>) -> Markup {
    let Some(page) = page.filter(|page| page.menu.is_some()) else { return html! {} };
    let is_tab = |entry: &&Page| entry.section() == page.section() && view.may(entry.right);
    let all: Vec<_> =
        PAGES.iter().filter(is_tab).filter_map(|tab| Some((tab, tab.menu?))).collect();
    html! {
        @if all.len() > 1 {
            nav.tabs aria-label=(view.t.section) {
                @for (tab, name) in all {
                    a href=(tab.path) aria-current=[(tab.path == page.path).then_some("page")] { (name(view.t)) }
                }
            }
        }
    }
}

/// A page for somebody who is not logged in.
pub(super) fn entrance(inner: &ConsoleContext, status: u16, content: &Content) -> Response {
    let body = html! {
        main #main.narrow tabindex="-1" { p.brand { (inner.texts.brand) } h1 { (content.title) } (content.body) }
    };
    framed(inner, status, content, &body)
}

/// A page that says what went wrong.
pub(super) fn error(
    inner: &ConsoleContext,
    head: &Head,
    session: Option<&Session>,
    error: &PageError,
) -> Response {
    let t = inner.texts;
    let body = html! {
        p.error role="alert" { (error.detail) }
        @if let Some(name) = &error.missing {
            p { a.button href=(with_query("/console/search", [("q", name.as_str())])) { (t.search) ": " (name) } }
        }
        p.small { (t.request_id) ": " code { (head.request_id) } }
        p { a href="/console/" { (t.to_overview) } }
    };
    let content = Content::new(error.title.clone(), body);
    let view = session.map(|session| View::new(inner, head, session, Form::default()));
    match view {
        Some(view) => Response { status: error.status, ..page(&view, None, &content) },
        None => entrance(inner, error.status, &content),
    }
}

fn framed(inner: &ConsoleContext, status: u16, content: &Content, body: &Markup) -> Response {
    let assets = &inner.assets;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (content.title) " · " (inner.texts.brand) }
                @if content.is_running { noscript { meta http-equiv="refresh" content="1"; } }
                link rel="icon" href=(assets.icon());
                link rel="stylesheet" href=(assets.style());
                script src=(assets.script()) defer {}
            }
            body { (body) }
        }
    };
    with_guards(Response::with_body(
        status,
        "text/html; charset=utf-8",
        page.into_string().into_bytes(),
    ))
}

/// The header fields of everything that a person sees: nothing foreign is loaded, run, framed or told.
pub(super) fn with_guards(response: Response) -> Response {
    response
        .header(
            "content-security-policy",
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        )
        .header("x-content-type-options", "nosniff")
        .header("x-frame-options", "DENY")
        .header("referrer-policy", "same-origin")
        .header("cross-origin-opener-policy", "same-origin")
        .header("cache-control", "no-store")
}

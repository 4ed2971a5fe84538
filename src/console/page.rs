//! What a page is: its place, its right, its content; and what it gets: the person, the query, and the API with the person's
//! rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::BASE64;
use maud::Markup;
use ring::hmac;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::context::Api;
use crate::api::people::{Person, Session};
use crate::console::assets::Assets;
use crate::console::error::PageError;
use crate::console::form::{
    Form, Submissions, cookie, instant, segment, session_secret, with_query,
};
use crate::console::json::{indented, visible};
use crate::console::texts::{EN, Texts};
use crate::http::message::{Head, Method, Request, Response};
use crate::model::json::carried;
use crate::model::token::Right;

/// The name of the cookie with the tenant that an admin of the box chose.
pub(super) const TENANT_COOKIE: &str = "oncebox_tenant";

/// A page: its path, who may see it, and what makes it.
pub(super) struct Page {
    /// The path; `{…}` are variable parts.
    pub(super) path: &'static str,
    /// Its entry in the menu, if it has one; below the first page of its section, among the section's tabs.
    pub(super) menu: Option<fn(&Texts) -> &'static str>,
    /// What a person's role must allow.
    pub(super) right: Right,
    /// Whether it is refreshed while it is looked at.
    pub(super) is_live: bool,
    /// Reads and renders it.
    pub(super) show: fn(&View<'_>) -> Result<Content, PageError>,
}

impl Page {
    /// A page that is refreshed, without an entry in the menu.
    pub(super) const fn new(
        path: &'static str,
        right: Right,
        show: fn(&View<'_>) -> Result<Content, PageError>,
    ) -> Self {
        Self { path, menu: None, right, is_live: true, show }
    }

    /// Keeps the page unchanged while somebody reads it.
    pub(super) const fn still(mut self) -> Self {
        self.is_live = false;
        self
    }

    /// Gives it an entry in the menu.
    pub(super) const fn menu(mut self, name: fn(&Texts) -> &'static str) -> Self {
        self.menu = Some(name);
        self
    }

    /// The first part of the path below `/console/`: pages of one section share an entry in the menu.
    pub(super) fn section(&self) -> &'static str {
        self.path.trim_start_matches("/console/").split('/').next().unwrap_or_default()
    }

    /// Whether it is the first page of its section.
    pub(super) fn is_first(&self) -> bool {
        self.path.matches('/').count() == 2
    }
}

/// The content of a page.
pub(super) struct Content {
    /// Says where one is; also the heading.
    pub(super) title: String,
    /// The state of the thing, beside the heading.
    pub(super) badge: Option<Markup>,
    /// Below the heading.
    pub(super) body: Markup,
    /// Whether it shows what goes on: it is refreshed each second, without JavaScript too.
    pub(super) is_running: bool,
    /// It is no page but this file.
    pub(super) file: Option<Response>,
}

impl Content {
    pub(super) fn new(title: impl Into<String>, body: Markup) -> Self {
        Self { title: title.into(), badge: None, body, is_running: false, file: None }
    }

    /// A file that the browser keeps. Of its name, letters, digits, dots and hyphens stay.
    pub(super) fn file(name: &str, answer: Response) -> Self {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let name: String = name.chars().filter(is_plain).collect();
        let file = Response { headers: Vec::new(), ..answer }
            .header("content-type", "application/octet-stream")
            .header("content-disposition", format!("attachment; filename=\"{name}\""))
            .header("cache-control", "no-store");
        Self { file: Some(file), ..Self::new(name, Markup::default()) }
    }

    /// With the state of the thing beside the heading.
    pub(super) fn badge(self, badge: Markup) -> Self {
        Self { badge: Some(badge), ..self }
    }
}

/// One request of a person.
pub(super) struct View<'a> {
    pub(super) t: &'static Texts,
    pub(super) head: &'a Head,
    /// The variable parts of the path, decoded.
    pub(super) params: Vec<String>,
    /// The query.
    pub(super) query: Form,
    pub(super) session: &'a Session,
    inner: &'a ConsoleContext,
}

impl<'a> View<'a> {
    pub(super) fn new(
        inner: &'a ConsoleContext,
        head: &'a Head,
        session: &'a Session,
        query: Form,
    ) -> Self {
        Self { t: inner.texts, head, params: Vec::new(), query, session, inner }
    }

    /// The person who is logged in.
    pub(super) fn person(&self) -> &Person {
        &self.session.person
    }

    /// Whether the person's role allows something.
    pub(super) fn may(&self, right: Right) -> bool {
        self.person().may(right)
    }

    /// The `n`-th variable part of the path.
    pub(super) fn param(&self, n: usize) -> &str {
        self.params.get(n).map_or("", String::as_str)
    }

    /// Reads a path of the API: `view.read("/v1/deliveries", &[("limit", "50")])`. Empty values are left out; variable
    /// parts of the path must be encoded ([`segment`]).
    pub(super) fn read(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, PageError> {
        let query = with_query("", query.iter().copied());
        let query = query.strip_prefix('?').map(str::to_owned);
        let body = self.answer(Method::Get, path, query, Vec::new())?;
        Ok(visible(carried::read(&body).unwrap_or_default()))
    }

    /// The same, where a page goes on without it: null if the API refuses.
    pub(super) fn read_or_null(&self, path: &str, query: &[(&str, &str)]) -> Value {
        self.read(path, query).unwrap_or_default()
    }

    /// A time of the query, as the API takes it; empty if there is none.
    pub(super) fn when(&self, name: &str) -> String {
        let text = self.query.get(name).unwrap_or_default();
        if text.is_empty() { String::new() } else { instant(text, self.inner.api.env.clock.wall()) }
    }

    /// The thing that the URL names, by the path of its list.
    pub(super) fn one(&self, list: &str) -> Result<Value, PageError> {
        self.read(&format!("{list}/{}", segment(self.param(0))), &[])
    }

    /// Reads a path with the text of its `payload`: indented, at most a little more than a page shows, and with numbers as
    /// they are stored. The value lacks it.
    pub(super) fn read_payload(
        &self,
        path: &str,
        most: usize,
    ) -> Result<(Value, Option<String>), PageError> {
        let (mut stored, payload) = self.read_stored(path, most)?;
        for (name, value) in stored.as_object_mut().into_iter().flatten() {
            // It may be sent again as it is.
            if name != "payload_text" {
                *value = visible(value.take());
            }
        }
        Ok((stored, payload))
    }

    /// The same with all texts as they are stored: for a form, which sends them again.
    pub(super) fn read_stored(
        &self,
        path: &str,
        most: usize,
    ) -> Result<(Value, Option<String>), PageError> {
        let body = self.answer(Method::Get, path, None, Vec::new())?;
        let mut fields: BTreeMap<String, &RawValue> =
            serde_json::from_slice(&body).unwrap_or_default();
        let payload = fields.remove("payload").map(|raw| indented(raw.get(), most));
        // A form sends what it shows, so numbers keep their digits.
        let value = |raw: &RawValue| carried::read(raw.get().as_bytes()).unwrap_or_default();
        let rest = fields.into_iter().map(|(name, raw)| (name, value(raw)));
        Ok((Value::Object(rest.collect()), payload))
    }

    /// An answer that is a file.
    pub(super) fn download(&self, path: &str) -> Result<Response, PageError> {
        let answer = self.ask(Method::Get, path, None, Vec::new());
        if answer.status < 400 { Ok(answer) } else { Err(PageError::of(answer)) }
    }

    /// The bytes of a payload, as they are stored. `None`: there is none any more.
    pub(super) fn payload(&self, path: &str) -> Result<Option<Vec<u8>>, PageError> {
        let body = self.answer(Method::Get, path, None, Vec::new())?;
        let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| serde_json::from_str::<String>(fields.get(name)?.get()).ok();
        let json = fields.get("payload").map(|raw| raw.get()).filter(|json| *json != "null");
        Ok(json
            .map(|json| json.as_bytes().to_vec())
            .or_else(|| text("payload_text").map(String::into_bytes))
            .or_else(|| BASE64.decode(text("payload_base64")?.as_bytes()).ok()))
    }

    /// Sends a body to a path of the API that changes nothing, such as a dry run.
    pub(super) fn try_out(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, PageError> {
        let body = self.answer(method, path, None, carried::written(body).into_bytes())?;
        Ok(visible(carried::read(&body).unwrap_or_default()))
    }

    /// The checks of `/readyz`, whether they fail or not.
    pub(super) fn checks(&self) -> Value {
        let response = self.ask(Method::Get, "/readyz", Some("verbose".to_owned()), Vec::new());
        serde_json::from_slice(&response.body).unwrap_or_default()
    }

    /// The body of an answer, unless the API refuses.
    fn answer(
        &self,
        method: Method,
        path: &str,
        query: Option<String>,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, PageError> {
        let response = self.ask(method, path, query, body);
        if response.status < 400 { Ok(response.body) } else { Err(PageError::of(response)) }
    }

    fn ask(&self, method: Method, path: &str, query: Option<String>, body: Vec<u8>) -> Response {
        let head = Head { method, path: path.to_owned(), query, ..self.head.clone() };
        self.inner.api.ask_now(self.person(), Request { head, body })
    }

    /// Changes with each change that people see, and each minute: as long as it stays, the page does too. It costs no SQL.
    pub(super) fn version(&self) -> String {
        let api = &self.inner.api;
        let changes = api.env.store.writer().done().changes.get();
        let minute = api.env.clock.wall().secs() / 60;
        let seed = (
            (changes, minute),
            (&self.session.id, &self.person().shown),
            &self.head.path,
            &self.head.query,
            self.inner.assets.version(),
        );
        format!("W/\"{}\"", mark(&format!("{seed:?}")))
    }

    /// The token that this session's forms carry.
    pub(super) fn csrf(&self) -> String {
        csrf(self.head, self.session)
    }

    /// A fresh number for a form, so that it is carried out once.
    pub(super) fn form_number(&self) -> String {
        crate::base::id::uuid7(self.inner.api.env.clock.wall(), &*self.inner.api.env.draw)
    }

    pub(super) fn inner(&self) -> &'a ConsoleContext {
        self.inner
    }
}

/// The token against forged forms. It depends on the tenant that is shown, so that a form acts on the tenant that its
/// page showed.
pub(super) fn csrf(head: &Head, session: &Session) -> String {
    let tenant = &session.person.shown;
    signed(head, &format!("a form of the console: {tenant}"))
}

/// The tenant that this session chose, if it did. The cookie is void in another session, or with another name.
pub(super) fn chosen_tenant<'h>(inner: &ConsoleContext, head: &'h Head) -> Option<&'h str> {
    let value = cookie(head, TENANT_COOKIE)?;
    let (name, _) = value.split_once('.')?;
    (tenant_choice(inner, head, name) == value).then_some(name)
}

/// The cookie's value for a tenant. Only the service can make it, which audits each choice: a person who knows the cookie
/// of the session cannot derive it.
pub(super) fn tenant_choice(inner: &ConsoleContext, head: &Head, tenant: &str) -> String {
    let secret = session_secret(head).unwrap_or_default();
    let mark = inner.api.mark(&format!("the tenant of the console: {tenant}\n{secret}"));
    format!("{tenant}.{mark}")
}

/// The mark of a text: only who has the session's cookie can compute it.
fn signed(head: &Head, text: &str) -> String {
    let secret = session_secret(head).unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    data_encoding::HEXLOWER.encode(hmac::sign(&key, text.as_bytes()).as_ref())
}

/// What tells whether a text is another one: the beginning of its SHA-256.
pub(super) fn mark(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    data_encoding::HEXLOWER.encode(digest.as_ref().get(..8).unwrap_or_default())
}

/// Context of all requests of the console: the API, and what the console keeps beside it.
#[derive(Clone)]
pub(super) struct ConsoleContext {
    pub(super) api: Api,
    pub(super) assets: Arc<Assets>,
    pub(super) submissions: Arc<Submissions>,
    pub(super) texts: &'static Texts,
}

impl ConsoleContext {
    pub(super) fn new(api: Api) -> Self {
        Self { api, assets: Arc::new(Assets::new()), submissions: Arc::default(), texts: &EN }
    }
}

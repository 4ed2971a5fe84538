//! Carries out an action: the page that asks first, the form, the call of the API, and what follows.

use data_encoding::BASE64;
use serde_json::Map;

use crate::api::people::Session;
use crate::console::actions::{self, Action, Asks, Field, Kind, Then};
use crate::console::enter::{is_local, is_own};
use crate::console::form::{Form, Said, Submission};
use crate::console::layout;
use crate::console::page::{Shared, View, csrf};
use crate::console::prelude::*;
use crate::http::message::{Head, Method, Request, Response};
use crate::http::service::{Reply, ResponseHandle};

/// What is shown of a thing that an action touches.
const TOUCHED: &str = "event_type subscription provider kind role state status url address user_agent \
                       created_at last_used_at last_login_at valid_until";

/// `/console/act/{name}`: the form (GET), or the action itself (POST).
pub(super) fn answer(
    inner: &Shared,
    request: Request,
    session: &Session,
    name: &str,
    reply: Reply,
) {
    let is_post = request.head.method == Method::Post;
    let given = if is_post { Form::of_body(&request) } else { Form::of_query(&request.head) };
    let head = request.head;
    let found = actions::find(name).ok_or_else(|| PageError::not_found(inner.texts));
    let allowed = found.and_then(|action| {
        if session.person.may(action.right) {
            Ok(action)
        } else {
            Err(PageError::forbidden(inner.texts))
        }
    });
    let action = match allowed {
        Ok(action) => action,
        Err(error) => return reply.send(layout::error(inner, &head, Some(session), &error)),
    };
    let task = Task { inner: inner.clone(), action, head, session: session.clone(), given };
    if is_post { task.run(reply) } else { reply.send(task.form(200, None)) }
}

/// One submission of an action's form.
struct Task {
    inner: Shared,
    action: &'static Action,
    head: Head,
    session: Session,
    given: Form,
}

impl Task {
    fn run(self, reply: Reply) {
        let t = self.inner.texts;
        let is_ours =
            is_own(&self.head) && self.given.get("csrf") == Some(csrf(&self.head).as_str());
        let number = self.given.get("form").map(|number| format!("{} {number}", self.session.id));
        let refused =
            |error: PageError| layout::error(&self.inner, &self.head, Some(&self.session), &error);
        let Some(number) = number.filter(|_| is_ours) else {
            return reply.send(refused(PageError::foreign_form(t)));
        };
        // What is carried out is what was shown.
        let is_shown = self.given.get("shown") == self.selection().as_deref();
        let asks_again = self.given.get("again").is_some();
        if self.action.asks == Asks::DryRun && (asks_again || !is_shown) {
            return reply.send(self.form(200, None));
        }
        let request = match self.request() {
            Ok(request) => request,
            Err(detail) => return reply.send(self.form(422, Some(&PageError::field(t, &detail)))),
        };
        match self.inner.submissions.begin(&number) {
            Submission::First => {}
            Submission::Running => return reply.send(refused(PageError::running(t))),
            Submission::Done(page) => return reply.send(see(&page)),
        }
        let (inner, person) = (self.inner.clone(), self.session.person.clone());
        let unanswered = Response::new(500);
        let back = Back { task: self, number, reply };
        inner.api.ask(&person, request, Reply::new(Box::new(back), unanswered));
    }

    /// The page after the API's answer.
    fn after(&self, number: &str, answer: Response) -> Response {
        if answer.status >= 400 {
            self.inner.submissions.failed(number);
            let error = PageError::of(answer);
            return self.form(error.status, Some(&error));
        }
        let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let said = self.said(&answer);
        let id = answer.maybe("id").or_else(|| answer.maybe("event_id"));
        let led = match (self.action.then, id) {
            // The page of what was begun says itself how far it is.
            (Then::Leads(list), Some(id)) => {
                let page = format!("/console/{list}/{}", segment(id));
                self.inner.submissions.done(number, &page, said);
                return see(&page);
            }
            (Then::Leads(list), None) => Some(format!("/console/{list}")),
            _ => None,
        };
        let back = led.as_deref().unwrap_or_else(|| self.back());
        let (path, query) = back.split_once('?').unwrap_or((back, ""));
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let query = query.iter().map(|(name, value)| (&**name, &**value));
        let form = self.given.get("form").unwrap_or_default();
        let next = with_query(path, query.chain([("did", form)]));
        self.inner.submissions.done(number, &next, said.clone());
        if self.action.then != Then::Answer {
            return see(&next);
        }
        self.page(200, |view| {
            html! {
                p class={ "notice " (said.mood) } role="status" { (said.text) }
                @if let Some(secret) = ["secret", "token", "url"].iter().find_map(|name| answer.maybe(name)) {
                    p { (view.t.shown_once) }
                    (code(view, secret))
                }
                details { summary { (view.t.whole_answer) } (json(view, &without_secrets(&answer))) }
                p { a.button href=(next) { (view.t.go_on) } }
            }
        })
    }

    /// What came of it: a rotation, for instance, may be under way, or its secret refused.
    fn said(&self, answer: &Value) -> Said {
        let t = self.inner.texts;
        let label = (self.action.label)(t);
        let made = if self.action.then == Then::Answer { answer.text("state") } else { "" };
        let (mood, text) = match (made, answer.maybe("verify_error")) {
            ("next", None) => ("open", t.is_tried.to_owned()),
            ("next" | "revoked", Some(why)) => ("error", format!("{} {}", t.is_refused, why)),
            _ => ("", t.done.to_owned()),
        };
        Said { mood, text: format!("{label}: {text}") }
    }

    /// The page to go back to.
    fn back(&self) -> &str {
        self.given.get("back").filter(|back| is_local(back)).unwrap_or("/console/")
    }

    /// The call of the API.
    fn request(&self) -> Result<Request, String> {
        let body = self.body(true)?;
        // A form that may stay empty is an empty object.
        let has_body = !self.action.fields.is_empty();
        let body = if has_body { Value::Object(body).to_string().into_bytes() } else { Vec::new() };
        let head = Head {
            method: self.action.method,
            path: self.path()?,
            query: None,
            ..self.head.clone()
        };
        Ok(Request { head, body })
    }

    fn path(&self) -> Result<String, String> {
        let mut path = self.action.path.to_owned();
        for name in ["id", "name", "secret_id"] {
            let place = format!("{{{name}}}");
            if path.contains(&place) {
                let value = self.given.get(name).ok_or_else(|| format!("{name} is missing."))?;
                path = path.replace(&place, &segment(value));
            }
        }
        Ok(path)
    }

    /// The JSON body of the fields that are filled in. `all`: those that are required must be.
    fn body(&self, all: bool) -> Result<Map<String, Value>, String> {
        let mut body = Map::new();
        for field in self.action.fields {
            let name = (field.label)(self.inner.texts);
            match read(field, &self.given).map_err(|error| format!("{name}: {error}."))? {
                Some(value) => put(&mut body, field.name, value),
                None if field.is_required && all => {
                    return Err(format!("{name}: {}", self.inner.texts.field_missing));
                }
                None => {}
            }
        }
        Ok(body)
    }

    /// What a dry run is about: the fields, without the reason and the rate. `None`: a field cannot be used.
    fn selection(&self) -> Option<String> {
        let mut body = self.body(false).ok()?;
        body.retain(|name, _| !matches!(name.as_str(), "reason" | "rate"));
        Some(Value::Object(body).to_string())
    }

    /// The form, with what was typed and what went wrong.
    fn form(&self, status: u16, error: Option<&PageError>) -> Response {
        let action = self.action;
        self.page(status, |view| {
            html! {
                p { ((action.about)(view.t)) }
                @if let Some(error) = error {
                    div.error role="alert" { p { strong { (error.title) } } p { (error.detail) } }
                    p.small { (view.t.request_id) ": " code { (self.head.request_id) } }
                }
                (self.touched(view))
                form.act method="post" action={ "/console/act/" (action.name) } {
                    (hidden(view, self.back()))
                    @for name in ["id", "name", "secret_id"] {
                        @if let Some(value) = self.given.get(name).filter(|_| action.path.contains(&format!("{{{name}}}"))) {
                            input type="hidden" name=(name) value=(value);
                        }
                    }
                    @if let Some(shown) = self.selection().filter(|_| action.asks == Asks::DryRun) {
                        input type="hidden" name="shown" value=(shown);
                    }
                    @for field in action.fields { (input(view, field, &self.given)) }
                    div.actions {
                        @if action.asks == Asks::DryRun {
                            button type="submit" name="again" value="yes" { (view.t.show_again) }
                        }
                        button.primary type="submit" { ((action.label)(view.t)) }
                        a href=(self.back()) { (view.t.back) }
                    }
                }
            }
        })
    }

    /// What the action will touch.
    fn touched(&self, view: &View<'_>) -> Markup {
        if self.action.asks == Asks::DryRun {
            // Without what must be given, the API would take all.
            let is_missing = |field: &&Field| field.is_required && field.name != "reason";
            let mut wanted = self.action.fields.iter().filter(is_missing);
            let missing = wanted.find(|field| self.given.get(field.name).is_none());
            return missing.map_or_else(
                || self.dry_run(view),
                |field| html! { p.error { ((field.label)(view.t)) ": " (view.t.field_missing) } },
            );
        }
        let is_named = |name: &&str| self.action.path.contains(&format!("{{{name}}}"));
        let mut names = ["id", "name"].into_iter().filter(is_named);
        let Some(id) = names.find_map(|name| self.given.get(name)) else { return html! {} };
        // The thing itself has the path of the action without its last part.
        let path = self.path().unwrap_or_default();
        let thing = if self.action.path.ends_with('}') {
            path.as_str()
        } else {
            path.rsplit_once('/').map_or("", |(thing, _)| thing)
        };
        let mut found = view.read_or_null(thing, &[]);
        if let Some((list, id)) = thing.rsplit_once('/').filter(|_| found.is_null()) {
            // Some things stand in their list only.
            let listed = view.read_or_null(list, &[]);
            let row = listed.items("items").iter().find(|row| row.text("id") == id);
            found = row.cloned().unwrap_or_default();
        }
        let name = ["name", "user"].iter().find_map(|field| found.maybe(field));
        let name = match name {
            Some(name) => name.to_owned(),
            None if found.is_null() => id.to_owned(),
            None => name_of(&found),
        };
        let rows = TOUCHED.split(' ').filter_map(|name| Some((name, found.maybe(name)?)));
        html! {
            h2 { (view.t.touches) }
            (facts(&[(view.t.name, html! { strong { (name) } })]))
            dl.facts { @for (name, value) in rows {
                div { dt { (word(name)) } dd { @if name.ends_with("_at") { (time(value)) } @else { (value) } } }
            } }
        }
    }

    fn dry_run(&self, view: &View<'_>) -> Markup {
        let Ok(mut body) = self.body(false) else { return html! {} };
        // The API wants a reason even where nothing is discarded yet.
        let needs_reason =
            self.action.fields.iter().any(|field| field.name == "reason" && field.is_required);
        if needs_reason && !body.contains_key("reason") {
            body.insert("reason".to_owned(), "-".into());
        }
        body.insert("dry_run".to_owned(), true.into());
        let path = self.path().unwrap_or_default();
        let found = match view.try_out(self.action.method, &path, &Value::Object(body)) {
            Ok(found) => found,
            Err(error) => return html! { div.error { p { (error.detail) } } },
        };
        let more = if found.is("more") { "+" } else { "" };
        html! {
            h2 { (view.t.touches) }
            p { strong { (found.int("count")) (more) } " " (view.t.deliveries_or_events) }
            @if !found.items("sample").is_empty() {
                ul {
                    @for row in found.items("sample") {
                        li { (name_of(row)) " · " (row.text("event_type")) " · " (text_or(row.maybe("subscription"))) }
                    }
                }
            }
        }
    }

    fn page(&self, status: u16, body: impl FnOnce(&View<'_>) -> Markup) -> Response {
        let view = View::new(&self.inner, &self.head, &self.session, self.given.clone());
        let content = Content::new((self.action.label)(view.t), body(&view));
        Response { status, ..layout::page(&view, None, &content) }
    }
}

/// The way of the API's answer back to the browser.
struct Back {
    task: Task,
    number: String,
    reply: Reply,
}

impl ResponseHandle for Back {
    fn deliver(self: Box<Self>, response: Response) {
        let page = self.task.after(&self.number, response);
        self.reply.send(page);
    }

    fn is_left(&self) -> bool {
        self.reply.is_left()
    }
}

/// The answer without the secret, which is shown above.
fn without_secrets(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Value::Object(fields) = &mut answer {
        fields.retain(|name, _| !matches!(name.as_str(), "secret" | "token"));
    }
    answer
}

fn see(page: &str) -> Response {
    Response::new(303).header("location", page).header("cache-control", "no-store")
}

/// The value of a field; `None` if it is empty.
fn read(field: &Field, given: &Form) -> Result<Option<Value>, String> {
    let text = given.get(field.name);
    let Some(text) = text.or_else(|| matches!(field.kind, Kind::Is(_)).then_some("")) else {
        return Ok(None);
    };
    Ok(Some(match field.kind {
        Kind::Text | Kind::Choice(_) | Kind::Time => text.into(),
        Kind::Secret => given.raw(field.name).unwrap_or_default().into(),
        Kind::Bytes => {
            let text = given.raw(field.name).unwrap_or_default().replace("\r\n", "\n");
            BASE64.encode(text.as_bytes()).into()
        }
        Kind::Number => text.parse::<i64>().map_err(|error| error.to_string())?.into(),
        // One entry a line, or a box for each.
        Kind::List => given
            .all(field.name)
            .flat_map(str::lines)
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect(),
        Kind::Is(value) => value.into(),
    }))
}

/// Puts a value at a path like `filter.subscription`.
fn put(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(body.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = body.entry(first.to_owned()).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// A field with its label, and what was typed before.
fn input(view: &View<'_>, field: &Field, given: &Form) -> Markup {
    let value = given.all(field.name).collect::<Vec<_>>().join("\n");
    let (name, label) = (field.name, (field.label)(view.t));
    let required = field.is_required;
    if matches!(field.kind, Kind::Is(_)) {
        return html! {};
    }
    html! {
        label { span { (label) @if !required { " " small { (view.t.optional) } } }
            @match field.kind {
                Kind::Text => input name=(name) value=(value) required[required];,
                Kind::Time => input name=(name) value=(value) required[required] placeholder="2026-01-31T00:00:00Z";,
                Kind::Number => input name=(name) value=(value) required[required] inputmode="numeric";,
                Kind::Secret => input type="password" name=(name) required[required] autocomplete="new-password";,
                Kind::List => textarea name=(name) rows="3" spellcheck="false" required[required] { (value) },
                Kind::Bytes => textarea name=(name) rows="8" spellcheck="false" required[required] { (value) },
                Kind::Is(_) => {},
                Kind::Choice(words) => select name=(name) required[required] {
                    @if !required { option value="" {} }
                    @for choice in words { option value=(choice) selected[*choice == value] { (word(choice)) } }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_names_make_objects() {
        let mut body = Map::new();
        put(&mut body, "filter.subscription", "erp".into());
        put(&mut body, "filter.code", 500.into());
        put(&mut body, "rate", 5.into());
        assert_eq!(
            Value::Object(body).to_string(),
            r#"{"filter":{"subscription":"erp","code":500},"rate":5}"#
        );
    }
}

//! Carries out an action: the page that asks first, the form, the call of the API, and what follows.

use serde::Deserialize as _;
use serde_json::Map;
use zeroize::Zeroizing;

use crate::api::described_value::UsedFor;
use crate::api::people::Session;
use crate::console::actions::{self, Action, Asks, Then};
use crate::console::comparison;
use crate::console::correction::Correction;
use crate::console::fields::{self, Field, FieldKind, Offered};
use crate::console::form::{Form, LargeField, Said, Submission, form_number, is_own, local_page};
use crate::console::form_entry::FormEntry;
use crate::console::input::{self, present, put, read, typed};
use crate::console::layout;
use crate::console::page::{ConsoleContext, View, csrf, mark};
use crate::console::pages::is_page;
use crate::console::pages::sources::address;
use crate::console::prelude::*;
use crate::console::what_if;
use crate::http::message::{Head, Method, Request, Response};
use crate::http::service::{Reply, ResponseHandle};
use crate::model::json::carried;
use crate::signatures::Scheme;
use crate::signatures::new_secret::new_secret;

/// What is shown of a thing that an action touches.
const TOUCHED: &str = "event_type subscription provider kind role state status url address user_agent \
                       created_at last_used_at last_login_at valid_until";

/// The page of the first steps.
const FIRST_STEPS: &str = "/console/start";
/// Most subscriptions that a form offers.
const MAX_OFFERED: &str = "100";
/// States of a delivery that can be sent again.
const ENDED: [&str; 4] = ["completed", "dead_letter", "skipped", "cancelled"];

/// Fields that only show what would be.
const TRIALS: [&str; 2] = ["try", "what_if"];
/// What a path of the API can name.
const PLACES: [&str; 3] = ["id", "name", "secret_id"];
/// The longest payload that a form is filled with: bytes of the page.
const MAX_FILLED_BYTES: usize = 12_000;
/// Where a stored payload is cut.
const MAX_STORED_BYTES: usize = 128 << 10;

/// `/console/act/{name}`: the form (GET), or the action itself (POST).
pub(super) fn answer(
    inner: &ConsoleContext,
    request: Request,
    session: &Session,
    name: &str,
    reply: Reply,
) {
    match begin(inner, request, session, name) {
        Err((head, error)) => reply.send(layout::error(inner, &head, Some(session), &error)),
        Ok(task) if task.head.method == Method::Post => task.run(reply),
        Ok(mut task) => {
            if task.action.is_filled() {
                task.fill();
            }
            reply.send(task.form(200, None));
        }
    }
}

/// The task of a request: first whether the person may do it, then what the form has.
/// Fails with the page that says why not.
fn begin(
    inner: &ConsoleContext,
    request: Request,
    session: &Session,
    name: &str,
) -> Result<Task, (Box<Head>, PageError)> {
    let is_post = request.head.method == Method::Post;
    let read = allowed(inner, session, name).and_then(|action| {
        if is_post && !is_own(&request.head) {
            return Err(PageError::foreign_form(inner.texts));
        }
        let given = if is_post {
            Form::of_body(&request, large_field(action).as_ref(), &inner.api.env.budget)
        } else {
            Form::of_query(&request.head)
        };
        let given = given.map_err(|why| PageError::form_refused(inner.texts, why))?;
        Ok((action, given))
    });
    // The form has taken from the body what it needs.
    let Request { head, body: _ } = request;
    match read {
        Ok((action, given)) => {
            let mut task = Task::new(inner, head, session, action, given);
            task.offer_receivers(!is_post);
            Ok(task)
        }
        Err(error) => Err((Box::new(head), error)),
    }
}

/// The action of that name.
/// Fails if there is none, or the person may not do it.
fn allowed(
    inner: &ConsoleContext,
    session: &Session,
    name: &str,
) -> Result<&'static Action, PageError> {
    let action = actions::find(name).ok_or_else(|| PageError::not_found(inner.texts))?;
    if session.person.may(action.right) {
        Ok(action)
    } else {
        Err(PageError::forbidden(inner.texts))
    }
}

/// The field of an action that has a payload.
fn large_field(action: &Action) -> Option<LargeField> {
    action.fields.iter().find_map(|entry| match entry {
        FormEntry::Field { path: "payload", .. } => Some(LargeField::Json("payload".to_owned())),
        FormEntry::Field { path: path @ "payload_base64", .. } => {
            Some(LargeField::Bytes((*path).to_owned()))
        }
        _ => None,
    })
}

/// Most bytes of the body that a person may send to the action of that name; `None`: nothing of it is read.
pub(super) fn most_bytes(inner: &ConsoleContext, session: &Session, name: &str) -> Option<usize> {
    let action = allowed(inner, session, name).ok()?;
    Some(LargeField::most_of_body(large_field(action).as_ref()))
}

/// A form with what was typed in it before.
pub(super) fn form(
    inner: &ConsoleContext,
    head: Head,
    session: &Session,
    name: &str,
    given: Form,
) -> Response {
    match allowed(inner, session, name) {
        Ok(action) => Task::new(inner, head, session, action, given).form(200, None),
        Err(error) => layout::error(inner, &head, Some(session), &error),
    }
}

/// One submission of an action's form.
struct Task {
    inner: ConsoleContext,
    action: &'static Action,
    fields: Vec<Field>,
    head: Head,
    session: Session,
    given: Form,
    /// Of a form that changes a thing: a mark of each field as the form showed it first.
    was: Option<Map<String, Value>>,
    /// A secret that was made, to be shown once.
    made: Option<Zeroizing<String>>,
}

impl Task {
    /// A submission by a person who may do it.
    fn new(
        inner: &ConsoleContext,
        head: Head,
        session: &Session,
        action: &'static Action,
        mut given: Form,
    ) -> Self {
        let inner = inner.clone();
        let session = session.clone();
        let fields = fields::of(action);
        let was = given.get("was").and_then(|was| serde_json::from_str(was).ok());
        // Read once: the page that asks first and what is then done mean the same time.
        for field in fields.iter().filter(|field| field.kind == FieldKind::Time) {
            if let Some(text) = given.get(&field.path) {
                let at = input::typed_time(field, text, inner.api.env.clock.wall());
                given.replace(&field.path, at);
            }
        }
        let mut task = Self { inner, action, fields, head, session, given, was, made: None };
        if let Some(was) = &task.was {
            // What the form did not show was not touched.
            task.fields.retain(|field| was.contains_key(&field.path));
        }
        task
    }

    /// Offers each subscription whose delivery of the event has ended. `is_new`: nobody has chosen yet, so the subscriptions
    /// without a completed delivery are checked. An event without deliveries offers nothing: it goes to who wants it now.
    fn offer_receivers(&mut self, is_new: bool) {
        let Some(at) =
            self.fields.iter().position(|field| matches!(field.kind, FieldKind::SomeOf(_)))
        else {
            return;
        };
        let view = View::new(&self.inner, &self.head, &self.session, Form::default());
        let id = self.given.get("id").unwrap_or_default();
        let found =
            view.read_or_null("/v1/deliveries", &[("event_id", id), ("limit", MAX_OFFERED)]);
        let has_ended = |row: &&Value| ENDED.contains(&row.text("state"));
        let offered = found.items("items").iter().filter(has_ended).map(|row| Offered {
            name: row.text("subscription").to_owned(),
            state: row.text("state").to_owned(),
            is_chosen: row.text("state") != "completed",
        });
        let mut offered: Vec<Offered> = offered.collect();
        if offered.is_empty() {
            self.fields.remove(at);
            return;
        }
        // There is nothing to choose.
        if let [only] = offered.as_mut_slice() {
            only.is_chosen = true;
        }
        let Some(field) = self.fields.get_mut(at) else { return };
        for one in offered.iter().filter(|one| is_new && one.is_chosen) {
            self.given.add(&field.path, &one.name);
        }
        field.is_required = true;
        field.kind = FieldKind::SomeOf(offered);
    }

    /// Makes the secret that the form asks for. Without a scheme there is none: then the request is refused for that.
    fn make_secret(&mut self) -> Result<(), PageError> {
        let wanted = self.fields.iter().find(|field| field.kind == FieldKind::NewSecret);
        let Some(field) = wanted else { return Ok(()) };
        let is_asked =
            self.given.get(&field.make()).is_some() && self.given.get(&field.path).is_none();
        if !is_asked {
            return Ok(());
        }
        let mut body = self.body(true)?;
        let scheme = body.remove("scheme").and_then(|scheme| Scheme::deserialize(scheme).ok());
        self.made = scheme.map(|scheme| new_secret(&scheme, &*self.inner.api.env.draw));
        Ok(())
    }

    /// The page that says why nothing was done.
    fn refused(&self, error: &PageError) -> Response {
        layout::error(&self.inner, &self.head, Some(&self.session), error)
    }

    fn run(mut self, reply: Reply) {
        let t = self.inner.texts;
        let is_ours = self.given.get("csrf") == Some(csrf(&self.head, &self.session).as_str());
        let number = form_number(&self.given).map(|number| format!("{} {number}", self.session.id));
        let Some(number) = number.filter(|_| is_ours) else {
            return reply.send(self.refused(&PageError::foreign_form(t)));
        };
        // What is carried out is what was shown.
        let is_shown = self.given.get("shown") == self.selection().as_deref();
        let asks_again = self.given.get("again").is_some();
        if self.action.asks == Asks::Correct && (asks_again || !is_shown) {
            let error = self.check().err();
            let status = error.as_ref().map_or(200, |error| error.status);
            return reply.send(self.form(status, error.as_ref()));
        }
        if asks_again || (self.action.asks == Asks::DryRun && !is_shown) {
            let error = self.body(false).err();
            let status = error.as_ref().map_or(200, |error| error.status);
            return reply.send(self.form(status, error.as_ref()));
        }
        let request = match self.make_secret().and_then(|()| self.request()) {
            Ok(request) => request,
            Err(error) => return reply.send(self.form(422, Some(&error))),
        };
        match self.inner.submissions.begin(&number) {
            Submission::First => {}
            Submission::Running => return reply.send(self.refused(&PageError::running(t))),
            Submission::Done(page) => return reply.send(see(&page)),
        }
        let inner = self.inner.clone();
        let person = self.session.person.clone();
        let unanswered = Response::new(500);
        let back = Back { task: self, number, reply };
        inner.api.ask(&person, request, Reply::new(Box::new(back), unanswered));
    }

    /// The page after the API's answer.
    fn after(&self, number: &str, answer: Response) -> Response {
        if answer.status >= 400 {
            self.inner.submissions.failed(number);
            let error = self.at_field(PageError::of(answer));
            return self.form(error.status, Some(&error));
        }
        let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let said = self.said(&answer);
        let name = answer.maybe("name");
        let event = answer.items("events").first().and_then(|event| event.maybe("id"));
        let id = name.or_else(|| answer.maybe("id")).or_else(|| answer.maybe("event_id")).or(event);
        let led = match (self.action.then, id) {
            (Then::Leads(list), Some(id)) => Some(format!("/console/{list}/{}", segment(id))),
            (Then::Leads(list), None) => Some(format!("/console/{list}")),
            _ => None,
        };
        // The page of what was begun says itself how far it is.
        if let Some(page) = led.as_deref().filter(|_| name.is_none() && id.is_some()) {
            self.inner.submissions.done(number, page, said);
            return see(page);
        }
        // Who goes through the first steps goes on with them.
        let is_step = self.back() == FIRST_STEPS;
        let back = led.as_deref().filter(|_| !is_step).unwrap_or_else(|| self.back());
        let (path, query) = back.split_once('?').unwrap_or((back, ""));
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let query = query.iter().map(|(name, value)| (&**name, &**value));
        let form = form_number(&self.given).unwrap_or_default();
        let next = with_query(path, query.chain([("did", form)]));
        self.inner.submissions.done(number, &next, said.clone());
        let has_page = matches!(self.action.then, Then::Answer | Then::Comparison);
        if !has_page && self.made.is_none() {
            return see(&next);
        }
        let made = self.made.as_deref().map(String::as_str);
        let secret =
            made.or_else(|| ["secret", "token", "url"].iter().find_map(|name| answer.maybe(name)));
        self.page(200, |view| {
            html! {
                p class={ "notice " (said.mood) } role="status" { (said.text) }
                @if let Some(secret) = secret {
                    p { (view.t.shown_once) }
                    (code(view, secret))
                }
                @if made.is_some() { p { (view.t.give_it) } (address(view, &answer)) }
                @if !answer.items("checks").is_empty() {
                    (Cells(&[cell("check").of("name"), cell("state").state("state"), cell("detail")], &[]).table(view, view.t.checks, answer.items("checks"), EmptyNote::default()))
                }
                @if self.action.then == Then::Comparison { (comparison::show(view, &answer)) }
                details { summary { (view.t.whole_answer) } (json(view, &without_secrets(&answer))) }
                p { a.button href=(next) { (view.t.go_on) } }
            }
        })
    }

    /// What came of it: a rotation, for instance, may be under way, or its secret refused.
    fn said(&self, answer: &Value) -> Said {
        let t = self.inner.texts;
        let label = (self.action.label)(t);
        if answer.get("ok") == Some(&Value::Bool(false)) {
            return Said { mood: "error", text: format!("{label}: {}", t.not_usable) };
        }
        let made = if self.action.then == Then::Answer { answer.text("state") } else { "" };
        let (mood, text) = match (made, answer.maybe("verify_error")) {
            ("next", None) => ("open", t.is_tried.to_owned()),
            ("next" | "revoked", Some(why)) => ("error", format!("{} {}", t.is_refused, why)),
            _ => match self.kept(answer) {
                Some(path) => ("error", format!("{} {path}", t.cannot_be_empty)),
                None => ("", t.done.to_owned()),
            },
        };
        Said { mood, text: format!("{label}: {text}") }
    }

    /// A field that was emptied and still has a value.
    fn kept(&self, answer: &Value) -> Option<&str> {
        let is_emptied = |field: &&Field| {
            typed(field, &self.given).is_empty() && self.is_touched(field) == Some(true)
        };
        let mut emptied = self.fields.iter().filter(is_emptied);
        emptied.find(|field| !present(field, answer).is_empty()).map(|field| field.path.as_str())
    }

    /// Whether a person changed a field of a thing; `None` if the form changes none.
    fn is_touched(&self, field: &Field) -> Option<bool> {
        let was = self.was.as_ref()?.get(&field.path);
        let is_file = self.given.get(&field.file()).is_some();
        Some(is_file || was.is_some_and(|was| *was != mark(&typed(field, &self.given))))
    }

    /// The thing that is acted on, as it is stored, with its payload; in place of a delivery, its event.
    fn stored(&self, view: &View<'_>) -> Option<(Value, Option<String>)> {
        let found = view.read_stored(&self.thing()?, MAX_STORED_BYTES).ok()?;
        match found.0.maybe("event_id") {
            Some(event) => {
                view.read_stored(&format!("/v1/events/{}", segment(event)), MAX_STORED_BYTES).ok()
            }
            None => Some(found),
        }
    }

    /// What takes the place of a stored payload.
    fn correction(&self, view: &View<'_>) -> Option<Correction> {
        let (event, payload) = self.stored(view)?;
        Correction::new(event, payload, &self.body(true).ok()?.into())
    }

    /// Has a correction checked.
    fn check(&self) -> Result<(), PageError> {
        let view = View::new(&self.inner, &self.head, &self.session, Form::default());
        let mut body = self.body(true)?;
        if let Some(correction) = self.correction(&view) {
            let wrong = |why: String| {
                let why = format!("{} {why}.", view.t.is_no_json);
                PageError::field(view.t, "payload_base64", &why)
            };
            correction.check().map_err(wrong)?;
        }
        body.insert("dry_run".to_owned(), true.into());
        let checked = view.try_out(self.action.method, &self.path()?, &Value::Object(body));
        checked.map(drop).map_err(|error| {
            let error = self.at_field(error);
            let is_payload = error.detail.contains("payload");
            let field = error.field.or_else(|| is_payload.then(|| "payload_base64".to_owned()));
            PageError { field, ..error }
        })
    }

    /// The error at the field that it is about.
    fn at_field(&self, error: PageError) -> PageError {
        let paths: Vec<&str> = self.fields.iter().map(|field| field.path.as_str()).collect();
        error.at_field(&paths)
    }

    /// Fills the form with the present values, and notes them in it.
    fn fill(&mut self) {
        let view = View::new(&self.inner, &self.head, &self.session, Form::default());
        let Some((found, payload)) = self.stored(&view) else { return };
        let payload = payload.or_else(|| found.maybe("payload_text").map(str::to_owned));
        let payload = payload.filter(|text| {
            // What is sealed is not shown, so it would be lost.
            beginning(text, MAX_FILLED_BYTES).1 && found.int("sealed_fields") == 0
        });
        // What is of another kind is not shown. The kind itself stays, so it may be no field.
        let kinds: Vec<String> = self.fields.iter().map(|field| field.path.clone()).collect();
        self.fields.retain(|field| {
            let used_for = field.used_for.as_ref().filter(|one| !kinds.contains(&one.field));
            used_for.is_none_or(|one| one.values.iter().any(|v| v == found.text(&one.field)))
        });
        let mut was = Map::new();
        for field in &self.fields {
            let text = match &field.kind {
                FieldKind::Bytes => payload.clone().unwrap_or_default(),
                _ => present(field, &found),
            };
            self.given.fill(&field.path, &text);
            was.insert(field.path.clone(), mark(&typed(field, &self.given)).into());
        }
        // What is put takes the place of all.
        if self.action.method != Method::Put {
            self.given.fill("was", &Value::Object(was).to_string());
        }
    }

    /// The path of the thing that is acted on: that of the action, without its last part.
    fn thing(&self) -> Option<String> {
        let path = self.path().ok()?;
        if self.action.path.ends_with('}') {
            return Some(path);
        }
        path.rsplit_once('/').map(|(thing, _)| thing.to_owned())
    }

    /// The page to go back to.
    fn back(&self) -> &str {
        let back = self.given.get("back").and_then(|back| local_page(back, is_page));
        back.unwrap_or("/console/")
    }

    /// The call of the API.
    fn request(&self) -> Result<Request, PageError> {
        let mut body = self.body(true)?;
        for name in TRIALS {
            body.remove(name);
        }
        let secret = self.fields.iter().find(|field| field.kind == FieldKind::NewSecret);
        if let (Some(field), Some(made)) = (secret, &self.made) {
            put(&mut body, &field.path, made.as_str().into());
        }
        // A form that may stay empty is an empty object.
        let has_body = !self.action.fields.is_empty();
        let body =
            if has_body { carried::written(&Value::Object(body)).into_bytes() } else { Vec::new() };
        let head = Head {
            method: self.action.method,
            path: self.path()?,
            query: None,
            ..self.head.clone()
        };
        Ok(Request { head, body })
    }

    fn path(&self) -> Result<String, PageError> {
        let mut path = self.action.path.to_owned();
        for name in PLACES {
            let place = format!("{{{name}}}");
            if path.contains(&place) {
                let missing =
                    || PageError::field(self.inner.texts, name, self.inner.texts.field_missing);
                let value = self.given.get(name).ok_or_else(missing)?;
                path = path.replace(&place, &segment(value));
            }
        }
        Ok(path)
    }

    /// The JSON body of the fields that are filled in, or touched. `all`: those that are required must be.
    fn body(&self, all: bool) -> Result<Map<String, Value>, PageError> {
        let mut body = Map::new();
        let mut emptied = Vec::new();
        let t = self.inner.texts;
        // An object is sent as a whole.
        let is_sent = |field: &Field| {
            let mut siblings = self.fields.iter().filter(|other| other.top() == field.top());
            siblings.any(|field| self.is_touched(field) != Some(false))
        };
        let is_read = |field: &&Field| {
            field.kind != FieldKind::Place && is_sent(field) && self.is_used(field)
        };
        for field in self.fields.iter().filter(is_read) {
            let wrong = |why: &str| PageError::field(t, &field.path, why);
            match read(t, field, &self.given).map_err(|why| wrong(&why))? {
                Some(value) if self.has_own_fields(field) => drop(value),
                Some(value) => put(&mut body, &field.path, value),
                None if all && self.must_have(field) => return Err(wrong(t.field_missing)),
                None if self.is_touched(field) == Some(true) => emptied.push(field),
                None => {}
            }
        }
        for field in emptied {
            // Of an object, other fields may be left.
            let is_whole = field.path == field.top();
            let empty = if is_whole { field.empty.clone() } else { Value::Null };
            body.entry(field.top()).or_insert(empty);
        }
        Ok(body)
    }

    /// What is typed in the field that decides on the use of a field; `None`: no field of this form does.
    fn decided(&self, field: &Field) -> Option<(&Field, String)> {
        let used_for = field.used_for.as_ref()?;
        let by = self.fields.iter().find(|other| other.path == used_for.field)?;
        Some((by, typed(by, &self.given)))
    }

    /// Whether a field is for what was chosen. While nothing is chosen all are, because without a script all are shown.
    fn is_used(&self, field: &Field) -> bool {
        let Some((by, chosen)) = self.decided(field) else { return true };
        let is_open = chosen.is_empty() && self.is_touched(by) != Some(true);
        let is_for = |used_for: &UsedFor| used_for.values.contains(&chosen);
        self.is_used(by) && (is_open || field.used_for.as_ref().is_some_and(is_for))
    }

    /// Whether a field must be filled in: always, or for what was chosen.
    fn must_have(&self, field: &Field) -> bool {
        let is_chosen = || self.decided(field).is_some_and(|(_, chosen)| !chosen.is_empty());
        field.is_required || (field.is_needed && is_chosen())
    }

    /// Whether the value of a choice is in fields of its own.
    fn has_own_fields(&self, field: &Field) -> bool {
        let chosen = format!("{}.{}", field.path, typed(field, &self.given));
        matches!(field.kind, FieldKind::OneOf(_))
            && self.fields.iter().any(|other| other.is_in(&chosen))
    }

    /// What a dry run is about: the fields, without the reason and the rate. `None`: a field cannot be used.
    fn selection(&self) -> Option<String> {
        let mut body = self.body(false).ok()?;
        body.retain(|name, _| !matches!(name.as_str(), "reason" | "rate"));
        Some(mark(&Value::Object(body).to_string()))
    }

    /// The form, with what was typed and what went wrong.
    fn form(&self, status: u16, error: Option<&PageError>) -> Response {
        let action = self.action;
        let (further, first): (Vec<&Field>, Vec<_>) =
            self.fields.iter().partition(|field| field.is_further);
        let is_meant =
            |field: &Field| error.is_some_and(|error| error.field.as_ref() == Some(&field.path));
        let is_checked =
            action.asks == Asks::Correct && error.is_none() && self.head.method == Method::Post;
        let has_file = self.fields.iter().any(|field| field.kind == FieldKind::Bytes);
        let is_typed = |name: &str| {
            self.fields.iter().any(|field| field.kind == FieldKind::Place && field.path == name)
        };
        self.page(status, |view| {
            html! {
                p { (action.description(view.t)) }
                @if let Some(error) = error {
                    @let name = error.field.as_deref().and_then(|path| path.rsplit('.').next());
                    div.error role="alert" { p { strong { (error.title) }
                        @if let Some(name) = name { ": " (input::label(view, name)) } } p { (error.detail) } }
                    p.small { (view.t.request_id) ": " code { (self.head.request_id) } }
                }
                (self.tried(view))
                (self.touched(view))
                @if is_checked {
                    h2 { (view.t.difference) }
                    @if let Some(correction) = self.correction(view) { (correction.difference(view)) }
                    p { (view.t.look_twice) }
                }
                form.act method="post" action={ "/console/act/" (action.name) } enctype=[has_file.then_some("multipart/form-data")] {
                    p.small.kept hidden { (view.t.kept_typed) " " button.quiet type="reset" { (view.t.start_anew) } }
                    (hidden(view, self.back()))
                    @for name in PLACES.iter().filter(|name| action.path.contains(&format!("{{{name}}}")) && !is_typed(name)) {
                        @if let Some(value) = self.given.get(name) { input type="hidden" name=(name) value=(value); }
                    }
                    @if let Some(was) = self.given.get("was") { input type="hidden" name="was" value=(was); }
                    @if let Some(shown) = self.selection().filter(|_| action.asks == Asks::DryRun || is_checked) {
                        input type="hidden" name="shown" value=(shown);
                    }
                    (input::all(view, &first, "", &self.given, error))
                    @for fold in folds(&further) {
                        @let object = fold.first().map_or("", |field| field.object());
                        details open[fold.iter().copied().any(is_meant)] {
                            summary { @if object.is_empty() { (view.t.more_fields) } @else { (input::label(view, object)) } }
                            (input::all(view, &fold, object, &self.given, error))
                        }
                    }
                    div.actions {
                        @if action.asks == Asks::DryRun || is_checked {
                            button type="submit" name="again" value="yes" { (view.t.show_again) }
                        }
                        @if self.fields.iter().any(|field| field.path == "try") {
                            button type="submit" name="again" value="yes" formnovalidate { (view.t.try_it) }
                        }
                        button class=(if action.class().is_empty() { "primary" } else { action.class() }) type="submit" { ((action.label)(view.t)) }
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
            let is_missing = |field: &&Field| field.is_required && field.path != "reason";
            let mut wanted = self.fields.iter().filter(is_missing);
            let missing = wanted.find(|field| self.given.get(&field.path).is_none());
            // Nothing is wrong before the form was sent.
            let told = if self.head.method == Method::Post { "error" } else { "small" };
            return missing.map_or_else(
                || self.dry_run(view),
                |field| html! { p class=(told) { (input::label(view, field.name())) ": " (view.t.field_missing) } },
            );
        }
        let is_typed = |name: &str| self.fields.iter().any(|field| field.path == name);
        let is_named =
            |name: &&str| self.action.path.contains(&format!("{{{name}}}")) && !is_typed(name);
        let mut names = ["id", "name"].into_iter().filter(is_named);
        let Some(id) = names.find_map(|name| self.given.get(name)) else { return html! {} };
        let thing = self.thing().unwrap_or_default();
        let mut found = view.read_or_null(&thing, &[]);
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
            @if self.is_last_admin(view) { p.error role="alert" { (view.t.last_admin) } }
            h2 { (view.t.touches) }
            (facts(&[(view.t.name, html! { strong { (name) } })]))
            dl.facts { @for (name, value) in rows {
                div { dt { (word(name)) } dd { @if name.ends_with("_at") { (time(value)) } @else { (value) } } }
            } }
        }
    }

    /// Whether it takes its role, or more, from the only person who may administer.
    fn is_last_admin(&self, view: &View<'_>) -> bool {
        let ends = ["change-user", "delete-user", "disable-user"];
        if !ends.contains(&self.action.name) {
            return false;
        }
        let users = view.read_or_null("/v1/users", &[("limit", "500")]);
        let is_admin =
            |user: &&Value| user.text("role") == "admin" && user.maybe("disabled_at").is_none();
        let admins: Vec<&Value> = users.items("items").iter().filter(is_admin).collect();
        matches!(admins[..], [only] if Some(only.text("name")) == self.given.get("name"))
    }

    /// What the API would send of the tried event, or would have done with the events of a period.
    fn tried(&self, view: &View<'_>) -> Markup {
        let asked: Vec<(&str, &str)> =
            TRIALS.iter().filter_map(|name| Some((*name, self.given.get(name)?))).collect();
        if asked.is_empty() || self.given.get("again").is_none() {
            return html! {};
        }
        let found = self.body(false).and_then(|mut body| {
            for (name, value) in &asked {
                body.insert((*name).to_owned(), (*value).into());
            }
            view.try_out(self.action.method, &self.path()?, &Value::Object(body))
        });
        match found {
            Ok(found) if found.field("looked_at").is_null() => {
                html! { h2 { (view.t.try_it) } (json(view, &found)) }
            }
            Ok(found) => what_if::show(view, &found),
            Err(error) => html! { div.error role="alert" { p { (error.detail) } } },
        }
    }

    fn dry_run(&self, view: &View<'_>) -> Markup {
        let Ok(mut body) = self.body(false) else { return html! {} };
        // The API wants a reason even where nothing is discarded yet.
        let needs_reason =
            self.fields.iter().any(|field| field.path == "reason" && field.is_required);
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
            p { strong { (grouped(found.int("count"))) (more) } " " (view.t.deliveries_or_events) }
            (held_back(view, &found))
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

/// The folded fields, a fold for each object. Fields outside of objects come first.
fn folds<'f>(further: &[&'f Field]) -> Vec<Vec<&'f Field>> {
    let mut folds: Vec<Vec<&Field>> = Vec::new();
    let mut sorted = further.to_vec();
    sorted.sort_by_key(|field| !field.object().is_empty());
    for field in sorted {
        match folds
            .iter_mut()
            .find(|fold| fold.first().is_some_and(|first| first.object() == field.object()))
        {
            Some(fold) => fold.push(field),
            None => folds.push(vec![field]),
        }
    }
    folds
}

/// The way of the API's answer back to the browser.
struct Back {
    task: Task,
    number: String,
    reply: Reply,
}

impl ResponseHandle for Back {
    fn deliver(self: Box<Self>, mut response: Response) {
        let done = response.done.take();
        let page = self.task.after(&self.number, response);
        // The log names actor, action and resource, as for a call of the API.
        self.reply.send(Response { done, ..page });
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

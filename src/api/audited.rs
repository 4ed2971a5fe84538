//! The only way for a call to change anything: the change and its audit event are one transaction.
//!
//! A route that changes something is an [`Answer::Act`](super::route::Answer::Act). Its handler has to return an
//! [`Audited`], which only [`change`] and dry runs can make, so a handler cannot forget the audit event. The caller of
//! the handler audits refusals; `pipeline::refusals` limits how many.
//!
//! Not here: webhooks, published events and claims of guards. They are not changes by a person, and their own rows say
//! where they came from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::auth::Denied;
use crate::api::call::Call;
use crate::api::context::Api;
use crate::api::idempotency::ChangeKey;
use crate::api::problem::Problem;
use crate::api::schema::value;
use crate::base::clock::Timestamp;
use crate::http::message::{FileBody, Head, Response};
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent, Origin, Outcome};
use crate::model::event;
use crate::model::json::carried;
use crate::model::name::DEFAULT_TENANT;
use crate::pipeline::claims::Answer;
use crate::store::claimed_effects::ClaimedEffect;
use crate::store::error::{Error, Result as StoreResult};
use crate::store::tx::WriteTx;
use crate::store::writer::Queue;
use crate::store::{audit_events, limits};

/// What a call has changed, and how it is answered.
#[derive(Clone, Debug)]
pub(super) struct Change {
    resource_type: &'static str,
    resource_id: String,
    changes: Changes,
    status: u16,
    body: Value,
    is_part: bool,
}

impl Change {
    /// A thing was created: 201 with the thing.
    pub(super) fn made(kind: &'static str, id: &str, after: &impl Serialize) -> Self {
        Self { status: 201, ..Self::changed(kind, id, &(), after) }
    }

    /// A thing was changed, and that created another one: 201.
    pub(super) fn made_within(
        kind: &'static str,
        id: &str,
        before: &impl Serialize,
        after: &impl Serialize,
    ) -> Self {
        Self { status: 201, ..Self::changed(kind, id, before, after) }
    }

    /// A thing was changed: 200 with the thing as it is now.
    pub(super) fn changed(
        resource_type: &'static str,
        id: &str,
        before: &impl Serialize,
        after: &impl Serialize,
    ) -> Self {
        let body = value(after);
        let changes = Changes::between(&value(before), &body);
        let resource_id = id.to_owned();
        Self { resource_type, resource_id, changes, status: 200, body, is_part: false }
    }

    /// A thing was deleted: 204.
    pub(super) fn gone(kind: &'static str, id: &str, before: &impl Serialize) -> Self {
        Self { status: 204, ..Self::changed(kind, id, before, &()) }
    }

    /// Answers with something else than the thing.
    #[must_use]
    pub(super) fn answer(self, body: impl Serialize) -> Self {
        Self { body: value(body), ..self }
    }

    /// Answers with the thing and something that is shown only once, such as a secret.
    #[must_use]
    pub(super) fn shown<T: Serialize>(self, with: impl FnOnce(Value) -> T) -> Self {
        Self { body: value(with(self.body)), ..self }
    }

    /// Marks a change that others of the same request follow: the last one has the answer.
    #[must_use]
    pub(super) fn part(self, is_part: bool) -> Self {
        Self { is_part, ..self }
    }

    /// Adds an entry that is not a field of the thing: see [`Changes::and`].
    #[must_use]
    pub(super) fn and(mut self, name: &str, after: impl Into<Value>) -> Self {
        self.changes = self.changes.and(name, after);
        self
    }
}

/// The result of a change that was committed with its audit event, or of a dry run.
#[derive(Debug)]
pub(super) struct Audited<T> {
    value: T,
    status: u16,
    /// Actor, action and resource, for the log. `None`: nothing was changed.
    done: Option<Box<[String; 3]>>,
    /// The file that is the answer, where a read of it is audited.
    file: Option<FileBody>,
}

impl<T> Audited<T> {
    /// Converts the value.
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Audited<U> {
        Audited { value: with(self.value), status: self.status, done: self.done, file: self.file }
    }

    /// Answers with a file.
    pub(super) fn with_file(self, file: FileBody) -> Self {
        Self { file: Some(file), ..self }
    }
}

impl Audited<Value> {
    /// The answer of a dry run: nothing was changed, so there is no audit event.
    pub(super) fn dry_run(value: Value) -> Self {
        Self { value, status: 200, done: None, file: None }
    }

    /// The answer, with the status of the audit event.
    pub(super) fn into_response(self) -> Response {
        let response = match (self.status, &self.file) {
            (_, Some(_)) => Response::with_body(200, "application/octet-stream", Vec::new()),
            (204, None) => Response::new(204),
            (status, None) => {
                let body = carried::written(&self.value).into_bytes();
                Response::with_body(status, "application/json", body)
            }
        };
        Response { done: self.done, file: self.file, ..response }
    }
}

/// Why nothing is changed: the request is refused, or the store failed.
#[derive(Debug)]
pub(super) enum Refusal {
    Problem(Problem),
    Store(Error),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// The result of a function in the transaction. It has to return a problem before it writes anything.
pub(super) type ChangeResult<T = Change> = Result<T, Refusal>;

/// A result as a transaction returns it: a problem does not make it fail.
pub(super) fn settled<T>(result: ChangeResult<T>) -> StoreResult<Result<T, Problem>> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(Refusal::Problem(problem)) => Ok(Err(problem)),
        Err(Refusal::Store(error)) => Err(error),
    }
}

/// Changes something: runs `run` in a transaction, appends the audit event to it, and waits for COMMIT.
pub(super) fn change<R>(api: &Api, call: &Call, mut run: R) -> Result<Audited<Value>, Problem>
where
    R: FnMut(&WriteTx<'_>) -> ChangeResult + Send + 'static,
{
    let done = change_and(api, call, move |tx| Ok((run(tx)?, ())))?;
    Ok(done.map(|(body, ())| body))
}

/// As [`change`], for a function that also returns something for what follows.
pub(super) fn change_and<T, R>(
    api: &Api,
    call: &Call,
    run: R,
) -> Result<Audited<(Value, T)>, Problem>
where
    T: Send + 'static,
    R: FnMut(&WriteTx<'_>) -> ChangeResult<(Change, T)> + Send + 'static,
{
    carry_out(api, call, None, run)
}

/// As [`change_and`]. With `claimed`, the change finishes that effect, whose claim has the key of the request.
pub(super) fn carry_out<T, R>(
    api: &Api,
    call: &Call,
    claimed: Option<ClaimedEffect>,
    mut run: R,
) -> Result<Audited<(Value, T)>, Problem>
where
    T: Send + 'static,
    R: FnMut(&WriteTx<'_>) -> ChangeResult<(Change, T)> + Send + 'static,
{
    let event = call.event(api.env.clock.wall());
    let settings = api.env.settings.get();
    let tenant = call.tenant.clone();
    let action = call.action;
    let key = ChangeKey::new(api, call).filter(|_| claimed.is_none());
    let claims = api.flow.claims.clone();
    api.env.store.writer().write(Queue::Accept, move |tx: &WriteTx<'_>| {
        // What is refused after a write leaves nothing, and the other jobs of the transaction keep what they wrote.
        let done = tx.unless_refused(|| {
            if let Some(Err(problem)) = key.as_ref().map(|key| key.check(tx)).transpose()? {
                return Ok(Err(problem));
            }
            let before = limits::before(tx, &tenant, action)?;
            let (change, more) = match settled(run(tx))? {
                Ok(done) => done,
                Err(problem) => return Ok(Err(problem)),
            };
            limits::check(tx, &tenant, action, &settings.tenants, &before)?;
            let Change { resource_type, resource_id, changes, status, body, is_part } = change;
            if let Some(key) = key.as_ref().filter(|_| !is_part) {
                key.keep(tx, status, carried::written(&body).as_bytes())?;
            }
            if let Some(effect) = claimed.as_ref().filter(|_| !is_part) {
                let body = carried::written(&body);
                claims.finish(tx, effect, Answer { status, body: body.as_bytes() })?;
            }
            let mut event = event.clone().of(resource_type, &resource_id, changes);
            event.origin.status = Some(status);
            audit_events::append(tx, &event)?;
            let resource = format!("{resource_type}/{resource_id}");
            let done = Some(Box::new([event.actor.display, event.action, resource]));
            Ok(Ok(Audited { value: (body, more), status, done, file: None }))
        })?;
        match done {
            Err(error) if error.is_refusal() => Ok(Err(error.into())),
            done => done,
        }
    })?
}

impl Call {
    /// The audit event of this call, without the fields that only its result decides.
    pub(super) fn event(&self, at: Timestamp) -> NewAuditEvent {
        let event = NewAuditEvent::local(at, &self.tenant, self.who.clone(), self.action);
        NewAuditEvent { origin: origin(&self.request.head), ..event }
    }
}

/// A handler that changes something, at once.
pub(super) type ActHandler = fn(&Api, &Call) -> Result<Audited<Value>, Problem>;

impl Api {
    /// The answer to a call that was to change something. That it failed is noted.
    pub(super) fn acted(&self, call: &Call, done: Result<Audited<Value>, Problem>) -> Response {
        match done {
            Ok(done) => done.into_response(),
            // The same request may have been carried out at the same time.
            Err(problem) => match self.replayed(call) {
                Ok(Some(response)) => response,
                Ok(None) => self.failed(call, problem),
                Err(problem) => self.failed(call, problem),
            },
        }
    }

    /// The answer to a call that was allowed but failed, which is audited.
    pub(super) fn failed(&self, call: &Call, problem: Problem) -> Response {
        let mut event = call.event(self.env.clock.wall());
        event.resource_id = call.params.first().cloned().or_else(|| name_in(&call.request.body));
        self.note(event, Outcome::Failure, &problem);
        problem.into()
    }

    /// Audits a call that was denied. `params` are the variable parts of its path.
    pub(super) fn note_denial(
        &self,
        action: &str,
        params: &[String],
        head: &Head,
        denied: &Denied,
    ) {
        let (tenant, who) = match denied.by.as_deref() {
            Some((tenant, who)) => (tenant.as_str(), who.clone()),
            None => (DEFAULT_TENANT, Actor::anonymous()),
        };
        let event = NewAuditEvent::local(self.env.clock.wall(), tenant, who, action);
        let resource_id = params.first().cloned();
        let event = NewAuditEvent { origin: origin(head), resource_id, ..event };
        self.note(event, Outcome::Denied, &denied.problem);
    }

    /// Audits a call that was not carried out.
    pub(super) fn note(&self, mut event: NewAuditEvent, outcome: Outcome, problem: &Problem) {
        event.outcome = outcome;
        event.origin.status = Some(problem.status());
        event.changes = Changes::none().and("problem", problem.kind());
        self.flow.refusals.note(event);
    }
}

/// The name of the resource that a request was to make.
fn name_in(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_slice(body).ok().map(|Named { name }| name)
}

/// Where a call came from.
pub(super) fn origin(head: &Head) -> Origin {
    let field = |name: &str| head.headers.get(name);
    let trace = || field("traceparent").and_then(event::trace_id);
    Origin {
        address: Some(head.client.to_string()),
        user_agent: field("user-agent").map(str::to_owned),
        request_id: Some(head.request_id.clone()),
        correlation_id: field("x-correlation-id").map(str::to_owned).or_else(trace),
        method: Some(head.method.as_str()),
        path: Some(head.path.clone()),
        status: None,
    }
}

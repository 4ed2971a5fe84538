//! For ERPs in Rust: writes an event in the ERP's own transaction.
//!
//! Business data and event are committed in one transaction of one file, so that neither exists without the other. No
//! service has to run for that; the service finds the row after the commit and delivers it. Not here: publishing over
//! HTTP, for an ERP whose tables are elsewhere (`docs/api.md`).

mod store;

use std::collections::BTreeMap;

use rusqlite::Transaction;

pub use crate::base::clock::Timestamp;
use crate::base::id::{self, Draw, SystemDraw};
use crate::base::text::without_mark;
pub use crate::model::event::Binding;
use crate::model::event::{self, FieldError, NewEvent, SQL_SOURCE};
use crate::model::json;
use crate::model::name::{DEFAULT_TENANT, Name};

use store::Row;

const JSON: &str = "application/json";

/// The SQL that creates the outbox table in an ERP's own file. `oncebox source add` lets the service read that file. Not
/// needed in `oncebox.db`. Running it again does nothing.
pub const TABLE: &str = store::TABLE;

/// An event to append.
///
/// Give it a [`key`](Self::key): an event with a known key is not appended again.
///
/// ```
/// use oncebox::outbox::Event;
/// let event = Event::new("invoice.created")
///     .key("invoice.created:4711")
///     .aggregate("invoice", "4711")
///     .payload(r#"{"number":4711,"total":"99.00"}"#);
/// # let _unused = event;
/// ```
#[derive(Clone, Debug)]
#[must_use = "an event does nothing until it is appended"]
pub struct Event {
    new: NewEvent,
    key: Option<String>,
    traceparent: Option<String>,
    headers: BTreeMap<String, String>,
    payload_problem: Option<String>,
}

impl Event {
    /// An event of this type: 1 to 128 printable ASCII characters, such as `invoice.created`. Its default payload is
    /// `null`.
    pub fn new(event_type: impl Into<String>) -> Self {
        let new = NewEvent {
            tenant: DEFAULT_TENANT.to_owned(),
            source_system: SQL_SOURCE.to_owned(),
            event_type: event_type.into(),
            payload: b"null".to_vec(),
            content_type: JSON.to_owned(),
            ..NewEvent::default()
        };
        Self { new, key: None, traceparent: None, headers: BTreeMap::new(), payload_problem: None }
    }

    /// Sets the idempotency key: 1 to 255 printable ASCII characters, such as `invoice.created:4711`, unique in its source
    /// system. Without a key, duplicates are not recognized.
    pub fn key(mut self, idempotency_key: impl Into<String>) -> Self {
        self.key = Some(idempotency_key.into());
        self
    }

    /// Sets the payload, which is sent byte for byte. It must be JSON unless the [`content_type`](Self::content_type) is
    /// another.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.new.payload = payload.into();
        self.payload_problem = None;
        self
    }

    /// Sets the payload to a value as JSON. If that fails, [`append`] returns the error.
    pub fn json(mut self, value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(payload) => self.payload(payload),
            Err(error) => {
                self.payload_problem = Some(format!("cannot be written as JSON: {error}"));
                self
            }
        }
    }

    /// Sets the payload's media type, if it is not `application/json`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.new.content_type = content_type.into();
        self
    }

    /// Sets what the event is about: a type (at most 64 characters) and an id (at most 255). A subscription's URL may
    /// contain both. By default, events are ordered by them.
    pub fn aggregate(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.new.aggregate_type = Some(kind.into());
        self.new.aggregate_id = Some(id.into());
        self
    }

    /// Delivers the event only to this subscription, whatever its patterns.
    pub fn target(mut self, subscription: impl Into<String>) -> Self {
        self.new.target = Some(subscription.into());
        self
    }

    /// Sets the source system, if several systems use one file. The default is `sql`.
    pub fn source_system(mut self, name: impl Into<String>) -> Self {
        self.new.source_system = name.into();
        self
    }

    /// Sets the tenant. The default is `default`. In an ERP's own file it must be the source's tenant.
    pub fn tenant(mut self, name: impl Into<String>) -> Self {
        self.new.tenant = name.into();
        self
    }

    /// Sets when it happened, by the ERP's clock. Events are ordered by it; without it, by the time of the insert.
    pub fn occurred_at(mut self, at: impl Into<Timestamp>) -> Self {
        self.new.occurred_at = Some(at.into());
        self
    }

    /// Delivers the event not before this time.
    pub fn not_before(mut self, at: impl Into<Timestamp>) -> Self {
        self.new.not_before = Some(at.into());
        self
    }

    /// Sets the ordering key, if that is not the aggregate.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.new.ordering_key = Some(key.into());
        self
    }

    /// Keeps it in its lane even where the subscription keeps no order. In `oncebox.db` and in files with the column
    /// `guaranteed_order`.
    pub fn guaranteed_order(mut self) -> Self {
        self.new.order.guaranteed = true;
        self
    }

    /// Sends it although an earlier event of its lane is a dead letter. In `oncebox.db` and in files with the column
    /// `exclude_failed`.
    pub fn exclude_failed(mut self) -> Self {
        self.new.order.exclude_failed = true;
        self
    }

    /// Sets the funnel point at which the [`funnel_value`](Self::funnel_value) counts; without it, it counts at every
    /// point. In `oncebox.db` and in files with the column `funnel_point`.
    pub fn funnel_point(mut self, point: impl Into<String>) -> Self {
        self.new.order.funnel_point = Some(point.into());
        self
    }

    /// Sets what the aggregate's id is an id of, if several event types change the same thing. In `oncebox.db` and in files
    /// with the column `entity_type`.
    pub fn entity_type(mut self, kind: impl Into<String>) -> Self {
        self.new.order.entity_type = Some(kind.into());
        self
    }

    /// Sets the funnel value: of events with the same value, one at a time is in flight at subscriptions with a
    /// `funnel_point`.
    pub fn funnel_value(mut self, value: impl Into<String>) -> Self {
        self.new.order.funnel_value = Some(value.into());
        self
    }

    /// Sets its parent: an event of the same tenant and source system, by its key, appended before. With
    /// [`Binding::Hard`] the parent completes after this event, and is a dead letter if this is one.
    pub fn parent_key(mut self, key: impl Into<String>, binding: Binding) -> Self {
        self.new.order.parent_key = Some(key.into());
        self.new.order.parent_binding = Some(binding);
        self
    }

    /// Sets the process that it belongs to.
    pub fn process_id(mut self, id: impl Into<String>) -> Self {
        self.new.process_id = Some(id.into());
        self
    }

    /// Sets the W3C `traceparent`. Deliveries continue its trace.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// Adds a header field, which is sent to the subscriptions that name it in `event_headers`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the counted attempts before a delivery becomes a dead letter, 1 to 1,000. Overrides the subscription's.
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.new.max_attempts = Some(most);
        self
    }

    /// Sets free text for the ERP's own use, at most 4,096 characters.
    pub fn custom_data(mut self, text: impl Into<String>) -> Self {
        self.new.custom_data = Some(text.into());
        self
    }

    fn checked(self) -> Result<(NewEvent, Option<String>), FieldError> {
        let Self { mut new, key, traceparent, headers, payload_problem } = self;
        new.headers = (!headers.is_empty()).then(|| serde_json::json!(headers).to_string());
        new.idempotency_key = key.unwrap_or_else(|| {
            let mut random = [0; 16];
            SystemDraw::new().fill(&mut random);
            format!("auto-{}", data_encoding::HEXLOWER.encode(&random))
        });
        new.check()?;
        Name::parse(&new.tenant).map_err(|error| FieldError {
            field: "tenant",
            problem: format!("is wrong: {error}"),
        })?;
        if let Some(text) = &traceparent {
            let problem = "is not a W3C traceparent like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            let trace_id = event::trace_id(text)
                .ok_or_else(|| FieldError { field: "traceparent", problem: problem.to_owned() })?;
            new.trace_id = Some(trace_id);
        }
        match payload_problem.or_else(|| json_problem(&new)) {
            Some(problem) => Err(FieldError { field: "payload", problem }),
            None => Ok((new, traceparent)),
        }
    }
}

fn json_problem(new: &NewEvent) -> Option<String> {
    if new.content_type != JSON {
        return None;
    }
    if !json::is_shallow(&new.payload) {
        return Some(format!("is nested deeper than {}", json::MAX_DEPTH));
    }
    let error =
        serde_json::from_slice::<&serde_json::value::RawValue>(without_mark(&new.payload)).err()?;
    Some(format!("is not JSON ({error}); name its content_type if it is something else"))
}

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The event's UUID, that of the first append for a known key. In an ERP's own file, the row's number.
    pub id: String,
    /// The `webhook-id` of all its deliveries, which consumers' guards use.
    pub webhook_id: String,
    /// Whether its key was known, so that nothing was appended. The first content stays.
    pub already_there: bool,
    /// Whether the existing event has another type, payload, aggregate or target.
    pub differs: bool,
    /// Whether the existing event is quarantined: it is not delivered until a person repairs it, or discards it so that it
    /// can be appended again. Always false in an ERP's own file, where events are not checked yet.
    pub is_quarantined: bool,
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field is out of bounds.
    #[error("the event cannot be appended: {0}")]
    Field(#[from] FieldError),
    /// The file has no table `outbox`, or one with other columns.
    #[error(
        "this file has no outbox to append to ({0}): open the oncebox.db that `oncebox serve` created, or create \
         the table `outbox::TABLE` here and add a source of kind sqlite that reads this file"
    )]
    NoOutbox(String),
    /// Another error of SQLite, such as a locked file. Roll the transaction back.
    #[error("appending the event: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// Appends an event in the caller's transaction, so that the event exists exactly if the transaction is committed. After
/// an error, nothing was appended.
///
/// The file is `oncebox.db`, or the ERP's own file with the table [`TABLE`] that a source reads.
///
/// An event whose key is already known in its tenant and source system is not appended again; the first content stays.
/// Nothing is sent before the commit.
///
/// ```
/// use oncebox::outbox::{self, Event};
/// use oncebox::rusqlite::{Connection, TransactionBehavior};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let file = dir.path().join("oncebox.db");
/// # drop(oncebox::store::Store::open(&file, oncebox::base::faults::Faults::none())?);
/// let mut erp = Connection::open(file)?; // oncebox.db, with the ERP's own tables in it
/// erp.busy_timeout(std::time::Duration::from_secs(5))?;
/// erp.execute_batch("CREATE TABLE invoices (number INTEGER PRIMARY KEY, total TEXT NOT NULL)")?;
///
/// let tx = erp.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// tx.execute("INSERT INTO invoices (number, total) VALUES (4711, '99.00')", [])?;
/// let event = Event::new("invoice.created")
///     .key("invoice.created:4711")
///     .aggregate("invoice", "4711")
///     .payload(r#"{"number":4711,"total":"99.00"}"#);
/// let appended = outbox::append(&tx, event)?;
/// tx.commit()?;
/// assert!(appended.webhook_id.starts_with("evt_") && !appended.already_there);
/// # Ok(())
/// # }
/// ```
pub fn append(tx: &Transaction<'_>, event: Event) -> Result<Appended, Error> {
    let (new, traceparent) = event.checked()?;
    let appended = store::append(tx, &new, traceparent.as_deref()).map_err(explain)?;
    let appended = appended.ok_or_else(|| FieldError {
        field: "parent_key",
        problem: "is the key of no event of this source system: append the parent first".to_owned(),
    })?;
    let Row { id, already_there, differs, is_quarantined } = appended;
    let webhook_id = id::webhook_id(&new.tenant, &new.source_system, &new.idempotency_key);
    Ok(Appended { id, webhook_id, already_there, differs, is_quarantined })
}

fn explain(error: rusqlite::Error) -> Error {
    if store::is_wrong_table(&error) {
        Error::NoOutbox(error.to_string())
    } else {
        Error::Sqlite(error)
    }
}

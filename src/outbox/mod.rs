//! For an ERP written in Rust: an event that is written in the ERP's own transaction.
//!
//! Invoice and event stand in one transaction of one file, so that neither is there without the other. No
//! service has to run for that; the one that serves the file finds the row after the commit and delivers it.
//! Not here: publishing over HTTP, for an ERP whose tables are elsewhere (`docs/api.md`).

mod store;

use rusqlite::Transaction;

pub use crate::base::clock::Timestamp;
use crate::base::id::{self, Draw, SystemDraw};
use crate::model::event::{FieldError, NewEvent, SQL_SOURCE};
use crate::model::name::Name;
use crate::model::sealed::Sealed;
use crate::model::{json, tenant, trace};

use store::Row;

const JSON: &str = "application/json";

/// The table for an ERP that keeps its own file instead of living in `oncebox.db`: it makes it there, and
/// `oncebox source create` lets the service read it. Running it again does nothing.
pub const TABLE: &str = store::TABLE;

/// An event to be appended: what happened, to what, and under which name.
///
/// Give it a [`key`](Self::key): with one, the same fact appended again is the same event.
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
    payload_problem: Option<String>,
}

impl Event {
    /// An event of this type, 1 to 128 printable ASCII characters, such as `invoice.created`. Its payload
    /// is `null` until it is given one.
    pub fn new(event_type: impl Into<String>) -> Self {
        let new = NewEvent {
            id: String::new(),
            tenant: tenant::DEFAULT.to_owned(),
            source_system: SQL_SOURCE.to_owned(),
            idempotency_key: String::new(),
            event_type: event_type.into(),
            aggregate_type: None,
            aggregate_id: None,
            target: None,
            payload: b"null".to_vec(),
            content_type: JSON.to_owned(),
            occurred_at: None,
            received_at: Timestamp::default(),
            not_before: None,
            ordering_key: None,
            process_id: None,
            trace_id: None,
            max_attempts: None,
            custom_data: None,
            sealed: Sealed::default(),
        };
        Self { new, key: None, traceparent: None, payload_problem: None }
    }

    /// The fact's own name, 1 to 255 printable ASCII characters, such as `invoice.created:4711`: unique for
    /// its source system. Without one nothing is recognized as appended before.
    pub fn key(mut self, idempotency_key: impl Into<String>) -> Self {
        self.key = Some(idempotency_key.into());
        self
    }

    /// The body that is sent, to the byte. It has to be JSON unless a [`content_type`](Self::content_type)
    /// says otherwise.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.new.payload = payload.into();
        self.payload_problem = None;
        self
    }

    /// The body as JSON of a value. What cannot be written as JSON is said by [`append`].
    pub fn json(mut self, value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(payload) => self.payload(payload),
            Err(error) => {
                self.payload_problem = Some(format!("cannot be written as JSON: {error}"));
                self
            }
        }
    }

    /// The payload's media type, where it is not `application/json`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.new.content_type = content_type.into();
        self
    }

    /// What it happened to: the kind of thing (at most 64 characters) and which one (at most 255). A
    /// subscription's URL may name both, and lanes are ordered by them.
    pub fn aggregate(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.new.aggregate_type = Some(kind.into());
        self.new.aggregate_id = Some(id.into());
        self
    }

    /// Only for the subscription of this name, past its patterns.
    pub fn target(mut self, subscription: impl Into<String>) -> Self {
        self.new.target = Some(subscription.into());
        self
    }

    /// The system the fact comes from, where one file serves several; `sql` unless told.
    pub fn source_system(mut self, name: impl Into<String>) -> Self {
        self.new.source_system = name.into();
        self
    }

    /// Whose event it is, where the box has tenants; `default` unless told. In an ERP's own file it has to be the
    /// source's tenant.
    pub fn tenant(mut self, name: impl Into<String>) -> Self {
        self.new.tenant = name.into();
        self
    }

    /// When it happened, by the ERP's clock. Orders a lane; left out, the time of the insert does.
    pub fn occurred_at(mut self, at: impl Into<Timestamp>) -> Self {
        self.new.occurred_at = Some(at.into());
        self
    }

    /// Not to be sent before.
    pub fn not_before(mut self, at: impl Into<Timestamp>) -> Self {
        self.new.not_before = Some(at.into());
        self
    }

    /// What it is ordered by, where that is not its aggregate.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.new.ordering_key = Some(key.into());
        self
    }

    /// The process it belongs to.
    pub fn process_id(mut self, id: impl Into<String>) -> Self {
        self.new.process_id = Some(id.into());
        self
    }

    /// The W3C `traceparent` it happened under; deliveries carry its trace on.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// Counted attempts until a delivery of it is given up, 1 to 1,000; wins over the subscription's.
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.new.max_attempts = Some(most);
        self
    }

    /// Free for the ERP's own use, at most 4,096 characters.
    pub fn custom_data(mut self, text: impl Into<String>) -> Self {
        self.new.custom_data = Some(text.into());
        self
    }

    fn checked(self) -> Result<(NewEvent, Option<String>), FieldError> {
        let Self { mut new, key, traceparent, payload_problem } = self;
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
            let trace_id = trace::trace_id(text)
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
    let error = serde_json::from_slice::<&serde_json::value::RawValue>(&new.payload).err()?;
    Some(format!("is not JSON ({error}); name its content_type if it is something else"))
}

/// What came of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The event's UUID: of the first append, where it was there before. In an ERP's own file the row's number.
    pub id: String,
    /// The `webhook-id` that every delivery of it carries, and that consumers' guards know it by.
    pub webhook_id: String,
    /// Whether it was there before. The first content stays.
    pub already_there: bool,
    /// Whether it was there before with another type, payload, aggregate or target.
    pub differs: bool,
    /// Whether what was there before is quarantined: it is sent to nobody until a person repairs it, or discards it
    /// so that it can be appended again. Never so in an ERP's own file, where nobody has looked at it.
    pub is_quarantined: bool,
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field is out of bounds.
    #[error("the event cannot be appended: {0}")]
    Field(#[from] FieldError),
    /// The file has no `outbox`, or one of another shape.
    #[error(
        "this file has no outbox to append to ({0}): open the oncebox.db that `oncebox serve` made, or make \
         the table `outbox::TABLE` here and let a source of kind sqlite read this file"
    )]
    NoOutbox(String),
    /// What else SQLite says, such as that the file is locked. The transaction cannot be trusted: roll it
    /// back.
    #[error("appending the event: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// Appends an event in the caller's own transaction: it is there when, and only when, the rest is.
///
/// The file is `oncebox.db`, or one of the ERP's own with the table [`TABLE`] that a source reads.
///
/// An event whose key (in its tenant and source system) is there already is not appended again; the first
/// content stays. Nothing is sent before the transaction is committed.
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
///
/// # Errors
/// [`Error`]; then nothing was appended.
pub fn append(tx: &Transaction<'_>, event: Event) -> Result<Appended, Error> {
    let (new, traceparent) = event.checked()?;
    let appended = store::append(tx, &new, traceparent.as_deref()).map_err(explain)?;
    let Row { id, already_there, differs, is_quarantined } = appended;
    let webhook_id = id::webhook_id(&new.tenant, &new.source_system, &new.idempotency_key);
    Ok(Appended { id, webhook_id, already_there, differs, is_quarantined })
}

fn explain(error: rusqlite::Error) -> Error {
    if store::is_shape(&error) { Error::NoOutbox(error.to_string()) } else { Error::Sqlite(error) }
}

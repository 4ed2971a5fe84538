//! A connection to a database of somebody else's: the one trait that sources and targets use, and why it fails.
//!
//! Values are texts; the database casts them: `CAST(? AS …)`, `column::text`. Everything happens in a transaction: a statement
//! before [`Connection::begin`] is refused.

use std::fmt::Debug;
use std::time::Duration;

pub use crate::databases::frame::{Refusal, Row};

/// A connection. After [`Error::Lost`] it is of no more use: drop it, and take another.
pub trait Connection: Debug + Send {
    /// Begins a transaction: read committed, UTC, with limits on waiting (`product.rs`).
    fn begin(&mut self) -> Result<(), Error>;

    /// Commits. After an [`Error::Lost`] nobody knows whether it is committed.
    fn commit(&mut self) -> Result<(), Error>;

    /// Rolls back.
    fn roll_back(&mut self) -> Result<(), Error>;

    /// Runs a statement to its end, also one that calls a procedure. How many rows it changed; `None` if the database does
    /// not say.
    fn run(&mut self, statement: &Statement) -> Result<Option<u64>, Error>;

    /// Runs a statement that has rows. The first rows: at most `most`, and fewer if they are more than
    /// [`MOST_ROWS_BYTES`](crate::databases::frame::MOST_ROWS_BYTES) together; at least one if there is one. A value of more
    /// letters than [`MOST_VALUE_LETTERS`](crate::databases::frame::MOST_VALUE_LETTERS) is refused with the name of its column.
    fn rows(&mut self, statement: &Statement, most: usize) -> Result<Vec<Row>, Error>;
}

/// A statement and the values for each `?` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The statement.
    pub sql: String,
    /// The values, in the order of the `?`; `None` is NULL.
    pub parameters: Vec<Option<String>>,
}

impl Statement {
    /// A statement without values.
    pub fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), parameters: Vec::new() }
    }

    /// The statement with one more value.
    #[must_use]
    pub fn with(mut self, value: impl Into<String>) -> Self {
        self.parameters.push(Some(value.into()));
        self
    }

    /// The statement with one more value, or NULL.
    #[must_use]
    pub fn with_optional(mut self, value: Option<impl Into<String>>) -> Self {
        self.parameters.push(value.map(Into::into));
        self
    }
}

/// Why something failed. `failure.rs` says what follows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The database or its driver refused, and the connection is still good unless the refusal says otherwise. Its words may
    /// have data of a row: they are shown by [`Failure`](crate::databases::failure::Failure) alone.
    #[error("the database refused it ({} {})", .0.sqlstate, .0.native)]
    Refused(Refusal),
    /// There is no connection, or no more: it may be dropped.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// It was not even asked: the request is larger than what is sent at once.
    #[error("{0}")]
    TooLarge(String),
}

/// How a connection was lost, or why there never was one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The program that speaks to databases is not there.
    #[error(
        "the program oncebox-odbc is not there; install the package oncebox-odbc (looked for: {looked_for})"
    )]
    NoProgram {
        /// The paths.
        looked_for: String,
    },
    /// The program could not be started.
    #[error("the program oncebox-odbc cannot be started: {why}")]
    NotStarted {
        /// The machine's words.
        why: String,
    },
    /// The settings of the database cannot be used: they are looked at anew for each connection.
    #[error("{why}")]
    Unfit {
        /// What is wrong, and what to do.
        why: String,
    },
    /// The program ended: a driver that crashed, or a signal.
    #[error("the program oncebox-odbc ended")]
    Ended,
    /// No answer came in time; the program was killed.
    #[error("the database did not answer within {}", humantime::format_duration(*.after))]
    Silent {
        /// How long it was waited for.
        after: Duration,
    },
    /// The program said what this version does not know.
    #[error(
        "oncebox-odbc is of another version: install the one that came with this oncebox ({why})"
    )]
    OtherVersion {
        /// What was wrong.
        why: String,
    },
    /// All connections to this database that the settings allow were in use all the time.
    #[error("all {connections} connections to this database were in use for {}", humantime::format_duration(*.after))]
    Busy {
        /// How many there are.
        connections: usize,
        /// How long it was waited for.
        after: Duration,
    },
}

//! What the service and the program `oncebox-odbc` say to each other over a pipe: a length of four bytes, then JSON.
//!
//! The program compiles this very file, so that both sides mean the same. It names nothing else of ours. Each request has one
//! answer. Values are texts; the database casts them.

use std::io::{self, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest frame. What is larger is refused before it is sent.
pub const MOST_BYTES: usize = 64 << 20;
/// The values of the rows of one answer take about so many bytes at most: further rows are left for the next request.
pub const MOST_ROWS_BYTES: usize = 8 << 20;
/// The largest value, in units of UTF-16: even with each unit escaped in JSON, the value fits into a frame.
pub const MOST_VALUE_LETTERS: usize = 8 << 20;

/// What the service asks for. No `Debug`: a connection string has a password.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first: connects.
    Connect {
        /// What the driver is told, with the password.
        connection_string: String,
        /// How long the driver may take, in seconds.
        seconds: u32,
    },
    /// Begins a transaction.
    Begin {
        /// Statements that come first in it, such as its isolation.
        setup: Vec<String>,
    },
    /// Commits.
    Commit,
    /// Rolls back.
    RollBack,
    /// Runs a statement in the transaction: [`Answer::Changed`].
    Run {
        /// The statement.
        sql: String,
        /// A value for each `?`, in their order.
        parameters: Vec<Option<String>>,
    },
    /// Runs a statement in the transaction: [`Answer::Rows`].
    Rows {
        /// The statement.
        sql: String,
        /// A value for each `?`, in their order.
        parameters: Vec<Option<String>>,
        /// How many rows are wanted at most.
        most: usize,
    },
}

/// A row: a text or NULL for each column.
pub type Row = Vec<Option<String>>;

/// What the program answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// So many rows were changed; `None` if the database does not say.
    Changed(Option<u64>),
    /// The rows.
    Rows(Vec<Row>),
    /// It was refused.
    Refused(Refusal),
}

/// Why something was refused: the database's or the driver's own words, which may have data of a row.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Five letters and digits, as in the standard of SQL; empty if there is none.
    pub sqlstate: String,
    /// The number that the database's own manual has, or 0.
    pub native: i32,
    /// The message.
    pub message: String,
}

/// Writes one frame.
pub fn write<T: Serialize>(to: &mut impl Write, value: &T) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    if json.len() > MOST_BYTES {
        return Err(too_large(json.len()));
    }
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(&json)?;
    to.flush()
}

/// Reads one frame; `None` if the other side ended before it began one.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    let Some((first, rest)) = length.split_first_mut() else { return Ok(None) };
    loop {
        match from.read(std::slice::from_mut(first)) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    from.read_exact(rest)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > MOST_BYTES {
        return Err(too_large(length));
    }
    let mut json = vec![0; length];
    from.read_exact(&mut json)?;
    Ok(Some(serde_json::from_slice(&json)?))
}

fn too_large(bytes: usize) -> io::Error {
    let what = format!("a frame of {bytes} bytes; at most {MOST_BYTES} are sent at once");
    io::Error::new(ErrorKind::FileTooLarge, what)
}

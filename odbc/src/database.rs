//! One connection to a database, over a driver of ODBC.
//!
//! Everything happens in a transaction: outside one, a statement is refused, so that none is left open by mistake.

use odbc_api::parameter::{VarWCharArray, VarWCharBox};
use odbc_api::{
    Connection, ConnectionOptions, Cursor, CursorRow, Environment, IntoParameter, Preallocated,
    ResultSetMetadata,
    handles::{Statement, StatementImpl},
};

use crate::frame::{Answer, MOST_ROWS_BYTES, MOST_VALUE_LETTERS, Refusal, Request, Row};

/// So much of a value is fetched at once, in units of UTF-16.
const PART: usize = 4096;

/// A connection, once there is one.
pub struct Database<'a> {
    environment: &'a Environment,
    connection: Option<Connection<'a>>,
    is_in_transaction: bool,
}

impl<'a> Database<'a> {
    /// Not connected yet.
    pub fn new(environment: &'a Environment) -> Self {
        Self { environment, connection: None, is_in_transaction: false }
    }

    /// Does what is asked.
    pub fn answer(&mut self, request: Request) -> Result<Answer, Refusal> {
        match request {
            Request::Connect { connection_string, seconds } => {
                self.connect(&connection_string, seconds)?;
            }
            Request::Begin { setup } => self.begin(&setup)?,
            Request::Commit => self.end(Connection::commit)?,
            Request::RollBack => self.end(Connection::rollback)?,
            Request::Run { sql, parameters } => return self.run(&sql, parameters),
            Request::Rows { sql, parameters, most } => return self.rows(&sql, parameters, most),
        }
        Ok(Answer::Done)
    }

    fn connect(&mut self, connection_string: &str, seconds: u32) -> Result<(), Refusal> {
        let options =
            ConnectionOptions { login_timeout_sec: Some(seconds), ..ConnectionOptions::default() };
        let connection = self
            .environment
            .connect_with_connection_string(connection_string, options)
            .map_err(refusal)?;
        connection.set_autocommit(false).map_err(refusal)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn connected(&self) -> Result<&Connection<'a>, Refusal> {
        self.connection.as_ref().ok_or_else(|| own("08003", "there is no connection"))
    }

    fn begin(&mut self, setup: &[String]) -> Result<(), Refusal> {
        if self.is_in_transaction {
            return Err(own("25001", "a transaction has begun already"));
        }
        let connection = self.connected()?;
        for sql in setup {
            if let Err(refused) = execute(connection, sql, Vec::new()) {
                // Why it was refused is of more use than why it cannot be rolled back: the service gives this connection up.
                drop(connection.rollback());
                return Err(refused);
            }
        }
        self.is_in_transaction = true;
        Ok(())
    }

    fn end(
        &mut self,
        how: impl FnOnce(&Connection<'a>) -> Result<(), odbc_api::Error>,
    ) -> Result<(), Refusal> {
        let connection = self.in_transaction()?;
        how(connection).map_err(refusal)?;
        self.is_in_transaction = false;
        Ok(())
    }

    fn in_transaction(&self) -> Result<&Connection<'a>, Refusal> {
        let connection = self.connected()?;
        if self.is_in_transaction {
            Ok(connection)
        } else {
            Err(own("25P01", "no transaction has begun"))
        }
    }

    fn run(&self, sql: &str, parameters: Vec<Option<String>>) -> Result<Answer, Refusal> {
        let changed = execute(self.in_transaction()?, sql, parameters)?;
        Ok(Answer::Changed(changed))
    }

    fn rows(
        &self,
        sql: &str,
        parameters: Vec<Option<String>>,
        most: usize,
    ) -> Result<Answer, Refusal> {
        let mut statement = prepared(self.in_transaction()?)?;
        let values = bound(parameters);
        let Some(mut cursor) = statement.execute(sql, values.as_slice()).map_err(refusal)? else {
            return Ok(Answer::Rows(Vec::new()));
        };
        let names = names(&mut cursor)?;
        let mut rows = Vec::new();
        let mut bytes = 0_usize;
        while bytes < MOST_ROWS_BYTES {
            // Read to its end where that is near: what is cut off ends the transaction of SQL Server.
            let Some(mut found) = cursor.next_row().map_err(refusal)? else { break };
            if rows.len() >= most {
                break;
            }
            let row = row(&mut found, &names)?;
            bytes = bytes.saturating_add(row.iter().flatten().map(String::len).sum());
            rows.push(row);
        }
        Ok(Answer::Rows(rows))
    }
}

fn prepared<'a>(
    connection: &'a Connection<'_>,
) -> Result<Preallocated<StatementImpl<'a>>, Refusal> {
    connection.preallocate().map_err(refusal)
}

/// Wide texts: a narrow one is in the letters that the driver believes to be the machine's.
fn bound(parameters: Vec<Option<String>>) -> Vec<VarWCharBox> {
    parameters.into_iter().map(IntoParameter::into_parameter).collect()
}

/// Runs a statement to the end of its last result, so that no error is missed: how many rows were changed by the result that
/// the driver stops at first. `None`: no number is known.
fn execute(
    connection: &Connection<'_>,
    sql: &str,
    parameters: Vec<Option<String>>,
) -> Result<Option<u64>, Refusal> {
    let mut statement = prepared(connection)?;
    let values = bound(parameters);
    let has_rows = match statement.execute(sql, values.as_slice()).map_err(refusal)? {
        Some(rows) => {
            // Dropped, a cursor is closed with all results that follow.
            let _open = rows.into_stmt();
            true
        }
        None => false,
    };
    let changed = if has_rows { None } else { statement.row_count().map_err(refusal)? };
    let mut statement = statement.into_handle();
    while next_result(&mut statement)? {}
    drop(values);
    Ok(changed.and_then(|changed| u64::try_from(changed).ok()))
}

/// Goes on to the next result of a statement, if there is one.
fn next_result(statement: &mut StatementImpl<'_>) -> Result<bool, Refusal> {
    #[expect(
        unsafe_code,
        reason = "nothing is bound to the columns of any result of this statement"
    )]
    let found = unsafe { statement.more_results() };
    found.into_result_bool(statement).map_err(refusal)
}

fn names(cursor: &mut impl ResultSetMetadata) -> Result<Vec<String>, Refusal> {
    let names = cursor.column_names().map_err(refusal)?;
    names.collect::<Result<_, _>>().map_err(refusal)
}

fn row(found: &mut CursorRow<'_>, names: &[String]) -> Result<Row, Refusal> {
    (1..).zip(names).map(|(number, name)| value(found, number, name)).collect()
}

/// A whole value, part by part.
fn value(found: &mut CursorRow<'_>, number: u16, name: &str) -> Result<Option<String>, Refusal> {
    let mut units: Vec<u16> = Vec::new();
    let mut part = VarWCharArray::<PART>::NULL;
    loop {
        found.get_data(number, &mut part).map_err(refusal)?;
        let Some(text) = part.as_slice() else { return Ok(None) };
        units.extend(text);
        if part.is_complete() {
            break;
        }
        if units.len() > MOST_VALUE_LETTERS {
            let what =
                format!("column {name} has a value of more than {MOST_VALUE_LETTERS} letters");
            return Err(own("54000", &what));
        }
    }
    match String::from_utf16(&units) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(own("22021", &format!("column {name} has letters that are not Unicode"))),
    }
}

/// A refusal of this program itself.
fn own(sqlstate: &str, message: &str) -> Refusal {
    Refusal { sqlstate: sqlstate.to_owned(), native: 0, message: message.to_owned() }
}

fn refusal(error: odbc_api::Error) -> Refusal {
    match error {
        odbc_api::Error::Diagnostics { record, .. } => Refusal {
            sqlstate: record.state.as_str().to_owned(),
            native: record.native_error,
            message: String::from_utf16_lossy(&record.message),
        },
        other => own("HY000", &other.to_string()),
    }
}

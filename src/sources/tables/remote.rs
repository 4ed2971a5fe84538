//! A table of an ERP's own database, read and marked over a connection. Each function is one transaction of that
//! database and ends it; none waits for our writer.

use crate::databases::connection::{Connection, Error, Row, Statement};
use crate::databases::product::Product;
use crate::model::event_field::EventField;
use crate::sources::cell::Cell;
use crate::sources::database_settings::{DatabaseSettings, Mode};
use crate::sources::database_state::System;
use crate::sources::draft::Draft;
use crate::sources::shared::SourceError;
use crate::sources::tables::dialect::{Columns, Dialect, OLDEST, SYSTEM, Wanted};
use crate::sources::tables::trouble::{self, refused_row};

/// Rows of one read.
pub(in crate::sources) const MAX_ROWS: usize = 500;
/// Larger payloads are not read: a connection gives no longer value (`frame::MOST_VALUE_LETTERS`).
const MAX_PAYLOAD: u32 = 8 << 20;
/// Columns that a table may have.
const MAX_COLUMNS: usize = 4_096;

type Outcome<T> = Result<T, SourceError>;

/// A usable table, and how it is spoken to.
#[derive(Clone, Debug)]
pub(in crate::sources) struct RemoteTable {
    dialect: Dialect,
    /// The fields that the table has, in the order of the statements.
    fields: Vec<EventField>,
}

/// A row as it was read.
#[derive(Clone, Debug)]
pub(in crate::sources) struct RemoteRow {
    pub(in crate::sources) id: i64,
    /// The transaction that wrote it, in the mode `xid8`.
    pub(in crate::sources) tx: Option<u64>,
    pub(in crate::sources) draft: Draft,
    /// Why the database cannot give it to us, if so; the draft is empty then.
    pub(in crate::sources) unreadable: Option<String>,
}

impl RemoteTable {
    /// Reads the table's columns. Fails if it cannot be used as an outbox.
    pub(in crate::sources) fn learn(
        connection: &mut dyn Connection,
        product: Product,
        settings: &DatabaseSettings,
    ) -> Outcome<Self> {
        if settings.mode == Mode::Xid8 && product != Product::Postgresql {
            return Err(SourceError::lasting(
                "the mode xid8 is only for PostgreSQL, where a database shows which transactions have ended: use \
                 mark or claim",
            ));
        }
        let dialect = Dialect::new(product, settings);
        let columns = dialect.columns();
        let rows = once(connection, product, |connection| connection.rows(&columns, MAX_COLUMNS))?;
        let there: Vec<String> = rows.into_iter().flatten().flatten().collect();
        let fields = fields(&there, product, settings)?;
        Ok(Self { dialect, fields })
    }

    /// The settings that it was learned for.
    pub(in crate::sources) const fn settings(&self) -> &DatabaseSettings {
        self.dialect.settings()
    }

    /// The fields that the table has.
    pub(in crate::sources) fn fields(&self) -> &[EventField] {
        &self.fields
    }

    /// The oldest rows that are wanted: at most [`MAX_ROWS`], and fewer if they are large.
    pub(in crate::sources) fn read(
        &self,
        connection: &mut dyn Connection,
        wanted: &Wanted,
    ) -> Outcome<Vec<RemoteRow>> {
        let all = self.select(wanted, MAX_ROWS);
        match self.look(connection, &all, MAX_ROWS) {
            Ok(rows) => rows.into_iter().map(|row| self.row(row)).collect(),
            // One of them cannot be read: which one?
            Err(error) if refused_row(self.product(), &error).is_some() => {
                self.read_one_by_one(connection, wanted)
            }
            Err(error) => Err(trouble::of(self.product(), &error)),
        }
    }

    fn read_one_by_one(
        &self,
        connection: &mut dyn Connection,
        wanted: &Wanted,
    ) -> Outcome<Vec<RemoteRow>> {
        let ids = self.dialect.read(Columns::Ids, wanted, MAX_ROWS);
        let ids = self.once(connection, |connection| connection.rows(&ids, MAX_ROWS))?;
        let mut read = Vec::with_capacity(ids.len());
        for row in ids {
            let key = self.key(&mut row.into_iter())?;
            let one = self.select(&Wanted::One(key.0), 1);
            match self.look(connection, &one, 1) {
                Ok(rows) => {
                    for row in rows {
                        read.push(self.row(row)?);
                    }
                }
                Err(error) => {
                    let why = refused_row(self.product(), &error)
                        .ok_or_else(|| trouble::of(self.product(), &error))?;
                    let draft = Draft::default();
                    read.push(RemoteRow { id: key.0, tx: key.1, draft, unreadable: Some(why) });
                }
            }
        }
        Ok(read)
    }

    /// Claims rows for a box that nobody has claimed. Returns how many.
    pub(in crate::sources) fn claim(
        &self,
        connection: &mut dyn Connection,
        box_name: &str,
    ) -> Outcome<usize> {
        let free = self.dialect.unclaimed(MAX_ROWS);
        self.once(connection, |connection| {
            let ids = numbers(&connection.rows(&free, MAX_ROWS)?);
            if !ids.is_empty() {
                connection.run(&self.dialect.claim(&ids, box_name))?;
            }
            Ok(ids.len())
        })
    }

    /// Marks rows as read.
    pub(in crate::sources) fn mark(
        &self,
        connection: &mut dyn Connection,
        ids: &[i64],
    ) -> Outcome<()> {
        let mark = self.dialect.mark(ids);
        self.once(connection, |connection| connection.run(&mark)).map(drop)
    }

    /// Takes back marks that were set since a time, of rows above `after`: all, or those of one box. Returns the
    /// highest id; `None` if there are no more.
    pub(in crate::sources) fn unmark(
        &self,
        connection: &mut dyn Connection,
        since: &str,
        of: Option<&str>,
        after: i64,
    ) -> Outcome<Option<i64>> {
        let marked = self.dialect.marked_since(since, of, after, MAX_ROWS);
        self.once(connection, |connection| {
            let ids = numbers(&connection.rows(&marked, MAX_ROWS)?);
            if !ids.is_empty() {
                connection.run(&self.dialect.unmark(&ids))?;
            }
            Ok(ids.last().copied())
        })
    }

    /// Gives back claims of a box. Returns how many.
    pub(in crate::sources) fn release(
        &self,
        connection: &mut dyn Connection,
        box_name: &str,
    ) -> Outcome<usize> {
        let claimed = Wanted::ClaimedBy(box_name.to_owned());
        let claimed = self.dialect.read(Columns::Ids, &claimed, MAX_ROWS);
        self.once(connection, |connection| {
            let ids = numbers(&connection.rows(&claimed, MAX_ROWS)?);
            if !ids.is_empty() {
                connection.run(&self.dialect.unclaim(&ids))?;
            }
            Ok(ids.len())
        })
    }

    /// How many rows are committed and not read.
    pub(in crate::sources) fn waiting(
        &self,
        connection: &mut dyn Connection,
        wanted: &Wanted,
    ) -> Outcome<u64> {
        let waiting = self.dialect.waiting(wanted);
        let rows = self.once(connection, |connection| connection.rows(&waiting, 1))?;
        Ok(first(&rows).and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// What `PostgreSQL` says of itself.
    pub(in crate::sources) fn system(&self, connection: &mut dyn Connection) -> Outcome<System> {
        let asked = Statement::new(SYSTEM);
        let rows = self.once(connection, |connection| connection.rows(&asked, 1))?;
        let mut values = rows.into_iter().flatten();
        let number = values.next().flatten();
        let mut whole = || values.next().flatten().and_then(|text| text.parse().ok());
        match (whole(), whole()) {
            (Some(ended), Some(next)) => Ok(System { number, ended, next }),
            _ => {
                Err(SourceError::lasting("the database does not say which transactions have ended"))
            }
        }
    }

    /// How many seconds the oldest transaction has been open that this user can see.
    pub(in crate::sources) fn oldest(
        &self,
        connection: &mut dyn Connection,
    ) -> Outcome<Option<u64>> {
        let asked = Statement::new(OLDEST);
        let rows = self.once(connection, |connection| connection.rows(&asked, 1))?;
        Ok(first(&rows).and_then(|seconds| seconds.parse().ok()))
    }

    /// The row with this id, if it is still there.
    pub(in crate::sources) fn one(
        &self,
        connection: &mut dyn Connection,
        id: i64,
    ) -> Outcome<Option<RemoteRow>> {
        Ok(self.read(connection, &Wanted::One(id))?.into_iter().next())
    }

    /// The lines that give us the rights that are missing; none if nothing is.
    pub(in crate::sources) fn missing_grants(
        &self,
        connection: &mut dyn Connection,
    ) -> Outcome<Vec<String>> {
        let settings = self.settings();
        let mut tried =
            vec![self.dialect.read(Columns::Fields(&self.fields, 0), &Wanted::One(0), 1)];
        if settings.mode != Mode::Xid8 {
            tried.extend(settings.own_columns().iter().map(|own| self.dialect.try_change(own)));
        }
        for statement in tried {
            let denied = match attempt(connection, |connection| connection.run(&statement)) {
                Ok(_rows) => None,
                Err(error) => Some(trouble::denied(self.product(), &error)?),
            };
            if denied.is_some() {
                let who = self.dialect.who();
                let rows = self.once(connection, |connection| connection.rows(&who, 1))?;
                return Ok(self.dialect.grants(first(&rows).unwrap_or("oncebox")));
            }
        }
        Ok(Vec::new())
    }

    fn product(&self) -> Product {
        self.dialect.product()
    }

    fn select(&self, wanted: &Wanted, limit: usize) -> Statement {
        self.dialect.read(Columns::Fields(&self.fields, MAX_PAYLOAD), wanted, limit)
    }

    fn once<T>(
        &self,
        connection: &mut dyn Connection,
        work: impl FnOnce(&mut dyn Connection) -> Result<T, Error>,
    ) -> Outcome<T> {
        once(connection, self.product(), work)
    }

    /// Reads rows in a transaction, and rolls back: SQL Server may have ended the transaction already, where there were
    /// more rows than an answer takes.
    fn look(
        &self,
        connection: &mut dyn Connection,
        statement: &Statement,
        most: usize,
    ) -> Result<Vec<Row>, Error> {
        connection.begin()?;
        let before = self.dialect.before_read();
        let told = before.map_or(Ok(None), |before| connection.run(&before));
        let rows = told.and_then(|_| connection.rows(statement, most));
        if !matches!(rows, Err(Error::Lost(_))) {
            drop(connection.roll_back());
        }
        rows
    }

    /// The id of a row, and its transaction.
    fn key(
        &self,
        values: &mut impl Iterator<Item = Option<String>>,
    ) -> Outcome<(i64, Option<u64>)> {
        let id = values.next().flatten();
        let whole = id.as_deref().and_then(|text| text.parse().ok());
        let Some(id) = whole else {
            let Self { dialect, .. } = self;
            let DatabaseSettings { table, id: column, .. } = dialect.settings();
            return Err(SourceError::lasting(format!(
                "{table}.{column} is not a whole number: name another column in the settings (id)"
            )));
        };
        let tx = match self.settings().mode {
            Mode::Xid8 => values.next().flatten().and_then(|text| text.parse().ok()),
            Mode::Mark | Mode::Claim => None,
        };
        Ok((id, tx))
    }

    fn row(&self, row: Row) -> Outcome<RemoteRow> {
        let mut values = row.into_iter();
        let (id, tx) = self.key(&mut values)?;
        let mut draft = Draft::default();
        for field in &self.fields {
            let value = values.next().flatten();
            if *field == EventField::Payload {
                let bytes = values.next().flatten().and_then(|size| size.parse().ok());
                match (value, bytes) {
                    (Some(text), _) => draft.put(*field, Cell::Text(text)),
                    (None, Some(bytes)) => draft.put(*field, Cell::TooLarge(bytes)),
                    (None, None) => {}
                }
            } else if let Some(text) = value {
                draft.put(*field, Cell::Text(plain_time(*field, text)));
            }
        }
        Ok(RemoteRow { id, tx, draft, unreadable: None })
    }
}

/// A time without the offset that `PostgreSQL` writes: our transactions are in UTC.
fn plain_time(field: EventField, text: String) -> String {
    match text.strip_suffix("+00") {
        Some(plain) if matches!(field, EventField::OccurredAt | EventField::NotBefore) => {
            plain.to_owned()
        }
        _ => text,
    }
}

/// One transaction.
fn once<T>(
    connection: &mut dyn Connection,
    product: Product,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Error>,
) -> Outcome<T> {
    attempt(connection, work).map_err(|error| trouble::of(product, &error))
}

fn attempt<T>(
    connection: &mut dyn Connection,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    connection.begin()?;
    match work(connection) {
        Ok(found) => connection.commit().map(|()| found),
        Err(error) => {
            if !matches!(error, Error::Lost(_)) {
                // SQL Server has done so itself, and says that there is nothing to roll back.
                drop(connection.roll_back());
            }
            Err(error)
        }
    }
}

/// The first value of the first row.
fn first(rows: &[Row]) -> Option<&str> {
    rows.first()?.first()?.as_deref()
}

/// The whole numbers in the first column.
fn numbers(rows: &[Row]) -> Vec<i64> {
    rows.iter().filter_map(|row| row.first()?.as_deref()?.parse().ok()).collect()
}

/// The fields that the table has a column for.
fn fields(
    there: &[String],
    product: Product,
    settings: &DatabaseSettings,
) -> Outcome<Vec<EventField>> {
    let DatabaseSettings { table, database, id, mode, .. } = settings;
    if there.is_empty() {
        return Err(SourceError::lasting(format!(
            "there is no table {table:?} in the database {database}, or its user has no right to it; `oncebox source ddl \
             {product}` prints a table and the grants"
        )));
    }
    // PostgreSQL has columns whose names differ in case alone.
    let is_same = |have: &str, column: &str| match product {
        Product::Postgresql => have == column,
        Product::Mariadb | Product::SqlServer => have.eq_ignore_ascii_case(column),
    };
    let has = |column: &str| there.iter().any(|have| is_same(have, column));
    let missing = |column: &str, field: &str| {
        SourceError::lasting(format!(
            "the table {table:?} has no column {column:?} for {field}, or our user may not see it: name another one \
             in the settings (columns), or add it to the table"
        ))
    };
    if !has(id) {
        return Err(missing(id, "id"));
    }
    if let Some(own) = settings.own_columns().iter().find(|own| !has(own)) {
        return Err(SourceError::lasting(format!(
            "the table {table:?} has no column {own}, which the mode {mode} needs: `oncebox source ddl {product}{}` \
             prints it",
            mode.ddl_flag()
        )));
    }
    let mut fields = Vec::new();
    for field in EventField::ALL {
        let column = settings.column(field);
        if has(column) {
            fields.push(field);
        } else if settings.needs(field) {
            return Err(missing(column, field.as_str()));
        }
    }
    Ok(fields)
}

//! Macros that write SQL at compile time, so that the columns of a table stand once: where they are read, and where they
//! are stored.

use rusqlite::Row;
use rusqlite::types::FromSql;

use crate::store::column::cell;
use crate::store::error::Result;

/// Joins literals and macros to one text, like `concat!` without commas.
macro_rules! sql {
    (@ [$($done:tt)*]) => { concat!($($done)*) };
    (@ [$($done:tt)*] $name:ident ! $args:tt $($rest:tt)*) => {
        $crate::store::sql::sql!(@ [$($done)* $name ! $args,] $($rest)*)
    };
    (@ [$($done:tt)*] $part:tt $($rest:tt)*) => {
        $crate::store::sql::sql!(@ [$($done)* $part,] $($rest)*)
    };
    ($($part:tt)+) => { $crate::store::sql::sql!(@ [] $($part)+) };
}

/// Makes the function that reads a row, and the statements that select its columns.
///
/// A column is a name, or a name with an alias, or a literal of SQL; `as` gives a pattern for its value. The struct is
/// made of these values. The table's name stands in errors; `from` is what follows FROM, if that is more.
///
/// A statement is a constant, or a function that runs it with its arguments and returns an `Option` or a `Vec`. With `with`
/// it selects more columns after them, which are read by their names.
macro_rules! columns {
    (
        $(#[$attr:meta])*
        $vis:vis fn $read:ident() -> $type:ident = $table:tt $cols:tt $make:tt
        $($statements:tt)*
    ) => {
        $crate::store::sql::columns!(@statements [$read $type $table $cols] $($statements)*);

        $(#[$attr])*
        $vis fn $read(row: &rusqlite::Row<'_>) -> $crate::store::error::Result<$type> {
            let mut cells = $crate::store::sql::Cells::of(row);
            $crate::store::sql::columns!(@read cells $table $cols);
            $crate::store::sql::columns!(@make $type $make)
        }
    };
    (@statements $of:tt) => {};
    (@statements [$read:ident $type:ident $table:tt $cols:tt]
        $(#[$doc:meta])* $vis:vis const $NAME:ident $(with $more:literal)? = $rest:expr; $($statements:tt)*
    ) => {
        $(#[$doc])*
        $vis const $NAME: &str = $crate::store::sql::columns!(@select $table $cols [$($more,)?] $rest);
        $crate::store::sql::columns!(@statements [$read $type $table $cols] $($statements)*);
    };
    (@statements [$read:ident $type:ident $table:tt $cols:tt]
        $(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $arg_type:ty),*) -> $many:ident = $rest:expr;
        $($statements:tt)*
    ) => {
        $(#[$doc])*
        $vis fn $name(
            tx: &$crate::store::tx::ReadTx<'_>, $($arg: $arg_type),*
        ) -> $crate::store::error::Result<$many<$type>> {
            let sql = $crate::store::sql::columns!(@select $table $cols [] $rest);
            $crate::store::sql::columns!(@run $many tx sql [$($arg),*] $read)
        }
        $crate::store::sql::columns!(@statements [$read $type $table $cols] $($statements)*);
    };
    (@select $table:tt $cols:tt [$($more:tt)*] $rest:expr) => {
        concat!(
            "SELECT ", $crate::store::sql::columns!(@list [] "" $cols), $($more)* " FROM ",
            $crate::store::sql::columns!(@from $table), " ", $rest
        )
    };
    (@run Option $tx:ident $sql:ident $args:tt $read:ident) => { $tx.first($sql, rusqlite::params! $args, $read) };
    (@run Vec $tx:ident $sql:ident $args:tt $read:ident) => { $tx.rows($sql, rusqlite::params! $args, $read) };
    (@from ($table:tt from $from:literal)) => { $from };
    (@from $table:tt) => { $table };
    (@table ($table:tt from $from:literal)) => { $table };
    (@table $table:tt) => { $table };
    (@make $type:ident { $($make:tt)* }) => { Ok($type { $($make)* }) };

    (@list [$($done:tt)*] $sep:literal []) => { concat!($($done)*) };
    (@list [$($done:tt)*] $sep:literal [$alias:ident . $name:ident $(as $value:pat_param)? $(, $($rest:tt)*)?]) => {
        $crate::store::sql::columns!(
            @list [$($done)* $sep, stringify!($alias), ".", stringify!($name),] ", " [$($($rest)*)?]
        )
    };
    (@list [$($done:tt)*] $sep:literal [$name:ident $(as $value:pat_param)? $(, $($rest:tt)*)?]) => {
        $crate::store::sql::columns!(@list [$($done)* $sep, stringify!($name),] ", " [$($($rest)*)?])
    };
    (@list [$($done:tt)*] $sep:literal [$sql:literal as $value:pat_param $(, $($rest:tt)*)?]) => {
        $crate::store::sql::columns!(@list [$($done)* $sep, $sql,] ", " [$($($rest)*)?])
    };

    (@read $cells:ident $table:tt []) => {};
    (@read $cells:ident $table:tt [$sql:literal as $value:pat_param $(, $($rest:tt)*)?]) => {
        let $value = $cells.next(concat!($crate::store::sql::columns!(@table $table), ".", stringify!($value)))?;
        $crate::store::sql::columns!(@read $cells $table [$($($rest)*)?]);
    };
    (@read $cells:ident $table:tt [$alias:ident . $name:ident $($rest:tt)*]) => {
        $crate::store::sql::columns!(@read $cells $table [$name $($rest)*]);
    };
    (@read $cells:ident $table:tt [$name:ident as $value:pat_param $(, $($rest:tt)*)?]) => {
        let $value = $cells.next(concat!($crate::store::sql::columns!(@table $table), ".", stringify!($name)))?;
        $crate::store::sql::columns!(@read $cells $table [$($($rest)*)?]);
    };
    (@read $cells:ident $table:tt [$name:ident $(, $($rest:tt)*)?]) => {
        let $name = $cells.next(concat!($crate::store::sql::columns!(@table $table), ".", stringify!($name)))?;
        $crate::store::sql::columns!(@read $cells $table [$($($rest)*)?]);
    };
}

/// A function that reads the columns of a row, in their order, into the fields of a struct. A field with a value is none.
macro_rules! in_order {
    ($type:ident { $($field:ident $(: $value:expr)?),+ $(,)? }) => {
        |row: &rusqlite::Row<'_>| {
            let mut cells = $crate::store::sql::Cells::of(row);
            Ok($type { $($field: $crate::store::sql::in_order!(@ cells $field $($value)?)),+ })
        }
    };
    (@ $cells:ident $field:ident $value:expr) => { $value };
    (@ $cells:ident $field:ident) => { $cells.next(stringify!($field))? };
}

/// Stores a row. A column has a value, or is a variable of that name; with `of`, it is a field of that name. A literal at
/// the end follows VALUES. Returns how many rows were stored.
macro_rules! insert {
    (@ $tx:ident $table:literal $of:tt {
        $first:ident $(: $first_value:expr)? $(, $column:ident $(: $value:expr)?)* $(,)?
    } $($rest:literal)?) => {
        $tx.execute(
            concat!(
                "INSERT INTO ", $table, " (", stringify!($first), $(", ", stringify!($column),)* ") VALUES (?",
                $($crate::store::sql::insert!(@mark $column),)* ")" $(, " ", $rest)?
            ),
            rusqlite::params![
                $crate::store::sql::insert!(@value $of $first $(: $first_value)?),
                $($crate::store::sql::insert!(@value $of $column $(: $value)?)),*
            ],
        )
    };
    (@mark $column:ident) => { ", ?" };
    (@value [] $column:ident) => { $column };
    (@value [$new:ident] $column:ident) => { $new.$column };
    (@value $of:tt $column:ident : $value:expr) => { $value };
    ($tx:ident, $table:literal of $new:ident $columns:tt $($rest:literal)?) => {
        $crate::store::sql::insert!(@ $tx $table [$new] $columns $($rest)?)
    };
    ($tx:ident, $table:literal $columns:tt $($rest:literal)?) => {
        $crate::store::sql::insert!(@ $tx $table [] $columns $($rest)?)
    };
}

/// Sets columns, as `insert!` does. The literal begins with WHERE and takes the parameters at the end. Returns how many
/// rows were changed.
macro_rules! update {
    (@ $tx:ident $table:literal $of:tt {
        $first:ident $(: $first_value:expr)? $(, $column:ident $(: $value:expr)?)* $(,)?
    } $rest:literal [$($key:expr),+]) => {
        $tx.execute(
            concat!(
                "UPDATE ", $table, " SET ", stringify!($first), $(" = ?, ", stringify!($column),)* " = ? ", $rest
            ),
            rusqlite::params![
                $crate::store::sql::insert!(@value $of $first $(: $first_value)?),
                $($crate::store::sql::insert!(@value $of $column $(: $value)?),)*
                $($key),+
            ],
        )
    };
    ($tx:ident, $table:literal of $new:ident $columns:tt $rest:literal, $keys:tt) => {
        $crate::store::sql::update!(@ $tx $table [$new] $columns $rest $keys)
    };
    ($tx:ident, $table:literal $columns:tt $rest:literal, $keys:tt) => {
        $crate::store::sql::update!(@ $tx $table [] $columns $rest $keys)
    };
}

/// Makes functions that run a statement with their arguments, by the named method of `ReadTx`.
macro_rules! queries {
    ($(
        $(#[$doc:meta])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $method:ident $(as $row:ident)? $sql:expr;
    )+) => {$(
        $(#[$doc])*
        $vis fn $name(
            tx: &$crate::store::tx::ReadTx<'_>, $($arg: $type),*
        ) -> $crate::store::error::Result<$result> {
            tx.$method($sql, rusqlite::params![$($arg),*] $(, $row)?)
        }
    )+};
}

/// Makes functions that run one statement with their arguments. With `of` it must change one row: of what, stands in the
/// error. With `-> usize` they return how many rows were changed, with `-> bool` whether any was. `then` names what
/// other threads learn by it.
macro_rules! changes {
    (@result) => { () };
    (@result $rows:ident) => { $rows };
    (@run [] $tx:ident, $sql:expr, $params:expr) => { $tx.execute($sql, $params).map(drop) };
    (@run [usize] $tx:ident, $sql:expr, $params:expr) => { $tx.execute($sql, $params) };
    (@run [bool] $tx:ident, $sql:expr, $params:expr) => { $tx.execute($sql, $params).map(|rows| rows > 0) };
    (@run [$what:literal] $tx:ident, $sql:expr, $params:expr) => { $tx.change_one($sql, $params, $what) };
    ($(
        $(#[$doc:meta])*
        $vis:vis fn $name:ident($($arg:ident: $type:ty),*)
        $(-> $rows:ident)? $(of $what:literal)? $(then $then:ident)? = $sql:expr;
    )+) => {$(
        $(#[$doc])*
        $vis fn $name(
            tx: &$crate::store::tx::WriteTx<'_>, $($arg: $type),*
        ) -> $crate::store::error::Result<$crate::store::sql::changes!(@result $($rows)?)> {
            $(tx.$then();)?
            $crate::store::sql::changes!(@run [$($rows)? $($what)?] tx, $sql, rusqlite::params![$($arg),*])
        }
    )+};
}

/// The columns of a row, one after the other.
pub(crate) struct Cells<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> Cells<'r, 's> {
    pub(crate) const fn of(row: &'r Row<'s>) -> Self {
        Self { row, next: 0 }
    }

    /// Reads the next column. `name` stands in the error if this version cannot parse its value.
    pub(crate) fn next<T: FromSql>(&mut self, name: &'static str) -> Result<T> {
        let n = self.next;
        self.next += 1;
        cell(self.row, n, name)
    }
}

pub(crate) use {changes, columns, in_order, insert, queries, sql, update};

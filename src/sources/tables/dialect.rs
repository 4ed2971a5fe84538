//! The SQL that reads an ERP's own table, in the words of each product. Pure: settings in, statements out.
//!
//! Names are quoted, numbers are our own, every other value is a parameter. Values are cast to texts by the database.
//! What changes rows names their ids and nothing else: a condition on `taken_at` would make the database look at rows
//! that a transaction of the ERP has not committed, and wait for it.

use crate::databases::connection::Statement;
use crate::databases::product::Product;
use crate::model::event_field::EventField;
use crate::sources::database_settings::{DatabaseSettings, Mode};

/// Characters that are read of a value other than the payload: more than any field accepts.
const MAX_CELL_CHARS: u32 = 5_000;

/// SQL Server: rows that the ERP has not committed are left out instead of waited for. In a database with
/// `READ_COMMITTED_SNAPSHOT` that is refused unless locks are asked for.
const PAST_LOCKS: &str = "READPAST, READCOMMITTEDLOCK";

/// The statements of one source.
#[derive(Clone, Debug)]
pub(in crate::sources) struct Dialect {
    product: Product,
    settings: DatabaseSettings,
    /// The table, quoted.
    table: String,
    /// Its column of ids, quoted.
    id: String,
}

/// Which rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sources) enum Wanted {
    /// Rows that are not marked.
    Unmarked,
    /// Rows above an id that are not marked.
    UnmarkedAbove(i64),
    /// Rows that this box has claimed and not marked.
    ClaimedBy(String),
    /// Rows of ended transactions after a position.
    After {
        /// The transaction of the last row that was read.
        tx: u64,
        /// Its id.
        id: i64,
    },
    /// One row.
    One(i64),
}

/// What a statement reads of each row.
#[derive(Clone, Copy, Debug)]
pub(in crate::sources) enum Columns<'a> {
    /// Its id, and its transaction in the mode `xid8`.
    Ids,
    /// These fields as well; of a payload of more than so many bytes only the size.
    Fields(&'a [EventField], u32),
}

impl Dialect {
    pub(in crate::sources) fn new(product: Product, settings: &DatabaseSettings) -> Self {
        let quoted = |name: &str| quoted(product, name);
        let table: Vec<String> = settings.table.split('.').map(quoted).collect();
        Self {
            product,
            settings: settings.clone(),
            table: table.join("."),
            id: quoted(&settings.id),
        }
    }

    pub(in crate::sources) const fn product(&self) -> Product {
        self.product
    }

    pub(in crate::sources) const fn settings(&self) -> &DatabaseSettings {
        &self.settings
    }

    /// The names of the table's columns.
    pub(in crate::sources) fn columns(&self) -> Statement {
        match self.product {
            Product::Postgresql => Statement::new(
                "SELECT CAST(attname AS text) FROM pg_catalog.pg_attribute
                  WHERE attrelid = to_regclass(CAST(? AS text)) AND attnum > 0 AND NOT attisdropped",
            )
            .with(self.table.as_str()),
            Product::Mariadb => {
                let (schema, table) = match self.settings.table.split_once('.') {
                    Some((schema, table)) => (Some(schema), table),
                    None => (None, self.settings.table.as_str()),
                };
                Statement::new(
                    "SELECT CAST(column_name AS CHAR CHARACTER SET utf8mb4) FROM information_schema.columns
                      WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?",
                )
                .with_optional(schema)
                .with(table)
            }
            Product::SqlServer => Statement::new(
                "SELECT CONVERT(nvarchar(128), name) FROM sys.columns
                  WHERE object_id = OBJECT_ID(CONVERT(nvarchar(517), ?))",
            )
            .with(self.table.as_str()),
        }
    }

    /// Reads rows, the oldest first.
    pub(in crate::sources) fn read(
        &self,
        columns: Columns<'_>,
        wanted: &Wanted,
        limit: usize,
    ) -> Statement {
        let id = &self.id;
        let table = &self.table;
        let mut selected = vec![self.text(id)];
        let is_xid8 = self.settings.mode == Mode::Xid8;
        if is_xid8 {
            selected.push(self.text("tx"));
        }
        if let Columns::Fields(fields, payload_bytes) = columns {
            for field in fields {
                self.select(*field, payload_bytes, &mut selected);
            }
        }
        let selected = selected.join(", ");
        let (condition, parameter) = self.condition(wanted);
        let by_id = self.by_id();
        let order = if is_xid8 { format!("{table}.tx, {by_id}") } else { by_id };
        let sql = match self.product {
            Product::Postgresql | Product::Mariadb => format!(
                "SELECT {selected} FROM {table} WHERE {condition} ORDER BY {order} LIMIT {limit}"
            ),
            Product::SqlServer => format!(
                "SELECT TOP ({limit}) {selected} FROM {table} WITH ({PAST_LOCKS}) WHERE {condition} ORDER BY {order}"
            ),
        };
        Statement { sql, parameters: parameter.into_iter().map(Some).collect() }
    }

    /// The statement before the read in a transaction; `None` where a product needs none.
    ///
    /// With statistics older than a backlog `PostgreSQL` sorts all rows above an id to read the first of them: of 60,000
    /// rows a read took 13.7 ms instead of 0.2 (measured, 15.18). With sorting as the last resort the index is followed; a
    /// table without an index is still sorted.
    pub(in crate::sources) fn before_read(&self) -> Option<Statement> {
        match self.product {
            Product::Postgresql => Some(Statement::new("SET LOCAL enable_sort = off")),
            Product::Mariadb | Product::SqlServer => None,
        }
    }

    /// The ids of rows that nobody has claimed, locked until the transaction ends; locked ones are left out.
    pub(in crate::sources) fn unclaimed(&self, limit: usize) -> Statement {
        let id = &self.id;
        let table = &self.table;
        let text = self.text(id);
        let order = self.by_id();
        let free = "taken_at IS NULL AND taken_by IS NULL";
        Statement::new(match self.product {
            Product::Postgresql | Product::Mariadb => format!(
                "SELECT {text} FROM {table} WHERE {free} ORDER BY {order} LIMIT {limit} FOR UPDATE SKIP LOCKED"
            ),
            Product::SqlServer => format!(
                "SELECT TOP ({limit}) {text} FROM {table} WITH ({PAST_LOCKS}, UPDLOCK, ROWLOCK)
                  WHERE {free} ORDER BY {order}"
            ),
        })
    }

    /// Claims rows for a box.
    pub(in crate::sources) fn claim(&self, ids: &[i64], box_name: &str) -> Statement {
        self.set("taken_by = ?", ids).with(box_name)
    }

    /// Gives claims back.
    pub(in crate::sources) fn unclaim(&self, ids: &[i64]) -> Statement {
        self.set("taken_by = NULL", ids)
    }

    /// Marks rows.
    pub(in crate::sources) fn mark(&self, ids: &[i64]) -> Statement {
        let now = match self.product {
            Product::Postgresql => "now()",
            Product::Mariadb => "UTC_TIMESTAMP(3)",
            Product::SqlServer => "SYSUTCDATETIME()",
        };
        self.set(&format!("taken_at = {now}"), ids)
    }

    /// Takes marks back.
    pub(in crate::sources) fn unmark(&self, ids: &[i64]) -> Statement {
        self.set("taken_at = NULL", ids)
    }

    /// The ids above `after` of rows that were marked since a time, as RFC 3339 in UTC: all, or those of one box.
    pub(in crate::sources) fn marked_since(
        &self,
        since: &str,
        of: Option<&str>,
        after: i64,
        limit: usize,
    ) -> Statement {
        let id = &self.id;
        let table = &self.table;
        let text = self.text(id);
        // MariaDB reads neither T nor Z in a time.
        let plain = since.replace('T', " ").replace('Z', "");
        let time = match self.product {
            Product::Postgresql => "CAST(CAST(? AS text) AS timestamptz)",
            Product::Mariadb => "CAST(? AS DATETIME(3))",
            Product::SqlServer => "CONVERT(datetime2(3), ?)",
        };
        let since = if self.product == Product::Postgresql { since.to_owned() } else { plain };
        let own = if of.is_some() { " AND taken_by = ?" } else { "" };
        let order = self.by_id();
        let rest =
            format!("{table} WHERE {id} > {after} AND taken_at >= {time}{own} ORDER BY {order}");
        let statement = Statement::new(match self.product {
            Product::Postgresql | Product::Mariadb => {
                format!("SELECT {text} FROM {rest} LIMIT {limit}")
            }
            Product::SqlServer => format!("SELECT TOP ({limit}) {text} FROM {rest}"),
        });
        let statement = statement.with(since);
        match of {
            Some(of) => statement.with(of),
            None => statement,
        }
    }

    /// How many rows are committed and not read.
    pub(in crate::sources) fn waiting(&self, wanted: &Wanted) -> Statement {
        let (condition, parameter) = match wanted {
            Wanted::After { tx, id } => (self.after(*tx, *id), None),
            wanted => self.condition(wanted),
        };
        let count = self.text("count(*)");
        let hint = match self.product {
            Product::SqlServer => format!(" WITH ({PAST_LOCKS})"),
            Product::Postgresql | Product::Mariadb => String::new(),
        };
        let sql = format!("SELECT {count} FROM {}{hint} WHERE {condition}", self.table);
        Statement { sql, parameters: parameter.into_iter().map(Some).collect() }
    }

    /// Changes no row, but is refused where the right to change a column of our own is missing.
    pub(in crate::sources) fn try_change(&self, column: &str) -> Statement {
        Statement::new(format!("UPDATE {} SET {column} = NULL WHERE 1 = 0", self.table))
    }

    /// Who we are for the database, as a GRANT names it.
    pub(in crate::sources) fn who(&self) -> Statement {
        Statement::new(match self.product {
            Product::Postgresql => "SELECT quote_ident(current_user)",
            Product::Mariadb => {
                "SELECT CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@',
                                              QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))"
            }
            Product::SqlServer => "SELECT QUOTENAME(USER_NAME())",
        })
    }

    /// The right that the mode needs, as a line that a person runs.
    pub(in crate::sources) fn grants(&self, who: &str) -> Vec<String> {
        let table = &self.settings.table;
        let own = self.settings.own_columns();
        let may_change = self.settings.mode != Mode::Xid8;
        match self.product {
            Product::SqlServer => {
                let mut lines = vec![format!("GRANT SELECT ON {table} TO {who};")];
                let update =
                    |column: &&str| format!("GRANT UPDATE ON {table} ({column}) TO {who};");
                lines.extend(own.iter().filter(|_| may_change).map(update));
                lines
            }
            Product::Postgresql | Product::Mariadb => {
                let update = if may_change {
                    format!(", UPDATE ({})", own.join(", "))
                } else {
                    String::new()
                };
                vec![format!("GRANT SELECT{update} ON {table} TO {who};")]
            }
        }
    }

    /// The id, to sort by. With its table: `PostgreSQL` would take a bare name for the text that is selected of it, and
    /// sort 10 before 9.
    fn by_id(&self) -> String {
        match self.product {
            Product::Postgresql | Product::Mariadb => format!("{}.{}", self.table, self.id),
            // A value that is converted has no name there.
            Product::SqlServer => self.id.clone(),
        }
    }

    fn set(&self, what: &str, ids: &[i64]) -> Statement {
        let table = &self.table;
        let id = &self.id;
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let ids = ids.join(", ");
        Statement::new(format!("UPDATE {table} SET {what} WHERE {id} IN ({ids})"))
    }

    fn condition(&self, wanted: &Wanted) -> (String, Option<String>) {
        match wanted {
            Wanted::Unmarked => ("taken_at IS NULL".to_owned(), None),
            Wanted::UnmarkedAbove(id) => (format!("taken_at IS NULL AND {} > {id}", self.id), None),
            Wanted::ClaimedBy(name) => {
                ("taken_at IS NULL AND taken_by = ?".to_owned(), Some(name.clone()))
            }
            Wanted::After { tx, id } => {
                let after = self.after(*tx, *id);
                (format!("{after} AND tx < pg_snapshot_xmin(pg_current_snapshot())"), None)
            }
            Wanted::One(id) => (format!("{} = {id}", self.id), None),
        }
    }

    fn after(&self, tx: u64, id: i64) -> String {
        format!("(tx, {}) > (CAST('{tx}' AS xid8), CAST('{id}' AS bigint))", self.id)
    }

    /// A value as text.
    fn text(&self, value: &str) -> String {
        match self.product {
            Product::Postgresql => format!("CAST({value} AS text)"),
            Product::Mariadb => format!("CAST({value} AS CHAR CHARACTER SET utf8mb4)"),
            // 126: times as ISO 8601 has them.
            Product::SqlServer => format!("CONVERT(nvarchar(max), {value}, 126)"),
        }
    }

    /// What is selected for a field: two values for the payload, one for any other.
    fn select(&self, field: EventField, payload_bytes: u32, selected: &mut Vec<String>) {
        let text = self.text(&quoted(self.product, self.settings.column(field)));
        if field != EventField::Payload {
            selected.push(format!("LEFT({text}, {MAX_CELL_CHARS})"));
            return;
        }
        let size = match self.product {
            Product::Postgresql | Product::Mariadb => format!("OCTET_LENGTH({text})"),
            Product::SqlServer => format!("DATALENGTH({text})"),
        };
        selected.push(format!("CASE WHEN {size} <= {payload_bytes} THEN {text} END"));
        selected.push(self.text(&size));
    }
}

fn quoted(product: Product, name: &str) -> String {
    match product {
        Product::Postgresql => format!("\"{}\"", name.replace('"', "\"\"")),
        Product::Mariadb => format!("`{}`", name.replace('`', "``")),
        Product::SqlServer => format!("[{}]", name.replace(']', "]]")),
    }
}

/// Which database this is, how far its transactions are, and how long the oldest open one has been open, in seconds
/// where that can be seen. Each is NULL where we have no right to know.
pub(in crate::sources) const SYSTEM: &str =
    "SELECT CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE')
                 THEN (SELECT CAST(system_identifier AS text) FROM pg_control_system()) END,
            CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text),
            CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text)";

/// How many seconds the oldest transaction has been open that can be seen: prepared ones, and those of sessions whose
/// details this user may see.
pub(in crate::sources) const OLDEST: &str =
    "SELECT CAST(floor(extract(epoch FROM clock_timestamp() - least(
                 (SELECT min(prepared) FROM pg_prepared_xacts),
                 (SELECT min(xact_start) FROM pg_stat_activity WHERE backend_xid IS NOT NULL)))) AS text)";

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(product: Product, settings: &str) -> Dialect {
        Dialect::new(product, &serde_json::from_str(settings).unwrap())
    }

    #[test]
    fn names_are_quoted_as_each_product_quotes_them() {
        let odd = r#"{"database":"erp","table":"sales.out\"b`o]x","id":"No."}"#;
        for (product, table) in [
            (Product::Postgresql, r#""sales"."out""b`o]x""#),
            (Product::Mariadb, r#"`sales`.`out"b``o]x`"#),
            (Product::SqlServer, r#"[sales].[out"b`o]]x]"#),
        ] {
            let read = dialect(product, odd).read(Columns::Ids, &Wanted::Unmarked, 5);
            assert!(read.sql.contains(&format!("FROM {table}")), "{}", read.sql);
            assert_eq!(read.parameters, []);
        }
    }

    #[test]
    fn rows_are_sorted_by_the_numbers_and_not_by_the_texts_that_are_selected() {
        for (product, mode, order) in [
            (Product::Postgresql, "mark", r#""outbox"."id""#),
            (Product::Postgresql, "xid8", r#""outbox".tx, "outbox"."id""#),
            (Product::Mariadb, "mark", "`outbox`.`id`"),
            (Product::SqlServer, "mark", "[id]"),
        ] {
            let of = dialect(product, &format!(r#"{{"database":"erp","mode":"{mode}"}}"#));
            let mut all = vec![of.read(Columns::Ids, &Wanted::Unmarked, 5)];
            if mode == "mark" {
                all.extend([of.unclaimed(5), of.marked_since("2026-01-31T12:00:00Z", None, 0, 5)]);
            }
            for statement in all {
                let (_, sorted) = statement.sql.split_once("ORDER BY ").unwrap();
                assert!(sorted.starts_with(order), "{}", statement.sql);
            }
        }
    }

    #[test]
    fn what_changes_rows_names_ids_alone() {
        for product in [Product::Postgresql, Product::Mariadb, Product::SqlServer] {
            let of = dialect(product, r#"{"database":"erp","mode":"claim"}"#);
            for change in
                [of.mark(&[1, 2]), of.unmark(&[1, 2]), of.claim(&[1, 2], "a"), of.unclaim(&[1, 2])]
            {
                let (_, condition) = change.sql.split_once(" WHERE ").unwrap();
                assert!(
                    condition.trim_matches(['"', '`', '[', ']']).ends_with("IN (1, 2)"),
                    "{condition}"
                );
                assert!(!condition.contains("taken"), "{condition}");
            }
        }
    }

    #[test]
    fn the_printed_rights_are_those_that_the_mode_uses() {
        let lines = |product, mode: &str| {
            let settings = format!(r#"{{"database":"erp","mode":"{mode}"}}"#);
            dialect(product, &settings).grants("oncebox").join(" ")
        };
        let of = |mode| lines(Product::Postgresql, mode);
        assert_eq!(of("mark"), "GRANT SELECT, UPDATE (taken_at) ON outbox TO oncebox;");
        assert_eq!(of("claim"), "GRANT SELECT, UPDATE (taken_at, taken_by) ON outbox TO oncebox;");
        assert_eq!(of("xid8"), "GRANT SELECT ON outbox TO oncebox;");
        assert_eq!(
            lines(Product::SqlServer, "claim"),
            "GRANT SELECT ON outbox TO oncebox; GRANT UPDATE ON outbox (taken_at) TO oncebox; \
             GRANT UPDATE ON outbox (taken_by) TO oncebox;"
        );
    }
}

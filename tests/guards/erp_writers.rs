//! Four programs of an ERP that write invoices at the same time. None of their statements may fail.

use crate::guards::consumer::Consumer;

/// Programs that write at the same time.
const WRITERS: usize = 4;
/// Rounds of each program.
const ROUNDS: usize = 10;
/// Events of one round: INSERT, DELETE, INSERT in transactions of their own, then in one transaction.
const EVENTS: usize = 6;
/// Invoices that one round leaves.
const INVOICES: usize = 2;
/// Longer than 64 KiB, where a TEXT of `MariaDB` ends.
const LONG: usize = 70_000;
/// Quotes, letters that few alphabets have, a control character, a tab.
const ODD: &str = "O''Hara \"Größe\" € Ω 😀 \u{1} \t";

/// Events that all programs leave together.
pub(crate) const ALL_EVENTS: usize = WRITERS * ROUNDS * EVENTS;
/// Invoices that all programs leave together.
pub(crate) const ALL_INVOICES: usize = WRITERS * ROUNDS * INVOICES;

/// The ERP's own table.
pub(crate) const TABLE: &str =
    "CREATE TABLE invoices (id BIGINT PRIMARY KEY, number TEXT, total DECIMAL(10, 2));";

/// How a client writes.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    /// Statements of each session before its first transaction.
    pub(crate) first: &'static str,
    /// Begins a transaction.
    pub(crate) begin: &'static str,
}

/// Runs all programs. `client` reads SQL from its input and ends with an error at the first statement that fails,
/// which ends the test.
pub(crate) fn write(erp: &Consumer, client: &str, dialect: Dialect) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let name = format!("writer-{writer}.sql");
            erp.file(&name, &script(writer, dialect));
            scope.spawn(move || erp.shell(&format!("{client} < {name}")));
        }
    });
}

fn script(writer: usize, dialect: Dialect) -> String {
    let Dialect { first, begin } = dialect;
    let mut script = format!("{first}\n");
    for round in 0..ROUNDS {
        let long = "x".repeat(if round % 5 == 0 { LONG } else { 300 });
        let id = |name: usize| 10_000 * (writer + 1) + 10 * round + name;
        let insert = |name: usize| {
            let id = id(name);
            format!("INSERT INTO invoices VALUES ({id}, 'RE-{id} {ODD} {long}', 99.50);\n")
        };
        let delete = |name: usize| format!("DELETE FROM invoices WHERE id = {};\n", id(name));
        for part in [
            format!("{begin};\n{}COMMIT;\n", insert(1)),
            delete(1),
            insert(1),
            format!("{begin};\n{}{}{}COMMIT;\n", insert(2), delete(2), insert(2)),
            format!("{begin};\n{}{}ROLLBACK;\n", insert(3), delete(1)),
        ] {
            script += &part;
        }
    }
    script
}

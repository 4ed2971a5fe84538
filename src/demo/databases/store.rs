//! The SQL of both ERPs, and the statements of the program that writes.

use crate::databases::connection::Statement;

/// Invoices of the first ERP, and the users of both programs. `{password}` is one for the run.
const INVOICES: &str = "
    CREATE TABLE invoices (number text PRIMARY KEY, total numeric NOT NULL);
    CREATE ROLE erp LOGIN PASSWORD '{password}';
    GRANT SELECT, INSERT ON invoices TO erp;
    CREATE ROLE oncebox LOGIN PASSWORD '{password}';";

/// Bookings of the second ERP: no key prevents a second one of an invoice, so that it would be counted.
const BOOKINGS: &str = "
    CREATE TABLE bookings (id BIGINT AUTO_INCREMENT PRIMARY KEY, invoice VARCHAR(40) NOT NULL);
    CREATE USER oncebox@'%' IDENTIFIED BY '{password}';
    GRANT INSERT ON bookings TO oncebox@'%';";

/// What Oncebox does for each event.
pub(super) const BOOK: &str = "INSERT INTO bookings (invoice) VALUES (:aggregate_id)";

pub(super) const ALL_INVOICES: &str = "SELECT number FROM invoices";
pub(super) const ALL_BOOKINGS: &str = "SELECT invoice FROM bookings";
pub(super) const COUNT_OF_BOOKINGS: &str = "SELECT count(*) FROM bookings";
/// What a server that answers can be asked.
pub(super) const ALIVE: &str = "SELECT 1";
/// The database of the second ERP.
pub(super) const DATABASE: &str = "CREATE DATABASE demo CHARACTER SET utf8mb4";
pub(super) const VERSION: &str = "SELECT version()";

pub(super) fn invoices(password: &str) -> String {
    INVOICES.replace("{password}", password)
}

pub(super) fn bookings(password: &str) -> String {
    BOOKINGS.replace("{password}", password)
}

/// Writes an invoice; a trigger writes its event.
pub(super) fn write(invoice: &str) -> Statement {
    Statement::new("INSERT INTO invoices (number, total) VALUES (?, 119.00)").with(invoice)
}

/// Finds an invoice.
pub(super) fn find(invoice: &str) -> Statement {
    Statement::new("SELECT number FROM invoices WHERE number = ?").with(invoice)
}

/// What is commented out in printed DDL because it is the ERP's to decide: the grants, and the example of a trigger.
pub(super) fn commented_out(ddl: &str) -> String {
    let is_grant = |line: &&str| line.trim_start().starts_with("GRANT ");
    let line_of = |line: &'_ str| line.strip_prefix("--   ").map(str::to_owned);
    let all: Vec<String> = ddl.lines().filter_map(line_of).collect();
    let grants = all.iter().map(String::as_str).filter(is_grant);
    let example = ddl.split_once("-- An example:").map_or("", |(_, example)| example);
    let example = example.lines().take_while(|line| !line.is_empty());
    let example: Vec<String> = example.filter_map(line_of).collect();
    let example = example.iter().map(String::as_str);
    grants.chain(example).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_and_the_example_are_taken_from_the_comments() {
        let ddl = "CREATE TABLE outbox ();\n--   CREATE ROLE oncebox;\n--   GRANT SELECT ON outbox TO oncebox;\n\n\
                   -- An example: words,\n-- more words.\n--   CREATE TRIGGER a\n--     FOR EACH ROW;\n\n--   DELETE FROM outbox;\n";
        let wanted = "GRANT SELECT ON outbox TO oncebox;\nCREATE TRIGGER a\n  FOR EACH ROW;";
        assert_eq!(commented_out(ddl), wanted);
    }
}

//! Databases of others: those of the settings. Each is tested as `oncebox database test` does it, with the rights of the
//! service's user, who reads their passwords.

use crate::cli::doctor::{Finding, Installation};
use crate::cli::prelude::*;
use crate::databases::database::{Databases, Machine};
use crate::databases::inspect::{self, Guard};
use crate::model::health::{Check, Level, worst};
use crate::store::database_users::{self, DatabaseUser, UserKind};
use crate::store::pool;
use crate::store::tx::ReadTx;

pub(super) fn look(here: &Installation) -> Vec<Finding> {
    let databases = Databases::of(&here.settings.databases.all, &Machine::ours(&here.clock));
    databases
        .all()
        .map(|database| {
            let checks = inspect::checks(database, guard(here, database.name()));
            summary(database.name(), &checks).into()
        })
        .collect()
}

/// Whether the file has a subscription that writes into the database. A file that is not there or cannot be read has none: another
/// check says so.
fn guard(here: &Installation, name: &str) -> Guard {
    let users = pool::open_reader(&here.database())
        .and_then(|conn| database_users::of(&ReadTx::new(&conn), name));
    let is_writer = |user: &DatabaseUser| user.kind == UserKind::Subscription;
    if users.is_ok_and(|users| users.iter().any(is_writer)) {
        Guard::Needed
    } else {
        Guard::NotNeeded
    }
}

/// The checks of a database in one line: each failed one with its next step, or "nothing to do".
fn summary(name: &str, checks: &[Check]) -> Check {
    let wrong: Vec<String> = checks
        .iter()
        .filter(|check| check.level != Level::Ok)
        .map(|check| format!("{}: {}", check.name, check.detail))
        .collect();
    let found = if wrong.is_empty() {
        let server = checks.iter().find(|check| check.name == "connection");
        server.map_or_else(String::new, |server| format!("{}, nothing to do", server.detail))
    } else {
        wrong.join("; ")
    };
    Check::new("databases", worst(checks), json!(name), format!("{name}: {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_one_line_with_all_that_is_wrong() {
        let check = |name, level, detail: &str| Check::new(name, level, Value::Null, detail);
        let server = check("connection", Level::Ok, "postgresql 15.1");
        let plain = check("tls", Level::Warn, "not encrypted");
        let guard = check("guard", Level::Fail, "run: GRANT");
        let rows = [
            (vec![server.clone()], Level::Ok, "erp: postgresql 15.1, nothing to do"),
            (vec![server.clone(), plain.clone()], Level::Warn, "erp: tls: not encrypted"),
            (vec![server, plain, guard], Level::Fail, "erp: tls: not encrypted; guard: run: GRANT"),
        ];
        for (checks, level, detail) in rows {
            let found = summary("erp", &checks);
            assert_eq!((found.level, found.detail.as_str()), (level, detail));
        }
    }
}

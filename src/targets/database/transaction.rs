//! Claims and effects in one transaction: they are there together or not at all.

use crate::databases::connection::{Connection, Error, Row, Statement};
use crate::model::database_product::Product;
use crate::targets::database::store;

/// What a delivery does in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) group: String,
    pub(super) webhook_id: String,
    pub(super) effect: Statement,
}

/// What it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The effect changed so many rows, if the database says how many.
    Now(Option<u64>),
    /// Nothing: the id was claimed before.
    Before,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    /// A test leaves nothing.
    RollBack,
}

/// Does all of it in one transaction, or nothing. After an error at the commit nobody knows: the next attempt meets the
/// claim, or finds none.
pub(super) fn run(
    connection: &mut dyn Connection,
    product: Product,
    works: &[&Work],
    end: End,
) -> Result<Vec<Done>, Error> {
    connection.begin()?;
    match effects(connection, product, works) {
        Ok(done) => {
            let ended = match end {
                End::Commit => connection.commit(),
                End::RollBack => connection.roll_back(),
            };
            ended.inspect_err(|error| undo(connection, error))?;
            Ok(done)
        }
        Err(error) => {
            undo(connection, &error);
            Err(error)
        }
    }
}

/// Rolls back after an error. What cannot be rolled back is a connection that is lost, which the next use of it says.
fn undo(connection: &mut dyn Connection, error: &Error) {
    if !matches!(error, Error::Lost(_)) {
        drop(connection.roll_back());
    }
}

fn effects(
    connection: &mut dyn Connection,
    product: Product,
    works: &[&Work],
) -> Result<Vec<Done>, Error> {
    let mut all = Vec::with_capacity(works.len());
    let mut transaction = None;
    for work in works {
        let claim = store::claim(product, &work.group, &work.webhook_id);
        if !store::is_first(product, connection.run(&claim))? {
            all.push(Done::Before);
            continue;
        }
        let before = match transaction.take() {
            Some(number) => number,
            None => number(connection, product)?,
        };
        all.push(Done::Now(connection.run(&work.effect)?));
        let after = number(connection, product)?;
        if before != after {
            return Err(store::transaction_ended());
        }
        transaction = Some(after);
    }
    Ok(all)
}

/// The number of the transaction; nothing where no statement can end it unnoticed.
fn number(connection: &mut dyn Connection, product: Product) -> Result<Vec<Row>, Error> {
    match store::transaction_number(product) {
        Some(asked) => connection.rows(&asked, 1),
        None => Ok(Vec::new()),
    }
}

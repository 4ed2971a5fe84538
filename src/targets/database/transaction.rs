//! Claims and effects in one transaction: they are there together or not at all.

use crate::databases::connection::{Connection, Error, Statement};
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
            match end {
                End::Commit => connection.commit()?,
                End::RollBack => connection.roll_back()?,
            }
            Ok(done)
        }
        Err(error) => {
            if !matches!(error, Error::Lost(_)) {
                // What cannot be rolled back is a connection that is lost, which the next use of it says.
                drop(connection.roll_back());
            }
            Err(error)
        }
    }
}

fn effects(
    connection: &mut dyn Connection,
    product: Product,
    works: &[&Work],
) -> Result<Vec<Done>, Error> {
    let mut all = Vec::with_capacity(works.len());
    for work in works {
        let claim = store::claim(product, &work.group, &work.webhook_id);
        let is_first = store::is_first(product, connection.run(&claim))?;
        all.push(if is_first { Done::Now(connection.run(&work.effect)?) } else { Done::Before });
    }
    Ok(all)
}

//! What follows for a source when its database refuses something or is away.

use crate::databases::connection::Error;
use crate::databases::failure::{Class, judge};
use crate::databases::product::Product;
use crate::sources::shared::SourceError;

/// The error of a source.
pub(in crate::sources) fn of(product: Product, error: &Error) -> SourceError {
    let failure = judge(product, error);
    match failure.class {
        Class::Away | Class::Again => SourceError::away(failure.words),
        Class::AuthHold => SourceError::lasting(format!(
            "{}. `oncebox source test` prints the missing grants",
            failure.words
        )),
        Class::SchemaHold | Class::Refused | Class::Unknown => SourceError::lasting(failure.words),
    }
}

/// Why the database does not give us a row, if the cause is the row alone.
pub(in crate::sources) fn refused_row(product: Product, error: &Error) -> Option<String> {
    let failure = judge(product, error);
    (failure.class == Class::Refused).then_some(failure.words)
}

/// Whether a right is missing; any other error is the source's.
pub(in crate::sources) fn denied(product: Product, error: &Error) -> Result<(), SourceError> {
    match judge(product, error).class {
        Class::AuthHold => Ok(()),
        _ => Err(of(product, error)),
    }
}

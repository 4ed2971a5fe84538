//! `oncebox openapi`: the description of the API, without a service.

use crate::api::openapi;
use crate::cli::{Failure, out};

/// Prints the document.
pub(super) fn print() -> Result<(), Failure> {
    out::line(format_args!("{:#}", openapi::document()))
}

//! A request, as a scheme looks at it.

use crate::base::headers::Headers;

/// A request as it came in, as far as its signature may cover it.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path with its query, as the request line has it.
    pub path: &'a str,
    /// The URL at which the provider knows us, with path and query. Behind a proxy it is configured.
    pub url: &'a str,
    /// All header fields.
    pub headers: &'a Headers,
    /// The body, not a byte changed.
    pub body: &'a [u8],
}

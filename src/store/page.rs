//! Which part of a long list is asked for.

use crate::clock::Timestamp;

/// Rows of a tenant, newest first: at most `limit` below the number `before`.
#[derive(Clone, Copy, Debug)]
pub struct Newest<'a> {
    /// Whose.
    pub tenant: &'a str,
    /// Numbers below this.
    pub before: i64,
    /// So many at most.
    pub limit: u32,
}

/// A stretch of time. Absent means open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// At or after.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
}

//! A tenant: whose rows these are. Nothing crosses from one to another.

#[cfg(feature = "service")]
use crate::base::clock::Timestamp;
#[cfg(feature = "service")]
use crate::model::name::Name;
#[cfg(feature = "service")]
use crate::model::pii::Pii;

/// The tenant of everything where nobody asked for tenants. It is always there and cannot be suspended;
/// its admin tokens administer the box.
pub const DEFAULT: &str = "default";
/// Characters of a title at most.
pub const MAX_TITLE_CHARS: usize = 200;

/// A tenant as kept.
#[cfg(feature = "service")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its number in the file.
    pub seq: i64,
    /// What every row of it carries; it never changes.
    pub name: Name,
    /// What a person calls it.
    pub title: String,
    /// What happens to personal data in events that are published.
    pub pii: Pii,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when its tokens and its intake are refused and its deliveries wait.
    pub suspended_at: Option<Timestamp>,
}

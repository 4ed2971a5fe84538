//! A tenant: whose rows these are. Nothing crosses from one to another.

/// The tenant of everything where nobody asked for tenants. It is always there and cannot be suspended;
/// its admin tokens administer the box.
pub const DEFAULT: &str = "default";
/// Characters of a title at most.
pub const MAX_TITLE_CHARS: usize = 200;

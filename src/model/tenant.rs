//! A tenant: the owner of rows. Tenants share no data.

/// The tenant that is used if no other is named. It always exists and cannot be suspended. Its admin tokens administer
/// the whole installation.
pub const DEFAULT: &str = "default";
/// The longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

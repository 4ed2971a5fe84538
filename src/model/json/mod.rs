//! JSON as it was written: positions in a body, values in memory, and numbers by their digits.
//!
//! Every part that looks into payloads reads them here, so that all of them agree on what is JSON and what it says: texts
//! and numbers stay as they were written, half a character reads as U+FFFD, and an object knows whether a name is in it
//! twice.

pub mod carried;
pub mod cursor;
pub mod number;
pub mod value;

#[cfg(feature = "service")]
pub use cursor::{Cursor, JsonKind, quoted, unescaped};
pub use cursor::{MAX_DEPTH, is_shallow};
#[cfg(feature = "service")]
pub use number::Decimal;
#[cfg(feature = "service")]
pub use value::{Json, Members, Unreadable};

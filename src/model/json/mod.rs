//! JSON as it was written: positions in a body, values in memory, and numbers by their digits.
//!
//! Every part that looks into payloads reads them here, so that all of them agree on what is JSON and what it says: texts
//! and numbers stay as they were written, half a character reads as U+FFFD, and an object knows whether a name is in it
//! twice.

pub mod carried;
pub mod cursor;
pub mod number;
pub mod value;

pub use cursor::{Cursor, Kind, MAX_DEPTH, is_shallow, quoted, unescaped};
pub use number::Decimal;
pub use value::{Json, Members, Unreadable};

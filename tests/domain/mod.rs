//! The domain's decisions against tables, other people's libraries, and properties.
//!
//! Not here: what one function does with one input, which stands beside the function.

mod addresses;
mod chains;
mod examined_rows;
mod lanes;
mod policies;
mod retries;
mod signatures;

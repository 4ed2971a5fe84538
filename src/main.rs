//! The `oncebox` program: see `oncebox --help`.

fn main() {}

//! The `oncebox` program: see `oncebox --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    oncebox::run()
}

//! `oncebox demo --databases`: an ERP on PostgreSQL writes invoices, Oncebox reads its outbox and books each of them in an
//! ERP on `MariaDB`, and all of them are killed again and again. Then the tables of both ERPs are compared.
//!
//! Read [`run`] first, then `course` (one run), `servers` (the two databases) and `erp` (the program that writes).

mod course;
mod erp;
mod machine;
mod plan;
mod servers;
mod service;
mod store;

use std::fs::DirBuilder;
use std::path::Path;

use crate::base::clock::Clock;
use crate::base::id::{Draw, SystemDraw};
use crate::demo::DemoDirectory;
use crate::demo::databases::course::Course;
use crate::demo::databases::machine::Machine;
use crate::demo::progress::say;
use crate::demo::site::Error;
use crate::sys::host;

/// The settings of the demo with databases.
#[derive(Clone, Copy, Debug)]
pub struct DatabasesOptions {
    /// Invoices that the first ERP writes.
    pub invoices: u32,
    /// Seed of the kills; `None`: random.
    pub seed: Option<u32>,
    /// Whether to keep the directory after a success.
    pub keep: bool,
}

/// Runs the demo and prints its progress. Where the machine lacks a program, says which, and ends well.
pub fn run(options: DatabasesOptions) -> Result<(), Error> {
    let machine = match Machine::look() {
        Ok(machine) => machine,
        Err(lacks) => {
            say(&format!("skipped: {lacks}"));
            return Ok(());
        }
    };
    let seed = options
        .seed
        .unwrap_or_else(|| u32::try_from(SystemDraw::new().below(100_000)).unwrap_or(0));
    let interrupted = host::stop_flag().map_err(Error::about("signal handlers"))?;
    let name = format!("oncebox-demo-{seed}-{}", std::process::id());
    let mut directory = DemoDirectory { dir: std::env::temp_dir().join(name), keep: true };
    DirBuilder::new().create(&directory.dir).map_err(Error::file(&directory.dir))?;
    introduce(&options, seed, &directory.dir);
    let clock = Clock::machine();
    let course = Course {
        invoices: options.invoices,
        seed,
        machine: &machine,
        interrupted: &interrupted,
        clock: &clock,
    };
    let counted = course.run(&directory.dir);
    if matches!(counted, Err(Error::Interrupted)) {
        // After any other failure the directory is kept, to be examined.
        directory.keep = options.keep;
    }
    let counted = counted?;
    say(&counted.verdict());
    if let Some(problem) = counted.problem() {
        let kept = directory.dir.display();
        return Err(Error::Failed(format!("{problem}\nThe databases and logs are in {kept}")));
    }
    directory.keep = options.keep;
    if options.keep {
        say(&format!("databases and logs: {}", directory.dir.display()));
    }
    Ok(())
}

fn introduce(options: &DatabasesOptions, seed: u32, dir: &Path) {
    say(&format!(
        "An ERP on PostgreSQL writes {} invoices; Oncebox reads its outbox, and books each in an ERP on MariaDB.",
        options.invoices
    ));
    say("  the ERP    writes invoice and event in one transaction: the printed trigger does it");
    say(
        "  Oncebox    marks a row once it is on its disk; guard and booking are one transaction of MariaDB",
    );
    say(
        "  kill -9    of PostgreSQL, MariaDB, Oncebox, and the programs that hold its connections, in turns",
    );
    say(&format!("  seed       {seed}"));
    say(&format!("  directory  {}", dir.display()));
}

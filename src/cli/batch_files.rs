//! `oncebox batch-files`: makes a file per batch of the files that a subscription writes.
//!
//! Works without the service. Not here: how a batch survives a kill (`targets::file_batch`).

use std::path::PathBuf;

use clap::value_parser;

use crate::cli::prelude::*;
use crate::targets::file_batch::{self, Error, FinishedBatch, Layout};

/// Join the files that a subscription wrote into larger files, each event exactly once
#[derive(Debug, Args)]
#[command(
    after_help = "The lines are the files of LINES in the order of their names. The file is named after the first one.\n\
    Lines that stand in a file are in LINES/done; keep them as long as events may be replayed. A run that\n\
    was killed is finished by the next one. Run it by a timer: see docs/files.md."
)]
pub(super) struct BatchFiles {
    /// Folder into which a subscription writes
    lines: PathBuf,
    /// Folder for the batches
    into: PathBuf,
    /// Lines of a file at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u16).range(1..=10_000))]
    max: u16,
    /// Text before the lines, such as names of columns
    #[arg(long, value_name = "TEXT")]
    first_line: Option<String>,
    /// Text at the end of each line but the last one, such as a comma
    #[arg(long, value_name = "TEXT", default_value = "")]
    between: String,
    /// Text after the lines
    #[arg(long, value_name = "TEXT")]
    last_line: Option<String>,
    #[command(flatten)]
    format: Format,
}

impl BatchFiles {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let layout = Layout {
            first_line: self.first_line.clone(),
            between: self.between.clone(),
            last_line: self.last_line.clone(),
            max: usize::from(self.max),
        };
        let mut batches = Vec::new();
        let run = file_batch::run(&self.lines, &self.into, &layout, |batch| {
            batches.push(batch.clone());
        });
        // Files that were finished before an error are told as well.
        self.tell(&batches)?;
        run.map_err(|error| match error {
            Error::Busy(_) => Failure::temporary(error),
            error => Failure::failed(error),
        })
    }

    fn tell(&self, batches: &[FinishedBatch]) -> Done {
        if self.format.json {
            return out::json(&json!({ "batches": batches }));
        }
        for FinishedBatch { file, lines } in batches {
            let word = if *lines == 1 { "line" } else { "lines" };
            out::line(format_args!("{}: {lines} {word}", file.display()))?;
        }
        Ok(())
    }
}

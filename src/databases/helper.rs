//! A connection through a process of its own: `oncebox-odbc`, which loads the driver.
//!
//! A driver that hangs is killed with its process, a driver that crashes ends its process alone. Each request has a deadline;
//! after it the process is killed, and the connection is lost.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::secret::SecretBytes;
use crate::databases::connection::{Connection, Error, Lost, Row, Statement};
use crate::databases::frame::{self, Answer, Request};
use crate::databases::product::{self, Product};
use crate::sys::dialogue::Dialogue;

/// The name of the program.
pub const PROGRAM: &str = "oncebox-odbc";

/// Added to the environment of the program: drivers take the encoding of texts from the locale.
const LOCALE: [(&str, &str); 1] = [("LC_ALL", "C.UTF-8")];

/// How long is waited for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For a connection.
    pub connect: Duration,
    /// For anything else. The database's own limit for a statement is shorter, so that it speaks first.
    pub answer: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { connect: Duration::from_secs(15), answer: Duration::from_secs(33) }
    }
}

/// All that a connection needs.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program, see [`find`].
    pub program: PathBuf,
    /// Variables that it does not inherit.
    pub without: Vec<OsString>,
    /// What the driver is told, with the password.
    pub connection_string: SecretBytes,
    /// Which kind of database it is.
    pub product: Product,
    /// How long is waited.
    pub deadlines: Deadlines,
    /// Time.
    pub clock: Clock,
}

/// A connection through a process of its own. Dropping it kills the process; the database rolls back.
#[derive(Debug)]
pub struct Helper {
    /// `None` once the connection is lost: a late answer must not be taken for that of another request.
    dialogue: Option<Dialogue>,
    product: Product,
    deadlines: Deadlines,
}

/// The first of these paths at which there is a program.
pub fn find(candidates: impl IntoIterator<Item = PathBuf>) -> Result<PathBuf, Lost> {
    let mut looked_for = Vec::new();
    for candidate in candidates {
        if candidate.is_file() {
            return Ok(candidate);
        }
        looked_for.push(candidate.display().to_string());
    }
    Err(Lost::NoProgram { looked_for: looked_for.join(", ") })
}

/// Where the program may be: beside our own, then in each directory of `PATH`.
pub fn candidates(own: Option<&Path>, path: &str) -> Vec<PathBuf> {
    let beside = own.and_then(Path::parent).map(Path::to_path_buf);
    let folders = beside.into_iter().chain(std::env::split_paths(path));
    folders.map(|folder| folder.join(PROGRAM)).collect()
}

impl Helper {
    /// Starts the program and connects.
    pub fn connect(start: &Start) -> Result<Self, Error> {
        let Start { program, without, connection_string, product, deadlines, clock } = start;
        let dialogue = Dialogue::start(program, without, &LOCALE, clock)
            .map_err(|error| Lost::NotStarted { why: error.to_string() })?;
        let mut helper =
            Self { dialogue: Some(dialogue), product: *product, deadlines: *deadlines };
        let connection_string = connection_string.expose_text().unwrap_or_default().to_owned();
        // The driver is asked to give up first: it knows better why.
        let seconds = deadlines.connect.as_secs().saturating_sub(3).max(1);
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        helper.ask(Request::Connect { connection_string, seconds }, deadlines.connect)?;
        Ok(helper)
    }

    /// The id of its process, while there is one.
    #[cfg(any(test, feature = "internals"))]
    pub fn id(&self) -> Option<u32> {
        self.dialogue.as_ref().map(Dialogue::id)
    }

    /// Whether the connection is lost.
    pub fn is_lost(&self) -> bool {
        self.dialogue.is_none()
    }

    fn ask(&mut self, request: Request, within: Duration) -> Result<Answer, Error> {
        let answered = match &mut self.dialogue {
            Some(dialogue) => exchange(dialogue, &request, within),
            None => Err(Lost::Ended.into()),
        };
        if matches!(answered, Err(Error::Lost(_))) {
            self.dialogue = None;
        }
        match answered? {
            Answer::Refused(refusal) => Err(Error::Refused(refusal)),
            answer => Ok(answer),
        }
    }

    fn done(&mut self, request: Request) -> Result<(), Error> {
        match self.ask(request, self.deadlines.answer)? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl Connection for Helper {
    fn begin(&mut self) -> Result<(), Error> {
        let setup = product::setup(self.product).iter().map(ToString::to_string).collect();
        self.done(Request::Begin { setup })
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.done(Request::Commit)
    }

    fn roll_back(&mut self) -> Result<(), Error> {
        self.done(Request::RollBack)
    }

    fn run(&mut self, statement: &Statement) -> Result<Option<u64>, Error> {
        let Statement { sql, parameters } = statement.clone();
        match self.ask(Request::Run { sql, parameters }, self.deadlines.answer)? {
            Answer::Changed(rows) => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    fn rows(&mut self, statement: &Statement, most: usize) -> Result<Vec<Row>, Error> {
        let Statement { sql, parameters } = statement.clone();
        match self.ask(Request::Rows { sql, parameters, most }, self.deadlines.answer)? {
            Answer::Rows(rows) => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }
}

fn exchange(dialogue: &mut Dialogue, request: &Request, within: Duration) -> Result<Answer, Error> {
    dialogue.allow(within);
    frame::write(dialogue, request).map_err(|error| match error.kind() {
        // Refused before anything was sent.
        ErrorKind::FileTooLarge => Error::TooLarge(error.to_string()),
        _ => lost(error, within).into(),
    })?;
    let answer = frame::read(dialogue).map_err(|error| lost(error, within))?;
    Ok(answer.ok_or(Lost::Ended)?)
}

fn unexpected(answer: &Answer) -> Error {
    let kind = match answer {
        Answer::Done => "done",
        Answer::Changed(_) => "a number of rows",
        Answer::Rows(_) => "rows",
        Answer::Refused(_) => "a refusal",
    };
    Lost::OtherVersion { why: format!("it answered with {kind}, which was not asked for") }.into()
}

fn lost(error: io::Error, after: Duration) -> Lost {
    match error.kind() {
        ErrorKind::TimedOut => Lost::Silent { after },
        ErrorKind::InvalidData | ErrorKind::FileTooLarge => {
            Lost::OtherVersion { why: error.to_string() }
        }
        _ => Lost::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_looked_for_beside_our_own_and_then_in_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join(PROGRAM);
        let path = format!("/nowhere:{}", folder.path().display());
        let own = Path::new("/opt/oncebox/oncebox");
        let Lost::NoProgram { looked_for } = find(candidates(Some(own), &path)).unwrap_err() else {
            panic!("it is not there");
        };
        let wanted =
            format!("/opt/oncebox/oncebox-odbc, /nowhere/oncebox-odbc, {}", there.display());
        assert_eq!(looked_for, wanted);
        std::fs::write(&there, "").unwrap();
        assert_eq!(find(candidates(Some(own), &path)).unwrap(), there);
    }
}

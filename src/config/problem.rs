//! Mistakes in settings, and the origins of values.

use std::fmt;
use std::path::{Path, PathBuf};

/// The origin of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    #[default]
    Default,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `file:line:column`, a variable, or a flag.
    pub place: String,
    /// The mistake, and what would be right.
    pub what: String,
}

impl Problem {
    pub(super) fn new(place: impl ToString, what: impl Into<String>) -> Self {
        Self { place: place.to_string(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// All mistakes.
    #[error("{}", lines(.0))]
    Wrong(Vec<Problem>),
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A file's text, to name the positions in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceText<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl SourceText<'_> {
    /// Line and column of a byte offset, both from 1; the column counts characters.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let start = before.rfind('\n').map_or(0, |end| end.saturating_add(1));
        let column = before.get(start..).unwrap_or_default().chars().count();
        (before.matches('\n').count().saturating_add(1), column.saturating_add(1))
    }

    pub(super) fn origin(&self, at: usize) -> Origin {
        Origin::File { path: self.path.to_owned(), line: self.position(at).0 }
    }

    pub(super) fn problem(&self, at: usize, what: impl Into<String>) -> Problem {
        let (line, column) = self.position(at);
        Problem::new(format!("{}:{line}:{column}", self.path.display()), what)
    }
}

/// The known word most similar to an unknown word, if any is similar enough.
pub fn most_similar<S: AsRef<str>>(word: &str, known: impl IntoIterator<Item = S>) -> Option<S> {
    let near = known.into_iter().map(|known| (strsim::osa_distance(word, known.as_ref()), known));
    let (distance, best) = near.min_by_key(|(distance, _)| *distance)?;
    let most = word.chars().count().max(best.as_ref().chars().count()).div_ceil(3);
    (distance <= most).then_some(best)
}

/// The end of a sentence that suggests the most similar known word.
pub(super) fn did_you_mean<S: AsRef<str>>(
    word: &str,
    known: impl IntoIterator<Item = S>,
) -> String {
    most_similar(word, known)
        .map(|best| format!("; did you mean {}?", best.as_ref()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found_and_nothing_far_off() {
        let known = ["listen", "delivery", "limits", "disk"];
        assert_eq!(most_similar("listne", known), Some("listen"));
        assert_eq!(most_similar("delivry", known), Some("delivery"));
        assert_eq!(most_similar("limit", known), Some("limits"));
        assert_eq!(most_similar("kafka", known), None);
    }
}

//! Paths to values in a JSON body: the part of `JSONPath` (RFC 9535) without filters, slices, unions and negative
//! indexes. An error names the position of an unsupported part.
//!
//! A path is matched while a body is read. The reader keeps one [`MatchState`] per path and level; [`Path::step`] gives
//! the next one at each step down. Not here: reading the body ([`crate::model::json`]).

use crate::base::words::as_text;

/// The longest text of a path, in bytes.
const MAX_TEXT_BYTES: usize = 512;
/// Most steps of a path. [`MatchState`] has a bit for each, and one for the end.
const MAX_STEPS: usize = 60;

/// Why a text is not a path, and at which character (counted from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path {text:?} is wrong at character {at}: {why}")]
pub struct PathError {
    /// The text.
    pub text: String,
    /// Where.
    pub at: usize,
    /// What is wrong there, and what would be right.
    pub why: &'static str,
}

/// One step from a value down to one in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// To the member with this name.
    Name(&'a str),
    /// To the element at this index, from 0.
    Index(usize),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Name(String),
    Index(usize),
    Any,
    /// `..name`: the member with that name, here or anywhere below.
    Below(String),
}

/// A path: `$`, then `.name`, `['name']`, `[n]`, `[*]`, `.*` or `..name`, any number of them.
///
/// ```
/// use oncebox::model::json_path::{MatchState, Path, Step};
/// let path = Path::parse("$.items[*]..iban")?;
/// let state = MatchState::START;
/// let state = path.step(state, Step::Name("items"));
/// let state = path.step(state, Step::Index(3));
/// let state = path.step(state, Step::Name("bank"));
/// assert!(!path.is_at(state) && path.is_at(path.step(state, Step::Name("iban"))));
/// # Ok::<(), oncebox::model::json_path::PathError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    text: String,
    steps: Vec<PathStep>,
}

/// Where a reader is in a path. Bit n is set if the first n steps lead to the current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchState(u64);

impl MatchState {
    /// The state at the whole body.
    pub const START: Self = Self(1);

    /// The path matches neither here nor below.
    pub const DEAD: Self = Self(0);

    /// Whether the path matches neither here nor below.
    pub const fn is_dead(self) -> bool {
        self.0 == 0
    }
}

impl Path {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut reader = Reader { text, left: text.char_indices().peekable() };
        if text.len() > MAX_TEXT_BYTES {
            return Err(reader.error("a path has at most 512 bytes"));
        }
        if !reader.eats('$') {
            return Err(reader.error("a path begins with $, the whole body"));
        }
        let mut steps = Vec::new();
        while reader.left.peek().is_some() {
            if steps.len() == MAX_STEPS {
                return Err(reader.error("a path has at most 60 steps"));
            }
            steps.push(reader.step()?);
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// The state one step further down.
    #[must_use]
    pub fn step(&self, from: MatchState, step: Step<'_>) -> MatchState {
        if from.is_dead() {
            return from;
        }
        let mut to = 0;
        for (n, wanted) in self.steps.iter().enumerate() {
            let here = 1_u64 << n;
            if from.0 & here == 0 {
                continue;
            }
            let matches = match (wanted, step) {
                (PathStep::Any, _) => true,
                (PathStep::Name(wanted) | PathStep::Below(wanted), Step::Name(name)) => {
                    wanted == name
                }
                (PathStep::Index(wanted), Step::Index(index)) => *wanted == index,
                _ => false,
            };
            if matches {
                to |= here << 1;
            }
            if matches!(wanted, PathStep::Below(_)) {
                to |= here;
            }
        }
        MatchState(to)
    }

    /// Whether the path leads to this value.
    pub fn is_at(&self, state: MatchState) -> bool {
        state.0 & (1_u64 << self.steps.len()) != 0
    }
}

struct Reader<'t> {
    text: &'t str,
    left: std::iter::Peekable<std::str::CharIndices<'t>>,
}

impl Reader<'_> {
    /// An error at the current position.
    fn error(&mut self, why: &'static str) -> PathError {
        let end = self.text.len();
        let at = self.left.peek().map_or(end, |(at, _)| *at);
        let before = self.text.char_indices().take_while(|(start, _)| *start < at).count();
        PathError { text: self.text.to_owned(), at: before.saturating_add(1), why }
    }

    fn eats(&mut self, wanted: char) -> bool {
        self.left.next_if(|(_, found)| *found == wanted).is_some()
    }

    fn step(&mut self) -> Result<PathStep, PathError> {
        if self.eats('.') {
            if self.eats('.') {
                return self
                    .name("after .. a name is expected; ..* and ..[ are not supported")
                    .map(PathStep::Below);
            }
            if self.eats('*') {
                return Ok(PathStep::Any);
            }
            return self
                .name("after . a name or * is expected; write other names as ['name']")
                .map(PathStep::Name);
        }
        if !self.eats('[') {
            return Err(self.error("a step begins with . or ["));
        }
        let step = match self.left.peek() {
            Some((_, '*')) => {
                self.left.next();
                PathStep::Any
            }
            Some((_, quote @ ('\'' | '"'))) => {
                let quote = *quote;
                self.left.next();
                PathStep::Name(self.quoted(quote)?)
            }
            _ => PathStep::Index(self.index()?),
        };
        if !self.eats(']') {
            return Err(
                self.error("a ] is expected; slices, lists and conditions are not supported")
            );
        }
        Ok(step)
    }

    fn name(&mut self, why: &'static str) -> Result<String, PathError> {
        let fits = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let mut name = String::new();
        while let Some((_, next)) = self.left.next_if(|(_, c)| fits(*c)) {
            name.push(next);
        }
        if name.is_empty() { Err(self.error(why)) } else { Ok(name) }
    }

    fn quoted(&mut self, quote: char) -> Result<String, PathError> {
        let mut name = String::new();
        loop {
            match self.left.next() {
                None => return Err(self.error("the name's quote is not closed")),
                Some((_, end)) if end == quote => return Ok(name),
                Some((_, '\\')) => match self.left.next_if(|(_, c)| matches!(c, '\\' | '\'' | '"'))
                {
                    Some((_, escaped)) => name.push(escaped),
                    None => return Err(self.error("after \\ a quote or another \\ is expected")),
                },
                Some((_, plain)) => name.push(plain),
            }
        }
    }

    fn index(&mut self) -> Result<usize, PathError> {
        let mut digits = String::new();
        while let Some((_, digit)) = self.left.next_if(|(_, c)| c.is_ascii_digit()) {
            digits.push(digit);
        }
        let why = "in [] an index from 0, * or a 'name' is expected; negative indexes and conditions are not \
                   supported";
        digits.parse().map_err(|_not_a_number| self.error(why))
    }
}

crate::base::schema::described!(
    Path,
    schemars::json_schema!({
        "type": "string", "minLength": 1, "maxLength": 512
    })
);

as_text!(Path, text);

#[cfg(test)]
mod tests {
    use super::*;

    fn is_at(path: &str, steps: &[Step<'_>]) -> bool {
        let path = Path::parse(path).unwrap();
        let state = steps.iter().fold(MatchState::START, |state, step| path.step(state, *step));
        path.is_at(state)
    }

    #[test]
    fn a_path_matches_what_it_names() {
        use Step::{Index, Name};
        let ab = [Name("a"), Name("b")];
        for (path, steps, meant) in [
            ("$", &ab[..0], true),
            ("$", &[Name("a")], false),
            ("$.a.b", &ab, true),
            ("$['a'][\"b\"]", &ab, true),
            ("$.a.*", &ab, true),
            ("$.*.b", &ab, true),
            ("$.a", &ab, false),
            ("$..b", &ab, true),
            ("$..a", &ab, false),
            ("$..a..b", &[Name("x"), Name("a"), Index(1), Name("b"), Name("b")], true),
            ("$.a[*].b", &[Name("a"), Index(9), Name("b")], true),
            ("$.a[9]", &[Name("a"), Index(9)], true),
            ("$.a[9]", &[Name("a"), Name("9")], false),
            ("$['it\\'s']", &[Name("it's")], true),
            ("$.größe", &[Name("größe")], true),
        ] {
            assert_eq!(is_at(path, steps), meant, "{path} {steps:?}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_position() {
        for (path, at) in [
            ("", 1),
            ("a.b", 1),
            ("$.", 3),
            ("$.a b", 4),
            ("$..*", 4),
            ("$..[0]", 4),
            ("$.a[-1]", 5),
            ("$.a[1:2]", 6),
            ("$.a[?(@.b)]", 5),
            ("$.a['b", 7),
            ("$.ä[1,2]", 6),
            ("$a", 2),
        ] {
            let error = Path::parse(path).unwrap_err();
            assert_eq!(error.at, at, "{error}");
        }
        assert!(Path::parse(&format!("${}", ".a".repeat(61))).is_err());
        assert!(Path::parse(&format!("$.{}", "a".repeat(600))).is_err());
    }
}

//! Places in a JSON body, by the part of `JSONPath` (RFC 9535) that names places and computes nothing.
//!
//! A path is followed while a body is read: the reader keeps one [`Reached`] per path and level, and tells it
//! each step down. Not here: filters, slices, unions and negative places, which are refused with where they
//! stand; and reading the body ([`crate::model::json`]).

use std::fmt;

/// How long a path's text may be, in bytes.
const MAX_TEXT_BYTES: usize = 512;
/// Steps of a path at most: one bit each, and one for the end.
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
    /// To the member of this name.
    Name(&'a str),
    /// To the element at this place, from 0.
    Place(usize),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Name(String),
    Place(usize),
    Any,
    /// `..name`: the member of that name here, or anywhere below.
    Below(String),
}

/// A path: `$`, then `.name`, `['name']`, `[n]`, `[*]`, `.*` or `..name`, as many as wanted.
///
/// ```
/// use oncebox::model::json_path::{Path, Step};
/// let path = Path::parse("$.items[*]..iban")?;
/// let reached = path.start();
/// let reached = path.step(reached, Step::Name("items"));
/// let reached = path.step(reached, Step::Place(3));
/// let reached = path.step(reached, Step::Name("bank"));
/// assert!(!path.is_at(reached) && path.is_at(path.step(reached, Step::Name("iban"))));
/// # Ok::<(), oncebox::model::json_path::PathError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path {
    text: String,
    steps: Vec<Wanted>,
}

/// How much of a path leads to where a reader is: one bit for each number of steps done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached(u64);

impl Reached {
    /// At no place that a path could lead on from.
    pub const LOST: Self = Self(0);

    /// Whether no place below can be meant any more.
    pub const fn is_lost(self) -> bool {
        self.0 == 0
    }
}

impl Path {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut reader = Reader { text, left: text.char_indices().peekable() };
        if text.len() > MAX_TEXT_BYTES {
            return Err(reader.wrong("a path has at most 512 bytes"));
        }
        if !reader.eats('$') {
            return Err(reader.wrong("a path begins with $, the whole body"));
        }
        let mut steps = Vec::new();
        while reader.left.peek().is_some() {
            if steps.len() == MAX_STEPS {
                return Err(reader.wrong("a path has at most 60 steps"));
            }
            steps.push(reader.step()?);
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// At the whole body.
    pub const fn start(&self) -> Reached {
        Reached(1)
    }

    /// One step further down.
    #[must_use]
    pub fn step(&self, from: Reached, step: Step<'_>) -> Reached {
        if from.is_lost() {
            return from;
        }
        let mut to = 0;
        for (n, wanted) in self.steps.iter().enumerate() {
            let here = 1_u64 << n;
            if from.0 & here == 0 {
                continue;
            }
            let goes_on = match (wanted, step) {
                (Wanted::Any, _) => true,
                (Wanted::Name(wanted) | Wanted::Below(wanted), Step::Name(name)) => wanted == name,
                (Wanted::Place(wanted), Step::Place(place)) => *wanted == place,
                _ => false,
            };
            if goes_on {
                to |= here << 1;
            }
            if matches!(wanted, Wanted::Below(_)) {
                to |= here;
            }
        }
        Reached(to)
    }

    /// Whether that is a place the path means.
    pub fn is_at(&self, reached: Reached) -> bool {
        reached.0 & (1_u64 << self.steps.len()) != 0
    }
}

struct Reader<'t> {
    text: &'t str,
    left: std::iter::Peekable<std::str::CharIndices<'t>>,
}

impl Reader<'_> {
    /// Here.
    fn wrong(&mut self, why: &'static str) -> PathError {
        let end = self.text.len();
        let at = self.left.peek().map_or(end, |(at, _)| *at);
        let before = self.text.char_indices().take_while(|(start, _)| *start < at).count();
        PathError { text: self.text.to_owned(), at: before.saturating_add(1), why }
    }

    fn eats(&mut self, wanted: char) -> bool {
        self.left.next_if(|(_, found)| *found == wanted).is_some()
    }

    fn step(&mut self) -> Result<Wanted, PathError> {
        if self.eats('.') {
            if self.eats('.') {
                return self
                    .name("after .. comes a name; ..* and ..[ are not known here")
                    .map(Wanted::Below);
            }
            if self.eats('*') {
                return Ok(Wanted::Any);
            }
            return self
                .name("after . comes a name, or *; other names are written ['so']")
                .map(Wanted::Name);
        }
        if !self.eats('[') {
            return Err(self.wrong("a step begins with . or ["));
        }
        let step = match self.left.peek() {
            Some((_, '*')) => {
                self.left.next();
                Wanted::Any
            }
            Some((_, quote @ ('\'' | '"'))) => {
                let quote = *quote;
                self.left.next();
                Wanted::Name(self.quoted(quote)?)
            }
            _ => Wanted::Place(self.place()?),
        };
        if !self.eats(']') {
            return Err(self.wrong("here comes ]: slices, lists and conditions are not known here"));
        }
        Ok(step)
    }

    fn name(&mut self, why: &'static str) -> Result<String, PathError> {
        let fits = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let mut name = String::new();
        while let Some((_, next)) = self.left.next_if(|(_, c)| fits(*c)) {
            name.push(next);
        }
        if name.is_empty() { Err(self.wrong(why)) } else { Ok(name) }
    }

    fn quoted(&mut self, quote: char) -> Result<String, PathError> {
        let mut name = String::new();
        loop {
            match self.left.next() {
                None => return Err(self.wrong("the name's quote is not closed")),
                Some((_, end)) if end == quote => return Ok(name),
                Some((_, '\\')) => match self.left.next_if(|(_, c)| matches!(c, '\\' | '\'' | '"'))
                {
                    Some((_, escaped)) => name.push(escaped),
                    None => return Err(self.wrong("after \\ comes a quote or another \\")),
                },
                Some((_, plain)) => name.push(plain),
            }
        }
    }

    fn place(&mut self) -> Result<usize, PathError> {
        let mut digits = String::new();
        while let Some((_, digit)) = self.left.next_if(|(_, c)| c.is_ascii_digit()) {
            digits.push(digit);
        }
        let why = "in [] stands a place from 0, * or a 'name'; places from the end and conditions are not \
                   known here";
        digits.parse().map_err(|_not_a_place| self.wrong(why))
    }
}

impl TryFrom<String> for Path {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(&text)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.text
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_at(path: &str, steps: &[Step<'_>]) -> bool {
        let path = Path::parse(path).unwrap();
        let reached = steps.iter().fold(path.start(), |reached, step| path.step(reached, *step));
        path.is_at(reached)
    }

    #[test]
    fn a_path_means_what_it_names() {
        use Step::{Name, Place};
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
            ("$..a..b", &[Name("x"), Name("a"), Place(1), Name("b"), Name("b")], true),
            ("$.a[*].b", &[Name("a"), Place(9), Name("b")], true),
            ("$.a[9]", &[Name("a"), Place(9)], true),
            ("$.a[9]", &[Name("a"), Name("9")], false),
            ("$['it\\'s']", &[Name("it's")], true),
            ("$.größe", &[Name("größe")], true),
        ] {
            assert_eq!(is_at(path, steps), meant, "{path} {steps:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_place() {
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

//! Paths to values in a JSON body: the part of `JSONPath` (RFC 9535) without filters, slices, unions and negative
//! indexes. An error names the position of an unsupported part, and of what the RFC does not allow.
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

/// One step from a value down to a member or an element.
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
    /// What the RFC does not allow in it, the first of such places.
    lapse: Option<PathError>,
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
    /// Reads a path that somebody gives.
    /// Fails where a part is not supported, or the RFC does not allow it.
    pub fn checked(text: &str) -> Result<Self, PathError> {
        Self::parse(text)?.into_strict()
    }

    /// The path, if the RFC allows all of it.
    pub fn into_strict(self) -> Result<Self, PathError> {
        self.lapse.clone().map_or(Ok(self), Err)
    }

    /// Reads a path, also one that was stored by a version which allowed a little more than the RFC.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut reader = Reader { text, left: text.char_indices().peekable(), lapse: None };
        if text.len() > MAX_TEXT_BYTES {
            return Err(reader.error("a path has at most 512 bytes"));
        }
        if !reader.eats('$') {
            return Err(reader.error("a path begins with $, the whole body"));
        }
        let mut steps = Vec::new();
        while reader.left.peek().is_some() {
            // White space may stand before a step, and not at the end.
            reader.skip_blanks();
            if steps.len() == MAX_STEPS {
                return Err(reader.error("a path has at most 60 steps"));
            }
            steps.push(reader.step()?);
        }
        Ok(Self { text: text.to_owned(), steps, lapse: reader.lapse })
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
    /// The first place that the RFC does not allow.
    lapse: Option<PathError>,
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
        self.skip_blanks();
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
        self.skip_blanks();
        if !self.eats(']') {
            return Err(
                self.error("a ] is expected; slices, lists and conditions are not supported")
            );
        }
        Ok(step)
    }

    /// Notes that the RFC does not allow what stands here.
    fn lapse(&mut self, why: &'static str) {
        if self.lapse.is_none() {
            self.lapse = Some(self.error(why));
        }
    }

    fn skip_blanks(&mut self) {
        while self.left.next_if(|(_, c)| matches!(c, ' ' | '\t' | '\n' | '\r')).is_some() {}
    }

    /// A name without quotes: letters, digits, `_`, and all that is not ASCII. No digit comes first. With `-` as well, which
    /// many names have and the RFC allows between quotes alone.
    fn name(&mut self, why: &'static str) -> Result<String, PathError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || !c.is_ascii();
        if self.left.peek().is_some_and(|(_, c)| c.is_ascii_digit() || *c == '-') {
            self.lapse("a name that begins with a digit or - is written as ['name']");
        }
        let mut name = String::new();
        while let Some((_, next)) = self.left.next_if(|(_, c)| fits(*c)) {
            name.push(next);
        }
        if name.is_empty() { Err(self.error(why)) } else { Ok(name) }
    }

    fn quoted(&mut self, quote: char) -> Result<String, PathError> {
        let mut name = String::new();
        loop {
            if self.left.peek().is_some_and(|(_, c)| *c < ' ') {
                self.lapse("a control character is written as an escape, like \\n");
            }
            match self.left.next() {
                None => return Err(self.error("the name's quote is not closed")),
                Some((_, end)) if end == quote => return Ok(name),
                Some((_, '\\')) => name.push(self.escaped(quote)?),
                Some((_, plain)) => name.push(plain),
            }
        }
    }

    /// The character of an escape, of which the backslash was read.
    fn escaped(&mut self, quote: char) -> Result<char, PathError> {
        let wrong = "after \\ this quote, \\, /, b, f, n, r, t or u and four hexadecimal digits are expected";
        let known = |c: char| "'\"\\/bfnrtu".contains(c);
        if self.left.peek().is_some_and(|(_, c)| matches!(c, '\'' | '"') && *c != quote) {
            self.lapse(wrong);
        }
        let Some((_, kind)) = self.left.next_if(|(_, c)| known(*c)) else {
            return Err(self.error(wrong));
        };
        Ok(match kind {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.code_point(),
            plain => plain,
        })
    }

    /// The character of `\u` and four digits, or of two of them that are a pair.
    fn code_point(&mut self) -> Result<char, PathError> {
        let wrong = "half a character: \\uD800 to \\uDBFF goes with \\uDC00 to \\uDFFF after it";
        let first = self.code_unit()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first).ok_or_else(|| self.error(wrong));
        }
        if first >= 0xdc00 || !self.eats('\\') || !self.eats('u') {
            return Err(self.error(wrong));
        }
        let second = self.code_unit()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(self.error(wrong));
        }
        let code = 0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff);
        char::from_u32(code).ok_or_else(|| self.error(wrong))
    }

    fn code_unit(&mut self) -> Result<u32, PathError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.left.next_if(|(_, c)| c.is_ascii_hexdigit());
            let digit = digit.and_then(|(_, c)| c.to_digit(16));
            let digit = digit
                .ok_or_else(|| self.error("after \\u four hexadecimal digits are expected"))?;
            unit = unit * 16 + digit;
        }
        Ok(unit)
    }

    fn index(&mut self) -> Result<usize, PathError> {
        let mut digits = String::new();
        while let Some((_, digit)) = self.left.next_if(|(_, c)| c.is_ascii_digit()) {
            digits.push(digit);
        }
        if digits.len() > 1 && digits.starts_with('0') {
            self.lapse("an index has no zeros before it");
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
            ("$.\u{1f600}", &[Name("\u{1f600}")], true),
            ("$[ 'a' ] [\t\"b\"\n]", &ab, true),
            ("$ .a .b", &ab, true),
            ("$[ 9 ]", &[Index(9)], true),
            ("$[ * ].b", &ab, true),
            ("$['\\u0061'].b", &ab, true),
            ("$['\\ud83d\\ude00\\n\\/']", &[Name("\u{1f600}\n/")], true),
            ("$[\"it's\"]", &[Name("it's")], true),
            ("$.order-no", &[Name("order-no")], true),
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
            ("$.a b", 5),
            ("$..*", 4),
            ("$..[0]", 4),
            ("$.a[-1]", 5),
            ("$.a[1:2]", 6),
            ("$.a[?(@.b)]", 5),
            ("$.a['b", 7),
            ("$.ä[1,2]", 6),
            ("$a", 2),
            // What the RFC does not allow.
            ("$.1a", 3),
            ("$.-a", 3),
            ("$.a ", 5),
            ("$. a", 3),
            ("$[01]", 5),
            ("$[-0]", 3),
            ("$['a\\x']", 6),
            ("$['a\\\"']", 6),
            ("$[\"a\\'\"]", 6),
            ("$['\\ud83d']", 10),
            ("$['\\ude00']", 10),
            ("$['\\u12']", 8),
            ("$['a\n']", 5),
            ("$[]", 3),
        ] {
            let error = Path::checked(path).unwrap_err();
            assert_eq!(error.at, at, "{error}");
        }
        // What an older version stored is still read.
        for path in ["$.1a", "$['a\\\"']", "$[01]", "$['a\n']"] {
            assert!(Path::parse(path).is_ok(), "{path}");
        }
        assert!(Path::parse(&format!("${}", ".a".repeat(61))).is_err());
        assert!(Path::parse(&format!("$.{}", "a".repeat(600))).is_err());
    }
}

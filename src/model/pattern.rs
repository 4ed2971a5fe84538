//! Which event types a subscription wants: `invoice.*`, `*`, `order.*.paid`.
//!
//! Not here: conditions on the payload, and which subscriptions exist.

use std::fmt;

use schemars::json_schema;

use crate::base::schema::described;
use crate::base::words::as_text;

/// The longest pattern, in bytes: as long as the longest event type.
const MAX_TEXT_BYTES: usize = 128;
/// Most patterns of a subscription. Each costs a comparison for every event.
const MAX_PATTERNS: usize = 100;

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Too long, or nothing at all.
    #[error("a pattern has 1 to {MAX_TEXT_BYTES} bytes, this one has {0}")]
    Length(usize),
    /// Two dots in a row, or one at the start or end.
    #[error("the pattern `{0}` has an empty segment: a dot at its start or end, or two in a row")]
    EmptySegment(String),
    /// A star next to other characters.
    #[error(
        "in the pattern `{0}` a `*` is next to other characters; it must be a whole segment, as in `invoice.*`"
    )]
    Star(String),
    /// A character that is not allowed in patterns.
    #[error(
        "the pattern `{text}` contains {letter:?}; letters, digits, `_-+:/` and the dot are allowed"
    )]
    Letter {
        /// The pattern.
        text: String,
        /// The first such character.
        letter: char,
    },
    /// More patterns than a subscription may have.
    #[error("a subscription has at most {MAX_PATTERNS} patterns, not {0}; use a `*`")]
    Many(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Exactly(String),
    Any,
}

/// The event types that a pattern can match, as an index of patterns asks.
///
/// ```
/// use oncebox::model::pattern::{Pattern, Reach};
/// assert_eq!(Pattern::parse("invoice.paid")?.reach(), Reach::Type("invoice.paid".to_owned()));
/// assert_eq!(Pattern::parse("invoice.*.line")?.reach(), Reach::FirstSegment("invoice"));
/// assert_eq!(Pattern::parse("*.paid")?.reach(), Reach::AnyType);
/// # Ok::<(), oncebox::model::pattern::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach<'p> {
    /// This type and no other.
    Type(String),
    /// Types with this first segment.
    FirstSegment(&'p str),
    /// Types with any first segment.
    AnyType,
}

/// A pattern over event types, split at dots.
///
/// `*` as the last segment stands for one or more segments, elsewhere for exactly one. Matching is case-sensitive, and
/// linear in the length of the event type.
///
/// ```
/// use oncebox::model::pattern::Pattern;
/// let pattern = Pattern::parse("invoice.*")?;
/// assert!(pattern.matches("invoice.paid") && pattern.matches("invoice.line.added"));
/// assert!(!pattern.matches("invoice") && !pattern.matches("invoices.paid"));
/// assert!(Pattern::parse("a.*.c")?.matches("a.b.c"));
/// # Ok::<(), oncebox::model::pattern::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Segment>);

impl Pattern {
    /// Reads a pattern.
    /// Fails with [`PatternError`], which says what is allowed.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() || text.len() > MAX_TEXT_BYTES {
            return Err(PatternError::Length(text.len()));
        }
        text.split('.')
            .map(|segment| parse_segment(text, segment))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether an event type matches.
    pub fn matches(&self, event_type: &str) -> bool {
        let mut have = event_type.split('.');
        let mut wanted = self.0.iter().peekable();
        while let Some(segment) = wanted.next() {
            let Some(here) = have.next() else { return false };
            match segment {
                Segment::Any if wanted.peek().is_none() => return true,
                Segment::Any => {}
                Segment::Exactly(text) if text == here => {}
                Segment::Exactly(_) => return false,
            }
        }
        have.next().is_none()
    }

    /// The event types that it can match.
    pub fn reach(&self) -> Reach<'_> {
        match self.0.first() {
            Some(Segment::Exactly(_)) if !self.0.contains(&Segment::Any) => {
                Reach::Type(self.to_string())
            }
            Some(Segment::Exactly(first)) => Reach::FirstSegment(first),
            Some(Segment::Any) | None => Reach::AnyType,
        }
    }
}

fn parse_segment(text: &str, segment: &str) -> Result<Segment, PatternError> {
    if segment == "*" {
        return Ok(Segment::Any);
    }
    if segment.is_empty() {
        return Err(PatternError::EmptySegment(text.to_owned()));
    }
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-+:/".contains(letter);
    match segment.chars().find(|letter| !allowed(*letter)) {
        None => Ok(Segment::Exactly(segment.to_owned())),
        Some('*') => Err(PatternError::Star(text.to_owned())),
        Some(letter) => Err(PatternError::Letter { text: text.to_owned(), letter }),
    }
}

as_text!(Pattern);

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "." })?;
            f.write_str(match segment {
                Segment::Exactly(text) => text,
                Segment::Any => "*",
            })?;
        }
        Ok(())
    }
}

/// All patterns of a subscription. An empty list matches nothing.
///
/// *Shape*: `["invoice.*","order.created"]`.
#[derive(
    Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "Vec<Pattern>", into = "Vec<Pattern>")]
#[schemars(with = "Vec<Pattern>", inline)]
pub struct Patterns(Vec<Pattern>);

/// The pattern `*`, which matches each type.
impl Default for Patterns {
    fn default() -> Self {
        Self(vec![Pattern(vec![Segment::Any])])
    }
}

impl Patterns {
    /// Reads a list of patterns.
    /// Fails with [`PatternError`] of the first invalid pattern, or [`PatternError::Many`].
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, PatternError> {
        let patterns: Result<Vec<_>, _> =
            texts.iter().map(|text| Pattern::parse(text.as_ref())).collect();
        Self::try_from(patterns?)
    }

    /// Whether any of them matches this event type.
    pub fn matches(&self, event_type: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(event_type))
    }

    /// The event types that each of them can match.
    pub fn reaches(&self) -> impl Iterator<Item = Reach<'_>> {
        self.0.iter().map(Pattern::reach)
    }

    /// Whether any of them matches this event type by name, which means without a star as its first segment.
    pub fn names(&self, event_type: &str) -> bool {
        let is_named = |pattern: &&Pattern| matches!(pattern.0.first(), Some(Segment::Exactly(_)));
        self.0.iter().filter(is_named).any(|pattern| pattern.matches(event_type))
    }
}

described!(
    Pattern,
    json_schema!({ "type": "string", "pattern":
    r"^[A-Za-z0-9_+:/-]+(\.[A-Za-z0-9_+:/-]+|\.\*)*$|^\*(\.([A-Za-z0-9_+:/-]+|\*))*$" })
);

impl TryFrom<Vec<Pattern>> for Patterns {
    type Error = PatternError;

    fn try_from(patterns: Vec<Pattern>) -> Result<Self, PatternError> {
        if patterns.len() > MAX_PATTERNS {
            return Err(PatternError::Many(patterns.len()));
        }
        Ok(Self(patterns))
    }
}

impl From<Patterns> for Vec<Pattern> {
    fn from(patterns: Patterns) -> Self {
        patterns.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_the_table() {
        let table = [
            ("*", "invoice", true),
            ("*", "invoice.paid.late", true),
            ("*", "", true),
            ("invoice.*", "invoice.paid", true),
            ("invoice.*", "invoice.line.added", true),
            ("invoice.*", "invoice", false),
            ("invoice.*", "invoice.", true),
            ("invoice.*", "invoicepaid", false),
            ("a.*.c", "a.b.c", true),
            ("a.*.c", "a.b.b.c", false),
            ("a.*.c", "a.c", false),
            ("*.*", "a", false),
            ("*.*", "a.b.c", true),
            ("*.paid", "invoice.paid", true),
            ("*.paid", "invoice.line.paid", false),
            ("orders/create", "orders/create", true),
            ("orders/create", "orders/created", false),
            ("Invoice", "invoice", false),
            ("a.b", "a.b.c", false),
            ("a.b", "a", false),
        ];
        for (pattern, event_type, wanted) in table {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(event_type), wanted, "{pattern} on {event_type:?}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_refused_with_the_reason() {
        let refuse = |text: &str| Pattern::parse(text).unwrap_err();
        assert_eq!(refuse(""), PatternError::Length(0));
        assert_eq!(refuse(&"a".repeat(129)), PatternError::Length(129));
        assert!(matches!(refuse("invoice."), PatternError::EmptySegment(..)));
        assert!(matches!(refuse("a..b"), PatternError::EmptySegment(..)));
        assert!(matches!(refuse("inv*"), PatternError::Star(..)));
        assert!(matches!(refuse("**"), PatternError::Star(..)));
        assert!(matches!(refuse("a b"), PatternError::Letter { letter: ' ', .. }));
        assert!(matches!(refuse("é"), PatternError::Letter { letter: 'é', .. }));
    }

    #[test]
    fn a_list_matches_if_one_of_it_does() {
        let patterns: Patterns = serde_json::from_str(r#"["invoice.*","order.created"]"#).unwrap();
        assert!(patterns.matches("order.created") && patterns.matches("invoice.paid"));
        assert!(!patterns.matches("order.paid") && Patterns::default().matches("order.paid"));
        assert!(!Patterns::parse::<&str>(&[]).unwrap().matches("order.paid"));
        assert_eq!(serde_json::to_string(&patterns).unwrap(), r#"["invoice.*","order.created"]"#);
        assert_eq!(Patterns::parse(&["*"; 101]), Err(PatternError::Many(101)));
    }
}

//! Applies a policy to a body, which is JSON, a form, or any other text: finds which spans are replaced, and by what.

use std::borrow::Cow;
use std::ops::Range;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::model::json::{Cursor, Kind, MAX_DEPTH, quoted, unescaped, without_mark};
use crate::model::json_path::{MatchState, Path, Step};
use crate::model::sealed::Form;
use crate::privacy::policy::matching::{Edit, Finding, Level, MAX_EDITS, PolicyRun, Verdict, With};
use crate::privacy::policy::rules::{Action, Policy, Refused, RejectOrAllow};

/// The format in which a body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// JSON.
    Json,
    /// Fields of a form.
    Form,
    /// Any other text.
    Text,
    /// Bytes that are not UTF-8.
    Bytes,
}

/// The result of applying a policy to a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The replaced spans, in order and not overlapping; if empty, the body is stored unchanged.
    pub edits: Vec<Edit>,
    /// The subject's name, if a field is sealed and the body names a subject.
    pub subject: Option<String>,
    /// What the rules did, if asked for.
    pub findings: Vec<Finding>,
    /// The format in which the body was read.
    pub shape: Shape,
}

impl Policy {
    /// Applies the policy to a body. `hash` makes the keyed hash of a text; `explain` asks for the findings. Refused
    /// if a rule rejects the body, or if the rules have paths and the body cannot be searched for them.
    pub fn apply(
        &self,
        content_type: &str,
        bytes: &[u8],
        hash: &dyn Fn(&str) -> String,
        explain: bool,
    ) -> Result<Applied, Refused> {
        let shape = shape(content_type, bytes);
        let lacks_paths = matches!(shape, Shape::Text | Shape::Bytes) && self.has_paths();
        // Bytes that are not text cannot be searched at all.
        if (lacks_paths || shape == Shape::Bytes) && self.unreadable == RejectOrAllow::Reject {
            return Err(Refused::Unreadable);
        }
        let mut run =
            PolicyRun { policy: self, hash, edits: Vec::new(), findings: Vec::new(), explain };
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        match (shape, Cursor::of(bytes)) {
            (Shape::Json, Some(cursor)) => apply_to_json(&mut run, cursor)?,
            (Shape::Form, _) => apply_to_form(&mut run, text)?,
            _ => apply_to_text(&mut run, text)?,
        }
        let PolicyRun { edits, findings, .. } = run;
        if edits.len() > MAX_EDITS {
            return Err(Refused::Many { most: MAX_EDITS });
        }
        let seals = edits.iter().any(|edit| matches!(edit.with, With::Seal(_)));
        let subject = self.subject.as_ref().filter(|_| seals);
        let subject = subject.and_then(|path| text_at(path, shape, text));
        Ok(Applied { edits, subject, findings, shape })
    }
}

fn shape(content_type: &str, bytes: &[u8]) -> Shape {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let first = without_mark(bytes).iter().find(|byte| !byte.is_ascii_whitespace());
    let looks = media.ends_with("json") || matches!(first, Some(b'{' | b'[' | b'"'));
    // Before forms: many senders label JSON as a form, because that is the default of their HTTP client.
    if looks && Cursor::of(bytes).is_some() {
        return Shape::Json;
    }
    if media == "application/x-www-form-urlencoded" && std::str::from_utf8(bytes).is_ok() {
        return Shape::Form;
    }
    if std::str::from_utf8(bytes).is_ok() { Shape::Text } else { Shape::Bytes }
}

fn apply_to_json(run: &mut PolicyRun<'_>, cursor: Cursor<'_>) -> Result<(), Refused> {
    let level = run.policy.level();
    let mut walk = Walk { run, cursor, trail: Vec::new() };
    let start = {
        let _first = walk.cursor.peek();
        walk.cursor.at()
    };
    if walk.value(&level)? == Fate::Dropped {
        let end = walk.cursor.at();
        walk.run.edit(start..end, With::Text("null".to_owned()));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Dropped,
}

struct Walk<'d, 'a, 't> {
    run: &'d mut PolicyRun<'a>,
    cursor: Cursor<'t>,
    /// The path of the current value, for people.
    trail: Vec<PathStep<'t>>,
}

enum PathStep<'t> {
    Name(Cow<'t, str>),
    Index(usize),
}

fn shown(trail: &[PathStep<'_>]) -> String {
    let plain = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let steps = trail.iter().map(|step| match step {
        PathStep::Index(index) => format!("[{index}]"),
        PathStep::Name(name) if !name.is_empty() && plain(name) => format!(".{name}"),
        PathStep::Name(name) => format!("[{}]", quoted(name)),
    });
    format!("${}", steps.collect::<String>())
}

impl Walk<'_, '_, '_> {
    /// Applies the policy to a value and everything in it.
    fn value(&mut self, level: &Level) -> Result<Fate, Refused> {
        let kind = self.cursor.kind();
        let Some(level) = self.run.policy.arrive(level) else {
            self.cursor.value();
            return Ok(Fate::Kept);
        };
        let container = matches!(kind, Kind::Object | Kind::Array);
        if let Some(rule) = level.acting
            && !(container && self.run.policy.may_except_below(&level))
        {
            return self.named(rule, kind);
        }
        if container && level.depth >= MAX_DEPTH {
            return Err(Refused::Unreadable);
        }
        match kind {
            Kind::Object => self.object(&level),
            Kind::Array => self.array(&level),
            Kind::Text => self.text(&level),
            Kind::Plain => {
                self.cursor.value();
                Ok(Fate::Kept)
            }
        }
    }

    /// Applies a rule to a whole value that its path names.
    fn named(&mut self, rule: usize, kind: Kind) -> Result<Fate, Refused> {
        let span = self.cursor.value();
        let raw = self.cursor.text(&span);
        let action = self.run.action(rule);
        // `null` is not personal data.
        if raw == "null" && action != Action::Drop {
            return Ok(Fate::Kept);
        }
        let text = match (kind, action) {
            (Kind::Text, _) => unescaped(raw).ok_or(Refused::Unreadable)?,
            (Kind::Object | Kind::Array, Action::Mask) => Cow::Borrowed(""),
            _ => Cow::Borrowed(raw),
        };
        let trail = &self.trail;
        let verdict = self.run.named(rule, &text, || shown(trail))?;
        Ok(self.carry_out(verdict, span))
    }

    fn carry_out(&mut self, verdict: Verdict, span: Range<usize>) -> Fate {
        match verdict {
            Verdict::Drop => return Fate::Dropped,
            Verdict::Seal => self.run.edit(span, With::Seal(Form::Value)),
            Verdict::Text(text) => self.run.edit(span, With::Text(quoted(&text))),
        }
        Fate::Kept
    }

    fn text(&mut self, level: &Level) -> Result<Fate, Refused> {
        let span = self.cursor.value();
        let text = unescaped(self.cursor.text(&span)).ok_or(Refused::Unreadable)?;
        let trail = &self.trail;
        match self.run.detected(&text, level, || shown(trail))? {
            Some(verdict) => Ok(self.carry_out(verdict, span)),
            None => Ok(Fate::Kept),
        }
    }

    /// Applies the policy to an object. A dropped member is removed with its comma, so that the rest is valid JSON.
    fn object(&mut self, level: &Level) -> Result<Fate, Refused> {
        self.cursor.eats(b'{');
        let mut kept_until = self.cursor.at();
        let mut dropped: Option<Range<usize>> = None;
        while !self.cursor.eats(b'}') {
            self.cursor.eats(b',');
            let name = self.cursor.value();
            let start = name.start;
            let name = unescaped(self.cursor.text(&name)).ok_or(Refused::Unreadable)?;
            self.cursor.eats(b':');
            let below = self.run.policy.step(level, Step::Name(&name));
            self.trail.push(PathStep::Name(name));
            let here = self.run.edits.len();
            let fate = self.value(&below)?;
            self.trail.pop();
            let end = self.cursor.at();
            match fate {
                Fate::Dropped => dropped = Some(dropped.map_or(start, |before| before.start)..end),
                Fate::Kept => {
                    kept_until = end;
                    if let Some(before) = dropped.take() {
                        self.run.edit_at(here, before.start..start, With::Text(String::new()));
                    }
                }
            }
        }
        if let Some(last) = dropped {
            self.run.edit(kept_until..last.end, With::Text(String::new()));
        }
        Ok(Fate::Kept)
    }

    /// Applies the policy to an array. A dropped element becomes null, so that the others keep their indexes.
    fn array(&mut self, level: &Level) -> Result<Fate, Refused> {
        self.cursor.eats(b'[');
        let mut index = 0;
        while !self.cursor.eats(b']') {
            self.cursor.eats(b',');
            let _first = self.cursor.peek();
            let start = self.cursor.at();
            let below = self.run.policy.step(level, Step::Index(index));
            self.trail.push(PathStep::Index(index));
            let fate = self.value(&below)?;
            self.trail.pop();
            if fate == Fate::Dropped {
                let span = start..self.cursor.at();
                self.run.edit(span, With::Text("null".to_owned()));
            }
            index += 1;
        }
        Ok(Fate::Kept)
    }
}

/// Applies a policy to the fields of a form, which paths address like members: `$.name`.
fn apply_to_form(run: &mut PolicyRun<'_>, text: &str) -> Result<(), Refused> {
    for Field { name, value } in fields(text) {
        let decode = |span: &Range<usize>| decoded(text.get(span.clone()).unwrap_or_default());
        let (called, holds) = (decode(&name)?, decode(&value)?);
        let level = run.policy.step(&run.policy.level(), Step::Name(&called));
        let Some(level) = run.policy.arrive(&level) else { continue };
        // A name that contains personal data must not be shown in a path.
        let byte = || format!("byte {}", name.start);
        let of_name = run.detected(&called, &level, byte)?;
        let is_plain = of_name.is_none();
        let path = || {
            if is_plain { shown(&[PathStep::Name(Cow::Borrowed(&called))]) } else { byte() }
        };
        let of_value = match level.acting {
            Some(_) if holds.is_empty() => None,
            Some(rule) => Some(run.named(rule, &holds, path)?),
            None => run.detected(&holds, &level, path)?,
        };
        edit_field(run, name.clone(), of_name);
        edit_field(run, value, of_value);
    }
    Ok(())
}

fn edit_field(run: &mut PolicyRun<'_>, span: Range<usize>, verdict: Option<Verdict>) {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    match verdict {
        None => {}
        Some(Verdict::Drop) => run.edit(span, With::Text(String::new())),
        Some(Verdict::Seal) => run.edit(span, With::Seal(Form::Part)),
        Some(Verdict::Text(text)) => run.edit(span, With::Text(encoded(&text))),
    }
}

/// The spans of a field's name and value; a field without `=` is a value without a name.
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

fn fields(text: &str) -> impl Iterator<Item = Field> {
    let mut at = 0;
    text.split('&').map(move |field| {
        let (start, end) = (at, at + field.len());
        at = end + 1;
        match field.split_once('=') {
            None => Field { name: start..start, value: start..end },
            Some((name, value)) => {
                Field { name: start..start + name.len(), value: end - value.len()..end }
            }
        }
    })
}

fn decoded(text: &str) -> Result<String, Refused> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_not_text| Refused::Unreadable)
}

/// Applies a policy to a text, replacing each finding of its detectors.
fn apply_to_text(run: &mut PolicyRun<'_>, text: &str) -> Result<(), Refused> {
    for found in run.policy.find_in(text) {
        let piece = text.get(found.span.clone()).unwrap_or_default();
        let with = run.piece(&found, piece, || format!("byte {}", found.span.start))?;
        run.edit(found.span, with);
    }
    Ok(())
}

/// The first text or number at a path.
fn text_at(path: &Path, shape: Shape, text: &str) -> Option<String> {
    let found = match shape {
        Shape::Json => first(&mut Cursor::of(text.as_bytes())?, path, MatchState::START, 0)
            .map(Cow::into_owned),
        Shape::Form => fields(text).find_map(|Field { name, value }| {
            let reached = path.step(MatchState::START, Step::Name(&decoded(text.get(name)?).ok()?));
            path.is_at(reached).then(|| decoded(text.get(value)?).ok())?
        }),
        Shape::Text | Shape::Bytes => None,
    };
    found.filter(|name| !name.is_empty())
}

fn first<'t>(
    cursor: &mut Cursor<'t>,
    path: &Path,
    reached: MatchState,
    depth: usize,
) -> Option<Cow<'t, str>> {
    let kind = cursor.kind();
    if reached.is_dead() || depth > MAX_DEPTH || matches!(kind, Kind::Text | Kind::Plain) {
        let span = cursor.value();
        let raw = cursor.text(&span);
        let number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        return match kind {
            _ if !path.is_at(reached) => None,
            Kind::Text => unescaped(raw),
            _ => number.then_some(Cow::Borrowed(raw)),
        };
    }
    let (open, close) = if kind == Kind::Object { (b'{', b'}') } else { (b'[', b']') };
    cursor.eats(open);
    let (mut index, mut found) = (0, None);
    while !cursor.eats(close) {
        cursor.eats(b',');
        let below = if kind == Kind::Object {
            let name = cursor.value();
            cursor.eats(b':');
            unescaped(cursor.text(&name)).map(|name| path.step(reached, Step::Name(&name)))
        } else {
            Some(path.step(reached, Step::Index(index)))
        };
        index += 1;
        let here = first(cursor, path, below.unwrap_or(MatchState::DEAD), depth + 1);
        found = found.or(here);
    }
    found
}

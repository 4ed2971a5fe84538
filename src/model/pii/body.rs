//! The forms of a body that a policy is carried out on: JSON, the fields of a form, any other text.

use std::borrow::Cow;
use std::ops::Range;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::model::json_path::{Path, Reached, Step};
use crate::model::json_text::{Cursor, Kind, MAX_DEPTH, said, string};
use crate::model::pii::apply::{Doing, Level, Shape, Verdict, With};
use crate::model::pii::policy::Action;
use crate::model::pii::refused::Refused;
use crate::model::pii::sealed::Form;

/// Carries a policy out on JSON.
pub(super) fn json(doing: &mut Doing<'_>, cursor: Cursor<'_>) -> Result<(), Refused> {
    let level = doing.policy.level();
    let mut walk = Walk { doing, cursor, trail: Vec::new() };
    let start = {
        let _first = walk.cursor.peek();
        walk.cursor.at()
    };
    if walk.value(&level)? == Fate::Dropped {
        let end = walk.cursor.at();
        walk.doing.edit(start..end, With::Text("null".to_owned()));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Dropped,
}

struct Walk<'d, 'a, 't> {
    doing: &'d mut Doing<'a>,
    cursor: Cursor<'t>,
    /// The way here, for people.
    trail: Vec<Passed<'t>>,
}

enum Passed<'t> {
    Name(Cow<'t, str>),
    Place(usize),
}

fn shown(trail: &[Passed<'_>]) -> String {
    let plain = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let steps = trail.iter().map(|passed| match passed {
        Passed::Place(place) => format!("[{place}]"),
        Passed::Name(name) if !name.is_empty() && plain(name) => format!(".{name}"),
        Passed::Name(name) => format!("[{}]", string(name)),
    });
    format!("${}", steps.collect::<String>())
}

impl Walk<'_, '_, '_> {
    /// One value with everything in it.
    fn value(&mut self, level: &Level) -> Result<Fate, Refused> {
        let kind = self.cursor.kind();
        let Some(level) = self.doing.policy.arrive(level) else {
            self.cursor.value();
            return Ok(Fate::Kept);
        };
        let container = matches!(kind, Kind::Object | Kind::Array);
        if let Some(rule) = level.acting
            && !(container && self.doing.policy.may_except_below(&level))
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

    /// A value that a path names, as a whole.
    fn named(&mut self, rule: usize, kind: Kind) -> Result<Fate, Refused> {
        let span = self.cursor.value();
        let raw = self.cursor.text(&span);
        let action = self.doing.action(rule);
        // Nothing is no personal data.
        if raw == "null" && action != Action::Drop {
            return Ok(Fate::Kept);
        }
        let text = match (kind, action) {
            (Kind::Text, _) => said(raw).ok_or(Refused::Unreadable)?,
            (Kind::Object | Kind::Array, Action::Mask) => Cow::Borrowed(""),
            _ => Cow::Borrowed(raw),
        };
        let trail = &self.trail;
        let verdict = self.doing.named(rule, &text, || shown(trail))?;
        Ok(self.carry_out(verdict, span))
    }

    fn carry_out(&mut self, verdict: Verdict, span: Range<usize>) -> Fate {
        match verdict {
            Verdict::Drop => return Fate::Dropped,
            Verdict::Seal => self.doing.edit(span, With::Seal(Form::Value)),
            Verdict::Text(text) => self.doing.edit(span, With::Text(string(&text))),
        }
        Fate::Kept
    }

    fn text(&mut self, level: &Level) -> Result<Fate, Refused> {
        let span = self.cursor.value();
        let text = said(self.cursor.text(&span)).ok_or(Refused::Unreadable)?;
        let trail = &self.trail;
        match self.doing.detected(&text, level, || shown(trail))? {
            Some(verdict) => Ok(self.carry_out(verdict, span)),
            None => Ok(Fate::Kept),
        }
    }

    /// Members that are dropped go with their comma, so that what is left is JSON.
    fn object(&mut self, level: &Level) -> Result<Fate, Refused> {
        self.cursor.eats(b'{');
        let mut kept_until = self.cursor.at();
        let mut dropped: Option<Range<usize>> = None;
        while !self.cursor.eats(b'}') {
            self.cursor.eats(b',');
            let name = self.cursor.value();
            let start = name.start;
            let name = said(self.cursor.text(&name)).ok_or(Refused::Unreadable)?;
            self.cursor.eats(b':');
            let below = self.doing.policy.step(level, Step::Name(&name));
            self.trail.push(Passed::Name(name));
            let here = self.doing.here();
            let fate = self.value(&below)?;
            self.trail.pop();
            let end = self.cursor.at();
            match fate {
                Fate::Dropped => dropped = Some(dropped.map_or(start, |before| before.start)..end),
                Fate::Kept => {
                    kept_until = end;
                    if let Some(before) = dropped.take() {
                        self.doing.edit_at(here, before.start..start, With::Text(String::new()));
                    }
                }
            }
        }
        if let Some(last) = dropped {
            self.doing.edit(kept_until..last.end, With::Text(String::new()));
        }
        Ok(Fate::Kept)
    }

    /// Elements that are dropped become null, so that the others keep their places.
    fn array(&mut self, level: &Level) -> Result<Fate, Refused> {
        self.cursor.eats(b'[');
        let mut place = 0;
        while !self.cursor.eats(b']') {
            self.cursor.eats(b',');
            let _first = self.cursor.peek();
            let start = self.cursor.at();
            let below = self.doing.policy.step(level, Step::Place(place));
            self.trail.push(Passed::Place(place));
            let fate = self.value(&below)?;
            self.trail.pop();
            if fate == Fate::Dropped {
                let span = start..self.cursor.at();
                self.doing.edit(span, With::Text("null".to_owned()));
            }
            place += 1;
        }
        Ok(Fate::Kept)
    }
}

/// Carries a policy out on the fields of a form, which a path reaches as members: `$.name`.
pub(super) fn form(doing: &mut Doing<'_>, text: &str) -> Result<(), Refused> {
    for Field { name, value } in fields(text) {
        let said = |span: &Range<usize>| decoded(text.get(span.clone()).unwrap_or_default());
        let (called, holds) = (said(&name)?, said(&value)?);
        let level = doing.policy.step(&doing.policy.level(), Step::Name(&called));
        let Some(level) = doing.policy.arrive(&level) else { continue };
        // What is found in a name stands in no path that is shown.
        let byte = || format!("byte {}", name.start);
        let of_name = doing.detected(&called, &level, byte)?;
        let is_plain = of_name.is_none();
        let path = || {
            if is_plain { shown(&[Passed::Name(Cow::Borrowed(&called))]) } else { byte() }
        };
        let of_value = match level.acting {
            Some(_) if holds.is_empty() => None,
            Some(rule) => Some(doing.named(rule, &holds, path)?),
            None => doing.detected(&holds, &level, path)?,
        };
        settle(doing, name.clone(), of_name);
        settle(doing, value, of_value);
    }
    Ok(())
}

fn settle(doing: &mut Doing<'_>, span: Range<usize>, verdict: Option<Verdict>) {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    match verdict {
        None => {}
        Some(Verdict::Drop) => doing.edit(span, With::Text(String::new())),
        Some(Verdict::Seal) => doing.edit(span, With::Seal(Form::Part)),
        Some(Verdict::Text(text)) => doing.edit(span, With::Text(encoded(&text))),
    }
}

/// Where a field's name and its value stand; one without `=` is a value that has no name.
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

/// Carries the detectors of a policy out on a text, finding by finding.
pub(super) fn text(doing: &mut Doing<'_>, text: &str) -> Result<(), Refused> {
    for found in doing.policy.found_in(text) {
        let piece = text.get(found.span.clone()).unwrap_or_default();
        let with = doing.piece(&found, piece, || format!("byte {}", found.span.start))?;
        doing.edit(found.span, with);
    }
    Ok(())
}

/// The first text or number that a path names.
pub(super) fn text_at(path: &Path, shape: Shape, text: &str) -> Option<String> {
    let found = match shape {
        Shape::Json => {
            first(&mut Cursor::of(text.as_bytes())?, path, path.start(), 0).map(Cow::into_owned)
        }
        Shape::Form => fields(text).find_map(|Field { name, value }| {
            let reached = path.step(path.start(), Step::Name(&decoded(text.get(name)?).ok()?));
            path.is_at(reached).then(|| decoded(text.get(value)?).ok())?
        }),
        Shape::Text | Shape::Bytes => None,
    };
    found.filter(|name| !name.is_empty())
}

fn first<'t>(
    cursor: &mut Cursor<'t>,
    path: &Path,
    reached: Reached,
    depth: u32,
) -> Option<Cow<'t, str>> {
    let kind = cursor.kind();
    if reached.is_lost() || depth > MAX_DEPTH || matches!(kind, Kind::Text | Kind::Plain) {
        let span = cursor.value();
        let raw = cursor.text(&span);
        let number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        return match kind {
            _ if !path.is_at(reached) => None,
            Kind::Text => said(raw),
            _ => number.then_some(Cow::Borrowed(raw)),
        };
    }
    let (open, close) = if kind == Kind::Object { (b'{', b'}') } else { (b'[', b']') };
    cursor.eats(open);
    let (mut place, mut found) = (0, None);
    while !cursor.eats(close) {
        cursor.eats(b',');
        let below = if kind == Kind::Object {
            let name = cursor.value();
            cursor.eats(b':');
            said(cursor.text(&name)).map(|name| path.step(reached, Step::Name(&name)))
        } else {
            Some(path.step(reached, Step::Place(place)))
        };
        place += 1;
        let here = first(cursor, path, below.unwrap_or(Reached::LOST), depth + 1);
        found = found.or(here);
    }
    found
}

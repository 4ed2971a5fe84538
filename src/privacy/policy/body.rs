//! Applies a policy to a body, which is JSON, a form, or any other text: finds which spans are replaced, and by what.

use std::borrow::Cow;
use std::ops::Range;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::base::text::without_mark;
use crate::model::form_body::{self, FieldSpans};
use crate::model::json::{Cursor, JsonKind, MAX_DEPTH, quoted, unescaped};
use crate::model::json_path::{MatchState, Path, Step};
use crate::model::sealed::Form;
use crate::privacy::policy::matching::{
    Edit, Finding, Level, MAX_EDITS, PolicyRun, Treatment, With,
};
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
        let container = matches!(kind, JsonKind::Object | JsonKind::Array);
        if let Some(rule) = level.acting
            && !(container && self.run.policy.may_except_below(&level))
        {
            return self.named(rule, kind);
        }
        if container && level.depth >= MAX_DEPTH {
            return Err(Refused::Unreadable);
        }
        match kind {
            JsonKind::Object => self.object(&level),
            JsonKind::Array => self.array(&level),
            JsonKind::Text => self.text(&level),
            JsonKind::Plain => {
                self.cursor.value();
                Ok(Fate::Kept)
            }
        }
    }

    /// Applies a rule to a whole value that its path names.
    fn named(&mut self, rule: usize, kind: JsonKind) -> Result<Fate, Refused> {
        let span = self.cursor.value();
        let raw = self.cursor.text(&span);
        let action = self.run.action(rule);
        // `null` is not personal data.
        if raw == "null" && action != Action::Drop {
            return Ok(Fate::Kept);
        }
        let text = match (kind, action) {
            (JsonKind::Text, _) => unescaped(raw).ok_or(Refused::Unreadable)?,
            (JsonKind::Object | JsonKind::Array, Action::Mask) => Cow::Borrowed(""),
            _ => Cow::Borrowed(raw),
        };
        let trail = &self.trail;
        let verdict = self.run.named(rule, &text, || shown(trail))?;
        Ok(self.carry_out(verdict, span))
    }

    fn carry_out(&mut self, verdict: Treatment, span: Range<usize>) -> Fate {
        match verdict {
            Treatment::Drop => return Fate::Dropped,
            Treatment::Seal => self.run.edit(span, With::Seal(Form::Value)),
            Treatment::Text(text) => self.run.edit(span, With::Text(quoted(&text))),
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

/// Applies a policy to the fields of a form. Paths address what other readers see, the form's JSON view: a field like a
/// member (`$.name`), and the members of JSON in a field (`$.name.mail`, or `$.mail` if the form has only that field).
fn apply_to_form(run: &mut PolicyRun<'_>, text: &str) -> Result<(), Refused> {
    let is_only = is_only_field(text);
    for FieldSpans { name, value } in form_body::fields(text.as_bytes()) {
        let called = decoded(text, &name)?;
        let holds = decoded(text, &value)?;
        let level = run.policy.step(&run.policy.level(), Step::Name(&called));
        let Some(level) = run.policy.arrive(&level) else { continue };
        // A name that contains personal data must not be shown in a path.
        let byte = || format!("byte {}", name.start);
        let of_name = run.detected(&called, &level, byte)?;
        let is_plain = of_name.is_none();
        edit_field(run, name.clone(), of_name);
        if level.acting.is_none() && form_body::is_structured(holds.as_bytes()) {
            let level = if is_only { run.policy.level().joined(&level) } else { level };
            let above = (!is_only && is_plain).then_some(called.as_str());
            apply_to_json_field(
                run,
                &level,
                above,
                JsonField { form: text, span: value, json: &holds },
            )?;
            continue;
        }
        let path = || {
            if is_plain { shown(&[PathStep::Name(Cow::Borrowed(&called))]) } else { byte() }
        };
        let of_value = match level.acting {
            Some(_) if holds.is_empty() => None,
            Some(rule) => Some(run.named(rule, &holds, path)?),
            None => run.detected(&holds, &level, path)?,
        };
        edit_field(run, value, of_value);
    }
    Ok(())
}

/// Whether a form has one field at most.
fn is_only_field(form: &str) -> bool {
    form_body::fields(form.as_bytes()).nth(1).is_none()
}

/// JSON that is the value of a field.
struct JsonField<'t> {
    form: &'t str,
    /// The position of the value in the form.
    span: Range<usize>,
    /// The value, decoded.
    json: &'t str,
}

/// Applies a policy to JSON in a field; `above` is the field's name, if it is a part of paths. The edits are translated to
/// the bytes of the form, so that all others stay as they came.
fn apply_to_json_field(
    run: &mut PolicyRun<'_>,
    level: &Level,
    above: Option<&str>,
    field: JsonField<'_>,
) -> Result<(), Refused> {
    let JsonField { form, span, json } = field;
    let Some(cursor) = Cursor::of(json.as_bytes()) else { return Err(Refused::Unreadable) };
    let mut inner = PolicyRun { edits: Vec::new(), findings: Vec::new(), ..*run };
    let trail = above.map(|name| PathStep::Name(Cow::Borrowed(name))).into_iter().collect();
    let mut walk = Walk { run: &mut inner, cursor, trail };
    let fate = walk.value(level)?;
    let PolicyRun { edits, findings, .. } = inner;
    run.findings.extend(findings);
    if fate == Fate::Dropped {
        run.edit(span, With::Text(String::new()));
        return Ok(());
    }
    let encoded = form.get(span.clone()).unwrap_or_default();
    let ends: Vec<usize> = edits.iter().flat_map(|edit| [edit.span.start, edit.span.end]).collect();
    let mut ends = form_body::encoded_positions(encoded.as_bytes(), ends);
    for Edit { with, .. } in edits {
        let (Some(start), Some(end)) = (ends.next(), ends.next()) else { break };
        let with = match with {
            With::Text(text) => With::Text(percent_encoded(&text)),
            // The quotes of the token are part of the JSON, and go away when it is opened.
            With::Seal(form) => With::Seal(form),
        };
        run.edit(span.start + start..span.start + end, with);
    }
    Ok(())
}

fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn edit_field(run: &mut PolicyRun<'_>, span: Range<usize>, verdict: Option<Treatment>) {
    match verdict {
        None => {}
        Some(Treatment::Drop) => run.edit(span, With::Text(String::new())),
        Some(Treatment::Seal) => run.edit(span, With::Seal(Form::Part)),
        Some(Treatment::Text(text)) => run.edit(span, With::Text(percent_encoded(&text))),
    }
}

fn decoded(form: &str, span: &Range<usize>) -> Result<String, Refused> {
    let text = form.get(span.clone()).unwrap_or_default();
    String::from_utf8(form_body::decoded(text.as_bytes())).map_err(|_not_text| Refused::Unreadable)
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
        Shape::Form => {
            let is_only = is_only_field(text);
            form_body::fields(text.as_bytes()).find_map(|FieldSpans { name, value }| {
                let reached = path.step(MatchState::START, Step::Name(&decoded(text, &name).ok()?));
                let holds = decoded(text, &value).ok()?;
                if !path.is_at(reached) && form_body::is_structured(holds.as_bytes()) {
                    let from = if is_only { MatchState::START } else { reached };
                    let mut cursor = Cursor::of(holds.as_bytes())?;
                    return first(&mut cursor, path, from, 0).map(Cow::into_owned);
                }
                path.is_at(reached).then_some(holds)
            })
        }
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
    if reached.is_dead() || depth > MAX_DEPTH || matches!(kind, JsonKind::Text | JsonKind::Plain) {
        let span = cursor.value();
        let raw = cursor.text(&span);
        let number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        return match kind {
            _ if !path.is_at(reached) => None,
            JsonKind::Text => unescaped(raw),
            _ => number.then_some(Cow::Borrowed(raw)),
        };
    }
    let (open, close) = if kind == JsonKind::Object { (b'{', b'}') } else { (b'[', b']') };
    cursor.eats(open);
    let mut index = 0;
    let mut found = None;
    while !cursor.eats(close) {
        cursor.eats(b',');
        let below = if kind == JsonKind::Object {
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

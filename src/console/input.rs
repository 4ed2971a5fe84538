//! A field in a page: how it is shown, what was typed in it, and what a thing has in it now.

use data_encoding::BASE64;
use serde_json::{Map, json};

use crate::api::described_value::UsedFor;
use crate::base::clock::Timestamp;
use crate::console::elements::zone;
use crate::console::fields::{Alternative, Field, FieldKind};
use crate::console::form::{Form, instant, written};
use crate::console::json::indented;
use crate::console::personal_data;
use crate::console::prelude::*;
use crate::console::texts::Texts;
use crate::model::json::carried;

/// What was typed in a field, as text.
pub(super) fn typed(field: &Field, given: &Form) -> String {
    match field.kind {
        FieldKind::PersonalData => personal_data::typed(&field.path, given),
        FieldKind::Secret
        | FieldKind::NewSecret
        | FieldKind::SecretLines
        | FieldKind::Bytes
        | FieldKind::Lines => given.raw(&field.path).unwrap_or_default().replace("\r\n", "\n"),
        _ => {
            let all: Vec<&str> =
                given.all(&field.path).flat_map(str::lines).map(str::trim).collect();
            all.join("\n").trim().to_owned()
        }
    }
}

/// The value of a field; `None` if it is empty.
/// Fails with what is wrong with what was typed.
pub(super) fn read(t: &Texts, field: &Field, given: &Form) -> Result<Option<Value>, String> {
    if let FieldKind::Is(value) = &field.kind {
        return Ok(Some(value.clone()));
    }
    if let Some(file) = given.get(&field.file()) {
        return Ok(Some(file.into()));
    }
    let text = typed(field, given);
    if text.trim().is_empty() {
        return Ok(None);
    }
    if field.kind == FieldKind::Time && Timestamp::parse(&text).is_none() {
        return Err(t.no_time.to_owned());
    }
    let lines = || text.lines().filter(|line| !line.is_empty());
    Ok(Some(match &field.kind {
        FieldKind::Bytes => BASE64.encode(text.as_bytes()).into(),
        FieldKind::Number => text.parse::<i64>().ok().ok_or(t.no_number)?.into(),
        FieldKind::List | FieldKind::Many(_) | FieldKind::SomeOf(_) => lines().collect(),
        FieldKind::Choice(words) if words.iter().any(|word| word == "true") => {
            (text == "true").into()
        }
        FieldKind::Pairs => {
            let pair = |line: &str| {
                let (name, value) =
                    line.split_once(':').ok_or_else(|| format!("{line:?} {}", t.no_pair))?;
                Ok((name.trim().to_owned(), Value::from(value.trim())))
            };
            Value::Object(lines().map(pair).collect::<Result<Map<_, _>, String>>()?)
        }
        FieldKind::Json | FieldKind::PersonalData => match carried::read(text.as_bytes()) {
            Err(_) if text.chars().all(is_of_word) => text.into(),
            found => {
                found.map_err(|error| no_json(t, &text).unwrap_or_else(|| format!("{error}.")))?
            }
        },
        _ => text.into(),
    }))
}

/// The place from which on a text is no JSON.
fn no_json(t: &Texts, text: &str) -> Option<String> {
    let error = serde_json::from_str::<serde::de::IgnoredAny>(text).err()?;
    let line = error.line();
    let column = error.column();
    Some(format!("{} {} {line}, {} {column}.", t.is_no_json, t.line, t.column))
}

/// A time that was typed in a field, as the API takes it. Only the past has words.
pub(super) fn typed_time(field: &Field, text: &str, now: Timestamp) -> String {
    if matches!(field.name(), "since" | "until") {
        return instant(text, now);
    }
    written(text).unwrap_or_else(|| text.to_owned())
}

/// Whether a letter can be in a word, or in the name of a header field.
fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

/// What a thing has in a field, as a person would type it.
pub(super) fn present(field: &Field, thing: &Value) -> String {
    let value = field.path.split('.').fold(thing, |inner, name| inner.field(name));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let is_empty =
        value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
    match (&field.kind, value) {
        _ if is_empty => String::new(),
        (FieldKind::OneOf(all), Value::Object(members)) => {
            let is_there = |one: &&Alternative| members.contains_key(&one.name);
            all.iter().find(is_there).map_or_else(String::new, |one| one.name.clone())
        }
        (_, Value::Null)
        | (
            FieldKind::Secret | FieldKind::NewSecret | FieldKind::SecretLines | FieldKind::Is(_),
            _,
        ) => String::new(),
        (FieldKind::Json | FieldKind::PersonalData, Value::String(word)) => word.clone(),
        (FieldKind::Json | FieldKind::PersonalData, value) => {
            indented(&carried::written(value), usize::MAX)
        }
        (FieldKind::Pairs, Value::Object(pairs)) => {
            let line = |(name, value): (&String, &Value)| format!("{name}: {}", text(value));
            pairs.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        (_, Value::Array(items)) => items.iter().map(text).collect::<Vec<_>>().join("\n"),
        (_, value) => text(value),
    }
}

/// Puts a value at a path like `filter.subscription`.
pub(super) fn put(body: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(body.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = body.entry(first.to_owned()).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// The name of a field, for people.
pub(super) fn label(view: &View<'_>, name: &str) -> String {
    let unit = |end: &str, unit: &str| {
        name.strip_suffix(end).map(|name| format!("{} ({unit})", word(name)))
    };
    let known = view.t.find(if name == "try" { "on_event" } else { name }).map(str::to_owned);
    known
        .or_else(|| unit("_secs", "s"))
        .or_else(|| unit("_ms", "ms"))
        .or_else(|| name.strip_suffix("_base64").map(word))
        .unwrap_or_else(|| word(name))
}

/// The fields, those of one object together. An error of one field is shown at it. `within`: the object that is named already.
pub(super) fn all(
    view: &View<'_>,
    fields: &[&Field],
    within: &str,
    given: &Form,
    error: Option<&PageError>,
) -> Markup {
    let groups = fields.chunk_by(|a, b| a.group() == b.group());
    html! {
        @for group in groups {
            @let name = group.first().map_or("", |field| field.group());
            @let used_for = condition_of(group);
            @let is_choice = used_for.is_none() && group.iter().all(|field| is_alternative(field, name));
            @if name == within || name.is_empty() || group.len() < 2 || is_choice {
                @for field in group { (one(view, field, field.used_for.as_ref(), given, error)) }
            } @else {
                fieldset data-by=[used_for.map(|one| &one.field)] data-of=[used_for.map(|one| one.values.join(" "))] {
                    legend { (title_of(view, name, used_for)) }
                    @for field in group {
                        @let own = field.used_for.as_ref().filter(|_| used_for.is_none());
                        (one(view, field, own, given, error))
                    }
                }
            }
        }
    }
}

/// The condition that all fields of a group have.
fn condition_of<'f>(group: &[&'f Field]) -> Option<&'f UsedFor> {
    let first = group.first()?.used_for.as_ref()?;
    group.iter().all(|field| field.used_for.as_ref() == Some(first)).then_some(first)
}

/// Whether a field is an alternative of the value at this path.
fn is_alternative(field: &Field, path: &str) -> bool {
    field.used_for.as_ref().is_some_and(|one| one.field == path)
}

/// The heading of an object's fields. Without a script it says what they are for.
fn title_of(view: &View<'_>, group: &str, used_for: Option<&UsedFor>) -> Markup {
    let labels = |parts: &str| {
        let parts = parts.split('.').filter(|part| !part.is_empty());
        parts.map(|part| label(view, part)).collect::<Vec<_>>().join(": ")
    };
    let Some(used_for) = used_for else { return html! { (labels(group)) } };
    let chosen = used_for.values.first().map_or("", String::as_str);
    let alternative = format!("{}.{chosen}", used_for.field);
    let Some(rest) = group.strip_prefix(&alternative) else {
        return html! {
            (labels(group)) span.of { " (" (view.t.only_for_this.to_lowercase()) " " (used_for.values.join(", ")) ")" }
        };
    };
    html! {
        span.of { (view.t.only_for_this) " " } (word(chosen)) @if !rest.is_empty() { ": " (labels(rest)) }
    }
}

/// A field with its label, its meaning, and the text typed before. `used_for`: its condition, unless its group has it.
fn one(
    view: &View<'_>,
    field: &Field,
    used_for: Option<&UsedFor>,
    given: &Form,
    error: Option<&PageError>,
) -> Markup {
    let Field { path, kind, is_needed, .. } = field;
    if matches!(kind, FieldKind::Is(_)) {
        return html! {};
    }
    let value = typed(field, given);
    let required = field.is_required;
    let error = error.filter(|error| error.field.as_ref() == Some(path));
    let by = used_for.map(|one| &one.field);
    let values = used_for.map(|one| one.values.join(" "));
    let needed = (*is_needed && !required).then_some("");
    let is_optional = !required && !is_needed && given.raw("was").is_none();
    let note = format!("about.{path}");
    let is_told = !field.about.is_empty() || used_for.is_some() || error.is_some();
    let told = is_told.then_some(note.as_str());
    html! {
        div.field data-by=[by] data-of=[&values] data-needed=[needed] {
            @if let FieldKind::Many(words) = kind {
                fieldset.plain aria-describedby=[told] { legend { (label(view, field.name())) }
                    @for choice in words { label { input type="checkbox" name=(path) value=(choice) checked[given.all(path).any(|one| one == choice)]; " " (word(choice)) } } }
            } @else if *kind == FieldKind::PersonalData {
                fieldset.plain.choices aria-describedby=[told] { legend { (label(view, field.name())) } (personal_data::show(view, field, given)) }
            } @else if let FieldKind::SomeOf(offered) = kind {
                fieldset.plain aria-describedby=[told] { legend { (label(view, field.name())) }
                    @for one in offered { label { input type="checkbox" name=(path) value=(one.name) checked[given.all(path).any(|name| name == one.name)]; " " (one.name) " " (state(&one.state)) } } }
            } @else {
                label { span { (label_of(view, field)) @if *kind == FieldKind::Time { ", " (zone()) } @if is_optional { " " small { (optional(view, kind)) } } }
                    @match kind {
                        FieldKind::Time => input name=(path) value=(value) required[required] aria-describedby=[told] placeholder="2026-01-31 18:00" data-time;,
                        FieldKind::Number => input name=(path) value=(value) required[required] aria-describedby=[told] inputmode="numeric";,
                        FieldKind::Secret | FieldKind::NewSecret => input type="password" name=(path) required[required] aria-describedby=[told] autocomplete="new-password";,
                        FieldKind::Choice(words) => select name=(path) required[required] aria-describedby=[told] {
                            @if !required || !words.contains(&value) { option value="" {} }
                            @for choice in words { option value=(choice) selected[*choice == value] { (chosen(view, choice)) } }
                        },
                        FieldKind::OneOf(all) => select name=(path) required[required] aria-describedby=[told] {
                            option value="" {}
                            @for one in all { option value=(one.name) selected[one.name == value] { (option_of(one)) } }
                        },
                        FieldKind::Text | FieldKind::Place => input name=(path) value=(value) required[required] aria-describedby=[told];,
                        FieldKind::SecretLines => textarea.secret name=(path) rows="3" spellcheck="false" required[required] aria-describedby=[told] autocomplete="off" {},
                        FieldKind::Bytes if given.get(&field.file()).is_some() => input type="hidden" name=(field.file()) value=(given.get(&field.file()).unwrap_or_default());,
                        _ => textarea name=(path) rows=(rows(kind, &value)) spellcheck="false" required[required && *kind != FieldKind::Bytes] aria-describedby=[told] { "\n" (value) },
                    }
                }
            }
            @if *kind == FieldKind::NewSecret {
                label.choice { input type="checkbox" name=(field.make()) value="yes" checked[given.get(&field.make()).is_some()]; span { (view.t.make_secret) } }
            }
            @if *kind == FieldKind::Bytes && given.get(&field.file()).is_none() {
                label { span { (view.t.or_file) } input type="file" name=(field.file()); }
            }
            @if is_told {
                p.small id=(note) {
                    @if let Some(error) = error { strong.wrong role="alert" { (error.detail) } " " }
                    @if let Some(used_for) = used_for { span.of { (view.t.only_for) " " (used_for.values.join(", ")) ". " } }
                    (with_code(&field.about))
                }
            }
        }
    }
}

/// The remark beside a field that may stay empty. A new secret may only if one is made, or if the kind has none.
fn optional(view: &View<'_>, kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::NewSecret => view.t.typed_or_made,
        _ => view.t.optional,
    }
}

fn chosen(view: &View<'_>, choice: &str) -> String {
    match choice {
        "true" => view.t.yes.to_owned(),
        "false" => view.t.no.to_owned(),
        choice => word(choice),
    }
}

/// The name of a field for people, by its path if there is a text for that, such as `scheme_check`.
fn label_of(view: &View<'_>, field: &Field) -> String {
    let of_path = view.t.find(&field.path.replace('.', "_"));
    of_path.map_or_else(|| label(view, field.name()), str::to_owned)
}

/// An alternative in people's words: the first sentence of its description, else its name.
fn option_of(one: &Alternative) -> String {
    let sentence = one.about.split(". ").next().unwrap_or_default();
    let sentence = sentence.trim_end_matches('.').replace('`', "");
    if sentence.is_empty() { word(&one.name) } else { sentence }
}

fn rows(kind: &FieldKind, value: &str) -> usize {
    let least = if matches!(kind, FieldKind::Bytes) { 8 } else { 2 };
    value.lines().count().clamp(least, 16)
}

/// A sentence of the API's description: what stands in backticks is code.
fn with_code(text: &str) -> Markup {
    html! {
        @for (n, part) in text.split('`').enumerate() {
            @if n % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_names_make_objects() {
        let mut body = Map::new();
        put(&mut body, "filter.subscription", "erp".into());
        put(&mut body, "filter.code", 500.into());
        put(&mut body, "rate", 5.into());
        assert_eq!(
            Value::Object(body).to_string(),
            r#"{"filter":{"subscription":"erp","code":500},"rate":5}"#
        );
    }
}

//! Reads the settings file, and variables of the environment, into settings or a list of mistakes.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::databases::{self, DATABASES};
use crate::config::declared::{self, ObjectKind};
use crate::config::forms::RawSetting;
use crate::config::problem::{Problem, SourceText, did_you_mean};
use crate::config::settings::{KEYS, Key, SECTIONS};
use crate::config::{Loaded, problem::Origin};

/// Reads a file's text into `into`, and its mistakes into `problems`.
pub(super) fn read(text: SourceText<'_>, into: &mut Loaded, problems: &mut Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text.text);
    for error in &errors {
        let at = error.span().map_or(0, |span| span.start);
        problems.push(text.problem(at, error.message().to_owned()));
    }
    // Problems that follow from a syntax error would only confuse.
    if !errors.is_empty() {
        return;
    }
    for (name, value) in table.get_ref() {
        section(text, name, value, into, problems);
    }
}

fn section(
    text: SourceText<'_>,
    name: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    into: &mut Loaded,
    problems: &mut Vec<Problem>,
) {
    let at = name.span().start;
    let section = name.get_ref().as_ref();
    if let Some(kind) = ObjectKind::ALL.into_iter().find(|kind| kind.as_str() == section) {
        return declared::section(text, kind, value, &mut into.declared, problems);
    }
    if section == DATABASES {
        databases::section(text, at, value.get_ref(), &mut into.settings.databases.all, problems);
        if let Some(key) = KEYS.iter().find(|key| key.section == DATABASES) {
            into.set_origin(key, text.origin(at));
        }
        return;
    }
    if !SECTIONS.iter().any(|(known, _)| *known == section) {
        problems.push(text.problem(at, unknown_section(section)));
        return;
    }
    let Some(keys) = value.get_ref().as_table() else {
        problems.push(text.problem(at, format!("{section} is a section: write [{section}]")));
        return;
    };
    for (name, value) in keys {
        let at = name.span().start;
        let Some(key) = find(section, name.get_ref()) else {
            problems.push(text.problem(at, unknown_key(section, name.get_ref())));
            continue;
        };
        match key.put(&mut into.settings, RawSetting::Toml(value.get_ref())) {
            Ok(()) => into.set_origin(key, text.origin(at)),
            Err(wrong) => {
                let what = format!("{} {wrong}", key.path());
                problems.push(text.problem(value.span().start, what));
            }
        }
    }
}

fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.section == section && key.name == name)
}

fn unknown_section(section: &str) -> String {
    // The first version had two keys without a section.
    let moved = match section {
        "data" => "; it is [database] directory now".to_owned(),
        other => match KEYS.iter().find(|key| key.name == other) {
            Some(key) => format!("; it belongs in [{}]", key.section),
            None => did_you_mean(section, SECTIONS.iter().map(|(known, _)| *known)),
        },
    };
    format!("unknown section {section}{moved}")
}

fn unknown_key(section: &str, name: &str) -> String {
    let here = KEYS.iter().filter(|key| key.section == section).map(|key| key.name);
    let near = did_you_mean(name, here);
    let elsewhere = KEYS.iter().find(|key| key.name == name);
    match elsewhere {
        Some(key) => format!("unknown key {section}.{name}; it belongs in [{}]", key.section),
        None => format!("unknown key {section}.{name}{near}"),
    }
}

/// Reads the variables that set keys.
pub(super) fn variables<'a>(
    variables: impl Iterator<Item = (&'a str, &'a str)>,
    into: &mut Loaded,
    problems: &mut Vec<Problem>,
) {
    let known: Vec<(String, &Key)> = KEYS.iter().map(|key| (key.variable(), key)).collect();
    for (name, value) in variables {
        let Some((_, key)) = known.iter().find(|(known, _)| known == name) else {
            let near = did_you_mean(name, known.iter().map(|(known, _)| known.as_str()));
            problems.push(Problem::new(name, format!("sets no key{near}")));
            continue;
        };
        match key.put(&mut into.settings, RawSetting::Text(value)) {
            Ok(()) => into.set_origin(key, Origin::Environment(name.to_owned())),
            Err(wrong) => problems.push(Problem::new(name, format!("{} {wrong}", key.path()))),
        }
    }
}

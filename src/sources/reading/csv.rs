//! CSV (RFC 4180): a line of names, then lines of values; quotes are doubled inside quotes.
//!
//! The parser is our own and strict. With wrong quoting the values are not what the writer meant, and lenient parsers
//! accept them silently.

use std::collections::BTreeSet;

use crate::model::json::quoted;
use crate::sources::draft::Draft;
use crate::sources::field::{Cell, Field};
use crate::sources::folder_settings::{FolderSettings, MAX_COLUMNS};
use crate::sources::reading::{FileRow, Position, Rows, too_long};

pub(super) fn rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, String> {
    let mut records = Records { rest: text, delimiter: settings.delimiter, line: 1 };
    let Some((_, names)) = records.next()? else { return Ok(Vec::new()) };
    check_names(settings, &names)?;
    let columns = Columns::of(settings, &names);
    let mut rows = Rows::default();
    while let Some((line, values)) = records.next()? {
        if values.len() != names.len() {
            let (have, want) = (values.len(), names.len());
            return Err(format!("line {line}: it has {have} values, the line of names has {want}"));
        }
        rows.push(FileRow { draft: columns.draft(&values), position: Position::Line(line) })?;
    }
    Ok(rows.rows)
}

fn check_names(settings: &FolderSettings, names: &[String]) -> Result<(), String> {
    let first = |why: String| Err(format!("line 1: {why}"));
    let mut before = BTreeSet::new();
    for (n, name) in names.iter().enumerate() {
        if name.is_empty() {
            return first(format!("column {} has no name", n.saturating_add(1)));
        }
        if let Some(why) = too_long("a column", name) {
            return first(why);
        }
        if !before.insert(name) {
            return first(format!("there are two columns named {name:?}"));
        }
    }
    let other = [',', ';', '\t', '|'].into_iter().find(|other| {
        *other != settings.delimiter && names.len() == 1 && names.iter().any(|n| n.contains(*other))
    });
    if let Some(other) = other {
        let used = settings.delimiter;
        return first(format!(
            "there is one column, with {other:?} in its name: set the delimiter of the source, which is {used:?}"
        ));
    }
    let missing = settings.fields.values().find(|wanted| !names.contains(wanted));
    match missing {
        Some(wanted) => first(format!(
            "there is no column {wanted:?}, which the source's fields name; the first line must contain \
                 the names of the columns"
        )),
        None => Ok(()),
    }
}

/// Which column fills which field, found once for all rows.
struct Columns {
    fields: Vec<(Field, usize)>,
    /// The names as JSON; only if no column is the payload. Then an object of all columns is the payload.
    names: Option<Vec<String>>,
}

impl Columns {
    fn of(settings: &FolderSettings, names: &[String]) -> Self {
        let index = |field: Field| names.iter().position(|name| name == settings.name(field));
        let found = Field::ALL.into_iter().filter_map(|field| Some((field, index(field)?)));
        let fields: Vec<(Field, usize)> = found.collect();
        let has_payload = fields.iter().any(|(field, _)| *field == Field::Payload);
        let names = (!has_payload).then(|| names.iter().map(|name| quoted(name)).collect());
        Self { fields, names }
    }

    fn draft(&self, values: &[String]) -> Draft {
        let mut draft = Draft::default();
        for (field, index) in &self.fields {
            if let Some(value) = values.get(*index) {
                draft.put(*field, Cell::Text(value.clone()));
            }
        }
        if let Some(names) = &self.names {
            let members = names.iter().zip(values);
            let members = members.map(|(name, value)| format!("{name}:{}", quoted(value)));
            let members = members.collect::<Vec<String>>().join(",");
            draft.put(Field::Payload, Cell::Text(format!("{{{members}}}")));
        }
        draft
    }
}

/// The unread rest of a file.
struct Records<'a> {
    rest: &'a str,
    delimiter: char,
    line: usize,
}

impl Records<'_> {
    /// The next record and the line it begins in; empty lines are skipped.
    fn next(&mut self) -> Result<Option<(usize, Vec<String>)>, String> {
        loop {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let began = self.line;
            let record = self.record()?;
            if record.len() > 1 || record.iter().any(|value| !value.is_empty()) {
                return Ok(Some((began, record)));
            }
        }
    }

    fn record(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            if values.len() >= MAX_COLUMNS {
                return self.fault(&format!("it has more than {MAX_COLUMNS} columns"));
            }
            values.push(if self.rest.starts_with('"') { self.quoted()? } else { self.bare()? });
            match self.take() {
                Some(c) if c == self.delimiter => {}
                // The end of the line, or of the file.
                Some(_) | None => return Ok(values),
            }
        }
    }

    /// Takes one character; `\r\n` counts as one.
    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        let long = if self.rest.starts_with("\r\n") { 2 } else { c.len_utf8() };
        self.rest = self.rest.get(long..).unwrap_or_default();
        if c == '\n' || c == '\r' {
            self.line = self.line.saturating_add(1);
        }
        Some(c)
    }

    fn fault<T>(&self, why: &str) -> Result<T, String> {
        Err(format!("line {}: {why}", self.line))
    }

    fn bare(&mut self) -> Result<String, String> {
        let ends = |c: char| c == self.delimiter || c == '\n' || c == '\r';
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (value, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        if value.contains('"') {
            return self.fault(
                "a quote in the middle of a value: quote the whole value, and double the quotes in it",
            );
        }
        self.rest = rest;
        Ok(value.to_owned())
    }

    fn quoted(&mut self) -> Result<String, String> {
        let began = self.line;
        let mut value = String::new();
        self.rest = self.rest.strip_prefix('"').unwrap_or(self.rest);
        loop {
            let Some((inside, after)) = self.rest.split_once('"') else {
                return Err(format!("line {began}: a quote is opened and never closed"));
            };
            value.push_str(inside);
            let ends = inside.matches('\n').count();
            self.line = self.line.saturating_add(ends);
            self.rest = after;
            let Some(more) = self.rest.strip_prefix('"') else { break };
            value.push('"');
            self.rest = more;
        }
        let closes = |c: char| c == self.delimiter || c == '\n' || c == '\r';
        if !self.rest.is_empty() && !self.rest.starts_with(closes) {
            return self.fault("after a closing quote there is no delimiter");
        }
        Ok(value)
    }
}

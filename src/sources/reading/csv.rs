//! CSV (RFC 4180): a line of names, then lines of values; quotes are doubled inside quotes.
//!
//! The parser is our own and strict. With wrong quoting the values are not what the writer meant, and lenient parsers
//! accept them silently. Ignored is what programs add without a value: a first line `sep=;`, rows of delimiters alone,
//! and columns at the end that have neither a name nor a value.

use std::collections::BTreeSet;

use crate::model::event_field::EventField;
use crate::model::json::quoted;
use crate::sources::cell::Cell;
use crate::sources::draft::Draft;
use crate::sources::folder_settings::{FolderSettings, MAX_COLUMNS};
use crate::sources::reading::{FileRow, Position, Rows, too_long};

pub(super) fn rows(settings: &FolderSettings, text: &str) -> Result<Vec<FileRow>, String> {
    let mut records = Records { rest: text, delimiter: settings.delimiter, line: 1 };
    records.take_delimiter_line();
    let Some(Record { line, values: mut names, .. }) = records.next()? else {
        return Ok(Vec::new());
    };
    let unnamed = names.iter().rev().take_while(|name| name.is_empty()).count();
    names.truncate(names.len().saturating_sub(unnamed));
    check_names(settings, records.delimiter, line, &names)?;
    let columns = Columns::of(settings, &names);
    let mut rows = Rows::default();
    while let Some(Record { line, mut values, .. }) = records.next()? {
        let has_surplus = values.iter().skip(names.len()).any(|value| !value.is_empty());
        if values.len() < names.len() || has_surplus {
            let have = values.len();
            let want = names.len();
            return Err(format!("line {line}: it has {have} values, the line of names has {want}"));
        }
        values.truncate(names.len());
        rows.push(FileRow { draft: columns.draft(&values), position: Position::Line(line) })?;
    }
    Ok(rows.rows)
}

fn check_names(
    settings: &FolderSettings,
    delimiter: char,
    line: usize,
    names: &[String],
) -> Result<(), String> {
    let first = |why: String| Err(format!("line {line}: {why}"));
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
        *other != delimiter && names.len() == 1 && names.iter().any(|n| n.contains(*other))
    });
    if let Some(other) = other {
        return first(format!(
            "there is one column, with {other:?} in its name: set the delimiter of the source, which is {delimiter:?}"
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
    fields: Vec<(EventField, usize)>,
    /// The names as JSON; only if no column is the payload. Then an object of all columns is the payload.
    names: Option<Vec<String>>,
}

impl Columns {
    fn of(settings: &FolderSettings, names: &[String]) -> Self {
        let index = |field: EventField| names.iter().position(|name| name == settings.name(field));
        let found = EventField::ALL.into_iter().filter_map(|field| Some((field, index(field)?)));
        let fields: Vec<(EventField, usize)> = found.collect();
        let has_payload = fields.iter().any(|(field, _)| *field == EventField::Payload);
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
            draft.put(EventField::Payload, Cell::Text(format!("{{{members}}}")));
        }
        draft
    }
}

/// One row.
struct Record {
    /// The line it begins in.
    line: usize,
    values: Vec<String>,
    /// Whether there is anything but delimiters; `""` is a value.
    has_value: bool,
}

/// The unread rest of a file.
struct Records<'a> {
    rest: &'a str,
    delimiter: char,
    line: usize,
}

impl Records<'_> {
    /// Takes a first line such as `sep=;`, which Excel reads and writes: it names the delimiter of this file.
    fn take_delimiter_line(&mut self) {
        let (line, _) = self.rest.split_once(['\r', '\n']).unwrap_or((self.rest, ""));
        let Some((word, named)) = line.split_once('=') else { return };
        let Some(delimiter) = named.chars().next() else { return };
        let is_usable = delimiter.is_ascii() && delimiter != '"';
        // A program that knows the line as a row ends it with the delimiters of the other columns.
        let is_alone = named.chars().all(|c| c == delimiter);
        if !word.eq_ignore_ascii_case("sep") || !is_usable || !is_alone {
            return;
        }
        self.delimiter = delimiter;
        self.rest = self.rest.get(line.len()..).unwrap_or_default();
        self.take();
    }

    /// The next row with a value.
    fn next(&mut self) -> Result<Option<Record>, String> {
        while !self.rest.is_empty() {
            let record = self.record()?;
            if record.has_value {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn record(&mut self) -> Result<Record, String> {
        let line = self.line;
        let mut values = Vec::new();
        let mut has_value = false;
        loop {
            if values.len() >= MAX_COLUMNS {
                return self.fault(&format!("it has more than {MAX_COLUMNS} columns"));
            }
            let is_quoted = self.rest.starts_with('"');
            let value = if is_quoted { self.quoted()? } else { self.bare()? };
            has_value |= is_quoted || !value.is_empty();
            values.push(value);
            match self.take() {
                Some(c) if c == self.delimiter => {}
                // The end of the line, or of the file.
                Some(_) | None => return Ok(Record { line, values, has_value }),
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

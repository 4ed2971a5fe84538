//! Formats values of the API's JSON for people: text, times, tables and lists of fields.
//!
//! Values come from outside and may hold line ends and control characters: each cell passes through [`clean`].
//! Not here: `--json`, which prints the JSON itself.

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};
use serde_json::Value;

use crate::cli::exit::Failure;
use crate::cli::out;

/// The cell of a missing value.
const EMPTY_CELL: &str = "-";
/// A longer word may be broken on a narrow terminal.
const MAX_WORD_CHARS: usize = 40;
/// A value up to this length stays on one line.
const SHORT_BYTES: usize = 16;
/// Spaces between two columns.
const GAP: u16 = 2;

/// The columns of a table.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub(super) columns: &'static [Column],
    pub(super) by: Computed,
}

/// A column of a table.
#[derive(Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    rank: u8,
    value: &'static str,
}

/// The fields of one item, one a line.
#[derive(Clone, Copy)]
pub(super) struct Cells {
    pub(super) cells: &'static [Cell],
    pub(super) by: Computed,
}

/// A field of one item.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    label: &'static str,
    value: &'static str,
    is_time: bool,
}

/// Values that are computed from an item, by name.
pub(super) type Computed = &'static [(&'static str, fn(&Value) -> String)];

/// A column of `value`: a field of the item, or one that is computed.
///
/// Rank 0 is always shown; on a narrow terminal the columns with the highest rank are left out first, and rank 9 wherever
/// no row has a value. A time is shown to the minute, if the title ends with `(UTC)`.
pub(super) const fn column(title: &'static str, rank: u8, value: &'static str) -> Column {
    Column { title, rank, value }
}

/// A labelled `value`: a field of the item, or one that is computed.
pub(super) const fn cell(label: &'static str, value: &'static str) -> Cell {
    Cell { label, value, is_time: false }
}

/// A labelled time, to the millisecond.
pub(super) const fn time(label: &'static str, value: &'static str) -> Cell {
    Cell { label, value, is_time: true }
}

impl Cells {
    /// Prints the fields of an item, without the empty ones.
    pub(super) fn fields(self, item: &Value) -> Result<(), Failure> {
        let shown = |cell: &Cell| {
            if cell.is_time {
                instant(item, cell.value)
            } else {
                value_of(item, cell.value, self.by)
            }
        };
        let pairs = self.cells.iter().map(|cell| (cell.label, shown(cell)));
        labelled(&pairs.collect::<Vec<_>>())
    }
}

impl Columns {
    /// Prints rows as a table: as wide as the terminal, or without one as wide as its content.
    pub(super) fn table(self, rows: &[Value]) -> Result<(), Failure> {
        out::line(self.rendered(rows, Table::new().width()))
    }

    pub(super) fn rendered(self, rows: &[Value], width: Option<u16>) -> String {
        let by = self.by;
        let mut shown = self.columns.to_vec();
        let has_value = |column: &Column| rows.iter().any(|row| !column.of(row, by).is_empty());
        shown.retain(|column| column.rank < 9 || has_value(column));
        if let Some(width) = width {
            while needed(&shown, rows, by) > width {
                let rank = shown.iter().map(|column| column.rank).max().unwrap_or(0);
                if rank == 0 {
                    break;
                }
                shown.retain(|column| column.rank != rank);
            }
        }
        let mut table = filled(&shown, rows, by);
        if let Some(width) = width {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width.saturating_add(GAP));
        }
        let narrowest: Vec<u16> =
            shown.iter().map(|column| longest_word(column, rows, by)).collect();
        for (made, narrowest) in table.column_iter_mut().zip(narrowest) {
            made.set_padding((0, GAP));
            made.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(narrowest + GAP)));
        }
        table.trim_fmt()
    }
}

impl Column {
    fn of(&self, item: &Value, by: Computed) -> String {
        let is_time =
            self.title.ends_with("(UTC)") && by.iter().all(|(name, _)| *name != self.value);
        if is_time { minute(item, self.value) } else { value_of(item, self.value, by) }
    }
}

/// The value of a cell; empty objects and lists are left out.
fn value_of(item: &Value, name: &str, by: Computed) -> String {
    if let Some((_, of)) = by.iter().find(|(known, _)| *known == name) {
        return clean(&of(item));
    }
    match item.get(name) {
        Some(Value::Array(list)) if list.iter().all(Value::is_string) => words(item, name),
        Some(Value::Array(list)) if list.is_empty() => String::new(),
        Some(Value::Object(fields)) if fields.is_empty() => String::new(),
        _ => text(item, name),
    }
}

/// A text on one line: line ends and tabs become spaces, and what a terminal acts on becomes an escape.
pub(super) fn clean(text: &str) -> String {
    out::visible(&text.replace(['\n', '\r', '\t'], " "))
}

/// A field as text; empty if it is null or missing.
pub(super) fn text(item: &Value, field: &str) -> String {
    match item.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => clean(text),
        Some(other) => clean(&other.to_string()),
    }
}

/// The items of a list; none if it is missing.
pub(super) fn list<'a>(item: &'a Value, field: &str) -> &'a [Value] {
    item.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// An event's aggregate, such as `invoice/4711`.
pub(super) fn about(event: &Value) -> String {
    let parts = [text(event, "aggregate_type"), text(event, "aggregate_id")];
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// A list of words as text.
pub(super) fn words(item: &Value, field: &str) -> String {
    let words = list(item, field).iter().filter_map(Value::as_str).map(clean);
    words.collect::<Vec<_>>().join(", ")
}

/// A time to the minute, for tables (UTC).
pub(super) fn minute(item: &Value, field: &str) -> String {
    at(item, field, 16)
}

/// A time to the millisecond (UTC).
pub(super) fn instant(item: &Value, field: &str) -> String {
    at(item, field, 23)
}

fn at(item: &Value, field: &str, chars: usize) -> String {
    text(item, field).replacen('T', " ", 1).chars().take(chars).collect()
}

/// The first `max` characters of a text, with an ellipsis if it is longer.
pub(super) fn cut(text: &str, max: usize) -> String {
    let mut short: String = text.chars().take(max).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Quotes a word for a shell if necessary.
pub(super) fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:@%+,=".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Prints labels and values, one pair a line, without the empty ones.
pub(super) fn labelled(fields: &[(&str, String)]) -> Result<(), Failure> {
    let width = fields.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    for (label, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        out::line(format_args!("  {label:<width$}  {value}"))?;
    }
    Ok(())
}

/// The least width of the columns, without a gap after the last one.
fn needed(columns: &[Column], rows: &[Value], by: Computed) -> u16 {
    let least = columns.iter().map(|column| longest_word(column, rows, by).saturating_add(GAP));
    least.fold(0, u16::saturating_add).saturating_sub(GAP)
}

/// The width of the column's longest unbreakable word.
fn longest_word(column: &Column, rows: &[Value], by: Computed) -> u16 {
    let of = |text: &str| text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    // A short value, such as a time, stays on one line.
    let value = |text: &str| if text.len() <= SHORT_BYTES { text.len() } else { of(text) };
    let longest = rows.iter().map(|row| value(&column.of(row, by))).max().unwrap_or(0);
    u16::try_from(longest.max(of(column.title)).min(MAX_WORD_CHARS)).unwrap_or(0)
}

fn filled(columns: &[Column], rows: &[Value], by: Computed) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(columns.iter().map(|column| column.title));
    for row in rows {
        table.add_row(columns.iter().map(|column| {
            let value = column.of(row, by);
            if value.is_empty() { EMPTY_CELL.to_owned() } else { value }
        }));
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: Columns = Columns {
        columns: &[column("ID", 0, "id"), column("TYPE", 1, "type"), column("AT (UTC)", 2, "at")],
        by: &[],
    };

    #[test]
    fn a_narrow_terminal_leaves_columns_out_and_keeps_the_id_whole() {
        let id = "0190f3a2-7c1e-7000-8000-0123456789ab";
        let rows =
            [json!({ "id": id, "type": "invoice.paid.again", "at": "2026-01-31T12:00:00.000Z" })];
        let wide = COLUMNS.rendered(&rows, None);
        assert_eq!(wide.lines().count(), 2);
        assert!(wide.contains("2026-01-31 12:00") && wide.contains("invoice.paid.again"));
        let narrow = COLUMNS.rendered(&rows, Some(50));
        assert!(narrow.contains(id) && !narrow.contains("2026-01-31"), "{narrow}");
        assert!(COLUMNS.rendered(&rows, Some(20)).contains(id));
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_is_shown() {
        let item = json!({ "a": "x\u{1b}[31m\u{202e}\ny\u{9b}" });
        assert_eq!(text(&item, "a"), "x\\u{1b}[31m\\u{202e} y\\u{9b}");
        assert_eq!(text(&item, "b"), "");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("invoice.paid:4711"), "invoice.paid:4711");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(cut("äöü", 2), "äö…");
    }
}

//! A list of the API as a page: the tabs of its states, its filters, its table with the columns that were chosen, and the
//! way on. All of that stands in the URL. The same list is a CSV file.

use std::time::Duration;

use maud::{Markup, Render, html};
use serde_json::Value;

use crate::console::cells::Cells;
use crate::console::elements::{EmptyNote, number, zone};
use crate::console::error::PageError;
use crate::console::form::{PRESETS, with_query};
use crate::console::json::Fields as _;
use crate::console::page::{Content, View};
use crate::console::standing::word_of_status;
use crate::console::words::{explained, word};
use crate::http::message::Response;

/// Rows of a page where each has a form.
pub(super) const FORMS: &str = "20";
/// The most rows of a CSV file.
const MAX_CSV_ROWS: usize = 10_000;
/// After a page of rows with more columns, or more bytes, the file ends.
const MAX_CSV_COLUMNS: usize = 300;
const MAX_CSV_BYTES: usize = 8 << 20;
/// How long rows are looked for: others want lists, too.
const MAX_CSV_SPAN: Duration = Duration::from_secs(2);
/// Rows that one read of the API brings: the most that it takes.
const ROWS_AT_ONCE: &str = "500";
/// Parameters of the query that no other link of the list keeps.
const PASSING: [&str; 3] = ["did", "after", "csv"];

/// A list of the API.
pub(super) struct List<'a> {
    /// What is listed.
    pub(super) title: &'a str,
    /// The route.
    pub(super) path: &'a str,
    /// What it can be filtered by: parameter, label, kind.
    pub(super) filters: &'a [(&'static str, &'a str, FilterInput<'a>)],
    /// Parameters that are always sent.
    pub(super) always: &'a [(&'a str, &'a str)],
    pub(super) cells: Cells<'a>,
    /// Note in the place of the table of an empty list.
    pub(super) empty: EmptyNote<'a>,
}

/// The kinds of filters.
pub(super) enum FilterInput<'a> {
    Text,
    Time,
    Choice(&'a [&'a str]),
    /// The state: a tab each.
    States(&'a [&'a str]),
    /// The same with how many there are, where `/v1/stats` counts it.
    Counted(&'a [&'a str]),
}

/// The parts of a list, in their order.
#[derive(Default)]
pub(super) struct Listed {
    /// The answer of the API.
    pub(super) found: Value,
    pub(super) head: Markup,
    pub(super) table: Markup,
    pub(super) pager: Markup,
    /// The number of rows, and the file.
    csv: Option<(usize, String)>,
}

impl Render for Listed {
    fn render(&self) -> Markup {
        html! { (self.head) (self.table) (self.pager) }
    }
}

impl Listed {
    /// The page of this title; or the file, if that was asked for.
    pub(super) fn page(self, title: impl Into<String>, body: Markup) -> Content {
        let title = title.into();
        let Some((rows, csv)) = self.csv else { return Content::new(title, body) };
        let is_cut = self.found.maybe("next").is_some();
        let beginning = if is_cut { format!("-first-{rows}") } else { String::new() };
        Content::file(
            &format!("{}{beginning}.csv", title.replace(' ', "-")),
            Response { body: csv.into_bytes(), ..Response::new(200) },
        )
    }
}

impl<'a> List<'a> {
    /// A list without filters.
    pub(super) const fn new(
        title: &'a str,
        path: &'a str,
        cells: Cells<'a>,
        empty: EmptyNote<'a>,
    ) -> Self {
        Self { title, path, filters: &[], always: &[], cells, empty }
    }

    /// Reads the list as the URL says.
    pub(super) fn read(&self, view: &View<'_>) -> Result<Listed, PageError> {
        if view.query.get("csv").is_some() {
            return self.csv(view);
        }
        let found = self.rows(view)?;
        let chosen: Vec<&str> = view.query.all("columns").collect();
        Ok(Listed {
            head: html! { (self.tabs(view)) (self.filter(view)) },
            table: self.cells.chosen(view, &chosen, self.title, found.items("items"), self.empty),
            pager: html! { (self.columns(view, &chosen)) (pager(view, &found)) },
            found,
            csv: None,
        })
    }

    /// The rows that the URL asks for.
    fn rows(&self, view: &View<'_>) -> Result<Value, PageError> {
        self.rows_after(view, view.query.get("after").unwrap_or_default(), &[])
    }

    /// The first rows, up to about `most`, and whether there are more. An answer of the API may end early: it is read on.
    pub(super) fn first_rows(
        &self,
        view: &View<'_>,
        most: usize,
    ) -> Result<(Vec<Value>, bool), PageError> {
        let mut rows = Vec::new();
        let mut after = Some(String::new());
        while let Some(from) = after.take_if(|_| rows.len() < most) {
            let mut found = self.rows_after(view, &from, &[("limit", ROWS_AT_ONCE)])?;
            after = found.maybe("next").map(str::to_owned);
            if let Some(Value::Array(items)) = found.get_mut("items") {
                rows.append(items);
            }
        }
        Ok((rows, after.is_some()))
    }

    fn rows_after(
        &self,
        view: &View<'_>,
        after: &str,
        more: &[(&str, &str)],
    ) -> Result<Value, PageError> {
        let each = |(name, _, kind): &(&'static str, &str, FilterInput<'_>)| match kind {
            FilterInput::Time => (*name, view.when(name)),
            _ => (*name, view.query.get(name).unwrap_or_default().to_owned()),
        };
        let filters: Vec<_> = self.filters.iter().map(each).collect();
        let filters = filters.iter().map(|(name, value)| (*name, value.as_str()));
        let query = [("after", after)].into_iter().chain(more.iter().copied()).chain(filters);
        // Of a parameter that is sent twice, the API would refuse the second.
        let always =
            self.always.iter().filter(|(name, _)| more.iter().all(|(have, _)| have != name));
        view.read(self.path, &query.chain(always.copied()).collect::<Vec<_>>())
    }

    /// The page that is the list alone.
    pub(super) fn page(&self, view: &View<'_>) -> Result<Content, PageError> {
        let listed = self.read(view)?;
        let body = listed.render();
        Ok(listed.page(self.title, body))
    }

    /// The rows with all their fields, from the first one on.
    fn csv(&self, view: &View<'_>) -> Result<Listed, PageError> {
        let mut csv = Csv::default();
        let mut found = Value::Null;
        let mut after = Some(String::new());
        let clock = &view.inner().api.env.clock;
        let end = clock.monotonic().saturating_add(MAX_CSV_SPAN);
        let has_room = |csv: &Csv| {
            csv.lines.len() < MAX_CSV_ROWS
                && csv.names.len() < MAX_CSV_COLUMNS
                && csv.bytes < MAX_CSV_BYTES
                && clock.monotonic() < end
        };
        while let Some(from) = after.filter(|_| has_room(&csv)) {
            found = self.rows_after(view, &from, &[("limit", ROWS_AT_ONCE)])?;
            for row in found.items("items") {
                csv.add(row);
            }
            after = found.maybe("next").map(str::to_owned);
        }
        let rows = csv.lines.len();
        Ok(Listed { found, csv: Some((rows, csv.text())), ..Listed::default() })
    }

    /// A tab for each state.
    fn tabs(&self, view: &View<'_>) -> Markup {
        let states = self.filters.iter().find_map(|(name, _, kind)| match kind {
            FilterInput::States(words) => Some((*name, *words, false)),
            FilterInput::Counted(words) => Some((*name, *words, true)),
            _ => None,
        });
        let Some((name, words, is_counted)) = states else { return html! {} };
        let counts = if is_counted { view.read_or_null("/v1/stats", &[]) } else { Value::Null };
        let count = |state: &str| counts.get(state).or_else(|| counts.get(format!("{state}s")));
        let here = view.query.get(name).unwrap_or_default();
        let is_webhook = self.path == "/v1/webhook-events";
        let shown =
            |state| if name == "status" { word_of_status(state, is_webhook) } else { state };
        let others = others(view, &[name]);
        let at = |state| with_query(&view.head.path, others.iter().copied().chain([(name, state)]));
        html! {
            nav.tabs aria-label=(view.t.state) {
                a href=(at("")) aria-current=[here.is_empty().then_some("page")] { (view.t.all) }
                @for state in words {
                    a href=(at(state)) aria-current=[(here == *state).then_some("page")] data-word=[explained(shown(state))] {
                        (word(shown(state))) @if let Some(count) = count(state).and_then(Value::as_i64) { " " (number(count)) }
                    }
                }
            }
        }
    }

    /// A form that filters the list by the URL. On a phone it is folded until it is used.
    pub(super) fn filter(&self, view: &View<'_>) -> Markup {
        if self.filters.is_empty() {
            return html! {};
        }
        let is_used = !others(view, &["columns"]).is_empty();
        let kept = view.query.pairs().filter(|(name, _)| *name == "columns");
        html! {
            details.fold #filters open data-used[is_used] { summary { (view.t.filter) }
            form.filters method="get" action=(view.head.path) {
                @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
                @for (name, label, kind) in self.filters { (field(view, name, label, kind)) }
                button type="submit" { (view.t.filter) }
                @if is_used { a href=(view.head.path) { (view.t.clear) } }
            }
            @if self.filters.iter().any(|(name, ..)| *name == "since") { (presets(view)) }
            }
        }
    }

    /// A form that chooses the columns, and the link to the file.
    fn columns(&self, view: &View<'_>, chosen: &[&str]) -> Markup {
        let rest = others(view, &["columns"]);
        let csv = with_query(&view.head.path, rest.iter().copied().chain([("csv", "all")]));
        html! {
            details.columns { summary { (view.t.columns_and_csv) }
                form.filters method="get" action=(view.head.path) {
                    @for (name, value) in &rest { input type="hidden" name=(name) value=(value); }
                    @for (name, label, is_shown) in self.cells.offered(view, chosen) {
                        label.pick { input type="checkbox" name="columns" value=(name) checked[is_shown]; " " (label) }
                    }
                    button type="submit" { (view.t.show_columns) }
                }
                p { a href=(csv) download { (view.t.csv) } " · " small { (view.t.csv_about) } }
            }
        }
    }
}

/// The parameters that links keep, without those of some names.
fn others<'v>(view: &'v View<'_>, without: &[&str]) -> Vec<(&'v str, &'v str)> {
    let all =
        view.query.pairs().filter(|(name, value)| !PASSING.contains(name) && !value.is_empty());
    all.filter(|(name, _)| !without.contains(name)).collect()
}

/// One filter.
fn field(view: &View<'_>, name: &str, label: &str, kind: &FilterInput<'_>) -> Markup {
    let value = view.query.get(name).unwrap_or_default();
    let labelled = |field: Markup| html! { label { span { (label) } (field) } };
    match kind {
        FilterInput::Text => labelled(html! { input name=(name) value=(value) maxlength="255"; }),
        FilterInput::Time => html! {
            label { span { (label) ", " (zone()) }
                input name=(name) value=(value) placeholder=(view.t.time_hint) data-time; }
        },
        FilterInput::Choice(words) => labelled(html! {
            select name=(name) {
                option value="" { (view.t.all) }
                @for choice in *words {
                    // The text of an option is its value where it has none.
                    @let value_of = (word(choice) != *choice).then_some(choice);
                    option value=[value_of] selected[*choice == value] { (word(choice)) }
                }
            }
        }),
        FilterInput::States(_) | FilterInput::Counted(_) => {
            html! { input type="hidden" name=(name) value=(value); }
        }
    }
}

/// Links to the same list of the last hour, today and so on. The other filters stay.
fn presets(view: &View<'_>) -> Markup {
    let others = others(view, &["since", "until"]);
    html! {
        p.presets { @for (n, [name, since, until]) in PRESETS.into_iter().enumerate() {
            @if n > 0 { " · " }
            a href=(with_query(&view.head.path, others.iter().copied().chain([("since", since), ("until", until)])))
                data-preset=(since) aria-current=[(view.query.get("since") == Some(since)).then_some("true")] { (view.t.named(name)) }
        } }
    }
}

/// The links to the first page and the next one. Filters and columns stay.
fn pager(view: &View<'_>, answer: &Value) -> Markup {
    let others = || view.query.pairs().filter(|(name, _)| !matches!(*name, "after" | "did"));
    let path = &view.head.path;
    let next = answer.maybe("next").map(|next| with_query(path, others().chain([("after", next)])));
    html! {
        nav.pager aria-label=(view.t.pages) {
            @if view.query.get("after").is_some() { a href=(with_query(path, others())) { (view.t.newest) } }
            @if let Some(next) = next { a href=(next) rel="next" { (view.t.older) } }
        }
    }
}

/// Rows as CSV (RFC 4180). Fields of fields are named `a.b`.
#[derive(Default)]
struct Csv {
    names: Vec<String>,
    /// Each with the number of its fields: the names that were known then.
    lines: Vec<(String, usize)>,
    bytes: usize,
}

impl Csv {
    fn add(&mut self, row: &Value) {
        let fields = flattened("", row);
        for (name, _) in &fields {
            if !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        let value = |name: &String| {
            let field = fields.iter().find(|(have, _)| have == name);
            field.map(|(_, value)| quoted(value)).unwrap_or_default()
        };
        let line = self.names.iter().map(value).collect::<Vec<_>>().join(",");
        self.bytes = self.bytes.saturating_add(line.len());
        self.lines.push((line, self.names.len()));
    }

    /// Begins with a byte order mark, by which Excel knows UTF-8.
    fn text(self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| quoted(name)).collect();
        let mut text = format!("\u{feff}{}\r\n", names.join(","));
        for (line, count) in self.lines {
            text.push_str(&line);
            text.push_str(&",".repeat(names.len().saturating_sub(count)));
            text.push_str("\r\n");
        }
        text
    }
}

/// The fields of an object that have a value, and those of its objects. What is deeper is JSON.
fn flattened(name: &str, value: &Value) -> Vec<(String, String)> {
    let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Null => Vec::new(),
        Value::Object(fields) if !name.contains('.') => {
            fields.iter().flat_map(|(key, value)| flattened(&inner(key), value)).collect()
        }
        Value::String(text) => vec![(name.to_owned(), text.clone())],
        other => vec![(name.to_owned(), other.to_string())],
    }
}

/// A text as it stands between two commas. A spreadsheet takes what begins with one of some characters for a formula, also
/// after a semicolon, where it splits there: that gets an apostrophe. Source: OWASP, CSV Injection.
fn quoted(text: &str) -> String {
    let is_number = text.parse::<f64>().is_ok();
    let mut safe = String::with_capacity(text.len());
    let mut is_first = true;
    for c in text.chars() {
        if is_first && !is_number && "=+-@＝＋－＠".contains(c) {
            safe.push('\'');
        }
        is_first = matches!(c, ';' | '\t' | '\r' | '\n') || (is_first && c == ' ');
        safe.push(c);
    }
    if safe.contains([',', ';', '"', '\t', '\r', '\n']) {
        format!("\"{}\"", safe.replace('"', "\"\""))
    } else {
        safe
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_csv_file_has_all_fields_and_no_formula() {
        let rows = [
            json!({ "id": "a,\"b\"", "lag": -3, "hold": { "reason": "=1+1" }, "none": null }),
            json!({ "id": "ü;=1\n", "tags": ["x", "y"], "hold": { "a": { "b": "-5.00" } }, "=n": "-5.00" }),
        ];
        let expected = "\u{feff}id,lag,hold.reason,tags,hold.a,'=n\r\n\
                        \"a,\"\"b\"\"\",-3,'=1+1,,,\r\n\
                        \"ü;'=1\n\",,,\"[\"\"x\"\",\"\"y\"\"]\",\"{\"\"b\"\":\"\"-5.00\"\"}\",-5.00\r\n";
        let mut csv = Csv::default();
        for row in &rows {
            csv.add(row);
        }
        assert_eq!(csv.text(), expected);
    }
}

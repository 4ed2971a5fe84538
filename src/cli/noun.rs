//! What is printed of the API's nouns: lists, page by page, and single objects; and the flags that many commands share.
//!
//! Not here: each noun's columns, fields and verbs, which are in the noun's file.

use std::fmt::{Debug, Display};
use std::io::IsTerminal;

use clap::Args;
use serde_json::{Value, json};

use crate::base::clock::Timestamp;
use crate::cli::exit::Failure;
use crate::cli::flag::{SINCE, UNTIL};
use crate::cli::remote::{Remote, percent_encoded, with_query};
use crate::cli::show::{Cell, Cells, Column, Columns, Computed, list, text};
use crate::cli::{input, out};

/// Rows of a page while following all pages: the API's maximum.
const PAGE_ROWS: u16 = 500;
/// Rows of a list without `--limit`.
const DEFAULT_ROWS: u16 = 50;
/// Most rows of a table, because a table is laid out in memory. `--json --all` streams without a limit.
const MAX_TABLE_ROWS: usize = 10_000;

/// Flags of every list.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Rows")]
pub(super) struct Listing {
    #[arg(long, help = SINCE, value_name = "TIME", value_parser = input::time)]
    since: Option<String>,
    #[arg(long, help = UNTIL, value_name = "TIME", value_parser = input::time)]
    until: Option<String>,
    /// Rows to show, 1 to 500 [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: Option<u16>,
    /// Continue after this cursor, the `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Follow the pages to the end; with --json one object per line
    #[arg(long, id = "all_pages")]
    all: bool,
}

/// The flag of every command that deletes, or acts on many objects.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Confirm {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Confirm {
    /// Asks whether to do `act`. Without a terminal, `--yes` is required.
    pub(super) fn ask(self, act: impl Display) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            let why = format!("{act}: add --yes, because there is no terminal to confirm on");
            return Err(Failure::usage(why));
        }
        out::note(format_args!("{act}? [y/N]"));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        match answer.trim() {
            "y" | "Y" | "yes" if read.is_ok() => Ok(()),
            _ => Err(Failure::usage("nothing was done")),
        }
    }
}

/// The flag `--dry-run`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct DryRun {
    /// Only show what would be done
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// The parameters of a query.
pub(super) type Query = Vec<(String, String)>;

/// A noun of the API.
pub(super) struct Noun {
    /// The API path of its list.
    pub(super) path: &'static str,
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) fields: &'static [Cell],
    /// The field that `--since` and `--until` are compared with; empty: the API compares.
    pub(super) time: &'static str,
    /// Values of columns and fields that are computed.
    pub(super) by: Computed,
}

impl Noun {
    pub(super) const fn new(path: &'static str, one: &'static str, many: &'static str) -> Self {
        Self { path, one, many, columns: &[], fields: &[], time: "", by: &[] }
    }

    /// Sets the columns of its lists.
    pub(super) const fn columns(self, columns: &'static [Column]) -> Self {
        Self { columns, ..self }
    }

    /// Sets the fields of one object.
    pub(super) const fn fields(self, fields: &'static [Cell]) -> Self {
        Self { fields, ..self }
    }

    pub(super) const fn time(self, time: &'static str) -> Self {
        Self { time, ..self }
    }

    pub(super) const fn by(self, by: Computed) -> Self {
        Self { by, ..self }
    }

    /// Its lists as tables.
    pub(super) const fn table(&self) -> Columns {
        Columns { columns: self.columns, by: self.by }
    }

    /// One object, a field a line.
    pub(super) const fn lines(&self) -> Cells {
        Cells { cells: self.fields, by: self.by }
    }

    /// The path of one object.
    pub(super) fn at(&self, name: &str) -> String {
        format!("{}/{}", self.path, percent_encoded(name))
    }

    /// Lists the items at a path.
    pub(super) fn rows(
        &self,
        remote: &Remote,
        listing: &Listing,
        path: &str,
        mut query: Query,
    ) -> Result<(), Failure> {
        let Listing { limit, after, all, .. } = listing;
        if self.time.is_empty() {
            let times = [("since", &listing.since), ("until", &listing.until)];
            query.extend(
                times.iter().filter_map(|(n, t)| Some(((*n).to_owned(), t.as_ref()?.clone()))),
            );
        }
        let streams = *all && remote.json();
        let wanted = if *all { MAX_TABLE_ROWS } else { limit.unwrap_or(DEFAULT_ROWS).into() };
        let mut rows = Vec::new();
        let mut next = after.clone();
        loop {
            // The API may return fewer rows than a page has room for, so pages are read until `wanted` rows are there.
            let rest = u16::try_from(wanted.saturating_sub(rows.len())).unwrap_or(PAGE_ROWS);
            let size = if *all { limit.unwrap_or(PAGE_ROWS) } else { rest };
            let page = remote.get(&page_path(path, &query, size, next.as_deref()))?;
            for row in items(&page).into_iter().filter(|row| listing.includes(row, self.time)) {
                if streams { out::json(&row)? } else { rows.push(row) }
            }
            next = page.get("next").and_then(Value::as_str).map(str::to_owned);
            if next.is_none() || rows.len() >= wanted {
                break;
            }
        }
        if streams {
            return Ok(());
        }
        if *all {
            rows.truncate(MAX_TABLE_ROWS);
            next = None;
        }
        print_page(self.table(), self.many, rows, next.as_deref(), remote.json())?;
        Ok(())
    }

    /// Prints one object: its kind, name, state and fields.
    pub(super) fn print(&self, remote: &Remote, item: &Value) -> Result<(), Failure> {
        if remote.json() {
            return out::json(item);
        }
        let named = ["name", "id"].map(|field| text(item, field));
        let name = named.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        let title = format!("{} {name}", self.one);
        let state = text(item, "state");
        out::line(format!("{title:<40}  {}", state.to_ascii_lowercase()).trim_end())?;
        self.lines().fields(item)
    }
}

/// Rows that are all in memory, such as files in a directory.
pub(super) struct LocalRows {
    pub(super) rows: Vec<Value>,
    /// The field that `--after` compares.
    pub(super) id_field: &'static str,
    /// The field that `--since` and `--until` compare.
    pub(super) time_field: &'static str,
}

impl Listing {
    /// Whether a row is in the time range; always true without a field, because the API has compared.
    fn includes(&self, row: &Value, field: &str) -> bool {
        if field.is_empty() || (self.since.is_none() && self.until.is_none()) {
            return true;
        }
        let Some(at) = Timestamp::parse(&text(row, field)) else { return false };
        let parse = |time: &Option<String>| Timestamp::parse(time.as_deref()?);
        parse(&self.since).is_none_or(|since| since <= at)
            && parse(&self.until).is_none_or(|until| at < until)
    }

    /// Prints rows that are all in memory.
    pub(super) fn print(
        &self,
        columns: Columns,
        what: &str,
        local: LocalRows,
        json: bool,
    ) -> Result<(), Failure> {
        let LocalRows { mut rows, id_field, time_field } = local;
        rows.retain(|row| self.includes(row, time_field));
        if let Some(after) = &self.after {
            let from = rows.iter().position(|row| text(row, id_field) == *after);
            rows = rows.split_off(from.map_or(rows.len(), |at| at.saturating_add(1)));
        }
        let wanted = usize::from(self.limit.unwrap_or(DEFAULT_ROWS));
        let next = (!self.all && rows.len() > wanted).then(|| {
            rows.truncate(wanted);
            rows.last().map(|row| text(row, id_field)).unwrap_or_default()
        });
        if self.all && json {
            return rows.iter().try_for_each(out::json);
        }
        print_page(columns, what, rows, next.as_deref(), json)
    }
}

fn print_page(
    columns: Columns,
    what: &str,
    rows: Vec<Value>,
    next: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    if json {
        return out::json(&json!({ "items": rows, "next": next }));
    }
    if let Some(next) = next {
        out::note(format_args!("There are more rows: add --after {next}, or --all."));
    }
    if rows.is_empty() {
        out::note(format_args!("There are no {what}."));
        return Ok(());
    }
    columns.table(&rows)?;
    if rows.len() == MAX_TABLE_ROWS {
        out::note(format_args!("Only {MAX_TABLE_ROWS} rows are shown; --all --json prints all."));
    }
    Ok(())
}

fn page_path(path: &str, query: &Query, size: u16, after: Option<&str>) -> String {
    let mut query = query.clone();
    query.push(("limit".to_owned(), size.to_string()));
    query.extend(after.map(|after| ("after".to_owned(), after.to_owned())));
    with_query(path, &query)
}

/// Calls `take` for every item of a list, page by page.
pub(super) fn each(
    remote: &Remote,
    path: &str,
    query: &Query,
    mut take: impl FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after: Option<String> = None;
    loop {
        let page = remote.get(&page_path(path, query, PAGE_ROWS, after.as_deref()))?;
        items(&page).into_iter().try_for_each(&mut take)?;
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok(()),
        }
    }
}

/// All items of a list, from every page.
pub(super) fn collect(remote: &Remote, path: &str, query: &Query) -> Result<Vec<Value>, Failure> {
    let mut items = Vec::new();
    each(remote, path, query, |item| {
        items.push(item);
        Ok(())
    })?;
    Ok(items)
}

/// The items of a page.
pub(super) fn items(page: &Value) -> Vec<Value> {
    list(page, "items").to_vec()
}

//! Lists: one page, or all of them, as a table or as JSON.
//!
//! Not here: the columns and filters, which are each list's own.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::remote::{Remote, with_query};
use crate::cli::show::{self, Column};
use crate::cli::{Failure, input, out};

/// Rows of a page while all are followed: the API's most.
const PAGE_ROWS: u16 = 500;
/// Rows of a list unless it is told.
const ROWS_DEFAULT: u16 = 50;
/// A table is laid out as a whole, so it has an end; `--json` streams without one.
const MAX_TABLE_ROWS: usize = 10_000;

/// Flags of every list.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Pages")]
pub(super) struct Paging {
    /// Rows to show, 1 to 500 [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: Option<u16>,
    /// Begin after this cursor, the `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Follow the pages to the end; with --json one object per line
    #[arg(long)]
    all: bool,
}

/// Filters of lists of what was received.
#[derive(Clone, Debug, Args)]
pub(super) struct Received {
    /// Received at or after this time (UTC), this day (2026-01-31), or so long ago (2h)
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    since: Option<String>,
    /// Received before this time, this day, or so long ago
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    until: Option<String>,
}

impl Received {
    /// Those that were given.
    pub(super) fn filters(&self) -> [Option<(&'static str, String)>; 2] {
        [filter("since", self.since.as_ref()), filter("until", self.until.as_ref())]
    }
}

/// Filters of lists of what was made of it.
#[derive(Clone, Debug, Args)]
pub(super) struct Made {
    /// Made at or after this time (UTC), this day (2026-01-31), or so long ago (2h)
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    since: Option<String>,
    /// Made before this time, this day, or so long ago
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    until: Option<String>,
}

impl Made {
    /// Those that were given.
    pub(super) fn filters(&self) -> [Option<(&'static str, String)>; 2] {
        [filter("since", self.since.as_ref()), filter("until", self.until.as_ref())]
    }
}

/// A list of the API.
pub(super) struct List<'a> {
    pub(super) path: &'a str,
    /// The filters that were given.
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) columns: &'a [Column],
    /// What the rows are, for a list that has none.
    pub(super) what: &'a str,
}

/// A filter of the query, where it was given.
pub(super) fn filter(
    name: &'static str,
    value: Option<&impl ToString>,
) -> Option<(&'static str, String)> {
    value.map(|value| (name, value.to_string()))
}

impl List<'_> {
    /// Fetches and prints.
    pub(super) fn print(self, remote: &Remote, paging: &Paging) -> Result<(), Failure> {
        if paging.all && remote.json() {
            return pages(remote, &self, paging, |item| out::json(&item).map(|()| true));
        }
        let (mut rows, mut next) = (Vec::new(), None);
        if paging.all {
            pages(remote, &self, paging, |item| {
                rows.push(item);
                Ok(rows.len() < MAX_TABLE_ROWS)
            })?;
        } else {
            // A page may look at many rows and show few of them; a person wants as many as they asked for.
            let wanted = usize::from(paging.limit.unwrap_or(ROWS_DEFAULT));
            next.clone_from(&paging.after);
            loop {
                let rest = u16::try_from(wanted.saturating_sub(rows.len())).ok();
                let page = remote.get(&self.address(rest, next.as_deref()))?;
                rows.extend(items(&page));
                next = page.get("next").and_then(Value::as_str).map(str::to_owned);
                if next.is_none() || rows.len() >= wanted {
                    break;
                }
            }
        }
        if remote.json() {
            return out::json(&json!({ "items": rows, "next": next }));
        }
        if let Some(next) = next {
            out::note(format_args!("There is more: add --after {next}, or --all."));
        }
        if rows.is_empty() {
            out::note(format_args!("There are no {}.", self.what));
            return Ok(());
        }
        show::table(self.columns, &rows)?;
        if rows.len() == MAX_TABLE_ROWS {
            out::note(format_args!(
                "Only {MAX_TABLE_ROWS} rows are shown; --all --json gives all."
            ));
        }
        Ok(())
    }

    fn address(&self, limit: Option<u16>, after: Option<&str>) -> String {
        let mut query = self.query.clone();
        query.extend(filter("limit", limit.as_ref()));
        query.extend(filter("after", after.as_ref()));
        with_query(self.path, &query)
    }
}

/// Hands every item of every page on, until there is none or `take` says that it is enough.
fn pages(
    remote: &Remote,
    list: &List<'_>,
    paging: &Paging,
    mut take: impl FnMut(Value) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut after = paging.after.clone();
    loop {
        let page = remote.get(&list.address(paging.limit.or(Some(PAGE_ROWS)), after.as_deref()))?;
        for item in items(&page) {
            if !take(item)? {
                return Ok(());
            }
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok(()),
        }
    }
}

/// Every item of a list, page by page.
pub(super) fn each(
    remote: &Remote,
    path: &str,
    query: Vec<(&'static str, String)>,
    mut take: impl FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let list = List { path, query, columns: &[], what: "" };
    let paging = Paging { limit: None, after: None, all: true };
    pages(remote, &list, &paging, |item| take(item).map(|()| true))
}

fn items(page: &Value) -> Vec<Value> {
    page.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
}

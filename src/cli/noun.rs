//! What the nouns of the API have in common on the command line: list, show, delete, and verbs that answer with
//! the thing itself; and the flags of these, which mean the same everywhere.
//!
//! Not here: the columns, filters and further verbs, which are in each noun's file.

use std::fmt::{Debug, Display};
use std::io::IsTerminal;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::base::clock::Timestamp;
use crate::cli::exit::Failure;
use crate::cli::remote::{ConnectArgs, Remote, plain, with_query};
use crate::cli::shared::Shared;
use crate::cli::show::{self, Column, Field, text};
use crate::cli::{input, out};

/// Rows of a page while all pages are followed: the API's maximum.
const PAGE_ROWS: u16 = 500;
/// Rows of a list without `--limit`.
const DEFAULT_ROWS: u16 = 50;
/// A table is laid out as a whole, so it has an end; `--json` streams without one.
const MAX_TABLE_ROWS: usize = 10_000;

/// A command whose verbs talk to the service.
#[derive(Debug, Args)]
pub(super) struct Api<V: Verbs> {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(subcommand)]
    verb: V,
}

/// The verbs of a noun.
pub(super) trait Verbs: Debug + Subcommand {
    /// Carries the verb out; most begin by opening the connection.
    fn run(&self, connect: &ConnectArgs, shared: &Shared) -> Result<(), Failure>;
}

impl<V: Verbs> Api<V> {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        self.verb.run(&self.connect, shared)
    }
}

/// The flags of every list.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Rows")]
pub(super) struct Listing {
    /// Only rows from this time on: 2026-01-31T12:00:00Z, the day 2026-01-31 (UTC), or 2h ago as 2h
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    since: Option<String>,
    /// Only rows before this time
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    until: Option<String>,
    /// Rows to show, 1 to 500 [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: Option<u16>,
    /// Continue after this cursor, the `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Follow the pages to the end; with --json one object per line
    #[arg(long)]
    all: bool,
}

/// One thing by its name.
#[derive(Debug, Args)]
pub(super) struct NameArg {
    /// Its name
    pub(super) name: String,
}

/// One thing by its name, to be deleted.
#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// Its name
    pub(super) name: String,
    #[command(flatten)]
    pub(super) confirm: Confirm,
}

/// The flag of every command that deletes, or acts on many things.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Confirm {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Confirm {
    /// Asks whether `act` is to be done; without a terminal only `--yes` is an answer.
    pub(super) fn ask(self, act: impl Display) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            let why = format!("{act}: add --yes, because there is no terminal to ask on");
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

/// The flag of every command that can say what it would do.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct DryRun {
    /// Only say what would be done
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// The parameters of a query.
pub(super) type Query = Vec<(String, String)>;

/// Flags as a request's body: those that were given, under their serialized names.
pub(super) fn body(flags: &impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(flags) else { return Map::new() };
    fields.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(inner) => !inner.is_empty(),
        _ => true,
    });
    fields
}

/// Flags as a query: those that were given.
pub(super) fn query(flags: &impl Serialize) -> Query {
    let given = body(flags).into_iter().filter(|(_, value)| *value != false);
    given
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name, text)
        })
        .collect()
}

/// A noun of the API.
pub(super) struct Noun {
    /// Where the API lists them.
    pub(super) path: &'static str,
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    pub(super) columns: &'static [Column],
    /// The field that `--since` and `--until` are compared with here; `None`: the API does it.
    pub(super) time: Option<&'static str>,
    /// What is shown of one.
    pub(super) fields: &'static [Field],
}

impl Noun {
    /// The path of one.
    pub(super) fn at(&self, name: &str) -> String {
        format!("{}/{}", self.path, plain(name))
    }

    pub(super) fn list(
        &self,
        remote: &Remote,
        listing: &Listing,
        filters: &impl Serialize,
    ) -> Result<(), Failure> {
        self.list_at(self.path, remote, listing, filters)
    }

    /// Lists the items at another path than the noun's own.
    pub(super) fn list_at(
        &self,
        path: &str,
        remote: &Remote,
        listing: &Listing,
        filters: &impl Serialize,
    ) -> Result<(), Failure> {
        let Listing { limit, after, all, .. } = listing;
        let mut query = query(filters);
        if self.time.is_none() {
            let times = [("since", &listing.since), ("until", &listing.until)];
            query.extend(
                times.iter().filter_map(|(n, t)| Some(((*n).to_owned(), t.as_ref()?.clone()))),
            );
        }
        let streams = *all && remote.json();
        let wanted = if *all { MAX_TABLE_ROWS } else { limit.unwrap_or(DEFAULT_ROWS).into() };
        let (mut rows, mut next) = (Vec::new(), after.clone());
        loop {
            // A page may look at many rows and show few: pages follow until there are as many as wanted.
            let rest = u16::try_from(wanted.saturating_sub(rows.len())).unwrap_or(PAGE_ROWS);
            let size = if *all { limit.unwrap_or(PAGE_ROWS) } else { rest };
            let page = remote.get(&page_path(path, &query, size, next.as_deref()))?;
            for row in items(&page).into_iter().filter(|row| listing.takes(row, self.time)) {
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
        print_page(self.columns, self.many, rows, next.as_deref(), remote.json())?;
        Ok(())
    }

    /// Shows one.
    pub(super) fn show(&self, remote: &Remote, name: &str) -> Result<(), Failure> {
        self.print(remote, &remote.get(&self.at(name))?)
    }

    /// Does something with one, and shows what it is then.
    pub(super) fn act(
        &self,
        remote: &Remote,
        name: &str,
        verb: &str,
        body: Option<&Value>,
    ) -> Result<(), Failure> {
        self.print(remote, &remote.post(&format!("{}/{verb}", self.at(name)), body)?)
    }

    /// Deletes one, after a question.
    pub(super) fn delete(
        &self,
        remote: &Remote,
        args: &DeleteArgs,
        note: &str,
    ) -> Result<(), Failure> {
        let DeleteArgs { name, confirm } = args;
        confirm.ask(format_args!("Delete the {} {name}", self.one.to_ascii_lowercase()))?;
        let deleted = remote.delete(&self.at(name))?;
        remote.answer(&deleted, format_args!("deleted: {name}{note}"))
    }

    /// Prints one: its kind and name, its state, and its fields.
    pub(super) fn print(&self, remote: &Remote, item: &Value) -> Result<(), Failure> {
        if remote.json() {
            return out::json(item);
        }
        let named = ["name", "id"].map(|field| text(item, field));
        let name = named.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
        let (title, state) = (format!("{} {name}", self.one), text(item, "state"));
        out::line(format!("{title:<40}  {}", state.to_ascii_lowercase()).trim_end())?;
        show::fields(item, self.fields)
    }
}

impl Listing {
    /// Whether a row is in the time range; `field` is `None` where the API has looked.
    fn takes(&self, row: &Value, field: Option<&str>) -> bool {
        let Some(field) = field.filter(|_| self.since.is_some() || self.until.is_some()) else {
            return true;
        };
        let Some(at) = Timestamp::parse(&text(row, field)) else { return false };
        let parse = |time: &Option<String>| Timestamp::parse(time.as_deref()?);
        parse(&self.since).is_none_or(|since| since <= at)
            && parse(&self.until).is_none_or(|until| at < until)
    }

    /// Prints rows that are all here, such as files in a directory; `id` and `time` name their fields.
    pub(super) fn print(
        &self,
        columns: &[Column],
        what: &str,
        mut rows: Vec<Value>,
        (id, time): (&str, &str),
        json: bool,
    ) -> Result<(), Failure> {
        rows.retain(|row| self.takes(row, Some(time)));
        if let Some(after) = &self.after {
            let from = rows.iter().position(|row| text(row, id) == *after);
            rows = rows.split_off(from.map_or(rows.len(), |at| at.saturating_add(1)));
        }
        let wanted = usize::from(self.limit.unwrap_or(DEFAULT_ROWS));
        let next = (!self.all && rows.len() > wanted).then(|| {
            rows.truncate(wanted);
            rows.last().map(|row| text(row, id)).unwrap_or_default()
        });
        if self.all && json {
            return rows.iter().try_for_each(out::json);
        }
        print_page(columns, what, rows, next.as_deref(), json)
    }
}

fn print_page(
    columns: &[Column],
    what: &str,
    rows: Vec<Value>,
    next: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    if json {
        return out::json(&json!({ "items": rows, "next": next }));
    }
    if let Some(next) = next {
        out::note(format_args!("There is more: add --after {next}, or --all."));
    }
    if rows.is_empty() {
        out::note(format_args!("There are no {what}."));
        return Ok(());
    }
    show::table(columns, &rows)?;
    if rows.len() == MAX_TABLE_ROWS {
        out::note(format_args!("Only {MAX_TABLE_ROWS} rows are shown; --all --json gives all."));
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

/// The items of a page.
pub(super) fn items(page: &Value) -> Vec<Value> {
    page.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
}

//! `oncebox source ddl`: the SQL for an ERP's own database, which the ERP's administrator runs.
//!
//! A line of these files that begins with the names of forms in brackets is printed for those forms alone.

use clap::ValueEnum;

use crate::cli::prelude::*;

/// The longest name of a table: names of indexes and triggers are made of it, and may have 63 or 64 bytes.
const MAX_TABLE_BYTES: usize = 40;

/// Arguments of `source ddl`.
#[derive(Debug, Args)]
pub(super) struct Ddl {
    /// The ERP's database
    #[arg(value_enum)]
    database: Product,
    /// Name of the table
    #[arg(long, default_value = "outbox", value_name = "TABLE", value_parser = identifier)]
    table: String,
    /// For two boxes that read one table: each takes rows of its own (`source add --mode claim`)
    #[arg(long, conflicts_with = "read_only")]
    two_boxes: bool,
    /// PostgreSQL only: Oncebox gets no right to change the table (`source add --mode xid8`)
    #[arg(long)]
    read_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Product {
    Sqlite,
    Postgresql,
    Mariadb,
    Sqlserver,
}

impl Product {
    const fn text(self) -> &'static str {
        match self {
            Self::Sqlite => include_str!("sqlite.sql"),
            Self::Postgresql => include_str!("postgresql.sql"),
            Self::Mariadb => include_str!("mariadb.sql"),
            Self::Sqlserver => include_str!("sqlserver.sql"),
        }
    }
}

/// How Oncebox keeps track of the rows that it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It marks them.
    Mark,
    /// Boxes claim rows, then mark them.
    Claim,
    /// It changes nothing, and reads in the order of transactions.
    Xid8,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Claim => "claim",
            Self::Xid8 => "xid8",
        }
    }
}

/// Prints the SQL.
pub(super) fn print(call: &Call<'_>) -> Done {
    let flags: Ddl = call.flags()?;
    let form = form(&flags).map_err(Failure::usage)?;
    out::bytes(printed(flags.database.text(), form, &flags.table).as_bytes())
}

/// The form that the flags ask for, if the database has it.
fn form(flags: &Ddl) -> Result<Form, String> {
    let form = match flags {
        Ddl { two_boxes: true, .. } => Form::Claim,
        Ddl { read_only: true, .. } => Form::Xid8,
        _ => Form::Mark,
    };
    match (flags.database, form) {
        (Product::Sqlite, Form::Claim) => Err(
            "SQLite has no form for two boxes: one box reads the file. Leave out --two-boxes".to_owned(),
        ),
        (Product::Sqlite, Form::Xid8) => {
            Err("an outbox in SQLite is always only read. Leave out --read-only".to_owned())
        }
        (Product::Mariadb | Product::Sqlserver, Form::Xid8) => Err(
            "only PostgreSQL shows which transactions have ended, so only there a table can be read without a \
             right to mark its rows. Leave out --read-only"
                .to_owned(),
        ),
        (_, form) => Ok(form),
    }
}

/// The lines of a file that are for a form, with the table's name.
fn printed(text: &str, form: Form, table: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for line in text.lines() {
        let marked = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let line = match marked {
            Some((forms, line)) if forms.split(' ').any(|name| name == form.name()) => line,
            Some(_) => continue,
            None => line,
        };
        printed.push_str(&line.replace("{table}", table));
        printed.push('\n');
    }
    printed
}

/// Accepts a name that needs no quotes in any database.
pub(super) fn identifier(text: &str) -> Result<String, String> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if starts && plain && text.len() <= MAX_TABLE_BYTES {
        return Ok(text.to_owned());
    }
    Err(format!("use up to {MAX_TABLE_BYTES} letters, digits and _, beginning with a letter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_other_forms_is_left_out() {
        let text = "a {table}\n[mark claim]b\n[xid8]  {table}\n[claim]c\n";
        assert_eq!(printed(text, Form::Mark, "t"), "a t\nb\n");
        assert_eq!(printed(text, Form::Claim, "t"), "a t\nb\nc\n");
        assert_eq!(printed(text, Form::Xid8, "t"), "a t\n  t\n");
    }

    #[test]
    fn every_form_that_a_file_names_can_be_printed() {
        for product in [Product::Sqlite, Product::Postgresql, Product::Mariadb, Product::Sqlserver]
        {
            for line in product.text().lines().filter(|line| line.starts_with('[')) {
                let (forms, _rest) = line.split_once(']').unwrap();
                let forms = forms.strip_prefix('[').unwrap();
                let known = [Form::Mark, Form::Claim, Form::Xid8].map(Form::name);
                assert!(forms.split(' ').all(|form| known.contains(&form)), "{line}");
            }
        }
    }
}

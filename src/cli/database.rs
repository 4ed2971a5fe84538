//! `oncebox database`: databases of others, such as an ERP's own: those of the settings.

use crate::cli::ddl::identifier;
use crate::cli::prelude::*;
use crate::databases::product::Product;
use crate::databases::store;

const VERBS: &[CommandRow] = &[
    command("list", "Databases, whether they answer, and what uses them")
        .calls("listDatabases")
        .answered(list_all),
    command(
        "test",
        "Connect to a database, and say what was found and what to do; nothing is changed there",
    )
    .calls("testDatabase")
    .answered(test),
    command(
        "ddl",
        "Print the SQL for an ERP: the tables into which events are written, and their grants",
    )
    .offline(print_ddl)
    .more(Ddl::augment_args),
];

const DATABASES: Noun = Noun::new("/v1/databases", "Database", "databases").columns(&[
    column("NAME", 0, "name"),
    column("PRODUCT", 1, "product"),
    column("STATE", 0, "state"),
    column("SINCE (UTC)", 1, "since"),
    column("RESTARTS", 2, "restarts"),
    column("USED BY", 2, "used_by"),
    column("ERROR", 1, "last_error"),
]);

pub(super) const COMMANDS: Commands = Commands::new(
    &DATABASES,
    command(
        "database",
        "Databases of others, such as an ERP's own: those of the settings, [databases.NAME]",
    ),
    VERBS,
);

/// Arguments of `database ddl`.
#[derive(Debug, Args)]
struct Ddl {
    /// What kind of database it is: postgresql, mariadb or sqlserver
    #[arg(value_parser = product)]
    product: Product,
    /// Name of the table of --inbox
    #[arg(long, default_value = "oncebox_inbox", value_name = "TABLE", value_parser = identifier)]
    inbox: String,
    /// The user who gets the grants, as in SQL
    #[arg(long, default_value = "oncebox", value_name = "USER")]
    user: String,
}

fn product(text: &str) -> Result<Product, String> {
    Product::parse(text).ok_or_else(|| "use postgresql, mariadb or sqlserver".to_owned())
}

fn print_ddl(call: &Call<'_>) -> Done {
    let Ddl { product, inbox, user } = call.flags()?;
    out::bytes(store::target_tables(product, &inbox, &user).as_bytes())
}

fn list_all(_call: &Call<'_>, _remote: &Remote, found: &Value) -> Done {
    let items = list(found, "items");
    if items.is_empty() {
        return out::line(
            "no databases: the settings have no [databases.NAME] (docs/databases.md)",
        );
    }
    DATABASES.table().table(items)
}

/// Prints the checks; fails if one of them fails.
fn test(call: &Call<'_>, _remote: &Remote, found: &Value) -> Done {
    for check in list(found, "checks") {
        let state = text(check, "state");
        let name = text(check, "name");
        out::line(format_args!("  {state:<4}  {name:<10}  {}", text(check, "detail")))?;
    }
    if found.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(());
    }
    Err(Failure::failed(format!("{} cannot be used as it is", call.text("name"))))
}

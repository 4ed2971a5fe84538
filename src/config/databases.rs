//! `[databases.NAME]`: databases of others, such as an ERP's own. Their names are the operator's, so that their keys have a
//! table of their own.

#![expect(clippy::doc_markdown, reason = "descriptions of settings are plain text for people")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::DeValue;

use crate::config::forms::{Flag, Form, Maybe, Number, Path, RawSetting, SecretPath, Text, Word};
use crate::config::problem::{Problem, SourceText, did_you_mean};
use crate::model::database_product::Product;
use crate::model::name::Name;

/// The section whose keys are names that the operator gives.
pub const DATABASES: &str = "databases";

const PRODUCTS: &[(&str, Product)] = &[
    (Product::Postgresql.as_str(), Product::Postgresql),
    (Product::Mariadb.as_str(), Product::Mariadb),
    (Product::SqlServer.as_str(), Product::SqlServer),
];

/// A key of a database.
pub struct DatabaseKey {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its default in words.
    pub default: &'static str,
    /// A value as an example, as it is written in a file.
    pub example: &'static str,
    put: fn(&mut DatabaseAt, RawSetting<'_>) -> Result<(), String>,
    get: fn(&DatabaseAt) -> Value,
    public: fn(&DatabaseAt) -> Value,
    schema: fn() -> Value,
    says: fn() -> String,
}

impl DatabaseKey {
    /// The allowed values as text.
    pub fn says(&self) -> String {
        (self.says)()
    }
}

/// Makes the struct of a database and [`DATABASE_KEYS`] from the table. A line is: name, type, default, form, description,
/// default in words, and an example.
macro_rules! keys {
    ($($name:ident: $type:ty = $default:expr, $form:expr, $about:literal, $says:literal, $example:literal;)*) => {
        /// A database of the settings, as its keys say.
        #[derive(Clone, Debug, PartialEq)]
        pub struct DatabaseAt {
            $(#[doc = $about] pub $name: $type,)*
        }

        impl Default for DatabaseAt {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        /// The keys of a database, in the order of the file.
        pub const DATABASE_KEYS: &[DatabaseKey] = &[$(
            DatabaseKey {
                name: stringify!($name),
                about: $about,
                default: $says,
                example: $example,
                put: |database, given| {
                    database.$name = $form.read(given)?;
                    Ok(())
                },
                get: |database| $form.shown(&database.$name),
                public: |database| $form.public(&database.$name),
                schema: || $form.schema(),
                says: || $form.says(),
            },
        )*];
    };
}

keys! {
    driver: Option<String> = None, Maybe(Text),
        "The ODBC driver, as odbcinst -q -d names it, or the path of its library.", "none", "\"PostgreSQL Unicode\"";
    dsn: Option<String> = None, Maybe(Text),
        "Instead of driver: a data source of odbc.ini. What is set here beside it goes first.", "none", "\"erp\"";
    product: Option<Product> = None, Maybe(Word(PRODUCTS)),
        "What kind of database it is. MySQL is mariadb.", "as the name of the driver says", "\"postgresql\"";
    server: Option<String> = None, Maybe(Text),
        "Its host, or the directory of its socket.", "the driver's", "\"10.0.0.5\"";
    port: Option<u32> = None, Maybe(Number(1, 65_535)),
        "Its port.", "the driver's", "5432";
    database: Option<String> = None, Maybe(Text),
        "The database on that server.", "the user's", "\"odoo\"";
    user: Option<String> = None, Maybe(Text),
        "The user to log on with. It needs the grants that oncebox database test prints, and no more.", "none: no log-on", "\"oncebox\"";
    password_file: Option<PathBuf> = None, Maybe(SecretPath),
        "File of the user's password, mode 0600. It is read for each connection.", "none: no password", "\"/etc/oncebox/erp.password\"";
    tls: bool = true, Flag,
        "Whether the connection is encrypted, and the server's certificate is checked. Set false only for this machine or a network that is yours alone.", "true", "true";
    ca_file: Option<PathBuf> = None, Maybe(Path),
        "PEM file of the authority that signed the server's certificate.", "those of the machine", "\"/etc/oncebox/erp-ca.pem\"";
    tenants: Vec<String> = vec!["default".to_owned()], TenantNames,
        "The tenants whose sources and subscriptions may use it.", "[\"default\"]", "[\"default\"]";
    connections: u32 = 2, Number(1, 16),
        "How many connections may be open at once, each with a process of its own.", "2", "2";
    program: Option<PathBuf> = None, Maybe(Path),
        "The program oncebox-odbc.", "beside oncebox, else in PATH", "\"/usr/bin/oncebox-odbc\"";
}

/// Names of tenants.
struct TenantNames;

impl Form for TenantNames {
    type Output = Vec<String>;

    fn read(&self, given: RawSetting<'_>) -> Result<Vec<String>, String> {
        let names = given.list()?;
        for name in &names {
            Name::parse(name).map_err(|error| format!("has {name:?}: {error}"))?;
        }
        if names.is_empty() {
            return Err("names no tenant, so that nobody may use it".to_owned());
        }
        Ok(names)
    }

    fn shown(&self, held: &Vec<String>) -> Value {
        json!(held)
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
    }

    fn says(&self) -> String {
        "a list of tenants".to_owned()
    }
}

/// Databases by their names.
pub(super) struct DatabaseTables;

impl Form for DatabaseTables {
    type Output = BTreeMap<String, DatabaseAt>;

    fn read(&self, given: RawSetting<'_>) -> Result<Self::Output, String> {
        match given {
            RawSetting::Toml(value) => one(value).map(|at| [("name".to_owned(), at)].into()),
            RawSetting::Text(_) => Err("is set in a file alone: [databases.erp]".to_owned()),
        }
    }

    fn shown(&self, held: &Self::Output) -> Value {
        shown(held, |key| key.get)
    }

    fn public(&self, held: &Self::Output) -> Value {
        shown(held, |key| key.public)
    }

    fn schema(&self) -> Value {
        let keys: Map<String, Value> = DATABASE_KEYS.iter().map(schema_of).collect();
        json!({ "type": "object", "additionalProperties": false, "properties": keys })
    }

    fn says(&self) -> String {
        "a table".to_owned()
    }
}

fn schema_of(key: &DatabaseKey) -> (String, Value) {
    let mut schema = (key.schema)();
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), key.about.into());
    }
    (key.name.to_owned(), schema)
}

/// Null if there is none.
fn shown(
    held: &BTreeMap<String, DatabaseAt>,
    how: fn(&DatabaseKey) -> fn(&DatabaseAt) -> Value,
) -> Value {
    if held.is_empty() {
        return Value::Null;
    }
    let of = |database: &DatabaseAt| {
        let values = DATABASE_KEYS.iter().map(|key| (key.name.to_owned(), how(key)(database)));
        values.filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>()
    };
    held.iter().map(|(name, database)| (name.clone(), Value::Object(of(database)))).collect()
}

/// A database without the places of its mistakes.
fn one(value: &DeValue<'_>) -> Result<DatabaseAt, String> {
    let table = value.as_table().ok_or("must be a table like [databases.erp]")?;
    let mut database = DatabaseAt::default();
    for (name, value) in table {
        put(&mut database, name.get_ref(), value.get_ref())?;
    }
    whole(&database)?;
    Ok(database)
}

/// Sets a key. The error continues a sentence that begins with the key's place.
fn put(database: &mut DatabaseAt, name: &str, value: &DeValue<'_>) -> Result<(), String> {
    let Some(key) = DATABASE_KEYS.iter().find(|key| key.name == name) else {
        let near = did_you_mean(name, DATABASE_KEYS.iter().map(|key| key.name));
        return Err(format!("{name} is no key of a database{near}"));
    };
    (key.put)(database, RawSetting::Toml(value)).map_err(|wrong| format!("{name} {wrong}"))
}

/// Checks what the keys are together, and fills in what follows.
fn whole(database: &DatabaseAt) -> Result<(), String> {
    match (&database.driver, &database.dsn) {
        (None, None) => Err("needs a driver, as odbcinst -q -d names it, or a dsn".to_owned()),
        (Some(_), Some(_)) => Err("has a driver and a dsn; one of them says the driver".to_owned()),
        _ if database.product().is_none() => {
            let words: Vec<&str> = Product::ALL.iter().map(|product| product.as_str()).collect();
            Err(format!("needs a product ({}): the driver does not tell", words.join(", ")))
        }
        _ if database.password_file.is_some() && database.user.is_none() => {
            Err("has a password_file and no user".to_owned())
        }
        _ if !database.tls && database.ca_file.is_some() => {
            Err("has a ca_file, but tls = false".to_owned())
        }
        _ => Ok(()),
    }
}

impl DatabaseAt {
    /// The kind of database: the setting `product`, else the one for which the driver is known.
    pub fn product(&self) -> Option<Product> {
        self.product.or_else(|| Product::of_driver(self.driver.as_deref()?))
    }
}

/// Reads the section `databases`.
pub(super) fn section(
    text: SourceText<'_>,
    at: usize,
    value: &DeValue<'_>,
    into: &mut BTreeMap<String, DatabaseAt>,
    problems: &mut Vec<Problem>,
) {
    let Some(tables) = value.as_table() else {
        problems.push(text.problem(at, "databases is a section: write [databases.erp]"));
        return;
    };
    for (name, value) in tables {
        let at = name.span().start;
        let name = name.get_ref();
        match Name::parse(name) {
            Ok(_) => named(text, at, name, value, into, problems),
            Err(error) => problems.push(text.problem(at, format!("databases.{name}: {error}"))),
        }
    }
}

fn named(
    text: SourceText<'_>,
    at: usize,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    into: &mut BTreeMap<String, DatabaseAt>,
    problems: &mut Vec<Problem>,
) {
    let Some(keys) = value.get_ref().as_table() else {
        problems.push(text.problem(at, format!("databases.{name} is a table: [databases.{name}]")));
        return;
    };
    let mut database = into.get(name).cloned().unwrap_or_default();
    let known = problems.len();
    for (key, value) in keys {
        let key: &Spanned<Cow<'_, str>> = key;
        if let Err(wrong) = put(&mut database, key.get_ref(), value.get_ref()) {
            let place = key.span().start;
            problems.push(text.problem(place, format!("databases.{name}.{wrong}")));
        }
    }
    if problems.len() == known
        && let Err(wrong) = whole(&database)
    {
        problems.push(text.problem(at, format!("databases.{name} {wrong}")));
    }
    into.insert(name.to_owned(), database);
}

//! Documents made from the table of keys: the commented default file, the reference and the JSON Schema.

use serde_json::{Map, Value, json};

use crate::config::databases::{DATABASE_KEYS, DATABASES};
use crate::config::declared::ObjectKind;
use crate::config::settings::{KEYS, Key, SECTIONS, Settings, TakesEffect};

/// The width of the default file's comments.
const COLUMNS: usize = 100;

/// The default of a key: its value as in a file, or its description.
fn default_of(key: &Key) -> String {
    match key.unset {
        Some((says, _)) => says.to_owned(),
        None => key.get(&Settings::default()).to_string(),
    }
}

fn of_section(section: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.section == section)
}

/// The file that the package installs: every key with its default, commented out.
pub fn default_file() -> String {
    let mut page = "\
# Settings of Oncebox. Each commented line shows the default; a key without a default shows an example.
#
# A variable ONCEBOX_SECTION__KEY overrides this file, and a flag overrides both. `oncebox config check`
# finds mistakes, `oncebox config show` prints each value and where it came from. SIGHUP (systemctl
# reload oncebox) reads this file again; keys marked with * need a restart.
# Secrets do not belong in this file.
"
    .to_owned();
    for (section, about) in SECTIONS.iter().copied() {
        line(&mut page, "");
        line(&mut page, &format!("# {about}"));
        if section == DATABASES {
            database_lines(&mut page);
            continue;
        }
        line(&mut page, &format!("[{section}]"));
        for key in of_section(section) {
            let mark = if key.takes == TakesEffect::Restart { " *" } else { "" };
            let default = key.unset.map(|(says, _)| format!(" Default: {says}."));
            let default = default.unwrap_or_default();
            let about = format!("{} Value: {}.{default}{mark}", key.about, key.says());
            line(&mut page, "");
            for words in wrapped(&about, COLUMNS - 2) {
                line(&mut page, &format!("# {words}"));
            }
            let value =
                key.unset.map_or_else(|| default_of(key), |(_, example)| example.to_owned());
            line(&mut page, &format!("# {} = {value}", key.name));
        }
    }
    line(&mut page, "");
    line(&mut page, "# Created and updated by `oncebox apply`, not by a restart.");
    for kind in ObjectKind::ALL {
        line(&mut page, "");
        line(&mut page, &format!("# [[{}]]", kind.as_str()));
        for field in kind.fields() {
            let mark = if field.required { " (needed)" } else { "" };
            line(&mut page, &format!("# {} = …   {}{mark}", field.name, field.about));
        }
    }
    page
}

/// A database of others, in the default file: its name is the operator's.
fn database_lines(page: &mut String) {
    line(page, "# [databases.erp]");
    for key in DATABASE_KEYS {
        let about = format!("{} Value: {}. Default: {}. *", key.about, key.says(), key.default);
        line(page, "#");
        for words in wrapped(&about, COLUMNS - 4) {
            line(page, &format!("#   {words}"));
        }
        line(page, &format!("# {} = {}", key.name, key.example));
    }
}

fn database_reference(page: &mut String, about: &str) {
    line(page, "\n## [databases.NAME]*\n");
    line(page, &format!("{about} The name is yours: a-z, 0-9 and -, up to 63.\n"));
    for key in DATABASE_KEYS {
        let name = key.name;
        let says = key.says();
        line(page, &format!("- `{name}`* ({says}; default: {}): {}", key.default, key.about));
    }
}

/// `docs/configuration.md`
pub fn reference() -> String {
    let mut page = "\
# Configuration

Printed by `oncebox config reference`.

Oncebox reads the file of `--config` or `ONCEBOX_CONFIG`, else `./oncebox.toml`, else `/etc/oncebox/oncebox.toml`. Then it reads
`conf.d/*.toml` beside that file, by their names; each overrides what was read before. A variable
`ONCEBOX_SECTION__KEY` overrides the files, a flag overrides both. List items in a variable are separated by commas. Unknown keys are refused.

- `oncebox config show` prints every value with its origin, `oncebox config check` every mistake.
- `oncebox config default` prints a commented file, `oncebox config schema` a JSON Schema.
- SIGHUP reloads the file; a file with a mistake changes nothing. Keys marked * need a restart.
- Secrets come from files, variables or systemd credentials, never from this file.
"
    .to_owned();
    for (section, about) in SECTIONS {
        if *section == DATABASES {
            database_reference(&mut page, about);
            continue;
        }
        line(&mut page, &format!("\n## [{section}]\n"));
        for key in of_section(section) {
            let mark = if key.takes == TakesEffect::Restart { "*" } else { "" };
            let default = match key.unset {
                Some((says, _)) => says.to_owned(),
                None => format!("`{}`", default_of(key)),
            };
            let name = key.name;
            let says = key.says();
            line(
                &mut page,
                &format!("- `{name}`{mark} ({says}; default: {default}): {}", key.about),
            );
        }
    }
    page.push_str(
        "
## Declared for `oncebox apply`

`oncebox apply` creates and changes what the file declares; omitted fields stay as they are. `--dry-run` shows the difference, `--prune`
also deletes undeclared providers, subscriptions and sources, `oncebox export` prints what exists. Secret files are relative to this
file. `oncebox config default` explains each field.

",
    );
    for kind in ObjectKind::ALL {
        let fields = kind.fields();
        let named = |required: bool| {
            let fields = fields.iter().filter(|field| field.required == required);
            fields.map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(", ")
        };
        let word = kind.as_str();
        line(&mut page, &format!("- `[[{word}]]`: {}; optional: {}", named(true), named(false)));
    }
    page
}

/// The file as JSON Schema.
pub fn schema() -> Value {
    let mut sections = Map::new();
    for (section, about) in SECTIONS.iter().copied() {
        let keys: Map<String, Value> =
            of_section(section).map(|key| (key.name.to_owned(), schema_of(key))).collect();
        if section == DATABASES {
            let named: Vec<Value> = of_section(section).map(Key::schema).collect();
            let schema = json!({ "type": "object", "description": about, "additionalProperties": named.first() });
            sections.insert(section.to_owned(), schema);
            continue;
        }
        let section_schema = json!({
            "type": "object", "description": about, "additionalProperties": false, "properties": keys,
        });
        sections.insert(section.to_owned(), section_schema);
    }
    sections.extend(ObjectKind::ALL.map(|kind| (kind.as_str().to_owned(), kind.schema())));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "oncebox.toml",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

fn schema_of(key: &Key) -> Value {
    let mut schema = key.schema();
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), key.about.into());
        if key.unset.is_none() {
            fields.insert("default".to_owned(), key.get(&Settings::default()));
        }
    }
    schema
}

/// Appends a line.
fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

/// Wraps a text at `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

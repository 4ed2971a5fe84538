//! What is written about the keys, made from their table: the commented default file, the reference and
//! the JSON Schema.

use serde_json::{Map, Value, json};

use crate::config::declared::KINDS;
use crate::config::keys::{KEYS, Key, SECTIONS, Takes};
use crate::config::settings::Settings;

/// Where a comment of the default file is broken.
const COLUMNS: usize = 100;

/// What holds when nobody sets a key: its value as in a file, or words.
fn default_of(key: &Key) -> String {
    match key.unset {
        Some((says, _)) => says.to_owned(),
        None => key.get(&Settings::default()).to_string(),
    }
}

fn of_section(section: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.section == section)
}

/// The file as it is installed: every key is there with its default, commented out.
pub fn default_file() -> String {
    let mut page = "\
# Settings of Oncebox. What is commented out is the default; a key without a default shows an example.
#
# A variable ONCEBOX_SECTION__KEY beats this file, and a flag beats both. `oncebox config check` finds
# mistakes, `oncebox config show` tells what holds and why, SIGHUP (systemctl reload oncebox) reads
# this file again. Keys marked with * take effect with the next start only.
# No secret stands in here.
"
    .to_owned();
    for (section, about) in SECTIONS {
        line(&mut page, "");
        line(&mut page, &format!("# {about}"));
        line(&mut page, &format!("[{section}]"));
        for key in of_section(section) {
            let mark = if key.takes == Takes::Restart { " *" } else { "" };
            let default = key.unset.map(|(says, _)| format!(" Default: {says}."));
            let default = default.unwrap_or_default();
            let about = format!("{} Value: {}.{default}{mark}", key.about, key.says());
            line(&mut page, "");
            for words in broken(&about, COLUMNS - 2) {
                line(&mut page, &format!("# {words}"));
            }
            let value =
                key.unset.map_or_else(|| default_of(key), |(_, example)| example.to_owned());
            line(&mut page, &format!("# {} = {value}", key.name));
        }
    }
    line(&mut page, "");
    line(
        &mut page,
        "# What `oncebox apply` makes. Changes take effect when it is run, not with a restart.",
    );
    for kind in KINDS {
        line(&mut page, "");
        line(&mut page, &format!("# [[{}]]", kind.word()));
        for field in kind.fields() {
            let mark = if field.required { " (needed)" } else { "" };
            line(&mut page, &format!("# {} = …   {}{mark}", field.name, field.about));
        }
    }
    page
}

/// `docs/configuration.md`
pub fn reference() -> String {
    let mut page = "\
# Configuration

Made by `oncebox config reference` from the table the program reads its settings with.

Oncebox reads the file named by `--config` or `ONCEBOX_CONFIG`, else `oncebox.toml` in the working directory, else
`/etc/oncebox/oncebox.toml`, else none. A variable `ONCEBOX_SECTION__KEY` beats the file, and a flag beats both. In a variable the words
of a list stand between commas. What is not known is refused, with its place and what may have been meant.

- `oncebox config show` prints what holds and where each value came from, `oncebox config check` all that is wrong.
- `oncebox config default` prints the file with every key commented out, `oncebox config schema` a JSON Schema for editors.
- SIGHUP reads the file again. The log says what changed, and what of it needs a restart. A file with a mistake changes nothing.
- Secrets stand in no key: they come from files, variables or systemd credentials.
"
    .to_owned();
    for (section, about) in SECTIONS {
        line(&mut page, &format!("\n## [{section}]\n\n{about}\n"));
        line(&mut page, "| key | default | value | takes effect | what for |");
        line(&mut page, "|---|---|---|---|---|");
        for key in of_section(section) {
            let takes = if key.takes == Takes::Restart { "restart" } else { "reload" };
            let default = match key.unset {
                Some((says, _)) => says.to_owned(),
                None => format!("`{}`", default_of(key)),
            };
            let row = format!(
                "| `{}` | {default} | {} | {takes} | {} |",
                key.name,
                key.says(),
                key.about
            );
            line(&mut page, &row);
        }
    }
    page.push_str(
        "
## Declared for `oncebox apply`

`oncebox apply` makes what the file declares, and changes what is declared otherwise; a field that is left out stays as it is, and the
second run changes nothing. `--dry-run` shows the difference. What is not declared stays, unless `--prune` is given. A secret is named by
where it stands: a path is taken from the file's own directory. `oncebox export` prints what exists in this form.
",
    );
    for kind in KINDS {
        line(&mut page, &format!("\n### [[{}]]\n", kind.word()));
        line(&mut page, "| field | needed | what for |");
        line(&mut page, "|---|---|---|");
        for field in kind.fields() {
            let needed = if field.required { "yes" } else { "" };
            line(&mut page, &format!("| `{}` | {needed} | {} |", field.name, field.about));
        }
    }
    page
}

/// The file as JSON Schema.
pub fn schema() -> Value {
    let mut sections = Map::new();
    for (section, about) in SECTIONS {
        let keys: Map<String, Value> =
            of_section(section).map(|key| (key.name.to_owned(), schema_of(key))).collect();
        let section_schema = json!({
            "type": "object", "description": about, "additionalProperties": false, "properties": keys,
        });
        sections.insert(section.to_owned(), section_schema);
    }
    sections.extend(KINDS.map(|kind| (kind.word().to_owned(), kind.schema())));
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

/// Writing into a text cannot fail.
fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

/// A text in lines of at most so many characters, broken between words.
fn broken(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= most => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

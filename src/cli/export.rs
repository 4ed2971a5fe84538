//! `oncebox export`: what exists, in the form that `oncebox apply` takes. Without secrets: where they stand
//! is left to be filled in.

use clap::Args;
use serde_json::Value;

use crate::cli::remote::{ConnectArgs, Remote};
use crate::cli::{Failure, Shared, apply, exit, listing, out, show};
use crate::config::declared::{KINDS, Kind};

const HEAD: &str = "# What exists, as `oncebox apply` takes it. Say where each secret stands before
# it is applied to an empty Oncebox.
";

/// Print tenants, providers, subscriptions, tokens and sources as apply takes them, without secrets
#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(flatten)]
    reach: ConnectArgs,
}

impl Export {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        // Printed at the end: a file that an error cuts off would look like all there is.
        let mut text = String::from(HEAD);
        for kind in KINDS {
            match of_kind(&remote, kind, &mut text) {
                // A tenant's own token sees what is the tenant's, and no tenants.
                Err(failure) if kind == Kind::Tenant && failure.code == exit::NOT_PERMITTED => {
                    text.push_str(
                        "# Tenants are printed with an admin token of the tenant default.\n",
                    );
                }
                added => added?,
            }
        }
        out::line(text.trim_end())
    }
}

fn of_kind(remote: &Remote, kind: Kind, text: &mut String) -> Result<(), Failure> {
    listing::each(remote, apply::list(kind), Vec::new(), |item| {
        if !show::text(&item, "revoked_at").is_empty() {
            return Ok(());
        }
        let mut lines = vec![format!("\n[[{}]]", kind.word())];
        for field in kind.fields() {
            match field.name {
                "secret_file" => {
                    let name = show::text(&item, "name");
                    lines.push(format!("# secret_file = \"secrets/{name}\""));
                }
                "secret_env" | "secret_credential" => {}
                "token_file" => lines.push("# token_file = \"token\"".to_owned()),
                name => lines.extend(line(name, item.get(name).unwrap_or(&Value::Null))),
            }
        }
        text.push_str(&lines.join("\n"));
        text.push('\n');
        Ok(())
    })
}

/// A field, where it says something.
fn line(name: &str, value: &Value) -> Option<String> {
    let says_nothing = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    // A scheme without settings is shorter as its word.
    let word = value.as_object().filter(|fields| name == "scheme" && fields.len() == 1);
    let value = word.and_then(|fields| fields.get("kind")).unwrap_or(value);
    (!says_nothing).then(|| format!("{name} = {}", toml(value)))
}

/// A value in TOML. Texts are written as JSON writes them, which TOML reads alike.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> = fields
                .map(|(key, v)| format!("{} = {}", Value::from(key.as_str()), toml(v)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        // DEL is the one control character that JSON leaves as it is and TOML does not take.
        Value::String(text) => Value::from(text.as_str()).to_string().replace('\u{7f}', "\\u007f"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let value =
            json!({ "a b": "x\"\n\u{7f}\u{1}ü", "n": [1, true, { "deep": ["y"] }], "gone": null });
        let read: ::toml::Table = ::toml::from_str(&format!("v = {}", toml(&value))).unwrap();
        let read = serde_json::to_value(&read).unwrap();
        assert_eq!(read["v"]["a b"], value["a b"]);
        assert_eq!(read["v"]["n"], value["n"]);
    }
}

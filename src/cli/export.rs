//! `oncebox export`: what exists, in the form that `oncebox apply` takes. Without secrets: where they stand
//! is left to be filled in.

use clap::Args;
use serde_json::Value;

use crate::cli::remote::{Reach, Remote};
use crate::cli::show::text;
use crate::cli::{Failure, Shared, apply, exit, listing, out};
use crate::settings::declared::{KINDS, Kind};

/// Print tenants, providers, subscriptions, tokens and sources as apply takes them, without secrets
#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(flatten)]
    reach: Reach,
}

impl Export {
    pub(super) fn run(&self, shared: &Shared) -> Result<(), Failure> {
        let remote = self.reach.open(shared)?;
        out::line(
            "# What exists, as `oncebox apply` takes it. Say where each secret stands before",
        )?;
        out::line("# it is applied to an empty Oncebox.")?;
        for kind in KINDS {
            match of_kind(&remote, kind) {
                // A tenant's own token sees what is the tenant's, and no tenants.
                Err(failure) if kind == Kind::Tenant && failure.code == exit::NOT_PERMITTED => {
                    out::line("# Tenants are printed with an admin token of the tenant default.")?;
                }
                printed => printed?,
            }
        }
        Ok(())
    }
}

fn of_kind(remote: &Remote, kind: Kind) -> Result<(), Failure> {
    listing::each(remote, apply::list(kind), Vec::new(), |item| {
        if !text(&item, "revoked_at").is_empty() {
            return Ok(());
        }
        out::line(format_args!("\n[[{}]]", kind.word()))?;
        for field in kind.fields() {
            match field.name {
                "secret_file" => {
                    let name = text(&item, "name");
                    out::line(format_args!("# secret_file = \"secrets/{name}\""))?;
                }
                "secret_env" | "secret_credential" => {}
                "token_file" => out::line("# token_file = \"token\"")?,
                name => line(name, item.get(name).unwrap_or(&Value::Null))?,
            }
        }
        Ok(())
    })
}

/// A field, where it says something.
fn line(name: &str, value: &Value) -> Result<(), Failure> {
    let says_nothing = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if says_nothing {
        return Ok(());
    }
    // A scheme without settings is shorter as its word.
    let word = value.as_object().filter(|fields| name == "scheme" && fields.len() == 1);
    let value = word.and_then(|fields| fields.get("kind")).unwrap_or(value);
    out::line(format_args!("{name} = {}", toml(value)))
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

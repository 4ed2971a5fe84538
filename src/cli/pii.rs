//! `oncebox pii`: tests a policy for personal data. Also reads policies from flags, for other commands.
//!
//! Works without the service: the policy does the same here, but with other keys.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::base::text::without_mark;
use crate::cli::exit::Failure;
use crate::cli::out::Format;
use crate::cli::remote::GlobalArgs;
use crate::cli::show::{Columns, column, text};
use crate::cli::{input, out};
use crate::model::sealed::{Form, SHOWN, splice};
use crate::privacy::policy::{Edit, Finding, Pii, Shape, With};

#[derive(Debug, Args)]
pub(super) struct PiiCommand {
    #[command(flatten)]
    format: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show how a body would be stored, and what each rule did; nothing is sent anywhere
    Test {
        /// The policy: a file, or JSON
        #[arg(long, value_name = "FILE|JSON")]
        policy: String,
        /// The body: @FILE, - for stdin, or the text itself
        #[arg(long, value_name = "BODY")]
        body: String,
        /// The body's media type
        #[arg(long, default_value = "application/json", value_name = "TYPE")]
        content_type: String,
    },
}

const COLUMNS: Columns = Columns {
    columns: &[
        column("RULE", 0, "rule"),
        column("ACTION", 0, "action"),
        column("WHERE", 0, "path"),
        column("LOOKS LIKE", 1, "detector"),
    ],
    by: &[],
};

/// The policy of a provider or a tenant.
pub(super) fn policy_of(of: &Value) -> String {
    text(of, "pii")
}

/// Reads the policy of a flag: `allow`, JSON, `@FILE` or a file's name.
pub(super) fn policy_from_flag(flag: &str, value: &str) -> Result<Value, Failure> {
    let value = value.trim();
    if value == "allow" {
        return Ok("allow".into());
    }
    let text = if value.starts_with('{') || value.starts_with('@') || value == "-" {
        input::bytes(value)?
    } else {
        let help = format!("{flag} is allow, a file with a policy, or the policy as JSON.");
        input::file(value.as_ref()).map_err(|failure| failure.and(help))?
    };
    let policy: Value = serde_json::from_slice(without_mark(&text))
        .map_err(|error| Failure::input(format!("{flag} is not JSON: {error}")))?;
    Pii::from_json(&policy).map_err(|error| Failure::input(format!("{flag}: {error}")))?;
    Ok(policy)
}

impl PiiCommand {
    pub(super) fn run(&self, _global: &GlobalArgs) -> Result<(), Failure> {
        let Verb::Test { policy, body, content_type } = &self.verb;
        let pii = Pii::from_json(&policy_from_flag("--policy", policy)?).map_err(Failure::input)?;
        let body = input::bytes(body)?;
        let Some(policy) = pii.rules() else {
            return self.print(&body, &[], Shape::Bytes, None);
        };
        // Equal values get equal hashes here too, but the service's hashes differ, because its key does.
        let hash = |text: &str| {
            let digits = crate::base::id::sha256_hex(text.as_bytes());
            format!("hmac:{}", digits.get(..32).unwrap_or_default())
        };
        let applied = policy
            .apply(content_type, &body, &hash, true)
            .map_err(|refused| Failure::input(format!("refused: {refused}")))?;
        let with = |Edit { span, with }: Edit| {
            let text = match with {
                With::Text(text) => text,
                With::Seal(Form::Value) => format!("\"{SHOWN}\""),
                With::Seal(Form::Part) => SHOWN.to_owned(),
            };
            (span, text.into_bytes())
        };
        let stored = splice(&body, applied.edits.into_iter().map(with));
        self.print(&stored, &applied.findings, applied.shape, applied.subject.as_deref())
    }

    fn print(
        &self,
        stored: &[u8],
        findings: &[Finding],
        shape: Shape,
        subject: Option<&str>,
    ) -> Result<(), Failure> {
        let of = |Finding { rule, action, path, detector }: &Finding| {
            json!({
                "rule": rule, "action": action.as_str(), "path": path,
                "detector": detector.map(crate::privacy::policy::detect::Detector::as_str),
            })
        };
        let findings: Vec<Value> = findings.iter().map(of).collect();
        let stored = String::from_utf8_lossy(stored);
        if self.format.json {
            return out::json(&json!({
                "stored": stored, "read_as": read_as(shape), "subject": subject, "findings": findings,
            }));
        }
        out::exact(format!("{stored}\n").as_bytes())?;
        if findings.is_empty() {
            out::note(format_args!("Read as {}; no rule matches.", read_as(shape)));
            return Ok(());
        }
        COLUMNS.table(&findings)?;
        let subject = subject.unwrap_or("the event itself");
        out::note(format_args!("Read as {}; sealed with the key of: {subject}", read_as(shape)));
        Ok(())
    }
}

fn read_as(shape: Shape) -> &'static str {
    match shape {
        Shape::Json => "JSON",
        Shape::Form => "a form",
        Shape::Text => "text",
        Shape::Bytes => "bytes",
    }
}

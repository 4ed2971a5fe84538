//! `oncebox audit`: lists, exports and verifies audit events.
//!
//! `list` calls the running service. `export` and `verify` read the files of earlier months and the database, so that they
//! also work on a backup and while the service is stopped; `verify` reads an export as well.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::{Deserialize, Serialize};

use crate::app::data_directory::DATABASE;
use crate::app::master_key;
use crate::archive;
use crate::base::clock::Timestamp;
use crate::cli::prelude::*;
use crate::model::audit::AuditEvent;
use crate::model::audit::chain::{Head, Report, Verifier};
use crate::store::audit_events::Trail;
use crate::sys::files::{self, is_missing};

/// The format named in the first line of an export.
const FORMAT: &str = "oncebox audit 1";

/// What stands before an ed25519 key in a `SubjectPublicKeyInfo`. Source: RFC 8410.
const PUBLIC_KEY_HEAD: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

const VERBS: &[CommandRow] = &[
    command("list", "Audit events, newest first")
        .calls("listAuditEvents")
        .flags(&[&[
            field("correlation_id").long("correlation-id").also(&["trace"]),
        ]]),
    command("export", "Print every row with its hashes as a line of JSON, so that others can verify them")
        .offline(export)
        .more(ExportArgs::augment_args)
        .ends(&[
            "With --out, FILE.sig gets an ed25519 signature over FILE, and FILE.pub the key to check it without Oncebox:",
            "  openssl pkeyutl -verify -pubin -inkey FILE.pub -rawin -in FILE -sigfile FILE.sig",
        ]),
    command("verify", "Check that no row was changed, removed, inserted or moved")
        .offline(verify)
        .more(VerifyArgs::augment_args),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &AUDIT_EVENTS,
    command("audit", "Audit log: who changed what; verify that it was not tampered with"),
    VERBS,
);

#[derive(Debug, Args)]
struct ExportArgs {
    /// Read only this database or file of a month [default: all in the data directory]
    #[arg(long, value_name = "DATABASE")]
    file: Option<PathBuf>,
    /// Begin after this row, such as the last of an earlier export
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// Begin with the first row from this time on, as `audit list` takes it
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// End before the first row from this time on
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Write this file, and a signature beside it
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// Read only this database or file of a month [default: all in the data directory]
    #[arg(long, value_name = "DATABASE", conflicts_with = "export")]
    file: Option<PathBuf>,
    /// Read this export
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Require this earlier head in the chain; may be repeated
    #[arg(long, value_name = "SEQ:HASH", value_parser = head)]
    noted: Vec<Head>,
}

const AUDIT_EVENTS: Noun = Noun::new("/v1/audit-events", "Audit event", "such audit events")
    .columns(&[
        column("SEQ", 1, "seq"),
        column("AT (UTC)", 0, "at"),
        column("ACTOR", 0, "actor"),
        column("ACTION", 0, "action"),
        column("RESOURCE", 2, "resource"),
        column("RESULT", 1, "result"),
        column("FROM", 3, "address"),
    ])
    .by(&[
        ("actor", |e| inner(e, "actor", "display")),
        ("resource", |e| inner(e, "resource", "id")),
    ]);

fn inner(event: &Value, of: &str, field: &str) -> String {
    event.get(of).map(|inner| text(inner, field)).unwrap_or_default()
}

fn head(text: &str) -> Result<Head, String> {
    Head::parse(text).ok_or_else(|| "write a head like 17:9f86…, as `verify` prints it".to_owned())
}

/// The first line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportHeader {
    form: String,
    start: Head,
}

/// The last line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportFooter {
    head: Head,
}

/// Any line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum ExportLine {
    Header(ExportHeader),
    Footer(ExportFooter),
    Row(Box<AuditEvent>),
}

fn time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(&input::time(text)?).ok_or_else(|| "not a time".to_owned())
}

/// Opens what is named, or else all in the data directory.
fn open(global: &GlobalArgs, named: Option<&Path>) -> Result<Trail, Failure> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => global.settings()?.database.directory.join(DATABASE),
    };
    if is_missing(&path) {
        return Err(Failure::new(exit::NOT_FOUND, format!("{}: no such file", path.display())));
    }
    let opened = if named.is_some() { Trail::open(&path) } else { archive::audit::trail(&path) };
    let trail = opened.map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    trail.ok_or_else(|| {
        let why = "holds no audit events: is it a database of oncebox?";
        Failure::input(format!("{} {why}", path.display()))
    })
}

fn export(call: &Call<'_>) -> Done {
    let ExportArgs { file, after, since, until, out } = call.flags()?;
    let trail = open(call.global, file.as_deref())?;
    let span = [since, until];
    if out.is_some() && !trail.verify(&[]).map_err(Failure::failed)?.breaks.is_empty() {
        return Err(Failure::failed("the chain is broken and is not signed: oncebox audit verify"));
    }
    let Some(path) = out else { return print_rows(&trail, after, span, out::json) };
    let mut rows = Vec::new();
    print_rows(&trail, after, span, |line| {
        serde_json::to_writer(&mut rows, line).map_err(Failure::failed)?;
        rows.push(b'\n');
        Ok(())
    })?;
    write_signed(call, &path, &rows)
}

/// Prints a part of the chain without a gap, between two lines with its ends.
fn print_rows(
    trail: &Trail,
    after: Option<i64>,
    [since, until]: [Option<Timestamp>; 2],
    mut line: impl FnMut(&ExportLine) -> Done,
) -> Done {
    let header = |start| ExportLine::Header(ExportHeader { form: FORMAT.to_owned(), start });
    // A row may have a time that is before, or far after, those beside it.
    let mut first = None;
    let mut end = None;
    if after.is_some() || since.is_some() || until.is_some() {
        trail.walk(|_, row| {
            let at = Timestamp::from_ms(row.at);
            let is_in =
                since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until);
            if is_in && after.is_none_or(|after| row.seq > after) {
                first = first.or(Some(row.seq));
                end = Some(row.seq);
            }
            Ok::<(), Failure>(())
        })?;
    } else {
        first = Some(i64::MIN);
    }
    let mut last = trail.start();
    let mut begun = None;
    let mut has_ended = false;
    let head = trail.walk(|_, row| {
        let here = row.head();
        let is_wanted = row.seq > last.seq && first.is_some_and(|first| row.seq >= first);
        if begun.is_none() && is_wanted {
            line(&header(last))?;
            begun = Some(last);
        }
        has_ended |= begun.is_some() && until.is_some() && end.is_some_and(|end| row.seq > end);
        if has_ended {
            return Ok(());
        }
        last = if row.seq > last.seq { here } else { last };
        if begun.is_some() { line(&ExportLine::Row(Box::new(row))) } else { Ok(()) }
    })?;
    if begun.is_none() {
        line(&header(last))?;
    }
    let head = if has_ended { last } else { head.or(begun).unwrap_or(last) };
    line(&ExportLine::Footer(ExportFooter { head }))
}

/// Writes an export, its signature, and the public key with which anybody checks it.
fn write_signed(call: &Call<'_>, path: &Path, rows: &[u8]) -> Done {
    let seed = master_key::audit_key(&call.global.settings()?).map_err(Failure::failed)?;
    let none = "the database has no key for signatures yet: start the service once";
    let seed = seed.ok_or_else(|| Failure::failed(none))?;
    let pair = Ed25519KeyPair::from_seed_unchecked(seed.expose()).map_err(Failure::failed)?;
    let public = BASE64.encode(&[PUBLIC_KEY_HEAD, pair.public_key().as_ref()].concat());
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{public}\n-----END PUBLIC KEY-----\n");
    let [signature, key] = [".sig", ".pub"].map(|ending| files::with_ending(path, ending));
    let signed = pair.sign(rows);
    let contents = [(path, rows), (&signature, signed.as_ref()), (&key, pem.as_bytes())];
    for (path, content) in contents {
        let written = files::write_private(path, content);
        written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    }
    let [path, signature, key] = [path, &signature, &key].map(Path::display);
    let check = format!(
        "openssl pkeyutl -verify -pubin -inkey {key} -rawin -in {path} -sigfile {signature}"
    );
    if call.connect.json() {
        return out::json(&json!({ "public_key": pem, "check": check }));
    }
    out::line(pem.trim_end())?;
    out::line(check)
}

fn verify(call: &Call<'_>) -> Done {
    let VerifyArgs { file, export, noted } = call.flags()?;
    let report = match export {
        Some(path) => verify_export(&path, &noted)?,
        None => open(call.global, file.as_deref())?.verify(&noted)?,
    };
    print(&report, call.connect.json())
}

fn verify_export(path: &Path, noted: &[Head]) -> Result<Report, Failure> {
    let wrong = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut verifier = None;
    let mut head = None;
    for (n, text) in (1_u64..).zip(BufReader::new(file).lines()) {
        let text = text.map_err(|error| wrong(error.to_string()))?;
        let line = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("line {n} is not part of an export: {error}")))?;
        match (line, &mut verifier) {
            (ExportLine::Header(header), None) if header.form == FORMAT => {
                let mut fresh = Verifier::new(header.start);
                for noted in noted {
                    fresh.expect(*noted);
                }
                verifier = Some(fresh);
            }
            (ExportLine::Row(row), Some(verifier)) if head.is_none() => verifier.push(&row),
            (ExportLine::Footer(footer), Some(_)) if head.is_none() => head = Some(footer.head),
            _ => return Err(wrong(format!("line {n} is out of place"))),
        }
    }
    let verifier = verifier.ok_or_else(|| wrong("is empty".to_owned()))?;
    if head.is_none() {
        out::note(format_args!(
            "{}: the last line, which names the head, is missing",
            path.display()
        ));
    }
    Ok(verifier.finish(head))
}

fn print(report: &Report, as_json: bool) -> Result<(), Failure> {
    let Report { rows, start, end, breaks } = report;
    let breaks: Vec<String> = breaks.iter().map(ToString::to_string).collect();
    if as_json {
        let start = start.to_string();
        let end = end.to_string();
        let ok = breaks.is_empty();
        out::json(
            &json!({ "ok": ok, "rows": rows, "start": start, "head": end, "breaks": breaks }),
        )?;
    } else {
        for found in &breaks {
            out::line(found)?;
        }
    }
    if !breaks.is_empty() {
        let more =
            "Keep a copy of the file as it is now, and compare it with a backup or an export.";
        return Err(Failure::failed("the chain of audit events is broken").and(more));
    }
    if as_json {
        return Ok(());
    }
    out::line(format_args!("the chain is intact: {rows} rows"))?;
    out::line(format_args!("head {end}"))?;
    out::note(
        "Note the head elsewhere: `oncebox audit verify --noted HEAD` then also detects a chain that was \
         rewritten completely.",
    );
    Ok(())
}

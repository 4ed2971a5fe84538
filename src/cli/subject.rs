//! `oncebox subject`: finds and erases the people whose personal data is sealed.

use crate::cli::prelude::*;

const VERBS: &[CommandRow] = &[
    command("list", "Keys of subjects, oldest first; names are hashed")
        .calls("listSubjectKeys")
        .flags(&[&[field("tenant").value("NAME"), field("erased").help("Only destroyed keys")]]),
    command("show", "The keys of one subject, newest first")
        .calls("findSubject")
        .flags(&[&[
            argument("subject"),
            field("tenant").value("NAME"),
            without("limit"),
            without("after"),
        ]])
        .online(show_one),
    command(
        "erase",
        "Destroy a subject's keys: its sealed data can never be opened again, even after a restore",
    )
    .calls("eraseSubject")
    .flags(&[&[argument("subject"), field("tenant").value("NAME")]])
    .asks("Destroy the keys of {subject} for good")
    .answered(erase),
];

pub(super) const COMMANDS: Commands = Commands::new(
    &SUBJECTS,
    command("subject", "People whose personal data is sealed: find, erase"),
    VERBS,
);

const SUBJECTS: Noun = Noun::new("/v1/subjects", "Subject", "keys of subjects")
    .columns(&[
        column("SUBJECT", 0, "subject"),
        column("KEY", 1, "key"),
        column("SINCE (UTC)", 1, "created_at"),
        column("ERASED (UTC)", 0, "erased_at"),
    ])
    .time("created_at")
    .by(&[("subject", |key| short(key, "subject")), ("key", |key| short(key, "key"))]);

fn short(key: &Value, field: &str) -> String {
    text(key, field).chars().take(16).collect()
}

fn erase(_call: &Call<'_>, _remote: &Remote, erased: &Value) -> Done {
    let count = text(erased, "keys_erased");
    let keys = if count == "1" { "key" } else { "keys" };
    out::line(format_args!("erased: {count} {keys} destroyed"))?;
    let holds: Vec<&str> = list(erased, "legal_holds").iter().filter_map(Value::as_str).collect();
    if !holds.is_empty() {
        out::note(format!(
            "Legal holds are in force ({}): the events that they are about stay, without what was sealed for the subject.",
            holds.join(", ")
        ));
    }
    out::note(
        "Older backups hold the keys until they are deleted; a restore destroys them again. \
         Keep oncebox.db.erasures with your backups.",
    );
    Ok(())
}

/// All keys of a subject, page by page.
fn show_one(call: &Call<'_>, remote: &Remote) -> Done {
    let mut hash = Value::Null;
    let mut keys = Vec::new();
    let mut after = None;
    let body = Value::Object(call.body()?);
    loop {
        let mut query = call.query();
        query.push(("limit".to_owned(), "500".to_owned()));
        query.extend(after.map(|after| ("after".to_owned(), after)));
        let page = remote.post(&with_query(&call.path(), &query), Some(&body))?;
        keys.extend(list(&page, "keys").iter().cloned());
        hash = page.get("subject").cloned().unwrap_or(hash);
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    if remote.json() {
        return out::json(&json!({ "subject": hash, "keys": keys }));
    }
    SUBJECTS.table().table(&keys)
}

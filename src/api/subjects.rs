//! `/v1/subjects`: those whose personal data is sealed. Erasing one destroys its keys.
//!
//! A subject's name is in requests alone: lists, the audit and the log have what the file has, an HMAC of it.

use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::audited::{Audited, Change, change};
use crate::api::call::{Call, ok, page_of};
use crate::api::kind::Kind;
use crate::api::problem::Problem;
use crate::api::route::Answer::Now;
use crate::api::route::{Answer, Param, Resource, Returns, doc, route, shape};
use crate::api::schema::{self, AFTER, LIMIT};
use crate::clock::Timestamp;
use crate::domain::token::Right;
use crate::http::message::Method::{Get, Post};
use crate::http::message::Response;
use crate::keeping::erasures;
use crate::store::subjects::{self, KeyId, SubjectKey};
use crate::store::tx::ReadTx;

/// When whoever erases may try again, where the list of erasures could not be written.
const RETRY_AFTER_SECS: u64 = 10;

/// Keys that one transaction destroys at most; each has an audit event of its own.
const ERASED_AT_ONCE: u32 = 1000;

const ERASED: Param =
    Param::query("erased", "`true`: only keys that were destroyed.", schema::some_text, "true");

/// Those whose personal data is sealed.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Subjects",
    about: "Those whose personal data is sealed, by a hash of their name. What is sealed of a subject can be \
            opened until the subject is erased.",
    routes: &[
        route(
            Get,
            "/v1/subjects",
            Some(Right::Admin),
            Now(list),
            doc(
                "listSubjectKeys",
                "List the keys of subjects",
                "Destroyed ones too. A subject has several when it was erased and came again.",
                &[Returns::page("A page of keys, the oldest first.", "SubjectKey")],
            )
            .params(&[ERASED, LIMIT, AFTER]),
        ),
        route(
            Post,
            "/v1/subjects/find",
            Some(Right::Admin),
            Now(find),
            doc(
                "findSubject",
                "Find a subject by its name",
                "The name is in the body, so that no log has it.",
                &[Returns::json(200, "The subject and its keys, the newest first.", "Subject")],
            )
            .body("SubjectName", example)
            .problems(&[Kind::NotFound]),
        ),
        route(
            Post,
            "/v1/subjects/erase",
            Some(Right::Admin),
            Answer::Change("subject.erase", erase),
            doc(
                "eraseSubject",
                "Erase a subject",
                "Destroys its keys: what is sealed of it can be opened by nobody any more, and deliveries that \
                 wait are sent with `null` in its place. A restore of an older backup destroys them again. \
                 Erasing it again changes nothing.",
                &[Returns::json(200, "It is erased.", "Erasure")],
            )
            .body("SubjectName", example)
            .problems(&[Kind::NotFound]),
        ),
    ],
    shapes: &[
        shape("SubjectKey", key_schema),
        shape("Subject", subject_schema),
        shape("SubjectName", name_schema),
        shape("Erasure", erasure_schema),
    ],
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    subject: String,
}

/// The subject that a body names, as the file knows it.
fn named(api: &Api, call: &Call) -> Result<[u8; 32], Problem> {
    let Named { subject } = call.json()?;
    if subject.is_empty() {
        return Err(Problem::unprocessable("subject must not be empty."));
    }
    Ok(api.flow.publish.privacy.names().subject(&call.tenant, &subject))
}

fn keys(api: &Api, call: &Call, subject: &[u8; 32]) -> Result<Vec<SubjectKey>, Problem> {
    let found = api.store.read(|tx| subjects::of(tx, &call.tenant, subject))?;
    if found.is_empty() { Err(Problem::not_found("subject")) } else { Ok(found) }
}

/// `GET /v1/subjects`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let erased = call.query.get("erased") == Some("true");
    let after = page.after.unwrap_or(0);
    let found = api.store.read(|tx| subjects::page(tx, &call.tenant, erased, after, page.limit))?;
    Ok(page_of(&found, page, |key| key.seq, shown))
}

/// `POST /v1/subjects/find`
fn find(api: &Api, call: &Call) -> Result<Response, Problem> {
    let subject = named(api, call)?;
    let keys: Vec<Value> = keys(api, call, &subject)?.iter().map(shown).collect();
    Ok(ok(&json!({ "subject": HEXLOWER.encode(&subject), "keys": keys })))
}

/// `POST /v1/subjects/erase`
fn erase(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let subject = named(api, call)?;
    let now = api.clock.wall();
    let _known = keys(api, call, &subject)?;
    // From the newest down. A key that is made from here on is of data that comes in after this, and stays.
    let (mut before, mut erased) = (i64::MAX, 0);
    loop {
        let read =
            |tx: &ReadTx<'_>| subjects::live(tx, &call.tenant, &subject, before, ERASED_AT_ONCE);
        let live = api.store.read(read)?;
        // One that is not full was the last.
        let is_full = u32::try_from(live.len()) == Ok(ERASED_AT_ONCE);
        let rest = live.last().filter(|_| is_full).map(|key| key.seq);
        let done = destroy(api, call, (subject, erased), note(api, &live, now)?, now)?;
        let mut total = erased;
        let answered = done.map(|(body, count)| {
            total = count;
            body
        });
        erased = total;
        let Some(rest) = rest else { return Ok(answered) };
        before = rest;
    }
}

/// Destroys some keys of a subject, after others; tells how many there are with those.
fn destroy(
    api: &Api,
    call: &Call,
    (subject, earlier): ([u8; 32], u64),
    noted: Vec<KeyId>,
    now: Timestamp,
) -> Result<Audited<(Value, u64)>, Problem> {
    change(api, call, move |tx| {
        let mut erased = 0_u64;
        for key_id in &noted {
            if subjects::erase(tx, key_id, now)? {
                erased = erased.saturating_add(1);
            }
        }
        let name = HEXLOWER.encode(&subject);
        let all = earlier.saturating_add(erased);
        let body = json!({ "subject": name, "keys_erased": all, "erased_at": now });
        let none = json!({});
        let change = Change::changed("subject", &name, &none, &none).and("keys_erased", erased);
        Ok(Ok(((body, all), change)))
    })
}

/// Writes the keys that are about to be destroyed into the lists that a restore goes by.
fn note(api: &Api, live: &[SubjectKey], now: Timestamp) -> Result<Vec<KeyId>, Problem> {
    let live: Vec<KeyId> = live.iter().map(|key| key.key_id).collect();
    let entries: Vec<erasures::Erasure> = live.iter().map(|id| (*id, now)).collect();
    let backups = api.settings.get().backup_directory();
    erasures::note_everywhere(api.store.path(), &backups, &entries).map_err(|error| {
        tracing::error!(%error, "an erasure could not be noted");
        let detail =
            "The list of erasures cannot be written; the log says why. Nothing was erased.";
        Problem::unavailable(detail, RETRY_AFTER_SECS)
    })?;
    Ok(live)
}

fn shown(key: &SubjectKey) -> Value {
    json!({
        "subject": HEXLOWER.encode(&key.subject), "key": HEXLOWER.encode(&key.key_id),
        "created_at": key.created_at, "erased_at": key.erased_at,
    })
}

fn hash_schema() -> Value {
    let hash = json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    schema::about(hash, "The subject's name, hashed under a key of this box.")
}

fn key_schema() -> Value {
    let key = json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" });
    schema::object(json!({
        "subject": hash_schema(), "key": schema::about(key, "The key's name, a random number."),
        "created_at": schema::time(),
        "erased_at": schema::about(
            schema::nullable(schema::time()), "When it was destroyed; null while it opens."),
    }))
}

fn subject_schema() -> Value {
    schema::object(json!({
        "subject": hash_schema(), "keys": schema::list(schema::of("SubjectKey")),
    }))
}

fn name_schema() -> Value {
    let name = schema::about(
        schema::text_of(1, 65_536),
        "What stands at the policy's subject path; of an event without one, its `webhook-id`.",
    );
    schema::request(&["subject"], json!({ "subject": name }))
}

fn erasure_schema() -> Value {
    schema::object(json!({
        "subject": hash_schema(),
        "keys_erased": schema::about(schema::count(), "Keys that were destroyed by this call."),
        "erased_at": schema::time(),
    }))
}

fn example() -> Value {
    json!({ "subject": "customer-4711" })
}

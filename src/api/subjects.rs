//! `/v1/subjects`: the people whose personal data is sealed. Erasing a subject destroys its keys.
//!
//! Only requests have a subject's name. Lists, the audit trail, the log and the database have an HMAC of it.

use std::convert::identity;

use data_encoding::HEXLOWER;
use serde_json::json;

use crate::api::audited::carry_out;
use crate::api::claimed::{self, Wanted};
use crate::api::prelude::*;
use crate::api::schema::{Sha256, TrueOrFalse};
use crate::api::tokens::tenant_of;
use crate::backup::erasures;
use crate::model::effect::EffectKind;
use crate::store::claimed_effects::ClaimedEffect;
use crate::store::legal_holds;
use crate::store::subjects::{self, KeyId, SubjectKey};

/// Why an erasure is refused while another one of the same subject is claimed.
const BUSY: &str = "This subject is being erased at this moment.";
/// `Retry-After` if the list of erasures could not be written.
const RETRY_AFTER_SECS: u64 = 10;

/// As many legal holds as a tenant may have.
const MAX_HOLDS: u32 = 100;

/// The most keys that one transaction destroys; each transaction has its own audit event.
const ERASED_AT_ONCE: u32 = 1000;

const ERASED: Param =
    Param::query::<TrueOrFalse>("erased", "`true`: only keys that were destroyed.", "true");

const TENANT: Param = Param::query::<NameText>(
    "tenant",
    "Another tenant; for admin tokens of the tenant `default`.",
    "acme",
);

/// Subjects.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Subjects",
    about: "People whose personal data is sealed, identified by a hash of their name. The data can be opened \
            until the subject is erased.",
    routes: &[
        get("/v1/subjects", Admin, Listed(list))
            .doc("listSubjectKeys", "List the keys of subjects", &[TENANT, ERASED, LIMIT, AFTER])
            .about("Includes destroyed keys. A subject has several keys if new data came after it was erased.")
            .returns(&[Returns::page::<SubjectKey>("A page of keys, the oldest first.")])
            .problems(&[Kind::NotFound]),
        post("/v1/subjects/find", Admin, Listed(find))
            .doc("findSubject", "Find a subject by its name", &[TENANT, LIMIT, AFTER])
            .about("The name is in the body, so that no log has it. The keys come in pages.")
            .returns(&[Returns::json::<Subject>(
                200,
                "The subject and its keys, the newest first.",
            )])
            .body::<SubjectName>(r#"{"subject":"customer-4711"}"#)
            .problems(&[Kind::NotFound]),
        post("/v1/subjects/erase", Admin, Act("subject.erase", erase))
            .doc("eraseSubject", "Erase a subject", &[TENANT])
            .about(
                "Destroys its keys, so that nobody can open its sealed data any more. Waiting \
                 deliveries are sent with `null` instead. A restore of an older backup destroys the \
                 keys again. Erasing a subject twice changes nothing. A legal hold keeps events, and not what was \
                 sealed in them: the answer names the holds.",
            )
            .returns(&[Returns::json::<Erasure>(200, "It is erased.")])
            .body::<SubjectName>(r#"{"subject":"customer-4711"}"#)
            .problems(&[Kind::NotFound]),
    ],
};

/// The most characters of a subject's name in a request.
const MAX_SUBJECT_CHARS: usize = 65_536;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubjectName {
    /// The value at the policy's subject path; for an event without one, its `webhook-id`.
    subject: Is<Text<1, MAX_SUBJECT_CHARS>>,
}

/// A subject and its keys.
#[derive(Serialize, JsonSchema)]
struct Subject {
    /// The subject's name, hashed under a key of this box.
    #[serde(rename = "subject")]
    hash: Is<Sha256>,
    keys: Vec<SubjectKey>,
    /// The `after` of the next page, with older keys; null on the last page.
    next: Option<String>,
}

/// What was erased.
#[derive(Serialize, JsonSchema)]
struct Erasure {
    /// The subject's name, hashed under a key of this box.
    subject: Is<Sha256>,
    /// Keys that were destroyed by this call.
    keys_erased: u64,
    erased_at: Timestamp,
    /// Legal holds of the tenant in force. The events that they are about stay stored, with everything that was not sealed;
    /// what was sealed for the subject cannot be read in them either.
    legal_holds: Vec<Is<NameText>>,
}

/// The tenant and the hashed name of the subject that a body names.
fn named(api: &Api, call: &Call) -> Result<(String, [u8; 32]), Problem> {
    let SubjectName { subject } = call.json()?;
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let subject = api.env.privacy.names().subject(&tenant, &subject);
    Ok((tenant, subject))
}

/// `GET /v1/subjects`
fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let tenant = tenant_of(api, call, call.query.get("tenant"))?;
    let erased = call.query.word("erased", |text| text.parse().ok())?.unwrap_or(false);
    let after = page.after.unwrap_or(0);
    let found =
        lists::read(api, call, |tx| subjects::page(tx, &tenant, erased, after, page.limit))?;
    Ok(page_of(&found, page, |key| key.seq, identity))
}

/// `POST /v1/subjects/find`
fn find(api: &Api, call: &Call) -> Result<Response, Problem> {
    let (tenant, subject) = named(api, call)?;
    let page = call.query.page()?;
    let before = page.after.unwrap_or(i64::MAX);
    let read = |tx: &ReadTx<'_>| subjects::of(tx, &tenant, &subject, false, before, page.limit);
    let keys = lists::read(api, call, read)?;
    if keys.is_empty() && page.after.is_none() {
        return Err(Problem::not_found("subject"));
    }
    let full = u32::try_from(keys.len()).is_ok_and(|have| have >= page.limit);
    let next = keys.last().filter(|_| full).map(|last| last.seq.to_string());
    Ok(ok(&Subject { hash: HEXLOWER.encode(&subject).into(), keys, next }))
}

/// `POST /v1/subjects/erase`
fn erase(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let (tenant, subject) = named(api, call)?;
    let now = api.env.clock.wall();
    let any = |tx: &ReadTx<'_>| subjects::of(tx, &tenant, &subject, false, i64::MAX, 1);
    if api.env.store.read(any)?.is_empty() {
        return Err(Problem::not_found("subject"));
    }
    let name = format!("{tenant} {}", HEXLOWER.encode(&subject));
    let reserved = claimed::reserve(api, EffectKind::SubjectErase, &name, BUSY)?;
    let wanted = Wanted { reserved, terms: json!({}), busy: BUSY };
    let claim = claimed::claim(api, call, wanted, |_tx| Ok(()))?;
    let of = Erased { tenant, subject, at: now };
    let erased = erase_all(api, call, &of, &claim.effect);
    if erased.is_err() {
        claimed::end(api, claim);
    }
    erased
}

/// A subject that is erased.
#[derive(Clone)]
struct Erased {
    tenant: String,
    subject: [u8; 32],
    at: Timestamp,
}

/// Notes and destroys all keys of a subject, in batches: what is noted stays erased in a restored database.
fn erase_all(
    api: &Api,
    call: &Call,
    of: &Erased,
    effect: &ClaimedEffect,
) -> Result<Audited<Value>, Problem> {
    let live = |before| {
        let Erased { tenant, subject, .. } = of;
        api.env.store.read(|tx| subjects::of(tx, tenant, subject, true, before, ERASED_AT_ONCE))
    };
    // From the newest key down. Keys that are made after this point belong to newer data and stay.
    let mut before = i64::MAX;
    let mut erased = 0;
    loop {
        let live = live(before)?;
        // A batch that is not full is the last one.
        let is_full = u32::try_from(live.len()) == Ok(ERASED_AT_ONCE);
        let rest = live.last().filter(|_| is_full).map(|key| key.seq);
        let noted = note_erasures(api, &live, of.at)?;
        let part = Part { noted, earlier: erased, is_last: rest.is_none() };
        let done = destroy(api, call, of.clone(), effect.clone(), part)?;
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

/// One batch of an erasure.
struct Part {
    /// Keys that are noted as erased.
    noted: Vec<KeyId>,
    /// How many keys earlier batches have destroyed.
    earlier: u64,
    is_last: bool,
}

/// Destroys one batch of a subject's keys. Returns the answer, and the total with the earlier batches. The last one
/// finishes the claimed erasure.
fn destroy(
    api: &Api,
    call: &Call,
    of: Erased,
    effect: ClaimedEffect,
    part: Part,
) -> Result<Audited<(Value, u64)>, Problem> {
    carry_out(api, call, Some(effect), move |tx| {
        let mut erased = 0_u64;
        for key_id in &part.noted {
            if subjects::erase(tx, key_id, of.at)? {
                erased = erased.saturating_add(1);
            }
        }
        let holds = legal_holds::page(tx, &of.tenant, 0, MAX_HOLDS)?;
        let holds = holds.into_iter().map(|hold| hold.name.into()).collect();
        let name = HEXLOWER.encode(&of.subject);
        let all = part.earlier.saturating_add(erased);
        let change = Change::changed("subject", &name, &(), &())
            .and("tenant", of.tenant.as_str())
            .and("keys_erased", erased)
            .answer(Erasure {
                subject: name.into(),
                keys_erased: all,
                erased_at: of.at,
                legal_holds: holds,
            })
            .part(!part.is_last);
        Ok((change, all))
    })
}

/// Adds the keys to the lists of erasures, which a restore applies.
fn note_erasures(api: &Api, live: &[SubjectKey], now: Timestamp) -> Result<Vec<KeyId>, Problem> {
    let live: Vec<KeyId> = live.iter().map(|key| key.key_id).collect();
    let entries: Vec<erasures::Erasure> = live.iter().map(|id| (*id, now)).collect();
    let backups = api.env.settings.get().backup_directory();
    erasures::note_everywhere(api.env.store.path(), &backups, &entries).map_err(|error| {
        tracing::error!(%error, "an erasure could not be noted");
        let detail =
            "The list of erasures cannot be written; the log says why. Nothing was erased.";
        Problem::unavailable(detail, RETRY_AFTER_SECS)
    })?;
    Ok(live)
}

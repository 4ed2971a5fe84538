//! Quarantined events: repairing and discarding them. `GET /v1/events?status=quarantined` lists them.

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::BASE64;
use serde::Deserializer;
use serde_json::json;
use serde_json::value::RawValue;

use crate::api::audited::{ChangeResult, settled};
use crate::api::call::{MAX_REASON_CHARS, check_reason};
use crate::api::events::ID;
use crate::api::prelude::*;
use crate::api::schema::{Ascii, StrictBase64, TypeName};
use crate::base::id::sha256_hex;
use crate::event_types::EventTypes;
use crate::model::event::{self, Event, NewEvent};
use crate::model::sealed::Sealed;
use crate::model::sql_row::{Column, Defect, Payload, SqlRow};
use crate::privacy::NotAdmitted;
use crate::sources;
use crate::store::error::Error;
use crate::store::families::{CIRCLE, TOO_DEEP, UNKNOWN_PARENT};
use crate::store::sql_rows::PolicyApplied;
use crate::store::{families, outbox_lists, outbox_relay, quarantine, sql_rows, tenants};

const ONE: &[Returns] = &[Returns::json::<Event>(200, "The event as it is now.")];
/// Quarantined events.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Quarantine",
    about: "Events that cannot be used, such as incomplete rows inserted by plain SQL. They are not sent and block \
            no other event, until a person repairs or discards them.",
    routes: &[
        post("/v1/events/{id}/fix", Operate, Act("event.fix", fix))
            .doc("fixEvent", "Repair a quarantined event", &[ID])
            .about(
                "The given fields replace the event's own; null removes a field. The event is checked \
                 again and routed if it is valid now. `{}` only checks it again, for example after \
                 a missing subscription was created. If it is still invalid, the answer is 422 and \
                 nothing is changed. With `dry_run` nothing is changed either, and its target is not looked for.",
            )
            .returns(ONE)
            .body::<Repair>(r#"{"payload":{"total":"99.00"},"target":null}"#),
        post("/v1/events/{id}/discard", Operate, Act("event.discard", discard))
            .doc("discardEvent", "Discard a quarantined event", &[ID])
            .about(
                "It ends as `cancelled` and is not sent. Its row stays, under the key \
                 `discarded ID: KEY`; its own key is free for another event. If the tenant has a policy on \
                 personal data, a row that plain SQL inserted keeps neither its key nor its content.",
            )
            .returns(ONE)
            .body::<Discard>(r#"{"reason":"a test of the new ERP"}"#),
    ],
};

/// The changes to an event. An absent field stays as it is; null removes a field.
#[expect(clippy::option_option, reason = "absent, null and a value are three things")]
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Repair {
    #[schemars(with = "TypeName")]
    event_type: Option<String>,
    /// Any JSON.
    #[schemars(with = "Value")]
    payload: Option<Box<RawValue>>,
    /// Any bytes, instead of `payload`.
    #[schemars(with = "StrictBase64")]
    payload_base64: Option<String>,
    #[schemars(with = "Ascii<0, 255>")]
    content_type: Option<String>,
    #[schemars(with = "Ascii<1, 64>")]
    source_system: Option<String>,
    #[schemars(with = "Ascii<1, 255>")]
    idempotency_key: Option<String>,
    #[schemars(with = "BTreeMap<String, String>")]
    headers: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "given")]
    aggregate_type: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    aggregate_id: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    target: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    ordering_key: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    process_id: Option<Option<String>>,
    /// Another parent, or null for none.
    #[serde(deserialize_with = "given")]
    parent_id: Option<Option<String>>,
    /// Another parent by its key in the same source system, instead of `parent_id`.
    #[schemars(with = "Ascii<1, 255>")]
    parent_key: Option<String>,
    #[serde(deserialize_with = "given")]
    trace_id: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    custom_data: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    occurred_at: Option<Option<Timestamp>>,
    #[serde(deserialize_with = "given")]
    not_before: Option<Option<Timestamp>>,
    /// Only check it; the answer is the event as it is.
    dry_run: bool,
}

/// Reads a field that is present, even if it is null.
#[expect(clippy::option_option, reason = "absent, null and a value are three things")]
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A repair that was read. It can be applied more than once.
#[expect(clippy::option_option, reason = "absent, null and a value are three things")]
#[derive(Clone, Debug)]
struct Changes {
    texts: Vec<(Column, Option<String>)>,
    payload: Option<Vec<u8>>,
    /// The payload as it was given: the policy may mask what the type's schema asks for.
    given: Option<Vec<u8>>,
    dry_run: bool,
    occurred_at: Option<Option<Timestamp>>,
    not_before: Option<Option<Timestamp>>,
    parent_id: Option<Option<String>>,
    parent_key: Option<String>,
}

impl Changes {
    fn read(repair: Repair) -> Result<Self, Problem> {
        let payload = match (repair.payload, repair.payload_base64) {
            (None, None) => None,
            (Some(json), None) => Some(json.get().as_bytes().to_vec()),
            (None, Some(text)) => Some(BASE64.decode(text.as_bytes()).map_err(|error| {
                Problem::unprocessable(format!("payload_base64 is not base64: {error}."))
            })?),
            (Some(_), Some(_)) => {
                let detail = "An event has either a payload or a payload_base64.";
                return Err(Problem::unprocessable(detail));
            }
        };
        if repair.parent_id.is_some() && repair.parent_key.is_some() {
            return Err(Problem::unprocessable("Give either parent_id or parent_key."));
        }
        let headers = repair.headers.map(|headers| json!(headers).to_string());
        let required = [
            (Column::EventType, repair.event_type),
            (Column::ContentType, repair.content_type),
            (Column::SourceSystem, repair.source_system),
            (Column::IdempotencyKey, repair.idempotency_key),
            (Column::Headers, headers),
        ];
        let optional = [
            (Column::AggregateType, repair.aggregate_type),
            (Column::AggregateId, repair.aggregate_id),
            (Column::Target, repair.target),
            (Column::OrderingKey, repair.ordering_key),
            (Column::ProcessId, repair.process_id),
            (Column::TraceId, repair.trace_id),
            (Column::CustomData, repair.custom_data),
        ];
        let required = required.into_iter().map(|(column, text)| (column, text.map(Some)));
        let texts = required.chain(optional);
        let texts = texts.filter_map(|(column, text)| text.map(|text| (column, text))).collect();
        let Repair { occurred_at, not_before, parent_id, parent_key, dry_run, .. } = repair;
        let given = payload.clone();
        Ok(Self { texts, payload, given, dry_run, occurred_at, not_before, parent_id, parent_key })
    }

    fn apply(&self, row: &mut SqlRow) {
        for (column, text) in &self.texts {
            row.set(*column, text.clone());
        }
        if let Some(payload) = &self.payload {
            row.payload = Payload::Bytes(payload.clone());
        }
        if let Some(at) = self.occurred_at {
            row.occurred_at = at.map(Timestamp::ms);
        }
        if let Some(at) = self.not_before {
            row.not_before = at.map(Timestamp::ms);
        }
    }

    /// Sets the parent.
    fn set_parent(&self, tx: &ReadTx<'_>, row: &mut SqlRow) -> ChangeResult<()> {
        let (id, key) = match (&self.parent_id, self.parent_key.as_deref()) {
            (None, None) => return Ok(()),
            (Some(None), _) => {
                row.parent_seq = None;
                return Ok(());
            }
            (Some(id), key) => (id.as_deref(), key),
            (None, key) => (None, key),
        };
        let texts =
            [Column::Tenant, Column::SourceSystem].map(|of| row.text(of).unwrap_or_default());
        let [tenant, source] = &texts;
        let found = families::find(tx, tenant, source, id, key)?;
        row.parent_seq = Some(found.map_err(|defect| still_invalid(&defect))?);
        Ok(())
    }
}

/// Applies the privacy policy to a repair before anything is stored, as for a published event. Returns what is sealed in
/// the new payload.
fn admit(api: &Api, call: &Call, changes: &mut Changes, most: u64) -> Result<Sealed, Problem> {
    let read = |tx: &ReadTx<'_>| {
        let seq = quarantined(tx, &call.tenant, call.param(0))?;
        let row = sql_rows::read(tx, seq, most)?.ok_or(Error::Changed("the event"))?;
        let pii = tenants::pii(tx, &row.text(Column::Tenant).unwrap_or_default())?;
        Ok((row, pii))
    };
    let (mut row, pii) = api.env.store.read(|tx| settled(read(tx)))??;
    let identity =
        |row: &SqlRow| (row.text(Column::SourceSystem), row.text(Column::IdempotencyKey));
    let before = identity(&row);
    changes.apply(&mut row);
    if row.sealed_fields > 0 && changes.payload.is_none() && identity(&row) != before {
        let detail = "The sealed fields of its payload need the event's own source_system and idempotency_key. \
                      Give the payload too, or discard the event and publish it again under the new key.";
        return Err(Problem::unprocessable(detail));
    }
    // An event may keep a source_system that a new event could not have.
    if let (Some(name), true) = (row.text(Column::SourceSystem), identity(&row).0 != before.0) {
        event::check_http_source(&name).map_err(|why| Problem::unprocessable(format!("{why}.")))?;
        if api.env.store.read(|tx| sources::tables::exists(tx, &call.tenant, &name))? {
            return Err(Problem::of_source(&name));
        }
    }
    let Some(policy) = pii.rules() else { return Ok(Sealed::default()) };
    // If the payload stays, `sql_rows::check` inspects the rest of a row that plain SQL inserted.
    let words = changes.texts.iter();
    let words = words.filter_map(|(column, text)| Some((column.as_str(), text.as_deref()?)));
    let refused = policy.check_identifiers(&words.collect::<Vec<_>>());
    refused.map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    if changes.payload.is_some() {
        row.sealed_fields = 0;
        let mut event = row.check(most).map_err(|defect| still_invalid(&defect))?;
        api.env.privacy.admit(std::slice::from_mut(&mut event)).map_err(|not| match not {
            NotAdmitted::Refused { why, .. } => Problem::unprocessable(format!("{why}.")),
            NotAdmitted::Failed(error) => error.into(),
        })?;
        changes.payload = Some(event.payload);
        return Ok(event.sealed);
    }
    Ok(Sealed::default())
}

fn still_invalid(defect: &Defect) -> Problem {
    Problem::unprocessable(format!("{}: {}.", defect.code, defect.reason))
}

/// The event of a quarantined row with the changes, if it is valid now; and how it is shown without them.
fn repaired(
    tx: &ReadTx<'_>,
    seq: i64,
    most: u64,
    changes: &Changes,
    event_types: &EventTypes,
) -> ChangeResult<(SqlRow, NewEvent, Value)> {
    let before = shown(tx, seq)?;
    let mut row = sql_rows::read(tx, seq, most)?.ok_or(Error::Changed("the event"))?;
    changes.apply(&mut row);
    let code = before.get("error_code").and_then(Value::as_str);
    let lacks_parent = matches!(code, Some(UNKNOWN_PARENT | TOO_DEEP | CIRCLE));
    if lacks_parent && changes.parent_id.is_none() && changes.parent_key.is_none() {
        let detail =
            "It has no parent: give parent_id or parent_key, or \"parent_id\": null for none.";
        return Err(Problem::unprocessable(detail).into());
    }
    changes.set_parent(tx, &mut row)?;
    // What is sealed takes more room than what was allowed in.
    let (most, policy_applied) = if row.own || changes.payload.is_some() {
        (u64::MAX, PolicyApplied::Yes)
    } else {
        (most, PolicyApplied::No)
    };
    let checked = sql_rows::check(tx, &row, most, policy_applied)?;
    let mut event = checked.map_err(|defect| still_invalid(&defect))?;
    event.sealed.fields = row.sealed_fields;
    let payload = changes.given.clone().unwrap_or_else(|| event.payload.clone());
    if let Some(misfit) = event_types.misfit(&NewEvent { payload, ..event.clone() })? {
        return Err(still_invalid(&Defect::new(outbox_relay::MISFIT, misfit.why)).into());
    }
    Ok((row, event, before))
}

/// `POST /v1/events/{id}/fix`
pub(super) fn fix(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let mut changes = Changes::read(call.json()?)?;
    let most = u64::from(api.env.settings.get().limits.payload_bytes);
    let sealed = admit(api, call, &mut changes, most)?;
    let event_types = Arc::clone(&api.flow.publish.event_types);
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    let clock = api.env.clock.clone();
    let of = id.clone();
    let payload = changes.payload.clone();
    let dry_run = changes.dry_run;
    let found = move |tx: &ReadTx<'_>| {
        let seq = quarantined(tx, &tenant, &id)?;
        repaired(tx, seq, most, &changes, &event_types)
    };
    if dry_run {
        let (.., before) = api.env.store.read(|tx| settled(found(tx)))??;
        return Ok(Audited::dry_run(before));
    }
    change(api, call, move |tx| {
        let (mut row, mut event, before) = found(tx)?;
        let seq = row.seq;
        let is_replaced = payload.is_some();
        if is_replaced {
            event.sealed = sealed.clone();
        }
        let now = clock.now();
        let ready = quarantine::ready(tx, seq, &event, now)?
            .map_err(|why| Problem::unprocessable(format!("{why}.")))?;
        quarantine::release(tx, &mut row, &event, is_replaced, &ready, now)?;
        let after = shown(tx, seq)?;
        let mut change =
            Change::changed("event", &of, &audited(tx, &before)?, &audited(tx, &after)?);
        if let Some(payload) = payload.as_deref() {
            change = change.and("payload_sha256", sha256_hex(payload));
        }
        Ok(change.answer(after))
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Discard {
    /// Why; kept with the event.
    reason: Is<Text<1, MAX_REASON_CHARS>>,
}

/// `POST /v1/events/{id}/discard`
pub(super) fn discard(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Discard { reason } = call.json()?;
    check_reason(&reason)?;
    let reason = format!("discarded by {}: {}", call.who.display, &*reason);
    let tenant = call.tenant.clone();
    let id = call.param(0).to_owned();
    let clock = api.env.clock.clone();
    change(api, call, move |tx| {
        let seq = quarantined(tx, &tenant, &id)?;
        let before = shown(tx, seq)?;
        quarantine::discard(tx, seq, &reason, clock.now())?;
        let after = shown(tx, seq)?;
        let change = Change::changed("event", &id, &audited(tx, &before)?, &audited(tx, &after)?);
        Ok(change.answer(after))
    })
}

/// An event as the audit trail keeps it, for years: with its personal data masked, because a row inserted by plain SQL
/// has passed no policy.
fn audited(tx: &ReadTx<'_>, event: &Value) -> StoreResult<Value> {
    let mut event = event.clone();
    let pii = tenants::pii(tx, event.get("tenant").and_then(Value::as_str).unwrap_or_default())?;
    if let (Some(policy), Value::Object(fields)) = (pii.rules(), &mut event) {
        for field in fields.values_mut() {
            if let Some(masked) = field.as_str().and_then(|text| policy.masked(text)) {
                *field = masked.into();
            }
        }
    }
    Ok(event)
}

/// The row number of a quarantined event that this tenant may change.
fn quarantined(tx: &ReadTx<'_>, tenant: &str, id: &str) -> ChangeResult<i64> {
    match quarantine::find(tx, tenant, id)? {
        None => Err(Problem::not_found("event").into()),
        Some((seq, status)) if status == "quarantined" => Ok(seq),
        Some((_, status)) => Err(Problem::conflict(format!(
            "The event is {status}; only a quarantined one can be repaired or discarded."
        ))
        .into()),
    }
}

fn shown(tx: &ReadTx<'_>, seq: i64) -> StoreResult<Value> {
    Ok(value(&outbox_lists::by_seq(tx, seq)?.ok_or(Error::Changed("the event"))?))
}

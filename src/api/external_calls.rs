//! `/v1/external-calls`: the latest call about each entity, of subscriptions that protect external calls.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::api::call::{Call, page_found};
use crate::api::context::Api;
use crate::api::lists;
use crate::api::problem::Problem;
use crate::api::route::Answer::Listed;
use crate::api::route::{AFTER, LIMIT, Param, Resource, Returns, get};
use crate::api::schema::{DeliveryId, NameText, SomeText, Text, value};
use crate::base::clock::Timestamp;
use crate::base::id::DeliverySeq;
use crate::http::message::Response;
use crate::model::external_call::{CallState, ExternalCall};
use crate::model::token::Right::Read;
use crate::store::page::Found;
use crate::store::{external_calls, subscriptions};

const SUBSCRIPTION: Param =
    Param::query::<SomeText>("subscription", "Only those of the subscription of this name.", "erp")
        .quick();

/// External calls.
pub(super) const RESOURCE: Resource = Resource {
    tag: "External calls",
    about: "What was called last about each entity, where a subscription has `order.external_calls`.",
    routes: &[get("/v1/external-calls", Read, Listed(list))
        .doc("listExternalCalls", "List the latest call about each entity")
        .about("The latest first. No call for an older state follows one that the target has accepted.")
        .returns(&[Returns::page::<CallAnswer>("A page of external calls.")])
        .params(&[SUBSCRIPTION, LIMIT, AFTER])],
};

/// `GET /v1/external-calls`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let (page, name) = (call.query.page()?, call.query.get("subscription"));
    let newest = page.newest(&call.tenant);
    let found = lists::read(api, call, |tx| {
        let mut calls = Vec::new();
        for of in subscriptions::live(tx)?.iter().filter(|of| of.new.tenant == call.tenant) {
            if name.is_none_or(|name| name == of.new.name.as_str() || name == of.new.id) {
                let found = external_calls::page(tx, newest, of.seq)?;
                calls.extend(found.into_iter().map(|call| (of.new.name.to_string(), call)));
            }
        }
        calls.sort_unstable_by_key(|(_, call)| std::cmp::Reverse(call.delivery));
        calls.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
        Ok(Found::of(calls, page.limit, |(_, call)| call.delivery.0))
    })?;
    Ok(page_found(&found, |(subscription, call)| value(CallAnswer::of(subscription, call))))
}

/// The latest call about an entity.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExternalCall")]
struct CallAnswer {
    #[schemars(with = "NameText")]
    subscription: String,
    /// What the call is about: an event's id, `type/id` of an entity, or the text at `call_path`.
    #[schemars(with = "Text<0, 400>")]
    entity_key: String,
    /// `PROCESSING`: it is under way, or was when the service ended. `FAILED`: it is tried again. `FAILED_END`: it was
    /// given up, skipped or cancelled.
    state: CallState,
    /// Failed calls about the entity since the last one that was accepted before this one.
    failed_count: u32,
    /// Its delivery.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "DeliveryId")]
    delivery: DeliverySeq,
    /// The delivery whose state the target has accepted last; null if it has accepted none, or if no answer to a newer
    /// call came.
    #[schemars(with = "Option<DeliveryId>")]
    made_by: Option<String>,
    /// When the first call about the entity began.
    created_at: Timestamp,
    /// When the latest call began or ended.
    updated_at: Timestamp,
}

impl CallAnswer {
    fn of(subscription: &str, call: &ExternalCall) -> Self {
        let ExternalCall { entity_key, state, failed_count, delivery, made_by, .. } = call;
        Self {
            subscription: subscription.to_owned(),
            entity_key: entity_key.clone(),
            state: *state,
            failed_count: *failed_count,
            delivery: *delivery,
            made_by: made_by.map(|by| by.to_string()),
            created_at: call.created_at,
            updated_at: call.updated_at,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field by reference")]
fn as_text<S: Serializer>(seq: &DeliverySeq, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(seq)
}

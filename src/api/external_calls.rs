//! `/v1/external-calls`: the latest call about each entity, of subscriptions that protect external calls.

use crate::api::call::page_found;
use crate::api::prelude::*;
use crate::model::external_call::ExternalCall;
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
        .doc(
            "listExternalCalls",
            "List the latest call about each entity",
            &[SUBSCRIPTION, LIMIT, AFTER],
        )
        .about("The latest first. No call for an older state follows one that the target has accepted.")
        .returns(&[Returns::page::<CallAnswer<'_>>("A page of external calls.")])],
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
    Ok(page_found(&found, |(subscription, call)| CallAnswer { subscription, call }))
}

/// The latest call about an entity.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExternalCall")]
struct CallAnswer<'a> {
    #[schemars(with = "NameText")]
    subscription: &'a str,
    #[serde(flatten)]
    call: &'a ExternalCall,
}

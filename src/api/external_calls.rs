//! `/v1/external-calls`: the latest call about each entity, of subscriptions that protect external calls.

use crate::api::call::{MAX_REASON_CHARS, check_reason, page_found};
use crate::api::deliveries;
use crate::api::prelude::*;
use crate::api::schema::TrueOrFalse;
use crate::model::external_call::ExternalCall;
use crate::store::page::RowPage;
use crate::store::{external_calls, subscriptions};

const SUBSCRIPTION: Param =
    Param::query::<SomeText>("subscription", "Only those of the subscription of this name.", "erp")
        .quick();

const IN_DOUBT: Param =
    Param::query::<TrueOrFalse>("in_doubt", "`true`: only those that a person has to end.", "")
        .quick();

/// External calls.
pub(super) const RESOURCE: Resource = Resource {
    tag: "External calls",
    about: "What was called last about each entity, where a subscription has `order.external_calls`.",
    routes: &[
        get("/v1/external-calls", Read, Listed(list))
            .doc(
                "listExternalCalls",
                "List the latest call about each entity",
                &[SUBSCRIPTION, IN_DOUBT, LIMIT, AFTER],
            )
            .about("The latest first. No call for an older state follows one that the target has accepted.")
            .returns(&[Returns::page::<CallAnswer<'_>>("A page of external calls.")]),
        post("/v1/external-calls/{id}/end", Operate, Act("external_call.end", end))
            .doc("endExternalCall", "End the doubt about a call", &[deliveries::ID])
            .about(
                "`id` is the call's `delivery`. A call that got no answer may have been made. While it is in doubt, no \
                 call for an older state follows. Look at the target, then say which of the two it is.",
            )
            .returns(&[Returns::json::<CallAnswer<'_>>(200, "The call as it is now.")])
            .body::<Ended>(r#"{"made":true,"reason":"the target has the invoice"}"#),
    ],
};

/// `GET /v1/external-calls`
pub(super) fn list(api: &Api, call: &Call) -> Result<Response, Problem> {
    let page = call.query.page()?;
    let name = call.query.get("subscription");
    let in_doubt: Option<bool> = call.query.word("in_doubt", |text| text.parse().ok())?;
    let newest = page.newest(&call.tenant);
    let found = lists::read(api, call, |tx| {
        let mut calls = Vec::new();
        for of in subscriptions::live_of(tx, &call.tenant)? {
            if name.is_none_or(|name| name == of.new.name.as_str() || name == of.new.id) {
                let found = external_calls::page(tx, newest, of.seq, in_doubt == Some(true))?;
                calls.extend(found.into_iter().map(|call| (of.new.name.to_string(), call)));
            }
        }
        calls.sort_unstable_by_key(|(_, call)| std::cmp::Reverse(call.delivery));
        calls.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
        Ok(RowPage::of(calls, page.limit, |(_, call)| call.delivery.0))
    })?;
    Ok(page_found(&found, |(subscription, call)| CallAnswer { subscription, call }))
}

/// What a person found at the target.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ended {
    /// `true`: the target has accepted the call. `false`: it has not, so that older states may be sent.
    made: bool,
    /// How that is known; kept in the audit log.
    reason: Is<Text<1, MAX_REASON_CHARS>>,
}

/// `POST /v1/external-calls/{id}/end`
fn end(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Ended { made, reason } = call.json()?;
    check_reason(&reason)?;
    let of = deliveries::find(api, call)?;
    let now = api.env.clock.now();
    change(api, call, move |tx| {
        let shown =
            |call: &ExternalCall| value(CallAnswer { subscription: &of.subscription, call });
        let before = external_calls::of(tx, of.seq)?.or_not_found("external call")?;
        if before.in_doubt.is_none() {
            let why = format!(
                "The call of {} is {}, and nothing about it is in doubt. A delivery that is still open is repeated: \
                 skip or cancel it first.",
                of.seq, before.state
            );
            return Err(Problem::conflict(why).into());
        }
        external_calls::end_doubt(tx, of.seq, made, now)?;
        let after = external_calls::of(tx, of.seq)?.or_not_found("external call")?;
        let change =
            Change::changed("external_call", &of.seq.to_string(), &shown(&before), &shown(&after));
        Ok(change.and("given_reason", &*reason))
    })
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

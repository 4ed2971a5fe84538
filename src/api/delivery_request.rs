//! `GET /v1/deliveries/{id}/request`: what an attempt sends, without its secrets.

use data_encoding::BASE64;

use crate::api::call::SHOWN_FACTOR;
use crate::api::deliveries;
use crate::api::prelude::*;
use crate::api::schema::Base64;
use crate::base::id::DeliverySeq;
use crate::model::sealed;
use crate::model::subscription::{CallMethod, Target};
use crate::pipeline::deliver::Preview;
use crate::store::{deliveries as stored, subscriptions};

/// Requests of deliveries.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Requests of deliveries",
    about: "What an attempt sends.",
    routes: &[get("/v1/deliveries/{id}/request", Read, Now(show))
        .doc("getDeliveryRequest", "Show the request of a delivery", &[deliveries::ID])
        .about(
            "As the next attempt would send it now. Nothing is sent. Secrets, signatures and the token of a \
             confirm URL are `***`; sealed fields stay sealed.",
        )
        .returns(&[Returns::json::<RequestAnswer>(200, "The request.")])
        .problems(&[Kind::Conflict])],
};

/// What an attempt sends.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeliveryRequest")]
struct RequestAnswer {
    delivery: DeliverySeq,
    method: CallMethod,
    url: String,
    /// In the order in which they are sent.
    headers: Vec<RequestField>,
    /// The body, if it is text.
    body: Option<String>,
    /// The body, if it is not.
    body_base64: Option<Is<Base64>>,
    /// How many fields of the event stay sealed here. An attempt opens them.
    sealed_fields: u32,
}

/// A header field.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeliveryRequestField")]
struct RequestField {
    name: String,
    value: String,
    /// Whether the value, or a part of it, is hidden.
    masked: bool,
}

/// `GET /v1/deliveries/{id}/request`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let of = deliveries::find(api, call)?;
    let event = (of.tenant.as_str(), of.event_id.as_str());
    let found = api.store.read(|tx| {
        let subscription = subscriptions::find(tx, &of.tenant, &of.subscription)?;
        let Some(subscription) = subscription else { return Ok(None) };
        let outgoing = stored::outgoing_of_event(tx, subscription.seq, event)?;
        Ok(outgoing.map(|outgoing| (subscription, outgoing)))
    })?;
    let Some((subscription, mut outgoing)) = found else {
        return Err(Problem::conflict("The subscription of the delivery was deleted."));
    };
    if subscription.new.is_of_alerts() || subscription.new.target == Target::Pull {
        return Err(Problem::conflict(
            "No request is sent for this delivery: it belongs to a consumer or to an alert channel.",
        ));
    }
    let _share = api.share(outgoing.payload.len().saturating_mul(SHOWN_FACTOR))?;
    outgoing.delivery = of.seq;
    outgoing.run_no = of.run_no;
    outgoing.attempt_count = of.attempt_count;
    let sealed_fields = outgoing.sealed_fields;
    if sealed_fields > 0 {
        outgoing.payload = sealed::redact(&outgoing.payload);
    }
    let method = subscription.new.method;
    let Preview { url, headers, body } = api
        .flow
        .tests
        .preview(outgoing)
        .map_err(|why| Problem::conflict(format!("The request cannot be built: {why}.")))?;
    let headers =
        headers.into_iter().map(|(name, value, masked)| RequestField { name, value, masked });
    let (body, body_base64) = match String::from_utf8(body) {
        Ok(text) => (Some(text), None),
        Err(bytes) => (None, Some(BASE64.encode(bytes.as_bytes()))),
    };
    Ok(ok(&RequestAnswer {
        delivery: of.seq,
        method,
        url,
        headers: headers.collect(),
        body,
        body_base64: body_base64.map(Into::into),
        sealed_fields,
    }))
}

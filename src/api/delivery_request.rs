//! `GET /v1/deliveries/{id}/request`: what an attempt has sent, or would send, without its secrets.

use data_encoding::{BASE64, HEXLOWER};
use ring::digest::{SHA256, digest};

use crate::api::call::SHOWN_FACTOR;
use crate::api::deliveries;
use crate::api::prelude::*;
use crate::api::schema::{Base64, Sha256};
use crate::base::headers::own_field;
use crate::base::id::DeliverySeq;
use crate::formats;
use crate::model::attempt::Attempt;
use crate::model::delivery::{Delivery, OutgoingRequest};
use crate::model::format::{Format, Rendering};
use crate::model::sealed;
use crate::model::subscription::{Subscription, Target};
use crate::pipeline::deliver::trial::Preview;
use crate::pipeline::rendering::Fields;
use crate::store::{attempts, deliveries as stored, renderings, subscriptions};

/// The longest body that stands in a curl command itself.
const MAX_CURL_BODY: usize = 8192;

const ATTEMPT: Param = Param::query::<Whole<1, { 1 << 31 }>>(
    "attempt",
    "The number of the attempt whose request is shown.",
    "1",
);

/// Requests of deliveries.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Requests of deliveries",
    about: "What an attempt has sent, or would send.",
    routes: &[get("/v1/deliveries/{id}/request", Read, Now(show))
        .doc("getDeliveryRequest", "Show the request of a delivery", &[deliveries::ID, ATTEMPT])
        .about(
            "As the latest attempt sent it; where there is none, or it was before this was kept, or the delivery is to \
             be rendered anew, as it would be sent now. With `attempt`, as that attempt sent it. Nothing is sent. \
             Secrets, signatures and the token of a confirm URL are `***`; sealed fields stay sealed.",
        )
        .returns(&[Returns::json::<RequestAnswer>(200, "The request.")])
        .problems(&[Kind::Conflict])],
};

/// What an attempt has sent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeliveryRequest")]
struct RequestAnswer {
    delivery: DeliverySeq,
    /// The number of the attempt that sent it; `null`: it is as the next attempt would send it now.
    attempt: Option<u32>,
    method: String,
    url: String,
    /// In the order in which they are sent.
    headers: Vec<RequestField>,
    format: Format,
    /// The body, if it is text. `[sealed]` if it was made of sealed fields.
    body: Option<String>,
    /// The body, if it is not.
    body_base64: Option<Is<Base64>>,
    /// The SHA-256 of the body as it was sent; `null` if sealed fields were opened in it.
    body_sha256: Option<Is<Sha256>>,
    /// How many fields of the event stay sealed here. An attempt opens them.
    sealed_fields: u32,
    /// Whether an erasure has removed parts of it since.
    erased: bool,
    /// A curl command that repeats it, once its `***` are filled in; null for a file or a mail.
    curl: Option<String>,
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

/// What is stored of a request.
struct Stored {
    subscription: Subscription,
    outgoing: OutgoingRequest,
    /// The rendering; `None`: the next attempt makes one.
    fixed: Option<Rendering>,
    /// The attempt that sent it.
    sent: Option<Attempt>,
}

/// What is stored of the request that an attempt has sent; without a number, the latest attempt that sent something.
/// Fails with 404 where there is no such attempt, 409 where it sent nothing or the subscription was deleted.
fn stored_of(api: &Api, of: &Delivery, attempt: Option<u32>) -> Result<Stored, Problem> {
    let event = (of.tenant.as_str(), of.event_id.as_str());
    let found = api.env.store.read(|tx| {
        let Some(subscription) = subscriptions::find(tx, &of.tenant, &of.subscription)? else {
            return Ok(None);
        };
        let Some(outgoing) = stored::outgoing_of_event(tx, subscription.seq, event)? else {
            return Ok(None);
        };
        let content_type = outgoing.content_type.as_str();
        let (fixed, sent) = match attempt {
            Some(n) => (
                Some(renderings::sent_by(tx, of.seq, n, content_type)?),
                attempts::nth(tx, of.seq, n)?,
            ),
            None => {
                (renderings::fixed(tx, of.seq, content_type)?, attempts::last_sent(tx, of.seq)?)
            }
        };
        Ok(Some(Stored { subscription, outgoing, fixed, sent }))
    })?;
    let found =
        found.ok_or_else(|| Problem::conflict("The subscription of the delivery was deleted."))?;
    if let Some(n) = attempt {
        let sent = found.sent.as_ref().or_not_found("attempt")?;
        if sent.method.is_none() {
            let why = sent.failed_reason.as_deref().unwrap_or("it was before requests were kept");
            return Err(Problem::conflict(format!("Attempt {n} has no request: {why}.")));
        }
    }
    Ok(found)
}

/// `GET /v1/deliveries/{id}/request`
fn show(api: &Api, call: &Call) -> Result<Response, Problem> {
    let (api, of) = &deliveries::find_where_it_is(api, call)?;
    let wanted: Option<u32> = call.query.word("attempt", |text| text.parse().ok())?;
    let Stored { subscription, mut outgoing, fixed, sent } = stored_of(api, of, wanted)?;
    if subscription.new.is_of_alerts() || subscription.new.target == Target::Pull {
        return Err(Problem::conflict(
            "No request is sent for this delivery: it belongs to a consumer or to an alert channel.",
        ));
    }
    let kept = fixed.as_ref().and_then(|fixed| fixed.body.as_deref()).map_or(0, <[u8]>::len);
    let _share = api.share((outgoing.payload.len() + kept).saturating_mul(SHOWN_FACTOR))?;
    outgoing.delivery = of.seq;
    outgoing.run_no = of.run_no;
    outgoing.attempt_count = of.attempt_count;
    let sealed_fields = outgoing.sealed_fields;
    let erased = sealed_fields > 0 && api.env.privacy.is_erased(&of.tenant, &outgoing.payload)?;
    if sealed_fields > 0 {
        outgoing.payload = sealed::redact(&outgoing.payload);
    }
    let format = fixed.as_ref().map_or(subscription.new.format, |fixed| fixed.format);
    let method = subscription.new.method.as_str().to_owned();
    let box_name = api.env.settings.get().r#box.name.clone();
    let kept = sent.zip(fixed.as_ref()).and_then(|(sent, fixed)| {
        let shown = as_sent(&sent, fixed, box_name.as_deref(), outgoing.clone())?;
        Some((sent, shown))
    });
    let (sent, Preview { url, mut headers, body }) = if let Some((sent, shown)) = kept {
        (Some(sent), shown)
    } else if let Some(n) = wanted {
        return Err(Problem::conflict(format!(
            "What attempt {n} sent was not kept: the delivery was rendered anew before schema 16, or its data was erased. \
             Its SHA-256 is in the list of attempts."
        )));
    } else {
        // What is sealed would be opened.
        outgoing.rendering = fixed.filter(|fixed| !fixed.is_sealed);
        let shown = api.flow.tests.preview(outgoing);
        let refused = |why| Problem::conflict(format!("The request cannot be built: {why}."));
        (None, shown.map_err(refused)?)
    };
    let method = sent.as_ref().and_then(|sent| sent.method.clone()).unwrap_or(method);
    let is_request = !matches!(subscription.new.target, Target::Folder(_) | Target::Email(_));
    if !is_request {
        // Nothing is sent but the file, or the mail with its subject.
        headers.retain(|(name, _, _)| matches!(name.as_str(), "content-type" | "subject"));
    }
    let (body, body_base64) = match String::from_utf8(body) {
        Ok(text) => (Some(text), None),
        Err(bytes) => (None, Some(BASE64.encode(bytes.as_bytes()))),
    };
    let hash = sent.as_ref().and_then(|sent| sent.body_sha256);
    Ok(ok(&RequestAnswer {
        delivery: of.seq,
        attempt: sent.map(|sent| sent.n),
        curl: is_request.then(|| curl(&method, &url, &headers, body.as_deref())),
        method,
        url,
        headers: headers
            .into_iter()
            .map(|(name, value, masked)| RequestField { name, value, masked })
            .collect(),
        format,
        body,
        body_base64: body_base64.map(Into::into),
        body_sha256: hash.map(|hash| HEXLOWER.encode(&hash).into()),
        sealed_fields,
        erased,
    }))
}

/// The request of an attempt, of what was kept; `None` if its delivery was rendered anew since.
fn as_sent(
    sent: &Attempt,
    fixed: &Rendering,
    box_name: Option<&str>,
    mut outgoing: OutgoingRequest,
) -> Option<Preview> {
    let is_sealed = outgoing.sealed_fields > 0;
    match &fixed.body {
        Some(_) if fixed.is_sealed && fixed.format == Format::Raw => {
            outgoing.payload = sealed::SHOWN.as_bytes().to_vec();
        }
        Some(_) if fixed.is_sealed => formats::wrap(fixed.format, box_name, &mut outgoing).ok()?,
        Some(body) => outgoing.payload.clone_from(body),
        None => formats::wrap(fixed.format, box_name, &mut outgoing).ok()?,
    }
    let hash = digest(&SHA256, &outgoing.payload);
    if sent.body_sha256.is_some_and(|sent| !is_sealed && sent != *hash.as_ref()) {
        return None;
    }
    let span = sent.span.as_deref().unwrap_or_default();
    let mut headers = outgoing.standard_fields(sent.started_at, span, "***".to_owned());
    if sent.named {
        headers.extend(formats::naming_fields(&outgoing));
    }
    let lines: Fields = serde_json::from_str(&fixed.fields).unwrap_or_default();
    let subject = lines.into_iter().find(|(name, _)| name == formats::SUBJECT);
    headers.extend(subject.map(|(_, value)| ("subject".to_owned(), value)));
    if let Some((_, content_type)) = headers.first_mut() {
        content_type.clone_from(&fixed.content_type);
    }
    let others: Fields =
        sent.fields.as_deref().and_then(|kept| serde_json::from_str(kept).ok()).unwrap_or_default();
    let shown = headers.into_iter().chain(others).map(|(name, value)| {
        let mask = own_field(&name).flatten();
        let is_masked = mask.is_some() || value == "***";
        let value = mask.map(|mask| mask(&value)).unwrap_or(value);
        (name, value, is_masked)
    });
    Some(Preview { url: sent.url.clone(), headers: shown.collect(), body: outgoing.payload })
}

fn curl(method: &str, url: &str, headers: &[(String, String, bool)], body: Option<&str>) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let mut curl = format!("curl -X {method} {}", quoted(url));
    for (name, value, _) in headers {
        curl.push_str(" \\\n  -H ");
        curl.push_str(&quoted(&format!("{name}: {value}")));
    }
    // `--data-binary` would send the file whose name follows an @ in the body.
    let body = body.filter(|body| body.len() <= MAX_CURL_BODY);
    let data =
        body.map_or_else(|| "binary @body".to_owned(), |body| format!("raw {}", quoted(body)));
    curl.push_str(" \\\n  --data-");
    curl.push_str(&data);
    curl
}

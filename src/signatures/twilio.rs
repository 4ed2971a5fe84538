//! Twilio: an HMAC over the URL and the sorted form fields, or over a URL that contains the body's digest.
//!
//! Twilio signs the URL sometimes with its port and sometimes without, so both are tried. Where the account signs with a
//! `SharedKey` instead of the auth token, a header field names the hash
//! (<https://www.twilio.com/docs/usage/webhooks/webhook-shared-keys>).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use data_encoding::BASE64;
use percent_encoding::percent_decode;

use super::check::{Incoming, Refused, Verified, any_match, bad_body, malformed, needed_base64};
use super::conduct::AnswerFacts;
use super::naming::Locator::{Body, Header};
use super::naming::{Facts, StatedIdentity};
use super::signing::{Hash, mac, same};
use crate::base::headers::Headers;
use crate::base::id::sha256_hex;

/// `key=<id of the SharedKey>,algorithm=HMAC_SHA256`; absent if the auth token signed, always with SHA-1.
const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
const SIGNATURE: &str = "x-twilio-signature";
const TOKEN: &str = "i-twilio-idempotency-token";
const BODY_DIGEST: &str = "bodySHA256=";
/// Fields of one form at most; Twilio sends some dozens.
const MAX_FIELDS: usize = 1_000;

/// For JSON bodies, such as those of Event Streams.
pub(super) static FACTS: Facts = Facts {
    ids: &[Body(&["id"]), Header(TOKEN)],
    types: &[Body(&["type"]), Body(&["EventType"])],
    kept: &[TOKEN],
    // To the webhook of a message or a call, Twilio expects instructions.
    answers: &[AnswerFacts::for_forms("text/xml", "<Response/>")],
    takes_get: true,
    ..Facts::new("twilio", "message.delivered")
};

type Form = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

pub(super) fn verify(secrets: &[&[u8]], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let offered = [needed_base64(incoming.headers, SIGNATURE)?];
    let fields = match digest_in(incoming.url) {
        Some(digest) => {
            // Then the URL is signed, and with it the digest.
            if !same(digest.to_ascii_lowercase().as_bytes(), sha256_hex(incoming.body).as_bytes()) {
                return Err(Refused::Mismatch);
            }
            Vec::new()
        }
        // Fields beyond the limit would not be checked, so such a form is refused.
        None => flat(&form(incoming.body).ok_or_else(|| bad_body("its form has too many fields"))?),
    };
    let hash = hash_of(incoming.headers)?;
    let mut refused = Refused::NoSecret;
    for url in url_variants(incoming.url) {
        let expected = |secret: &[u8]| Some(mac(hash, secret, &[url.as_bytes(), &fields]));
        match any_match(secrets, &offered, expected) {
            Ok(secret) => return Ok(Verified { secret, signed_at: None }),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}

/// The hash of the signature. The field that names it is not signed; every hash needs the secret all the same.
fn hash_of(headers: &Headers) -> Result<Hash, Refused> {
    let Some(settings) = headers.get(SETTINGS) else { return Ok(Hash::Sha1) };
    let mut settings = settings.split(',').map(str::trim);
    match settings.find_map(|setting| setting.strip_prefix("algorithm=")) {
        Some("HMAC_SHA256") => Ok(Hash::Sha256),
        Some("HMAC_SHA1") => Ok(Hash::Sha1),
        _ => Err(malformed(SETTINGS, "its algorithm is neither HMAC_SHA256 nor HMAC_SHA1")),
    }
}

/// What is signed besides the URL, in its canonical form, because one set of fields can be written in several ways.
pub(super) fn signed<'a>(incoming: &Incoming<'a>) -> Cow<'a, [u8]> {
    match digest_in(incoming.url) {
        Some(_) => incoming.body.into(),
        None => flat(&form(incoming.body).unwrap_or_default()).into(),
    }
}

/// The signature of a form, in base64.
pub(super) fn sign(secret: &str, url: &str, body: &[u8]) -> String {
    let fields = flat(&form(body).unwrap_or_default());
    BASE64.encode(&mac(Hash::Sha1, secret.as_bytes(), &[url.as_bytes(), &fields]))
}

fn digest_in(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(BODY_DIGEST))
}

/// The URL with and without its port.
fn url_variants(url: &str) -> Vec<String> {
    let mut variants = vec![url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else { return variants };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let Some((authority, path)) = rest.split_at_checked(end) else { return variants };
    let own = if scheme == "https" { "443" } else { "80" };
    let port = authority
        .rsplit_once(':')
        .filter(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    variants.push(match port {
        Some((host, _)) => format!("{scheme}://{host}{path}"),
        None => format!("{scheme}://{authority}:{own}{path}"),
    });
    variants
}

/// The fields of a form; `None` if there are too many. Equal values of one name count once.
fn form(body: &[u8]) -> Option<Form> {
    let mut fields = Form::new();
    let pairs = body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        if count >= MAX_FIELDS {
            return None;
        }
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let mut half = || decoded(halves.next().unwrap_or_default());
        let name = half();
        let value = half();
        fields.entry(name).or_default().insert(value);
    }
    Some(fields)
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).collect()
}

/// The names and values of a form, sorted and concatenated.
fn flat(fields: &Form) -> Vec<u8> {
    let mut flat = Vec::new();
    for (name, values) in fields {
        for value in values {
            flat.extend_from_slice(name);
            flat.extend_from_slice(value);
        }
    }
    flat
}

/// The id and type of a request. A message has several statuses, so the status is part of a form's id. Forms without
/// a status, such as those of conversations, and calls, which send one status several times, have a digest of all
/// fields in their id.
pub(super) fn identify(incoming: &Incoming<'_>) -> StatedIdentity {
    if matches!(incoming.body.trim_ascii_start().first(), Some(b'{' | b'[')) {
        return FACTS.identify(incoming);
    }
    let fields = form(incoming.body).unwrap_or_default();
    let field = |name: &str| {
        let value = fields.get(name.as_bytes())?.first()?;
        String::from_utf8(value.clone()).ok().filter(|value| !value.is_empty())
    };
    let of = |kind: &str, names: [&str; 2]| {
        names.into_iter().find_map(field).map(|status| format!("{kind}.{status}"))
    };
    let message = of("message", ["MessageStatus", "SmsStatus"]);
    let status = message.or_else(|| of("call", ["CallStatus", "CallStatus"]));
    let token = incoming.headers.get(TOKEN).map(str::to_owned).filter(|token| !token.is_empty());
    // The token is not signed, so it is used only if no signed field identifies the request.
    let digest = || sha256_hex(&flat(&fields));
    let message = ["MessageSid", "SmsSid"].into_iter().find_map(field);
    let signed = match (message, &status) {
        (Some(sid), Some(status)) => Some(format!("{sid}:{status}")),
        (Some(sid), None) => Some(format!("{sid}:{}", digest())),
        (None, status) => field("CallSid")
            .map(|sid| format!("{sid}:{}:{}", status.as_deref().unwrap_or_default(), digest())),
    };
    StatedIdentity { event_id: signed.or(token), event_type: field("EventType").or(status) }
}

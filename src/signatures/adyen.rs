//! Adyen's standard notifications: each item of a batch carries its own signature over some of its fields.
//!
//! Not here: the basic authentication that Adyen can send as well, and splitting the batch ([`super::batch`]).

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use zeroize::Zeroizing;

use super::check::{Incoming, Refused, Verified, any_match, bad_body, long_enough};
use super::naming::{Facts, StatedIdentity};
use super::shared::each_item;
use super::signing::{Hash, SecretError, mac};
use crate::model::pointer::{text_at, unambiguous_at, unambiguous_text_at};

/// Id and type are put together from several fields ([`identify`]).
pub(super) static FACTS: Facts = Facts::new("adyen", "AUTHORISATION");

/// The path of the list of items.
pub(super) const ITEMS: [&str; 1] = ["notificationItems"];
const ITEM: &str = "NotificationRequestItem";
/// The signed fields, joined by colons without escaping; a missing one counts as empty.
const SIGNED: [&[&str]; 8] = [
    &[ITEM, "pspReference"],
    &[ITEM, "originalReference"],
    &[ITEM, "merchantAccountCode"],
    &[ITEM, "merchantReference"],
    &[ITEM, "amount", "value"],
    &[ITEM, "amount", "currency"],
    &[ITEM, "eventCode"],
    &[ITEM, "success"],
];

/// Settings of `adyen`.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Adyen {
    /// Answer the text `[accepted]` instead of JSON, which older accounts expect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
}

/// Checks a key, which Adyen shows in hex.
pub(super) fn check_secret(text: &str) -> Result<(), SecretError> {
    let key = HEXLOWER_PERMISSIVE.decode(text.as_bytes());
    let key = key.map_err(|_where| SecretError::Encoding { encoding: "hex, as Adyen shows it" })?;
    long_enough(key.len())
}

/// Verifies every item; each may be signed with any of the secrets.
pub(super) fn verify(secrets: &[&[u8]], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    unambiguous_at(incoming.body, &ITEMS).map_err(bad_body)?;
    let none = ["it has no notificationItems", "it has no notificationItems, or too many"];
    each_item(incoming, &ITEMS, none, |item| {
        let offered = unambiguous_text_at(item, &[ITEM, "additionalData", "hmacSignature"])
            .map_err(bad_body)?
            .ok_or_else(|| bad_body("an item has no additionalData.hmacSignature"))?;
        let offered = BASE64
            .decode(offered.as_bytes())
            .map_err(|_where| bad_body("an hmacSignature is not base64"))?;
        let signed = signed(item)?;
        any_match(secrets, &[offered], |secret| sign(secret, &signed))
    })
}

fn signed(item: &[u8]) -> Result<String, Refused> {
    let mut fields = Vec::with_capacity(SIGNED.len());
    for path in SIGNED {
        let text = unambiguous_text_at(item, path).map_err(bad_body)?.unwrap_or_default();
        // In other fields than the shop's own reference, a colon would move text to the next field unnoticed.
        if text.contains(':') && !path.ends_with(&["merchantReference"]) {
            return Err(bad_body("a signed field contains a colon"));
        }
        fields.push(text);
    }
    Ok(fields.join(":"))
}

fn sign(secret: &[u8], signed: &str) -> Option<Vec<u8>> {
    let key = Zeroizing::new(HEXLOWER_PERMISSIVE.decode(secret).ok()?);
    Some(mac(Hash::Sha256, &key, &[signed.as_bytes()]))
}

/// The signature of an item, in base64.
pub(super) fn signature(secret: &str, item: &[u8]) -> String {
    let signed = signed(item).unwrap_or_default();
    BASE64.encode(&sign(secret.as_bytes(), &signed).unwrap_or_default())
}

/// The id and type of an item. The reference names a payment, so the id also contains the event code and success.
pub(super) fn identify(incoming: &Incoming<'_>) -> StatedIdentity {
    let field = |name: &str| text_at(incoming.body, &[ITEM, name]);
    let code = field("eventCode");
    let id = field("pspReference").filter(|reference| !reference.is_empty()).map(|reference| {
        let success = field("success").unwrap_or_default();
        format!("{reference}:{}:{success}", code.as_deref().unwrap_or_default())
    });
    StatedIdentity { event_id: id, event_type: code }
}

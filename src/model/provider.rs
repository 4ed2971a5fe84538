//! A provider's public URL, the place of the ordering key in its webhooks, and the terms of comparisons with its list.
//!
//! Not here: reading the key from a request (`pipeline::receive`), and what a lane is ([`crate::model::lane`]).

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};

use crate::base::schema::{HEADER_NAME, described};
use crate::base::words::as_text;
use crate::model::json_fields;
use crate::model::json_path::Path;

/// The longest public URL, in bytes. A longer one does not fit into a request's head.
const MAX_URL_BYTES: usize = 2048;

/// The longest ordering key; of a longer one its SHA-256 is stored.
pub const MAX_KEY_CHARS: usize = 255;
/// Parts of names of header fields that carry secrets. Ordering keys are stored as they are.
const SECRET_PARTS: [&str; 6] =
    ["authorization", "cookie", "signature", "token", "secret", "api-key"];

/// The shortest time between two comparisons with a provider's list, in seconds.
const MIN_EVERY_SECS: u64 = 600;
/// The shortest period that is compared, in seconds.
const MIN_SINCE_SECS: u64 = 3_600;
/// The longest of both, in seconds: 92 days.
const MAX_RECONCILE_SECS: u64 = 92 * 86_400;

/// When a provider's list is compared with the webhooks that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReconcileTerms {
    /// The time between two comparisons, in seconds; 0: only when somebody asks.
    pub every_secs: u64,
    /// How far back items are compared, in seconds.
    pub since_secs: u64,
    /// An escalation is raised if more of a day's items were missing, in percent.
    pub alert_percent: u64,
}

impl Default for ReconcileTerms {
    fn default() -> Self {
        Self { every_secs: 0, since_secs: 3 * 86_400, alert_percent: 1 }
    }
}

/// A change of [`ReconcileTerms`]. Absent members stay as they are.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReconcileChange {
    /// Compare the provider's list this often, in seconds: 600 or more; 0: only when somebody asks.
    #[serde(deserialize_with = "json_fields::whole")]
    #[schemars(range(min = 0, max = MAX_RECONCILE_SECS))]
    pub every_secs: Option<u64>,
    /// How far back items are compared, in seconds; three days if absent.
    #[serde(deserialize_with = "json_fields::whole")]
    #[schemars(range(min = MIN_SINCE_SECS, max = MAX_RECONCILE_SECS))]
    pub since_secs: Option<u64>,
    /// Raise an escalation if more of a day's items were missing, in percent; 1 if absent.
    #[serde(deserialize_with = "json_fields::whole")]
    #[schemars(range(min = 0, max = 100))]
    pub alert_percent: Option<u64>,
}

impl ReconcileTerms {
    /// The terms with a change. An error is a sentence without its full stop.
    pub fn with(self, change: ReconcileChange) -> Result<Self, String> {
        let terms = Self {
            every_secs: change.every_secs.unwrap_or(self.every_secs),
            since_secs: change.since_secs.unwrap_or(self.since_secs),
            alert_percent: change.alert_percent.unwrap_or(self.alert_percent),
        };
        let is_every = terms.every_secs == 0
            || (MIN_EVERY_SECS..=MAX_RECONCILE_SECS).contains(&terms.every_secs);
        if !is_every {
            return Err(format!(
                "reconcile.every_secs must be 0 (never), or {MIN_EVERY_SECS} to {MAX_RECONCILE_SECS}"
            ));
        }
        if !(MIN_SINCE_SECS..=MAX_RECONCILE_SECS).contains(&terms.since_secs) {
            return Err(format!(
                "reconcile.since_secs must be {MIN_SINCE_SECS} to {MAX_RECONCILE_SECS}"
            ));
        }
        if terms.since_secs < terms.every_secs {
            return Err("reconcile.since_secs must be at least every_secs: what lies between two periods would never be compared"
                .to_owned());
        }
        if terms.alert_percent > 100 {
            return Err("reconcile.alert_percent must be 0 to 100".to_owned());
        }
        Ok(terms)
    }

    /// Whether so many missing items of a day are to be told.
    pub const fn is_alarming(self, missing: u64, sent: u64) -> bool {
        missing.saturating_mul(100) > sent.saturating_mul(self.alert_percent)
    }
}

/// Why a text cannot be a public URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicUrlError {
    /// A provider cannot post to it.
    #[error("`{0}` is not a URL like https://edge.example/in/square")]
    NotHttp(String),
    /// It has a fragment, which is never sent.
    #[error("a public URL has no `#`: the part after it is never sent")]
    Fragment,
    /// It is too long.
    #[error("a public URL has at most {MAX_URL_BYTES} bytes, this one has {0}")]
    Long(usize),
}

/// A URL with scheme, host and path, as configured at the provider: byte for byte, because some signatures cover it.
///
/// ```
/// use oncebox::model::provider::PublicUrl;
/// let url = PublicUrl::parse("https://edge.example/in/twilio").unwrap();
/// assert_eq!(url.with_query(Some("a=1")), "https://edge.example/in/twilio?a=1");
/// let fixed = PublicUrl::parse("https://edge.example/in/twilio?b=2").unwrap();
/// assert_eq!(fixed.with_query(Some("a=1")), "https://edge.example/in/twilio?b=2");
/// assert!(PublicUrl::parse("edge.example").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Reads it. Nothing in it is changed: a signature covers its bytes.
    /// Fails with [`PublicUrlError`], which says what is wrong.
    pub fn parse(text: &str) -> Result<Self, PublicUrlError> {
        if text.len() > MAX_URL_BYTES {
            return Err(PublicUrlError::Long(text.len()));
        }
        if text.contains('#') {
            return Err(PublicUrlError::Fragment);
        }
        let begins = text.starts_with("https://") || text.starts_with("http://");
        let fits = begins && text.bytes().all(|byte| byte.is_ascii_graphic());
        let has_host = |uri: &http::Uri| uri.host().is_some_and(|host| !host.is_empty());
        let uri = text.parse::<http::Uri>().ok().filter(|uri| fits && has_host(uri));
        if uri.is_none() {
            return Err(PublicUrlError::NotHttp(text.escape_debug().to_string()));
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was entered.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of a request with this query, which is added unless the URL has its own query.
    pub fn with_query(&self, query: Option<&str>) -> String {
        match query {
            Some(query) if !self.0.contains('?') => format!("{}?{query}", self.0),
            Some(_) | None => self.0.clone(),
        }
    }
}

/// Where the ordering key of a webhook is: the first text or number at a path of the body (or of a batch's item), or a
/// header field.
///
/// ```
/// use oncebox::model::provider::KeyPlace;
/// let read = |text| serde_json::from_str::<KeyPlace>(text);
/// assert!(read(r#"{"path": "$.data.object.id"}"#).is_ok());
/// assert!(read(r#"{"header": "X-Order-Id"}"#).is_ok());
/// assert!(read(r#"{"header": "X-Gitlab-Token"}"#).unwrap_err().to_string().contains("secret"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OrderingKeyPlace")]
// Stored as JSON in `providers.ordering_key`.
pub enum KeyPlace {
    /// The first text or number at this path of the body, or of the item of a batch.
    Path(Path),
    /// The header field of this name.
    Header(FieldName),
}

/// The name of a header field that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName(String);

impl FieldName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(name: &str) -> Result<Self, String> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !(1..=MAX_KEY_CHARS).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(format!("the header {name:?} is not a valid header field"));
        }
        let lower = name.to_ascii_lowercase();
        if SECRET_PARTS.iter().any(|part| lower.contains(part)) {
            return Err(format!(
                "the header {name} may carry a secret, and ordering keys are stored as they are"
            ));
        }
        Ok(Self(name.to_owned()))
    }
}

as_text!(FieldName, 0);
described!(FieldName, json_schema!({ "type": "string", "pattern": HEADER_NAME }));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_no_provider_can_post_to_is_refused() {
        for text in
            ["", "/in/x", "ftp://a/b", "https://", "https://a b/", "https://a/\u{e4}", "a.example"]
        {
            assert!(matches!(PublicUrl::parse(text), Err(PublicUrlError::NotHttp(_))), "{text}");
        }
        assert_eq!(PublicUrl::parse("https://a/#b"), Err(PublicUrlError::Fragment));
        let long = format!("https://a/{}", "b".repeat(2048));
        assert_eq!(PublicUrl::parse(&long), Err(PublicUrlError::Long(2058)));
    }
}

//! Handshakes: requests with which a provider tests an address, and the answers that it expects.

use percent_encoding::percent_decode_str;
use serde_json::json;

use super::check::{Incoming, needed};
use super::{Scheme, sns};
use crate::model::pointer::text_at;

/// The longest token of a handshake.
const MAX_TOKEN_BYTES: usize = 1024;

/// An answer to a handshake, with status 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The body's media type.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Handshake {
    fn text(body: String) -> Self {
        Self { content_type: "text/plain", body }
    }

    fn json(body: &serde_json::Value) -> Self {
        Self { content_type: "application/json", body: body.to_string() }
    }
}

impl Scheme {
    /// The answer to a handshake that is not signed. It stores nothing, and reveals nothing but what was sent.
    ///
    /// ```
    /// use oncebox::signatures::{Incoming, Scheme};
    /// use oncebox::base::headers::Headers;
    /// let incoming = Incoming {
    ///     method: "POST",
    ///     path: "/in/bc?validationToken=a%20b",
    ///     url: "https://edge.example/in/bc?validationToken=a%20b",
    ///     headers: &Headers::default(),
    ///     body: b"",
    /// };
    /// let answer = Scheme::Dynamics.greeting(&incoming).unwrap();
    /// assert_eq!((answer.content_type, &*answer.body), ("text/plain", "a b"));
    /// assert_eq!(Scheme::Standard.greeting(&incoming), None);
    /// ```
    pub fn greeting(&self, incoming: &Incoming<'_>) -> Option<Handshake> {
        match self {
            Self::Dynamics => {
                let (_, query) = incoming.path.split_once('?')?;
                let token =
                    query.split('&').find_map(|pair| pair.strip_prefix("validationToken="))?;
                let spaced = token.replace('+', " ");
                let token = percent_decode_str(&spaced).decode_utf8().ok()?;
                let fits = (1..=MAX_TOKEN_BYTES).contains(&token.len());
                (fits && !token.chars().any(char::is_control))
                    .then(|| Handshake::text(token.into_owned()))
            }
            // When a webhook is saved, WooCommerce posts its number without a signature.
            Self::HmacHeader(scheme) if scheme.facts.kind == "woocommerce" => {
                let unsigned = needed(incoming.headers, scheme.header).is_err();
                let number = incoming.body.strip_prefix(b"webhook_id=")?;
                let ping =
                    (1..=20).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
                (unsigned && ping).then(|| Handshake::json(&json!({ "status": "ok" })))
            }
            _ => None,
        }
    }

    /// The answer to a handshake in a verified request.
    pub fn challenge(&self, incoming: &Incoming<'_>) -> Option<Handshake> {
        if self.kind() != "slack" || !incoming.body.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        let field = |name| text_at(incoming.body, &[name]);
        let asked = field("type").is_some_and(|name| name == "url_verification");
        let challenge = field("challenge").filter(|text| asked && text.len() <= MAX_TOKEN_BYTES)?;
        Some(Handshake::json(&json!({ "challenge": challenge })))
    }

    /// The URL to call for a verified request that confirms a subscription, if the settings allow it.
    pub fn confirmation(&self, incoming: &Incoming<'_>) -> Option<String> {
        match self {
            Self::Sns(sns) => sns::confirmation(sns, incoming),
            _ => None,
        }
    }

    /// The text to answer instead of JSON when everything is stored.
    pub const fn accepted(&self) -> Option<&'static str> {
        match self {
            Self::Adyen(adyen) if adyen.accepted => Some("[accepted]"),
            _ => None,
        }
    }

    /// How to tell the provider not to send again a request that will never be accepted.
    pub fn give_up(&self) -> GiveUp {
        match self {
            Self::Mailgun => GiveUp::NotAcceptable,
            _ if self.kind() == "slack" => GiveUp::SlackNoRetry,
            _ => GiveUp::Unprocessable,
        }
    }
}

/// The answer that tells a provider not to send a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// 422.
    Unprocessable,
    /// 406, after which Mailgun stops.
    NotAcceptable,
    /// 422 with `X-Slack-No-Retry: 1`.
    SlackNoRetry,
}

//! Handshakes: requests with which a provider tests an address, and the answers that it expects.
//!
//! Each handshake is a row of facts. A scheme names its rows in [`Facts`](super::naming::Facts); the settings of
//! `generic` name them by their words. Not here: the answer to a stored webhook ([`super::answering`]).

use serde_json::json;

use super::check::{Incoming, is_header_name};
use super::conduct::{Condition, HandshakeName, Place};
use super::naming::json_view;
use super::signing::{Encoding, Hash, mac};
use super::{Scheme, sns};
use crate::base::headers::Headers;

/// The longest token of a handshake, in bytes.
const MAX_TOKEN_BYTES: usize = 1024;
/// The longest number that a provider sends to test an address, in digits.
const MAX_NUMBER_DIGITS: usize = 20;

/// An answer to a handshake, with status 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The body's media type.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// The form of an answer to a handshake.
#[derive(Clone, Copy, Debug)]
enum AnswerForm {
    /// The token as text.
    Text,
    /// The token as a member of this name.
    Member(&'static str),
    /// The token, and its HMAC-SHA256 in hex with the secret that signed the request.
    WithHmac { token: &'static str, hmac: &'static str },
    /// `{"status":"ok"}`, if the token is a number.
    OkForNumber,
}

/// A handshake as data.
#[derive(Debug)]
struct HandshakeFacts {
    name: HandshakeName,
    method: &'static str,
    /// Whether it is answered only after the signature was verified. Otherwise it is answered only without one.
    is_signed: bool,
    when: Option<Condition>,
    token: Place,
    answer: AnswerForm,
}

/// All handshakes; a new one is a row.
static HANDSHAKES: [HandshakeFacts; 8] = [
    HandshakeFacts {
        name: HandshakeName::ValidationToken,
        method: "POST",
        is_signed: false,
        when: None,
        token: Place::Query("validationToken"),
        answer: AnswerForm::Text,
    },
    HandshakeFacts {
        name: HandshakeName::HubChallenge,
        method: "GET",
        is_signed: false,
        when: Some(Condition { place: Place::Query("hub.mode"), text: "subscribe" }),
        token: Place::Query("hub.challenge"),
        answer: AnswerForm::Text,
    },
    HandshakeFacts {
        name: HandshakeName::Challenge,
        method: "GET",
        is_signed: false,
        when: None,
        token: Place::Query("challenge"),
        answer: AnswerForm::Text,
    },
    HandshakeFacts {
        name: HandshakeName::Okta,
        method: "GET",
        is_signed: false,
        when: None,
        token: Place::Header("x-okta-verification-challenge"),
        answer: AnswerForm::Member("verification"),
    },
    HandshakeFacts {
        name: HandshakeName::UrlVerification,
        method: "POST",
        is_signed: true,
        when: Some(Condition { place: Place::Body(&["type"]), text: "url_verification" }),
        token: Place::Body(&["challenge"]),
        answer: AnswerForm::Member("challenge"),
    },
    HandshakeFacts {
        name: HandshakeName::UrlValidation,
        method: "POST",
        is_signed: true,
        when: Some(Condition { place: Place::Body(&["event"]), text: "endpoint.url_validation" }),
        token: Place::Body(&["payload", "plainToken"]),
        answer: AnswerForm::WithHmac { token: "plainToken", hmac: "encryptedToken" },
    },
    HandshakeFacts {
        name: HandshakeName::EventGrid,
        method: "POST",
        is_signed: true,
        when: Some(Condition {
            place: Place::Body(&["0", "eventType"]),
            text: "Microsoft.EventGrid.SubscriptionValidationEvent",
        }),
        token: Place::Body(&["0", "data", "validationCode"]),
        answer: AnswerForm::Member("validationResponse"),
    },
    HandshakeFacts {
        name: HandshakeName::WebhookNumber,
        method: "POST",
        is_signed: false,
        when: None,
        token: Place::BodyAfter("webhook_id="),
        answer: AnswerForm::OkForNumber,
    },
];

impl HandshakeFacts {
    /// The answer, if the request is this handshake. `secret` has signed it, if it is signed.
    fn answer(&self, incoming: &Incoming<'_>, view: &[u8], secret: &[u8]) -> Option<Handshake> {
        let is_meant = self.method == incoming.method
            && self.when.is_none_or(|condition| condition.holds(incoming, view));
        if !is_meant {
            return None;
        }
        let token = self.token.text(incoming, view)?;
        let fits = (1..=MAX_TOKEN_BYTES).contains(&token.len());
        if !fits || token.chars().any(char::is_control) {
            return None;
        }
        let json = |body: serde_json::Value| {
            Some(Handshake { content_type: "application/json", body: body.to_string() })
        };
        match self.answer {
            AnswerForm::Text => Some(Handshake { content_type: "text/plain", body: token }),
            AnswerForm::Member(name) => json(json!({ name: token })),
            AnswerForm::WithHmac { token: plain, hmac } => {
                let made = mac(Hash::Sha256, secret, &[token.as_bytes()]);
                json(json!({ plain: token, hmac: Encoding::Hex.encode(&made) }))
            }
            AnswerForm::OkForNumber => {
                let is_number = token.len() <= MAX_NUMBER_DIGITS
                    && token.bytes().all(|byte| byte.is_ascii_digit());
                is_number.then(|| json(json!({ "status": "ok" }))).flatten()
            }
        }
    }
}

impl Scheme {
    /// The handshakes that its provider makes.
    fn handshakes(&self) -> impl Iterator<Item = &'static HandshakeFacts> {
        let set = match self {
            Self::Generic(generic) => generic.settings().handshakes.clone(),
            _ => None,
        };
        let usual = || self.alike().flat_map(|facts| facts.handshakes).copied().collect();
        let named: Vec<HandshakeName> = set.unwrap_or_else(usual);
        HANDSHAKES.iter().filter(move |facts| named.contains(&facts.name))
    }

    /// The answer to a handshake that is not signed. It stores nothing, and reveals nothing but what was sent.
    ///
    /// ```
    /// use oncebox::signatures::{Incoming, Scheme};
    /// use oncebox::base::headers::Headers;
    /// let incoming = Incoming {
    ///     method: "POST",
    ///     path: "/in/bc?validationtoken=a%20b",
    ///     url: "https://edge.example/in/bc?validationtoken=a%20b",
    ///     headers: &Headers::default(),
    ///     body: b"",
    /// };
    /// let answer = Scheme::Dynamics.greeting(&incoming).unwrap();
    /// assert_eq!((answer.content_type, &*answer.body), ("text/plain", "a b"));
    /// assert_eq!(Scheme::Standard.greeting(&incoming), None);
    /// ```
    pub fn greeting(&self, incoming: &Incoming<'_>) -> Option<Handshake> {
        let mut unsigned = self.handshakes().filter(|facts| !facts.is_signed).peekable();
        unsigned.peek()?;
        if self.has_signature(incoming) {
            return None;
        }
        // None of these rows looks into the body's JSON, so an unsigned body is not read.
        unsigned.find_map(|facts| facts.answer(incoming, b"", b""))
    }

    /// Whether its provider makes a handshake with `GET`.
    pub fn greets_by_get(&self) -> bool {
        self.handshakes().any(|facts| facts.method == "GET")
    }

    /// The answer to a handshake in a verified request; `secret` is the one that signed it.
    pub fn challenge(&self, incoming: &Incoming<'_>, secret: &[u8]) -> Option<Handshake> {
        let mut signed = self.handshakes().filter(|facts| facts.is_signed).peekable();
        signed.peek()?;
        let view = json_view(incoming);
        signed.find_map(|facts| facts.answer(incoming, &view, secret))
    }

    /// Whether a request carries the header field that its scheme is checked by.
    fn has_signature(&self, incoming: &Incoming<'_>) -> bool {
        match self {
            Self::HmacHeader(scheme) => incoming.headers.get(scheme.header).is_some(),
            Self::Generic(generic) => generic.has_signature(incoming.headers),
            _ => false,
        }
    }

    /// The URL to call for a verified request that confirms a subscription, if the settings allow it.
    pub fn confirmation(&self, incoming: &Incoming<'_>) -> Option<String> {
        match self {
            Self::Sns(sns) => sns::confirmation(sns, incoming),
            _ => None,
        }
    }
}

/// The value of `WebHook-Allowed-Origin` for a request of `OPTIONS` that asks for it; `None` if it asks for nothing.
/// Source: `CloudEvents`, HTTP 1.1 Web Hooks for Event Delivery, section 4.
///
/// Any origin is allowed: each webhook is verified by its signature.
///
/// ```
/// use oncebox::base::headers::Headers;
/// use oncebox::signatures::handshake::allowed_origin;
/// let mut headers = Headers::default();
/// assert_eq!(allowed_origin(&headers), None);
/// headers.push("WebHook-Request-Origin", b"eventgrid.azure.net");
/// assert_eq!(allowed_origin(&headers).as_deref(), Some("eventgrid.azure.net"));
/// ```
pub fn allowed_origin(headers: &Headers) -> Option<String> {
    let origin = headers.get("webhook-request-origin")?.trim();
    let is_host = |text: &str| is_header_name(text) || text.split(':').all(is_header_name);
    (origin.len() <= MAX_TOKEN_BYTES && is_host(origin)).then(|| origin.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERIC: &str =
        r#"{"kind":"generic","check":{"hmac":{"signed":"{body}","header":"X-Sig"}}"#;

    fn generic(handshakes: &str) -> Scheme {
        serde_json::from_str(&format!("{GENERIC},\"handshakes\":{handshakes}}}")).unwrap()
    }

    fn asked(method: &'static str, path: &'static str, body: &'static [u8]) -> [&'static [u8]; 3] {
        [method.as_bytes(), path.as_bytes(), body]
    }

    /// The answer to a request without a signature, and to one that is verified.
    fn answers(
        scheme: &Scheme,
        request: [&[u8]; 3],
        fields: &[(&str, &str)],
    ) -> [Option<String>; 2] {
        let [method, path, body] = request;
        let mut headers = Headers::default();
        for (name, value) in fields {
            headers.push(name, value.as_bytes());
        }
        let incoming = Incoming {
            method: std::str::from_utf8(method).unwrap(),
            path: std::str::from_utf8(path).unwrap(),
            url: "",
            headers: &headers,
            body,
        };
        let body = |answer: Handshake| answer.body;
        [scheme.greeting(&incoming).map(body), scheme.challenge(&incoming, b"key").map(body)]
    }

    #[test]
    fn each_handshake_is_answered_as_its_provider_expects() {
        let zoom = br#"{"event":"endpoint.url_validation","payload":{"plainToken":"abc"}}"#;
        let grid = br#"[{"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"v-1"}}]"#;
        let slack = br#"{"type":"url_verification","challenge":"c-1"}"#;
        let hmac = Encoding::Hex.encode(&mac(Hash::Sha256, b"key", &[b"abc"]));
        let zoomed = format!(r#"{{"plainToken":"abc","encryptedToken":"{hmac}"}}"#);
        let okta = [("X-Okta-Verification-Challenge", "o-1")];
        for (name, request, fields, is_signed, wanted) in [
            (
                "validation_token",
                asked("POST", "/x?VALIDATIONTOKEN=a+b", b""),
                &[][..],
                false,
                "a b",
            ),
            (
                "hub_challenge",
                asked("GET", "/x?hub.mode=subscribe&hub.challenge=11&hub.verify_token=t", b""),
                &[],
                false,
                "11",
            ),
            ("challenge", asked("GET", "/x?challenge=abc", b""), &[], false, "abc"),
            ("okta", asked("GET", "/x", b""), &okta, false, r#"{"verification":"o-1"}"#),
            ("url_verification", asked("POST", "/x", slack), &[], true, r#"{"challenge":"c-1"}"#),
            ("url_validation", asked("POST", "/x", zoom), &[], true, zoomed.as_str()),
            ("event_grid", asked("POST", "/x", grid), &[], true, r#"{"validationResponse":"v-1"}"#),
            (
                "webhook_number",
                asked("POST", "/x", b"webhook_id=17"),
                &[],
                false,
                r#"{"status":"ok"}"#,
            ),
        ] {
            let wanted = Some(wanted.to_owned());
            let both = if is_signed { [None, wanted] } else { [wanted, None] };
            let scheme = generic(&format!("[\"{name}\"]"));
            assert_eq!(answers(&scheme, request, fields), both, "{name}");
            assert_eq!(answers(&generic("[]"), request, fields), [None, None], "{name}");
        }
    }

    #[test]
    fn a_request_that_is_no_handshake_gets_no_answer() {
        let all: Vec<&str> = HandshakeName::ALL.iter().map(|name| name.as_str()).collect();
        let scheme = generic(&serde_json::to_string(&all).unwrap());
        let long = format!("/x?challenge={}", "a".repeat(MAX_TOKEN_BYTES + 1));
        for request in [
            asked("POST", "/x?challenge=a", b"{}"),
            asked("GET", "/x?hub.mode=unsubscribe&hub.challenge=1", b""),
            asked("GET", "/x?challenge=", b""),
            asked("GET", "/x?challenge=a%0Ab", b""),
            [b"GET", long.as_bytes(), b""],
            asked("POST", "/x", b"webhook_id=17&x=1"),
            asked("POST", "/x", br#"{"event":"meeting.started","payload":{"plainToken":"abc"}}"#),
            asked("POST", "/x", br#"{"type":"url_verification","challenge":7e400000}x"#),
        ] {
            assert_eq!(answers(&scheme, request, &[]), [None, None], "{request:?}");
        }
        let signed = [("X-Sig", "00")];
        let number = asked("POST", "/x", b"webhook_id=17");
        assert_eq!(answers(&scheme, number, &signed), [None, None]);
    }

    #[test]
    fn every_name_has_one_row() {
        for name in HandshakeName::ALL {
            assert_eq!(HANDSHAKES.iter().filter(|facts| facts.name == name).count(), 1);
        }
    }
}

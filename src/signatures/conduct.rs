//! What a provider does beside signing, as data: the handshakes that it makes, and what it reads of an answer.
//!
//! Not here: the rows of each provider ([`super::naming::Facts`]), and carrying them out ([`super::handshake`],
//! [`super::answering`]).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::check::Incoming;
use crate::base::words::words;
use crate::model::form_body::Body;
use crate::model::pointer::text_at;

words! {
    /// A handshake that the settings of the scheme `generic` may name.
    pub enum HandshakeName {
        /// A `validationToken` in the query is sent back: Dynamics 365, `SharePoint`, Microsoft Graph.
        ValidationToken = "validation_token",
        /// `GET` with `hub.challenge`: Meta, Strava, `WebSub`.
        HubChallenge = "hub_challenge",
        /// `GET` with `challenge`: Dropbox, Nylas.
        Challenge = "challenge",
        /// `GET` with a header field of Okta.
        Okta = "okta",
        /// A signed `url_verification` with a challenge: Slack.
        UrlVerification = "url_verification",
        /// A signed `endpoint.url_validation`, answered with an HMAC of its token: Zoom.
        UrlValidation = "url_validation",
        /// A signed `SubscriptionValidationEvent`: Azure Event Grid.
        EventGrid = "event_grid",
        /// An unsigned `webhook_id=N`: WooCommerce.
        WebhookNumber = "webhook_number",
    }
}

/// A place in a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// A parameter of the query; its name is compared without case.
    Query(&'static str),
    /// A header field.
    Header(&'static str),
    /// A path in the JSON view of the body.
    Body(&'static [&'static str]),
    /// The whole body, after this text.
    BodyAfter(&'static str),
}

/// A place and the text that must be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) place: Place,
    pub(super) text: &'static str,
}

impl Place {
    /// The text at this place; `view` is the JSON view of the body.
    pub(super) fn text(self, incoming: &Incoming<'_>, view: &[u8]) -> Option<String> {
        match self {
            Self::Query(name) => query_value(incoming.path, name),
            Self::Header(name) => incoming.headers.get(name).map(str::to_owned),
            Self::Body(path) => text_at(view, path),
            Self::BodyAfter(before) => {
                let rest = incoming.body.strip_prefix(before.as_bytes())?;
                std::str::from_utf8(rest).ok().map(str::to_owned)
            }
        }
    }
}

impl Condition {
    /// Whether the text is at its place.
    pub(super) fn holds(&self, incoming: &Incoming<'_>, view: &[u8]) -> bool {
        self.place.text(incoming, view).as_deref() == Some(self.text)
    }
}

/// A parameter of a query, decoded; names are compared without case.
fn query_value(path: &str, wanted: &str) -> Option<String> {
    let (_, query) = path.split_once('?')?;
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned)
    };
    query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        decode(name)?.eq_ignore_ascii_case(wanted).then(|| decode(value)).flatten()
    })
}

/// Which requests get an answer of their own.
#[derive(Debug)]
enum Asked {
    /// All.
    Always,
    /// Those with a text at a place.
    With(Condition),
    /// Those whose body is a form.
    Form,
}

/// An answer as data.
#[derive(Debug)]
pub(super) struct AnswerFacts {
    asked: Asked,
    /// The media type; empty if there is no body.
    pub(super) content_type: &'static str,
    pub(super) body: &'static str,
}

impl AnswerFacts {
    /// An empty body, for each request.
    pub(super) const EMPTY: Self = Self { asked: Asked::Always, content_type: "", body: "" };
    /// An empty body, for forms.
    pub(super) const EMPTY_FOR_FORMS: Self = Self { asked: Asked::Form, ..Self::EMPTY };

    /// A body for forms.
    pub(super) const fn for_forms(content_type: &'static str, body: &'static str) -> Self {
        Self { asked: Asked::Form, content_type, body }
    }

    /// A JSON body for requests with a text at a place.
    pub(super) const fn json_with(condition: Condition, body: &'static str) -> Self {
        Self { asked: Asked::With(condition), content_type: "application/json", body }
    }

    /// Whether the request gets this answer; `view` is the JSON view of its body.
    pub(super) fn is_for(&self, incoming: &Incoming<'_>, view: &[u8]) -> bool {
        match &self.asked {
            Asked::Always => true,
            Asked::With(condition) => condition.holds(incoming, view),
            Asked::Form => {
                let content_type = incoming.headers.get("content-type").unwrap_or_default();
                Body { content_type, bytes: incoming.body }.is_form()
            }
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

//! Schemas of a provider's signature scheme. `signatures` reads and writes it; these types only describe it.

#![expect(dead_code, reason = "the types describe what the model reads")]

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::api::schema::{Character, HeaderName, Text, values};
use crate::base::schema::Whole;
use crate::signatures::conduct::HandshakeName;
use crate::signatures::provider::MAX_REPLAY_WINDOW;
use crate::signatures::{Scheme, kinds};

/// The longest time within which equal bytes may be a repetition.
const MAX_REPEATS_SECS: u64 = MAX_REPLAY_WINDOW.as_secs();

/// How the provider signs. docs/providers.md says what each scheme needs.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Scheme")]
pub(super) enum SchemeForm {
    Plain(PlainScheme),
    Adyen(AdyenScheme),
    Paypal(PaypalScheme),
    Sns(SnsScheme),
    Chargebee(ChargebeeScheme),
    Generic(Box<GenericScheme>),
}

values! {
    /// The kind of one scheme.
    AdyenKind = { "type": "string", "enum": ["adyen"] }
    /// The kind of one scheme.
    PaypalKind = { "type": "string", "enum": ["paypal"] }
    /// The kind of one scheme.
    SnsKind = { "type": "string", "enum": ["sns"] }
    /// The kind of one scheme.
    ChargebeeKind = { "type": "string", "enum": ["chargebee"] }
    /// The kind of one scheme.
    GenericKind = { "type": "string", "enum": ["generic"] }
    /// Hashes of an HMAC.
    Hash = { "type": "string", "enum": ["sha256", "sha1", "sha512"] }
    /// How a signature is written.
    Encoding = { "type": "string", "enum": ["hex", "base64", "base64url"] }
    /// How a secret is written.
    SecretEncoding = { "type": "string", "enum": ["utf8", "base64", "hex"] }
    /// The unit of a timestamp.
    TimeUnit = { "type": "string", "enum": ["s", "ms"] }
}

/// Which requests are repetitions of an earlier one: `never` makes an event of each request, `within_secs` compares the
/// bytes with those of the last so many seconds.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Repeats")]
pub(super) enum RepeatsForm {
    ById,
    Never,
    WithinSecs(Whole<1, MAX_REPEATS_SECS>),
}

/// An answer that a provider reads.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WebhookAnswer")]
pub(super) struct AnswerForm {
    /// 200 by default.
    status: Option<Whole<200, 299>>,
    /// The media type; it goes with a body.
    content_type: Option<Text<1, 255>>,
    /// Empty by default.
    body: Option<Text<0, 4096>>,
}

/// The name of a header field, or a list of names; one that ends with `-` and a number stands for all numbers.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "SignatureHeaders")]
pub(super) enum SignatureHeaders {
    One(HeaderName),
    Several(Vec<HeaderName>),
}

/// Schemes without settings of their own.
pub(super) struct PlainKind;

impl JsonSchema for PlainKind {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PlainKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let plain = |kind: &&str| *kind != "adyen" && Scheme::of(kind).is_some();
        let kinds: Vec<&str> = kinds().filter(plain).collect();
        json_schema!({ "type": "string", "enum": kinds })
    }
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlainScheme {
    kind: PlainKind,
    /// Which requests are repetitions of an earlier one; default: those with a known id or, without an id, with equal
    /// bytes.
    repeats: Option<RepeatsForm>,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdyenScheme {
    kind: AdyenKind,
    /// Answer with the text `[accepted]`, which older accounts expect.
    #[serde(default)]
    accepted: bool,
    /// Which requests are repetitions of an earlier one; default: those with a known id or, without an id, with equal
    /// bytes.
    repeats: Option<RepeatsForm>,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PaypalScheme {
    kind: PaypalKind,
    /// The webhook's id in PayPal's console.
    webhook_id: Text<8, 64>,
    /// The provider's certificates in PEM, for boxes that may not fetch them.
    certificates: Option<String>,
    /// Which requests are repetitions of an earlier one; default: those with a known id or, without an id, with equal
    /// bytes.
    repeats: Option<RepeatsForm>,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SnsScheme {
    kind: SnsKind,
    /// The ARNs of the topics that are accepted.
    topics: Vec<Text<8, 512>>,
    /// Whether a subscription to these topics is confirmed automatically.
    #[serde(default)]
    confirm: bool,
    /// The provider's certificates in PEM, for boxes that may not fetch them.
    certificates: Option<String>,
    /// Which requests are repetitions of an earlier one; default: those with a known id or, without an id, with equal
    /// bytes.
    repeats: Option<RepeatsForm>,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChargebeeScheme {
    kind: ChargebeeKind,
    /// The user name; the secret is the password.
    user: Text<1, 255>,
    /// Which requests are repetitions of an earlier one; default: those with a known id or, without an id, with equal
    /// bytes.
    repeats: Option<RepeatsForm>,
}

/// A scheme made of settings: an HMAC or ed25519 over a template, a shared token, or basic authentication.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GenericScheme {
    kind: GenericKind,
    /// How the provider authenticates.
    check: Check,
    /// Where the provider's event id is; if absent, the id is a hash of the body.
    #[serde(default)]
    event_id: IdPlace,
    /// Where the body has a list of events; each is stored on its own. Empty: the body itself is the list.
    items: Option<Text<0, 512>>,
    /// Where the event's type is; `unknown` if absent.
    event_type: Option<TypePlace>,
    /// The answer when a webhook is stored; default: Oncebox's JSON, or what a known provider with this header reads.
    answer: Option<AnswerForm>,
    /// The handshakes that are answered; default: those of a known provider with this header.
    handshakes: Option<Vec<HandshakeName>>,
    /// Which requests are repetitions of an earlier one; default: those with a known id or, without an id, with equal
    /// bytes.
    repeats: Option<RepeatsForm>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "GenericCheck")]
pub(super) enum Check {
    Hmac(Hmac),
    Ed25519(Signed),
    Token(SharedToken),
    Basic(BasicUser),
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Hmac {
    hash: Option<Hash>,
    #[serde(flatten)]
    signed: Signed,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Signed {
    /// The template of what is signed, like `{ts}.{body}`.
    #[serde(rename = "signed")]
    template: String,
    /// The header fields that may carry the signature.
    header: SignatureHeaders,
    /// The text before each signature, like `sha256=`.
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    secret_encoding: SecretEncoding,
    /// The character between several signatures.
    separator: Option<Character>,
    /// The timestamp that is signed.
    timestamp: Option<SignedTime>,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignedTime {
    header: HeaderName,
    /// The unit of this Unix time.
    #[serde(default)]
    unit: TimeUnit,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SharedToken {
    header: HeaderName,
    #[serde(default)]
    prefix: String,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BasicUser {
    /// The user name; the secret is the password.
    user: String,
}

#[derive(Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum IdPlace {
    #[default]
    BodyHash,
    Header(HeaderName),
    Pointer(String),
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum TypePlace {
    Header(HeaderName),
    Pointer(String),
    Constant(String),
}

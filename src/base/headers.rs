//! Header fields of a request, and those that Oncebox writes itself.

/// The header field that carries `custom_data`, in answers and in requests.
pub const CUSTOM_DATA: &str = "oncebox-custom-data";
/// The header field with the URL that confirms a delivery.
pub const CONFIRM_URL: &str = "oncebox-confirm-url";

/// The header field with the name of the box that sends.
pub const BOX: &str = "oncebox-box";

/// The header field with the type of the event. Values of these three fields are percent-encoded (`docs/formats.md`).
pub const EVENT_TYPE: &str = "oncebox-event-type";
/// The header field with the type of the thing that the event is about.
pub const AGGREGATE_TYPE: &str = "oncebox-aggregate-type";
/// The header field with the id of that thing.
pub const AGGREGATE_ID: &str = "oncebox-aggregate-id";
/// The header field with Oncebox's own answer to a webhook, if the provider reads another one.
pub const RECEIPT: &str = "oncebox-receipt";

/// How the value of a header field is shown; `None`: as it is.
type Mask = Option<fn(&str) -> String>;

/// Header fields that Oncebox writes into deliveries. Nobody else may set them.
pub const OWN_FIELDS: [(&str, Mask); 13] = [
    ("content-type", None),
    ("webhook-id", None),
    ("webhook-timestamp", None),
    // A request with a valid signature could be sent by whoever sees it.
    ("webhook-signature", Some(|_| "v1,***".to_owned())),
    ("x-idempotency-key", None),
    ("traceparent", None),
    ("tracestate", None),
    (CONFIRM_URL, Some(|url| format!("{}/***", url.rsplit_once('/').map_or("", |(base, _)| base)))),
    (CUSTOM_DATA, None),
    (BOX, None),
    (EVENT_TYPE, None),
    (AGGREGATE_TYPE, None),
    (AGGREGATE_ID, None),
];

/// The entry of [`OWN_FIELDS`] of that name, which is compared without case.
pub fn own_field(name: &str) -> Option<Mask> {
    OWN_FIELDS.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, mask)| mask)
}

/// Header fields that frame a request.
const OF_FRAMING: &str =
    "host content-length transfer-encoding connection keep-alive te trailer upgrade expect";

/// Header fields that carry secrets. Settings stand in the file in the clear, so these are refused there.
/// Each with the kind of credential to set instead.
const SECRET: [(&str, &str); 9] = [
    ("authorization", "bearer, basic or oauth2, or api_key for another scheme"),
    ("proxy-authorization", "api_key"),
    ("cookie", "api_key"),
    ("x-api-key", "api_key"),
    ("api-key", "api_key"),
    ("apikey", "api_key"),
    ("x-auth-token", "api_key"),
    ("x-access-token", "api_key"),
    ("x-functions-key", "api_key"),
];

/// The longest name of a field that is set.
const MAX_NAME_BYTES: usize = 255;
/// The longest name and value together.
const MAX_FIELD_BYTES: usize = 4096;

/// Whether a field frames a request: the client writes it.
pub fn is_of_framing(name: &str) -> bool {
    OF_FRAMING.split(' ').any(|framing| name.eq_ignore_ascii_case(framing))
}

/// The kinds of credential to set in place of a field that carries a secret.
pub fn credential_of(name: &str) -> Option<&'static str> {
    let found = SECRET.iter().find(|(secret, _)| name.eq_ignore_ascii_case(secret));
    found.map(|(_, kinds)| *kinds)
}

/// Whether a text is the name of a field. Source: RFC 9110, section 5.6.2.
pub fn is_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(token)
}

/// Whether a name and a value can be sent as a field.
pub fn is_field(name: &str, value: &str) -> bool {
    let fits = value.bytes().all(|b| (b' '..=b'~').contains(&b));
    is_name(name) && fits && name.len().saturating_add(value.len()) <= MAX_FIELD_BYTES
}

/// Header fields in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// Appends a field; its name is stored in lower case.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.0.push((name.to_ascii_lowercase(), value.to_vec()));
    }

    /// The first field of that name, if its value is UTF-8. `name` is compared without case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let field = self.0.iter().find(|(have, _)| have.eq_ignore_ascii_case(name));
        field.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Every field of that name whose value is UTF-8, in order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(have, _)| have.eq_ignore_ascii_case(name))
            .filter_map(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Bytes of memory that the fields take.
    pub fn held(&self) -> usize {
        let strings =
            self.0.iter().map(|(name, value)| name.capacity().saturating_add(value.capacity()));
        let table = self.0.capacity().saturating_mul(size_of::<(String, Vec<u8>)>());
        strings.fold(table, usize::saturating_add)
    }

    /// All fields: lower-case name, raw value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }
}

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

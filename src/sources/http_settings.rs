//! The settings of a source of kind `http`, and the terms that follow from them and their preset.
//!
//! Not here: the presets ([`super::http_presets`]), and reading an answer ([`super::http_list`]).

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::headers;
use crate::model::event_field::EventField;
use crate::model::name::Name;
use crate::model::pointer::{Pointer, PointerError};
use crate::model::target_url::TargetUrl;
use crate::sources::cell::TextsByField;
use crate::sources::http_presets::{
    ItemDetails, ListPreset, PresetItem, PresetNext, PresetTerms, SinceForm,
};

/// The longest URL, in bytes.
pub(super) const MAX_URL_BYTES: usize = 2_048;
/// The longest name of a parameter.
const MAX_PARAMETER_CHARS: usize = 128;
/// The longest text around a time.
const MAX_TEXT_CHARS: usize = 500;
/// What stands for the time in that text.
pub(super) const TIME: &str = "{time}";
/// Paths of an item's id at most.
const MAX_IDS: usize = 8;
/// Header fields at most.
const MAX_HEADERS: usize = 20;
/// The shortest interval, in milliseconds.
const MIN_INTERVAL_MS: u64 = 1_000;
/// The longest interval: a day.
const MAX_INTERVAL_MS: u64 = 24 * 60 * 60 * 1_000;
/// The longest overlap: 30 days.
const MAX_OVERLAP_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

/// How only the items since a time are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinceParameter {
    /// The parameter of the query; of a list with a `body` its path there; with `in_header` the name of a header field.
    #[schemars(length(min = 1, max = MAX_PARAMETER_CHARS))]
    pub parameter: String,
    /// The form of the time.
    pub form: SinceForm,
    /// Whether it is a header field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_header: bool,
    /// The value of the parameter, with `{time}` where the time stands; if absent, it is the time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_TEXT_CHARS))]
    pub text: Option<String>,
}

/// How the next page is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum NextPage {
    /// The header field `Link` with `rel="next"` (RFC 8288).
    Link {},
    /// The `href` of the object with `"rel": "next"` in a list of the answer.
    Links {
        /// The path of the list in the answer.
        path: Pointer,
    },
    /// A text in the answer that is the URL of the next page, like `OData`'s `@odata.nextLink`; absent, null or empty: no further page.
    Url {
        /// Its path in the answer.
        path: Pointer,
    },
    /// A text in the answer that is sent with the next request; absent, null or empty: no further page.
    Cursor {
        /// Its path in the answer.
        path: Pointer,
        /// The parameter of the query; of a list with a `body` its path there.
        #[schemars(length(min = 1, max = MAX_PARAMETER_CHARS))]
        parameter: String,
    },
    /// A text of the last item that is sent with the next request, while a member of the answer is `true`.
    LastItem {
        /// Its path in the item.
        path: Pointer,
        /// The parameter of the query; of a list with a `body` its path there.
        #[schemars(length(min = 1, max = MAX_PARAMETER_CHARS))]
        parameter: String,
        /// The path of the member in the answer.
        more: Pointer,
    },
    /// The number of the page, from 1; an empty page is the last one.
    Page {
        /// The parameter of the query; of a list with a `body` its path there.
        #[schemars(length(min = 1, max = MAX_PARAMETER_CHARS))]
        parameter: String,
    },
    /// The number of items before the page; an empty page is the last one.
    Offset {
        /// The parameter of the query; of a list with a `body` its path there.
        #[schemars(length(min = 1, max = MAX_PARAMETER_CHARS))]
        parameter: String,
    },
}

/// Which list is read, and how. Terms that are absent are those of the preset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "", extend("x-of" = { "kind": ["http"] }))]
pub struct HttpSettings {
    /// Whose list it is; `json` (if absent) has no terms of its own.
    #[serde(default)]
    pub preset: ListPreset,
    /// The provider whose webhooks are the items. Without it, items are events of this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Name>,
    /// The first page of the list, with the parameters that each page needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_URL_BYTES))]
    pub url: Option<String>,
    /// The path of the list in an answer; without it, and without a preset's, the answer itself is the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Pointer>,
    /// The paths in an item that make up its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_IDS))]
    pub item_id: Vec<Pointer>,
    /// The path of an item's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Pointer>,
    /// How the next page is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextPage>,
    /// How only items since a time are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer_than: Option<SinceParameter>,
    /// Header fields that each request has, beside the credential.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The JSON object that is posted to ask for a page. Then parameters are paths in it, like `/offset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Map<String, Value>>,
    /// After how many items the list ends though it has more, as a search may do. Its items must have the oldest first: a round
    /// ends there, and the next one begins at its newest item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub items_max: Option<u32>,
    /// The pause between two rounds, in milliseconds.
    #[serde(default = "interval_ms")]
    #[schemars(range(min = MIN_INTERVAL_MS, max = MAX_INTERVAL_MS))]
    pub interval_ms: u64,
    /// Items so much older than the newest one that was read are asked for again, because a list may show them late.
    #[serde(default = "overlap_ms")]
    #[schemars(range(min = 0, max = MAX_OVERLAP_MS))]
    pub overlap_ms: u64,
    /// Whether nothing is read before a credential was set; if absent, as the preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_credential: Option<bool>,
    /// Paths in an item of the fields of its event, without a provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: TextsByField,
    /// Values of fields that an item does not have, without a provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: TextsByField,
}

const fn interval_ms() -> u64 {
    60_000
}

const fn overlap_ms() -> u64 {
    10 * 60_000
}

/// The terms of a list, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListTerms {
    /// The first page.
    pub url: TargetUrl,
    /// The path of the list in an answer; `None`: the answer itself.
    pub items: Option<Pointer>,
    /// The paths of an item's id.
    pub id: Vec<Pointer>,
    /// The path of an item's time.
    pub time: Option<Pointer>,
    /// How the next page is found; `None`: there is one page.
    pub next: Option<NextPage>,
    /// How only items since a time are asked for.
    pub since: Option<SinceParameter>,
    /// Header fields that each request has beside the credential.
    pub headers: Vec<(String, String)>,
    /// What is posted; `None`: the list is asked for with `GET`.
    pub body: Option<Value>,
    /// After how many items the list ends though it has more; `None`: it does not.
    pub items_max: Option<u32>,
    /// How an item's payload is asked for; `None`: it is the item.
    pub(super) details: Option<&'static ItemDetails>,
    /// The type of an event that has none by its fields and defaults.
    pub event_type: Option<&'static str>,
    /// Whether nothing is read before a credential was set.
    pub needs_credential: bool,
    /// The flags of `source credential` with which such a list is read, without the secret.
    pub credential: &'static str,
    /// Paths of the fields of an item's event.
    pub fields: Vec<(EventField, Pointer)>,
}

impl HttpSettings {
    /// The pause between two rounds.
    pub const fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// The span that is read again.
    pub const fn overlap(&self) -> Duration {
        Duration::from_millis(self.overlap_ms)
    }

    /// The complete terms. An error says which term is missing or wrong, without its full stop.
    pub fn terms(&self) -> Result<ListTerms, String> {
        let preset = self.preset.terms();
        let url = self.url.as_deref().or(preset.url).ok_or_else(|| {
            format!("url is missing: give the address of the list, like {}", preset.example)
        })?;
        let url = TargetUrl::parse(url).map_err(|error| format!("url cannot be used: {error}"))?;
        if url.has_placeholders() {
            return Err("url cannot have placeholders: a list is read for no event".to_owned());
        }
        let id = if self.item_id.is_empty() { pointers(preset.id)? } else { self.item_id.clone() };
        if self.provider.is_none() && id.is_empty() {
            return Err("item_id is missing: give the path of each item's id, like /id".to_owned());
        }
        let next = match &self.next {
            Some(next) => Some(next.clone()),
            None => next_of(preset.next)?,
        };
        let since = self.newer_than.clone().or_else(|| {
            preset.since.map(|since| SinceParameter {
                parameter: since.parameter.to_owned(),
                form: since.form,
                in_header: since.in_header,
                text: since.text.map(str::to_owned),
            })
        });
        let time = given_or(self.time.as_ref(), preset.time)?;
        if since.is_some() && time.is_none() {
            return Err("newer_than needs time: give the path of each item's time".to_owned());
        }
        if since
            .as_ref()
            .and_then(|since| since.text.as_deref())
            .is_some_and(|text| !text.contains(TIME))
        {
            return Err(format!("the text of newer_than must have {TIME} where the time stands"));
        }
        let fields = self.fields.iter().map(|(field, path)| Ok((*field, pointer(path)?)));
        Ok(ListTerms {
            url,
            items: given_or(self.items.as_ref(), preset.items)?,
            id,
            time,
            next,
            since,
            headers: self.all_headers(preset),
            body: self.posted(preset)?,
            items_max: self.items_max.or(preset.items_max),
            details: preset.details,
            event_type: self.event_type(),
            credential: preset.credential,
            needs_credential: self.needs_credential.unwrap_or(preset.needs_credential),
            fields: fields.collect::<Result<_, String>>()?,
        })
    }

    /// The preset's header fields, then those of the settings, which replace fields of the same name.
    fn all_headers(&self, preset: &PresetTerms) -> Vec<(String, String)> {
        let is_replaced =
            |name: &str| self.headers.keys().any(|own| own.eq_ignore_ascii_case(name));
        let of_preset = preset.headers.iter().filter(|(name, _)| !is_replaced(name));
        let of_preset = of_preset.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        of_preset.chain(self.headers.clone()).collect()
    }

    /// The JSON that is posted.
    fn posted(&self, preset: &PresetTerms) -> Result<Option<Value>, String> {
        if let Some(body) = &self.body {
            return Ok(Some(Value::Object(body.clone())));
        }
        let of_preset = preset.body.map(serde_json::from_str).transpose();
        of_preset.map_err(|error| error.to_string())
    }

    /// The type of events that have none by their fields and defaults.
    const fn event_type(&self) -> Option<&'static str> {
        match self.preset.terms().item {
            PresetItem::Event { event_type } => event_type,
            PresetItem::Either | PresetItem::Webhook => None,
        }
    }

    /// Refuses settings with which no item could become a webhook or an event.
    fn check_item(&self) -> Result<(), String> {
        let preset = self.preset;
        match (preset.terms().item, &self.provider) {
            (PresetItem::Webhook, None) => Err(format!(
                "provider is missing: the preset {preset} needs the provider whose webhooks are the items"
            )),
            (PresetItem::Event { .. }, Some(_)) => Err(format!(
                "provider does not go with the preset {preset}: its items are no webhooks, but events of this source"
            )),
            (PresetItem::Event { event_type: None }, None)
                if !self.fields.contains_key(&EventField::EventType)
                    && !self.defaults.contains_key(&EventField::EventType) =>
            {
                Err("event_type is missing: give it as a default, like invoice.changed".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_headers(&self) -> Result<(), String> {
        if self.headers.len() > MAX_HEADERS {
            return Err(format!("headers can have {MAX_HEADERS} fields"));
        }
        for (name, value) in &self.headers {
            if headers::is_of_framing(name) || !headers::is_field(name, value) {
                return Err(format!("headers: {name:?} is no header field that can be set"));
            }
            if let Some(kinds) = headers::credential_of(name) {
                return Err(format!(
                    "headers: {name} carries a secret, and settings are not sealed; set a credential of the kind {kinds}"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.check_item()?;
        if self.provider.is_some() && !(self.fields.is_empty() && self.defaults.is_empty()) {
            return Err(
                "fields and defaults do not go with a provider: its webhooks say what an event has"
                    .to_owned(),
            );
        }
        if !(MIN_INTERVAL_MS..=MAX_INTERVAL_MS).contains(&self.interval_ms) {
            return Err(format!("interval_ms must be {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}"));
        }
        if self.overlap_ms > MAX_OVERLAP_MS {
            return Err(format!("overlap_ms must be 0 to {MAX_OVERLAP_MS}"));
        }
        if self.items_max == Some(0) {
            return Err("items_max must be 1 or more".to_owned());
        }
        if self.item_id.len() > MAX_IDS {
            return Err(format!("item_id can have {MAX_IDS} paths"));
        }
        self.check_headers()?;
        let terms = self.terms()?;
        terms.check_places()?;
        if terms.items_max.is_some() && terms.since.is_none() {
            return Err("items_max needs newer_than: the items behind the end of the list are asked for by their time".to_owned());
        }
        let parameters = [
            terms.next.as_ref().and_then(NextPage::parameter),
            terms.since.as_ref().map(|since| since.parameter.as_str()),
        ];
        let is_wrong = |name: &&str| name.is_empty() || name.chars().count() > MAX_PARAMETER_CHARS;
        match parameters.iter().flatten().find(|name| is_wrong(name)) {
            Some(_) => Err(format!("a parameter must have 1 to {MAX_PARAMETER_CHARS} characters")),
            None => Ok(()),
        }
    }
}

impl ListTerms {
    /// Refuses parameters that have no place in the body, or are no header field.
    fn check_places(&self) -> Result<(), String> {
        let in_header = self.since.as_ref().filter(|since| since.in_header);
        if let Some(since) = in_header.filter(|since| !headers::is_name(&since.parameter)) {
            return Err(format!("newer_than: {:?} is no header field", since.parameter));
        }
        let Some(body) = &self.body else { return Ok(()) };
        let since = self.since.as_ref().filter(|since| !since.in_header);
        let since = since.map(|since| since.parameter.as_str());
        let next = self.next.as_ref().and_then(NextPage::parameter);
        for path in since.into_iter().chain(next) {
            if !put(&mut body.clone(), path, Value::Null) {
                return Err(format!(
                    "the body has no place {path}: a parameter is a path in it, like /offset"
                ));
            }
        }
        Ok(())
    }
}

/// Puts a value at a path of a body: a member of an object, or an element that a list has. `false`: there is no such place.
pub(super) fn put(body: &mut Value, path: &str, value: Value) -> bool {
    let Some((parent, last)) = path.rsplit_once('/') else { return false };
    let place = match body.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.insert(last.replace("~1", "/").replace("~0", "~"), value);
            return true;
        }
        Some(Value::Array(elements)) => {
            last.parse().ok().and_then(|at: usize| elements.get_mut(at))
        }
        _ => None,
    };
    place.map(|place| *place = value).is_some()
}

impl NextPage {
    /// The parameter that says which page is asked for.
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Self::Link {} | Self::Links { .. } | Self::Url { .. } => None,
            Self::Cursor { parameter, .. }
            | Self::LastItem { parameter, .. }
            | Self::Page { parameter }
            | Self::Offset { parameter } => Some(parameter),
        }
    }
}

fn pointer(text: &str) -> Result<Pointer, String> {
    Pointer::parse(text).map_err(|error: PointerError| error.to_string())
}

fn pointers(texts: &[&str]) -> Result<Vec<Pointer>, String> {
    texts.iter().map(|text| pointer(text)).collect()
}

fn given_or(given: Option<&Pointer>, preset: Option<&str>) -> Result<Option<Pointer>, String> {
    match given {
        Some(given) => Ok(Some(given.clone())),
        None => preset.map(pointer).transpose(),
    }
}

fn next_of(preset: PresetNext) -> Result<Option<NextPage>, String> {
    Ok(Some(match preset {
        PresetNext::None => return Ok(None),
        PresetNext::Link => NextPage::Link {},
        PresetNext::Links { path } => NextPage::Links { path: pointer(path)? },
        PresetNext::Url { path } => NextPage::Url { path: pointer(path)? },
        PresetNext::Cursor { path, parameter } => {
            NextPage::Cursor { path: pointer(path)?, parameter: parameter.to_owned() }
        }
        PresetNext::LastItem { path, parameter, more } => NextPage::LastItem {
            path: pointer(path)?,
            parameter: parameter.to_owned(),
            more: pointer(more)?,
        },
        PresetNext::Page { parameter } => NextPage::Page { parameter: parameter.to_owned() },
        PresetNext::Offset { parameter } => NextPage::Offset { parameter: parameter.to_owned() },
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(settings: Value) -> Result<HttpSettings, String> {
        let read: HttpSettings =
            serde_json::from_value(settings).map_err(|error| error.to_string())?;
        read.check().map(|()| read)
    }

    #[test]
    fn a_preset_needs_no_terms() {
        let list = read(json!({ "preset": "stripe", "provider": "stripe" })).unwrap();
        let terms = list.terms().unwrap();
        assert_eq!(terms.url.as_str(), "https://api.stripe.com/v1/events?limit=100");
        assert_eq!(terms.items, Some(Pointer::parse("/data").unwrap()));
        assert!(terms.needs_credential && terms.since.is_some());
        assert!(matches!(terms.next, Some(NextPage::LastItem { .. })));
    }

    #[test]
    fn terms_of_a_source_replace_those_of_its_preset() {
        let url = "http://127.0.0.1:12111/v1/events";
        let list = read(json!({
            "preset": "stripe", "provider": "stripe", "url": url, "needs_credential": false,
            "next": { "by": "page", "parameter": "page" },
        }));
        let terms = list.unwrap().terms().unwrap();
        assert_eq!((terms.url.as_str(), terms.needs_credential), (url, false));
        assert_eq!(terms.next, Some(NextPage::Page { parameter: "page".to_owned() }));
    }

    #[test]
    fn terms_that_are_missing_or_wrong_are_refused_with_the_reason() {
        let url = "https://erp.example/orders";
        for (settings, why) in [
            (json!({}), "url is missing"),
            (json!({ "url": url }), "item_id is missing"),
            (
                json!({ "url": url, "item_id": ["/id"], "items_max": 10_000 }),
                "items_max needs newer_than",
            ),
            (json!({ "url": "ftp://x", "item_id": ["/id"] }), "url cannot be used"),
            (json!({ "url": "https://x.example/{id}", "item_id": ["/id"] }), "placeholders"),
            (json!({ "url": url, "item_id": ["id"] }), "not a JSON Pointer"),
            (
                json!({ "url": url, "item_id": ["/id"], "fields": { "event_type": "type" } }),
                "not a JSON Pointer",
            ),
            (
                json!({ "url": url, "item_id": ["/id"], "newer_than": { "parameter": "s", "form": "rfc3339" } }),
                "newer_than needs time",
            ),
            (json!({ "url": url, "item_id": ["/id"], "interval_ms": 1 }), "interval_ms must be"),
            (
                json!({ "url": url, "item_id": ["/id"], "next": { "by": "page", "parameter": "" } }),
                "a parameter must have",
            ),
            (
                json!({ "url": url, "item_id": ["/id"], "next": { "by": "guess" } }),
                "unknown variant",
            ),
            (json!({ "preset": "stripe" }), "provider is missing"),
            (
                json!({ "preset": "woocommerce", "url": "https://x.example/", "provider": "a" }),
                "does not go with the preset woocommerce",
            ),
            (json!({ "preset": "erpnext", "url": "https://x.example/" }), "event_type is missing"),
            (json!({ "preset": "erpnext" }), "event_type is missing"),
            (
                json!({ "preset": "json", "url": "https://x.example/", "item_id": ["/id"], "time": "/at",
                    "newer_than": { "parameter": "q", "form": "rfc3339", "text": "since" } }),
                "must have {time}",
            ),
            (json!({ "preset": "strip", "provider": "a" }), "strip"),
            (
                json!({ "preset": "stripe", "provider": "a", "defaults": { "event_type": "x" } }),
                "do not go with a provider",
            ),
        ] {
            let error = read(settings).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_terms_of_every_preset_can_be_read() {
        for preset in ListPreset::ALL {
            let mut list = json!({ "preset": preset, "url": "https://x.example/" });
            match preset.terms().item {
                PresetItem::Webhook | PresetItem::Either => list["provider"] = "any".into(),
                PresetItem::Event { .. } => {
                    list["defaults"] = json!({ "event_type": "any" });
                }
            }
            read(list).unwrap().terms().unwrap();
        }
    }
}

//! One answered page of a list: its items and the page after it. Pure.
//!
//! Not here: sending the request ([`super::http_client`]), and how far a round has come ([`super::http_round`]).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::base::clock::Timestamp;
use crate::model::json_fields::Few;
use crate::model::pointer::{Pointer, list_at, raw_at, text_at};
use crate::model::target_url::TargetUrl;
use crate::sources::draft::read_time;
use crate::sources::http_presets::SinceForm;
use crate::sources::http_settings::{self as settings, ListTerms, NextPage, SinceParameter, TIME};

/// Items of a page at most: they are stored in one transaction.
pub(super) const MAX_ITEMS: usize = 10_000;
/// Links of an answer that are looked at.
const MAX_LINKS: usize = 20;
/// Letters that are sent as they are. Source: RFC 3986, section 2.3.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Which page of a list is read. The first one has no mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageMark {
    /// The page at this URL.
    Url(String),
    /// The page that this value of the parameter names.
    After(String),
    /// The page with this number.
    Page(u64),
    /// The page after so many items.
    Offset(u64),
}

/// A page as it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredPage<'a> {
    /// Its body.
    pub(super) body: &'a [u8],
    /// Its header field `Link`.
    pub(super) link: Option<&'a str>,
    /// Whether the server says that nothing is newer than the time that was asked for.
    pub(super) is_unchanged: bool,
    /// Its mark.
    pub(super) mark: Option<&'a PageMark>,
}

/// An item of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListItem<'a> {
    /// Its text, as it is written; or its payload, once that was asked for.
    pub(super) raw: Cow<'a, str>,
    /// Header fields that the provider's webhook would have.
    pub(super) headers: Vec<(&'static str, String)>,
    /// Why its payload cannot be had.
    pub(super) trouble: Option<String>,
    /// Its id; `None` if a path leads to nothing.
    pub(super) id: Option<String>,
    /// Its time, if it has a readable one.
    pub(super) time: Option<Timestamp>,
}

impl ListItem<'_> {
    /// The text that tells it from others: its id, or else itself.
    pub(super) fn key(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.raw)
    }
}

/// The items of a page in the order in which they happened, as webhooks would have come. Many lists show the newest first.
pub(super) fn oldest_first<'i, 'a>(items: &'i [ListItem<'a>]) -> Vec<&'i ListItem<'a>> {
    let mut ordered: Vec<&ListItem<'a>> = items.iter().collect();
    if is_newest_first(items) {
        // Of items with the same time the later ones happened before.
        ordered.reverse();
    }
    ordered.sort_by_key(|item| item.time);
    ordered
}

/// As [`oldest_first`], in place.
pub(super) fn sort_oldest_first(items: &mut [ListItem<'_>]) {
    if is_newest_first(items) {
        items.reverse();
    }
    items.sort_by_key(|item| item.time);
}

fn is_newest_first(items: &[ListItem<'_>]) -> bool {
    let first = items.first().and_then(|item| item.time);
    let last = items.last().and_then(|item| item.time);
    first > last
}

/// The items of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListPage<'a> {
    pub(super) items: Vec<ListItem<'a>>,
    /// The next page; `None` after the last.
    pub(super) next: Option<PageMark>,
}

impl SinceParameter {
    /// Its value for a time.
    fn value(&self, at: Timestamp) -> String {
        let time = match self.form {
            SinceForm::UnixSeconds => at.secs().to_string(),
            SinceForm::UnixMs => at.ms().to_string(),
            SinceForm::Rfc3339 => at.to_string(),
            SinceForm::Rfc3339Seconds => whole_seconds(at),
            SinceForm::DateTime => whole_seconds(at).replace('T', " ").replace('Z', ""),
            SinceForm::IsoDateTime => whole_seconds(at).replace('Z', ""),
        };
        match &self.text {
            Some(text) => text.replace(TIME, &time),
            None => time,
        }
    }
}

/// What is sent to ask for a page, but for the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListRequest {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    /// JSON that is posted; `None`: `GET`.
    pub(super) body: Option<String>,
}

impl ListRequest {
    fn put(&mut self, body: &mut Option<Value>, parameter: &str, value: Value) {
        match (body, value) {
            (Some(body), value) => {
                settings::put(body, parameter, value);
            }
            (None, Value::String(text)) => append(&mut self.url, parameter, &text),
            (None, value) => append(&mut self.url, parameter, &value.to_string()),
        }
    }
}

impl ListTerms {
    /// The request for a page. `since` is in the URL that a `Link` names already.
    pub(super) fn request(&self, mark: Option<&PageMark>, since: Option<Timestamp>) -> ListRequest {
        let mut body = self.body.clone();
        let url = match mark {
            Some(PageMark::Url(url)) => url.as_str(),
            _ => self.url.as_str(),
        };
        let mut request =
            ListRequest { url: url.to_owned(), headers: self.headers.clone(), body: None };
        if let (Some(since), Some(at)) = (&self.since, since) {
            let value = since.value(at);
            if since.in_header {
                request.headers.push((since.parameter.clone(), value));
            } else if !matches!(mark, Some(PageMark::Url(_))) {
                request.put(&mut body, &since.parameter, value.into());
            }
        }
        let value = match mark {
            None | Some(PageMark::Url(_)) => None,
            Some(PageMark::After(text)) => Some(Value::from(text.as_str())),
            Some(PageMark::Page(number) | PageMark::Offset(number)) => Some(Value::from(*number)),
        };
        let parameter = self.next.as_ref().and_then(NextPage::parameter);
        if let (Some(parameter), Some(value)) = (parameter, value) {
            request.put(&mut body, parameter, value);
        }
        request.body = body.map(|body| body.to_string());
        request
    }

    /// The request for the payload of an item; `None` if the item is its own payload, or does not say where it is.
    pub(super) fn request_of(&self, item: &ListItem<'_>) -> Option<ListRequest> {
        let segment = pointer(self.details?.segment)?.text_in(item.raw.as_bytes())?;
        let list = self.url.as_str();
        let mut url = list.split_once('?').map_or(list, |(url, _)| url).to_owned();
        url.push('/');
        url.extend(utf8_percent_encode(&segment, &ENCODED));
        Some(ListRequest { url, headers: self.headers.clone(), body: None })
    }

    /// The payload of an item in the answer to its request.
    pub(super) fn payload_in<'a>(&self, answer: &'a [u8]) -> Option<&'a str> {
        raw_at(answer, pointer(self.details?.payload)?.steps())
    }

    /// The items of an answered page and its next page. An error says what of the answer is not as the terms say,
    /// without its full stop.
    pub(super) fn read<'a>(&self, answer: AnsweredPage<'a>) -> Result<ListPage<'a>, String> {
        if answer.is_unchanged {
            return Ok(ListPage { items: Vec::new(), next: None });
        }
        let found = list_at::<_, MAX_ITEMS>(answer.body, steps(self.items.as_ref()));
        let Few { kept, count } = found.ok_or_else(|| self.no_list(answer.body))?;
        if count > MAX_ITEMS {
            return Err(format!(
                "a page has {count} items; at most {MAX_ITEMS} are read at once: ask for smaller pages in the url"
            ));
        }
        let items: Vec<ListItem<'_>> = kept.into_iter().map(|raw| self.item(raw.get())).collect();
        self.check_paths(&items)?;
        let next = self.next_page(answer, &items)?;
        Ok(ListPage { items, next })
    }

    fn item<'a>(&self, raw: &'a str) -> ListItem<'a> {
        let parts = self.id.iter().map(|path| path.text_in(raw.as_bytes()));
        let parts: Option<Vec<String>> = parts.collect();
        let has_text = |parts: &Vec<String>| parts.iter().any(|part| !part.trim().is_empty());
        let time = self.time.as_ref().and_then(|path| path.text_in(raw.as_bytes()));
        let fields = self.details.map_or(&[][..], |details| details.headers);
        let headers = fields
            .iter()
            .filter_map(|(name, path)| Some((*name, pointer(path)?.text_in(raw.as_bytes())?)));
        ListItem {
            raw: Cow::Borrowed(raw),
            headers: headers.collect(),
            trouble: None,
            id: parts.filter(has_text).map(|parts| parts.join(":")),
            time: time.and_then(|text| read_time(&text)).filter(|at| at.is_likely()),
        }
    }

    fn no_list(&self, body: &[u8]) -> String {
        let beginning: String = String::from_utf8_lossy(body).chars().take(80).collect();
        if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err() {
            return format!("the answer is not JSON: it begins with {beginning:?}");
        }
        match &self.items {
            Some(path) => format!(
                "the answer has no list at {path}: correct items; it begins with {beginning:?}"
            ),
            None => format!(
                "the answer is no list: set items to the path of the list in it; it begins with {beginning:?}"
            ),
        }
    }

    /// Refuses a page no item of which has an id, or a time: then the terms are wrong, and not an item.
    fn check_paths(&self, items: &[ListItem<'_>]) -> Result<(), String> {
        let shown = |paths: &[Pointer]| {
            paths.iter().map(Pointer::to_string).collect::<Vec<_>>().join(" and ")
        };
        if items.is_empty() {
            return Ok(());
        }
        if !self.id.is_empty() && items.iter().all(|item| item.id.is_none()) {
            return Err(format!(
                "no item of a page has an id at {}: correct item_id",
                shown(&self.id)
            ));
        }
        match &self.time {
            Some(path) if items.iter().all(|item| item.time.is_none()) => Err(format!(
                "no item of a page has a time from 1973 to 2199 at {path}: correct time"
            )),
            _ => Ok(()),
        }
    }

    fn next_page(
        &self,
        answer: AnsweredPage<'_>,
        items: &[ListItem<'_>],
    ) -> Result<Option<PageMark>, String> {
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        let text_of = |path: &Pointer| path.text_in(answer.body).filter(|text| !text.is_empty());
        match &self.next {
            None => Ok(None),
            Some(NextPage::Link {}) => {
                answer.link.and_then(next_link).map(|link| self.linked(link)).transpose()
            }
            Some(NextPage::Links { path }) => {
                let link = next_of_links(answer.body, path);
                link.map(|link| self.linked(&link)).transpose()
            }
            Some(NextPage::Url { path }) => {
                text_of(path).map(|link| self.linked(&link)).transpose()
            }
            Some(NextPage::Cursor { path, .. }) => Ok(text_of(path).map(PageMark::After)),
            Some(NextPage::LastItem { path, more, .. }) => {
                if raw_at(answer.body, more.steps()) != Some("true") {
                    return Ok(None);
                }
                let last = items.last().and_then(|item| path.text_in(item.raw.as_bytes()));
                let why = || format!("the last item of a page has no text at {path}: correct next");
                last.map(PageMark::After).ok_or_else(why).map(Some)
            }
            Some(NextPage::Page { .. } | NextPage::Offset { .. }) if items.is_empty() => Ok(None),
            Some(NextPage::Page { .. }) => Ok(Some(match answer.mark {
                Some(PageMark::Page(number)) => PageMark::Page(number.saturating_add(1)),
                _ => PageMark::Page(2),
            })),
            Some(NextPage::Offset { .. }) => Ok(Some(match answer.mark {
                Some(PageMark::Offset(before)) => PageMark::Offset(before.saturating_add(count)),
                _ => PageMark::Offset(count),
            })),
        }
    }

    /// The page that a link names. A link to another host, port or scheme is refused: the credential would go there.
    fn linked(&self, link: &str) -> Result<PageMark, String> {
        let read = if link.starts_with('/') && !link.starts_with("//") {
            self.url.at(link)
        } else {
            TargetUrl::parse(link)
        };
        let shown: String = link.chars().take(200).collect();
        let url = read.map_err(|error| {
            format!("the link to the next page {shown:?} cannot be used: {error}")
        })?;
        let is_same =
            url.authority() == self.url.authority() && url.is_https() == self.url.is_https();
        if !is_same || url.has_placeholders() {
            return Err(format!(
                "the link to the next page {shown:?} leads to another server than {}, and the credential is not sent there",
                self.url.authority()
            ));
        }
        Ok(PageMark::Url(url.as_str().to_owned()))
    }
}

/// A path of a preset.
fn pointer(path: &str) -> Option<Pointer> {
    Pointer::parse(path).ok()
}

fn steps(path: Option<&Pointer>) -> &[String] {
    path.map_or(&[], Pointer::steps)
}

fn append(url: &mut String, name: &str, value: &str) {
    url.push(if url.contains('?') { '&' } else { '?' });
    url.extend(utf8_percent_encode(name, &ENCODED));
    url.push('=');
    url.extend(utf8_percent_encode(value, &ENCODED));
}

/// `2026-01-31T12:00:00Z`: some servers know no fractions.
fn whole_seconds(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or_else(|| text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// The `href` of the object with `"rel": "next"` in a list of an answer.
fn next_of_links(body: &[u8], path: &Pointer) -> Option<String> {
    let links = list_at::<_, MAX_LINKS>(body, path.steps())?.kept;
    let member = |link: &RawValue, name: &str| text_at(link.get().as_bytes(), &[name]);
    let next = links.into_iter().find(|link| member(link, "rel").as_deref() == Some("next"))?;
    member(next, "href")
}

/// The target of the link with `rel="next"`. Source: RFC 8288, section 3.
fn next_link(field: &str) -> Option<&str> {
    let mut rest = field;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        let parameters = after.split('<').next().unwrap_or(after);
        let is_next = parameters.split([';', ',']).any(|parameter| {
            let Some((name, value)) = parameter.split_once('=') else { return false };
            let value = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel")
                && value.split(' ').any(|relation| relation.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Some(target.trim());
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sources::http_settings::HttpSettings;

    fn terms(more: &Value) -> ListTerms {
        let mut settings = json!({ "url": "https://erp.example/orders?limit=2", "item_id": ["/id"], "time": "/at" });
        for (name, value) in more.as_object().unwrap() {
            settings[name] = value.clone();
        }
        serde_json::from_value::<HttpSettings>(settings).unwrap().terms().unwrap()
    }

    fn answered(body: &Value) -> String {
        body.to_string()
    }

    fn page<'a>(
        body: &'a str,
        link: Option<&'a str>,
        mark: Option<&'a PageMark>,
    ) -> AnsweredPage<'a> {
        AnsweredPage { body: body.as_bytes(), link, is_unchanged: false, mark }
    }

    #[test]
    fn items_stand_in_the_order_in_which_they_happened() {
        let item = |id: &str, secs: Option<i64>| ListItem {
            id: Some(id.to_owned()),
            time: secs.map(Timestamp::from_secs),
            ..ListItem::default()
        };
        let ordered = |items: &[ListItem<'_>]| -> Vec<String> {
            oldest_first(items).iter().map(|item| item.key().to_owned()).collect()
        };
        let newest_first =
            [item("d", Some(3)), item("c", Some(2)), item("b", Some(2)), item("a", Some(1))];
        assert_eq!(ordered(&newest_first), ["a", "b", "c", "d"]);
        let oldest_first =
            [item("a", Some(1)), item("b", Some(2)), item("c", Some(2)), item("d", Some(3))];
        assert_eq!(ordered(&oldest_first), ["a", "b", "c", "d"]);
        let mixed = [item("b", Some(2)), item("a", Some(1)), item("c", Some(3))];
        assert_eq!(ordered(&mixed), ["a", "b", "c"]);
        let timeless = [item("x", None), item("a", None), item("m", None)];
        assert_eq!(ordered(&timeless), ["x", "a", "m"], "as they are listed");
    }

    #[test]
    fn items_keep_their_bytes() {
        let body =
            r#"[{"id": 1,"at":1700000000,"total":99.00}, {"id":"b","at":"2026-01-31T12:00:00Z"}]"#;
        let read = terms(&json!({})).read(page(body, None, None)).unwrap();
        assert_eq!(read.items[0].raw, r#"{"id": 1,"at":1700000000,"total":99.00}"#);
        assert_eq!(read.items[0].id.as_deref(), Some("1"));
        assert_eq!(read.items[0].time, Some(Timestamp::from_secs(1_700_000_000)));
        assert_eq!(read.items[1].time, Timestamp::parse("2026-01-31T12:00:00Z"));
        assert_eq!(read.next, None);
    }

    #[test]
    fn an_id_of_several_paths_changes_with_each() {
        let terms = terms(&json!({ "item_id": ["/id", "/at"] }));
        let body = r#"[{"id":7,"at":1700000000},{"at":1700000000}]"#;
        let read = terms.read(page(body, None, None)).unwrap();
        assert_eq!(read.items[0].id.as_deref(), Some("7:1700000000"));
        assert_eq!(read.items[1].id, None);
    }

    #[test]
    fn the_url_has_what_the_page_needs() {
        let terms = terms(&json!({
            "next": { "by": "last_item", "path": "/id", "parameter": "starting_after", "more": "/more" },
            "newer_than": { "parameter": "created[gte]", "form": "unix_seconds" },
        }));
        let since = Some(Timestamp::from_secs(1_700_000_000));
        let url = "https://erp.example/orders?limit=2";
        assert_eq!(terms.request(None, None).url, url);
        assert_eq!(
            terms.request(Some(&PageMark::After("a b".to_owned())), since).url,
            format!("{url}&created%5Bgte%5D=1700000000&starting_after=a%20b")
        );
        let linked = PageMark::Url("https://erp.example/orders?page=2".to_owned());
        assert_eq!(terms.request(Some(&linked), since).url, "https://erp.example/orders?page=2");
    }

    #[test]
    fn each_way_to_the_next_page_is_followed() {
        let items = json!([{ "id": "a", "at": 1_700_000_000 }, { "id": "b", "at": 1_700_000_001 }]);
        let of = |next: Value, items_path: Option<&str>| {
            let mut more = json!({ "next": next });
            if let Some(path) = items_path {
                more["items"] = path.into();
            }
            terms(&more)
        };
        let plain = answered(&items);
        let pages = of(json!({ "by": "page", "parameter": "page" }), None);
        assert_eq!(pages.read(page(&plain, None, None)).unwrap().next, Some(PageMark::Page(2)));
        let third = PageMark::Page(3);
        assert_eq!(
            pages.read(page(&plain, None, Some(&third))).unwrap().next,
            Some(PageMark::Page(4))
        );
        assert_eq!(pages.read(page("[]", None, Some(&third))).unwrap().next, None);
        let offsets = of(json!({ "by": "offset", "parameter": "skip" }), None);
        let at = PageMark::Offset(10);
        assert_eq!(
            offsets.read(page(&plain, None, Some(&at))).unwrap().next,
            Some(PageMark::Offset(12))
        );
        let cursors =
            of(json!({ "by": "cursor", "path": "/next", "parameter": "cursor" }), Some("/data"));
        let more = answered(&json!({ "data": items, "next": "x1" }));
        assert_eq!(
            cursors.read(page(&more, None, None)).unwrap().next,
            Some(PageMark::After("x1".to_owned()))
        );
        let last = answered(&json!({ "data": items, "next": null }));
        assert_eq!(cursors.read(page(&last, None, None)).unwrap().next, None);
        let by_item = json!({ "by": "last_item", "path": "/id", "parameter": "starting_after", "more": "/has_more" });
        let by_item = of(by_item, Some("/data"));
        let more = answered(&json!({ "data": items, "has_more": true }));
        assert_eq!(
            by_item.read(page(&more, None, None)).unwrap().next,
            Some(PageMark::After("b".to_owned()))
        );
        let last = answered(&json!({ "data": items, "has_more": false }));
        assert_eq!(by_item.read(page(&last, None, None)).unwrap().next, None);
    }

    #[test]
    fn a_link_is_followed_to_the_same_server_only() {
        let terms = terms(&json!({ "next": { "by": "link" } }));
        let next = |link: &str| terms.read(page("[]", Some(link), None)).map(|read| read.next);
        let mark = |url: &str| Ok(Some(PageMark::Url(url.to_owned())));
        let url = "https://erp.example/orders?page=2";
        let link = format!(
            r#"<https://erp.example/o?page=1,2>; rel="prev", <{url}>; title="x"; rel="next last""#
        );
        assert_eq!(next(&link), mark(url));
        assert_eq!(next("</orders?page=2>; rel=next"), mark(url));
        assert_eq!(next(r#"<https://erp.example/o>; rel="first""#), Ok(None));
        assert_eq!(next("<broken"), Ok(None));
        for other in [
            "https://evil.example/orders",
            "http://erp.example/orders",
            "https://erp.example:8443/orders",
            "//evil.example/orders",
            "orders?page=2",
        ] {
            let why = next(&format!("<{other}>; rel=\"next\"")).unwrap_err();
            assert!(why.contains("link to the next page"), "{why}");
        }
    }

    #[test]
    fn an_answer_that_is_not_as_the_terms_say_is_an_error() {
        let terms = terms(&json!({ "items": "/data" }));
        for (body, why) in [
            ("<html>", "is not JSON"),
            ("{\"data\":[{\"id\":1", "is not JSON"),
            ("{}", "no list at /data"),
            (r#"{"data":{}}"#, "no list at /data"),
            (r#"{"data":[{"at":1700000000}]}"#, "no item of a page has an id at /id"),
            (r#"{"data":[{"id":1}]}"#, "no item of a page has a time"),
        ] {
            let error = terms.read(page(body, None, None)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}

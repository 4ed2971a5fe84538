//! What a browser sends: a query or a form, as `application/x-www-form-urlencoded` or with files as
//! `multipart/form-data`, and the session's cookie.
//!
//! Each form is carried out once: a second click, or a browser that sends again, gets the first answer.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use memchr::memmem;
use parking_lot::Mutex;

use crate::base::budget::{Budget, Share};
use crate::base::clock::{Timestamp, span};
use crate::http::message::{Head, Request};

/// The name of the session's cookie.
const COOKIE: &str = "oncebox_session";

/// Forms that are remembered. The oldest is forgotten first.
const MAX_REMEMBERED: usize = 1000;

/// Most fields of a form: more than a list with a box in each row has.
const MAX_FIELDS: usize = 1024;
/// The longest name of a field, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Most bytes of names and values together, without payloads: as much as most routes of the API take.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// Most bytes of a payload that is typed as JSON.
const MAX_JSON_BYTES: usize = 1 << 20;
/// Most bytes of a payload that is taken as it is.
const MAX_FILE_BYTES: usize = 4 << 20;
/// How much memory a byte of text or JSON takes: it may become a value of its own, in several copies.
const TEXT_FACTOR: usize = 48;
/// How much memory a byte of a payload takes: its text, its base64, the request of the API, the page that shows it again.
const FILE_FACTOR: usize = 8;
/// The longest boundary between parts, in bytes (RFC 2046, 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;
/// Most bytes of the head of a part that are read.
const MAX_PART_HEAD_BYTES: usize = 1024;
/// The longest page to go back to, in bytes.
const MAX_PAGE_BYTES: usize = 2048;

/// The field of a form that may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LargeField {
    /// JSON that is typed.
    Json(String),
    /// A text or a file, taken as it is.
    Bytes(String),
}

impl LargeField {
    /// Most bytes of its value.
    const fn most(&self) -> usize {
        match self {
            Self::Json(_) => MAX_JSON_BYTES,
            Self::Bytes(_) => MAX_FILE_BYTES,
        }
    }

    const fn factor(&self) -> usize {
        match self {
            Self::Json(_) => TEXT_FACTOR,
            Self::Bytes(_) => FILE_FACTOR,
        }
    }

    fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Json(own) => name == own,
            Self::Bytes(own) => {
                name.strip_prefix(own.as_str()).is_some_and(|end| matches!(end, "" | ".file"))
            }
        }
    }

    /// Most bytes of a body with this field: a byte may be sent as three.
    pub(super) const fn most_of_body(large: Option<&Self>) -> usize {
        let text = MAX_TEXT_BYTES.saturating_mul(3);
        match large {
            None => text,
            // A file is sent as it is.
            Some(Self::Bytes(_)) => MAX_FILE_BYTES.saturating_add(text),
            Some(Self::Json(_)) => MAX_JSON_BYTES.saturating_mul(3).saturating_add(text),
        }
    }
}

/// Why a form is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormRefusal {
    /// It has too many fields, or too much in them.
    TooLarge,
    /// Requests take all of the memory budget.
    NoMemory,
    /// Its parts have a boundary that RFC 2046 does not allow.
    BadBoundary,
}

/// Names and values, in the order they were sent. Their number and size are limited, and the memory they may take is
/// charged to the budget while the form is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    pairs: Vec<(String, String)>,
    _share: Option<Arc<Share>>,
}

/// Names and values that are read one after another, within the limits.
struct Reading<'l> {
    pairs: Vec<(String, String)>,
    large: Option<&'l LargeField>,
    /// Bytes that are left for names and values.
    room: usize,
}

impl Reading<'_> {
    /// Adds a pair whose value has at most so many bytes.
    fn add(
        &mut self,
        name: Cow<'_, str>,
        bytes: usize,
        value: impl FnOnce() -> String,
    ) -> Result<(), FormRefusal> {
        let is_full = self.pairs.len() >= MAX_FIELDS || name.len() > MAX_NAME_BYTES;
        let large = self.large.filter(|large| large.is_named(&name));
        let (text, is_over) = match large {
            Some(large) => (name.len(), bytes > large.most()),
            None => (name.len().saturating_add(bytes), false),
        };
        let left = self.room.checked_sub(text).filter(|_| !is_full && !is_over);
        self.room = left.ok_or(FormRefusal::TooLarge)?;
        // There is one large field.
        self.large = self.large.filter(|_| large.is_none());
        self.pairs.push((name.into_owned(), value()));
        Ok(())
    }
}

impl Form {
    /// The query of a request, whose size the listener limits.
    /// Fails if it has too many parameters.
    pub(super) fn of_query(head: &Head) -> Result<Self, FormRefusal> {
        Self::parse(head.query.as_deref().unwrap_or_default().as_bytes())
    }

    /// The body of a request. Whether the person may send it was asked before.
    /// Fails if it is too large, or there is no memory for it now.
    pub(super) fn of_body(
        request: &Request,
        large: Option<&LargeField>,
        budget: &Budget,
    ) -> Result<Self, FormRefusal> {
        let text = request.body.len().min(MAX_TEXT_BYTES).saturating_mul(TEXT_FACTOR);
        let of_large = |large: &LargeField| {
            let rest = request.body.len().saturating_sub(MAX_TEXT_BYTES);
            rest.min(large.most()).saturating_mul(large.factor())
        };
        let bytes = text.saturating_add(large.map_or(0, of_large));
        let share = budget.try_take(bytes).ok_or(FormRefusal::NoMemory)?;
        let boundary = request.head.headers.get("content-type").and_then(|kind| {
            let boundary = kind.strip_prefix("multipart/form-data")?.split_once("boundary=")?.1;
            Some(boundary.trim_matches('"'))
        });
        let read = match boundary {
            Some(boundary) if !(1..=MAX_BOUNDARY_BYTES).contains(&boundary.len()) => {
                Err(FormRefusal::BadBoundary)
            }
            Some(boundary) => Self::of_parts(&request.body, boundary, large),
            None => Self::of_pairs(&request.body, large),
        };
        Ok(Self { pairs: read?, _share: Some(Arc::new(share)) })
    }

    /// The parts of a body between two boundaries each (RFC 7578). A file is kept in base64; one without content is left
    /// out, because that is how a browser sends a field without a file.
    fn of_parts(
        body: &[u8],
        boundary: &str,
        large: Option<&LargeField>,
    ) -> Result<Vec<(String, String)>, FormRefusal> {
        let mark = format!("--{boundary}");
        let mut reading = Reading { pairs: Vec::new(), large, room: MAX_TEXT_BYTES };
        let mut rest = body;
        let mut parts = 0_usize;
        while let Some((part, behind)) = split(rest, mark.as_bytes()) {
            rest = behind;
            parts = parts.saturating_add(1);
            if parts > MAX_FIELDS {
                return Err(FormRefusal::TooLarge);
            }
            let Some((head, content)) = split(part, b"\r\n\r\n") else { continue };
            let head = head.get(..MAX_PART_HEAD_BYTES).unwrap_or(head);
            let content = content.strip_suffix(b"\r\n").unwrap_or(content);
            let head = String::from_utf8_lossy(head);
            let quoted = |key: &str| Some(head.split_once(key)?.1.split_once('"')?.0.to_owned());
            let is_file = quoted("; filename=\"").is_some();
            let Some(name) = quoted("; name=\"").filter(|_| !is_file || !content.is_empty()) else {
                continue;
            };
            reading.add(Cow::Owned(name), content.len(), || {
                if is_file {
                    BASE64.encode(content)
                } else {
                    String::from_utf8_lossy(content).into_owned()
                }
            })?;
        }
        Ok(reading.pairs)
    }

    fn of_pairs(
        bytes: &[u8],
        large: Option<&LargeField>,
    ) -> Result<Vec<(String, String)>, FormRefusal> {
        let mut reading = Reading { pairs: Vec::new(), large, room: MAX_TEXT_BYTES };
        for (name, value) in form_urlencoded::parse(bytes) {
            reading.add(name, value.len(), || value.into_owned())?;
        }
        Ok(reading.pairs)
    }

    /// A form without a large field, of bytes that are limited already.
    /// Fails if it has too many fields.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FormRefusal> {
        Ok(Self { pairs: Self::of_pairs(bytes, None)?, _share: None })
    }

    /// The first value of a name, without spaces around it; `None` if it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The first value of a name as it was sent.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(have, _)| *have == name).map(|(_, value)| value)
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs().filter(move |(have, _)| *have == name).map(|(_, value)| value)
    }

    /// Adds a value, unless the name has one.
    pub(super) fn fill(&mut self, name: &str, value: &str) {
        if self.raw(name).is_none() {
            self.pairs.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Adds a value to those that the name has.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.pairs.push((name.to_owned(), value.to_owned()));
    }

    /// Replaces the first value of a name, if it has one.
    pub(super) fn replace(&mut self, name: &str, value: String) {
        if let Some((_, have)) = self.pairs.iter_mut().find(|(have, _)| have == name) {
            *have = value;
        }
    }

    /// Leaves these names out.
    pub(super) fn forget(&mut self, names: &[&str]) {
        self.pairs.retain(|(name, _)| !names.contains(&name.as_str()));
    }

    /// All pairs, as a form sends them.
    pub(super) fn encoded(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(self.pairs()).finish()
    }

    /// All pairs.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// What is before and after the first place of a mark. Takes time in proportion to the bytes, whatever they are.
fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memmem::find(bytes, mark)?;
    bytes.split_at_checked(at).and_then(|(before, from)| Some((before, from.get(mark.len()..)?)))
}

/// A path with a query, each value encoded. Empty values are left out.
pub(super) fn with_query<'a>(
    path: &str,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.into_iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// One segment of a path, encoded.
pub(super) fn segment(text: &str) -> Cow<'_, str> {
    const PLAIN: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    percent_encoding::utf8_percent_encode(text, PLAIN).into()
}

/// One segment of a path, decoded.
pub(super) fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The secret in the request's cookie.
pub(super) fn session_secret(head: &Head) -> Option<&str> {
    cookie(head, COOKIE)
}

/// The value of a cookie.
pub(super) fn cookie<'h>(head: &'h Head, named: &str) -> Option<&'h str> {
    let pairs = head.headers.values("cookie").flat_map(|field| field.split(';'));
    let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == named).map(|(_, value)| value)
}

/// The cookie of a session, as a browser sends it.
pub(super) fn session_cookie(secret: &str) -> String {
    format!("{COOKIE}={secret}")
}

/// `Set-Cookie` for a new session. `is_tls`: the browser must send it over TLS only.
pub(super) fn set_session(secret: &str, seconds: i64, is_tls: bool) -> String {
    set_cookie(COOKIE, secret, seconds, is_tls)
}

/// `Set-Cookie`.
pub(super) fn set_cookie(name: &str, value: &str, seconds: i64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{name}={value}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// `Set-Cookie` that ends it.
pub(super) fn clear_cookie() -> String {
    format!("{COOKIE}=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict")
}

/// Whether a form comes from one of our pages, as far as the browser says so.
pub(super) fn is_own(head: &Head) -> bool {
    let field = |name: &str| head.headers.get(name);
    let is_same_site =
        field("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    let host = field("host").unwrap_or_default();
    // Our pages tell their own origin to us. `null` is that of a page in a sandbox.
    let is_same_origin = field("origin").is_none_or(|origin| {
        origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
    });
    is_same_site && is_same_origin
}

/// A page to go back to, if it is one of the console: a path that no browser reads as another one, with a query.
/// `is_page` tells whether a path is one of a page.
pub(super) fn local_page(page: &str, is_page: impl Fn(&str) -> bool) -> Option<&str> {
    let (path, query) = page.split_once('?').unwrap_or((page, ""));
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic() && !b"\\#".contains(&b));
    // A browser takes `%2e` for a dot, and a proxy may take `%2f` for a slash.
    let is_odd = |part: &str| {
        let decoded = decode(part);
        matches!(decoded.as_str(), "." | "..") || decoded.contains(['/', '\\', '\0'])
    };
    let has_odd_part = path.split('/').any(is_odd) || path.contains("//");
    let is_ours = path.starts_with("/console/") && is_plain(path) && is_plain(query);
    let is_one = page.len() <= MAX_PAGE_BYTES && is_ours && !has_odd_part && is_page(path);
    is_one.then_some(page)
}

/// Spans that a filter offers: the name of their text, and from when to when.
pub(super) const PRESETS: [[&str; 3]; 4] = [
    ["past_hour", "1h", ""],
    ["today", "today", ""],
    ["yesterday", "yesterday", "today"],
    ["this_month", "month", ""],
];

/// A past time as the API takes it: `2h` is two hours ago, `08:29` today's, `last night` began at 18:00, `2026-11-27` is its
/// midnight, `2026-11-27 10:15` that minute; days are those of UTC. What is none of these is left as it is, for the API to
/// refuse.
pub(super) fn instant(text: &str, now: Timestamp) -> String {
    let day = |at: Timestamp| at.to_string().get(..10).unwrap_or_default().to_owned();
    let day_before = now.minus(Duration::from_hours(24));
    match text.to_ascii_lowercase().as_str() {
        "today" => midnight(&day(now)),
        "yesterday" => midnight(&day(day_before)),
        "last night" => format!("{}T18:00:00Z", day(day_before)),
        "month" => midnight(&format!("{}-01", day(now).get(..7).unwrap_or_default())),
        _ => {
            let of_today = || written(&format!("{} {text:0>5}", day(now)));
            let ago = || span(text).ok().map(|ago| now.minus(ago).to_string());
            written(text).or_else(of_today).or_else(ago).unwrap_or_else(|| text.to_owned())
        }
    }
}

fn midnight(day: &str) -> String {
    format!("{day}T00:00:00Z")
}

/// A day, or a time as pages show it, as the API takes it: `2026-11-27 10:15`, of UTC.
pub(super) fn written(text: &str) -> Option<String> {
    let shown = text.trim_end_matches(" UTC").replacen(' ', "T", 1);
    let whole = [midnight(text), format!("{shown}Z"), format!("{shown}:00Z")];
    whole.into_iter().find(|text| Timestamp::parse(text).is_some())
}

/// What is known of a form that comes in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Submission {
    /// It is new: carry it out.
    First,
    /// It is being carried out.
    Running,
    /// It was carried out; the page that showed the result.
    Done(String),
}

/// What came of an action, for the page after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The class of the notice: empty for what worked, `open` for what goes on, `error` for what failed.
    pub(super) mood: &'static str,
    /// In people's words.
    pub(super) text: String,
}

/// The number of a form, if it is a UUID. Anything else is no form of ours.
pub(super) fn form_number(given: &Form) -> Option<&str> {
    given.get("form").filter(|number| is_uuid(number))
}

/// The number of the form whose result a page shows.
pub(super) fn done_number(query: &Form) -> Option<&str> {
    query.get("did").filter(|number| is_uuid(number))
}

fn is_uuid(text: &str) -> bool {
    text.len() == UUID_CHARS && uuid::Uuid::try_parse(text).is_ok()
}

/// Characters of a UUID.
const UUID_CHARS: usize = 36;
/// Most characters of a result that are remembered.
const MAX_SAID_CHARS: usize = 500;

/// Forms that were sent, by session and number of the form, with the page to show afterwards and its message. Keys, pages
/// and messages have bounded lengths, so that all of them take a few megabytes at most.
#[derive(Debug, Default)]
pub(super) struct Submissions(Mutex<VecDeque<(String, Option<After>)>>);

/// The page after a form, and what it says.
type After = (String, Said);

impl Submissions {
    /// Begins a form, unless it is known.
    pub(super) fn begin(&self, key: &str) -> Submission {
        let mut known = self.0.lock();
        if let Some((_, page)) = known.iter().find(|(have, _)| have == key) {
            let page = page.as_ref().map(|(page, _)| page.clone());
            return page.map_or(Submission::Running, Submission::Done);
        }
        if known.len() >= MAX_REMEMBERED {
            known.pop_front();
        }
        known.push_back((key.to_owned(), None));
        Submission::First
    }

    /// Ends a form that succeeded.
    pub(super) fn done(&self, key: &str, page: &str, mut said: Said) {
        said.text = said.text.chars().take(MAX_SAID_CHARS).collect();
        if let Some((_, have)) = self.0.lock().iter_mut().find(|(have, _)| have == key) {
            *have = Some((page.to_owned(), said));
        }
    }

    /// What came of a form whose key ends so.
    pub(super) fn said(&self, key: &str) -> Option<Said> {
        let known = self.0.lock();
        let found = known.iter().find(|(have, _)| have.ends_with(key));
        found.and_then(|(_, done)| done.as_ref()).map(|(_, said)| said.clone())
    }

    /// Forgets a failed form, so that it can be corrected and sent again.
    pub(super) fn failed(&self, key: &str) {
        self.0.lock().retain(|(have, _)| have != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::headers::Headers;
    use crate::http::message::Method;

    #[test]
    fn values_are_encoded_and_empty_ones_left_out() {
        let path = with_query("/console/search", [("q", "a&b=ü"), ("state", "")]);
        assert_eq!(path, "/console/search?q=a%26b%3D%C3%BC");
        let form = Form::parse(b"q=+a%26b+&q=2&empty=").unwrap();
        assert_eq!(form.get("q"), Some("a&b"));
        assert_eq!(form.all("q").count(), 2);
        assert_eq!(form.get("empty"), None);
        assert_eq!(segment("../a b"), "..%2Fa%20b");
        assert_eq!(decode(&segment("../a b/ü")), "../a b/ü");
    }

    #[test]
    fn a_form_runs_once_unless_it_failed() {
        let forms = Submissions::default();
        assert_eq!(forms.begin("a"), Submission::First);
        assert_eq!(forms.begin("a"), Submission::Running);
        assert_eq!(forms.said("a"), None);
        let said = Said { mood: "open", text: "It is tried.".to_owned() };
        forms.done("a", "/console/", said.clone());
        assert_eq!((forms.said("a"), forms.said("b")), (Some(said), None));
        assert_eq!(forms.begin("a"), Submission::Done("/console/".to_owned()));
        assert_eq!(forms.begin("b"), Submission::First);
        forms.failed("b");
        assert_eq!(forms.begin("b"), Submission::First);
        for n in 0..MAX_REMEMBERED {
            forms.begin(&n.to_string());
        }
        assert_eq!(forms.begin("a"), Submission::First, "the oldest is forgotten");
    }

    #[test]
    fn people_write_times_in_many_ways() {
        let now = Timestamp::parse("2026-11-27T10:15:03.250Z").unwrap();
        for (text, time) in [
            ("2h", "2026-11-27T08:15:03.250Z"),
            ("30min", "2026-11-27T09:45:03.250Z"),
            ("today", "2026-11-27T00:00:00Z"),
            ("yesterday", "2026-11-26T00:00:00Z"),
            ("Yesterday", "2026-11-26T00:00:00Z"),
            ("last night", "2026-11-26T18:00:00Z"),
            ("08:29", "2026-11-27T08:29:00Z"),
            ("8:29", "2026-11-27T08:29:00Z"),
            ("month", "2026-11-01T00:00:00Z"),
            ("2026-11-03", "2026-11-03T00:00:00Z"),
            ("2026-11-03 09:07", "2026-11-03T09:07:00Z"),
            ("2026-11-03 09:07:11 UTC", "2026-11-03T09:07:11Z"),
            ("2026-11-03T09:07:11Z", "2026-11-03T09:07:11Z"),
            ("soon", "soon"),
            ("25:00", "25:00"),
        ] {
            assert_eq!(instant(text, now), time, "{text}");
        }
    }

    fn read(body: &[u8], kind: &str, large: Option<&LargeField>) -> Result<Form, FormRefusal> {
        let mut headers = Headers::default();
        headers.push("content-type", kind.as_bytes());
        let head = Head {
            method: Method::Post,
            path: String::new(),
            query: None,
            headers,
            door: 0,
            peer: "127.0.0.1:1".parse().unwrap(),
            client: "127.0.0.1".parse().unwrap(),
            request_id: String::new(),
        };
        let request = Request { head, body: body.to_vec() };
        Form::of_body(&request, large, &Budget::new(256 << 20))
    }

    #[test]
    fn the_boundary_of_a_form_with_files_has_one_to_70_bytes() {
        for (bytes, is_read) in [(0, false), (1, true), (70, true), (71, false), (60_000, false)] {
            let boundary = "b".repeat(bytes);
            let body = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{boundary}--"
            );
            let kind = format!("multipart/form-data; boundary={boundary}");
            match read(body.as_bytes(), &kind, None) {
                Ok(form) => assert!(is_read && form.get("a") == Some("1"), "{bytes}"),
                Err(refused) => {
                    assert!(!is_read && refused == FormRefusal::BadBoundary, "{bytes}");
                }
            }
        }
    }

    #[test]
    fn a_form_is_limited_in_fields_names_and_bytes() {
        let plain = "application/x-www-form-urlencoded";
        let parts = "multipart/form-data; boundary=b";
        let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
        let json = LargeField::Json("payload".to_owned());
        let bytes = LargeField::Bytes("payload".to_owned());
        let of = |name: &str, size: usize| format!("{name}={}", "x".repeat(size));
        let file = format!(
            "--b\r\nContent-Disposition: form-data; name=\"payload.file\"; filename=\"f\"\r\n\r\n{}\r\n--b--",
            "x".repeat(MAX_FILE_BYTES)
        );
        for (body, kind, large, is_read) in [
            ("a&".repeat(MAX_FIELDS), plain, None, true),
            ("a&".repeat(MAX_FIELDS + 1), plain, None, false),
            (part.repeat(MAX_FIELDS), parts, None, true),
            (part.repeat(MAX_FIELDS + 1), parts, None, false),
            (of("a", MAX_TEXT_BYTES - 1), plain, None, true),
            (of("a", MAX_TEXT_BYTES), plain, None, false),
            (of(&"n".repeat(MAX_NAME_BYTES), 1), plain, None, true),
            (of(&"n".repeat(MAX_NAME_BYTES + 1), 1), plain, None, false),
            (of("payload", MAX_JSON_BYTES), plain, Some(&json), true),
            (of("payload", MAX_JSON_BYTES + 1), plain, Some(&json), false),
            (
                format!("{}&{}", of("payload", 9), of("payload", MAX_TEXT_BYTES)),
                plain,
                Some(&json),
                false,
            ),
            (of("other", MAX_TEXT_BYTES), plain, Some(&json), false),
            (file, parts, Some(&bytes), true),
            (of("payload", MAX_FILE_BYTES + 1), plain, Some(&bytes), false),
        ] {
            let found = read(body.as_bytes(), kind, large);
            assert_eq!(found.is_ok(), is_read, "{:.40} of {} bytes", body, body.len());
            assert!(is_read || matches!(found, Err(FormRefusal::TooLarge)));
            let most = LargeField::most_of_body(large);
            assert!(!is_read || body.len() <= most.max(1 << 20), "a form that is read is let in");
        }
    }

    #[test]
    fn a_form_is_charged_to_the_budget_while_it_is_used() {
        let budget = Budget::new(1_000);
        let request = |body: &[u8]| {
            let head = Head {
                method: Method::Post,
                path: String::new(),
                query: None,
                headers: Headers::default(),
                door: 0,
                peer: "127.0.0.1:1".parse().unwrap(),
                client: "127.0.0.1".parse().unwrap(),
                request_id: String::new(),
            };
            Request { head, body: body.to_vec() }
        };
        let first = Form::of_body(&request(b"a=12345678"), None, &budget).unwrap();
        assert_eq!(budget.used(), 10 * TEXT_FACTOR);
        let copy = first.clone();
        drop(first);
        let second = Form::of_body(&request(b"a=12345678"), None, &budget);
        assert_eq!(second.unwrap_err(), FormRefusal::NoMemory);
        drop(copy);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_number_of_a_form_is_a_uuid() {
        for (number, is_one) in [
            ("019a0000-0000-7000-8000-000000000001", true),
            ("019a0000000070008000000000000001", false),
            ("{019a0000-0000-7000-8000-00000000001", false),
            ("1", false),
            ("", false),
        ] {
            let form = Form::parse(format!("form={number}").as_bytes()).unwrap();
            assert_eq!(form_number(&form).is_some(), is_one, "{number}");
        }
    }

    #[test]
    fn only_pages_of_the_console_are_gone_back_to() {
        let is_page = |path: &str| path.starts_with("/console/events");
        for (page, expected) in [
            ("/console/events/1?limit=5", true),
            ("/console/events/a%20b", true),
            ("/console/other", false),
            ("https://evil.example/console/events", false),
            ("//evil.example/console/events", false),
            ("/console/events//evil.example", false),
            ("/console/events/\\evil", false),
            ("/console/events/../../x", false),
            ("/console/events/%2E%2e/x", false),
            ("/console/events/.%2e/x", false),
            ("/console/events/a%2f..%2fb", false),
            ("/console/events/%5c", false),
            ("/console/events#x", false),
            ("/console/events\r\nSet-Cookie: a=b", false),
            ("/v1/events", false),
        ] {
            assert_eq!(local_page(page, is_page), expected.then_some(page), "{page}");
        }
    }
}

//! What a browser sends: a query or a form, as `application/x-www-form-urlencoded` or with files as
//! `multipart/form-data`, and the session's cookie.
//!
//! Each form is carried out once: a second click, or a browser that sends again, gets the first answer.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use data_encoding::BASE64;
use parking_lot::Mutex;

use crate::base::clock::{Timestamp, span};
use crate::http::message::{Head, Request};

/// The name of the session's cookie.
const COOKIE: &str = "oncebox_session";

/// Forms that are remembered. The oldest is forgotten first.
const MAX_REMEMBERED: usize = 1000;

/// Names and values, in the order they were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The query of a request.
    pub(super) fn of_query(head: &Head) -> Self {
        Self::parse(head.query.as_deref().unwrap_or_default().as_bytes())
    }

    /// The body of a request.
    pub(super) fn of_body(request: &Request) -> Self {
        let boundary = request.head.headers.get("content-type").and_then(|kind| {
            let boundary = kind.strip_prefix("multipart/form-data")?.split_once("boundary=")?.1;
            Some(boundary.trim_matches('"'))
        });
        boundary.map_or_else(
            || Self::parse(&request.body),
            |boundary| Self::of_parts(&request.body, boundary),
        )
    }

    /// The parts of a body between two boundaries each (RFC 7578). A file is kept in base64; one without content is left
    /// out, because that is how a browser sends a field without a file.
    fn of_parts(body: &[u8], boundary: &str) -> Self {
        let (mark, mut pairs) = (format!("--{boundary}"), Vec::new());
        let mut rest = body;
        while let Some((part, behind)) = split(rest, mark.as_bytes()) {
            rest = behind;
            let Some((head, content)) = split(part, b"\r\n\r\n") else { continue };
            let content = content.strip_suffix(b"\r\n").unwrap_or(content);
            let head = String::from_utf8_lossy(head);
            let quoted = |key: &str| Some(head.split_once(key)?.1.split_once('"')?.0.to_owned());
            let (name, is_file) = (quoted("; name=\""), quoted("; filename=\"").is_some());
            let value = if is_file {
                BASE64.encode(content)
            } else {
                String::from_utf8_lossy(content).into_owned()
            };
            pairs
                .extend(name.filter(|_| !is_file || !content.is_empty()).map(|name| (name, value)));
        }
        Self(pairs)
    }

    /// What a form sends.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
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
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Leaves these names out.
    pub(super) fn forget(&mut self, names: &[&str]) {
        self.0.retain(|(name, _)| !names.contains(&name.as_str()));
    }

    /// All pairs, as a form sends them.
    pub(super) fn encoded(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(self.pairs()).finish()
    }

    /// All pairs.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// What is before and after the first place of a mark.
fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|here| here == mark)?;
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

/// Whether a path stays in the console: a page to go back to must not lead elsewhere.
pub(super) fn is_local(path: &str) -> bool {
    path.starts_with("/console/") && !path.contains(['\\', '\r', '\n']) && !path.contains("//")
}

/// Spans that a filter offers: the name of their text, and from when to when.
pub(super) const PRESETS: [[&str; 3]; 4] = [
    ["past_hour", "1h", ""],
    ["today", "today", ""],
    ["yesterday", "yesterday", "today"],
    ["this_month", "month", ""],
];

/// A time as the API takes it: `2h` is two hours ago, `2026-11-27` its midnight, `2026-11-27 10:15` that minute; days are
/// those of UTC. What is none of these is left as it is, for the API to refuse.
pub(super) fn instant(text: &str, now: Timestamp) -> String {
    let day = |at: Timestamp| at.to_string().get(..10).unwrap_or_default().to_owned();
    let day_before = now.minus(Duration::from_hours(24));
    match text {
        "today" => midnight(&day(now)),
        "yesterday" => midnight(&day(day_before)),
        "month" => midnight(&format!("{}-01", day(now).get(..7).unwrap_or_default())),
        text => {
            let ago = || span(text).ok().map(|ago| now.minus(ago).to_string());
            written(text).or_else(ago).unwrap_or_else(|| text.to_owned())
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

/// Forms that were sent, by session and number of the form; with the page after it and what it says, once it is done.
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
    pub(super) fn done(&self, key: &str, page: &str, said: Said) {
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

    /// Forgets a form that failed, so that it can be corrected and sent again.
    pub(super) fn failed(&self, key: &str) {
        self.0.lock().retain(|(have, _)| have != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_and_empty_ones_left_out() {
        let path = with_query("/console/search", [("q", "a&b=ü"), ("state", "")]);
        assert_eq!(path, "/console/search?q=a%26b%3D%C3%BC");
        let form = Form::parse(b"q=+a%26b+&q=2&empty=");
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
            ("month", "2026-11-01T00:00:00Z"),
            ("2026-11-03", "2026-11-03T00:00:00Z"),
            ("2026-11-03 09:07", "2026-11-03T09:07:00Z"),
            ("2026-11-03 09:07:11 UTC", "2026-11-03T09:07:11Z"),
            ("2026-11-03T09:07:11Z", "2026-11-03T09:07:11Z"),
            ("soon", "soon"),
        ] {
            assert_eq!(instant(text, now), time, "{text}");
        }
    }

    #[test]
    fn only_pages_of_the_console_are_gone_back_to() {
        for (path, expected) in [
            ("/console/events/1?limit=5", true),
            ("https://evil.example/console/", false),
            ("//evil.example/console/", false),
            ("/console//evil.example", false),
            ("/console/\\evil", false),
            ("/v1/events", false),
        ] {
            assert_eq!(is_local(path), expected, "{path}");
        }
    }
}

//! One authenticated call, as handlers get it: path, query, body and caller; and the answers that handlers give.

use std::borrow::Cow;
use std::sync::Arc;

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::description::{Doc, Place};
use crate::api::limits::Limits;
use crate::api::problem::Problem;
use crate::api::schema::{Base64, Is, ListPage, Sha256};
use crate::base::budget::Share;
use crate::base::clock::Timestamp;
use crate::base::id;
use crate::base::text::without_mark;
use crate::http::message::{Request, Response};
use crate::model::audit::Actor;
use crate::model::json;
use crate::model::json_fields::Object;
use crate::model::sealed::{self, Sealed};
use crate::model::token::Scope;
use crate::store::idempotency_keys::Idempotency;
use crate::store::page::{Newest, RowPage, Span};

/// Rows of a page if `limit` is absent.
const PAGE_ROWS_DEFAULT: u32 = 50;
/// The most rows of a page.
const MAX_PAGE_ROWS: u32 = 500;

/// How much memory showing a payload takes for each of its bytes: the payload, its JSON text, and the answer.
pub(super) const SHOWN_FACTOR: usize = 4;

/// A request that was authorized, with its route and memory.
#[derive(Debug)]
pub(super) struct Call {
    /// The request.
    pub(super) request: Request,
    /// The variable parts of the path, decoded, in order.
    pub(super) params: Vec<String>,
    /// The query.
    pub(super) query: Query,
    /// The tenant.
    pub(super) tenant: String,
    /// The source systems and consumer groups of a `publish` token; `None`: not limited.
    pub(super) scope: Option<Scope>,
    /// The caller; anonymous on public paths.
    pub(super) who: Actor,
    /// The action, for audit events.
    pub(super) action: &'static str,
    /// The key under which it is carried out once.
    pub(super) key: Option<Idempotency>,
    /// The description of its route.
    pub(super) doc: &'static Doc,
    /// The limits of bodies and queries.
    pub(super) limits: Arc<Limits>,
    /// The memory that is reserved for it.
    pub(super) share: Share,
}

/// Where a page starts and how long it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// Rows at most.
    pub(super) limit: u32,
    /// The cursor that was given.
    pub(super) after: Option<i64>,
}

impl Page {
    /// For a list whose newest rows come first.
    pub(super) fn newest(self, tenant: &str) -> Newest<'_> {
        Newest { tenant, before: self.after.unwrap_or(i64::MAX), limit: self.limit }
    }
}

impl Call {
    /// The `n`-th variable part of the path; empty if there is none.
    pub(super) fn param(&self, n: usize) -> &str {
        self.params.get(n).map_or("", String::as_str)
    }

    /// The body as JSON of a known shape.
    /// Fails with 400 that names the member, or line and column, or with 422 if a value cannot be used or is out of a limit that the
    /// document states.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body = without_mark(&self.request.body);
        check_depth(body)?;
        let read = serde_json::from_slice(body)
            .map_err(|error| misread(&error, self.limits.misfit(self.doc, body)));
        if !matches!(&read, Err(problem) if problem.status() == 400) {
            self.limits.check(self.doc, body)?;
        }
        read.map(|Object(body)| body)
    }
}

impl Call {
    /// The body as JSON of a known shape, or the default if there is no body.
    /// Fails as `json` does.
    pub(super) fn optional_json<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        if self.request.body.is_empty() { Ok(T::default()) } else { self.json() }
    }
}

/// How serde begins to say that a body has another form. Other errors come from types that check their values.
const OF_FORM: [&str; 6] =
    ["data did not ", "duplicate ", "invalid ", "missing ", "trailing ", "unknown "];

/// 400 if a body has another form, 422 if a value in it cannot be used. `misfit`: the member that does not fit, as far as its
/// schema tells.
fn misread(error: &serde_json::Error, misfit: Option<String>) -> Problem {
    let text = error.to_string();
    if !error.is_data() || OF_FORM.iter().any(|start| text.starts_with(start)) {
        let why = misfit.unwrap_or(text);
        return Problem::bad_request(format!("The body does not have the expected form: {why}."));
    }
    let place = format!(" at line {} column {}", error.line(), error.column());
    Problem::unprocessable(format!("{}.", text.strip_suffix(&place).unwrap_or(&text)))
}

/// A query, decoded; it has only parameters that its route describes.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query. Refuses unknown names, so that a misspelt filter is not ignored; also repeated names and missing
    /// values.
    /// Fails with 400 that lists the known names.
    pub(super) fn read(text: Option<&str>, doc: &Doc) -> Result<Self, Problem> {
        let Some(text) = text.filter(|_| !doc.any_query) else { return Ok(Self::default()) };
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name)?;
            let value = decode(value)?;
            let known = || doc.params.iter().filter(|param| param.place == Place::Query);
            let param = known().find(|param| param.name == name);
            if param.is_none() {
                let known: Vec<&str> = known().map(|param| param.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::bad_request(format!(
                    "The query parameter {name:?} is unknown; known here: {known}."
                )));
            }
            let is_missing = value.is_empty() && !param.is_some_and(|param| param.bare);
            if is_missing || query.get(&name).is_some() {
                return Err(Problem::bad_request(format!(
                    "{name} must be given once, with a value."
                )));
            }
            query.0.push((name, value));
        }
        Ok(query)
    }

    /// Names and values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(have, _)| have == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is given, with or without a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(have, _)| have == name)
    }

    /// The value of a name, owned.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// A value, read with `parse`.
    /// Fails with 400 if `parse` returns `None`.
    pub(super) fn word<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        self.get(name)
            .map(|text| {
                parse(text)
                    .ok_or_else(|| Problem::bad_request(format!("{name} cannot be {text:?}.")))
            })
            .transpose()
    }

    /// A value that has to be one of `all`.
    /// Fails with 400 that lists them.
    pub(super) fn one_of<T: Copy, const N: usize>(
        &self,
        name: &str,
        all: [T; N],
        word: fn(T) -> &'static str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let found = all.into_iter().find(|one| word(*one) == text);
        found.map(Some).ok_or_else(|| {
            let known = all.map(word).join(", ");
            Problem::bad_request(format!("{name} cannot be {text:?}; it is one of {known}."))
        })
    }

    /// `since` and `until`.
    /// Fails with 400 if they are not RFC 3339 times.
    pub(super) fn span(&self) -> Result<Span, Problem> {
        // The sign of an offset that was not encoded has been read as a space.
        let parse = |text: &str| {
            Timestamp::parse(text).or_else(|| Timestamp::parse(&text.replacen(' ', "+", 1)))
        };
        let time = |name| self.word(name, parse);
        Ok(Span { since: time("since")?, until: time("until")? })
    }

    /// `limit` and `after`.
    /// Fails with 400 when they are not numbers, or the limit is out of bounds.
    pub(super) fn page(&self) -> Result<Page, Problem> {
        Ok(Page { limit: self.limit()?, after: self.word("after", cursor)? })
    }

    /// `limit`.
    /// Fails with 400 when it is not a number, or out of bounds.
    pub(super) fn limit(&self) -> Result<u32, Problem> {
        let limit = self.word("limit", |text| text.parse().ok())?.unwrap_or(PAGE_ROWS_DEFAULT);
        if !(1..=MAX_PAGE_ROWS).contains(&limit) {
            return Err(Problem::bad_request(format!("limit must be 1 to {MAX_PAGE_ROWS}.")));
        }
        Ok(limit)
    }
}

/// A cursor: only digits, no sign.
fn cursor(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A name or a value of a query. As in forms, `+` is a space (WHATWG URL, application/x-www-form-urlencoded).
fn decode(text: &str) -> Result<String, Problem> {
    percent_encoding::percent_decode_str(&text.replace('+', " "))
        .decode_utf8()
        .map(Cow::into_owned)
        .map_err(|error| Problem::bad_request(format!("The query is not UTF-8: {error}.")))
}

/// A page of rows: `{"items":[…],"next":"17"}`. `next` is null if the page is not full. The page after a full one may
/// be empty.
pub(super) fn page_of<'a, T, V: Serialize>(
    rows: &'a [T],
    page: Page,
    seq: impl Fn(&T) -> i64,
    show: impl Fn(&'a T) -> V,
) -> Response {
    let full = u32::try_from(rows.len()).is_ok_and(|have| have >= page.limit);
    let next = rows.last().filter(|_| full).map(|last| seq(last).to_string());
    ok(&ListPage { items: rows.iter().map(show).collect(), next })
}

/// A page of a search. A search examines a limited number of rows, so a page may have a `next` before it is full.
pub(super) fn page_found<'a, T, V: Serialize>(
    found: &'a RowPage<T>,
    show: impl Fn(&'a T) -> V,
) -> Response {
    let next = found.next.map(|next| next.to_string());
    ok(&ListPage { items: found.rows.iter().map(show).collect(), next })
}

/// 200 with JSON.
pub(super) fn ok(body: &impl Serialize) -> Response {
    answer(200, body)
}

/// Any status with JSON.
pub(super) fn answer(status: u16, body: &impl Serialize) -> Response {
    // Serializing cannot fail: all keys are strings.
    let body = serde_json::to_vec(body).unwrap_or_default();
    Response::with_body(status, "application/json", body)
}

/// The most characters of a reason that a person gives.
pub(super) const MAX_REASON_CHARS: usize = 1000;

/// Refuses a reason of white space alone.
/// Fails with 422.
pub(super) fn check_reason(reason: &str) -> Result<(), Problem> {
    if reason.trim().is_empty() {
        return Err(Problem::unprocessable("reason must say something."));
    }
    Ok(())
}

/// Refuses JSON nested deeper than the limit, before anything recurses into it.
/// Fails with 400.
pub(super) fn check_depth(body: &[u8]) -> Result<(), Problem> {
    if !json::is_shallow(body) {
        let most = json::MAX_DEPTH;
        return Err(Problem::bad_request(format!("JSON may be nested {most} deep at most.")));
    }
    Ok(())
}

/// With its payload: unchanged if it is JSON, else as text, else as base64.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}WithPayload")]
pub(super) struct WithPayload<'a, T> {
    #[serde(flatten)]
    of: T,
    /// SHA-256 of the payload's exact bytes.
    payload_sha256: Is<Sha256>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    payload_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Base64")]
    payload_base64: Option<String>,
}

impl<T: Serialize> WithPayload<'_, T> {
    /// The answer.
    pub(super) fn response(of: T, payload: &[u8], content_type: &str, sealed: &Sealed) -> Response {
        let payload_sha256 = id::sha256_hex(payload).into();
        // Sealed fields are opened only when a delivery is sent.
        let hidden = (sealed.fields > 0).then(|| sealed::redact(payload));
        let payload = hidden.as_deref().unwrap_or(payload);
        let is_json = content_type.contains("json") && json::is_shallow(payload);
        // A `RawValue`, because parsed JSON values would take thirty times the payload's size.
        let raw = is_json.then(|| serde_json::from_slice(payload).ok()).flatten();
        let text = std::str::from_utf8(payload).ok().filter(|_| raw.is_none());
        let is_bytes = raw.is_none() && text.is_none();
        let shown = WithPayload {
            of,
            payload_sha256,
            payload: raw,
            payload_text: text,
            payload_base64: is_bytes.then(|| BASE64.encode(payload)),
        };
        ok(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_strings_only() {
        assert!(check_depth(&b"[".repeat(129)).is_err());
        assert!(check_depth(&b"[]".repeat(500)).is_ok());
        let quoted = format!("\"{}\\\"{}\"", "[".repeat(200), "{".repeat(200));
        assert!(check_depth(quoted.as_bytes()).is_ok());
    }
}

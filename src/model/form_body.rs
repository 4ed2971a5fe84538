//! Forms as bodies of events: their fields, and the JSON view that filters, ids, templates and policies read.
//!
//! The stored and sent bytes stay as they came; the view is made each time a reader needs it. Not here: forms of the
//! console (`console::form`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use percent_encoding::percent_decode;
use serde_json::json;

use crate::model::json::{Cursor, quoted};

/// Fields of a form at most. A form with more has no view.
pub const MAX_FIELDS: usize = 1_000;
/// How many times the bytes of a form its view may take. Only control characters make it longer than that.
const MAX_GROWTH: usize = 2;
/// Bytes that each view may take.
const MIN_VIEW_BYTES: usize = 4 * 1024;
/// Bytes of the boundary of a multipart form at most. Source: RFC 2046 section 5.1.1.
const MAX_BOUNDARY_BYTES: usize = 70;
/// Bytes of the header fields of one part at most.
const MAX_PART_HEAD_BYTES: usize = 8 * 1024;

/// A body with the media type that says how to read it.
#[derive(Clone, Copy, Debug)]
pub struct Body<'b> {
    /// The value of `Content-Type`.
    pub content_type: &'b str,
    /// The bytes as they came, or as they are stored.
    pub bytes: &'b [u8],
}

/// The media type of a body, as far as it matters for reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FormKind {
    Urlencoded,
    /// A multipart form, with the text between its parts.
    Multipart(String),
}

impl<'b> Body<'b> {
    /// The JSON that readers see: of a form its JSON view, of any other body its bytes.
    ///
    /// A form of one field whose value is a JSON object or list is that JSON: `payload={"action":"opened"}`. Every
    /// other form is an object of its fields. A value is a text, or JSON if it is an object or list; the values of a
    /// repeated name are a list. A file of a multipart form is an object of its `filename`, `content_type` and `size`.
    ///
    /// ```
    /// use oncebox::model::form_body::Body;
    /// let content_type = "application/x-www-form-urlencoded";
    /// let view = |bytes| Body { content_type, bytes }.json_view().into_owned();
    /// assert_eq!(view(b"payload=%7B%22action%22%3A%22opened%22%7D"), br#"{"action":"opened"}"#);
    /// assert_eq!(view(b"id=tr_1&tag=a+b&tag=c"), br#"{"id":"tr_1","tag":["a b","c"]}"#);
    /// assert_eq!(view(br#"{"id":1}"#), br#"{"id":1}"#);
    /// ```
    pub fn json_view(self) -> Cow<'b, [u8]> {
        self.form_view().map_or(Cow::Borrowed(self.bytes), Cow::Owned)
    }

    /// Whether the body is a form, and not JSON that is labelled as one.
    pub fn is_form(self) -> bool {
        form_kind(self.content_type).is_some() && !is_structured(self.bytes)
    }

    /// Whether the body is a form of a single field `id`: it says what has changed, and nothing of the change.
    ///
    /// ```
    /// use oncebox::model::form_body::Body;
    /// let content_type = "application/x-www-form-urlencoded";
    /// assert!(Body { content_type, bytes: b"id=tr_1" }.is_bare_id());
    /// assert!(!Body { content_type, bytes: b"id=tr_1&status=paid" }.is_bare_id());
    /// ```
    pub fn is_bare_id(self) -> bool {
        let mut all = fields(self.bytes);
        let is_id = |field: FieldSpans| self.bytes.get(field.name) == Some(b"id");
        form_kind(self.content_type) == Some(FormKind::Urlencoded)
            && all.next().is_some_and(is_id)
            && all.next().is_none()
    }

    fn form_view(self) -> Option<Vec<u8>> {
        // Many senders label JSON as a form, because that is the default of their HTTP client.
        match form_kind(self.content_type).filter(|_| !is_structured(self.bytes))? {
            FormKind::Urlencoded => urlencoded_view(self.bytes),
            FormKind::Multipart(boundary) => multipart_view(self.bytes, &boundary),
        }
    }
}

/// Whether bytes are a JSON object or list.
pub fn is_structured(bytes: &[u8]) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'[')) && Cursor::of(bytes).is_some()
}

/// The positions of a field's name and value in an urlencoded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpans {
    /// The name; empty in a field without `=`.
    pub name: Range<usize>,
    /// The value. A field without `=` is a value without a name.
    pub value: Range<usize>,
}

/// The fields of an urlencoded form, in order; empty fields are left out.
pub fn fields(form: &[u8]) -> impl Iterator<Item = FieldSpans> {
    let mut next = 0_usize;
    let spans = form.split(|byte| *byte == b'&').map(move |field| {
        let start = next;
        let end = start.saturating_add(field.len());
        next = end.saturating_add(1);
        match field.iter().position(|byte| *byte == b'=') {
            None => FieldSpans { name: start..start, value: start..end },
            Some(at) => {
                let equals = start.saturating_add(at);
                FieldSpans { name: start..equals, value: equals.saturating_add(1)..end }
            }
        }
    });
    spans.filter(|field| !(field.name.is_empty() && field.value.is_empty()))
}

/// A name or value of an urlencoded form, decoded.
pub fn decoded(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).collect()
}

/// Translates positions in a decoded value into positions in the value as it was encoded. `positions` must ascend.
pub fn encoded_positions(
    encoded: &[u8],
    positions: impl IntoIterator<Item = usize>,
) -> impl Iterator<Item = usize> {
    let mut decoded_at = 0_usize;
    let mut encoded_at = 0_usize;
    positions.into_iter().map(move |wanted| {
        while decoded_at < wanted && encoded_at < encoded.len() {
            let is_escape = match encoded.get(encoded_at..encoded_at.saturating_add(3)) {
                Some([b'%', high, low]) => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
                _ => false,
            };
            encoded_at = encoded_at.saturating_add(if is_escape { 3 } else { 1 });
            decoded_at = decoded_at.saturating_add(1);
        }
        encoded_at
    })
}

fn form_kind(content_type: &str) -> Option<FormKind> {
    let mut parts = content_type.split(';');
    let media = parts.next()?.trim().to_ascii_lowercase();
    if media == "application/x-www-form-urlencoded" {
        return Some(FormKind::Urlencoded);
    }
    if media != "multipart/form-data" {
        return None;
    }
    let boundary = parameter(content_type, "boundary")?;
    let fits = (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len());
    fits.then_some(FormKind::Multipart(boundary))
}

/// A parameter of a header field, such as `boundary` of a media type. It may be quoted.
fn parameter(field: &str, name: &str) -> Option<String> {
    let mut rest = field.split_once(';')?.1;
    loop {
        let (found, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, next) = if let Some(quoted) = after.strip_prefix('"') {
            quoted_value(quoted)?
        } else {
            let (value, next) = after.split_once(';').unwrap_or((after, ""));
            (value.trim().to_owned(), next)
        };
        if found.trim().trim_start_matches(';').trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = next;
    }
}

/// A quoted value without its quotes, and the text after it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, text.get(at.saturating_add(1)..)?)),
            '\\' => value.extend(letters.next().map(|(_, escaped)| escaped)),
            _ => value.push(letter),
        }
    }
    None
}

/// A field of a form, ready for its view: the name, and the value as JSON.
struct ViewField {
    name: String,
    value: Vec<u8>,
    is_structured: bool,
}

impl ViewField {
    fn of(name: &[u8], value: Vec<u8>) -> Self {
        let name = String::from_utf8_lossy(name).into_owned();
        let is_structured = is_structured(&value);
        let value = if is_structured {
            value
        } else {
            quoted(&String::from_utf8_lossy(&value)).into_bytes()
        };
        Self { name, value, is_structured }
    }
}

fn urlencoded_view(form: &[u8]) -> Option<Vec<u8>> {
    let part = |span: Range<usize>| decoded(form.get(span).unwrap_or_default());
    let mut left = form.len().saturating_mul(MAX_GROWTH).saturating_add(MIN_VIEW_BYTES);
    let mut found = Vec::new();
    for FieldSpans { name, value } in fields(form) {
        let name = part(name);
        let value = part(value);
        left = left.checked_sub(quoted_bytes(&name).saturating_add(quoted_bytes(&value)))?;
        if found.len() == MAX_FIELDS {
            return None;
        }
        found.push(ViewField::of(&name, value));
    }
    Some(view_of(found))
}

/// How many bytes a text takes at most as a JSON text.
fn quoted_bytes(text: &[u8]) -> usize {
    let bytes = |byte: &u8| match byte {
        0x00..=0x1f => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.iter().map(bytes).sum::<usize>().saturating_add(2)
}

/// The view of fields: the JSON of the only one, else an object.
fn view_of(mut fields: Vec<ViewField>) -> Vec<u8> {
    if let [only] = fields.as_mut_slice()
        && only.is_structured
    {
        return std::mem::take(&mut only.value);
    }
    let mut order: Vec<String> = Vec::new();
    let mut by_name: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for ViewField { name, value, .. } in fields {
        let values = by_name.entry(name.clone()).or_default();
        if values.is_empty() {
            order.push(name);
        }
        values.push(value);
    }
    let mut view = b"{".to_vec();
    for name in order {
        if view.len() > 1 {
            view.push(b',');
        }
        view.extend_from_slice(quoted(&name).as_bytes());
        view.push(b':');
        match by_name.remove(&name).unwrap_or_default().as_slice() {
            [one] => view.extend_from_slice(one),
            several => {
                view.push(b'[');
                view.extend_from_slice(&several.join(&b","[..]));
                view.push(b']');
            }
        }
    }
    view.push(b'}');
    view
}

/// The view of a multipart form; `None` if it is not one. Source: RFC 7578.
fn multipart_view(body: &[u8], boundary: &str) -> Option<Vec<u8>> {
    let delimiter = format!("--{boundary}");
    let delimiter = delimiter.as_bytes();
    let inner = [b"\r\n", delimiter].concat();
    let mut rest = match body.strip_prefix(delimiter) {
        Some(rest) => rest,
        None => body.get(find(body, &inner)?.checked_add(inner.len())?..)?,
    };
    let mut found = Vec::new();
    while !rest.starts_with(b"--") {
        if found.len() == MAX_FIELDS {
            return None;
        }
        let part = after_line(rest)?;
        let end = find(part, &inner)?;
        found.push(part_field(part.get(..end)?)?);
        rest = part.get(end.checked_add(inner.len())?..)?;
    }
    Some(view_of(found))
}

/// The bytes after the line of a delimiter, which may end with blanks.
fn after_line(bytes: &[u8]) -> Option<&[u8]> {
    let blanks = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    bytes.get(blanks..)?.strip_prefix(b"\r\n")
}

/// A part of a multipart form; `None` if it has no name.
fn part_field(part: &[u8]) -> Option<ViewField> {
    let head_end = find(part.get(..part.len().min(MAX_PART_HEAD_BYTES))?, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(part.get(..head_end)?);
    let value = part.get(head_end.checked_add(4)?..)?;
    let field = |wanted: &str| {
        head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
        })
    };
    let disposition = field("content-disposition")?;
    let name = parameter(&disposition, "name")?;
    let Some(filename) = parameter(&disposition, "filename") else {
        return Some(ViewField::of(name.as_bytes(), value.to_vec()));
    };
    let content_type = field("content-type");
    let file = json!({ "filename": filename, "content_type": content_type, "size": value.len() });
    Some(ViewField { name, value: file.to_string().into_bytes(), is_structured: false })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLENCODED: &str = "application/x-www-form-urlencoded; charset=utf-8";

    fn view(content_type: &str, bytes: &[u8]) -> String {
        let view = Body { content_type, bytes }.json_view();
        String::from_utf8(view.into_owned()).unwrap()
    }

    #[test]
    fn a_form_is_read_as_the_json_in_it_or_as_its_fields() {
        for (form, wanted) in [
            ("payload=%7B%22a%22%3A1.50%7D", r#"{"a":1.50}"#),
            ("payload={\"a\":+\"b%2Bc\"}", r#"{"a": "b+c"}"#),
            ("mandrill_events=%5B%7B%7D%5D", "[{}]"),
            ("payload=%7B%7D&x=1", r#"{"payload":{},"x":"1"}"#),
            ("payload=%7B%22a%22", r#"{"payload":"{\"a\""}"#),
            ("payload=1", r#"{"payload":"1"}"#),
            ("a=1&b=%C3%A4+x&a=2&a", r#"{"a":["1","2"],"b":"ä x","":"a"}"#),
            ("a=%FF%00", "{\"a\":\"\u{fffd}\\u0000\"}"),
            ("a[b]=1&&c=", r#"{"a[b]":"1","c":""}"#),
            ("", "{}"),
            ("[1]", "[1]"),
            (" {\"a\":1}", " {\"a\":1}"),
        ] {
            assert_eq!(view(URLENCODED, form.as_bytes()), wanted, "{form}");
        }
        assert_eq!(view("text/plain", b"a=1"), "a=1");
        assert_eq!(view("application/json", b"a=1"), "a=1");
    }

    #[test]
    fn a_form_with_too_many_fields_has_no_view() {
        let form = "a=1&".repeat(MAX_FIELDS);
        assert!(view(URLENCODED, form.as_bytes()).starts_with(r#"{"a":["1","#));
        let more = format!("{form}b=2");
        assert_eq!(view(URLENCODED, more.as_bytes()), more);
        let growing = format!("a={}", "\u{1}".repeat(2_000));
        assert_eq!(view(URLENCODED, growing.as_bytes()), growing);
    }

    #[test]
    fn a_multipart_form_is_read_as_its_fields() {
        let form = "--x y\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n2\r\n--x y\r\n\
                    content-disposition: form-data; name=\"f\\\"\"; filename=\"b;c.pdf\"\r\n\
                    Content-Type: application/pdf\r\n\r\n\0\0\0\r\n--x y--\r\n";
        let fields = "{\"a\":\"1\\r\\n2\",\"f\\\"\":{\"filename\":\"b;c.pdf\",\
                      \"content_type\":\"application/pdf\",\"size\":3}}";
        assert_eq!(view("Multipart/Form-Data; Boundary=\"x y\"", form.as_bytes()), fields);
        let preamble = format!("for old readers\r\n{form}");
        assert_eq!(view("multipart/form-data; boundary=\"x y\"", preamble.as_bytes()), fields);
        let json = form.replace("1\r\n2", "[1]").replace("form-data; name=\"f", "form-data; n=\"f");
        let cut = form.strip_suffix("x y--\r\n").unwrap();
        for broken in [cut, &json, "--x y", ""] {
            assert_eq!(view("multipart/form-data; boundary=\"x y\"", broken.as_bytes()), broken);
        }
        assert_eq!(view("multipart/form-data", form.as_bytes()), form);
    }

    #[test]
    fn positions_of_a_decoded_value_are_found_in_the_encoded_one() {
        let encoded = b"%7B%22a+%22:1%zz%7D";
        let plain = decoded(encoded);
        assert_eq!(plain, b"{\"a \":1%zz}");
        let found: Vec<usize> = encoded_positions(encoded, 0..=plain.len()).collect();
        assert_eq!(found, [0, 3, 6, 7, 8, 11, 12, 13, 14, 15, 16, 19]);
    }
}

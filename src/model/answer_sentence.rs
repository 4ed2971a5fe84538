//! The sentence in which a target said why it refused a delivery. Dead letters are grouped by this sentence.
//!
//! Not here: the class of an answer (`model::outcome`), and the SQL function that calls this (`store::pool`).

use serde_json::{Map, Value};

/// Most characters of a sentence.
pub const MAX_CHARS: usize = 120;
/// Mark of an omitted part.
const OMITTED: char = '…';
/// JSON within JSON is read to this depth.
const MAX_DEPTH: u8 = 8;
/// Shortest run of hexadecimal digits that counts as an id.
const MIN_HEX_DIGITS: usize = 16;

/// Fields with an error's text, the most telling first: of RFC 9457, OAuth 2, Frappe, ASP.NET, Spring and SOAP.
const FIELDS: [&str; 18] = [
    "_server_messages",
    "detail",
    "error_description",
    "error_message",
    "errormessage",
    "exceptionmessage",
    "message",
    "msg",
    "error",
    "errors",
    "faultstring",
    "fault",
    "exception",
    "description",
    "reason",
    "title",
    "o:errordetails",
    "value",
];
/// Elements of a page or an XML document with an error's text, the most telling first.
const ELEMENTS: [&str; 6] = ["faultstring", "message", "reason", "title", "h1", "h2"];
/// Elements within a sentence; others end a line.
const INLINE: [&str; 9] = ["a", "b", "code", "em", "font", "i", "small", "span", "strong"];
/// Elements whose text nobody sees.
const UNSEEN: [&str; 2] = ["script", "style"];

/// The sentence for a dead letter: from the excerpt of the last answer, else why the last attempt failed, else why the
/// delivery was given up.
pub fn of_dead_letter(
    excerpt: Option<&str>,
    failed_reason: Option<&str>,
    given_up: Option<&str>,
) -> Option<String> {
    let said = excerpt.and_then(of_answer);
    said.or_else(|| failed_reason.and_then(shortened)).or_else(|| given_up.and_then(shortened))
}

/// The sentence of an answer, from the stored excerpt, which may be cut anywhere. `None`: the answer has no text.
///
/// ```
/// use oncebox::model::answer_sentence::of_answer;
/// let said = of_answer(r#"{"title":"Unprocessable","detail":"unknown article A-99","status":422}"#);
/// assert_eq!(said.as_deref(), Some("unknown article A-99"));
/// ```
pub fn of_answer(excerpt: &str) -> Option<String> {
    let text = without_note(excerpt.trim());
    let found = match text.chars().next()? {
        '{' | '[' | '"' => match serde_json::from_str::<Value>(text) {
            Ok(value) if is_empty(&value) => return None,
            Ok(value) => of_json(&value),
            Err(_) => of_cut_json(text),
        },
        '<' => of_markup(text),
        _ => None,
    };
    shortened(found.as_deref().unwrap_or(text))
}

/// The answer without the note on its head: `[the length was missing] …`.
fn without_note(excerpt: &str) -> &str {
    let noted = excerpt.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let noted = noted.filter(|(note, _)| !note.contains(['{', '[', '"']));
    noted.map_or(excerpt, |(_, answer)| answer.trim_start())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The error's text in a JSON answer.
fn of_json(value: &Value) -> Option<String> {
    // Odoo: the message of the error itself is always "Odoo Server Error".
    let odoo = value.pointer("/error/data/message");
    odoo.and_then(|message| of_value(message, 0)).or_else(|| of_value(value, 0)).or_else(|| {
        let lists = value.as_object()?.iter().filter(|(_, value)| value.is_array());
        of_members(lists, 0)
    })
}

/// The first text in a value, by the names of fields.
fn of_value(value: &Value, depth: u8) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    let deeper = depth.saturating_add(1);
    match value {
        Value::String(text) => of_text(text, deeper),
        Value::Array(items) => items.iter().find_map(|item| of_value(item, deeper)),
        Value::Object(fields) => FIELDS.iter().find_map(|name| of_field(fields, name, deeper)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// A text, which may itself be JSON, as Frappe sends it.
fn of_text(text: &str, depth: u8) -> Option<String> {
    let text = text.trim();
    let is_json = text.starts_with(['{', '[']);
    let inner = is_json.then(|| match serde_json::from_str::<Value>(text) {
        Ok(value) => of_value(&value, depth),
        Err(_) => of_cut_json(text),
    });
    inner.flatten().or_else(|| (!text.is_empty()).then(|| text.to_owned()))
}

fn of_field(fields: &Map<String, Value>, name: &str, depth: u8) -> Option<String> {
    let is_named = |field: &&String| field.eq_ignore_ascii_case(name);
    let value = fields.get(fields.keys().find(is_named)?)?;
    match value {
        Value::Object(errors) if name == "errors" => of_members(errors.iter(), depth),
        value => of_value(value, depth),
    }
}

/// The first text of errors by field, with the field's name: `sku: unknown article`.
fn of_members<'v>(
    mut errors: impl Iterator<Item = (&'v String, &'v Value)>,
    depth: u8,
) -> Option<String> {
    errors.find_map(|(field, value)| {
        let said = of_value(value, depth)?;
        let is_of_all =
            matches!(field.as_str(), "base" | "message" | "detail" | "non_field_errors");
        Some(if is_of_all { said } else { format!("{field}: {said}") })
    })
}

/// The error's text in JSON whose end is missing: the text after the first of the names.
fn of_cut_json(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    FIELDS.iter().find_map(|name| {
        let quoted = format!("\"{name}\"");
        let mut from = 0;
        while let Some(start) = lower.get(from..)?.find(&quoted) {
            from = from.saturating_add(start).saturating_add(quoted.len());
            if let Some(found) = text.get(from..).and_then(text_after_colon) {
                return of_text(&found, 0);
            }
        }
        None
    })
}

/// The JSON text after a field's name, without its escapes; it may lack its end.
fn text_after_colon(rest: &str) -> Option<String> {
    let raw = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut is_escaped = false;
    let end = raw.find(|c: char| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    let raw = raw.get(..end.unwrap_or(raw.len()))?;
    let read = |raw: &str| serde_json::from_str::<String>(&format!("\"{raw}\"")).ok();
    let whole = || raw.rsplit_once('\\').and_then(|(whole, _)| read(whole));
    read(raw).or_else(whole).filter(|text| !text.trim().is_empty())
}

/// A part of a page or an XML document.
enum Piece<'a> {
    Text(&'a str),
    Tag {
        /// The name without its prefix.
        name: &'a str,
        is_end: bool,
    },
}

/// The parts of markup, in their order. A tag without its end is the last part.
fn pieces(markup: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for (n, part) in markup.split('<').enumerate() {
        let is_tag = part.starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c));
        if n == 0 {
            pieces.push(Piece::Text(part));
        } else if is_tag {
            let (tag, text) = part.split_once('>').unwrap_or((part, ""));
            let is_end = tag.starts_with('/');
            let whole = tag.trim_start_matches('/');
            let whole = whole.split(|c: char| c.is_whitespace() || c == '/').next();
            let name = whole.and_then(|name| name.rsplit(':').next()).unwrap_or_default();
            pieces.push(Piece::Tag { name, is_end });
            pieces.push(Piece::Text(text));
        } else {
            pieces.push(Piece::Text("<"));
            pieces.push(Piece::Text(part));
        }
    }
    pieces
}

/// The text of a page or an XML document: of the first telling element, else all that is seen.
fn of_markup(markup: &str) -> Option<String> {
    let pieces = pieces(markup);
    ELEMENTS
        .iter()
        .find_map(|name| element(&pieces, name))
        .or_else(|| Some(seen(&pieces)).filter(|text| !text.trim().is_empty()))
}

/// The text of the first element of a name that has one.
fn element(pieces: &[Piece<'_>], wanted: &str) -> Option<String> {
    let mut at = 0;
    loop {
        let rest = pieces.get(at..)?;
        let start = rest.iter().position(|piece| is_tag(piece, wanted, false))?;
        let inner = rest.get(start.saturating_add(1)..)?;
        let end = inner.iter().position(|piece| is_tag(piece, wanted, true));
        let text = seen(inner.get(..end.unwrap_or(inner.len()))?);
        if !text.trim().is_empty() {
            return Some(text);
        }
        at = at.saturating_add(start).saturating_add(1);
    }
}

fn is_tag(piece: &Piece<'_>, wanted: &str, is_end_wanted: bool) -> bool {
    matches!(piece, Piece::Tag { name, is_end }
        if *is_end == is_end_wanted && name.eq_ignore_ascii_case(wanted))
}

/// The text that people see, a line for each block.
fn seen(pieces: &[Piece<'_>]) -> String {
    let mut text = String::new();
    let mut is_unseen = false;
    for piece in pieces {
        match piece {
            Piece::Text(part) if !is_unseen => text.push_str(part),
            Piece::Text(_) => {}
            Piece::Tag { name, is_end } => {
                let is_one_of =
                    |names: &[&str]| names.iter().any(|one| name.eq_ignore_ascii_case(one));
                if is_one_of(&UNSEEN) {
                    is_unseen = !is_end;
                }
                if !is_one_of(&INLINE) {
                    text.push('\n');
                }
            }
        }
    }
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'")];
    let plain = entities.iter().fold(text, |text, (name, c)| text.replace(name, c));
    plain.replace("&nbsp;", " ").replace("&amp;", "&")
}

/// The first line as a sentence: without tags, without what differs between requests, and not too long.
fn shortened(text: &str) -> Option<String> {
    let pieces = if text.contains('<') { pieces(text) } else { Vec::new() };
    let has_tags = pieces.iter().any(|piece| matches!(piece, Piece::Tag { .. }));
    let plain = if has_tags { seen(&pieces) } else { text.to_owned() };
    let is_said = |c: char| c.is_alphanumeric();
    let line = plain.lines().find(|line| line.contains(is_said))?;
    let visible: String = line.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    let words: Vec<&str> = visible.split_whitespace().collect();
    let sentence = without_passing(&words.join(" "));
    if sentence.chars().count() <= MAX_CHARS {
        return Some(sentence);
    }
    let beginning: String = sentence.chars().take(MAX_CHARS.saturating_sub(1)).collect();
    Some(format!("{}{OMITTED}", beginning.trim_end()))
}

/// Whether a character is a control, or changes the direction of others.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The text with [`OMITTED`] for UUIDs, times of day and long hexadecimal numbers, which differ between requests.
fn without_passing(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let is_start = before.is_none_or(|before: char| !before.is_ascii_alphanumeric());
        let found = if is_start { passing(rest.as_bytes()) } else { None };
        let length = found.unwrap_or_else(|| c.len_utf8());
        kept.push(if found.is_some() { OMITTED } else { c });
        before = Some(if found.is_some() { OMITTED } else { c });
        rest = rest.get(length..).unwrap_or_default();
    }
    kept
}

/// The length of a UUID, a time or a long hexadecimal number with which a text begins.
fn passing(text: &[u8]) -> Option<usize> {
    let found = uuid(text).or_else(|| time(text)).or_else(|| long_hex(text))?;
    let is_end = text.get(found).is_none_or(|next| !next.is_ascii_alphanumeric());
    is_end.then_some(found)
}

fn uuid(text: &[u8]) -> Option<usize> {
    let mut reader = Reader { text, at: 0 };
    reader.hex(8)?;
    for digits in [4, 4, 4, 12] {
        reader.one_of(b"-")?;
        reader.hex(digits)?;
    }
    Some(reader.at)
}

/// A time of day, with its date and zone if it has them. A date alone may be what the error is about.
fn time(text: &[u8]) -> Option<usize> {
    let mut reader = Reader { text, at: 0 };
    let dated = reader.date().and_then(|()| reader.one_of(b"T t"));
    if dated.is_none() {
        reader.at = 0;
    }
    reader.digits(2)?;
    reader.one_of(b":")?;
    reader.digits(2)?;
    reader.one_of(b":")?;
    reader.digits(2)?;
    if reader.one_of(b".,").is_some() {
        reader.run(u8::is_ascii_digit);
    }
    let end = reader.at;
    if reader.one_of(b"Zz").is_some() || reader.offset().is_some() {
        return Some(reader.at);
    }
    Some(end)
}

fn long_hex(text: &[u8]) -> Option<usize> {
    let mut reader = Reader { text, at: 0 };
    reader.run(u8::is_ascii_hexdigit);
    let digits = text.get(..reader.at)?;
    let is_id = digits.len() >= MIN_HEX_DIGITS && digits.iter().any(u8::is_ascii_digit);
    is_id.then_some(reader.at)
}

/// A position in a text. Each method reads on, or returns `None`.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Reads on while bytes fit.
    fn run(&mut self, fits: impl Fn(&u8) -> bool) {
        while self.text.get(self.at).is_some_and(&fits) {
            self.at = self.at.saturating_add(1);
        }
    }

    /// So many bytes that fit.
    fn exactly(&mut self, count: usize, fits: impl Fn(&u8) -> bool) -> Option<()> {
        let end = self.at.saturating_add(count);
        let is_fitting = self.text.get(self.at..end)?.iter().all(fits);
        is_fitting.then(|| self.at = end)
    }

    fn hex(&mut self, count: usize) -> Option<()> {
        self.exactly(count, u8::is_ascii_hexdigit)
    }

    fn digits(&mut self, count: usize) -> Option<()> {
        self.exactly(count, u8::is_ascii_digit)
    }

    fn one_of(&mut self, bytes: &[u8]) -> Option<()> {
        self.exactly(1, |byte| bytes.contains(byte))
    }

    fn date(&mut self) -> Option<()> {
        self.digits(4)?;
        self.one_of(b"-/.")?;
        self.digits(2)?;
        self.one_of(b"-/.")?;
        self.digits(2)
    }

    fn offset(&mut self) -> Option<()> {
        self.one_of(b"+-")?;
        self.digits(2)?;
        let _colon = self.one_of(b":");
        self.digits(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTICLE: &str = "unknown article A-99";

    #[test]
    fn an_answer_is_one_sentence_however_its_program_writes_errors() {
        for answer in [
            // RFC 9457.
            r#"{"type":"/e","title":"Unprocessable","status":422,"detail":"unknown article A-99"}"#,
            r#"{"type":"/e","title":"unknown article A-99","status":422}"#,
            // Plain forms.
            r#"{"message":"unknown article A-99"}"#,
            r#"{"Message":"","error":"unknown article A-99"}"#,
            r#"{"error":{"code":17,"message":"unknown article A-99"}}"#,
            r#"{"error":"invalid_request","error_description":"unknown article A-99"}"#,
            r#"{"errors":[{"code":"E1","message":"unknown article A-99"},{"message":"and more"}]}"#,
            r#"{"errors":["unknown article A-99"]}"#,
            r#"[{"errorCode":"NOT_FOUND","message":"unknown article A-99"}]"#,
            r#"{"detail":[{"loc":["body","sku"],"msg":"unknown article A-99","type":"value_error"}]}"#,
            r#"{"errors":[{"value":"A-99","msg":"unknown article A-99","param":"sku"}]}"#,
            r#"{"timestamp":"2026-11-29T19:00:00Z","error":"Unprocessable Entity","message":"unknown article A-99"}"#,
            // SAP OData, Odoo, Frappe, Shopify.
            r#"{"error":{"code":"X/1","message":{"lang":"en","value":"unknown article A-99"}}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":200,"message":"Odoo Server Error","data":{"name":"odoo.exceptions.UserError","debug":"Traceback","message":"unknown article A-99"}}}"#,
            r#"{"exc_type":"ValidationError","_server_messages":"[\"{\\\"message\\\": \\\"unknown article <b>A-99</b>\\\", \\\"indicator\\\": \\\"red\\\"}\"]"}"#,
            r#"{"errors":"unknown article A-99"}"#,
            r#"{"errors":{"base":["unknown article A-99"]}}"#,
            // Other media types.
            "unknown article A-99\nat line 7",
            "\u{feff}\n  unknown   article\tA-99  \n",
            r#""unknown article A-99""#,
            "<!DOCTYPE html><html><head><title>unknown article A-99</title></head><body>x</body></html>",
            "<html><style>p {}</style><script>alert(1)</script><p>unknown article <b>A-99</b></p><p>Bye</p></html>",
            "<soap:Envelope><soap:Fault><faultcode>c</faultcode><faultstring>unknown article A-99</faultstring></soap:Fault></soap:Envelope>",
            "<env:Reason><env:Text xml:lang=\"en\">unknown article A-99</env:Text></env:Reason>",
            // A note on the head of the answer, and answers that are cut.
            "[the length was missing] {\"message\":\"unknown article A-99\"}",
            r#"{"message":"unknown article A-99","trace":["a","b"#,
            r#"{"error":{"message":"unknown article A-99\nmore\u00"#,
            "<html><head><title>unknown article A-99",
        ] {
            assert_eq!(of_answer(answer).as_deref(), Some(ARTICLE), "{answer}");
        }
    }

    #[test]
    fn a_field_of_an_error_is_named_and_other_json_stays() {
        for (answer, sentence) in [
            (r#"{"errors":{"title":["can't be blank"]}}"#, "title: can't be blank"),
            (
                r#"{"title":"Validation failed","errors":{"Sku":["unknown article A-99"]}}"#,
                "Sku: unknown article A-99",
            ),
            (r#"{"sku":["unknown article A-99"]}"#, "sku: unknown article A-99"),
            (r#"{"non_field_errors":["no"]}"#, "no"),
            (r#"{"ok":false,"code":17}"#, r#"{"ok":false,"code":17}"#),
            ("5 < 6 and 7 > 6", "5 < 6 and 7 > 6"),
            ("<h1>A &lt; B &amp; C</h1>", "A < B & C"),
        ] {
            assert_eq!(of_answer(answer).as_deref(), Some(sentence), "{answer}");
        }
        for nothing in ["", "  \r\n", "{}", "[]", "\"\"", "<html></html>"] {
            assert_eq!(of_answer(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn what_differs_between_requests_splits_no_kind() {
        for (answer, sentence) in [
            ("order 0199aa11-bb22-7cc3-8dd4-eeff00112233: closed", "order …: closed"),
            ("at 2026-11-29T19:08:56.123Z: closed", "at …: closed"),
            ("at 2026-11-29 19:08:56+01:00, closed", "at …, closed"),
            ("(19:08:56) closed", "(…) closed"),
            ("trace 4bf92f3577b34da6a3ce929d0e0e4736 closed", "trace … closed"),
            ("req_4bf92f3577b34da6 closed", "req_… closed"),
            // These are what the error is about.
            ("2026-11-29 is no day of the year 2025", "2026-11-29 is no day of the year 2025"),
            ("invoice 4711, GTIN 4006381333931", "invoice 4711, GTIN 4006381333931"),
            ("deadbeef and A-99", "deadbeef and A-99"),
        ] {
            assert_eq!(of_answer(answer).as_deref(), Some(sentence), "{answer}");
        }
    }

    #[test]
    fn a_sentence_is_short_and_hides_nothing() {
        let long = of_answer(&"ä".repeat(2_048)).unwrap();
        assert_eq!(long.chars().count(), MAX_CHARS);
        assert!(long.ends_with("ä…"));
        assert_eq!(of_answer("a\u{202e}b\u{7}c").as_deref(), Some("a b c"));
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(of_answer(&deep), None);
    }

    #[test]
    fn without_an_answer_the_failure_is_the_sentence() {
        let of = |excerpt, reason| of_dead_letter(excerpt, reason, Some("given up"));
        assert_eq!(of(Some("closed"), Some("the target answered 422")).as_deref(), Some("closed"));
        assert_eq!(of(Some("{}"), Some("no route")).as_deref(), Some("no route"));
        assert_eq!(of(None, None).as_deref(), Some("given up"));
    }
}

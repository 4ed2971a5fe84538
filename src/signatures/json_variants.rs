//! Re-serialisations of a JSON value by other programs: spaces, indents, order and escapes differ, the value does not.

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Value};
use std::io;

/// Every usual form, with its description.
pub(super) fn forms(value: &Value) -> Vec<(&'static str, Vec<u8>)> {
    let sorted = sorted(value);
    let compact = value.to_string();
    vec![
        ("re-serialised: compact", compact.clone().into_bytes()),
        ("re-serialised: with a space after `,` and `:`", written(value, Spaced)),
        ("re-serialised: indented by 2", written(value, PrettyFormatter::with_indent(b"  "))),
        ("re-serialised: indented by 4", written(value, PrettyFormatter::with_indent(b"    "))),
        ("re-serialised: sorted by name, compact", sorted.to_string().into_bytes()),
        ("re-serialised: sorted by name, with spaces", written(&sorted, Spaced)),
        (
            "re-serialised: sorted by name, indented by 2",
            written(&sorted, PrettyFormatter::with_indent(b"  ")),
        ),
        ("re-serialised: compact, slashes escaped", compact.replace('/', "\\/").into_bytes()),
        ("re-serialised: compact, only ASCII", ascii(&compact).into_bytes()),
        (
            "re-serialised: with spaces, only ASCII",
            ascii(&String::from_utf8_lossy(&written(value, Spaced))).into_bytes(),
        ),
    ]
}

fn written(value: &Value, form: impl Formatter) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut to = serde_json::Serializer::with_formatter(&mut bytes, form);
    // Writing a value to memory cannot fail; a form that did would match nothing.
    if value.serialize(&mut to).is_err() { Vec::new() } else { bytes }
}

/// The value with the members of all objects sorted by name.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_unstable();
            let pair = |name: &String| Some((name.clone(), sorted(fields.get(name)?)));
            Value::Object(names.into_iter().filter_map(pair).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Escapes all characters beyond ASCII as `\u…`.
fn ascii(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if letter.is_ascii() {
            escaped.push(letter);
            continue;
        }
        let mut units = [0; 2];
        escaped.extend(letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
    }
    escaped
}

/// The format of Python's `json.dumps`.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

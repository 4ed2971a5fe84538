//! Formats one log event as one line.
//!
//! No value can end the line, begin another field, or send control sequences to a terminal: both formats escape
//! all control characters and all characters that change the direction of text.

use crate::base::clock::Timestamp;

/// The field in which tracing passes the text of an event.
const MESSAGE: &str = "message";

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `key=value`, for people.
    Logfmt,
    /// One JSON object, for programs.
    Json,
}

/// The fields that every line has.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) at: Timestamp,
    pub(super) level: &'static str,
    /// The module that logs the event.
    pub(super) target: &'a str,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number or a boolean, written as it is.
    Plain(String),
    /// Anything else, escaped.
    Text(String),
}

/// The fields of an event, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    pub(super) fn push(&mut self, name: &'static str, value: Value) {
        self.0.push((name, value));
    }

    /// Adds the fields of an outer span that the event does not have itself.
    pub(super) fn inherit(&mut self, outer: &Self) {
        for (name, value) in &outer.0 {
            if !self.0.iter().any(|(have, _)| have == name) {
                self.0.push((name, value.clone()));
            }
        }
    }

    fn message(&self) -> &str {
        let found = self.0.iter().find(|(name, _)| *name == MESSAGE);
        found.map_or("", |(_, Value::Text(text) | Value::Plain(text))| text)
    }

    fn others(&self) -> impl Iterator<Item = &(&'static str, Value)> {
        self.0.iter().filter(|(name, _)| *name != MESSAGE)
    }
}

/// Appends the line, ended by a newline.
pub(super) fn write(to: &mut String, form: Form, head: &Head<'_>, fields: &Fields) {
    let Head { at, level, target } = head;
    let start = match form {
        Form::Logfmt => format!("time={at} level={level} msg="),
        Form::Json => format!("{{\"time\":\"{at}\",\"level\":\"{level}\",\"message\":"),
    };
    to.push_str(&start);
    match form {
        Form::Logfmt => bare_or_quoted(to, fields.message()),
        Form::Json => quoted(to, fields.message()),
    }
    for (name, value) in fields.others() {
        match form {
            Form::Logfmt => {
                to.push(' ');
                to.push_str(name);
                to.push('=');
            }
            Form::Json => {
                to.push(',');
                quoted(to, name);
                to.push(':');
            }
        }
        match (value, form) {
            (Value::Plain(text), _) => to.push_str(text),
            (Value::Text(text), Form::Logfmt) => bare_or_quoted(to, text),
            (Value::Text(text), Form::Json) => quoted(to, text),
        }
    }
    match form {
        Form::Logfmt => to.push('\n'),
        Form::Json => {
            to.push_str(",\"target\":");
            quoted(to, target);
            to.push_str("}\n");
        }
    }
}

fn bare_or_quoted(to: &mut String, text: &str) {
    let plain = |c: char| c.is_alphanumeric() || "-_.:/+@%,()[]{}*'".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        to.push_str(text);
    } else {
        quoted(to, text);
    }
}

fn quoted(to: &mut String, text: &str) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            _ if deceives(c) => {
                let escaped = format!("\\u{:04x}", u32::from(c));
                to.push_str(&escaped);
            }
            _ => to.push(c),
        }
    }
    to.push('"');
}

/// Control characters, line and paragraph separators, marks that change the direction of text, and invisible
/// characters. All of them have four hex digits.
fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: Form, fields: &[(&'static str, &str)]) -> String {
        let head = Head { at: Timestamp::from_secs(0), level: "info", target: "oncebox::api" };
        let mut all = Fields::default();
        for (name, value) in fields {
            all.push(name, Value::Text((*value).to_owned()));
        }
        all.push("status", Value::Plain("401".to_owned()));
        let mut text = String::new();
        write(&mut text, form, &head, &all);
        text
    }

    #[test]
    fn a_line_has_its_head_and_its_fields() {
        let fields = [("message", "a request was refused"), ("path", "/in/stripe")];
        assert_eq!(
            line(Form::Logfmt, &fields),
            "time=1970-01-01T00:00:00.000Z level=info msg=\"a request was refused\" path=/in/stripe \
             status=401\n"
        );
        assert_eq!(
            line(Form::Json, &fields),
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"info\",\"message\":\"a request was \
             refused\",\"path\":\"/in/stripe\",\"status\":401,\"target\":\"oncebox::api\"}\n"
        );
    }

    #[test]
    fn no_value_can_forge_a_line_or_a_field() {
        let evil =
            "x\nlevel=error msg=forged\r\u{1b}[2J\0\u{7f}\u{9b}31m\" a=\"b\u{2028}\u{202e}\\";
        for form in [Form::Logfmt, Form::Json] {
            let text = line(form, &[("message", evil), ("cause", evil)]);
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.ends_with('\n'));
            assert!(!text.trim_end().chars().any(deceives), "{text:?}");
        }
        let json = line(Form::Json, &[("message", evil), ("cause", evil)]);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["message"], evil);
        assert_eq!(read["cause"], evil);
        assert_eq!(read.as_object().unwrap().len(), 6, "{read}");
    }

    #[test]
    fn ambiguous_values_are_quoted() {
        for (value, shown) in [
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a=b", "\"a=b\""),
            ("\"", "\"\\\"\""),
            ("äöü", "äöü"),
            ("https://x/y", "https://x/y"),
        ] {
            let text = line(Form::Logfmt, &[("message", "m"), ("k", value)]);
            assert!(text.contains(&format!(" k={shown} ")), "{text}");
        }
    }

    #[test]
    fn a_field_of_the_event_wins_over_one_of_its_span() {
        let mut own = Fields::default();
        own.push("request_id", Value::Text("own".to_owned()));
        let mut outer = Fields::default();
        outer.push("request_id", Value::Text("outer".to_owned()));
        outer.push("other", Value::Text("taken".to_owned()));
        own.inherit(&outer);
        assert_eq!(own.0.len(), 2);
        assert_eq!(own.0[0].1, Value::Text("own".to_owned()));
    }
}

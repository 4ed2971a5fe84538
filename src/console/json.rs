//! Reads fields of the API's answers, and indents JSON. A field that is missing or null is empty: pages show what is
//! there.

use std::fmt::Write as _;

use serde_json::Value;

use crate::model::json::carried;

/// Fields of a JSON object.
pub(super) trait Fields {
    /// A text; empty if there is none.
    fn text(&self, name: &str) -> &str;
    /// A text, if there is one.
    fn maybe(&self, name: &str) -> Option<&str>;
    /// The first of these texts that is there; empty if none is.
    fn first_of(&self, names: &[&str]) -> &str {
        names.iter().find_map(|name| self.maybe(name)).unwrap_or_default()
    }
    /// A whole number; 0 if there is none.
    fn int(&self, name: &str) -> i64;
    /// Whether a field is `true`.
    fn is(&self, name: &str) -> bool;
    /// The items of a list; none if there is no list.
    fn items(&self, name: &str) -> &[Value];
    /// What is made of each item of a list.
    fn each<T>(&self, name: &str, with: impl FnMut(&Value) -> T) -> Vec<T> {
        self.items(name).iter().map(with).collect()
    }
    /// A field; null if there is none.
    fn field(&self, name: &str) -> &Value;
}

impl Fields for Value {
    fn text(&self, name: &str) -> &str {
        self.maybe(name).unwrap_or_default()
    }

    fn maybe(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Self::as_str)
    }

    fn int(&self, name: &str) -> i64 {
        self.get(name).and_then(Self::as_i64).unwrap_or_default()
    }

    fn is(&self, name: &str) -> bool {
        self.get(name).and_then(Self::as_bool).unwrap_or_default()
    }

    fn items(&self, name: &str) -> &[Value] {
        self.get(name).and_then(Self::as_array).map_or(&[], Vec::as_slice)
    }

    fn field(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Self::Null)
    }
}

/// Texts of an answer, with what would hide or turn around other text made visible.
pub(super) fn visible(mut answer: Value) -> Value {
    make_visible(&mut answer);
    answer
}

fn make_visible(answer: &mut Value) {
    match answer {
        Value::String(text) if hides_something(text) && !carried::is_number(text) => {
            *text = shown(text);
        }
        Value::Array(items) => items.iter_mut().for_each(make_visible),
        Value::Object(fields) => fields.values_mut().for_each(make_visible),
        _ => {}
    }
}

/// Whether a text has a hidden character. Most are printable ASCII, which is seen at a glance.
fn hides_something(text: &str) -> bool {
    !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.contains(is_hidden)
}

/// A text with hidden characters as `[U+202E]`.
pub(super) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            let _written = write!(out, "[U+{:04X}]", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a character controls others, or their direction. Source: Unicode, UAX 9, section 2.
fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON text with indents, which ends after `most` bytes: at most that many are shown. Only whitespace changes: numbers
/// keep their digits.
pub(super) fn indented(json: &str, most: usize) -> String {
    let mut out = String::new();
    let mut depth = 0_usize;
    let mut in_text = false;
    let mut is_escaped = false;
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut chars = json.chars().filter(|c| !c.is_control()).peekable();
    while let Some(c) = chars.next().filter(|_| out.len() <= most) {
        if in_text {
            out.push(c);
            in_text = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            continue;
        }
        match c {
            ' ' => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if_eq(&' ').is_some() {}
                if let Some(end) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth = depth.saturating_add(1);
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => {
                in_text = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// JSON text for people: letters that are written as `\u00e9` are shown as they are read. `None` if there are none.
/// What would end a text, control it or hide in it stays escaped.
pub(super) fn readable(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let mut is_changed = false;
    while let Some((before, from)) = rest.find('\\').map(|at| rest.split_at(at)) {
        out.push_str(before);
        let first = unit(from);
        let second = from.get(6..).and_then(unit);
        let letter = |units: &[u16]| char::decode_utf16(units.iter().copied()).next()?.ok();
        let alone = first.and_then(|first| letter(&[first])).map(|c| (c, 6));
        let pair = || Some((letter(&[first?, second?])?, 12));
        let found = alone.or_else(pair).filter(|(c, _)| !c.is_ascii() && !is_hidden(*c));
        if let Some((c, length)) = found {
            out.push(c);
            is_changed = true;
            rest = from.get(length..).unwrap_or_default();
        } else {
            // The escape and the character behind it.
            let length = 1 + from.chars().nth(1).map_or(0, char::len_utf8);
            let (escape, behind) = from.split_at(length);
            out.push_str(escape);
            rest = behind;
        }
    }
    out.push_str(rest);
    is_changed.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::{indented, readable};

    #[test]
    fn letters_are_shown_as_they_are_read() {
        for (json, text) in [
            (r#"{"name":"Ren\u00e9"}"#, Some(r#"{"name":"René"}"#)),
            (r#""\ud83d\ude00 \\u00e9 \n""#, Some(r#""😀 \\u00e9 \n""#)),
            (r#""\u0022 \u202e \ud83d \u00""#, None),
            ("é", None),
        ] {
            assert_eq!(readable(json).as_deref(), text, "{json}");
        }
    }

    #[test]
    fn a_deep_text_is_cut_before_it_is_indented() {
        let deep = format!("{}{}0{}", "[".repeat(120), "0,".repeat(1 << 20), "]".repeat(120));
        let shown = indented(&deep, 20_000);
        assert!((20_001..20_300).contains(&shown.len()), "{}", shown.len());
        assert_eq!(indented(r#"{"a":[ ],"b": 1.50}"#, 100), "{\n  \"a\": [],\n  \"b\": 1.50\n}");
    }
}

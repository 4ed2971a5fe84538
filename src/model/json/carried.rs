//! JSON that passes through [`serde_json::Value`], which rounds numbers to floats: digits that it would lose are carried as
//! marked texts, and written as numbers again.
//!
//! For programs that put requests together, such as the command line and the console. Not here: payloads, which are never
//! put together anew.

use std::borrow::Cow;

use serde_json::Value;

use crate::model::json::number::Decimal;
use crate::model::json::value::{Json, Unreadable};

/// Stands before the digits of a number that is carried as a text. A zero byte can neither be typed nor be an argument.
const MARK: &str = "\u{0}number:";

/// Reads JSON into a value that [`written`] writes with all digits.
/// Fails like [`Json::read`].
pub fn read(json: &[u8]) -> Result<Value, Unreadable> {
    // serde reads most answers twice as fast.
    if has_short_whole_numbers(json)
        && let Ok(value) = serde_json::from_slice(json)
    {
        return Ok(value);
    }
    Json::read(json).map(|value| to_value(&value))
}

/// Whether all numbers of a JSON text are whole and have few digits, so that serde keeps them as they are.
fn has_short_whole_numbers(json: &[u8]) -> bool {
    const MAX_DIGITS: usize = 15;
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let mut rest = json;
    while let Some((first, behind)) = rest.split_first() {
        if *first == b'"' {
            rest = behind_text(behind);
        } else if first.is_ascii_digit() || *first == b'-' {
            let length = rest.iter().take_while(|byte| is_of_number(byte)).count();
            let (number, behind) = rest.split_at(length);
            let digits = number.strip_prefix(b"-").unwrap_or(number);
            let is_negative_zero = number.starts_with(b"-0");
            let is_whole = digits.iter().all(u8::is_ascii_digit);
            if !is_whole || digits.len() > MAX_DIGITS || is_negative_zero {
                return false;
            }
            rest = behind;
        } else {
            rest = behind;
        }
    }
    true
}

/// What follows the end of a text whose first quote was read.
fn behind_text(mut rest: &[u8]) -> &[u8] {
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        let end = end.unwrap_or(rest.len());
        let is_escape = rest.get(end) == Some(&b'\\');
        let skipped = end.saturating_add(if is_escape { 2 } else { 1 });
        rest = rest.get(skipped..).unwrap_or_default();
        if !is_escape {
            return rest;
        }
    }
}

/// The text of a value that serde has written, also within other text, with each number that was carried as a text as a
/// number again.
pub fn restored(text: &str) -> Cow<'_, str> {
    const WRITTEN: &str = "\"\\u0000number:";
    if !text.contains(WRITTEN) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(WRITTEN);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('"') {
            Some((digits, rest)) if Decimal::read(digits).is_some() => {
                whole.push_str(digits);
                whole.push_str(rest);
            }
            _ => {
                whole.push_str(WRITTEN);
                whole.push_str(part);
            }
        }
    }
    Cow::Owned(whole)
}

/// Writes a value, and each number that was carried as a text with its digits.
pub fn written(value: &Value) -> String {
    if is_carried(value) { to_json(value).to_string() } else { value.to_string() }
}

fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Whole(number) => Value::from(*number),
        Json::Number(digits) => exact(digits).unwrap_or_else(|| format!("{MARK}{digits}").into()),
        Json::Text(text) => Value::from(&**text),
        Json::List(items) => items.iter().map(to_value).collect(),
        Json::Object(members) => {
            members.iter().map(|(name, value)| (name.to_owned(), to_value(value))).collect()
        }
    }
}

/// The number, if serde writes it as it is written here.
fn exact(digits: &str) -> Option<Value> {
    let number: Value = serde_json::from_str(digits).ok()?;
    let is_exact = serde_json::to_string(&number).is_ok_and(|text| text == digits);
    is_exact.then_some(number)
}

/// Whether a text is a number that is carried.
pub fn is_number(text: &str) -> bool {
    number(text).is_some()
}

fn number(text: &str) -> Option<&str> {
    text.strip_prefix(MARK).filter(|digits| Decimal::read(digits).is_some())
}

fn is_carried(value: &Value) -> bool {
    match value {
        Value::String(text) => number(text).is_some(),
        Value::Array(items) => items.iter().any(is_carried),
        Value::Object(members) => members.values().any(is_carried),
        _ => false,
    }
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Array(items) => Json::List(items.iter().map(to_json).collect()),
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| (name.as_str().into(), to_json(value)));
            Json::object(members.collect())
        }
        Value::String(text) => match number(text) {
            Some(digits) => Json::Number(digits.into()),
            None => Json::text(text),
        },
        other => Json::from(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_carried_through_a_value() {
        for text in [
            r#"{"value":18446744073709551617}"#,
            r#"[{"multipleOf":0.10},1e400,-0,1.50,7,2.5,"1e400",null,true]"#,
            "123456789012345678.91",
        ] {
            let value = read(text.as_bytes()).unwrap();
            assert_eq!(written(&value), text);
            assert_eq!(restored(&value.to_string()), text);
        }
        for text in [r#"{"a":"number:1"}"#, "\"\\u0000number:x\"", "\"\\u0000number:1"] {
            assert_eq!(restored(text), text);
        }
        assert!(read(b"paid").is_err());
        // Texts are no numbers, whatever is in them.
        let texts = r#"{"a\"1.50":"\\","b":[-7,"0.10",{"c":123456789012345}]}"#;
        assert!(has_short_whole_numbers(texts.as_bytes()));
        assert_eq!(written(&read(texts.as_bytes()).unwrap()), texts);
        for number in ["1.5", "1e3", "-0", "1234567890123456"] {
            let text = format!(r#"{{"a":"x","b":{number}}}"#);
            assert!(!has_short_whole_numbers(text.as_bytes()), "{number}");
            assert_eq!(written(&read(text.as_bytes()).unwrap()), text);
        }
        let shown = read(br#"{"a":1e400,"b":"\ud83d","c":1.5}"#).unwrap();
        assert_eq!(written(&shown), "{\"a\":1e400,\"b\":\"\u{fffd}\",\"c\":1.5}");
    }
}

//! Values in the body of a template, escaped for the kind of text that the body is.

use std::borrow::Cow;

use crate::model::format::Escape;

/// A text that a template writes, escaped. The error says which character the kind cannot hold.
pub fn text(kind: Escape, text: &str) -> Result<Cow<'_, str>, String> {
    match kind {
        Escape::Json => {
            serde_json::to_string(text).map(Cow::Owned).map_err(|error| error.to_string())
        }
        Escape::Csv => Ok(csv(text)),
        Escape::Xml => xml(text),
    }
}

/// Whether null is written as nothing: a field of CSV and an element of XML have no null.
pub const fn has_no_null(kind: Escape) -> bool {
    matches!(kind, Escape::Csv | Escape::Xml)
}

/// The delimiter is the template's, so the usual ones are all quoted.
fn csv(text: &str) -> Cow<'_, str> {
    let is_special = |c: char| matches!(c, '"' | ',' | ';' | '\t' | '|' | '\r' | '\n');
    let has_edge = text.starts_with(' ') || text.ends_with(' ');
    if has_edge || text.contains(is_special) {
        return Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")));
    }
    Cow::Borrowed(text)
}

fn xml(text: &str) -> Result<Cow<'_, str>, String> {
    let is_held =
        |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..) && !matches!(c, '\u{fffe}' | '\u{ffff}');
    if let Some(bad) = text.chars().find(|c| !is_held(*c)) {
        return Err(format!("XML cannot hold the character {bad:?}"));
    }
    if !text.contains(['&', '<', '>', '"', '\'', '\r']) {
        return Ok(Cow::Borrowed(text));
    }
    let mut escaped = String::with_capacity(text.len().saturating_add(16));
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // Readers make a line feed of a bare one.
            '\r' => escaped.push_str("&#13;"),
            other => escaped.push(other),
        }
    }
    Ok(Cow::Owned(escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_as_it_was() {
        for (kind, given, written) in [
            (Escape::Json, "a\"\\\n€", r#""a\"\\\n€""#),
            (Escape::Json, "", r#""""#),
            (Escape::Csv, "plain text", "plain text"),
            (Escape::Csv, "a;b", "\"a;b\""),
            (Escape::Csv, "say \"x\"", "\"say \"\"x\"\"\""),
            (Escape::Csv, "two\nlines", "\"two\nlines\""),
            (Escape::Csv, " edge", "\" edge\""),
            (Escape::Csv, "=1+2", "=1+2"),
            (Escape::Csv, "", ""),
            (
                Escape::Xml,
                "Müller & Söhne <\"x\"> 'y'",
                "Müller &amp; Söhne &lt;&quot;x&quot;&gt; &apos;y&apos;",
            ),
            (Escape::Xml, "a\r\nb\tc", "a&#13;\nb\tc"),
        ] {
            assert_eq!(text(kind, given).as_deref(), Ok(written), "{kind:?} {given:?}");
        }
    }

    #[test]
    fn a_character_that_xml_cannot_hold_is_named() {
        for bad in ["a\u{b}", "\u{0}", "x\u{ffff}"] {
            let why = text(Escape::Xml, bad).unwrap_err();
            assert!(why.contains("XML cannot hold"), "{why}");
        }
    }
}

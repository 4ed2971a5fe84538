//! Text of files that people make.

/// The byte order mark of UTF-8, which editors of Windows write before a text.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The bytes without a byte order mark before them.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(&MARK).unwrap_or(bytes)
}

/// Removes a byte order mark from the beginning of a text.
///
/// ```
/// let mut text = "\u{feff}[delivery]".to_owned();
/// oncebox::base::text::remove_mark(&mut text);
/// assert_eq!(text, "[delivery]");
/// ```
pub fn remove_mark(text: &mut String) {
    if text.as_bytes().starts_with(&MARK) {
        text.drain(..MARK.len());
    }
}

//! How deep JSON is nested, counted before anything recurses into it.

/// How deep JSON may be nested.
pub const MAX_DEPTH: usize = 128;

/// Whether JSON is nested no deeper than [`MAX_DEPTH`]. What is no JSON may be told either way.
///
/// ```
/// use oncebox::model::nesting::is_shallow;
/// assert!(is_shallow(br#"{"a":["[[["]}"#));
/// assert!(!is_shallow(&b"[".repeat(129)));
/// ```
pub fn is_shallow(json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match (in_string, *byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => depth = depth.saturating_add(1),
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return false;
        }
    }
    true
}

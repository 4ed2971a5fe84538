//! W3C trace context: the trace id of the caller is passed on to the receiver.

/// The trace id of a `traceparent` field (W3C Trace Context, section 3.2); `None` if it is not valid.
///
/// ```
/// use oncebox::model::trace::trace_id;
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// assert_eq!(trace_id(header).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
/// assert_eq!(trace_id("00-00000000000000000000000000000000-00f067aa0ba902b7-01"), None);
/// ```
pub fn trace_id(traceparent: &str) -> Option<String> {
    let mut parts = traceparent.split('-');
    let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length
            && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|b| b != b'0')
    };
    let version_ok =
        version.len() == 2 && version != "ff" && version.bytes().all(|b| b.is_ascii_hexdigit());
    (version_ok && hex(trace, 32) && hex(parent, 16)).then(|| trace.to_owned())
}

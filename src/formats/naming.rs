//! The names of files and the subjects of mails, which a template makes or which follow from the event.

use crate::model::delivery::OutgoingRequest;
use crate::model::event::PING;
use crate::model::folder::{file_name, unique_file_name};

/// The longest subject.
const MAX_SUBJECT_CHARS: usize = 250;
/// Media types with the ending of a file that has one. The first that the type begins with or ends with counts.
const ENDINGS: [(&str, &str); 7] = [
    ("application/x-ndjson", "ndjson"),
    ("json", "json"),
    ("xml", "xml"),
    ("text/csv", "csv"),
    ("text/html", "html"),
    ("text/", "txt"),
    ("application/pdf", "pdf"),
];

/// The name of the file of an event, from the text that a template made, or by itself. The error says why it is no name.
pub fn file(outgoing: &OutgoingRequest, made: Option<&str>) -> Result<String, String> {
    unique_file_name(&text(outgoing, made), [&outgoing.event_id, &outgoing.webhook_id])
}

/// The name of the attachment of an event, which need not be unique. The error says why it is no name.
pub fn attachment(outgoing: &OutgoingRequest, made: Option<&str>) -> Result<String, String> {
    file_name(&text(outgoing, made))
}

fn text(outgoing: &OutgoingRequest, made: Option<&str>) -> String {
    let by_itself = || format!("{}.{}", outgoing.webhook_id, ending(&outgoing.content_type));
    made.map_or_else(by_itself, str::to_owned)
}

/// The ending of a file with this media type.
fn ending(content_type: &str) -> &'static str {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is = |word: &str| kind.starts_with(word) || kind.ends_with(word);
    ENDINGS.iter().find(|(word, _)| is(word)).map_or("bin", |(_, ending)| ending)
}

/// The subject of the mail of an event, in one line, from the text that a template made, or by itself.
pub fn subject(outgoing: &OutgoingRequest, made: Option<&str>) -> String {
    let of = outgoing.aggregate_id.as_deref().unwrap_or(&outgoing.event_id);
    let by_itself = || match outgoing.event_type.as_str() {
        PING => format!("Test of the subscription {of}"),
        event_type => format!("{event_type} {of}"),
    };
    let text = made.map_or_else(by_itself, str::to_owned);
    let in_line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    in_line.take(MAX_SUBJECT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::ending;

    #[test]
    fn a_media_type_gives_the_ending() {
        for (content_type, wanted) in [
            ("application/json", "json"),
            ("application/cloudevents+json; charset=utf-8", "json"),
            ("application/x-ndjson", "ndjson"),
            ("text/xml", "xml"),
            ("application/atom+XML", "xml"),
            ("text/csv; header=present", "csv"),
            ("text/plain", "txt"),
            ("application/octet-stream", "bin"),
            ("", "bin"),
        ] {
            assert_eq!(ending(content_type), wanted, "{content_type}");
        }
    }
}

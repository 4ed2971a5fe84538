//! The answer of a scheme to a webhook that is stored, and to one that will never be.
//!
//! By default it is Oncebox's own JSON. Not here: the exceptions as data ([`super::conduct`]), and handshakes
//! ([`super::handshake`]).

use super::Scheme;
use super::acknowledgement::{Acknowledgement, OK};
use super::check::Incoming;
use super::conduct::GiveUp;
use super::naming::json_view;

impl Scheme {
    /// The answer to a verified request when all of it is stored; `None`: Oncebox's own JSON.
    pub fn acknowledgement(&self, incoming: &Incoming<'_>) -> Option<Acknowledgement> {
        match self {
            Self::Generic(generic) if generic.settings().answer.is_some() => {
                return generic.settings().answer.clone();
            }
            Self::Adyen(adyen) if adyen.accepted => {
                let content_type = Some("text/plain".to_owned());
                let body = "[accepted]".to_owned();
                return Some(Acknowledgement { status: OK, content_type, body });
            }
            _ => {}
        }
        let facts = self.alike().find(|facts| !facts.answers.is_empty())?;
        let view = json_view(incoming);
        let found = facts.answers.iter().find(|answer| answer.is_for(incoming, &view))?;
        Some(Acknowledgement {
            status: OK,
            content_type: (!found.content_type.is_empty()).then(|| found.content_type.to_owned()),
            body: found.body.to_owned(),
        })
    }

    /// How to tell the provider not to send again a request that will never be accepted.
    pub fn give_up(&self) -> GiveUp {
        self.alike().next().map_or(GiveUp::Unprocessable, |facts| facts.give_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::headers::Headers;

    const FORM: &str = "application/x-www-form-urlencoded";

    fn answer(scheme: &str, content_type: &str, body: &[u8]) -> Option<(String, String)> {
        let scheme: Scheme = serde_json::from_str(scheme).unwrap();
        let mut headers = Headers::default();
        headers.push("content-type", content_type.as_bytes());
        let incoming = Incoming { method: "POST", path: "/", url: "", headers: &headers, body };
        let found = scheme.acknowledgement(&incoming)?;
        found.fit().unwrap();
        Some((found.content_type.unwrap_or_default(), found.body))
    }

    #[test]
    fn each_provider_gets_the_answer_that_it_reads() {
        let own = |header: &str| {
            format!(
                r#"{{"kind":"generic","check":{{"hmac":{{"signed":"{{body}}","header":"{header}"}}}}}}"#
            )
        };
        let clear = r#"{"response_action":"clear"}"#;
        let view = b"payload=%7B%22type%22%3A%22view_submission%22%7D";
        for (scheme, content_type, body, wanted) in [
            (r#"{"kind":"stripe"}"#, "application/json", &b"{}"[..], None),
            (r#"{"kind":"xero"}"#, "application/json", b"{}", Some(("", ""))),
            (&own("X-Xero-Signature"), "application/json", b"{}", Some(("", ""))),
            (&own("X-Signature"), "application/json", b"{}", None),
            (r#"{"kind":"slack"}"#, FORM, view, Some(("application/json", clear))),
            (r#"{"kind":"slack"}"#, FORM, b"command=%2Fa&text=b", Some(("", ""))),
            (r#"{"kind":"slack"}"#, "application/json", b"{\"type\":\"event_callback\"}", None),
            (r#"{"kind":"twilio"}"#, FORM, b"MessageSid=1", Some(("text/xml", "<Response/>"))),
            (r#"{"kind":"twilio"}"#, "application/json", b"{}", None),
            (r#"{"kind":"adyen","accepted":true}"#, "", b"{}", Some(("text/plain", "[accepted]"))),
        ] {
            let wanted = wanted.map(|(media, body)| (media.to_owned(), body.to_owned()));
            assert_eq!(answer(scheme, content_type, body), wanted, "{scheme} {content_type}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_sent_is_refused_when_it_is_set() {
        let refuse = |answer: &str| {
            let scheme = format!(
                r#"{{"kind":"generic","check":{{"basic":{{"user":"u"}}}},"answer":{answer}}}"#
            );
            serde_json::from_str::<Scheme>(&scheme).map_err(|error| error.to_string())
        };
        assert!(refuse("{}").is_ok());
        assert!(refuse(r#"{"status":204}"#).is_ok());
        assert!(refuse(r#"{"status":202,"content_type":"text/plain","body":"ok"}"#).is_ok());
        for (answer, why) in [
            (r#"{"status":500}"#, "must be 200 to 299"),
            (r#"{"status":204,"content_type":"text/plain","body":"a"}"#, "has no body"),
            (r#"{"body":"a"}"#, "go together"),
            (r#"{"content_type":"text/plain"}"#, "go together"),
            (r#"{"content_type":"text/\u0001","body":"a"}"#, "printable ASCII"),
            (r#"{"text":"a"}"#, "unknown field"),
        ] {
            assert!(refuse(answer).unwrap_err().contains(why), "{answer}");
        }
        let long = format!(r#"{{"content_type":"text/plain","body":"{}"}}"#, "a".repeat(4097));
        assert!(refuse(&long).unwrap_err().contains("4097 bytes"));
    }
}

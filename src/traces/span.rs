//! A span as OTLP/HTTP wants it in JSON: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>. Pure.
//!
//! Names of attributes: <https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-client>; those that begin with
//! `oncebox.` are ours.

use serde_json::{Value, json};

use crate::base::build;
use crate::base::clock::Timestamp;
use crate::model::outcome::AttemptClass;

/// The kind of a span that calls another service.
const CLIENT: u8 = 3;
/// The status of a span that failed; one that worked has none.
const ERROR: u8 = 2;

/// An attempt as a span of its event's trace.
#[derive(Clone, Debug, Default)]
pub struct AttemptSpan {
    /// The trace, 32 hexadecimal digits.
    pub trace: String,
    /// The span that the receiver gets in `traceparent`, 16 hexadecimal digits.
    pub span: String,
    /// The span with which the event came, if it is known.
    pub parent: Option<String>,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub tenant: String,
    pub subscription: String,
    pub event: String,
    pub event_type: String,
    /// `dlv_` and a number.
    pub delivery: String,
    /// The number of the attempt within the delivery.
    pub n: u32,
    pub class: AttemptClass,
    /// The method of the request.
    pub method: Option<String>,
    /// The host of a target with a URL, and its port if the URL has one.
    pub host: Option<String>,
    pub http_status: Option<u16>,
}

impl AttemptSpan {
    /// The span in JSON.
    fn to_otlp(&self) -> Value {
        let number = |value: u64| json!({ "intValue": value.to_string() });
        let text = |value: &str| json!({ "stringValue": value });
        let mut attributes = vec![
            attribute("oncebox.tenant", text(&self.tenant)),
            attribute("oncebox.subscription", text(&self.subscription)),
            attribute("oncebox.event", text(&self.event)),
            attribute("oncebox.event_type", text(&self.event_type)),
            attribute("oncebox.delivery", text(&self.delivery)),
            attribute("oncebox.attempt", number(self.n.into())),
        ];
        if let Some(method) = &self.method {
            attributes.push(attribute("http.request.method", text(method)));
        }
        if let Some((host, port)) = self.host.as_deref().map(host_and_port) {
            attributes.push(attribute("server.address", text(host)));
            attributes.extend(port.map(|port| attribute("server.port", number(port.into()))));
        }
        if let Some(status) = self.http_status {
            attributes.push(attribute("http.response.status_code", number(status.into())));
        }
        let mut span = json!({
            "traceId": self.trace,
            "spanId": self.span,
            "name": format!("deliver {}", self.subscription),
            "kind": CLIENT,
            "startTimeUnixNano": nanoseconds(self.started_at),
            "endTimeUnixNano": nanoseconds(self.finished_at),
        });
        if let Some(parent) = &self.parent {
            put(&mut span, "parentSpanId", parent.as_str().into());
        }
        if !self.class.is_success() {
            attributes.push(attribute("error.type", text(self.class.as_str())));
            put(&mut span, "status", json!({ "code": ERROR }));
        }
        put(&mut span, "attributes", attributes.into());
        span
    }
}

/// The body of a request that exports spans.
pub(super) fn export_request(spans: &[AttemptSpan]) -> Value {
    let spans: Vec<Value> = spans.iter().map(AttemptSpan::to_otlp).collect();
    let text = |value: &str| json!({ "stringValue": value });
    let resource = [
        attribute("service.name", text("oncebox")),
        attribute("service.version", text(build::VERSION)),
    ];
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "oncebox" }, "spans": spans }],
        }],
    })
}

/// How many spans a collector has refused, by its answer. 64-bit numbers are texts in JSON, and some collectors write
/// digits.
pub(super) fn refused(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let refused = answer.get("partialSuccess").and_then(|part| part.get("rejectedSpans"));
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    refused.and_then(number).unwrap_or_default()
}

/// The parts of `example.com:8443`, `example.com` and `[::1]:8443`.
fn host_and_port(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

fn put(span: &mut Value, name: &str, value: Value) {
    if let Some(members) = span.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// Nanoseconds since 1970, in digits.
fn nanoseconds(at: Timestamp) -> String {
    format!("{}000000", at.ms())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_form_of_the_protocol() {
        let span = AttemptSpan {
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            span: "00f067aa0ba902b7".to_owned(),
            started_at: Timestamp::from_ms(1_790_000_000_123),
            finished_at: Timestamp::from_ms(1_790_000_000_200),
            subscription: "erp".to_owned(),
            n: 2,
            http_status: Some(503),
            class: AttemptClass::Transient,
            ..AttemptSpan::default()
        };
        let request = export_request(&[span]);
        let span = &request["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span["name"], "deliver erp");
        assert_eq!(span["startTimeUnixNano"], "1790000000123000000");
        assert_eq!(span["status"], json!({ "code": 2 }));
        assert_eq!(span.get("parentSpanId"), None);
        let status = json!({ "key": "http.response.status_code", "value": { "intValue": "503" } });
        assert!(span["attributes"].as_array().unwrap().contains(&status), "{span}");
        assert_eq!(
            AttemptSpan::default().to_otlp().get("status").is_some(),
            !AttemptClass::default().is_success()
        );
    }

    #[test]
    fn a_port_is_no_part_of_the_host() {
        assert_eq!(host_and_port("example.com"), ("example.com", None));
        assert_eq!(host_and_port("example.com:8443"), ("example.com", Some(8_443)));
        assert_eq!(host_and_port("[::1]:8443"), ("[::1]", Some(8_443)));
        assert_eq!(host_and_port("[::1]"), ("[::1]", None));
    }

    #[test]
    fn an_answer_says_how_many_spans_were_refused() {
        assert_eq!(refused(b"{}"), 0);
        assert_eq!(refused(b""), 0);
        assert_eq!(refused(b"{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}"), 3);
        assert_eq!(refused(b"{\"partialSuccess\":{\"rejectedSpans\":4}}"), 4);
    }
}

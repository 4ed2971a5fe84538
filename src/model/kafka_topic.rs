//! The URL of a Kafka target: a cluster of the settings and a topic, which may name values of an event.
//!
//! Not here: the brokers of a cluster, which stand in the settings, and how they are reached (`targets::kafka`).

use crate::model::name::Name;

/// The longest name of a topic. Source: Apache Kafka, `org.apache.kafka.common.internals.Topic`.
const MAX_TOPIC_BYTES: usize = 249;
/// The values of an event that a topic can name.
const PLACEHOLDERS: [&str; 3] = ["event_type", "tenant", "aggregate_type"];
/// How such a URL is written.
const SHAPE: &str = "a Kafka URL is kafka://<cluster>/<topic>; the topic may have {event_type}, {tenant}, {aggregate_type}, letters, \
                     digits and . _ -";

/// Where events go in Kafka.
///
/// *Shape*: `kafka://<cluster>/<topic>`. The cluster is named in the settings.
///
/// ```
/// use oncebox::model::kafka_topic::KafkaTopic;
/// let topic = KafkaTopic::parse("kafka://centre/erp.{event_type}")?;
/// assert_eq!(topic.cluster(), "centre");
/// assert_eq!(topic.fill(|_| Some("order.paid"))?, "erp.order.paid");
/// assert!(topic.fill(|_| Some("order paid")).is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaTopic {
    text: String,
    cluster: Name,
    topic: String,
}

impl KafkaTopic {
    /// Reads a URL. The error says how one is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} cannot be read: {SHAPE}");
        let (cluster, topic) = text
            .strip_prefix("kafka://")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(wrong)?;
        let cluster = Name::parse(cluster).map_err(|error| format!("the cluster: {error}"))?;
        let read = Self { text: text.to_owned(), cluster, topic: topic.to_owned() };
        // Each value takes the place of its placeholder, so that what is left is checked too.
        read.fill(|_| Some("a")).map_err(|why| format!("{why}: {SHAPE}"))?;
        Ok(read)
    }

    /// The topic of one event. The error says which value cannot be part of a topic.
    pub fn fill<'v>(&self, value: impl Fn(&str) -> Option<&'v str>) -> Result<String, String> {
        let mut topic = self.topic.clone();
        for name in PLACEHOLDERS {
            let placeholder = format!("{{{name}}}");
            if topic.contains(&placeholder) {
                let value = value(name).filter(|value| !value.is_empty());
                let value = value
                    .ok_or_else(|| format!("the event has no {name}, which its topic needs"))?;
                // A brace in it would be read as the next placeholder.
                if !value.bytes().all(is_of_topics) {
                    return Err(format!("{name} is {value:?}, which cannot be part of a topic"));
                }
                topic = topic.replace(&placeholder, value);
            }
        }
        let fits = (1..=MAX_TOPIC_BYTES).contains(&topic.len()) && topic.bytes().all(is_of_topics);
        if !fits || topic == "." || topic == ".." {
            return Err(format!("{topic:?} is no name of a topic"));
        }
        Ok(topic)
    }

    /// The name of the cluster in the settings.
    pub fn cluster(&self) -> &str {
        self.cluster.as_str()
    }

    /// The URL, with its placeholders.
    pub fn url(&self) -> &str {
        &self.text
    }
}

const fn is_of_topics(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_topic_is_refused_with_how_one_is_written() {
        for wrong in [
            "https://centre/a",
            "kafka://centre",
            "kafka://centre/",
            "kafka:///a",
            "kafka://CENTRE/a",
            "kafka://centre/a b",
            "kafka://centre/{id}",
            "kafka://centre/..",
            &format!("kafka://centre/{}", "a".repeat(250)),
        ] {
            let why = KafkaTopic::parse(wrong).unwrap_err();
            assert!(
                why.contains("kafka://<cluster>/<topic>") || why.contains("the cluster"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_value_that_no_topic_can_hold_is_named() {
        let topic = KafkaTopic::parse("kafka://centre/{tenant}.{event_type}").unwrap();
        let value = |name: &str| Some(if name == "tenant" { "shop" } else { "{tenant}" });
        assert!(topic.fill(value).unwrap_err().contains("event_type"));
        assert!(topic.fill(|_| None).unwrap_err().contains("event_type"));
        let long = "a".repeat(200);
        assert!(topic.fill(|_| Some(&long)).unwrap_err().contains("no name of a topic"));
    }
}

//! What the errors of Kafka mean for an attempt.

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::model::outcome::{AttemptClass, Outcome};

/// The outcome of a record that was not acknowledged. `was_down`: no broker was connected meanwhile.
pub(super) fn outcome(cluster: &str, code: Code, was_down: bool) -> Outcome {
    let is_away = match code {
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::Resolve => true,
        Code::MessageTimedOut | Code::OperationTimedOut => was_down,
        _ => false,
    };
    Outcome::Unacknowledged {
        class: class(code),
        is_away,
        code: word(code),
        reason: format!("the cluster {cluster}: {code}"),
    }
}

/// The class of an error. What a retry would only repeat is refused; what an administrator mends is waited for.
fn class(code: Code) -> AttemptClass {
    match code {
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication => AttemptClass::Auth,
        Code::MessageSizeTooLarge
        | Code::InvalidMessage
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidTopic
        | Code::InvalidTimestamp
        | Code::MessageBatchTooLarge
        | Code::PolicyViolation => AttemptClass::Validation,
        Code::ThrottlingQuotaExceeded => AttemptClass::RateLimited,
        _ => AttemptClass::Transient,
    }
}

/// `UnknownTopicOrPartition` as `unknown_topic_or_partition`.
fn word(code: Code) -> String {
    let mut word = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_class_and_a_word() {
        for (code, class, is_away, word) in [
            (
                Code::UnknownTopicOrPartition,
                AttemptClass::Transient,
                false,
                "unknown_topic_or_partition",
            ),
            (
                Code::TopicAuthorizationFailed,
                AttemptClass::Auth,
                false,
                "topic_authorization_failed",
            ),
            (Code::MessageSizeTooLarge, AttemptClass::Validation, false, "message_size_too_large"),
            (Code::NotEnoughReplicas, AttemptClass::Transient, false, "not_enough_replicas"),
            (Code::AllBrokersDown, AttemptClass::Transient, true, "all_brokers_down"),
            (Code::MessageTimedOut, AttemptClass::Transient, true, "message_timed_out"),
        ] {
            let Outcome::Unacknowledged { class: found, is_away: away, code: said, reason } =
                outcome("centre", code, true)
            else {
                panic!("{code:?} has another outcome");
            };
            assert_eq!((found, away, said.as_str()), (class, is_away, word));
            assert!(reason.starts_with("the cluster centre: "), "{reason}");
        }
        assert!(!outcome("centre", Code::MessageTimedOut, false).is_away());
    }
}

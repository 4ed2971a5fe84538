//! What the errors of Kafka mean for an attempt.

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::model::outcome::{AttemptClass, Outcome};
use crate::targets::kafka::reports::BrokerLine;

/// The outcome of a record that was not acknowledged, over a line like that.
pub(super) fn outcome(cluster: &str, code: Code, line: &BrokerLine) -> Outcome {
    let is_away = match code {
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::Resolve => true,
        Code::MessageTimedOut | Code::OperationTimedOut => *line != BrokerLine::Up,
        _ => false,
    };
    if let (true, BrokerLine::Refused(why)) = (is_away, line) {
        return Outcome::Unacknowledged {
            class: AttemptClass::Auth,
            is_away: false,
            code: word(Code::Authentication),
            reason: format!("the cluster {cluster}: {why}"),
        };
    }
    let why = match line {
        BrokerLine::Down(said) if is_away && !said.is_empty() => said.clone(),
        _ => code.to_string(),
    };
    Outcome::Unacknowledged {
        class: class(code),
        is_away,
        code: word(code),
        reason: format!("the cluster {cluster}: {why}"),
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
                outcome("centre", code, &BrokerLine::Down(String::new()))
            else {
                panic!("{code:?} has another outcome");
            };
            assert_eq!((found, away, said.as_str()), (class, is_away, word));
            assert!(reason.starts_with("the cluster centre: "), "{reason}");
        }
        assert!(!outcome("centre", Code::MessageTimedOut, &BrokerLine::Up).is_away());
        let refused = BrokerLine::Refused("wrong password".to_owned());
        let told = outcome("centre", Code::OperationTimedOut, &refused);
        assert!(
            !told.is_away()
                && matches!(told, Outcome::Unacknowledged { class: AttemptClass::Auth, .. })
        );
    }
}

//! Applies a policy to metadata: identifiers, header fields and reasons; and to events that are stored already.

use crate::model::event::NewEvent;
use crate::privacy::policy::matching::{Finding, Match};
use crate::privacy::policy::rules::{Action, Policy, Refused, RejectOrAllow};

impl Policy {
    /// Masks every match of the policy's detectors in a text that is stored but never sent, such as a header field or
    /// a receiver's answer. `None` if there is no match.
    pub fn masked(&self, text: &str) -> Option<String> {
        let mut masked = String::new();
        let mut past = 0;
        for found in self.find_in(text) {
            masked.push_str(text.get(past..found.span.start).unwrap_or_default());
            masked.push_str(&found.detector.mask(text.get(found.span.clone()).unwrap_or_default()));
            past = found.span.end;
        }
        if past == 0 {
            return None;
        }
        masked.push_str(text.get(past..).unwrap_or_default());
        Some(masked)
    }

    /// A reason as it may be stored: without its quotations, because they may contain incoming data.
    pub fn sanitize(&self, reason: &str) -> String {
        let bare = unquoted(reason);
        self.masked(&bare).unwrap_or(bare)
    }

    /// Refuses an event if a detector matches in one of its identifiers, unless the policy allows them. Identifiers
    /// are stored unchanged.
    pub fn check_identifiers(&self, words: &[(&'static str, &str)]) -> Result<(), Refused> {
        if self.identifiers == RejectOrAllow::Allow {
            return Ok(());
        }
        for &(field, word) in words {
            if let Some(found) = self.find_in(word).into_iter().next() {
                let rule = found.rule + 1;
                let detector = found.detector;
                return Err(Refused::Identifier { field, rule, detector });
            }
        }
        Ok(())
    }

    /// Why an event that was inserted by plain SQL cannot be accepted: its text is in the file already, so it is too
    /// late to change it. `None` if the policy would change nothing.
    pub fn objects_to(&self, event: &NewEvent) -> Option<String> {
        const TOO_LATE: &str = "its text is in the database as it was inserted, until the event is discarded: publish \
                                such events over HTTP or let a source read them";
        let refused = self.check_identifiers(&event.stored_texts()).err();
        let applied = self.apply(&event.content_type, &event.payload, &|_| String::new(), true);
        let reason = match (refused, applied) {
            (Some(refused), _) | (None, Err(refused)) => refused.to_string(),
            (None, Ok(applied)) => {
                let Finding { rule, path, .. } = applied.findings.first()?;
                format!("rule {rule} of the policy on personal data applies to the value at {path}")
            }
        };
        Some(format!("{reason}; {TOO_LATE}"))
    }

    /// Refuses an event if a rejecting rule matches in a header field.
    pub fn check_header(&self, name: &str, value: &str) -> Result<(), Refused> {
        let rejects = |found: &Match| {
            self.rules.get(found.rule).is_some_and(|rule| rule.action == Action::Reject)
        };
        match self.find_in(value).into_iter().find(rejects) {
            Some(found) => Err(Refused::Rule {
                rule: found.rule + 1,
                path: format!("the header field {name}"),
                detector: Some(found.detector),
            }),
            None => Ok(()),
        }
    }
}

/// A text with every quotation emptied. An unclosed quotation extends to the end.
fn unquoted(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut is_inside = false;
    let mut is_escaped = false;
    for letter in text.chars() {
        match (is_inside, letter) {
            (false, '"') => {
                is_inside = true;
                bare.push_str("\"…\"");
            }
            (false, letter) => bare.push(letter),
            (true, '"') if !is_escaped => is_inside = false,
            (true, _) => {}
        }
        is_escaped = is_inside && letter == '\\' && !is_escaped;
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_masked_or_refused() {
        let policy =
            Policy::parse(r#"{"rules":[{"detect":["email","card"],"action":"seal"}]}"#).unwrap();
        assert_eq!(
            policy.masked("no a@example.org and 4111111111111111!").as_deref(),
            Some("no ***@example.org and ***1111!")
        );
        assert_eq!(policy.masked("nothing"), None);
        let reason = r#"id was "a \"b\" c" and x is "y", not b@x.org or "z"#;
        assert_eq!(policy.sanitize(reason), r#"id was "…" and x is "…", not ***@x.org or "…""#);
        let words = [("aggregate_id", "17"), ("idempotency_key", "order of a@example.org")];
        let refused = policy.check_identifiers(&words).unwrap_err().to_string();
        assert!(refused.starts_with("idempotency_key looks like an e-mail address"), "{refused}");
        assert!(!refused.contains("example.org"));
    }
}

//! A policy applied to metadata: identifiers, header fields, reasons, and events that are stored already.

use crate::model::event::NewEvent;
use crate::privacy::policy::matching::{Finding, Found};
use crate::privacy::policy::rules::Refused;
use crate::privacy::policy::rules::{Action, Otherwise, Policy};

impl Policy {
    /// What is left of a text that is kept but never sent, such as a header field or a receiver's answer: all
    /// that a detector of the policy finds is masked.
    pub fn masked(&self, text: &str) -> Option<String> {
        let mut masked = String::new();
        let mut past = 0;
        for found in self.found_in(text) {
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

    /// A reason as it may be kept: without what it quotes, which can be anything that came in.
    pub fn sanitize(&self, reason: &str) -> String {
        let bare = unquoted(reason);
        self.masked(&bare).unwrap_or(bare)
    }

    /// Looks through the words beside the body, which are stored as they are given.
    pub fn check_identifiers(&self, words: &[(&'static str, Option<&str>)]) -> Result<(), Refused> {
        if self.identifiers == Otherwise::Allow {
            return Ok(());
        }
        for &(field, word) in words {
            if let Some(found) = word.and_then(|word| self.found_in(word).into_iter().next()) {
                let (rule, detector) = (found.rule + 1, found.detector);
                return Err(Refused::Identifier { field, rule, detector });
            }
        }
        Ok(())
    }

    /// Why an event that stands in the file already cannot be taken; `None`: nothing in it is personal by this
    /// policy. What would be changed is too late to change.
    pub fn objects_to(
        &self,
        event: &NewEvent,
        other_words: &[(&'static str, Option<String>)],
    ) -> Option<String> {
        const TOO_LATE: &str = "its text stands in the database as it was inserted, and discarding it does not \
                                take it back: publish such events over HTTP or let a source read them";
        let other = other_words.iter().map(|(field, word)| (*field, word.as_deref()));
        let words: Vec<_> = event.words().into_iter().chain(other).collect();
        let refused = self.check_identifiers(&words).err();
        let applied = self.apply(&event.content_type, &event.payload, &|_| String::new(), true);
        let reason = match (refused, applied) {
            (Some(refused), _) | (None, Err(refused)) => refused.to_string(),
            (None, Ok(applied)) => {
                let Finding { rule, path, .. } = applied.findings.first()?;
                format!("rule {rule} of the policy on personal data is about what stands at {path}")
            }
        };
        Some(format!("{reason}; {TOO_LATE}"))
    }

    /// Refuses where a rule that rejects finds something in a header field.
    pub fn check_header(&self, name: &str, value: &str) -> Result<(), Refused> {
        let rejects = |found: &Found| {
            self.rules.get(found.rule).is_some_and(|rule| rule.action == Action::Reject)
        };
        match self.found_in(value).into_iter().find(rejects) {
            Some(found) => Err(Refused::Rule {
                rule: found.rule + 1,
                path: format!("the header field {name}"),
                detector: Some(found.detector),
            }),
            None => Ok(()),
        }
    }
}

/// A text with nothing in its quotation marks. What is not closed goes to the end.
fn unquoted(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let (mut is_inside, mut is_escaped) = (false, false);
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
    fn texts_beside_the_body_are_masked_or_refused() {
        let policy =
            Policy::parse(r#"{"rules":[{"detect":["email","card"],"action":"seal"}]}"#).unwrap();
        assert_eq!(
            policy.masked("no a@example.org and 4111111111111111!").as_deref(),
            Some("no ***@example.org and ***1111!")
        );
        assert_eq!(policy.masked("nothing"), None);
        let reason = r#"id was "a \"b\" c" and x is "y", not b@x.org or "z"#;
        assert_eq!(policy.sanitize(reason), r#"id was "…" and x is "…", not ***@x.org or "…""#);
        let words =
            [("aggregate_id", Some("17")), ("idempotency_key", Some("order of a@example.org"))];
        let refused = policy.check_identifiers(&words).unwrap_err().to_string();
        assert!(refused.starts_with("idempotency_key looks like an e-mail address"), "{refused}");
        assert!(!refused.contains("example.org"));
    }
}

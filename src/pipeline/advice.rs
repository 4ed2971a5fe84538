//! What to change when a test of a subscription fails: one sentence for each cause.

use crate::http::trace::StepName;
use crate::model::outcome::{Cause, Outcome};
use crate::targets::email::MAIL_SERVER;

/// Words of a TLS failure, as the library writes them, and what to do. The first that fits counts.
const TLS: [(&str, &str); 6] = [
    (
        "UnknownIssuer",
        "The issuer of the certificate is not known here: put its CA certificate (PEM) into a file, and name the file \
         in delivery.ca_file.",
    ),
    (
        "expired",
        "The target's operator has to renew the certificate, unless this machine's clock is wrong.",
    ),
    (
        "not valid yet",
        "The certificate is not valid yet: compare this machine's clock with the target's.",
    ),
    (
        "not valid for",
        "The certificate is for another host: use the name it was issued for in the URL.",
    ),
    (
        "CertificateRequired",
        "The target asks for a client certificate: set one with `oncebox credential set`.",
    ),
    (
        "corrupt message",
        "This port does not speak TLS: correct the port, or use http:// if the network is trusted.",
    ),
];

/// What to change, where a request failed at that step.
pub(super) fn advice(outcome: &Outcome, step: StepName) -> &'static str {
    match outcome {
        Outcome::Answered { status, .. } => of_status(*status),
        Outcome::Unreachable { reason, .. } if reason.starts_with(MAIL_SERVER) => {
            "Look whether the mail server answers, and correct [smtp] in the settings."
        }
        Outcome::Unreachable { cause, reason } => of_cause(*cause, step, reason),
        Outcome::Blocked { .. } => {
            "If the target belongs there, add its network to delivery.allow in the settings and reload the service."
        }
        Outcome::Postponed { .. } => "Wait until then, or raise the limit that the reason names.",
        Outcome::Unacknowledged { code, .. } if of_folder(code).is_some() => {
            of_folder(code).unwrap_or_default()
        }
        Outcome::Unacknowledged { code, .. } if of_database(code).is_some() => {
            of_database(code).unwrap_or_default()
        }
        Outcome::Unacknowledged { is_away: true, .. } => {
            "No broker answers: start the cluster, or correct its brokers in kafka.clusters."
        }
        Outcome::Unacknowledged { code, .. } if code == "authentication" => {
            "The broker refuses the log-on: correct the credential, or kafka.sasl in the settings."
        }
        Outcome::Unacknowledged { .. } => {
            "Ask who runs the cluster: the topic has to be there, and the user needs the right to write to it."
        }
        Outcome::Accepted { .. } | Outcome::Refused { .. } => {
            "Correct what the reason names: the file in the way, the addresses, or [smtp] in the settings."
        }
        Outcome::Unbuildable { .. } => {
            "Correct what the reason names: the URL's placeholders, a header field, the template or the credential."
        }
        Outcome::NoToken { .. } => {
            "Correct the client, its secret, the scope or the token endpoint: oncebox credential set."
        }
    }
}

/// What to change about a folder, by the word of its failure.
fn of_folder(code: &str) -> Option<&'static str> {
    Some(match code {
        "away" => "Make the folder, or mount its share again; deliveries go on by themselves.",
        "full" => {
            "Make room on the disk of the folder, or raise the quota; deliveries go on by themselves."
        }
        "not_writable" => {
            "Give the service's user the right to write to the folder; under systemd, add ReadWritePaths to the unit."
        }
        "not_permitted" => "Correct the path, or sources.tenants_directory in the settings.",
        "timeout" => "Look whether the share of the folder answers: ls FOLDER.",
        _ => return None,
    })
}

/// What to change about a database, by the word of its failure.
fn of_database(code: &str) -> Option<&'static str> {
    Some(match code {
        "database_away" => {
            "Look what `oncebox database test NAME` says; deliveries go on by themselves when it answers."
        }
        "database_schema" => {
            "Correct the statement, or make the table: `oncebox database ddl` prints those that Oncebox needs."
        }
        "database_not_permitted" => {
            "Run the GRANT lines that `oncebox database test NAME` prints, or correct user and password."
        }
        "database_refused" => {
            "Correct the event or the statement: the database will refuse this row again."
        }
        _ => return None,
    })
}

fn of_cause(cause: Cause, step: StepName, reason: &str) -> &'static str {
    match (cause, step) {
        (_, StepName::Credentials) => {
            "The token endpoint does not answer: correct its URL with `oncebox credential set`, or ask who runs it."
        }
        (_, StepName::Lookup) => {
            "Correct the host name in the URL, or ask this machine's DNS for it: getent hosts NAME."
        }
        (Cause::Refused, _) => "Nobody listens there: start the target, or correct the port.",
        (Cause::NoConnection | Cause::Timeout, StepName::Connect) => {
            "Nothing answers at this address: correct it, or ask for a firewall and the route in between."
        }
        (Cause::Tls, _) | (_, StepName::Tls) => {
            let found = TLS.iter().find(|(words, _)| reason.contains(words));
            found.map_or(
                "Correct the URL's host and port; `openssl s_client -connect HOST:PORT` shows what the target offers.",
                |(_, advice)| advice,
            )
        }
        (Cause::Timeout, _) => {
            "The target took the request and did not answer in time: look into its log, or raise policy.timeout."
        }
        (Cause::NoConnection | Cause::Broken, _) => {
            "The target ended the connection without an HTTP answer: look into its log, or correct the port."
        }
    }
}

fn of_status(status: u16) -> &'static str {
    match status {
        200..=299 => {
            "The subscription's own policy.classes make this answer a failure: change them if that is wrong."
        }
        300..=399 => "Redirects are never followed: put the final URL into the subscription.",
        401 => {
            "The target does not accept the credential: set the right one with `oncebox credential set`."
        }
        403 => {
            "The target knows the credential and does not allow this: have the rights added there, or set another one."
        }
        404 => "The target has nothing at this path: correct the path of the URL.",
        405 => {
            "The target does not take this method: correct the path of the URL, or the subscription's method."
        }
        407 => {
            "A proxy in between asks for a password, and Oncebox has none for it: take the proxy out of the way."
        }
        408 | 504 => "Something behind the target is too slow: look into the target's log.",
        410 => {
            "The target says that this address is gone for good: put the new URL into the subscription."
        }
        413 => "The body is too large for the target: raise its limit.",
        415 => "The target wants another media type: choose another format for the subscription.",
        429 => "The target asks for fewer requests: wait, and set policy.rate.",
        400..=499 => {
            "The target refuses this request: its answer says why. A ping has no business data; --event sends a past event."
        }
        _ => "The target failed itself: look into its log.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_and_cause_has_advice_that_is_a_sentence() {
        let answered = |status| Outcome::Answered {
            status,
            retry_after: None,
            custom_data: None,
            excerpt: String::new(),
        };
        let unreachable = |cause| Outcome::Unreachable { cause, reason: String::new() };
        let causes =
            [Cause::NoConnection, Cause::Refused, Cause::Tls, Cause::Timeout, Cause::Broken];
        let outcomes = (100..600).map(answered).chain(causes.map(unreachable));
        for outcome in outcomes {
            for step in StepName::ALL {
                let said = advice(&outcome, step);
                assert!(said.ends_with('.') && said.len() > 30, "{outcome:?} {step:?}: {said}");
            }
        }
    }
}

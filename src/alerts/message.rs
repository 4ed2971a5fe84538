//! The words of alerts: what happened, since when, how often, what to do, and the command to look.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::alerts::channel::{AlertChannelKind, Channel, Due, Told};
use crate::model::escalation::{Class, Escalation, Severity};
use crate::model::name::DEFAULT_TENANT;

/// How many of a list are written out in a text.
pub const MAX_LISTED: usize = 20;
/// Deliveries are counted up to this number.
pub const MAX_COUNTED: u32 = 1_000;
/// Characters of a detail in a list, and alone.
const MAX_DETAIL_CHARS: [usize; 2] = [200, 1500];

/// An alert as `webhook` and `command` get it. `slack` gets its text alone, `email` its title and text.
#[derive(Debug, Serialize, Deserialize)]
pub struct Message {
    /// The channel's name.
    pub channel: String,
    /// One line.
    pub title: String,
    /// All a person needs.
    pub text: String,
    /// The worst of its alerts.
    pub severity: Severity,
    /// What it tells; empty in a test.
    pub alerts: Vec<Alert>,
}

impl Message {
    /// Whether it tells of a critical escalation that is not over.
    pub fn is_urgent(&self) -> bool {
        self.alerts.iter().any(|alert| alert.severity == Severity::Critical)
    }
}

/// What is told of one escalation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Alert {
    escalation_id: String,
    tenant: String,
    class: Class,
    severity: Severity,
    /// `raised`, `repeated` or `resolved`.
    state: String,
    subject: String,
    detail: String,
    first_at: String,
    last_at: String,
    count: u64,
    /// What to do.
    advice: String,
    /// The command that shows it.
    command: String,
}

/// Deliveries of the subscription that an escalation is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Affected {
    /// Dead letters, up to [`MAX_COUNTED`].
    pub dead: u32,
    /// Waiting escalations, up to about this number.
    pub waiting: u32,
}

impl Affected {
    /// Like `: 3 dead letters, 12 waiting`; empty if there are none.
    fn text(self) -> String {
        let part = |count: u32, what: &str| {
            let more = if count >= MAX_COUNTED { " or more" } else { "" };
            (count > 0).then(|| format!("{}{more} {what}", count.min(MAX_COUNTED)))
        };
        let dead = if self.dead == 1 { "dead letter" } else { "dead letters" };
        let parts = [part(self.dead, dead), part(self.waiting, "waiting")];
        let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if parts.is_empty() { parts } else { format!(": {parts}") }
    }
}

/// How urgent it is to read what is told: an end only informs.
fn told_severity(due: &Due) -> Severity {
    if due.is_over() { Severity::Info } else { due.severity() }
}

/// The first line about an escalation: what has happened to what.
fn headline(due: &Due, affected: Affected) -> String {
    let new = &due.escalation.new;
    let told = due.told;
    let subject = match new.subject.split_once(':') {
        Some((kind, name)) => format!("{kind} {name}"),
        None => format!("this {}", new.subject),
    };
    let (_, what, _) = new.class.facts();
    let severity = told_severity(due);
    let state = match told {
        Told::Raised if due.escalation.reopened_at.is_some() => "again: ",
        Told::Raised => "",
        Told::Repeated => "still open: ",
        Told::Resolved => "resolved: ",
    };
    format!("[{}] {state}{subject} {what}{}", severity.as_str(), affected.text())
}

fn text_of(due: &Due, max_chars: usize) -> String {
    let Due { escalation, told, .. } = due;
    let detail: String = escalation.new.detail.chars().take(max_chars).collect();
    let (.., advice) = escalation.new.class.facts();
    let end = escalation.resolved_at.map(|at| format!("\nOver since: {at}")).unwrap_or_default();
    let advice =
        if *told == Told::Resolved { String::new() } else { format!("\nWhat to do: {advice}") };
    let again = match (escalation.reopened_at, *told) {
        (None, _) => String::new(),
        (Some(_), Told::Resolved) => "\nIt came and went, and has not come back for an hour.".to_owned(),
        (Some(_), _) => "\nIt comes and goes. It is told again after an hour, or when it has stayed away for an hour.".to_owned(),
    };
    let tenant = Some(&escalation.new.tenant).filter(|tenant| *tenant != DEFAULT_TENANT);
    let tenant = tenant.map(|tenant| format!("\nTenant: {tenant}")).unwrap_or_default();
    format!(
        "{detail}{tenant}\nSince: {}, last: {}, times: {}{again}{end}{advice}\nLook: {}",
        escalation.first_at,
        escalation.last_at,
        escalation.count,
        command(escalation)
    )
}

fn command(escalation: &Escalation) -> String {
    format!("oncebox escalation show {}", escalation.new.id)
}

/// The payload of a message that tells these. `affected` are the deliveries of those that are written out.
pub fn payload(channel: &Channel, told: &[Due], affected: &[Affected]) -> Vec<u8> {
    let severity = told.iter().map(told_severity).max();
    let mut listed =
        told.iter().zip(affected).map(|(due, affected)| (due, headline(due, *affected)));
    let (title, text) = match told {
        [one] => {
            let title = listed.next().map(|(_, title)| title).unwrap_or_default();
            (title, text_of(one, MAX_DETAIL_CHARS[1]))
        }
        many => {
            let listed = listed
                .map(|(due, title)| format!("{title}\n{}", text_of(due, MAX_DETAIL_CHARS[0])));
            let more = many.len().saturating_sub(MAX_LISTED);
            let more = (more > 0).then(|| format!("And {more} more: oncebox escalation list"));
            let text = listed.chain(more).collect::<Vec<_>>().join("\n\n");
            (format!("Oncebox: {} escalations", many.len()), text)
        }
    };
    let alert = |due: &Due| {
        let Escalation { new, first_at, last_at, count, .. } = &due.escalation;
        Alert {
            escalation_id: new.id.clone(),
            tenant: new.tenant.clone(),
            class: new.class,
            severity: told_severity(due),
            state: due.told.as_str().to_owned(),
            subject: new.subject.clone(),
            detail: new.detail.clone(),
            first_at: first_at.to_string(),
            last_at: last_at.to_string(),
            count: *count,
            advice: new.class.facts().2.to_owned(),
            command: command(&due.escalation),
        }
    };
    let alerts = told.iter().map(alert).collect();
    written(channel, title, text, severity.unwrap_or(Severity::Info), alerts)
}

/// The payload of a test.
pub fn test(channel: &Channel) -> Vec<u8> {
    let title = format!("Test of the alert channel {}", channel.name);
    let text = "This is a test of Oncebox. Alerts of this installation arrive here. There is nothing to do.";
    written(channel, title, text.to_owned(), Severity::Info, Vec::new())
}

fn written(
    channel: &Channel,
    title: String,
    text: String,
    severity: Severity,
    alerts: Vec<Alert>,
) -> Vec<u8> {
    if channel.kind == AlertChannelKind::Slack {
        // Slack reads these three as markup: a detail must not make a link or call everybody.
        let plain = format!("{title}\n{text}")
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        return json!({ "text": plain }).to_string().into_bytes();
    }
    let channel = channel.name.as_str().to_owned();
    let message = Message { channel, title, text, severity, alerts };
    // Strings and numbers, written to memory: it cannot fail.
    serde_json::to_vec(&message).unwrap_or_default()
}

//! A channel: which escalations it is told of, and when. Pure decisions.
//!
//! Not here: the words of a message ([`super::message`]), and how it is sent.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tz::TimeZone;

use crate::base::clock::Timestamp;
use crate::base::id::SubscriptionSeq;
use crate::base::words::words;
use crate::model::escalation::{Class, Escalation, Severity};
use crate::model::name::Name;

/// Seconds of a day.
const DAY: i64 = 86_400;
/// The hour in which messages are counted.
const HOUR: Duration = Duration::from_hours(1);
/// The longest span of `digest` and `repeat_after`.
const MAX_SPAN: Duration = Duration::from_hours(24 * 366);
/// The highest rate.
pub const MAX_RATE: u32 = 1000;

words! {
    /// How a channel reaches people. Stored in `alert_channels.kind`.
    pub enum AlertChannelKind as "AlertChannelKind" {
        /// A URL that takes Slack's format, as Slack and Mattermost do.
        Slack = "slack",
        /// A URL that gets the alert as JSON, signed.
        Webhook = "webhook",
        /// E-mail.
        Email = "email",
        /// A command of the settings.
        Command = "command",
    }
}

/// Which escalations a channel is told of, and when. Stored as JSON in `alert_channels.terms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Terms {
    // The lowest severity that is told.
    pub severity: Severity,
    // The classes that are told; empty: all.
    pub classes: Vec<Class>,
    // Whether escalations of other tenants are told too.
    pub all_tenants: bool,
    // When only critical ones are told, like `22:00-06:00 Europe/Budapest`; empty: never.
    pub quiet_hours: String,
    // The most messages in an hour of what is neither critical nor over.
    pub rate_per_hour: u32,
    // How long escalations are collected for one message; `0s`: not at all.
    pub digest: String,
    // When one is told again that nobody has acknowledged; `0s`: never.
    pub repeat_after: String,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            severity: Severity::Warning,
            classes: Vec::new(),
            all_tenants: false,
            quiet_hours: String::new(),
            rate_per_hour: 20,
            digest: "0s".to_owned(),
            repeat_after: "24h".to_owned(),
        }
    }
}

impl Terms {
    /// Reads quiet hours and spans. The error says what is wrong and what is allowed.
    pub fn timing(&self) -> Result<Timing, String> {
        let span = |field: &str, text: &str| {
            let span = humantime::parse_duration(text).ok().filter(|span| *span <= MAX_SPAN);
            span.ok_or_else(|| {
                format!("{field} is {text:?}; it is a span up to 366 days, like 15min, or 0s")
            })
        };
        let repeat_after = span("repeat_after", &self.repeat_after)?;
        let rate = self.rate_per_hour;
        if !(1..=MAX_RATE).contains(&rate) {
            return Err(format!("rate_per_hour is {rate}; it must be 1 to {MAX_RATE}"));
        }
        let quiet = Some(&self.quiet_hours).filter(|text| !text.is_empty());
        Ok(Timing {
            quiet: quiet.map(|text| QuietHours::parse(text)).transpose()?,
            rate,
            left: usize::MAX,
            reserve: 0,
            digest: span("digest", &self.digest)?,
            repeat_after: Some(repeat_after).filter(|span| !span.is_zero()),
        })
    }

    /// Without quiet hours, digest and repetition.
    pub fn untimed(&self) -> Timing {
        let rate = self.rate_per_hour;
        let digest = Duration::ZERO;
        Timing { quiet: None, rate, left: usize::MAX, reserve: 0, digest, repeat_after: None }
    }

    /// The classes that are told.
    pub fn wanted(&self) -> Vec<Class> {
        let asked = |class: &Class| self.classes.is_empty() || self.classes.contains(class);
        let bad = |class: &Class| class.severity() >= self.severity;
        Class::ALL.into_iter().filter(|class| asked(class) && bad(class)).collect()
    }
}

/// The times of [`Terms`], read.
#[derive(Clone, Debug)]
pub struct Timing {
    quiet: Option<QuietHours>,
    rate: u32,
    /// The most messages that may be sent now, whatever they tell.
    pub left: usize,
    /// Those of them that are kept for critical escalations.
    pub reserve: usize,
    digest: Duration,
    /// When one is told again; `None`: never.
    pub repeat_after: Option<Duration>,
}

/// A span of every day.
#[derive(Clone, Debug)]
pub struct QuietHours {
    /// Seconds since midnight.
    from: i64,
    until: i64,
    zone: TimeZone,
}

impl QuietHours {
    /// Reads `22:00-06:00 Europe/Budapest`, `22:00-06:00 +01:00` or, for UTC, `22:00-06:00`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "quiet_hours is {text:?}; it is like \"22:00-06:00 Europe/Budapest\", \"22:00-06:00 +01:00\", or empty"
            )
        };
        let (span, zone) = text.split_once(' ').unwrap_or((text, "+00:00"));
        let (from, until) = span.split_once('-').ok_or_else(wrong)?;
        let from = seconds(from).ok_or_else(wrong)?;
        let until = seconds(until).ok_or_else(wrong)?;
        if from == until {
            return Err(wrong());
        }
        Ok(Self { from, until, zone: zone_of(zone).ok_or_else(wrong)? })
    }

    /// Whether a time lies in them.
    fn holds(&self, at: Timestamp) -> bool {
        let offset =
            self.zone.find_local_time_type(at.secs()).map_or(0, tz::LocalTimeType::ut_offset);
        let time = (at.secs() + i64::from(offset)).rem_euclid(DAY);
        if self.from < self.until {
            (self.from..self.until).contains(&time)
        } else {
            time >= self.from || time < self.until
        }
    }
}

/// Seconds since midnight of `HH:MM`.
fn seconds(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':').filter(|(h, m)| h.len() == 2 && m.len() == 2)?;
    let number = |text: &str, end: u8| text.parse::<u8>().ok().filter(|n| *n < end).map(i64::from);
    Some(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)
}

/// An offset like `+01:00`, or the name of a time zone that this machine knows.
fn zone_of(text: &str) -> Option<TimeZone> {
    if let Some(span) = text.strip_prefix(['+', '-']) {
        let offset = i32::try_from(seconds(span)?).ok()?;
        return TimeZone::fixed(if text.starts_with('-') { -offset } else { offset }).ok();
    }
    // A name only: neither a path out of the system's directory nor a rule of POSIX.
    let is_name = |c: char| c.is_ascii_alphanumeric() || "/_-+".contains(c);
    let fits = text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(is_name);
    fits.then(|| TimeZone::from_posix_tz(&format!(":{text}")).ok()).flatten()
}

words! {
    /// What is told of an escalation.
    pub enum Told {
        /// It is new.
        Raised = "raised",
        /// It is still open, and nobody has acknowledged it.
        Repeated = "repeated",
        /// It is over.
        Resolved = "resolved",
    }
}

/// Something that a channel is to be told.
#[derive(Clone, Debug)]
pub struct Due {
    /// Of what.
    pub escalation: Escalation,
    /// What.
    pub told: Told,
    /// Since when it is to be told.
    pub since: Timestamp,
}

impl Due {
    pub(super) fn severity(&self) -> Severity {
        self.escalation.new.class.severity()
    }

    /// Whether it tells of an end, which does not count towards the limit of an hour.
    pub(super) fn is_over(&self) -> bool {
        self.told == Told::Resolved
    }
}

/// The messages of the current hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// When the hour began.
    pub from: Timestamp,
    /// How many there were.
    pub messages: u32,
}

impl Counted {
    /// The count at a time: that of a new hour, once the old one is over or the clock was set back before it.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        let is_current = self.from <= now && now < self.from.plus(HOUR);
        if is_current { self } else { Self { from: now, messages: 0 } }
    }
}

impl Timing {
    /// Which messages are sent now, each with what it tells. What is missing stays due. The limit of the hour is for what
    /// is neither critical nor over.
    pub fn choose(&self, mut due: Vec<Due>, counted: Counted, now: Timestamp) -> Vec<Vec<Due>> {
        if self.quiet.as_ref().is_some_and(|quiet| quiet.holds(now)) {
            due.retain(|one| one.severity() == Severity::Critical);
        }
        due.sort_by_key(|one| (std::cmp::Reverse(one.severity()), one.since));
        let oldest = due.iter().map(|one| one.since).min();
        if oldest.is_none_or(|oldest| now < oldest.plus(self.digest)) {
            return Vec::new();
        }
        let (over, mut open): (Vec<Due>, Vec<Due>) = due.into_iter().partition(Due::is_over);
        let room = usize::try_from(self.rate.saturating_sub(counted.at(now).messages)).unwrap_or(0);
        if room == 0 {
            open.retain(|one| one.severity() == Severity::Critical);
        }
        // The last message of the hour has all that is left.
        let single = if open.len() > room { room.saturating_sub(1) } else { open.len() };
        let rest = open.split_off(single);
        let mut messages: Vec<Vec<Due>> = open.into_iter().map(|one| vec![one]).collect();
        messages.extend([rest, over].into_iter().filter(|some| !some.is_empty()));
        self.within_what_is_left(messages)
    }

    /// Messages that may be sent now; the last of them lists the rest. What is reserved goes to critical escalations that are
    /// not over. The very last message lists whatever is due.
    fn within_what_is_left(&self, messages: Vec<Vec<Due>>) -> Vec<Vec<Due>> {
        let per_look = if self.digest.is_zero() { usize::MAX } else { 1 };
        let free = self.left.saturating_sub(self.reserve);
        if free > 0 {
            return merged(messages, free.min(per_look));
        }
        let is_urgent = |one: &Due| one.severity() == Severity::Critical && !one.is_over();
        let (urgent, rest): (Vec<Due>, Vec<Due>) =
            messages.into_iter().flatten().partition(is_urgent);
        let urgent = urgent.into_iter().map(|one| vec![one]).collect();
        let mut messages = merged(urgent, self.left.min(per_look));
        if messages.len() >= self.left
            && let Some(last) = messages.last_mut()
        {
            last.extend(rest);
        }
        messages
    }
}

/// At most so many messages: the last one has what is beyond.
fn merged(mut messages: Vec<Vec<Due>>, most: usize) -> Vec<Vec<Due>> {
    let beyond = messages.split_off(most.min(messages.len()));
    if let Some(last) = messages.last_mut() {
        last.extend(beyond.into_iter().flatten());
    }
    messages
}

/// How many of a tenant's e-mails of a day are kept for critical escalations: a quarter, at least one.
pub const fn reserved(mails_max: u32) -> u32 {
    if mails_max < 8 { 1 } else { mails_max / 4 }
}

/// A channel as stored.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its number in the file.
    pub seq: i64,
    /// Its UUIDv7.
    pub id: String,
    /// Its tenant.
    pub tenant: String,
    /// Unique per tenant.
    pub name: Name,
    /// How it reaches people.
    pub kind: AlertChannelKind,
    /// The subscription that delivers its alerts.
    pub subscription: SubscriptionSeq,
    /// What is told, and when.
    pub terms: Terms,
    /// The messages of the current hour.
    pub counted: Counted,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl Channel {
    /// The name of the subscription of a channel.
    pub fn subscription_name(name: &str) -> String {
        format!("alert-{name}")
    }

    /// What escalations about the channel itself name.
    pub fn subject(&self) -> String {
        format!("subscription:{}", Self::subscription_name(self.name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::escalation::NewEscalation;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn due(class: Class, since: Timestamp) -> Due {
        let new = NewEscalation {
            id: "1".to_owned(),
            tenant: "default".to_owned(),
            class,
            subject: "site".to_owned(),
            detail: String::new(),
        };
        let escalation = Escalation {
            seq: 1,
            new,
            first_at: since,
            last_at: since,
            count: 1,
            acknowledged_at: None,
            acknowledged_by: None,
            resolved_at: None,
            reopened_at: None,
        };
        Due { escalation, told: Told::Raised, since }
    }

    fn chosen(terms: &Terms, due: &[Due], messages: u32, now: Timestamp) -> Vec<usize> {
        let counted = Counted { from: now, messages };
        let chosen = terms.timing().unwrap().choose(due.to_vec(), counted, now);
        chosen.iter().map(Vec::len).collect()
    }

    #[test]
    fn quiet_hours_follow_their_zone() {
        let holds = |quiet: &str, time: &str| QuietHours::parse(quiet).unwrap().holds(at(time));
        assert!(holds("22:00-06:00", "2026-01-31T22:00:00Z"));
        assert!(holds("22:00-06:00", "2026-01-31T05:59:59Z"));
        assert!(!holds("22:00-06:00", "2026-01-31T06:00:00Z"));
        assert!(holds("12:00-13:00", "2026-01-31T12:30:00Z"));
        assert!(!holds("12:00-13:00", "2026-01-31T13:00:00Z"));
        assert!(holds("22:00-06:00 +01:00", "2026-01-31T21:30:00Z"));
        assert!(!holds("22:00-06:00 -05:30", "2026-01-31T22:00:00Z"));
        // In winter Budapest is an hour ahead of UTC, in summer two.
        if Path::new("/usr/share/zoneinfo/Europe/Budapest").exists() {
            assert!(!holds("22:00-06:00 Europe/Budapest", "2026-01-31T20:30:00Z"));
            assert!(holds("22:00-06:00 Europe/Budapest", "2026-07-31T20:30:00Z"));
        }
    }

    #[test]
    fn wrong_times_are_refused_with_an_example() {
        for text in [
            "22-06",
            "22:00",
            "24:00-06:00",
            "22:00-22:00",
            "22:00-06:00 Nowhere/Else",
            "22:00-06:00 /etc/passwd",
            "22:00-06:00 ../../etc/passwd",
            "22:00-06:00 CET-1CEST,M3.5.0,M10.5.0/3",
            "22:00-06:00 +25:00",
        ] {
            let refusal = QuietHours::parse(text).unwrap_err();
            assert!(refusal.contains("22:00-06:00 Europe/Budapest"), "{text}: {refusal}");
        }
        for terms in [
            Terms { digest: "soon".to_owned(), ..Terms::default() },
            Terms { repeat_after: "2years".to_owned(), ..Terms::default() },
            Terms { rate_per_hour: 0, ..Terms::default() },
        ] {
            assert!(terms.timing().is_err(), "{terms:?}");
        }
    }

    #[test]
    fn only_critical_ones_pass_in_quiet_hours() {
        let terms = Terms { quiet_hours: "22:00-06:00".to_owned(), ..Terms::default() };
        let night = at("2026-01-31T23:00:00Z");
        let due = [due(Class::BackupOld, night), due(Class::DiskLow, night)];
        assert_eq!(chosen(&terms, &due, 0, night), [1]);
        assert_eq!(chosen(&terms, &due, 0, at("2026-02-01T06:00:00Z")), [1, 1]);
    }

    #[test]
    fn the_last_message_of_an_hour_has_the_rest() {
        let terms = Terms { rate_per_hour: 3, ..Terms::default() };
        let now = at("2026-01-31T12:00:00Z");
        let due: Vec<Due> = (0..5).map(|_| due(Class::BackupOld, now)).collect();
        assert_eq!(chosen(&terms, &due, 0, now), [1, 1, 3]);
        assert_eq!(chosen(&terms, &due, 2, now), [5]);
        assert_eq!(chosen(&terms, &due, 3, now), [0; 0]);
        assert_eq!(chosen(&terms, &due[..3], 0, now), [1, 1, 1]);
        let timing = terms.timing().unwrap();
        let counted = Counted { from: now, messages: 3 };
        assert_eq!(timing.choose(due, counted, now.plus(HOUR)).len(), 3);
        // The clock was set back: no hour lasts longer than one.
        assert_eq!(counted.at(now.minus(HOUR)).messages, 0);
    }

    #[test]
    fn resolved_messages_do_not_use_up_the_limit_and_critical_ones_never_wait_for_it() {
        let terms = Terms { rate_per_hour: 2, ..Terms::default() };
        let now = at("2026-01-31T12:00:00Z");
        let over = |class| Due { told: Told::Resolved, ..due(class, now) };
        let used = 2;
        let many =
            [due(Class::DiskLow, now), due(Class::SiteOffline, now), due(Class::BackupOld, now)];
        assert_eq!(chosen(&terms, &many, used, now), [2], "in one message");
        assert_eq!(chosen(&terms, &[over(Class::BackupOld), over(Class::DiskLow)], used, now), [2]);
        // A warning that is over leaves the room to one that is not.
        let both = [over(Class::BackupOld), due(Class::BackupOld, now)];
        assert_eq!(chosen(&terms, &both, 1, now), [1, 1]);
        // What a tenant may send in a day limits all of them.
        let mut timing = terms.timing().unwrap();
        timing.left = 1;
        let chosen = timing.choose(both.to_vec(), Counted::default(), now);
        assert_eq!(chosen.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
        timing.left = 0;
        assert!(timing.choose(many.to_vec(), Counted::default(), now).is_empty());
    }

    #[test]
    fn what_is_reserved_is_for_critical_ones_and_the_last_message_has_all() {
        let now = at("2026-01-31T12:00:00Z");
        let warning = due(Class::BackupOld, now);
        let critical = due(Class::DiskLow, now);
        let over = Due { told: Told::Resolved, ..due(Class::SiteOffline, now) };
        let warnings = [warning.clone(), warning.clone(), warning.clone()];
        let mixed = [warning, over, critical.clone(), critical];
        // Left, reserved, what is due, and how many things each message tells.
        for (left, reserve, due, wanted) in [
            (10, 2, &warnings[..], &[1, 1, 1][..]),
            (4, 2, &warnings, &[1, 2]),
            (3, 2, &warnings, &[3]),
            (2, 2, &warnings, &[]),
            (1, 2, &warnings, &[]),
            (3, 3, &mixed, &[1, 1]),
            (2, 2, &mixed, &[1, 3]),
            (1, 2, &mixed, &[4]),
            (0, 2, &mixed, &[]),
        ] {
            let timing = Timing { left, reserve, ..Terms::default().timing().unwrap() };
            let chosen = timing.choose(due.to_vec(), Counted::default(), now);
            let sizes: Vec<usize> = chosen.iter().map(Vec::len).collect();
            assert_eq!(sizes, wanted, "{left} left, {reserve} of them reserved");
        }
        assert_eq!([1, 2, 4, 7, 8, 200].map(reserved), [1, 1, 1, 1, 2, 50]);
    }

    #[test]
    fn a_digest_waits_for_its_span_after_the_first_one() {
        let terms = Terms { digest: "15min".to_owned(), ..Terms::default() };
        let now = at("2026-01-31T12:00:00Z");
        let due =
            [due(Class::BackupOld, now), due(Class::DiskLow, now.plus(Duration::from_mins(14)))];
        assert_eq!(chosen(&terms, &due, 0, now.plus(Duration::from_mins(14))), [0; 0]);
        assert_eq!(chosen(&terms, &due, 0, now.plus(Duration::from_mins(15))), [2]);
    }

    #[test]
    fn classes_and_severity_limit_what_is_told() {
        let of = |severity, classes: &[Class]| {
            Terms { severity, classes: classes.to_vec(), ..Terms::default() }.wanted()
        };
        assert_eq!(of(Severity::Info, &[]), Class::ALL);
        // 001: "After 8 attempts: delivery_status = 'failed', alert on a Slack channel."
        assert!(Terms::default().wanted().contains(&Class::DeliveryFailing));
        assert_eq!(of(Severity::Critical, &[Class::DiskLow, Class::BackupOld]), [Class::DiskLow]);
    }
}

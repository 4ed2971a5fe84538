//! Health: readings in, checks with their levels out. `/readyz` and `oncebox doctor` use the same rules.
//!
//! A check *fails* when Oncebox cannot keep its guarantees: then nothing should be sent to it. A check *warns* when a
//! person should look, although Oncebox still does all its work.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::clock::Timestamp;
use crate::base::clock::trust::{ClockDoubt, EARLIEST, Suspicion};
use crate::base::words::words;
use crate::model::disk::Room;
use crate::model::duty::Chore;
use crate::model::hold::HoldReason;
use crate::model::in_doubt::Window;
use crate::sys::disk::Space;

/// The check warns if a job waits longer for the writer.
const WRITER_LAG_WARN: Duration = Duration::from_secs(1);
/// The check fails if a job waits longer: the writer is stuck.
const WRITER_LAG_FAIL: Duration = Duration::from_secs(10);
/// The check warns if a delivery without a hold is overdue for longer.
const OVERDUE_WARN: Duration = Duration::from_mins(5);

/// What is kept while nobody has stated a policy, and what to do.
pub const UNSTATED: &str = "Published events are kept in the clear, with all that is in them, until a policy is stated: \
                            oncebox tenant change default --pii FILE, or --pii allow (docs/privacy.md)";

words! {
    /// The result of a check.
    pub enum Level as "CheckState" {
        /// As it should be.
        Ok = "ok",
        /// A person should look.
        Warn = "warn",
        /// A guarantee cannot be kept now.
        Fail = "fail",
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// What was checked; stable.
    pub name: &'static str,
    #[serde(rename = "state")]
    pub level: Level,
    /// What was found, and what to do.
    pub detail: String,
    /// The measured value, for programs.
    pub value: Value,
}

impl Check {
    /// A check.
    pub fn new(name: &'static str, level: Level, value: Value, detail: impl Into<String>) -> Self {
        Self { name, level, value, detail: detail.into() }
    }
}

/// The worst level of several checks.
pub fn worst(checks: &[Check]) -> Level {
    checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok)
}

/// Whether the database could be written just now.
pub fn database(written: Result<(), String>) -> Check {
    match written {
        Ok(()) => Check::new("database", Level::Ok, json!(true), "can be written"),
        Err(why) => Check::new(
            "database",
            Level::Fail,
            json!(false),
            format!("cannot be written: {why} (oncebox doctor names programs that have it open)"),
        ),
    }
}

/// The free space on the disk.
pub fn disk(room: Room, space: Option<Space>, reserve: u64) -> Check {
    let Some(Space { total, free }) = space else {
        let detail = "the free space on the disk cannot be read; the log says why";
        return Check::new("disk", Level::Warn, Value::Null, detail);
    };
    let value = json!({ "free_bytes": free, "reserve_bytes": reserve, "total_bytes": total });
    let left = format!("{} free, {} reserved for outcomes", bytes(free), bytes(reserve));
    let (level, detail) = match room {
        Room::Enough => (Level::Ok, left),
        Room::Scarce => (Level::Warn, format!("{left}: free some space soon")),
        Room::Low => (Level::Fail, format!("{left}: new work is refused until there is space")),
    };
    Check::new("disk", level, value, detail)
}

/// Adds to the check of the disk how long the free space lasts, as far as the last hours tell.
#[must_use]
pub fn lasting(mut disk: Check, lasts: Option<Duration>) -> Check {
    if let (Some(lasts), Value::Object(value)) = (lasts, &mut disk.value) {
        value.insert("lasts_seconds".to_owned(), json!(lasts.as_secs()));
        let hours = lasts.as_secs() / 3600;
        let shown =
            if hours < 48 { format!("{hours} hours") } else { format!("{} days", hours / 24) };
        disk.detail = format!("{}; at the rate of the last hours it lasts {shown}", disk.detail);
    }
    disk
}

/// Our clock: what it shows, and why it is not believed.
pub fn clock(shown: Timestamp, suspicion: Option<Suspicion>) -> Check {
    let value = json!({ "now": shown, "suspect": suspicion.is_some() });
    let (level, detail) = match suspicion {
        _ if shown < EARLIEST => (
            Level::Fail,
            format!("shows {shown}, which cannot be right: set it, and let NTP keep it right"),
        ),
        Some(suspicion) => (Level::Warn, doubt(shown, suspicion)),
        None => (Level::Ok, format!("shows {shown}")),
    };
    Check::new("clock", level, value, detail)
}

/// The reason why a clock is not believed, with the consequence and the remedy.
fn doubt(shown: Timestamp, suspicion: Suspicion) -> String {
    let why = match suspicion.doubt {
        ClockDoubt::Set => "it was set while the service ran",
        ClockDoubt::BehindFile => "it is behind the last time that the database knows",
        ClockDoubt::AheadOfFile => {
            "it is more than a week after the last time that the database knows"
        }
        ClockDoubt::TooEarly => "it shows a time before this program existed",
    };
    format!(
        "shows {shown} and may be wrong: {why}. Nothing is deleted, given up, expired or rotated by it until NTP keeps it \
         right, or it was not set again until {}, or you say that it is right: oncebox clock confirm",
        suspicion.ends_at()
    )
}

/// The write-ahead log: how many bytes are not in the database yet, and whether another program prevents copying them.
/// The program is not named, because anybody can read this check.
pub fn log(uncopied: u64, is_held: bool) -> Check {
    let shown = format!("{} wait to be copied into the database", bytes(uncopied));
    let (level, detail) = if is_held {
        let detail = format!(
            "{shown}, because another program reads it in a transaction that does not end: end that \
             transaction (oncebox status names the program)"
        );
        (Level::Warn, detail)
    } else {
        (Level::Ok, shown)
    };
    Check::new("log", level, json!({ "uncopied_bytes": uncopied, "held": is_held }), detail)
}

/// How long the oldest job has waited for the writer.
pub fn writer(lag: Duration) -> Check {
    let (level, remark) = if lag > WRITER_LAG_FAIL {
        (Level::Fail, ": it is stuck; look for a process that locks the database, and at the disk")
    } else if lag > WRITER_LAG_WARN {
        (Level::Warn, ": the disk is slow, or another process locks the database")
    } else {
        (Level::Ok, "")
    };
    let detail = format!("the oldest job waits for {} ms{remark}", lag.as_millis());
    Check::new("writer", level, json!({ "lag_seconds": lag.as_secs_f64() }), detail)
}

/// Whether the process crashes again and again. Then it searches for the input that causes this.
pub fn starts(is_careful: bool) -> Check {
    let (level, detail) = if is_careful {
        let detail =
            "the process crashed several times in the last ten minutes; the log says what is done";
        (Level::Warn, detail)
    } else {
        (Level::Ok, "the process does not crash")
    };
    Check::new("starts", level, json!({ "is_crashing": is_careful }), detail)
}

/// For how long the oldest delivery without a hold has been due.
pub fn due(overdue: Option<Duration>) -> Check {
    let seconds = overdue.unwrap_or_default().as_secs_f64();
    let value = json!({ "oldest_seconds": seconds });
    let (level, detail) = match overdue {
        Some(late) if late > OVERDUE_WARN => {
            let detail = format!(
                "one has been due for {} s: targets are slow, or there are more deliveries than can be sent",
                late.as_secs()
            );
            (Level::Warn, detail)
        }
        Some(late) => (Level::Ok, format!("the oldest has been due for {} s", late.as_secs())),
        None => (Level::Ok, "nothing is overdue".to_owned()),
    };
    Check::new("due", level, value, detail)
}

/// Deliveries that were given up.
pub fn dead_letters(count: u64) -> Check {
    let (level, detail) = match count {
        0 => (Level::Ok, "none".to_owned()),
        count => (Level::Warn, format!("{count} were given up: oncebox dead-letter list")),
    };
    Check::new("dead_letters", level, json!({ "count": count }), detail)
}

/// The periodic duties that are late.
pub fn duties(chores: &[Chore], now: Timestamp) -> Check {
    let late: Vec<&str> =
        chores.iter().filter(|chore| chore.is_late(now)).map(|chore| chore.duty.as_str()).collect();
    let value = json!({ "late": late });
    if late.is_empty() {
        return Check::new("duties", Level::Ok, value, "none is late".to_owned());
    }
    let detail = format!(
        "late by more than a day: {}. The log says what keeps them from being done; a clock that may be wrong does: \
         oncebox clock show",
        late.join(", ")
    );
    Check::new("duties", Level::Warn, value, detail)
}

/// Events that cannot be used.
pub fn quarantined(count: u64) -> Check {
    let (level, detail) = match count {
        0 => (Level::Ok, "none".to_owned()),
        count => {
            let detail = format!("{count} cannot be used: oncebox event list --status quarantined");
            (Level::Warn, detail)
        }
    };
    Check::new("quarantined", level, json!({ "count": count }), detail)
}

/// Whether somebody has decided what is stored of personal data in published events.
pub fn personal_data(is_stated: bool) -> Check {
    let (level, detail) = if is_stated {
        (Level::Ok, "the tenant default has a stated policy")
    } else {
        (Level::Warn, UNSTATED)
    };
    Check::new("personal_data", level, json!({ "stated": is_stated }), detail)
}

/// How many holds keep subscriptions from being called, by reason.
pub fn subscriptions(holds: &[(HoldReason, u64)]) -> Check {
    let is_by_a_person = |reason| matches!(reason, HoldReason::Paused | HoldReason::Suspended);
    let counts = |wanted: bool| {
        let of = holds.iter().filter(|(reason, _)| is_by_a_person(*reason) == wanted);
        let words = of.map(|(reason, count)| format!("{count} {}", reason.as_str()));
        words.collect::<Vec<_>>().join(", ")
    };
    let by_oncebox = counts(false);
    let by_people = counts(true);
    let (level, detail) = match (by_oncebox.is_empty(), by_people.is_empty()) {
        (true, true) => (Level::Ok, "none is held".to_owned()),
        (true, false) => (Level::Ok, by_people),
        (false, is_all) => {
            let rest = if is_all { String::new() } else { format!(", {by_people}") };
            (Level::Warn, format!("held: {by_oncebox}{rest}: oncebox subscription list"))
        }
    };
    let value = holds.iter().map(|(reason, count)| (reason.as_str().to_owned(), json!(count)));
    Check::new("subscriptions", level, Value::Object(value.collect()), detail)
}

/// Open escalations, and how many of them nobody has acknowledged.
pub fn escalations(open: u64, unseen: u64) -> Check {
    let (level, detail) = match (open, unseen) {
        (0, _) => (Level::Ok, "none is open".to_owned()),
        (open, 0) => (Level::Ok, format!("{open} open, all of them acknowledged")),
        (open, unseen) => {
            let detail = format!("{open} open, {unseen} not acknowledged: oncebox escalation list");
            (Level::Warn, detail)
        }
    };
    Check::new("escalations", level, json!({ "open": open, "unseen": unseen }), detail)
}

/// The newest backup, if backups are scheduled.
pub fn backup(every: Option<Duration>, age: Option<Duration>) -> Check {
    let value = json!({ "age_seconds": age.map(|age| age.as_secs()) });
    let shown = |span: Duration| humantime::format_duration(Duration::from_secs(span.as_secs()));
    let (level, detail) = match (every, age) {
        (None, _) => (Level::Ok, "no backups are scheduled (backup.every)".to_owned()),
        (Some(_), None) => (Level::Warn, "there is none yet".to_owned()),
        (Some(every), Some(age)) if age > every.saturating_mul(2) => {
            let detail = format!("the newest is {} old: the log says why", shown(age));
            (Level::Warn, detail)
        }
        (Some(_), Some(age)) => (Level::Ok, format!("the newest is {} old", shown(age))),
    };
    Check::new("backup", level, value, detail)
}

/// What the archive has, and how its last run went.
#[derive(Clone, Debug, Default)]
pub struct ArchiveState {
    /// Files.
    pub months: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Events that the database had after the last run.
    pub hot: Option<u64>,
    /// When the oldest of them was received.
    pub oldest_at: Option<Timestamp>,
    /// When the last run ended.
    pub ended_at: Option<Timestamp>,
    /// Why it ended early.
    pub error: Option<String>,
}

/// The archive.
pub fn archive(of: ArchiveState) -> Check {
    let ArchiveState { months, bytes: size, hot, oldest_at, ended_at, error } = of;
    let (level, ran) = match (&error, ended_at) {
        (Some(error), _) => (Level::Warn, format!("; the last run failed: {error}")),
        (None, Some(at)) => (Level::Ok, format!("; the last run ended {at}")),
        (None, None) => (Level::Ok, String::new()),
    };
    // Counted then: the database may have more by now.
    let left =
        hot.map_or_else(String::new, |hot| format!(" and left {hot} events in the database"));
    let since = oldest_at.map_or_else(String::new, |at| format!(", the oldest of {at}"));
    let detail = format!("{months} months, {}{ran}{left}{since}", bytes(size));
    let value = json!({ "months": months, "bytes": size, "hot_events": hot, "hot_oldest_at": oldest_at,
                        "ended_at": ended_at });
    Check::new("archive", level, value, detail)
}

/// A restore: until when new events are held for review, and how many deliveries are in doubt.
pub fn in_doubt(window: Option<Window>, count: u64, now: Timestamp) -> Check {
    let window = window.filter(|window| now < window.until);
    let value = json!({ "count": count, "until": window.map(|window| window.until) });
    let (level, detail) = match window {
        Some(Window { lost_at, until }) => (
            Level::Warn,
            format!(
                "restored: until {until} new events are held for review, unless they happened after {lost_at}: \
                 oncebox in-doubt list; to end this: oncebox in-doubt end"
            ),
        ),
        None if count == 0 => (Level::Ok, "no delivery of before a restore".to_owned()),
        None => (Level::Ok, format!("{count} deliveries wait for a person: oncebox in-doubt list")),
    };
    Check::new("in_doubt", level, value, detail)
}

/// A number of bytes in a readable unit.
pub fn bytes(count: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(size, _)| count >= *size);
    unit.map_or_else(
        || format!("{count} B"),
        |(size, name)| {
            let tenths = (count % size).saturating_mul(10) / size;
            format!("{}.{tenths} {name}", count / size)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_its_level() {
        let secs = Duration::from_secs;
        let space = Some(Space { total: 100, free: 10 });
        let now = EARLIEST.plus(secs(1));
        let suspicion = Suspicion { doubt: ClockDoubt::Set, agrees_since: now, offset_ms: 0 };
        for (check, level) in [
            (database(Ok(())), Level::Ok),
            (database(Err("locked".to_owned())), Level::Fail),
            (disk(Room::Enough, space, 5), Level::Ok),
            (disk(Room::Scarce, space, 5), Level::Warn),
            (disk(Room::Low, space, 50), Level::Fail),
            (disk(Room::Enough, None, 0), Level::Warn),
            (log(0, false), Level::Ok),
            (log(1, true), Level::Warn),
            (clock(now, None), Level::Ok),
            (clock(now, Some(suspicion)), Level::Warn),
            (clock(Timestamp::from_secs(0), None), Level::Fail),
            (writer(secs(1)), Level::Ok),
            (writer(secs(2)), Level::Warn),
            (writer(secs(11)), Level::Fail),
            (due(None), Level::Ok),
            (due(Some(secs(300))), Level::Ok),
            (due(Some(secs(301))), Level::Warn),
            (dead_letters(0), Level::Ok),
            (dead_letters(1), Level::Warn),
            (quarantined(0), Level::Ok),
            (quarantined(1), Level::Warn),
            (subscriptions(&[]), Level::Ok),
            (subscriptions(&[(HoldReason::Paused, 2)]), Level::Ok),
            (subscriptions(&[(HoldReason::Auth, 1)]), Level::Warn),
            (escalations(0, 0), Level::Ok),
            (escalations(1, 0), Level::Ok),
            (escalations(2, 1), Level::Warn),
            (in_doubt(None, 1, now), Level::Ok),
            (in_doubt(Some(Window { lost_at: now, until: now }), 1, now), Level::Ok),
            (
                in_doubt(Some(Window { lost_at: now, until: now.plus(secs(1)) }), 0, now),
                Level::Warn,
            ),
            (backup(None, None), Level::Ok),
            (backup(Some(secs(60)), None), Level::Warn),
            (backup(Some(secs(60)), Some(secs(120))), Level::Ok),
            (backup(Some(secs(60)), Some(secs(121))), Level::Warn),
        ] {
            assert_eq!(check.level, level, "{check:?}");
        }
    }

    #[test]
    fn the_disk_tells_how_long_it_lasts() {
        let disk = || disk(Room::Enough, Some(Space { total: 100, free: 10 }), 5);
        assert_eq!(lasting(disk(), None), disk());
        let shown = |hours| lasting(disk(), Some(Duration::from_hours(hours)));
        assert!(shown(47).detail.ends_with("it lasts 47 hours"), "{:?}", shown(47));
        assert!(shown(49).detail.ends_with("it lasts 2 days"), "{:?}", shown(49));
        assert_eq!(shown(1).value["lasts_seconds"], 3600);
    }

    #[test]
    fn sizes_have_readable_units() {
        let shown = [0, 1023, 1536, 64_000_000, 5 << 30].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.5 KiB", "61.0 MiB", "5.0 GiB"]);
    }
}

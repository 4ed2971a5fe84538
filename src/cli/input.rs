//! Parsers for the values of flags: `@file`, `-` for stdin, JSON, times and spans.
//!
//! Not here: secrets, which are never read from the command line ([`super::secrets`]).

use std::io::Read;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::base::clock::{self, Clock, Timestamp};
use crate::cli::exit::{self, Failure};
use crate::config::Settings;
use crate::model::json::carried;
use crate::sys::files::is_closed;

/// The most that is read of a file or of stdin: more than the largest payload.
const MAX_BYTES: u64 = 64 << 20;

/// The signs for the comparisons of a condition.
const OPS: [(&str, &str); 10] = [
    ("=", "equals"),
    ("!=", "not_equals"),
    (">", "gt"),
    (">=", "gte"),
    ("<", "lt"),
    ("<=", "lte"),
    ("in", "in"),
    ("exists", "exists"),
    ("starts_with", "starts_with"),
    ("contains", "contains"),
];

/// The bytes of a value, of a file (`@file`), or of stdin (`-`).
pub(super) fn bytes(value: &str) -> Result<Vec<u8>, Failure> {
    match (value, value.strip_prefix('@')) {
        ("-", _) => stdin(),
        (_, Some(path)) => file(Path::new(path)),
        (_, None) => Ok(value.as_bytes().to_vec()),
    }
}

/// A file's bytes.
pub(super) fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let opened = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    limited(opened, &path.display().to_string())
}

/// The bytes of stdin.
pub(super) fn stdin() -> Result<Vec<u8>, Failure> {
    limited(std::io::stdin().lock(), "stdin")
}

/// The failure for a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    let code = if denied { exit::NOT_PERMITTED } else { exit::BAD_INPUT };
    Failure::new(code, format!("{}: {error}", path.display()))
}

/// Fails if this user may not open the data directory, which would otherwise look empty.
pub(super) fn check_open(directory: &Path) -> Result<(), Failure> {
    if !is_closed(directory) {
        return Ok(());
    }
    let why = "is closed to this user: run it as root or as the service's user (sudo)";
    Err(Failure::new(exit::NOT_PERMITTED, format!("{} {why}", directory.display())))
}

/// The package's data directory and systemd unit.
const PACKAGED: [&str; 2] = ["/var/lib/oncebox", "/lib/systemd/system/oncebox.service"];

/// Whether the service was installed by the package, so that systemd runs it.
pub(super) fn is_packaged(settings: &Settings) -> bool {
    let [directory, unit] = PACKAGED.map(Path::new);
    settings.directory() == directory && unit.exists()
}

/// The command that starts the service.
pub(super) fn start_command(settings: &Settings) -> &'static str {
    if is_packaged(settings) { "systemctl start oncebox" } else { "oncebox serve" }
}

/// What systemd says of the package's service while it does not get to run; `None` if it runs, or a request starts it.
pub(super) fn not_running(settings: &Settings) -> Option<String> {
    let show = ["show", "--property=ActiveState,SubState,StatusText,Result", "oncebox.service"];
    let ask = |args: &[&str]| Command::new("systemctl").args(args).output().ok();
    let shown = is_packaged(settings).then(|| ask(&show))??;
    let said = judge_unit(&String::from_utf8_lossy(&shown.stdout))?;
    let listens =
        || ask(&["is-active", "oncebox.socket"]).is_some_and(|asked| asked.status.success());
    let is_stopped = said.starts_with("inactive");
    let next = if is_stopped { "start oncebox.socket oncebox.service" } else { "restart oncebox" };
    (!is_stopped || !listens()).then_some(format!(
        "the service does not run. systemd says: {said}\nMore: journalctl -u oncebox. To start it at once: systemctl {next}"
    ))
}

/// Reads `systemctl show`. A stop or a start under way is left to end.
fn judge_unit(shown: &str) -> Option<String> {
    let field = |name: &str| {
        let value = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default()
    };
    let active = field("ActiveState");
    let text = field("StatusText");
    let stands = match (active, field("SubState")) {
        ("activating", "auto-restart") | ("inactive" | "failed", _) => true,
        ("activating", _) => text.starts_with("Not started"),
        _ => false,
    };
    let text = match text {
        "" => format!("the last try ended with {}", field("Result")),
        text => text.to_owned(),
    };
    stands.then(|| format!("{active} ({}): {text}", field("SubState")))
}

fn limited(from: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::input(format!("{name}: {error}")))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(Failure::input(format!("{name} has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// A JSON object from a flag.
pub(super) fn object(flag: &str, value: &str) -> Result<Map<String, Value>, Failure> {
    match carried::read(&bytes(value)?) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_other) => Err(Failure::input(format!("{flag} is not a JSON object"))),
        Err(why) => Err(Failure::input(format!("{flag} is not a JSON object: {why}"))),
    }
}

/// Parses a time: RFC 3339, a day, or how long ago (`2h`). Returns RFC 3339 for a query.
pub(super) fn time(text: &str) -> Result<String, String> {
    if Timestamp::parse(text).is_some() {
        return Ok(text.to_owned());
    }
    // A day begins at midnight in UTC, because all times are shown in UTC.
    let day = format!("{text}T00:00:00Z");
    if Timestamp::parse(&day).is_some() {
        return Ok(day);
    }
    let ago = humantime::parse_duration(text).map_err(|_why| {
        "give a time like 2026-01-31T12:00:00Z, a day like 2026-01-31, or how long ago, like 2h or 3days"
    })?;
    Ok(Clock::machine().wall().minus(ago).to_string())
}

/// Checks a span like `30s`, which is sent as it was written.
pub(super) fn span(text: &str) -> Result<String, String> {
    clock::span(text).map(|_span| text.to_owned())
}

/// Parses a span to whole seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    clock::span(text).map(|span| span.as_secs())
}

/// Parses a span to whole milliseconds.
pub(super) fn millis(text: &str) -> Result<u64, String> {
    let span = clock::span(text)?;
    Ok(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Parses `NAME=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    let (name, value) = pair.ok_or("write FIELD=VALUE, such as event_type=kind")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A header field, `Name: value`.
pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("give a header field as 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// A condition, `PATH OP VALUE`. A value that is no JSON is a text.
pub(super) fn condition(given: &str) -> Result<Value, String> {
    let mut quote = None;
    let is_end = |c: char| {
        quote = match (quote, c) {
            (None, '\'' | '"') => Some(c),
            (Some(open), c) if open == c => None,
            (quote, _) => quote,
        };
        quote.is_none() && c.is_whitespace()
    };
    let wrong = "give a condition as 'PATH OP VALUE', such as '$.total > 100'";
    let (path, rest) = given.trim().split_once(is_end).ok_or(wrong)?;
    let rest = rest.trim();
    let (sign, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (_, op) = OPS.iter().find(|(have, _)| *have == sign).ok_or(wrong)?;
    let value = value.trim();
    match (*op, value) {
        ("exists", "") => Ok(json!({ "path": path, "op": op })),
        (_, "") => Err(wrong.to_owned()),
        _ => {
            let value = carried::read(value.as_bytes()).unwrap_or_else(|_text| value.into());
            Ok(json!({ "path": path, "op": op, "value": value }))
        }
    }
}

/// How an idle target is probed, `SPAN METHOD PATH`, or `SPAN` for a ping; null for `off`.
pub(super) fn probe(given: &str) -> Result<Value, String> {
    if given == "off" {
        return Ok(Value::Null);
    }
    let mut words = given.splitn(3, ' ');
    let every = span(words.next().unwrap_or_default())?;
    let method = words.next().map(str::to_ascii_uppercase);
    Ok(json!({ "every": every, "method": method, "path": words.next() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_be_given_as_a_span_that_has_passed() {
        assert_eq!(time("2026-01-31T12:00:00Z").unwrap(), "2026-01-31T12:00:00Z");
        let hour_ago = Timestamp::parse(&time("1h").unwrap()).unwrap();
        let passed = Clock::machine().wall().since(hour_ago);
        assert!(passed.as_secs() >= 3600 && passed.as_secs() < 3660, "{passed:?}");
        assert!(time("yesterday").is_err());
    }

    #[test]
    fn a_unit_that_does_not_get_to_run_is_told_apart_from_one_that_restarts() {
        let shown = |active: &str, sub: &str, text: &str| {
            judge_unit(&format!(
                "Result=resources\nActiveState={active}\nSubState={sub}\nStatusText={text}\n"
            ))
        };
        assert_eq!(shown("active", "running", "Ready"), None);
        assert_eq!(shown("deactivating", "stop-sigterm", "Stopping."), None);
        assert_eq!(shown("activating", "start", "Starting."), None);
        let refused = shown("activating", "start", "Not started: the disk is read-only").unwrap();
        assert!(refused.ends_with("the disk is read-only"), "{refused}");
        let missing = shown("activating", "auto-restart", "").unwrap();
        assert!(
            missing.contains("auto-restart") && missing.ends_with("with resources"),
            "{missing}"
        );
        assert!(shown("inactive", "dead", "").is_some());
    }

    #[test]
    fn a_value_is_itself_or_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        std::fs::write(&path, "{\"a\":1}").unwrap();
        let argument = format!("@{}", path.display());
        assert_eq!(object("--x", &argument).unwrap().len(), 1);
        assert_eq!(bytes("abc").unwrap(), b"abc");
        let refusal = object("--x", "[1]").unwrap_err();
        assert!(refusal.message.starts_with("--x is not a JSON object"), "{refusal:?}");
        assert_eq!(bytes("@/nowhere/at/all").unwrap_err().code, exit::BAD_INPUT);
    }

    #[test]
    fn a_condition_is_a_path_a_sign_and_a_value() {
        for (given, read) in [
            ("$.total > 100", json!({ "path": "$.total", "op": "gt", "value": 100 })),
            ("$.status = paid", json!({ "path": "$.status", "op": "equals", "value": "paid" })),
            ("$.id = \"100\"", json!({ "path": "$.id", "op": "equals", "value": "100" })),
            (
                "$['a > b'] != x y",
                json!({ "path": "$['a > b']", "op": "not_equals", "value": "x y" }),
            ),
            ("$.s in [\"a\", 2]", json!({ "path": "$.s", "op": "in", "value": ["a", 2] })),
            ("$.note exists", json!({ "path": "$.note", "op": "exists" })),
            ("$.note exists false", json!({ "path": "$.note", "op": "exists", "value": false })),
        ] {
            assert_eq!(condition(given), Ok(read), "{given}");
        }
        for wrong in ["", "$.total", "$.total >", "$.total is 1", "$['a b > 1"] {
            assert!(condition(wrong).is_err(), "{wrong}");
        }
    }
}

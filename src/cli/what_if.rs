//! What `--what-if` prints: how the terms of a subscription, or the schema of an event type, would have treated the events of a
//! period.

use crate::cli::prelude::*;
use crate::cli::show::clean;

/// Characters of each body that an example shows.
const EXAMPLE_CHARS: usize = 400;

/// Counts with what they mean, in the order of the output.
const COUNTS: [(&str, &str); 7] = [
    ("wanted_now", "wanted now"),
    ("wanted_then", "wanted with these terms"),
    ("more", "  more than now"),
    ("fewer", "  fewer than now"),
    ("changed", "sent otherwise"),
    ("failing", "cannot be written"),
    ("other_lane", "in another lane"),
];

/// Prints counts, then examples with what is sent now and then.
pub(super) fn print(remote: &Remote, found: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(found);
    }
    let count = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or_default();
    print_period(found)?;
    for (name, meaning) in COUNTS {
        out::line(format_args!("{:>8}  {meaning}", count(name)))?;
    }
    for example in list(found, "examples") {
        print_example(example)?;
    }
    out::note("Nothing was saved, and nothing was sent.");
    Ok(())
}

/// Prints how many events a schema would refuse, then some of them.
pub(super) fn print_of_schema(remote: &Remote, found: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(found);
    }
    let count = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or_default();
    print_period(found)?;
    out::line(format_args!("{:>8}  refused by the schema of now", count("refused_now")))?;
    out::line(format_args!("{:>8}  refused by this schema", count("refused_then")))?;
    for example in list(found, "examples") {
        let event = text(example, "event");
        let at = text(example, "received_at");
        out::line("")?;
        out::line(format_args!("{at}  {event}  would be refused"))?;
        out::line(format_args!("  {}", clean(&text(example, "why"))))?;
    }
    out::note("Nothing was saved.");
    Ok(())
}

/// Says which events were looked at.
fn print_period(found: &Value) -> Result<(), Failure> {
    let looked_at = found.get("looked_at").and_then(Value::as_u64).unwrap_or_default();
    let since = text(found, "since");
    out::line(format_args!("{looked_at} stored events since {since} were looked at."))?;
    if found.get("is_whole") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    out::line("These are the newest; there are more. Ask for a shorter span to see all of it.")
}

fn print_example(example: &Value) -> Result<(), Failure> {
    let event = text(example, "event");
    let event_type = clean(&text(example, "event_type"));
    let at = text(example, "received_at");
    let difference = match text(example, "difference").as_str() {
        "more" => "would be sent",
        "fewer" => "would not be sent",
        "changed" => "would be sent otherwise",
        _ => "could not be written",
    };
    out::line("")?;
    out::line(format_args!("{at}  {event_type}  {event}  {difference}"))?;
    let why = text(example, "why");
    if !why.is_empty() {
        out::line(format_args!("  {}", clean(&why)))?;
    }
    for (name, sign) in [("now", '-'), ("then", '+')] {
        let shown = example.get(name).and_then(Value::as_str).unwrap_or_default();
        let shown: String = shown.chars().take(EXAMPLE_CHARS).collect();
        for line in shown.lines() {
            out::line(format_args!("{sign} {}", clean(line)))?;
        }
    }
    Ok(())
}

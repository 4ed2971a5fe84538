//! What `--what-if` asks and prints: how the terms of a subscription, the schema of an event type, or the policy of a provider
//! would have treated the events of a period.

use serde_json::Map;

use crate::cli::parted_answer::PartedAnswer;
use crate::cli::prelude::*;
use crate::cli::show::clean;

/// Examples that are printed at most.
const MAX_EXAMPLES: usize = 20;
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

/// Counts of a schema.
const COUNTS_OF_SCHEMA: [(&str, &str); 2] =
    [("refused_now", "refused by the schema of now"), ("refused_then", "refused by this schema")];

/// Counts of a provider's webhooks.
const COUNTS_OF_PROVIDER: [(&str, &str); 4] = [
    ("refused", "would be refused"),
    ("changed", "would be stored otherwise"),
    ("other_key", "would have another ordering key"),
    ("sealed", "have sealed fields, which were not looked at"),
];

/// Asks about the whole period, one part after the other, and returns the answers as one.
pub(super) fn ask(
    call: &Call<'_>,
    remote: &Remote,
    body: Map<String, Value>,
) -> Result<Value, Failure> {
    let looked_at = |found: &Value| {
        let count = count(found, "looked_at");
        format!("{count} events were looked at, and older ones follow …")
    };
    let parts = PartedAnswer {
        member: "what_if",
        of_whole: &[],
        max_items: MAX_EXAMPLES,
        told: &looked_at,
    };
    parts.ask(body, |body| call.send(remote, body))
}

fn count(found: &Value, name: &str) -> u64 {
    found.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn print_counts(found: &Value, counts: &[(&str, &str)]) -> Result<(), Failure> {
    out::line(format_args!(
        "{} stored events since {} were looked at.",
        count(found, "looked_at"),
        text(found, "since")
    ))?;
    for (name, meaning) in counts {
        out::line(format_args!("{:>8}  {meaning}", count(found, name)))?;
    }
    Ok(())
}

/// Prints counts, then examples with what is sent now and then.
pub(super) fn print(remote: &Remote, found: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(found);
    }
    print_counts(found, &COUNTS)?;
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
    print_counts(found, &COUNTS_OF_SCHEMA)?;
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

/// Prints how the terms of a provider would have treated its webhooks, then some of them.
pub(super) fn print_of_provider(remote: &Remote, found: &Value) -> Result<(), Failure> {
    if remote.json() {
        return out::json(found);
    }
    print_counts(found, &COUNTS_OF_PROVIDER)?;
    for example in list(found, "examples") {
        let event = text(example, "event");
        let event_type = clean(&text(example, "event_type"));
        let at = text(example, "received_at");
        let difference = match text(example, "difference").as_str() {
            "refused" => "would be refused",
            "changed" => "would be stored otherwise",
            _ => "would have another ordering key",
        };
        out::line("")?;
        out::line(format_args!("{at}  {event_type}  {event}  {difference}"))?;
        out::line(format_args!("  {}", clean(&text(example, "why"))))?;
    }
    out::note("Nothing was saved.");
    Ok(())
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

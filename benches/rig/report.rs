//! What was measured, as a table or as JSON.

use serde_json::{Value, json};

use super::{Options, facts};

/// A bench's lines.
pub(crate) struct Report {
    name: &'static str,
    options: Options,
    machine: String,
    lines: Vec<Line>,
}

struct Line {
    what: String,
    value: f64,
    unit: &'static str,
    /// Of what, and how much of it.
    ratio: Option<(String, f64)>,
    /// Whether what was asked for is reached, and what that is.
    target: Option<(String, bool)>,
}

impl Report {
    pub(crate) fn new(name: &'static str, options: Options) -> Self {
        let machine = facts::line();
        if !options.json {
            println!("{name}: {machine}");
        }
        Self { name, options, machine, lines: Vec::new() }
    }

    /// A value by itself.
    pub(crate) fn line(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.push(Line { what: what.into(), value, unit, ratio: None, target: None });
    }

    /// A value that should be at most `most`.
    pub(crate) fn at_most(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        most: f64,
    ) {
        let target = Some((format!("<= {most} {unit}"), value <= most));
        self.push(Line { what: what.into(), value, unit, ratio: None, target });
    }

    /// A value, and how much of something else it is, which should be at least `least`.
    pub(crate) fn ratio(
        &mut self,
        what: impl Into<String>,
        (value, unit): (f64, &'static str),
        (floor, ratio): (String, f64),
        least: Option<f64>,
    ) {
        let target = least.map(|least| (format!(">= {:.0} %", least * 100.0), ratio >= least));
        self.push(Line { what: what.into(), value, unit, ratio: Some((floor, ratio)), target });
    }

    /// A value, and how many times something else it is, which should be at most `most`.
    pub(crate) fn times(
        &mut self,
        what: impl Into<String>,
        (value, unit): (f64, &'static str),
        (base, times): (String, f64),
        most: Option<f64>,
    ) {
        let target = most.map(|most| (format!("<= {most} x"), times <= most));
        self.push(Line { what: what.into(), value, unit, ratio: Some((base, times)), target });
    }

    fn push(&mut self, line: Line) {
        if !self.options.json {
            let ratio = line.ratio.as_ref();
            let ratio = ratio.map_or_else(String::new, |(of, ratio)| format!("{ratio:.2} of {of}"));
            let target = line.target.as_ref().map_or_else(String::new, |(target, reached)| {
                format!("{target} {}", if *reached { "reached" } else { "MISSED" })
            });
            println!(
                "  {:<52} {:>10} {:<6} {ratio:<28} {target}",
                line.what,
                short(line.value),
                line.unit
            );
        }
        self.lines.push(line);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.options.json || std::thread::panicking() {
            return;
        }
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                json!({
                    "what": line.what, "value": line.value, "unit": line.unit,
                    "of": line.ratio.as_ref().map(|(of, _)| of),
                    "ratio": line.ratio.as_ref().map(|(_, ratio)| ratio),
                    "target": line.target.as_ref().map(|(target, _)| target),
                    "reached": line.target.as_ref().map(|(_, reached)| reached),
                })
            })
            .collect();
        println!("{}", json!({ "bench": self.name, "machine": self.machine, "lines": lines }));
    }
}

fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

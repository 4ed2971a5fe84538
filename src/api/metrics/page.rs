//! Writes Prometheus text, version 0.0.4.

use crate::api::metrics::table::{METRICS, Metric};
use crate::telemetry::tally::Observed;

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// A metric without labels.
    pub(super) fn one(&mut self, name: &str, value: impl Into<Number>) {
        self.each(name, [("", value)]);
    }

    /// A metric whose samples carry one set of labels each, written as in the text: `a="b"`.
    pub(super) fn each<L: AsRef<str>, V: Into<Number>>(
        &mut self,
        name: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) {
        self.head(name);
        for (labels, value) in samples {
            self.sample(name, labels.as_ref(), &value.into().0);
        }
    }

    /// A metric of each value of its one label, in the order in which the table has them.
    pub(super) fn all(&mut self, name: &str, values: impl IntoIterator<Item = impl Into<Number>>) {
        let known = METRICS.iter().find(|metric| metric.name == name);
        let shown = known.map(|found| found.labels.shown()).unwrap_or_default();
        let (label, words) = shown.split_once(" = ").unwrap_or_default();
        let labels = words.split(", ").map(|word| format!("{label}=\"{word}\""));
        self.each(name, labels.zip(values));
    }

    /// A histogram of durations that were counted in microseconds.
    pub(super) fn spans(&mut self, name: &str, observed: &Observed) {
        self.histogram(name, observed, seconds);
    }

    /// A histogram of plain numbers.
    pub(super) fn amounts(&mut self, name: &str, observed: &Observed) {
        self.histogram(name, observed, |amount| amount.to_string());
    }

    /// The whole text.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    fn histogram(&mut self, name: &str, observed: &Observed, shown: impl Fn(u64) -> String) {
        self.head(name);
        let bucket = format!("{name}_bucket");
        for (bound, count) in &observed.below {
            self.sample(&bucket, &format!("le=\"{}\"", shown(*bound)), &count.to_string());
        }
        let count = observed.count.to_string();
        self.sample(&bucket, "le=\"+Inf\"", &count);
        self.sample(&format!("{name}_sum"), "", &shown(observed.sum));
        self.sample(&format!("{name}_count"), "", &count);
    }

    fn head(&mut self, name: &str) {
        let known = METRICS.iter().find(|metric| metric.name == name);
        debug_assert!(known.is_some(), "{name} is not in the table");
        if let Some(Metric { kind, about, .. }) = known {
            self.line(format_args!("# HELP {name} {about}"));
            self.line(format_args!("# TYPE {name} {}", kind.as_str()));
        }
    }

    fn sample(&mut self, name: &str, labels: &str, value: &str) {
        if labels.is_empty() {
            self.line(format_args!("{name} {value}"));
        } else {
            self.line(format_args!("{name}{{{labels}}} {value}"));
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.push_str(&text.to_string());
        self.0.push('\n');
    }
}

/// A number as it is written.
#[derive(Debug)]
pub(super) struct Number(String);

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<bool> for Number {
    fn from(yes: bool) -> Self {
        Self(u8::from(yes).to_string())
    }
}

impl From<std::time::Duration> for Number {
    fn from(span: std::time::Duration) -> Self {
        Self(seconds(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl<T: Into<Self>> From<Option<T>> for Number {
    fn from(number: Option<T>) -> Self {
        number.map_or_else(|| Self("NaN".to_owned()), Into::into)
    }
}

/// Microseconds as seconds, exactly.
fn seconds(micros: u64) -> String {
    let whole = micros / 1_000_000;
    let rest = micros % 1_000_000;
    let text = format!("{whole}.{rest:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_seconds_to_the_digit() {
        let shown = [0, 1, 100, 2_500_000, 60_000_000, 14_400_000_000].map(seconds);
        assert_eq!(shown, ["0", "0.000001", "0.0001", "2.5", "60", "14400"]);
    }
}

//! Pictures: SVG of our own. Each has a text that says the same.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use crate::console::elements::{Mood, Svg};
use crate::console::prelude::*;

/// The width of a picture, in its own units.
const WIDTH: i64 = 720;

/// The most bars of a strip. A list has many strips.
const MAX_BARS: usize = 30;

/// The latest attempts of a subscription, the oldest first: a bar each.
pub(super) fn strip(view: &View<'_>, attempts: &[Value]) -> Markup {
    let shown = attempts.iter().take(MAX_BARS).rev();
    let width = i64::try_from(shown.len()).unwrap_or(0).saturating_mul(10);
    let mut bars: BTreeMap<&str, String> = BTreeMap::new();
    for (n, row) in (0_i64..).zip(shown) {
        let color = Mood::of(row.text("class")).class;
        let x = n * 10;
        // A line as thick as a bar is high.
        let y = if color == "good" { 17 } else { 12 };
        let _written = write!(bars.entry(color).or_default(), "M{x} {y}h8");
    }
    let failed = attempts.iter().filter(|row| row.text("class") != "success").count();
    let label =
        format!("{}: {}, {} {}", view.t.last_attempts, attempts.len(), failed, view.t.failed);
    html! {
        @if width > 0 {
            // Many bars are made narrow, not low.
            svg.strip viewBox={ "0 0 " (width) " 24" } width=(width) height="24" preserveAspectRatio="none" role="img"
                aria-label=(label) { (Svg(paths(bars))) }
        }
    }
}

/// The values of a picture, one for each time: the script shows the one below the picture that the pointer or the arrow keys
/// reach. The n-th begins `left + n * step` from the left.
struct Readings {
    left: i64,
    step: i64,
    /// What the values of a time are, with commas between them.
    names: String,
    /// A line for each time: the time and its values, with spaces between them; no values: nothing is known of it.
    lines: String,
}

impl Readings {
    fn of(left: i64, step: i64, names: &[&str]) -> Self {
        Self { left, step, names: names.join(","), lines: String::new() }
    }

    /// Adds a time with its values, if they are known.
    fn add(&mut self, row: &Value, values: Option<&[String]>) {
        self.lines.push_str(row.text("at").get(..16).unwrap_or_default());
        for value in values.unwrap_or_default() {
            self.lines.push(' ');
            self.lines.push_str(&value.replace(' ', "\u{a0}"));
        }
        self.lines.push('\n');
    }

    /// The picture with its readings.
    fn beside(&self, view: &View<'_>, picture: &Markup) -> Markup {
        html! {
            div.readings data-left=(self.left) data-step=(self.step) data-names=(self.names)
                data-unknown=(view.t.not_counted_then) data-readings=(self.lines) { (picture) }
            p.reading.small aria-live="polite" {}
        }
    }
}

/// Two lines over the minutes of an hour.
pub(super) fn lines(view: &View<'_>, minutes: &[Value]) -> Markup {
    let t = view.t;
    let delivered = |row: &Value| row.int("delivered");
    let most =
        minutes.iter().map(|row| accepted(row).max(delivered(row))).max().unwrap_or(0).max(1);
    let place = |n: i64, value: i64| (60 + n * 11, 110 - value.saturating_mul(100) / most);
    let path = |value: &dyn Fn(&Value) -> i64, class| {
        let points = (0_i64..).zip(minutes);
        plot(points.map(|(n, row)| has_counts(row).then(|| place(n, value(row)))), class)
    };
    let drawn = format!(
        "{}{}{}{}{}",
        axis(10, 110, &most.to_string()),
        gaps(minutes, is_whole, |n| (60 + n * 11, 11), 10, 100),
        path(&accepted, "plot-a"),
        path(&delivered, "plot-b"),
        hour(minutes, 126)
    );
    let mut readings =
        Readings::of(60, 11, &[t.accepted_small, t.delivered_small, t.failed_attempts]);
    for row in minutes {
        let values = [accepted(row), delivered(row), row.int("failed")].map(|n| n.to_string());
        readings.add(row, has_counts(row).then_some(&values));
    }
    let sum = |value: &dyn Fn(&Value) -> i64| minutes.iter().map(value).sum::<i64>();
    let first = sum(&accepted);
    let second = sum(&delivered);
    let label = format!(
        "{}: {first}. {}: {second}. {most} {}.",
        t.accepted_hour, t.delivered_hour, t.most_a_minute
    );
    html! {
        figure {
            figcaption.legend {
                strong { (t.a_minute) }
                span { span.key-a aria-hidden="true" { "━━" } " " (t.accepted_hour) }
                span { span.key-b aria-hidden="true" { "╍╍" } " " (t.delivered_hour) }
            }
            (readings.beside(view, &svg(&label, WIDTH, 132, &drawn)))
        }
    }
}

/// How much there was in each day or hour, how much of it failed, and how long it took.
pub(super) fn history(view: &View<'_>, name: &str, what: &str, rows: &[Value]) -> Markup {
    let t = view.t;
    let width = (WIDTH - 60) / i64::try_from(rows.len()).unwrap_or(i64::MAX).max(1);
    let most_of = |field: &str| rows.iter().map(|row| row.int(field)).max().unwrap_or(0).max(1);
    let most = most_of("total");
    let slowest = most_of("p95_ms");
    let takes_time = rows.iter().any(|row| !row.field("p95_ms").is_null());
    let left = |n: i64| 60 + n * width;
    let bar = |(n, row): (i64, &Value)| {
        // What failed is seen, however little it is.
        let failed = (row.int("failed").saturating_mul(100) / most).max(row.int("failed").min(2));
        let all =
            (row.int("total").saturating_mul(100) / most).max(failed).max(row.int("total").min(1));
        let x = left(n);
        let thick = (width - 1).max(3);
        let rect = |y: i64, height: i64, class| {
            format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{thick}\" height=\"{height}\" class=\"{class}\"/>"
            )
        };
        rect(110 - all, all - failed, "open") + &rect(110 - failed, failed, "bad")
    };
    let line = |field: &'static str, class| {
        let point = |(n, row): (i64, &Value)| {
            let ms = row.field(field).as_i64()?;
            Some((left(n) + width / 2, 200 - ms.saturating_mul(70) / slowest))
        };
        plot((0_i64..).zip(rows).map(point), class)
    };
    let low = if takes_time { 200 } else { 110 };
    let mut drawn = gaps(rows, is_known, |n| (left(n), width), 10, low - 10);
    drawn.extend((0_i64..).zip(rows).map(bar));
    drawn += &axis(10, 110, &most.to_string());
    if takes_time {
        drawn = drawn + &line("p50_ms", "plot-a") + &line("p95_ms", "plot-b");
        drawn += &axis(130, 200, &span(slowest));
    }
    drawn += &ends(rows, width, low + 16);
    let mut readings = Readings::of(60, width, &[t.requests_small, t.failed, t.most_took]);
    for row in rows {
        let took = row.field("p95_ms").as_i64().map_or_else(|| "–".to_owned(), span);
        let values = [row.int("total").to_string(), row.int("failed").to_string(), took];
        readings.add(row, is_known(row).then_some(&values));
    }
    let sum = |field: &str| rows.iter().map(|row| row.int(field)).sum::<i64>();
    let total = sum("total");
    let failed = sum("failed");
    let label = format!("{name}: {what}: {total}, {failed} {}, {}", t.failed, rate(failed, total));
    html! {
        figcaption.legend {
            strong { (label) }
            span { svg.keys viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" {
                rect width="12" height="12" class="bad" {} } " " (t.failed) }
            @if takes_time {
                span { span.key-a aria-hidden="true" { "━━" } " " (t.half_took) }
                span { span.key-b aria-hidden="true" { "╍╍" } " " (t.most_took) }
            }
            @if unknown(rows, is_known) > 0 { span { (t.shaded_unknown) } }
        }
        (readings.beside(view, &svg(&label, WIDTH, low + 20, &drawn)))
    }
}

/// The first and the last time below a picture: a day, or the hour of a day.
fn ends(rows: &[Value], width: i64, y: i64) -> String {
    let shown = |row: &Value| {
        let at = row.text("at");
        let is_day = at.get(11..16).is_none_or(|clock| clock == "00:00") && rows.len() > 24;
        at.get(if is_day { 0..10 } else { 11..16 }).unwrap_or(at).to_owned()
    };
    let right = 60 + i64::try_from(rows.len()).unwrap_or(0) * width;
    let ends = html! {
        @if let Some(first) = rows.first() { text x="60" y=(y) { (shown(first)) } }
        @if let Some(last) = rows.last() { text x=(right) y=(y) text-anchor="end" { (shown(last)) } }
    };
    ends.into_string()
}

/// How much of it failed.
pub(super) fn rate(failed: i64, total: i64) -> String {
    let permille = failed.saturating_mul(1000) / total.max(1);
    format!("{}.{} %", permille / 10, permille % 10)
}

/// The axes of a plot between these heights, and the number at its top.
fn axis(top: i64, low: i64, most: &str) -> String {
    let high = top + 6;
    let deep = low + 2;
    let drawn = html! {
        path class="line" d={ "M60 " (top) "V" (low) "H709" } {}
        text x="52" y=(high) text-anchor="end" { (most) }
        text x="52" y=(deep) text-anchor="end" { "0" }
    };
    drawn.into_string()
}

/// Whether something is known of a day or an hour.
pub(super) fn is_known(row: &Value) -> bool {
    row.int("minutes") > 0 || row.int("total") > 0
}

/// How long requests took, by minute: the darker, the more.
pub(super) fn heat(view: &View<'_>, minutes: &[Value], bounds: &[Value]) -> Markup {
    let t = view.t;
    let all: i64 = minutes.iter().flat_map(latencies).sum();
    let most = minutes.iter().flat_map(latencies).max().unwrap_or(0).max(1);
    let rows = i64::try_from(bounds.len()).unwrap_or(0) + 1;
    let mut shades: BTreeMap<String, String> = BTreeMap::new();
    let begun = begun(minutes, has_counts);
    for (n, row) in (0_i64..).zip(minutes).skip(begun) {
        for (bucket, count) in (1_i64..).zip(latencies(row)) {
            let shade = if count == 0 { 0 } else { 1 + count.saturating_mul(3) / most };
            let x = 60 + n * 11;
            let y = (rows - bucket) * 13;
            *shades.entry(format!("h{shade}")).or_default() += &cell(x, y);
        }
    }
    let keys = (1_i64..=4).map(|shade| (format!("h{shade}"), cell((shade - 1) * 12, 0)));
    let name = |row: i64, text: &str| {
        html! { text x="52" y=((rows - row) * 13 + 10) text-anchor="end" { (text) } }.into_string()
    };
    let names = (1_i64..).zip(bounds).map(|(row, bound)| name(row, &bounded(bound)));
    let drawn = paths(shades)
        + &names.collect::<String>()
        + &gaps(minutes, is_whole, |n| (60 + n * 11, 11), 0, rows * 13)
        + &name(rows, t.longer)
        + &hour(minutes, rows * 13 + 14);
    let label = format!("{}: {all}", t.latency_hour);
    html! {
        figure {
            figcaption.legend {
                strong { (label) }
                span { (t.few) " "
                    svg.keys viewBox="0 0 48 12" width="48" height="12" aria-hidden="true" {
                        (Svg(paths(keys))) }
                    " " (t.many) }
            }
            (svg(&label, WIDTH, rows * 13 + 20, &drawn))
        }
    }
}

/// A cell of the heat map, as a part of a path.
fn cell(x: i64, y: i64) -> String {
    format!("M{x} {y}h10v12h-10z")
}

/// A path of each color or shade. A page has hundreds of bars and cells.
fn paths(of: impl IntoIterator<Item = (impl Display, String)>) -> String {
    let path = |(color, drawn): (_, String)| format!("<path class=\"{color}\" d=\"{drawn}\"/>");
    of.into_iter().map(path).collect::<Vec<_>>().concat()
}

/// A line through points, with a gap where there is none.
fn plot(points: impl Iterator<Item = Option<(i64, i64)>>, class: &str) -> String {
    let mut drawn = String::new();
    let mut is_open = false;
    for point in points {
        let text = match point {
            Some((x, y)) if is_open => format!(" {x},{y}"),
            // A line of no length would not be seen.
            Some((x, y)) => format!("<polyline class=\"{class}\" points=\"{x},{y} {x},{y}"),
            None if is_open => "\"/>".to_owned(),
            None => String::new(),
        };
        is_open = point.is_some();
        drawn.push_str(&text);
    }
    if is_open { drawn + "\"/>" } else { drawn }
}

/// The times of which nothing is known, as bands of this height; `place` has left side and width of the n-th. What was before the
/// first that is known is left empty: nothing was there to count.
fn gaps(
    rows: &[Value],
    is_known: fn(&Value) -> bool,
    place: impl Fn(i64) -> (i64, i64),
    y: i64,
    height: i64,
) -> String {
    let begun = begun(rows, is_known);
    let unknown = (0_i64..).zip(rows).skip(begun).filter(|(_, row)| !is_known(row));
    let band = |(n, _): (i64, &Value)| {
        let (x, width) = place(n);
        format!("M{x} {y}h{width}v{height}h-{width}z")
    };
    let bands: String = unknown.map(band).collect();
    if bands.is_empty() { bands } else { format!("<path class=\"gap\" d=\"{bands}\"/>") }
}

/// Whether the service ran and counted all the time.
pub(super) fn is_whole(row: &Value) -> bool {
    row.is("whole")
}

/// Whether a minute is drawn: it is whole, or something was counted in the part that is known, as in that of a start.
fn has_counts(row: &Value) -> bool {
    is_whole(row) || accepted(row) + row.int("delivered") + row.int("failed") > 0
}

fn accepted(minute: &Value) -> i64 {
    minute.int("events").saturating_add(minute.int("webhooks"))
}

fn latencies(minute: &Value) -> Vec<i64> {
    minute.items("latencies").iter().map(|count| count.as_i64().unwrap_or(0)).collect()
}

fn bounded(bound: &Value) -> String {
    format!("≤ {}", span(bound.as_i64().unwrap_or(0)))
}

/// The quarters of an hour below a picture of its minutes. The script shows them in the reader's zone.
fn hour(minutes: &[Value], y: i64) -> String {
    let mut drawn = String::new();
    for (n, row) in (0_i64..).zip(minutes) {
        let at = row.text("at");
        let Some(clock) = at.get(11..16).filter(|clock| is_quarter(clock)) else { continue };
        let x = 60 + n * 11;
        let from = y - 16;
        let anchor = if x > WIDTH - 40 { "end" } else { "middle" };
        let tick = html! {
            path class="line" d={ "M" (x) " " (from) "v6" } {}
            text x=(x) y=(y) text-anchor=(anchor) data-at=(at) { (clock) }
        };
        drawn.push_str(&tick.into_string());
    }
    drawn
}

/// Whether a time of day such as `08:15` begins a quarter of an hour.
fn is_quarter(clock: &str) -> bool {
    clock
        .get(3..)
        .and_then(|minute| minute.parse::<u8>().ok())
        .is_some_and(|minute| minute % 15 == 0)
}

/// How many times there are before the first of which something is known.
fn begun(rows: &[Value], is_known: fn(&Value) -> bool) -> usize {
    rows.iter().position(is_known).unwrap_or(rows.len())
}

/// How many times are unknown among those after the first that is known.
pub(super) fn unknown(rows: &[Value], is_known: fn(&Value) -> bool) -> usize {
    rows.iter().skip(begun(rows, is_known)).filter(|row| !is_known(row)).count()
}

/// How much of something is done.
pub(super) fn bar(done: i64, of: i64) -> Markup {
    let width = done.clamp(0, of.max(1)).saturating_mul(500) / of.max(1);
    let drawn = format!(
        "<rect width=\"500\" height=\"14\" class=\"h0\"/><rect width=\"{width}\" height=\"14\" class=\"good\"/>"
    );
    svg(&format!("{done} / {of}"), 500, 14, &drawn)
}

fn svg(label: &str, width: i64, height: i64, drawn: &str) -> Markup {
    html! {
        svg viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" aria-label=(label) {
            (Svg(drawn.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_time_after_the_first_that_is_known_is_shaded() {
        let rows: Vec<Value> =
            [0, 0, 60, 0, 60].iter().map(|minutes| json!({ "minutes": minutes })).collect();
        assert_eq!((begun(&rows, is_known), unknown(&rows, is_known)), (2, 1));
        let drawn = gaps(&rows, is_known, |n| (n * 10, 10), 0, 5);
        assert_eq!(drawn, "<path class=\"gap\" d=\"M30 0h10v5h-10z\"/>");
        assert_eq!(gaps(&rows[..2], is_known, |n| (n, 1), 0, 5), "");
    }

    #[test]
    fn an_hour_has_a_mark_at_each_quarter() {
        let at = |minute: u32| json!({ "at": format!("2026-01-31T12:{minute:02}:00.000Z") });
        let drawn = hour(&(7..52).map(at).collect::<Vec<_>>(), 100);
        let marks: Vec<&str> = drawn
            .split("</text>")
            .filter_map(|text| text.rsplit_once('>'))
            .map(|(_, clock)| clock)
            .collect();
        assert_eq!(marks, ["12:15", "12:30", "12:45"]);
    }
}

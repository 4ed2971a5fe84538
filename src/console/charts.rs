//! Pictures: SVG of our own. Each has a text that says the same.

use maud::{Markup, html};
use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::console::elements::{Svg, mood, word};
use crate::console::json::Fields as _;
use crate::console::view::View;

/// The width of a picture, in its own units.
const WIDTH: i64 = 720;

/// The attempts of a delivery on a line of time. Shape and color say how each ended.
pub(super) fn timeline(view: &View<'_>, attempts: &[Value]) -> Markup {
    let at = |row: &Value| Timestamp::parse(row.text("started_at")).map_or(0, Timestamp::ms);
    let (Some(first), Some(last)) = (attempts.iter().map(at).min(), attempts.iter().map(at).max())
    else {
        return html! {};
    };
    let span = last.saturating_sub(first).max(1);
    let mut marks = String::new();
    for row in attempts {
        let x = 20 + at(row).saturating_sub(first).saturating_mul(WIDTH - 40) / span;
        let class = row.text("class");
        let (color, _) = mood(class);
        let shape = match color {
            "good" => format!("<circle cx=\"{x}\" cy=\"20\" r=\"6\" class=\"good\"/>"),
            "bad" => format!("<path d=\"M{x} 13l7 13h-14z\" class=\"bad\"/>"),
            _ => format!("<path d=\"M{x} 12l8 8-8 8-8-8z\" class=\"warn\"/>"),
        };
        marks.push_str(&shape);
    }
    let succeeded = attempts.iter().filter(|row| row.text("class") == "success").count();
    let label =
        format!("{}: {}, {} {}", view.t.attempts, attempts.len(), succeeded, word("success"));
    let line = format!("<path class=\"line\" d=\"M10 20H{}\"/>", WIDTH - 10);
    picture(&label, 40, &format!("{line}{marks}"))
}

/// The latest attempts of a subscription, the oldest first: a bar each.
pub(super) fn strip(view: &View<'_>, attempts: &[Value]) -> Markup {
    let shown = attempts.iter().take(50).rev();
    let width = i64::try_from(shown.len()).unwrap_or(0).saturating_mul(10);
    let bars = (0_i64..).zip(shown).map(|(n, row)| {
        let (color, _) = mood(row.text("class"));
        let (x, height) = (n * 10, if color == "good" { 14 } else { 24 });
        let y = 24 - height;
        format!("<rect x=\"{x}\" y=\"{y}\" width=\"7\" height=\"{height}\" class=\"{color}\"/>")
    });
    let bars = bars.collect::<Vec<_>>().concat();
    let failed = attempts.iter().filter(|row| row.text("class") != "success").count();
    let label =
        format!("{} {}, {} {}", view.t.last_attempts, attempts.len(), failed, view.t.failed);
    html! {
        @if width > 0 {
            // Many bars are made narrow, not low.
            svg.strip viewBox={ "0 0 " (width) " 24" } width=(width) height="24" preserveAspectRatio="none" role="img"
                aria-label=(label) { (Svg(bars)) }
        }
    }
}

/// Two lines over the minutes of an hour.
pub(super) fn lines(view: &View<'_>, minutes: &[Value]) -> Markup {
    let t = view.t;
    let accepted = |row: &Value| row.int("events").saturating_add(row.int("webhooks"));
    let delivered = |row: &Value| row.int("delivered");
    let most =
        minutes.iter().map(|row| accepted(row).max(delivered(row))).max().unwrap_or(0).max(1);
    let path = |value: &dyn Fn(&Value) -> i64| {
        let points = (0_i64..).zip(minutes).map(|(n, row)| {
            let (x, y) = (40 + n * 11, 110 - value(row).saturating_mul(100) / most);
            format!("{x},{y}")
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let drawn = format!(
        "<path class=\"line\" d=\"M40 10V110H700\"/><text x=\"4\" y=\"16\">{most}</text><text x=\"4\" y=\"112\">0</text>\
         <polyline class=\"plot-a\" points=\"{}\"/><polyline class=\"plot-b\" points=\"{}\"/>",
        path(&accepted),
        path(&delivered)
    );
    let sum = |value: &dyn Fn(&Value) -> i64| minutes.iter().map(value).sum::<i64>();
    let label = format!(
        "{}: {}. {}: {}. {}: {most}.",
        t.accepted_hour,
        sum(&accepted),
        t.delivered_hour,
        sum(&delivered),
        t.most_a_minute
    );
    picture(&label, 120, &drawn)
}

/// How long requests took, by minute: the darker, the more.
pub(super) fn heat(view: &View<'_>, minutes: &[Value], bounds: &[Value]) -> Markup {
    let cells = |row: &Value| {
        row.items("latencies").iter().map(|n| n.as_i64().unwrap_or(0)).collect::<Vec<_>>()
    };
    let most = minutes.iter().flat_map(cells).max().unwrap_or(0).max(1);
    let cell = |(n, row): (i64, &Value)| {
        let each = (0_i64..).zip(cells(row)).map(move |(bucket, count)| {
            let shade = if count == 0 { 0 } else { 1 + count.saturating_mul(3) / most };
            let (x, y) = (60 + n * 11, 100 - bucket * 13);
            format!("<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"12\" class=\"h{shade}\"/>")
        });
        each.collect::<Vec<_>>().concat()
    };
    let name = |(bucket, bound): (i64, &Value)| {
        let (y, bound) = (110 - bucket * 13, bound.as_i64().unwrap_or(0));
        format!("<text x=\"4\" y=\"{y}\">{bound} ms</text>")
    };
    let cells_drawn = (0_i64..).zip(minutes).map(cell);
    let drawn = cells_drawn.chain((0_i64..).zip(bounds).map(name)).collect::<Vec<_>>().concat();
    let all: i64 = minutes.iter().flat_map(cells).sum();
    picture(&format!("{}: {all}", view.t.latency_hour), 118, &drawn)
}

/// How much of something is done.
pub(super) fn bar(done: i64, of: i64) -> Markup {
    let width = done.clamp(0, of.max(1)).saturating_mul(500) / of.max(1);
    let drawn = format!(
        "<rect width=\"500\" height=\"14\" class=\"h0\"/><rect width=\"{width}\" height=\"14\" class=\"good\"/>"
    );
    svg(&format!("{done} / {of}"), (500, 14), &drawn)
}

fn picture(label: &str, height: i64, drawn: &str) -> Markup {
    html! { figure { (svg(label, (WIDTH, height), drawn)) figcaption.small { (label) } } }
}

fn svg(label: &str, (width, height): (i64, i64), drawn: &str) -> Markup {
    html! {
        svg viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" aria-label=(label) {
            (Svg(drawn.to_owned()))
        }
    }
}

//! The plot: lines over time, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const PANEL: f64 = 130.0;
const LEFT: f64 = 60.0;
const COLORS: [&str; 3] = ["#1f6f8b", "#c2571a", "#5a7d2b"];

/// A panel: its title, and its lines by name.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<(&'static str, Vec<f64>)>,
}

/// Draws the panels below each other, with a mark at each `tick` values.
pub(crate) fn svg(panels: &[Panel], tick: usize) -> String {
    let height = panels.len() as f64 * (PANEL + 50.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        WIDTH + LEFT + 20.0
    );
    for (n, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, n as f64 * (PANEL + 50.0) + 25.0, tick);
    }
    out + "</svg>\n"
}

fn draw(out: &mut String, Panel { title, lines }: &Panel, top: f64, tick: usize) {
    let values = || lines.iter().flat_map(|(_, values)| values);
    let most = values().copied().fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let (bottom, right) = (top + PANEL, LEFT + WIDTH);
    writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">{title}</text>", top - 7.0).unwrap();
    writeln!(
        out,
        "<path d=\"M{LEFT} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#888\"/>\
         <text x=\"{x}\" y=\"{}\" text-anchor=\"end\">{most:.2}</text>\
         <text x=\"{x}\" y=\"{bottom}\" text-anchor=\"end\">0</text>",
        top + 10.0,
        x = LEFT - 6.0,
    )
    .unwrap();
    for (n, (name, values)) in lines.iter().enumerate() {
        let step = WIDTH / (values.len().max(2) - 1) as f64;
        let mut points = String::new();
        // A time at which it was not measured has 0.
        for (at, value) in values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let (x, y) = (LEFT + at as f64 * step, bottom - value / most * PANEL);
            write!(points, "{x:.1},{y:.1} ").unwrap();
        }
        let (color, x) = (COLORS[n % COLORS.len()], LEFT + 300.0 + 150.0 * n as f64);
        writeln!(
            out,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>\
             <text x=\"{x}\" y=\"{}\" fill=\"{color}\">{name}</text>",
            top - 7.0
        )
        .unwrap();
        for mark in (tick..values.len()).step_by(tick) {
            let x = LEFT + mark as f64 * step;
            writeln!(out, "<path d=\"M{x:.1} {bottom}v4\" stroke=\"#888\"/>").unwrap();
        }
    }
}

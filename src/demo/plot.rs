//! Bar charts as SVG text, without scripts and fonts; colours come from the page's style sheet.
//!
//! Coordinates are integers, so that the same numbers always give the same picture.

const WIDTH: u64 = 900;
const HEIGHT: u64 = 300;
const LEFT: u64 = 64;
const RIGHT: u64 = 16;
const TOP: u64 = 30;
const BOTTOM: u64 = 52;
const PLOT_WIDTH: u64 = WIDTH - LEFT - RIGHT;
const PLOT_HEIGHT: u64 = HEIGHT - TOP - BOTTOM;
/// The lower end of the bars.
const FOOT: u64 = TOP + PLOT_HEIGHT;
/// Most labels under the bars; with more bars only every n-th has a label.
const MAX_LABELS: usize = 16;
/// Most bars with their value above them; with more bars there is no room.
const MAX_VALUES: usize = 26;

/// One kind of bar.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Its name in the legend and in tooltips.
    pub(super) name: String,
    /// One value for each label.
    pub(super) values: Vec<u64>,
}

/// A vertical line at a point in time.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    /// Its position in thousandths of the width.
    pub(super) permille: u64,
    /// A letter above it.
    pub(super) letter: char,
    /// Its tooltip.
    pub(super) title: String,
}

/// A bar chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// Its id, unique in the page.
    pub(super) id: &'static str,
    /// Its title, which screen readers read.
    pub(super) title: String,
    /// A description with the main figures.
    pub(super) description: String,
    /// The label of the x axis.
    pub(super) x_axis: &'static str,
    /// The label of the y axis.
    pub(super) y_axis: &'static str,
    /// The label of each group of bars.
    pub(super) labels: Vec<String>,
    /// One or two series.
    pub(super) series: Vec<Series>,
    /// The vertical lines.
    pub(super) markers: Vec<Marker>,
    /// The unit, written after values.
    pub(super) unit: &'static str,
}

impl Chart {
    /// The chart as an `<svg>` element.
    pub(super) fn svg(&self) -> String {
        let id = self.id;
        let title = escape(&self.title);
        let description = escape(&self.description);
        let top = self.top();
        let parts = [self.grid(top), self.bars(top), self.markers(), self.axis()].concat();
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n\
             <title id=\"{id}-t\">{title}</title>\n<desc id=\"{id}-d\">{description}</desc>\n{parts}</svg>\n"
        )
    }

    /// The value at the upper end of the axis.
    fn top(&self) -> u64 {
        let most = self.series.iter().flat_map(|series| &series.values).max().copied();
        nice_top(most.unwrap_or(0))
    }

    fn grid(&self, top: u64) -> String {
        let line = |quarter: u64| {
            let y = FOOT - PLOT_HEIGHT * quarter / 4;
            let class = if quarter == 0 { "axis" } else { "grid" };
            let value = tick(LEFT - 8, y + 4, "end", &(top * quarter / 4).to_string());
            let right = WIDTH - RIGHT;
            format!(
                "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{right}\" y2=\"{y}\"/>\n{value}"
            )
        };
        (0..=4).map(line).collect::<String>() + &tick(4, 14, "start", self.y_axis)
    }

    fn bars(&self, top: u64) -> String {
        let groups = count(self.labels.len()).max(1);
        let kinds = count(self.series.len()).max(1);
        let valued = self.labels.len().saturating_mul(self.series.len()) <= MAX_VALUES;
        let mut out = String::new();
        for (kind, series) in (0_u64..).zip(&self.series) {
            for (group, (value, label)) in (0_u64..).zip(series.values.iter().zip(&self.labels)) {
                let from = PLOT_WIDTH * group / groups;
                let to = PLOT_WIDTH * (group + 1) / groups;
                let gap = (to - from) / 8;
                let room = (to - from).saturating_sub(2 * gap).max(1);
                let width = (room / kinds).saturating_sub(kinds - 1).max(1);
                let x = LEFT + from + gap + room * kind / kinds;
                // A value above 0 stays visible, even beside a very large one.
                let height = (PLOT_HEIGHT * value / top).max(u64::from(*value > 0) * 2);
                let y = FOOT - height;
                let label = escape(label);
                let name = escape(&series.name);
                let title = format!("{label}: {value}{} ({name})", self.unit);
                let bar = format!(
                    "<rect class=\"s{kind}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\">\
                     <title>{title}</title></rect>\n"
                );
                out.push_str(&bar);
                if valued && *value > 0 {
                    let x = x + width / 2;
                    let y = y.saturating_sub(4);
                    let above = format!(
                        "<text class=\"value\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{value}</text>\n"
                    );
                    out.push_str(&above);
                }
            }
        }
        out
    }

    fn markers(&self) -> String {
        let marker = |Marker { permille, letter, title }: &Marker| {
            let x = LEFT + PLOT_WIDTH * permille.min(&1000) / 1000;
            let above = TOP - 5;
            format!(
                "<g class=\"kill\"><title>{}</title><line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{FOOT}\"/>\
                 <text x=\"{x}\" y=\"{above}\" text-anchor=\"middle\">{letter}</text></g>\n",
                escape(title)
            )
        };
        self.markers.iter().map(marker).collect()
    }

    fn axis(&self) -> String {
        let groups = count(self.labels.len()).max(1);
        let every = self.labels.len().div_ceil(MAX_LABELS).max(1);
        let label = |(group, label): (u64, &String)| {
            tick(LEFT + PLOT_WIDTH * (2 * group + 1) / (2 * groups), FOOT + 18, "middle", label)
        };
        let labels: String = (0_u64..).zip(&self.labels).step_by(every).map(label).collect();
        labels + &tick(LEFT + PLOT_WIDTH / 2, HEIGHT - 10, "middle", self.x_axis)
    }
}

fn tick(x: u64, y: u64, anchor: &str, text: &str) -> String {
    let text = escape(text);
    format!("<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

/// The next number that divides well into four: 4, 8, 12, 20, 40 and so on.
fn nice_top(most: u64) -> u64 {
    let mut scale = 1_u64;
    loop {
        for step in [4, 8, 12, 20, 28] {
            let top = scale.saturating_mul(step);
            if top >= most {
                return top;
            }
        }
        scale = scale.saturating_mul(10);
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Escapes a text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[u64]) -> Chart {
        Chart {
            id: "c",
            title: "a < b".to_owned(),
            description: "two \"bars\"".to_owned(),
            x_axis: "x",
            y_axis: "y",
            labels: (0..values.len()).map(|n| format!("l{n}")).collect(),
            series: vec![Series { name: "one".to_owned(), values: values.to_vec() }],
            markers: vec![Marker { permille: 500, letter: 'F', title: "gone & back".to_owned() }],
            unit: "",
        }
    }

    #[test]
    fn a_bar_is_as_high_as_its_share_of_the_axis() {
        let svg = chart(&[40, 20, 0]).svg();
        assert!(svg.contains(&format!("height=\"{PLOT_HEIGHT}\"><title>l0: 40")), "{svg}");
        assert!(svg.contains(&format!("height=\"{}\"><title>l1: 20", PLOT_HEIGHT / 2)), "{svg}");
        assert!(svg.contains("height=\"0\"><title>l2: 0"), "{svg}");
    }

    #[test]
    fn a_small_bar_beside_a_large_one_is_still_seen() {
        assert!(chart(&[100_000, 1]).svg().contains("height=\"2\"><title>l1: 1"));
    }

    #[test]
    fn titles_are_there_for_who_cannot_see_and_texts_cannot_break_out() {
        let svg = chart(&[1]).svg();
        assert!(svg.contains("role=\"img\" aria-labelledby=\"c-t c-d\""));
        assert!(svg.contains("<title id=\"c-t\">a &lt; b</title>"));
        assert!(svg.contains("two &quot;bars&quot;") && svg.contains("gone &amp; back"));
    }

    #[test]
    fn a_marker_stands_where_its_moment_is() {
        let x = LEFT + PLOT_WIDTH / 2;
        assert!(chart(&[1]).svg().contains(&format!("<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\"")));
    }

    #[test]
    fn the_axis_ends_at_a_number_four_lines_divide() {
        assert_eq!(
            [0, 3, 5, 9, 13, 21, 29, 41, 530].map(nice_top),
            [4, 4, 8, 12, 20, 28, 40, 80, 800]
        );
        assert!(nice_top(u64::MAX) == u64::MAX);
    }

    #[test]
    fn no_bars_at_all_are_no_reason_to_fail() {
        assert!(chart(&[]).svg().ends_with("</svg>\n"));
    }
}

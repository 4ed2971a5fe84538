//! The report: one self-contained HTML page, without scripts and network access.

use std::time::Duration;

use crate::base::build;
use crate::demo::count::{LedgerCounts, Observations};
use crate::demo::plot::{Chart, Marker, Series, escape};
use crate::demo::progress::{self, shown};
use crate::demo::site::{Role, Run, Topology};

const STYLE: &str = include_str!("report.css");
/// Most bars of the chart over time.
const MAX_SLICES: u64 = 100;
/// The shortest time of one bar.
const MIN_SLICE_MS: u64 = 250;
/// Upper bounds of the latency classes, in ms; the last class has none.
const CLASSES_MS: [u64; 11] = [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
/// Bars of the chart of attempts; the last also has all higher numbers.
const MAX_ATTEMPTS: u32 = 8;

/// The results of the demo.
pub(super) struct Results {
    /// The settings of the run with faults and kills.
    pub(super) run: Run,
    /// What the parent saw of it.
    pub(super) observed: Observations,
    /// Its counts.
    pub(super) counts: LedgerCounts,
    /// The run at the same rate without faults.
    pub(super) steady: Option<(Observations, LedgerCounts)>,
    /// The run at full speed without faults.
    pub(super) burst: Option<(Observations, LedgerCounts)>,
}

impl Results {
    /// Problems of the runs without faults.
    pub(super) fn problems_without_faults(&self) -> Vec<String> {
        let calm = self.steady.iter().chain(&self.burst);
        calm.flat_map(|(observed, counts)| counts.problems(observed))
            .map(|problem| format!("without faults: {problem}"))
            .collect()
    }

    /// Rates and latencies, a line each.
    pub(super) fn figures(&self) -> Vec<String> {
        let Self { observed, counts, .. } = self;
        let mut lines = vec![format!(
            "  with faults and kills: {} in total, {} invoices/s; accept to effect p50 {}, p99 {}",
            shown(observed.lasted),
            counts.rate(),
            shown(counts.latency(500)),
            shown(counts.latency(990)),
        )];
        if let Some((_, steady)) = &self.steady {
            lines.push(format!(
                "  same rate, no faults:  {} invoices/s; accept to effect p50 {}, p99 {}",
                steady.rate(),
                shown(steady.latency(500)),
                shown(steady.latency(990)),
            ));
        }
        if let Some((_, burst)) = &self.burst {
            lines.push(format!("  full speed, no faults: {} invoices/s", burst.rate()));
        }
        if let Some(longest) = observed.recoveries.iter().max() {
            let count = observed.recoveries.len();
            lines.push(format!(
                "  Oncebox was ready at most {} after a restart ({count} kills)",
                shown(*longest)
            ));
        }
        lines
    }

    fn rows(&self) -> Vec<(String, String)> {
        let Self { run, observed, counts, .. } = self;
        let mut rows: Vec<(String, String)> = progress::settings(run)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("Invoices paid", counts.paid.to_string());
        row("Shipments", counts.shipments.to_string());
        row("Lost", counts.lost.len().to_string());
        row("Duplicated", counts.doubled.len().to_string());
        row("Redeliveries absorbed by Logistics", counts.absorbed.to_string());
        row("Repeated publications and webhooks absorbed by Oncebox", counts.repeated.to_string());
        row("Kills", observed.kills.len().to_string());
        row("Duration", shown(observed.lasted));
        for (name, permille) in [("p50", 500), ("p90", 900), ("p99", 990), ("Longest", 1000)] {
            row(&format!("{name}, accept to effect"), shown(counts.latency(permille)));
        }
        if let Some((_, steady)) = &self.steady {
            let half = shown(steady.latency(500));
            let most = shown(steady.latency(990));
            row("Without faults, same rate", format!("p50 {half}, p99 {most}"));
        }
        if let Some((_, burst)) = &self.burst {
            row("Without faults, full speed", format!("{} invoices/s", burst.rate()));
        }
        let recovered: Vec<String> = observed.recoveries.iter().map(|span| shown(*span)).collect();
        if !recovered.is_empty() {
            row("Oncebox ready after a kill, each", recovered.join(", "));
        }
        let sound = if counts.damaged.is_empty() { "ok in all files" } else { "not ok" };
        row("PRAGMA integrity_check", sound.to_owned());
        rows
    }
}

/// The page.
pub(super) fn html(results: &Results) -> String {
    let mut problems = results.counts.problems(&results.observed);
    problems.extend(results.problems_without_faults());
    let verdict = escape(&results.counts.verdict(results.observed.kills.len()));
    let (class, word) =
        if problems.is_empty() { ("good", "Exactly once") } else { ("bad", "Not exactly once") };
    let list: Vec<_> = problems.iter().map(|p| format!("<li>{}</li>\n", escape(p))).collect();
    let list = list.concat();
    let list = if list.is_empty() { list } else { format!("<ul class=\"bad\">\n{list}</ul>\n") };
    let Run { invoices, seed, .. } = results.run;
    let rows: Vec<String> = results
        .rows()
        .iter()
        .map(|(name, value)| {
            format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape(name), escape(value))
        })
        .collect();
    let figures: Vec<String> = [over_time(results), latencies(results), attempts(results)]
        .iter()
        .map(|chart| {
            let title = escape(&chart.title);
            let about = escape(&chart.description);
            let legend = legend(chart);
            let svg = chart.svg();
            format!("<section>\n<h2>{title}</h2>\n<p>{about}</p>\n{legend}{svg}</section>\n")
        })
        .collect();
    let rows = rows.concat();
    let figures = figures.concat();
    let topology = results.run.topology.summary();
    let flag = results.run.topology.flag();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Oncebox demo: {invoices} invoices, seed {seed}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <p class=\"eyebrow\">oncebox demo, version {}</p>\n\
         <h1><span class=\"{class}\">{word}</span></h1>\n<p class=\"verdict\">{verdict}</p>\n{list}\
         <p>Finance marks invoices paid; {topology} All processes are killed with <code>kill -9</code> \
         and started again. The numbers are counted in the tables of Finance and Logistics, not in \
         those of Oncebox.</p>\n\
         {figures}<section>\n<h2>Settings and results</h2>\n<table>\n{rows}</table>\n</section>\n\
         <section>\n<h2>Repeat this run</h2>\n\
         <pre><code>oncebox demo{flag} --invoices {invoices} --seed {seed}</code></pre>\n\
         <p>The seed decides which requests fail and how, and which process is killed when. What a process is \
         doing when it is killed depends on the machine, so the number of redeliveries differs from run to \
         run.</p>\n</section>\n</main>\n</body>\n</html>\n",
        build::VERSION,
    )
}

fn legend(chart: &Chart) -> String {
    if chart.series.len() < 2 {
        return String::new();
    }
    let keys = (0..).zip(&chart.series).map(|(kind, series): (u32, _)| {
        format!("<span class=\"key k{kind}\"></span>{} ", escape(&series.name))
    });
    format!("<p class=\"legend\">{}</p>\n", keys.collect::<Vec<_>>().concat())
}

/// The chart of shipments over time, with the kills.
fn over_time(results: &Results) -> Chart {
    let Results { observed, counts, .. } = results;
    let last = counts.shipped_ms.iter().max().copied().unwrap_or(0);
    let end = last.max(u64::try_from(observed.lasted.as_millis()).unwrap_or(0)).saturating_add(1);
    // Slices are multiples of 250 ms, so that the labels are round.
    let slice = end.div_ceil(MAX_SLICES).next_multiple_of(MIN_SLICE_MS);
    let slices = end.div_ceil(slice);
    let mut per_slice = vec![0_u64; usize::try_from(slices).unwrap_or(0)];
    for at in &counts.shipped_ms {
        let index = usize::try_from(at / slice).unwrap_or(usize::MAX);
        if let Some(count) = per_slice.get_mut(index) {
            *count = count.saturating_add(1);
        }
    }
    let values = per_slice.iter().map(|count| count.saturating_mul(1000) / slice).collect();
    let markers = observed.kills.iter().map(|(at, role)| Marker {
        permille: u64::try_from(at.as_millis()).unwrap_or(0).saturating_mul(1000)
            / slices.saturating_mul(slice).max(1),
        letter: role.as_str().chars().next().unwrap_or('?'),
        title: format!("{role} killed after {}", shown(*at)),
    });
    Chart {
        id: "time",
        title: "Shipments per second, and kills".to_owned(),
        description: format!(
            "{} shipments in {}. Vertical lines are kills: {}.",
            counts.shipments,
            shown(observed.lasted),
            kill_letters(results.run.topology),
        ),
        x_axis: "time since the start",
        y_axis: "shipments/s",
        labels: (0..slices)
            .map(|n| shown(Duration::from_millis(n.saturating_mul(slice))))
            .collect(),
        series: vec![Series { name: "shipments per second".to_owned(), values }],
        markers: markers.collect(),
        unit: "/s",
    }
}

/// Explains the letters of the kills.
fn kill_letters(topology: Topology) -> String {
    let letter = |role: &Role| format!("{} {role}", role.as_str().chars().next().unwrap_or('?'));
    topology.roles().iter().map(letter).collect::<Vec<_>>().join(", ")
}

/// The chart of latencies, per 1,000 invoices, so that runs of different sizes can be compared.
fn latencies(results: &Results) -> Chart {
    let mut labels: Vec<String> = CLASSES_MS
        .iter()
        .map(|bound| {
            let span = Duration::from_millis(*bound);
            if *bound < 1000 {
                format!("≤ {}", shown(span))
            } else {
                format!("≤ {} s", bound / 1000)
            }
        })
        .collect();
    labels.push("more".to_owned());
    let shares = |counts: &LedgerCounts| -> Vec<u64> {
        let all = u64::try_from(counts.latencies_ms.len()).unwrap_or(0).max(1);
        let mut per_class = vec![0_u64; labels.len()];
        for latency in &counts.latencies_ms {
            let class = CLASSES_MS.partition_point(|bound| bound < latency);
            if let Some(count) = per_class.get_mut(class) {
                *count = count.saturating_add(1);
            }
        }
        per_class.iter().map(|count| count.saturating_mul(1000) / all).collect()
    };
    let series = |name: &str, counts: &LedgerCounts| Series {
        name: name.to_owned(),
        values: shares(counts),
    };
    let mut all = vec![series("with faults and kills", &results.counts)];
    if let Some((_, steady)) = &results.steady {
        all.push(series("the same rate without faults", steady));
    }
    Chart {
        id: "latency",
        title: "From acceptance by Oncebox to the shipment".to_owned(),
        description: format!(
            "Invoices per 1,000 by latency. With faults and kills: p50 {}, p99 {}.",
            shown(results.counts.latency(500)),
            shown(results.counts.latency(990)),
        ),
        x_axis: "time from acceptance to effect",
        y_axis: "of 1,000 invoices",
        series: all,
        labels,
        markers: Vec::new(),
        unit: " of 1,000",
    }
}

/// The chart of attempts per delivery.
fn attempts(results: &Results) -> Chart {
    let mut values = Vec::new();
    for (count, deliveries) in &results.counts.attempts {
        let index = usize::try_from((*count).clamp(1, MAX_ATTEMPTS).saturating_sub(1)).unwrap_or(0);
        if values.len() <= index {
            values.resize(index.saturating_add(1), 0_u64);
        }
        if let Some(value) = values.get_mut(index) {
            *value = value.saturating_add(u64::from(*deliveries));
        }
    }
    let most = usize::try_from(MAX_ATTEMPTS).unwrap_or(0);
    let labels = (1..=values.len())
        .map(|n| if n < most { n.to_string() } else { format!("{n} or more") })
        .collect();
    let first = values.first().copied().unwrap_or(0);
    Chart {
        id: "attempts",
        title: "Attempts per delivery".to_owned(),
        description: format!(
            "{first} of {} deliveries needed one attempt. Attempts that a kill of Oncebox interrupted are not \
             counted, because it could not record them.",
            values.iter().sum::<u64>(),
        ),
        x_axis: "attempts that Oncebox recorded",
        y_axis: "deliveries",
        labels,
        series: vec![Series { name: "deliveries".to_owned(), values }],
        markers: Vec::new(),
        unit: " deliveries",
    }
}

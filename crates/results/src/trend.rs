//! One metric over saved results, the oldest first: how it went, and where it changed for good.
//!
//! # Guarantee
//! A change is named only where Pettitt's test gives it a probability below 5 % by chance, with that probability; a
//! series that is too short for any says so. Results of other machines than the first one's are left out and named.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::compare::{Direction, Source, direction};
use crate::screen::{Tone, sparkline, toned};
use crate::stats::{ChangePoint, LEAST_POINTS, change_points, median, median_interval};
use crate::{Measured, Unit, columns, markdown};

/// A metric over results.
#[derive(Clone, Debug)]
pub struct Trend {
    /// The metric.
    pub metric: String,
    /// One series for each workload, mode, design, semaphore and number of CPUs.
    pub series: Vec<Series>,
    /// Results that are not shown, and why.
    pub left_out: Vec<String>,
}

/// The figures of one workload, one way.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// The unit.
    pub unit: String,
    /// What is better.
    pub direction: Direction,
    /// Result by result.
    pub points: Vec<Point>,
    /// Where it changes.
    pub changes: Vec<ChangePoint>,
}

/// The figures of one result.
#[derive(Clone, Debug)]
pub struct Point {
    /// The result's name or file.
    pub label: String,
    /// The commit that was measured.
    pub commit: String,
    /// The median.
    pub median: f64,
    /// Its samples.
    pub samples: Vec<f64>,
}

/// Why there is no trend: no result has the metric, and these they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchMetric(pub Vec<String>);

/// Follows a metric over results.
pub fn trend(metric: &str, sources: &[Source]) -> Result<Trend, NoSuchMetric> {
    let mut found = Trend { metric: metric.to_owned(), series: Vec::new(), left_out: Vec::new() };
    let has_it = |source: &&Source| source.set.results.iter().any(|result| result.metric == metric);
    let machine = sources.iter().find(has_it).map(|source| &source.set.machine);
    for source in sources {
        match machine {
            _ if !has_it(&source) => found.left_out.push(format!("{}: it has no {metric}", source.label)),
            Some(machine) if source.set.machine != *machine => {
                found.left_out.push(format!("{}: another machine, {}", source.label, source.set.machine));
            }
            _ => found.take(source),
        }
    }
    if found.series.is_empty() {
        return Err(NoSuchMetric(metrics(sources)));
    }
    for series in &mut found.series {
        series.changes = change_points(&series.points.iter().map(|point| point.median).collect::<Vec<_>>());
    }
    Ok(found)
}

fn metrics(sources: &[Source]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for result in sources.iter().flat_map(|source| &source.set.results) {
        if !names.contains(&result.metric) {
            names.push(result.metric.clone());
        }
    }
    names
}

impl Trend {
    fn take(&mut self, source: &Source) {
        for result in source.set.results.iter().filter(|result| result.metric == self.metric) {
            let Some(median) = median(&result.samples) else { continue };
            let point = Point {
                label: source.label.clone(),
                commit: source.set.commit.clone(),
                median,
                samples: result.samples.clone(),
            };
            let name = name(result);
            match self.series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => self.series.push(Series {
                    name,
                    unit: result.unit.clone(),
                    direction: direction(&result.metric, &result.unit),
                    points: vec![point],
                    changes: Vec::new(),
                }),
            }
        }
    }
}

fn name(result: &Measured) -> String {
    let cpus = if result.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", result.cpus) };
    let semaphore = result.semaphore.as_ref().map_or(String::new(), |semaphore| format!(" over {semaphore}"));
    format!("{}, {}, {}{semaphore}, {cpus}", result.workload, result.mode, result.design)
}

impl Series {
    /// Returns by how much the median of the part behind a change differs from that of the part before, as a share.
    pub fn shift(&self, change: &ChangePoint) -> f64 {
        let end = |at: usize| self.changes.iter().map(|other| other.at).find(|&other| other > at);
        let start = self.changes.iter().map(|other| other.at).rfind(|&other| other < change.at).unwrap_or(0);
        let of = |points: &[Point]| median(&points.iter().map(|point| point.median).collect::<Vec<_>>()).unwrap_or(0.0);
        let before = of(&self.points[start..change.at]);
        let after = of(&self.points[change.at..end(change.at).unwrap_or(self.points.len())]);
        (after - before) / before.abs()
    }

    /// Returns whether a change is for the better; nothing where no direction is.
    fn tone(&self, shift: f64) -> Option<Tone> {
        match self.direction {
            Direction::Neither => None,
            Direction::Higher if shift > 0.0 => Some(Tone::Better),
            Direction::Lower if shift < 0.0 => Some(Tone::Better),
            _ => Some(Tone::Worse),
        }
    }

    /// Says what became of the figure.
    pub fn verdicts(&self) -> Vec<(Option<Tone>, String)> {
        if self.points.len() < LEAST_POINTS {
            let said = format!("{} results: fewer than {LEAST_POINTS} can't show a change", self.points.len());
            return vec![(Some(Tone::Undecided), said)];
        }
        if self.changes.is_empty() {
            return vec![(None, "no change (Pettitt's test, p >= 0.05)".into())];
        }
        let said = |change: &ChangePoint| {
            let (point, shift) = (&self.points[change.at], self.shift(change));
            let tone = self.tone(shift);
            let word = match tone {
                Some(Tone::Better) => "better",
                Some(_) => "worse",
                None => "changed",
            };
            let by = format!("{:+.1} % from {} on ({})", shift * 100.0, point.label, point.commit);
            (tone, format!("{word}: {by}; Pettitt's test, p = {:.4}", change.p))
        };
        self.changes.iter().map(said).collect()
    }

    fn rows(&self) -> Vec<[String; 5]> {
        let show = |value: f64| Unit::show_named(&self.unit, value);
        let row = |(place, point): (usize, &Point)| {
            let interval = median_interval(&point.samples);
            let interval = interval.map_or(String::new(), |(low, high)| format!("[{}, {}]", show(low), show(high)));
            let mark = if self.changes.iter().any(|change| change.at == place) { "change" } else { "" };
            [
                point.label.clone(),
                point.commit.clone(),
                show(point.median),
                format!("{interval} n {}", point.samples.len()).trim().to_owned(),
                mark.to_owned(),
            ]
        };
        self.points.iter().enumerate().map(row).collect()
    }
}

const HEADINGS: [&str; 5] = ["result", "commit", "median", "95 % interval", ""];

/// Writes it for people: a line of bars, what changed, and a row for each result.
pub fn write_human(trend: &Trend, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "{} over {} results, the oldest first", trend.metric, nr_results(trend))?;
    for series in &trend.series {
        let medians: Vec<f64> = series.points.iter().map(|point| point.median).collect();
        writeln!(out, "\n{}", series.name)?;
        writeln!(out, "{}", sparkline(&medians))?;
        for (tone, said) in series.verdicts() {
            writeln!(out, "{}", tone.map_or_else(|| said.clone(), |tone| toned(tone, &said)))?;
        }
        let head = HEADINGS.map(str::to_owned).to_vec();
        let rows = std::iter::once(head).chain(series.rows().into_iter().map(Vec::from)).collect::<Vec<_>>();
        columns::write(&rows, out)?;
    }
    if !trend.left_out.is_empty() {
        writeln!(out, "\nleft out: {}", trend.left_out.join("; "))?;
    }
    Ok(())
}

fn nr_results(trend: &Trend) -> usize {
    trend.series.iter().map(|series| series.points.len()).max().unwrap_or(0)
}

/// Writes it in GitHub's Markdown: what changed, and the figures folded away.
pub fn write_markdown(trend: &Trend, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "### `{}` over {} results\n", trend.metric, nr_results(trend))?;
    markdown::head(&["figure", "trend", "verdict"], out)?;
    for series in &trend.series {
        let medians: Vec<f64> = series.points.iter().map(|point| point.median).collect();
        let said: Vec<String> = series.verdicts().into_iter().map(|(_, said)| said).collect();
        markdown::row(&[series.name.clone(), sparkline(&medians), said.join("; ")], out)?;
    }
    for series in &trend.series {
        writeln!(out, "\n<details><summary>{}</summary>\n", markdown::escaped(&series.name))?;
        markdown::head(&HEADINGS, out)?;
        series.rows().iter().try_for_each(|row| markdown::row(row, out))?;
        writeln!(out, "\n</details>")?;
    }
    trend.left_out.iter().try_for_each(|what| writeln!(out, "\nLeft out: {}", markdown::escaped(what)))
}

/// Writes it as JSON, with every sample.
pub fn write_json(trend: &Trend, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let point = |point: &Point| json!({ "result": point.label, "commit": point.commit, "median": point.median, "samples": point.samples });
    let series = trend.series.iter().map(|series| {
        let change = |change: &ChangePoint| {
            let at = &series.points[change.at];
            json!({ "at": change.at, "result": at.label, "commit": at.commit, "p": change.p, "share": series.shift(change) })
        };
        json!({
            "name": series.name,
            "unit": series.unit,
            "better": series.direction.name(),
            "points": series.points.iter().map(point).collect::<Vec<Value>>(),
            "changes": series.changes.iter().map(change).collect::<Vec<Value>>(),
        })
    });
    let all = json!({
        "schema": "faultless-trend/1",
        "metric": trend.metric,
        "test": "Pettitt, 9999 permutations",
        "series": series.collect::<Vec<Value>>(),
        "left_out": trend.left_out,
    });
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

/// Returns the rows of a table for programs, headings first.
pub fn fields(trend: &Trend) -> Vec<Vec<String>> {
    let head = ["metric", "series", "result", "commit", "median", "unit", "n", "change_p"].map(str::to_owned).to_vec();
    let rows = trend.series.iter().flat_map(|series| {
        series.points.iter().enumerate().map(|(place, point)| {
            let p = series.changes.iter().find(|change| change.at == place).map(|change| format!("{:.4}", change.p));
            vec![
                trend.metric.clone(),
                series.name.clone(),
                point.label.clone(),
                point.commit.clone(),
                point.median.to_string(),
                series.unit.clone(),
                point.samples.len().to_string(),
                p.unwrap_or_default(),
            ]
        })
    });
    std::iter::once(head).chain(rows).collect()
}

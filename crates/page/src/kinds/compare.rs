//! The page of `compare`: two or more results side by side.

use std::path::Path;

use faultless_results::compare::{
    CHANCE, Comparison, Direction, Finding, LEAST_SAMPLES, Notable, Row as Compared, Source,
};

use super::write_circumstances;
use crate::arms::{middle, shown};
use crate::markup::Markup;
use crate::plot::{About, Axis, STYLES, fitting, legend};
use crate::rows::{self, Marks, Row, Rows};
use crate::table::{self, Cell};

/// The most rows of a plot.
const SHOWN: usize = 30;

/// Returns a comparison whose sources are called by their files' names alone, where those tell them apart.
fn named(comparison: &Comparison) -> Comparison {
    let mut named = comparison.clone();
    let short = |source: &Source| Path::new(&source.label).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let names: Vec<String> = comparison.sources.iter().filter_map(short).collect();
    let is_clear = names.iter().enumerate().all(|(place, name)| !names[..place].contains(name));
    if is_clear && names.len() == named.sources.len() {
        named.sources.iter_mut().zip(names).for_each(|(source, name)| source.label = name);
    }
    named
}

/// Writes the page.
pub fn write(out: &mut Markup, comparison: &Comparison) {
    let comparison = &named(comparison);
    out.within("header", &[], |out| {
        out.line("p", &[("class", "kind")], "faultless compare");
        out.line("h1", &[], &headline(comparison));
        out.line("p", &[], &about(comparison));
    });
    write_plot(out, comparison);
    write_table(out, comparison);
    for source in &comparison.sources {
        out.line("h2", &[], &source.label);
        write_circumstances(out, &source.set);
    }
    write_alone(out, comparison);
}

/// The two ways a change can go, or none that is sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Better,
    Worse,
    /// It changed, and nobody says what is better.
    Other,
    Undecided,
}

fn way(one: &Notable<'_>) -> Way {
    match (one.change.finding, one.row.direction) {
        (Finding::Differs, Direction::Neither) => Way::Other,
        (Finding::Differs, direction) if one.change.is_improvement(direction) => Way::Better,
        (Finding::Differs, direction) if one.change.regression(direction).is_some() => Way::Worse,
        _ => Way::Undecided,
    }
}

/// Returns whether a figure says how fast something is.
fn is_pace(row: &Compared) -> bool {
    row.metric.starts_with("per_") || row.metric == "ops_per_s" || row.metric == "elapsed_ns"
}

fn headline(comparison: &Comparison) -> String {
    let heads = comparison.sources[1..].iter().map(|source| sentence(comparison, &source.label));
    heads.collect::<Vec<_>>().join("; ")
}

fn sentence(comparison: &Comparison, head: &str) -> String {
    let base = &comparison.sources[0].label;
    let of_head: Vec<Notable<'_>> = comparison.changes().filter(|one| one.head == head && is_pace(one.row)).collect();
    let on = |wanted: Way| of_head.iter().filter(|one| way(one) == wanted).collect::<Vec<_>>();
    let (better, worse, total) = (on(Way::Better), on(Way::Worse), of_head.len());
    let range = |list: &[&Notable<'_>]| {
        let shares = list.iter().map(|one| one.change.share * 100.0);
        let (low, high) = shares.fold((f64::MAX, f64::MIN), |(low, high), share| (low.min(share), high.max(share)));
        if low == high { format!("{low:+.1} %") } else { format!("{low:+.1} to {high:+.1} %") }
    };
    let changed = |list: &[&Notable<'_>], word: &str| {
        (!list.is_empty()).then(|| format!("{word} in {} of {total} figures of pace ({})", list.len(), range(list)))
    };
    let said: Vec<String> = [changed(&better, "faster"), changed(&worse, "slower")].into_iter().flatten().collect();
    match said.as_slice() {
        [] if of_head.iter().any(|one| one.change.finding == Finding::TooFew) => {
            format!("{head} against {base} is undecided: a difference needs {LEAST_SAMPLES} runs a side")
        }
        [] if total == 0 => format!("{head} and {base} share no figure of pace; the table has the others"),
        [] => format!(
            "{head} shows no difference from {base} in {total} figure{} of pace",
            if total == 1 { "" } else { "s" }
        ),
        said => {
            let is_open = |one: &&Notable<'_>| matches!(one.change.finding, Finding::TooFew | Finding::NotConverged);
            let open = of_head.iter().filter(is_open).count();
            let open = if open > 0 { format!("; {open} of {total} are undecided") } else { String::new() };
            format!("{head} is {} than {base}{open}", said.join(" and "))
        }
    }
}

fn about(comparison: &Comparison) -> String {
    let dimensions =
        comparison.about.iter().map(|(dimension, values)| format!("{dimension}: {}", values.join(" against ")));
    let about = dimensions.collect::<Vec<_>>().join("; ");
    let about = if about.is_empty() { String::new() } else { format!("What differs: {about}. ") };
    format!(
        "{about}A difference is claimed only with {LEAST_SAMPLES} runs a side and a probability below {:.0} % by \
         chance (Mann-Whitney U).",
        CHANCE * 100.0
    )
}

fn write_plot(out: &mut Markup, comparison: &Comparison) {
    let all = comparison.groups.iter().flat_map(|group| group.rows.iter().map(move |row| (&group.key, row)));
    let pace: Vec<_> = all.filter(|(_, row)| is_pace(row) && row.base.summary.mean > 0.0).collect();
    if pace.is_empty() {
        return;
    }
    let rows: Vec<Row> =
        pace.iter().take(SHOWN).map(|(key, row)| plot_row(comparison, &key.to_string(), row)).collect();
    let left_out = pace.len().saturating_sub(SHOWN);
    let rest = if left_out > 0 { format!(" {left_out} more figures are in the table.") } else { String::new() };
    let figures = || rows.iter().flat_map(|row| &row.marks).flat_map(|marks| &marks.samples).copied();
    let machines: Vec<&str> = comparison.sources.iter().map(|source| &*source.set.machine.name).collect();
    let mut machines = machines;
    machines.dedup();
    let about = About {
        title: "Each run, as a share of the base's mean".into(),
        told: rows.iter().map(|row| format!("{}: {}.", row.label, row.figure)).collect::<Vec<_>>().join(" "),
        caption: format!(
            "Each mark is a run, the line the median, the dotted line the mean of {}. Rates are better further \
             right, times further left.{rest}",
            comparison.sources[0].label
        ),
        machine: &machines.join(", "),
        is_simulated: comparison.sources.iter().any(|source| source.set.machine.simulated),
    };
    let kind = fitting(figures(), 10.0);
    let axis = Axis { title: "share of the base's mean (%)", unit: "share" };
    let shared = Rows { axis, kind, reference: Some((1.0, "the base's mean")), has_zero: false };
    out.line("h2", &[], "Side by side");
    rows::write(out, &about, &shared, &rows, |out| {
        legend(out, comparison.sources.iter().enumerate().map(|(place, source)| (&*source.label, place % STYLES)));
    });
}

fn plot_row(comparison: &Comparison, key: &str, row: &Compared) -> Row {
    let mean = row.base.summary.mean;
    let marks = |name: &str, style: usize, samples: &[f64], has_converged: bool| {
        let samples: Vec<f64> = samples.iter().map(|sample| sample / mean).collect();
        let middle = middle(&samples).map(|middle| (middle.low, middle.median, middle.high));
        Marks { name: name.into(), style: style % STYLES, samples, middle, is_hollow: !has_converged }
    };
    let base = &comparison.sources[0].label;
    let mut all = vec![marks(base, 0, &row.base.samples, row.base.has_converged)];
    let mut said = Vec::new();
    for (place, (source, change)) in comparison.sources[1..].iter().zip(&row.heads).enumerate() {
        let Some(change) = change else { continue };
        all.push(marks(&source.label, place + 1, &change.figures.samples, change.figures.has_converged));
        said.push(match change.finding {
            Finding::Differs => format!("{:+.1} %, p {:.3}", change.share * 100.0, change.p),
            Finding::Chance => "no difference".into(),
            Finding::TooFew => "too few runs".into(),
            Finding::NotConverged => "not converged".into(),
        });
    }
    Row { label: format!("{key} {}", row.metric), figure: said.join("; "), marks: all }
}

fn write_table(out: &mut Markup, comparison: &Comparison) {
    // Of two results, the heading says which.
    let has_several = comparison.sources.len() > 2;
    let row = |one: Notable<'_>| {
        let share = one.change.share * 100.0;
        let word = match way(&one) {
            Way::Better => "better",
            Way::Worse => "WORSE",
            Way::Other => "differs",
            Way::Undecided => one.change.finding.name(),
        };
        let change = match one.change.finding {
            Finding::Differs if share.is_finite() => Cell::figure(share, format!("{share:+.1} %")),
            Finding::Differs => Cell::text("from 0"),
            _ => Cell::text("~"),
        };
        let figures = |samples: &[f64], mean: f64| Cell::figure(mean, shown(&one.row.unit, samples));
        let names = [Cell::text(one.key.to_string()), Cell::text(&*one.row.metric)];
        let head = has_several.then(|| Cell::text(one.head));
        let cells = [
            figures(&one.row.base.samples, one.row.base.summary.mean),
            figures(&one.change.figures.samples, one.change.figures.summary.mean),
            change,
            Cell::text(word),
            Cell::figure(one.change.p, format!("{:.3}", one.change.p)),
        ];
        names.into_iter().chain(head).chain(cells).collect()
    };
    let [base, head] = [0, 1].map(|place| comparison.sources.get(place).map_or("", |source| source.label.as_str()));
    let own = if has_several { "its own" } else { head };
    let compared = has_several.then_some("compared");
    let first = ["workload", "metric"].into_iter().chain(compared);
    let headings: Vec<&str> = first.chain([base, own, "change of means", "finding", "p"]).collect();
    let rows: Vec<Vec<Cell>> = comparison.changes().map(row).collect();
    out.line("h2", &[], "All figures");
    table::write(out, "Every figure that both have", &headings, &rows);
}

fn write_alone(out: &mut Markup, comparison: &Comparison) {
    for (source, alone) in comparison.sources.iter().zip(&comparison.alone).filter(|(_, alone)| !alone.is_empty()) {
        out.within("details", &[], |out| {
            out.line("summary", &[], &format!("In {} alone, not compared: {}", source.label, alone.len()));
            out.within("ul", &[], |out| alone.iter().for_each(|key| out.line("li", &[], key)));
        });
    }
}

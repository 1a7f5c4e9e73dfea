//! The page of `compare`: two or more results side by side.
//!
//! # Guarantee
//! The headline names workload, CPUs, factor, interval and runs, and whatever got worse besides: memory, slow
//! operations. A difference is one only if the comparison finds it and the interval beside it leaves out 1.

use faultless_results::compare::{
    Change, ComparedGroup, Comparison, Direction, Key, LEAST_SAMPLES, Notable, Row as Compared, Significance, Source,
};
use faultless_results::designs::Style;
use faultless_results::stats::{Interval, rank_ratio};
use faultless_results::verdict::{METHOD, factor, interval, listed};
use faultless_results::{Unit, metric};

use super::{write_badge, write_circumstances};
use crate::arms::middle;
use crate::markup::Markup;
use crate::plot::{About, Axis, fitting, legend};
use crate::rows::{self, Marks, Row, Rows};
use crate::table::{self, Cell};
use crate::words;

/// The most rows of a plot.
const SHOWN: usize = 30;

/// The most workloads that the headline names.
const NAMED: usize = 3;

/// Writes the page.
pub fn write(out: &mut Markup, comparison: &Comparison) {
    out.within("header", &[], |out| {
        out.line("p", &[("class", "kind")], "faultless compare");
        out.line("h1", &[], &headline(comparison));
        write_badges(out, comparison);
        for source in &comparison.sources[1..] {
            write_others(out, comparison, &source.label);
        }
    });
    write_verdict(out, comparison);
    write_caveats(out, comparison);
    out.own(words::PLACE);
    write_plot(out, comparison);
    write_table(out, comparison);
    for source in &comparison.sources {
        out.line("h2", &[], &source.label);
        write_circumstances(out, &source.set);
    }
    write_alone(out, comparison);
}

fn write_badges(out: &mut Markup, comparison: &Comparison) {
    let first = &comparison.sources[0].set.machine;
    if comparison.sources.iter().all(|source| source.set.machine == *first) {
        return write_badge(out, first);
    }
    for source in &comparison.sources {
        out.line("p", &[], &format!("{} on {}:", source.label, source.set.machine.name));
        write_badge(out, &source.set.machine);
    }
}

/// The ways a change can go, or none that is sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Better,
    Worse,
    /// It changed, and nobody says what is better.
    Other,
    /// The runs do not tell.
    Same,
    /// Nobody can tell.
    Open,
}

/// Says which way a figure changed: where runs are equal, the test may differ from the interval, and both must tell.
fn way(row: &Compared, change: &Change) -> Way {
    let is_apart = times(row, change).is_none_or(|times| times.low > 1.0 || times.high < 1.0);
    match (change.finding, row.direction) {
        (Significance::Differs, _) if !is_apart => Way::Same,
        (Significance::Differs, Direction::Neither) => Way::Other,
        (Significance::Differs, direction) if change.is_improvement(direction) => Way::Better,
        (Significance::Differs, direction) if change.regression(direction).is_some() => Way::Worse,
        (Significance::TooFew | Significance::NotConverged, _) => Way::Open,
        _ => Way::Same,
    }
}

impl Way {
    fn tone(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Other | Self::Same | Self::Open => "open",
        }
    }
}

/// Returns whether a figure says how fast the whole is.
fn is_pace(row: &Compared) -> bool {
    row.metric.starts_with("per_") || row.metric == "ops_per_s" || row.metric == "elapsed_ns"
}

/// Returns how many times the base's figure the other is; of speed, how many times as fast it is.
fn times(row: &Compared, change: &Change) -> Option<Interval> {
    match (is_pace(row), row.direction) {
        (true, Direction::Lower) => rank_ratio(&change.figures.samples, &row.base.samples),
        _ => rank_ratio(&row.base.samples, &change.figures.samples),
    }
}

/// Says where a figure is from: the workload, and of all else what tells the comparison's figures apart.
fn place(comparison: &Comparison, key: &Key) -> String {
    let differs = |of: &dyn Fn(&Key) -> String| comparison.groups.iter().any(|group| of(&group.key) != of(key));
    let mut said = key.workload.clone();
    if differs(&|key| key.mode.to_string()) {
        said = format!("{said} ({})", key.mode);
    }
    if let Some(cpus) = &key.cpus {
        said = format!("{said} on {cpus} CPU{}", if cpus == "1" { "" } else { "s" });
    }
    for (part, of) in [(&key.design, 0), (&key.semaphore, 1)] {
        let of = |key: &Key| [&key.design, &key.semaphore][of].clone().unwrap_or_default();
        if let Some(part) = part.as_ref().filter(|_| differs(&of)) {
            said = format!("{said}, {part}");
        }
    }
    said
}

/// Returns what runs of the comparison are called.
fn runs(comparison: &Comparison) -> &'static str {
    if comparison.sources.iter().all(|source| source.set.machine.simulated) { "seeds" } else { "runs" }
}

fn headline(comparison: &Comparison) -> String {
    let heads = comparison.sources[1..].iter().map(|source| sentence(comparison, &source.label));
    heads.collect::<Vec<_>>().join(". ")
}

/// Says how a set's speed stands beside the base's: each workload on its largest number of CPUs.
fn sentence(comparison: &Comparison, head: &str) -> String {
    let base = &comparison.sources[0].label;
    let all: Vec<Notable<'_>> = comparison.changes().filter(|one| one.head == head && is_pace(one.row)).collect();
    let cpus = |one: &Notable<'_>| one.key.cpus.as_ref().and_then(|cpus| cpus.parse::<usize>().ok()).unwrap_or(0);
    let is_last =
        |one: &&Notable<'_>| !all.iter().any(|other| is_beside(one.key, other.key) && cpus(other) > cpus(one));
    let last: Vec<&Notable<'_>> = all.iter().filter(is_last).collect();
    if last.is_empty() {
        return format!("{head} and {base} share no figure of speed; the table has the others");
    }
    if last.len() <= NAMED {
        let said: Vec<String> = last.iter().map(|one| fact(comparison, one)).collect();
        return format!("{head} against {base}: {}", said.join("; "));
    }
    let count = |wanted: Way| all.iter().filter(|one| way(one.row, one.change) == wanted).count();
    let total = all.len();
    let said: Vec<String> =
        [("faster", Way::Better), ("slower", Way::Worse), ("not told apart", Way::Same), ("undecided", Way::Open)]
            .into_iter()
            .filter_map(|(word, way)| Some((word, count(way))).filter(|(_, count)| *count > 0))
            .map(|(word, count)| format!("{word} in {count} of {total}"))
            .collect();
    let sure = all.iter().filter(|one| !matches!(way(one.row, one.change), Way::Same | Way::Open));
    let most = furthest(sure).map_or(String::new(), |(one, _)| format!("; most: {}", fact(comparison, one)));
    format!("{head} against {base}: {}{most}", listed(&said))
}

/// Returns whether two keys differ in CPUs alone.
fn is_beside(one: &Key, other: &Key) -> bool {
    (&one.workload, one.mode, &one.design, &one.semaphore)
        == (&other.workload, other.mode, &other.design, &other.semaphore)
}

/// Says one figure of speed.
fn fact(comparison: &Comparison, one: &Notable<'_>) -> String {
    let place = place(comparison, one.key);
    let n = one.row.base.summary.n.min(one.change.figures.summary.n);
    let each = runs(comparison);
    let times = times(one.row, one.change);
    let sure = |times: &Interval| format!("(95 % interval {}, {n} {each} a side)", interval(times));
    match (way(one.row, one.change), times) {
        (Way::Better | Way::Worse | Way::Other, Some(times)) => {
            format!("{} times as fast in {place} {}", factor(times.middle), sure(&times))
        }
        (Way::Better, None) => format!("faster in {place}"),
        (Way::Worse | Way::Other, None) => format!("slower in {place}"),
        (Way::Same, Some(times)) => format!("no difference shown in {place} {}", sure(&times)),
        (Way::Same, None) => format!("no difference shown in {place}"),
        (Way::Open, _) if one.change.finding == Significance::TooFew => {
            format!("undecided in {place}: a difference needs {LEAST_SAMPLES} {each} a side, and there are {n}")
        }
        (Way::Open, _) => format!("undecided in {place}: rates had not converged"),
    }
}

/// What else counts beside speed, in words.
const OTHERS: [(&str, &str); 7] = [
    ("peak_rss_bytes", "memory"),
    ("op_p99_ns", "the slowest 1 % of operations"),
    ("op_p999_ns", "the slowest 0.1 % of operations"),
    ("fault_p99_ns", "the slowest 1 % of faults"),
    ("fault_p999_ns", "the slowest 0.1 % of faults"),
    ("call_p99_ns", "the slowest 1 % of map calls"),
    ("lock_wait_share", "waiting for the address-space lock"),
];

/// Writes what got worse and what got better: speed on fewer CPUs, memory, slow operations.
fn write_others(out: &mut Markup, comparison: &Comparison, head: &str) {
    let of_head: Vec<Notable<'_>> = comparison.changes().filter(|one| one.head == head).collect();
    let mut kinds: Vec<(&str, Vec<&Notable<'_>>)> = Vec::new();
    for one in &of_head {
        let words = match OTHERS.iter().find(|(name, _)| *name == one.row.metric) {
            _ if is_pace(one.row) => "speed",
            Some((_, words)) => words,
            None => continue,
        };
        match kinds.iter_mut().find(|(known, _)| *known == words) {
            Some((_, list)) => list.push(one),
            None => kinds.push((words, vec![one])),
        }
    }
    let several = comparison.sources.len() > 2;
    for (wanted, title) in [(Way::Worse, "Worse"), (Way::Better, "Better")] {
        let said: Vec<String> =
            kinds.iter().filter_map(|(words, list)| part(comparison, words, list, wanted)).collect();
        if said.is_empty() {
            continue;
        }
        let title = if several { format!("{title} in {head}") } else { title.to_owned() };
        out.within("p", &[("class", "takeaway")], |out| out.line("b", &[("class", wanted.tone())], &title));
        out.within("ul", &[("class", "facts")], |out| said.iter().for_each(|fact| out.line("li", &[], fact)));
    }
}

/// Returns the change that is furthest from none, either way, and by what factor.
fn furthest<'a, 'b: 'a>(all: impl Iterator<Item = &'a Notable<'b>>) -> Option<(&'a Notable<'b>, Interval)> {
    let timed = all.filter_map(|one| Some((one, times(one.row, one.change)?)));
    timed.max_by(|(_, a), (_, b)| a.middle.ln().abs().total_cmp(&b.middle.ln().abs()))
}

/// Says in how many figures of a kind a set is better or worse, and where most.
fn part(comparison: &Comparison, words: &str, list: &[&Notable<'_>], wanted: Way) -> Option<String> {
    let found: Vec<&&Notable<'_>> = list.iter().filter(|one| way(one.row, one.change) == wanted).collect();
    let most = furthest(found.iter().copied().copied()).map(|(one, times)| {
        let speed = if is_pace(one.row) { " as fast" } else { "" };
        format!(", most {} times{speed} ({}) in {}", factor(times.middle), interval(&times), place(comparison, one.key))
    });
    let total = list.len();
    (!found.is_empty()).then(|| format!("{words} in {} of {total}{}", found.len(), most.unwrap_or_default()))
}

/// What else counts beside speed and has a column.
const COLUMNS: [&str; 3] = ["op_p99_ns", "fault_p99_ns", "peak_rss_bytes"];

/// Writes a row for each place: speed with its interval, and what else counts.
fn write_verdict(out: &mut Markup, comparison: &Comparison) {
    let has_several = comparison.sources.len() > 2;
    let counted = |name: &str| comparison.groups.iter().flat_map(|group| &group.rows).any(|row| row.metric == name);
    let others: Vec<&str> = COLUMNS.into_iter().filter(|name| counted(name)).collect();
    let heads = 1..comparison.sources.len();
    let places = comparison.groups.iter().flat_map(|group| heads.clone().map(move |head| (group, head)));
    let rows: Vec<Vec<Cell>> =
        places.filter_map(|(group, head)| verdict_row(comparison, group, head, &others)).collect();
    if rows.is_empty() {
        return;
    }
    let base = &comparison.sources[0].label;
    let head = if has_several { "Each result" } else { &comparison.sources[1].label };
    let mut headings = vec!["where"];
    headings.extend(has_several.then_some("result"));
    headings.extend(["times as fast", "95 % interval", "so it is"]);
    headings.extend(others.iter().map(|name| metric::title(name)));
    table::write(out, &format!("{head} beside {base}"), &headings, &rows);
    let method = format!("{METHOD} It takes {LEAST_SAMPLES} {} a side to claim a difference.", runs(comparison));
    out.line("p", &[("class", "method")], &method);
}

/// Returns the cells of one place and one result; nothing without a figure of speed.
fn verdict_row(comparison: &Comparison, group: &ComparedGroup, head: usize, others: &[&str]) -> Option<Vec<Cell>> {
    let find = |is: &dyn Fn(&Compared) -> bool| {
        let row = group.rows.iter().find(|row| is(row))?;
        Some((row, row.heads.get(head - 1)?.as_ref()?))
    };
    let (row, change) = find(&is_pace)?;
    let times = times(row, change);
    let cell = |of: &dyn Fn(&Interval) -> Cell| times.as_ref().map_or_else(|| Cell::text("-"), of);
    let mut cells = vec![Cell::text(place(comparison, &group.key))];
    cells.extend((comparison.sources.len() > 2).then(|| Cell::text(&*comparison.sources[head].label)));
    cells.push(cell(&|times| Cell::figure(times.middle, factor(times.middle))));
    cells.push(cell(&|times| Cell::figure(times.low, interval(times))));
    cells.push(told(row, change));
    cells.extend(others.iter().map(|name| match find(&|row: &Compared| row.metric == *name) {
        Some((row, change)) => beside(row, change),
        None => Cell::text("-"),
    }));
    Some(cells)
}

fn told(row: &Compared, change: &Change) -> Cell {
    let way = way(row, change);
    let word = match (way, change.finding) {
        (Way::Better, _) => "faster",
        (Way::Worse, _) => "SLOWER",
        (Way::Open, Significance::TooFew) => "undecided: too few",
        (Way::Open, _) => "undecided: not converged",
        _ => "not told apart",
    };
    Cell::text(word).toned(way.tone())
}

/// Returns a figure beside speed: by what factor it changed, if it did.
fn beside(row: &Compared, change: &Change) -> Cell {
    let way = way(row, change);
    let times =
        times(row, change).map_or_else(|| "from 0".to_owned(), |times| format!("{} times", factor(times.middle)));
    let text = match way {
        Way::Better => format!("{times}, better"),
        Way::Worse => format!("{times}, WORSE"),
        Way::Other => times,
        Way::Same if row.base.samples == change.figures.samples => "same".into(),
        Way::Same => "not told apart".into(),
        Way::Open => "undecided".into(),
    };
    Cell::text(text).toned(way.tone())
}

fn write_caveats(out: &mut Markup, comparison: &Comparison) {
    let machine = &comparison.sources[0].set.machine;
    let alone = comparison.alone.iter().map(Vec::len).sum::<usize>();
    let about: Vec<String> = comparison
        .about
        .iter()
        .map(|(dimension, values)| format!("{dimension}: {}", values.join(" against ")))
        .collect();
    let is_other = comparison.sources.iter().any(|source| source.set.machine != *machine);
    let simulated = comparison.sources.iter().any(|source| source.set.machine.simulated);
    let (few, moving) = (comparison.nr_too_few(), comparison.nr_not_converged());
    let said = [
        (!about.is_empty()).then(|| format!("What differs between the results is the {}.", about.join("; "))),
        is_other.then(|| "The machines are not the same.".to_owned()),
        simulated.then(|| {
            "Intervals tell what other seeds would give. How far the model is from the real machine they do not tell.".into()
        }),
        (few > 0).then(|| format!("{few} figures have fewer than {LEAST_SAMPLES} runs a side: nothing is claimed of them.")),
        (moving > 0).then(|| format!("{moving} figures are of runs whose rates had not converged: nothing is claimed of them.")),
        (alone > 0).then(|| format!("{alone} figures are in one result alone; they are listed at the end.")),
    ];
    super::write_caveats(out, &said.into_iter().flatten().collect::<Vec<_>>());
}

fn write_plot(out: &mut Markup, comparison: &Comparison) {
    let all = comparison.groups.iter().flat_map(|group| group.rows.iter().map(move |row| (&group.key, row)));
    let pace: Vec<_> = all.filter(|(_, row)| is_pace(row) && row.base.summary.mean > 0.0).collect();
    if pace.is_empty() {
        return;
    }
    let rows: Vec<Row> = pace.iter().take(SHOWN).map(|(key, row)| plot_row(comparison, key, row)).collect();
    let left_out = pace.len().saturating_sub(SHOWN);
    let rest = if left_out > 0 { format!(" {left_out} more figures are in the table.") } else { String::new() };
    let figures = || rows.iter().flat_map(|row| &row.marks).flat_map(|marks| &marks.samples).copied();
    let mut machines: Vec<&str> = comparison.sources.iter().map(|source| &*source.set.machine.name).collect();
    machines.dedup();
    let is_time = pace.iter().all(|(_, row)| row.direction == Direction::Lower);
    let better = if is_time { "Times: further left is better." } else { "Further right is better." };
    let about = About {
        title: "Speed side by side: each run, as a share of the base's median".into(),
        told: rows.iter().map(|row| format!("{}: {}.", row.label, row.figure)).collect::<Vec<_>>().join(" "),
        caption: format!(
            "Each mark is a run, the upright line the median, the dotted line the median of {}. {better}{rest}",
            comparison.sources[0].label
        ),
        machine: &machines.join(", "),
        is_simulated: comparison.sources.iter().any(|source| source.set.machine.simulated),
    };
    let kind = fitting(figures(), 10.0);
    let axis = Axis { title: "share of the base's median (%)", unit: "share" };
    let shared = Rows { axis, kind, reference: Some((1.0, "the base's median")), has_zero: false };
    out.line("h2", &[], "Side by side");
    rows::write(out, &about, &shared, &rows, |out| {
        legend(out, comparison.sources.iter().enumerate().map(|(place, source)| (&*source.label, Style::nth(place))));
    });
}

fn plot_row(comparison: &Comparison, key: &Key, row: &Compared) -> Row {
    let whole = middle(&row.base.samples).map_or(1.0, |middle| middle.median);
    let marks = |name: &str, style: usize, samples: &[f64], has_converged: bool| {
        let samples: Vec<f64> = samples.iter().map(|sample| sample / whole).collect();
        let middle = middle(&samples).map(|middle| (middle.low, middle.median, middle.high));
        Marks { name: name.into(), style: Style::nth(style), samples, middle, is_hollow: !has_converged }
    };
    let base = &comparison.sources[0].label;
    let mut all = vec![marks(base, 0, &row.base.samples, row.base.has_converged)];
    let mut said = Vec::new();
    for (place, (source, change)) in comparison.sources[1..].iter().zip(&row.heads).enumerate() {
        let Some(change) = change else { continue };
        all.push(marks(&source.label, place + 1, &change.figures.samples, change.figures.has_converged));
        let way = way(row, change);
        said.push(match (way, times(row, change)) {
            (Way::Better | Way::Worse, Some(times)) => format!("{} times as fast", factor(times.middle)),
            (Way::Open, _) => "undecided".into(),
            _ => "not told apart".into(),
        });
    }
    Row { label: place(comparison, key), figure: said.join("; "), marks: all }
}

fn write_table(out: &mut Markup, comparison: &Comparison) {
    // Of two results, the heading says which.
    let has_several = comparison.sources.len() > 2;
    let row = |one: Notable<'_>| {
        let way = way(one.row, one.change);
        let word = match (way, one.change.finding) {
            (Way::Better, _) => "better",
            (Way::Worse, _) => "WORSE",
            (Way::Other, _) => "differs",
            (Way::Same, _) => "not told apart",
            (Way::Open, Significance::TooFew) => "too few runs",
            (Way::Open, _) => "not converged",
        };
        // The same figure as above: of times, how many times the base's one it is.
        let times = rank_ratio(&one.row.base.samples, &one.change.figures.samples);
        let change = match times {
            Some(times) if way != Way::Open => {
                Cell::figure(times.middle, format!("{} [{}]", factor(times.middle), interval(&times)))
            }
            _ => Cell::text("-"),
        };
        let figure = |samples: &[f64]| {
            let median = middle(samples).map_or(0.0, |middle| middle.median);
            Cell::figure(median, Unit::show_named(&one.row.unit, median))
        };
        let names = [Cell::text(place(comparison, one.key)), Cell::text(super::words(&one.row.metric))];
        let head = has_several.then(|| Cell::text(one.head));
        let cells = [
            figure(&one.row.base.samples),
            figure(&one.change.figures.samples),
            change,
            Cell::text(word).toned(way.tone()),
        ];
        names.into_iter().chain(head).chain(cells).collect()
    };
    let [base, head] = [0, 1].map(|place| comparison.sources.get(place).map_or("", |source| source.label.as_str()));
    let own = if has_several { "its own" } else { head };
    let first = ["where", "figure"].into_iter().chain(has_several.then_some("result"));
    let headings: Vec<&str> = first.chain([base, own, "times the base [95 %]", "so it is"]).collect();
    let rows: Vec<Vec<Cell>> = comparison.changes().map(row).collect();
    out.within("details", &[], |out| {
        out.line("summary", &[], &format!("All {} figures", rows.len()));
        table::write(
            out,
            "Every figure that both have: medians, and how many times the base's it is",
            &headings,
            &rows,
        );
    });
}

fn write_alone(out: &mut Markup, comparison: &Comparison) {
    let with: Vec<(&Source, &Vec<String>)> =
        comparison.sources.iter().zip(&comparison.alone).filter(|(_, alone)| !alone.is_empty()).collect();
    for (source, alone) in with {
        out.within("details", &[], |out| {
            out.line("summary", &[], &format!("In {} alone, not compared: {}", source.label, alone.len()));
            out.within("ul", &[], |out| alone.iter().for_each(|key| out.line("li", &[], key)));
        });
    }
}

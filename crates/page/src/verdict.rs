//! Verdicts as tables: who wins, by how much, how sure that is, and why.
//!
//! # Guarantee
//! Every factor says how many times as fast the design named in its heading or beside it is, with its interval; the
//! caption names the method.

use faultless_results::stats::Interval;
use faultless_results::verdict::{
    Cost, Finding, Kind, METHOD, Part, Place, Ranking, Samples, Standing, factor, interval, listed,
};
use faultless_results::{Unit, metric};

use crate::bars::{self, Bars, Layout};
use crate::markup::Markup;
use crate::plot::{About, Axis};
use crate::table::{self, Cell};

/// Writes the designs of one workload on one number of CPUs, the best first.
pub fn write_places(out: &mut Markup, ranking: &Ranking) {
    if ranking.finding == Finding::Alone {
        return;
    }
    let faster = format!("{} is … times as fast", ranking.best());
    let figure = format!("{}, median", metric::title(&ranking.metric));
    let headings = ["design", &figure, &faster, ranking.interval(), "so it"];
    let caption = format!("{} on {}, the best median first", ranking.workload, cpus(ranking.cpus));
    let rows: Vec<Vec<Cell>> = ranking.places.iter().map(|place| row(ranking, place)).collect();
    table::write(out, &caption, &headings, &rows);
}

/// Writes how the factors above are computed.
pub fn write_method(out: &mut Markup, rankings: &[Ranking]) {
    let is_judged = |ranking: &&Ranking| ranking.finding != Finding::Alone;
    if let Some(first) = rankings.iter().find(is_judged) {
        out.line("p", &[("class", "method")], &method(first.samples));
    }
}

fn row(ranking: &Ranking, place: &Place) -> Vec<Cell> {
    let lead = place.lead.as_ref();
    vec![
        Cell::text(&*place.name),
        Cell::figure(place.median, Unit::show_named(&ranking.unit, place.median)),
        lead.map_or_else(|| Cell::text("-"), |lead| Cell::figure(lead.middle, factor(lead.middle))),
        lead.map_or_else(|| Cell::text("-"), |lead| Cell::figure(lead.low, interval(lead))),
        Cell::text(place.reading(ranking)).toned(tone(place.standing)),
    ]
}

fn tone(standing: Standing) -> &'static str {
    match standing {
        Standing::Wins => "better",
        Standing::Slower => "worse",
        Standing::Best | Standing::Level | Standing::Open => "open",
    }
}

/// Returns how the factors are computed, and what the samples are.
pub fn method(samples: Samples) -> String {
    match samples {
        Samples::Runs => METHOD.to_owned(),
        Samples::Seeds => format!("{METHOD} Runs are of a SIMULATED machine, each of its own seed."),
        Samples::Draws => "\"Times as fast\" is the median over SIMULATED machines that differ in what was guessed of \
                           them; 90 % of the machines lie in the interval. Two designs are told apart if it leaves out 1."
            .into(),
    }
}

/// Returns CPUs with their number.
pub fn cpus(cpus: usize) -> String {
    format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })
}

/// Writes who is first in each workload on each number of CPUs, a row each.
pub fn write_rankings(out: &mut Markup, rankings: &[Ranking]) {
    if rankings.iter().all(|ranking| ranking.finding == Finding::Alone) {
        return;
    }
    let bounds = rankings.first().map_or("95 % interval", Ranking::interval);
    let headings = ["workload", "CPUs", "first", "times as fast as the next", bounds, "told apart?"];
    table::write(
        out,
        "Who is first, by how much, and how sure that is",
        &headings,
        &rankings.iter().map(first).collect::<Vec<_>>(),
    );
}

fn first(ranking: &Ranking) -> Vec<Cell> {
    let next = ranking.places.get(1);
    let lead = next.and_then(|next| next.lead.as_ref());
    let (sure, tone) = match ranking.finding {
        Finding::Wins => ("yes".to_owned(), "better"),
        Finding::Alone => ("one design".into(), "open"),
        Finding::Level(many) if many == ranking.places.len() => ("no".into(), "open"),
        Finding::Level(_) => (format!("not from {}", listed(&ranking.leaders()[1..])), "open"),
        Finding::Undecided => (ranking.doubts_in_short(), "open"),
    };
    let ends = |lead: &Interval| Cell::figure(lead.low, interval(lead));
    let beside = |lead: &Interval| {
        let next = next.map_or("", |next| &next.name);
        Cell::figure(lead.middle, format!("{} × {next}", factor(lead.middle)))
    };
    vec![
        Cell::text(&*ranking.workload),
        Cell::number(ranking.cpus),
        Cell::text(ranking.first()),
        lead.map_or_else(|| Cell::text("-"), beside),
        lead.map_or_else(|| Cell::text("-"), ends),
        Cell::text(sure).toned(tone),
    ]
}

/// Writes why: a sentence, where the time of an operation goes as bars, and what was counted.
pub fn write_why(out: &mut Markup, ranking: &Ranking, machine: &str) {
    if let Some(why) = ranking.why() {
        out.within("p", &[], |out| {
            let by = if ranking.finding == Finding::Undecided { "Why, as far as the medians tell: " } else { "Why: " };
            out.line("b", &[], by);
            out.text(&why);
        });
    }
    if ranking.places.len() < 2 {
        return;
    }
    write_bars(out, ranking, machine);
    write_costs(out, ranking);
}

fn write_bars(out: &mut Markup, ranking: &Ranking, machine: &str) {
    let has_books = ranking.places.iter().all(|place| !place.cost.parts.is_empty());
    let bar = |place: &Place| {
        let (whole, wait) = (place.cost.op_ns?, place.cost.wait_ns());
        let label = if wait.is_none() { format!("{} (waiting not counted)", place.name) } else { place.name.clone() };
        let of = |kind: Kind| place.cost.spent(kind).unwrap_or(0.0);
        let lengths = match has_books {
            true => [Kind::Lock, Kind::Lines, Kind::Wait, Kind::Work].map(of).to_vec(),
            false => vec![wait.unwrap_or(0.0), (whole - wait.unwrap_or(0.0)).max(0.0)],
        };
        Some(Bars { label, lengths })
    };
    let rows: Vec<Bars> = ranking.places.iter().filter_map(bar).collect();
    if rows.is_empty() {
        return;
    }
    let show = |ns: f64| crate::plot::short("ns", ns);
    let told = rows.iter().map(|row| {
        let whole = row.lengths.iter().sum();
        format!("{}: {}, of it {} waiting for the lock.", row.label, show(whole), show(row.lengths[0]))
    });
    let about = About {
        title: format!("{}: where the mean time of an operation goes on {}", ranking.workload, cpus(ranking.cpus)),
        told: told.collect::<Vec<_>>().join(" "),
        caption: format!("{MEAN} Shorter is better."),
        machine,
        is_simulated: ranking.samples != Samples::Runs,
    };
    let axis = Axis { title: "mean time of an operation (ns, us, ms), from 0", unit: "ns" };
    let lock = (bars::WAITED, "waiting for the address-space lock");
    let books = [
        lock,
        (bars::LINES, "fetching cache lines that other CPUs had"),
        (bars::OTHERS, "other waits: shootdowns, the memory bus, other locks"),
        (bars::REST, "work"),
    ];
    let kinds = if has_books { &books[..] } else { &[lock, (bars::REST, "all else: work, cache lines, other locks")] };
    bars::write(out, &about, axis, Layout::Stacked, kinds, &rows);
}

/// What the mean time of an operation is, and why it is not the median.
pub const MEAN: &str = "The mean time of an operation, of one worker: workers over throughput. It counts every wait, so \
                        a few long ones may lift it far above the median, which is what half of the operations stay below.";

/// A column of what was counted: its heading, the figure, and how it is shown.
type Column = (&'static str, fn(&Cost) -> Option<f64>, Unit);

const COLUMNS: [Column; 10] = [
    ("time of an operation, mean", |cost| cost.op_ns, Unit::Ns),
    ("of a timed step, median of all", |cost| cost.step_ns, Unit::Ns),
    ("waiting for the address-space lock", |cost| cost.waiting, Unit::Share),
    ("fetching lines", |cost| cost.spent_share(Kind::Lines), Unit::Share),
    ("lines fetched, an operation", Cost::transfers, Unit::Count),
    ("other waits", |cost| cost.spent_share(Kind::Wait), Unit::Share),
    ("faults without that lock", |cost| cost.lockless, Unit::Share),
    ("TLB shootdowns an operation", |cost| cost.shootdowns, Unit::Count),
    ("time of a fault, median of all", |cost| cost.fault_ns, Unit::Ns),
    ("time of a map call, median of all", |cost| cost.call_ns, Unit::Ns),
];

fn write_costs(out: &mut Markup, ranking: &Ranking) {
    let is_told = |column: &&Column| {
        ranking.places.iter().any(|place| (column.1)(&place.cost).is_some_and(|figure| figure > 0.0))
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_told).collect();
    if columns.is_empty() {
        return;
    }
    let cell = |cost: &Cost, (_, of, unit): &Column| {
        of(cost).map_or_else(|| Cell::text("not counted"), |figure| Cell::figure(figure, unit.show(figure)))
    };
    let row = |place: &Place| {
        let cells = columns.iter().map(|column| cell(&place.cost, column));
        std::iter::once(Cell::text(&*place.name)).chain(cells).collect()
    };
    let headings: Vec<&str> = std::iter::once("design").chain(columns.iter().map(|column| column.0)).collect();
    let place = format!("{} on {}", ranking.workload, cpus(ranking.cpus));
    out.within("details", &[], |out| {
        out.line("summary", &[], &format!("Why, in figures ({place})"));
        let caption = format!("{place}: what was counted");
        table::write(out, &caption, &headings, &ranking.places.iter().map(row).collect::<Vec<Vec<Cell>>>());
        write_parts(out, ranking, &place);
    });
}

/// Of an operation's time, what a part has at least that is listed.
const LISTED: f64 = 0.005;

/// Writes what the time of an operation is spent on under each design, where books were kept: by name, also of what
/// sentences leave out.
fn write_parts(out: &mut Markup, ranking: &Ranking, place: &str) {
    let row = |place: &Place, part: &Part| {
        let (share, is_line) = (part.ns / place.cost.op_ns.unwrap_or(1.0), part.kind == Kind::Lines);
        (share >= LISTED).then(|| {
            vec![
                Cell::text(&*place.name),
                Cell::text(part.told(ranking.cpus)),
                Cell::figure(part.ns, Unit::Ns.show(part.ns)),
                Cell::figure(share, Unit::Share.show(share)),
                if is_line { Cell::figure(part.transfers, Unit::Count.show(part.transfers)) } else { Cell::text("-") },
            ]
        })
    };
    let of = |place: &'_ Place| place.cost.parts.iter().filter_map(|part| row(place, part)).collect::<Vec<_>>();
    let rows: Vec<Vec<Cell>> = ranking.places.iter().flat_map(of).collect();
    if rows.is_empty() {
        return;
    }
    let caption = format!(
        "{place}: what an operation's mean time is spent on, locks and cache lines by name, warm-up included; a line is \
         fetched when another CPU had it"
    );
    let headings = ["design", "time spent", "of an operation", "share", "lines fetched, an operation"];
    table::write(out, &caption, &headings, &rows);
}

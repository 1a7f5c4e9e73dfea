//! An address space over time: areas as bands by kind, faults as dots, forks as cuts.
//!
//! # Guarantee
//! * I1 each region says at its left which kinds it holds and how much of each was mapped there at once: neither colour
//!   nor height alone tells it, and the sizes are those that the text and the table have
//! * I2 addresses at which mappings come and go, but which are a strip of the whole picture, have one of their own
//! * I3 what the program asks of its map again and again is told by call, memory and size
//! * I4 the page says how the picture is read, how coarse the grid is and which spaces were left out

use faultless_results::{Unit, grouped};
use serde_json::Value;

use crate::markup::{Markup, px};
use crate::plot::{About, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};
use crate::table::{self, Cell};
use crate::{calls, zoom};

const TOP: f64 = 40.0;
/// Height of a row of addresses, in pixels.
const ROW: f64 = 3.4;

/// The style of a kind of memory.
fn style(kind: &str) -> usize {
    ["file", "stack", "heap", "anonymous", "shared", "special", "unknown"]
        .iter()
        .position(|known| *known == kind)
        .unwrap_or(7)
}

/// Writes a plot and a table for each space of an outline.
pub fn write(out: &mut Markup, outline: &Value, machine: &str) {
    let spaces = &outline["spaces"];
    let list = spaces["list"].as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return;
    }
    out.line("h2", &[], "What the program does with its memory");
    let left_out = (spaces["count"].as_u64().unwrap_or(0) as usize).saturating_sub(list.len());
    if left_out > 0 {
        out.line(
            "p",
            &[],
            &format!("The busiest {} of its address spaces; {left_out} with fewer events are left out.", list.len()),
        );
    }
    let columns = spaces["columns"].as_f64().unwrap_or(1.0);
    for space in list {
        write_space(out, space, columns, machine);
    }
}

fn kinds(space: &Value) -> Vec<(&str, char, f64, f64)> {
    let kinds = space["kinds"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |kind: &'_ Value| {
        let letter = kind["letter"].as_str().and_then(|letter| letter.chars().next()).unwrap_or('?');
        (letter, kind["peak_bytes"].as_f64().unwrap_or(0.0), kind["faults"].as_f64().unwrap_or(0.0))
    };
    let mut all: Vec<_> = kinds
        .iter()
        .map(|kind| {
            let (letter, peak, faults) = of(kind);
            (kind["kind"].as_str().unwrap_or("?"), letter, peak, faults)
        })
        .collect();
    all.sort_by(|one, other| other.3.total_cmp(&one.3));
    all
}

fn write_space(out: &mut Markup, space: &Value, columns: f64, machine: &str) {
    let duration_ns = space["duration_ns"].as_f64().unwrap_or(1.0);
    let began = short("ns", space["began_ns"].as_f64().unwrap_or(0.0));
    let name = space["name"].as_str().unwrap_or("?");
    let kinds = kinds(space);
    let (changes, faults) = (space["changes"].as_f64().unwrap_or(0.0), space["faults_total"].as_f64().unwrap_or(0.0));
    let mapped = space["again"][0].as_f64().unwrap_or(0.0);
    let forks = space["nr_forks"].as_u64().unwrap_or(0);
    let takeaway = format!("{}{}", takeaway(name, &kinds, (faults, changes, mapped), forks), calls::again(space));
    let gone = if began == "0 ns" { String::new() } else { format!(" This one begins {began} into the recording.") };
    let about = About {
        title: format!("The address space of {name} over time"),
        told: takeaway,
        caption: format!(
            "Time goes from left to right. Each band is a region of addresses, the highest on top; colour is its kind, \
             gaps in it are memory that was not mapped then, dots are page faults. The larger a region the higher its band, but only by \
             the logarithm. At its left stands what was mapped there, and the most of it at once. Addresses that were never \
             mapped are left out.{gone} As \
             recorded, aggregated into {columns} columns of {} each.",
            short("ns", duration_ns / columns)
        ),
        machine,
        is_simulated: false,
    };
    let grid = Grid { space, kinds: &kinds, duration_ns, columns, name: "" };
    write_picture(out, &about, grid, &kinds, forks > 0);
    let all = faults;
    let row = |(kind, _, peak, faults): &(&str, char, f64, f64)| {
        vec![
            Cell::text(called(kind)),
            Cell::figure(*peak, Unit::Bytes.show(*peak)),
            Cell::figure(*faults, plain(*faults)),
            Cell::figure(*faults, Unit::Share.show(if all > 0.0 { faults / all } else { 0.0 })),
        ]
    };
    let caption = format!("Memory of {name} by kind");
    out.within("details", &[], |out| {
        out.line("summary", &[], &format!("{caption}: the most at once, and page faults"));
        let headings = ["kind", "most mapped at once", "page faults", "of all"];
        table::write(out, &caption, &headings, &kinds.iter().map(row).collect::<Vec<_>>());
    });
    write_closer(out, &grid, name, machine);
    calls::write(out, &space["calls"], name, (duration_ns, columns), machine);
}

/// Writes the closer look at the addresses where mappings come and go most often (I2).
fn write_closer(out: &mut Markup, whole: &Grid<'_>, name: &str, machine: &str) {
    let closer = &whole.space["closer"];
    if closer.is_null() {
        return;
    }
    let count = |key: &str| plain(closer[key].as_f64().unwrap_or(0.0));
    let region = &closer["regions"][0];
    let bytes = Unit::Bytes.show(region["bytes"].as_f64().unwrap_or(0.0));
    let rows = closer["rows"].as_f64().unwrap_or(1.0);
    let about = About {
        title: format!("Closer: the addresses of {name} that change most"),
        told: format!(
            "The addresses that change most are a range of {bytes}, of which not all is mapped at a time: mappings begin or \
             end there {} times, and {} page faults fall there.",
            count("changes"),
            count("faults_total")
        ),
        caption: format!(
            "The addresses where mappings come and go again and again, which are a strip of the picture above. Here \
             each row is {}. A cell is filled if anything was mapped there while its column lasted: what came and went \
             more often than that is one band, and the sentence above counts it.",
            Unit::Bytes.show(region["bytes"].as_f64().unwrap_or(0.0) / rows)
        ),
        machine,
        is_simulated: false,
    };
    let there = region["kinds"].as_array().map_or(&[][..], Vec::as_slice);
    let is_there = |kind: &&(&str, char, f64, f64)| there.iter().any(|known| known["kind"] == kind.0);
    let kinds: Vec<_> = whole.kinds.iter().filter(is_there).copied().collect();
    write_picture(out, &about, Grid { space: closer, ..*whole }, &kinds, false);
}

/// Writes what a picture tells, the picture under a name of its own, and the legend of the kinds that are in it.
fn write_picture(
    out: &mut Markup,
    about: &About<'_>,
    grid: Grid<'_>,
    kinds: &[(&str, char, f64, f64)],
    has_forks: bool,
) {
    out.line("p", &[("class", "takeaway")], &about.told);
    let part = out.name();
    let grid = Grid { name: &part, ..grid };
    let rows = grid.space["rows"].as_f64().unwrap_or(1.0);
    figure(
        out,
        about,
        |_| TOP + rows * ROW + 48.0,
        |out, width| draw(out, width, &grid),
        |out| {
            zoom::write_buttons(out);
            write_legend(out, kinds, has_forks);
        },
    );
}

/// Says what the space is used for.
fn takeaway(
    name: &str,
    kinds: &[(&str, char, f64, f64)],
    (faults, changes, mapped): (f64, f64, f64),
    forks: u64,
) -> String {
    let mut sizes: Vec<&(&str, char, f64, f64)> = kinds.iter().filter(|kind| kind.2 > 0.0).collect();
    sizes.sort_by(|one, other| other.2.total_cmp(&one.2));
    let sizes: Vec<String> = sizes
        .iter()
        .take(3)
        .map(|(kind, _, peak, _)| format!("{} of {}", Unit::Bytes.show(*peak), called(kind)))
        .collect();
    let most = kinds.first().filter(|kind| kind.3 > 0.0).map(|(kind, _, _, count)| {
        format!(" {} of its {} page faults fall on {}.", plain(*count), plain(faults), called(kind))
    });
    let forks = match forks {
        0 => "never forks".to_owned(),
        1 => "forks once".to_owned(),
        many => format!("forks {many} times"),
    };
    let sizes = if sizes.is_empty() { String::new() } else { format!(" maps at most {} at once;", sizes.join(", ")) };
    let changes = format!("{} ranges are mapped and {} unmapped", plain(mapped), plain(changes - mapped));
    format!("{name}{sizes} {changes}, and it {forks}.{}", most.unwrap_or_default())
}

/// Returns a count in full.
fn plain(count: f64) -> String {
    grouped(count.max(0.0) as u64)
}

/// Kinds in words.
pub(crate) fn called(kind: &str) -> &str {
    match kind {
        "anonymous" => "anonymous memory",
        "file" => "files (programs, libraries, data)",
        "shared" => "shared memory",
        "special" => "the kernel's own pages",
        "unknown" => "what the recording does not tell of",
        other => other,
    }
}

fn write_legend(out: &mut Markup, kinds: &[(&str, char, f64, f64)], has_forks: bool) {
    let sample = [("width", "34"), ("height", "14"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
    let item = |out: &mut Markup, class: &str, path: &str, told: &str| {
        out.within("li", &[], |out| {
            out.within("svg", &sample, |out| out.empty("path", &[("class", class), ("d", path)]));
            out.text(told);
        });
    };
    out.within("ul", &[("class", "legend")], |out| {
        for (kind, ..) in kinds {
            item(out, &format!("area swatch s{}", style(kind)), "M0 7h34", called(kind));
        }
        for (class, told) in DOTS {
            item(out, &format!("datum {class}"), "M17 7v0", told);
        }
        if has_forks {
            item(out, "cut", "M17 0v14", "a fork");
        }
    });
}

/// Dots of faults by their number: class and words.
const DOTS: [(&str, &str); 3] =
    [("few", "1 to 3 page faults"), ("some", "4 to 31 page faults"), ("many", "32 page faults or more")];

/// What a plot is drawn of.
#[derive(Clone, Copy)]
struct Grid<'a> {
    space: &'a Value,
    kinds: &'a [(&'a str, char, f64, f64)],
    duration_ns: f64,
    columns: f64,
    /// The drawing's name.
    name: &'a str,
}

fn draw(out: &mut Markup, width: Width, grid: &Grid<'_>) {
    let &Grid { space, kinds, duration_ns, columns, name } = grid;
    let rows = space["rows"].as_f64().unwrap_or(1.0);
    let bottom = TOP + rows * ROW;
    let left = if width == Width::Wide { 196.0 } else { 104.0 };
    let x = zoom::time(duration_ns, left, width);
    let frame = Frame { x, y: Scale { kind: Kind::Linear, ends: (rows, 0.0), places: (bottom, TOP) } };
    zoom::draw(out, &frame, width, (name, "this address space"), |out| {
        draw_areas(out, space, kinds, columns);
        draw_forks(out, space, rows, duration_ns);
        draw_faults(out, space, columns);
    });
    let regions = space["regions"].as_array().map_or(&[][..], Vec::as_slice);
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "address")], |out| {
        out.line("text", &[("class", "title"), ("x", "4"), ("y", "28")], "address (hexadecimal), highest on top");
        let mut free = TOP - 8.0;
        for region in regions {
            let (first, many) = (region["row"].as_f64().unwrap_or(0.0), region["rows"].as_f64().unwrap_or(1.0));
            let middle = TOP + (first + many / 2.0) * ROW + 4.0;
            if middle < free + LINE {
                continue;
            }
            free = middle;
            let lines = label(region, width);
            // A second line has room in a high band alone.
            let is_high = many * ROW >= 2.0 * LINE + 2.0;
            let lines = &lines[..if is_high { 2 } else { 1 }];
            for (nth, line) in lines.iter().enumerate() {
                let y = px(middle + LINE * (nth as f64 - (lines.len() - 1) as f64 / 2.0));
                let label = clipped(line, Width::letters(left - 8.0));
                out.line(
                    "text",
                    &[("class", "tick"), ("text-anchor", "end"), ("x", &px(left - 6.0)), ("y", &y)],
                    &label,
                );
            }
            free += if is_high { LINE / 2.0 } else { 0.0 };
        }
    });
}

/// Height of a line of a label.
const LINE: f64 = 13.0;

/// Of what a region's first kind has, what a second that is named has at least.
const NAMED: f64 = 0.02;

/// Returns the lines of a region's label: its kinds and the most that was mapped of each at once (I1).
fn label(region: &Value, width: Width) -> [String; 2] {
    let of = |place: usize| {
        let kind = region["kinds"].get(place)?;
        Some((kind["kind"].as_str()?, kind["peak_bytes"].as_f64()?))
    };
    let (kind, peak) = of(0).unwrap_or(("mapped", region["bytes"].as_f64().unwrap_or(0.0)));
    let size = Unit::Bytes.show(peak);
    let second = of(1).filter(|(_, other)| *other >= peak * NAMED);
    match (width, second) {
        (Width::Narrow, _) => [kind.to_owned(), size],
        (Width::Wide, Some((other, its))) => [format!("{kind}, {size}"), format!("{other}, {}", Unit::Bytes.show(its))],
        (Width::Wide, None) => [format!("{kind}, {size}"), format!("from {}", region["start"].as_str().unwrap_or("?"))],
    }
}

/// Draws each run of cells of a kind as a stroke as high as a row, in the grid's own units: short text for many runs.
fn draw_areas(out: &mut Markup, space: &Value, kinds: &[(&str, char, f64, f64)], columns: f64) {
    let cells: Vec<Vec<char>> = space["cells"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|row| row.chars().collect())
        .collect();
    let scale = format!("scale({:.4} {ROW})", zoom::ACROSS / columns);
    out.within("g", &[("transform", &scale)], |out| {
        for (kind, letter, ..) in kinds {
            let path: String = cells.iter().enumerate().map(|(row, letters)| strokes(row, letters, *letter)).collect();
            if !path.is_empty() {
                let class = format!("area s{}", style(kind));
                out.within("path", &[("class", &class), ("d", &path)], |out| out.line("title", &[], kind));
            }
        }
    });
}

fn strokes(row: usize, letters: &[char], letter: char) -> String {
    let mut path = String::new();
    let (mut at, mut ended) = (0, None);
    for run in letters.chunk_by(|one, other| one == other) {
        if run[0] == letter {
            match ended {
                None => path.push_str(&format!("M{at} {row}.5h{}", run.len())),
                Some(ended) => path.push_str(&format!("m{} 0h{}", at - ended, run.len())),
            }
            ended = Some(at + run.len());
        }
        at += run.len();
    }
    path
}

fn draw_forks(out: &mut Markup, space: &Value, rows: f64, duration_ns: f64) {
    for fork in space["forks"].as_array().into_iter().flatten().filter_map(Value::as_f64) {
        let x = px(fork * zoom::ACROSS / duration_ns.max(1.0));
        let attributes = [("class", "cut"), ("x1", &*x), ("x2", &*x), ("y1", "0"), ("y2", &*px(rows * ROW))];
        out.within("line", &attributes, |out| out.line("title", &[], &format!("a fork, {} in", short("ns", fork))));
    }
}

/// Draws faults as upright strokes with round ends: dots whatever the zoom is.
fn draw_faults(out: &mut Markup, space: &Value, columns: f64) {
    let mut paths = [String::new(), String::new(), String::new()];
    for cell in space["faults"].as_array().into_iter().flatten() {
        let figure = |place: usize| cell[place].as_f64().unwrap_or(0.0);
        let size = match figure(2) {
            count if count < 4.0 => 0,
            count if count < 32.0 => 1,
            _ => 2,
        };
        let x = px((figure(0) + 0.5) * zoom::ACROSS / columns);
        paths[size].push_str(&format!("M{x} {}v0", px((figure(1) + 0.5) * ROW)));
    }
    for (path, (class, told)) in paths.iter().zip(DOTS).filter(|(path, _)| !path.is_empty()) {
        let class = format!("datum {class}");
        out.within("path", &[("class", &class), ("d", path)], |out| out.line("title", &[], told));
    }
}

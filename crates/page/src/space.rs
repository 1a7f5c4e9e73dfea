//! An address space over time: areas as bands by kind, faults as dots, forks as cuts.
//!
//! # Guarantee
//! Kinds are told apart by a letter at the left of their regions and by their order, not by colour alone. The page says
//! how coarse the grid is and which spaces were left out.

use faultless_results::Unit;
use serde_json::Value;

use crate::markup::{Markup, px};
use crate::plot::{About, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};
use crate::table::{self, Cell};
use crate::zoom;

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
    let forks = space["nr_forks"].as_u64().unwrap_or(0);
    let most = kinds.first().map_or(String::new(), |(kind, _, peak, count)| {
        format!(
            "Most faults, {} of {}, fall on {kind} memory, at most {} of it mapped at once.",
            short("count", *count),
            short("count", faults),
            Unit::Bytes.show(*peak)
        )
    });
    let cuts = match forks {
        0 => "It never forks.".to_owned(),
        many => {
            format!("It forks {many} time{}: a dashed line across the bands each.", if many == 1 { "" } else { "s" })
        }
    };
    let about = About {
        title: format!("The address space of {name} over time"),
        told: most.clone(),
        caption: format!(
            "{most} {cuts} {} changes of the map in all. It begins {began} after the recording. Bands: mapped areas by kind; dots: page faults, larger \
             where there are \
             more. As recorded, aggregated into {columns} columns ({} each); addresses never mapped are left out, \
             and a region's \
             height grows with the logarithm of its size.",
            short("count", changes),
            short("ns", duration_ns / columns)
        ),
        machine,
        is_simulated: false,
    };
    let rows = space["rows"].as_f64().unwrap_or(1.0);
    let part = out.name();
    let grid = Grid { space, kinds: &kinds, duration_ns, columns, name: &part };
    figure(
        out,
        &about,
        |_| TOP + rows * ROW + 48.0,
        |out, width| draw(out, width, &grid),
        |out| {
            zoom::write_buttons(out);
            out.within("ul", &[("class", "legend")], |out| {
                for (kind, ..) in &kinds {
                    out.within("li", &[], |out| {
                        let sample =
                            [("width", "34"), ("height", "14"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
                        out.within("svg", &sample, |out| {
                            let class = format!("area s{}", style(kind));
                            out.empty("path", &[("class", &class), ("style", "stroke-width:12px"), ("d", "M0 7h34")]);
                        });
                        out.text(kind);
                    });
                }
            });
        },
    );
    let row = |(kind, _, peak, faults): &(&str, char, f64, f64)| {
        vec![
            Cell::text(*kind),
            Cell::figure(*peak, Unit::Bytes.show(*peak)),
            Cell::figure(*faults, format!("{faults:.0}")),
        ]
    };
    let caption = format!("Memory of {name} by kind");
    table::write(out, &caption, &["kind", "most mapped at once", "faults"], &kinds.iter().map(row).collect::<Vec<_>>());
}

/// What a plot is drawn of.
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
    let left = if width == Width::Wide { 190.0 } else { 82.0 };
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
            let y = TOP + (first + many / 2.0) * ROW + 4.0;
            if y < free + 12.0 {
                continue;
            }
            free = y;
            let kind = region_kind(space, first as usize, many as usize, kinds);
            let start = region["start"].as_str().unwrap_or("?");
            let label = if width == Width::Wide { format!("{kind} {start}") } else { kind.to_owned() };
            let (x, y) = (px(left - 6.0), px(y));
            let label = clipped(&label, Width::letters(left - 10.0));
            out.line("text", &[("class", "tick"), ("text-anchor", "end"), ("x", &x), ("y", &y)], &label);
        }
    });
}

/// Returns the kind that most cells of a region have.
fn region_kind<'a>(space: &Value, first: usize, many: usize, kinds: &[(&'a str, char, f64, f64)]) -> &'a str {
    let cells = space["cells"].as_array().map_or(&[][..], Vec::as_slice);
    let letters = cells.iter().skip(first).take(many).filter_map(Value::as_str).flat_map(str::chars);
    let mut counts = vec![0usize; kinds.len()];
    for letter in letters {
        if let Some(place) = kinds.iter().position(|(_, known, ..)| *known == letter) {
            counts[place] += 1;
        }
    }
    let most = counts.iter().enumerate().max_by_key(|(_, count)| **count);
    most.and_then(|(place, _)| kinds.get(place)).map_or("?", |(kind, ..)| kind)
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
    let sizes =
        [("faults few", "1 to 3 faults"), ("faults some", "4 to 31 faults"), ("faults many", "32 faults or more")];
    for (path, (class, told)) in paths.iter().zip(sizes).filter(|(path, _)| !path.is_empty()) {
        let class = format!("datum {class}");
        out.within("path", &[("class", &class), ("d", path)], |out| out.line("title", &[], told));
    }
}

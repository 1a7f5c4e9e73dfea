//! What a program asks of its map again and again: a lane of bars over time for each call, and a table by call, memory
//! and size.
//!
//! # Guarantee
//! Every memory call of the space is counted, in the lanes and in the table. Lanes share no scale: each says how many
//! calls its highest bar is.

use faultless_results::{Unit, grouped};
use serde_json::Value;

use crate::markup::{Markup, px};
use crate::plot::{About, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};
use crate::space::called;
use crate::table::{self, Cell};
use crate::zoom;

const TOP: f64 = 24.0;
const NAME: f64 = 15.0;
const STEP: f64 = 42.0;

/// How many of the most frequent calls a sentence names.
const NAMED: usize = 3;

/// Less often, and nothing is said to be done again and again.
const OFTEN: u64 = 10;

fn lines(calls: &Value) -> &[Value] {
    calls["lines"].as_array().map_or(&[], Vec::as_slice)
}

fn count(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or(0)
}

/// Says what a space's program does again and again, behind other sentences.
pub fn again(space: &Value) -> String {
    let often = lines(&space["calls"]).iter().filter(|line| count(line, "count") >= OFTEN).take(NAMED);
    let said: Vec<String> = often.map(said).collect();
    if said.is_empty() {
        return String::new();
    }
    let [mapped, before] = [0, 1].map(|place| space["again"][place].as_u64().unwrap_or(0));
    let reused = if before > 0 {
        format!(" {} of the {} mapped ranges begin where an earlier one began.", grouped(before), grouped(mapped))
    } else {
        String::new()
    };
    let all: u64 = lines(&space["calls"]).iter().map(|line| count(line, "count")).sum();
    format!(" It makes the same calls again and again, {} in all: {}.{reused}", grouped(all), said.join(", "))
}

fn said(line: &Value) -> String {
    let (usual, all) = (count(line, "usual_count"), count(line, "count"));
    let size = Unit::Bytes.show(count(line, "usual_bytes") as f64);
    let sizes = match () {
        () if count(line, "usual_bytes") == 0 => String::new(),
        () if usual == all => format!(" ({size} each)"),
        () => format!(" (most often {size})"),
    };
    let (call, kind) = (line["call"].as_str().unwrap_or("?"), line["kind"].as_str().unwrap_or("?"));
    format!("{call} of {} {} times{sizes}", called(kind), grouped(all))
}

/// Writes the lanes and the table of a space's calls.
pub fn write(out: &mut Markup, calls: &Value, name: &str, (duration_ns, columns): (f64, f64), machine: &str) {
    if lines(calls).is_empty() {
        return;
    }
    write_lanes(out, calls, name, (duration_ns, columns), machine);
    let bytes = |line: &Value, key: &str| {
        let bytes = count(line, key) as f64;
        if bytes > 0.0 { Cell::figure(bytes, Unit::Bytes.show(bytes)) } else { Cell::text("-") }
    };
    let row = |line: &Value| {
        let (all, ns) = (count(line, "count"), count(line, "kernel_ns") as f64);
        let ends = ["least_bytes", "most_bytes"].map(|key| Unit::Bytes.show(count(line, key) as f64));
        let ends = if ends[0] == ends[1] { "always that".to_owned() } else { format!("{} to {}", ends[0], ends[1]) };
        vec![
            Cell::text(line["call"].as_str().unwrap_or("?")),
            Cell::text(called(line["kind"].as_str().unwrap_or("?"))),
            Cell::figure(all as f64, grouped(all)),
            bytes(line, "usual_bytes"),
            Cell::text(ends),
            bytes(line, "bytes"),
            Cell::figure(ns, Unit::Ns.show(ns)),
        ]
    };
    let headings = ["call", "on what", "calls", "size, most often", "sizes", "bytes in all", "time on a CPU in all"];
    let all: u64 = lines(calls).iter().map(|line| count(line, "count")).sum();
    let caption = format!("What {name} asks of its map, {} calls in all, the most frequent first", grouped(all));
    out.within("details", &[], |out| {
        out.line("summary", &[], &format!("The {} calls of {name} by call, memory and size", grouped(all)));
        table::write(out, &caption, &headings, &lines(calls).iter().map(row).collect::<Vec<_>>());
        out.line("p", &[("class", "method")], COUNTS);
    });
}

/// What the counts of a space count, and why they differ.
const COUNTS: &str = "Calls and ranges are counted apart: mmap maps a range, and may unmap what was there; munmap unmaps one or \
                      several, or a part; mremap maps one where it moves to and unmaps where it came from; mprotect and madvise map \
                      and unmap nothing; what a program begins with is mapped \
                      without a call of its own. \"Begin or end\" in the closer picture counts the mapped and the unmapped \
                      ranges of those addresses.";

/// A call's lane: its name, and how many calls there are in each column.
struct Lane<'a> {
    name: &'a str,
    counts: Vec<f64>,
}

impl Lane<'_> {
    fn most(&self) -> f64 {
        self.counts.iter().copied().fold(0.0, f64::max)
    }

    fn label(&self) -> String {
        let (all, most) = (self.counts.iter().sum::<f64>() as u64, self.most() as u64);
        format!("{}: {}, at most {} in a column", self.name, grouped(all), grouped(most))
    }
}

fn write_lanes(out: &mut Markup, calls: &Value, name: &str, (duration_ns, columns): (f64, f64), machine: &str) {
    let counts = |counts: &Value| counts.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let columns_of = calls["columns"].as_object().into_iter().flatten();
    let mut lanes: Vec<Lane<'_>> =
        columns_of.map(|(name, of)| Lane { name: name.as_str(), counts: counts(of) }).collect();
    lanes.sort_by(|one, other| other.counts.iter().sum::<f64>().total_cmp(&one.counts.iter().sum()));
    if lanes.is_empty() {
        return;
    }
    let told: Vec<String> = lanes.iter().map(Lane::label).collect();
    let about = About {
        title: format!("Memory calls of {name} over time"),
        told: format!("{}.", told.join("; ")),
        caption: format!(
            "A lane for each call, on whatever memory. The higher a bar, the more calls were begun in its column of {}; each lane has a \
             scale of its own, and says how many its highest bar is.",
            short("ns", duration_ns / columns)
        ),
        machine,
        is_simulated: false,
    };
    let part = out.name();
    let height = |_| TOP + 48.0 + STEP * lanes.len() as f64;
    figure(out, &about, height, |out, width| draw(out, width, &part, &lanes, duration_ns), zoom::write_buttons);
}

fn draw(out: &mut Markup, width: Width, part: &str, lanes: &[Lane<'_>], duration_ns: f64) {
    let bottom = TOP + STEP * lanes.len() as f64;
    let y = Scale { kind: Kind::Linear, ends: (lanes.len() as f64, 0.0), places: (bottom, TOP) };
    let frame = Frame { x: zoom::time(duration_ns, 12.0, width), y };
    zoom::draw(out, &frame, width, (part, "this address space"), |out| {
        for (place, lane) in lanes.iter().enumerate() {
            draw_lane(out, STEP * (place + 1) as f64 - 4.0, lane);
        }
    });
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "name")], |out| {
        for (place, lane) in lanes.iter().enumerate() {
            let y = px(TOP + STEP * place as f64 + 12.0);
            let label = clipped(&lane.label(), Width::letters(width.pixels() - 30.0));
            out.line("text", &[("class", "name"), ("x", "12"), ("y", &y)], &label);
        }
    });
}

fn draw_lane(out: &mut Markup, foot: f64, lane: &Lane<'_>) {
    let across = zoom::ACROSS / lane.counts.len().max(1) as f64;
    let highest = STEP - NAME - 6.0;
    let mut path = String::new();
    for (place, count) in lane.counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        let high = (count / lane.most() * highest).max(1.5);
        let (x, y, across) = (px(place as f64 * across), px(foot - high), px(across));
        path.push_str(&format!("M{x} {y}h{across}V{}h-{across}z", px(foot)));
    }
    out.within("path", &[("class", "bar s0"), ("d", &path)], |out| out.line("title", &[], &lane.label()));
}

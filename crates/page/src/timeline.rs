//! A recorded program's threads over time: a lane for each, with whom its long waits are for.
//!
//! # Guarantee
//! States differ in height and pattern as well as in colour. A wait says inside its bar for whom it is, where there is
//! room for the name; a closer look makes room. The page says how coarse the columns are and how many threads were left
//! out.

use faultless_results::Unit;
use serde_json::Value;

use crate::markup::{Markup, px};
use crate::plot::{About, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};
use crate::table::{self, Cell};
use crate::zoom;

const TOP: f64 = 24.0;

/// Height of a lane's name, and of the lane below it.
const NAME: f64 = 15.0;

/// The most pairs of waiter and waker that stand in the open.
const PAIRS: usize = 10;

/// A state of a lane: its letter, its class, where in the lane it lies (top and height, as shares), and what it means.
const STATES: [(char, &str, f64, f64, &str); 5] = [
    ('c', "s2", 0.2, 0.6, "runs"),
    ('m', "s0", 0.0, 1.0, "in a memory call, on a CPU"),
    ('W', "s1", 0.0, 1.0, "waits inside a memory call"),
    ('w', "s7", 0.42, 0.16, "waits for something else"),
    ('r', "s4", 0.65, 0.35, "could run, has no CPU"),
];

struct Lanes<'a> {
    threads: &'a Value,
    duration_ns: f64,
    names: Vec<&'a str>,
    states: Vec<&'a str>,
}

/// Writes the plot and the table of who waits for whom, if the outline has threads.
pub fn write(out: &mut Markup, outline: &Value, machine: &str) {
    let threads = &outline["threads"];
    let list = threads["lanes"].as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return;
    }
    let text = |key: &'static str| list.iter().map(move |lane| lane[key].as_str().unwrap_or("")).collect::<Vec<_>>();
    let duration_ns = outline["duration_ns"].as_f64().unwrap_or(1.0);
    let lanes = Lanes { threads, duration_ns, names: text("name"), states: text("states") };
    out.line("h2", &[], "Which thread waits for whom");
    let takeaway = takeaway(&lanes);
    out.line("p", &[("class", "takeaway")], &takeaway);
    write_plot(out, &lanes, &takeaway, machine);
    write_pairs(out, threads);
}

fn write_plot(out: &mut Markup, lanes: &Lanes<'_>, takeaway: &str, machine: &str) {
    let threads = lanes.threads;
    let count = threads["count"].as_u64().unwrap_or(0) as usize;
    let columns = threads["columns"].as_f64().unwrap_or(1.0);
    let left_out = count.saturating_sub(lanes.names.len());
    let rest =
        if left_out > 0 { format!(" {left_out} threads with fewer events are left out.") } else { String::new() };
    let pace = match threads["has_pace"].as_bool() {
        Some(true) => {
            " An arrow inside a wait points to the thread that ended it; the longest waits have one, and a closer look \
             (+) makes room for more."
        }
        _ => "",
    };
    let about = About {
        title: format!("{count} thread{} of the recorded program over time", if count == 1 { "" } else { "s" }),
        told: takeaway.to_owned(),
        caption: format!(
            "A lane for each thread, time from left to right.{pace} As recorded, aggregated: each of {columns} columns \
             ({} each) shows what took most of its time.{rest}",
            short("ns", lanes.duration_ns / columns)
        ),
        machine,
        is_simulated: false,
    };
    let height = |_| TOP + 48.0 + lane_height(lanes) * lanes.names.len() as f64;
    let name = out.name();
    figure(
        out,
        &about,
        height,
        |out, width| draw(out, width, &name, lanes),
        |out| {
            zoom::write_buttons(out);
            out.within("ul", &[("class", "legend")], |out| STATES.iter().for_each(|state| write_sample(out, state)));
        },
    );
}

fn write_sample(out: &mut Markup, &(letter, class, top, height, told): &(char, &str, f64, f64, &str)) {
    out.within("li", &[], |out| {
        let sample = [("width", "34"), ("height", "14"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
        out.within("svg", &sample, |out| {
            let class = format!("bar{} {class}", hatched(letter));
            let (y, height) = (px(14.0 * top), px(14.0 * height));
            let attributes = [("class", &*class), ("x", "0"), ("y", &y), ("width", "34"), ("height", &height)];
            out.empty("rect", &attributes);
        });
        out.text(told);
    });
}

fn hatched(letter: char) -> &'static str {
    if letter == 'W' { " hatched" } else { "" }
}

fn lane_height(lanes: &Lanes<'_>) -> f64 {
    if lanes.names.len() > 12 { 31.0 } else { 37.0 }
}

/// Says how the threads spend their time, and who waits longest for whom.
fn takeaway(lanes: &Lanes<'_>) -> String {
    if lanes.threads["has_pace"].as_bool() != Some(true) {
        return "The recording holds no switches between threads, so it does not tell who waits: the lanes show memory \
                calls alone."
            .into();
    }
    let mut said = vec![format!("The threads spend {} of their time waiting inside memory calls", share(lanes, 'W'))];
    said.push(format!(
        "{} waiting for something else, {} running, {} ready without a CPU",
        share(lanes, 'w'),
        share(lanes, 'c'),
        share(lanes, 'r')
    ));
    let mut sentences = vec![format!("{}.", said.join(", "))];
    sentences.extend(longest(lanes.threads, "in_call_ns").map(|pair| format!("Longest inside memory calls: {pair}.")));
    sentences.extend(longest(lanes.threads, "outside").map(|pair| format!("Longest outside: {pair}.")));
    sentences.join(" ")
}

/// Returns the share of the columns of all lanes that a state has.
fn share(lanes: &Lanes<'_>, letter: char) -> String {
    let count = |is: &dyn Fn(char) -> bool| -> usize {
        lanes.states.iter().map(|states| states.chars().filter(|letter| is(*letter)).count()).sum()
    };
    let all = count(&|letter| letter != '.').max(1);
    let share = count(&|other| other == letter) as f64 / all as f64;
    // Columns are too coarse for a tenth of a per cent.
    if share > 0.0 && share < 0.01 { "less than 1 %".into() } else { format!("{:.0} %", share * 100.0) }
}

/// Says which thread waited longest for which, by that time of theirs.
fn longest(threads: &Value, key: &str) -> Option<String> {
    let ns = |pair: &Value| {
        let (whole, inside) = (pair["ns"].as_u64().unwrap_or(0), pair["in_call_ns"].as_u64().unwrap_or(0));
        if key == "in_call_ns" { inside } else { whole.saturating_sub(inside) }
    };
    let pairs = threads["pairs"].as_array().into_iter().flatten();
    let pair = pairs.filter(|pair| pair["waker"].is_string() && ns(pair) > 0).max_by_key(|pair| ns(pair))?;
    let name = |key: &str| pair[key].as_str().unwrap_or("?");
    let count = pair["count"].as_u64().unwrap_or(0);
    let waits = if count == 1 { "1 wait".to_owned() } else { format!("{count} waits") };
    let waited = Unit::Ns.show(ns(pair) as f64);
    Some(format!("{} waits for {}, {waited} in {waits}", name("waiter"), name("waker")))
}

fn draw(out: &mut Markup, width: Width, name: &str, lanes: &Lanes<'_>) {
    let step = lane_height(lanes);
    let bottom = TOP + step * lanes.names.len() as f64;
    let x = zoom::time(lanes.duration_ns, 12.0, width);
    let frame =
        Frame { x, y: Scale { kind: Kind::Linear, ends: (lanes.names.len() as f64, 0.0), places: (bottom, TOP) } };
    zoom::draw(out, &frame, width, (name, "the recording"), |out| {
        for (place, states) in lanes.states.iter().enumerate() {
            draw_lane(out, step * place as f64 + NAME, step - NAME - 4.0, states);
        }
        draw_waits(out, lanes, step);
    });
    draw_wakers(out, &frame, lanes, step);
    // Names stand above their lanes, and stay when the time is looked at closely.
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "name")], |out| {
        for (place, name) in lanes.names.iter().enumerate() {
            let y = px(TOP + step * place as f64 + 12.0);
            let name = clipped(name, Width::letters(width.pixels() - 30.0));
            out.line("text", &[("class", "name"), ("x", "12"), ("y", &y)], &name);
        }
    });
}

fn draw_lane(out: &mut Markup, top: f64, height: f64, states: &str) {
    let columns = states.chars().count().max(1) as f64;
    let letters: Vec<char> = states.chars().collect();
    for (letter, class, from, share, told) in STATES {
        let mut path = String::new();
        let (y, high) = (px(top + height * from), px(height * share));
        let mut at = 0;
        for run in letters.chunk_by(|one, other| one == other) {
            if run[0] == letter {
                let (x, across) =
                    (px(at as f64 * zoom::ACROSS / columns), px(run.len() as f64 * zoom::ACROSS / columns));
                path.push_str(&format!("M{x} {y}h{across}v{high}h-{across}z"));
            }
            at += run.len();
        }
        if !path.is_empty() {
            out.within("path", &[("class", &format!("bar{} {class}", hatched(letter))), ("d", &path)], |out| {
                out.line("title", &[], told)
            });
        }
    }
}

/// A wait that is told one by one.
struct Wait {
    began_ns: f64,
    ended_ns: f64,
    waiter: usize,
    waker: usize,
    in_call: bool,
}

/// Returns the longest waits between threads that have lanes.
fn waits(lanes: &Lanes<'_>) -> Vec<Wait> {
    let wait = |wait: &Value| {
        let figure = |place: usize| wait[place].as_f64().unwrap_or(0.0);
        let (waiter, waker) = (figure(2) as usize, figure(3) as usize);
        let in_call = wait[4] == Value::Bool(true);
        let is_known = waiter < lanes.names.len() && waker < lanes.names.len();
        is_known.then(|| Wait { began_ns: figure(0), ended_ns: figure(1), waiter, waker, in_call })
    };
    lanes.threads["waits"].as_array().into_iter().flatten().filter_map(wait).collect()
}

/// Draws a line over each of the longest waits, from its first to its last moment, for who points at it.
fn draw_waits(out: &mut Markup, lanes: &Lanes<'_>, step: f64) {
    for wait in waits(lanes) {
        let at = |ns: f64| px(ns * zoom::ACROSS / lanes.duration_ns.max(1.0));
        let y = px(step * wait.waiter as f64 + NAME + (step - NAME - 4.0) / 2.0);
        let path = format!("M{} {y}H{}", at(wait.began_ns), at(wait.ended_ns));
        out.within("path", &[("class", "wait"), ("d", &path)], |out| {
            let inside = if wait.in_call { " inside a memory call" } else { "" };
            let (waiter, waker) = (lanes.names[wait.waiter], lanes.names[wait.waker]);
            let waited = short("ns", wait.ended_ns - wait.began_ns);
            out.line("title", &[], &format!("{waiter} waited {waited}{inside}, until {waker} ended it"));
        });
    }
}

/// Writes into the longest waits for whom they are. Which names have room changes with what is looked at, so each
/// says where its wait lies, and the script shows those that fit.
fn draw_wakers(out: &mut Markup, frame: &Frame, lanes: &Lanes<'_>, step: f64) {
    let names = short_names(&lanes.names);
    for wait in waits(lanes) {
        let (Some(from), Some(to)) = (frame.x.place(wait.began_ns), frame.x.place(wait.ended_ns)) else { continue };
        let told = format!("→ {}", names[wait.waker]);
        let fits = to - from > told.chars().count() as f64 * LETTER + 6.0;
        let y = px(TOP + step * wait.waiter as f64 + NAME + (step - NAME - 4.0) / 2.0 + 4.0);
        let share = |ns: f64| format!("{:.6}", ns / lanes.duration_ns.max(1.0));
        let attributes = [
            ("class", "waker"),
            ("x", &*px(from + 4.0)),
            ("y", &*y),
            ("data-from", &*share(wait.began_ns)),
            ("data-to", &*share(wait.ended_ns)),
            ("visibility", if fits { "visible" } else { "hidden" }),
        ];
        out.line("text", &attributes, &told);
    }
}

/// Returns names by their last words, their numbers, if those tell them apart.
fn short_names<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let last: Vec<&str> = names.iter().map(|name| name.rsplit(' ').next().unwrap_or(name)).collect();
    let is_clear = last.iter().enumerate().all(|(place, name)| !last[..place].contains(name));
    if is_clear { last } else { names.to_vec() }
}

/// About how wide a letter inside a wait is; the script has the same figure.
const LETTER: f64 = 6.6;

fn write_pairs(out: &mut Markup, threads: &Value) {
    let pairs = threads["pairs"].as_array().map_or(&[][..], Vec::as_slice);
    if pairs.is_empty() {
        return;
    }
    let time = |value: &Value| {
        let ns = value.as_f64().unwrap_or(0.0);
        Cell::figure(ns, Unit::Ns.show(ns))
    };
    let row = |pair: &Value| {
        vec![
            Cell::text(pair["waiter"].as_str().unwrap_or("?")),
            Cell::text(pair["waker"].as_str().unwrap_or("no thread (a timer, a device, the kernel)")),
            Cell::number(pair["count"].as_u64().unwrap_or(0) as usize),
            time(&pair["ns"]),
            time(&pair["in_call_ns"]),
        ]
    };
    let headings = ["thread", "waits for", "waits", "time waited", "of it inside memory calls"];
    let rows: Vec<Vec<Cell>> = pairs.iter().map(row).collect();
    let (first, rest) = rows.split_at(rows.len().min(PAIRS));
    table::write(out, "Who waits for whom, over the whole recording, the longest first", &headings, first);
    if !rest.is_empty() {
        out.within("details", &[], |out| {
            out.line("summary", &[], &format!("{} more pairs that wait less", rest.len()));
            table::write(out, "Who waits for whom, the rest", &headings, rest);
        });
    }
}

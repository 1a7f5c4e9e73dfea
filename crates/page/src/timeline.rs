//! A recorded program's threads over time: a lane for each, and who ended whose waits.
//!
//! # Guarantee
//! States differ in height as well as in colour. The page says how coarse the columns are and how many threads were
//! left out.

use serde_json::Value;

use crate::markup::{Markup, px};
use crate::plot::{About, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};
use crate::table::{self, Cell};
use crate::zoom;

const TOP: f64 = 24.0;

/// A state of a lane: its letter, its class, where in the lane it lies (top and height, as shares), and what it means.
const STATES: [(char, &str, f64, f64, &str); 5] = [
    ('c', "s2", 0.25, 0.5, "runs"),
    ('m', "s0", 0.0, 1.0, "in a memory call, on a CPU"),
    ('W', "s1", 0.0, 1.0, "waits inside a memory call (hatched)"),
    ('w', "s7", 0.44, 0.12, "waits for something else"),
    ('r', "s4", 0.7, 0.3, "could run, has no CPU"),
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
    let count = threads["count"].as_u64().unwrap_or(0) as usize;
    let columns = threads["columns"].as_f64().unwrap_or(1.0);
    let left_out = count.saturating_sub(list.len());
    let rest =
        if left_out > 0 { format!(" {left_out} threads with fewer events are left out.") } else { String::new() };
    let pace = match threads["has_pace"].as_bool() {
        Some(true) => {
            "A line goes from the thread that ended a wait to the one that waited, where it has a dot; only the \
             longest waits have one."
        }
        _ => "The recording holds no switches between threads, so no thread is shown waiting.",
    };
    let about = About {
        title: format!("{count} thread{} of the recorded program over time", if count == 1 { "" } else { "s" }),
        told: worst(threads),
        caption: format!(
            "As recorded, aggregated: each of {columns} columns ({} each) shows what took most of its time. \
             {pace}{rest}",
            short("ns", duration_ns / columns)
        ),
        machine,
        is_simulated: false,
    };
    let height = |_| TOP + 60.0 + lane_height(&lanes) * list.len() as f64;
    let name = out.name();
    figure(
        out,
        &about,
        height,
        |out, width| draw(out, width, &name, &lanes),
        |out| {
            zoom::write_buttons(out);
            out.within("ul", &[("class", "legend")], |out| {
                for (letter, class, top, height, told) in STATES {
                    out.within("li", &[], |out| {
                        let sample =
                            [("width", "34"), ("height", "14"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
                        let hatched = if letter == 'W' { " hatched" } else { "" };
                        out.within("svg", &sample, |out| {
                            let class = format!("bar{hatched} {class}");
                            let (y, height) = (px(14.0 * top), px(14.0 * height));
                            out.empty(
                                "rect",
                                &[("class", &class), ("x", "0"), ("y", &y), ("width", "34"), ("height", &height)],
                            );
                        });
                        out.text(told);
                    });
                }
            });
        },
    );
    write_pairs(out, threads);
}

fn lane_height(lanes: &Lanes<'_>) -> f64 {
    if lanes.names.len() > 12 { 26.0 } else { 34.0 }
}

/// Says who waited longest for whom.
fn worst(threads: &Value) -> String {
    let pairs = threads["pairs"].as_array().into_iter().flatten();
    let known = pairs.filter(|pair| pair["waker"].is_string()).max_by_key(|pair| pair["ns"].as_u64());
    known.map_or(String::new(), |pair| {
        let name = |key: &str| pair[key].as_str().unwrap_or("?").to_owned();
        format!(
            "{} waited longest for {}, {}.",
            name("waiter"),
            name("waker"),
            short("ns", pair["ns"].as_f64().unwrap_or(0.0))
        )
    })
}

fn draw(out: &mut Markup, width: Width, name: &str, lanes: &Lanes<'_>) {
    let step = lane_height(lanes);
    let bottom = TOP + step * lanes.names.len() as f64;
    let x = zoom::time(lanes.duration_ns, 12.0, width);
    let frame =
        Frame { x, y: Scale { kind: Kind::Linear, ends: (lanes.names.len() as f64, 0.0), places: (bottom, TOP) } };
    zoom::draw(out, &frame, width, (name, "the recording"), |out| {
        for (place, states) in lanes.states.iter().enumerate() {
            draw_lane(out, step * place as f64 + 14.0, step - 17.0, states);
        }
        draw_waits(out, lanes, step);
    });
    // Names stand above their lanes, and stay when the time is looked at closely.
    out.within("g", &[("class", "axis"), ("data-axis", "y"), ("data-unit", "name")], |out| {
        for (place, name) in lanes.names.iter().enumerate() {
            let y = px(TOP + step * place as f64 + 11.0);
            out.line(
                "text",
                &[("class", "name"), ("x", "12"), ("y", &y)],
                &clipped(name, Width::letters(width.pixels() - 30.0)),
            );
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
            let hatched = if letter == 'W' { " hatched" } else { "" };
            out.within("path", &[("class", &format!("bar{hatched} {class}")), ("d", &path)], |out| {
                out.line("title", &[], told)
            });
        }
    }
}

/// Draws a line from who ended a wait to who waited, at the time it ended.
fn draw_waits(out: &mut Markup, lanes: &Lanes<'_>, step: f64) {
    let height = step - 17.0;
    for wait in lanes.threads["waits"].as_array().into_iter().flatten() {
        let figure = |place: usize| wait[place].as_f64().unwrap_or(0.0);
        let (began, ended, waiter, waker) = (figure(0), figure(1), figure(2) as usize, figure(3) as usize);
        let (Some(waiter_name), Some(waker_name)) = (lanes.names.get(waiter), lanes.names.get(waker)) else { continue };
        let x = px(ended * zoom::ACROSS / lanes.duration_ns.max(1.0));
        let middle = |lane: usize| step * lane as f64 + 14.0 + height / 2.0;
        let path = format!("M{x} {}V{}", px(middle(waker)), px(middle(waiter)));
        out.empty("path", &[("class", "arrow"), ("d", &path)]);
        let end = format!("M{x} {}v0", px(middle(waiter)));
        out.within("path", &[("class", "end"), ("d", &end)], |out| {
            let where_ = if wait[4] == Value::Bool(true) { " inside a memory call" } else { "" };
            let told =
                format!("{waiter_name} waited {}{where_}, until {waker_name} woke it", short("ns", ended - began));
            out.line("title", &[], &told);
        });
    }
}

fn write_pairs(out: &mut Markup, threads: &Value) {
    let pairs = threads["pairs"].as_array().map_or(&[][..], Vec::as_slice);
    if pairs.is_empty() {
        return;
    }
    let time = |value: &Value| Cell::figure(value.as_f64().unwrap_or(0.0), short("ns", value.as_f64().unwrap_or(0.0)));
    let row = |pair: &Value| {
        vec![
            Cell::text(pair["waiter"].as_str().unwrap_or("?")),
            Cell::text(pair["waker"].as_str().unwrap_or("nobody recorded (a timer, a device, the kernel)")),
            Cell::number(pair["count"].as_u64().unwrap_or(0) as usize),
            time(&pair["ns"]),
            time(&pair["in_call_ns"]),
        ]
    };
    let headings = ["thread", "waits for", "waits", "time waited", "of it in memory calls"];
    table::write(
        out,
        "Who waits for whom, over the whole recording",
        &headings,
        &pairs.iter().map(row).collect::<Vec<_>>(),
    );
}

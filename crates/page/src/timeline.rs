//! A recorded program's threads over time: a lane for each, with whom its long waits are for.
//!
//! # Guarantee
//! * I1 states differ in height and pattern as well as in colour
//! * I2 a wait says inside its bar in which call it is and for whom, where there is room; the longest have numbers that
//!   fit into less, and a table tells them one by one. A closer look makes room
//! * I3 the page says what an arrow means, how a wait's lock is known, how coarse the columns are and how many threads
//!   were left out

use faultless_results::{Unit, grouped};
use serde_json::Value;

use crate::markup::{Markup, px};
use crate::plot::{About, Frame, Width, clipped, figure, short};
use crate::scale::{Kind, Scale};
use crate::table::{self, Cell};
use crate::zoom;

const TOP: f64 = 24.0;

/// Height of a lane's name, and of the lane below it.
const NAME: f64 = 15.0;

/// The most waits that have numbers.
const NUMBERED: usize = 30;

/// How many of them stand in the open.
const LONGEST: usize = 3;

/// The most pairs of waiter and waker that stand in the open.
const PAIRS: usize = 5;

/// A state of a lane: its letter, its class, where in the lane it lies (top and height, as shares), and what it means.
const STATES: [(char, &str, f64, f64, &str); 5] = [
    ('c', "s2", 0.2, 0.6, "runs"),
    ('m', "s0", 0.0, 1.0, "in a memory call, on a CPU"),
    ('W', "s1", 0.0, 1.0, "waits inside a memory call or page fault"),
    ('w', "s7", 0.42, 0.16, "waits for something else"),
    ('r', "s4", 0.65, 0.35, "could run, has no CPU"),
];

struct Lanes<'a> {
    threads: &'a Value,
    /// How many CPUs the machine had that recorded it, if that is known.
    cpus: Option<u64>,
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
    let cpus = outline["cpus"].as_u64().filter(|cpus| *cpus > 0);
    let lanes = Lanes { threads, cpus, duration_ns, names: text("name"), states: text("states") };
    out.line("h2", &[], "Which thread waits for whom");
    let takeaway = takeaway(&lanes);
    out.line("p", &[("class", "takeaway")], &takeaway);
    write_plot(out, &lanes, &takeaway, machine);
    write_longest(out, &lanes);
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
            " The longest waits have numbers, by which the table below tells them; where there is room, an arrow (→) \
             names the thread that ended the wait. A closer look (+) makes room for more."
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
    let [waits, other, runs, calls, ready] = shares(lanes);
    let said = format!(
        "Of their time the threads spend {waits} waiting inside memory calls and page faults, {other} waiting for something \
         else, {calls} on a CPU inside memory calls, {runs} on a CPU elsewhere, and {ready} ready without a CPU{}",
        on_cpus(lanes)
    );
    let mut sentences = vec![format!("{said}.")];
    let told = [
        (&["lock"][..], "Longest for the address-space lock"),
        (&["call", "end", "other"], "Longest for anything else"),
    ];
    sentences
        .extend(told.iter().filter_map(|(what, told)| Some(format!("{told}: {}.", longest(lanes.threads, what)?))));
    sentences.join(" ")
}

/// Says how many CPUs the threads had between them.
fn on_cpus(lanes: &Lanes<'_>) -> String {
    let Some(cpus) = lanes.cpus else { return String::new() };
    let threads = lanes.threads["count"].as_u64().unwrap_or(0);
    let s = |many: u64| if many == 1 { "" } else { "s" };
    format!(" ({threads} thread{} on a machine of {cpus} CPU{})", s(threads), s(cpus))
}

/// Returns the shares of the threads' time by [`SPENT`]: of all threads where the outline has their times, of the
/// columns of the lanes where it has not.
fn shares(lanes: &Lanes<'_>) -> [String; 5] {
    let spent = &lanes.threads["spent_ns"];
    let columns =
        |letter: char| lanes.states.iter().flat_map(|states| states.chars()).filter(|other| *other == letter).count();
    let time = |letter: char| match spent[letter.to_string()].as_f64() {
        Some(ns) => ns,
        None => columns(letter) as f64,
    };
    percent(SPENT.map(time))
}

/// The letters of the states that [`takeaway`] tells, in its order.
const SPENT: [char; 5] = ['W', 'w', 'c', 'm', 'r'];

/// Returns parts of a whole in per cent that add up to 100: all are rounded down, and those that lost most get one
/// more.
fn percent<const N: usize>(parts: [f64; N]) -> [String; N] {
    let whole: f64 = parts.iter().sum();
    if whole <= 0.0 {
        return std::array::from_fn(|_| "0 %".to_owned());
    }
    let exact = parts.map(|part| part / whole * 100.0);
    let mut shown = exact.map(f64::floor);
    let missing = (100.0 - shown.iter().sum::<f64>()).round() as usize;
    let mut places: [usize; N] = std::array::from_fn(|place| place);
    places.sort_by(|&one, &other| (exact[other] - shown[other]).total_cmp(&(exact[one] - shown[one])));
    places.iter().take(missing).for_each(|&place| shown[place] += 1.0);
    shown.map(|part| format!("{part} %"))
}

/// Says which thread waited longest for which, for things of these kinds.
fn longest(threads: &Value, what: &[&str]) -> Option<String> {
    let ns = |pair: &Value| pair["ns"].as_u64().unwrap_or(0);
    let is_it = |pair: &&Value| pair["waker"].is_string() && what.contains(&pair["what"].as_str().unwrap_or("other"));
    let pairs = threads["pairs"].as_array().into_iter().flatten();
    let pair = pairs.filter(is_it).max_by_key(|pair| ns(pair))?;
    let name = |key: &str| pair[key].as_str().unwrap_or("?");
    let count = pair["count"].as_u64().unwrap_or(0);
    let waits = if count == 1 { "1 wait".to_owned() } else { format!("{} waits", grouped(count)) };
    let waited = Unit::Ns.show(ns(pair) as f64);
    let holds = if what == ["lock"] { ", the last that held it" } else { "" };
    Some(format!("{} waits for {}{holds}, {waited} in {waits}", name("waiter"), name("waker")))
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
struct Wait<'a> {
    began_ns: f64,
    ended_ns: f64,
    waiter: usize,
    waker: Option<usize>,
    /// The call that the waiter was inside of, or a page fault.
    inside: Option<&'a str>,
    /// What its waker held the address-space lock in.
    held_in: Option<&'a str>,
    what: &'a str,
}

impl Wait<'_> {
    /// Says for what it was.
    fn what_for(&self) -> String {
        match (self.what, self.held_in) {
            ("lock", Some(held)) => format!("the address-space lock, held last inside {held}"),
            (what, _) => what_for(what).to_owned(),
        }
    }
}

/// Says for what waits of a kind are.
fn what_for(what: &str) -> &'static str {
    match what {
        "lock" => "the address-space lock",
        "call" => "not recorded what, inside a memory call",
        "end" => "the end of that thread",
        _ => "not recorded what, outside memory calls",
    }
}

/// Returns the longest waits of threads that have lanes, the longest first.
fn waits<'a>(lanes: &Lanes<'a>) -> Vec<Wait<'a>> {
    let nr_lanes = lanes.names.len();
    let wait = |wait: &'a Value| {
        let figure = |place: usize| wait[place].as_f64();
        let lane = |place: usize| figure(place).map(|lane| lane as usize).filter(|lane| *lane < nr_lanes);
        Some(Wait {
            began_ns: figure(0)?,
            ended_ns: figure(1)?,
            waiter: lane(2)?,
            waker: lane(3),
            inside: wait[4].as_str(),
            held_in: wait[5].as_str(),
            what: wait[6].as_str().unwrap_or("other"),
        })
    };
    lanes.threads["waits"].as_array().into_iter().flatten().filter_map(wait).collect()
}

/// Writes the longest waits one by one.
fn write_longest(out: &mut Markup, lanes: &Lanes<'_>) {
    let waits = waits(lanes);
    if waits.is_empty() {
        return;
    }
    let time = |ns: f64| Cell::figure(ns, Unit::Ns.show(ns));
    let row = |(place, wait): (usize, &Wait<'_>)| {
        vec![
            Cell::number(place + 1),
            Cell::text(lanes.names[wait.waiter]),
            time(wait.began_ns),
            time(wait.ended_ns - wait.began_ns),
            Cell::text(wait.inside.unwrap_or("-")),
            Cell::text(wait.what_for()),
            Cell::text(wait.waker.map_or(NOBODY, |waker| lanes.names[waker])),
        ]
    };
    let rows: Vec<Vec<Cell>> = waits.iter().take(NUMBERED).enumerate().map(row).collect();
    let headings = ["number", "thread", "since", "waited", "inside", "for", "until this thread let go or ended"];
    let (first, rest) = rows.split_at(rows.len().min(LONGEST));
    table::write(out, "The longest waits, by the numbers in the picture", &headings, first);
    if !rest.is_empty() {
        out.within("details", &[], |out| {
            out.line("summary", &[], &format!("{} more waits that have numbers in the picture", rest.len()));
            table::write(out, "More waits, by the numbers in the picture", &headings, rest);
        });
    }
    out.line("p", &[("class", "method")], KNOWN);
}

/// Who ends a wait that no recorded thread ended.
const NOBODY: &str = "no thread (a timer, a device, the kernel)";

/// How it is known what waits are for.
const KNOWN: &str = "Linux tells who wakes whom, but not which lock that is about. A wait is taken to be for the lock of the \
                     address space (mmap_lock) if a thread of the same process ended it from inside a memory call or \
                     a page fault, and the waiter was inside one too, at least one of the two inside a call. That \
                     thread was then the last to hold the lock.";

/// Draws a line over each of the longest waits, from its first to its last moment, for who points at it.
fn draw_waits(out: &mut Markup, lanes: &Lanes<'_>, step: f64) {
    for (place, wait) in waits(lanes).into_iter().enumerate() {
        let at = |ns: f64| px(ns * zoom::ACROSS / lanes.duration_ns.max(1.0));
        let y = px(step * wait.waiter as f64 + NAME + (step - NAME - 4.0) / 2.0);
        let path = format!("M{} {y}H{}", at(wait.began_ns), at(wait.ended_ns));
        if place < NUMBERED {
            // Where two waits touch, a line between them shows that they are two.
            let (top, foot) = (px(step * wait.waiter as f64 + NAME), px(step * (wait.waiter + 1) as f64 - 4.0));
            out.empty("path", &[("class", "edge"), ("d", &format!("M{} {top}V{foot}", at(wait.began_ns)))]);
        }
        out.within("path", &[("class", "wait"), ("d", &path)], |out| {
            let inside = wait.inside.map_or(String::new(), |inside| format!(" inside {inside}"));
            let waiter = lanes.names[wait.waiter];
            let until = wait.waker.map_or(String::new(), |waker| format!(", until {} ended it", lanes.names[waker]));
            let waited = short("ns", wait.ended_ns - wait.began_ns);
            out.line("title", &[], &format!("{waiter} waited {waited}{inside} for {}{until}", wait.what_for()));
        });
    }
}

/// What may stand in a wait: the call with its waker, the waker alone, and its number if it has one.
struct Label {
    texts: [String; 3],
}

impl Label {
    fn of(place: usize, wait: &Wait<'_>, names: &[&str]) -> Self {
        let number = if place < NUMBERED { (place + 1).to_string() } else { String::new() };
        let waker = wait.waker.map(|waker| format!("→ {}", names[waker]));
        // Without a call the waker alone says as much.
        let whole: Vec<&str> =
            wait.inside.map_or(Vec::new(), |call| [call].into_iter().chain(waker.as_deref()).collect());
        let with = |between: &str, text: &str| match (number.is_empty(), text.is_empty()) {
            (_, true) => String::new(),
            (true, _) => text.to_owned(),
            (false, false) => format!("{number}{between}{text}"),
        };
        let texts = [with(": ", &whole.join(" ")), with(" ", waker.as_deref().unwrap_or_default())];
        let [whole, waker] = texts;
        Self { texts: [whole, waker, number] }
    }

    /// Returns the text that a wait between two places has room for, and where it begins; the script does the same.
    fn fitting(&self, from: f64, to: f64, ends: (f64, f64), taken: &mut Vec<(f64, f64)>) -> Option<(&str, f64)> {
        let width = |text: &str| text.chars().count() as f64 * LETTER;
        let fits = |text: &&String| !text.is_empty() && to - from > width(text) + 6.0;
        if let Some(text) = self.texts.iter().find(fits) {
            taken.push((from, to));
            return Some((text, from + 4.0));
        }
        let [.., number] = &self.texts;
        let across = width(number);
        let begin = (f64::midpoint(from, to) - across / 2.0).clamp(ends.0, (ends.1 - across).max(ends.0));
        let is_free = taken.iter().all(|(first, last)| begin + across + APART < *first || *last + APART < begin);
        (!number.is_empty() && is_free).then(|| {
            taken.push((begin, begin + across));
            (number.as_str(), begin)
        })
    }
}

/// Writes into the longest waits what they are and for whom. What has room changes with what is looked at, so each says
/// where its wait lies and what may stand there, and the script shows what fits.
fn draw_wakers(out: &mut Markup, frame: &Frame, lanes: &Lanes<'_>, step: f64) {
    let names = short_names(&lanes.names);
    let mut taken: Vec<Vec<(f64, f64)>> = vec![Vec::new(); lanes.names.len()];
    for (place, wait) in waits(lanes).iter().enumerate() {
        let (Some(from), Some(to)) = (frame.x.place(wait.began_ns), frame.x.place(wait.ended_ns)) else { continue };
        let label = Label::of(place, wait, &names);
        if label.texts.iter().all(String::is_empty) {
            continue;
        }
        let shown = label.fitting(from, to, frame.x.places, &mut taken[wait.waiter]);
        let (text, x) = shown.unwrap_or(("", from + 4.0));
        let y = px(TOP + step * wait.waiter as f64 + NAME + (step - NAME - 4.0) / 2.0 + 4.0);
        let share = |ns: f64| format!("{:.6}", ns / lanes.duration_ns.max(1.0));
        let attributes = [
            ("class", "waker"),
            ("x", &*px(x)),
            ("y", &*y),
            ("data-from", &*share(wait.began_ns)),
            ("data-to", &*share(wait.ended_ns)),
            ("data-whole", &label.texts[0]),
            ("data-name", &label.texts[1]),
            ("data-number", &label.texts[2]),
            ("visibility", if shown.is_some() { "visible" } else { "hidden" }),
        ];
        out.line("text", &attributes, text);
    }
}

/// Returns names by their last words, their numbers, if those tell them apart.
fn short_names<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let last: Vec<&str> = names.iter().map(|name| name.rsplit(' ').next().unwrap_or(name)).collect();
    let is_clear = last.iter().enumerate().all(|(place, name)| !last[..place].contains(name));
    if is_clear { last } else { names.to_vec() }
}

/// About how wide a letter inside a wait is; the script has the same figures.
const LETTER: f64 = 7.4;

/// How far numbers are from each other at least, so that nobody reads two as one.
const APART: f64 = 7.0;

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
            Cell::text(pair["waker"].as_str().unwrap_or(NOBODY)),
            Cell::text(what_for(pair["what"].as_str().unwrap_or("other"))),
            Cell::figure(pair["count"].as_f64().unwrap_or(0.0), grouped(pair["count"].as_u64().unwrap_or(0))),
            time(&pair["ns"]),
        ]
    };
    let headings = ["thread", "waits for", "for what", "waits", "time waited"];
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

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn parts_of_a_whole_add_up_to_a_hundred() {
        assert_eq!(percent([30.7, 19.5, 4.9, 44.9]), ["31 %", "19 %", "5 %", "45 %"]);
        assert_eq!(percent([1.0, 1.0, 1.0]), ["34 %", "33 %", "33 %"]);
        assert_eq!(percent([0.0, 5.0]), ["0 %", "100 %"]);
        assert_eq!(percent([0.0, 0.0]), ["0 %", "0 %"]);
    }
}

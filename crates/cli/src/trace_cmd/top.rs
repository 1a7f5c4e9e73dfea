//! `faultless trace top`: which memory of which process the calls and faults of a trace are about, and where in the
//! code they came from.
//!
//! # Guarantee
//! Every memory call and every fault of the trace is counted in exactly one row.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use faultless_plan::processes::Processes;
use faultless_trace::text::printable;
use faultless_trace::{Pace, Trace};
use serde_json::{Value, json};

use super::ps::read;
use super::sites::Sites;
use crate::message::Failure;
use crate::table::{Format, write_csv, write_markdown};
use faultless_outline::areas::{Kind, What, Work, follow};

/// The columns, which are the keys in JSON.
const COLUMNS: [&str; 9] = ["pid", "command", "area", "file", "site", "calls", "faults", "bytes", "kernel_ns"];

/// What was done to one kind of memory of one process, from one place in its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TopRow {
    calls: BTreeMap<&'static str, u64>,
    faults: u64,
    /// Of the ranges that calls named.
    bytes: u64,
    /// On a CPU inside calls.
    kernel_ns: u64,
}

impl TopRow {
    fn nr_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    fn add(&mut self, work: Work) {
        match work {
            Work::Fault => self.faults += 1,
            Work::Call { name, bytes, kernel_ns } => {
                *self.calls.entry(name).or_default() += 1;
                self.bytes = self.bytes.saturating_add(bytes);
                self.kernel_ns += kernel_ns;
            }
        }
    }
}

/// A row with its names.
struct TopLine {
    pid: u32,
    command: String,
    kind: Kind,
    file: Option<String>,
    site: Option<String>,
    row: TopRow,
    has_pace: bool,
}

/// Prints what the trace in the file is about, the most worked on first.
pub fn run(path: &Path, format: Format) -> Result<(), Failure> {
    let trace = read(path)?;
    let lines = lines(&trace, Sites::of(&trace).as_ref());
    let mut out = BufWriter::new(io::stdout().lock());
    print(&mut out, format, &lines)?;
    Ok(out.flush()?)
}

/// Prints one line for each kind of work, as flame-graph tools read it: frames, then how often.
pub fn run_folded(path: &Path) -> Result<(), Failure> {
    let trace = read(path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    match Sites::of(&trace) {
        None => lines(&trace, None).iter().try_for_each(|line| folded(&mut out, line))?,
        Some(sites) => paths(&trace, &sites).iter().try_for_each(|(path, count)| writeln!(out, "{path} {count}"))?,
    }
    Ok(out.flush()?)
}

fn lines(trace: &Trace, sites: Option<&Sites<'_>>) -> Vec<TopLine> {
    let processes = Processes::of(trace);
    let mut rows: BTreeMap<(usize, What, Option<String>), TopRow> = BTreeMap::new();
    follow(trace, &mut |at, what, work| {
        let site = sites.and_then(|sites| sites.site(at.event));
        rows.entry((processes.of[at.thread as usize], what, site)).or_default().add(work);
    });
    let has_pace = trace.header.pace == Pace::Stored;
    let named = |((process, what, site), row): ((usize, What, Option<String>), TopRow)| {
        let process = &processes.all[process];
        let file = what.file.and_then(|file| trace.files.get(file as usize)).map(|file| file.path.clone());
        TopLine { pid: process.pid, command: process.command.clone(), kind: what.kind, file, site, row, has_pace }
    };
    let mut lines: Vec<TopLine> = rows.into_iter().map(named).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.row.faults + line.row.nr_calls()));
    lines
}

/// Returns the paths through the code to each kind of work, and how often each was taken.
fn paths(trace: &Trace, sites: &Sites<'_>) -> Vec<(String, u64)> {
    let processes = Processes::of(trace);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    follow(trace, &mut |at, what, work| {
        let (name, count) = match work {
            Work::Fault => ("fault", sites.fault_period()),
            Work::Call { name, .. } => (name, 1),
        };
        let path = match (sites.path(at.event), work) {
            (Some(path), _) => path,
            (None, Work::Fault) => return,
            (None, Work::Call { .. }) => vec!["[no stack]".into()],
        };
        let process = &processes.all[processes.of[at.thread as usize]];
        let mut stack = format!("{}-{}", frame(&process.command), process.pid);
        path.iter().for_each(|name| stack.extend([";", &frame(name)]));
        *counts.entry(format!("{stack};{name} ({})", what.kind.name())).or_default() += count;
    });
    counts.into_iter().collect()
}

/// Returns a name as a frame of a folded stack: semicolons part those.
fn frame(text: &str) -> String {
    printable(text).replace(';', ":")
}

fn print(out: &mut impl Write, format: Format, lines: &[TopLine]) -> io::Result<()> {
    match format {
        Format::Human => human(out, lines),
        Format::Json => {
            let rows: Vec<Value> = lines.iter().map(object).collect();
            writeln!(out, "{:#}", json!({"schema": "faultless/1", "command": "trace top", "rows": rows}))
        }
        Format::Csv => write_csv(out, &COLUMNS, lines.iter().map(cells)),
        Format::Markdown => write_markdown(out, &COLUMNS, lines.iter().map(cells)),
    }
}

fn human(out: &mut impl Write, lines: &[TopLine]) -> io::Result<()> {
    let has_sites = lines.iter().any(|line| line.site.is_some());
    let mut write = |[pid, command, area, file, site, calls, faults, bytes, kernel_ns]: [&str; 9]| {
        let numbers = format!("{calls:>9} {faults:>9} {bytes:>15} {kernel_ns:>13}  {pid:>8} {command:<16} {area:<9}");
        let text = if has_sites { format!("{numbers} {site:<32} {file}") } else { format!("{numbers} {file}") };
        writeln!(out, "{}", text.trim_end())
    };
    write(COLUMNS)?;
    lines.iter().try_for_each(|line| write(cells(line).each_ref().map(String::as_str)))
}

fn folded(out: &mut impl Write, line: &TopLine) -> io::Result<()> {
    let file = line.file.as_deref().map_or(String::new(), |file| format!(";{}", frame(file)));
    let stack = format!("{}-{};{}{file}", frame(&line.command), line.pid, line.kind.name());
    let faults = (line.row.faults > 0).then_some(("fault", line.row.faults));
    let work = line.row.calls.iter().map(|(&name, &count)| (name, count)).chain(faults);
    work.into_iter().try_for_each(|(name, count)| writeln!(out, "{stack};{name} {count}"))
}

fn object(line: &TopLine) -> Value {
    let TopLine { pid, command, kind, file, site, row, has_pace } = line;
    let kernel_ns = has_pace.then_some(row.kernel_ns);
    json!({
        "pid": pid, "command": command, "area": kind.name(), "file": file, "site": site, "calls": row.nr_calls(),
        "faults": row.faults, "bytes": row.bytes, "kernel_ns": kernel_ns,
    })
}

fn cells(line: &TopLine) -> [String; 9] {
    let TopLine { pid, command, kind, file, site, row, has_pace } = line;
    let kernel_ns = if *has_pace { row.kernel_ns.to_string() } else { "<not recorded>".into() };
    let numbers = [row.nr_calls(), row.faults, row.bytes].map(|number| number.to_string());
    let [calls, faults, bytes] = numbers;
    let file = file.as_deref().map(printable).unwrap_or_default();
    let site = site.as_deref().map(printable).unwrap_or_default();
    [pid.to_string(), printable(command), kind.name().into(), file, site, calls, faults, bytes, kernel_ns]
}

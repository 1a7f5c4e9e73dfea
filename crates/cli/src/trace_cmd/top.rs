//! `faultless trace top`: which memory of which process the calls and faults of a trace are about.
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
use crate::message::Failure;
use crate::table::{Format, write_csv, write_markdown};
use faultless_outline::areas::{Kind, What, Work, follow};

/// The columns, which are the keys in JSON.
const COLUMNS: [&str; 8] = ["pid", "command", "area", "file", "calls", "faults", "bytes", "kernel_ns"];

/// What was done to one kind of memory of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    calls: BTreeMap<&'static str, u64>,
    faults: u64,
    /// Of the ranges that calls named.
    bytes: u64,
    /// On a CPU inside calls.
    kernel_ns: u64,
}

impl Row {
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
struct Line {
    pid: u32,
    command: String,
    kind: Kind,
    file: Option<String>,
    row: Row,
    has_pace: bool,
}

/// Prints what the trace in the file is about, the most worked on first; `folded` as stacks for a flame graph.
pub fn run(path: &Path, format: Format) -> Result<(), Failure> {
    let lines = lines(&read(path)?);
    let mut out = BufWriter::new(io::stdout().lock());
    print(&mut out, format, &lines)?;
    Ok(out.flush()?)
}

/// Prints one line for each kind of work, as flame-graph tools read it: frames, then how often.
pub fn run_folded(path: &Path) -> Result<(), Failure> {
    let lines = lines(&read(path)?);
    let mut out = BufWriter::new(io::stdout().lock());
    lines.iter().try_for_each(|line| folded(&mut out, line))?;
    Ok(out.flush()?)
}

fn lines(trace: &Trace) -> Vec<Line> {
    let processes = Processes::of(trace);
    let mut rows: BTreeMap<(usize, What), Row> = BTreeMap::new();
    follow(trace, &mut |thread, what, work| {
        rows.entry((processes.of[thread as usize], what)).or_default().add(work);
    });
    let has_pace = trace.header.pace == Pace::Stored;
    let named = |((process, what), row): ((usize, What), Row)| {
        let process = &processes.all[process];
        let file = what.file.and_then(|file| trace.files.get(file as usize)).map(|file| file.path.clone());
        Line { pid: process.pid, command: process.command.clone(), kind: what.kind, file, row, has_pace }
    };
    let mut lines: Vec<Line> = rows.into_iter().map(named).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.row.faults + line.row.nr_calls()));
    lines
}

fn print(out: &mut impl Write, format: Format, lines: &[Line]) -> io::Result<()> {
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

fn human(out: &mut impl Write, lines: &[Line]) -> io::Result<()> {
    let [pid, command, area, file, calls, faults, bytes, kernel_ns] = COLUMNS;
    writeln!(out, "{calls:>9} {faults:>9} {bytes:>15} {kernel_ns:>13}  {pid:>8} {command:<16} {area:<9} {file}")?;
    lines.iter().try_for_each(|line| {
        let [pid, command, area, file, calls, faults, bytes, kernel_ns] = cells(line);
        let text =
            format!("{calls:>9} {faults:>9} {bytes:>15} {kernel_ns:>13}  {pid:>8} {command:<16} {area:<9} {file}");
        writeln!(out, "{}", text.trim_end())
    })
}

fn folded(out: &mut impl Write, line: &Line) -> io::Result<()> {
    let frame = |text: &str| printable(text).replace(';', ":");
    let file = line.file.as_deref().map_or(String::new(), |file| format!(";{}", frame(file)));
    let stack = format!("{}-{};{}{file}", frame(&line.command), line.pid, line.kind.name());
    let faults = (line.row.faults > 0).then_some(("fault", line.row.faults));
    let work = line.row.calls.iter().map(|(&name, &count)| (name, count)).chain(faults);
    work.into_iter().try_for_each(|(name, count)| writeln!(out, "{stack};{name} {count}"))
}

fn object(line: &Line) -> Value {
    let Line { pid, command, kind, file, row, has_pace } = line;
    let kernel_ns = has_pace.then_some(row.kernel_ns);
    json!({
        "pid": pid, "command": command, "area": kind.name(), "file": file, "calls": row.nr_calls(),
        "faults": row.faults, "bytes": row.bytes, "kernel_ns": kernel_ns,
    })
}

fn cells(line: &Line) -> [String; 8] {
    let Line { pid, command, kind, file, row, has_pace } = line;
    let kernel_ns = if *has_pace { row.kernel_ns.to_string() } else { "<not recorded>".into() };
    let numbers = [row.nr_calls(), row.faults, row.bytes].map(|number| number.to_string());
    let [calls, faults, bytes] = numbers;
    let file = file.as_deref().map(printable).unwrap_or_default();
    [pid.to_string(), printable(command), kind.name().into(), file, calls, faults, bytes, kernel_ns]
}

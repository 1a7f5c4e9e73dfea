//! `faultless trace ps`: the processes of a trace.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use faultless_plan::processes::Processes;
use faultless_trace::text::printable;
use faultless_trace::{EventKind, Trace};
use serde_json::{Value, json};

use super::open::unreadable;
use crate::message::Failure;
use crate::table::{Format, write_csv, write_markdown};

/// The columns, which are the keys in JSON.
const COLUMNS: [&str; 5] = ["pid", "command", "threads", "calls", "faults"];

/// What a process did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProcessLine {
    pid: u32,
    command: String,
    threads: usize,
    calls: u64,
    faults: u64,
}

/// Prints the processes of the trace in the file.
pub fn run(path: &Path, format: Format) -> Result<(), Failure> {
    let lines = lines(&read(path)?);
    let mut out = BufWriter::new(io::stdout().lock());
    print(&mut out, format, &lines)?;
    Ok(out.flush()?)
}

/// Reads a whole trace.
pub fn read(path: &Path) -> Result<Trace, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error.into()))?;
    Trace::read(BufReader::new(file)).map_err(|error| unreadable(path, &error))
}

fn lines(trace: &Trace) -> Vec<ProcessLine> {
    let processes = Processes::of(trace);
    let line = |process: &faultless_plan::processes::Process| {
        let (pid, command, threads) = (process.pid, process.command.clone(), process.threads.len());
        ProcessLine { pid, command, threads, ..ProcessLine::default() }
    };
    let mut lines: Vec<ProcessLine> = processes.all.iter().map(line).collect();
    for event in &trace.events {
        let line = &mut lines[processes.of[event.thread as usize]];
        line.calls += u64::from(matches!(event.kind, EventKind::CallEnter(_)));
        line.faults += u64::from(matches!(event.kind, EventKind::Fault(_)));
    }
    lines
}

fn print(out: &mut impl Write, format: Format, lines: &[ProcessLine]) -> io::Result<()> {
    match format {
        Format::Human => human(out, lines),
        Format::Json => {
            let processes: Vec<Value> = lines.iter().map(object).collect();
            writeln!(out, "{:#}", json!({"schema": "faultless/1", "command": "trace ps", "processes": processes}))
        }
        Format::Csv => write_csv(out, &COLUMNS, lines.iter().map(cells)),
        Format::Markdown => write_markdown(out, &COLUMNS, lines.iter().map(cells)),
    }
}

fn human(out: &mut impl Write, lines: &[ProcessLine]) -> io::Result<()> {
    writeln!(out, "{:>8} {:>8} {:>10} {:>10}  command", "pid", "threads", "calls", "faults")?;
    lines.iter().try_for_each(|line| {
        let ProcessLine { pid, threads, calls, faults, command } = line;
        writeln!(out, "{pid:>8} {threads:>8} {calls:>10} {faults:>10}  {}", printable(command))
    })
}

fn object(line: &ProcessLine) -> Value {
    let ProcessLine { pid, command, threads, calls, faults } = line;
    json!({"pid": pid, "command": command, "threads": threads, "calls": calls, "faults": faults})
}

fn cells(line: &ProcessLine) -> [String; 5] {
    let ProcessLine { pid, command, threads, calls, faults } = line;
    [pid.to_string(), printable(command), threads.to_string(), calls.to_string(), faults.to_string()]
}

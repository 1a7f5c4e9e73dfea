//! `faultless trace info`: how a trace was recorded, what it lacks, and how much of what it holds.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use faultless_linux::Tally;
use faultless_trace::stacks::{Reach, StackMethod};
use faultless_trace::{Ending, Header, HugePages, Limits, Missing, Mode, Pace, Stacks};
use serde_json::{Map, Value, json};

use super::fields::plain;
use super::open::{FileReader, open, unreadable};
use crate::message::Failure;
use crate::table::{Format, csv_row, markdown_head, markdown_row};

/// Prints what the trace in the file is.
pub fn run(path: &Path, format: Format) -> Result<(), Failure> {
    let mut reader = open(path)?;
    let (tally, duration_ns) = count(&mut reader, path)?;
    let bytes = fs::metadata(path).map_or(0, |found| found.len());
    let mut described = describe(reader.header());
    described.extend(contents(&reader, &tally, duration_ns, bytes));
    if format != Format::Json {
        for_people(&mut described, reader.header());
    }
    let mut out = BufWriter::new(io::stdout().lock());
    print(&mut out, format, described)?;
    Ok(out.flush()?)
}

/// Reads the whole trace; returns what it holds and how long it ran.
fn count(reader: &mut FileReader, path: &Path) -> Result<(Tally, u64), Failure> {
    let (mut tally, mut duration_ns) = (Tally::default(), 0);
    for event in reader {
        let event = event.map_err(|error| unreadable(path, &error))?;
        tally.count(&event);
        duration_ns = event.time_ns;
    }
    Ok((tally, duration_ns))
}

fn describe(header: &Header) -> Map<String, Value> {
    let missing: Vec<_> = header.missing.iter().map(|missing| missing.name()).collect();
    let machine = &header.machine;
    object([
        ("format_version", json!(faultless_trace::VERSION)),
        ("command", json!(header.command)),
        ("cpus", json!(machine.cpus)),
        ("model", json!(machine.model)),
        ("kernel", json!(machine.kernel)),
        ("page_size_bytes", json!(machine.page_size_bytes)),
        ("mode", json!(mode_name(header.mode))),
        ("missing", json!(missing)),
        ("huge_pages", json!(huge_pages_name(header.huge_pages))),
        ("pace", json!(header.pace == Pace::Stored)),
        ("time_unit_ns", json!(header.time_unit_ns())),
        ("lost", json!(header.lost)),
        ("ending", json!(ending_name(header))),
        ("interrupted", json!(header.is_interrupted)),
        ("clock_error_ns", json!(header.clock_error_ns)),
        ("fault_ns", json!(header.costs.fault_ns)),
        ("fault_tracing_ns", json!(header.costs.fault_tracing_ns)),
        ("call_tracing_ns", json!(header.costs.call_tracing_ns)),
        ("limits", limits(&header.limits)),
    ])
}

/// Writes the command as a line for a shell, and beside the name of what is missing what that means.
fn for_people(described: &mut Map<String, Value>, header: &Header) {
    described["command"] = header.command_line().into();
    let meanings = header.missing.iter().map(|missing| (missing.name().to_owned(), json!(missing.meaning())));
    if !header.missing.is_empty() {
        described["missing"] = Value::Object(meanings.collect());
    }
}

fn limits(limits: &Limits) -> Value {
    Value::Object(object([
        ("overcommit", json!(limits.overcommit)),
        ("mmap_min_addr", json!(limits.mmap_min_addr)),
        ("max_map_count", json!(limits.max_map_count)),
        ("stack_bytes", json!(limits.stack_bytes)),
        ("address_space_bytes", json!(limits.address_space_bytes)),
        ("data_bytes", json!(limits.data_bytes)),
        ("memlock_bytes", json!(limits.memlock_bytes)),
    ]))
}

fn contents(reader: &FileReader, tally: &Tally, duration_ns: u64, bytes: u64) -> Map<String, Value> {
    let calls: Map<_, _> = tally.calls.iter().map(|(&name, &count)| (name.to_owned(), json!(count))).collect();
    object([
        ("duration_ns", json!(duration_ns)),
        ("size_bytes", json!(bytes)),
        ("bytes_per_event", json!(bytes as f64 / tally.events.max(1) as f64)),
        ("threads", json!(reader.threads().len())),
        ("files", json!(reader.files().len())),
        ("events", json!(tally.events)),
        ("user_faults", json!(tally.user_faults)),
        ("kernel_faults", json!(tally.kernel_faults)),
        ("calls", Value::Object(calls)),
        ("mappings", json!(tally.mappings)),
        ("clones", json!(tally.clones)),
        ("execs", json!(tally.execs)),
        ("exits", json!(tally.exits)),
        ("switches", json!(tally.switches)),
        ("wakes", json!(tally.wakes)),
        ("stacks", stacks(reader.stacks())),
    ])
}

fn stacks(stacks: &Stacks) -> Value {
    let Stacks { method, fault_period, lost, ref samples, .. } = *stacks;
    let cut = samples.iter().filter(|sample| sample.reach == Reach::Cut).count();
    let described = || {
        object([
            ("method", json!(method.map(StackMethod::name))),
            ("fault_period", json!(fault_period)),
            ("events", json!(samples.len())),
            ("without_outermost_callers", json!(cut)),
            ("lost", json!(lost)),
        ])
    };
    if stacks.is_empty() { Value::Null } else { Value::Object(described()) }
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn print(out: &mut impl Write, format: Format, described: Map<String, Value>) -> io::Result<()> {
    match format {
        Format::Json => print_json(out, described),
        Format::Human => rows(&described).iter().try_for_each(|(name, value)| writeln!(out, "{name:<24} {value}")),
        Format::Csv => {
            csv_row(out, ["field", "value"])?;
            rows(&described).iter().try_for_each(|(name, value)| csv_row(out, [name.as_str(), value.as_str()]))
        }
        Format::Markdown => {
            markdown_head(out, &["field", "value"])?;
            rows(&described).iter().try_for_each(|(name, value)| markdown_row(out, [name.as_str(), value.as_str()]))
        }
    }
}

fn print_json(out: &mut impl Write, described: Map<String, Value>) -> io::Result<()> {
    let document = json!({"schema": "faultless/1", "command": "trace info", "trace": described});
    writeln!(out, "{document:#}")
}

/// Returns name and value of each field, those of inner objects with both names.
fn rows(described: &Map<String, Value>) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for (name, value) in described {
        match value {
            Value::Object(inner) => {
                rows.extend(inner.iter().map(|(key, value)| (format!("{name}.{key}"), shown(value))));
            }
            value => rows.push((name.clone(), shown(value))),
        }
    }
    rows
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(values) if values.is_empty() => "nothing".into(),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or(0.0)),
        value => plain(value),
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Privileged => "privileged",
        Mode::Unprivileged => "unprivileged",
    }
}

fn huge_pages_name(huge_pages: HugePages) -> &'static str {
    match huge_pages {
        HugePages::Off => "off",
        HugePages::AsSystem => "as-system",
    }
}

fn ending_name(header: &Header) -> String {
    match header.ending {
        Ending::Unknown if header.missing.contains(&Missing::LastMoments) => "unknown".into(),
        Ending::Unknown => "still running".into(),
        Ending::Exited(code) => format!("exited {code}"),
        Ending::Killed(signal) => format!("killed by signal {signal}"),
    }
}

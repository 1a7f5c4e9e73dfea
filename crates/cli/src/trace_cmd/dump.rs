//! `faultless trace dump`: one line for each event.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use faultless_trace::text::printable;
use serde_json::Value;

use super::fields::{COLUMNS, Field, fields, plain};
use super::open::{open, unreadable};
use crate::message::Failure;
use crate::table::{Format, csv_row, markdown_head, markdown_row};

/// Prints the trace in the file.
pub fn run(path: &Path, format: Format) -> Result<(), Failure> {
    let mut reader = open(path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    head(&mut out, format)?;
    for number in 0.. {
        match reader.next_event() {
            Ok(Some(event)) => line(&mut out, format, &fields(number, &event, &reader))?,
            Ok(None) => break,
            Err(error) => {
                out.flush()?;
                return Err(unreadable(path, &error));
            }
        }
    }
    Ok(out.flush()?)
}

fn head(out: &mut impl Write, format: Format) -> io::Result<()> {
    match format {
        Format::Human | Format::Json => Ok(()),
        Format::Csv => csv_row(out, COLUMNS),
        Format::Markdown => markdown_head(out, &COLUMNS),
    }
}

fn line(out: &mut impl Write, format: Format, fields: &[Field]) -> io::Result<()> {
    match format {
        Format::Human => human(out, fields),
        Format::Json => {
            let object: serde_json::Map<_, _> =
                fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            writeln!(out, "{}", Value::Object(object))
        }
        Format::Csv => csv_row(out, columns(fields).iter().map(String::as_str)),
        Format::Markdown => markdown_row(
            out,
            columns(fields).iter().map(|cell| printable(cell)).collect::<Vec<_>>().iter().map(String::as_str),
        ),
    }
}

/// Prints number, seconds, thread and kind in columns, then the other fields by name.
fn human(out: &mut impl Write, fields: &[Field]) -> io::Result<()> {
    let (known, rest) = fields.split_at(6);
    let number = |place: usize| known[place].1.as_u64().unwrap_or(0);
    let (seconds, nanos) = (number(1) / 1_000_000_000, number(1) % 1_000_000_000);
    write!(out, "{:>8} {seconds:>4}.{nanos:09} {:>3}/{:<7} ", number(0), number(2), number(3))?;
    write!(out, "{:<10}", plain(&known[5].1))?;
    for (name, value) in rest {
        write!(out, " {name}={}", printable(&plain(value)))?;
    }
    match number(4) {
        0 => writeln!(out),
        on_cpu_ns => writeln!(out, " on_cpu_ns={on_cpu_ns}"),
    }
}

/// Returns the value of every column, empty where the event has none.
fn columns(fields: &[Field]) -> Vec<String> {
    let value = |column: &&str| fields.iter().find(|(name, _)| name == column).map(|(_, value)| plain(value));
    COLUMNS.iter().map(|column| value(column).unwrap_or_default()).collect()
}

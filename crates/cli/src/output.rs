//! Where results go: standard output, a file, a name, a page; and in which format.
//!
//! # Guarantee
//! A file that is there already is replaced only when the new one is complete; a device or a pipe is written to. That
//! results can be written and saved is known before anything is measured; an interrupted command that has measured
//! nothing saves nothing.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use faultless_linux::output::Output;
use faultless_results::compare::Source;
use faultless_results::{ResultSet, csv, json, saved, screen};

use crate::fit;
use crate::message::{Color, Failure, Tone, say};
use crate::table::{Format, csv_row, markdown_head, markdown_row};

/// How a command that measures hands out what it found.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// How to print the result. Text for people is as wide as the terminal at most; in a pipe or a file tables
    /// are as wide as they are. Example: --format json
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,

    /// Where the result goes, instead of standard output; an existing file is replaced when the new one is complete, a
    /// device or a pipe is written to.
    /// Example: --out gcc.json
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Also keeps the result under this name, for `faultless compare` and `faultless report`; what had the name before
    /// becomes NAME~. Results lie in the folder that FAULTLESS_RESULTS names, otherwise in faultless/results in the
    /// user's data folder (XDG_DATA_HOME or ~/.local/share). Example: --save base
    #[arg(long, value_name = "NAME", value_parser = saved::name)]
    pub save: Option<String>,

    /// Also writes a page with pictures: one file that any browser opens without a network, and that `faultless report`
    /// and `faultless compare` read like a result. Example: --html out.html
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl OutputArgs {
    /// Makes sure that a result can be written and saved; called before anything is measured.
    pub fn prepare(&self) -> Result<(), Failure> {
        for path in [&self.out, &self.html].into_iter().flatten() {
            Output::check(path).map_err(|error| unwritable(path, &error))?;
        }
        if self.save.is_some() {
            saved::Store::open().and_then(|store| store.prepare()).map_err(Failure::new)
        } else {
            Ok(())
        }
    }

    /// Prints and saves a result; `human` and `markdown` write it for people.
    pub fn hand_out(
        &self,
        set: &ResultSet,
        human: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        markdown: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        color: Color,
    ) -> Result<(), Failure> {
        let note = |out: &mut dyn Write| set.partial().map_or(Ok(()), |what| writeln!(out, "\nPartial: {what}."));
        let printed = print_as(self.format, self.out.as_deref(), |out| match self.format {
            Format::Human => human(out).and_then(|()| note(out)),
            Format::Json => json::write(set, out),
            Format::Csv => csv::write(set, out),
            Format::Markdown => markdown(out).and_then(|()| note(out)),
        });
        self.keep(set, color)?;
        printed
    }

    /// Prints and saves a result whose figures stand in a table of its own; `human` writes it for people.
    pub fn hand_out_table(
        &self,
        set: &ResultSet,
        table: &Table<'_>,
        human: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        color: Color,
    ) -> Result<(), Failure> {
        if self.format == Format::Csv {
            print(self.out.as_deref(), |out| table.write_csv(out, set.is_interrupted()))?;
            return self.keep(set, color);
        }
        self.hand_out(set, human, |out| table.write_markdown(out), color)
    }

    /// Saves a result and writes its page, if that was asked for and there is any.
    pub fn keep(&self, set: &ResultSet, color: Color) -> Result<(), Failure> {
        let page = self.html.as_ref().map_or(Ok(()), |path| write_page(path, || self.page(set), color));
        self.save_named(set, color).and(page)
    }

    /// Returns the page of a result.
    fn page(&self, set: &ResultSet) -> String {
        let label = self.save.clone().unwrap_or_else(|| "one run of the command".into());
        faultless_page::of_sets(&[Source { label, set: set.clone() }])
    }

    fn save_named(&self, set: &ResultSet, color: Color) -> Result<(), Failure> {
        let Some(name) = &self.save else { return Ok(()) };
        if set.results.is_empty() && set.more.get("interrupted") == Some(&true.into()) {
            say(color, Tone::Warning, &format!("nothing was measured, so nothing is saved as {name}"));
            return Ok(());
        }
        let path = saved::Store::open().and_then(|store| store.save(name, set)).map_err(Failure::new)?;
        say(color, Tone::Note, &format!("saved as {name} in {}", path.display()));
        Ok(())
    }
}

/// A table for programs.
#[derive(Debug)]
pub struct Table<'a> {
    /// What stands above the fields.
    pub headings: &'a [&'a str],
    /// Row by row.
    pub rows: &'a [Vec<String>],
}

impl Table<'_> {
    /// Writes rows whose last field says whether an interrupt left others out.
    fn write_csv(&self, mut out: &mut dyn Write, is_partial: bool) -> io::Result<()> {
        let partial = if is_partial { "yes" } else { "no" };
        csv_row(&mut out, self.headings.iter().copied().chain(["partial"]))?;
        self.rows.iter().try_for_each(|row| csv_row(&mut out, row.iter().map(String::as_str).chain([partial])))
    }

    fn write_markdown(&self, mut out: &mut dyn Write) -> io::Result<()> {
        markdown_head(&mut out, self.headings)?;
        self.rows.iter().try_for_each(|row| markdown_row(&mut out, row.iter().map(String::as_str)))
    }
}

/// The exit code of a command that an interrupt ended: 128 and the number of SIGINT, as a shell has it.
pub const INTERRUPTED: u8 = 130;

/// Returns the exit code: [`INTERRUPTED`] if an interrupt left something out.
pub fn exit_code(set: &ResultSet, otherwise: ExitCode) -> ExitCode {
    if set.is_interrupted() { ExitCode::from(INTERRUPTED) } else { otherwise }
}

/// Prints in a format: text for people fits what it is printed on, everything else is as it was written.
pub fn print_as(
    format: Format,
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if format != Format::Human {
        return print(path, write);
    }
    let before = path.map(|_| screen::set(fit::PAPER));
    let printed = print(path, |out| {
        let mut text = Vec::new();
        write(&mut text)?;
        fit::write(&String::from_utf8_lossy(&text), out)
    });
    before.into_iter().for_each(|before| {
        screen::set(before);
    });
    printed
}

/// Prints on standard output, or into a file.
pub fn print(path: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    match path {
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            write(&mut out)?;
            Ok(out.flush()?)
        }
        Some(path) => replace(path, write).map_err(|error| unwritable(path, &error)),
    }
}

/// Writes a page, and says so.
pub fn write_page(path: &Path, page: impl FnOnce() -> String, color: Color) -> Result<(), Failure> {
    print(Some(path), |out| out.write_all(page().as_bytes()))?;
    say(color, Tone::Note, &format!("a page with pictures is in {}", path.display()));
    Ok(())
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format_args!("cannot write {}: {error}", path.display()))
}

/// Writes a file, as [`Output`] promises.
fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let output = Output::create(path)?;
    let mut out = BufWriter::new(output.file());
    write(&mut out)?;
    out.flush()?;
    drop(out);
    output.complete()
}

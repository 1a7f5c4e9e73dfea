//! Where results go: standard output, a file, a name; and in which format.
//!
//! # Guarantee
//! A file that is there already is replaced only when the new one is complete. That results can be saved is known before
//! anything is measured.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use faultless_lab::report::{ResultSet, csv, json, saved};

use crate::message::{Color, Failure, Tone, say};
use crate::table::Format;

/// How a command that measures hands out what it found.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// How to print the result. Example: --format json
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,

    /// Where the result goes, instead of standard output; an existing file is replaced when the new one is complete.
    /// Example: --out gcc.json
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Also keeps the result under this name, for `faultless compare` and `faultless report`; what had the name before
    /// becomes NAME~. Results lie in the folder that FAULTLESS_RESULTS names, otherwise in faultless/results in the
    /// user's data folder (XDG_DATA_HOME or ~/.local/share). Example: --save base
    #[arg(long, value_name = "NAME", value_parser = saved::name)]
    pub save: Option<String>,
}

impl OutputArgs {
    /// Makes sure that a result can be saved; called before anything is measured.
    pub fn prepare(&self) -> Result<(), Failure> {
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
        let printed = print(self.out.as_deref(), |out| match self.format {
            Format::Human => human(out),
            Format::Json => json::write(set, out),
            Format::Csv => csv::write(set, out),
            Format::Markdown => markdown(out),
        });
        self.keep(set, color)?;
        printed
    }

    /// Saves a result, if that was asked for.
    pub fn keep(&self, set: &ResultSet, color: Color) -> Result<(), Failure> {
        let Some(name) = &self.save else { return Ok(()) };
        let path = saved::Store::open().and_then(|store| store.save(name, set)).map_err(Failure::new)?;
        say(color, Tone::Note, &format!("saved as {name} in {}", path.display()));
        Ok(())
    }
}

/// Prints on standard output, or into a file.
pub fn print(path: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    match path {
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            write(&mut out)?;
            Ok(out.flush()?)
        }
        Some(path) => {
            replace(path, write).map_err(|error| Failure::new(format_args!("cannot write {}: {error}", path.display())))
        }
    }
}

/// Writes a file beside the path, and lets it take the path's place once it is complete.
fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let mut out = BufWriter::new(fs::File::create(&partial)?);
    let written = write(&mut out).and_then(|()| out.flush()).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // The error that counts is the first one.
        let _ = fs::remove_file(&partial);
    }
    written
}

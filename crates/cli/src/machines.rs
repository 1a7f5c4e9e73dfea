//! `faultless machines`: the simulated machines, and how this one becomes one of them.

use faultless_machine::info;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use faultless_bench::calibrate::calibrate;
use faultless_machine::simulated::{self, MachineChoice, Spec};

use crate::machine;
use crate::message::{Color, Failure, Tone, say};
use crate::output::print;

/// The arguments of `machines`.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  faultless machines
  faultless machines skylake-192
  faultless machines calibrate
  faultless bench page_fault1 --machine ./my-machine.toml

A machine file is TOML; every number has a source, or says that it is guessed. `faultless machines NAME --file` prints one \
to begin a file of your own."
)]
pub struct MachinesArgs {
    /// A machine to show with its parameters; all machines, a line each, unless named.
    #[arg(value_name = "NAME|FILE")]
    machine: Option<String>,

    /// Print the machine's file.
    #[arg(long, requires = "machine")]
    file: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Measures this machine, and writes it as the machine `here`.
    Calibrate(CalibrateArgs),
}

/// The arguments of `machines calibrate`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless machines calibrate
  faultless machines calibrate --out my-machine.toml

Measures loads, read-modify-writes, fences, lines that another CPU has written (read, changed, handed over), contended \
additions, wake-ups, zeroing and copying pages in each cache and in memory, and fits the cost of instructions on page_fault3 and \
mmap2 under mmap-sem on one CPU. Takes about half a minute; nothing else should run. `faultless check calibration` says how good it is.")]
struct CalibrateArgs {
    /// Where the file goes. Unless said: here.toml in the folder that FAULTLESS_MACHINES names, otherwise in
    /// faultless/machines in the user's data folder (XDG_DATA_HOME or ~/.local/share); --machine here reads it from
    /// there.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &MachinesArgs, color: Color) -> Result<ExitCode, Failure> {
    if let Some(Action::Calibrate(args)) = &args.action {
        return measure(args, color);
    }
    let mut out = io::stdout().lock();
    match &args.machine {
        None => list(&mut out)?,
        Some(name) if args.file => write_file(name, &mut out)?,
        Some(name) => show(name, &mut out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &CalibrateArgs, color: Color) -> Result<ExitCode, Failure> {
    let path = args.out.clone().or_else(simulated::here_path);
    let path = path.ok_or_else(|| {
        Failure::new("nothing says where machines are kept: name a file with --out, or set FAULTLESS_MACHINES or HOME")
    })?;
    let spec = calibrate(&|what| say(color, Tone::Note, &format!("measuring {what}"))).map_err(Failure::new)?;
    let host = info::native();
    let spec = spec.described(&format!("this machine: {}, Linux {}", host.model, host.kernel));
    save(&path, &spec.to_toml())?;
    write_sources(&spec, &mut io::stdout().lock())?;
    say(color, Tone::Note, &format!("written to {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes a machine file, and the folder that it stands in.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format_args!("cannot make {}: {error}", folder.display())))?;
    }
    print(Some(path), |out| out.write_all(text.as_bytes()))
}

fn list(out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "{:<12} {:>5}  this machine, by its own threads",
        simulated::NATIVE,
        faultless_machine::host::cpus()
    )?;
    for name in simulated::names().filter(|name| *name != simulated::NATIVE) {
        if let MachineChoice::Simulated(spec) = machine::find(name)? {
            writeln!(out, "{name:<12} {:>5}  {}", spec.nr_cpus(), spec.description())?;
        }
    }
    Ok(())
}

fn show(name: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let choice = machine::find(name)?;
    writeln!(out, "{}", info::of(&choice))?;
    let Some(spec) = choice.simulated() else { return Ok(()) };
    Ok(write_sources(spec, out)?)
}

fn write_sources(spec: &Spec, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = Vec::new();
    spec.for_each_number(|key, number| {
        lines.push(format!("{key:<30} {:>10}  {}", number.value, number.source));
        if let Some([low, high]) = number.range {
            lines.push(format!("{:<30} {:>10}  between {low} and {high}: {}", "", "", number.because));
        }
    });
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn write_file(name: &str, out: &mut dyn Write) -> Result<(), Failure> {
    match machine::find(name)?.simulated() {
        Some(spec) => Ok(out.write_all(spec.to_toml().as_bytes())?),
        None => Err(Failure::usage("native is this machine itself: it has no file")),
    }
}

//! `faultless check oracle`: Linux's semantics, with the kernel itself as the judge.
//!
//! # Guarantee
//! The exit code is 0 only if all sequences that were asked for were compared, under each design, and none differed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use faultless_kmap::registry::SCHEMES;
use faultless_linux::space::{has_interrupt, on_interrupt};
use faultless_machine::designs::DESIGNS;
use faultless_machine::high::map_sleeps;
use faultless_machine::host;
use faultless_oracle as oracle;
use faultless_oracle::kernel::{Host, HostError, Sequence, User};
use faultless_oracle::{Bench, Checking, Difference, Finding, Outcomes, Profile, Settings, Side, report};
use faultless_results::text;
use indicatif::ProgressBar;

use crate::message::{Color, Failure, Tone, say};
use crate::output::{INTERRUPTED, print};
use crate::progress;
use crate::table::Format;

/// The arguments of `check oracle`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless check oracle --sequences 100000 --seed 7
  faultless check oracle --profile hostile --user user --design vma-lock --format json
  faultless check oracle --replay 'user; mmap w+0x0 0x2000 rw private|anon|fixed - 0; store w+0x1000 5; look'
  faultless check oracle --replay found.txt

A sequence is run once on the kernel, in a process whose address space is all filled but for a window of 4 MiB (w) and the \
first 64 KiB, and once on the library under each design. Results, errors, signals with code and address, and bytes are \
compared after each operation; `look` compares the list of areas and every readable page. A file for --replay has a \
sequence on each line; lines that begin with # are comments.

The exit code is 0 if everything was compared and nothing differed, 1 if something differed or could not be compared, \
and 2 if the command was not understood.")]
pub struct OracleArgs {
    /// How many sequences are compared, under each design. Example: --sequences 100000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 10_000)]
    sequences: u64,

    /// Draws the sequences. Example: --seed 7
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Designs to compare with; all of them unless named. Example: --design vma-lock
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(DESIGNS), default_values = DESIGNS, hide_default_value = true)]
    design: Vec<String>,

    /// Kinds of sequences, in turn. Example: --profile hostile
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',', default_values = ["usual", "usual", "usual", "hostile", "threads"], hide_default_value = true)]
    profile: Vec<ProfileChoice>,

    /// As whom sequences run; both unless named, if this is root. Example: --user user
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',')]
    user: Vec<UserChoice>,

    /// Operations of a sequence. Example: --ops 200
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4000), default_value_t = 64)]
    ops: u16,

    /// How many threads draw and judge; as many as there are CPUs unless said. Example: --jobs 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,

    /// Tables and all pages lie in high memory: each of the library's looks at them is a map under this scheme; those
    /// that sleep until there is a slot, for mmap-sem alone. Example: --high local
    #[arg(long, value_name = "SCHEME", value_parser = PossibleValuesParser::new(SCHEMES))]
    high: Option<String>,

    /// Check the library's invariants after each operation, not only now and then; builds with debug
    /// assertions always do. Example: --invariants
    #[arg(long, alias = "check")]
    invariants: bool,

    /// How many differences are made small and printed. Example: --show 20
    #[arg(long, value_name = "N", default_value_t = 5)]
    show: usize,

    /// Runs this sequence, or those of a file, instead of drawing some. Example: --replay 'root; brk 0; look'
    #[arg(long, value_name = "LINE|FILE")]
    replay: Option<String>,

    /// How to print the result. Example: --format json
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    /// Where the result goes, instead of standard output; an existing file is replaced when the new one is complete.
    /// Example: --out oracle.json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Kinds of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProfileChoice {
    /// Operations that know what is mapped; some 15 % fail or get a signal.
    Usual,
    /// Wild addresses, lengths and flags.
    Hostile,
    /// Two or three threads at once.
    Threads,
}

/// As whom sequences run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UserChoice {
    /// The superuser.
    Root,
    /// Somebody without rights.
    User,
}

/// The design that maps tables where it may sleep.
const MAY_SLEEP: &str = faultless_bench::high::DESIGN;

/// Runs the subcommand.
pub fn run(args: &OracleArgs, color: Color) -> Result<ExitCode, Failure> {
    let settings = settings(args, color)?;
    let outcomes = match &args.replay {
        Some(given) => replay(&settings, &sequences(given)?)?,
        None => draw(&settings)?,
    };
    show(&settings, &outcomes, args.show, color)?;
    print(args.out.as_deref(), |out| match args.format {
        Format::Human => report::human(&settings, &outcomes, out),
        Format::Json => report::json(&settings, &outcomes, out),
        Format::Csv => report::csv(&outcomes, out),
        Format::Markdown => report::markdown(&outcomes, out),
    })?;
    if outcomes.was_interrupted {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let is_clean = outcomes.differences == 0 && outcomes.sequences == settings.sequences;
    Ok(if is_clean || args.replay.is_some() && outcomes.differences == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn settings(args: &OracleArgs, color: Color) -> Result<Settings, Failure> {
    let profile = |choice: &ProfileChoice| match choice {
        ProfileChoice::Usual => Profile::Usual,
        ProfileChoice::Hostile => Profile::Hostile,
        ProfileChoice::Threads => Profile::Threads,
    };
    let high = SCHEMES.iter().copied().find(|&scheme| args.high.as_deref() == Some(scheme));
    Ok(Settings {
        designs: designs(args, high, color)?,
        high,
        users: users(args, color)?,
        profiles: args.profile.iter().map(profile).collect(),
        sequences: args.sequences,
        nr_ops: args.ops.into(),
        seed: args.seed,
        jobs: args.jobs.map_or(host::cpus(), usize::from),
        checking: if args.invariants || cfg!(debug_assertions) { Checking::EachOperation } else { Checking::EachBatch },
    })
}

/// Returns the designs; says what is skipped.
fn designs(args: &OracleArgs, high: Option<&'static str>, color: Color) -> Result<Vec<&'static str>, Failure> {
    let is_named = |design: &&'static str| args.design.iter().any(|name| name == design);
    let mut designs: Vec<&'static str> = DESIGNS.iter().copied().filter(is_named).collect();
    let Some(scheme) = high.filter(|scheme| map_sleeps(scheme) == Some(true)) else { return Ok(designs) };
    let nr_named = designs.len();
    designs.retain(|&design| design == MAY_SLEEP);
    if designs.is_empty() {
        let why = format!("--high {scheme} sleeps until there is a slot, which {MAY_SLEEP} alone allows");
        return Err(Failure::usage(why));
    }
    if designs.len() < nr_named {
        say(color, Tone::Warning, &format!("skipped: designs but {MAY_SLEEP}, because maps of {scheme} may sleep"));
    }
    Ok(designs)
}

/// Returns as whom sequences run; says what is skipped.
fn users(args: &OracleArgs, color: Color) -> Result<Vec<User>, Failure> {
    let wants = |choice| args.user.contains(&choice);
    let mut users = Vec::new();
    if Host::can_be(User::Root) && (args.user.is_empty() || wants(UserChoice::Root)) {
        users.push(User::Root);
    } else if wants(UserChoice::Root) {
        return Err(Failure::new("--user root needs the rights of root"));
    } else if args.user.is_empty() {
        say(color, Tone::Warning, "skipped: sequences as root: mappings below 64 KiB, and locks beyond the limit");
    }
    if args.user.is_empty() || wants(UserChoice::User) {
        users.push(User::Nobody);
    }
    Ok(users)
}

fn draw(settings: &Settings) -> Result<Outcomes, Failure> {
    let style = progress::style("comparing [{bar:40}] {pos} of {len} sequences, {eta} left");
    on_interrupt();
    let bar = ProgressBar::new(settings.sequences).with_style(style);
    let outcomes = oracle::run(settings, &|done| bar.set_position(done));
    bar.finish_and_clear();
    outcomes.map_err(Failure::new)
}

/// Reads a sequence, or a file of them.
fn sequences(given: &str) -> Result<Vec<Sequence>, Failure> {
    if !Path::new(given).exists() {
        let read = given.parse::<Sequence>().map_err(|error| not_read(given, &error));
        return read.map(|sequence| vec![sequence]);
    }
    let text = text(Path::new(given), 256 << 20, "no file of sequences");
    let text = text.map_err(|error| Failure::new(format_args!("{given}: {error}")))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let read = |(place, line): (usize, &str)| {
        let read = line.parse::<Sequence>();
        read.map_err(|error| Failure::usage(format_args!("{given}, line {}: {error}", place + 1)))
    };
    let sequences: Vec<Sequence> = lines.map(read).collect::<Result<_, _>>()?;
    if sequences.is_empty() {
        return Err(Failure::new(format_args!("{given}: it holds no sequence, so nothing would be compared")));
    }
    Ok(sequences)
}

/// Says why a text is no sequence; one that may be a path, why it is no file either.
fn not_read(given: &str, error: &dyn fmt::Display) -> Failure {
    match fs::metadata(given) {
        Err(missing) if !given.contains(';') => {
            Failure::usage(format_args!("--replay: {error}; and there is no file '{given}' to read: {missing}"))
        }
        _ => Failure::usage(format_args!("--replay: {error}")),
    }
}

fn replay(settings: &Settings, sequences: &[Sequence]) -> Result<Outcomes, Failure> {
    oracle::replay(settings, sequences).map_err(Failure::new)
}

/// Makes the first differences small and prints them on stderr; of each sequence, those of one design.
fn show(settings: &Settings, outcomes: &Outcomes, nr_shown: usize, color: Color) -> Result<(), Failure> {
    let mut first = outcomes.kept.clone();
    first.dedup_by_key(|difference| difference.sequence.clone());
    for difference in first.iter().take(nr_shown) {
        let (sequence, finding) = small(settings, difference).map_err(Failure::new)?;
        let high = settings.high.map_or_else(String::new, |scheme| format!(" with --high {scheme}"));
        let told = format!("sequence {} under {}{high}: {finding}", difference.number, difference.design);
        say(color, Tone::Error, &told);
        eprintln!("{}", oracle::pasteable(&sequence, &finding, difference.design));
    }
    if outcomes.differences > 0 {
        let shown = first.len().min(nr_shown);
        let total = format!("differences: {}; {shown} of the sequences are shown, made small", outcomes.differences);
        say(color, Tone::Error, &total);
    }
    Ok(())
}

fn small(settings: &Settings, difference: &Difference) -> Result<(Sequence, Finding), HostError> {
    let Difference { sequence, finding, design, .. } = difference;
    let side = Side { design, high: settings.high };
    let mut bench = Bench::start(side, sequence.user, settings.checking, sequence.ops.len())?;
    let mut failure = None;
    let mut differs = |candidate: &Sequence| {
        // Whoever interrupted does not wait for a smaller one.
        if has_interrupt() {
            return None;
        }
        match bench.compare(candidate) {
            Ok((_, result)) => result.err(),
            Err(error) => {
                failure = Some(error);
                None
            }
        }
    };
    let small = match finding {
        // Each try would take as long as the patience with it.
        Finding::Hang => (sequence.clone(), finding.clone()),
        _ => oracle::shrink(sequence, finding, &mut differs),
    };
    failure.map_or(Ok(small), Err)
}

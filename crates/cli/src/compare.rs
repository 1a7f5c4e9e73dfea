//! `faultless compare`: two or more results, as the kernel's 0-day test robot would show them.
//!
//! # Guarantee
//! The exit code is 3 only if something is worse for sure, by as much as `--fail-on-regression` says.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use faultless_results::compare::{self, Comparison, Source, benchstat, csv, json, lkp, markdown, some};
use faultless_results::{Unit, saved::Store, summary};

use crate::message::{Color, Failure, Tone, say};
use crate::nearest::nearest;
use crate::output::{print, print_as, write_page};
use crate::table::Format;

/// The exit code of a regression.
const REGRESSED: u8 = 3;

/// The arguments of `compare`.
#[derive(Args)]
#[command(after_help = "Examples:
  faultless compare base.json head.json
  faultless bench malloc1 --design mmap-sem --save before; faultless bench malloc1 --design spf-v11 --save after
  faultless compare before after --style benchstat
  faultless compare base.json head.json --fail-on-regression 5
  faultless compare base.json head.json --summary summary.md; gh pr comment --body-file summary.md

Figures of the same workload, mode, design, semaphore, CPUs and metric are compared. If each file has one design (one \
semaphore, one number of CPUs) and they are not the same, that is what is compared. A change is printed only where there \
is one: at least five samples a side and p < 0.05 (Mann-Whitney U); otherwise it is `~`. Throughput is that of each \
worker: per_thread_ops, per_process_ops.

The exit code is 0, or 1 if the files can't be compared, 2 if the command was not understood, and 3 if \
--fail-on-regression found one.")]
pub struct CompareArgs {
    /// The result to compare with: a file, or the name it was saved under.
    #[arg(value_name = "BASE")]
    base: PathBuf,

    /// The results to compare.
    #[arg(value_name = "HEAD", required = true)]
    heads: Vec<PathBuf>,

    /// The table's style for people. Example: --style benchstat
    #[arg(long, value_enum, default_value_t = Style::Lkp)]
    style: Style,

    /// Ends with exit code 3 if a figure is worse by at least so many percent, for sure: rates that fall, times, sizes
    /// and waiting that grow. Example: --fail-on-regression 5
    #[arg(long, value_name = "PCT", value_parser = percent)]
    fail_on_regression: Option<f64>,

    /// How to print the comparison. Example: --format markdown
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,

    /// Where the comparison goes, instead of standard output. Example: --out diff.md
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Also writes a page with pictures of the comparison: one file that any browser opens without a network.
    /// Example: --html diff.html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Also writes a summary for a pull request, in GitHub's Markdown: the verdict, what got worse, what got better,
    /// and all figures folded away. Example: --summary summary.md
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

/// How the table looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Style {
    /// As the kernel's 0-day test robot prints it.
    Lkp,
    /// As Go's benchstat prints it.
    Benchstat,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("'{text}' is not a percentage; write for example 5 or 2.5"))
}

/// Runs the subcommand.
pub fn run(args: &CompareArgs, color: Color) -> Result<ExitCode, Failure> {
    let paths = std::iter::once(&args.base).chain(&args.heads);
    let sources = paths.map(|path| open(path)).collect::<Result<Vec<Source>, Failure>>()?;
    let comparison = compare::compare(sources).map_err(Failure::new)?;
    print_as(args.format, args.out.as_deref(), |out| match (args.format, args.style) {
        (Format::Human, Style::Lkp) => lkp::write(&comparison, out),
        (Format::Human, Style::Benchstat) => benchstat::write(&comparison, out),
        (Format::Json, _) => json::write(&comparison, out),
        (Format::Csv, _) => csv::write(&comparison, out),
        (Format::Markdown, _) => markdown::write(&comparison, out),
    })?;
    if let Some(path) = &args.summary {
        print(Some(path), |out| summary::write(&comparison, out))?;
    }
    if let Some(path) = &args.html {
        write_page(path, || faultless_page::of_comparison(&comparison), color)?;
    }
    warn(&comparison, color);
    Ok(judge(args, &comparison, color))
}

/// Opens a file, or the saved result of that name; a page must hold one result.
pub fn open(path: &Path) -> Result<Source, Failure> {
    let mut sources = open_all(path)?;
    match sources.len() {
        1 => Ok(sources.remove(0)),
        many => Err(Failure::new(format_args!(
            "{} is a page of {many} results, and one is wanted: `faultless report` prints them all",
            path.display()
        ))),
    }
}

/// Opens a file, a page with all its results, or the saved result of that name.
pub fn open_all(path: &Path) -> Result<Vec<Source>, Failure> {
    let label = path.display().to_string();
    let source = |label: String, path: &Path| {
        let mut sources = faultless_page::open(path).map_err(Failure::new)?;
        if let [one] = sources.as_mut_slice() {
            one.label = label;
        }
        Ok(sources)
    };
    match path.to_str() {
        Some(name) if !path.exists() && !name.contains('/') => {
            let store = Store::open().map_err(Failure::new)?;
            let names = store.names().map_err(Failure::new)?;
            if !names.iter().any(|known| known == name) {
                return Err(unknown(name, &names, &store));
            }
            source(label, &store.path(name))
        }
        _ => source(label, path),
    }
}

fn unknown(name: &str, names: &[String], store: &Store) -> Failure {
    let guess = nearest(name, names.iter().map(String::as_str)).map(|near| format!("; did you mean {near}?"));
    let saved = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Failure::new(format_args!(
        "there is no file and no saved result '{name}'{}; saved in {}: {saved}",
        guess.unwrap_or_default(),
        store.folder().display()
    ))
}

/// Says what was not compared, and what makes the comparison less than it seems.
fn warn(comparison: &Comparison, color: Color) {
    let base = &comparison.sources[0];
    for (source, alone) in comparison.sources.iter().zip(&comparison.alone).filter(|(_, alone)| !alone.is_empty()) {
        let what = format!("in {} alone, not compared: {}", source.label, some(alone));
        say(color, Tone::Warning, &what);
    }
    for source in &comparison.sources[1..] {
        let (one, other) = (&base.set.machine, &source.set.machine);
        if one != other {
            say(
                color,
                Tone::Warning,
                &format!("not the same machine: {}: {one}; {}: {other}", base.label, source.label),
            );
        }
    }
    comparison.sources[1..].iter().flat_map(|source| unlike(base, source)).for_each(|what| {
        say(color, Tone::Warning, &what);
    });
    for source in &comparison.sources {
        let disturbed = source.set.nr_disturbed();
        if disturbed > 0 {
            let what = format!("{}: {disturbed} runs were disturbed: their threads waited for CPUs", source.label);
            say(color, Tone::Warning, &what);
        }
    }
    let moving = comparison.nr_not_converged();
    if moving > 0 {
        let what = format!("{moving} figures are of runs that had not converged: no difference is shown");
        say(color, Tone::Warning, &what);
    }
    let few = comparison.nr_too_few();
    if few > 0 {
        let what = format!(
            "{few} figures have fewer than {} samples a side: no difference is shown; measure with -r 5 or more",
            compare::LEAST_SAMPLES
        );
        say(color, Tone::Warning, &what);
    }
}

/// Returns what tells the runs of two sets apart, besides what they are about.
fn unlike(base: &Source, head: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let is_watched = |source: &Source| source.set.more.get("watched") == Some(&true.into());
    if is_watched(base) != is_watched(head) {
        let watched = if is_watched(base) { &base.label } else { &head.label };
        found.push(format!(
            "{watched} was watched (--locks, --trace), which takes time: its rates are those of slower runs"
        ));
    }
    let has_counts = base.set.results.iter().any(|result| result.unit == Unit::Count.name());
    let [one, other] = [base, head].map(|source| source.set.more.get("duration_ns"));
    if has_counts && one.is_some() && other.is_some() && one != other {
        let (base, head) = (&base.label, &head.label);
        found.push(format!("{base} and {head} ran for different times: their counts are totals of those"));
    }
    found
}

fn judge(args: &CompareArgs, comparison: &Comparison, color: Color) -> ExitCode {
    let Some(limit) = args.fail_on_regression else { return ExitCode::SUCCESS };
    let worse = comparison.regressions(limit / 100.0);
    for one in &worse {
        let what =
            format!("regression: {} {} {:+.1}% in {}", one.key, one.row.metric, one.change.share * 100.0, one.head);
        say(color, Tone::Error, &what);
    }
    if worse.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REGRESSED) }
}

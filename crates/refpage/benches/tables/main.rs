//! The tables of reference pages: what they cost beside plain memory, memset and userfaultfd.
//!
//! `cargo bench -p faultless-refpage [-- OPTIONS]`; see `HELP`.
//!
//! Every run is a process of its own, so that memory and faults are its own; the variants of a cell
//! take turns; nothing is discarded. Results go to stdout, progress to stderr.

mod cells;
mod child;
mod pdf;
mod program;
mod statistics;
mod table;
mod targets;
mod userfault;

use std::io::IsTerminal;
use std::process::ExitCode;
use table::Format;

const HELP: &str = "\
Prints what reference pages cost beside plain memory, memset and userfaultfd.

usage: cargo bench -p faultless-refpage [-- OPTIONS]

  --quick                  fewer cells and runs: about a minute instead of ten, and no target is decided
  --runs N                 runs of each variant of a cell [5; 30 where a target is judged]
  --pdf-runs N             runs of pdftoppm for each variant; a fifth of them for the preload that passes [250]
  --only memory|program    one half of the tables
  --format human|markdown|csv  how tables are printed [human]
  --check                  exit with 1 if a target fails
  --help                   this text

example: cargo bench -p faultless-refpage -- --quick --only memory
";

/// What the command line asks for.
struct Plan {
    is_quick: bool,
    runs: Option<usize>,
    pdf_runs: usize,
    has_memory: bool,
    has_program: bool,
    format: Format,
    is_check: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == child::FLAG) {
        return child::main(&words[1..]);
    }
    if !words.iter().any(|word| word == "--bench") {
        println!("skipped: run it by `cargo bench -p faultless-refpage`");
        return ExitCode::SUCCESS;
    }
    match parse(&words) {
        Ok(Some(plan)) => run(&plan),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}; try --help");
            ExitCode::from(2)
        }
    }
}

fn parse(words: &[String]) -> Result<Option<Plan>, String> {
    let mut plan = Plan {
        is_quick: words.iter().any(|word| word == "--quick"),
        runs: None,
        pdf_runs: if words.iter().any(|word| word == "--quick") { 10 } else { 250 },
        has_memory: true,
        has_program: true,
        format: Format::Human,
        is_check: false,
    };
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word {
            "--bench" | "--quick" => {}
            "--help" => return Ok(None),
            "--check" => plan.is_check = true,
            "--runs" => plan.runs = Some(number(word, value()?)?),
            "--pdf-runs" => plan.pdf_runs = number(word, value()?)?,
            "--format" => plan.format = Format::parse(value()?)?,
            "--only" => match value()? {
                "memory" => plan.has_program = false,
                "program" => plan.has_memory = false,
                other => return Err(format!("--only {other}: want memory or program")),
            },
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(Some(plan))
}

fn number(option: &str, value: &str) -> Result<usize, String> {
    let parsed = value.parse().ok().filter(|number| (2..=10_000).contains(number));
    parsed.ok_or(format!("{option} {value}: want a number from 2 to 10000"))
}

fn run(plan: &Plan) -> ExitCode {
    println!("{}\n", machine());
    let mut verdicts = Vec::new();
    if plan.has_memory {
        let measured = cells::measure_all(plan);
        cells::print(plan, &measured);
        verdicts.extend(targets::of_memory(&measured));
    }
    if plan.has_program {
        match program::measure(plan) {
            Ok(measured) => {
                program::print(plan, &measured);
                verdicts.extend(targets::of_program(&measured));
            }
            Err(reason) => println!("pdftoppm: skipped: {reason}\n"),
        }
    }
    targets::print(plan, &verdicts);
    let has_failed = verdicts.iter().any(|verdict| verdict.has_failed());
    ExitCode::from(u8::from(plan.is_check && has_failed))
}

/// Says on a terminal how far it is.
fn progress(what: &str, done: usize, all: usize) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{what} {done}/{all}{}", if done == all { "\n" } else { " " });
    }
}

/// The machine and the day, for whoever reads the tables later.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown CPU").trim();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let thp = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let load = read("/proc/loadavg");
    let date = std::process::Command::new("date").arg("+%F").output();
    let date = date.map_or(String::new(), |date| String::from_utf8_lossy(&date.stdout).into());
    format!(
        "{model}, {cpus} CPUs, Linux {}, transparent huge pages: {}, load {}, {}",
        kernel.trim(),
        thp.trim(),
        load.split(' ').next().unwrap_or("?"),
        date.trim()
    )
}

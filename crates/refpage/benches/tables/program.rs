//! The real program: pdftoppm without the preload, and with it in three modes.

use crate::{Plan, pdf, progress, table};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Without the preload.
    Plain,
    /// With the preload, which lets every allocation pass: what interposing alone costs.
    Pass,
    /// Large allocations are filled.
    Memset,
    /// Large allocations are reference pages: the preload's default.
    Refpage,
}

impl Mode {
    const ALL: [Mode; 4] = [Mode::Plain, Mode::Pass, Mode::Memset, Mode::Refpage];

    /// Runs in every round; the variant that no target is about runs in one of five.
    fn is_in(self, round: usize) -> bool {
        self != Mode::Pass || round.is_multiple_of(5)
    }

    fn name(self) -> &'static str {
        match self {
            Mode::Plain => "anon (no preload)",
            Mode::Pass => "preload, passing",
            Mode::Memset => "memset",
            Mode::Refpage => "refpage",
        }
    }
}

/// What a run cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub time_ms: f64,
    pub cpu_ms: f64,
    pub max_rss_kib: f64,
    pub faults: f64,
}

/// What all runs cost.
pub(crate) struct Measured {
    pub runs: Vec<(Mode, Vec<Run>)>,
    /// The largest proportional size of each watched run, in KiB.
    pub sizes: Vec<(Mode, Vec<f64>)>,
    /// The preload's counters.
    pub counters: Counters,
}

/// What the preload counted in one run.
pub(crate) struct Counters {
    pub allocated_bytes: f64,
    pub patterned_bytes: f64,
    pub tile_bytes: f64,
}

impl Measured {
    /// Returns one number of each run of a mode.
    pub fn samples(&self, mode: Mode, number: impl Fn(&Run) -> f64) -> Vec<f64> {
        let runs = self.runs.iter().filter(|(other, _)| *other == mode);
        runs.flat_map(|(_, runs)| runs.iter().map(&number)).collect()
    }
}

struct Bench {
    preload: PathBuf,
    document: PathBuf,
    counters: PathBuf,
}

/// Measures, or says why it cannot.
pub(crate) fn measure(plan: &Plan) -> Result<Measured, String> {
    if Command::new("pdftoppm").arg("-v").output().is_err() {
        return Err("pdftoppm is not installed (package poppler-utils)".into());
    }
    let bench = prepare()?;
    let mut runs: Vec<(Mode, Vec<Run>)> = Mode::ALL.map(|mode| (mode, Vec::new())).into();
    for round in 0..plan.pdf_runs {
        progress("pdftoppm", round + 1, plan.pdf_runs);
        for (mode, runs) in runs.iter_mut().filter(|(mode, _)| mode.is_in(round)) {
            runs.push(bench.run(*mode)?);
        }
    }
    let watched = if plan.is_quick { 3 } else { 10 };
    let mut sizes: Vec<(Mode, Vec<f64>)> = Mode::ALL.map(|mode| (mode, Vec::new())).into();
    for _ in 0..watched {
        for (mode, sizes) in &mut sizes {
            sizes.push(bench.largest_size(*mode)?);
        }
    }
    Ok(Measured { runs, sizes, counters: bench.count()? })
}

fn prepare() -> Result<Bench, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let document = folder.join("bench.pdf");
    std::fs::write(&document, pdf::make()).map_err(|error| error.to_string())?;
    Ok(Bench { preload: build_preload()?, document, counters: folder.join("bench-counters") })
}

fn build_preload() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("no target folder")?;
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "-p", "faultless-refpage-preload", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    Ok(target.join("release/libfaultless_refpage_preload.so"))
}

impl Bench {
    fn spawn(&self, mode: Mode, more: &[(&str, &Path)]) -> Result<Child, String> {
        let mut command = Command::new("pdftoppm");
        command.arg(&self.document).stdout(Stdio::null()).stderr(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FAULTLESS_") {
                command.env_remove(name);
            }
        }
        if mode != Mode::Plain {
            command.env("LD_PRELOAD", &self.preload);
        }
        match mode {
            Mode::Pass => drop(command.env("FAULTLESS_LARGE", "pass")),
            Mode::Memset => drop(command.env("FAULTLESS_LARGE", "fill")),
            Mode::Plain | Mode::Refpage => {}
        }
        command.envs(more.iter().copied()).spawn().map_err(|error| error.to_string())
    }

    fn run(&self, mode: Mode) -> Result<Run, String> {
        let at = Instant::now();
        let child = self.spawn(mode, &[])?;
        let (mut status, pid) = (0, child.id() as i32);
        // SAFETY: all bytes zero is a `rusage`; the call fills both.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::wait4(pid, &mut status, 0, &mut usage);
            usage
        };
        let time_ms = at.elapsed().as_secs_f64() * 1e3;
        if status != 0 {
            return Err(format!("pdftoppm failed ({}, status {status:#x})", mode.name()));
        }
        let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
        Ok(Run {
            time_ms,
            cpu_ms: ms(usage.ru_utime) + ms(usage.ru_stime),
            max_rss_kib: usage.ru_maxrss as f64,
            faults: usage.ru_minflt as f64,
        })
    }

    /// Watches a run and returns its largest proportional size, in KiB.
    fn largest_size(&self, mode: Mode) -> Result<f64, String> {
        let mut child = self.spawn(mode, &[])?;
        let rollup = format!("/proc/{}/smaps_rollup", child.id());
        let mut largest = 0.0_f64;
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            let text = std::fs::read_to_string(&rollup).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            let size = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            largest = largest.max(size.unwrap_or(0.0));
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(largest)
    }

    fn count(&self) -> Result<Counters, String> {
        let _ = std::fs::remove_file(&self.counters);
        let mut child = self.spawn(Mode::Refpage, &[("FAULTLESS_STATS", &self.counters)])?;
        child.wait().map_err(|error| error.to_string())?;
        let text = std::fs::read_to_string(&self.counters).map_err(|error| error.to_string())?;
        let number = |name: &str| {
            let word = text.split_whitespace().find_map(|word| word.strip_prefix(name));
            word.and_then(|word| word.parse().ok()).ok_or(format!("no {name} in {text}"))
        };
        Ok(Counters {
            allocated_bytes: number("allocated_bytes=")?,
            patterned_bytes: number("patterned_bytes=")?,
            tile_bytes: number("tile_bytes=")?,
        })
    }
}

/// Prints the table.
pub(crate) fn print(plan: &Plan, measured: &Measured) {
    let head = ["variant", "n", "time ms", "CPU ms", "max RSS KiB", "max PSS KiB", "faults"];
    let both = measured.runs.iter().zip(&measured.sizes);
    let rows: Vec<_> = both.map(|((mode, runs), (_, sizes))| row(*mode, runs, sizes)).collect();
    let title = "pdftoppm on 12 slides, default threshold: median ±standard deviation";
    table::print(plan.format, title, &head, &rows);
    let Counters { allocated_bytes, patterned_bytes, tile_bytes } = measured.counters;
    println!(
        "patterned: {:.1} MiB of {:.1} MiB allocated ({:.1} %); memfd, in no mapping's size: {:.0} KiB\n",
        patterned_bytes / 1048576.0,
        allocated_bytes / 1048576.0,
        100.0 * patterned_bytes / allocated_bytes,
        tile_bytes / 1024.0,
    );
}

fn row(mode: Mode, runs: &[Run], sizes: &[f64]) -> Vec<String> {
    let spread = |number: fn(&Run) -> f64| table::spread(&runs.iter().map(number).collect::<Vec<_>>());
    vec![
        mode.name().to_owned(),
        runs.len().to_string(),
        spread(|run| run.time_ms),
        spread(|run| run.cpu_ms),
        spread(|run| run.max_rss_kib),
        format!("{} (n={})", table::spread(sizes), sizes.len()),
        spread(|run| run.faults),
    ]
}

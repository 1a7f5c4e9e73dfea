//! A process that does one trial, and what became of it.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use faultless_linux::space::{ProgressWatch, Stall, has_interrupt, pass_on};
use serde_json::Value;

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How long an interrupted process may take to end by itself.
const GRACE: Duration = Duration::from_secs(20);

/// What a trial's process is started with.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The arguments of this same program.
    pub arguments: Vec<String>,
    /// A process that has had CPUs for longer hangs, as one does that sleeps for so long ([`ProgressWatch`]).
    pub patience: Duration,
}

/// How a trial's process ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// With this report, and a success.
    Done(Value),
    /// With an exit code that says so.
    Failed {
        /// Its last words.
        words: String,
        /// What it reported all the same.
        report: Option<Value>,
    },
    /// By a signal.
    Killed(i32, String),
    /// Not at all: it was ended.
    Hung(Stall, String),
    /// Because of an interrupt, without a report.
    Interrupted,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(_) => write!(f, "done"),
            Self::Failed { words, .. } => write!(f, "{words}"),
            Self::Killed(signal, words) => write!(f, "ended by signal {signal}: {words}"),
            Self::Hung(stall, words) => write!(f, "{stall}: {words}"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

impl Trial {
    /// Runs the process to its end; an interrupt is passed on to it.
    ///
    /// # Errors
    /// If the process can't be started.
    pub fn run(&self) -> io::Result<End> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&self.arguments);
        awaited(command, self.patience)
    }
}

/// Runs a process to its end, or until it hangs.
fn awaited(mut command: Command, patience: Duration) -> io::Result<End> {
    command.env("RUST_BACKTRACE", "0").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (report, words) = (listener(child.stdout.take()), listener(child.stderr.take()));
    let (status, stall) = watched(&mut child, patience)?;
    let heard = |listener: JoinHandle<String>| listener.join().unwrap_or_default();
    let (report, words) = (heard(report), last_words(&heard(words)));
    Ok(match stall {
        Some(stall) => End::Hung(stall, words),
        None => ended(status, &report, words),
    })
}

/// Waits until a process has ended, or ends it; says why it had to be ended although nobody asked it to stop.
fn watched(child: &mut Child, patience: Duration) -> io::Result<(ExitStatus, Option<Stall>)> {
    let (mut watch, mut told) = (ProgressWatch::new(child.id(), patience), None::<Instant>);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, None));
        }
        if has_interrupt() && told.is_none() {
            told = Some(Instant::now());
            pass_on(child);
        }
        let stall = if told.is_none() { watch.look() } else { None };
        if stall.is_some() || told.is_some_and(|told| told.elapsed() >= GRACE) {
            child.kill()?;
            return Ok((child.wait()?, stall));
        }
        thread::sleep(LOOK);
    }
}

/// Returns the arguments of `check JUDGE` with these options.
pub(super) fn words<const N: usize>(judge: &str, options: [(&str, String); N]) -> Vec<String> {
    let named = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    ["check", judge].map(str::to_owned).into_iter().chain(named).collect()
}

/// Returns a duration as options take it.
pub(super) fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis().max(1))
}

fn ended(status: ExitStatus, report: &str, words: String) -> End {
    match (status.signal(), serde_json::from_str(report)) {
        (Some(signal), _) => End::Killed(signal, words),
        (None, Ok(report)) if status.success() => End::Done(report),
        (None, _) if has_interrupt() => End::Interrupted,
        (None, report) => End::Failed { words, report: report.ok() },
    }
}

fn listener(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        // What was heard before an error counts.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Returns what a process said before it ended: the first panic with what it says, or else its last line.
fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    match lines.iter().position(|line| line.contains("panicked at")) {
        Some(first) => {
            let said =
                lines[first..].iter().take_while(|line| !line.starts_with("note: ") && !line.starts_with("stack "));
            said.take(6).copied().collect::<Vec<_>>().join(" ")
        }
        None => lines.last().copied().unwrap_or("it said nothing").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a shell's script that may have CPUs for two seconds, and may sleep for as long.
    fn end_of(script: &str) -> End {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        awaited(command, Duration::from_secs(2)).expect("a shell")
    }

    fn silent_failure() -> End {
        End::Failed { words: "it said nothing".into(), report: None }
    }

    #[test]
    fn who_spins_or_sleeps_without_an_end_hangs() {
        assert!(matches!(end_of("while :; do :; done"), End::Hung(Stall::Busy(_), _)));
        assert!(matches!(end_of("exec sleep 600"), End::Hung(Stall::Asleep(_), _)));
    }

    #[test]
    fn who_waits_for_a_child_that_works_does_not_hang() {
        let works = "for i in 1 2 3 4 5 6; do timeout 0.1 sh -c 'while :; do :; done'; sleep 0.5; done";
        assert_eq!(end_of(&format!("({works}) & wait; exit 3")), silent_failure());
    }

    #[test]
    fn who_is_stopped_does_not_hang() {
        let stopped = "(sleep 6; kill -CONT $$) & kill -STOP $$; wait; exit 3";
        assert_eq!(end_of(stopped), silent_failure());
    }

    #[test]
    fn the_first_panic_is_what_a_process_died_of() {
        let text = "begun\nthread 'a' panicked at x.rs:1:2:\nleft 1, right 2\nnote: run with\nthread 'b' panicked at y";
        assert_eq!(last_words(text), "thread 'a' panicked at x.rs:1:2: left 1, right 2");
        assert_eq!(last_words("one\n\ntwo\n"), "two");
        assert_eq!(last_words(""), "it said nothing");
    }

    #[test]
    fn a_signal_a_code_and_a_report_without_success_are_told_apart() {
        let said = || "said".to_owned();
        assert_eq!(ended(ExitStatus::from_raw(11), "{}", said()), End::Killed(11, said()));
        let failed = |report| End::Failed { words: said(), report };
        assert_eq!(ended(ExitStatus::from_raw(1 << 8), "{}", said()), failed(Some(serde_json::json!({}))));
        assert_eq!(ended(ExitStatus::from_raw(0), "", said()), failed(None));
        assert_eq!(ended(ExitStatus::from_raw(0), "{}", said()), End::Done(serde_json::json!({})));
    }
}

//! What is said of a run that failed: who, where, when, under which seed.
//!
//! # Guarantee
//! The words are the same for the same machine, program and seed: no address is in them.

use super::record::{NO_CPU, Thread, Wait};
use super::state::{Engine, with};
use std::any::Any;
use std::cell::Cell;
use std::fmt::Write;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

/// Threads that a report on a deadlock lists.
const MOST_LISTED: usize = 64;

thread_local! {
    /// Whether panics on this OS thread are somebody's to report.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics of simulated threads, and those under [`Quiet`], from being printed twice: they are told by their run.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_told = with(|engine| engine.note_panic(info)).is_some();
            if !is_told && !IS_QUIET.get() {
                before(info);
            }
        }));
    });
}

/// While it lives, the panic that ends a run isn't printed: its holder reports it.
pub(crate) struct Quiet(bool);

impl Quiet {
    pub(crate) fn new() -> Self {
        install_hook();
        Self(IS_QUIET.replace(true))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.set(self.0);
    }
}

/// Returns the words of a panic.
pub(crate) fn words_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

/// Ends the process: threads that should unwind wait for each other.
pub(super) fn give_up(message: &str) -> ! {
    eprintln!("error: {message}\nerror: the threads could not be ended; giving up");
    std::process::exit(1)
}

impl Engine {
    fn note_panic(&mut self, info: &PanicHookInfo<'_>) {
        let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        self.last_panic = Some(format!("{}{place}", words_of(info.payload())));
        self.thread().is_unwinding = true;
    }

    /// Says who failed, where and when.
    pub(super) fn told(&mut self, index: u32, words: &str) -> String {
        let words = self.last_panic.take().unwrap_or_else(|| words.to_owned());
        let thread = &self.threads[index as usize];
        let cpu = match thread.last_cpu {
            NO_CPU => "before it had a simulated CPU".to_owned(),
            cpu => format!("on simulated CPU {cpu}"),
        };
        let (number, place) = (thread.number, self.place());
        format!("thread {number} panicked {cpu} ({place}): {words}")
    }

    fn place(&self) -> String {
        let (us, ns) = (self.clock / 1_000_000, self.clock / 1000 % 1000);
        format!("at {us}.{ns:03} us, machine {}, {} CPUs, seed {}", self.machine, self.cpus.len(), self.seed)
    }

    /// Says who waits for what.
    pub(super) fn deadlock(&self) -> String {
        let mut report = format!("deadlock ({}): nobody can run", self.place());
        let waiting = self.threads.iter().filter(|thread| !thread.is_done);
        for thread in waiting.clone().take(MOST_LISTED) {
            let cpu = if thread.cpu == NO_CPU { "no CPU".to_owned() } else { format!("CPU {}", thread.cpu) };
            let what = self.awaited(thread);
            let since = thread.since / 1000;
            // Writing to a string cannot fail.
            let _ = write!(report, "\n  thread {} on {cpu} {what}, since {since} ns", thread.number);
        }
        let more = waiting.count().saturating_sub(MOST_LISTED);
        if more > 0 {
            let _ = write!(report, "\n  and {more} more threads");
        }
        report
    }

    fn awaited(&self, thread: &Thread) -> String {
        match thread.wait {
            Wait::Turn => "runs".to_owned(),
            Wait::Slot => "waits for a CPU".to_owned(),
            Wait::Guest(cpu) => format!("waits until CPU {cpu} leaves guest"),
            Wait::Sleep => format!("sleeps until a word {} is woken", self.line_of(thread.word)),
            Wait::Spin if thread.watched.is_empty() => "spins on a condition that reads nothing".to_owned(),
            Wait::Spin => {
                let mut watched = thread.watched.clone();
                watched.sort_unstable_by_key(|&line| self.lines.number(line));
                let lines: Vec<String> = watched.into_iter().map(|line| self.described(line)).collect();
                format!("spins until a write to {}", lines.join(" or "))
            }
        }
    }

    fn line_of(&self, word: usize) -> String {
        self.lines
            .find(word)
            .map_or("of a line never touched".to_owned(), |line| format!("of {}", self.described(line)))
    }

    fn described(&self, line: u32) -> String {
        let number = self.lines.number(line);
        match self.lines.tail(line) {
            super::lines::NOBODY => format!("line {number}"),
            cpu => format!("line {number} (last taken by CPU {cpu})"),
        }
    }
}

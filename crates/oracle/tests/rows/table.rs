//! Rows as text, run on the kernel and on the VM.
//!
//! A row is a list of steps, `what is done => what comes of it`. Steps are written as the oracle writes them, with `@3`
//! for the window's page 3, `@3+0x10` for an address inside it, and `#2` for the length of two pages. What comes is a
//! number or an address, `ok` for 0, an error's name, `byte 5` for the byte that `store .. 5` stores, `file 0x10` for
//! the file's byte there, `bits 10` for mincore's, `MAPERR @3`, `ACCERR @3`, `PKUERR @3` or `BUS @3` for a
//! signal, and a drawing for a `look`.

use faultless_oracle::kernel::{
    AreaSeen, Behind, Host, Outcome, PAGE, Room, Seen, Sequence, WINDOW, byte, errno_name, file_byte,
};
use faultless_oracle::{Bench, Checking};
use faultless_vm::registry::DESIGNS;
use std::fmt::Write;
use std::time::Duration;

/// The conditions of most rows: the superuser, with the usual limits.
pub const ROOT: &str = "root";
/// Somebody without rights.
pub const USER: &str = "user";

/// Runs a row on both sides.
///
/// # Panics
/// If either side answers a step otherwise than it is written.
pub fn row(conditions: &str, text: &str) {
    let steps: Vec<Step> = text.lines().filter(|line| !line.trim().is_empty()).map(Step::read).collect();
    let done: Vec<&str> = steps.iter().map(|step| step.done.as_str()).collect();
    let line = format!("{conditions}; {}", done.join("; "));
    let sequence: Sequence = line.parse().unwrap_or_else(|error| panic!("{error}\n{line}"));
    if !Host::can_be(sequence.user) {
        eprintln!("skipped: a row of the superuser's");
        return;
    }
    compare("the kernel", &steps, &on_kernel(&sequence));
    for design in DESIGNS {
        let mut bench = Bench::start(*design, sequence.user, Checking::EachOperation, sequence.ops.len())
            .expect("a process to judge by");
        let (outcomes, finding) = bench.compare(&sequence).expect("the process answers");
        compare("the kernel, beside a VM,", &steps, &outcomes);
        finding.unwrap_or_else(|finding| panic!("{design} differs from the kernel: {finding}\n{sequence}"));
    }
}

fn on_kernel(sequence: &Sequence) -> Vec<Outcome> {
    let mut host = Host::start(sequence.user, Room::default(), Duration::from_secs(20)).expect("a process to judge by");
    let mut answers = host.run(std::slice::from_ref(sequence)).expect("the process answers");
    answers.remove(0).unwrap_or_else(|why| panic!("{why}\n{sequence}")).outcomes
}

fn compare(side: &str, steps: &[Step], outcomes: &[Outcome]) {
    let mut report = String::new();
    let mut is_wrong = steps.len() != outcomes.len();
    for (step, outcome) in steps.iter().zip(outcomes) {
        let came = shown(outcome);
        let mark = if came == step.comes { ' ' } else { '!' };
        is_wrong |= mark == '!';
        let _ = writeln!(report, "{mark} {:<60} => {came}", step.done);
        if mark == '!' {
            let _ = writeln!(report, "  {:<60} written: {}", "", step.comes);
        }
    }
    assert!(!is_wrong, "{side} answers\n{report}");
}

/// A step: what is done, in the oracle's words, and what comes of it, as [`shown`] writes it.
struct Step {
    done: String,
    comes: String,
}

impl Step {
    fn read(line: &str) -> Self {
        let (done, comes) = line.split_once("=>").unwrap_or_else(|| panic!("a step without an end: {line}"));
        let words: Vec<String> = done.split_whitespace().map(|word| spelled(word, "w+")).collect();
        Self { done: words.join(" "), comes: expected(comes.trim()) }
    }
}

/// Replaces `@3+0x10` and `#2` by numbers; `window` is how an address in the window begins.
fn spelled(word: &str, window: &str) -> String {
    if let Some(pages) = word.strip_prefix('#') {
        return format!("{:#x}", number(pages) * PAGE);
    }
    let Some(place) = word.strip_prefix('@') else { return word.into() };
    let (page, bytes) = place.split_once('+').unwrap_or((place, "0"));
    format!("{window}{:#x}", number(page) * PAGE + number(bytes))
}

fn number(word: &str) -> u64 {
    let parsed = word.strip_prefix("0x").map_or_else(|| word.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.unwrap_or_else(|_| panic!("`{word}` is no number"))
}

/// Returns what is written as [`shown`] would write it.
fn expected(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["ok"] => value(0),
        ["byte", given] => value(byte(number(given) as u8).into()),
        ["file", offset] => value(file_byte(number(offset)).into()),
        ["bits", bits] => value(bits.bytes().enumerate().map(|(place, bit)| u64::from(bit == b'1') << place).sum()),
        ["MAPERR" | "ACCERR" | "PKUERR" | "BUS", place] => format!("{} {}", words[0], spelled(place, "w+")),
        [place] if place.starts_with('@') => value(WINDOW + number(&spelled(place, ""))),
        [digits] if digits.starts_with(|first: char| first.is_ascii_digit()) => value(number(digits)),
        _ => text.into(),
    }
}

fn value(value: u64) -> String {
    format!("{value:#x}")
}

/// Writes an outcome.
fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::NotRun => "not run".into(),
        Outcome::Value(number) => value(*number),
        Outcome::Errno(errno) => errno_name(*errno),
        Outcome::Signal(seen) => signal(seen),
        Outcome::List(areas) if areas.is_empty() => "nothing".into(),
        Outcome::List(areas) => areas.iter().map(drawing).collect::<Vec<_>>().join(" "),
    }
}

fn signal(seen: &Seen) -> String {
    let name = match (seen.signo, seen.code) {
        (libc::SIGSEGV, 1) => "MAPERR".into(),
        (libc::SIGSEGV, 2) => "ACCERR".into(),
        (libc::SIGSEGV, 4) => "PKUERR".into(),
        (libc::SIGBUS, 2) => "BUS".into(),
        _ => seen.name(),
    };
    format!("{name} w+{:#x}", seen.address.wrapping_sub(WINDOW))
}

/// Draws an area: its pages in the window, its rights, and its page in what stands behind it.
fn drawing(area: &AreaSeen) -> String {
    let page = |address: u64| (address - WINDOW) / PAGE;
    let letter = |bit, letter| if area.rights & bit != 0 { letter } else { '-' };
    let kind = if area.is_shared { 's' } else { 'p' };
    let rights: String = [letter(1, 'r'), letter(2, 'w'), letter(4, 'x'), kind].iter().collect();
    let offset = if area.behind == Behind::Anonymous { String::new() } else { format!("@{}", area.offset / PAGE) };
    format!("[{},{}){rights}{offset}", page(area.start), page(area.end))
}

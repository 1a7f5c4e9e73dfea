//! Orderings, taken away one at a time: what a model of a protocol is worth.
//!
//! # Guarantee
//! [`met`] says which promises the orderings of a piece of code make: each is an acquiring half, a releasing half, or
//! the total order of a fence, at a place in the source. [`without`] runs the code with one of them broken and all
//! others kept. A promise that can be broken without any model's notice is not needed, or not modelled. A place is
//! where a function calls that has no `track_caller` itself.
//!
//! All threads of a model are coroutines of one OS thread, which is where the choice is kept; it holds for that thread
//! alone.

use core::cell::RefCell;
use core::fmt;
use core::panic::Location;
use core::sync::atomic::Ordering;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// What an ordering promises beside the access itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// What comes later sees what the other side did before its release.
    Acquire,
    /// What came before is seen by whoever acquires.
    Release,
    /// All such fences have one order.
    Total,
}

/// Which of the orderings that an access is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The only one, or that of an exchange that succeeds.
    Whole,
    /// That of an exchange that fails.
    OnFailure,
    /// That of a fence.
    Fence,
}

/// A promise that an ordering makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Promise {
    /// The file, as the compiler was told.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1: an order within the line.
    pub column: u32,
    /// Which ordering of the access.
    pub part: Part,
    /// What it promises.
    pub half: Half,
}

/// What is done with promises.
enum Mode {
    Kept,
    Noted(Vec<Promise>),
    Broken { promise: Promise, is_met: bool },
}

std::thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Kept) };
}

/// Runs `act`, and returns what its orderings promise, by place.
pub fn met(act: impl FnOnce()) -> Vec<Promise> {
    match in_mode(Mode::Noted(Vec::new()), act) {
        Mode::Noted(mut promises) => {
            promises.sort();
            promises
        }
        _ => Vec::new(),
    }
}

/// Runs `act` with a promise broken; says whether `act` met it at all.
pub fn without(promise: Promise, act: impl FnOnce()) -> bool {
    matches!(in_mode(Mode::Broken { promise, is_met: false }, act), Mode::Broken { is_met: true, .. })
}

/// Runs `act` in a mode, and returns what became of that. Also after a panic the promises are kept again.
fn in_mode(mode: Mode, act: impl FnOnce()) -> Mode {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            MODE.set(Mode::Kept);
        }
    }
    MODE.set(mode);
    let _restore = Restore;
    act();
    MODE.replace(Mode::Kept)
}

/// Returns the ordering that an access gets that asks for `order`.
#[track_caller]
pub(super) fn access(part: Part, order: Ordering) -> Ordering {
    // ORDER: a value; Relaxed is what is left of one half without it.
    reduced(Location::caller(), part, order).unwrap_or(Ordering::Relaxed)
}

/// Returns the ordering of a fence that asks for `order`; none if nothing is left of it.
// ORDER: the caller's; it names the pair.
#[track_caller]
pub(super) fn fence(order: Ordering) -> Option<Ordering> {
    reduced(Location::caller(), Part::Fence, order)
}

fn reduced(place: &'static Location<'static>, part: Part, order: Ordering) -> Option<Ordering> {
    MODE.with_borrow_mut(|mode| match mode {
        Mode::Kept => Some(order),
        Mode::Noted(promises) => {
            for &half in halves(part, order) {
                if !promises.iter().any(|promise| promise.is_at(place, part, half)) {
                    promises.push(Promise::at(place, part, half));
                }
            }
            Some(order)
        }
        Mode::Broken { promise, is_met } if promise.is_at(place, part, promise.half) => {
            *is_met |= halves(part, order).contains(&promise.half);
            without_half(order, promise.half)
        }
        Mode::Broken { .. } => Some(order),
    })
}

fn halves(part: Part, order: Ordering) -> &'static [Half] {
    match order {
        // ORDER: here and below orderings are values: nothing is accessed.
        Ordering::Acquire => &[Half::Acquire],
        Ordering::Release => &[Half::Release],
        Ordering::SeqCst if part == Part::Fence => &[Half::Total],
        Ordering::AcqRel | Ordering::SeqCst => &[Half::Acquire, Half::Release],
        _ => &[],
    }
}

/// Nothing is left of one half without it.
fn without_half(order: Ordering, half: Half) -> Option<Ordering> {
    match (order, half) {
        // ORDER: as above.
        (Ordering::SeqCst, Half::Total) => Some(Ordering::AcqRel),
        (Ordering::AcqRel | Ordering::SeqCst, Half::Acquire) => Some(Ordering::Release),
        (Ordering::AcqRel | Ordering::SeqCst, Half::Release) => Some(Ordering::Acquire),
        (Ordering::Acquire, Half::Acquire) | (Ordering::Release, Half::Release) => None,
        // The place asks for several orderings, and this one makes no such promise.
        _ => Some(order),
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "Acquire",
            Self::Release => "Release",
            Self::Total => "SeqCst",
        })
    }
}

/// As it is read again by [`Promise::parse`].
impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, part, half } = self;
        write!(f, "{file}:{line}:{column}:{part:?}:{half:?}")
    }
}

impl Promise {
    fn at(place: &Location<'_>, part: Part, half: Half) -> Self {
        Self { file: place.file().into(), line: place.line(), column: place.column(), part, half }
    }

    fn is_at(&self, place: &Location<'_>, part: Part, half: Half) -> bool {
        let here = (place.line(), place.column(), part, half);
        (self.line, self.column, self.part, self.half) == here && self.file == place.file()
    }

    /// Reads what was written for another process; nothing if it is no promise.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(5, ':');
        let half = [Half::Acquire, Half::Release, Half::Total];
        let half = parts.next().and_then(|word| half.into_iter().find(|half| std::format!("{half:?}") == word))?;
        let part = [Part::Whole, Part::OnFailure, Part::Fence];
        let part = parts.next().and_then(|word| part.into_iter().find(|part| std::format!("{part:?}") == word))?;
        let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { file: parts.next()?.into(), line, column, part, half })
    }

    /// Names the place by the function that it stands in and what it does there; `root` is where the compiler's paths
    /// begin.
    ///
    /// The name outlives changes elsewhere in the file, which line numbers do not.
    pub fn name(&self, root: &Path) -> String {
        let text = std::fs::read_to_string(root.join(&self.file)).unwrap_or_default();
        let before: Vec<&str> = text.lines().take(self.line as usize).collect();
        let function = before.iter().rev().find_map(|line| function_name(line)).unwrap_or("?");
        let owner = before.iter().rev().find(|line| !line.is_empty() && !line.starts_with(' '));
        let owner = owner.and_then(|line| owner_name(line));
        let owner = owner.map(|name| std::format!("{name}::")).unwrap_or_default();
        let own = before.last().copied().unwrap_or_default();
        let method = own.get(self.column as usize - 1..).unwrap_or_default();
        let method = method.split('(').next().unwrap_or_default().rsplit(':').next().unwrap_or_default();
        let nth = nth_in_function(&before, method);
        let failing = if self.part == Part::OnFailure { " that fails" } else { "" };
        std::format!("{owner}{function}: {method}{failing}{nth} without {}", self.half)
    }
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_declared = before.trim_start().split(' ').all(|word| {
        word.is_empty() || word.starts_with("pub") || matches!(word, "unsafe" | "const" | "async" | "default")
    });
    is_declared.then(|| first_word(after))
}

/// Returns whose functions an `impl` has.
fn owner_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("unsafe ").unwrap_or(line).strip_prefix("impl")?;
    let named = match rest.split_once(" for ") {
        Some((_, named)) => named,
        None => behind_parameters(rest),
    };
    Some(first_word(named.trim_start()))
}

/// Skips `<...>`.
fn behind_parameters(text: &str) -> &str {
    let mut depth = 0;
    for (place, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text[place..].trim_start_matches('>');
        }
    }
    text
}

fn first_word(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default()
}

/// Returns ` 2` for the second use of a method in its function, and nothing for the first.
fn nth_in_function(before: &[&str], method: &str) -> String {
    let own = before.iter().rev().take_while(|line| function_name(line).is_none());
    let call = std::format!("{method}(");
    let nr = own.filter(|line| !line.trim_start().starts_with("//") && line.contains(&call)).count();
    if nr > 1 { std::format!(" {nr}") } else { String::new() }
}

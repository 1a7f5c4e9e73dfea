//! Arguments as words: `rw`, `private|anon|fixed`, `dontneed`, `w+0x3000`.
//!
//! # Guarantee
//! [`read`] gives back the number that [`print`] got, for every kind and number.

use std::fmt::Write;

use super::op::{File, Kind};
use super::zone::{WINDOW, WINDOW_BYTES};

/// A word and its number.
type Word = (&'static str, u64);

const RIGHTS: &[Word] =
    &[("r", 1), ("w", 2), ("x", 4), ("growsdown", libc::PROT_GROWSDOWN as u64), ("growsup", libc::PROT_GROWSUP as u64)];

/// `shared_validate` first: it is `shared` and `private` at once.
const MAP_FLAGS: &[Word] = &[
    ("shared_validate", libc::MAP_SHARED_VALIDATE as u64),
    ("shared", libc::MAP_SHARED as u64),
    ("private", libc::MAP_PRIVATE as u64),
    ("droppable", libc::MAP_DROPPABLE as u64),
    ("anon", libc::MAP_ANONYMOUS as u64),
    ("fixed", libc::MAP_FIXED as u64),
    ("fixed_noreplace", libc::MAP_FIXED_NOREPLACE as u64),
    ("growsdown", libc::MAP_GROWSDOWN as u64),
    ("locked", libc::MAP_LOCKED as u64),
    ("noreserve", libc::MAP_NORESERVE as u64),
    ("populate", libc::MAP_POPULATE as u64),
    ("nonblock", libc::MAP_NONBLOCK as u64),
    ("stack", libc::MAP_STACK as u64),
    ("sync", libc::MAP_SYNC as u64),
    ("denywrite", libc::MAP_DENYWRITE as u64),
    ("executable", libc::MAP_EXECUTABLE as u64),
];

const REMAP_FLAGS: &[Word] = &[
    ("maymove", libc::MREMAP_MAYMOVE as u64),
    ("fixed", libc::MREMAP_FIXED as u64),
    ("dontunmap", libc::MREMAP_DONTUNMAP as u64),
];

const ADVICE: &[Word] = &[
    ("normal", 0),
    ("random", 1),
    ("sequential", 2),
    ("willneed", 3),
    ("dontneed", 4),
    ("free", 8),
    ("remove", 9),
    ("dontfork", 10),
    ("dofork", 11),
    ("mergeable", 12),
    ("unmergeable", 13),
    ("hugepage", 14),
    ("nohugepage", 15),
    ("dontdump", 16),
    ("dodump", 17),
    ("wipeonfork", 18),
    ("keeponfork", 19),
    ("cold", 20),
    ("pageout", 21),
    ("populate_read", 22),
    ("populate_write", 23),
    ("dontneed_locked", 24),
    ("collapse", 25),
    ("hwpoison", 100),
    ("soft_offline", 101),
    ("guard_install", 102),
    ("guard_remove", 103),
];

const SYNC_FLAGS: &[Word] = &[("async", 1), ("invalidate", 2), ("sync", 4)];
const LOCK_FLAGS: &[Word] = &[("onfault", 1)];
const LOCK_ALL_FLAGS: &[Word] = &[("current", 1), ("future", 2), ("onfault", 4)];

/// How the numbers of a kind are written.
enum Shape {
    /// Words that are bits, joined by `|`.
    Bits(&'static [Word]),
    /// Letters that are bits, then such words.
    Letters(&'static [Word]),
    /// One word.
    One(&'static [Word]),
    /// A place in the window, or a number.
    Place,
    /// A file's name, or a number.
    File,
    /// A number.
    Number,
}

const fn shape(kind: Kind) -> Shape {
    match kind {
        Kind::Rights => Shape::Letters(RIGHTS),
        Kind::MapFlags => Shape::Bits(MAP_FLAGS),
        Kind::RemapFlags => Shape::Bits(REMAP_FLAGS),
        Kind::Advice => Shape::One(ADVICE),
        Kind::SyncFlags => Shape::Bits(SYNC_FLAGS),
        Kind::LockFlags => Shape::Bits(LOCK_FLAGS),
        Kind::LockAllFlags => Shape::Bits(LOCK_ALL_FLAGS),
        Kind::Address => Shape::Place,
        Kind::File => Shape::File,
        Kind::Length | Kind::Number => Shape::Number,
    }
}

/// Returns the name of an advice, if it has one.
pub fn advice_name(number: u64) -> Option<&'static str> {
    ADVICE.iter().find(|word| word.1 == number).map(|word| word.0)
}

/// Writes an argument.
pub(super) fn print(kind: Kind, number: u64, out: &mut String) {
    let named = |words: &[Word]| words.iter().find(|word| word.1 == number).map(|word| word.0);
    let written = match shape(kind) {
        Shape::Bits(words) => return print_bits(words, number, out),
        Shape::Letters(words) => return print_letters(words, number, out),
        Shape::One(words) => named(words),
        Shape::File => File::ALL.get(number as usize).map(|file| file.name()),
        // Places just outside are written as places too.
        Shape::Place if (WINDOW..=WINDOW + WINDOW_BYTES).contains(&number) => {
            let _ = write!(out, "w+{:#x}", number - WINDOW);
            return;
        }
        Shape::Place | Shape::Number => None,
    };
    match written {
        Some(word) => out.push_str(word),
        None => {
            let _ = write!(out, "{number:#x}");
        }
    }
}

fn print_bits(words: &[Word], number: u64, out: &mut String) {
    let (mut rest, before) = (number, out.len());
    for &(word, bits) in words.iter().filter(|word| word.1 != 0) {
        if rest & bits == bits {
            rest &= !bits;
            join(out, before, word);
        }
    }
    if rest != 0 || out.len() == before {
        join(out, before, &format!("{rest:#x}"));
    }
}

fn print_letters(words: &[Word], number: u64, out: &mut String) {
    let (letters, others) = words.split_at(3);
    if number & 7 == 0 && number != 0 {
        return print_bits(others, number, out);
    }
    if number == 0 {
        return out.push_str("none");
    }
    letters.iter().filter(|letter| number & letter.1 != 0).for_each(|letter| out.push_str(letter.0));
    if number & !7 != 0 {
        out.push('|');
        print_bits(others, number & !7, out);
    }
}

fn join(out: &mut String, before: usize, word: &str) {
    if out.len() > before && !out.ends_with('|') {
        out.push('|');
    }
    out.push_str(word);
}

/// Reads an argument; `None` if it is not one of its kind.
pub(super) fn read(kind: Kind, text: &str) -> Option<u64> {
    match shape(kind) {
        Shape::Bits(words) => text.split('|').try_fold(0, |sum, part| Some(sum | one_of(words, part)?)),
        Shape::Letters(words) => text.split('|').try_fold(0, |sum, part| Some(sum | rights(words, part)?)),
        Shape::One(words) => one_of(words, text),
        Shape::File => {
            let place = File::ALL.iter().position(|file| file.name() == text);
            place.map(|place| place as u64).or_else(|| number(text))
        }
        Shape::Place => match text.strip_prefix("w+") {
            Some(offset) => Some(WINDOW.wrapping_add(number(offset)?)),
            None => number(text),
        },
        Shape::Number => number(text),
    }
}

fn one_of(words: &[Word], text: &str) -> Option<u64> {
    words.iter().find(|word| word.0 == text).map(|word| word.1).or_else(|| number(text))
}

fn rights(words: &[Word], text: &str) -> Option<u64> {
    if text == "none" {
        return Some(0);
    }
    let letter = |name: char| words[..3].iter().find(|word| word.0.starts_with(name)).map(|word| word.1);
    one_of(words, text).or_else(|| text.chars().try_fold(0, |sum, name| Some(sum | letter(name)?)))
}

/// Reads a number, decimal or after `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 11] = [
        Kind::Address,
        Kind::Length,
        Kind::Rights,
        Kind::MapFlags,
        Kind::RemapFlags,
        Kind::Advice,
        Kind::SyncFlags,
        Kind::LockFlags,
        Kind::LockAllFlags,
        Kind::File,
        Kind::Number,
    ];

    fn printed(kind: Kind, number: u64) -> String {
        let mut out = String::new();
        print(kind, number, &mut out);
        out
    }

    #[test]
    fn every_number_reads_back() {
        let edges = [0, u64::MAX, WINDOW, WINDOW - 1, WINDOW + WINDOW_BYTES, u64::MAX << 12, 1 << 47];
        let numbers = (0..300).chain((0..64).map(|bit| 1 << bit)).chain(edges);
        for (kind, number) in numbers.flat_map(|number| KINDS.map(|kind| (kind, number))) {
            let text = printed(kind, number);
            assert_eq!(read(kind, &text), Some(number), "{kind:?} {number:#x} {text}");
            assert!(!text.contains([' ', ';', '#']), "{text}");
        }
    }

    #[test]
    fn what_is_common_is_written_in_words() {
        assert_eq!(printed(Kind::MapFlags, 0x32), "private|anon|fixed");
        assert_eq!(printed(Kind::MapFlags, 0x103), "shared_validate|growsdown");
        assert_eq!(printed(Kind::MapFlags, 0x28), "droppable|anon");
        assert_eq!(printed(Kind::Rights, 3), "rw");
        assert_eq!(printed(Kind::Rights, 0x0100_0001), "r|growsdown");
        assert_eq!(printed(Kind::Address, WINDOW + 0x3000), "w+0x3000");
        assert_eq!(read(Kind::Rights, "q"), None);
        assert_eq!(read(Kind::MapFlags, "fixed|"), None);
    }
}

//! Sequences: operations, and the conditions under which they run; one line of text.
//!
//! ```text
//! user lock=0x4000; mmap w+0x0 0x3000 rw private|anon|fixed - 0x0; store w+0x1000 0x5; t1 load w+0x1000; t2 munmap w+0x0 0x2000
//! ```
//!
//! # Guarantee
//! A sequence reads back from its line as it was.

use std::fmt;
use std::str::FromStr;

use super::op::{Call, Op};
use super::words;
use super::zone::Harm;

/// As whom a sequence runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum User {
    /// The superuser.
    Root,
    /// Somebody without rights.
    Nobody,
}

impl User {
    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Nobody => "user",
        }
    }
}

/// Limits of a sequence; `None` is the system's usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// RLIMIT_AS, beyond what the empty process uses.
    pub address_space: Option<u64>,
    /// RLIMIT_DATA, beyond what the empty process uses.
    pub data: Option<u64>,
    /// RLIMIT_MEMLOCK.
    pub locked: Option<u64>,
    /// RLIMIT_STACK.
    pub stack: Option<u64>,
}

impl Bounds {
    /// The words of the four, in order.
    const WORDS: [&'static str; 4] = ["as=", "data=", "lock=", "stack="];

    fn places(&mut self) -> [&mut Option<u64>; 4] {
        [&mut self.address_space, &mut self.data, &mut self.locked, &mut self.stack]
    }
}

/// A sequence of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// As whom it runs.
    pub user: User,
    /// Under which limits.
    pub bounds: Bounds,
    /// What it does.
    pub ops: Vec<Op>,
}

impl Sequence {
    /// Returns the first operation that could reach memory of the process itself, and where.
    pub fn harmful(&self) -> Option<(usize, u64)> {
        self.ops.iter().enumerate().find_map(|(place, op)| match op.harm() {
            Harm::None => None,
            Harm::Reaches(address) => Some((place, address)),
        })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        if self.thread != 0 {
            text.push_str(&format!("t{} ", self.thread));
        }
        text.push_str(self.call.name());
        for (&(_, kind), &arg) in self.call.arguments().iter().zip(&self.args) {
            text.push(' ');
            words::print(kind, arg, &mut text);
        }
        out.write_str(&text)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.user.name())?;
        let mut bounds = self.bounds;
        for (word, bound) in Bounds::WORDS.iter().zip(bounds.places()) {
            if let Some(bytes) = bound {
                write!(out, " {word}{bytes:#x}")?;
            }
        }
        self.ops.iter().try_for_each(|op| write!(out, "; {op}"))
    }
}

/// A line that is no sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSequence {
    /// What could not be read.
    pub what: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for BadSequence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`: {}", self.what, self.why)
    }
}

impl std::error::Error for BadSequence {}

fn bad<T>(what: &str, why: impl Into<String>) -> Result<T, BadSequence> {
    Err(BadSequence { what: what.trim().to_owned(), why: why.into() })
}

impl FromStr for Op {
    type Err = BadSequence;

    fn from_str(text: &str) -> Result<Self, BadSequence> {
        let mut words = text.split_whitespace().peekable();
        let thread = words.peek().and_then(|word| word.strip_prefix('t')).and_then(|digits| digits.parse().ok());
        if thread.is_some() {
            words.next();
        }
        let Some(call) = words.next().and_then(Call::from_name) else {
            return bad(text, "no operation begins so");
        };
        let (names, given) = (call.arguments(), words.collect::<Vec<_>>());
        if given.len() != names.len() {
            return bad(text, format!("{} takes {} arguments, here are {}", call.name(), names.len(), given.len()));
        }
        let mut op = Op { call, thread: thread.unwrap_or(0), args: [0; 6] };
        for ((&(name, kind), word), arg) in names.iter().zip(&given).zip(&mut op.args) {
            match words::read(kind, word) {
                Some(number) => *arg = number,
                None => return bad(text, format!("`{word}` is no {kind:?} for {name}").to_lowercase()),
            }
        }
        Ok(op)
    }
}

impl FromStr for Sequence {
    type Err = BadSequence;

    fn from_str(text: &str) -> Result<Self, BadSequence> {
        let mut parts = text.trim().split(';');
        let (user, bounds) = conditions(parts.next().unwrap_or_default())?;
        let ops = parts.filter(|part| !part.trim().is_empty()).map(str::parse).collect::<Result<Vec<Op>, _>>()?;
        let sequence = Self { user, bounds, ops };
        match sequence.harmful() {
            None => Ok(sequence),
            Some((place, address)) => bad(
                &sequence.ops[place].to_string(),
                format!("this could reach {address:#x}, where the process that runs it lives"),
            ),
        }
    }
}

fn conditions(text: &str) -> Result<(User, Bounds), BadSequence> {
    let mut words = text.split_whitespace();
    let user = match words.next() {
        Some("root") => User::Root,
        Some("user") => User::Nobody,
        _ => return bad(text, "a sequence begins with `root` or `user`"),
    };
    let mut bounds = Bounds::default();
    for word in words {
        let place = Bounds::WORDS.iter().position(|name| word.starts_with(name));
        let read = place.and_then(|place| Some((place, words::number(&word[Bounds::WORDS[place].len()..])?)));
        let Some((place, bytes)) = read else {
            return bad(word, "a limit is written as=BYTES, data=BYTES, lock=BYTES or stack=BYTES");
        };
        *bounds.places()[place] = Some(bytes);
    }
    Ok((user, bounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "user lock=0x4000 stack=0x20000; mmap w+0x0 0x3000 rw private|anon|fixed - 0x0; store w+0x1000 0x5; \
                        t1 load w+0x1000; t2 munmap w+0x0 0x2000; madvise 0x7fffffffffffffff 0x1 guard_install";

    #[test]
    fn a_sequence_reads_back() {
        let sequence: Sequence = LINE.parse().expect("valid");
        assert_eq!(sequence.to_string(), LINE);
        assert_eq!((sequence.user, sequence.bounds.locked), (User::Nobody, Some(0x4000)));
        assert_eq!((sequence.ops[2].thread, sequence.ops[3].call), (1, Call::Munmap));
    }

    #[test]
    fn what_is_no_sequence_says_why() {
        let why = |line: &str| line.parse::<Sequence>().expect_err("no sequence").to_string();
        assert!(why("").contains("begins with"));
        assert!(why("root lock=x; look").contains("lock=BYTES"));
        assert!(why("root; mmmap 1").contains("no operation"));
        assert!(why("root; munmap w+0x0").contains("takes 2 arguments, here are 1"));
        assert!(why("root; munmap w+0x0 zz").contains("`zz` is no length for len"));
        assert!(why("root; munmap 0x400000 0x1000").contains("could reach 0x400000"));
    }

    #[test]
    fn a_length_that_wraps_when_mlock_rounds_it_is_a_short_one() {
        let reach = |call: &str| format!("root; {call} 0x7fffffffefff 0xffffffffffffffff").parse::<Sequence>();
        for call in ["mlock", "munlock"] {
            assert!(reach(call).expect_err("one page").to_string().contains("could reach 0x7fffffffe000"));
        }
        // Here the sum of length and offset is a multiple of 2^64, and there is no page; elsewhere such lengths are
        // refused.
        assert!("root; mlock 0x400001 0xffffffffffffffff".parse::<Sequence>().is_ok());
        assert!("root; msync 0x400000 0xffffffffffffffff 0x1".parse::<Sequence>().is_ok());
    }
}

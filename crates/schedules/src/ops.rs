//! The operations of small programs, as text: `W+s0+l1.1_f+x` is two threads, of which the first stores and loads, and
//! the second forks and lets the child end.
//!
//! | text | operation |
//! |---|---|
//! | `W` | the thread's TLB knows all pages when it begins |
//! | `l0`, `l0.1` | load word 0, or 1, of page 0 |
//! | `s0`, `s0.1` | store to it, a value that names thread and operation |
//! | `m0`, `m0-3` | map private anonymous memory, readable and writable, in place of what is there |
//! | `y0` | map page 0 by a hint; where something is, nothing is mapped and the answer is EEXIST |
//! | `q0-1`, `z0-1`, `j0-1` | the same of one reference page, of another, or of a pattern |
//! | `h` | drop the handle of the first reference page, and make another one |
//! | `i0` | pin page 0 to be read, and look at it |
//! | `o0`, `O0`, `Q0` | map the object's page 0: privately and writable, shared and readable, or shared and writable |
//! | `t2`, `t1.1` | make the object two pages long, or one page and one word |
//! | `p0-1` | punch a hole into the object |
//! | `R1`, `R1.1` | read word 0, or 1, of the object's page 1, without a mapping |
//! | `u0-3` | unmap |
//! | `n0-3`, `r0-3`, `w0-3` | take all rights, allow loads, allow loads and stores |
//! | `d0-3` | drop the pages (MADV_DONTNEED) |
//! | `F0-3`, `P0-3` | give the pages up until they are stored to (MADV_FREE); drop those given up (MADV_PAGEOUT) |
//! | `v0=3`, `V0=3` | move page 0 to page 3 (mremap); its place stays, and is fresh (MREMAP_DONTUNMAP) |
//! | `f`, `c0`, `x` | fork and look at the child; store in the newest child; end the oldest child |
//! | `k2` | store two pages below the stack's first page |
//! | `g` | wait until all that was deferred is freed |
//! | `e` | leave a second space that all threads share |
//! | `a` | go along all spaces and their areas |
//! | `A`, `B` | take a semaphore alone; and be put off the CPU meanwhile |
//! | `C`, `D` | share it; take it alone, be put off, and share it |

use std::fmt;

use faultless_explore::Random;

/// Pages from `first` to `last`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pages {
    /// The first.
    pub first: usize,
    /// The last.
    pub last: usize,
}

/// What untouched memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// Zeros.
    Zeros,
    /// What the first reference page holds.
    First,
    /// What the second reference page holds.
    Second,
    /// A pattern, without a page.
    Pattern,
}

impl Start {
    /// Returns the words that programs use.
    pub const fn word(self) -> u64 {
        match self {
            Self::Zeros => 0,
            Self::First => 5001,
            Self::Second => 5002,
            Self::Pattern => 5003,
        }
    }

    const fn letter(self) -> char {
        match self {
            Self::Zeros => 'm',
            Self::First => 'q',
            Self::Second => 'z',
            Self::Pattern => 'j',
        }
    }
}

/// What an area allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Nothing.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Load a word of a page.
    Load(usize, usize),
    /// Store to a word of a page.
    Store(usize, usize),
    /// Map private anonymous memory.
    Map(Pages),
    /// Map a page of private anonymous memory by a hint, if nothing is there.
    MapHinted(usize),
    /// Map private memory that starts as something else than zeros.
    MapStarting(Pages, Start),
    /// Drop the handle of the first reference page, and make another one of the same content.
    Renew,
    /// Pin a page to be read, until everything is over.
    Pin(usize),
    /// Map the object's page privately and writable.
    MapPrivate(usize),
    /// Map the object's page shared and readable.
    MapShared(usize),
    /// Map the object's page shared and writable.
    MapWritable(usize),
    /// Change the object's length, in pages and words.
    Resize(usize, usize),
    /// Turn pages of the object into a hole.
    Punch(Pages),
    /// Read a word of a page of the object.
    Read(usize, usize),
    /// Unmap.
    Unmap(Pages),
    /// Change rights.
    Protect(Pages, Rights),
    /// Drop pages.
    DontNeed(Pages),
    /// Give pages up until they are stored to.
    Free(Pages),
    /// Drop pages that were given up.
    PageOut(Pages),
    /// Move a page to another place.
    Move(usize, usize),
    /// Move a page to another place; the old one stays mapped, and fresh.
    MoveContent(usize, usize),
    /// Fork, and look at all of the child.
    Fork,
    /// Store to a page of the newest child.
    ChildStore(usize),
    /// End the oldest child, after a look whether it is as it was.
    ChildEnd,
    /// Store below the stack.
    Grow(usize),
    /// Wait until what was deferred is freed.
    Grace,
    /// Leave a second space that all threads share.
    Exit,
    /// Go along all spaces and their areas.
    List,
    /// Take the semaphore that stands by itself alone.
    Own,
    /// Take it alone, and be put off the CPU meanwhile.
    OwnOff,
    /// Share it.
    Share,
    /// Take it alone, be put off the CPU, and share it.
    OwnOffAndShare,
    /// Look at all pages when everything is over.
    Look,
}

/// What one thread does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Part {
    /// Whether its TLB is filled before it begins.
    pub is_warm: bool,
    /// Its operations.
    pub ops: Vec<Op>,
}

/// What all threads do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Program {
    /// Thread by thread.
    pub parts: Vec<Part>,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |word: usize| if word == 0 { String::new() } else { format!(".{word}") };
        match *self {
            Op::Load(page, at) => write!(f, "l{page}{}", word(at)),
            Op::Store(page, at) => write!(f, "s{page}{}", word(at)),
            Op::Map(pages) => write!(f, "m{pages}"),
            Op::MapHinted(page) => write!(f, "y{page}"),
            Op::MapStarting(pages, start) => write!(f, "{}{pages}", start.letter()),
            Op::Renew => f.write_str("h"),
            Op::Pin(page) => write!(f, "i{page}"),
            Op::MapPrivate(page) => write!(f, "o{page}"),
            Op::MapShared(page) => write!(f, "O{page}"),
            Op::MapWritable(page) => write!(f, "Q{page}"),
            Op::Resize(pages, words) => write!(f, "t{pages}{}", word(words)),
            Op::Punch(pages) => write!(f, "p{pages}"),
            Op::Read(page, at) => write!(f, "R{page}{}", word(at)),
            Op::Free(pages) => write!(f, "F{pages}"),
            Op::PageOut(pages) => write!(f, "P{pages}"),
            Op::Unmap(pages) => write!(f, "u{pages}"),
            Op::Protect(pages, Rights::None) => write!(f, "n{pages}"),
            Op::Protect(pages, Rights::Read) => write!(f, "r{pages}"),
            Op::Protect(pages, Rights::Write) => write!(f, "w{pages}"),
            Op::DontNeed(pages) => write!(f, "d{pages}"),
            Op::Move(from, to) => write!(f, "v{from}={to}"),
            Op::MoveContent(from, to) => write!(f, "V{from}={to}"),
            Op::Fork => f.write_str("f"),
            Op::ChildStore(page) => write!(f, "c{page}"),
            Op::ChildEnd => f.write_str("x"),
            Op::Grow(depth) => write!(f, "k{depth}"),
            Op::Grace => f.write_str("g"),
            Op::Exit => f.write_str("e"),
            Op::List => f.write_str("a"),
            Op::Own => f.write_str("A"),
            Op::OwnOff => f.write_str("B"),
            Op::Share => f.write_str("C"),
            Op::OwnOffAndShare => f.write_str("D"),
            Op::Look => f.write_str("at the end"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warm = self.is_warm.then(|| "W".to_owned());
        let all: Vec<String> = warm.into_iter().chain(self.ops.iter().map(Op::to_string)).collect();
        f.write_str(&all.join("+"))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.parts.iter().map(Part::to_string).collect();
        f.write_str(&all.join("_"))
    }
}

/// Reads an operation; nothing if it is none.
fn parse_op(text: &str) -> Option<Op> {
    let (letter, rest) = text.split_at_checked(1)?;
    let number = |text: &str| text.parse::<usize>().ok();
    let place = || match rest.split_once('.') {
        Some((page, word)) => Some((number(page)?, number(word)?)),
        None => Some((number(rest)?, 0)),
    };
    let pages = || match rest.split_once('-') {
        Some((first, last)) => Some(Pages { first: number(first)?, last: number(last)? }),
        None => number(rest).map(|page| Pages { first: page, last: page }),
    };
    let pages = || pages().filter(|pages| pages.first <= pages.last);
    let way = || rest.split_once('=').and_then(|(from, to)| Some((number(from)?, number(to)?)));
    match (letter, rest) {
        ("f", "") => Some(Op::Fork),
        ("x", "") => Some(Op::ChildEnd),
        ("g", "") => Some(Op::Grace),
        ("e", "") => Some(Op::Exit),
        ("a", "") => Some(Op::List),
        ("A", "") => Some(Op::Own),
        ("B", "") => Some(Op::OwnOff),
        ("C", "") => Some(Op::Share),
        ("D", "") => Some(Op::OwnOffAndShare),
        ("h", "") => Some(Op::Renew),
        ("q", _) => pages().map(|pages| Op::MapStarting(pages, Start::First)),
        ("z", _) => pages().map(|pages| Op::MapStarting(pages, Start::Second)),
        ("j", _) => pages().map(|pages| Op::MapStarting(pages, Start::Pattern)),
        ("i", _) => number(rest).map(Op::Pin),
        ("l", _) => place().map(|(page, word)| Op::Load(page, word)),
        ("s", _) => place().map(|(page, word)| Op::Store(page, word)),
        ("m", _) => pages().map(Op::Map),
        ("y", _) => number(rest).map(Op::MapHinted),
        ("o", _) => number(rest).map(Op::MapPrivate),
        ("O", _) => number(rest).map(Op::MapShared),
        ("Q", _) => number(rest).map(Op::MapWritable),
        ("t", _) => place().map(|(pages, words)| Op::Resize(pages, words)),
        ("p", _) => pages().map(Op::Punch),
        ("R", _) => place().map(|(page, word)| Op::Read(page, word)),
        ("F", _) => pages().map(Op::Free),
        ("P", _) => pages().map(Op::PageOut),
        ("u", _) => pages().map(Op::Unmap),
        ("n", _) => pages().map(|pages| Op::Protect(pages, Rights::None)),
        ("r", _) => pages().map(|pages| Op::Protect(pages, Rights::Read)),
        ("w", _) => pages().map(|pages| Op::Protect(pages, Rights::Write)),
        ("d", _) => pages().map(Op::DontNeed),
        ("v", _) => way().map(|(from, to)| Op::Move(from, to)),
        ("V", _) => way().map(|(from, to)| Op::MoveContent(from, to)),
        ("c", _) => number(rest).map(Op::ChildStore),
        ("k", _) => number(rest).map(Op::Grow),
        _ => None,
    }
}

/// Reads one thread's part; the error is the operation that is none.
pub fn parse_part(text: &str) -> Result<Part, String> {
    let mut part = Part::default();
    for word in text.split('+').filter(|word| !word.is_empty()) {
        match word {
            "W" => part.is_warm = true,
            _ => part.ops.push(parse_op(word).ok_or_else(|| word.to_owned())?),
        }
    }
    Ok(part)
}

/// Reads a program; the error is the operation that is none.
pub fn parse_program(text: &str) -> Result<Program, String> {
    let parts: Result<Vec<Part>, String> = text.split('_').map(parse_part).collect();
    Ok(Program { parts: parts? })
}

impl Op {
    /// Returns the largest page that the operation names, among those of the window.
    pub fn last_page(&self) -> usize {
        match *self {
            Op::Load(page, _) | Op::Store(page, _) | Op::MapPrivate(page) | Op::MapShared(page) => page,
            Op::MapWritable(page) | Op::ChildStore(page) | Op::Pin(page) | Op::MapHinted(page) => page,
            Op::MapStarting(pages, _) => pages.last,
            Op::Map(pages) | Op::Unmap(pages) | Op::Protect(pages, _) | Op::DontNeed(pages) => pages.last,
            Op::Free(pages) | Op::PageOut(pages) => pages.last,
            Op::Move(from, to) | Op::MoveContent(from, to) => from.max(to),
            Op::Resize(..) | Op::Punch(_) | Op::Read(..) => 0,
            Op::Fork | Op::ChildEnd | Op::Grow(_) | Op::Grace | Op::Exit | Op::List | Op::Look | Op::Renew => 0,
            Op::Own | Op::OwnOff | Op::Share | Op::OwnOffAndShare => 0,
        }
    }

    /// Returns the first page behind those that the operation names of the object itself.
    pub fn object_end(&self) -> usize {
        match *self {
            Op::Resize(pages, words) => pages + usize::from(words != 0),
            Op::Punch(pages) => pages.last + 1,
            Op::Read(page, _) => page + 1,
            _ => 0,
        }
    }

    /// Says whether children see it, so that they are not as they were.
    pub fn is_seen_by_children(&self) -> bool {
        matches!(self, Op::Resize(..) | Op::Punch(_) | Op::MapWritable(_))
    }

    /// Returns the word that it accesses.
    pub fn word(&self) -> usize {
        match *self {
            Op::Load(_, word) | Op::Store(_, word) | Op::Read(_, word) | Op::Resize(_, word) => word,
            _ => 0,
        }
    }
}

/// Draws a program for the first two threads of `menus`, or for all; `warmth` has the chances in four of a filled TLB.
pub fn draw(random: &mut Random, menus: &[Vec<Op>], warmth: &[u64]) -> Program {
    const MAX_OPS: u64 = 4;
    let nr_threads = if random.one_in(3) { 2 } else { menus.len() };
    let part = |random: &mut Random, menu: &[Op], warmth: u64| Part {
        is_warm: random.below(4) < warmth,
        // Short ones are more likely: fewer steps between those that matter.
        ops: (0..1 + random.below(MAX_OPS).min(random.below(MAX_OPS))).map(|_| *random.one_of(menu)).collect(),
    };
    Program {
        parts: menus.iter().zip(warmth).take(nr_threads).map(|(menu, &warmth)| part(random, menu, warmth)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_it_is_written() {
        let text = "W+l0+l0.1+s3.2+m0-3+o1+O2+Q3+u0+n0-1_r0+w1-2+d0-3+F0+P0-1+v0=3+V2=0_f+c0+x+k2+g+e+a+A+B+C+D+t2+t1.1+p0-1+R1.1+q0-1+z2+j1+h+i1+y3";
        let program = parse_program(text).expect("all of them are operations");
        assert_eq!(program.to_string(), text);
        assert_eq!(program.parts.len(), 3);
        assert!(program.parts[0].is_warm && !program.parts[1].is_warm);
    }

    #[test]
    fn what_is_no_operation_is_named() {
        for (text, word) in
            [("l0+y", "y"), ("y0-1", "y0-1"), ("l", "l"), ("u3-1", "u3-1"), ("f_v1", "v1"), ("f1", "f1"), ("é", "é")]
        {
            assert_eq!(parse_program(text), Err(word.to_owned()));
        }
    }
}

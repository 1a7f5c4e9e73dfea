//! A plain model of memory: what each operation does, alone.
//!
//! # What is one step
//! Every operation is one, but for those that Linux does not promise to be. MADV_DONTNEED drops page by page; from then until
//! it returns some CPUs may go on using the old content while others use the new. A moved page can be reached at its new place
//! before the old one is gone.

use super::ops::{Op, Pages, Rights};

/// Words of a page that programs use.
pub const WORDS: usize = 2;
/// What the object holds: page and word tell.
pub const fn object_word(page: usize, word: usize) -> u64 {
    7000 + 10 * page as u64 + word as u64
}

/// Why an access or a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Nothing is mapped there.
    NotMapped,
    /// The area's rights forbid it.
    Forbidden,
    /// A frame is mapped as often as its count can hold.
    Saturated,
    /// Something else, by Linux's number.
    Errno(i32),
}

/// What a page looks like to a program.
pub type Look = Result<[u64; WORDS], Refusal>;

/// What an operation answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It was done.
    Done,
    /// It loaded this.
    Value(u64),
    /// It was refused.
    Refused(Refusal),
    /// It saw these pages.
    Seen(Vec<Look>),
}

/// What stands behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Backing {
    Anonymous,
    Private(usize),
    Shared(usize),
}

/// A page that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Mapped {
    rights: Rights,
    backing: Backing,
    /// Which content.
    cell: usize,
    /// Content that was dropped, and that some CPU may still use.
    stale: Option<usize>,
}

/// Which part of an operation happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// All of it.
    Whole,
    /// It drops one page.
    Drop(usize),
    /// Nobody uses what was dropped there any more.
    Gone(usize),
    /// Its answer.
    Answer,
    /// All of it, on content that was dropped.
    OnStale,
    /// The page appears at its new place.
    Arrival,
    /// It is gone from the old one.
    Departure,
}

/// Memory at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pages: Vec<Option<Mapped>>,
    cells: Vec<[u64; WORDS]>,
    object_pages: usize,
    /// How far the stack reaches below its first page.
    stack_depth: usize,
    /// How far it may.
    stack_limit: usize,
}

/// Says whether two looks agree on all pages but those that no frame could count.
fn is_same_but_for_room(expected: &Answer, answer: &Answer) -> bool {
    let (Answer::Seen(expected), Answer::Seen(seen)) = (expected, answer) else { return false };
    let agree = |(expected, seen): (&Look, &Look)| expected == seen || *seen == Err(Refusal::Saturated);
    expected.iter().zip(seen).all(agree)
}

impl State {
    /// Returns a window of pages of which none is mapped, and a stack that may reach down `stack_limit` pages.
    ///
    /// Mappings of an object repeat its `object_pages`.
    pub fn new(nr_pages: usize, object_pages: usize, stack_limit: usize) -> Self {
        Self { pages: vec![None; nr_pages], cells: Vec::new(), object_pages, stack_depth: 0, stack_limit }
    }

    /// Lets a moment of an operation happen; says whether `answer` is what it would answer then.
    pub fn happen(&mut self, op: Op, moment: Moment, value: u64, answer: &Answer) -> bool {
        let expected = match moment {
            Moment::Whole => self.whole(op, value),
            Moment::Drop(page) => {
                self.refresh(page);
                return true;
            }
            Moment::Gone(page) => {
                self.pages[page].iter_mut().for_each(|mapped| mapped.stale = None);
                return true;
            }
            Moment::OnStale => return self.on_stale(op, value, answer),
            Moment::Answer => self.unless_hole(op),
            Moment::Arrival => return self.arrive(op),
            Moment::Departure => {
                self.depart(op);
                return true;
            }
        };
        expected == *answer || op == Op::Look && is_same_but_for_room(&expected, answer)
    }

    fn whole(&mut self, op: Op, value: u64) -> Answer {
        match op {
            Op::Load(page, word) => self.look(page).map_or_else(Answer::Refused, |words| Answer::Value(words[word])),
            Op::Store(page, word) => self.store(page, word, value),
            Op::Map(pages) => self.map(pages, Rights::Write, |_| Backing::Anonymous),
            Op::MapPrivate(page) => self.map(Pages { first: page, last: page }, Rights::Write, Backing::Private),
            Op::MapShared(page) => self.map(Pages { first: page, last: page }, Rights::Read, Backing::Shared),
            Op::Unmap(pages) => {
                self.pages[pages.first..=pages.last].fill(None);
                Answer::Done
            }
            Op::Protect(pages, rights) => self.protect(pages, rights),
            Op::Move(from, _) | Op::MoveContent(from, _) if self.pages[from].is_none() => {
                Answer::Refused(Refusal::Errno(14))
            }
            Op::Fork | Op::Look => Answer::Seen(self.see()),
            Op::Grow(depth) => self.grow(depth),
            Op::Move(..)
            | Op::MoveContent(..)
            | Op::DontNeed(_)
            | Op::ChildStore(_)
            | Op::ChildEnd
            | Op::Grace
            | Op::Exit => Answer::Done,
        }
    }

    /// Returns what a program sees of all pages.
    pub fn see(&self) -> Vec<Look> {
        (0..self.pages.len()).map(|page| self.look(page)).collect()
    }

    fn look(&self, page: usize) -> Look {
        let mapped = self.pages[page].ok_or(Refusal::NotMapped)?;
        if mapped.rights == Rights::None { Err(Refusal::Forbidden) } else { Ok(self.cells[mapped.cell]) }
    }

    fn store(&mut self, page: usize, word: usize, value: u64) -> Answer {
        match self.pages[page] {
            None => Answer::Refused(Refusal::NotMapped),
            Some(mapped) if mapped.rights != Rights::Write => Answer::Refused(Refusal::Forbidden),
            Some(mapped) => {
                self.cells[mapped.cell][word] = value;
                Answer::Done
            }
        }
    }

    fn map(&mut self, pages: Pages, rights: Rights, backing: impl Fn(usize) -> Backing) -> Answer {
        for page in pages.first..=pages.last {
            let cell = self.fresh_cell(backing(page));
            self.pages[page] = Some(Mapped { rights, backing: backing(page), cell, stale: None });
        }
        Answer::Done
    }

    fn fresh_cell(&mut self, backing: Backing) -> usize {
        let content = match backing {
            Backing::Anonymous => [0; WORDS],
            Backing::Private(page) | Backing::Shared(page) => {
                std::array::from_fn(|word| object_word(page % self.object_pages, word))
            }
        };
        self.cells.push(content);
        self.cells.len() - 1
    }

    fn protect(&mut self, pages: Pages, rights: Rights) -> Answer {
        for page in pages.first..=pages.last {
            match &mut self.pages[page] {
                Some(mapped) => mapped.rights = rights,
                None => return Answer::Refused(Refusal::Errno(12)),
            }
        }
        Answer::Done
    }

    /// Drops a page: what is read there next is fresh.
    fn refresh(&mut self, page: usize) {
        if let Some(mapped) = self.pages[page] {
            let cell = self.fresh_cell(mapped.backing);
            self.pages[page] = Some(Mapped { cell, stale: Some(mapped.cell), ..mapped });
        }
    }

    /// An access by a CPU that still uses what was dropped; says whether there is any.
    fn on_stale(&mut self, op: Op, value: u64, answer: &Answer) -> bool {
        let (Op::Load(page, word) | Op::Store(page, word)) = op else { return false };
        let Some(cell) = self.pages[page].and_then(|mapped| mapped.stale) else { return false };
        if matches!(op, Op::Store(..)) {
            self.cells[cell][word] = value;
            return *answer == Answer::Done;
        }
        *answer == Answer::Value(self.cells[cell][word])
    }

    fn unless_hole(&self, op: Op) -> Answer {
        let Op::DontNeed(pages) = op else { return Answer::Done };
        let has_hole = self.pages[pages.first..=pages.last].contains(&None);
        if has_hole { Answer::Refused(Refusal::Errno(12)) } else { Answer::Done }
    }

    fn arrive(&mut self, op: Op) -> bool {
        let (Op::Move(from, to) | Op::MoveContent(from, to)) = op else { return false };
        self.pages[to] = self.pages[from];
        self.pages[from].is_some()
    }

    fn depart(&mut self, op: Op) {
        match op {
            Op::Move(from, _) => self.pages[from] = None,
            Op::MoveContent(from, _) => {
                self.refresh(from);
                self.pages[from].iter_mut().for_each(|mapped| mapped.stale = None);
            }
            _ => {}
        }
    }

    fn grow(&mut self, depth: usize) -> Answer {
        if depth > self.stack_depth && depth > self.stack_limit {
            return Answer::Refused(Refusal::NotMapped);
        }
        self.stack_depth = self.stack_depth.max(depth);
        Answer::Done
    }

    /// Numbers the contents anew, so that states that look the same are equal.
    pub fn tidy(&mut self) {
        let (mut order, mut cells) = (Vec::new(), Vec::new());
        let mut place = |old: usize| {
            order.iter().position(|&cell| cell == old).unwrap_or_else(|| {
                order.push(old);
                cells.push(self.cells[old]);
                cells.len() - 1
            })
        };
        for mapped in self.pages.iter_mut().flatten() {
            mapped.cell = place(mapped.cell);
            mapped.stale = mapped.stale.map(&mut place);
        }
        self.cells = cells;
    }
}

//! A plain model of memory: what each operation does, alone.
//!
//! # What is one step
//! Every operation is one, but for those that Linux does not promise to be:
//! * MADV_DONTNEED drops page by page; from then until it returns some CPUs may go on using the old content while
//!   others use the new. The old one may be a file's, and the new one a copy that a store made since.
//! * A moved page can be reached at its new place before the old one is gone.
//! * What a truncation or a hole takes away can be used until the call returns, and a private store meanwhile may copy
//!   it; a page that the source refuses may be refused until then. Two of them come one after the other.
//! * A pin takes hold of a page, and what it holds is looked at later: stores to a frame of the page's own show, and
//!   those that made a copy do not.
//! * A store beside MADV_FREE may be part of what is given up; one behind it saves the page. MADV_PAGEOUT need not drop
//!   what was given up, and until it returns some CPUs may go on reading it.

use super::ops::{Op, Pages, Rights, Start};

/// Words of a page that programs use.
pub const WORDS: usize = 2;

/// What the object's source has: page and word tell.
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
    /// The object has no page there, or its source does not give it.
    NoPage,
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
    /// With what untouched pages hold.
    Anonymous(Start),
    Private(usize),
    Shared(usize),
}

impl Backing {
    fn object_page(self) -> Option<usize> {
        match self {
            Backing::Anonymous(_) => None,
            Backing::Private(page) | Backing::Shared(page) => Some(page),
        }
    }
}

/// Whether MADV_FREE gave a page up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GivenUp {
    No,
    /// The call has not returned: a store may go with the page.
    Soon,
    /// Until the next store.
    Yes,
}

/// A page that is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mapped {
    rights: Rights,
    backing: Backing,
    /// The content that is the mapping's own; without any it is the object's.
    own: Option<usize>,
    given_up: GivenUp,
    /// Content that was taken away, and that some CPU may still use.
    leaving: Vec<Leaving>,
}

impl Mapped {
    /// Returns the word that untouched pages hold, of memory of its own.
    fn untouched(&self) -> Option<u64> {
        if let Backing::Anonymous(start) = self.backing { Some(start.word()) } else { None }
    }
}

/// Content that some CPU may still use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Leaving {
    content: Content,
    way: Way,
}

/// Where content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Content {
    /// In a cell: a mapping's own, or what an object had.
    Cell(usize),
    /// In that page of the object, which a private mapping showed: nobody can store to it there.
    Object(usize),
    /// Nowhere: the object's source refuses it.
    Refused,
}

/// How content was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    /// By advice about the mapping.
    Dropped,
    /// By MADV_PAGEOUT, after MADV_FREE had returned: a store would have saved it.
    PagedOut,
    /// With the object's page.
    CutOff,
}

/// A page of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ObjectPage {
    words: [u64; WORDS],
    /// Its source does not give it.
    is_broken: bool,
}

const ZEROS: ObjectPage = ObjectPage { words: [0; WORDS], is_broken: false };

/// A truncation or hole under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Change {
    /// Moments that are to come.
    nr_left: u8,
    /// Whether the last page's end becomes zeros.
    zeroes_tail: bool,
}

/// Which part of an operation happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// All of it.
    Whole,
    /// All of a store, which saves a page that is just being given up.
    Rescue,
    /// All of it, on content that was taken away: the n-th that may still be used there.
    OnLeaving(usize),
    /// It drops one page.
    Drop(usize),
    /// It gives one page up.
    GiveUp(usize),
    /// Stores to it save the page from now on.
    Settle(usize),
    /// It drops one page that was given up.
    Out(usize),
    /// It leaves that page.
    Kept(usize),
    /// Nobody uses what was dropped there any more.
    Gone(usize),
    /// Its answer.
    Answer,
    /// The object's pages go.
    Cut,
    /// Nobody uses them any more.
    Uncovered,
    /// The end of the object's last page becomes zeros.
    Tail,
    /// The page appears at its new place.
    Arrival,
    /// It is gone from the old one.
    Departure,
    /// A pin holds what the page shows.
    Hold,
    /// A look at what it holds.
    LookAtHeld,
}

/// Returns the moments of an operation that answered so, in an order that is possible, and of each the one that comes
/// before it.
pub fn moments_of(op: Op, answer: &Answer) -> Vec<(Moment, Option<usize>)> {
    match (op, answer) {
        // Refused without an effect, for want of room in a count.
        (_, Answer::Refused(Refusal::Saturated)) => Vec::new(),
        (Op::ChildStore(_) | Op::ChildEnd | Op::Grace | Op::Exit | Op::List, _) => Vec::new(),
        (Op::Own | Op::OwnOff | Op::Share | Op::OwnOffAndShare, _) => Vec::new(),
        (Op::DontNeed(pages), _) => page_by_page(pages, Moment::Drop, Moment::Gone),
        (Op::Free(pages), _) => page_by_page(pages, Moment::GiveUp, Moment::Settle),
        (Op::PageOut(pages), _) => page_by_page(pages, Moment::Out, Moment::Gone),
        (Op::Move(..) | Op::MoveContent(..), Answer::Done) => {
            vec![(Moment::Arrival, None), (Moment::Departure, Some(0))]
        }
        (Op::Resize(..), _) => vec![(Moment::Cut, None), (Moment::Uncovered, Some(0)), (Moment::Tail, Some(0))],
        (Op::Punch(_), _) => vec![(Moment::Cut, None), (Moment::Uncovered, Some(0))],
        (Op::Pin(_), Answer::Value(_)) => vec![(Moment::Hold, None), (Moment::LookAtHeld, Some(0))],
        _ => vec![(Moment::Whole, None)],
    }
}

/// Two moments of each page, and the answer.
fn page_by_page(pages: Pages, first: fn(usize) -> Moment, second: fn(usize) -> Moment) -> Vec<(Moment, Option<usize>)> {
    let both = |(number, page)| [(first(page), None), (second(page), Some(2 * number))];
    let all = (pages.first..=pages.last).enumerate().flat_map(both);
    all.chain([(Moment::Answer, None)]).collect()
}

/// What a pin holds that was not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    page: usize,
    /// The first word when it was pinned.
    word: u64,
    /// The page's own content then, which stores may have changed since.
    cell: Option<usize>,
}

/// Memory at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pages: Vec<Option<Mapped>>,
    cells: Vec<[u64; WORDS]>,
    /// Pages that mappings repeat.
    object_pages: usize,
    object: Vec<ObjectPage>,
    /// The object's length, in pages and words.
    size: (usize, usize),
    change: Option<Change>,
    /// Pages of the object that are going, and the cell of their content; none if their source refuses them.
    object_leaving: Vec<(usize, Option<usize>)>,
    held: Vec<Held>,
    /// Whether children are as they were when they were made.
    has_still_children: bool,
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
        let content =
            |page| ObjectPage { words: std::array::from_fn(|word| object_word(page, word)), is_broken: false };
        Self {
            pages: vec![None; nr_pages],
            cells: Vec::new(),
            object_pages,
            object: (0..object_pages.min(nr_pages)).map(content).collect(),
            size: (usize::MAX, 0),
            change: None,
            object_leaving: Vec::new(),
            held: Vec::new(),
            has_still_children: true,
            stack_depth: 0,
            stack_limit,
        }
    }

    /// Lets the source refuse a page.
    pub fn with_broken_page(mut self, page: usize) -> Self {
        self.object[page].is_broken = true;
        self
    }

    /// Lets children see what is done to the object, so that a fork shows nothing.
    pub fn with_changing_children(mut self) -> Self {
        self.has_still_children = false;
        self
    }

    /// Lets an operation happen alone; returns its answer.
    pub fn happen_alone(&mut self, op: Op, value: u64) -> Answer {
        let moments = moments_of(op, &Answer::Done);
        moments.into_iter().fold(Answer::Done, |answer, (moment, _)| self.step(op, moment, value).unwrap_or(answer))
    }

    /// Lets a moment of an operation happen; says whether it can, and `answer` is what it would answer then.
    pub fn happen(&mut self, op: Op, moment: Moment, value: u64, answer: &Answer) -> bool {
        match moment {
            Moment::OnLeaving(number) => self.on_leaving(op, number, value).as_ref() == Some(answer),
            Moment::Cut if self.change.is_some() => false,
            Moment::Arrival => self.step(op, moment, value).is_none(),
            Moment::Hold => self.hold(op),
            Moment::LookAtHeld => self.look_at_held(op, answer),
            _ => match self.step(op, moment, value) {
                None => true,
                Some(expected) => expected == *answer || op == Op::Look && is_same_but_for_room(&expected, answer),
            },
        }
    }

    /// Lets a moment happen; returns what the operation answers then, if it is that moment which decides it.
    fn step(&mut self, op: Op, moment: Moment, value: u64) -> Option<Answer> {
        match moment {
            Moment::Whole => return Some(self.whole(op, value)),
            Moment::Rescue => return Some(self.rescue(op, value)),
            Moment::Answer => return Some(self.unless_hole(op)),
            Moment::Arrival => return self.arrive(op),
            Moment::Drop(page) => self.drop_page(page, Way::Dropped),
            Moment::GiveUp(page) => self.give_up(page, GivenUp::Soon),
            Moment::Settle(page) => self.give_up(page, GivenUp::Yes),
            Moment::Out(page) => self.page_out(page),
            Moment::Gone(page) => self.forget_dropped(page),
            Moment::Cut => self.cut(op),
            Moment::Uncovered => self.uncover(op),
            Moment::Tail => self.zero_tail(op),
            Moment::Departure => self.depart(op),
            Moment::Kept(_) | Moment::OnLeaving(_) | Moment::Hold | Moment::LookAtHeld => {}
        }
        None
    }

    fn whole(&mut self, op: Op, value: u64) -> Answer {
        match op {
            Op::Load(page, word) => self.look(page).map_or_else(Answer::Refused, |words| Answer::Value(words[word])),
            Op::Store(page, word) => self.store(page, word, value),
            Op::Map(pages) => self.map(pages, Rights::Write, |_| Backing::Anonymous(Start::Zeros)),
            Op::MapHinted(page) if self.pages[page].is_some() => Answer::Refused(Refusal::Errno(17)),
            Op::MapHinted(page) => {
                self.map(Pages { first: page, last: page }, Rights::Write, |_| Backing::Anonymous(Start::Zeros))
            }
            Op::MapStarting(pages, start) => self.map(pages, Rights::Write, |_| Backing::Anonymous(start)),
            Op::Pin(page) => self.pin(page),
            Op::MapPrivate(page) => self.map_object(page, Rights::Write, Backing::Private),
            Op::MapShared(page) => self.map_object(page, Rights::Read, Backing::Shared),
            Op::MapWritable(page) => self.map_object(page, Rights::Write, Backing::Shared),
            Op::Unmap(pages) => {
                self.pages[pages.first..=pages.last].fill(None);
                Answer::Done
            }
            Op::Protect(pages, rights) => self.protect(pages, rights),
            Op::Move(from, _) | Op::MoveContent(from, _) if self.pages[from].is_none() => {
                Answer::Refused(Refusal::Errno(14))
            }
            Op::Fork if !self.has_still_children => Answer::Done,
            Op::Fork | Op::Look => Answer::Seen(self.see()),
            Op::Grow(depth) => self.grow(depth),
            Op::Read(page, word) => self.read(page, word),
            _ => Answer::Done,
        }
    }

    /// Returns what a program sees of all pages.
    pub fn see(&self) -> Vec<Look> {
        (0..self.pages.len()).map(|page| self.look(page)).collect()
    }

    fn look(&self, page: usize) -> Look {
        let mapped = self.pages[page].as_ref().ok_or(Refusal::NotMapped)?;
        if mapped.rights == Rights::None { Err(Refusal::Forbidden) } else { self.content(mapped) }
    }

    fn content(&self, mapped: &Mapped) -> Look {
        match (mapped.own, mapped.backing.object_page()) {
            (Some(cell), _) => Ok(self.cells[cell]),
            (None, Some(page)) => self.object_content(page),
            (None, None) => Ok([mapped.untouched().unwrap_or(0); WORDS]),
        }
    }

    fn object_content(&self, page: usize) -> Look {
        let is_there = page < self.end() && !self.object[page].is_broken;
        if is_there { Ok(self.object[page].words) } else { Err(Refusal::NoPage) }
    }

    /// Returns the first page that the object has nothing of.
    fn end(&self) -> usize {
        self.size.0.saturating_add(usize::from(self.size.1 != 0))
    }

    fn read(&self, page: usize, word: usize) -> Answer {
        match self.object_content(page) {
            Ok(words) => Answer::Value(words[word]),
            Err(_) if page < self.end() => Answer::Refused(Refusal::Errno(5)),
            Err(_) => Answer::Refused(Refusal::Errno(22)),
        }
    }

    /// A pin finds what a load finds; what it can't have is a bad address.
    fn pin(&self, page: usize) -> Answer {
        self.look(page).map_or(Answer::Refused(Refusal::Errno(14)), |words| Answer::Value(words[0]))
    }

    /// Pins a page; says whether it can be pinned.
    fn hold(&mut self, op: Op) -> bool {
        let Op::Pin(page) = op else { return false };
        let Ok(words) = self.look(page) else { return false };
        let cell = self.pages[page].as_ref().and_then(|mapped| mapped.own);
        self.held.push(Held { page, word: words[0], cell });
        true
    }

    /// Says whether a pin of the page can show this.
    fn look_at_held(&mut self, op: Op, answer: &Answer) -> bool {
        let (Op::Pin(page), Answer::Value(value)) = (op, answer) else { return false };
        let is_as_it_was = |held: &Held| held.page == page && held.word == *value;
        let is_as_it_is =
            |held: &Held| held.page == page && held.cell.is_some_and(|cell| self.cells[cell][0] == *value);
        let shown = self.held.iter().position(is_as_it_was).or_else(|| self.held.iter().position(is_as_it_is));
        shown.map(|place| self.held.remove(place)).is_some()
    }

    fn store(&mut self, page: usize, word: usize, value: u64) -> Answer {
        let Some(mapped) = &self.pages[page] else { return Answer::Refused(Refusal::NotMapped) };
        if mapped.rights != Rights::Write {
            return Answer::Refused(Refusal::Forbidden);
        }
        let mut words = match self.content(mapped) {
            Ok(words) => words,
            Err(refusal) => return Answer::Refused(refusal),
        };
        words[word] = value;
        match (mapped.backing, mapped.own) {
            (Backing::Shared(page), _) => self.object[page].words = words,
            (_, Some(cell)) => self.cells[cell] = words,
            (_, None) => self.copy_to(page, words),
        }
        if let Some(mapped) = self.pages[page].as_mut().filter(|mapped| mapped.given_up == GivenUp::Yes) {
            mapped.given_up = GivenUp::No;
        }
        Answer::Done
    }

    /// A store that no call beside it takes away.
    fn rescue(&mut self, op: Op, value: u64) -> Answer {
        let answer = self.whole(op, value);
        if let (Op::Store(page, _), Answer::Done) = (op, &answer) {
            self.give_up(page, GivenUp::No);
        }
        answer
    }

    /// Gives a page content of its own.
    fn copy_to(&mut self, page: usize, words: [u64; WORDS]) {
        self.cells.push(words);
        let own = Some(self.cells.len() - 1);
        self.pages[page].iter_mut().for_each(|mapped| mapped.own = own);
    }

    fn map_object(&mut self, page: usize, rights: Rights, backing: fn(usize) -> Backing) -> Answer {
        let object_page = page % self.object_pages;
        self.map(Pages { first: page, last: page }, rights, |_| backing(object_page))
    }

    fn map(&mut self, pages: Pages, rights: Rights, backing: impl Fn(usize) -> Backing) -> Answer {
        for page in pages.first..=pages.last {
            let backing = backing(page);
            self.pages[page] = Some(Mapped { rights, backing, own: None, given_up: GivenUp::No, leaving: Vec::new() });
            if let Backing::Anonymous(start) = backing {
                self.copy_to(page, [start.word(); WORDS]);
            }
        }
        Answer::Done
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

    /// Drops a page: what is read there next is fresh, or the object's.
    fn drop_page(&mut self, page: usize, way: Way) {
        let Some(mapped) = &mut self.pages[page] else { return };
        mapped.given_up = GivenUp::No;
        let untouched = mapped.untouched();
        let content = match (mapped.own.take(), mapped.backing) {
            (Some(cell), _) => Some(Content::Cell(cell)),
            (None, Backing::Private(page)) => Some(Content::Object(page)),
            (None, _) => None,
        };
        mapped.leaving.extend(content.map(|content| Leaving { content, way }));
        if let Some(word) = untouched {
            self.copy_to(page, [word; WORDS]);
        }
    }

    fn forget_dropped(&mut self, page: usize) {
        self.pages[page].iter_mut().for_each(|mapped| mapped.leaving.retain(|leaving| leaving.way == Way::CutOff));
    }

    /// Changes whether a page is given up, if it is one that can be.
    fn give_up(&mut self, page: usize, given_up: GivenUp) {
        let Some(mapped) = &mut self.pages[page] else { return };
        let is_kept = given_up == GivenUp::Yes && mapped.given_up == GivenUp::No;
        if mapped.untouched().is_some() && !is_kept {
            mapped.given_up = given_up;
        }
    }

    fn page_out(&mut self, page: usize) {
        match self.pages[page].as_ref().map(|mapped| mapped.given_up) {
            Some(GivenUp::Soon) => self.drop_page(page, Way::Dropped),
            Some(GivenUp::Yes) => self.drop_page(page, Way::PagedOut),
            Some(GivenUp::No) | None => {}
        }
    }

    /// Returns how many contents an access may find that were taken away.
    pub fn nr_leaving(&self, op: Op) -> usize {
        match op {
            Op::Load(page, _) | Op::Store(page, _) => self.leaving(page).len(),
            Op::Read(page, _) => self.object_leaving.iter().filter(|&&(leaving, _)| leaving == page).count(),
            _ => 0,
        }
    }

    /// Returns what a program may find at a page although it was taken away: its own, then the object's.
    fn leaving(&self, page: usize) -> Vec<(Option<Way>, Content)> {
        let Some(mapped) = &self.pages[page] else { return Vec::new() };
        let own = mapped.leaving.iter().map(|leaving| (Some(leaving.way), leaving.content));
        let object_page = mapped.backing.object_page().filter(|_| mapped.own.is_none());
        let is_there = |&&(leaving, _): &&(usize, Option<usize>)| Some(leaving) == object_page;
        let content = |&(_, cell): &(usize, Option<usize>)| (None, cell.map_or(Content::Refused, Content::Cell));
        own.chain(self.object_leaving.iter().filter(is_there).map(content)).collect()
    }

    /// An access by a CPU that still uses what was taken away; nothing if there is no such thing.
    fn on_leaving(&mut self, op: Op, number: usize, value: u64) -> Option<Answer> {
        match op {
            Op::Load(page, word) => {
                let words = match self.leaving(page).get(number)?.1 {
                    Content::Cell(cell) => self.cells[cell],
                    Content::Object(page) => self.object_content(page).ok()?,
                    Content::Refused => return Some(Answer::Refused(Refusal::NoPage)),
                };
                Some(Answer::Value(words[word]))
            }
            Op::Read(page, word) => {
                let mut there = self.object_leaving.iter().filter(|&&(leaving, _)| leaving == page);
                there.nth(number).map(|&(_, cell)| match cell {
                    Some(cell) => Answer::Value(self.cells[cell][word]),
                    None => Answer::Refused(Refusal::Errno(5)),
                })
            }
            Op::Store(page, word) => self.store_to_leaving(page, word, number, value),
            _ => None,
        }
    }

    fn store_to_leaving(&mut self, page: usize, word: usize, number: usize, value: u64) -> Option<Answer> {
        let (way, cell) = match *self.leaving(page).get(number)? {
            (way, Content::Cell(cell)) => (way, cell),
            (_, Content::Refused) => return Some(Answer::Refused(Refusal::NoPage)),
            (_, Content::Object(_)) => return None,
        };
        let mapped = self.pages[page].as_ref()?;
        match (way, mapped.backing) {
            (Some(Way::PagedOut), _) => return None,
            (None, _) if mapped.rights != Rights::Write => return None,
            // A copy of what is going.
            (None, Backing::Private(_)) => {
                let mut words = self.cells[cell];
                words[word] = value;
                self.copy_to(page, words);
            }
            _ => self.cells[cell][word] = value,
        }
        Some(Answer::Done)
    }

    /// Takes pages away from the object, if nobody else is about to; where it ends, also what was copied from it.
    fn cut(&mut self, op: Op) {
        let old_end = self.end();
        let zeroes_tail = match op {
            Op::Resize(pages, words) => {
                let is_no_longer = (pages, words) <= self.size;
                self.size = (pages, words);
                is_no_longer
            }
            _ => false,
        };
        let nr_left = if matches!(op, Op::Resize(..)) { 2 } else { 1 };
        self.change = Some(Change { nr_left, zeroes_tail });
        for page in self.covered(op) {
            if page < old_end && self.object[page].is_broken {
                self.object_leaving.push((page, None));
            } else if page < old_end {
                self.cells.push(self.object[page].words);
                let cell = self.cells.len() - 1;
                self.object_leaving.push((page, Some(cell)));
                let leaving = self.pages.iter_mut().flatten().flat_map(|mapped| &mut mapped.leaving);
                leaving
                    .filter(|leaving| leaving.content == Content::Object(page))
                    .for_each(|leaving| leaving.content = Content::Cell(cell));
            }
            self.object[page] = ZEROS;
        }
        if matches!(op, Op::Resize(..)) {
            self.for_each_mapping(op, |mapped| {
                let own = mapped.own.take();
                mapped.leaving.extend(own.map(|cell| Leaving { content: Content::Cell(cell), way: Way::CutOff }));
            });
        }
    }

    /// Returns the pages that an operation takes away from the object.
    fn covered(&self, op: Op) -> std::ops::Range<usize> {
        let len = self.object.len();
        match op {
            Op::Punch(pages) => pages.first.min(len)..(pages.last + 1).min(len),
            _ => op.object_end().min(len)..len,
        }
    }

    fn for_each_mapping(&mut self, op: Op, act: impl Fn(&mut Mapped)) {
        let covered = self.covered(op);
        let is_covered =
            |mapped: &&mut Mapped| mapped.backing.object_page().is_some_and(|page| covered.contains(&page));
        self.pages.iter_mut().flatten().filter(is_covered).for_each(act);
    }

    fn uncover(&mut self, op: Op) {
        self.object_leaving.clear();
        if matches!(op, Op::Resize(..)) {
            self.for_each_mapping(op, |mapped| {
                mapped.own = None;
                mapped.leaving.clear();
            });
        }
        self.end_moment();
    }

    fn zero_tail(&mut self, op: Op) {
        let Op::Resize(pages, words) = op else { return };
        let is_due = words != 0 && self.change.is_some_and(|change| change.zeroes_tail);
        if let Some(page) = self.object.get_mut(pages).filter(|_| is_due) {
            page.words[words..].fill(0);
        }
        self.end_moment();
    }

    fn end_moment(&mut self) {
        let left = self.change.map(|change| Change { nr_left: change.nr_left - 1, ..change });
        self.change = left.filter(|change| change.nr_left != 0);
    }

    fn unless_hole(&self, op: Op) -> Answer {
        let (Op::DontNeed(pages) | Op::Free(pages) | Op::PageOut(pages)) = op else { return Answer::Done };
        let has_hole = self.pages[pages.first..=pages.last].contains(&None);
        if has_hole { Answer::Refused(Refusal::Errno(12)) } else { Answer::Done }
    }

    /// Lets a page appear at its new place; the answer if there is none.
    fn arrive(&mut self, op: Op) -> Option<Answer> {
        let (Op::Move(from, to) | Op::MoveContent(from, to)) = op else { return None };
        self.pages[to] = self.pages[from].clone();
        self.pages[from].is_none().then_some(Answer::Refused(Refusal::Errno(14)))
    }

    fn depart(&mut self, op: Op) {
        match op {
            Op::Move(from, _) => self.pages[from] = None,
            Op::MoveContent(from, _) => {
                self.drop_page(from, Way::Dropped);
                self.pages[from].iter_mut().for_each(|mapped| mapped.leaving.clear());
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
            mapped.own = mapped.own.map(&mut place);
            for leaving in &mut mapped.leaving {
                if let Content::Cell(cell) = &mut leaving.content {
                    *cell = place(*cell);
                }
            }
        }
        self.object_leaving.iter_mut().for_each(|(_, cell)| *cell = cell.map(&mut place));
        self.held.iter_mut().for_each(|held| held.cell = held.cell.map(&mut place));
        self.cells = cells;
    }
}

//! Where the time of threads goes: lines that other CPUs had, the memory bus, waits by what they are for.
//!
//! # Guarantee
//! * I1 time is counted from a thread's [`Event::WorkBegins`] to its [`Event::WorkEnds`], each part of it once: inside
//!   a wait all of it is the outermost wait's. What is left is work
//! * I2 counting takes no virtual time and draws no chance
//! * I3 a line counts under the name that it had; memory that is named anew is counted anew
//!
//! [`Event::WorkBegins`]: faultless_platform::Event::WorkBegins
//! [`Event::WorkEnds`]: faultless_platform::Event::WorkEnds

use super::lines::{Index, LineId, line_key, page_key};
use super::pending::Kind;
use super::record::NO_CPU;
use super::state::{Borrowed, Engine, IS_BORROWED, with};
use faultless_platform::Event;
use std::collections::BTreeMap;
use std::ops::Range;

/// What waits are for that are not for a lock.
pub mod waits {
    /// That a thread which is asleep is woken.
    pub const ASLEEP: &str = "sim:asleep";
    /// That another CPU writes what is looked at again and again.
    pub const SPINNING: &str = "sim:spinning";
    /// That other CPUs forget translations.
    pub const SHOOTDOWN: &str = "sim:shootdown";
    /// A CPU.
    pub const CPU: &str = "sim:cpu";
}

const LINE_BITS: u32 = 6;
const LINE_BYTES: usize = 1 << LINE_BITS;
const PAGE_BYTES: usize = 4096;

/// Where the time of threads went; times are sums over all of them, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// All of it.
    pub thread_ns: u64,
    /// Waits, by the name of the lock or of [`waits`]; the longest first.
    pub waits: Vec<(&'static str, u64)>,
    /// Lines that had to come from another CPU, outside waits, by name; those that took longest first.
    pub lines: Vec<NamedLines>,
    /// Waits for a memory bus that moves pages which came before.
    pub bus_ns: u64,
    /// Interrupts of other CPUs that were served.
    pub interrupted_ns: u64,
}

/// What the lines of a name cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedLines {
    /// The name; empty if nobody gave one.
    pub name: &'static str,
    /// All lines of that name.
    pub all: LineCost,
    /// The one that took longest.
    pub hottest: LineCost,
    /// How many CPUs wrote that one.
    pub hottest_writers: usize,
}

/// What lines cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCost {
    /// How often one had to come from another CPU.
    pub transfers: u64,
    /// How long that took, the queue for it included.
    pub wait_ns: u64,
}

/// What is known of a line's cost.
struct Entry {
    name: &'static str,
    transfers: u64,
    wait_ps: u64,
}

/// A name, and when it was given: of several the latest holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    turn: u64,
    name: &'static str,
}

/// The name of a page as a whole.
#[derive(Clone, Copy, Debug, Default)]
struct PageName {
    whole: Name,
    /// When a line of it got a name of its own.
    parts_turn: u64,
}

/// What memory is called.
struct Names {
    turn: u64,
    lines: Index,
    of_lines: Vec<Name>,
    pages: Index,
    of_pages: Vec<PageName>,
    /// What is longer than a page.
    long: Vec<(Range<usize>, Name)>,
}

impl Default for Names {
    fn default() -> Self {
        let (lines, pages) = (Index::new(), Index::new());
        Self { turn: 0, lines, of_lines: Vec::new(), pages, of_pages: Vec::new(), long: Vec::new() }
    }
}

/// The books of a machine.
#[derive(Default)]
pub(super) struct Books {
    thread_ps: u64,
    bus_ps: u64,
    interrupted_ps: u64,
    waits: BTreeMap<&'static str, u64>,
    entries: Vec<Entry>,
    /// Which CPUs wrote the line of an entry: so many words for each.
    writers: Vec<u64>,
    nr_words: usize,
    /// A line's entry, counted from 1; 0 for none.
    entry_of: Vec<u32>,
    names: Names,
}

/// A thread's books.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Book {
    /// Since when its time counts.
    since: Option<u64>,
    /// How many waits it is in.
    depth: u32,
    /// The outermost of them.
    wait: &'static str,
    wait_since: u64,
    /// What belongs to nothing that is measured.
    aside: u64,
}

/// Takes note of what a thread tells.
pub(crate) fn note(event: Event) {
    let _ = with(|engine| match event {
        Event::WaitBegins { name } => engine.begin_wait(name),
        Event::WaitEnds { aside_ns } => engine.end_wait(aside_ns.saturating_mul(1000)),
        Event::WorkBegins => engine.begin_work(),
        Event::WorkEnds => engine.end_work(),
        Event::Named { name, address, len_bytes } => engine.name(name, address, len_bytes),
        _ => {}
    });
}

/// Runs `act`, all of whose time is a wait for what `name` says.
pub(super) fn in_wait<R>(name: &'static str, act: impl FnOnce() -> R) -> R {
    with(|engine| engine.begin_wait(name));
    let result = act();
    with(|engine| engine.end_wait(0));
    result
}

impl Engine {
    fn begin_work(&mut self) {
        let clock = self.clock;
        self.thread().book = Book { since: Some(clock), ..Book::default() };
    }

    fn end_work(&mut self) {
        let clock = self.clock;
        let book = std::mem::take(&mut self.thread().book);
        if let Some(since) = book.since {
            self.books.thread_ps += clock.saturating_sub(since).saturating_sub(book.aside);
        }
    }

    fn begin_wait(&mut self, name: &'static str) {
        let clock = self.clock;
        let book = &mut self.thread().book;
        if book.depth == 0 {
            (book.wait, book.wait_since) = (name, clock);
        }
        book.depth += 1;
    }

    /// Ends a wait, of which `aside_ps` belong to nothing that is measured.
    fn end_wait(&mut self, aside_ps: u64) {
        let clock = self.clock;
        let book = &mut self.thread().book;
        book.depth = book.depth.saturating_sub(1);
        let Book { since, depth, wait, wait_since, .. } = *book;
        if depth == 0 && since.is_some() {
            let whole = clock.saturating_sub(wait_since);
            *self.books.waits.entry(wait).or_default() += whole.saturating_sub(aside_ps);
            // Taken off what `end_work` adds.
            self.thread().book.aside += aside_ps.min(whole);
        }
    }

    /// Says whether what the running thread does now counts by itself (I1).
    #[inline]
    fn is_counted(&self) -> bool {
        let book = &self.threads[self.current as usize].book;
        self.cpu != NO_CPU && book.depth == 0 && book.since.is_some()
    }

    /// Notes that a line had to come from another CPU, which the thread waited for until now.
    #[inline]
    pub(super) fn count_transfer(&mut self, id: LineId, address: usize, kind: Kind, since: u64) {
        if self.is_counted() {
            let wait_ps = self.clock.saturating_sub(since);
            let entry = self.entry(id, address);
            self.books.entries[entry].transfers += 1;
            self.books.entries[entry].wait_ps += wait_ps;
            if kind.is_write() {
                let word = entry * self.books.nr_words + usize::from(self.cpu) / 64;
                self.books.writers[word] |= 1 << (self.cpu % 64);
            }
        }
    }

    /// Notes how long the thread waited for a store of its own that was on its way.
    #[cold]
    pub(super) fn count_drain(&mut self, wait_ps: u64) {
        // It is called inside a step, and on the short way past it.
        let _borrowed = (!IS_BORROWED.get()).then(Borrowed::new);
        if self.is_counted()
            && let Some((id, address)) = self.here().drained_line
        {
            let entry = self.entry(id, address);
            self.books.entries[entry].wait_ps += wait_ps;
        }
    }

    /// Notes how long the thread waited for a memory bus.
    pub(super) fn count_bus(&mut self, wait_ps: u64) {
        if self.is_counted() {
            self.books.bus_ps += wait_ps;
        }
    }

    /// Notes what interrupts took from the thread.
    pub(super) fn count_interrupts(&mut self, wait_ps: u64) {
        if self.is_counted() {
            self.books.interrupted_ps += wait_ps;
        }
    }

    /// Returns the place of a line's entry, which is made if there is none.
    fn entry(&mut self, id: LineId, address: usize) -> usize {
        let nr_words = self.cpus.len().div_ceil(64);
        let books = &mut self.books;
        let id = id as usize;
        if books.entry_of.len() <= id {
            books.entry_of.resize(id + 1, 0);
        }
        if books.entry_of[id] == 0 {
            let name = books.names.of(address).name;
            books.nr_words = nr_words;
            books.entries.push(Entry { name, transfers: 0, wait_ps: 0 });
            books.writers.resize(books.entries.len() * nr_words, 0);
            books.entry_of[id] = books.entries.len() as u32;
        }
        books.entry_of[id] as usize - 1
    }

    /// Gives memory a name (I3).
    fn name(&mut self, name: &'static str, address: usize, len_bytes: usize) {
        if len_bytes == 0 {
            return;
        }
        let books = &mut self.books;
        books.names.turn += 1;
        let name = Name { turn: books.names.turn, name };
        if len_bytes > PAGE_BYTES {
            books.names.long.push((address..address + len_bytes, name));
        } else if len_bytes == PAGE_BYTES && address.is_multiple_of(PAGE_BYTES) {
            if books.names.name_page(address, name) {
                let touched = self.lines.touched_in_page(address);
                touched.for_each(|id| forget_entry(&mut books.entry_of, id));
            }
        } else {
            for line in (address >> LINE_BITS..(address + len_bytes).div_ceil(LINE_BYTES)).map(|line| line << LINE_BITS)
            {
                if books.names.name_line(line, name)
                    && let Some(id) = self.lines.find(line)
                {
                    forget_entry(&mut books.entry_of, id);
                }
            }
        }
    }
}

/// Lets a line's next transfer look for its name again.
fn forget_entry(entry_of: &mut [u32], id: LineId) {
    if let Some(entry) = entry_of.get_mut(id as usize) {
        *entry = 0;
    }
}

impl Names {
    /// Names a whole page; says whether that changes what a line of it is called.
    fn name_page(&mut self, address: usize, name: Name) -> bool {
        let page = self.page(address);
        let is_new = page.whole.name != name.name || page.parts_turn > page.whole.turn;
        page.whole = name;
        is_new
    }

    /// Names a line; says whether it was called otherwise.
    fn name_line(&mut self, address: usize, name: Name) -> bool {
        let before = self.of(address);
        if before.name == name.name {
            return false;
        }
        self.page(address).parts_turn = name.turn;
        match self.lines.find(line_key(address)) {
            Ok(place) => self.of_lines[place as usize] = name,
            Err(_) => {
                self.lines.insert(line_key(address), self.of_lines.len() as u32);
                self.of_lines.push(name);
            }
        }
        true
    }

    fn page(&mut self, address: usize) -> &mut PageName {
        let place = self.pages.find(page_key(address)).unwrap_or_else(|_| {
            let place = self.of_pages.len() as u32;
            self.of_pages.push(PageName::default());
            self.pages.insert(page_key(address), place);
            place
        });
        &mut self.of_pages[place as usize]
    }

    /// Returns what a line is called: by the latest name of it, of its page, and of what is longer.
    fn of(&self, address: usize) -> Name {
        let line = self.lines.find(line_key(address)).map_or_else(|_| Name::default(), |at| self.of_lines[at as usize]);
        let page = self.pages.find(page_key(address));
        let page = page.map_or_else(|_| Name::default(), |at| self.of_pages[at as usize].whole);
        let long = self.long.iter().filter(|(range, _)| range.contains(&address)).map(|(_, name)| *name);
        long.fold(line.max(page), Name::max)
    }
}

impl Books {
    /// Returns what was counted so far.
    pub(super) fn profile(&self) -> Profile {
        let mut waits: Vec<(&'static str, u64)> = self.waits.iter().map(|(name, ps)| (*name, ps / 1000)).collect();
        waits.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let mut lines: BTreeMap<&'static str, NamedLines> = BTreeMap::new();
        for (place, entry) in self.entries.iter().enumerate() {
            let named = lines.entry(entry.name).or_default();
            named.name = entry.name;
            named.all.transfers += entry.transfers;
            // In ps until all are added up.
            named.all.wait_ns += entry.wait_ps;
            if entry.wait_ps >= named.hottest.wait_ns {
                let writers = &self.writers[place * self.nr_words..(place + 1) * self.nr_words];
                named.hottest = LineCost { transfers: entry.transfers, wait_ns: entry.wait_ps };
                named.hottest_writers = writers.iter().map(|word| word.count_ones() as usize).sum();
            }
        }
        let mut lines: Vec<NamedLines> = lines.into_values().collect();
        for named in &mut lines {
            named.all.wait_ns /= 1000;
            named.hottest.wait_ns /= 1000;
        }
        lines.sort_by_key(|named| std::cmp::Reverse(named.all.wait_ns));
        Profile {
            thread_ns: self.thread_ps / 1000,
            waits,
            lines,
            bus_ns: self.bus_ps / 1000,
            interrupted_ns: self.interrupted_ps / 1000,
        }
    }
}

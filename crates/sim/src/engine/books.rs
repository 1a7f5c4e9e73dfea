//! What is written down of where threads' time goes: a machine's books, a thread's, and the names of memory.
//!
//! # Guarantee
//! * I3 a line counts under the name that it had; memory that is named anew is counted anew

use super::lines::LineId;
use super::table::{Table, page_key};
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

pub(super) const LINE_BITS: u32 = 6;
pub(super) const LINE_BYTES: usize = 1 << LINE_BITS;
pub(super) const PAGE_BYTES: usize = 4096;
const LINES_IN_PAGE: usize = PAGE_BYTES / LINE_BYTES;

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
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) transfers: u64,
    pub(super) wait_ps: u64,
}

/// A name, and when it was given: of several the latest holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) turn: u64,
    pub(super) name: &'static str,
}

/// What a page is called, and its lines.
#[derive(Clone, Copy, Debug, Default)]
struct PageName {
    /// The name of the page as a whole.
    whole: Name,
    /// When a line of it got a name of its own.
    parts_turn: u64,
    /// Where the names of its lines are, counted from 1; 0 for none.
    parts: u32,
}

/// What memory is called.
pub(super) struct Names {
    turn: u64,
    pages: Table<PageName>,
    /// The names of a page's lines.
    parts: Vec<[Name; LINES_IN_PAGE]>,
    /// What is longer than a page, in the order of their turns.
    long: Vec<(Range<usize>, Name)>,
}

impl Default for Names {
    fn default() -> Self {
        Self { turn: 0, pages: Table::new(), parts: Vec::new(), long: Vec::new() }
    }
}

/// The books of a machine.
#[derive(Default)]
pub(super) struct Books {
    pub(super) thread_ps: u64,
    pub(super) bus_ps: u64,
    pub(super) interrupted_ps: u64,
    pub(super) waits: BTreeMap<&'static str, u64>,
    pub(super) entries: Vec<Entry>,
    /// Which CPUs wrote the line of an entry: so many words for each.
    pub(super) writers: Vec<u64>,
    pub(super) nr_words: usize,
    /// A line's entry, counted from 1; 0 for none.
    pub(super) entry_of: Vec<u32>,
    pub(super) names: Names,
}

/// A thread's books.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Book {
    /// Since when its time counts.
    pub(super) since: Option<u64>,
    /// How many waits it is in.
    pub(super) depth: u32,
    /// The outermost of them.
    pub(super) wait: &'static str,
    pub(super) wait_since: u64,
    /// What belongs to nothing that is measured.
    pub(super) aside: u64,
}

/// Lets a line's next transfer look for its name again.
pub(super) fn forget_entry(entry_of: &mut [u32], id: LineId) {
    if let Some(entry) = entry_of.get_mut(id as usize) {
        *entry = 0;
    }
}

impl Names {
    /// Returns a name that is given now.
    pub(super) fn new_name(&mut self, name: &'static str) -> Name {
        self.turn += 1;
        Name { turn: self.turn, name }
    }

    /// Names what is longer than a page.
    pub(super) fn name_long(&mut self, range: Range<usize>, name: Name) {
        self.long.push((range, name));
    }

    /// Names a whole page; says whether that changes what a line of it is called.
    pub(super) fn name_page(&mut self, address: usize, name: Name) -> bool {
        let place = self.pages.place(page_key(address));
        let page = self.pages.at(place);
        let is_new = !is_same(page.whole.name, name.name) || page.parts_turn > page.whole.turn;
        page.whole = name;
        is_new
    }

    /// Names a line; says whether it was called otherwise.
    pub(super) fn name_line(&mut self, address: usize, name: Name) -> bool {
        if is_same(self.of(address).name, name.name) {
            return false;
        }
        let place = self.pages.place(page_key(address));
        let page = self.pages.at(place);
        page.parts_turn = name.turn;
        if page.parts == 0 {
            self.parts.push([Name::default(); LINES_IN_PAGE]);
            page.parts = self.parts.len() as u32;
        }
        self.parts[page.parts as usize - 1][line_in_page(address)] = name;
        true
    }

    /// Returns what a line is called: by the latest name of it, of its page, and of what is longer.
    pub(super) fn of(&self, address: usize) -> Name {
        let page = self.pages.get(page_key(address)).copied().unwrap_or_default();
        let line = page
            .parts
            .checked_sub(1)
            .map_or_else(Name::default, |parts| self.parts[parts as usize][line_in_page(address)]);
        let short = latest(line, page.whole);
        let mut later = self.long.iter().rev().take_while(|(_, name)| name.turn > short.turn);
        later.find(|(range, _)| range.contains(&address)).map_or(short, |(_, name)| *name)
    }
}

/// Says whether two names are the same; mostly they are the same words of the program, too.
fn is_same(a: &'static str, b: &'static str) -> bool {
    std::ptr::eq(a, b) || a == b
}

fn latest(a: Name, b: Name) -> Name {
    if b.turn > a.turn { b } else { a }
}

fn line_in_page(address: usize) -> usize {
    address >> LINE_BITS & (LINES_IN_PAGE - 1)
}

impl Books {
    /// Forgets a line whose memory was given back: what comes there next has no name yet.
    pub(super) fn forget_line(&mut self, address: usize, id: LineId) {
        forget_entry(&mut self.entry_of, id);
        if !self.names.of(address).name.is_empty() {
            let name = self.names.new_name("");
            self.names.name_line(address, name);
        }
    }

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

//! What is written down of where threads' time goes: a machine's books, a thread's, and the names of memory.
//!
//! # Guarantee
//! * I3 a line counts under the name that it had; memory that is named anew is counted anew

use super::lines::{Index, LineId, line_key, page_key};
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) turn: u64,
    pub(super) name: &'static str,
}

/// The name of a page as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageName {
    pub(super) whole: Name,
    /// When a line of it got a name of its own.
    pub(super) parts_turn: u64,
}

/// What memory is called.
pub(super) struct Names {
    pub(super) turn: u64,
    pub(super) lines: Index,
    pub(super) of_lines: Vec<Name>,
    pub(super) pages: Index,
    pub(super) of_pages: Vec<PageName>,
    /// What is longer than a page.
    pub(super) long: Vec<(Range<usize>, Name)>,
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
    /// Names a whole page; says whether that changes what a line of it is called.
    pub(super) fn name_page(&mut self, address: usize, name: Name) -> bool {
        let page = self.page(address);
        let is_new = page.whole.name != name.name || page.parts_turn > page.whole.turn;
        page.whole = name;
        is_new
    }

    /// Names a line; says whether it was called otherwise.
    pub(super) fn name_line(&mut self, address: usize, name: Name) -> bool {
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
    pub(super) fn of(&self, address: usize) -> Name {
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

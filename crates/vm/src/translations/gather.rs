//! Frames on their way out: collected, shot down, then dropped (Linux's mmu_gather).
//!
//! # Guarantee
//! A frame put into a [`Gather`] loses its reference only after every CPU that could reach it by the removed entry has
//! lost the translation. A gather that was dropped has been flushed.
//!
//! A memory object's page has no reference to lose: it is freed by who removes it from the object, and waits for the
//! locks of spaces, areas and sections (I2 of `object::removal`). So whoever clears an entry drops the gather before he
//! gives up what such a removal waits for.
//!
//! # Two zappers
//! Two threads may zap one range under the read lock (MADV_DONTNEED). The second finds the entries empty, has nothing
//! to flush, and would return while the first has not flushed yet. So each gather counts itself in
//! `Translations::nr_gathers`; one that is not alone flushes its whole range at the end (bug 3ea277194daa).

mod stored;

use crate::addr::{PAGE, PageRange, VirtAddr};
use crate::entry::Entry;
use crate::events::Event;
use crate::system::System;
use crate::translations::Translations;
use crate::translations::frames;
use crate::translations::shootdown::Fenced;
use core::mem::MaybeUninit;
use core::ops::Range;
use faultless_phys::Pfn;
use faultless_platform::mutant;
use faultless_platform::{Atomic, AtomicInteger, Ordering};
use stored::{RUN, Stored};

/// Tables that go with one page at most: those on the way to it, but for the root.
const WAY: usize = 4;

/// See the module.
#[must_use = "a gather flushes when it is dropped"]
pub struct Gather<'a, P: System> {
    translations: &'a Translations<P>,
    range: PageRange,
    /// The newest; the first `len` are written. Those before them are `stored`.
    frames: [MaybeUninit<Pfn>; RUN],
    len: usize,
    stored: Stored,
    /// The pages whose entries were cleared since the last flush: first byte, and first byte behind.
    cleared: Option<(u64, u64)>,
    /// Page tables taken out of the tree: the first `nr_tables` are written. Those before them are `linked_tables`.
    tables: [MaybeUninit<Pfn>; WAY],
    nr_tables: usize,
    /// Page tables taken out of the tree, linked through their frames' metadata.
    linked_tables: Option<Pfn>,
    /// `range`, and what the tables span: who walks there is waited for.
    reach: Range<u64>,
    /// Whether all of `range` must be flushed.
    needs_flush: bool,
    /// Whether it counts itself for others to see.
    is_counted: bool,
}

impl<'a, P: System> Gather<'a, P> {
    /// Begins to collect what is taken out of `range`.
    pub fn new(translations: &'a Translations<P>, range: PageRange) -> Self {
        // ORDER: AcqRel pairs with the other zapper's: see `drop`.
        translations.nr_gathers.fetch_add(1, Ordering::AcqRel);
        let mut gather = Self::of_its_only_zapper(translations, range);
        gather.is_counted = true;
        gather
    }

    /// As [`Gather::new`], of a range that nobody else zaps meanwhile.
    pub fn of_its_only_zapper(translations: &'a Translations<P>, range: PageRange) -> Self {
        mutant!(LaneReadEarly => translations.instance().cpus.note_early(translations.lanes.snapshot(&range.numbers())));
        Self {
            is_counted: false,
            translations,
            range,
            frames: [const { MaybeUninit::uninit() }; RUN],
            len: 0,
            stored: Stored::NOTHING,
            cleared: None,
            tables: [const { MaybeUninit::uninit() }; WAY],
            nr_tables: 0,
            linked_tables: None,
            reach: range.numbers(),
            needs_flush: false,
        }
    }

    /// Takes over the reference of the entry of `page`, which was cleared by a read-modify-write, if it holds one; a
    /// full gather is flushed before. Pages come ascending.
    pub fn add(&mut self, page: u64, entry: Entry) {
        if entry.is_present() {
            let first = self.cleared.map_or(page, |(first, _)| first);
            self.cleared = Some((first, page + PAGE));
        }
        if entry.holds_reference() {
            self.frames[self.len].write(entry.pfn());
            self.len += 1;
        }
    }

    /// Makes room for another entry; says whether there is any, or the gather must be flushed before.
    #[inline]
    pub fn make_room(&mut self) -> bool {
        self.len < RUN || self.store()
    }

    /// Makes room for a run more; says whether there is any.
    #[cold]
    fn store(&mut self) -> bool {
        // SAFETY: the run is full.
        let run = unsafe { &*self.frames.as_ptr().cast::<[Pfn; RUN]>() };
        let is_kept = self.stored.keep::<P>(self.translations.memory(), run);
        if is_kept {
            self.len = 0;
        }
        is_kept
    }

    /// Notes that rights were taken away, so that translations must go although no frame does.
    pub fn note_weakened(&mut self) {
        self.needs_flush = true;
    }

    /// Takes over a page table that was taken out of the tree, and spans these addresses: freed after the flush and, if
    /// somebody may walk it without the semaphore, a grace period.
    #[inline]
    pub fn add_table(&mut self, table: Pfn, span: Range<u64>) {
        match self.tables.get_mut(self.nr_tables) {
            Some(place) => {
                place.write(table);
                self.nr_tables += 1;
            }
            None => {
                frames::set_link(self.translations.memory(), table, self.linked_tables);
                self.linked_tables = Some(table);
            }
        }
        // L4 of `lanes`.
        mutant!(TableOfOneLane, self.reach = self.reach.start.min(span.start)..self.reach.end.max(span.end) => ());
        self.needs_flush = true;
    }

    /// Shoots down what was cleared and drops the frames; called without any spin lock held, but maybe those of leaf
    /// tables, as long as no table was put in (`counted`).
    pub fn flush(&mut self) {
        let cleared = self.cleared.take();
        mutant!(PutBeforeFlush => self.put_frames());
        if core::mem::take(&mut self.needs_flush) {
            self.translations.flush_reaching(self.range, &self.reach, Fenced::of::<P>());
        } else if let Some((first, end)) = cleared {
            let cleared = PageRange::between(VirtAddr::new(first), VirtAddr::new(end));
            let cleared = cleared.expect("entries of user memory were cleared");
            // `Gather::add` takes nothing else.
            self.translations.flush_reaching(cleared, &cleared.numbers(), Fenced::after_rmw::<P>());
        }
        self.put_frames();
        if self.nr_tables != 0 {
            self.put_tables();
        }
    }
}

impl<P: System> Gather<'_, P> {
    #[inline(never)]
    fn put_tables(&mut self) {
        let memory = self.translations.memory();
        let is_looked_at = self.translations.is_looked_at();
        // SAFETY: so many are written.
        for &table in unsafe { self.tables[..self.nr_tables].assume_init_ref() } {
            put_table::<P>(memory, table, is_looked_at);
        }
        let mut nr_freed = core::mem::take(&mut self.nr_tables);
        if self.linked_tables.is_some() {
            nr_freed += self.put_linked_tables(is_looked_at);
        }
        self.translations.instance().events.note_many(Event::TablesFreed, nr_freed as u64);
    }

    /// Gives the tables back that are linked; returns how many.
    #[cold]
    fn put_linked_tables(&mut self, is_looked_at: bool) -> usize {
        let memory = self.translations.memory();
        let mut nr_freed = 0;
        while let Some(table) = self.linked_tables {
            self.linked_tables = frames::link(memory, table);
            put_table::<P>(memory, table, is_looked_at);
            nr_freed += 1;
        }
        nr_freed
    }

    #[inline]
    fn put_frames(&mut self) {
        let memory = self.translations.memory();
        if !self.stored.is_empty() {
            self.stored.drain::<P>(memory, &mut |run| run.iter().for_each(|&frame| frames::put(memory, frame)));
        }
        // SAFETY: so many are written.
        for &frame in unsafe { self.frames[..self.len].assume_init_ref() } {
            frames::put(memory, frame);
        }
        self.len = 0;
    }
}

/// Gives a table back that was taken out of the tree and shot down; behind a grace period, if somebody may be looking.
#[inline(always)]
fn put_table<P: System>(memory: &P::Frames, table: Pfn, is_looked_at: bool) {
    match is_looked_at || frames::was_shared_table(memory, table) {
        true => frames::put_table_deferred(memory, table),
        false => frames::put_table(memory, table),
    }
}

impl<P: System> Drop for Gather<'_, P> {
    fn drop(&mut self) {
        if !self.is_counted {
            return self.flush();
        }
        // ORDER: Acquire pairs with the AcqRel in `new`: a zapper that began before us and has not ended is seen.
        let is_alone = mutant!(GathersIgnored, self.translations.nr_gathers.load(Ordering::Acquire) <= 1 => true);
        self.needs_flush |= !is_alone;
        self.flush();
        // ORDER: Release pairs with the Acquire above: whoever does not see us has our flush behind it.
        self.translations.nr_gathers.fetch_sub(1, Ordering::Release);
    }
}

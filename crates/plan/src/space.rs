//! One address space as the trace tells of it: what is mapped, what faulted, who acted last.
//!
//! # Guarantee
//! After each memory call it holds what Linux's own space held after the recorded call, as far as calls and faults
//! tell. It never refuses a memory call: the recording has happened.

use std::iter;
use std::ops::Range;

use faultless_abi::{Errno, MapFlags, Prot, RemapFlags, advice_of};
use faultless_vm::{Advice, PageLock};
use rangemap::RangeSet;

use super::around::{Around, Span, mapped_by_tables_of};
use super::decode::{goes_round, is_error, is_well_formed};
use super::edges::SpaceOrder;
use super::ids::{EventIndex, NONE, ObjectIndex};
use super::memory_calls::{Mapping, MemoryCall, Place};
use super::pages::{Content, Page, Pages};
use super::regions::{Backing, PAGE, Region, Regions, Root, Traits, page_ceil, page_floor};
use super::windows::span;

/// Pages that stay free below a region that grows.
const GUARD_BYTES: u64 = 256 * PAGE;

/// Of a region that is filled at once so many pages are followed at most (16 GiB); the others may then differ.
const FOLLOWED_PAGES_MOST: u64 = 4 << 20;

/// A space.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// What is mapped.
    pub regions: Regions,
    /// What faulted.
    pub pages: Pages,
    /// What faults on neighbours may have mapped.
    pub around: Around,
    /// Who acted last.
    pub order: SpaceOrder,
    /// Where the heap begins, if the recording joined the process; otherwise the first break tells it.
    pub heap_start: Option<u64>,
    /// The break, once a call told it.
    pub program_break: Option<u64>,
    /// Whether that is only the page boundary at or behind it.
    pub is_break_rounded: bool,
    /// The count of steps at its last fork; 0 if neither it nor what it is a copy of ever forked.
    pub forked_at: u32,
    /// The event of that fork.
    pub forked_by: EventIndex,
    /// The count of steps when a thread or process could last not be made; 0 if that never was.
    pub fork_failed_at: u32,
    /// Where a replay's space may be another than the recorded one (`contests`).
    pub contested: RangeSet<u64>,
    /// Where a replay's pages may be others than the recorded ones (`unseen`).
    pub unlike: RangeSet<u64>,
    /// Whether pages may be changed unseen, by a `userfaultfd` or `io_uring` of the process.
    pub is_reached_into: bool,
    /// How later mappings are locked, if they are.
    pub future_lock: Option<PageLock>,
    /// Whether the stack was not yet told: the first mapping after exec is it.
    pub awaits_stack: bool,
    /// Mapped pages now, and at most.
    pub resident: Resident,
    /// Which bytes of objects calls have filled, since somebody took the list.
    pub filled: Vec<(ObjectIndex, Range<u64>)>,
}

/// How many pages a space holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    now: u64,
    /// The most so far.
    pub peak: u64,
    /// How many the space has got of its own, whatever became of them.
    pub made: u64,
}

impl Resident {
    /// Adds pages.
    pub fn add(&mut self, pages: u64) {
        self.now += pages;
        self.peak = self.peak.max(self.now);
    }

    fn remove(&mut self, pages: u64) {
        self.now = self.now.saturating_sub(pages);
    }

    /// Returns a copy's, which holds what it shares as long as it lives, whatever becomes of the other.
    fn copied(self) -> Self {
        Self { peak: self.now, made: 0, ..self }
    }
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Mapped.
    Mapped(Region),
    /// Below a region that grows down to it when it is touched.
    Growable(Region),
    /// Nothing is mapped there.
    Nothing,
}

impl Space {
    /// Returns an empty space, on a machine on which faults reach so far.
    pub fn new(span: Span) -> Self {
        Self { around: Around::new(span), ..Self::default() }
    }

    /// Notes where a replay's pages may be others, if that is anywhere.
    pub fn leave_unlike(&mut self, range: Range<u64>) {
        if range.start < range.end {
            self.unlike.insert(range);
        }
    }

    /// Says whether they may be others anywhere in a range.
    pub fn is_unlike_in(&self, range: &Range<u64>) -> bool {
        range.start < range.end && self.unlike.overlaps(range)
    }

    /// Returns what an address is; stacks may grow to `stack_bytes`.
    pub fn address_state(&self, address: u64, stack_bytes: u64) -> AddressState {
        if let Some(&region) = self.regions.find(address) {
            return AddressState::Mapped(region);
        }
        match self.regions.at_or_after(address) {
            Some(&above) if self.grows_to(&above, address, stack_bytes) => AddressState::Growable(above),
            _ => AddressState::Nothing,
        }
    }

    fn grows_to(&self, region: &Region, address: u64, stack_bytes: u64) -> bool {
        let wanted = page_floor(address);
        let is_near = region.end.saturating_sub(wanted) <= stack_bytes;
        let keeps_gap = |below: &&Region| !below.prot.is_empty() && !below.traits.contains(Traits::GROWS_DOWN);
        let below = self.regions.before(region.start).filter(keeps_gap);
        let is_free = below.is_none_or(|below| wanted.saturating_sub(below.end) >= GUARD_BYTES);
        region.traits.contains(Traits::GROWS_DOWN) && is_near && is_free
    }

    /// Returns what is known of a page of a region.
    pub fn page(&self, address: u64, region: Option<&Region>) -> Page {
        let page = self.pages.get(address / PAGE);
        let is_kept = |region: &Region| page.content == Content::Guard && !region.traits.contains(Traits::WIPE_ON_FORK);
        let is_left_out = region.is_some_and(|region| page.since < region.fresh_since && !is_kept(region));
        let left_out = Page { content: Content::Absent, lets_stores_in: false, store: NONE, ..page };
        if is_left_out { left_out } else { page }
    }

    /// Does what a call did.
    pub fn apply(&mut self, memory_call: &MemoryCall, result: i64, now: u32) {
        match *memory_call {
            MemoryCall::Map(mapping) if !is_error(result) => self.map(&mapping, result as u64, now),
            MemoryCall::Unmap { start, len } if result == 0 => self.unmap(span(start, len)),
            MemoryCall::Protect { start, len, prot } => self.protect(start, len, prot, result, now),
            MemoryCall::Remap { old, old_len, new_len, flags, .. } if !is_error(result) => {
                let (old, new) = (span(old, old_len), span(result as u64, new_len));
                self.remap(old.clone(), old_len, new.clone(), flags);
                self.doubt_grown(new.start + (old.end - old.start)..new.end);
            }
            MemoryCall::Advise { start, len, advice } if is_well_formed(start, len) => {
                self.advise(span(start, len), advice, now);
            }
            MemoryCall::Break { before, .. } => self.set_break(before, result as u64, now),
            MemoryCall::Lock { start, len, lock } => {
                self.lock(span(start, len), lock, now);
            }
            MemoryCall::LockAll { lock } => self.lock_all(lock, now),
            MemoryCall::WriteBack { start, len } if result == 0 => self.write_back(&span(start, len)),
            _ => {}
        }
    }

    /// Covers all that faults in some ranges may have mapped of objects that are there now, whatever area they met.
    pub fn cover_tables(&mut self, touched: impl IntoIterator<Item = Range<u64>>, now: u32) {
        let tables =
            touched.into_iter().map(|range| mapped_by_tables_of(&(range.start / PAGE..range.end.div_ceil(PAGE))));
        // The last table has no end that a number could say.
        for table in tables.filter(|table| table.start < table.end).collect::<RangeSet<u64>>() {
            let regions: Vec<Region> = self.regions.overlapping(table.clone()).copied().collect();
            for region in regions.iter().filter(|region| region.backing != Backing::Anonymous) {
                let pages = region.start.max(table.start) / PAGE..region.end.min(table.end) / PAGE;
                self.around.cover_filled(pages, false, region, now);
            }
        }
    }

    fn map(&mut self, mapping: &Mapping, placed: u64, now: u32) {
        let range = span(placed, mapping.len);
        self.unmap(range.clone());
        let traits = traits_of(mapping);
        let prot = mapping.prot & Prot::RIGHTS;
        let (start, end, backing) = (range.start, range.end, mapping.backing);
        let region = Region { start, end, prot, backing, traits, fresh_since: 0, root: Root::Absent };
        self.regions.insert(with_account(region));
        if traits.contains(Traits::FILLED) {
            self.fill(range, Filling::Rights, now);
        }
    }

    fn unmap(&mut self, range: Range<u64>) {
        self.regions.remove(range.clone());
        self.drop_pages(&range);
    }

    fn drop_pages(&mut self, range: &Range<u64>) {
        let pages = range.start / PAGE..range.end / PAGE;
        self.around.clear(&pages);
        let gone = self.pages.clear(pages);
        self.resident.remove(gone);
    }

    /// Changes rights up to the first hole: Linux keeps what it changed before it found one.
    fn protect(&mut self, start: u64, len: u64, prot: Prot, result: i64, now: u32) {
        let asked = span(start, len);
        let stack = self.regions.at_or_after(start).filter(|_| prot.contains(Prot::GROWSDOWN));
        let first = stack.map_or(asked.start, |region| region.start);
        let end = match Errno::of_result(result) {
            None => asked.end,
            Some(Errno::ENOMEM) if goes_round(start, len) || first >= asked.end => return,
            Some(Errno::ENOMEM) => self.regions.first_hole(first..asked.end).unwrap_or(first),
            _ => return,
        };
        let (prot, range) = (prot & Prot::RIGHTS, first..end.max(first));
        self.doubt_written_back(&range);
        // Linux makes the pages of locked memory that may be written from now on.
        let is_made = |region: &&Region| {
            region.traits & Traits::LOCKS == Traits::LOCKED
                && !region.backing.is_shared_object()
                && !region.prot.contains(Prot::WRITE)
                && prot.contains(Prot::WRITE)
        };
        let parts = self.regions.overlapping(range.clone()).filter(is_made);
        let made: Vec<_> = parts.map(|region| region.start.max(first)..region.end.min(end)).collect();
        self.regions.change(range, |region| *region = with_account(Region { prot, ..*region }));
        made.into_iter().for_each(|part| self.fill(part, Filling::Stores, now));
    }

    /// Forgets that pages let no store in, as after msync of them.
    fn write_back(&mut self, range: &Range<u64>) {
        self.let_stores_in(range, false, |page| !page.is_inherited);
    }

    /// Notes that pages that were stored to, and written back since, may let stores in or not: new rights give those
    /// back to what is dirty, which the library takes such a page for.
    fn doubt_written_back(&mut self, range: &Range<u64>) {
        if self.regions.overlapping(range.clone()).any(|region| region.backing.is_shared_object()) {
            self.let_stores_in(range, true, |page| page.store != NONE);
        }
    }

    /// Notes that what is known of pages may not be so.
    pub fn doubt(&mut self, range: &Range<u64>) {
        self.change_pages(range, |page| (!page.is_doubtful).then_some(Page { is_doubtful: true, ..*page }));
    }

    /// Notes that pages may have come, of which nothing is known.
    pub fn leave_open(&mut self, range: &Range<u64>) {
        self.pages.update(range.start / PAGE..range.end / PAGE, |page| page.is_doubtful = true);
    }

    fn let_stores_in(&mut self, range: &Range<u64>, are_let_in: bool, choose: impl Fn(&Page) -> bool) {
        self.change_pages(range, |page| {
            let is_chosen = page.lets_stores_in != are_let_in && choose(page);
            is_chosen.then_some(Page { lets_stores_in: are_let_in, ..*page })
        });
    }

    /// Changes those known pages of a range that `change` has something new for.
    fn change_pages(&mut self, range: &Range<u64>, change: impl Fn(&Page) -> Option<Page>) {
        let mut changed = Vec::new();
        self.pages.visit(range.start / PAGE..range.end / PAGE, |number, page| {
            changed.extend(change(page).map(|page| (number, page)));
        });
        changed.into_iter().for_each(|(number, page)| self.pages.set(number, page));
    }

    fn remap(&mut self, old: Range<u64>, old_len: u64, new: Range<u64>, flags: RemapFlags) {
        if new.start == old.start {
            return self.resize(old, new);
        }
        if old.end - old.start == new.end - new.start && old_len != 0 {
            return self.move_each(&old, new.start, flags);
        }
        let common = (old.end - old.start).min(new.end - new.start);
        self.unmap(new.clone());
        let (shift, moved) = (new.start.wrapping_sub(old.start), self.moved_regions(&old, flags, old_len));
        self.move_pages(old.start..old.start + common, shift);
        if !flags.contains(RemapFlags::DONTUNMAP) && old_len != 0 {
            self.unmap(old);
        }
        let last = moved.len().saturating_sub(1);
        for (place, region) in moved.into_iter().enumerate() {
            let end = if place == last { new.end } else { region.end.wrapping_add(shift).min(new.end) };
            self.regions.insert(Region { start: region.start.wrapping_add(shift), end, ..region });
        }
    }

    /// Notes that the kernel has filled what locked memory grew by, but not behind the end of its file, of which a
    /// replay's has none.
    fn doubt_grown(&mut self, grown: Range<u64>) {
        if grown.is_empty() {
            return;
        }
        let is_locked = |region: &&Region| region.traits.contains(Traits::LOCKED);
        let of_files = |region: &&Region| is_locked(region) && region.backing != Backing::Anonymous;
        let parts: Vec<Region> = self.regions.overlapping(grown.clone()).filter(of_files).copied().collect();
        for Region { start, end, .. } in parts {
            self.leave_unlike(start.max(grown.start)..end.min(grown.end));
        }
    }

    /// Moves what is mapped in a range; what lies between stays, at both places.
    fn move_each(&mut self, old: &Range<u64>, target: u64, flags: RemapFlags) {
        let shift = target.wrapping_sub(old.start);
        for region in self.moved_regions(old, flags, old.end - old.start) {
            let (start, end) = (region.start.wrapping_add(shift), region.end.wrapping_add(shift));
            self.unmap(start..end);
            self.move_pages(region.start..region.end, shift);
            if !flags.contains(RemapFlags::DONTUNMAP) {
                self.drop_pages(&(region.start..region.end));
            }
            self.regions.insert(Region { start, end, ..region });
        }
    }

    fn move_pages(&mut self, range: Range<u64>, shift: u64) {
        let (pages, target) = (range.start / PAGE..range.end / PAGE, range.start.wrapping_add(shift) / PAGE);
        self.around.shift(pages.clone(), target);
        self.pages.shift(pages, target);
    }

    /// Returns the regions that move, cut to the old range; an old length of 0 duplicates a shared mapping.
    fn moved_regions(&mut self, old: &Range<u64>, flags: RemapFlags, old_len: u64) -> Vec<Region> {
        if old_len == 0 {
            let tail = |region: &Region| {
                let backing = region.backing.advanced(old.start - region.start);
                Region { start: old.start, backing, ..*region }
            };
            return self.regions.find(old.start).map(tail).into_iter().collect();
        }
        let taken = self.regions.take(old.clone());
        if flags.contains(RemapFlags::DONTUNMAP) {
            taken.iter().for_each(|&region| self.regions.insert(region));
        }
        taken
    }

    fn resize(&mut self, old: Range<u64>, new: Range<u64>) {
        if new.end < old.end {
            return self.unmap(new.end..old.end);
        }
        let Some(&last) = self.regions.find(old.end.saturating_sub(1)) else { return };
        if last.end < new.end {
            let backing = last.backing.advanced(last.end - last.start);
            self.regions.insert(Region { start: last.end, end: new.end, backing, ..last });
        }
    }

    fn advise(&mut self, range: Range<u64>, advice: u64, now: u32) {
        let mark = |regions: &mut Regions, add: Traits, remove: Traits| {
            regions.change(range.clone(), |region| region.traits = (region.traits | add) - remove);
        };
        const NONE: Traits = Traits::empty();
        let Some(advice) = advice_of(advice as u32) else { return };
        match advice {
            Advice::DontNeed | Advice::DontNeedLocked => self.discard(&range),
            Advice::WillNeed => mark(&mut self.regions, Traits::FILLED, NONE),
            Advice::PopulateRead => self.populate(&range, Filling::Loads, now),
            Advice::PopulateWrite => self.populate(&range, Filling::Stores, now),
            Advice::Free | Advice::Cold | Advice::PageOut => mark(&mut self.regions, Traits::RECLAIMABLE, NONE),
            Advice::Mergeable => {
                mark(&mut self.regions, Traits::RECLAIMABLE, NONE);
                let merge = |region: &mut Region| {
                    let is_left_out = region.backing.is_shared_object() || region.traits.contains(Traits::DROPPABLE);
                    region.traits |= if is_left_out { NONE } else { Traits::MERGEABLE };
                };
                self.regions.change(range, merge);
            }
            Advice::Unmergeable => mark(&mut self.regions, NONE, Traits::MERGEABLE),
            Advice::Normal => mark(&mut self.regions, NONE, Traits::RANDOM | Traits::SEQUENTIAL),
            Advice::Random => mark(&mut self.regions, Traits::RANDOM, Traits::SEQUENTIAL),
            Advice::Sequential => mark(&mut self.regions, Traits::SEQUENTIAL, Traits::RANDOM),
            Advice::HugePage => mark(&mut self.regions, Traits::WANTS_HUGE, Traits::WANTS_SMALL),
            Advice::NoHugePage => mark(&mut self.regions, Traits::WANTS_SMALL, Traits::WANTS_HUGE),
            Advice::DontDump => mark(&mut self.regions, Traits::DONT_DUMP, NONE),
            Advice::DoDump => mark(&mut self.regions, NONE, Traits::DONT_DUMP),
            Advice::DontFork => mark(&mut self.regions, Traits::DONT_FORK, NONE),
            Advice::DoFork => mark(&mut self.regions, NONE, Traits::DONT_FORK),
            Advice::WipeOnFork => mark(&mut self.regions, Traits::WIPE_ON_FORK, NONE),
            Advice::KeepOnFork => mark(&mut self.regions, NONE, Traits::WIPE_ON_FORK),
            Advice::GuardInstall => self.install_guards(&range, now),
            Advice::GuardRemove => self.remove_guards(&range),
            _ => {}
        }
    }

    /// Makes pages up to the first hole or guard.
    fn populate(&mut self, range: &Range<u64>, filling: Filling, now: u32) {
        let before = self.before_hole(range);
        let end = self.first_guard(&before).unwrap_or(before.end);
        self.fill(before.start..end, filling, now);
    }

    /// Returns the first guarded address of a range.
    pub fn first_guard(&self, range: &Range<u64>) -> Option<u64> {
        let mut first = None;
        self.pages.visit(range.start / PAGE..range.end / PAGE, |number, page| {
            if page.content == Content::Guard {
                first.get_or_insert(number);
            }
        });
        first.map(|number| number * PAGE)
    }

    /// Returns what of a range lies before its first hole.
    fn before_hole(&self, range: &Range<u64>) -> Range<u64> {
        range.start..self.regions.first_hole(range.clone()).unwrap_or(range.end)
    }

    /// Drops pages as advice does: guards stay, and whether pages with an uncertain fault are gone stays uncertain.
    fn discard(&mut self, range: &Range<u64>) {
        let mut kept = Vec::new();
        self.pages.visit(range.start / PAGE..range.end / PAGE, |number, page| match page.content {
            Content::Guard => kept.push((number, *page)),
            _ if page.is_doubtful => kept.push((number, Page { content: Content::Absent, store: NONE, ..*page })),
            _ => {}
        });
        self.drop_pages(range);
        kept.into_iter().for_each(|(number, page)| self.pages.set(number, page));
        self.regions.change(range.clone(), |region| {
            if !region.traits.contains(Traits::LOCKED) {
                region.traits -= Traits::FILLED;
            }
        });
    }

    /// Puts a guard in place of every page of a range that is mapped.
    fn install_guards(&mut self, range: &Range<u64>, now: u32) {
        self.drop_pages(range);
        self.regions.change(range.clone(), |region| {
            let root = if region.backing.is_shared_object() { Root::Uncertain } else { Root::Present };
            region.root = region.root.max(root);
        });
        for region in self.regions.overlapping(range.clone()) {
            let (start, end) = (region.start.max(range.start), region.end.min(range.end));
            self.pages.update(start / PAGE..end / PAGE, |page| {
                *page = Page { content: Content::Guard, since: now, ..Page::default() };
            });
        }
    }

    fn remove_guards(&mut self, range: &Range<u64>) {
        let mut guards = Vec::new();
        self.pages.visit(range.start / PAGE..range.end / PAGE, |number, page| {
            guards.extend((page.content == Content::Guard).then_some(number));
        });
        guards.into_iter().for_each(|number| self.pages.set(number, Page::default()));
    }

    fn set_break(&mut self, before: u64, after: u64, now: u32) {
        self.program_break = Some(after);
        self.is_break_rounded = false;
        let (old, new) = (page_ceil(before), page_ceil(after));
        if new < old {
            return self.unmap(new..old);
        }
        let place = Place::Fixed(old);
        let (prot, flags) = (Prot::READ | Prot::WRITE, MapFlags::PRIVATE | MapFlags::ANONYMOUS);
        if new > old {
            let (len, backing, is_locked_on_fault) = (new - old, Backing::Anonymous, false);
            self.map(&Mapping { place, len, prot, flags, backing, is_locked_on_fault }, old, now);
        }
    }

    /// Locks memory: all before the first hole is marked; if there is none, all before the first page that nobody may
    /// access, or a guard, is filled.
    fn lock(&mut self, range: Range<u64>, lock: PageLock, now: u32) {
        let marked = self.before_hole(&range);
        self.mark_locked(marked.clone(), lock);
        if lock == PageLock::Lock && marked == range {
            let barred = [self.regions.first_barred(&range), self.first_guard(&range)].into_iter().flatten().min();
            self.fill(range.start..barred.unwrap_or(range.end), Filling::Rights, now);
        }
    }

    /// Locks all that is mapped; what nobody may access is left out, and ends nothing.
    fn lock_all(&mut self, lock: PageLock, now: u32) {
        self.mark_locked(0..u64::MAX, lock);
        if lock == PageLock::Lock {
            self.fill(0..u64::MAX, Filling::Rights, now);
        }
    }

    fn mark_locked(&mut self, range: Range<u64>, lock: PageLock) {
        let traits = match lock {
            PageLock::Lock => Traits::LOCKED,
            PageLock::LockOnFault => Traits::LOCKS,
            PageLock::Unlock => Traits::empty(),
        };
        self.regions.change(range, |region| region.traits = (region.traits - Traits::LOCKS) | traits);
    }

    /// Makes the pages that are missing, as the kernel does without a fault.
    fn fill(&mut self, range: Range<u64>, filling: Filling, now: u32) {
        let parts: Vec<Region> = self.regions.overlapping(range.clone()).copied().collect();
        for region in parts.iter().filter(|region| !region.prot.is_empty()) {
            let part = region.start.max(range.start)..region.end.min(range.end);
            if (part.end - part.start) / PAGE > FOLLOWED_PAGES_MOST {
                continue;
            }
            self.fill_part(region, part, filling, now);
        }
        self.regions.change(range, |region| region.traits |= Traits::FILLED);
    }

    fn fill_part(&mut self, region: &Region, part: Range<u64>, filling: Filling, now: u32) {
        let is_store = match filling {
            Filling::Loads => false,
            Filling::Stores => true,
            Filling::Rights => region.prot.contains(Prot::WRITE),
        };
        let (is_own, forked_at, fresh_since) =
            (is_store && copies_on_write(region), self.forked_at, region.fresh_since);
        let (mut added, mut made) = (0, 0);
        self.pages.update(part.start / PAGE..part.end / PAGE, |page| {
            let content = if page.since < fresh_since { Content::Absent } else { page.content };
            if content == Content::Guard {
                return;
            }
            added += u64::from(content == Content::Absent);
            page.content = filled(content, region.backing, is_own);
            page.lets_stores_in |= filling == Filling::Stores;
            let is_copied = is_own && content == Content::Own && page.since <= forked_at;
            // Linux drops no translation of an entry that only gets stronger (mm/memory.c, `wp_page_reuse`).
            page.is_let_in |= is_copied;
            if page.content != content || is_copied {
                page.since = now;
                made += u64::from(is_own);
            }
        });
        self.resident.add(added);
        self.resident.made += made;
        if let (Backing::Object { object, offset, .. }, true) = (region.backing, added > 0) {
            let first = offset.wrapping_add(part.start - region.start);
            self.filled.push((object, first..first.saturating_add(part.end - part.start)));
        }
        if is_own {
            self.regions.give_root(part.start, Root::Present);
        } else if added > 0 && region.backing != Backing::Anonymous {
            let pages = part.start / PAGE..part.end / PAGE;
            let area = self.area_of(region, &pages);
            self.around.cover_filled(pages, filling == Filling::Stores, &area, now);
        }
    }

    /// Returns a region as far as its area goes within the tables of some of its pages.
    pub fn area_of(&self, region: &Region, pages: &Range<u64>) -> Region {
        self.regions.area_of(region, &mapped_by_tables_of(pages))
    }

    /// Returns a child's copy at a fork, which is this event; `now` is the count of steps.
    pub fn fork(&mut self, now: u32, event: EventIndex) -> Space {
        (self.forked_at, self.forked_by) = (now, event);
        let (order, resident) = (SpaceOrder::default(), self.resident.copied());
        let mut child = Space { order, resident, future_lock: None, ..self.clone() };
        child.regions.retain(|region| {
            // Of shared memory with guards Linux copies all, and the library the guards.
            let is_copied = region.root != Root::Absent && !region.backing.is_shared_object();
            let is_left_out = region.traits.contains(Traits::WIPE_ON_FORK) || !is_copied;
            if is_left_out {
                region.fresh_since = now;
            }
            region.traits -= Traits::LOCKS;
            !region.traits.contains(Traits::DONT_FORK)
        });
        let uncertain = child.regions.overlapping(0..u64::MAX).filter(|region| region.root == Root::Uncertain);
        for Region { start, end, backing, .. } in uncertain.copied().collect::<Vec<_>>() {
            child.doubt(&(start..end));
            if backing != Backing::Anonymous {
                child.cover_tables(iter::once(start..end), now);
            }
        }
        child
    }
}

/// As what the kernel makes pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    /// As loads would.
    Loads,
    /// As stores would.
    Stores,
    /// As stores would where the region may be written, and as loads elsewhere.
    Rights,
}

/// Returns what stands behind a page after it was touched, `is_own` saying whether that makes it the space's own.
pub fn filled(content: Content, backing: Backing, is_own: bool) -> Content {
    match (content, backing) {
        _ if is_own => Content::Own,
        (Content::Absent, Backing::Anonymous) => Content::Zero,
        (Content::Absent, Backing::Object { .. }) => Content::Object,
        (content, _) => content,
    }
}

/// Notes whether the kernel has set memory aside for a region, its rights being new.
fn with_account(region: Region) -> Region {
    let is_private = !region.backing.is_shared_object();
    let is_writable = region.prot.contains(Prot::WRITE);
    let is_counted = is_private && is_writable && !region.traits.contains(Traits::NO_RESERVE);
    let is_given_back = !is_writable && region.backing == Backing::Anonymous && region.root == Root::Absent;
    let traits = match (is_counted, is_given_back) {
        (true, _) => region.traits | Traits::ACCOUNTED,
        (false, true) => region.traits - Traits::ACCOUNTED,
        (false, false) => region.traits,
    };
    Region { traits, ..region }
}

fn traits_of(mapping: &Mapping) -> Traits {
    let table = [
        (MapFlags::GROWSDOWN, Traits::GROWS_DOWN),
        (MapFlags::LOCKED, Traits::LOCKED | Traits::FILLED),
        (MapFlags::HUGETLB, Traits::HUGE),
        (MapFlags::NORESERVE, Traits::NO_RESERVE),
    ];
    let is_set = |flag: MapFlags| mapping.flags.contains(flag);
    let traits = table.iter().filter(|(flag, _)| is_set(*flag)).fold(Traits::empty(), |all, (_, traits)| all | *traits);
    let traits = if mapping.flags.populates() { traits | Traits::FILLED } else { traits };
    let traits = if mapping.is_locked_on_fault { traits | Traits::LOCKS } else { traits };
    let is_droppable = mapping.flags & MapFlags::TYPE == MapFlags::DROPPABLE && mapping.backing == Backing::Anonymous;
    let dropped = Traits::DROPPABLE | Traits::WIPE_ON_FORK | Traits::RECLAIMABLE;
    if is_droppable { traits | dropped } else { traits }
}

/// Returns whether a store into a page of the region must first make the page its own.
pub fn copies_on_write(region: &Region) -> bool {
    !region.backing.is_shared_object()
}

//! madvise, and making pages before they are touched.

use super::Space;
use crate::addr::{PAGE, PageRange, is_page_aligned, page_ceil, page_floor};
use crate::area::{AreaFlags, AreaView};
use crate::design::Design;
use crate::entry::{Entry, EntryFlags};
use crate::error::{AccessError, CallError};
use crate::events::Event;
use crate::fault::{Fault, classic};
use crate::gather::Gather;
use crate::guest::Access;
use crate::table::Tables;
use faultless_platform::{Atomic, Ordering, Platform};
use faultless_sync::RwSemaphore;

/// What a program says about a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Drop the pages (`MADV_DONTNEED`).
    DontNeed,
    /// Drop the pages, also locked ones (`MADV_DONTNEED_LOCKED`).
    DontNeedLocked,
    /// The pages may be dropped until they are written again (`MADV_FREE`); nothing reclaims here, so they stay.
    Free,
    /// Make the pages as loads would (`MADV_POPULATE_READ`).
    PopulateRead,
    /// Make the pages as stores would (`MADV_POPULATE_WRITE`).
    PopulateWrite,
    /// A child shall not get the range (`MADV_DONTFORK`).
    DontFork,
    /// Undoes `DontFork` (`MADV_DOFORK`).
    DoFork,
    /// A child shall get the range empty (`MADV_WIPEONFORK`).
    WipeOnFork,
    /// Undoes `WipeOnFork` (`MADV_KEEPONFORK`).
    KeepOnFork,
    /// Anything else: accepted, counted, without effect that a program could see.
    Ignored,
}

/// What mlock and munlock do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLock {
    /// Keeps the pages in memory, and makes them.
    Lock,
    /// Ends that.
    Unlock,
}

/// Checks a range as madvise does: one that overflows is invalid, one outside user memory is not mapped.
fn advised_range(start: u64, len_bytes: u64) -> Result<PageRange, CallError> {
    let end = page_ceil(len_bytes).and_then(|len| start.checked_add(len));
    end.ok_or(CallError::Invalid("the range overflows"))?;
    PageRange::new(start, len_bytes).ok_or(CallError::Unmapped { address: start })
}

/// What is done to the part of an area that advice is about.
type OnArea<'a, P> = dyn Fn(PageRange, &AreaView<P>) -> Result<(), CallError> + 'a;

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Takes advice about a range. Across holes it is applied to what is mapped, and the answer is `Unmapped`.
    pub fn madvise(&self, start: u64, len_bytes: u64, advice: Advice) -> Result<(), CallError> {
        if !is_page_aligned(start) {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        if len_bytes == 0 {
            return Ok(());
        }
        let range = advised_range(start, len_bytes)?;
        match advice {
            Advice::DontNeed => self.on_areas(range, &|part, view| self.drop_pages(part, view)),
            Advice::DontNeedLocked => self.on_areas(range, &|part, _| {
                self.zap(part);
                Ok(())
            }),
            Advice::Free => self.on_areas(range, &|part, view| self.free_lazily(part, view)),
            Advice::PopulateRead => self.populate_as(range, Access::Read),
            Advice::PopulateWrite => self.populate_as(range, Access::Write),
            Advice::DontFork => self.flag(range, &|view| Ok(view.flags | AreaFlags::DONTFORK)),
            Advice::DoFork => self.flag(range, &|view| Ok(view.flags - AreaFlags::DONTFORK)),
            Advice::WipeOnFork => self.flag(range, &|view| match view.object {
                None => Ok(view.flags | AreaFlags::WIPEONFORK),
                Some(_) => Err(CallError::Invalid("only private anonymous memory can be wiped on fork")),
            }),
            Advice::KeepOnFork => self.flag(range, &|view| Ok(view.flags - AreaFlags::WIPEONFORK)),
            Advice::Ignored => {
                self.vm().events().count(Event::AdviceIgnored);
                self.on_areas(range, &|_, _| Ok(()))
            }
        }
    }

    /// Locks or unlocks the pages of a range, in whole pages; locking makes them.
    pub fn mlock(&self, start: u64, len_bytes: u64, lock: PageLock) -> Result<(), CallError> {
        let unmapped = CallError::Unmapped { address: start };
        let first = page_floor(start);
        if len_bytes == 0 && first == start {
            return Ok(());
        }
        let range = len_bytes.checked_add(start - first).and_then(|len| PageRange::new(first, len)).ok_or(unmapped)?;
        self.with_write(|| {
            self.reflag(range, &|view| match lock {
                PageLock::Lock => Ok(view.flags | AreaFlags::LOCKED),
                PageLock::Unlock => Ok(view.flags - AreaFlags::LOCKED),
            })
        })?;
        match lock {
            PageLock::Unlock => Ok(()),
            PageLock::Lock => self.populate(range).map_err(|error| match error {
                CallError::OutOfFrames(_) => error,
                // As Linux: pages that can't be had are reported as not mapped.
                _ => unmapped,
            }),
        }
    }

    fn flag(
        &self,
        range: PageRange,
        flags_of: &dyn Fn(&AreaView<P>) -> Result<AreaFlags, CallError>,
    ) -> Result<(), CallError> {
        self.with_write(|| self.reflag_all(range, flags_of))
    }

    /// Runs `act` on the part of each area that lies in `range`, under the read lock.
    fn on_areas(&self, range: PageRange, act: &OnArea<'_, P>) -> Result<(), CallError> {
        let _read = self.semaphore.read();
        let mut position = range.start();
        let mut hole = None;
        for entry in self.index.overlapping(range.addresses()) {
            if entry.start > position {
                hole.get_or_insert(position);
            }
            // SAFETY: the semaphore keeps the area.
            let view = unsafe { entry.area.as_ref() }.view();
            if let Some(part) = range.intersection(entry.start..entry.end) {
                act(part, &view)?;
            }
            position = entry.end;
        }
        if position < range.end() {
            hole.get_or_insert(position);
        }
        hole.map_or(Ok(()), |address| Err(CallError::Unmapped { address }))
    }

    fn drop_pages(&self, part: PageRange, view: &AreaView<P>) -> Result<(), CallError> {
        if view.flags.contains(AreaFlags::LOCKED) {
            return Err(CallError::Invalid("the pages are locked"));
        }
        self.zap(part);
        Ok(())
    }

    fn free_lazily(&self, part: PageRange, view: &AreaView<P>) -> Result<(), CallError> {
        if view.object.is_some() || view.flags.contains(AreaFlags::LOCKED) {
            return Err(CallError::Invalid("MADV_FREE is for private anonymous memory that is not locked"));
        }
        let memory = self.memory();
        let mut gather = Gather::new(self, part);
        self.tables.for_each_leaf(memory, part.addresses(), &mut |table, part| {
            let _lock = memory.page(table).lock().guard();
            for address in part.step_by(PAGE as usize) {
                let used = (EntryFlags::ACCESSED | EntryFlags::DIRTY).bits();
                let slot = Tables::leaf_slot(memory, table, address);
                // Relaxed: a peek; entries are filled under the lock that we hold.
                if Entry::from_bits(slot.load(Ordering::Relaxed)).is_present() {
                    clear_bits::<P>(slot, used);
                    gather.note_weakened();
                }
            }
            true
        });
        Ok(())
    }

    /// Makes the pages of a range as the rights of its areas suggest (`MAP_POPULATE`, mlock).
    pub(super) fn populate(&self, range: PageRange) -> Result<(), CallError> {
        self.make_pages(range, &|flags| {
            let is_private_writable = flags & (AreaFlags::WRITE | AreaFlags::SHARED) == AreaFlags::WRITE;
            if is_private_writable { Access::Write } else { Access::Read }
        })
    }

    fn populate_as(&self, range: PageRange, access: Access) -> Result<(), CallError> {
        self.make_pages(range, &|_| access)
    }

    fn make_pages(&self, range: PageRange, access_of: &dyn Fn(AreaFlags) -> Access) -> Result<(), CallError> {
        for page in range.pages() {
            let access = self.flags_at(page).map(access_of).ok_or(CallError::Unmapped { address: page })?;
            let fault = Fault { address: page, access, is_present: false };
            classic::handle(self, fault).map_err(|error| match error {
                AccessError::OutOfFrames(cause) => CallError::OutOfFrames(cause),
                AccessError::NotMapped { address } => CallError::Unmapped { address },
                AccessError::Forbidden { .. } => CallError::Invalid("the area's rights forbid the access"),
                AccessError::NoPage { .. } => CallError::Fetch,
                AccessError::TooManyReferences => CallError::TooManyReferences,
            })?;
        }
        Ok(())
    }

    fn flags_at(&self, address: u64) -> Option<AreaFlags> {
        let _read = self.semaphore.read();
        // SAFETY: the semaphore keeps the area.
        self.index.containing(address).map(|entry| unsafe { entry.area.as_ref() }.view().flags)
    }
}

fn clear_bits<P: Platform>(slot: &P::AtomicU64, bits: u64) {
    use faultless_platform::AtomicInteger;
    // ORDER: AcqRel pairs with the compare-and-swap of a walk that sets the bits.
    slot.fetch_and(!bits, Ordering::AcqRel);
}

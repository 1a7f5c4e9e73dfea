//! madvise, and making pages before they are touched.

use super::Space;
use crate::addr::{PAGE, PageRange, is_page_aligned};
use crate::area::AreaFlags;
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

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Takes advice about a range. Across holes it is applied to what is mapped, and the answer is `Unmapped`.
    pub fn madvise(&self, start: u64, len_bytes: u64, advice: Advice) -> Result<(), CallError> {
        if !is_page_aligned(start) {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        if len_bytes == 0 {
            return Ok(());
        }
        let range = PageRange::new(start, len_bytes).ok_or(CallError::Invalid("the range leaves user memory"))?;
        match advice {
            Advice::DontNeed => self.on_areas(range, &|part, flags| self.drop_pages(part, flags)),
            Advice::Free => self.on_areas(range, &|part, flags| self.free_lazily(part, flags)),
            Advice::PopulateRead => self.populate_as(range, Access::Read),
            Advice::PopulateWrite => self.populate_as(range, Access::Write),
            Advice::DontFork => self.flag(range, AreaFlags::DONTFORK, AreaFlags::empty()),
            Advice::DoFork => self.flag(range, AreaFlags::empty(), AreaFlags::DONTFORK),
            Advice::WipeOnFork => self.flag(range, AreaFlags::WIPEONFORK, AreaFlags::empty()),
            Advice::KeepOnFork => self.flag(range, AreaFlags::empty(), AreaFlags::WIPEONFORK),
            Advice::Ignored => {
                self.vm().events().count(Event::AdviceIgnored);
                self.on_areas(range, &|_, _| Ok(()))
            }
        }
    }

    /// Locks or unlocks the pages of a range; locking makes them.
    pub fn mlock(&self, start: u64, len_bytes: u64, locked: bool) -> Result<(), CallError> {
        let first = crate::addr::page_floor(start);
        let range = PageRange::new(first, len_bytes.saturating_add(start - first));
        let range = range.ok_or(CallError::Unmapped { address: start })?;
        let (set, clear) = match locked {
            true => (AreaFlags::LOCKED, AreaFlags::empty()),
            false => (AreaFlags::empty(), AreaFlags::LOCKED),
        };
        self.flag(range, set, clear)?;
        if locked { self.populate(range) } else { Ok(()) }
    }

    fn flag(&self, range: PageRange, set: AreaFlags, clear: AreaFlags) -> Result<(), CallError> {
        self.with_write(|| self.reflag(range, &|view| Ok((view.flags - clear) | set)))
    }

    /// Runs `act` on the part of each area that lies in `range`, under the read lock.
    fn on_areas(
        &self,
        range: PageRange,
        act: &dyn Fn(PageRange, AreaFlags) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let _read = self.semaphore.read();
        let mut position = range.start();
        let mut hole = None;
        for entry in self.index.overlapping(range.addresses()) {
            if entry.start > position {
                hole.get_or_insert(position);
            }
            // SAFETY: the semaphore keeps the area.
            let flags = unsafe { entry.area.as_ref() }.view().flags;
            if let Some(part) = range.intersection(entry.start..entry.end) {
                act(part, flags)?;
            }
            position = entry.end;
        }
        if position < range.end() {
            hole.get_or_insert(position);
        }
        hole.map_or(Ok(()), |address| Err(CallError::Unmapped { address }))
    }

    fn drop_pages(&self, part: PageRange, flags: AreaFlags) -> Result<(), CallError> {
        if flags.contains(AreaFlags::LOCKED) {
            return Err(CallError::Invalid("the pages are locked"));
        }
        self.zap(part);
        Ok(())
    }

    fn free_lazily(&self, part: PageRange, flags: AreaFlags) -> Result<(), CallError> {
        if flags.contains(AreaFlags::SHARED) {
            return Err(CallError::Invalid("MADV_FREE is for private anonymous memory"));
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

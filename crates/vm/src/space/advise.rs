//! madvise.
//!
//! # Guarantee
//! Advice is applied area by area, ascending. Holes are passed over, and make the answer `Unmapped` at the end; an
//! error ends the walk, and what was done before it stays.

use super::Space;
use super::map::MAX_OFFSET;
use super::permit::ReadPermit;
use super::ranges::Additions;
use crate::access::Access;
use crate::addr::{AddressRange, PAGE, PageRange, VirtAddr, page_ceil};
use crate::area::{Area, AreaFlags, AreaView};
use crate::design::Design;
use crate::error::CallError;
use crate::events::Event;
use crate::limits::Limits;
use crate::object::ObjectRef;
use crate::system::System;
use crate::translations::Emptied;
use core::ops::Range;

/// What a program says about a range.
/// [`Space::madvise`] takes it; `faultless_abi::advice_of` makes it of Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing special (`MADV_NORMAL`).
    Normal,
    /// It will be read at random (`MADV_RANDOM`).
    Random,
    /// It will be read in order (`MADV_SEQUENTIAL`).
    Sequential,
    /// It will be needed soon (`MADV_WILLNEED`); everything is in memory here.
    WillNeed,
    /// Drop the pages (`MADV_DONTNEED`).
    DontNeed,
    /// Drop the pages, also locked ones (`MADV_DONTNEED_LOCKED`).
    DontNeedLocked,
    /// The pages may be dropped until they are written again (`MADV_FREE`); they stay until `PageOut` drops them.
    Free,
    /// Drop the object's own pages: they are zeros from now on (`MADV_REMOVE`).
    Remove,
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
    /// Leave it out of core dumps (`MADV_DONTDUMP`).
    DontDump,
    /// Undoes `DontDump` (`MADV_DODUMP`).
    DoDump,
    /// Equal pages may be merged (`MADV_MERGEABLE`).
    Mergeable,
    /// Undoes `Mergeable` (`MADV_UNMERGEABLE`).
    Unmergeable,
    /// Huge pages are wanted (`MADV_HUGEPAGE`).
    HugePage,
    /// Huge pages are not wanted (`MADV_NOHUGEPAGE`).
    NoHugePage,
    /// Make huge pages now (`MADV_COLLAPSE`); there are none here, so it is refused.
    Collapse,
    /// The pages will not be needed soon (`MADV_COLD`).
    Cold,
    /// Page the range out (`MADV_PAGEOUT`); there is nowhere to page to here, so it drops what `Free` gave up, and
    /// memory that may be dropped (`MAP_DROPPABLE`).
    PageOut,
    /// Make every access a bad one, without cutting the area (`MADV_GUARD_INSTALL`).
    GuardInstall,
    /// Undoes `GuardInstall` (`MADV_GUARD_REMOVE`).
    GuardRemove,
    /// Anything else: accepted, counted, without effect that a program could see.
    Ignored,
}

impl Advice {
    /// Says whether the advice throws content away, which sealed areas refuse.
    fn discards(self) -> bool {
        use Advice::{DontFork, DontNeed, DontNeedLocked, Free, GuardInstall, Remove, WipeOnFork};
        matches!(self, Free | DontNeed | DontNeedLocked | Remove | DontFork | WipeOnFork | GuardInstall)
    }
}

/// Checks a range as madvise does: one that overflows is invalid, one outside user memory is not mapped.
fn advised_range(start: VirtAddr, len_bytes: u64) -> Result<PageRange, CallError> {
    let end = page_ceil(len_bytes).and_then(|len| start.checked_add(len));
    let end = end.ok_or(CallError::Invalid("the range overflows"))?;
    // What lies behind user memory is a hole like another.
    PageRange::between(start, end.min(PageRange::USER.end())).ok_or(CallError::Unmapped { address: start })
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Takes advice about a range; see the module.
    pub fn madvise(&self, range: AddressRange, advice: Advice) -> Result<(), CallError> {
        let AddressRange { start, len_bytes } = range;
        if !start.is_page_aligned() {
            return Err(CallError::Invalid("the address is not a multiple of the page size"));
        }
        if len_bytes == 0 {
            return Ok(());
        }
        let range = advised_range(start, len_bytes)?;
        self.advise(range, advice)?;
        let is_cut = page_ceil(len_bytes).is_none_or(|len| len != range.len_bytes());
        if is_cut { Err(CallError::Unmapped { address: range.end() }) } else { Ok(()) }
    }

    fn advise(&self, range: PageRange, advice: Advice) -> Result<(), CallError> {
        match advice {
            Advice::PopulateRead => self.populate_as(range, Access::Read),
            Advice::PopulateWrite => self.populate_as(range, Access::Write),
            Advice::Remove => self.remove_pages(range),
            Advice::DontNeed
            | Advice::DontNeedLocked
            | Advice::Free
            | Advice::GuardRemove
            | Advice::WillNeed
            | Advice::Cold
            | Advice::PageOut
            | Advice::Collapse => self.on_areas(range, advice),
            // Pages that are guarded already stay so when all is tried again.
            Advice::GuardInstall => self.try_again(|| self.on_areas(range, advice)),
            Advice::Ignored => {
                self.vm().events().note(Event::AdviceIgnored, range.start().get());
                self.on_areas(range, advice)
            }
            _ => self.flag(range, advice),
        }
    }

    /// Applies advice that changes flags.
    fn flag(&self, range: PageRange, advice: Advice) -> Result<(), CallError> {
        let result = self.try_with(
            || self.write_part(range, Additions::TWO_CUTS).0,
            |permit| {
                let flagged = permit.reflag_all(range, &|view, part| {
                    check_seal(view, part, advice)?;
                    flags_after(view, advice, &self.limits)
                });
                permit.cut_seams(&range.addresses());
                flagged
            },
        );
        result.map_err(|error| match error {
            // As Linux: a shortage that may pass.
            CallError::TooManyAreas { limit } => CallError::TooManyAreasNow { limit },
            other => other,
        })
    }

    /// Applies advice about pages to the part of each area that lies in `range`, under the read lock.
    fn on_areas(&self, range: PageRange, advice: Advice) -> Result<(), CallError> {
        let read = loop {
            let read = self.read_settled(range.addresses());
            if advice != Advice::GuardInstall || !read.permit().has_chain_without_root(&range.addresses()) {
                break read;
            }
            drop(read);
            self.root_chains(&range.addresses());
        };
        let mut position = range.start();
        let mut hole = None;
        for entry in read.permit().overlapping(range.addresses()) {
            if entry.start > position {
                hole.get_or_insert(position);
            }
            let area = entry.area();
            if let Some(part) = range.intersection(entry.start..entry.end) {
                read.permit().advise_part(area, part, advice)?;
            }
            position = entry.end;
        }
        if position < range.end() {
            hole.get_or_insert(position);
        }
        hole.map_or(Ok(()), |address| Err(CallError::Unmapped { address }))
    }
}

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    fn advise_part(self, area: &Area<P, D>, part: PageRange, advice: Advice) -> Result<(), CallError> {
        let view = area.view();
        check_seal(&view, part, advice)?;
        let is_locked = view.flags.contains(AreaFlags::LOCKED);
        match advice {
            Advice::DontNeed | Advice::Cold | Advice::PageOut | Advice::Free | Advice::GuardInstall if is_locked => {
                Err(CallError::Invalid("the pages are locked"))
            }
            Advice::Free if view.object.is_some() => {
                Err(CallError::Invalid("MADV_FREE is for private anonymous memory"))
            }
            Advice::Collapse => Err(CallError::Invalid("there are no huge pages")),
            Advice::DontNeed | Advice::DontNeedLocked => {
                self.translations.zap(part, Emptied::Pages);
                Ok(())
            }
            Advice::Free => {
                self.translations.free_lazily(part);
                Ok(())
            }
            Advice::PageOut if view.object.is_none() => {
                let is_droppable = view.flags.contains(AreaFlags::DROPPABLE);
                self.translations.zap(part, if is_droppable { Emptied::Droppable } else { Emptied::GivenUp });
                Ok(())
            }
            Advice::GuardInstall => self.install_guards(area, part),
            Advice::GuardRemove => {
                self.translations.remove_guards(part);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Punches holes into the objects behind a range; each with no lock of the space held.
    fn remove_pages(&self, range: PageRange) -> Result<(), CallError> {
        let mut position = range.start();
        let mut hole = None;
        while position < range.end() {
            let unmapped = CallError::Unmapped { address: position };
            let Some((part, object, first)) = self.removable(position, range.end())? else {
                return Err(hole.unwrap_or(unmapped));
            };
            if part.start() > position {
                hole.get_or_insert(unmapped);
            }
            self.vm().punch_object(&object, bytes_of(first, part.len_bytes())?)?;
            position = part.end();
        }
        hole.map_or(Ok(()), Err)
    }

    /// Returns what the first area at or above `position` has below `end`, its object and first page there, if the
    /// object's pages may be removed through it.
    fn removable(
        &self,
        position: VirtAddr,
        end: VirtAddr,
    ) -> Result<Option<(PageRange, ObjectRef<P>, u64)>, CallError> {
        let read = self.read_settled(position..end);
        let Some(entry) = read.permit().first_ending_after(position) else { return Ok(None) };
        let Some(part) = PageRange::between(entry.start.max(position), entry.end.min(end)) else { return Ok(None) };
        let area = entry.area();
        let view = area.view();
        check_seal(&view, part, Advice::Remove)?;
        if view.flags.contains(AreaFlags::LOCKED) {
            return Err(CallError::Invalid("the pages are locked"));
        }
        if !view.has_file() {
            return Err(CallError::Invalid("no object stands behind the range"));
        }
        if view.flags & (AreaFlags::SHARED | AreaFlags::DENY_WRITE) != AreaFlags::SHARED {
            return Err(CallError::Denied);
        }
        // A reference page's handle is for reading alone.
        let object = area.object().ok_or(CallError::NoFile)?;
        Ok(Some((part, object.clone(), view.page_offset_of(part.start()))))
    }
}

/// Returns which bytes of its object a range is, as Linux counts them, in signed 64-bit words: memory that grew may lie
/// behind where any file can end.
fn bytes_of(first: u64, len_bytes: u64) -> Result<Range<u64>, CallError> {
    let start = first.wrapping_mul(PAGE);
    if start > MAX_OFFSET {
        return Err(CallError::Invalid("the pages lie behind the end of the longest file"));
    }
    let end = start.checked_add(len_bytes).filter(|&end| end <= MAX_OFFSET);
    Ok(start..end.ok_or(CallError::BehindLongestFile)?)
}

/// Checks that a sealed area which nobody may write keeps its content. Linux leaves that to files, and a reference area
/// is one to it.
fn check_seal<P: System>(view: &AreaView<P>, part: PageRange, advice: Advice) -> Result<(), CallError> {
    let is_protected = view.flags.contains(AreaFlags::SEALED)
        && advice.discards()
        && !view.has_file()
        && !view.flags.contains(AreaFlags::WRITE);
    if is_protected { Err(CallError::Sealed { address: part.start() }) } else { Ok(()) }
}

/// Returns an area's flags after advice that changes them.
fn flags_after<P: System>(view: &AreaView<P>, advice: Advice, limits: &Limits) -> Result<AreaFlags, CallError> {
    let flags = view.flags;
    let is_droppable = flags.contains(AreaFlags::DROPPABLE);
    Ok(match advice {
        Advice::Normal => flags - AreaFlags::RANDOM - AreaFlags::SEQUENTIAL,
        Advice::Random => (flags - AreaFlags::SEQUENTIAL) | AreaFlags::RANDOM,
        Advice::Sequential => (flags - AreaFlags::RANDOM) | AreaFlags::SEQUENTIAL,
        Advice::DontFork => flags | AreaFlags::DONTFORK,
        Advice::DoFork => flags - AreaFlags::DONTFORK,
        Advice::WipeOnFork if view.object.is_some() || view.is_reference() && !limits.reference_extensions => {
            return Err(CallError::Invalid("only private anonymous memory can be wiped on fork"));
        }
        Advice::WipeOnFork => flags | AreaFlags::WIPEONFORK,
        Advice::KeepOnFork | Advice::DoDump if is_droppable => {
            return Err(CallError::Invalid("memory that may be dropped is neither inherited nor dumped"));
        }
        Advice::KeepOnFork => flags - AreaFlags::WIPEONFORK,
        Advice::DontDump => flags | AreaFlags::NO_DUMP,
        Advice::DoDump => flags - AreaFlags::NO_DUMP,
        // Accepted everywhere, and kept only where pages could be merged.
        Advice::Mergeable if flags.contains(AreaFlags::SHARED) || is_droppable => flags,
        Advice::Mergeable => flags | AreaFlags::MERGEABLE,
        Advice::Unmergeable => flags - AreaFlags::MERGEABLE,
        Advice::HugePage => (flags - AreaFlags::NO_HUGE) | AreaFlags::HUGE,
        Advice::NoHugePage => (flags - AreaFlags::HUGE) | AreaFlags::NO_HUGE,
        _ => flags,
    })
}

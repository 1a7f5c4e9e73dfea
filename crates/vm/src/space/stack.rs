//! Stacks: areas that grow downwards when they are touched below their start.

use super::change::{Join, NewArea};
use super::permit::{ReadPermit, WritePermit};
use super::{EVERYTHING, Space, SpaceReadGuard};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{AreaFlags, AreaView};
use crate::design::Design;
use crate::error::{AccessError, CallError};
use crate::events::Event;
use crate::limits::Limits;
use crate::system::System;
use faultless_platform::mutant;

impl<P: System, D: Design<P>> Space<P, D> {
    /// Grows the stack above `address` down to it, if the gap to the next lower area and the limit allow.
    #[cold]
    pub(crate) fn grow_stack(&self, address: VirtAddr) -> Result<(), AccessError> {
        let not_mapped = AccessError::NotMapped { address };
        let _write = mutant!(StackGrowthUnderRead, Some(self.write_settled(EVERYTHING)) => None);
        let _read: Option<SpaceReadGuard<'_, P, D>> =
            mutant!(StackGrowthUnderRead, None => Some(self.read(EVERYTHING)));
        // SAFETY: locked for changing it, but for the known bug.
        let permit = unsafe { WritePermit::assume(self) };
        let entry = permit.first_ending_after(address).ok_or(not_mapped)?;
        let area = entry.area();
        let old = area.view();
        if old.start <= address {
            // Another thread was faster.
            return Ok(());
        }
        let start = address.page();
        let is_free = start.get() >= self.limits.lowest_chosen && permit.is_gap_kept(&old, start);
        if !old.flags.contains(AreaFlags::GROWSDOWN) || !is_free {
            return Err(not_mapped);
        }
        // Linux prepares the anon_vma before it checks limits, so even a refused growth leaves a root.
        permit.root_of(area);
        let old = area.view();
        if !self.is_growth_within_limits(&old, start) {
            return Err(not_mapped);
        }
        let added = PageRange::between(start, old.start).ok_or(not_mapped)?;
        let page_offset = old.page_offset.checked_sub(added.nr_pages()).ok_or(not_mapped)?;
        let view = AreaView { start, end: old.start, page_offset, ..old };
        let change =
            permit.prepare_change(added, Some(NewArea { view, behind: area.behind().clone(), join: Join::Above }));
        match change {
            Ok(mut change) => change.commit(|| ()),
            Err(CallError::OutOfFrames(cause)) => return Err(cause.into()),
            Err(_) => return Err(not_mapped),
        }
        self.vm().events().note(Event::StackGrowth, start.get());
        Ok(())
    }

    fn is_growth_within_limits(&self, stack: &AreaView<P>, start: VirtAddr) -> bool {
        let added = stack.start - start;
        stack.end - start <= self.limits.stack_bytes
            && self.check_expansion(stack.flags, added, 0).is_ok()
            && self.check_lock(stack.flags, added).is_ok()
            && self.check_commit(added).is_ok()
    }
}

impl<P: System, D: Design<P>> ReadPermit<'_, P, D> {
    fn is_gap_kept(self, stack: &AreaView<P>, start: VirtAddr) -> bool {
        match self.last_starting_before(stack.start) {
            None => true,
            Some(lower) if lower.end > start => false,
            Some(lower) => match lower.area().flags() {
                // Inaccessible areas and other stacks need no gap, as on Linux.
                flags if !flags.intersects(AreaFlags::RIGHTS) || flags.contains(AreaFlags::GROWSDOWN) => true,
                _ => start - lower.end >= mutant!(GapOfOnePage, Limits::stack_gap_bytes() => crate::addr::PAGE),
            },
        }
    }
}

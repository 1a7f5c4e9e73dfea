//! The area list as users read it (/proc/self/maps).

use super::Space;
use crate::area::AreaFlags;
use crate::design::Design;
use core::fmt;
use faultless_platform::Platform;
use faultless_sync::RwSemaphore;

/// One line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaLine {
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
    /// What it is and allows.
    pub flags: AreaFlags,
    /// Page offset of its first page.
    pub page_offset: u64,
    /// Whether an object stands behind it.
    pub has_object: bool,
}

impl fmt::Display for AreaLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |flag, letter| if self.flags.contains(flag) { letter } else { '-' };
        let kind = if self.flags.contains(AreaFlags::SHARED) { 's' } else { 'p' };
        let (read, write, execute) =
            (mark(AreaFlags::READ, 'r'), mark(AreaFlags::WRITE, 'w'), mark(AreaFlags::EXEC, 'x'));
        let offset = if self.has_object { self.page_offset.wrapping_mul(crate::addr::PAGE) } else { 0 };
        write!(out, "{:08x}-{:08x} {read}{write}{execute}{kind} {offset:08x}", self.start, self.end)
    }
}

impl<P: Platform, D: Design<P>> Space<P, D> {
    /// Visits the areas, ascending, under the read lock.
    pub fn for_each_area(&self, mut visit: impl FnMut(AreaLine)) {
        let _read = self.semaphore.read();
        for entry in self.index.overlapping(0..u64::MAX) {
            // SAFETY: the semaphore keeps the area.
            let view = unsafe { entry.area.as_ref() }.view();
            visit(AreaLine {
                start: view.start,
                end: view.end,
                flags: view.flags,
                page_offset: view.page_offset,
                has_object: view.object.is_some(),
            });
        }
    }
}

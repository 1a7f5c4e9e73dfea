//! The area list as users read it (/proc/self/maps).
//!
//! # Guarantee
//! [`AreaLine`] and [`AreaList`] print what Linux prints: addresses, rights, offset in the object, device, inode and
//! the name of the heap or of a reference page's file. The device is always 00:00, the inode is the object's identity,
//! and objects have no name.

use super::areas::Map;
use super::{EVERYTHING, Space};
use crate::area::AreaFlags;
use crate::design::{DefaultDesign, Design};
use crate::system::System;
use core::fmt::{self, Write as _};
use faultless_platform::{Atomic, Ordering};

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
    /// The name of the object behind it, as its maker gave it.
    pub identity: Option<u64>,
    /// Whether untouched pages read as a reference page.
    pub is_reference: bool,
    /// Whether the heap lies in it.
    pub is_heap: bool,
}

/// Column in which Linux begins the name.
const NAME_COLUMN: usize = 73;

/// Writes on, and counts.
struct Counted<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    len: usize,
}

impl fmt::Write for Counted<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.len += text.len();
        self.out.write_str(text)
    }
}

impl AreaLine {
    /// Returns the name at the line's end.
    fn name(&self) -> Option<&'static str> {
        match () {
            () if self.is_reference => Some("anon_inode:[refpage]"),
            () if self.is_heap => Some("[heap]"),
            () => None,
        }
    }
}

impl fmt::Display for AreaLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |flag, letter| if self.flags.contains(flag) { letter } else { '-' };
        let kind = if self.flags.contains(AreaFlags::SHARED) { 's' } else { 'p' };
        let (read, write, execute) =
            (mark(AreaFlags::READ, 'r'), mark(AreaFlags::WRITE, 'w'), mark(AreaFlags::EXEC, 'x'));
        let offset =
            if self.has_object || self.is_reference { self.page_offset.wrapping_mul(crate::addr::PAGE) } else { 0 };
        let mut line = Counted { out, len: 0 };
        write!(line, "{:08x}-{:08x} {read}{write}{execute}{kind} {offset:08x} ", self.start, self.end)?;
        write!(line, "00:00 {} ", self.identity.unwrap_or(0))?;
        let padding = NAME_COLUMN.saturating_sub(line.len);
        match self.name() {
            Some(name) => write!(out, "{:padding$}{name}", ""),
            None => Ok(()),
        }
    }
}

/// A space's whole list, a line for each area; see [`Space::list`].
pub struct AreaList<'a, P: System, D: Design<P> = DefaultDesign<P>>(&'a Space<P, D>);

impl<P: System, D: Design<P>> fmt::Display for AreaList<'_, P, D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.0.for_each_area(|line| result = result.and_then(|()| writeln!(out, "{line}")));
        result
    }
}

impl<P: System, D: Design<P>> Space<P, D> {
    /// Returns the area list, to be printed.
    pub fn list(&self) -> AreaList<'_, P, D> {
        AreaList(self)
    }

    /// Visits the areas, ascending, under the read lock.
    pub fn for_each_area(&self, visit: impl FnMut(AreaLine)) {
        D::Map::for_each_area(self, visit);
    }

    /// Visits the areas of the index.
    pub(super) fn visit_areas(&self, mut visit: impl FnMut(AreaLine)) {
        let read = self.read_settled(EVERYTHING);
        // Relaxed: written under the lock that we hold.
        let heap = self.heap_start.load(Ordering::Relaxed)..self.heap_end.load(Ordering::Relaxed);
        for entry in read.permit().overlapping(EVERYTHING) {
            let area = entry.area();
            let view = area.view();
            visit(AreaLine {
                start: view.start,
                end: view.end,
                flags: view.flags,
                page_offset: view.page_offset,
                has_object: view.object.is_some(),
                identity: area.object().map(|object| object.identity()),
                is_reference: view.is_reference(),
                is_heap: heap.start != 0 && view.start <= heap.end && view.end >= heap.start,
            });
        }
    }
}

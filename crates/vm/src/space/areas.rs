//! What the map calls change: the seam for designs that keep no areas.
//!
//! # The seam
//! [`Space`] checks the shape of a call's arguments and hands it to its design's [`Map`]. The published designs keep
//! [`Areas`] in the space's index. A map of promises keeps its memory in the entries of the page tables
//! ([`Entry::promise`](crate::Entry::promise)), which it changes by [`Promises`](super::Promises).

use super::{AreaLine, MapRequest, ReadPermit, Space};
use crate::addr::{PageRange, VirtAddr};
use crate::area::{AreaFlags, AreaView};
use crate::asked::Protection;
use crate::design::Design;
use crate::error::CallError;
use crate::system::System;
use crate::types::Map;

/// A map of areas, in the space's index.
#[derive(Clone, Copy, Debug)]
pub struct Areas;

// SAFETY: both look at the index, which the calls change; entries are filled by faults on areas alone.
unsafe impl<P: System, D: Design<P>> Map<P, D> for Areas {
    const PROMISES: bool = false;

    #[inline]
    fn mmap(
        space: &Space<P, D>,
        request: &MapRequest<'_, P>,
        len_bytes: u64,
    ) -> Result<(PageRange, AreaFlags), CallError> {
        space.map_area(request, len_bytes)
    }

    #[inline]
    fn munmap(space: &Space<P, D>, range: PageRange) -> Result<(), CallError> {
        space.unmap_areas(range)
    }

    #[inline]
    fn mprotect(space: &Space<P, D>, range: PageRange, rights: Protection) -> Result<(), CallError> {
        space.protect_areas(range, rights.into())
    }

    fn search(space: &Space<P, D>, len_bytes: u64) -> Option<PageRange> {
        space.search_areas(len_bytes)
    }

    #[inline]
    fn for_each_area(space: &Space<P, D>, visit: impl FnMut(AreaLine)) {
        space.visit_areas(visit);
    }

    fn area_at(space: &Space<P, D>, address: VirtAddr) -> Option<AreaView<P>> {
        // SAFETY: the caller keeps the map as it is.
        unsafe { ReadPermit::assume(space) }.containing(address).map(|found| found.area().view())
    }
}

//! What tests of lanes for named addresses have in common: where they map, how, and the calls that crowd there.

use super::fitting::Unfit;
use super::{Backing, MapRequest, Placement, Populate, Space};
use crate::AreaFlags;
use crate::addr::{EVERYTHING, PAGE, PageRange, VirtAddr};
use crate::design::Design;
use crate::system::System;
use core::ops::Range;

/// In no CPU's range, and a multiple of a granule.
pub(super) const START: u64 = 0x10_0000_0000;

/// Asks for private memory in a range that may be loaded and stored to.
pub(super) fn private<P: System>(range: &Range<u64>) -> MapRequest<'static, P> {
    let flags = AreaFlags::READ | AreaFlags::WRITE;
    MapRequest {
        placement: Placement::Fixed(VirtAddr::new(range.start)),
        len_bytes: range.end - range.start,
        protection: flags.protection(),
        options: flags.options(),
        backing: Backing::Anonymous,
        populate: Populate::OnFault,
    }
}

/// Makes annexes around a page, as a call does that waited for others.
pub(super) fn crowd<P: System, D: Design<P>>(space: &Space<P, D>, page: u64) {
    let write = space.write(EVERYTHING);
    let range = PageRange::new(VirtAddr::new(page), PAGE).expect("user memory");
    let part = space.area_containing(page).map_or(page..page + PAGE, |area| area.start..area.end);
    space.make_fit(write.permit(), &Unfit::Crowded { range, part });
}

//! The checkpoint: the area list of the zones, and the bytes of each readable page.

use super::answer::{AreaSeen, Behind};
use super::attempt::{AccessKind, Slot};
use super::block::Block;
use super::sys::{AREA_SHARED, AreaQuery, area_from, raw};
use super::zone::{PAGE, Zone};

/// Files by inode.
#[derive(Clone, Copy, Default)]
pub(super) struct Inodes {
    pub(super) read_write: u64,
    pub(super) empty: u64,
    pub(super) reference: u64,
}

/// Writes the areas of all zones to the stream; returns how many, or `None` if they don't fit.
pub(super) fn list(block: &Block, maps: i32, inodes: Inodes, slot: Slot) -> Option<u64> {
    let mut nr_areas = 0;
    for zone in Zone::ALL {
        let mut position = zone.start;
        while let Some(found) = area_from(maps, position).filter(|found| found.start < zone.end) {
            block.push_area(&seen(&found, zone, inodes, slot))?;
            (nr_areas, position) = (nr_areas + 1, found.end);
        }
    }
    Some(nr_areas)
}

fn seen(found: &AreaQuery, zone: Zone, inodes: Inodes, slot: Slot) -> AreaSeen {
    let (start, end) = (found.start.max(zone.start), found.end.min(zone.end));
    let rights = found.flags & 7;
    let behind = match found.inode {
        0 => Behind::Anonymous,
        inode if inode == inodes.read_write => Behind::ReadWrite,
        inode if inode == inodes.empty => Behind::Empty,
        inode if inode == inodes.reference => Behind::Reference,
        _ => Behind::Shared,
    };
    let digest = if rights == 0 { 0 } else { digest(start, end, slot) };
    AreaSeen { start, end, rights, is_shared: found.flags & AREA_SHARED != 0, offset: found.offset, behind, digest }
}

fn digest(start: u64, end: u64, slot: Slot) -> u64 {
    if end - start > PAGE {
        // Faults come cheaper at once; what can't be had so, the loads find out.
        // SAFETY: loads follow of every page; this only does beforehand what they would.
        let _ = unsafe { raw!(libc::SYS_madvise, start, end - start, libc::MADV_POPULATE_READ) };
    }
    let mut sum = 0_u64;
    let mut page = start;
    while page < end {
        sum = sum.wrapping_add(AreaSeen::page_digest(page, slot.attempt(AccessKind::Digest, page, 0)));
        page += PAGE;
    }
    sum
}

//! Which areas refuse advice (mm/madvise.c).
//!
//! # Guarantee
//! Linux takes the areas of a range one after another, and stops at the first that refuses: what lies before it has
//! been advised. The recording tells the error alone; which area it was is read off what is known of each.

use std::ops::Range;

use faultless_abi::Prot;
use faultless_vm::Advice;

use super::regions::{Backing, Region, Regions, Traits};

/// Returns where the first region of a range begins that refuses advice, for a seal or for what it is, or the range if
/// that lies inside; nothing if none is known to.
pub fn refusing(regions: &Regions, range: Range<u64>, advice: Advice, is_for_seals: bool) -> Option<u64> {
    let mut parts = regions.overlapping(range.clone());
    let refuses = |region: &&Region| if is_for_seals { is_sealed(region) } else { refuses(region, advice) };
    parts.find(refuses).map(|region| region.start.max(range.start))
}

/// Whoever may store may as well drop pages (mm/mseal.c, `can_modify_vma_madv`).
fn is_sealed(region: &Region) -> bool {
    region.traits.contains(Traits::SEALED) && !region.prot.contains(Prot::WRITE)
}

fn refuses(region: &Region, advice: Advice) -> bool {
    let is_locked = region.traits.contains(Traits::LOCKED);
    match advice {
        Advice::DontNeed | Advice::Cold | Advice::PageOut | Advice::GuardInstall => is_locked,
        Advice::Free => is_locked || region.backing != Backing::Anonymous,
        // Whether the file was opened for writing is not known.
        Advice::Remove => is_locked || !region.backing.is_shared_object(),
        Advice::WipeOnFork => region.backing != Backing::Anonymous,
        Advice::PopulateRead => !region.prot.contains(Prot::READ),
        Advice::PopulateWrite => !region.prot.contains(Prot::WRITE),
        _ => false,
    }
}
